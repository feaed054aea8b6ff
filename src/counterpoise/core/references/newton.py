"""References of smooth losses: damped Newton steps in every context of a part at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from counterpoise.core.oracle._base import Array
from counterpoise.core.oracle.bounds import promised_at_most
from counterpoise.core.oracle.linear import EachContext
from counterpoise.linalg import ArrayStack, Stack, solve_stack
from counterpoise.rows import Mask

MAX_ITER = 200

_MOST_KEPT = 30
"""Steps after which a Hessian that is kept has not served."""

_FELL, _LATER = 0.1, 4
"""A proof that failed is tried again once the squared decrement fell to this share, or after so many steps."""

_WORTH = 3.0
"""Steps with gradients alone that are no dearer than Hessians and the step or two that these leave."""

_PATIENCE = 12
"""Steps for which contexts that are done wait for the others."""

_DONE = 1e-3
"""Share of what contexts are to come to, from which on they move no more."""

_LITTLE = 1e-2
"""Share of a Hessian that is too little for a proof: the steps that it asks for cost more than another Hessian."""

_POOR = 0.6
"""Share of the squared Newton decrement that may be left by a step with a Hessian that serves."""


class Curvature(Protocol):
    """Which Hessian steps are taken with, and proofs given by."""

    @property
    def is_thrifty(self) -> bool:
        """Whether rows are so many that passes over them are saved.

        Values are then not computed far from the minimum, and no step is taken once everything is proven.
        """

    @property
    def most_steps(self) -> int:
        """Steps of a thrifty policy after which it has not served: from there on every step has its own Hessian."""

    @property
    def polishes(self) -> bool:
        """Whether what is proven is worth one step more."""

    @property
    def waits(self) -> bool:
        """Whether contexts that are done wait for the others, for a while, to be proven with them."""

    def direction(self, at: EachContext) -> Array:
        """Return Newton directions, of shape (B, P)."""

    def share(self, at: EachContext, ready: Mask) -> Array:
        """Return how much of each Hessian that is known is certainly left here; some contexts are to be proven."""

    def bounds(self, at: EachContext, ready: Mask, share: Array) -> Array:
        """Bound the minima of some contexts from below."""

    def step(self, at: EachContext, direction: Array, slope: Array) -> tuple[EachContext, Mask]:
        """Move every context; also tell which ones moved."""

    def subset(self, keep: Mask) -> Curvature:
        """Go on with some of the contexts."""


def minimise(
    at: EachContext, tol: float, scale: float, curvature: Curvature | None = None, max_iter: int = MAX_ITER
) -> tuple[Array, Array, Array]:
    """Return the least risk reached in each context, a lower bound of it, and where it was reached.

    Parameters
    ----------
    at : EachContext
        The contexts, where they begin.
    tol, scale : float
        Accuracy asked of each context, relative to how far its risk is above its lowest, at most ``scale``.
    curvature : Curvature, optional
        A Hessian for every step when not given.
    max_iter : int
        Steps after which what is not proven stays so.
    """
    fresh = Fresh()
    policy: Any = fresh if curvature is None else curvature
    n = len(at.theta)
    upper, lower, theta = np.full(n, np.inf), at.lowest.copy(), at.theta.copy()
    active = np.arange(n)
    failed_at, again = np.full(n, np.inf), np.zeros(n, dtype=np.intp)
    for n_iter in range(max_iter):
        policy = fresh if policy.is_thrifty and n_iter == policy.most_steps else policy
        direction = policy.direction(at)
        slope = np.vecdot(at.gradient, direction)
        if policy.is_thrifty and (-0.5 * slope > tol * scale).all() and n_iter < max_iter - 1:
            # Far from done, the values would be looked at for nothing.
            at, moved = policy.step(at, direction, slope)
            policy = policy if moved.all() else fresh
            continue
        better = at.value < upper[active]
        upper[active[better]], theta[active[better]] = at.value[better], at.theta[better]
        accuracy = tol * np.clip(at.above, 1e-2 * scale, scale)
        # Half the squared Newton decrement foretells the bound, which costs more: prove only what looks finished.
        ready = -0.5 * slope <= accuracy
        if not policy.is_thrifty:
            # Rows that can be told apart lead to infinity by steps of one length, at most of which nothing is proven.
            ready &= (-0.5 * slope <= _FELL * failed_at[active]) | (n_iter >= again[active])
        if n_iter == max_iter - 1:
            ready[:] = True
        patient = policy.waits and n_iter < _PATIENCE
        if patient and not (-0.5 * slope <= accuracy).all():
            ready[:] = False
        if ready.any() and ((share := policy.share(at, ready)) > 0.0).any():
            enough = -0.5 * slope <= share * accuracy
            ready &= (enough | (n_iter == max_iter - 1)) & (enough.all() | (not patient))
            if ready.any():
                failed_at[active[ready]], again[active[ready]] = -0.5 * slope[ready], n_iter + _LATER
                bounds = policy.bounds(at, ready, share)
                lower[active[ready]] = np.maximum(lower[active[ready]], np.minimum(bounds, upper[active[ready]]))
        keep = upper[active] - lower[active] > accuracy
        # The bound is as good as a step further on; so is the value there, up to rounding.
        last = ~keep & (-slope > 1e-14 * np.abs(at.value)) & policy.polishes
        if last.any():
            there = at.subset(last)
            there = there.at(there.theta + direction[last])
            better, c = there.value < upper[active[last]], active[last]
            upper[c[better]], theta[c[better]] = there.value[better], there.theta[better]
        if not keep.all():
            active, at, policy = active[keep], at.subset(keep), policy.subset(keep)
            direction, slope, ready = direction[keep], slope[keep], ready[keep]
        if active.size == 0:
            break
        at, moved = policy.step(at, direction, slope)
        if policy.is_thrifty and not moved.all():
            policy = fresh
            continue
        keep = moved | ~ready
        # What has not moved is proven here or nowhere.
        again[active[~moved]] = 0
        if not keep.all():
            active, at, policy = active[keep], at.subset(keep), policy.subset(keep)
        if active.size == 0:
            break
    return upper, lower, theta


@dataclass(frozen=True)
class Fresh:
    """A Hessian for every step."""

    is_thrifty: bool = False
    most_steps: int = MAX_ITER
    polishes: bool = True
    waits: bool = False

    def direction(self, at: EachContext) -> Array:
        """Return Newton directions."""
        return -at.hessian.solve(at.gradient)

    def share(self, at: EachContext, ready: Mask) -> Array:
        """All of it is left: it is the one here."""
        return np.ones(len(at.theta))

    def bounds(self, at: EachContext, ready: Mask, share: Array) -> Array:
        """Bound the minima of some contexts from below."""
        some = at if ready.all() else at.subset(ready)
        return some.bounds(at.hessian[ready])

    def step(self, at: EachContext, direction: Array, slope: Array) -> tuple[EachContext, Mask]:
        """Move every context, by a step shortened until its risk falls."""
        return line_search(at, direction, slope)

    def subset(self, keep: Mask) -> Fresh:
        """Go on with some of the contexts, of which nothing is kept."""
        return self


class Foreseen:
    """A Hessian for every step, and nothing proven: the least risk is taken to be what the last one foresees.

    For models that are to judge rows they have not seen, of whose risk no bound says anything.
    """

    is_thrifty = False
    most_steps = MAX_ITER
    polishes = True
    waits = False

    def direction(self, at: EachContext) -> Array:
        """Return Newton directions."""
        direction = -at.hessian.solve(at.gradient)
        self.promised = -0.5 * np.vecdot(at.gradient, direction)
        return direction

    def share(self, at: EachContext, ready: Mask) -> Array:
        """All of it is left: it is the one here."""
        return np.ones(len(at.theta))

    def bounds(self, at: EachContext, ready: Mask, share: Array) -> Array:
        """Return what is foreseen of some contexts' minima, which is no proof."""
        return at.value[ready] - self.promised[ready]

    def step(self, at: EachContext, direction: Array, slope: Array) -> tuple[EachContext, Mask]:
        """Move every context, by a step shortened until its risk falls."""
        return line_search(at, direction, slope)

    def subset(self, keep: Mask) -> Foreseen:
        """Go on with some of the contexts."""
        some = Foreseen()
        some.promised = self.promised[keep]
        return some


