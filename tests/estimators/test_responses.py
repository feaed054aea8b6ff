"""A learner under weights of contexts, on all rows and on a sketch of them."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge

import counterpoise as cpo
from counterpoise.contexts import Contexts
from counterpoise.estimators import responses
from counterpoise.estimators.learners import fold_of_rows
from counterpoise.estimators.responses import Responses, Sketch

JUDGE = {"loss": "half_squared_error", "floor": None, "n_jobs": None}


def posed(sizes=(900, 300, 60), seed=0, learner=None):
    rng = np.random.default_rng(seed)
    codes = rng.permutation(np.repeat(np.arange(len(sizes)), sizes))
    X = rng.standard_normal((len(codes), 2))
    y = np.where(codes == len(sizes) - 1, X[:, 1], X[:, 0]) + 0.3 * rng.standard_normal(len(codes))
    learner, weight = learner or LinearRegression(), 0.5 + rng.random(len(codes))
    folds = fold_of_rows(learner, X, y, codes, weight, 3)
    shares = np.bincount(codes, weight) / weight.sum()
    return Responses(learner, X, y, Contexts(np.arange(len(sizes)), codes), weight, folds, shares, JUDGE)


@pytest.fixture
def small_sketches(monkeypatch):
    monkeypatch.setattr(responses, "_SKETCHED", 300)
    monkeypatch.setattr(responses, "_OF_EACH", 50)


@pytest.mark.usefixtures("small_sketches")
def test_a_sketch_keeps_small_contexts_whole_and_every_share():
    asked = posed()
    part = asked.sketch()
    assert part.contexts.counts.tolist() == [120, 120, 60]
    assert part.weight.mean() == pytest.approx(asked.weight.mean(), rel=0.1)
    np.testing.assert_allclose(np.bincount(part.contexts.codes, part.weight) / part.weight.sum(), asked.shares)
    # As many rows in every fold, from all over the targets.
    assert [np.bincount(part.folds[part.contexts.codes == c]).tolist() for c in range(2)] == [[40] * 3] * 2
    ours, all_ = part.y[part.contexts.codes == 0], asked.y[asked.contexts.codes == 0]
    np.testing.assert_allclose(np.quantile(ours, [0.1, 0.5, 0.9]), np.quantile(all_, [0.1, 0.5, 0.9]), atol=0.1)


@pytest.mark.usefixtures("small_sketches")
def test_a_sketch_loses_no_class():
    asked = posed(learner=LogisticRegression())
    y = np.zeros(len(asked.y), dtype=int)
    y[np.flatnonzero(asked.contexts.codes == 0)[:7]] = 1
    part = replace(asked, y=y).sketch()
    assert len(part.y) <= 300
    assert part.y.sum() == 7
    total = np.bincount(y, asked.weight) / asked.weight.sum()
    np.testing.assert_allclose(np.bincount(part.y, part.weight) / part.weight.sum(), total)


@pytest.mark.usefixtures("small_sketches")
def test_a_sketch_is_for_many_rows_only():
    assert posed().worth_sketching
    assert not posed((500, 300, 60)).worth_sketching
    # Every context keeps some rows, however many there are.
    assert not posed((60,) * 20).worth_sketching


@pytest.mark.usefixtures("small_sketches")
def test_risks_of_a_sketch_are_those_of_the_plain_learner_plus_a_change():
    asked = posed((9000, 3000, 600))
    plain = asked.rows.means(asked.losses(asked.shares))
    sketch = Sketch(asked, plain)
    np.testing.assert_array_equal(sketch(asked.shares), plain)
    p = np.array([0.2, 0.2, 0.6])
    full = asked.rows.means(asked.losses(p))
    assert np.abs(full - plain).max() > 0.1
    np.testing.assert_allclose(sketch(p), full, atol=0.05)


def test_cells_are_cut_to_one_size():
    for sizes, most, quota in (((10, 20, 30), 45, 17), ((10, 20, 30), 25, 8), ((1, 1, 100), 50, 48), ((5, 5), 100, 5)):
        assert responses._quota(np.array(sizes), most) == quota
        assert np.minimum(sizes, quota).sum() <= most


def test_rows_of_several_contexts_are_sketched_once():
    asked = posed((300, 300))
    both = np.concatenate([np.arange(600), np.arange(50)])
    codes = np.concatenate([asked.contexts.codes, 1 - asked.contexts.codes[:50]])
    asked = replace(asked, contexts=Contexts(asked.contexts.labels, codes, both))
    part = asked.sketch()
    assert len(part.y) == len(np.unique(part.contexts.rows)) == len(part.weight)
    assert len(part.losses(asked.shares)) == len(part.contexts.codes)


class Counted(Ridge):
    """Keeps how many rows each fit had."""

    rows: list = []  # noqa: RUF012

    def fit(self, X, y, sample_weight=None):
        self.rows.append(len(y))
        return super().fit(X, y, sample_weight)


def test_a_game_on_a_sketch_ends_no_worse_than_one_on_all_rows(monkeypatch):
    asked = posed((5000, 5000, 600))
    options = {"confidence": 1.0, "cv": 3, "guard": False, "headroom": None}
    found, fitted = [], []
    for rows in (20_000, 900):
        monkeypatch.setattr(responses, "_SKETCHED", rows)
        Counted.rows.clear()
        found.append(cpo.ContextRobust(Counted(), **options).fit(asked.X, asked.y, contexts=asked.contexts.codes))
        fitted.append(sum(Counted.rows) / len(asked.y))
    whole, sketched = found
    # What is reported are rounds on all rows.
    np.testing.assert_allclose(sketched.history_[0], whole.history_[0])
    assert sketched.certificate_.upper == sketched.history_[:, 1].min()
    assert sketched.certificate_.upper <= whole.certificate_.upper * (1.0 + 1e-3)
    assert sketched.n_iter_ < whole.n_iter_
    assert fitted[1] < fitted[0]
