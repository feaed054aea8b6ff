"""Contexts as they lie agree with contexts padded to one length."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from counterpoise.contexts import encode
from counterpoise.core.oracle.linear import EachContext, LinearOracle
from counterpoise.losses import Logistic, Multinomial, Poisson, Squared
from counterpoise.rows.layouts import Coefficients, Grouped, Padded, Shared
from counterpoise.rows.memory import MemoryPart
from tests.problems import each_of

LOSSES = {
    "logistic": (Logistic(), lambda rng, n: rng.integers(0, 2, n).astype(float)),
    "multinomial": (Multinomial(3), lambda rng, n: rng.integers(0, 3, n).astype(float)),
    "poisson": (Poisson(), lambda rng, n: rng.poisson(2.0, n).astype(float)),
    "squared": (Squared(), lambda rng, n: rng.standard_normal(n)),
}


def posed(name, sizes, seed, intercept, alpha):
    rng = np.random.default_rng(seed)
    n = sum(sizes)
    loss, targets = LOSSES[name]
    contexts = encode(rng.permutation(np.repeat(np.arange(len(sizes)), sizes)))
    return LinearOracle.from_rows(
        rng.standard_normal((n, 3)),
        targets(rng, n),
        contexts,
        loss,
        sample_weight=rng.random(n) + 0.1,
        alpha=alpha,
        fit_intercept=intercept,
    ), rng


@pytest.mark.parametrize("name", LOSSES)
@settings(max_examples=20, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 12), min_size=1, max_size=6),
    seed=st.integers(0, 2**32 - 1),
    intercept=st.booleans(),
    alpha=st.sampled_from([0.0, 1e-2]),
    data=st.data(),
)
def test_everything_known_of_some_contexts_is_the_same_without_padding(name, sizes, seed, intercept, alpha, data):
    oracle, rng = posed(name, sizes, seed, intercept, alpha)
    some = np.flatnonzero(data.draw(st.lists(st.booleans(), min_size=len(sizes), max_size=len(sizes))))
    some = some if some.size else np.arange(len(sizes))
    theta = rng.standard_normal((len(some), oracle.n_parameters))
    strips, padded = (each_of(oracle, some, theta, padded=padded) for padded in (False, True))
    for what in ("value", "gradient", "hessian", "above", "penalised", "reach"):
        np.testing.assert_allclose(getattr(strips, what), getattr(padded, what), rtol=1e-12, atol=1e-14)
    bounds = [one.bounds(one.hessian) for one in (strips, padded)]
    np.testing.assert_allclose(*bounds, rtol=1e-9, atol=1e-10)
    keep = rng.random(len(some)) < 0.5
    keep[0] = True
    for part in (strips.subset(keep), strips.at(theta).subset(keep)):
        np.testing.assert_allclose(part.value, padded.value[keep], rtol=1e-12)
        np.testing.assert_allclose(part.gradient, padded.gradient[keep], rtol=1e-12, atol=1e-14)
        np.testing.assert_allclose(part.hessian, padded.hessian[keep], rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("dense", [True, False], ids=["dense", "sparse"])
def test_groups_that_share_rows_are_the_same_as_groups_with_copies_of_them(name, dense):
    oracle, rng = posed(name, [5, 1, 7], 3, True, 1e-2)
    rows, copies = oracle.rows, np.array([2, 1, 3])
    weights = [rng.random((n, m)) * (rng.random((n, m)) < 0.7) for n, m in zip(rows.sizes, copies, strict=True)]
    theta = rng.standard_normal((copies.sum(), oracle.n_parameters))
    X = rows.X if dense else sparse.csr_array(rows.X)
    layout = Shared(X, rows.coefficients, rows.starts[:-1], rows.sizes, copies)
    target = np.concatenate([rows.target[rows.owner == c] for c, m in enumerate(copies) for _ in range(m)])
    weight = np.concatenate([one.T.ravel() for one in weights])
    shared = EachContext(MemoryPart(layout, target, weight, rows.loss, lambda: oracle.reach), 1e-2, theta)
    keep = np.array([True, False, True, False, True, True])
    owner = np.repeat(np.arange(3), copies)
    columns = [one for block in weights for one in block.T]
    for at, groups in ((shared, np.arange(6)), (shared.subset(keep), np.flatnonzero(keep))):
        np.testing.assert_array_equal(at.part.layout.each(at.theta[:, 0]).size, len(at.part.weight))
        for b, group in enumerate(groups):
            own = rows.subset(owner[[group]])
            part = MemoryPart(own.whole.layout, own.target, columns[group], own.loss, lambda: oracle.reach)
            alone = EachContext(part, 1e-2, theta[[group]])
            for what in ("value", "gradient", "hessian", "lowest"):
                np.testing.assert_allclose(getattr(at, what)[b], getattr(alone, what)[0], rtol=1e-12, atol=1e-13)
            found, rest = at.part.layout.least(at.sums.losses)[b], alone.sums.losses.min()
            assert found == pytest.approx(rest, rel=1e-12)


@pytest.mark.parametrize("kind", ["grouped", "padded", "sparse"])
@pytest.mark.parametrize("classes", [2, 3, 9])
@pytest.mark.parametrize("d", [0, 4])
def test_hessians_of_classes_are_those_of_their_curvatures(classes, kind, d):
    rng = np.random.default_rng(classes)
    loss, shape = Multinomial(classes), Coefficients(classes, d, True)
    X, weight = rng.standard_normal((700, d)), rng.random(700)
    z = 4.0 * rng.standard_normal((700, classes))
    # One probability so near to one that the others are lost in what it is short of it.
    z[:10, 0] = 60.0
    layout = {
        "grouped": lambda: Grouped(X, shape, np.array([0, 3, 400]), np.array([3, 397, 300])),
        "padded": lambda: Padded(X.reshape(7, 100, d), shape),
        "sparse": lambda: Grouped(sparse.csr_array(X), shape, np.array([0, 200]), np.array([200, 500])),
    }[kind]()
    expected = layout.gram(loss.curvature(np.zeros(700), z) * weight[:, None, None])
    found = layout.gram_of_classes(*loss.probabilities_and_variances(z), weight)
    np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-14)
    np.testing.assert_allclose(found, found.swapaxes(1, 2), rtol=1e-12, atol=1e-16)
