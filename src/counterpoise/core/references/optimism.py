r"""How much of what contexts seem to gain from models of their own is noise that these were fitted to.

A model with :math:`p` parameters lies, on the :math:`n` rows it was fitted to, below the least possible risk by about
:math:`\operatorname{tr}(H^{-1} J) / 2n` (Takeuchi 1976), with the Hessian :math:`H` and the covariance :math:`J` of the
rows' gradients; :math:`p / 2n` for a likelihood without a ridge (Akaike). Both are taken at the model that is best for
all contexts, which is best for each of them if they do not differ. At its own model a context that is fitted perfectly
would show neither curvature nor gradients.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from counterpoise.core.oracle._base import Array
from counterpoise.core.oracle.linear import EachContext, LinearOracle, LinearPoint
from counterpoise.core.references.specialists import Specialists, too_large_to_join
from counterpoise.linalg import ArrayStack, Stack, as_stack, positive_solver
from counterpoise.rows import Codes, compiled
from counterpoise.rows.blocks import in_memory
from counterpoise.rows.hinged import LeastSquares
from counterpoise.rows.memory import MemoryPart, MemorySums
from counterpoise.sets import ContextSet
from counterpoise.threads import spread

MOSTLY = 0.4
"""Share of the reported excess above which it is mostly optimism, both in their own worst plausible mix.

Less than half, since the formulas are the first order of what fitting noise gains. On tables with rare categories,
which a model of few rows fits perfectly, held-out rows show half as much again and more.
"""

MATTERS = 1e-3
"""Share of the risk that a set has to make of differences in optimism to matter."""

_AT_MOST = 6.0
"""How many times what a likelihood expects of its parameters their noise may be, beside an excess that is rough."""

_NEARLY_SINGULAR = 1e9
"""Variance of a direction beside all others, in units of what it would be alone, from which rounding decides it."""

_MOST_ENTRIES = 1 << 25
"""Entries of all contexts' Hessians together, up to which they are kept (256 MB)."""


@dataclass(frozen=True, eq=False)
class Optimism:
    """What models of contexts' own gain over one model for all, on the rows they were fitted to, and how much is noise.

    Attributes
    ----------
    excess : ndarray of shape (n_contexts,)
        Risk of the model that is best for all contexts above the in-sample references.
    noise : ndarray of shape (n_contexts,)
        How far these are expected to lie below the least possible risk.
    risk : float
        Of the model for all, above the lowest there is.
    """

    excess: Array
    noise: Array
    risk: float

    @property
    def is_finite(self) -> bool:
        """Whether it can be told at all."""
        return bool(np.isfinite([self.excess, self.noise]).all() and np.isfinite(self.risk))

    def worst(self, mixes: ContextSet) -> tuple[float, float]:
        """Return the excess and the noise in the mixes of a set that are worst for either."""
        rest = np.zeros(mixes.p_hat.size - len(self.noise))
        excess, noise = (float(mixes.worst_case(np.append(one, rest)).value) for one in (self.excess, self.noise))
        return excess, noise

    def prevails(self, mixes: ContextSet) -> bool:
        """Tell whether in-sample references are mostly optimism, and the set is large enough for that to matter.

        It matters where what the set makes of differences in noise is some share of the risk, and the excess, which may
        be nothing at all, is too.
        """
        excess, noise = self.worst(mixes)
        made_of_it = noise - float(mixes.p_hat[: len(self.noise)] @ self.noise)
        return noise > MOSTLY * excess and min(made_of_it, excess) > MATTERS * self.risk


