"""The report in a real browser: read by eye, by keyboard, by a screen reader, on a phone, and without JavaScript."""

import re
from importlib.resources import files

import numpy as np
import pytest

from counterpoise import RobustLinearRegression, RobustLogisticRegression
from counterpoise.reports.pages.svg import contrast
from counterpoise.reports.report import Report
from tests.browser.looks import at_width, cut_off, on_paper, unfolded
from tests.reports.test_report import LABELS, rows, two_classes

pytest.importorskip("selenium.webdriver", reason="selenium is not installed")

from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

HONEST = {"reference": "cross-fit"}


def hostile():
    rng = np.random.default_rng(0)
    c = np.repeat(np.arange(len(LABELS)), 12)
    X = rng.normal(size=(len(c), 2))
    y = X[:, 0] * (c % 3) + rng.normal(size=len(c))
    told = {"title": LABELS[0], "notes": tuple(LABELS), "risk": LABELS[1], "settings": {LABELS[0]: LABELS[4]}}
    return Report(RobustLinearRegression(**HONEST), X, y, [LABELS[k] for k in c], cv=2, levels=5, **told)


def many():
    rng = np.random.default_rng(0)
    c = np.repeat(np.arange(40), 12)
    X = rng.normal(size=(len(c), 2))
    y = X[:, 0] * (c % 7) + rng.normal(size=len(c))
    return Report(RobustLinearRegression(**HONEST), X, y, [f"store {k}" for k in c], cv=2, levels=8)


def plain():
    told = {"title": "Who is ill", "notes": ("3 rows are left out",), "settings": {"file": "patients.csv"}}
    return Report(RobustLogisticRegression(**HONEST), *two_classes(), cv=3, levels=8, risk="log loss (nats)", **told)


def large():
    X, y, c = rows()
    return Report(RobustLinearRegression(**HONEST), X, 1e9 * y, c, cv=3, levels=5, risk="half the squared error")


EXAMPLES = {"plain": plain, "hostile": hostile, "many": many, "large": large}


@pytest.fixture(scope="module")
def pages(tmp_path_factory, few_draws):
    folder = tmp_path_factory.mktemp("reports")
    for name, example in EXAMPLES.items():
        example().save(folder / f"{name}.html")
    return folder


@pytest.mark.parametrize("name", list(EXAMPLES))
def test_it_opens_without_complaint_and_asks_for_nothing(opened, name):
    browser = opened(name)
    assert browser.title
    assert browser.find_element(By.CSS_SELECTOR, ".verdict").is_displayed()
    assert browser.execute_script("return [document.scripts.length, document.images.length]") == [0, 0]


@pytest.mark.parametrize("name", list(EXAMPLES))
@pytest.mark.parametrize("width", [320, 360, 1280])
def test_no_width_needs_sideways_scrolling(opened, browser, name, width):
    at_width(browser, width)
    opened(name)
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("name", list(EXAMPLES))
def test_pictures_say_what_they_show(opened, name):
    browser = unfolded(opened(name))
    pictures = browser.find_elements(By.CSS_SELECTOR, "svg.broad")
    assert len(pictures) == len(browser.find_elements(By.CSS_SELECTOR, "svg.narrow")) == 7
    for picture in pictures:
        assert picture.get_attribute("role") == "img"
        assert picture.accessible_name
        assert browser.execute_script("return arguments[0].querySelector('desc').textContent.trim()", picture)
    ids = browser.execute_script("return [...document.querySelectorAll('[id]')].map((e) => e.id)")
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize("name", list(EXAMPLES))
def test_words_in_pictures_stay_within_them(opened, name):
    beyond = unfolded(opened(name)).execute_script("""
        return [...document.querySelectorAll("svg text")].filter((text) => {
          const [own, all] = [text.getBoundingClientRect(), text.ownerSVGElement.getBoundingClientRect()];
          return own.left < all.left - 2 || own.right > all.right + 2 || own.bottom > all.bottom + 2;
        }).map((text) => text.textContent.slice(0, 60));
    """)
    assert beyond == []


