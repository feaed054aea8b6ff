import base64
import hashlib
import re
from html.parser import HTMLParser

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jinja2 import UndefinedError

from counterpoise.exceptions import InvalidInputError
from counterpoise.reports.pages.document import page as page_of
from counterpoise.reports.pages.document import save, table, versions
from counterpoise.reports.pages.rows import Bar, bar_chart
from counterpoise.reports.pages.templates import environment, prose, rendered, text
from counterpoise.reports.pages.words import Html
from counterpoise.table import Table
from tests.reports.pages.hostile import NAMES

VOID = {"meta", "br", "hr", "img", "link", "input"}


class Read(HTMLParser):
    """Every tag with its attributes, the text by tag, and whether tags match."""

    def __init__(self, markup):
        super().__init__()
        self.open, self.tags, self.words = [], [], {}
        self.feed(markup)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        for tag in set(self.open):
            self.words[tag] = self.words.get(tag, "") + data

    def named(self, tag):
        return [attributes for name, attributes in self.tags if name == tag]


CHART = bar_chart([Bar("<north>", 1.0)], title="Bars", x_label="risk", alt="One bar.")


EVERYTHING = """{% extends "reports/pages/page.html" %}
{% block content %}
<p class="verdict">{{ words }}</p><p class="notice note" role="note">{{ words }}</p>
<section id="all"><h2>{{ words }}</h2><p>{{ words }}</p><figure>{{ chart }}<figcaption>{{ words }}</figcaption></figure>
{{ table }}</section><details><summary>{{ words }}</summary><p title="{{ words|short }}">{{ words }}</p></details>
<p>In {{ name|name }} and {{ name|cell }}.</p>
{% endblock %}"""


def page(name="north", **more):
    rows = Table.of(str(name), context=np.array([name, "b"], dtype=object), risk=[1.5, float("nan")])
    words = str(name)
    return page_of(
        environment().from_string(EVERYTHING),
        words,
        {words: name},
        subtitle=words,
        words=words,
        name=name,
        chart=CHART,
        table=table(rows, caption=words, headings={"risk": words}),
        **more,
    )


def shown(template, **values):
    return rendered(environment().from_string(template), **values)


@pytest.mark.parametrize("name", NAMES, ids=range(len(NAMES)))
def test_hostile_words_stay_words_everywhere(name):
    html = page(name)
    html.encode("utf-8")
    read, fine = Read(html), Read(page("fine"))
    # Without words there are fewer elements; with any, the same ones.
    if name != "":
        assert [(tag, sorted(a)) for tag, a in read.tags] == [(tag, sorted(a)) for tag, a in fine.tags]
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", html)


@given(st.text(st.characters(), max_size=300), st.integers(1, 250))
def test_text_is_one_isolated_escaped_run(words, most):
    markup = text(words, most)
    read = Read(markup)
    assert read.tags == [("bdi", {})]
    assert len(read.words.get("bdi", "")) <= most


def test_markup_is_not_escaped_twice_and_text_always_is():
    once = text("a < b & c")
    assert once == "<bdi>a &lt; b &amp; c</bdi>"
    assert text(once) is once
    assert prose(once) is once
    assert shown("<p>{{ it }}</p>", it=once).count("&amp;") == 1
    # What was put together outside of a template is no longer known to be safe.
    assert "&lt;bdi&gt;" in shown("<p>{{ it }}</p>", it=once + "more")
    assert shown("<p>{{ it }}</p>", it="<i>") == "<p>&lt;i&gt;</p>"


def test_a_template_makes_its_values_safe():
    said = shown("{{ n }} < {{ name|name }} & {{ done }}", n=3, name="<b>{{ n }}", done=Html("<b>yes</b>"))
    assert said == "3 < <bdi>&lt;b&gt;{{ n }}</bdi> & <b>yes</b>"
    assert isinstance(said, Html)


def test_a_value_that_was_forgotten_is_an_error():
    with pytest.raises(UndefinedError, match="name"):
        shown("{{ name }}")


def test_a_page_has_its_parts():
    html = page()
    read = Read(html)
    assert html.startswith("<!doctype html>")
    assert read.named("html") == [{"lang": "en"}]
    assert {"charset": "utf-8"} in read.named("meta")
    assert any(meta.get("name") == "viewport" for meta in read.named("meta"))
    assert [len(read.named(tag)) for tag in ("header", "main", "h1")] == [1, 1, 1]
    assert read.words["h1"] == "north"
    (skip,) = read.named("a")
    assert skip["href"] == f"#{read.named('main')[0]['id']}"
    assert "open" not in read.named("details")[0]


def test_a_page_asks_nothing_of_anywhere():
    html = page()
    read = Read(html)
    assert set(re.findall(r"https?:[^\"'\s)]*", html)) == {"http://www.w3.org/2000/svg"}
    assert not {"script", "link", "img", "iframe", "object", "form", "base"} & {tag for tag, _ in read.tags}
    assert not re.search(r"url\(|@import|@font-face|\bsrc=", html)
    (policy,) = [meta["content"] for meta in read.named("meta") if "http-equiv" in meta]
    assert policy.startswith("default-src 'none'; style-src 'unsafe-inline'; img-src data:")
    assert "script-src" not in policy