class Near:
    """Hessians that are known before the first step, of problems that begin near their minima.

    They are kept, and corrected by what gradients have shown since (BFGS); a problem for which its own has ceased to
    serve gets a new one. Nothing is proven: the least risk is taken to be what the Hessian foresees.

    Parameters
    ----------
    inverse : ndarray of shape (B, P, P)
        Inverse Hessians; they need not be exact.
    """

    is_thrifty = True
    most_steps = _MOST_KEPT
    polishes = False
    waits = False

    def __init__(self, inverse: Array) -> None:
        self.inverse = inverse
        self.before = np.full(len(inverse), np.inf)

    def direction(self, at: EachContext) -> Array:
        """Return directions; with a new Hessian where the last one has ceased to serve."""
        direction = self._direction(at.gradient, self.inverse)
        self.promised = -0.5 * np.vecdot(at.gradient, direction)
        poor = ~(self.promised <= _POOR * self.before)
        if poor.any():
            some = at if poor.all() else at.subset(poor)
            self.inverse[poor] = np.asarray(some.hessian.inverse())
            direction[poor] = self._direction(at.gradient[poor], self.inverse[poor])
            self.promised[poor] = -0.5 * np.vecdot(at.gradient[poor], direction[poor])
        return direction

    @staticmethod
    def _direction(gradient: Array, inverse: Array) -> Array:
        return -(inverse @ gradient[:, :, None])[:, :, 0]

    def share(self, at: EachContext, ready: Mask) -> Array:
        """Take the Hessian for the one here."""
        return np.ones(len(at.theta))

    def bounds(self, at: EachContext, ready: Mask, share: Array) -> Array:
        """Return what is foreseen of some contexts' minima, which is no proof."""
        return at.value[ready] - self.promised[ready]

    def step(self, at: EachContext, direction: Array, slope: Array) -> tuple[EachContext, Mask]:
        """Take the steps; where one leads uphill, shorter ones."""
        there, moved = at.at(at.theta + direction), np.ones(len(slope), dtype=bool)
        if not _have_flattened(there, direction, self.promised).all():
            there, moved = line_search(at, direction, slope)
        self.inverse = _corrected(self.inverse, there.theta - at.theta, there.gradient - at.gradient)
        self.before = self.promised
        return there, moved

    def subset(self, keep: Mask) -> Near:
        """Go on with some of the contexts."""
        some = Near(self.inverse[keep])
        some.before, some.promised = self.before[keep], self.promised[keep]
        return some


