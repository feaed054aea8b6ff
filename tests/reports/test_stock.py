"""The page of a plan: one safe file of moderate size, with the plan's own numbers in it."""

import html
import re
from dataclasses import replace
from html.parser import HTMLParser
from xml.etree import ElementTree

import numpy as np
import pytest

from counterpoise import plan_stock
from counterpoise.reports.methods import WORDS
from counterpoise.reports.stock import written
from counterpoise.stock.plans import Money
from tests.reports.pages.hostile import NAMES
from tests.stock.test_planning import PRODUCTS, market, referee

SVG = "http://www.w3.org/2000/svg"
VOID = {"meta", "br", "hr", "img", "input", "link", "col", "wbr", "source", "area", "base", "embed", "track"}


class Page(HTMLParser):
    """Tags that open and close, attributes, text and the cells of tables."""

    def __init__(self, page):
        super().__init__()
        self.open, self.tags, self.attributes, self.words, self.tables = [], set(), [], [], []
        self.feed(page)
        self.close()
        assert self.open == [], self.open

    def handle_starttag(self, tag, attributes):
        self.tags.add(tag)
        self.attributes += [(tag, name, value or "") for name, value in attributes]
        if tag == "table":
            self.tables.append([])
        if tag == "tr":
            self.tables[-1].append([])
        if tag in ("td", "th"):
            self.tables[-1][-1].append("")
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.tags.add(tag)
        self.attributes += [(tag, name, value or "") for name, value in attributes]

    def handle_endtag(self, tag):
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] != "style":
            self.words.append(data)
        if {"td", "th"} & set(self.open):
            self.tables[-1][-1][-1] += data

    @property
    def text(self):
        return " ".join(" ".join(self.words).split())


def check_page(page):
    """Check that a page is well formed, asks for nothing, and runs nothing; return it taken apart."""
    read = Page(page)
    assert page.lower().startswith("<!doctype html>")
    assert not {"script", "link", "iframe", "object", "embed", "img", "base", "form"} & read.tags
    for tag, name, value in read.attributes:
        assert name not in ("src", "srcset", "xlink:href", "action", "background"), (tag, name, value)
        assert name != "href" or value.startswith("#"), (tag, name, value)
        assert not name.startswith("on"), (tag, name, value)
        assert "javascript:" not in value.lower()
    assert not re.search(r"https?://", page.replace(SVG, ""))
    assert not re.search(r"@import|url\(", page)
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)
    assert "default-src 'none'" in html.unescape(policy)
    assert "script-src" not in policy
    for drawing in re.findall(r"<svg.*?</svg>", page, re.DOTALL):
        ElementTree.fromstring(drawing)
    return read


def plan_of(**changes):
    return plan_stock(**market(1) | changes)


def test_the_page_of_one_product_is_safe_and_holds_the_numbers():
    plan = plan_of(products=None, currency="EUR", period="day")
    read = check_page(written(plan, {"file": "sales.csv"}))
    assert " ".join(plan.summary.split()) in read.text
    assert "sales.csv" in read.text
    reasons, choices = read.tables[0], read.tables[1]
    assert len(reasons) == 1 + plan.reasons.n_rows
    for cells, row in zip(reasons[1:], plan.reasons.rows(), strict=True):
        assert cells[0] == row["context"]
        assert cells[1:5] == [
            f"{row['rows']:,.0f}",
            f"{100 * row['share']:.1f}%",
            f"{100 * row['share_low']:.1f}% to {100 * row['share_high']:.1f}%",
            f"{100 * row['weight']:.1f}%",
        ]
        for cell, name in zip(
            cells[5:10], ["best_order", "excess", "profit", "best_profit", "mean_demand"], strict=True
        ):
            shown = float(cell.replace(",", "").replace("\u2212", "-"))
            assert shown == pytest.approx(row[name], rel=5e-3, abs=5e-3), name
    for cells, row in zip(choices[1:], plan.choices.rows(), strict=True):
        assert cells[0] == WORDS[row["rule"]]
        assert float(cells[1].replace(",", "")) == pytest.approx(row["order"], rel=1e-3, abs=5e-3)
        assert float(cells[2].replace(",", "").replace("\u2212", "-")) == pytest.approx(row["average_profit"], abs=5e-3)
        assert row["worst_profit_in"] in " ".join(cells)
        assert row["worst_excess_in"] in " ".join(cells)


