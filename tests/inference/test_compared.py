"""Models compared at once, against each comparison made by itself."""

import numpy as np
import pytest

import counterpoise as cpo
from counterpoise.inference.compared import NOTHING, Compared
from counterpoise.inference.excess import HeldOut

N = 600
RNG = np.random.default_rng(1)
CODES = RNG.integers(0, 4, N)
LOSSES = {"a": RNG.exponential(size=N)}
LOSSES["b"] = LOSSES["a"] + 0.1 * RNG.standard_normal(N) + 0.05 * (CODES == 2)
LOSSES["own"] = LOSSES["a"] - 0.1 + 0.1 * RNG.standard_normal(N)
ERRORS = {name: (RNG.random(N) < 0.01).astype(float) for name in LOSSES}
AGAINST = ("own", "b")


def numbers(bounds):
    return [bounds.estimate, bounds.lower, bounds.upper, bounds.mix_estimate, bounds.mix_lower, bounds.mix_upper]


@pytest.mark.parametrize("groups", [None, np.arange(N) // 5], ids=["rows", "groups"])
@pytest.mark.parametrize("losses", [LOSSES, ERRORS], ids=["losses", "errors"])
def test_all_at_once_is_one_by_one(losses, groups):
    held_out = HeldOut.of(N, CODES, groups, mix=cpo.KLBall(np.full(4, 0.25), 0.1))
    pairs = [(one, other) for one in ("a", "b") for other in (NOTHING, *AGAINST)]
    compared = Compared.of(held_out, losses, pairs)
    competitors = np.column_stack([losses[name] for name in AGAINST])
    for name, same in (("a", None), ("b", 1)):
        one = compared.bounds(name, AGAINST, AGAINST)
        other = held_out.excess_bounds(losses[name], competitors, AGAINST, same)
        np.testing.assert_allclose(numbers(one), numbers(other), rtol=1e-5, atol=1e-9)
        np.testing.assert_allclose(one.by_context["excess"], other.by_context["excess"])
        for off, taken in ((NOTHING, 0.0), ("b", losses["b"])):
            mean = held_out.mean(losses[name], taken, may_be_errors=True)
            np.testing.assert_allclose(compared.mean(name, off), mean, rtol=1e-9, atol=1e-12)
    one = compared.difference("a", "b", AGAINST)
    other = held_out.excess_difference(losses["a"], losses["b"], competitors, 1)
    np.testing.assert_allclose(numbers(one), numbers(other), rtol=1e-4, atol=1e-6)


def test_a_context_of_one_row_leaves_the_mean_to_all_rows():
    codes = np.where(np.arange(N) == 0, 9, 0)
    held_out = HeldOut.of(N, codes)
    compared = Compared.of(held_out, LOSSES, [("a", "b")])
    assert compared.mean("a", "b") == held_out.mean(LOSSES["a"], LOSSES["b"], may_be_errors=True)


@pytest.mark.parametrize("losses", [LOSSES, ERRORS], ids=["losses", "errors"])
def test_among_some_rows_a_context_without_any_is_not_judged(losses):
    held_out = HeldOut.of(N, CODES)
    compared = Compared.of(held_out, losses, [("a", other) for other in AGAINST])
    chosen = (CODES != 3) & ((CODES != 1) | (np.arange(N) % 2 == 0))
    some, rows = compared.among(chosen)
    found = some.bounds("a", AGAINST, AGAINST)
    assert found.unjudged == (3,)
    np.testing.assert_array_equal(rows, np.flatnonzero(chosen | (CODES == 3)))
    alone = HeldOut.of(chosen.sum(), CODES[chosen]).excess_bounds(
        losses["a"][chosen], np.column_stack([losses[name][chosen] for name in AGAINST]), AGAINST
    )
    np.testing.assert_allclose(found.by_context["excess"][:3], alone.by_context["excess"])
    np.testing.assert_allclose(numbers(found), numbers(alone), atol=0.01)
    nothing, rows = compared.among(np.zeros(N, dtype=bool))
    assert np.isnan(numbers(nothing.bounds("a", AGAINST, AGAINST))).all()
    assert len(rows) == N
    assert compared.among(np.ones(N, dtype=bool))[0] is compared
