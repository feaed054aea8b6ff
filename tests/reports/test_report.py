"""The report of a model: its numbers are the library's, its names are only names, and it is one file."""

import json
import re
from contextlib import suppress
from functools import cache
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from counterpoise import (
    ContextRobust,
    RobustLinearRegression,
    RobustLogisticRegression,
    RobustXGBClassifier,
    compare,
)
from counterpoise.contexts import shown
from counterpoise.exceptions import InvalidInputError
from counterpoise.reports.pages.scales import number
from counterpoise.reports.report import Report
from counterpoise.table import plain_rows
from tests.reports.pages.hostile import NAMES

# Reports of few rows are the point here, not a mistake.
pytestmark = [
    pytest.mark.filterwarnings("ignore::counterpoise.exceptions.SmallContextWarning"),
    pytest.mark.usefixtures("few_draws"),
]

LABELS = [name for name in NAMES if isinstance(name, str)]
QUICK = {"cv": 3, "levels": 5}


def rows(n=240, seed=0):
    rng = np.random.default_rng(seed)
    c = rng.choice(3, n, p=[0.6, 0.25, 0.15])
    X = rng.normal(size=(n, 2))
    return X, X[:, 0] * (1.0 - c) + X[:, 1] + rng.normal(size=n), np.array(["north", "south", "east"])[c]


def two_classes():
    X, z, c = rows()
    return X, np.where(z > 0.0, "ill", "well"), c


@cache
def two():
    return Report(make_pipeline(StandardScaler(), RobustLogisticRegression()), *two_classes(), **QUICK)


@cache
def four():
    X, z, c = rows(300)
    return Report(RobustLogisticRegression(reference="cross-fit"), X, np.digitize(z, [-1.0, 0.0, 1.0]), c, **QUICK)


@cache
def line():
    return Report(RobustLinearRegression(), *rows(), risk="half the squared error", **QUICK)


REPORTS = {"two classes": two, "four classes": four, "a line": line}


class Page(HTMLParser):
    """The tags, the words of a page, and its tables as rows of cells, with their captions."""

    def __init__(self, html):
        super().__init__()
        self.tags, self.words, self.tables, self.captions, self.inside = [], [], [], [], []
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self.inside.append(tag)
        if tag == "table":
            self.tables.append([])
            self.captions.append("")
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("td", "th"):
            self.tables[-1][-1].append("")

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        while self.inside and self.inside.pop() != tag:
            pass

    def handle_data(self, data):
        if "style" not in self.inside:
            self.words.append(data)
        if "td" in self.inside or "th" in self.inside:
            self.tables[-1][-1][-1] += data
        if "caption" in self.inside:
            self.captions[-1] += data

    def table(self, caption):
        """Return the one table whose caption begins so."""
        (found,) = (k for k, one in enumerate(self.captions) if one.startswith(caption))
        return self.tables[found]

    @property
    def text(self):
        return " ".join(self.words)


def row_of(table, **values):
    return next(table.where(**values).rows())


# --- numbers ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", REPORTS)
def test_the_verdict_says_what_the_comparison_found(name):
    report = REPORTS[name]()
    ours, erm = (row_of(report.comparison.summary, method=one) for one in ("robust", "erm"))
    low, high = ours["mix_excess_change_low"], ours["mix_excess_change_high"]
    verb = "lowers" if high < 0 else "raises" if low > 0 else "does not clearly change"
    assert report.verdict.startswith(
        f"The robust model {verb} the excess risk in the worst plausible mix of contexts: from "
        f"{number(erm['mix_excess'])} to {number(ours['mix_excess'])} (a change between "
    )
    assert f"from {number(erm['nominal_risk'], 4)}" in report.verdict
    assert number(ours["nominal_risk_change"]) in report.verdict
    pays = ours["nominal_risk_change_low"] <= 0 <= ours["nominal_risk_change_high"]
    assert report.verdict.endswith(" (within the noise).") == pays
    assert report.verdict in Page(report.html).text


@pytest.mark.parametrize("name", REPORTS)
def test_the_comparison_is_that_of_compare(name):
    report = REPORTS[name]()
    plain = compare(report.X, report.y, report.contexts, estimator=report.model, cv=report.cv)
    for column in plain.summary:
        assert report.comparison.summary[column].tolist() == plain.summary[column].tolist()


