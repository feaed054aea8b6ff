"""A model of its own for every context, and the risk it reaches there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from scipy import sparse

from counterpoise.core import banded
from counterpoise.core.objective import ReferenceRisks, RobustObjective
from counterpoise.core.oracle import Oracle
from counterpoise.core.oracle._base import Array
from counterpoise.core.oracle.bounds import bounds_of_balanced
from counterpoise.core.oracle.kinked import KinkedOracle
from counterpoise.core.oracle.linear import EachContext, LinearOracle, LinearPoint
from counterpoise.core.oracle.scalar_blocks import scalar_form
from counterpoise.core.references import by_class
from counterpoise.core.references.kinked import Programs, solve_programs
from counterpoise.core.references.newton import MAX_ITER, Foreseen, Kept, Lazy, in_memory, minimise
from counterpoise.core.solvers import Newton, NewtonCG, PolyhedralInteriorPoint, Solver, TruncatedNewton
from counterpoise.core.solvers.interior_point import rough_erm
from counterpoise.core.solvers.model_newton import MANY_CONTEXTS
from counterpoise.linalg import ArrayStack, solve_stack
from counterpoise.rows import Codes, Coefficients, Mask, MemoryRows, blocks
from counterpoise.rows.memory import BATCH_ENTRIES, MemoryPart
from counterpoise.sets import KLBall
from counterpoise.threads import spread

SKETCHED = 10_000
"""Rows of which a first answer is sought, where there are at least twice as many."""

_SKETCHED_ENTRIES = 1 << 18
"""Entries of them, where parameters are many."""

_PER_PARAMETER = 15
"""Rows for each parameter, at the least."""

_PER_CLASS_PARAMETER = 8
"""The same where classes are several and parameters many: most rows tell little of most of them."""

MANY_ENTRIES = 2e5
"""Rows times parameters from which Hessians are kept: below, a step more is cheaper than what it would save."""

_FINE = 1e-11
"""Accuracy so close to rounding that only a Hessian of the very place leads there."""

LONG = 128
"""Rows of a context from which its Hessian may be kept."""

_CLOSE = 0.1
"""Share of the accuracy asked for, as a goal of steps whose Hessians are kept: less than all of them is certain."""

_HARDLY_WORSE = 0.1
"""Share of the risk of a constant prediction by which parameters may be worse, and still be where to begin."""

MOST_ENTRIES = 1 << 25
"""Entries of all contexts' Hessians together, up to which they are kept (256 MB)."""

_WORTH_KEEPING = 10
"""Rows of a context per parameter from which its Hessian is quicker to work with than they are, where many are kept."""

_SOFT_STEPS = 30
"""Newton steps after which a soft hinge is taken to be too far from most rows."""

Found = tuple[Array, Array, Array]
"""Least risks, their lower bounds, and where they are reached."""


@dataclass(frozen=True, eq=False)
class Specialists:
    """The model that is best for each context alone.

    Attributes
    ----------
    risks : ReferenceRisks
        What each reaches in its own context.
    theta : ndarray of shape (n_contexts, n_parameters)
    begin : LinearPoint, optional
        Where all of them began, with the Hessian of every context's risk: about the best parameters for all rows. None
        where they did not begin at one point, or Hessians are too large to be kept.
    """

    risks: ReferenceRisks
    theta: Array
    begin: LinearPoint | None = None


def reference_risks(oracle: LinearOracle, tol: float, sketch: LinearPoint | None = None) -> ReferenceRisks:
    """Minimise every context's risk on its own; see :func:`fit_specialists`."""
    return fit_specialists(oracle, tol, sketch).risks


