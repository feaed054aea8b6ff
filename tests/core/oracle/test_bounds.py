"""Lower bounds from one point: never above the minimum, and equal to it at the minimum."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import Phase, assume, example, given, settings
from hypothesis import strategies as st
from scipy import optimize, sparse

from counterpoise.core.oracle.bounds import balanced_bounds
from counterpoise.core.oracle.kinked import KinkedOracle
from counterpoise.core.oracle.linear import LinearOracle, Mixture
from counterpoise.core.oracle.scalar import ScalarOracle
from counterpoise.losses import Huber, Logistic, Multinomial, Newsvendor, Pinball, Poisson, Squared
from counterpoise.rows import memory
from counterpoise.rows.slopes import RowSlopes
from tests.problems import (
    LOSSES,
    SHARP,
    SMOOTH,
    TIGHT,
    design_of,
    make,
    minimise,
    mixed_weights,
    oracle_of,
    random_distribution,
    referee_arguments,
    weighted_risk,
)
from tests.referees import robust

# A counterexample is a seed, which does not shrink to anything simpler.
FIRST_SEEN = (Phase.explicit, Phase.generate)
PROPERTY = settings(max_examples=5, deadline=None, derandomize=True, phases=FIRST_SEEN)
THOROUGH = settings(max_examples=60, deadline=None, derandomize=True)

SEEDS = st.integers(0, 2**32 - 1)
ALPHAS = st.sampled_from([0.0, 1e-4, 1e-1])

every_smooth_loss = pytest.mark.parametrize("loss", SMOOTH, ids=lambda loss: loss.name)
every_hinged_loss = pytest.mark.parametrize("loss", [Huber(0.8), *SHARP], ids=lambda loss: loss.name)
every_sharp_loss = pytest.mark.parametrize("loss", SHARP, ids=lambda loss: loss.name)


# --- data that are hard on a bound --------------------------------------------------------------------------


def plain(loss, seed):
    return make(loss, 3, 3, seed, (8, 20))


def one_row(loss, seed):
    X, y, _ = make(loss, 1, 2, seed, (1, 1))
    return X[:1], y[:1], np.zeros(1, dtype=np.intp)


def fewer_rows_than_columns(loss, seed):
    X, y, codes = make(loss, 3, 12, seed, (1, 2))
    return X, y, codes


def duplicate_columns(loss, seed):
    X, y, codes = plain(loss, seed)
    return np.column_stack([X, X[:, :2]]), y, codes


def constant_columns(loss, seed):
    X, y, codes = plain(loss, seed)
    return np.column_stack([X, np.full(len(X), 3.0), np.zeros(len(X))]), y, codes


def columns_of_very_different_scales(loss, seed):
    X, y, codes = plain(loss, seed)
    return X * [1e6, 1.0, 1e-6], y, codes


def nearly_equal_columns(loss, seed):
    X, y, codes = plain(loss, seed)
    X[:, 1] = X[:, 0] + 1e-7 * X[:, 1]
    return X, y, codes


def column_far_from_zero(loss, seed):
    X, y, codes = plain(loss, seed)
    return X + np.array([1e7, 0.0, 0.0]), y, codes


def context_with_nothing_to_learn(loss, seed):
    """One class in a context, a class never seen, counts that are all zero, or targets that are all the same."""
    X, y, codes = plain(loss, seed)
    if loss.name == "multinomial":
        return X, np.minimum(y, 1.0), codes
    if loss.name == "poisson":
        return X, np.zeros_like(y), codes
    return X, np.where(codes == 1, 1.0, y), codes


def rows_that_can_all_be_met(loss, seed):
    """Separable classes, or targets without noise."""
    X, _, codes = plain(loss, seed)
    z = X[:, 0] - 0.5 * X[:, 1]
    if loss.name in ("logistic", "multinomial"):
        return X, (z > 0).astype(np.float64), codes
    return X, np.exp(0.3 * z) if loss.name == "poisson" else z, codes


def targets_far_from_zero(loss, seed):
    X, y, codes = plain(loss, seed)
    return X, {"logistic": y, "multinomial": y}.get(loss.name, np.abs(y) * 1e3 + 1e4), codes


DATA = [
    plain,
    one_row,
    fewer_rows_than_columns,
    duplicate_columns,
    constant_columns,
    columns_of_very_different_scales,
    nearly_equal_columns,
    column_far_from_zero,
    context_with_nothing_to_learn,
    rows_that_can_all_be_met,
    targets_far_from_zero,
]
ILL_CONDITIONED = (nearly_equal_columns, column_far_from_zero)
every_kind_of_data = pytest.mark.parametrize("data", DATA, ids=lambda data: data.__name__)


def bound_at(oracle, theta, p, share=1.0):
    """Return the bound at a point, from its own gradient and a share of its Hessian."""
    point = oracle.at(theta)
    curvature = None if share == 1.0 else share * point.hessian(p)
    return point.lower_bound(p, p @ point.jacobian, curvature)


def assert_not_above(bound, least, value, data=plain):
    """Compare a bound with a risk some theta attains; what the bound takes off ``value`` has rounding of its own."""
    assert not np.isnan(bound)
    excess = bound - least
    rounding, share = (1e-8, 1e-3) if data in ILL_CONDITIONED else (1e-11, 1e-8)
    allowed = rounding * (1.0 + abs(least)) + share * max(value - least, 0.0)
    assert excess <= allowed, f"bound {bound!r} exceeds the minimum {least!r} by {excess:.2e} (value {value!r})"


# --- smooth losses ------------------------------------------------------------------------------------------


@every_kind_of_data
@every_smooth_loss
@PROPERTY
@given(SEEDS, ALPHAS, st.booleans(), st.floats(-9.0, 0.0), st.sampled_from([1.0, 0.3]))
def test_bound_near_the_minimum_is_never_above_it(loss, data, seed, alpha, fit_intercept, distance, share):
    X, y, codes = data(loss, seed)
    rng = np.random.default_rng(seed)
    oracle = oracle_of(loss, X, y, codes, alpha=alpha, fit_intercept=fit_intercept)
    p = random_distribution(oracle.n_contexts, rng)
    least, theta = minimise(loss, X, y, mixed_weights(codes, p), alpha, fit_intercept)
    near = theta + 10.0**distance * rng.normal(size=len(theta)) / np.maximum(oracle.reach, 1e-9)
    value = float(p @ oracle.at(near).risks)
    assert_not_above(bound_at(oracle, near, p, share), least, value, data)


@every_kind_of_data
@every_smooth_loss
@PROPERTY
@given(SEEDS, ALPHAS, st.booleans(), st.floats(-1.0, 2.0))
def test_bound_far_from_the_minimum_is_never_above_it(loss, data, seed, alpha, fit_intercept, distance):
    X, y, codes = data(loss, seed)
    rng = np.random.default_rng(seed)
    oracle = oracle_of(loss, X, y, codes, alpha=alpha, fit_intercept=fit_intercept)
    p = random_distribution(oracle.n_contexts, rng)
    least, _ = minimise(loss, X, y, mixed_weights(codes, p), alpha, fit_intercept)
    # Sparse directions leave some rows where they are and saturate others.
    direction = rng.normal(size=oracle.n_parameters) * (rng.random(oracle.n_parameters) < 0.7)
    far = 10.0**distance * direction / np.maximum(oracle.reach, 1e-9)
    value = float(p @ oracle.at(far).risks)
    assume(value < 1e100)
    assert_not_above(bound_at(oracle, far, p), least, value, data)


@every_kind_of_data
@every_smooth_loss
@PROPERTY
@given(SEEDS, st.sampled_from([1e-4, 1e-1]), st.booleans())
@example(3247, 1e-4, True)
def test_bound_equals_the_minimum_at_the_minimum(loss, data, seed, alpha, fit_intercept):
    X, y, codes = data(loss, seed)
    rng = np.random.default_rng(seed)
    oracle = oracle_of(loss, X, y, codes, alpha=alpha, fit_intercept=fit_intercept)
    p = random_distribution(oracle.n_contexts, rng)
    least, theta = minimise(loss, X, y, mixed_weights(codes, p), alpha, fit_intercept)
    scale = max(abs(least), float(p @ np.abs(oracle.at(np.zeros(len(theta))).risks)))
    # Where a column is 1e7 away, predictions are differences of numbers of that size: 1e-9 of them is rounding.
    assert least - bound_at(oracle, theta, p) <= (1e-8 if data in ILL_CONDITIONED else 1e-10) * scale


@every_smooth_loss
@pytest.mark.parametrize("data", [plain, duplicate_columns, constant_columns], ids=lambda data: data.__name__)
@PROPERTY
@given(SEEDS, st.booleans())
def test_bound_needs_no_ridge_to_be_tight(loss, data, seed, fit_intercept):
    X, y, codes = data(loss, seed)
    oracle = oracle_of(loss, X, y, codes, fit_intercept=fit_intercept)
    p = np.array([0.2, 0.5, 0.3])
    least, theta = minimise(loss, X, y, mixed_weights(codes, p), 0.0, fit_intercept)
    scale = max(abs(least), float(p @ np.abs(oracle.at(np.zeros(len(theta))).risks)))
    assert least - bound_at(oracle, theta, p) <= 1e-10 * scale


@pytest.mark.parametrize(
    ("loss", "data"),
    [
        (Logistic(), rows_that_can_all_be_met),
        (Multinomial(3), rows_that_can_all_be_met),
        (Multinomial(3), context_with_nothing_to_learn),
        (Poisson(), context_with_nothing_to_learn),
        (Logistic(), one_row),
        (Multinomial(3), one_row),
        (Logistic(), fewer_rows_than_columns),
        (Multinomial(3), fewer_rows_than_columns),
    ],
)
def test_bound_is_tight_where_the_infimum_is_only_approached(loss, data):
    X, y, codes = data(loss, 7)
    oracle = oracle_of(loss, X, y, codes)
    p = np.full(oracle.n_contexts, 1.0 / oracle.n_contexts)
    least, theta = minimise(loss, X, y, mixed_weights(codes, p))
    scale = float(p @ np.abs(oracle.at(np.zeros(len(theta))).risks))
    assert -1e-12 * scale <= least - bound_at(oracle, theta, p) <= 1e-9 * scale


@every_smooth_loss
@PROPERTY
@given(SEEDS, st.sampled_from([1e-4, 1e-1]), st.booleans(), st.floats(-8.0, 1.0))
def test_bound_without_a_hessian_is_never_above_the_minimum(loss, seed, alpha, fit_intercept, distance):
    X, y, codes = plain(loss, seed)
    rng = np.random.default_rng(seed)
    oracle = oracle_of(loss, X, y, codes, alpha=alpha, fit_intercept=fit_intercept)
    p = random_distribution(oracle.n_contexts, rng)
    least, theta = minimise(loss, X, y, mixed_weights(codes, p), alpha, fit_intercept)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(memory, "_LARGEST_HESSIAN", 0)
        at = theta + 10.0**distance * rng.normal(size=len(theta))
        assert_not_above(bound_at(oracle, at, p), least, float(p @ oracle.at(at).risks))
        assert least - bound_at(oracle, theta, p) <= 1e-10 * (1.0 + abs(least))


@every_smooth_loss
@pytest.mark.parametrize("alpha", [0.0, 1e-1])
def test_bound_agrees_with_a_convex_program(loss, alpha):
    X, y, codes = make(loss, 3, 3, 4)
    p = np.array([0.1, 0.3, 0.6])
    weight = mixed_weights(codes, p)
    answer = robust.solve(
        **referee_arguments(loss),
        X=X,
        y=y,
        codes=codes,
        radius_bits=0.0,
        criterion="risk",
        alpha=alpha,
        fit_intercept=True,
        sample_weight=weight,
    )
    assert minimise(loss, X, y, weight, alpha)[0] == pytest.approx(answer.value, rel=1e-9)
    oracle = oracle_of(loss, X, y, codes, alpha=alpha)
    assert bound_at(oracle, answer.theta.ravel(), p) == pytest.approx(answer.value, rel=1e-7)
    for seed in range(20):
        theta = answer.theta.ravel() + np.random.default_rng(seed).normal(size=answer.theta.size) * 10.0 ** (-seed / 3)
        assert bound_at(oracle, theta, p) <= answer.value + 1e-8 * (1.0 + abs(answer.value))


@every_smooth_loss
def test_bound_of_sparse_rows_equals_that_of_dense_ones(loss):
    X, y, codes = make(loss, 3, 4, 3)
    X = np.where(np.abs(X) < 0.5, 0.0, X)
    p = np.array([0.3, 0.3, 0.4])
    _, theta = minimise(loss, X, y, mixed_weights(codes, p), 1e-3)
    bounds = [bound_at(oracle_of(loss, rows, y, codes, alpha=1e-3), theta, p) for rows in (X, sparse.csr_array(X))]
    assert bounds[0] == pytest.approx(bounds[1], rel=1e-12)


# --- points where curvature vanishes and the slope does not -------------------------------------------------


@pytest.mark.parametrize("theta", [-1e3, -800.0, -745.0, -700.0, -400.0, -40.0])
@pytest.mark.parametrize("loss", [Logistic(), Poisson()], ids=lambda loss: loss.name)
def test_row_without_curvature_still_pulls(loss, theta):
    oracle = oracle_of(loss, np.ones((1, 1)), [1.0], [0], fit_intercept=False)
    # The least risks are 0 and 1; at theta the row is as good as straight, and far above that.
    least = {"logistic": 0.0, "poisson": 1.0}[loss.name]
    assert bound_at(oracle, np.array([theta]), np.ones(1)) <= least + 1e-12


def test_slope_along_a_direction_without_curvature_is_not_forgotten():
    X, y = np.array([[1.0, 1.0], [1.0, 1.0], [1.0, -1.0]]), [0.0, 1.0, 1.0]
    oracle = oracle_of(Logistic(), X, y, [0, 0, 0], fit_intercept=False)
    # The first two rows balance at log 2; the third, alone along (1, -1), is saturated on the wrong side.
    assert bound_at(oracle, np.array([-17.5, 17.5]), np.ones(1)) <= 2.0 / 3.0 * np.log(2.0) + 1e-12


def test_rows_beyond_the_kink_of_the_huber_loss_still_pull():
    oracle = oracle_of(Huber(1.35), np.ones((1, 1)), [100.0], [0], fit_intercept=False)
    assert bound_at(oracle, np.zeros(1), np.ones(1)) <= 1e-12


def test_intercept_that_has_far_to_go_is_charged_for_the_way():
    oracle = oracle_of(Huber(1.35), np.ones((1, 1)), [1e6], [0], alpha=1e-4)
    # An intercept of 1e6 meets the row at no cost.
    assert bound_at(oracle, np.zeros(2), np.ones(1)) <= 1e-12


def test_nearly_equal_columns_can_still_meet_both_rows():
    X, y = np.array([[1.0, 1.0], [1.0, 1.0 + 1e-7]]), [0.0, 1.0]
    oracle = oracle_of(Squared(), X, y, [0, 0], fit_intercept=False)
    assert bound_at(oracle, np.zeros(2), np.ones(1)) <= 1e-12


# --- one parameter, piecewise linear ------------------------------------------------------------------------


PLACES = st.sampled_from([-2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 4.0])
COUNTS = st.integers(0, 6).map(float)


@st.composite
def scalar_problems(draw):
    """Return a loss with dyadic numbers, so that slopes can cancel exactly, and rows with ties and zeros."""
    n_contexts = draw(st.integers(1, 3))
    n = draw(st.integers(n_contexts, 9))
    codes = np.array([*range(n_contexts), *draw(st.lists(st.integers(0, n_contexts - 1), min_size=n, max_size=n))])
    x = np.array(draw(st.lists(PLACES, min_size=len(codes), max_size=len(codes))))
    target = np.array(draw(st.lists(COUNTS, min_size=len(codes), max_size=len(codes))))
    if draw(st.booleans()):
        return Pinball(draw(st.sampled_from([0.25, 0.5]))), x, target - 3.0, codes
    costs = st.sampled_from([0.0, 2.0, 4.0, 8.0, 10.0])
    cost = np.array(draw(st.lists(costs, min_size=len(codes), max_size=len(codes))))
    return Newsvendor(8.0), x, np.column_stack([cost, target]), codes


BOUNDS = st.sampled_from([(-np.inf, np.inf), (0.0, 5.0), (-3.0, 1.5), (1.0, np.inf), (-np.inf, 0.25), (2.0, 2.0)])


def scalar_of(loss, x, y, codes, low=-np.inf, high=np.inf):
    bounds = None if np.isinf(low) and np.isinf(high) else (np.array([low]), np.array([high]))
    linear_oracle = oracle_of(loss, x[:, None], y, codes, fit_intercept=False, bounds=bounds)
    return ScalarOracle.of(linear_oracle), linear_oracle


def least_by_trying(loss, x, y, weights, low, high):
    """Return the minimum of ``sum_i weight_i loss(y_i, x_i theta)`` by trying every kink, in exact arithmetic."""
    rows = [tuple(Fraction(float(v)) for v in row) for row in zip(*loss.pieces(y), x, strict=True)]

    def value(theta):
        total = Fraction(0)
        for weight, (kink, height, left, right, x_) in zip(weights, rows, strict=True):
            beyond = x_ * theta - kink
            total += weight * (height + (right if beyond > 0 else left) * beyond)
        return total

    def slope(sign):
        """The derivative beyond every kink, to the left or to the right."""
        terms = zip(weights, rows, strict=True)
        return sum(w * x_ * (right if sign * x_ > 0 else left) for w, (_, _, left, right, x_) in terms)

    if (np.isinf(low) and slope(-1) > 0) or (np.isinf(high) and slope(1) < 0):
        return -np.inf
    places = [kink / x_ for kink, _, _, _, x_ in rows if x_ != 0]
    places += [Fraction(end) for end in (low, high) if np.isfinite(end)]
    inside = [t for t in places if low <= t <= high] or [Fraction(0)]
    return float(min(value(t) for t in inside))


def exact_weights(codes, p):
    """Return each row's exact weight in the mixture."""
    sizes = np.bincount(codes)
    return [Fraction(float(p[c])) / int(sizes[c]) for c in codes]


