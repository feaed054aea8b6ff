import re
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from counterpoise.exceptions import InvalidInputError
from counterpoise.reports.pages.lines import Line, Mark, line_chart
from counterpoise.reports.pages.panels import Panel, panel_chart
from counterpoise.reports.pages.rows import Bar, DotRow, bar_chart, dot_chart
from counterpoise.reports.pages.svg import CYCLE, FAINT, INK, MUTED, NARROW, SIZE, WIDTH, contrast, legible
from counterpoise.reports.pages.templates import environment, rendered
from counterpoise.reports.pages.words import Html
from tests.reports.pages.hostile import NAMES

SVG = "{http://www.w3.org/2000/svg}"
COLOURS = {"robust": "#0b6e4f", "erm": "#c8553d", "inverse-frequency": "#b8860b", "robust-chi2": "#93c47d"}
NAN, INF = float("nan"), float("inf")
WORDS = {"title": "Risk by level", "x_label": "level", "y_label": "risk", "alt": "Risk falls, then rises."}
ROW_WORDS = {"title": "Risk by context", "x_label": "risk", "alt": "The north is worst."}

any_float = st.floats(allow_nan=True, allow_infinity=True)
any_name = st.one_of(st.sampled_from(NAMES), st.text(st.characters(), max_size=30))
curves = st.integers(0, 12).flatmap(
    lambda n: st.builds(
        Line,
        any_name,
        st.lists(any_float, min_size=n, max_size=n),
        st.lists(any_float, min_size=n, max_size=n),
        st.sampled_from([None, "#123456"]),
        st.booleans(),
        st.booleans(),
    )
)


def parsed(svg):
    assert isinstance(svg, Html)
    return ElementTree.fromstring(svg)


def drawn(svg, kind):
    return [part for part in parsed(svg).iter() if part.get("class") == kind]


def points(path):
    return [[tuple(map(float, p.split())) for p in run.split("L")] for run in path.get("d").split("M")[1:]]


def words(svg):
    return ["".join(part.itertext()) for part in parsed(svg).iter(f"{SVG}text")]


# --- what every chart promises ---------------------------------------------------------------------------


def charts(name):
    x = [0.0, 1.0, 2.0]
    return {
        "lines": line_chart(
            [Line(name, x, [1, 2, 0]), Line("b", x, [2, 1, 0])],
            title=str(name),
            x_label=str(name),
            y_label=str(name),
            marks=[Mark(1.0, name, "#0b6e4f"), Mark(1.01, name, "#c8553d")],
            x_ticks=[(0.0, name), (2.0, "end")],
            alt=str(name),
        ),
        "bars": bar_chart(
            [Bar(name, 1.0, 0.5, 2.0), Bar("b", -2.0)],
            title=str(name),
            x_label=str(name),
            alt=str(name),
        ),
        "dots": dot_chart(
            [DotRow(name, {str(name): 1.0, "b": 2.0})],
            colours={str(name): "#0b6e4f"},
            title=str(name),
            x_label=str(name),
            alt=str(name),
        ),
        "panels": panel_chart(
            [Panel(name, x, [1, 2, 0], 0.5, 1.5, 1.0, "#0b6e4f"), Panel("b", x, [2, 1, 0], NAN, NAN, NAN, "#0b6e4f")],
            title=str(name),
            x_ticks=[(0.0, name), (2.0, "end")],
            alt=str(name),
        ),
    }


@pytest.mark.parametrize("name", NAMES, ids=range(len(NAMES)))
@pytest.mark.parametrize("kind", ["lines", "bars", "dots", "panels"])
def test_hostile_names_stay_text(kind, name):
    svg = charts(name)[kind]
    svg.encode("utf-8")
    tags = {part.tag.removeprefix(SVG) for part in parsed(svg).iter()}
    assert tags <= {"svg", "title", "desc", "text", "path", "circle", "rect"}
    assert not {key for part in parsed(svg).iter() for key in part.attrib if key.startswith("on")}
    assert len(svg) < 12_000
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", svg)


@pytest.mark.parametrize("kind", ["lines", "bars", "dots", "panels"])
def test_every_chart_says_what_it_is_and_scales(kind):
    svg = charts("north")[kind]
    root = parsed(svg)
    names = {part.get("id"): part.text for part in root if part.get("id")}
    assert root.get("role") == "img"
    assert [names[id] for id in root.get("aria-labelledby").split()] == ["north", "north"]
    assert root.get("width") == "100%"
    assert root.get("viewBox").startswith(f"0 0 {WIDTH} ")
    assert re.findall(r"https?:[^\"]*", svg) == ["http://www.w3.org/2000/svg"]


