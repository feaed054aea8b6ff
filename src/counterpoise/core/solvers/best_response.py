"""The game played with any learner: one side weighs contexts, the other answers with a model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise

import numpy as np
from numpy.typing import NDArray

from counterpoise.core.objective import ReferenceRisks, RobustObjective
from counterpoise.core.oracle.quadratic import QuadraticOracle
from counterpoise.core.solvers.interior_point import InteriorPoint
from counterpoise.sets import ContextSet

Array = NDArray[np.float64]

_FIRST_STEP = 0.5
"""Total variation that the first step covers at most; a set of no more is crossed at once."""

_SHORTEST_STEP = 0.05
"""A step so short that a learner hardly notices it; then the gap has stopped shrinking."""

_LEAST_PROGRESS = 1e-3
"""Share of the gap that a round has to close; less may be rounding, and rounds would run out over it."""

_LEAST_SHARE = 1e-3
"""What a context keeps of its empirical weight, so that no row is without any and no class is lost."""

_RESOLVED, _NEARLY_CLOSED = 0.25, 0.05
"""Shares of the noise, and of the first gap, below which a gap is not worth another round where there is noise."""

_MOST_CONTEXTS = 1000
"""Contexts up to which a square matrix of their curvature is kept; beyond, steps are plain."""


@dataclass(frozen=True, eq=False)
class Game:
    """How a game went.

    Attributes
    ----------
    p : ndarray of shape (n_contexts,)
        The weights of the round that was best.
    risks : ndarray of shape (n_contexts,)
        The risks of the learner's answer to them.
    lower, upper : ndarray of shape (n_rounds,)
        The expected score under the weights of each round, and the worst case of its answer.
    bound : float
        What an optimal learner could not go below: the largest, over rounds, of the least expected score any answer has
        under the weights of the round.
    best : int
        The round whose answer has the least worst case.
    converged : bool
        Whether the gap came within the tolerance, or stopped shrinking, before the rounds ran out.
    rounds : tuple of Round
        All that was asked and answered.
    """

    p: Array
    risks: Array
    lower: Array
    upper: Array
    bound: float
    best: int
    converged: bool
    rounds: tuple[Round, ...]


def best_response(
    answer: Callable[[Array], Array],
    mixes: ContextSet,
    references: Array,
    shares: Array,
    *,
    tol: float,
    max_iter: int,
    noise: float = 0.0,
    sketch: Callable[[Array], Array] | None = None,
    callback: Callable[[int, float, float], None] | None = None,
) -> Game:
    """Look for the weights under which the learner's own answer is least favourable.

    The value of the game is concave in the weights, and its gradient is the answer's scores. Each round maximises a
    parabola through the best round so far, whose curvature is learnt from the answers seen (BFGS), over the set; the
    first step goes to the distribution that is least favourable for the first answer, or part of the way where that is
    far. Steps are halved while they fail to bring the players closer.

    Parameters
    ----------
    answer : callable
        Maps weights of shape (n_contexts,) to the risks of the model trained under them.
    references : ndarray of shape (n_contexts,)
    shares : ndarray of shape (n_contexts,)
        Of the contexts in the data, which the set need not be centred on.
    tol : float
        Stop when the gap is at most this share of the worst case of the scores' size.
    noise : float
        What the scores cannot resolve. Where there is any, the game does not begin if the first gap, or what the sketch
        gains, is at most this, and ends at a gap of a quarter of it (answers are judged on the same rows, so their
        differences are known better than scores) or of a twentieth of the first.
    sketch : callable, optional
        An answer that is cheaper and nearly the same. Where the first round leaves a gap, the game is played with it
        first, and the second round is where that ends; bounds come from the rounds that are answered in full.
    callback : callable, optional
        Called with the round, the lower and the upper value.
    """
    p = with_least_shares(mixes.p_hat, shares, mixes)
    rounds: list[Round] = []
    drafts: tuple[Round, ...] = ()
    centre: Round | None = None
    length = 1.0
    converged = False
    for n in range(max_iter):
        risks = answer(p)
        worst = mixes.worst_case(risks - references)
        this = Round(p, risks, risks - references, worst.distribution, float(worst.value))
        rounds.append(this)
        if callback is not None:
            callback(n, this.lower, this.upper)
        enough = tol * float(mixes.worst_case(np.abs(this.scores)).value)
        if noise > 0.0:
            enough = max(enough, noise if n == 0 else max(_RESOLVED * noise, _NEARLY_CLOSED * rounds[0].gap))
        if mixes.is_point or this.gap <= enough:
            converged = True
            break
        if centre is None or this.gap < (1.0 - _LEAST_PROGRESS) * centre.gap:
            centre, length = this, 1.0
        else:
            length *= 0.5
            if length < _SHORTEST_STEP:
                converged = True
                break
        if n + 1 == max_iter:
            break
        if sketch is not None and n == 0:
            draft = best_response(sketch, mixes, references, shares, tol=tol, max_iter=max_iter, noise=noise)
            p, drafts = draft.p, draft.rounds
            if noise > 0.0 and draft.upper[0] - draft.upper.min() <= noise:
                converged = True
                break
        else:
            p = centre.p + length * (_proposal([drafts, rounds], centre, mixes, shares) - centre.p)
    best = min(rounds, key=lambda one: one.upper)
    lower, upper = (np.array([getattr(one, name) for one in rounds]) for name in ("lower", "upper"))
    # Under some weights an answer of another round may be better than the learner's own: then that one counts.
    weights, scores = (np.array([getattr(one, name) for one in rounds]) for name in ("p", "scores"))
    bound = float((weights @ scores.T).min(axis=1).max())
    return Game(best.p, best.risks, lower, upper, bound, rounds.index(best), converged, tuple(rounds))


def with_least_shares(p: Array, shares: Array, mixes: ContextSet) -> Array:
    """Return weights in which every context keeps a little of its share in the data, as far as the set allows."""
    least = _LEAST_SHARE * shares
    if (p >= least).all():
        return p
    p = np.maximum(p, least)
    return mixes.project(p / p.sum())


@dataclass(frozen=True, eq=False)
class Round:
    """Weights, and what the answer to them looks like."""

    p: Array
    risks: Array
    scores: Array
    worst: Array
    upper: float

    @property
    def lower(self) -> float:
        return float(self.p @ self.scores)

    @property
    def gap(self) -> float:
        return self.upper - self.lower


def _proposal(games: Sequence[Sequence[Round]], centre: Round, mixes: ContextSet, shares: Array) -> Array:
    """Return nearly the best weights by the parabola around a round, of those that leave no context without any."""
    bend = _curvature(games, 1.0 / np.where(shares > 0.0, shares, 1.0)) if len(shares) <= _MOST_CONTEXTS else None
    if bend is None or not np.isfinite(bend).all():
        towards = centre.worst - centre.p
        step = _FIRST_STEP / max(0.5 * float(np.abs(towards).sum()), _FIRST_STEP)
        return with_least_shares(centre.p + step * towards, shares, mixes)
    # The maximum over p of a concave parabola is the minimum over u of the worst case of linear scores:
    # -v'Bv/2 = min over u of u'u/2 - u'L'v, with B = LL'.
    bends, axes = np.linalg.eigh(bend)
    factor = axes * np.sqrt(np.maximum(bends, 1e-10 * bends[-1]))
    moved = np.zeros_like(centre.p)
    for _ in range(2):
        game = QuadraticOracle(
            centre=np.zeros(len(factor)),
            values=centre.scores,
            gradients=factor.T @ (centre.p - moved) - factor,
            hessians=np.eye(len(factor))[None],
            typical_risk=float(np.abs(centre.scores).max()),
        )
        objective = RobustObjective(game, mixes, ReferenceRisks.exactly(np.zeros_like(centre.p)))
        best = InteriorPoint(tol=1e-6, warm=True).solve(objective).p_worst
        kept = with_least_shares(best, shares, mixes)
        if kept is best:
            break
        # Least shares move the others: look again for the maximum of the parabola, at weights so moved.
        moved = kept - best
    return kept


def _curvature(games: Sequence[Sequence[Round]], shape: Array) -> Array | None:
    """Return minus the Hessian of the game's value as far as the answers tell; None where they tell nothing."""
    pairs = []
    for before, after in chain.from_iterable(map(pairwise, games)):
        step, fall = after.p - before.p, before.scores - after.scores
        # A shift common to all scores changes nothing in the game.
        fall = fall - fall.mean()
        # More weight on a context should lower its score; where noise says otherwise, it says nothing.
        if step @ fall > 1e-8 * float(np.linalg.norm(step) * np.linalg.norm(fall)):
            pairs.append((step, fall))
    if not pairs:
        return None
    step, fall = pairs[-1]
    bend = np.diag(shape * float(fall @ fall) / float(fall @ (shape * step)) if fall @ (shape * step) > 0 else shape)
    for step, fall in pairs:
        image = bend @ step
        bend = bend + np.outer(fall, fall) / float(fall @ step) - np.outer(image, image) / float(step @ image)
    return 0.5 * (bend + bend.T)
