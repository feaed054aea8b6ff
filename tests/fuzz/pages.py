"""Reports, explorers and figures of models with hostile names: nothing runs, nothing is a number that is none."""

import json
import re
from html.parser import HTMLParser
from zlib import crc32

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from hypothesis import strategies as st

import counterpoise as cpo
from counterpoise import metrics
from counterpoise.reports import plots
from counterpoise.reports.explorer import Explorer, sweep
from tests.fuzz import data
from tests.fuzz.verdicts import outcome

HOSTILE = [
    "<script>alert(1)</script>",
    "</script><script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "javascript:alert(1)",
    "&lt;b&gt;",
    "]]>",
    "<!--",
    "$x_1$ %s {0}",
    "\u202e\u2066 left",
    "a\nb\tc",
    "é" * 300,
    " ",
    "0",
    "nan",
]
_word = st.one_of(st.sampled_from(HOSTILE), st.text(max_size=12))

page_case = st.tuples(
    data.recipes,
    st.sampled_from(["RobustLogisticRegression", "RobustLinearRegression", "RobustPoissonRegressor"]),
    st.lists(_word, min_size=6, max_size=6),
    st.sampled_from(["report", "explorer", "figures"]),
)

_KINDS = {"RobustLogisticRegression": "logistic", "RobustLinearRegression": "squared"}


class Tags(HTMLParser):
    """Every tag with its attributes, and the text that is shown."""

    def __init__(self, page):
        super().__init__()
        self.found, self.shown, self.inside = [], [], []
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        self.found.append((tag, dict(attributes)))
        self.inside.append(tag)

    def handle_endtag(self, tag):
        while self.inside and self.inside.pop() != tag:
            pass

    def handle_data(self, text):
        if not {"script", "style"} & set(self.inside):
            self.shown.append(text)


def check_page(drawn):
    """Write a page or draw figures, and look for what a name could have smuggled in."""
    recipe, name, words, what = drawn
    recipe = {**recipe, "n": recipe["n"] + 10, "form": "plain"}
    rows = data.table(recipe, _KINDS.get(name, "poisson"))
    if rows.contexts is None or np.ndim(rows.contexts) != 1:
        return False
    X = pd.DataFrame(rows.values, columns=[f"{word}{k}" for k, word in enumerate(words[: rows.values.shape[1]])])
    named = [None if c is None else f"{words[crc32(str(c).encode()) % 3]}{c}" for c in rows.contexts]
    contexts = np.array(named, dtype=object)
    return {"report": _report, "explorer": _explorer, "figures": _figures}[what](
        getattr(cpo, name)(), X, rows, contexts, words
    )


def _report(model, X, rows, contexts, words):
    report = cpo.Report(model, X, rows.y, contexts, title=words[3], settings={words[4]: words[5]}, cv=2, levels=3)
    found = outcome(lambda: report.html)
    if found is None:
        return False
    tags = Tags(found[0])
    assert not [one for one in tags.found if one[0] == "script"], "a report has a script"
    _check_quiet(tags, words)
    return True


def _explorer(model, X, rows, contexts, words):
    found = outcome(lambda: Explorer(sweep(model, X, rows.y, contexts, levels=3), words[3], {words[4]: words[5]}).html)
    if found is None:
        return False
    tags = Tags(found[0])
    assert sum(one[0] == "script" for one in tags.found) == 1, "an explorer has another script"
    # Read as a browser reads it: a string of JSON inside a script.
    written = found[0].split("const DATA = JSON.parse(")[1].split(");\n")[0]
    json.loads(json.loads(written), parse_constant=_refuse)
    _check_quiet(tags, words)
    return True


def _refuse(word):
    raise AssertionError(f"{word} among the numbers")


def _check_quiet(tags, words):
    for tag, attributes in tags.found:
        assert tag not in ("img", "iframe", "object", "embed", "base", "form", "link"), f"a page has <{tag}>"
        assert not [one for one in attributes if one.startswith("on")], "a page has a handler"
        assert not str(attributes.get("href", "")).lower().startswith("javascript"), "a page has a link that runs"
    if not any("nan" in word.lower() for word in words):
        assert not re.search(r"\bnan\b", " ".join(tags.shown), re.IGNORECASE), "a page says nan"


def _figures(model, X, rows, contexts, words):
    def run():
        path = cpo.confidence_path(model, X, rows.y, contexts, levels=3)
        table = metrics.by_context(model.fit(X, rows.y, contexts=contexts), X, rows.y, contexts)
        figure, axes = plt.subplots(2, 2)
        plots.plot_path(path, axes[0, 0])
        plots.plot_weights(path, axes[0, 1])
        plots.plot_levels(path, axes[1, 0])
        plots.plot_contexts(table, axes[1, 1], value="risk")
        figure.canvas.draw()

    try:
        return outcome(run, foreign=True) is not None
    finally:
        plt.close("all")