def test_only_the_given_script_may_run():
    script = "const a = '</script><script>alert(1)</SCRIPT><!--';\r\nrun(a < b);"
    html = page(script=script)
    assert len(re.findall("<script>", html)) == len(re.findall("(?i)</script", html)) == 1
    run = re.search("<script>(.*)</script></body></html>\n$", html, re.DOTALL)[1]
    assert run == r"const a = '\x3c/script>\x3cscript>alert(1)\x3c/SCRIPT>\x3c!--';" + "\nrun(a < b);"
    digest = base64.b64encode(hashlib.sha256(run.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in html


def test_a_page_is_the_same_every_time():
    assert page() == page()


# --- tables ----------------------------------------------------------------------------------------------

ROWS = Table.of(
    "A note.",
    context=["north", "<south>"],
    count=[12, 345678],
    share=[0.25, float("nan")],
    robust=[True, False],
    best=np.array([None, "x"], dtype=object),
    since=np.array(["2024-01-01", "NaT"], dtype="datetime64[ns]"),
)


def cells(markup):
    return [
        [re.sub("<[^>]+>", "", cell) for cell in re.findall(r"<t[hd][ >].*?</t[hd]>", row)]
        for row in re.findall("<tr[^>]*>(.*?)</tr>", markup)
    ]


def test_a_table_says_every_cell():
    head, first, second = cells(table(ROWS, headings={"count": "Samples"}, formats={"share": lambda v: f"{v:.0%}"}))
    assert head == ["context", "Samples", "share", "robust", "best", "since"]
    assert first[:5] == ["north", "12", "25%", "yes", "–"]
    assert first[5].startswith("2024-01-01")
    assert second == ["&lt;south&gt;", "345\u202f678", "–", "no", "x", "–"]


def test_a_table_can_be_scrolled_and_read_out():
    markup = table(ROWS, caption="By <context>")
    read = Read(markup)
    (box,) = read.named("div")
    assert box == {"class": "wide", "tabindex": "0", "role": "region", "aria-label": "By <context>"}
    assert [th["scope"] for th in read.named("th")] == ["col"] * 6 + ["row"] * 2
    assert read.words["caption"] == "By <context>"
    assert read.words["p"] == "A note."


def test_every_cell_knows_its_heading_for_where_rows_are_blocks():
    read = Read(table(ROWS, headings={"count": "Samples"}))
    labels = [cell["data-label"] for cell in read.named("td")]
    assert labels == 2 * ["Samples", "share", "robust", "best", "since"]
    assert {row["role"] for row in read.named("tr")} == {"row"}
    assert {cell["role"] for cell in read.named("td")} == {"cell"}


def test_words_are_aligned_left_and_numbers_right():
    sides = [th.get("class") for th in Read(table(ROWS)).named("th")][:6]
    assert sides == ["left", None, None, "left", "left", "left"]
    sides = [th.get("class") for th in Read(table(ROWS, left=["count"])).named("th")][:3]
    assert sides == [None, "left", None]


def test_a_format_may_return_markup_and_its_text_is_escaped():
    markup = table(Table.of(a=[1, 2]), formats={"a": lambda v: Html("<b>1</b>") if v == 1 else "<b>2</b>"})
    assert "<b>1</b>" in markup
    assert "&lt;b&gt;2&lt;/b&gt;" in markup


def test_a_long_table_is_cut_and_says_so():
    markup = table(Table.of(a=np.arange(10_000)), most=20)
    assert len(Read(markup).named("tr")) == 21
    assert "and 9980 more rows" in markup


def test_a_table_without_rows_or_columns_is_a_table():
    assert len(Read(table(Table({}))).named("tr")) == 1
    assert len(Read(table(Table.of(a=[], b=[]))).named("tr")) == 1


def test_facts_are_written_like_cells():
    facts = {"samples": 12345, "risk": 0.123456, "none": None, "link": Html("<i>x</i>"), "done": True}
    found = cells(page_of("reports/pages/page.html", "title", facts))
    assert found == [["samples", "12\u202f345"], ["risk", "0.1235"], ["none", "–"], ["link", "x"], ["done", "yes"]]


def test_versions_are_of_what_is_there():
    assert list(versions("numpy", "no-such-package")) == ["Python", "counterpoise", "numpy"]
    assert versions("numpy")["numpy"] == np.__version__


def test_a_page_is_made_only_where_it_can_be_kept(tmp_path):
    (tmp_path / "page.html").write_text("mine")
    with pytest.raises(InvalidInputError, match="exists already"):
        save(tmp_path / "page.html", lambda: pytest.fail("made in vain"))
    assert save(tmp_path / "page.html", lambda: "other", force=True).read_text() == "other"