class Kept:
    """Hessians of contexts where they begin: they cost several gradients, and each is kept while it serves.

    Steps correct them by what gradients have shown since (BFGS); a context for which its own has ceased to serve gets a
    new one. A share of each, known from how far the predictions of its rows have moved, is below the Hessian wherever
    a proof is given.

    Parameters
    ----------
    at : EachContext
        The contexts, where they begin.
    hessian : Stack
        Their Hessians there, or estimates that know how much of them is certain.
    """

    is_thrifty = True
    most_steps = _MOST_KEPT
    polishes = False
    waits = False

    def __init__(self, at: EachContext, hessian: Stack) -> None:
        self.part: Any = at.part
        self.base = at.sums.predictions
        self.hessian = in_memory(hessian)
        self.inverse = self.hessian.inverse()
        self.before = np.full(len(hessian), np.inf)
        self.shown: list[tuple[Array, Array]] = []

    def direction(self, at: EachContext) -> Array:
        """Return directions; with a new Hessian where the last one has ceased to serve."""
        direction = self._direction(at)
        poor = ~(self.promised <= _POOR * self.before)
        return self._direction(at) if poor.any() and self._renew(at, poor) else direction

    def _direction(self, at: EachContext) -> Array:
        direction = -two_loops(self.inverse.product, self.shown, at.gradient)
        self.promised = -0.5 * np.vecdot(at.gradient, direction)
        return direction

    def _renew(self, at: EachContext, which: Mask) -> bool:
        """Take the Hessians of some contexts from here on; tell whether any of them is another one."""
        rows = self.part.layout.each(which)
        here = at.sums.predictions[rows]
        if np.array_equal(here, self.base[rows]):
            return False
        some = at if which.all() else at.subset(which)
        # Far from where contexts began a sample leads as well, and the next steps correct it.
        fresh = in_memory(some.sampled_hessian)
        self.inverse = self.inverse.replaced(which, fresh.inverse())
        self.hessian = self.hessian.replaced(which, fresh).knowing(self.inverse)
        self.base = self.base.copy()
        self.base[rows] = here
        self.before[which] = np.inf
        # What gradients have shown is about the old ones.
        self.shown = [(np.where(which[:, None], 0.0, change), bend) for change, bend in self.shown]
        return True

    def share(self, at: EachContext, ready: Mask) -> Array:
        """Return how much of each Hessian is certainly left here; with a new one for those of which too little is."""
        left = self._left(at)
        little = ready & (left < _LITTLE)
        left = self._left(at) if little.any() and self._renew(at, little) else left
        return left * self.hessian.certain

    def _left(self, at: EachContext) -> Array:
        """Return how much of the curvature of each Hessian's rows is certainly left here."""
        third_order = at.loss.third_order
        assert third_order is not None
        return np.exp(-third_order * at.sums.moved_from(self.base))

    def bounds(self, at: EachContext, ready: Mask, share: Array) -> Array:
        """Bound the minima of some contexts from below."""
        some = at if ready.all() else at.subset(ready)
        return some.bounds(self.hessian[ready].scaled(share[ready]))

    def step(self, at: EachContext, direction: Array, slope: Array) -> tuple[EachContext, Mask]:
        """Take the steps; where one leads uphill, shorter ones."""
        there, moved = line_search(at, direction, slope)
        self.shown.append((there.theta - at.theta, there.gradient - at.gradient))
        self.before = self.promised
        return there, moved

    def subset(self, keep: Mask) -> Kept:
        """Go on with some of the contexts."""
        some = object.__new__(Kept)
        some.part, some.base = self.part.subset(keep), self.base[self.part.layout.each(keep)]
        some.hessian, some.inverse = self.hessian[keep], self.inverse[keep]
        some.before, some.promised = self.before[keep], self.promised[keep]
        some.shown = [(change[keep], bend[keep]) for change, bend in self.shown]
        return some