@pytest.mark.parametrize("name", REPORTS)
def test_a_row_for_each_context_worst_first(name):
    report = REPORTS[name]()
    table = report.by_context
    assert sorted(table["context"].tolist()) == ["east", "north", "south"]
    assert table["excess"].tolist() == sorted(table["excess"].tolist(), reverse=True)
    assert table["share"].sum() == pytest.approx(1.0)
    assert table["weight"].sum() == pytest.approx(1.0)
    own = report.fitted[-1] if hasattr(report.fitted, "steps") else report.fitted
    weights = dict(zip(own.contexts_.tolist(), own.context_weights_.tolist(), strict=True))
    for row in table.rows():
        ours, erm = (
            row_of(report.comparison.by_context, method=one, context=row["context"]) for one in ("robust", "erm")
        )
        assert (row["n"], row["risk"], row["excess"]) == (ours["n"], ours["risk"], ours["excess"])
        assert row["n"] == np.count_nonzero(report.contexts == row["context"])
        assert row["erm_excess"] == erm["excess"]
        assert row["least"] == pytest.approx(report.comparison.references[row["context"]])
        assert row["share"] == pytest.approx(row["n"] / len(report.contexts))
        assert row["weight"] == weights[row["context"]]


@pytest.mark.parametrize("name", REPORTS)
def test_the_tables_show_these_numbers(name):
    report = REPORTS[name]()
    page = Page(report.html)
    contexts, methods, shares = (page.table(one) for one in ("Risks", "Excess risk", "The share of each context"))
    for cells, row in zip(shares[1:], report.shares.rows.rows(), strict=True):
        assert cells[0] == shown(row["context"])
        assert cells[1] == f"{row['share']:.1%}"
        assert cells[2] == f"{row['low']:.1%} to {row['high']:.1%}"
        assert cells[3] == f"{row['worst']:.1%}"
    assert len(contexts) == 1 + 3
    for cells, row in zip(contexts[1:], report.by_context.rows(), strict=True):
        assert cells[:4] == [row["context"], str(row["n"]), f"{row['share']:.1%}", f"{row['weight']:.1%}"]
        assert cells[4] == "{} [{}, {}]".format(*(number(row[f"excess{end}"]) for end in ("", "_low", "_high")))
        assert cells[5] == number(row["erm_excess"], 4)
        assert cells[6].startswith(number(row["risk"]))
        one_end = np.isnan(row["least_in_sample"])
        both = f"{number(row['least_in_sample'])} to {number(row['least'])}"
        assert cells[7] == (number(row["least"], 4) if one_end else both)
    assert len(methods) == 1 + 5
    for cells, row in zip(methods[1:], report.comparison.summary.rows(), strict=True):
        assert cells[1].startswith(f"{number(row['mix_excess'])} [")
        assert cells[2].startswith(number(row["mix_excess_change"]))
        assert cells[3].startswith(f"{number(row['worst_excess'])} [")
        assert cells[4] == row["worst_context"]
        assert cells[5] == number(row["nominal_risk"], 4)
        assert cells[6].startswith(number(row["nominal_risk_change"]))


@pytest.mark.parametrize("name", REPORTS)
def test_metrics_are_strict_json_of_the_same_numbers(name):
    report = REPORTS[name]()
    metrics = json.loads(json.dumps(report.metrics, allow_nan=False))
    assert metrics == report.metrics
    assert metrics["verdict"] == report.verdict
    assert metrics["contexts"] == plain_rows(report.by_context)
    assert metrics["methods"] == plain_rows(report.comparison.summary)
    own = report.fitted[-1] if hasattr(report.fitted, "steps") else report.fitted
    assert metrics["certificate"]["upper"] == own.certificate_.upper
    assert metrics["radius_bits"] == own.radius_
    assert metrics["mixes"]["shares"] == plain_rows(report.shares.rows)
    assert metrics["mixes"]["radius"] == own.radius_


