"""What the tests of order rule share."""

import contextlib
import math
import warnings

import cvxpy as cp
import numpy as np
import pytest

from counterpoise import RobustNewsvendorRegressor
from tests.estimators.test_newsvendor import worst_mean

PRICE = 10.0
PLAIN = {"price": PRICE, "salvage": 0.0, "shortage": 0.0, "max_stock": None}


def shop(seed, n_contexts=3, n_features=2, costs=(0.5, 9.0), rows=(30, 50)):
    """Return features, demands, contexts and costs; demand follows the features, differently in each context."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(*rows, n_contexts)
    sizes[0] *= 2
    contexts = rng.permutation(np.repeat(np.arange(n_contexts), sizes))
    X = rng.normal(size=(len(contexts), n_features))
    slopes = rng.normal(scale=3.0, size=(n_contexts, n_features))
    demand = rng.uniform(4.0, 20.0, n_contexts)[contexts] + np.sum(X * slopes[contexts], axis=1)
    demand = np.abs(demand + rng.gamma(2.0, 2.0, len(contexts)))
    paid = rng.uniform(*costs, n_contexts)[contexts] * rng.uniform(0.8, 1.25, len(contexts))
    return X, demand, contexts, paid


def order_cost(order, demand, paid, price, salvage, shortage, max_stock=None):
    """Return what an order costs: bought, less sold, less sold off, and what is missing."""
    sold = np.minimum(order, demand)
    return paid * order - price * sold - salvage * (order - sold) + shortage * (demand - sold)


def convex_cost(z, demand, paid, price, salvage, shortage, max_stock=None):
    """Return the cost of each row's order as a convex function of its line ``z``, in CVXPY or in numbers.

    It is the least convex function that is the cost of every order that can be placed, and nowhere less than that of
    ``clip(z, 0, max_stock)``: flat beyond an end past which the cost would fall, and straight on past the other.
    """
    positive, multiply = (cp.pos, cp.multiply) if isinstance(z, cp.Expression) else (lambda x: x * (x > 0), np.multiply)
    most = math.inf if max_stock is None else max_stock
    before, after = paid - price - shortage, paid - salvage
    first, last = np.where(demand > 0, before, after), np.where(demand < most, after, before)
    bend = (demand > 0) * (demand < most) * (after - before)
    return (
        shortage * demand
        + multiply(np.minimum(first, 0.0), z)
        + multiply(np.maximum(first, 0.0), positive(z))
        + multiply(bend, positive(z - demand))
        + (multiply(np.maximum(-last, 0.0), positive(z - most)) if math.isfinite(most) else 0.0)
    )


def shares_of(contexts, weight=None):
    totals = np.bincount(contexts, weights=weight)
    return totals / totals.sum()


def solved(objective, constraints=()):
    program = cp.Problem(cp.Minimize(objective), list(constraints))
    for tolerance in (1e-10, 1e-9, 1e-8):
        with warnings.catch_warnings(), contextlib.suppress(cp.SolverError):
            warnings.simplefilter("ignore")
            program.solve(
                solver=cp.CLARABEL, tol_gap_abs=tolerance, tol_gap_rel=tolerance, tol_feas=tolerance, max_iter=500
            )
        if program.status == cp.OPTIMAL:
            return float(program.value)
    raise ArithmeticError(f"Clarabel: {program.status}")


def size_of(data, terms):
    """Return the size of the costs, below which two values are the same."""
    demand = data[1] if data[1].any() else 1.0
    return float(np.mean(demand * (terms["price"] + terms["shortage"] + np.abs(data[3]))))


def conic_optimum(data, radius, alpha, criterion="excess", fit_intercept=True, weight=None, **terms):
    """Return the least worst-case score of a linear rule and each context's least risk, by exponential cones."""
    X, demand, contexts, paid = data
    # In a unit of money in which costs are near one, or the cones are too long for the solver.
    unit = size_of(data, terms)
    paid, alpha = paid / unit, alpha / unit
    terms = terms | {name: terms[name] / unit for name in ("price", "salvage", "shortage")}
    weight = np.ones(len(demand)) if weight is None else weight
    coef, intercept = cp.Variable(X.shape[1]), cp.Variable() if fit_intercept else 0.0
    rows = convex_cost(X @ coef + intercept, demand, paid, **terms)
    ridge = 0.5 * alpha * cp.sum_squares(coef)
    own = [contexts == c for c in range(contexts.max() + 1)]
    risks = [weight[rows_c] @ rows[rows_c] / weight[rows_c].sum() for rows_c in own]
    least = np.array([solved(risk + ridge) for risk in risks])
    scores = [risk - (best if criterion == "excess" else 0.0) for risk, best in zip(risks, least, strict=True)]
    shares = shares_of(contexts, weight)
    if radius == 0.0 or len(scores) == 1:
        return unit * solved(shares @ cp.hstack(scores) + ridge), unit * least
    if math.isinf(radius):
        return unit * solved(cp.max(cp.hstack(scores)) + ridge), unit * least
    lam, shift, slack = cp.Variable(nonneg=True), cp.Variable(), cp.Variable(len(scores))
    spread = shares @ cp.rel_entr(lam * np.ones(len(scores)), slack + lam)
    bound = [slack[c] <= shift - one for c, one in enumerate(scores)]
    return unit * solved(shift + lam * radius * math.log(2.0) + spread + ridge, bound), unit * least


