"""Piecewise linear losses of many rows: only those near their hinges matter, and they fit into memory.

A sample of the rows says about where the minimum is, and how far off that may be. Rows whose predictions are further
from their hinges do not change sides: their means take their place (:mod:`counterpoise.rows.banded`), and what is left
is solved in memory. That bounds the minimum from below; the next pass says what the solution is worth, and finds the
rows near their hinges there. Where even these are too many, some are drawn, which leaves a smaller error than before.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import sparse

from counterpoise.core.objective import Certificate, ReferenceRisks, RobustObjective
from counterpoise.core.oracle._base import Array
from counterpoise.core.oracle.linear import LinearOracle, LinearPoint
from counterpoise.core.solvers import Progress, Solution, Status
from counterpoise.rows import Codes, Mask
from counterpoise.rows.banded import Band, BandAnswer

_PER_ROOT = 4.0
"""Rows of a context in memory, in roots of rows times parameters: then what is drawn decides about fewer than that."""

_SURE = 3.0
"""Standard errors of a prediction within which its row may change sides."""

_NEAR, _PER_KINK = 0.15, 10.0
"""Share of rows in memory that is near their hinges when a minimum is about known; at least so many per kink."""

_ROUNDS = 8
"""Passes after which the rows near their hinges are taken not to be found."""

_ROUGH, _WITHIN = 1e-4, 0.3
"""Accuracy asked of a solution for rows that were drawn; and of one for all, as a share of what is asked in the end."""

_FAR = 1e-2
"""Relative gap after a first pass from which all rows are looked at instead, where they are in memory."""

Found = tuple[Array, Array, Array]
"""Least risks, their lower bounds, and where they are reached."""


def suits(oracle: LinearOracle) -> bool:
    """Tell whether a loss has kinks, a pass over the rows is dear, and those near their hinges fit into memory."""
    rows = oracle.rows
    if not _has_kinks(oracle) or rows.at_hand or not rows.computes_here:
        return False
    return bool(_room(rows.sizes, oracle.n_parameters).sum() * oracle.n_parameters <= rows.most_entries)


def serves(oracle: LinearOracle) -> bool:
    """Tell whether a loss has kinks, and rows in memory are so many that few of them need to be looked at."""
    if not (_has_kinks(oracle) and oracle.rows.at_hand) or sparse.issparse(oracle.rows.X):
        return False
    return _near_share(oracle) <= 2.0 * _NEAR


def _has_kinks(oracle: LinearOracle) -> bool:
    loss = oracle.loss
    return loss.is_hinged and loss.is_of_residual and loss.softness == 0.0 and not oracle.is_scalar


def _near_share(oracle: LinearOracle) -> float:
    """Return the share of rows in memory that are taken as near their hinges."""
    return max(_NEAR, _PER_KINK * (oracle.n_parameters + oracle.n_contexts) / oracle.rows.n_rows)


def _room(sizes: Array, n_parameters: int) -> Array:
    """Return how many rows of each context are taken into memory."""
    return np.minimum(sizes, np.ceil(_PER_ROOT * np.sqrt(sizes * n_parameters)))


@dataclass(frozen=True, eq=False)
class Reduction:
    """Rows in memory that stand for all rows of some contexts.

    Attributes
    ----------
    oracle : LinearOracle
        Of these contexts alone.
    is_whole : ndarray of bool of shape (n,)
        Whether all rows near their hinges are here, so that risks are nowhere above the true ones.
    noise : ndarray of shape (n,)
        Variance of a mean over the rows near their hinges, for their being drawn, in that of one of them.
    near, width : ndarray of shape (n,)
        The weight of rows near their hinges, and how far from these that is.
    """

    oracle: LinearOracle
    is_whole: Mask
    noise: Array
    near: Array
    width: Array

    def accuracy(self, tol: float) -> float:
        """Return what is asked of a solution in memory for one of this accuracy among all rows."""
        if not self.is_whole.any():
            return _ROUGH
        # With every row there is nothing between the two.
        return tol if self.is_whole.all() and np.isinf(self.width).all() else _WITHIN * tol

    def density(self, theta: Array) -> Array:
        """Return how densely predictions lie around their hinges, in each context."""
        banded = np.isfinite(self.width) & (self.width > 0.0)
        inside = self.near / (2.0 * np.where(banded, self.width, 1.0))
        if banded.all():
            return inside
        rows = self.oracle.rows
        away = np.abs(rows.at(theta).predictions - rows.target)
        parts = np.split(away, rows.starts[1:-1])
        tenth, half = np.array([np.quantile(part, [0.1, 0.5]) for part in parts]).T
        tiny = np.finfo(np.float64).tiny
        return np.where(banded, inside, np.minimum(0.05 / np.maximum(tenth, tiny), 0.25 / np.maximum(half, tiny)))

    def error(self, theta: Array, mix: Array | None = None) -> Array:
        """Return the standard error of predictions, for rows being drawn, at the minima or at that of a mixture."""
        # Slopes of rows near their hinges vary by half their range, and turn by all of it.
        n, density = self.oracle.n_parameters, np.maximum(self.density(theta), np.finfo(np.float64).tiny)
        if mix is None:
            return 0.5 * np.sqrt(n * self.noise) / density
        one = 0.5 * math.sqrt(n * float(mix**2 @ self.noise)) / max(float(mix @ density), 1e-300)
        return np.full(len(density), one)


class Bands:
    """Around the hinges of which rows are taken into memory, from pass to pass.

    Parameters
    ----------
    oracle : LinearOracle
        Of all rows.
    """

    def __init__(self, oracle: LinearOracle) -> None:
        self.oracle, self.sizes = oracle, np.asarray(oracle.rows.sizes, dtype=np.float64)
        self.room = _room(self.sizes, oracle.n_parameters)
        self.width, self.share = np.full(len(self.sizes), np.inf), self._share(self.sizes, self.room)
        self.answer: BandAnswer | None = None

    @staticmethod
    def _share(expected: Array, room: Array) -> Array:
        """Return which share of rows is drawn where so many are expected."""
        return np.where(expected <= 2.0 * room, 1.0, room / np.maximum(expected, 1.0))

    def around(self, theta: Array) -> None:
        """Set bands that hold a certain share of rows, which are in memory, all of which are taken."""
        rows = self.oracle.rows
        away = np.abs(rows.at(theta).predictions - rows.target)
        self.width[:], self.share[:] = np.quantile(away, _near_share(self.oracle)), 1.0

    def look(self, theta: Array, chosen: Codes) -> None:
        """Look at all rows, and find those of some contexts that are near their hinges."""
        rows, resting = self.oracle.rows, np.ones(len(self.sizes), dtype=bool)
        resting[chosen] = False
        self.answer = rows.blocks.ask(Band(theta, np.where(resting, -1.0, self.width), self.share))
        if not rows.at_hand:
            rows.remember(theta, self.answer)

    def reduced(self, chosen: Codes) -> Reduction:
        """Return the problem of some contexts with the rows that were found."""
        answer, rows = self.answer, self.oracle.rows
        assert answer is not None
        kept = answer.rows(rows.loss, rows.coefficients.fit_intercept, chosen)
        drawn, n_near = np.bincount(answer.codes, minlength=len(self.sizes))[chosen], answer.n_near[chosen]
        missing = 1.0 - drawn / np.maximum(n_near, 1.0)
        near = answer.near[chosen]
        noise = missing * near / np.maximum(drawn, 1.0)
        return Reduction(replace(self.oracle, rows=kept), drawn >= n_near, noise, near, self.width[chosen])

    def narrow(self, chosen: Codes, density: Array, error: Array) -> None:
        """Set the next bands, for solutions whose predictions have these standard errors."""
        # Rows have changed sides although none was left out: the same band around a better place.
        width = np.where(error > 0.0, _SURE * error, self.width[chosen])
        expected = np.minimum(2.0 * width * density, 1.0) * self.sizes[chosen]
        self.width[chosen], self.share[chosen] = width, self._share(expected, self.room[chosen])


def minimise_each(flat: LinearPoint, tol: float, scale: float, solve: Callable[..., Found]) -> Found | None:
    """Minimise the risk of every context.

    Parameters
    ----------
    flat : LinearPoint
        A constant prediction.
    tol, scale : float
        Accuracy asked of each context, relative to how far its mean loss is above its lowest, at most ``scale``.
    solve : callable
        Does the same for rows in memory.

    Returns
    -------
    Least risks, their lower bounds and where they are reached; None where that is not found.
    """
    oracle, bands = flat.oracle, Bands(flat.oracle)
    floor = np.where(np.isfinite(oracle.lowest_risks), oracle.lowest_risks, 0.0)
    theta, active = np.tile(flat.theta, (oracle.n_contexts, 1)), np.arange(oracle.n_contexts)
    upper, lower, best = np.full(len(theta), np.inf), oracle.lowest_risks.copy(), theta.copy()
    for _ in range(_ROUNDS):
        bands.look(theta, active)
        assert bands.answer is not None
        values = bands.answer.values
        risks = values + oracle.ridge.value(theta)
        better = risks < upper
        upper[better], best[better] = risks[better], theta[better]
        accuracy = tol * np.clip(np.abs(values - floor), 1e-2 * scale, scale)
        active = active[(upper - lower > accuracy)[active]]
        if active.size == 0:
            return upper, lower, best
        some = bands.reduced(active)
        found = solve(some.oracle.at(some.oracle.start()), some.accuracy(tol), scale, None)
        theta[active] = found[2]
        lower[active] = np.where(some.is_whole, np.maximum(lower[active], found[1]), lower[active])
        bands.narrow(active, some.density(found[2]), some.error(found[2]))
    return None


def minimise_worst_case(
    objective: RobustObjective,
    oracle: LinearOracle,
    references: ReferenceRisks,
    tol: float,
    solve: Callable[[LinearOracle, ReferenceRisks, float], Solution],
    callback: Callable[[Progress], None] | None = None,
    begin: Array | None = None,
) -> Solution | None:
    """Minimise the worst case over a set of mixes.

    Parameters
    ----------
    objective : RobustObjective
        Of the risks of ``oracle``, perhaps followed by those of contexts without rows, and of the references.
    solve : callable
        Solves the problem of rows in memory, and perhaps other references, to an accuracy.
    begin : ndarray of shape (P,), optional
        About where the minimum is, for rows that are in memory themselves.

    Returns
    -------
    The best solution that was found, which may lack the accuracy; None if there is none.
    """
    bands, everyone = Bands(oracle), np.arange(oracle.n_contexts)
    theta, lower, p, best = oracle.start() if begin is None else begin, -math.inf, None, None
    if begin is not None:
        bands.around(begin)
    for n_iter in range(_ROUNDS):
        bands.look(theta, everyone)
        assert bands.answer is not None
        if p is not None:
            before, best = best, _better(objective, theta, p, lower, best, n_iter, tol)
            if callback is not None:
                callback(Progress(n_iter, best.certificate))
            if best.success or (begin is not None and _is_lost(best, before)):
                break
        some, own = bands.reduced(everyone), references
        if not some.is_whole.all() and p is not None:
            # Risks are known here: what rows that were drawn say of them differently is taken off.
            off = bands.answer.values - some.oracle.at(theta).sums.values
            own = references.less(off)
        found = solve(some.oracle, own, some.accuracy(tol))
        if not np.isfinite(found.theta).all():
            break
        theta, p = found.theta, found.p_worst
        if some.is_whole.all():
            lower = max(lower, found.certificate.lower)
        bands.narrow(everyone, some.density(theta), some.error(theta, p[: len(everyone)]))
    return best


def _is_lost(best: Solution, before: Solution | None) -> bool:
    """Tell whether a guess was too far off for the rows around it to lead further."""
    return best.certificate.gap > (_FAR * best.certificate.scale if before is None else 0.1 * before.certificate.gap)


def _better(
    objective: RobustObjective, theta: Array, p: Array, lower: float, best: Solution | None, n_iter: int, tol: float
) -> Solution:
    """Return the better of two solutions, with what is proven by now."""
    point: Any = objective.oracle.at(theta)
    upper, scale = objective.upper_bound(point), max(objective.scale(point), np.finfo(np.float64).tiny)
    if best is None or upper < best.certificate.upper:
        best = Solution.of(objective, point, p, Certificate(-math.inf, upper, "global", scale), Status.FINISHED, n_iter)
    certificate = replace(best.certificate, lower=min(lower, best.certificate.upper))
    status = Status.CERTIFIED if certificate.gap <= tol * certificate.scale else Status.ITERATION_LIMIT
    return replace(best, p_worst=p, certificate=certificate, status=status, n_iter=n_iter)
