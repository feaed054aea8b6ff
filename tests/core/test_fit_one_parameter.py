"""Fits of one parameter with bounds."""

import math

import numpy as np
import pytest

from counterpoise.core.fit import Robustness, fit_linear
from counterpoise.exceptions import InvalidInputError
from counterpoise.losses import Huber, Logistic, Newsvendor
from tests.problems import make
from tests.referees import robust

# --- stock levels: one parameter and its bounds -------------------------------------------------------------


def test_stock_level_is_exact_and_matches_a_convex_program():
    _, y, codes = make(Newsvendor(10.0), 3, 1, 6)
    ones = np.ones((len(codes), 1))
    for radius in (0.0, 0.2, math.inf):
        fit = fit_linear(
            ones, y, codes, Newsvendor(10.0), robustness=Robustness(radius=radius), alpha=0.0, fit_intercept=False
        )
        answer = robust.solve(
            "newsvendor", ones, y, codes, radius, "excess", alpha=0.0, fit_intercept=False, price=10.0
        )
        assert fit.solution.value == pytest.approx(answer.value, rel=1e-7, abs=1e-9)
        assert fit.solution.certificate.gap <= 1e-9 * fit.solution.certificate.scale


@pytest.mark.parametrize("method", ["erm", "robust", "minimax-risk"])
@pytest.mark.parametrize(("low", "high"), [(0.0, 100.0), (0.0, 2.0), (50.0, 200.0)])
def test_stock_level_stays_within_its_bounds(method, low, high):
    _, y, codes = make(Newsvendor(10.0), 3, 1, 6)
    fit = fit_linear(
        np.ones((len(codes), 1)),
        y,
        codes,
        Newsvendor(10.0),
        robustness=method,
        alpha=0.0,
        fit_intercept=False,
        bounds=(np.array([low]), np.array([high])),
    )
    assert low <= fit.coef[0, 0] <= high
    assert fit.solution.success


@pytest.mark.parametrize(
    ("loss", "n_features", "alpha"),
    [(Newsvendor(10.0), 1, 1e-4), (Newsvendor(10.0), 2, 0.0), (Huber(1.0), 1, 0.0), (Logistic(), 2, 0.0)],
    ids=["a ridge", "two parameters", "a soft hinge", "a smooth loss"],
)
def test_bounds_that_cannot_be_kept_are_refused(loss, n_features, alpha):
    features, y, codes = make(loss, 3, n_features, 6)
    bounds = (np.zeros(n_features), np.full(n_features, 1e-3))
    with pytest.raises(InvalidInputError, match=r"bounds .*counterpoise\.minimize"):
        fit_linear(features, y, codes, loss, alpha=alpha, fit_intercept=False, bounds=bounds)


def test_bounds_that_cross_are_refused():
    _, y, codes = make(Newsvendor(10.0), 2, 1, 6)
    bounds = (np.array([5.0]), np.array([1.0]))
    with pytest.raises(InvalidInputError, match="bounds"):
        fit_linear(np.ones((len(codes), 1)), y, codes, Newsvendor(10.0), alpha=0.0, fit_intercept=False, bounds=bounds)


def test_stock_that_costs_its_price_is_fitted():
    y = np.array([[10.0, 3.0], [4.0, 5.0], [6.0, 2.0]])
    fit = fit_linear(np.ones((3, 1)), y, [0, 1, 1], Newsvendor(10.0), alpha=0.0, fit_intercept=False)
    assert fit.references.upper[0] == pytest.approx(0.0)
    assert fit.solution.success


@pytest.mark.parametrize("method", ["robust", "minimax-regret"])
@pytest.mark.parametrize("n_features", [1, 2])
def test_profit_without_bound_is_refused_with_a_remedy(method, n_features):
    # Stock that is paid for being bought: the more the better.
    y = np.array([[-1.0, 3.0], [5.0, 3.0], [5.0, 1.0], [-1.0, 2.0]])
    X = np.column_stack([np.ones(4), [1.0, 2.0, 0.5, 1.0]])[:, :n_features]
    arguments = {"robustness": method, "alpha": 0.0, "fit_intercept": False}
    with pytest.raises(InvalidInputError, match=r"context north has no minimum.*(Bound theta|Check costs)"):
        fit_linear(X, y, ["north", "south", "south", "north"], Newsvendor(10.0), **arguments)


@pytest.mark.parametrize("method", ["erm", "minimax-risk", "likelihood-robust"])
@pytest.mark.parametrize("n_features", [1, 2])
def test_profit_without_bound_in_every_context_is_refused_whatever_is_scored(method, n_features):
    y = np.array([[-1.0, 3.0], [-2.0, 3.0], [-5.0, 1.0], [-1.0, 2.0]])
    X = np.column_stack([np.ones(4), [1.0, 2.0, 0.5, 1.0]])[:, :n_features]
    arguments = {"robustness": method, "alpha": 0.0, "fit_intercept": False}
    with pytest.raises(InvalidInputError, match=r"no minimum.*(Bound theta|Check costs)"):
        fit_linear(X, y, ["north", "south", "south", "north"], Newsvendor(10.0), **arguments)