def test_the_page_of_several_products_holds_every_order():
    data = market(1)
    cost = np.where(data["contexts"] == "wet", 30.0, data["cost"])
    plan = plan_stock(**data | {"cost": cost}, currency="EUR", period="day", integer=True)
    assert len(plan.notes) == 3
    read = check_page(written(plan))
    orders = {cells[0]: cells[1] for cells in read.tables[0][1:]}
    assert orders == {row["product"]: f"{row['order']:.0f}" for row in plan.levels.rows()}
    for one in plan.plans:
        assert plan.verdict(one) in read.text
    for note in plan.notes:
        assert note in read.text


def test_what_the_page_says_is_proven_is_true():
    data = market(2)
    plan = plan_stock(**data)
    text = check_page(written(plan)).text
    said = re.findall(r"([\d.,]+) per row, and no order has less than ([\d.,]+): that is proven", text)
    least = sorted(referee(data, one.product).robust(one.radius)[0] for one in plan.plans)
    assert len(said) == len(plan.plans)
    for (upper, lower), value in zip(sorted(said, key=lambda pair: float(pair[1])), least, strict=True):
        assert float(lower) <= value + 0.01
        assert float(upper) >= value - 0.01


def test_within_a_capacity_what_is_proven_is_about_all_products():
    plan = plan_stock(**market(2), capacity=20.0)
    text = check_page(written(plan)).text
    said = re.findall(r"add up to ([\d.,]+) per row, and no division of the capacity has less than ([\d.,]+)", text)
    upper = sum(one.orders["robust"].certificate.upper for one in plan.plans)
    assert said
    assert "no order has less" not in text
    assert all(float(high) == pytest.approx(upper, abs=0.01) for high, _ in said)
    assert all(float(low) <= upper + 0.01 for _, low in said)


def hostile_rows(names, n=6):
    rng = np.random.default_rng(0)
    labels = np.empty(len(names) * n, dtype=object)
    labels[:] = [name for name in names for _ in range(n)]
    return rng.uniform(1.0, 30.0, len(labels)), labels


NEVER = ["<script>alert", "<img src=x", "<b>label", "]]><!--", "</title></svg>", "\0", "\x1b", "\u202e"]