@THOROUGH
@given(scalar_problems(), st.floats(-10.0, 10.0))
def test_scalar_risks_equal_linear_ones(problem, theta):
    scalar, linear_oracle = scalar_of(*problem)
    for place in (theta, 0.0, *scalar.candidates[:3]):
        one, other = scalar.at(np.array([place])), linear_oracle.at(np.array([place]))
        np.testing.assert_allclose(one.risks, other.risks, rtol=1e-12, atol=1e-12)


@THOROUGH
@given(scalar_problems(), st.floats(-10.0, 10.0))
def test_scalar_slopes_are_the_one_sided_derivatives(problem, theta):
    scalar, linear_oracle = scalar_of(*problem)
    h = 1e-6
    for place in (theta, 0.0, *scalar.candidates[:3]):
        if np.min(np.abs(scalar.kinks - place)[scalar.kinks != place], initial=np.inf) <= h:
            continue
        here, left, right = (linear_oracle.at(np.array([place + step])).risks for step in (0.0, -h, h))
        point = scalar.at(np.array([place]))
        np.testing.assert_allclose(point.slopes(0), (here - left) / h, atol=1e-7)
        np.testing.assert_allclose(point.slopes(1), (right - here) / h, atol=1e-7)
        assert (point.slopes(0) <= point.slopes(1) + 1e-12).all()


