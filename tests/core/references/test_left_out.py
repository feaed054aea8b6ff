"""Fits without a fold, begun at the fit of all rows, agree with fits made anew."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import sparse

from counterpoise.core.references import CrossFit, left_out
from counterpoise.core.references.left_out import LeftOut
from counterpoise.losses import Huber, Logistic, Multinomial, Pinball, Poisson, Squared
from tests.problems import make, oracle_of

LOSSES = [Logistic(), Multinomial(3), Poisson(), Squared()]
every_loss = pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)


def held_out(loss, data, weight=None, tol=1e-6, **options):
    X, y, codes = data
    oracle = oracle_of(loss, X, y, codes, alpha=1e-3, sample_weight=weight, **options)
    return CrossFit(oracle, np.bincount(codes, weight).astype(np.float64), tol)


def anew(found, monkeypatch):
    """Return the same, every fit made by itself and to the last digit."""
    monkeypatch.setattr(LeftOut, "serves", staticmethod(lambda oracle, left: np.zeros(len(left), dtype=bool)))
    return replace(found, tol=1e-13)


@every_loss
@pytest.mark.parametrize("weighted", [False, True], ids=["rows", "weights"])
def test_risks_are_those_of_fits_made_anew(loss, weighted, monkeypatch):
    data = make(loss, 4, 4, 1, (150, 400))
    weight = np.random.default_rng(0).integers(1, 4, len(data[1])).astype(float) if weighted else None
    found = held_out(loss, data, weight)
    assert LeftOut.serves(found.oracle, 4 * found.oracle.rows.sizes[:, None] // 5).all()
    quick = found.rows.means(found.own_losses), found.rows.means(found.pooled_losses)
    exact = anew(found, monkeypatch)
    scale = float(np.mean(np.abs(quick[1])))
    np.testing.assert_allclose(quick[0], exact.rows.means(exact.own_losses), atol=1e-6 * scale, rtol=0)
    np.testing.assert_allclose(quick[1], exact.rows.means(exact.pooled_losses), atol=1e-6 * scale, rtol=0)


def test_portions_and_few_folds_at_once_change_nothing(monkeypatch):
    data = make(Logistic(), 5, 3, 2, (150, 200))
    whole = held_out(Logistic(), data, tol=1e-10)
    whole.own_losses, whole.pooled_losses  # noqa: B018
    monkeypatch.setattr(left_out, "_LARGEST", 400)
    parts = held_out(Logistic(), data, tol=1e-10)
    np.testing.assert_allclose(parts.own_losses, whole.own_losses, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(parts.pooled_losses, whole.pooled_losses, rtol=1e-6, atol=1e-9)


def test_sparse_rows_give_the_same_losses():
    X, y, codes = make(Logistic(), 3, 4, 3, (150, 300))
    X = np.where(np.abs(X) < 0.6, 0.0, X)
    dense, thin = (held_out(Logistic(), (rows, y, codes), tol=1e-10) for rows in (X, sparse.csr_array(X)))
    np.testing.assert_allclose(thin.own_losses, dense.own_losses, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(thin.pooled_losses, dense.pooled_losses, rtol=1e-6, atol=1e-9)


def test_a_feature_that_only_one_fold_has_is_left_out_with_it(monkeypatch):
    X, y, codes = make(Logistic(), 2, 3, 4, (200, 300))
    found = held_out(Logistic(), (X, y, codes))
    rare = np.zeros(len(y))
    order = np.argsort(codes, kind="stable")
    rare[order[np.flatnonzero((found.folds == 0) & (found.oracle.rows.owner == 1))[:3]]] = 1.0
    found = held_out(Logistic(), (np.column_stack([X, rare]), y, codes))
    quick = found.rows.means(found.own_losses)
    exact = anew(found, monkeypatch)
    np.testing.assert_allclose(quick, exact.rows.means(exact.own_losses), rtol=1e-6)


@pytest.mark.parametrize("loss", [Pinball(0.3), Huber(1.0)], ids=lambda loss: loss.name)
def test_kinks_and_few_rows_are_fitted_anew(loss):
    X, y, codes = make(loss, 3, 2, 0, (150, 200))
    oracle = oracle_of(loss, X, y, codes, alpha=1e-3)
    assert not LeftOut.serves(oracle, oracle.rows.sizes[:, None]).any()
    small = oracle_of(Squared(), *make(Squared(), 3, 2, 0, (10, 20)), alpha=1e-3)
    assert not LeftOut.serves(small, small.rows.sizes[:, None]).all()


def test_contexts_that_are_held_out_as_a_whole_are_fitted_anew():
    X, y, codes = make(Squared(), 2, 2, 0, (200, 200))
    oracle = oracle_of(Squared(), X, y, codes, alpha=1e-3)
    left = np.column_stack([oracle.rows.sizes, [800, 0]])
    np.testing.assert_array_equal(LeftOut.serves(oracle, left), [True, False])
