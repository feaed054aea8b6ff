"""One page about a reproduction: figures, numbers, and what they were made with."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from html import escape
from importlib.metadata import PackageNotFoundError, version

from counterpoise.experiments.figures import Panel
from counterpoise.pages.document import policy
from counterpoise.tables import Table

_STYLE = """
:root { color-scheme: light; }
body { font: 16px/1.5 system-ui, sans-serif; color: #1a1a1a; background: #fff; }
body { margin: 0 auto; max-width: 72rem; padding: 1rem; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.2rem; margin-top: 2rem; }
.panels { display: grid; grid-template-columns: repeat(auto-fit, minmax(20rem, 1fr)); gap: 1.5rem; }
figure { margin: 0; } figure img { width: 100%; height: auto; border: 1px solid #ddd; }
figcaption { font-size: .9rem; color: #333; }
.wide { overflow-x: auto; } table { border-collapse: collapse; font-size: .9rem; }
th, td { padding: .25rem .6rem; border-bottom: 1px solid #ddd; text-align: right; white-space: nowrap; }
th:nth-child(-n+2), td:nth-child(-n+2), th:last-child, td:last-child { text-align: left; }
.note { background: #fdf0ed; border-left: 4px solid #a00000; padding: .5rem 1rem; }
"""

# A page that is opened from a disk has no origin, so browsers need not take its neighbours for its own.
_BESIDE = "'self' file:"
_PACKAGES = ("counterpoise", "numpy", "scipy", "scikit-learn", "matplotlib")


def written(
    panels: Sequence[Panel], numbers: Table, claims: Table, studies: Mapping[str, str], notes: Sequence[str]
) -> str:
    """Return the page as HTML; it needs nothing but the pictures beside it."""
    figures = "".join(
        f'<figure id="{panel.name}"><img src="{panel.name}.svg" alt="{escape(panel.caption)}">'
        f"<figcaption><b>{panel.name}</b> {escape(panel.caption)}</figcaption></figure>"
        for panel in panels
    )
    said = "".join(f'<p class="note">{escape(note)}</p>' for note in notes)
    facts = {**studies, "Python": platform.python_version(), **{name: _version(name) for name in _PACKAGES}}
    rows = "".join(f"<tr><td>{escape(name)}</td><td>{escape(value)}</td></tr>" for name, value in facts.items())
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f"{policy(images=_BESIDE)}"
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>Robust learning in heterogeneous contexts, regenerated</title><style>{_STYLE}</style></head><body>"
        "<h1>Robust learning in heterogeneous contexts, regenerated</h1>"
        "<p>Every panel of the paper by Osama, Zachariah and Stoica, and some beyond it, drawn by counterpoise from "
        '<a href="results.csv">one table of results</a>.</p>'
        f"{said}<h2>Numbers in the text</h2><div class='wide'>{numbers._repr_html_()}</div>"
        f"<h2>Claims</h2><div class='wide'>{claims._repr_html_()}</div>"
        f"<h2>Figures</h2><div class='panels'>{figures}</div>"
        f"<h2>Made with</h2><table>{rows}</table></body></html>\n"
    )


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"
