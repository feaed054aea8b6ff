"""``mix=``: any set of mixes takes the place of confidence and radius, wherever a set is used."""

import numpy as np
import pytest

import counterpoise as cpo
from counterpoise.exceptions import InvalidInputError
from counterpoise.sets import Chi2Ball, KLBall

RNG = np.random.default_rng(5)
CODES = RNG.permutation(np.repeat([0, 1, 2, 3], (180, 90, 60, 44)))
SHARES = np.bincount(CODES) / len(CODES)
X = RNG.normal(size=(len(CODES), 3))
Z = np.einsum("nd,nd->n", X, RNG.normal(size=(4, 3))[CODES]) + X[:, 0]
NUMBER = Z + RNG.normal(size=len(CODES))
CLASS = (Z + RNG.logistic(size=len(CODES)) > 0).astype(int)
COUNT = RNG.poisson(np.exp(0.3 * Z))
MODELS = {
    "logistic": (cpo.RobustLogisticRegression, CLASS),
    "linear": (cpo.RobustLinearRegression, NUMBER),
    "huber": (cpo.RobustHuberRegressor, NUMBER),
    "quantile": (cpo.RobustQuantileRegressor, NUMBER),
    "poisson": (cpo.RobustPoissonRegressor, COUNT),
}
RADII = [1e-3, 0.2, 2.0, np.inf]

every_model = pytest.mark.parametrize("name", MODELS)


def fitted(name, mix, **options):
    kind, y = MODELS[name]
    return kind(mix=mix, alpha=1e-2, **options).fit(X, y, contexts=CODES)


@every_model
@pytest.mark.parametrize("radius", RADII)
def test_every_linear_model_is_certified_for_a_chi_square_ball(name, radius):
    ball = Chi2Ball(SHARES, radius)
    model = fitted(name, ball)
    assert model.certificate_.relative_gap <= 1e-6
    assert model.certificate_.scope == "global"
    assert ball.contains(model.context_weights_)
    assert model.radius_ == radius
    worst = ball.worst_case(model.excess_risks_).value
    # References are bracketed too, so what is attained may lie a little below the bound that holds wherever they are.
    assert worst <= model.certificate_.upper + 1e-12
    assert worst >= model.certificate_.lower - 1e-9


@every_model
def test_a_point_and_the_simplex_are_the_same_whatever_the_ball(name):
    for radius in (0.0, np.inf):
        ours, theirs = (fitted(name, kind(SHARES, radius)) for kind in (Chi2Ball, KLBall))
        np.testing.assert_allclose(ours.certificate_.upper, theirs.certificate_.upper, rtol=1e-5, atol=1e-8)
    np.testing.assert_allclose(fitted(name, KLBall(SHARES, 0.1)).coef_, fitted(name, None, radius=0.1).coef_, atol=1e-9)


@every_model
def test_a_path_goes_along_the_radius_of_the_ball(name):
    kind, y = MODELS[name]
    model = kind(mix=Chi2Ball(SHARES, 0.3), alpha=1e-2)
    path = cpo.confidence_path(model, X, y, contexts=CODES, radii=[0.0, 0.05, 0.4, 2.0])
    assert np.isnan(path["confidence"]).all()
    assert (np.diff(path["objective"]) >= -1e-9).all()
    for radius, one in zip(path["radius"], path.models, strict=True):
        assert isinstance(one.mix, Chi2Ball)
        alone = fitted(name, Chi2Ball(SHARES, radius))
        assert one.certificate_.upper == pytest.approx(alone.certificate_.upper, rel=1e-2, abs=1e-5)
        assert one.certificate_.lower <= alone.certificate_.upper + 1e-12
        assert alone.certificate_.lower <= one.certificate_.upper + 1e-12


@pytest.mark.parametrize("name", ["logistic", "quantile"])
def test_rows_on_workers_take_the_same_set(name):
    da = pytest.importorskip("dask.array")
    kind, y = MODELS[name]
    model = kind(mix=Chi2Ball(SHARES, 0.2), alpha=1e-2)
    rows = (da.from_array(one, chunks=(100, *one.shape[1:])) for one in (X, y))
    there = model.fit(*rows, contexts=da.from_array(CODES, 100))
    np.testing.assert_allclose(there.coef_, fitted(name, Chi2Ball(SHARES, 0.2)).coef_, rtol=1e-5, atol=1e-6)
    assert there.certificate_.relative_gap <= 1e-6


@pytest.mark.parametrize("radius", RADII)
def test_a_stock_level_is_the_best_on_a_fine_grid(radius):
    demand = RNG.poisson(5.0 + 4.0 * CODES).astype(float)
    ball = Chi2Ball(SHARES, radius)
    model = cpo.RobustNewsvendor(10.0, mix=ball).fit(3.0, demand, contexts=CODES)
    levels = np.linspace(0.0, demand.max(), 4001)
    costs = 3.0 * levels[:, None] - 10.0 * np.minimum(levels[:, None], demand)
    excess = np.stack([costs[:, c == CODES].mean(axis=1) for c in range(4)], axis=1) - model.reference_risks_
    best = np.min(ball.worst_case(excess).value)
    assert model.certificate_.upper <= best + 1e-9
    assert best <= model.certificate_.upper + 0.05
    plan = cpo.plan_stock(demand, cost=3.0, price=10.0, contexts=CODES, mix=ball)
    assert plan.plans[0].order == pytest.approx(model.stock_level_)


@pytest.mark.filterwarnings("ignore::counterpoise.exceptions.NotCertifiedWarning")
def test_any_learner_and_comparisons_take_it():
    from sklearn.tree import DecisionTreeClassifier

    ball = Chi2Ball(SHARES, 0.3)
    learner = cpo.ContextRobust(DecisionTreeClassifier(max_depth=3, random_state=0), mix=ball, max_iter=4)
    weights = learner.fit(X, CLASS, contexts=CODES).context_weights_
    assert weights.sum() == pytest.approx(1.0)
    model = cpo.RobustLogisticRegression(mix=ball, reference="cross-fit")
    comparison = cpo.compare(X, CLASS, contexts=CODES, estimator=model)
    assert isinstance(comparison.mixes, Chi2Ball)
    assert "chi-square" in str(comparison)


def test_what_is_no_set_or_of_another_size_is_refused():
    with pytest.raises(InvalidInputError, match="mix is 'wide'; pass a set of mixes"):
        fitted("linear", "wide")
    with pytest.raises(InvalidInputError, match="a set over 2 contexts; the data have 4"):
        fitted("linear", Chi2Ball([0.5, 0.5], 0.1))