@pytest.mark.parametrize("kind", ["lines", "bars", "dots", "panels"])
def test_a_page_has_every_chart_for_screens_and_for_phones(kind):
    chart = charts("north")[kind]
    broad, narrow = ElementTree.fromstring(
        f"<div>{rendered(environment().from_string('{{ chart }}'), chart=chart)}</div>"
    )
    for root, name, width in ((broad, "broad", WIDTH), (narrow, "narrow", NARROW)):
        assert root.get("class") == name
        assert root.get("viewBox").startswith(f"0 0 {width} ")
        # On a phone of 320 px with margins of 16 px words are 9 px or more.
        assert SIZE * 288 / NARROW >= 9.0
    ids = [part.get("id") for root in (broad, narrow) for part in root.iter() if part.get("id")]
    assert len(set(ids)) == len(ids) == 4
    assert {root.find(f"{SVG}title").text for root in (broad, narrow)} == {"north"}


def test_an_id_is_used_once_for_both_widths():
    chart = bar_chart([Bar("a", 1.0)], **ROW_WORDS, id="risks")
    assert 'id="risks-title"' in chart
    assert 'id="risks-narrow-title"' in chart.narrow


@pytest.mark.parametrize("kind", ["lines", "bars", "dots", "panels"])
def test_the_same_data_make_the_same_picture(kind):
    assert charts("north")[kind] == charts("north")[kind]
    ids = [re.search('id="([^"]+)"', charts(name)[kind])[1] for name in ("north", "south")]
    assert ids[0] != ids[1]


@pytest.mark.parametrize("draw", [line_chart, bar_chart, dot_chart])
def test_nothing_is_a_picture_too(draw):
    svg = draw([], **(WORDS if draw is line_chart else ROW_WORDS), id="a b<c")
    assert "no data" in words(svg)
    assert parsed(svg).get("aria-labelledby") == "a-b-c-title a-b-c-desc"


def test_text_from_right_to_left_is_isolated():
    assert "\u2068שלום\u2069" in words(bar_chart([Bar("שלום", 1.0)], **ROW_WORDS))


def test_colours_can_be_seen():
    assert len(set(CYCLE)) == 8
    assert min(map(contrast, [*CYCLE, FAINT])) >= 3.0
    assert min(map(contrast, [INK, MUTED])) >= 4.5
    assert all(contrast(legible(colour, 4.5)) >= 4.5 for colour in [*COLOURS.values(), "#ffffff", "#ffff00"])
    assert legible("#0b6e4f") == "#0b6e4f"
    assert contrast("#000000") == pytest.approx(21.0)


def test_a_colour_is_not_a_way_in():
    with pytest.raises(InvalidInputError, match="#rrggbb"):
        bar_chart([Bar("a", 1.0, colour='red" onload="alert(1)')], **ROW_WORDS)


# --- lines -----------------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(st.lists(curves, max_size=14), st.lists(st.tuples(any_float, any_name), max_size=4))
def test_any_lines_are_well_formed(lines, marks):
    svg = line_chart(lines, marks=[Mark(at, name, "#c8553d") for at, name in marks], **WORDS)
    numbers = [float(v) for p in drawn(svg, "line") for run in points(p) for point in run for v in point]
    assert np.all(np.isfinite(numbers))
    assert len(drawn(svg, "mark")) == sum(abs(at) < 1e300 for at, _ in marks)
    assert "nan" not in "".join(p.get("d") for p in parsed(svg).iter(f"{SVG}path"))


@pytest.mark.parametrize("scale", [1e-9, 1.0, 1e9])
def test_coordinates_are_linear_in_the_data(scale):
    x, y = np.linspace(-3.0, 8.0, 50), np.sin(np.arange(50.0))
    (path,) = drawn(line_chart([Line("a", x * scale, y * scale)], **WORDS), "line")
    ((*found,),) = points(path)
    for data, seen in zip((x, y), np.transpose(found), strict=True):
        slope, start = np.polyfit(data, seen, 1)
        # Coordinates are rounded to a tenth.
        np.testing.assert_allclose(start + slope * data, seen, atol=0.06)
    assert found[0][0] < found[-1][0]
    assert found[int(np.argmax(y))][1] == min(point[1] for point in found)


def test_a_value_without_a_place_breaks_a_line():
    y = [1.0, 2.0, NAN, 3.0, INF, 4.0, 5.0, 6.0, -INF]
    svg = line_chart([Line("a", range(9), y)], **WORDS)
    (path,) = drawn(svg, "line")
    assert [len(run) for run in points(path)] == [2, 3]
    assert len(drawn(svg, "point")) == 1


def test_a_single_point_is_seen():
    svg = line_chart([Line("a", [3.0], [7.0])], **WORDS)
    assert len(drawn(svg, "point")) == 1
    assert "a" in words(svg)