def test_an_infinite_radius_is_no_number_in_json():
    report = Report(RobustLinearRegression(radius=np.inf), *rows(), **QUICK)
    assert json.loads(json.dumps(report.metrics, allow_nan=False))["radius_bits"] is None
    assert "nan" not in Page(report.html).text.lower().split()


def test_a_context_of_one_row_has_no_interval_and_settles_nothing():
    X, y, c = rows(60, seed=4)
    c = np.where(np.arange(60) == 7, "alone", c)
    y[7] += 6.0
    report = Report(RobustLinearRegression(reference="cross-fit"), X, y, c, **QUICK)
    assert np.isnan(row_of(report.by_context, context="alone")["excess_low"])
    json.dumps(report.metrics, allow_nan=False)
    # What one row would have been otherwise, nobody knows: an interval of no width is not one.
    ours = row_of(report.comparison.summary, method="robust")
    assert ours["worst_context"] != "alone"
    assert "Too small to judge: alone (1 row)" in report.comparison.verdict


# --- words -----------------------------------------------------------------------------------------------------------


def test_names_with_full_stops_do_not_cut_sentences():
    X, y, c = two_classes()
    stops = {"north": "St. Mary", "south": "Dr. Who. ", "east": "A. B. C"}
    report = Report(RobustLogisticRegression(), X, y, np.array([stops[one] for one in c]), **QUICK)
    shown = Page(report.html).text
    verdict = report.comparison.verdict
    rest = " ".join(verdict[verdict.index("In the worst single") : verdict.index("To be kept: ")].split())
    remarks = " ".join(report.comparison.remarks.split())
    assert remarks.endswith(rest)
    assert f"On held-out rows. {remarks}" in shown
    assert " ".join(report.advice.split()) in shown


def test_notes_title_settings_and_the_unit_of_risk_are_shown():
    X, y, c = rows()
    told = {"title": "Costs <by> region", "notes": ("3 rows & more",), "settings": {"file": "costs.csv"}}
    page = Page(Report(RobustLinearRegression(), X, y, c, risk="euro²", **told, **QUICK).html)
    for words in ("Costs <by> region", "3 rows & more", "costs.csv", "euro²", "RobustLinearRegression"):
        assert words in page.text


def test_the_end_of_the_path_is_named():
    chart = re.search(r"<svg[^>]*>(?:(?!</svg>).)*as the set of plausible mixes grows.*?</svg>", two().html, re.DOTALL)[
        0
    ]
    words = [re.sub(r"[\u2066-\u2069]", "", text) for text in re.findall(r"<text[^>]*>([^<]*)</text>", chart)]
    assert {"0", "all"} <= set(words)


def test_hostile_names_are_only_text():
    n = len(LABELS)
    rng = np.random.default_rng(0)
    c = np.repeat(np.arange(n), 12)
    X = pd.DataFrame(rng.normal(size=(len(c), 2)), columns=[LABELS[0], LABELS[1]])
    y = pd.Series(X.iloc[:, 0] * (c % 3) + rng.normal(size=len(c)), name=LABELS[2])
    told = {"title": LABELS[3], "notes": tuple(LABELS), "risk": LABELS[0], "settings": {LABELS[0]: LABELS[1]}}
    model = RobustLinearRegression(reference="cross-fit")
    report = Report(model, X, y, [LABELS[k] for k in c], **told, **QUICK)
    page = Page(report.html)
    names = {tag for tag, _ in page.tags}
    assert not names & {"script", "img", "b", "iframe", "object"}
    assert not [key for _, attributes in page.tags for key in attributes if key.startswith("on")]
    assert LABELS[0] in page.text
    report.html.encode("utf-8")
    json.dumps(report.metrics, allow_nan=False)
    assert "<script" not in report._repr_html_()


# --- natural units ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", REPORTS)
def test_the_page_begins_with_the_headline_in_natural_units(name):
    report = REPORTS[name]()
    assert report.headline == report.comparison.headline
    page = Page(report.html)
    leading = page.text
    for words in (report.headline, report.advice):
        assert leading.index(" ".join(words.split())) < leading.index(" ".join(report.verdict.split()))
    assert page.captions[0].startswith("RMSE" if name == "a line" else "Accuracy")


