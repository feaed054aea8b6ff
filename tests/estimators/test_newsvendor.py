"""The robust stock level against levels found in slower ways, and what it does with its inputs."""

import math
import pickle
import warnings

import cvxpy as cp
import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy.optimize import minimize_scalar
from sklearn.base import clone

from counterpoise import RobustNewsvendor
from counterpoise.exceptions import EmptyContextError, InvalidInputError, OneContextWarning

PRICE = 10.0


def sales(seed, n_contexts=3, rows=(4, 25)):
    """Return costs, demands and contexts, the first context four times larger, rows mixed."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(*rows, n_contexts)
    sizes[0] *= 4
    contexts = rng.permutation(np.repeat(np.arange(n_contexts), sizes))
    cost = rng.uniform(0.5, 9.0, n_contexts)[contexts] * rng.uniform(0.8, 1.2, len(contexts))
    demand = np.abs(rng.uniform(5.0, 40.0, n_contexts)[contexts] + 4.0 * rng.normal(size=len(contexts)))
    return cost, demand, contexts


def loss(level, cost, demand, salvage=0.0, shortage=0.0):
    left, lost = np.maximum(level - demand, 0.0), np.maximum(demand - level, 0.0)
    return level * cost - PRICE * np.minimum(level, demand) - salvage * left + shortage * lost


def risks(level, data, weight=None, **prices):
    cost, demand, contexts = data
    weight = np.ones(len(cost)) if weight is None else weight
    values = loss(level, cost, demand, **prices)
    return np.array([np.average(values[contexts == c], weights=weight[contexts == c]) for c in np.unique(contexts)])


def best_of_each(data, high=math.inf, **prices):
    """Return each context's least risk: a convex piecewise linear function has it at a kink or an end."""
    contexts = data[2]
    least = []
    for c in np.unique(contexts):
        own = tuple(column[contexts == c] for column in data)
        kinks = np.append(np.minimum(own[1], high), [0.0] + ([high] if math.isfinite(high) else []))
        least.append(min(risks(level, own, **prices)[0] for level in kinks))
    return np.array(least)


def worst_mean(scores, p_hat, radius):
    """Return the largest mean over the ball by the dual over one number, solved on a logarithmic scale."""
    if radius == 0.0 or np.ptp(scores) < 1e-13:
        return float(p_hat @ scores)
    if math.isinf(radius):
        return float(scores.max())
    top, spread = scores.max(), np.ptp(scores)

    def dual(log_slack):
        above = (top - scores) + spread * math.exp(log_slack)
        return top + spread * math.exp(log_slack) - math.exp(p_hat @ np.log(above) - radius * math.log(2.0))

    found = minimize_scalar(dual, bounds=(-45.0, 20.0), method="bounded", options={"xatol": 1e-10})
    return float(found.fun)


def least_worst(data, radius, references, high=math.inf, **prices):
    """Return the least worst-case score, searched for at every kink and between any two of them near the best."""
    contexts = data[2]
    p_hat = np.bincount(contexts) / len(contexts)

    def objective(level):
        return worst_mean(risks(level, data, **prices) - references, p_hat, radius)

    kinks = np.unique(np.append(np.minimum(data[1], high), [0.0] + ([high] if math.isfinite(high) else [])))
    at_kinks = np.array([objective(level) for level in kinks])
    k = int(at_kinks.argmin())
    best = at_kinks[k]
    # It is convex, so the minimum is within the two intervals that meet at the best kink.
    for low, end in zip(kinks[max(k - 1, 0) : k + 1], kinks[max(k - 1, 0) + 1 : k + 2], strict=False):
        best = min(best, least_between(objective, low, end))
    return best


def least_between(convex, low, high):
    """Return the minimum of a convex function by thirds, to the last digits even on a kink."""
    for _ in range(90):
        left, right = low + (high - low) / 3.0, high - (high - low) / 3.0
        low, high = (low, right) if convex(left) < convex(right) else (left, high)
    return convex(0.5 * (low + high))