@THOROUGH
@given(scalar_problems(), BOUNDS)
def test_minimum_of_each_context_equals_trying_every_kink(problem, bounds):
    loss, x, y, codes = problem
    scalar, linear_oracle = scalar_of(*problem, *bounds)
    minima, theta = scalar.context_minima()
    for c in range(scalar.n_contexts):
        rows = codes == c
        least = least_by_trying(loss, x[rows], y[rows], [Fraction(1, int(rows.sum()))] * int(rows.sum()), *bounds)
        np.testing.assert_allclose(minima[c], least, rtol=1e-12, atol=1e-12)
        if np.isfinite(least):
            np.testing.assert_allclose(linear_oracle.at(theta[[c]]).risks[c], least, rtol=1e-12, atol=1e-12)
            assert bounds[0] <= theta[c] <= bounds[1]


@THOROUGH
@given(scalar_problems(), BOUNDS, SEEDS, st.floats(-5.0, 5.0))
def test_scalar_bound_is_the_minimum_wherever_it_is_taken(problem, bounds, seed, theta):
    loss, x, y, codes = problem
    scalar, _ = scalar_of(*problem, *bounds)
    p = np.random.default_rng(seed).integers(0, 8, scalar.n_contexts) + np.eye(scalar.n_contexts)[0]
    p = p / p.sum()
    point = scalar.at(np.array([theta]))
    least = least_by_trying(loss, x, y, exact_weights(codes, p), *bounds)
    np.testing.assert_allclose(point.lower_bound(p, p @ point.jacobian, None), least, rtol=1e-12, atol=1e-12)


