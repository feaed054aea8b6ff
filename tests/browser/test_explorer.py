"""The explorer in a real browser: what it shows is what the library computed, at every level."""

import base64
import json

import pytest

from counterpoise.reports.explorer import Explorer
from counterpoise.reports.explorer.levels import METHODS, STOPS
from counterpoise.reports.pages.scales import number
from tests.browser.looks import at_width, cut_off, on_paper
from tests.reports.explorer.examples import LABELS, boundary, hostile, stock

pytest.importorskip("selenium.webdriver", reason="selenium is not installed")

from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select

EXAMPLES = {"boundary": boundary, "stock": stock, "hostile": hostile}


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    title, settings = LABELS[1], {LABELS[0]: LABELS[1]}
    for name, example in EXAMPLES.items():
        more = (title, settings) if name == "hostile" else ("", {"file": "sales.csv"})
        Explorer(example(), *more).save(folder / f"{name}.html")
    return folder


def by_id(browser, name):
    return browser.find_element(By.ID, name)


def value(browser, name):
    return float(by_id(browser, name).get_attribute("data-value"))


def press(browser, level):
    browser.find_element(By.CSS_SELECTOR, f"button[data-level='{level}']").click()


def choose(browser, group, option):
    browser.find_element(By.CSS_SELECTOR, f"#{group} input[value='{option}']").click()


def pressed(browser):
    buttons = browser.find_elements(By.CSS_SELECTOR, "button[aria-pressed='true']")
    return {button.get_attribute("data-level") for button in buttons} - {"fitted", "knee"}


def index(browser):
    return int(by_id(browser, "level").get_property("value"))


# One call for the whole page: a call for each number would take minutes.
READ = """
const read = (id) => [document.getElementById(id).textContent, document.getElementById(id).dataset.value];
const slider = document.getElementById("level");
slider.value = arguments[0];
slider.dispatchEvent(new Event("input", { bubbles: true }));
const ids = ["nominal", "price", "worst", "objective", "gap", "label"];
const rows = [...document.querySelectorAll("#rows tr")].map((row) => ({
  context: Number(row.dataset.context),
  worst: row.classList.contains("worst"),
  ...Object.fromEntries(["share", "set", "weight", "value"].map((name) => {
    const cell = row.querySelector("td." + name);
    return [name, [cell.textContent, cell.dataset.value]];
  })),
}));
const point = document.getElementById("point"), equation = document.getElementById("equation");
return {
  ...Object.fromEntries(ids.map((id) => [id, read(id)])), rows, equation: equation.dataset.value,
  point: [point.dataset.x, point.dataset.y], verdict: document.getElementById("verdict").textContent,
  told: slider.getAttribute("aria-valuetext"),
};
"""


def check_numbers(found, criterion, method, k, read):
    own = found.by_criterion[criterion]
    for name, expected, digits in (
        ("nominal", own.nominal[k], 4),
        ("price", own.prices[k], 3),
        ("worst", own.worst[k], 3),
        ("objective", own.objective[k], 3),
        ("gap", own.gaps[k], 3),
    ):
        text, exact = read[name]
        assert float(exact) == expected
        assert text == number(float(expected), digits)
    assert [float(at) for at in read["point"]] == [own.prices[k], own.worst[k]]
    bits = found.levels.radii[k]
    assert float(read["label"][1] or "inf") == bits
    words = found.levels.words(method)[k]
    assert read["label"][0].startswith(words + " · ")
    assert read["told"].startswith(words + ", ")
    assert read["verdict"].startswith(found.levels.leads(method)[k] + " the worst ")
    assert number(float(own.worst[k])) in read["verdict"]


def check_contexts(found, criterion, k, rows):
    own = found.by_criterion[criterion]
    assert [row["context"] for row in rows] == list(range(len(found.contexts)))
    for c, row in enumerate(rows):
        assert float(row["share"][1]) == found.shares[c]
        assert json.loads(row["set"][1]) == found.intervals[k, c].tolist()
        assert float(row["weight"][1]) == own.weights[k, c]
        assert float(row["weight"][0].strip("<%")) == pytest.approx(100 * own.weights[k, c], abs=0.0501)
        assert float(row["value"][1]) == own.values[k, c]
        assert row["value"][0] == number(float(own.values[k, c]))
        assert row["worst"] == (c == own.worst_contexts[k])


def check_decision(found, criterion, k, read):
    decision = found.decision
    if hasattr(decision, "orders"):
        assert float(read) == decision.orders[criterion][k]
    else:
        assert json.loads(read) == [decision.intercepts[criterion][k], *decision.slopes[criterion][k]]


