"""Charts as plain SVG: numbers in, a picture out. Nothing is computed here but where things go."""

from counterpoise.pages.lines import NAMED, Line, Mark, line_chart, lines_of
from counterpoise.pages.rows import Bar, DotRow, bar_chart, dot_chart
from counterpoise.pages.scales import number, ticks

__all__ = [
    "NAMED",
    "Bar",
    "DotRow",
    "Line",
    "Mark",
    "bar_chart",
    "dot_chart",
    "line_chart",
    "lines_of",
    "number",
    "ticks",
]
