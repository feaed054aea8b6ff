"""Solving with positive semi-definite matrices: scaled badly, singular, or both."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from counterpoise.linalg import ArrayStack, is_definite, jacobi_scale, positive_solver, pseudo_inverse, solve_stack

PROPERTY = settings(max_examples=60, deadline=None, derandomize=True)


@st.composite
def stacks(draw, full_rank):
    """Return positive semi-definite matrices ``D A A' D`` of whole numbers A and wild scales D, and vectors A A' x."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    d, size = draw(st.integers(1, 5)), draw(st.integers(1, 4))
    rank = d if full_rank else draw(st.integers(0, d))
    roots = rng.integers(-3, 4, (size, d, rank)).astype(np.float64)
    matrices = roots @ roots.transpose(0, 2, 1)
    if full_rank:
        matrices = matrices + np.eye(d)
    scale = 10.0 ** rng.uniform(-6.0, 6.0, d)
    matrices = matrices * scale[:, None] * scale
    return matrices, np.einsum("bij,bj->bi", matrices, rng.normal(size=(size, d)) / scale)


def assert_solves(matrix, x, rhs, rtol=1e-9):
    """Check the residual in units of each row."""
    size = np.abs(matrix) @ np.abs(x) + np.abs(rhs)
    assert (np.abs(matrix @ x - rhs) <= rtol * size).all()


@PROPERTY
@given(stacks(full_rank=True))
def test_scale_brings_the_diagonal_to_one(stack):
    matrices, _ = stack
    scale = jacobi_scale(matrices)
    scaled = matrices * scale[:, :, None] * scale[:, None, :]
    np.testing.assert_allclose(np.diagonal(scaled, axis1=1, axis2=2), 1.0, rtol=1e-12)


@PROPERTY
@given(stacks(full_rank=True))
def test_definite_systems_are_solved_whatever_their_scale(stack):
    matrices, rhs = stack
    together = solve_stack(matrices, rhs)
    for matrix, side, x in zip(matrices, rhs, together, strict=True):
        assert_solves(matrix, x, side)
        assert_solves(matrix, positive_solver(matrix)(side), side)


@PROPERTY
@given(stacks(full_rank=True))
def test_several_right_hand_sides_are_solved_as_one_by_one(stack):
    matrices, rhs = stack
    solve = positive_solver(matrices[0])
    columns = np.column_stack([rhs[0], -2.0 * rhs[0]])
    np.testing.assert_allclose(solve(columns), np.column_stack([solve(c) for c in columns.T]), rtol=1e-9)


@PROPERTY
@given(stacks(full_rank=False))
def test_singular_systems_are_solved_where_they_can_be(stack):
    matrices, rhs = stack
    together = solve_stack(matrices, rhs)
    for matrix, side, x in zip(matrices, rhs, together, strict=True):
        assert_solves(matrix, x, side, rtol=1e-5)
        assert_solves(matrix, positive_solver(matrix)(side), side, rtol=1e-5)


@PROPERTY
@given(stacks(full_rank=False), st.integers(0, 2**32 - 1))
def test_solution_never_points_uphill(stack, seed):
    matrices, rhs = stack
    side = np.random.default_rng(seed).normal(size=rhs.shape)
    x = solve_stack(matrices, side)
    assert np.isfinite(x).all()
    assert (np.einsum("bd,bd->b", x, side) >= 0).all()


@PROPERTY
@given(stacks(full_rank=True))
def test_pseudo_inverse_of_a_definite_matrix_is_its_inverse(stack):
    matrices, _ = stack
    inverse = pseudo_inverse(matrices)
    scale = jacobi_scale(matrices)
    identity = matrices @ inverse * scale[:, :, None] / scale[:, None, :]
    np.testing.assert_allclose(identity, np.broadcast_to(np.eye(matrices.shape[1]), matrices.shape), atol=1e-8)


@PROPERTY
@given(stacks(full_rank=False))
def test_pseudo_inverse_inverts_on_the_range(stack):
    matrices, rhs = stack
    inverse = pseudo_inverse(matrices)
    np.testing.assert_allclose(inverse, inverse.transpose(0, 2, 1), rtol=1e-6, atol=1e-6 * np.abs(inverse).max())
    for matrix, plus, side in zip(matrices, inverse, rhs, strict=True):
        assert_solves(matrix, plus @ side, side, rtol=1e-7)


@PROPERTY
@given(stacks(full_rank=False))
def test_stack_of_one_equals_one_of_a_stack(stack):
    matrices, rhs = stack
    together = pseudo_inverse(matrices)
    for matrix, plus, side in zip(matrices, together, rhs, strict=True):
        alone = pseudo_inverse(matrix[None])[0]
        # On the range of the matrix every inverse gives the same form.
        np.testing.assert_allclose(side @ plus @ side, side @ alone @ side, rtol=1e-6, atol=1e-12)