@pytest.mark.parametrize("name", list(EXAMPLES))
def test_lines_of_words_in_pictures_do_not_lie_over_each_other(opened, name):
    over = unfolded(opened(name)).execute_script("""
        const found = [];
        for (const svg of document.querySelectorAll("svg")) {
          const texts = [...svg.querySelectorAll("text")].map((t) => [t.textContent, t.getBoundingClientRect()]);
          texts.forEach(([a, p], k) => texts.slice(k + 1).forEach(([b, q]) => {
            const wide = Math.min(p.right, q.right) - Math.max(p.left, q.left);
            const high = Math.min(p.bottom, q.bottom) - Math.max(p.top, q.top);
            if (a.trim() && b.trim() && wide > 3 && high > 0.5 * Math.min(p.height, q.height))
              found.push([a.slice(0, 40), b.slice(0, 40)]);
          }));
        }
        return found;
    """)
    assert over == []


@pytest.mark.parametrize("name", list(EXAMPLES))
@pytest.mark.parametrize(("width", "kind"), [(400, "narrow"), (1200, "broad")])
def test_pictures_are_as_wide_as_the_text_and_can_be_read(opened, browser, name, width, kind):
    at_width(browser, width)
    shown = unfolded(opened(name)).execute_script("""
        const seen = [...document.querySelectorAll("svg")].filter((svg) => svg.getBoundingClientRect().width > 0);
        return seen.map((svg) => [svg.classList[0], svg.getBoundingClientRect().width, Math.min(
          ...[...svg.querySelectorAll("text")].map((text) => parseFloat(getComputedStyle(text).fontSize)
          * svg.getBoundingClientRect().width / svg.viewBox.baseVal.width))]);
    """)
    assert [one[0] for one in shown] == [kind] * 7
    assert min(one[1] for one in shown) >= min(0.9 * width, 760)
    assert min(one[2] for one in shown) >= 9.0


@pytest.mark.parametrize("name", list(EXAMPLES))
@pytest.mark.parametrize("width", [320, 400, 600, 800, 1200])
def test_no_table_is_cut_off(opened, browser, name, width):
    at_width(browser, width)
    assert cut_off(opened(name)) == []


@pytest.mark.parametrize("name", list(EXAMPLES))
def test_no_table_is_cut_off_on_paper(opened, browser, name):
    with on_paper(browser):
        assert cut_off(opened(name)) == []