@pytest.mark.parametrize("name", REPORTS)
def test_the_first_table_is_the_leading_measure_worst_first(name):
    report = REPORTS[name]()
    glance, measures = report.glance.rows, report.comparison.measures
    measure = report.comparison.measure
    assert glance["context"][0] == "all"
    assert glance["n"][0] == len(report.y) == glance["n"][1:].sum()
    for row in glance.rows():
        for method in report.glance.methods:
            assert row[method] == row_of(measures, method=method, context=row["context"])[measure.name]
    order = glance["robust"][1:] if measure.higher_is_better else -glance["robust"][1:]
    assert np.all(np.diff(order) >= 0)
    cells = Page(report.html).tables[0]
    assert [line[0] for line in cells[1:]] == glance["context"].tolist()
    assert {"robust", "erm"} <= set(report.glance.methods)
    assert [line[1] for line in cells[1:]] == [str(n) for n in glance["n"]]
    assert [line[-1] for line in cells[1:]] == glance["size"].tolist()


def test_only_the_first_contexts_are_in_the_first_table():
    rng = np.random.default_rng(0)
    c = np.repeat(np.arange(12), 25)
    X = rng.normal(size=(len(c), 2))
    y = X[:, 0] * (c % 3) + rng.normal(size=len(c))
    report = Report(RobustLinearRegression(reference="cross-fit"), X, y, c, **QUICK)
    page = Page(report.html)
    assert len(page.tables[0]) == 1 + 1 + 8
    assert "and 4 more contexts below" in page.text
    assert len(page.table("Every measure")) == 1 + 1 + 12


def test_classes_are_judged_by_calibration_and_numbers_by_residuals():
    assert two().residuals is None
    assert line().calibration is None
    assert "Predicted and observed share of well" in two().html
    assert "What came minus what the robust model predicted" in line().html
    assert two().metrics["calibration"][0]["context"] == "all"
    mean = row_of(line().residuals.summary, context="all")["mean"]
    assert mean == pytest.approx(row_of(line().comparison.measures, method="robust", context="all")["bias"])


def test_the_context_served_worst_is_explained():
    report = line()
    worst = row_of(report.comparison.summary, method="robust")["worst_context"]
    n = np.count_nonzero(report.contexts == worst)
    assert report.why.startswith(f"With the robust model {worst} ({n} rows) loses most by sharing one model.")
    assert report.effects.context == worst
    assert report.metrics["effects"] == plain_rows(report.effects.rows)
    assert " ".join(report.why.split()) in Page(report.html).text


def test_later_rows_stand_beside_shuffled_ones():
    X, y, c = rows(360)
    report = Report(RobustLinearRegression(), X, y, c, time=np.arange(360), cuts=2, keeps="best", **QUICK)
    assert report.judged is report.comparison.forward
    page = Page(report.html)
    for words in (report.comparison.agreement, report.comparison.drift.words, "Shuffled rows and later rows"):
        assert " ".join(words.split()) in page.text
    heading = page.tables[0][0]
    assert heading[-1] == "shuffled: robust (erm)"
    every = [row_of(report.comparison.measures, method=one, context="all")["RMSE"] for one in ("robust", "erm")]
    assert page.tables[0][1][-1] == "{:.2f}\u00a0({:.2f})".format(*every)
    assert page.tables[0][1][1] == str(len(report.comparison.forward.rows))
    assert len([one for one in page.captions if one.startswith("Excess risk")]) == 2
    metrics = json.loads(json.dumps(report.metrics, allow_nan=False))
    assert metrics["agreement"] == report.comparison.agreement
    assert metrics["measures"] == plain_rows(report.comparison.forward.measures)
    assert metrics["shuffled"]["measures"] == plain_rows(report.comparison.measures)
    assert "drift" in metrics


@pytest.mark.parametrize("begins", [240, 180])
def test_contexts_that_models_had_no_rows_of_are_named_and_not_judged(begins):
    X, y, c = rows(360)
    labels = np.where(np.arange(360) < begins, c, "new")
    report = Report(
        RobustLinearRegression(), X, y, labels, time=np.arange(360), cuts=360 // (360 - begins) - 1, **QUICK
    )
    page = Page(report.html)
    assert f"Not judged, since models had no rows of it: new ({360 - begins} rows)." in page.text
    assert np.isnan(row_of(report.by_context, context="new")["excess"])
    assert row_of(report.by_context, context="new")["risk"] > 0.0
    assert json.loads(json.dumps(report.metrics, allow_nan=False))["headroom"]["verdict"] in page.text
    assert "One model is enough for all contexts:" not in page.text
    if begins == 180:
        assert "on later rows no other can be judged" in report.advice


