"""Contexts as they lie agree with contexts padded to one length."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from counterpoise.contexts import encode
from counterpoise.core.oracle.linear import LinearOracle
from counterpoise.losses import Logistic, Multinomial, Poisson, Squared
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