class Lazy:
    """Hessians of contexts that share their passes: they cost several gradients, and are kept while they serve all.

    Steps correct them by what gradients have shown since (BFGS). A share of each, known from how far the predictions of
    its rows have moved, is below the Hessian wherever a proof is given. Since no context makes a pass shorter, all are
    proven at once. What cannot be proven in this way at a second try gets a Hessian of its own.

    Parameters
    ----------
    goal : float
        Half the squared Newton decrement that contexts are to come to.
    """

    is_thrifty = False
    most_steps = MAX_ITER
    polishes = False
    waits = True

    def __init__(self, goal: float) -> None:
        self.goal = goal
        self.hessian: Stack | None = None
        self.shown: list[tuple[Array, Array]] = []

    def direction(self, at: EachContext) -> Array:
        """Return directions; with new Hessians where those that are kept would take more steps than these cost."""
        if self.hessian is not None:
            direction = -two_loops(self.hessian.solve, self.shown, at.gradient)
            self.promised = -0.5 * np.vecdot(at.gradient, direction)
            if self._steps_left() <= _WORTH:
                return direction
        else:
            self.failed = np.zeros(len(at.theta), dtype=bool)
        self.hessian, self.base, self.shown = at.rough_hessian, at.sums, []
        direction = -self.hessian.solve(at.gradient)
        self.promised = -0.5 * np.vecdot(at.gradient, direction)
        self.before = np.full(len(direction), np.inf)
        return direction

    def _steps_left(self) -> float:
        """Return how many steps the slowest context will take, at the rate of its last one."""
        if (self.before == 0.0).any():
            return np.inf
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            rate = np.log(self.promised / self.before)
            left = np.log(self.goal / self.promised) / np.minimum(rate, -1e-300)
        left = np.where(self.promised > self.goal, left, 0.0)
        # Nothing is known of the rate before the second step.
        return float(np.max(np.where(np.isfinite(self.before), left, 0.0), initial=0.0))

    def share(self, at: EachContext, ready: Mask) -> Array:
        """Return how much of each Hessian is certainly left here."""
        third_order = at.loss.third_order
        assert third_order is not None
        return np.exp(-third_order * at.sums.moved_each(self.base))

    def bounds(self, at: EachContext, ready: Mask, share: Array) -> Array:
        """Bound the minima of some contexts from below."""
        assert self.hessian is not None
        some = at if ready.all() else at.subset(ready)
        below = self.hessian[ready].below().scaled(share[ready])
        left = promised_at_most(some, some.gradient, below)
        bounds = np.maximum(some.lowest, some.value - left)
        # The Hessians here are known, nothing more can be hoped for from steps, or they have been waited for already.
        late = self.failed[ready] | (self.promised[ready] <= self.goal) | self.base.is_here(at.sums)
        again = ~np.isfinite(left) & late
        if again.any():
            rest = some.subset(again)
            bounds[again] = np.maximum(bounds[again], rest.bounds(rest.hessian))
        self.failed[ready] |= ~np.isfinite(left)
        return bounds

    def step(self, at: EachContext, direction: Array, slope: Array) -> tuple[EachContext, Mask]:
        """Move every context, by a step shortened until its risk falls."""
        self.before = self.promised
        # What waits has nothing to gain but rounding.
        going = self.promised > _DONE * self.goal
        there, moved = line_search(at, np.where(going[:, None], direction, 0.0), np.where(going, slope, 0.0))
        if not moved.all() and not self.base.is_here(at.sums):
            # That was not the Hessian's last word: the next one is of this place.
            self.before = np.where(moved, self.before, 0.0)
            return there, np.ones_like(moved)
        change, bend = there.theta - at.theta, there.gradient - at.gradient
        foreseen = -np.vecdot(change, at.gradient)
        # A change of the gradient that is far from what the Hessian foresees, next to rounding, shows nothing.
        shown = np.vecdot(change, bend) > 0.1 * foreseen
        self.shown.append((np.where(shown[:, None], change, 0.0), bend))
        return there, moved

    def subset(self, keep: Mask) -> Lazy:
        """Go on with some of the contexts."""
        some = Lazy(self.goal)
        assert self.hessian is not None
        some.hessian, some.base, some.failed = self.hessian[keep], self.base, self.failed[keep]
        some.before, some.promised = self.before[keep], self.promised[keep]
        some.shown = [(change[keep], bend[keep]) for change, bend in self.shown]
        return some