@every_sharp_loss
def test_intercept_alone_is_a_scalar_problem_too(loss):
    _, y, codes = make(loss, 3, 1, 2)
    with_intercept = ScalarOracle.of(oracle_of(loss, np.empty((len(codes), 0)), y, codes))
    with_ones = scalar_of(loss, np.ones(len(codes)), y, codes)[0]
    np.testing.assert_allclose(with_intercept.context_minima(), with_ones.context_minima(), rtol=1e-13)


@pytest.mark.parametrize("seed", range(3))
@every_sharp_loss
def test_scalar_minimum_of_a_mixture_equals_the_linear_program(loss, seed):
    X, y, codes = make(loss, 4, 1, seed)
    scalar, _ = scalar_of(loss, X[:, 0], y, codes)
    p = random_distribution(4, np.random.default_rng(seed))
    least, _ = minimise(loss, X, y, mixed_weights(codes, p), fit_intercept=False)
    assert scalar.at(np.zeros(1)).lower_bound(p, np.zeros(1), None) == pytest.approx(least, rel=1e-9)


def test_stock_that_costs_its_price_has_a_minimum():
    # Below the demand of 3 every stock earns nothing and loses nothing.
    scalar, _ = scalar_of(Newsvendor(10.0), np.ones(1), np.array([[10.0, 3.0]]), np.zeros(1, dtype=np.intp))
    assert scalar.context_minima()[0] == pytest.approx([0.0])