def test_effects_on_a_logarithm_are_called_so_and_measures_are_of_the_target():
    X, y, c = rows()
    report = Report(RobustLinearRegression(), X, 0.1 * y, c, log_target=True, **QUICK)
    assert report.effects.meaning == "logarithm of the prediction"
    came = np.exp(0.1 * y)
    assert np.sort(report.judged.y) == pytest.approx(np.sort(came))
    # What came minus what was predicted cannot exceed what came.
    assert report.residuals.summary["high_95"][0] < came.max()
    assert "added to the logarithm of the prediction" in report.html


def test_without_times_nothing_is_promised_of_later_rows():
    assert "whether this holds later is not known" in Page(two().html).text


# --- one file --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", REPORTS)
def test_the_page_asks_nothing_of_anywhere(name):
    html = REPORTS[name]().html
    page = Page(html)
    tags = [tag for tag, _ in page.tags]
    assert not set(tags) & {"script", "link", "img", "iframe", "object", "embed", "base", "form", "audio", "video"}
    for _, attributes in page.tags:
        for key in ("src", "href", "xlink:href", "action", "data", "srcset"):
            assert attributes.get(key, "#").startswith("#")
    assert not re.search(r"@import|url\(", html)
    policy = next(a["content"] for tag, a in page.tags if a.get("http-equiv") == "Content-Security-Policy")
    assert "default-src 'none'" in policy
    assert "script-src" not in policy
    assert tags.count("figure") == 7
    assert tags.count("svg") >= 7


def test_two_hundred_contexts_are_less_than_two_megabytes(monkeypatch):
    # How large the page is does not depend on how well its intervals are known.
    monkeypatch.setattr("counterpoise.inference.intervals.N_DRAWS", 400)
    for module in ("intervals", "differences"):
        monkeypatch.setattr(f"counterpoise.inference.{module}.MIX_DRAWS", 100)
    rng = np.random.default_rng(0)
    c = np.repeat(np.arange(200), 8)
    X = rng.normal(size=(len(c), 2))
    y = X[:, 0] * (c % 7) + rng.normal(size=len(c))
    model = RobustLinearRegression(reference="cross-fit")
    html = Report(model, X, y, [f"context {k}" for k in c], cv=2).html
    assert len(html.encode()) < 2_000_000
    assert "context 199" in html


def test_a_page_is_the_same_every_time():
    first, second = (Report(RobustLogisticRegression(), *two_classes(), **QUICK) for _ in range(2))
    assert first.html == second.html
    assert first.metrics == second.metrics


def test_save_replaces_only_with_force(tmp_path):
    path = tmp_path / "deep" / "report.html"
    assert two().save(path) == path
    assert path.read_text(encoding="utf-8") == two().html
    path.write_text("mine")
    with pytest.raises(InvalidInputError, match=r"exists already. Pass --force"):
        two().save(str(path))
    assert path.read_text() == "mine"
    two().save(str(path), force=True)
    assert path.read_text(encoding="utf-8") == two().html
    assert [one.name for one in path.parent.iterdir()] == ["report.html"]


def test_a_place_that_cannot_be_is_refused_before_the_work(tmp_path):
    report = Report(RobustLogisticRegression(), *two_classes(), **QUICK)
    with pytest.raises(InvalidInputError, match="is a folder"):
        report.save(tmp_path)
    assert "comparison" not in vars(report)


# --- whatever model, whatever frame ----------------------------------------------------------------------------------


def test_a_fitted_model_is_not_fitted_again_and_an_unfitted_one_not_touched():
    X, y, c = two_classes()
    unfitted = RobustLogisticRegression()
    report = Report(unfitted, X, y, c, **QUICK)
    assert not hasattr(unfitted, "coef_")
    assert hasattr(report.fitted, "coef_")
    assert not hasattr(unfitted, "coef_")
    fitted = RobustLogisticRegression().fit(X, y, contexts=c)
    again = Report(fitted, X, y, c, **QUICK)
    assert again.fitted is fitted
    assert again.html == report.html