@pytest.mark.parametrize("name", list(EXAMPLES))
def test_every_number_at_every_level_is_the_librarys(opened, name):
    browser, found = opened(name), EXAMPLES[name]()
    for criterion, method in (("risk", "chi2"), ("excess", "types")):
        choose(browser, "criterion", criterion)
        choose(browser, "method", method)
        for k in range(len(found.levels.radii)):
            read = browser.execute_script(READ, k)
            check_numbers(found, criterion, method, k, read)
            check_contexts(found, criterion, k, read["rows"])
            check_decision(found, criterion, k, read["equation"])


def test_it_opens_at_the_level_that_was_fitted(opened):
    browser, found = opened("boundary"), boundary()
    assert index(browser) == found.levels.chosen
    assert "99% by agrawal" in by_id(browser, "label").text
    assert "as fitted" in by_id(browser, "label").text
    assert pressed(browser) == {"0.99"}
    assert not by_id(browser, "needs-script").is_displayed()
    assert by_id(browser, "explorer").is_displayed()


def test_the_keyboard_moves_the_slider(opened):
    browser, found = opened("boundary"), boundary()
    slider = by_id(browser, "level")
    start, edge = index(browser), by_id(browser, "edge").get_attribute("d")
    slider.send_keys(Keys.ARROW_RIGHT)
    assert index(browser) == start + 1
    assert value(browser, "worst") == found.by_criterion["excess"].worst[start + 1]
    assert by_id(browser, "edge").get_attribute("d") != edge
    slider.send_keys(Keys.HOME)
    assert value(browser, "label") == 0.0
    assert by_id(browser, "verdict").text.startswith("With the mix of the data (erm) the worst context (")
    assert by_id(browser, "verdict").text.endswith("pays nothing.")
    slider.send_keys(Keys.END)
    assert slider.get_attribute("aria-valuetext").startswith("every mix")
    assert pressed(browser) == {"every"}


def test_buttons_jump_to_exact_levels_of_the_selected_method(opened):
    browser, found = opened("boundary"), boundary()
    for method in METHODS:
        choose(browser, "method", method)
        for level in STOPS:
            press(browser, level)
            assert value(browser, "label") == found.levels.radii[found.levels.stops[method][level]]
            assert by_id(browser, "label").text.startswith(f"{100 * level:g}% by {method} · ")
            assert pressed(browser) == {str(level)}
    press(browser, "erm")
    assert index(browser) == 0
    press(browser, "every")
    assert index(browser) == len(found.levels.radii) - 1
    press(browser, "fitted")
    assert index(browser) == found.levels.chosen


def test_another_method_keeps_the_confidence_or_else_the_radius(opened):
    browser, found = opened("boundary"), boundary()
    press(browser, 0.9)
    choose(browser, "method", "types")
    assert index(browser) == found.levels.stops["types"][0.9]
    assert pressed(browser) == {"0.9"}
    stops = {k for own in found.levels.stops.values() for k in own.values()}
    between = next(k for k in range(1, len(found.levels.radii) - 1) if k not in stops)
    browser.execute_script(READ, between)
    choose(browser, "method", "chi2")
    assert index(browser) == between
    assert by_id(browser, "label").text.startswith(found.levels.words("chi2")[between])


def test_another_score_swaps_the_sweep_and_keeps_the_level(opened):
    browser, found = opened("stock"), stock()
    start, order = index(browser), value(browser, "equation")
    choose(browser, "criterion", "risk")
    assert index(browser) == start
    assert value(browser, "equation") == found.decision.orders["risk"][start] != order
    assert "has a mean cost of" in by_id(browser, "verdict").text
    assert by_id(browser, "what").text == "mean cost"


def test_the_verdict_is_told_and_everything_has_a_name(opened):
    browser = opened("stock")
    assert by_id(browser, "verdict").get_attribute("aria-live") == "polite"
    assert by_id(browser, "level").accessible_name == "How sure of the mix"
    for control in browser.find_elements(By.CSS_SELECTOR, "#explorer button, #explorer input"):
        assert control.accessible_name
    for picture in browser.find_elements(By.CSS_SELECTOR, "svg[role=img]"):
        assert picture.accessible_name
        assert browser.execute_script("return arguments[0].querySelector('desc').textContent", picture)


