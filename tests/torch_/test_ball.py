"""The set on a device against :class:`counterpoise.KLBall`, and that no step of it waits for the host."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

from counterpoise import KLBall  # noqa: E402
from counterpoise.torch.ball import Ball  # noqa: E402

PROPERTY = settings(max_examples=120, deadline=None, derandomize=True)
RADII = [0.0, 1e-12, 1e-10, 1e-8, 1e-6, 1e-3, 0.05, 0.3, 1.0, 3.0, 10.0, 50.0, 400.0, math.inf]
CENTRES = ["uniform", "dirichlet", "uneven", "one share near 1"]


class Waits(TorchDispatchMode):
    """Notes every operation that would wait for a device: a number or a size brought to the host."""

    NAMES = ("_local_scalar_dense", "nonzero", "is_nonzero", "unique", "masked_select", "equal.default")

    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name = str(function)
        if any(waits in name for waits in self.NAMES):
            self.seen.append(name)
        return function(*args, **(kwargs or {}))


def both(p_hat, radius):
    """Return the same set twice: for tensors and for arrays."""
    p_hat = np.asarray(p_hat, dtype=np.float64)
    p_hat = p_hat / p_hat.sum()
    return Ball(torch.tensor(p_hat), radius), KLBall(p_hat, radius)


def centre(kind, n_contexts, rng):
    if kind == "uniform":
        return np.ones(n_contexts)
    if kind == "dirichlet":
        return rng.dirichlet(np.ones(n_contexts)) + 1e-12
    if kind == "uneven":
        return 10.0 ** rng.uniform(-9, 0, n_contexts)
    return np.r_[10.0 ** rng.uniform(2, 9), np.ones(n_contexts - 1)]


def assert_same_worst_case(ball, reference, scores, accuracy=1e-10):
    """The value, to some part of the spread, and membership."""
    p = ball.worst_case(torch.tensor(scores)).numpy()
    assert p.sum() == pytest.approx(1.0, abs=1e-12)
    assert (p >= 0).all()
    expected = reference.worst_case(scores)
    spread = max(float(np.ptp(scores)), 1e-300)
    assert abs(float(p @ scores) - expected.value) <= accuracy * spread + 1e-15 * np.abs(scores).max()
    assert reference.contains(p / p.sum())
    return p, expected.distribution


@pytest.mark.parametrize("kind", CENTRES)
@pytest.mark.parametrize("radius", RADII)
def test_worst_case_has_the_value_of_the_reference(radius, kind):
    rng = np.random.default_rng([RADII.index(radius), CENTRES.index(kind)])
    for k in range(12):
        n_contexts = int(rng.choice([2, 3, 5, 10, 60, 200]))
        ball, reference = both(centre(kind, n_contexts, rng), radius)
        scale = 10.0 ** rng.uniform(-6, 6)
        scores = scale * (rng.normal(size=n_contexts) if k % 3 else rng.integers(0, 3, n_contexts).astype(float))
        assert_same_worst_case(ball, reference, scores)


@PROPERTY
@given(
    rows=st.lists(st.tuples(st.integers(1, 10**6), st.integers(-1000, 1000)), min_size=1, max_size=8),
    radius=st.sampled_from([1e-6, 1e-3, 0.1, 0.7, 2.0, 8.0, 30.0]),
    scale=st.sampled_from([1e-6, 1.0, 1e3]),
)
def test_worst_case_for_any_counts(rows, radius, scale):
    counts, scores = np.array(rows, dtype=np.float64).T
    ball, reference = both(counts, radius)
    p, expected = assert_same_worst_case(ball, reference, scale * scores)
    if np.ptp(scores) > 0:
        np.testing.assert_allclose(p, expected, atol=1e-9)


@pytest.mark.parametrize("radius", [0.01, 0.3, 1.0])
@pytest.mark.parametrize("rare", [1000, 10, 3, 1])
def test_a_rare_context_that_is_worst_gets_what_it_may_have(rare, radius):
    # A few rows beside nine contexts of a hundred thousand: the search has to go out far enough.
    ball, reference = both([*[100_000] * 9, rare], radius)
    assert_same_worst_case(ball, reference, np.append(np.linspace(0.0, 0.5, 9), 1.0))


@pytest.mark.parametrize("radius", [0.0, 1e-9, 0.3, 20.0, math.inf])
def test_equal_scores_keep_to_the_set(radius):
    ball, reference = both([1.0, 2.0, 3.0], radius)
    for level in (0.0, -7.5, 1e12):
        p = ball.worst_case(torch.full((3,), level, dtype=torch.float64))
        assert torch.isfinite(p).all()
        assert reference.contains(p.numpy())


@pytest.mark.parametrize("radius", [0.01, 1.0, 30.0, math.inf])
def test_tied_worst_contexts_share_as_in_the_data(radius):
    ball, reference = both([1.0, 3.0, 4.0, 2.0], radius)
    p, expected = assert_same_worst_case(ball, reference, np.array([1.0, 1.0, 0.2, 1.0]))
    np.testing.assert_allclose(p, expected, atol=1e-10)
    np.testing.assert_allclose(p[[0, 1, 3]] / p[0], [1.0, 3.0, 2.0], rtol=1e-9)


@pytest.mark.parametrize("radius", [0.0, 0.3, math.inf])
def test_one_context_has_all(radius):
    ball, _ = both([7.0], radius)
    assert ball.worst_case(torch.tensor([3.0], dtype=torch.float64)).tolist() == [1.0]
    assert ball.pull_inside(torch.tensor([0.2], dtype=torch.float64)).tolist() == [1.0]


def test_radius_zero_is_the_centre():
    ball, _ = both([1.0, 2.0, 5.0], 0.0)
    scores = torch.tensor([3.0, 1.0, 2.0], dtype=torch.float64)
    assert torch.equal(ball.worst_case(scores), ball.p_hat)
    assert torch.equal(ball.pull_inside(scores), ball.p_hat)


@pytest.mark.parametrize("radius", [1e-6, 0.02, 1.0, 12.0])
def test_a_thousand_contexts(radius):
    rng = np.random.default_rng(0)
    ball, reference = both(rng.integers(1, 1000, 1000), radius)
    for _ in range(5):
        assert_same_worst_case(ball, reference, rng.normal(size=1000))


def test_scores_only_matter_relative_to_each_other():
    ball, _ = both([1.0, 2.0, 4.0], 0.4)
    scores = torch.tensor([0.3, 0.7, 0.1], dtype=torch.float64)
    p = ball.worst_case(scores)
    torch.testing.assert_close(ball.worst_case(1e9 * scores), p, atol=1e-12, rtol=0)
    torch.testing.assert_close(ball.worst_case(1e-9 * scores), p, atol=1e-12, rtol=0)
    torch.testing.assert_close(ball.worst_case(scores + 8.0), p, atol=1e-12, rtol=0)


@PROPERTY
@given(
    rows=st.lists(st.tuples(st.integers(1, 10**6), st.floats(1e-9, 1.0)), min_size=2, max_size=8),
    radius=st.sampled_from([1e-12, 1e-6, 1e-3, 0.1, 0.7, 2.0, 8.0, 300.0]),
)
def test_pulled_inside_as_little_as_needed(rows, radius):
    counts, raw = np.array(rows, dtype=np.float64).T
    ball, reference = both(counts, radius)
    p = raw / raw.sum()
    pulled = ball.pull_inside(torch.tensor(raw)).numpy()
    assert pulled.sum() == pytest.approx(1.0, abs=1e-12)
    assert reference.divergence(pulled) <= radius * (1 + 1e-9) + 1e-14
    away = p - reference.p_hat
    share = float((pulled - reference.p_hat) @ away) / max(float(away @ away), 1e-300)
    np.testing.assert_allclose(pulled, reference.p_hat + share * away, atol=1e-12)
    if reference.divergence(p) <= radius * (1 - 1e-9) - 1e-14:
        np.testing.assert_allclose(pulled, p, atol=1e-12)
    elif radius >= 1e-6 and np.abs(away).max() > 1e-6:
        # On the boundary, to the resolution of the search.
        further = reference.p_hat + (share + 1e-7) * away
        assert (further <= 0).any() or reference.divergence(further) > radius * (1 - 1e-9)


def test_pulled_inside_from_the_edge_of_the_simplex():
    ball, reference = both([1.0, 1.0, 8.0], 0.5)
    pulled = ball.pull_inside(torch.tensor([1.0, 0.0, 0.0], dtype=torch.float64))
    assert reference.contains(pulled.numpy())
    assert reference.divergence(pulled.numpy()) == pytest.approx(0.5, abs=1e-6)


def test_the_whole_simplex_only_rescales():
    ball, _ = both([1.0, 1.0, 8.0], math.inf)
    assert ball.pull_inside(torch.tensor([2.0, 0.0, 6.0], dtype=torch.float64)).tolist() == [0.25, 0.0, 0.75]


@pytest.mark.parametrize("radius", [0.0, 1e-6, 0.5, 30.0, math.inf])
def test_no_step_waits_for_the_host(radius):
    ball, _ = both([1.0, 2.0, 5.0], radius)
    scores = torch.tensor([0.3, 0.1, 0.2], dtype=torch.float64)
    with Waits() as waits:
        ball.worst_case(scores)
        ball.pull_inside(scores)
    assert waits.seen == []