def fit_specialists(
    oracle: LinearOracle, tol: float, begin: LinearPoint | Array | None = None, *, proven: bool = True
) -> Specialists:
    """Minimise every context's risk on its own.

    Parameters
    ----------
    tol : float
        Accuracy asked of each reference, relative to how far the risks are above their lower bounds on average.
    begin : LinearPoint, or ndarray of shape (n_contexts, n_parameters), optional
        Where to begin: what :func:`sketched` says of these rows, or parameters for each context, as from a fit to
        nearly the same rows.
    proven : bool
        Whether lower bounds are needed. Without them they are what Newton's method foresees, where that is less work.
    """
    if oracle.is_scalar:
        least, theta = scalar_form(oracle).context_minima()
        return Specialists(ReferenceRisks.exactly(least), theta[:, None])
    alone = too_large_to_join(oracle)
    upper, lower = np.empty(oracle.n_contexts), np.empty(oracle.n_contexts)
    theta = np.empty((oracle.n_contexts, oracle.n_parameters))
    for k in np.flatnonzero(alone):
        upper[k], lower[k], theta[k] = _solve_alone(oracle.context(int(k)), tol)
    joined = np.flatnonzero(~alone)
    if joined.size:
        some = oracle if joined.size == oracle.n_contexts else oracle.subset(joined)
        own = begin[joined] if isinstance(begin, np.ndarray) else begin
        begun = _Beginning.of(some, own) if not alone.any() and tol > _FINE else None
        upper[joined], lower[joined], theta[joined] = _solve_together(some, tol, own, begun, proven)
    common = begun.point if joined.size and begun is not None else None
    return Specialists(ReferenceRisks(upper, np.minimum(lower, upper)), theta, common)


def _solve_together(
    oracle: LinearOracle, tol: float, begin: LinearPoint | Array | None, begun: _Beginning | None, proven: bool
) -> Found:
    """Minimise risks part by part; once more where the references themselves have to set the scale."""
    floor = np.where(np.isfinite(oracle.lowest_risks), oracle.lowest_risks, 0.0)
    flat = oracle.at(oracle.start())
    scale = max(float(np.mean(np.abs(flat.risks - floor))), 1e-3 * oracle.typical_risk)
    if oracle.loss.is_hinged:
        upper, lower, theta = _kinked(flat, tol, scale, begin)
    else:
        upper, lower, theta = _smooth(flat, tol, scale, begin, begun, proven=proven)
    reached = max(float(np.mean(np.abs(upper - floor))), 1e-3 * oracle.typical_risk)
    # Data that every context fits (nearly) perfectly. No accuracy is finer than that of a hundredth of the scale.
    lacking = upper - lower > 1e-2 * tol * reached
    if reached < 1e-2 * scale and lacking.any():
        c = np.flatnonzero(lacking) if oracle.rows.at_hand else np.arange(oracle.n_contexts)
        some = oracle.subset(c) if oracle.rows.at_hand else oracle
        if oracle.loss.is_hinged:
            least, bound, where = _kinked(some.at(flat.theta), tol, reached, theta[c])
        else:
            least, bound, where = _smooth(some.at(flat.theta), tol, reached, theta[c], proven=proven)
        better = least < upper[c]
        upper[c[better]], theta[c[better]] = least[better], where[better]
        # What was proven stays so, where closer to the minimum rounding leaves no proof.
        lower[c] = np.maximum(lower[c], bound)
    return upper, lower, theta


def is_large(oracle: LinearOracle) -> bool:
    """Tell whether looks at the rows are what a fit in memory costs."""
    return bool(oracle.rows.n_rows * oracle.n_parameters >= MANY_ENTRIES)