def test_stock_that_costs_nothing_has_a_minimum_in_each_of_many_contexts():
    rng = np.random.default_rng(0)
    codes = np.repeat(np.arange(300), 7)
    y = np.column_stack([np.zeros(len(codes)), rng.random(len(codes))])
    scalar, _ = scalar_of(Newsvendor(10.0), np.ones(len(codes)), y, codes)
    most = -10.0 * np.bincount(codes, y[:, 1]) / 7.0
    np.testing.assert_allclose(scalar.context_minima()[0], most, rtol=1e-12)


def test_row_that_theta_does_not_move_has_a_minimum():
    scalar, _ = scalar_of(Pinball(0.5), np.zeros(1), np.array([2.0]), np.zeros(1, dtype=np.intp))
    assert scalar.context_minima()[0] == pytest.approx([1.0])


def test_unbounded_profit_is_minus_infinity():
    y = np.array([[-1.0, 3.0]])
    scalar, _ = scalar_of(Newsvendor(10.0), np.ones(1), y, np.zeros(1, dtype=np.intp))
    assert scalar.context_minima()[0] == [-np.inf]
    assert scalar.at(np.zeros(1)).lower_bound(np.ones(1), np.zeros(1), None) == -np.inf


def balanced(point, p):
    """Return a point with every dual variable in the middle of its interval for ``p``."""
    point.linearise(p)
    return point


