"""Rows read in strips: the same sums as by one product after the other, however strips are cut."""

import numpy as np
import pytest

from counterpoise.contexts import encode
from counterpoise.losses import Logistic, Multinomial, Pinball, Poisson, Squared
from counterpoise.rows import MemoryRows, compiled, layouts, memory
from counterpoise.rows.layouts import Grouped
from tests.problems import make


@pytest.fixture(autouse=True, params=["compiled", "numpy"])
def how(request, monkeypatch):
    """Rows read by compiled code where there is any, and by numpy."""
    if request.param == "numpy":
        monkeypatch.setattr(compiled, "look_of", lambda loss: None)
        monkeypatch.setattr(compiled, "grams_of", lambda width: None)


LOSSES = [Logistic(), Multinomial(3), Poisson(), Squared(), Pinball(0.3)]
every_loss = pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)


def rows_of(loss, sizes=(70, 300), d=3, seed=0, fit_intercept=True):
    """Return rows of four contexts, by default long enough to be read in strips."""
    X, y, codes = make(loss, 4, d, seed, sizes)
    return MemoryRows.of(X, y, encode(codes), loss, fit_intercept=fit_intercept)


@pytest.fixture(params=[1, 100, 10_000])
def cut(request, monkeypatch):
    """Strips of a few rows, of about a context, and of all rows."""
    monkeypatch.setattr(layouts, "_STRIP_ENTRIES", 3 * request.param)
    monkeypatch.setattr(layouts, "_SHORTEST_STRIP", 7)


def separately(part, theta):
    """Return values and gradients by separate products."""
    sums = part.at(theta)
    vars(sums)["predictions"] = sums.predictions
    return sums.values, sums.gradients


@every_loss
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_one_look_brings_what_separate_products_do(loss, fit_intercept, cut):
    rows, rng = rows_of(loss, fit_intercept=fit_intercept), np.random.default_rng(1)
    size = rows.coefficients.n_parameters
    for theta in (rng.standard_normal(size), rng.standard_normal((4, size))):
        part = rows.whole
        assert part.layout.is_read_in_strips
        values, gradients = separately(part, theta)
        looked = part.at(theta)
        np.testing.assert_allclose(looked.gradients, gradients, rtol=1e-12, atol=1e-13)
        np.testing.assert_allclose(looked.values, values, rtol=1e-13)
        np.testing.assert_allclose(looked.sizes, part.at(theta).sizes, rtol=1e-12)
        np.testing.assert_allclose(looked.predictions, part.at(theta).predictions, rtol=1e-12, atol=1e-13)


@every_loss
def test_some_contexts_are_read_where_they_lie(loss, cut):
    rows, rng = rows_of(loss), np.random.default_rng(2)
    keep = np.array([True, False, True, True])
    theta = rng.standard_normal((3, rows.coefficients.n_parameters))
    part = rows.whole.subset(keep)
    values, gradients = separately(part, theta)
    np.testing.assert_allclose(part.at(theta).gradients, gradients, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(part.at(theta).values, values, rtol=1e-13)


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("d", [2, 30])
def test_gram_matrices_of_short_groups_are_those_of_each(d, fit_intercept, cut):
    rows = rows_of(Logistic(), d=d, fit_intercept=fit_intercept)
    layout, weight = rows.whole.layout, np.random.default_rng(0).random(rows.n_rows)
    for found, (first, last) in zip(layout.gram(weight), zip(rows.starts, rows.starts[1:], strict=False), strict=True):
        X = rows.X[first:last]
        X = np.column_stack([X, np.ones(len(X))]) if fit_intercept else X
        np.testing.assert_allclose(found, X.T @ (weight[first:last, None] * X), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("loss", [Logistic(), Multinomial(3), Poisson()], ids=lambda loss: loss.name)
def test_no_more_of_a_hessian_of_some_rows_is_certain_than_there_is(loss, monkeypatch):
    monkeypatch.setattr(memory, "_WIDE", 0)
    monkeypatch.setattr(memory, "_TELLING", 10)
    rows = rows_of(loss)
    # Moderate predictions: of a Poisson loss, a few rows may have most of the curvature.
    sums = rows.whole.at(0.2 * np.random.default_rng(0).standard_normal((4, rows.coefficients.n_parameters)))
    whole, rough = sums.hessians, sums.rough_hessians
    assert (rough.certain <= 1.0).all()
    assert (rough.certain < 1.0).any()
    for matrix, below, estimate in zip(whole, rough.below().matrices, rough.matrices, strict=True):
        assert np.linalg.eigvalsh(matrix - below)[0] >= -1e-12
        # It is an estimate of all of it.
        assert np.trace(estimate) == pytest.approx(np.trace(matrix), rel=0.5)


def test_a_constant_prediction_does_not_read_the_features():
    rows = rows_of(Logistic())
    theta = rows.coefficients.predicting(0.3)
    sums = rows.at(theta)
    assert "predictions" in vars(sums)
    np.testing.assert_allclose(sums.predictions, rows.whole.at(theta).predictions, rtol=1e-14)
    np.testing.assert_allclose(sums.values, rows.whole.at(theta).values, rtol=1e-13)


@pytest.mark.parametrize("threads", [1, 2])
def test_threads_add_up_the_same_numbers(threads, monkeypatch):
    rows, theta = rows_of(Logistic()), np.array([0.5, -1.0, 0.2, 0.1])
    monkeypatch.setattr(layouts, "_STRIP_ENTRIES", 150)
    monkeypatch.setattr(layouts, "_SHORTEST_STRIP", 7)
    plain = rows.whole.at(theta).gradients
    monkeypatch.setattr("counterpoise.threads.WORTHWHILE", 0)
    monkeypatch.setattr("counterpoise.threads.n_threads", lambda: threads)
    np.testing.assert_array_equal(rows_of(Logistic()).whole.at(theta).gradients, plain)


def test_the_longest_entries_are_found_however_rows_are_laid_side_by_side():
    from counterpoise.rows.products import largest_entries

    rng = np.random.default_rng(0)
    for n, d in ((0, 3), (1, 3), (700, 3), (2049, 7), (5, 2000), (10, 0)):
        X = rng.standard_normal((n, d))
        np.testing.assert_array_equal(largest_entries(X), np.abs(X).max(axis=0, initial=0.0))
        np.testing.assert_array_equal(largest_entries(X[::2]), np.abs(X[::2]).max(axis=0, initial=0.0))


def test_groups_of_few_rows_are_not_read_in_strips():
    rows = rows_of(Logistic(), sizes=(5, 9))
    assert isinstance(rows.whole.layout, Grouped)
    assert not rows.whole.layout.is_read_in_strips


def test_some_rows_of_a_long_context_tell_slopes_and_stiffness(monkeypatch):
    rows, theta = rows_of(Logistic(), sizes=(3000, 4000)), np.array([0.5, -1.0, 0.2, 0.1])
    some = rows.whole.at(theta).slopes_and_stiffness()
    monkeypatch.setattr(memory, "_ROUGHLY", 4000)
    whole = rows.whole.at(theta).slopes_and_stiffness()
    for mean, estimate in zip(whole, some, strict=True):
        assert (estimate != mean).any()
        np.testing.assert_allclose(estimate, mean, rtol=0.15)
