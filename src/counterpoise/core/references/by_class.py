"""References of several classes with so many parameters that square matrices of them cost more than looks at the rows.

What one class has to do with itself is a small block of the Hessian for each class; what it has to do with the others
is left to what gradients show on the way (BFGS). Proofs are by the ridge alone: with a gradient ``g`` of the penalised
coefficients, and intercepts at their own minimum, no risk is more than ``|g|^2 / (2 alpha)`` below.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from counterpoise.core.oracle._base import Array
from counterpoise.core.oracle.bounds import lower_bounds
from counterpoise.core.oracle.linear import EachContext, LinearOracle
from counterpoise.core.references.newton import line_search, two_loops
from counterpoise.linalg import pseudo_inverse
from counterpoise.rows import Mask

MANY_PARAMETERS = 64
"""Parameters of several classes from which square matrices of them are not formed."""

_ROUGH = 1e-3
"""Share of a risk that may be left to gain where nothing but a place to begin is asked for."""

_EVERY, _FAST = 5, 1e-4
"""Steps after which blocks may be worked out again, and what is left after so many where they need not be."""

_OUT_OF_REACH = 50.0
"""How far below the others the prediction of a class lies that a context has not: its probability is below 1e-21."""

_WILD = 10.0
"""How many times what other blocks promise those of a place may promise there."""

_SHORT = 0.2
"""Share of a step that is so little that what led to it is forgotten."""


def suits(oracle: LinearOracle) -> bool:
    """Tell whether there are several classes with many parameters, and a ridge to prove what is found."""
    several = oracle.coefficients.n_outputs > 1 and oracle.n_parameters >= MANY_PARAMETERS
    return several and oracle.alpha > 0.0 and oracle.bounds is None and bool(oracle.rows.at_hand)


def rough_minimum(oracle: LinearOracle, counts: Array) -> Array:
    """Return about the best parameters for all rows, in the proportions of the data."""
    rows = oracle.rows.as_one(counts)
    theta = np.zeros((oracle.coefficients.n_outputs, oracle.coefficients.width))
    if oracle.fit_intercept:
        shares = np.bincount(rows.target.astype(np.intp), weights=rows.weight, minlength=len(theta))
        # A class that some rows would have may be missing among few of them.
        theta[:, -1] = np.log(np.maximum(shares, 1.0 / rows.n_rows))
        theta[:, -1] -= theta[:, -1].mean()
    at = EachContext(rows.whole, oracle.alpha, theta.reshape(1, -1))
    policy = ByClass(at)
    for _ in range(policy.most_steps):
        direction = policy.direction(at)
        slope = np.einsum("bd,bd->b", at.gradient, direction)
        if -0.5 * slope[0] <= _ROUGH * at.above[0]:
            break
        at, moved = policy.step(at, direction, slope)
        if not moved[0]:
            break
    return np.asarray(at.theta[0])


def present_classes(oracle: LinearOracle) -> Mask:
    """Mark the classes that each context has, of shape (n_contexts, n_outputs); all where there is no intercept."""
    rows, outputs = oracle.rows, oracle.coefficients.n_outputs
    if not oracle.fit_intercept:
        return np.ones((oracle.n_contexts, outputs), dtype=bool)
    cells = rows.owner * outputs + rows.target.astype(np.intp)
    counts = np.bincount(cells, weights=rows.weight, minlength=oracle.n_contexts * outputs)
    return np.asarray(counts.reshape(-1, outputs) > 0.0)


def without_absent(theta: Array, present: Mask) -> Array:
    """Return parameters for each context at which classes that it has not are out of reach: (B, P) -> (B, P).

    The least risk of a context is not reached at any intercepts of theirs, and at no coefficients but zero.
    """
    some = ~present.all(axis=1)
    if not some.any():
        return theta
    matrix = theta.reshape(*present.shape, -1).copy()
    intercepts = matrix[some, :, -1]
    own = _centred(matrix[some], present[some])
    own[:, :, -1] = np.where(present[some], intercepts, intercepts.min(axis=1, keepdims=True) - _OUT_OF_REACH)
    matrix[some] = own
    return matrix.reshape(theta.shape)


@dataclass(frozen=True, eq=False)
class ClassBlocks:
    """Inverses of the blocks of classes on the diagonal of Hessians, which stand for the inverses of the whole.

    A shift that all classes have in common changes no prediction, and is left out.

    Attributes
    ----------
    blocks : ndarray of shape (B, n_outputs, width, width)
    present : ndarray of shape (B, n_outputs)
        Classes that take part in steps.
    """

    blocks: Array
    present: Mask

    @classmethod
    def inverting(cls, blocks: Array, ridge: Array, present: Mask | None = None) -> ClassBlocks:
        """Invert blocks to which a ridge is added, given for every parameter: (B, n_outputs, width, width)."""
        outputs, width = blocks.shape[1:3]
        blocks, along = blocks.copy(), np.arange(width)
        blocks[:, :, along, along] += ridge.reshape(outputs, width)
        present = np.ones(blocks.shape[:2], dtype=bool) if present is None else present
        return cls(pseudo_inverse(blocks.reshape(-1, width, width)).reshape(blocks.shape), present)

    def solve(self, gradients: Array) -> Array:
        """Return steps for gradients: (B, P) -> (B, P)."""
        each = _centred(gradients.reshape(-1, *self.blocks.shape[1:3]), self.present)
        steps = np.matmul(self.blocks, each[..., None])[..., 0]
        return _centred(steps, self.present).reshape(gradients.shape)

    def __getitem__(self, keep: Mask) -> ClassBlocks:
        return ClassBlocks(self.blocks[keep], self.present[keep])

    def replaced(self, which: Mask, others: ClassBlocks) -> ClassBlocks:
        """Return the blocks with others in some places."""
        blocks = self.blocks.copy()
        blocks[which] = others.blocks
        return ClassBlocks(blocks, self.present)


def _centred(each: Array, present: Mask) -> Array:
    """Return what differs between outputs that are present, and zero for the others: (B, n_outputs, width)."""
    count = np.maximum(present.sum(axis=1), 1)[:, None, None]
    own = each * present[:, :, None]
    return (own - own.sum(axis=1, keepdims=True) / count) * present[:, :, None]


class ByClass:
    """Blocks of classes, corrected by what gradients have shown on the way (BFGS).

    Now and then those of contexts that are still far are worked out where these have come to: what gradients have shown
    holds for any of them.

    Parameters
    ----------
    at : EachContext
        The contexts, where they begin.
    present : ndarray of shape (n_contexts, n_outputs), optional
        The classes that each of them has, if not all; the others are to be out of reach.
    """

    is_thrifty = True
    polishes = False
    waits = False
    most_steps = 60

    def __init__(self, at: EachContext, present: Mask | None = None) -> None:
        self.blocks = ClassBlocks.inverting(at.sums.class_blocks, at.alpha * at.penalised, present)
        self.shown: list[tuple[Array, Array]] = []
        self.before = np.full(len(at.theta), np.inf)

    def direction(self, at: EachContext) -> Array:
        """Return directions by all that gradients have shown; with blocks of this place for contexts that are slow."""
        direction = -two_loops(self.blocks.solve, self.shown, at.gradient)
        if len(self.shown) % _EVERY:
            return direction
        promised = -0.5 * np.einsum("bd,bd->b", at.gradient, direction)
        slow = promised > _FAST * self.before
        self.before = promised
        if not slow.any():
            return direction
        some = at if slow.all() else at.subset(slow)
        fresh = ClassBlocks.inverting(some.sums.class_blocks, at.alpha * at.penalised, self.blocks.present[slow])
        tried = self.blocks.replaced(slow, fresh)
        other = -two_loops(tried.solve, self.shown, at.gradient)
        # Where a class hardly bends any more its block would lead far away.
        wild = slow & ~(-0.5 * np.einsum("bd,bd->b", at.gradient, other) <= _WILD * promised)
        self.blocks = tried.replaced(wild, self.blocks[wild])
        return np.where(wild[:, None], direction, other)

    def share(self, at: EachContext, ready: Mask) -> Array:
        """Return how much of what the steps take for curvature the ridge makes certain, along the gradients."""
        direction = -two_loops(self.blocks.solve, self.shown, at.gradient)
        by_ridge = np.sum((at.gradient * at.penalised) ** 2, axis=1) / at.alpha
        promised = -np.einsum("bd,bd->b", at.gradient, direction)
        return np.where(by_ridge > promised, promised / np.where(by_ridge > 0.0, by_ridge, 1.0), 1.0)

    def bounds(self, at: EachContext, ready: Mask, share: Array) -> Array:
        """Bound the minima of some contexts from below, by the ridge."""
        some = at if ready.all() else at.subset(ready)
        return lower_bounds(some, some.gradient, None)

    def step(self, at: EachContext, direction: Array, slope: Array) -> tuple[EachContext, Mask]:
        """Take the steps; where one leads uphill, shorter ones."""
        there, moved = line_search(at, direction, slope)
        change = there.theta - at.theta
        short = np.einsum("bd,bd->b", change, change) < _SHORT**2 * np.einsum("bd,bd->b", direction, direction)
        if short.any():
            # What was shown elsewhere has led astray.
            self.shown = [(np.where(short[:, None], 0.0, one), bend) for one, bend in self.shown]
        self.shown.append((change, there.gradient - at.gradient))
        return there, moved

    def subset(self, keep: Mask) -> ByClass:
        """Go on with some of the contexts."""
        some = object.__new__(ByClass)
        some.blocks, some.before = self.blocks[keep], self.before[keep]
        some.shown = [(change[keep], bend[keep]) for change, bend in self.shown]
        return some