# As columns without names are called, which the page names.
FRAMES = {
    "pandas": lambda X: pd.DataFrame(X, columns=["x0", "x1"]),
    "pandas with an index": lambda X: pd.DataFrame(X, columns=["x0", "x1"], index=range(1000, 1000 + len(X))),
    "polars": lambda X: pl.DataFrame(X, schema=["x0", "x1"]),
    "lists": lambda X: X.tolist(),
}


@pytest.mark.parametrize("kind", FRAMES)
def test_any_frame_gives_the_same_report(kind):
    X, y, c = two_classes()
    contexts = pl.Series(c) if kind == "polars" else pd.Series(c) if kind == "pandas" else c.tolist()
    report = Report(make_pipeline(StandardScaler(), RobustLogisticRegression()), FRAMES[kind](X), y, contexts, **QUICK)
    assert report.html == two().html


def test_crossed_contexts_are_shown_side_by_side():
    X, y, c = two_classes()
    crossed = np.column_stack([c, np.where(np.arange(len(c)) % 2, "day", "night")])
    report = Report(RobustLogisticRegression(reference="cross-fit"), X, y, crossed, **QUICK)
    assert "north x night" in Page(report.html).text
    assert {row["context"] for row in report.metrics["contexts"]} >= {"north x day", "east x night"}


def test_any_learner_that_was_made_robust_has_a_report():
    X, y, c = two_classes()
    report = Report(ContextRobust(LogisticRegression(), cv=3), X, y, c, cv=3, levels=3)
    assert "ContextRobust" in report.html
    # Nothing is known about the inside of a learner.
    assert report.effects is None
    assert "What the features do" not in report.html
    json.dumps(report.metrics, allow_nan=False)


def test_a_booster_has_a_report_or_is_refused():
    X, y, c = two_classes()
    report = Report(RobustXGBClassifier(n_estimators=4, n_jobs=1), X, y, c, cv=3, levels=3)
    # Either will do, but not a crash after all the work.
    with suppress(InvalidInputError):
        assert "RobustXGBClassifier" in report.html


@pytest.mark.parametrize("fitted", [False, True])
def test_a_model_that_is_not_robust_is_refused(fitted):
    X, y, c = rows()
    model = LinearRegression().fit(X, y) if fitted else LinearRegression()
    with pytest.raises(InvalidInputError, match="robust"):
        _ = Report(model, X, y, c, **QUICK).html


def test_a_model_of_other_contexts_is_refused():
    X, y, c = two_classes()
    fitted = RobustLogisticRegression().fit(X[c != "east"], y[c != "east"], contexts=c[c != "east"])
    with pytest.raises(InvalidInputError, match="east"):
        _ = Report(fitted, X, y, c, **QUICK).html


def test_a_fitted_model_is_not_judged_by_rows_it_was_not_fitted_to():
    X, y, c = two_classes()
    fitted = RobustLogisticRegression().fit(X[:200], y[:200], contexts=c[:200])
    later = Report(fitted, X[200:], y[200:], c[200:], **QUICK)
    for ask in (lambda: later.comparison, lambda: later.verdict, lambda: later.html, lambda: later.path):
        with pytest.raises(InvalidInputError, match=r"not to these rows: .*\.evaluate\(model, X, y, contexts\)"):
            ask()
    # As many rows, but of other contexts.
    with pytest.raises(InvalidInputError, match="rows here and"):
        _ = Report(fitted, X[40:], y[40:], c[40:], **QUICK).fitted
    assert Report(fitted, X[:200], y[:200], c[:200], **QUICK).fitted is fitted


def test_a_model_that_was_fitted_with_weights_may_be_reported_on():
    X, y, c = two_classes()
    fitted = RobustLogisticRegression().fit(X, y, contexts=c, sample_weight=np.linspace(0.5, 1.5, len(y)))
    assert Report(fitted, X, y, c, **QUICK).fitted is fitted