def conic_optimum(data, radius, references, high=math.inf, salvage=0.0, shortage=0.0):
    """Return the optimum of one conic program, through the dual of the inner problem."""
    cost, demand, contexts = data
    level = cp.Variable(nonneg=True)
    room = [level <= high] if math.isfinite(high) else []
    left, lost = cp.pos(level - demand), cp.pos(demand - level)
    rows = level * (cost - PRICE) + (PRICE - salvage) * left + shortage * lost
    scores = [cp.sum(rows[contexts == c]) / (contexts == c).sum() - references[c] for c in np.unique(contexts)]
    p_hat = np.bincount(contexts) / len(contexts)
    if math.isinf(radius):
        program = cp.Problem(cp.Minimize(cp.max(cp.hstack(scores))), room)
    elif radius == 0.0:
        program = cp.Problem(cp.Minimize(p_hat @ cp.hstack(scores)), room)
    else:
        lam, shift, slack = cp.Variable(nonneg=True), cp.Variable(), cp.Variable(len(scores))
        spread = p_hat @ cp.rel_entr(lam * np.ones(len(scores)), slack + lam)
        bound = [slack[c] <= shift - criterion for c, criterion in enumerate(scores)]
        program = cp.Problem(cp.Minimize(shift + lam * radius * math.log(2.0) + spread), bound + room)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program.solve(solver=cp.CLARABEL, tol_gap_abs=1e-10, tol_gap_rel=1e-10, tol_feas=1e-10)
    return float(program.value)


def attained(model, data, radius, references, **prices):
    p_hat = np.bincount(data[2]) / len(data[2])
    return worst_mean(risks(model.stock_level_, data, **prices) - references, p_hat, radius)


@pytest.mark.parametrize("radius", [1e-4, 0.05, 0.5, 3.0, math.inf])
@pytest.mark.parametrize("seed", range(4))
def test_no_level_has_a_smaller_worst_case_excess(seed, radius):
    data = sales(seed, n_contexts=2 + seed)
    model = RobustNewsvendor(PRICE, radius=radius).fit(*data)
    references = best_of_each(data)
    assert model.reference_risks_ == pytest.approx(references, abs=1e-9)
    value = attained(model, data, radius, references)
    assert value == pytest.approx(least_worst(data, radius, references), abs=1e-7)
    assert model.certificate_.upper == pytest.approx(value, abs=1e-7)
    assert model.certificate_.scope == "global"
    assert model.certificate_.gap <= 1e-9


@pytest.mark.parametrize("radius", [1e-4, 0.3, math.inf])
@pytest.mark.parametrize("seed", [10, 11])
def test_no_level_has_a_smaller_worst_case_risk(seed, radius):
    data = sales(seed)
    model = RobustNewsvendor(PRICE, radius=radius, criterion="risk").fit(*data)
    value = attained(model, data, radius, np.zeros(3))
    assert value == pytest.approx(least_worst(data, radius, np.zeros(3)), abs=1e-7)


@pytest.mark.parametrize("prices", [{}, {"salvage": 0.4, "shortage": 3.0}], ids=["plain", "salvage and shortage"])
@pytest.mark.parametrize("radius", [0.1, 1.0, math.inf])
def test_the_value_agrees_with_a_conic_solver(radius, prices):
    data = sales(21)
    model = RobustNewsvendor(PRICE, radius=radius, **prices).fit(*data)
    references = best_of_each(data, **prices)
    assert model.certificate_.upper == pytest.approx(conic_optimum(data, radius, references, **prices), abs=1e-7)