@pytest.mark.parametrize("name", ["plain", "large"])
def test_the_first_screen_ends_with_every_context(opened, browser, name):
    metrics = {"width": 1200, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    bottom, words = opened(name).execute_script("""
        const table = document.querySelector("table");
        return [table.getBoundingClientRect().bottom, table.textContent];
    """)
    assert bottom <= 900
    assert all(one in words for one in ("all", "north", "south", "east", "robust", "erm", "judgement"))


def test_what_is_folded_up_is_printed(opened, browser):
    with on_paper(browser):
        opened("plain")
        seen = browser.execute_script("""
            return [...document.querySelectorAll("details p")].every((one) => one.getBoundingClientRect().height > 0);
        """)
    assert seen


def test_on_a_phone_cells_have_their_headings_beside_them(opened, browser):
    at_width(browser, 400)
    opened("plain")
    said = browser.execute_script("""
        const cell = document.querySelector(".wide td"), seen = getComputedStyle(cell, "::before");
        return [seen.content, seen.float, cell.dataset.label, getComputedStyle(cell.closest("tr")).display];
    """)
    assert said == ['"rows"', "left", "rows", "block"]
    at_width(browser, 1200)
    assert browser.execute_script("return getComputedStyle(document.querySelector('.wide td')).display") == "table-cell"


def test_tables_have_names_and_headings(opened, browser):
    at_width(browser, 1200)
    unfolded(opened("plain"))
    boxes = browser.find_elements(By.CSS_SELECTOR, ".wide")
    assert len(boxes) == 8
    for box in boxes:
        assert box.get_attribute("tabindex") == "0"
        assert box.aria_role == "region"
        assert box.accessible_name
        assert box.find_element(By.TAG_NAME, "caption").text
        assert {th.get_attribute("scope") for th in box.find_elements(By.CSS_SELECTOR, "thead th")} == {"col"}
        assert {th.get_attribute("scope") for th in box.find_elements(By.CSS_SELECTOR, "tbody th")} == {"row"}
        headings = [th.text.strip() for th in box.find_elements(By.CSS_SELECTOR, "thead th")]
        assert len(set(headings)) == len(headings)


def test_headings_are_in_order_and_the_language_is_said(opened):
    browser = opened("plain")
    levels = browser.execute_script("return [...document.querySelectorAll('h1,h2,h3,h4')].map((e) => e.tagName)")
    assert levels == ["H1", "H2", "H2", "H2", "H3", "H2", "H2"]
    assert browser.execute_script("return document.documentElement.lang") == "en"
    assert len(browser.find_elements(By.TAG_NAME, "main")) == 1


def test_the_keyboard_reaches_the_tables(opened):
    browser = opened("plain")
    body, reached = browser.find_element(By.TAG_NAME, "body"), []
    for _ in range(3):
        body.send_keys(Keys.TAB)
        reached.append(browser.switch_to.active_element)
    assert reached[0].get_property("textContent") == "Skip to the content"
    assert [one.get_attribute("class") for one in reached[1:]] == ["wide", "wide"]
    assert browser.execute_script("return getComputedStyle(arguments[0]).outlineStyle", reached[2]) == "solid"


TEXTS = """
    const shown = (e) => [...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
    const back = (e) => {
      for (; e; e = e.parentElement) {
        const colour = getComputedStyle(e).backgroundColor;
        if (colour !== "rgba(0, 0, 0, 0)") return colour;
      }
      return "rgb(255, 255, 255)";
    };
    return [...document.body.querySelectorAll("*")].filter(shown).filter((e) => !["TITLE", "title", "desc"].includes(
      e.tagName)).map((e) => [e.textContent.slice(0, 40), e.namespaceURI.endsWith("svg") ? getComputedStyle(e).fill
      : getComputedStyle(e).color, back(e)]);
"""


def luminance(colour):
    channels = [int(part) / 255.0 for part in re.findall(r"\d+", colour)[:3]]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("name", ["plain", "many"])
def test_every_word_stands_out_from_its_ground(opened, name):
    faint = {}
    for words, colour, ground in unfolded(opened(name)).execute_script(TEXTS):
        light, dark = sorted([luminance(colour), luminance(ground)], reverse=True)
        if (light + 0.05) / (dark + 0.05) < 4.5:
            faint[colour] = words
    assert faint == {}


def test_the_colours_of_the_style_stand_out_from_white():
    style = files("counterpoise.reports.pages").joinpath("style.css").read_text(encoding="utf-8")
    for colour in re.findall(r"(?<![-\w])color: (#[0-9a-f]{3,6})", style):
        full = "#" + "".join(2 * letter for letter in colour[1:]) if len(colour) == 4 else colour
        assert contrast(full) >= 4.5


def test_without_javascript_it_reads_the_same(browser, pages):
    browser.get((pages / "plain.html").as_uri())
    with_script = browser.find_element(By.TAG_NAME, "body").text
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        browser.get((pages / "plain.html").as_uri())
        assert browser.find_element(By.TAG_NAME, "body").text == with_script
        assert "240 held-out rows of a cross-validation, 3 folds." in with_script
    finally:
        browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
        browser.get_log("browser")


def test_hostile_names_run_nothing(opened):
    browser = opened("hostile")
    assert browser.execute_script("return document.querySelectorAll('[onerror], script, img, b').length") == 0
    # An alert would make this call fail.
    assert "<script>alert(1)</script>" in browser.title
