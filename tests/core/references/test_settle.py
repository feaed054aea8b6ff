"""Contexts of many rows, with Hessians that are kept: the same minimum, and a bound that is one."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from counterpoise.contexts import encode
from counterpoise.core.oracle.linear import LinearOracle
from counterpoise.core.references.newton import Kept, minimise
from counterpoise.losses import Logistic, Multinomial, Poisson, Squared
from counterpoise.rows import memory
from counterpoise.rows.layouts import Grouped
from tests.problems import each_of


def posed(name, n, d, seed, alpha, strength):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d)) * np.exp(rng.standard_normal(d))
    z = strength * X @ rng.standard_normal(d) / np.sqrt(d)
    loss, target = {
        "logistic": (Logistic(), (rng.random(n) < 1 / (1 + np.exp(-z))).astype(float)),
        "multinomial": (Multinomial(3), np.argmax(rng.gumbel(size=(n, 3)) + np.outer(z, [0.0, 1.0, -1.0]), axis=1)),
        "poisson": (Poisson(), rng.poisson(np.exp(np.clip(z, -5.0, 3.0))).astype(float)),
        "squared": (Squared(), z + rng.standard_normal(n)),
    }[name]
    oracle = LinearOracle.from_rows(X, target.astype(float), encode(np.zeros(n, dtype=int)), loss, alpha=alpha)
    return oracle, rng


@pytest.mark.parametrize("name", ["logistic", "multinomial", "poisson", "squared"])
@settings(max_examples=25, deadline=None)
@given(
    n=st.integers(2, 300),
    d=st.integers(1, 6),
    seed=st.integers(0, 2**32 - 1),
    alpha=st.sampled_from([1e-6, 1e-3, 1.0]),
    strength=st.sampled_from([0.1, 1.0, 10.0]),
    far=st.sampled_from([0.0, 0.1, 3.0]),
    tol=st.sampled_from([1e-4, 1e-8]),
    telling=st.sampled_from([1, 3, 1000]),
)
def test_the_minimum_is_bracketed_from_wherever_it_is_sought(name, n, d, seed, alpha, strength, far, tol, telling):
    oracle, rng = posed(name, n, d, seed, alpha, strength)
    begin = oracle.start() + far * rng.standard_normal(oracle.n_parameters)
    batch = each_of(oracle, [0], begin, padded=False)
    with pytest.MonkeyPatch.context() as patch:
        # Hessians of some rows, in which no more than their part is certain.
        patch.setattr(memory, "_WIDE", 0)
        patch.setattr(memory, "_TELLING", telling)
        upper, lower, theta = minimise(batch, tol, 1.0, Kept(batch, batch.rough_hessian))
    least, _, _ = minimise(each_of(oracle, [0], oracle.start()), 1e-13, 1.0)
    slack = 1e-12 * max(1.0, abs(least[0]))
    assert lower[0] <= least[0] + slack
    assert upper[0] >= least[0] - slack
    assert batch.at(theta).value[0] == pytest.approx(upper[0], rel=1e-12)
    assert upper[0] - least[0] <= tol + slack


def test_a_hessian_serves_for_several_steps(monkeypatch):
    oracle, _ = posed("logistic", 5000, 5, 0, 1e-4, 1.0)
    counts = {"gram": 0, "look": 0}
    for name in counts:
        real = getattr(Grouped, name)

        def counted(self, *rows, name=name, real=real):
            counts[name] += 1
            return real(self, *rows)

        monkeypatch.setattr(Grouped, name, counted)
    batch = each_of(oracle, [0], oracle.start(), padded=False)
    upper, lower, _ = minimise(batch, 1e-8, 1.0, Kept(batch, batch.hessian))
    assert upper - lower <= 1e-8
    assert counts["gram"] < 0.5 * counts["look"]