def test_zero_matrix_has_a_zero_inverse():
    np.testing.assert_array_equal(pseudo_inverse(np.zeros((2, 3, 3))), 0.0)
    np.testing.assert_array_equal(pseudo_inverse(np.zeros((1, 3, 3))), 0.0)


def test_singular_matrix_does_not_spoil_its_neighbours():
    matrices = np.array([[[1.0, 1.0], [1.0, 1.0]], [[2.0, 0.0], [0.0, 4.0]], np.zeros((2, 2))])
    inverse = pseudo_inverse(matrices)
    np.testing.assert_allclose(inverse[0], 0.25)
    np.testing.assert_allclose(inverse[1], [[0.5, 0.0], [0.0, 0.25]], rtol=1e-12)
    np.testing.assert_array_equal(inverse[2], 0.0)


def test_rounding_below_zero_is_no_obstacle():
    # Semi-definite on paper; its smallest eigenvalue came out negative.
    vectors, _ = np.linalg.qr(np.random.default_rng(0).normal(size=(4, 4)))
    matrix = vectors * [1.0, 1.0, 1.0, -1e-14] @ vectors.T
    side = matrix @ np.ones(4)
    assert_solves(matrix, positive_solver(matrix)(side), side, rtol=1e-6)


def test_overflow_is_named():
    with pytest.raises(FloatingPointError, match="overflowed"):
        positive_solver(np.array([[np.inf, 0.0], [0.0, 1.0]]))


def test_definite_matrices_are_told_from_singular_ones_at_any_scale():
    scale = np.diag([1e-80, 1.0, 1e80])
    assert is_definite(scale @ (np.eye(3) + 1.0) @ scale)
    assert not is_definite(scale @ np.ones((3, 3)) @ scale)
    assert not is_definite(scale @ (np.ones((3, 3)) - 0.1 * np.eye(3)) @ scale)
    assert not is_definite(np.diag([1.0, -1.0]))
    assert not is_definite(np.full((2, 2), np.nan))


@pytest.mark.parametrize(("outputs", "width"), [(3, 2), (5, 12)])
@pytest.mark.parametrize("size", [1, 4])
def test_pseudo_inverse_with_known_null_directions_is_that_by_the_spectrum(outputs, width, size):
    rng = np.random.default_rng(outputs)
    centring = np.eye(outputs) - 1.0 / outputs
    roots = rng.standard_normal((size, width, 3 * width)) * np.exp(rng.standard_normal(width))[:, None]
    matrices = np.array([np.kron(centring, root @ root.T) for root in roots])
    null = np.tile(np.eye(width), outputs)
    found, expected = pseudo_inverse(matrices, null=null), pseudo_inverse(matrices)
    np.testing.assert_allclose(found, expected, rtol=1e-7, atol=1e-9 * np.abs(expected).max())
    rhs = np.einsum("bij,bj->bi", matrices, rng.standard_normal(matrices.shape[:2]))
    for matrix, inverse, own in zip(matrices, found, rhs, strict=True):
        assert_solves(matrix, inverse @ own, own)
    # A class that is not there has no curvature in any direction of its own: that is left to the spectrum.
    centring = np.pad(np.eye(outputs - 1) - 1.0 / (outputs - 1), ((1, 0), (1, 0)))
    matrices = np.array([np.kron(centring, root @ root.T) for root in roots])
    found, expected = pseudo_inverse(matrices, null=null), pseudo_inverse(matrices)
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-8 * np.abs(expected).max())


def test_stacks_know_inverses_that_follow_from_those_they_know():
    rng = np.random.default_rng(0)
    roots = rng.standard_normal((3, 4, 8))
    stack = ArrayStack(roots @ roots.transpose(0, 2, 1), np.array([0.5, 0.25, 1.0]))
    np.asarray(stack.inverse())
    some = np.array([True, False, True])
    for known in (stack[some], stack.scaled(np.array([2.0, 3.0, 4.0])), stack.below(), stack[some].below()):
        np.testing.assert_allclose(np.asarray(known.inverse()), np.linalg.inv(np.asarray(known)), rtol=1e-9, atol=1e-12)
    other = ArrayStack(4.0 * stack.matrices[:1])
    replaced = stack.replaced(np.array([False, True, False]), other)
    np.testing.assert_allclose(
        np.asarray(replaced.inverse()), np.linalg.inv(np.asarray(replaced)), rtol=1e-9, atol=1e-12
    )