@pytest.mark.parametrize("n", [1, 5, 10, 11, 40])
def test_every_line_is_drawn_and_the_right_ones_named(n):
    x = np.linspace(0.0, 1.0, 200)
    lines = [Line(f"name {k}", x, (k + 1) * x, faint=k > 1) for k in range(n)]
    svg = line_chart(lines, **WORDS)
    named = {text for text in words(svg) if text.startswith("name")}
    assert len(drawn(svg, "line")) == n
    assert named == {f"name {k}" for k in range(n if n <= 10 else 2)}
    assert (f"and {n - 2} more" in words(svg)) == (n > 10)


def test_names_at_the_ends_do_not_overlap():
    svg = line_chart([Line(f"name {k}", [0.0, 1.0], [k, 5.0 + 0.01 * k]) for k in range(10)], **WORDS)
    heights = sorted(float(t.get("y")) for t in parsed(svg).iter(f"{SVG}text") if (t.text or "").startswith("name"))
    assert min(np.diff(heights)) >= 15.9


def test_marks_that_nearly_coincide_have_labels_in_different_rows():
    svg = line_chart(
        [Line("a", [0, 100], [0, 1])],
        marks=[Mark(50, "robust: 50", "#0b6e4f"), Mark(50.5, "ERM: 50.5", "#c8553d"), Mark(99, "far right", "#5b5ea6")],
        **WORDS,
    )
    places = {"".join(t.itertext()): float(t.get("y")) for t in parsed(svg).iter(f"{SVG}text")}
    assert abs(places["robust: 50"] - places["ERM: 50.5"]) >= 14


def test_ticks_of_ones_own_are_taken_and_do_not_collide():
    own = [(0.0, "0%"), (0.5, "half"), (0.501, "hidden"), (1.0, "100%")]
    found = words(line_chart([Line("a", [0, 1], [0, 1])], x_ticks=own, **WORDS))
    assert {"0%", "half", "100%"} <= set(found)
    assert "hidden" not in found


def test_lines_of_unequal_length_are_refused():
    with pytest.raises(InvalidInputError, match="3 x and 2 y"):
        line_chart([Line("a", [1, 2, 3], [1, 2])], **WORDS)


def test_after_the_colours_come_dashes():
    svg = line_chart([Line(str(k), [0, 1], [k, k]) for k in range(24)], **WORDS)
    looks = [(line.get("stroke"), line.get("stroke-dasharray")) for line in drawn(svg, "line")]
    assert len(set(looks)) == 24
    assert all(dash is None for _, dash in looks[:8])


# --- bars ------------------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(st.lists(st.builds(Bar, any_name, any_float, st.none() | any_float, st.none() | any_float), max_size=12))
def test_any_bars_are_well_formed(rows):
    svg = bar_chart(rows, **ROW_WORDS)
    bars = drawn(svg, "bar")
    assert len(bars) == sum(abs(row.value) < 1e300 for row in rows)
    assert all(0.0 <= float(bar.get("x")) <= WIDTH for bar in bars)
    assert all(0.0 <= float(bar.get("x")) + float(bar.get("width")) <= WIDTH for bar in bars)


@pytest.mark.parametrize("scale", [1e-9, 1.0, 1e9])
def test_bars_are_as_long_as_their_values_from_a_common_zero(scale):
    values = np.array([3.0, -1.5, 0.75, 10.0, -4.0])
    bars = drawn(bar_chart([Bar("a", value * scale) for value in values], **ROW_WORDS), "bar")
    lengths = np.array([float(bar.get("width")) for bar in bars])
    np.testing.assert_allclose(lengths / lengths[3], np.abs(values) / 10.0, atol=0.002)
    starts = np.array([float(bar.get("x")) for bar in bars])
    zeros = np.where(values > 0, starts, starts + lengths)
    np.testing.assert_allclose(zeros, zeros[0], atol=0.11)


@pytest.mark.parametrize("n", [1, 60, 61, 500])
def test_sixty_bars_and_how_many_more(n):
    svg = bar_chart([Bar(f"name {k}", k + 1.0) for k in range(n)], **ROW_WORDS)
    assert len(drawn(svg, "bar")) == min(n, 60)
    assert (f"and {n - 60} more" in words(svg)) == (n > 60)


def test_intervals_are_drawn_where_there_is_one():
    rows = [Bar("a", 2.0, 1.0, 3.0), Bar("b", 2.0), Bar("c", 2.0, NAN, 3.0), Bar("d", 2.0, 1.0, INF)]
    closed, opened = drawn(bar_chart(rows, **ROW_WORDS), "interval")
    # A line and a cap for each end that is on the axis.
    assert closed.get("d").count("M") == 3
    assert opened.get("d").count("M") == 2


def test_a_long_name_is_shortened_and_told():
    svg = bar_chart([Bar("x" * 10_000, 1.0)], **ROW_WORDS)
    (label,) = [t for t in parsed(svg).iter(f"{SVG}text") if t.find(f"{SVG}title") is not None]
    told = label.find(f"{SVG}title")
    assert told.text == "x" * 299 + "…"
    assert re.fullmatch("x{5,30}…", told.tail)


