"""References of several classes with many parameters: the same as by whole Hessians, proven by the ridge alone."""

import numpy as np
import pytest

from counterpoise.contexts import encode
from counterpoise.core.oracle.linear import EachContext, LinearOracle
from counterpoise.core.references import by_class, specialists
from counterpoise.core.references.newton import Fresh, minimise
from counterpoise.losses import Multinomial


def posed(classes, n, d, n_contexts, seed=0, alpha=1e-3, intercept=True, absent=0, unequal=False, signal=1.5):
    """Return an oracle; each of the first ``absent`` contexts lacks a class."""
    rng = np.random.default_rng(seed)
    shares = 1.0 / np.arange(1, n_contexts + 1) if unequal else np.ones(n_contexts)
    codes = rng.choice(n_contexts, n, p=shares / shares.sum())
    X = rng.standard_normal((n, d)) * (np.exp(rng.standard_normal(d)) if unequal else 1.0)
    own = rng.standard_normal((classes, d)) + 0.5 * rng.standard_normal((n_contexts, classes, d))
    z = signal * np.einsum("nd,nkd->nk", X / X.std(axis=0), own[codes]) / np.sqrt(d)
    z += rng.standard_normal(classes) * unequal
    for c in range(absent):
        z[codes == c, c % classes] = -np.inf
    y = np.argmax(z + rng.gumbel(size=z.shape), axis=1).astype(float)
    return LinearOracle.from_rows(
        X,
        y,
        encode(codes),
        Multinomial(classes),
        sample_weight=rng.random(n) + 0.5,
        alpha=alpha,
        fit_intercept=intercept,
    )


def by_hessians(oracle, tol):
    flat = np.tile(oracle.start(), (oracle.n_contexts, 1))
    return minimise(EachContext(oracle.rows.whole, oracle.alpha, flat), tol, 1.0, Fresh())


CASES = {
    "alike": {"classes": 7, "n": 6000, "d": 9, "n_contexts": 4},
    "unequal": {"classes": 6, "n": 6000, "d": 12, "n_contexts": 5, "unequal": True},
    "absent": {"classes": 8, "n": 5000, "d": 8, "n_contexts": 5, "absent": 3},
    "no intercept": {"classes": 7, "n": 4000, "d": 10, "n_contexts": 3, "intercept": False, "absent": 1},
    "strong": {"classes": 7, "n": 4000, "d": 10, "n_contexts": 3, "signal": 12.0},
    "weak ridge": {"classes": 7, "n": 6000, "d": 9, "n_contexts": 4, "alpha": 1e-7},
    "strong ridge": {"classes": 7, "n": 6000, "d": 9, "n_contexts": 4, "alpha": 1.0},
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_least_risks_and_bounds_are_those_of_whole_hessians(case, monkeypatch):
    oracle = posed(**case)
    assert by_class.suits(oracle)
    fresh = []
    real = Fresh.direction
    monkeypatch.setattr(Fresh, "direction", lambda *args: fresh.append(1) or real(*args))
    monkeypatch.setattr(specialists, "MANY_ENTRIES", 0.0)
    found = specialists.fit_specialists(oracle, 1e-8, specialists.sketched(oracle, oracle.rows.sizes.astype(float)))
    assert not fresh
    upper, lower, _ = by_hessians(oracle, 1e-11)
    assert (found.risks.lower <= upper + 1e-13).all()
    assert (found.risks.upper >= lower - 1e-13).all()
    # A twentieth of what is asked of a fit: five times the accuracy that references are asked for.
    assert (found.risks.upper - found.risks.lower <= 5e-8 * np.log(case["classes"])).all()
    assert found.begin is not None
    assert not found.begin.knows_hessians


def test_sketch_is_near_the_minimum_of_all_rows():
    oracle = posed(7, 4000, 9, 4)
    counts = oracle.rows.sizes.astype(float)
    shares = counts / counts.sum()
    theta = by_class.rough_minimum(oracle, counts)
    pooled = EachContext(oracle.rows.as_one(counts).whole, oracle.alpha, oracle.start()[None])
    least, _, _ = minimise(pooled, 1e-10, 1.0, Fresh())
    value = float(shares @ oracle.at(theta).risks)
    assert least[0] - 1e-12 <= value <= least[0] + 1e-2 * value


def test_blocks_are_those_on_the_diagonal_of_hessians():
    oracle = posed(5, 600, 3, 2)
    sums = oracle.rows.whole.at(np.tile(0.1 * np.arange(20.0), (2, 1)) % 0.7)
    whole = sums.hessians.reshape(2, 5, 4, 5, 4)
    for k in range(5):
        np.testing.assert_allclose(sums.class_blocks[:, k], whole[:, k, :, k], rtol=1e-12, atol=1e-15)


def test_absent_classes_are_out_of_reach_and_cost_nothing():
    oracle = posed(6, 3000, 11, 3, absent=2)
    present = by_class.present_classes(oracle)
    assert (~present).sum(axis=1).tolist() == [1, 1, 0]
    rng = np.random.default_rng(0)
    theta = rng.standard_normal((3, oracle.n_parameters))
    own = by_class.without_absent(theta, present).reshape(3, 6, 12)
    np.testing.assert_array_equal(own[2], theta[2].reshape(6, 12))
    for c in range(2):
        np.testing.assert_array_equal(own[c, c, :-1], 0.0)
        predictions = np.array([own[c] @ np.append(x, 1.0) for x in oracle.rows.X[:5]])
        assert (np.delete(predictions, c, axis=1).min(axis=1) - predictions[:, c] > 15.0).all()


def test_steps_leave_out_what_classes_have_in_common():
    rng = np.random.default_rng(1)
    blocks = rng.standard_normal((2, 4, 3, 3))
    present = np.array([[True] * 4, [True, False, True, True]])
    solver = by_class.ClassBlocks.inverting(blocks @ blocks.swapaxes(2, 3), np.full(12, 0.1), present)
    gradients = rng.standard_normal((2, 12))
    steps = solver.solve(gradients).reshape(2, 4, 3)
    np.testing.assert_allclose(steps.sum(axis=1), 0.0, atol=1e-12)
    np.testing.assert_array_equal(steps[1, 1], 0.0)
    # A positive semi-definite map: no step leads uphill.
    assert (np.einsum("bd,bd->b", gradients, solver.solve(gradients)) >= 0.0).all()


def test_few_parameters_or_no_ridge_go_by_whole_hessians():
    assert not by_class.suits(posed(3, 300, 4, 2))
    assert not by_class.suits(posed(7, 600, 9, 2, alpha=0.0))
