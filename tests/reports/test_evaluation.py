"""The page of an evaluation: what it shows, and what it leaves out where nothing is known."""

import re

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

import counterpoise as cpo
from counterpoise.reports.evaluation import written

pytestmark = [
    pytest.mark.usefixtures("few_draws"),
    pytest.mark.filterwarnings("ignore::counterpoise.exceptions.SmallContextWarning"),
]

N = 300
RNG = np.random.default_rng(5)
X = RNG.standard_normal((N, 2))
C = RNG.choice(["north", "south & <b>", "east"], N, p=[0.5, 0.3, 0.2])
SLOPE = X[:, 0] * np.where(C == "east", -1.0, 1.0)
ILL = np.where(SLOPE + RNG.logistic(size=N) > 0, "yes", "no")
COST = 50.0 + 9.0 * SLOPE + RNG.standard_normal(N)
PAST, LATER = slice(0, 150), slice(150, N)


def judged(kind, contexts=C, **options):
    estimator, y = {
        "classes": (cpo.RobustLogisticRegression, ILL),
        "numbers": (cpo.RobustLinearRegression, COST),
        "quantile": (cpo.RobustQuantileRegressor, COST),
    }[kind]
    switches = {"reference": "in-sample", "radius": 0.05}
    model = estimator(**switches).fit(X[PAST], y[PAST], contexts=C[PAST])
    return cpo.evaluate(model, X[LATER], y[LATER], None if contexts is None else contexts[LATER], **options)


def headings(page):
    return re.findall(r"<h2>(.*?)</h2>", page)


def test_classes_have_a_picture_of_calibration():
    erm = LogisticRegression().fit(X[PAST], ILL[PAST])
    found = judged("classes", baselines={"erm": erm})
    page = written(found, "ill by hospital", {"file": "later.csv"})
    assert headings(page) == [
        "Context by context",
        "The mix of contexts then and now",
        "Do probabilities mean what they say?",
        "Settings",
    ]
    assert "Every measure of every model" in page
    assert "<script" not in page
    assert "<b>" not in page
    assert f"{100 * found.measures['accuracy'][0]:.1f}%" in page
    assert page.count("later.csv") == 1


def test_numbers_have_a_picture_of_residuals_of_the_model_that_is_judged():
    page = written(judged("numbers"))
    assert "Too high or too low?" in headings(page)
    assert "What came minus what the model predicted" in page
    assert "Risks then and now" in page


def test_quantiles_have_neither():
    assert headings(written(judged("quantile")))[-2:] == ["The mix of contexts then and now", "Settings"]


def test_contexts_that_the_fit_did_not_have_are_listed():
    new = C.copy()
    new[150:180] = "moon"
    page = written(judged("numbers", new))
    assert "Contexts that the fit did not have" in headings(page)
    assert "moon" in page
    assert "unseen contexts" in page


def test_without_contexts_there_is_no_mix():
    page = written(judged("classes", None))
    assert headings(page) == ["All measures", "Do probabilities mean what they say?", "Settings"]


def test_a_model_that_knows_nothing_of_contexts_has_no_mix_either():
    plain = LogisticRegression().fit(X[PAST], ILL[PAST])
    page = written(cpo.evaluate(plain, X[LATER], ILL[LATER], C[LATER]))
    assert "The mix of contexts then and now" not in headings(page)
    assert "Context by context" in headings(page)
