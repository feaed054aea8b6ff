"""The worst plausible mix of scores that are known by context and competitor."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from counterpoise.inference.joint_roots import JointRoots
from counterpoise.sets import ContextSet

Array = NDArray[np.float64]

_ROUNDS = 50

_CACHED = 1 << 16
"""Numbers whose temporaries stay in the cache."""


def in_cache(draws: Array) -> Iterator[slice]:
    """Yield pieces of draws, of shape (n_draws, n_contexts, n_competitors), that stay in the cache."""
    step = max(1, _CACHED // max(draws[:1].size, 1))
    yield from (slice(k, k + step) for k in range(0, len(draws), step))


@dataclass(frozen=True, eq=False)
class WorstMix:
    r"""The worst case over a set of mixes, of the largest score that any competitor gives to each context.

    .. math:: V(x) = \max_{p \in P} \sum_c p_c \max_k x_{ck}

    It is convex, increasing, and follows a shift of all scores. Mixes are those among the contexts that can be judged.

    Attributes
    ----------
    mixes : ContextSet or None
        None: every mix, so that V is the largest score. It may go on with contexts that are not judged.
    known : ndarray of shape (n_contexts, n_competitors)
        Which scores there are. Contexts without any are not judged.
    """

    mixes: ContextSet | None
    known: NDArray[np.bool_]

    @property
    def everything(self) -> bool:
        """Whether every mix is plausible."""
        return self.mixes is None or self.mixes.is_simplex

    @property
    def judged(self) -> NDArray[np.bool_]:
        """The contexts that have a score."""
        return np.asarray(self.known.any(axis=1))

    def value(self, scores: Array) -> Array:
        """Return the worst case of each batch of scores, of shape (batch, n_contexts, n_competitors)."""
        return self.solve(scores)[0]

    def solve(self, scores: Array) -> tuple[Array, Array]:
        """Return values, and the scenarios that attain them.

        A scenario is the mix, with each context's share at the competitor that is best there: of the shape of the
        scores. The value is the sum of their products.
        """
        scores = np.where(self.known, scores, -np.inf)
        best = scores.argmax(axis=2)
        largest = np.take_along_axis(scores, best[..., None], axis=2)[..., 0]
        share = self._shares(largest)
        scenario = np.zeros(scores.shape)
        np.put_along_axis(scenario, best[..., None], share[..., None], axis=2)
        return np.einsum("bc,bc->b", share, np.where(self.judged, largest, 0.0)), scenario

    def _shares(self, scores: Array) -> Array:
        """Return the least favourable mixes of judged contexts."""
        judged = self.judged
        if self.everything or self.mixes is None:
            share = np.zeros(scores.shape)
            share[np.arange(len(scores)), scores.argmax(axis=1)] = 1.0
            return share
        if judged.all() and self.mixes.p_hat.size == len(judged):
            if len(scores) == 1:
                # One vector has a faster way than a batch of one.
                return self.mixes.worst_case(scores[0]).distribution[None]
            return self.mixes.worst_case(scores).distribution
        # A context that cannot be judged counts as much as the mix itself: then only mixes of the others matter.
        level = np.mean(scores[:, judged], axis=1)
        # A level may be zero, so that what is enough follows from the scores.
        enough = 1e-10 * float(np.abs(scores[:, judged]).max())
        n, beyond = len(judged), self.mixes.p_hat.size - len(judged)
        for _ in range(_ROUNDS):
            filled = np.where(judged, scores, level[:, None])
            filled = np.concatenate([filled, np.repeat(level[:, None], beyond, axis=1)], axis=1)
            share = np.where(judged, self.mixes.worst_case(filled).distribution[:, :n], 0.0)
            share /= share.sum(axis=1, keepdims=True)
            before, level = level, np.einsum("bc,bc->b", share, np.where(judged, scores, 0.0))
            if np.allclose(before, level, rtol=1e-10, atol=enough):
                break
        return share

    def excesses(self, centre: Array, errors: Array, scale: Array, shifts: Array | None = None) -> Array:
        r"""Return the least multiples of ``scale`` whose subtraction keeps errors from raising the worst case.

        The root in :math:`\kappa` of :math:`V(c + e - \kappa s) = V(c) + t` for every batch of errors.

        Parameters
        ----------
        centre : ndarray of shape (n_contexts, n_competitors)
        errors : ndarray of shape (batch, n_contexts, n_competitors)
        scale : ndarray of shape (n_contexts, n_competitors) or (batch, n_contexts, n_competitors)
        shifts : ndarray of shape (batch,), optional
            By how much the worst case may rise; 0 by default.
        """
        goals = self.value(centre[None])[0] + (np.zeros(len(errors)) if shifts is None else shifts)
        moves = self.known & (scale > 0)
        if not moves.any():
            return np.zeros(len(errors))
        if self.everything:
            return self._largest_multiples(np.where(moves, centre, -np.inf), errors, np.where(moves, scale, 1.0), goals)
        scale = np.broadcast_to(np.where(moves, scale, 0.0), errors.shape)
        judged, joint = self.judged, JointRoots.of(self.mixes, self.judged)
        if joint is None:
            return self._nested_excesses(centre, errors, scale, goals)
        own = np.where(self.known, centre, -np.inf)
        some = slice(None) if judged.all() else judged
        kappa, found = joint.solve(own[some], errors[:, some], scale[:, some], goals)
        if not found.all():
            kappa[~found] = self._nested_excesses(centre, errors[~found], scale[~found], goals[~found])
        return kappa

    def _largest_multiples(self, centre: Array, errors: Array, scale: Array, goals: Array) -> Array:
        """Return the same where the worst case is the largest score; centres without an error are minus infinity."""
        centre, scale = (np.broadcast_to(one, errors.shape) for one in (centre, scale))
        multiples = np.empty(len(errors))
        for some in in_cache(errors):
            above = centre[some] + errors[some]
            above -= goals[some, None, None]
            above /= scale[some]
            multiples[some] = above.max(axis=(1, 2))
        return np.where(np.isneginf(multiples), 0.0, multiples)

    def _nested_excesses(self, centre: Array, errors: Array, scale: Array, goals: Array) -> Array:
        """Return the same by a worst mix for every multiple that is tried, which any set has.

        The worst case is convex and decreasing in the multiple, so that Newton's steps come from below after the first.
        """
        kappa, open_ = np.zeros(len(errors)), np.arange(len(errors))
        for _ in range(_ROUNDS):
            value, scenario = self.solve(centre + errors[open_] - kappa[open_, None, None] * scale[open_])
            slope = np.einsum("bck,bck->b", scenario, scale[open_])
            with np.errstate(divide="ignore", invalid="ignore"):
                step = np.where(slope > 0, (value - goals[open_]) / slope, 0.0)
            kappa[open_] += step
            open_ = open_[np.abs(step) > 1e-3 * (1.0 + np.abs(kappa[open_]))]
            if not open_.size:
                break
        return kappa