def in_memory(stack: Stack) -> ArrayStack:
    """Return a stack of rows in memory, which is there too."""
    assert isinstance(stack, ArrayStack)
    return stack


def two_loops(solve: Callable[[Array], Array], shown: list[tuple[Array, Array]], gradient: Array) -> Array:
    """Solve with Hessians that are corrected by moves and how these changed the gradients (BFGS, by two loops)."""
    passed: list[tuple[Array, Array, Array, Array]] = []
    for change, bend in reversed(shown):
        along = np.vecdot(change, bend)
        # A move as short as rounding shows nothing.
        over = np.divide(1.0, along, out=np.zeros_like(along), where=along > 1e-100)
        size = over * np.vecdot(change, gradient)
        gradient = gradient - size[:, None] * bend
        passed.append((change, bend, over, size))
    step = solve(gradient)
    for change, bend, over, size in reversed(passed):
        step = step + (size - over * np.vecdot(bend, step))[:, None] * change
    return step


def _have_flattened(there: EachContext, direction: Array, promised: Array) -> Mask:
    """Tell whether slopes along steps have all but vanished, which says as much as the values, and costs less."""
    with np.errstate(invalid="ignore"):
        ahead = np.abs(np.vecdot(there.gradient, direction))
        return np.asarray(ahead <= promised)


def _corrected(inverse: Array, change: Array, bend: Array) -> Array:
    """Return inverse Hessians corrected to map a change of the gradient to the move behind it (BFGS).

    Parameters
    ----------
    inverse : ndarray of shape (B, P, P)
    change, bend : ndarray of shape (B, P)
        The moves, and how they changed the gradients.
    """
    along = np.vecdot(change, bend)
    # A move as short as rounding shows nothing.
    shown = along > 1e-100
    change, bend = (np.where(shown[:, None], one, 0.0) for one in (change, bend))
    over = change / np.where(shown, along, 1.0)[:, None]
    image = (inverse @ bend[:, :, None])[:, :, 0]
    cross = image[:, :, None] * over[:, None, :]
    size = 1.0 + np.vecdot(bend, image) / np.where(shown, along, 1.0)
    return inverse + size[:, None, None] * change[:, :, None] * over[:, None, :] - cross - cross.swapaxes(1, 2)


def line_search(at: EachContext, direction: Array, slope: Array) -> tuple[EachContext, Mask]:
    """Move every context, by a step shortened until its risk falls; also tell which ones moved."""
    # Sums that are added up in another order every time differ by this much.
    slack = at.rounding * np.abs(at.value)
    length, shorter = np.ones(len(slope)), 0.5 if at.at_hand else 0.25
    for attempt in range(50):
        trial = at.at(at.theta + length[:, None] * direction)
        with np.errstate(invalid="ignore"):
            fell = trial.value <= at.value + 1e-4 * length * slope + slack
        if fell.all():
            return trial, fell
        length = np.where(fell, length, shorter * length)
        if attempt == 3 and at.at_hand:
            # Far from the minimum the curvature can mislead; a matrix that bounds it from above gives a sure step.
            direction, slope = _majorant_step(at, ~fell, direction, slope)
            length = np.where(fell, length, 1.0)
    return at.at(at.theta + np.where(fell, length, 0.0)[:, None] * direction), fell


def _majorant_step(at: EachContext, stuck: Mask, direction: Array, slope: Array) -> tuple[Array, Array]:
    """Replace the directions of stuck contexts by the minimiser of a quadratic upper bound, where there is one."""
    some = at.subset(stuck)
    above = some.majorant()
    if above is None:
        return direction, slope
    direction, slope = direction.copy(), slope.copy()
    direction[stuck] = -solve_stack(above, some.gradient)
    slope[stuck] = np.vecdot(some.gradient, direction[stuck])
    return direction, slope