def sketched(oracle: LinearOracle, counts: Array) -> LinearPoint | None:
    """Return about the best parameters for all rows, as a part of them has it where rows are many.

    None where that is not known at once: rows that are elsewhere, without a Hessian, or with kinks.
    """
    if not (oracle.rows.knows_predictions and oracle.forms_hessian) or oracle.loss.is_hinged:
        return None
    rows = oracle.rows
    few, classes = min(SKETCHED, _SKETCHED_ENTRIES // oracle.n_parameters), by_class.suits(oracle)
    enough = max(few, (_PER_CLASS_PARAMETER if classes else _PER_PARAMETER) * oracle.n_parameters)
    every = rows.n_rows // enough if rows.at_hand else 1
    some = replace(oracle, rows=rows.thinned(every)) if every > 1 else oracle
    if classes:
        return some.at(by_class.rough_minimum(some, counts))
    nothing = ReferenceRisks.exactly(np.zeros(len(counts)))
    point = rough_erm(RobustObjective(some, KLBall(counts / counts.sum(), 0.0), nothing), some.start())
    assert isinstance(point, LinearPoint)
    return point


def _kinked(flat: LinearPoint, tol: float, scale: float, begin: Any) -> Found:
    """Minimise every risk of a hinged loss, part by part."""
    oracle, found = flat.oracle, []
    if banded.suits(oracle):
        proven = banded.minimise_each(flat, tol, scale, _kinked)
        if proven is not None:
            return proven
    if oracle.loss.softness > 0.0:
        # A soft hinge has curvature, unless most rows are far from it.
        upper, lower, theta = _smooth(flat, tol, scale, begin, max_iter=_SOFT_STEPS)
        floor = np.where(np.isfinite(oracle.lowest_risks), oracle.lowest_risks, 0.0)
        if (upper - lower <= tol * np.clip(np.abs(upper - floor), 1e-2 * scale, scale)).all():
            return upper, lower, theta
    for contexts, make in oracle.rows.parts():
        part = make()
        homes = blocks.in_memory(oracle.rows, part) if isinstance(part, MemoryPart) else oracle.rows.blocks
        programs = Programs.start(homes, oracle, len(contexts))
        found.append((contexts, solve_programs(programs, part.lowest, tol, scale)))
    return _in_order(found)


@dataclass(eq=False)
class _Beginning:
    """What parts have found where all contexts begin: every risk to second order."""

    oracle: LinearOracle
    theta: Array
    parts: list[tuple[Codes, Array, Array, ArrayStack | None, Array]] = field(default_factory=list)

    @classmethod
    def of(cls, oracle: LinearOracle, begin: Any) -> _Beginning | None:
        """Return nothing yet; None where it could not be used, or kept."""
        if not isinstance(begin, LinearPoint) or oracle.loss.third_order is None or not oracle.rows.at_hand:
            return None
        n, size = oracle.n_contexts, oracle.n_parameters
        few = n >= MANY_CONTEXTS * size and oracle.rows.n_rows < _WORTH_KEEPING * n * size
        kept = by_class.suits(oracle) or (n * size**2 <= MOST_ENTRIES and not few)
        return cls(oracle, begin.theta) if kept and is_large(oracle) else None

    def add(self, contexts: Codes, there: EachContext) -> None:
        """Take what is known of some contexts, and let their rows go."""
        sums = there.sums
        hessian = None if by_class.suits(self.oracle) else in_memory(there.rough_hessian)
        predictions = self.oracle.rows.unpadded(contexts, sums)
        self.parts.append((contexts, sums.values, sums.gradients, hessian, predictions))

    @property
    def point(self) -> LinearPoint | None:
        """The point, once all parts are there."""
        rows, size = self.oracle.rows, self.oracle.n_parameters
        n = rows.n_contexts
        if sum(len(contexts) for contexts, *_ in self.parts) < n:
            return None
        values, gradients = np.empty(n), np.empty((n, size))
        for contexts, value, gradient, *_ in self.parts:
            values[contexts], gradients[contexts] = value, gradient
        predictions = [(contexts, own) for contexts, *_, own in self.parts]
        sums = rows.known_at(self.theta, values, gradients, predictions)
        return LinearPoint.known(self.oracle, sums, self._hessians())

    def _hessians(self) -> ArrayStack | None:
        """Return the Hessian of every context's risk, where it is known."""
        n, size = self.oracle.n_contexts, self.oracle.n_parameters
        if by_class.suits(self.oracle):
            return None
        matrices, certain = np.empty((n, size, size)), np.empty(n)
        for contexts, _, _, hessian, _ in self.parts:
            assert hessian is not None
            matrices[contexts], certain[contexts] = hessian.matrices, hessian.certain
        return ArrayStack(matrices, certain, self.oracle.ridge.null)


def _smooth(
    flat: LinearPoint,
    tol: float,
    scale: float,
    begin: Any,
    begun: _Beginning | None = None,
    max_iter: int = MAX_ITER,
    proven: bool = True,
) -> Found:
    """Minimise every risk by Newton steps, part by part: long contexts with Hessians that are kept.

    They begin at a point that all share (a LinearPoint), or at parameters of their own (an array), or at a constant
    prediction (``flat``) where that is better.
    """
    oracle, rows = flat.oracle, flat.oracle.rows
    sketch = begin if isinstance(begin, LinearPoint) else None

    def at(contexts: Codes, part: Any) -> EachContext:
        own = np.tile(flat.theta, (len(contexts), 1))
        if begin is None:
            return EachContext(part, oracle.alpha, own)
        theta = np.tile(sketch.theta, (len(contexts), 1)) if sketch is not None else begin[contexts]
        there = EachContext(part, oracle.alpha, theta)
        if sketch is None:
            return there
        # The look that brings values comes before the Hessian: it reads rows once for all.
        good = there.value < flat.risks[contexts] + _HARDLY_WORSE * (flat.risks[contexts] - floor[contexts])
        if begun is not None:
            begun.add(contexts, there)
        if present is not None:
            theta = by_class.without_absent(theta, present[contexts])
        same = good.all() and np.array_equal(theta, there.theta)
        return there if same else there.at(np.where(good[:, None], theta, own))

    floor = np.where(np.isfinite(oracle.lowest_risks), oracle.lowest_risks, flat.risks)
    longest = np.zeros(oracle.n_contexts, dtype=bool)
    present = by_class.present_classes(oracle) if by_class.suits(oracle) else None
    found: list[tuple[Codes, Found]] = []
    if sketch is not None and rows.at_hand and is_large(oracle) and tol > _FINE and not sparse.issparse(rows.X):
        few = 0 if by_class.suits(oracle) else 4 * oracle.n_parameters
        longest = (rows.sizes >= max(LONG, few)) & (oracle.loss.third_order is not None)
    if sketch is not None and longest.any():

        def keep(contexts: Codes) -> tuple[Codes, Found]:
            there = at(contexts, rows.grouped(contexts))
            # A twentieth of what is asked of the fit will do, where more is a look at many rows.
            policy: Any = None
            if present is not None:
                policy = by_class.ByClass(there, present[contexts])
            return contexts, minimise(there, 5.0 * tol, scale, policy or Kept(there, there.rough_hessian))

        found += spread(keep, rows.batches(longest))

    def solve(chosen: tuple[Codes, Any]) -> tuple[Codes, Found]:
        contexts, make = chosen
        part = make()
        if isinstance(part, MemoryPart) and oracle.alpha > 0.0 and (condensed := part.condensed()) is not None:
            return contexts, _condensed(at(contexts, part), *condensed, tol, scale, proven)
        lazy = part.knows_predictions and not part.at_hand and oracle.loss.third_order is not None
        policy = Lazy(_CLOSE * tol * scale) if lazy else None if proven else Foreseen()
        return contexts, minimise(at(contexts, part), tol, scale, policy, max_iter)

    rest = ~longest
    if isinstance(rows, MemoryRows) and oracle.alpha > 0.0 and (contexts := np.flatnonzero(rest & rows.are_short)).size:
        short = rows.grouped(contexts)
        if (minimiser := short.minimiser) is not None:
            some, least = _by_compiled(at(contexts, short), minimiser, tol, scale)
            found.append((contexts[some], least))
            rest[contexts[some]] = False
    others = rows.parts() if rest.all() else rows.parts(rest)
    return _in_order(found + spread(solve, others))


def _by_compiled(at: EachContext, minimiser: Callable[..., Array], tol: float, scale: float) -> tuple[Mask, Found]:
    """Minimise the risks of contexts of few rows by compiled code; return which are proven, and what was found."""
    theta = minimiser(at.theta, at.alpha)
    # Where there is no end to it numbers are not finite; they must not spoil the bounds of others.
    there = at.at(np.where(np.isfinite(theta), theta, at.theta))
    lower = np.maximum(there.lowest, np.minimum(bounds_of_balanced(there), there.value))
    proven = there.value - lower <= tol * np.clip(there.above, 1e-2 * scale, scale)
    return proven, (there.value[proven], lower[proven], there.theta[proven])


def _in_order(found: list[tuple[Codes, Found]]) -> Found:
    back = np.argsort(np.concatenate([contexts for contexts, _ in found]))
    upper, lower, theta = (np.concatenate(part)[back] for part in zip(*(one for _, one in found), strict=True))
    return upper, lower, theta


def _condensed(at: EachContext, part: MemoryPart, basis: Array, tol: float, scale: float, proven: bool) -> Found:
    """Minimise the risks of contexts in as few parameters as their rows allow."""
    shape = at.part.coefficients
    matrix = at.theta.reshape(len(at.theta), shape.n_outputs, -1)
    d = shape.n_features
    theta = np.concatenate([matrix[:, :, :d] @ basis, matrix[:, :, d:]], axis=2).reshape(len(matrix), -1)
    begin = _past_all_rows(EachContext(part, at.alpha, theta), part)
    upper, lower, theta = minimise(begin, tol, scale, None if proven else Foreseen())
    return upper, lower, expanded(theta, part.coefficients, basis)


def expanded(theta: Array, shape: Coefficients, basis: Array) -> Array:
    """Return parameters of condensed contexts as those of the contexts they came from."""
    matrix = theta.reshape(len(theta), shape.n_outputs, -1)
    d = shape.n_features
    whole = np.concatenate([matrix[:, :, :d] @ basis.transpose(0, 2, 1), matrix[:, :, d:]], axis=2)
    return np.asarray(whole.reshape(len(theta), -1))


def _past_all_rows(at: EachContext, part: MemoryPart) -> EachContext:
    """Return contexts of few rows at parameters that serve every row of them, where that is better.

    As many features as rows can be led to any predictions; step by step it is a long way there.
    """
    wish = part.loss.beyond(part.target)
    if wish is None:
        return at
    X = part.layout.X
    n, length, d = X.shape
    rows = solve_stack(X @ X.transpose(0, 2, 1), wish.reshape(n, length))
    theta = np.zeros_like(at.theta)
    theta[:, :d] = np.einsum("bl,bld->bd", rows, X)
    far = np.array([2.0, 4.0, 8.0, 16.0])
    tried = [at.at(k * theta) for k in far]
    values = [one.value for one in tried]
    best = np.argmin(values, axis=0)
    better = np.min(values, axis=0) < at.value
    return at.at(np.where(better[:, None], far[best][:, None] * theta, at.theta))


def too_large_to_join(oracle: LinearOracle) -> np.ndarray:
    """Mark contexts to be solved one by one: a batch has no room for their Hessian, or would fill in their zeros."""
    if not oracle.forms_hessian:
        return np.ones(oracle.n_contexts, dtype=bool)
    if not oracle.rows.at_hand or not sparse.issparse(oracle.rows.X):
        return np.zeros(oracle.n_contexts, dtype=bool)
    return oracle.rows.sizes * oracle.n_features > BATCH_ENTRIES


def _solve_alone(oracle: LinearOracle, tol: float) -> tuple[float, float, Array]:
    """Minimise the risk of the only context there is."""
    form: Oracle = oracle
    solvers: list[type[Solver]] = [Newton]
    if not oracle.forms_hessian:
        solvers = by_products(oracle)
    elif oracle.loss.is_hinged:
        form, solvers = KinkedOracle.of(oracle), [PolyhedralInteriorPoint]
    point, nothing = KLBall(np.ones(1), 0.0), ReferenceRisks.exactly(np.zeros(1))
    solutions = []
    for solver in solvers:
        solutions.append(solver(tol=tol).solve(RobustObjective(form, point, nothing)))
        if solutions[-1].success:
            break
    best = min(solutions, key=lambda solution: solution.certificate.relative_gap)
    return best.certificate.upper, best.certificate.lower, best.theta


def by_products(oracle: LinearOracle) -> list[type[Solver]]:
    """Return the solvers for more parameters than a square matrix can have, the fastest first."""
    # Without a ridge nothing is proven there, and without curvature there is nothing to take products with.
    flat = oracle.loss.is_hinged and oracle.loss.softness == 0.0
    return [NewtonCG] if flat or oracle.alpha == 0.0 else [TruncatedNewton, NewtonCG]