def most_optimism(point: LinearPoint, specialists: Specialists, rows: Array) -> Optimism:
    """Return more than :func:`measure_optimism` is likely to find, without Hessians.

    Parameters
    ----------
    point : LinearPoint
        About the best parameters for all rows, in memory.
    rows : ndarray of shape (n_contexts,)
    """
    oracle, sums = point.oracle, cast("MemorySums", point.sums)
    spread, stiff = sums.slopes_and_stiffness()
    dispersion = spread / np.maximum(stiff, np.finfo(np.float64).tiny)
    noise = _AT_MOST * dispersion * np.minimum(oracle.n_parameters, rows) / (2.0 * rows)
    shares, excess = rows / rows.sum(), point.risks - specialists.risks.upper
    risk = float(shares @ (sums.values - oracle.lowest_risks))
    return Optimism(excess, _of_few_rows(noise, excess, rows), risk)


def measure_optimism(
    oracle: LinearOracle, specialists: Specialists, counts: Array, begin: Array | None = None, rows: Array | None = None
) -> Optimism:
    """Compare what contexts seem to gain from models of their own with the noise these have fitted.

    Parameters
    ----------
    counts : ndarray of shape (n_contexts,)
        Rows, or the sum of their weights.
    begin : ndarray of shape (P,), optional
        About the best parameters for all rows, where they are known.
    rows : ndarray of shape (n_contexts,), optional
        The rows that noise averages over, if not ``counts``.
    """
    shares, rows = counts / counts.sum(), counts if rows is None else rows
    if too_large_to_join(oracle).any() or (oracle.loss.is_hinged and oracle.loss.softness == 0.0):
        return _by_size(oracle, specialists, shares, rows)
    known = specialists.begin
    begin = begin if known is None else known.theta
    theta = _parabolas(oracle, specialists.theta, shares) if begin is None else begin
    values, above, noise = (np.empty(oracle.n_contexts) for _ in range(3))
    gradients, total = np.empty((oracle.n_contexts, oracle.n_parameters)), np.zeros((oracle.n_parameters,) * 2)
    places: list[tuple[Codes, Any]] = []
    kept = oracle.n_contexts * oracle.n_parameters**2 <= _MOST_ENTRIES

    def measure(chosen: tuple[Codes, Any]) -> tuple[Codes, Any, Array]:
        contexts, make = chosen
        at = EachContext(make(), oracle.alpha, np.tile(theta, (len(contexts), 1)))
        some = np.isin(np.arange(oracle.n_contexts), contexts)
        hessians = known.context_hessians()[some] if known is not None and known.knows_hessians else at.hessian
        values[contexts], gradients[contexts], above[contexts] = at.value, at.gradient, at.above
        noise[contexts] = _noise(at, hessians) / rows[contexts]
        return contexts, hessians if kept else None, hessians.mixed(shares[contexts])

    for contexts, bend, mixed in spread(measure, _parts(oracle)):
        places.append((contexts, bend))
        total += mixed
    if kept:
        # One step to the minimum of all rows, along which the parabolas that are known now tell the risks.
        move = -positive_solver(total)(shares @ gradients)
        values += gradients @ move
        for contexts, bend in places:
            values[contexts] += 0.5 * bend.product(move) @ move
    excess = values - specialists.risks.upper
    # Moments around the mean of the rows themselves are too small by one of them.
    noise = noise * rows / np.maximum(rows - 1.0, 0.5 * rows)
    return Optimism(excess, _of_few_rows(noise, excess, rows), float(shares @ above))


def _parts(oracle: LinearOracle) -> Iterator[tuple[Codes, Any]]:
    """Return contexts in parts; of rows in memory so few at a time that what is worked out of them stays small."""
    rows: Any = oracle.rows
    if not rows.at_hand:
        yield from rows.parts()
        return
    numbers = np.arange(rows.n_contexts)
    for batch in rows.batches(np.ones(rows.n_contexts, dtype=bool)):
        yield from rows.parts(np.isin(numbers, batch))