def test_hostile_names_are_text_and_nothing_else(opened):
    browser = opened("hostile")
    shown = browser.execute_script("return [...document.querySelectorAll('#rows th bdi')].map((e) => e.textContent)")
    assert LABELS[0] in shown
    assert LABELS[1] in shown
    for k in (0, len(hostile().levels.radii) - 1):
        browser.execute_script(READ, k)
    assert browser.execute_script(
        "return [document.scripts.length, document.images.length, document.querySelectorAll('[onerror]').length]"
    ) == [1, 0, 0]
    assert browser.execute_script("return typeof hacked") == "undefined"
    # An alert would make this call fail.
    assert browser.title


def resize(browser, width, height=740):
    metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": True}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)


@pytest.mark.parametrize("name", list(EXAMPLES))
def test_a_phone_needs_no_sideways_scrolling(opened, browser, name):
    resize(browser, 360)
    opened(name)
    width = browser.execute_script("return document.documentElement.scrollWidth")
    assert width <= 360
    beyond = browser.execute_script(
        "return [...document.querySelectorAll('#explorer *')].filter((e) => e.getBoundingClientRect().right > 361"
        " && !e.closest('thead') && !e.closest('bdi')).map((e) => e.outerHTML.slice(0, 90))"
    )
    assert beyond == []


@pytest.mark.parametrize("name", list(EXAMPLES))
@pytest.mark.parametrize("width", [400, 1200])
def test_no_table_is_cut_off(opened, browser, name, width):
    at_width(browser, width)
    assert cut_off(opened(name)) == []


@pytest.mark.parametrize("name", list(EXAMPLES))
def test_no_table_is_cut_off_on_paper(opened, browser, name):
    with on_paper(browser):
        assert cut_off(opened(name)) == []


READ_HELD_OUT = """
const parts = ["mix", "worst", "mean", "price"].map((name) => document.getElementById("held-" + name).dataset.value);
const point = document.getElementById("held-point");
return [parts.map(JSON.parse), [Number(point.dataset.x), Number(point.dataset.y)],
  document.getElementById("held-out").textContent];
"""


@pytest.mark.parametrize("criterion", ["excess", "risk"])
def test_held_out_numbers_follow_the_slider(opened, criterion):
    browser, found = opened("boundary"), boundary()
    choose(browser, "criterion", criterion)
    own = found.held_out[criterion]
    for k in range(len(found.levels.radii)):
        browser.execute_script(READ, k)
        parts, point, said = browser.execute_script(READ_HELD_OUT)
        assert parts == [one[k].tolist() for one in (own.mix, own.worst, own.mean, own.price)]
        assert point == [own.price[k, 0], own.worst[k, 0]]
        what = "excess risk" if criterion == "excess" else "risk"
        assert f"on held-out rows the {what} is {number(float(own.worst[k, 0]))} [" in said
    press(browser, "knee")
    assert index(browser) == own.knee


def test_bounds_that_are_moved_are_not_said_to_be_held_out(opened):
    browser = opened("boundary")
    Select(by_id(browser, "bounded")).select_by_index(1)
    by_id(browser, "low").send_keys(Keys.ARROW_RIGHT)
    assert by_id(browser, "held-out").text == "Bounds that are moved are judged on the rows of the fit alone."
    assert by_id(browser, "held-worst").text == "–"
    assert by_id(browser, "held-point").get_attribute("visibility") == "hidden"


def test_without_javascript_the_levels_are_a_table(browser, pages):
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        browser.get((pages / "boundary.html").as_uri())
        assert by_id(browser, "needs-script").is_displayed()
        assert not by_id(browser, "explorer").is_displayed()
        tables = browser.find_elements(By.CSS_SELECTOR, "#levels table")
        assert [table.is_displayed() for table in tables] == [True, True]
        found = boundary()
        rows = tables[0].text.splitlines()
        assert any(row.startswith(number(found.levels.radii[found.levels.chosen])) for row in rows)
        assert "above 99.9%" in tables[0].text
    finally:
        browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
        browser.get_log("browser")


def test_paper_shows_the_level_that_was_chosen(opened):
    browser = opened("stock")
    press(browser, 0.5)
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    try:
        assert by_id(browser, "label").is_displayed()
        assert by_id(browser, "label").text.startswith("50% by types")
        assert not by_id(browser, "jumps").is_displayed()
        assert base64.b64decode(browser.print_page()).startswith(b"%PDF")
    finally:
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})


def test_motion_is_left_out_where_it_is_unwelcome(opened):
    browser = opened("stock")
    moving = "return getComputedStyle(document.getElementById('point')).transitionDuration"
    assert "0.15s" in browser.execute_script(moving)
    reduced = {"features": [{"name": "prefers-reduced-motion", "value": "reduce"}]}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", reduced)
    try:
        assert browser.execute_script(moving) == "0s"
    finally:
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
