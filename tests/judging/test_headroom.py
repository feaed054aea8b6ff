"""Whether any context can be served better, before anything robust is fitted."""

import numpy as np
import pytest
from sklearn.ensemble import RandomForestRegressor
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import counterpoise as cpo
from counterpoise.exceptions import InvalidInputError


def data(n=600, contexts=3, turned=False, noise=1.0, seed=0):
    rng = np.random.default_rng(seed)
    X, codes = rng.standard_normal((n, 3)), np.arange(n) % contexts
    sign = np.where(turned & (codes == 0), -1.0, 1.0)
    return X, sign * (X @ [1.0, -1.0, 0.5]) + noise * rng.standard_normal(n), codes


def test_contexts_that_agree_leave_nothing_to_gain():
    found = cpo.headroom(*data(n=3000, noise=0.3))
    assert found.nothing
    assert not found.something
    assert "nothing to gain here" in found.verdict
    assert found.by_context.n_rows == 3


def test_a_context_that_is_turned_around_has_something_to_gain():
    found = cpo.headroom(*data(turned=True))
    assert found.something
    assert not found.nothing
    assert found.p_value < 0.01
    assert 0.0 < found.lower < found.estimate < found.upper
    assert found.by_context["excess"].argmax() == 0


def test_few_rows_cannot_tell():
    found = cpo.headroom(*data(n=45, noise=3.0))
    assert not found.something
    assert not found.nothing
    assert "cannot tell" in found.verdict
    assert found.stops("test")
    assert not found.stops("bound")
    assert not found.stops(None)


def test_something_is_seldom_found_where_nothing_is():
    wrong = sum(cpo.headroom(*data(n=240, contexts=6, seed=seed), cv=3).something for seed in range(40))
    # At 5% this is exceeded once in 2,000 times.
    assert wrong <= 7


@pytest.mark.parametrize(
    "learner",
    [
        LinearRegression(),
        make_pipeline(StandardScaler(), LinearRegression()),
        RandomForestRegressor(5, max_depth=3, random_state=0),
        cpo.RobustLinearRegression(confidence=0.9),
        make_pipeline(StandardScaler(), cpo.RobustHuberRegressor()),
    ],
    ids=["plain", "pipeline", "forest", "robust", "robust pipeline"],
)
def test_any_learner(learner):
    assert cpo.headroom(*data(turned=True), learner, cv=3).something


def test_classes():
    X, y, codes = data(turned=True, noise=0.5)
    named = np.where(y > 0, "ill", "well")
    assert cpo.headroom(X, named, codes).something
    assert cpo.headroom(X, named, codes, LogisticRegression(), loss="zero_one").something


def test_rows_that_belong_together_count_as_one():
    X, y, codes = data(n=60, turned=True, noise=2.0)
    once = cpo.headroom(X, y, codes, cv=3, groups=np.arange(60))
    repeated = cpo.headroom(*(np.tile(part, (8, 1) if part.ndim == 2 else 8) for part in (X, y, codes)), cv=3)
    kept = cpo.headroom(
        *(np.tile(part, (8, 1) if part.ndim == 2 else 8) for part in (X, y, codes)),
        cv=3,
        groups=np.tile(np.arange(60), 8),
    )
    assert repeated.p_value < kept.p_value
    assert kept.by_context["units"].tolist() == once.by_context["units"].tolist()


def test_what_cannot_be_asked_is_refused():
    X, y, codes = data()
    with pytest.raises(InvalidInputError, match="one context"):
        cpo.headroom(X, y, np.zeros(len(y)))
    with pytest.raises(InvalidInputError, match="takes no sample_weight"):
        cpo.headroom(X, y, codes, KNeighborsRegressor())


def test_where_nothing_can_be_judged_it_is_said():
    X, y, codes = data(n=30)
    found = cpo.headroom(X, y, codes, groups=codes)
    assert not found.something
    assert not found.nothing
    assert "no model of its own. Merge contexts" in found.verdict