@pytest.mark.parametrize("role", ["contexts", "products"])
def test_hostile_labels_are_never_markup(role):
    names = (
        [name for name in NAMES if name is not None] if role == "contexts" else [*NAMES[:4], *NAMES[8:12], NAMES[15]]
    )
    demand, labels = hostile_rows(names)
    other = np.tile(["a", "b"], len(labels) // 2)
    roles = {"contexts": labels} if role == "contexts" else {"contexts": other, "products": labels}
    plan = plan_stock(demand, cost=2.0, price=5.0, **roles)
    page = written(plan, {"file": names[0], names[1]: names[2]})
    read = check_page(page)
    for never in NEVER:
        assert never not in page.replace("</title>", "", 1)
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert "<script>alert(1)</script>" in read.text
    assert "<b>label</b>" in read.text
    page.encode("utf-8")


def test_a_hostile_currency_period_or_setting_is_never_markup():
    plan = plan_of(products=None)
    for name in (*NAMES[:2], *NAMES[3:5], NAMES[10]):
        page = written(replace(plan, money=Money(name, name)), {name: name})
        check_page(page)
        for never in NEVER:
            assert never not in page.replace("</title>", "", 1), never
        assert len(page) < 500_000


def many(n_products, n_contexts):
    """Return a plan of many products, those of a few planned and named again and again."""
    rng = np.random.default_rng(3)
    cells = np.repeat(np.arange(min(n_products, 4) * n_contexts), 3)
    product, context = np.divmod(cells, n_contexts)
    plan = plan_stock(
        rng.uniform(1.0, 40.0, len(cells)),
        cost=rng.uniform(1.0, 6.0, len(cells)),
        price=5.0,
        contexts=np.array([f"circumstance {k}" for k in range(n_contexts)])[context],
        products=product if n_products > 1 else None,
        shortage=1.0,
    )
    if n_products == 1:
        return plan
    return replace(
        plan, plans=tuple(replace(plan.plans[k % len(plan.plans)], product=f"product {k}") for k in range(n_products))
    )


@pytest.mark.parametrize(("n_products", "n_contexts"), [(300, 5), (1, 200)])
def test_a_large_plan_is_a_small_page(n_products, n_contexts):
    plan = many(n_products, n_contexts)
    page = written(plan)
    assert len(page.encode()) < 2_000_000
    read = check_page(page)
    wanted = plan.levels["product"] if n_products > 1 else plan.reasons["context"]
    assert len(wanted) == max(n_products, n_contexts)
    cells = {cell for table in read.tables for row in table for cell in row}
    assert set(wanted.tolist()) <= cells
    assert ("12 products with the most at stake" in read.text) is (n_products > 1)


def test_the_circumstance_that_loses_most_has_its_name_in_the_chart():
    rng = np.random.default_rng(4)
    shares = np.array([2, *[200] * 12])
    contexts = np.repeat(["storm", *[f"day {k}" for k in range(12)]], shares)
    demand = np.where(contexts == "storm", 2.0, 50.0) + rng.uniform(0.0, 5.0, len(contexts))
    plan = plan_stock(demand, cost=2.0, price=5.0, contexts=contexts)
    assert next(plan.reasons.rows())["context"] == "storm"
    chart = re.search(r"<svg.*?</svg>", written(plan), re.DOTALL).group()
    drawn = re.sub(r"<(title|desc)\b.*?</\1>", "", chart, flags=re.DOTALL)
    assert "storm" in drawn


def test_pages_of_one_plan_are_alike():
    assert written(plan_of(products=None)) == written(plan_of(products=None))


def test_the_html_of_a_notebook_is_safe_too():
    demand, labels = hostile_rows(["<script>alert(1)</script>", "<img src=x>", *PRODUCTS])
    plan = plan_stock(demand, cost=2.0, price=5.0, contexts=labels)
    shown = plan._repr_html_()
    assert "<script" not in shown
    assert "<img" not in shown


def judged_plan(**changes):
    data = market(1)
    return plan_stock(**data | {"time": np.arange(len(data["demand"])), "cuts": 2, "min_rows": 1} | changes)


@pytest.mark.parametrize("products", [True, False])
def test_the_page_leads_with_profit_on_later_and_shuffled_periods(products):
    plan = judged_plan(currency="EUR", period="day", **({} if products else {"products": None}))
    judged = plan.backtest
    page = written(plan, circumstance="weather", known="weather is known when ordering")
    read = check_page(page)
    for words in (*judged.headlines, judged.advice("weather", "weather is known when ordering")):
        assert " ".join(words.split()) in read.text
    assert read.text.index(judged.profit) < read.text.index("other rules would order")
    first = read.tables[0]
    assert first[0] == ["method", "profit, later", "profit, shuffled", "against erm, later", "against erm, shuffled"]
    later, shuffled = (list(one.methods.rows()) for one in (judged.later, judged.shuffled))
    for cells, one, other in zip(first[1:], later, shuffled, strict=True):
        assert cells[0] == one["method"]
        assert [float(cell.replace(",", "").replace("\u2212", "-")) for cell in cells[1:3]] == pytest.approx(
            [one["profit"], other["profit"]], abs=5e-3
        )
    assert ("Product by product" in read.text) is products
    assert "One order per" in read.text


def test_hostile_labels_and_reasons_are_never_markup_among_held_out_profits():
    names = [name for name in NAMES if isinstance(name, str) and name.strip()][:5]
    demand, labels = hostile_rows(names, n=8)
    time = np.argsort(np.random.default_rng(1).permutation(len(demand)))
    plan = plan_stock(demand, cost=2.0, price=5.0, contexts=labels, time=time, currency=names[0], period=names[1])
    page = written(plan, circumstance=names[0], known=f"{names[0]} is known")
    check_page(page)
    for never in NEVER:
        assert never not in page.replace("</title>", "", 1)