def dual_bound(point, v, bend, p):
    """Return the bound of slopes that need not balance yet, each times the probability of its context."""
    part, oracle = point.oracle.rows.whole, point.oracle
    share = part.layout.each(p)
    slopes = RowSlopes.inside(part, part.pooled, part.weight, point.sums.predictions, v, bend, share)
    mixture = Mixture(oracle, point.sums, p)
    return max(float(balanced_bounds(slopes, mixture)[0]), float(p @ oracle.lowest_risks))


# --- several parameters, piecewise linear -------------------------------------------------------------------


@every_hinged_loss
@PROPERTY
@given(SEEDS, st.integers(1, 4), st.booleans(), st.floats(-8.0, 2.0))
def test_dual_bound_is_never_above_the_minimum(loss, seed, n_features, fit_intercept, distance):
    X, y, codes = make(loss, 3, n_features, seed, (4, 12))
    rng = np.random.default_rng(seed)
    oracle = KinkedOracle.of(oracle_of(loss, X, y, codes, fit_intercept=fit_intercept))
    p = random_distribution(3, rng)
    least, theta = minimise(loss, X, y, mixed_weights(codes, p), 0.0, fit_intercept)
    scale = 1.0 + abs(least) + float(np.abs(loss.pieces(y)[0]).max())
    for place in (theta, theta + 10.0**distance * rng.normal(size=len(theta)), np.zeros(len(theta))):
        for point in (oracle.at(place), balanced(oracle.at(place), p)):
            assert point.lower_bound(p, p @ point.jacobian, None) <= least + 1e-8 * scale