# --- dots ------------------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(st.lists(st.builds(DotRow, any_name, st.dictionaries(st.sampled_from("abcdef"), any_float)), max_size=12))
def test_any_dots_are_well_formed(rows):
    svg = dot_chart(rows, **ROW_WORDS)
    assert len(drawn(svg, "dot")) == sum(abs(value) < 1e300 for row in rows for value in row.values.values())
    assert len(drawn(svg, "key")) == len({name for row in rows for name in row.values})


def test_a_series_keeps_its_colour_and_place():
    rows = [DotRow("north", {"erm": 1.0, "robust": 2.0}), DotRow("south", {"robust": 3.0})]
    svg = dot_chart(rows, colours=COLOURS, **ROW_WORDS)
    assert [words(svg).index(name) for name in ("robust", "erm")] == sorted(map(words(svg).index, ("robust", "erm")))
    colours = [dot.get("fill") for dot in drawn(svg, "dot")]
    assert colours.count(COLOURS["robust"]) == 2
    heights = {re.search(r" ([\d.]+)\)", dot.get("transform"))[1] for dot in drawn(svg, "dot")}
    assert len(heights) == 2


def test_series_differ_in_form_as_well():
    svg = dot_chart([DotRow("a", {"p": 1.0, "q": 1.0, "r": 1.0, "s": 1.0, "t": 1.0})], **ROW_WORDS)
    assert len({dot.get("d") for dot in drawn(svg, "dot")}) == 5


# --- panels ----------------------------------------------------------------------------------------------


PANEL_WORDS = {"title": "Shares", "x_ticks": [(0.0, "first"), (1.0, "last")], "alt": "All are steady."}


def panel(name="a", x=(0.0, 1.0), y=(0.2, 0.3), low=0.1, high=0.4, level=0.2):
    return Panel(name, x, y, low, high, level, "#00539b")


panels = st.integers(0, 6).flatmap(
    lambda n: st.builds(
        Panel,
        any_name,
        st.lists(any_float, min_size=n, max_size=n),
        st.lists(any_float, min_size=n, max_size=n),
        any_float,
        any_float,
        any_float,
        st.just("#00539b"),
    )
)


@settings(deadline=None, max_examples=40)
@given(st.lists(panels, max_size=7))
def test_any_panels_are_well_formed(given):
    svg = panel_chart(given, **PANEL_WORDS)
    parsed(svg)
    parsed(svg.narrow)
    assert not re.search(r'="[^"]*(nan|inf)[^"]*"', re.sub("<title.*?</title>|<desc.*?</desc>", "", svg))


def test_a_panel_has_a_line_within_its_band():
    svg = panel_chart([panel(y=(0.2, 0.3))], **PANEL_WORDS)
    (line,), (band,), (level,) = (drawn(svg, kind) for kind in ("line", "band", "level"))
    low, high = (float(one) for one in re.search(r"M[\d.]+ ([\d.]+)H[\d.]+v(-[\d.]+)", band.get("d")).groups())
    heights = [y for _, y in points(line)[0]]
    assert low + high < min(heights)
    assert max(heights) < low
    assert float(re.search(r"M[\d.]+ ([\d.]+)H", level.get("d"))[1]) == heights[0]


def test_all_panels_share_the_horizontal_axis():
    svg = panel_chart([panel("a"), panel("b", x=(1.0, 2.0))], **PANEL_WORDS)
    first, second = (points(line)[0] for line in drawn(svg, "line"))
    middle = first[-1][0] - first[0][0]
    np.testing.assert_allclose(second[-1][0] - second[0][0], middle, atol=0.2)


@pytest.mark.parametrize("n", [1, 2, 3, 4, 12])
def test_panels_lie_beside_and_below_one_another(n):
    for svg, columns in ((panel_chart([panel(str(k)) for k in range(n)], **PANEL_WORDS), 3),):
        starts = [points(line)[0][0] for line in drawn(svg, "line")]
        assert len({round(y) for _, y in starts}) == -(-n // columns)
        assert len(starts) == n


def test_panels_of_unequal_length_are_refused():
    with pytest.raises(InvalidInputError, match="2 x and 3 y"):
        panel_chart([panel(y=(1, 2, 3))], **PANEL_WORDS)


def test_no_panels_are_a_picture_too():
    assert "no data" in words(panel_chart([], **PANEL_WORDS))


def test_ticks_of_the_vertical_axis_may_be_given():
    svg = line_chart([Line("a", [0, 1], [0.5, 1.5])], y_ticks=[(0.0, "1"), (1.0, "10"), (2.0, "100")], **WORDS)
    assert {"1", "10", "100"} <= set(words(svg))