def convexified_risks(model, data, weight=None, **terms):
    """Return each context's mean convex cost with the ridge, at the coefficients of a model."""
    X, demand, contexts, paid = data
    weight = np.ones(len(demand)) if weight is None else weight
    rows = convex_cost(X @ model.coef_ + model.intercept_, demand, paid, **terms)
    means = np.bincount(contexts, weight * rows) / np.bincount(contexts, weight)
    return means + 0.5 * model.alpha * float(model.coef_ @ model.coef_)


def assert_optimal(model, data, weight=None, **terms):
    """Check a fit, coefficients first, against the conic program; to 1e-6 of the size of the costs."""
    value, least = conic_optimum(
        data, model.radius_, model.alpha, model.get_params()["criterion"], model.fit_intercept, weight, **terms
    )
    size = size_of(data, terms)
    risks = convexified_risks(model, data, weight, **terms)
    taken_off = least if model.get_params()["criterion"] == "excess" else np.zeros(len(least))
    attained = worst_mean(risks - taken_off, shares_of(data[2], weight), model.radius_)
    assert model.context_risks_ == pytest.approx(risks, abs=1e-9 * size)
    assert model.reference_risks_ == pytest.approx(least, abs=1e-6 * size)
    assert attained == pytest.approx(value, rel=1e-6, abs=1e-6 * size)
    assert model.certificate_.upper == pytest.approx(value, rel=1e-6, abs=1e-6 * size)
    assert model.certificate_.lower <= value + 1e-7 * size
    assert model.certificate_.scope == "global"
    assert model.certificate_.relative_gap <= model.tol


TERMS = {
    "plain": {},
    "shortage": {"shortage": 6.0},
    "salvage": {"salvage": 0.4},
    "capacity": {"max_stock": 11.0},
    "salvage and capacity": {"salvage": 4.0, "max_stock": 14.0},
    "all of them": {"salvage": 3.0, "shortage": 2.0, "max_stock": 9.0},
}


def rule(**parameters):
    return RobustNewsvendorRegressor(**({"price": PRICE} | parameters))


def fitted(data, weight=None, **parameters):
    return rule(**parameters).fit(*data[:3], sample_weight=weight, costs=data[3])


def assert_same_rule(one, other, tol=1e-9):
    """Check that two fits are one."""
    scale = 1.0 + float(np.abs(one.coef_).max())
    np.testing.assert_allclose(one.coef_, other.coef_, rtol=0, atol=tol * scale)
    np.testing.assert_allclose(one.intercept_, other.intercept_, rtol=tol, atol=tol * scale)
    assert one.radius_ == pytest.approx(other.radius_)
    assert one.certificate_.upper == pytest.approx(other.certificate_.upper, abs=tol * (1 + one.certificate_.scale))
