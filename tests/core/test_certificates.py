"""Every certificate holds the optimum that an independent verifier finds."""

import numpy as np
import pytest

import counterpoise as cpo
from tests import verifier
from tests.problems import make
from tests.referees import robust

RADII = [0.0, 0.05, 1.0, np.inf]
SMALL = {
    "logistic": (cpo.RobustLogisticRegression, {}),
    "squared": (cpo.RobustLinearRegression, {}),
    "huber": (cpo.RobustHuberRegressor, {"delta": 0.8}),
    "poisson": (cpo.RobustPoissonRegressor, {}),
    "pinball": (cpo.RobustQuantileRegressor, {"quantile": 0.3}),
}


class _Loss:
    def __init__(self, name, **parameters):
        self.name = name
        vars(self).update(parameters)


def _holds(certificate, optimum, within):
    """The optimum lies between the bounds, and the bounds are near each other."""
    assert certificate.scope == "global"
    assert certificate.lower <= optimum + within * certificate.scale
    assert certificate.upper >= optimum - within * certificate.scale
    assert certificate.relative_gap <= 1e-6


@pytest.mark.filterwarnings("ignore::counterpoise.exceptions.SmallContextWarning")
@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("radius", RADII)
@pytest.mark.parametrize("criterion", ["excess", "risk"])
def test_the_optimum_of_cvxpy_lies_between_the_bounds(name, radius, criterion):
    estimator, parameters = SMALL[name]
    X, y, codes = make(_Loss(name, **parameters), 3, 2, seed=21, rows=(8, 14))
    model = estimator(radius=radius, criterion=criterion, alpha=1e-2, reference="in-sample", **parameters)
    model.fit(X, y, contexts=codes)
    referee = robust.solve(name, X, y, codes, radius, criterion, 1e-2, True, **parameters)
    _holds(model.certificate_, referee.value, 1e-7)
    if criterion == "excess":
        assert model.reference_risks_ == pytest.approx(referee.reference_risks, abs=1e-7 * model.certificate_.scale)


@pytest.mark.parametrize("radius", RADII)
@pytest.mark.parametrize("criterion", ["excess", "risk"])
def test_the_stock_level_of_cvxpy_lies_between_the_bounds(radius, criterion):
    rng = np.random.default_rng(4)
    codes = np.repeat([0, 1, 2], [20, 8, 6])
    cost, demand = rng.uniform(2.0, 8.0, len(codes)), rng.gamma(4.0, 3.0 + 2.0 * codes)
    model = cpo.RobustNewsvendor(10.0, radius=radius, criterion=criterion).fit(cost, demand, contexts=codes)
    y = np.column_stack([cost, demand])
    referee = robust.solve("newsvendor", np.empty((len(y), 0)), y, codes, radius, criterion, 0.0, True, price=10.0)
    _holds(model.certificate_, referee.value, 1e-7)


def _tiny(name, width, seed):
    """Return rows of two contexts, as arrays and as the verifier wants them."""
    rng = np.random.default_rng(seed)
    codes = np.repeat([0, 1], [4, 3])
    X = rng.normal(size=(7, width))
    noise = rng.normal(size=7)
    y = {
        "logistic": np.array([0.0, 1.0, 1.0, 0.0, 1.0, 0.0, 1.0]),
        "poisson": np.array([0.0, 2.0, 1.0, 3.0, 1.0, 0.0, 4.0]),
    }.get(name, X[:, 0] * np.where(codes == 0, 1.0, -0.5) + noise)
    rows = [[(X[i].tolist(), float(y[i])) for i in np.flatnonzero(codes == c)] for c in (0, 1)]
    return X, y, codes, rows


@pytest.mark.filterwarnings("ignore::counterpoise.exceptions.SmallContextWarning")
@pytest.mark.parametrize("name", ["logistic", "squared", "poisson"])
@pytest.mark.parametrize(("radius", "criterion"), [(0.0, "excess"), (0.2, "excess"), (0.2, "risk"), (np.inf, "risk")])
def test_the_optimum_with_fifty_digits_lies_between_the_bounds(name, radius, criterion):
    X, y, codes, rows = _tiny(name, 1, seed=3)
    model = SMALL[name][0](radius=radius, criterion=criterion, alpha=0.1, reference="in-sample")
    model.fit(X, y, contexts=codes)
    optimum = verifier.tiny_optimum(name, rows, radius, criterion, 0.1, True)
    _holds(model.certificate_, optimum, 1e-13)


@pytest.mark.filterwarnings("ignore::counterpoise.exceptions.SmallContextWarning")
@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize(("radius", "criterion"), [(0.0, "excess"), (0.2, "excess"), (0.2, "risk"), (np.inf, "risk")])
def test_the_optimum_on_a_line_with_fifty_digits_lies_between_the_bounds(name, radius, criterion):
    estimator, parameters = SMALL[name]
    X, y, codes, rows = _tiny(name, 1, seed=5)
    fixed = {"alpha": 0.1, "fit_intercept": False, "reference": "in-sample"}
    model = estimator(radius=radius, criterion=criterion, **fixed, **parameters)
    model.fit(X, y, contexts=codes)
    optimum = verifier.tiny_optimum_on_line(name, rows, radius, criterion, 0.1, **parameters)
    _holds(model.certificate_, optimum, 1e-13)


@pytest.mark.parametrize("radius", [0.0, 0.2, np.inf])
def test_the_optimum_of_a_stock_level_with_fifty_digits_lies_between_the_bounds(radius):
    codes = np.repeat([0, 1], [4, 3])
    demand, cost = np.array([3.0, 5.0, 4.0, 6.0, 9.0, 12.0, 8.0]), np.linspace(2.0, 6.0, 7)
    model = cpo.RobustNewsvendor(10.0, radius=radius).fit(cost, demand, contexts=codes)
    rows = [[([1.0], (float(cost[i]), float(demand[i]))) for i in np.flatnonzero(codes == c)] for c in (0, 1)]
    optimum = verifier.tiny_optimum_on_line("newsvendor", rows, radius, "excess", 0.0, price=10.0)
    _holds(model.certificate_, optimum, 1e-13)
