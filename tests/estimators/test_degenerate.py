"""Data that leave a fit little or nothing to learn: a result whose certificate holds, or an error that says why."""

import numpy as np
import pytest
from sklearn.linear_model import Ridge

import counterpoise as cpo
from counterpoise.exceptions import InvalidInputError
from tests.fuzz import data, linear, rest

PLAIN = {
    "n": 24,
    "d": 2,
    "n_contexts": 3,
    "seed": 7,
    "features": "plain",
    "form": "plain",
    "contexts": "random",
    "weights": "none",
    "target": 0,
}
CASES = {
    "constant column": {"features": "constant column"},
    "duplicate column": {"features": "duplicate column"},
    "all zeros": {"features": "zeros"},
    "perfect separation": {"features": "separable", "target": 2},
    "a perfect fit": {"target": 1},
    "one row per context": {"contexts": "one row each", "n": 8},
    "identical contexts": {"contexts": "identical"},
    "one class in a context": {"target": 3},
    "fewer rows than columns": {"n": 3, "d": 4, "n_contexts": 1},
    "one context": {"contexts": "one"},
    "far from zero": {"features": "far from zero"},
    "uneven scales": {"features": "uneven scales"},
    "1e-300": {"features": "tiny"},
    "subnormal": {"features": "subnormal"},
    "float16": {"form": "float16"},
    "float32": {"form": "float32"},
    "read-only": {"form": "read-only"},
    "not contiguous": {"form": "strided"},
    "Fortran order": {"form": "fortran"},
    "object column": {"form": "object"},
    "masked array": {"form": "masked"},
    "weights of 1e300": {"weights": "huge"},
    "weights of 1e-300": {"weights": "tiny"},
}
HUGE = {"1e300": {"features": "huge"}, "one value of 1e300": {"features": "one huge value"}}
SWITCHES = {"radius": 0.2, "alpha": 1e-4}


def _own(name):
    return {key: values[0] for key, values in linear.ESTIMATORS[name][2].items()}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", linear.ESTIMATORS)
def test_a_linear_model_has_a_result_and_a_proof(name, case):
    recipe = {**PLAIN, **CASES[case]}
    if name == "RobustLogisticRegression" and case == "a perfect fit":
        pytest.skip("of classes that is perfect separation")
    if case == "one class in a context" and name != "RobustLogisticRegression":
        pytest.skip("only a classifier has classes")
    assert linear.check(name, (recipe, SWITCHES, _own(name)))


@pytest.mark.parametrize("case", HUGE)
@pytest.mark.parametrize("name", linear.ESTIMATORS)
def test_values_of_1e300_have_a_result_or_are_refused_in_words(name, case):
    # What is not a result that holds, or an error of the library, fails in here.
    linear.check(name, ({**PLAIN, **HUGE[case]}, SWITCHES, _own(name)))


@pytest.mark.filterwarnings("ignore::counterpoise.exceptions.SmallContextWarning")
def test_squares_that_overflow_are_named():
    X = np.array([[1e200], [-1e200], [2e200], [1e200]])
    with pytest.raises(InvalidInputError, match="Rescale the features"):
        cpo.RobustLinearRegression().fit(X, [1.0, 2.0, 3.0, 4.0], contexts=[0, 0, 1, 1])


@pytest.mark.parametrize("case", [*CASES, *HUGE])
@pytest.mark.parametrize("learner", ["tree", "ridge"])
def test_any_learner_has_a_result_or_is_refused_in_words(learner, case):
    recipe = {**PLAIN, **{**CASES, **HUGE}[case]}
    rest.check_any_learner((recipe, learner, {"radius": 0.2, "cv": 2, "max_iter": 2}))


@pytest.mark.parametrize("case", [*CASES, *HUGE])
@pytest.mark.parametrize("name", rest.BOOSTERS)
def test_boosting_has_a_result_or_is_refused_in_words(name, case):
    rest.check_booster(({**PLAIN, **{**CASES, **HUGE}[case]}, name, 0.2, "excess"))


@pytest.mark.parametrize("case", ["identical contexts", "one row per context", "weights of 1e300", "one context"])
def test_a_stock_level_has_a_result_and_a_proof(case):
    own = {"price": 10.0, "salvage": 0.0, "shortage": 0.0, "max_stock": None, "integer": False}
    common = {"radius": 0.2, "criterion": "excess"}
    assert linear.check_stock(({**PLAIN, **CASES[case]}, common, own, 4.0, True))


def test_masked_cells_are_not_taken_for_values():
    rows = data.table(PLAIN, "squared")
    hidden = np.ma.masked_array(rows.values, mask=np.zeros(rows.values.shape, dtype=bool))
    hidden[0, 0] = np.ma.masked
    for estimator in (cpo.RobustLinearRegression(), cpo.RobustXGBRegressor(), cpo.ContextRobust(Ridge())):
        with pytest.raises(InvalidInputError, match="X is a masked array with 1 masked cells"):
            estimator.fit(hidden, rows.y, contexts=rows.codes)
    with pytest.raises(InvalidInputError, match="demand is a masked array"):
        cpo.RobustNewsvendor(3.0).fit(1.0, np.ma.masked_array([1.0, 2.0], mask=[True, False]), contexts=[0, 1])


@pytest.mark.parametrize("share", [1e-4, 1e-6, 1e-12])
@pytest.mark.parametrize("radius", [0.5, 5.0, 1e8])
@pytest.mark.parametrize("name", linear.ESTIMATORS)
def test_a_context_with_next_to_no_share_is_certified_at_every_radius(name, radius, share):
    rng = np.random.default_rng(5)
    contexts, X = np.arange(60) % 3, rng.standard_normal((60, 3))
    score = X[:, 0] * (1 - contexts) + contexts
    y = np.exp(score / 2 + 0.5 * rng.standard_normal(60))
    y = y > 1 if "Logistic" in name else np.round(y) if "Poisson" in name else y
    weight = np.where(contexts == 0, share, 1.0)
    model = linear.ESTIMATORS[name][1](radius=radius, criterion="risk", **_own(name))
    found = model.fit(X, y, contexts=contexts, sample_weight=weight).certificate_
    assert found.relative_gap <= 1e-6
    if radius >= 60.0:
        minimax = model.set_params(radius=np.inf).fit(X, y, contexts=contexts, sample_weight=weight).certificate_
        assert found.upper == pytest.approx(minimax.upper, rel=1e-5)