@every_hinged_loss
@PROPERTY
@given(SEEDS, st.booleans(), st.floats(-6.0, 6.0))
def test_dual_bound_of_any_slopes_is_never_above_the_minimum(loss, seed, fit_intercept, size):
    X, y, codes = make(loss, 3, 2, seed, (4, 12))
    rng = np.random.default_rng(seed)
    oracle = KinkedOracle.of(oracle_of(loss, X, y, codes, fit_intercept=fit_intercept))
    p = random_distribution(3, rng)
    least, theta = minimise(loss, X, y, mixed_weights(codes, p), 0.0, fit_intercept)
    scale = 1.0 + abs(least) + float(np.abs(loss.pieces(y)[0]).max())
    point = oracle.at(theta + rng.normal(size=len(theta)))
    v = rng.normal(0.0, 10.0, len(y))
    bend = 10.0**size * rng.random(len(y))
    bound = dual_bound(LinearOracle.at(oracle, point.theta), v, bend, p)
    assert bound <= least + 1e-8 * scale


@every_sharp_loss
@pytest.mark.parametrize("seed", range(4))
def test_dual_bound_is_tight_at_the_slopes_of_the_linear_program(loss, seed):
    X, y, codes = make(loss, 3, 3, seed)
    p = np.array([0.2, 0.5, 0.3])
    oracle = KinkedOracle.of(oracle_of(loss, X, y, codes))
    least, theta = minimise(loss, X, y, mixed_weights(codes, p))
    order = np.argsort(codes, kind="stable")
    share = np.repeat(p, np.bincount(codes))
    v = share * _slopes_of_the_program(loss, X[order], y[order], mixed_weights(codes, p)[order])
    bound = dual_bound(LinearOracle.at(oracle, theta), v, np.full(len(v), 1e-9), p)
    assert bound == pytest.approx(least, rel=1e-8)


def _slopes_of_the_program(loss, X, y, weight):
    """Return the optimal slope of each row, from the linear program in the slopes alone."""
    kink, height, left, right = loss.pieces(y)
    design = design_of(X, True)
    answer = optimize.linprog(
        weight * kink,
        A_eq=(weight[:, None] * design).T,
        b_eq=np.zeros(design.shape[1]),
        bounds=np.column_stack([left, right]),
        options=TIGHT,
    )
    assert answer.status == 0, answer.message
    assert weight @ height - answer.fun == pytest.approx(minimise(loss, X, y, weight)[0], rel=1e-8)
    return answer.x


@every_hinged_loss
@pytest.mark.parametrize("alpha", [1e-3, 1.0])
def test_dual_bound_with_a_ridge_is_never_above_the_convex_program(loss, alpha):
    X, y, codes = make(loss, 3, 3, 11)
    p = np.array([0.5, 0.2, 0.3])
    weight = mixed_weights(codes, p)
    answer = robust.solve(
        **referee_arguments(loss),
        X=X,
        y=y,
        codes=codes,
        radius_bits=0.0,
        criterion="risk",
        alpha=alpha,
        fit_intercept=True,
        sample_weight=weight,
    )
    assert weighted_risk(loss, X, y, weight, answer.theta, alpha) == pytest.approx(answer.value, rel=1e-9)
    oracle = KinkedOracle.of(oracle_of(loss, X, y, codes, alpha=alpha))
    rng = np.random.default_rng(0)
    for size in (0.0, 1e-6, 1e-2, 1.0, 100.0):
        point = balanced(oracle.at(answer.theta + size * rng.normal(size=4)), p)
        assert point.lower_bound(p, p @ point.jacobian, None) <= answer.value + 1e-7 * (1.0 + abs(answer.value))


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
def test_every_bound_says_it_is_a_theorem(loss):
    oracle = oracle_of(loss, *make(loss, 2, 1, 0), fit_intercept=False)
    assert oracle.is_rigorous
    if loss in SHARP:
        assert KinkedOracle.of(oracle).is_rigorous
        assert ScalarOracle.of(oracle).is_rigorous