@pytest.mark.parametrize("seed", range(100, 124))
def test_the_value_agrees_with_a_conic_solver_on_terms_of_every_kind(seed):
    rng = np.random.default_rng(seed)
    _, demand, contexts = sales(seed, n_contexts=2 + seed % 4)
    # Contexts that sell at a loss, and with salvage some that gain from what is left over.
    cost = rng.uniform(0.5, 15.0, 6)[contexts] * rng.uniform(0.7, 1.3, len(contexts))
    data = cost, np.where(rng.random(len(cost)) < 0.1, 0.0, demand), contexts
    high = float(rng.uniform(3.0, 45.0)) if seed % 3 else math.inf
    salvage = (0.0, 0.3, 4.0 if seed % 3 else 0.2)[seed // 3 % 3]
    prices = {"salvage": salvage, "shortage": (0.0, 5.0)[seed // 2 % 2]}
    radius = (0.0, 0.02, 0.1, 1.0, math.inf)[seed % 5]
    criterion = ("excess", "risk")[seed // 5 % 2]
    capacity = high if math.isfinite(high) else None
    model = RobustNewsvendor(PRICE, radius=radius, criterion=criterion, max_stock=capacity, **prices).fit(*data)
    references = best_of_each(data, high, **prices)
    assert model.reference_risks_ == pytest.approx(references, rel=1e-9, abs=1e-9)
    taken_off = references if criterion == "excess" else np.zeros(len(references))
    expected = conic_optimum(data, radius, taken_off, high, **prices)
    assert model.certificate_.upper == pytest.approx(expected, rel=1e-7, abs=1e-7)
    assert attained(model, data, radius, taken_off, **prices) == pytest.approx(expected, rel=1e-7, abs=1e-7)
    assert 0.0 <= model.stock_level_ <= high


@pytest.mark.parametrize("radius", [0.0, 0.2, math.inf])
def test_salvage_and_shortage_enter_the_cost(radius):
    data, prices = sales(5), {"salvage": 0.3, "shortage": 2.5}
    model = RobustNewsvendor(PRICE, radius=radius, **prices).fit(*data)
    references = best_of_each(data, **prices)
    assert model.context_risks_ == pytest.approx(risks(model.stock_level_, data, **prices), abs=1e-9)
    assert attained(model, data, radius, references, **prices) == pytest.approx(
        least_worst(data, radius, references, **prices), abs=1e-7
    )


def test_salvage_and_shortage_raise_the_level():
    data = sales(6)
    plain = RobustNewsvendor(PRICE).fit(*data).stock_level_
    assert RobustNewsvendor(PRICE, salvage=0.4).fit(*data).stock_level_ >= plain
    assert RobustNewsvendor(PRICE, shortage=20.0).fit(*data).stock_level_ > plain


def test_a_capacity_binds_and_references_respect_it():
    data = sales(7)
    free = RobustNewsvendor(PRICE, radius=0.2).fit(*data)
    roomy = RobustNewsvendor(PRICE, radius=0.2, max_stock=1e4).fit(*data)
    assert roomy.stock_level_ == pytest.approx(free.stock_level_)
    cap = 0.5 * min(free.context_levels_)
    tight = RobustNewsvendor(PRICE, radius=0.2, max_stock=cap).fit(*data)
    assert tight.stock_level_ == pytest.approx(cap)
    assert tight.context_levels_ == pytest.approx(np.full(3, cap))
    assert tight.excess_risks_ == pytest.approx(np.zeros(3), abs=1e-9)


def test_a_capacity_between_the_best_levels_gives_the_constrained_optimum():
    data = sales(8)
    free = RobustNewsvendor(PRICE, radius=0.2).fit(*data)
    cap = 0.5 * (min(free.context_levels_) + free.stock_level_)
    model = RobustNewsvendor(PRICE, radius=0.2, max_stock=cap).fit(*data)
    references = best_of_each(data, high=cap)
    assert model.stock_level_ <= cap
    assert attained(model, data, 0.2, references) == pytest.approx(
        least_worst(data, 0.2, references, high=cap), abs=1e-7
    )


def test_goods_that_earn_more_left_over_than_they_cost_need_a_capacity():
    data = sales(9)
    cheap = (np.full_like(data[0], 1.0), *data[1:])
    with pytest.raises(InvalidInputError, match="no minimum"):
        RobustNewsvendor(PRICE, salvage=2.0).fit(*cheap)
    assert RobustNewsvendor(PRICE, salvage=2.0, max_stock=70.0).fit(*cheap).stock_level_ == pytest.approx(70.0)


def test_a_cost_above_the_price_means_no_stock():
    _, demand, contexts = sales(3)
    model = RobustNewsvendor(PRICE).fit(11.0, demand, contexts)
    assert model.stock_level_ == 0.0
    assert model.context_levels_ == pytest.approx(np.zeros(3))


@pytest.mark.parametrize("cost", [4.0, 4, np.float32(4.0), np.array(4.0)])
def test_one_cost_stands_for_all_rows(cost):
    _, demand, contexts = sales(3)
    one = RobustNewsvendor(PRICE).fit(cost, demand, contexts)
    assert one.stock_level_ == RobustNewsvendor(PRICE).fit(np.full(len(demand), 4.0), demand, contexts).stock_level_


@pytest.mark.parametrize("seed", range(3))
def test_context_levels_are_the_best_of_each_context_alone(seed):
    data = sales(seed)
    model = RobustNewsvendor(PRICE).fit(*data)
    least = best_of_each(data)
    for c, level in enumerate(model.context_levels_):
        assert risks(level, data)[c] == pytest.approx(least[c], abs=1e-9)
        own = tuple(column[data[2] == c] for column in data)
        alone = RobustNewsvendor(PRICE).fit(*own)
        assert alone.context_risks_[0] == pytest.approx(least[c], abs=1e-9)


@pytest.mark.parametrize(("cost", "seed"), [(1.0, 0), (3.3, 1), (5.0, 2), (9.1, 3)])
def test_zero_radius_is_the_critical_quantile_of_all_demand(cost, seed):
    rng = np.random.default_rng(seed)
    demand, contexts = rng.gamma(4.0, 5.0, 101), rng.integers(0, 3, 101)
    level = RobustNewsvendor(PRICE, radius=0.0, criterion="risk").fit(cost, demand, contexts).stock_level_
    # Exceeded by a share cost / price of demand.
    assert level == pytest.approx(np.quantile(demand, 1.0 - cost / PRICE, method="inverted_cdf"))


def test_zero_radius_with_weights_is_the_weighted_quantile():
    rng = np.random.default_rng(4)
    demand, contexts, weight = rng.gamma(4.0, 5.0, 80), rng.integers(0, 3, 80), rng.uniform(0.1, 3.0, 80)
    level = RobustNewsvendor(PRICE, radius=0.0).fit(3.0, demand, contexts, sample_weight=weight).stock_level_
    expected = np.quantile(demand, 0.7, method="inverted_cdf", weights=weight)
    assert level == pytest.approx(expected)


@pytest.mark.parametrize("radius", ["types", "agrawal", 0.0, 0.3, math.inf])
def test_a_whole_weight_is_a_repeated_row(radius):
    data = sales(12)
    weight = np.random.default_rng(1).integers(1, 4, len(data[0]))
    weighed = RobustNewsvendor(PRICE, radius=radius).fit(*data, sample_weight=weight)
    repeated = RobustNewsvendor(PRICE, radius=radius).fit(*(np.repeat(column, weight) for column in data))
    assert weighed.stock_level_ == pytest.approx(repeated.stock_level_, abs=1e-9)
    assert weighed.radius_ == pytest.approx(repeated.radius_)
    assert weighed.context_risks_ == pytest.approx(repeated.context_risks_)
    assert weighed.context_counts_ == pytest.approx(repeated.context_counts_)


def test_the_weights_of_contexts_lie_in_the_set_and_attain_the_value():
    data = sales(13, n_contexts=5)
    model = RobustNewsvendor(PRICE).fit(*data)
    p_hat = np.bincount(data[2]) / len(data[2])
    assert model.context_weights_.sum() == pytest.approx(1.0)
    assert p_hat @ np.log2(p_hat / model.context_weights_) <= model.radius_ * (1 + 1e-9)
    assert model.context_weights_ @ model.excess_risks_ == pytest.approx(model.certificate_.upper, rel=1e-6)
    n = len(data[2])
    assert model.radius_ == pytest.approx((5 * np.log2(n + 1) - np.log2(0.01)) / n)


def test_full_confidence_is_minimax_regret_and_equalises_two_contexts():
    data = sales(14, n_contexts=2)
    model = RobustNewsvendor(PRICE, confidence=1.0).fit(*data)
    assert model.radius_ == math.inf
    assert model.excess_risks_[0] == pytest.approx(model.excess_risks_[1], abs=1e-7)
    assert min(model.context_levels_) <= model.stock_level_ <= max(model.context_levels_)


def test_known_references_are_used():
    data = sales(15)
    references = best_of_each(data)
    own = RobustNewsvendor(PRICE).fit(*data)
    given = RobustNewsvendor(PRICE, reference=dict(enumerate(references))).fit(*data)
    assert given.stock_level_ == pytest.approx(own.stock_level_)
    shifted = RobustNewsvendor(PRICE, radius=math.inf, reference=dict(enumerate(references - [1e4, 0, 0]))).fit(*data)
    # A context that could be served far better counts alone.
    assert shifted.stock_level_ == pytest.approx(own.context_levels_[0])


def kinds_of_contexts():
    words = np.array(["south", "north", "east"])
    return {
        "text": lambda g: words[g],
        "list": lambda g: list(words[g]),
        "objects": lambda g: words[g].astype(object),
        "booleans and numbers": lambda g: pd.DataFrame({"a": g > 0, "b": g}),
        "series": lambda g: pd.Series(g, index=np.arange(len(g)) + 7),
        "categorical": lambda g: pd.Categorical(words[g]),
        "polars": lambda g: pl.Series(words[g]),
        "floats": lambda g: g * 0.5,
        "tuples": lambda g: [("x", int(code)) for code in g],
    }


@pytest.mark.parametrize("kind", kinds_of_contexts())
def test_contexts_of_any_kind_give_the_same_level(kind):
    data = sales(16)
    plain = RobustNewsvendor(PRICE).fit(*data)
    model = RobustNewsvendor(PRICE).fit(*data[:2], kinds_of_contexts()[kind](data[2]))
    assert model.stock_level_ == pytest.approx(plain.stock_level_, abs=1e-12)
    assert len(model.contexts_) == 3
    assert sorted(model.context_counts_) == sorted(plain.context_counts_)


def test_what_there_is_one_of_per_context_is_in_the_order_of_contexts():
    data = sales(16)
    words = np.array(["south", "north", "east"])
    plain = RobustNewsvendor(PRICE).fit(*data)
    model = RobustNewsvendor(PRICE).fit(*data[:2], words[data[2]])
    order = [list(words).index(label) for label in model.contexts_]
    for name in ("context_levels_", "context_counts_", "context_weights_", "context_risks_", "excess_risks_"):
        assert getattr(model, name) == pytest.approx(getattr(plain, name)[order]), name


@pytest.mark.parametrize("frame", [pd.Series, pl.Series, list])
def test_costs_and_demand_come_as_series_or_lists(frame):
    data = sales(17)
    assert (
        RobustNewsvendor(PRICE).fit(frame(data[0]), frame(data[1]), data[2]).stock_level_
        == RobustNewsvendor(PRICE).fit(*data).stock_level_
    )


def test_no_contexts_is_plain_risk_minimisation_and_is_said():
    cost, demand, _ = sales(18)
    with pytest.warns(OneContextWarning, match="no contexts"):
        model = RobustNewsvendor(PRICE).fit(cost, demand)
    erm = RobustNewsvendor(PRICE, radius=0.0).fit(cost, demand, np.zeros(len(cost), dtype=int))
    assert model.stock_level_ == pytest.approx(erm.stock_level_)


def test_it_is_an_estimator_that_leaves_its_parameters_alone():
    data = sales(19)
    model = RobustNewsvendor(PRICE, shortage=1.0)
    before = dict(model.get_params())
    assert model.fit(*data) is model
    assert model.get_params() == before
    assert clone(model).fit(*data).stock_level_ == model.stock_level_
    assert pickle.loads(pickle.dumps(model)).stock_level_ == model.stock_level_


def test_the_order_of_rows_does_not_matter():
    data = sales(20)
    mixed = np.random.default_rng(0).permutation(len(data[0]))
    assert RobustNewsvendor(PRICE).fit(*(column[mixed] for column in data)).stock_level_ == pytest.approx(
        RobustNewsvendor(PRICE).fit(*data).stock_level_, abs=1e-9
    )


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"price": -1.0}, "price"),
        ({"price": "10"}, "price"),
        ({"price": math.nan}, "price"),
        ({"salvage": 11.0}, "salvage"),
        ({"shortage": math.inf}, "shortage"),
        ({"max_stock": 0.0}, "max_stock"),
        ({"max_stock": -3}, "max_stock"),
        ({"max_stock": math.nan}, "max_stock"),
        ({"max_stock": "many"}, "max_stock"),
        ({"confidence": 1.5}, "confidence"),
        ({"radius": -0.1}, "radius"),
        ({"radius": "wide"}, "radius"),
        ({"draws": 0}, "draws"),
        ({"criterion": "regret"}, "criterion"),
        ({"reference": "known"}, "reference"),
        ({"reference": {0: 0.0}}, "context 1"),
    ],
)
def test_parameters_that_cannot_be_meant_are_refused_by_name(parameters, words):
    with pytest.raises(InvalidInputError, match=f"RobustNewsvendor: .*{words}"):
        RobustNewsvendor(**({"price": PRICE} | parameters)).fit(*sales(0))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda x, y, c: (x[:-1], y, c), "one per row"),
        (lambda x, y, c: ([5.0], y, c), "one per row"),
        (lambda x, y, c: (x, y[:, None], c), "one number per row"),
        (lambda x, y, c: (5.0, 20.0, c), "one number per row"),
        (lambda x, y, c: (x, y, c[:-1]), "context labels"),
        (lambda x, y, c: ("dear", y, c), "numbers"),
        (lambda x, y, c: (x, ["many"] * len(y), c), "numbers"),
        (lambda x, y, c: (math.nan, y, c), "finite"),
        (lambda x, y, c: (x, np.where(y > 20, math.nan, y), c), "finite"),
        (lambda x, y, c: (x, -y, c), "not negative"),
        (lambda x, y, c: (x, y, np.random.default_rng(0).random(len(y))), "sample_weight"),
        (lambda x, y, c: (x[:0], y[:0], c[:0]), ""),
    ],
)
def test_data_that_cannot_be_used_are_refused(change, words):
    with pytest.raises(InvalidInputError, match=f"RobustNewsvendor: .*{words}"):
        RobustNewsvendor(PRICE).fit(*change(*sales(0)))


@pytest.mark.parametrize("weight", [-1.0, math.nan, math.inf])
def test_weights_that_are_not_amounts_are_refused(weight):
    data = sales(0)
    with pytest.raises(InvalidInputError, match="sample_weight"):
        RobustNewsvendor(PRICE).fit(*data, sample_weight=np.full(len(data[0]), weight))


def test_a_context_without_weight_is_refused():
    data = sales(0)
    with pytest.raises(EmptyContextError, match="context 1"):
        RobustNewsvendor(PRICE).fit(*data, sample_weight=(data[2] != 1) * 1.0)