def _by_size(oracle: LinearOracle, specialists: Specialists, shares: Array, rows: Array) -> Optimism:
    """Compare by the number of parameters, where there is no Hessian or it is too large to form.

    As the likelihood of Laplace's distribution, a kinked loss has its risk as its scale.
    """
    at = oracle.at(_average(oracle, specialists.theta, shares))
    lowest, values = oracle.lowest_risks, at.sums.values
    above = np.where(np.isfinite(lowest), values - np.where(np.isfinite(lowest), lowest, 0.0), np.abs(values))
    noise = np.minimum(oracle.n_parameters, rows) / (2.0 * rows) * above
    excess = at.risks - specialists.risks.upper
    return Optimism(excess, _of_few_rows(noise, excess, rows), float(shares @ above))


def _of_few_rows(noise: Array, excess: Array, rows: Array) -> Array:
    """Return the noise, which is all that a context of one row shows: it has no spread to tell it from."""
    return np.where(rows < 2.0, np.maximum(noise, excess), noise)


def _noise(at: EachContext, hessians: Stack) -> Array:
    """Return the expected gain of a fit to noise in each context, times its rows."""
    moments, mean = as_stack(at.sums.moments), at.sums.gradients
    inverse = _inverse(hessians)
    # The variance of the slopes over what the curvature says it is: 1 for a likelihood that holds.
    ridge, size = at.alpha * at.penalised, 1.0 / np.maximum(at.reach, 1e-300) ** 2
    spread = (moments.diagonals() - mean**2) @ size
    stiffness = (hessians.diagonals() - ridge) @ size
    dispersion = np.where(stiffness > 0.0, spread / np.where(stiffness > 0.0, stiffness, 1.0), 0.0)
    # A feature that few rows have may show no gradients by chance where it has curvature, and the fit will use it.
    takeuchi = inverse.traces(moments) - np.einsum("bi,bi->b", mean, inverse.product(mean))
    akaike = inverse.traces(hessians.plus_diagonal(-ridge))
    return 0.5 * np.maximum(takeuchi, dispersion * akaike)


def _inverse(hessians: Stack) -> Stack:
    """Return the pseudo-inverses, quickly where all Hessians are far from singular."""
    found = compiled.inverses(hessians.matrices) if isinstance(hessians, ArrayStack) else None
    if found is None:
        return hessians.inverse()
    inverse = ArrayStack(found)
    # What one direction is held by beside all others, as a share of its curvature.
    left = inverse.diagonals() * hessians.diagonals()
    return inverse if ((left > 0.0) & (left < _NEARLY_SINGULAR)).all() else hessians.inverse()


def _parabolas(oracle: LinearOracle, theta: Array, shares: Array) -> Array:
    """Return what is best for all contexts if the risk of each is a parabola around its own minimum."""
    total, right = np.zeros((oracle.n_parameters,) * 2), np.zeros(oracle.n_parameters)
    for contexts, make in oracle.rows.parts():
        own = EachContext(make(), oracle.alpha, theta[contexts])
        hessians = own.hessian
        total += hessians.mixed(shares[contexts])
        right += shares[contexts] @ hessians.product(theta[contexts])
    return positive_solver(total)(right)


def _average(oracle: LinearOracle, theta: Array, shares: Array) -> Array:
    """Return the mean of the contexts' own parameters, weighed by what their features say of each direction."""
    if too_large_to_join(oracle).any():
        return np.asarray(shares @ theta)
    total, right = np.zeros((oracle.n_parameters,) * 2), np.zeros(oracle.n_parameters)
    for contexts, make in oracle.rows.parts():
        part, ones = make(), np.ones(len(contexts))
        blocks = in_memory(oracle.rows, part) if isinstance(part, MemoryPart) else oracle.rows.blocks
        place: dict[str, Any] = {"p": ones, "each": True, "active": ones > 0.0}
        grams = as_stack(blocks.ask(LeastSquares(theta=theta[contexts], **place)).gram)
        total += grams.mixed(shares[contexts])
        right += shares[contexts] @ grams.product(theta[contexts])
    return positive_solver(total)(right)
