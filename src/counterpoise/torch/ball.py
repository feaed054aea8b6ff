"""The confidence set on any device, without waiting for it; and any set of mixes in memory."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from counterpoise.sets import ContextSet, KLBall

_POINTS = 256
"""Places tried at once: one round of launches instead of eight."""

_ROUNDS = 4

_MOST_CHORDS = 60
"""A handful is enough, but for mixes that all but leave a context out."""


@dataclass(frozen=True)
class Ball:
    """Distributions within ``radius`` bits of ``p_hat``; see :class:`counterpoise.KLBall`.

    The tensors may be on any device. The radius is a number on the host.

    It does not call ``KLBall``, whose Newton steps go on until a number says that they are enough: to look at a number
    the host would have to wait for the device at every step of training, and ``torch.compile`` would break there. Here
    the same equation is solved by a fixed number of launches.

    Attributes
    ----------
    p_hat : Tensor of shape (n_contexts,)
        In double precision.
    radius : float
        In bits.
    """

    p_hat: Tensor
    radius: float

    @property
    def nats(self) -> float:
        """The radius in natural units."""
        return self.radius * math.log(2.0)

    def worst_case(self, scores: Tensor) -> Tensor:
        """Return the least favourable distribution for scores of shape (n_contexts,)."""
        if self.radius == 0.0 or len(scores) == 1:
            return self.p_hat
        top = scores.max()
        if math.isinf(self.radius):
            tied = (scores == top).to(self.p_hat.dtype) * self.p_hat
            return tied / tied.sum()
        below = top - scores
        spread = below.max()
        # Equal scores have no root; every distribution will do, and this is one.
        flat = spread <= 0.0
        gaps = below / torch.where(flat, 1.0, spread)
        raw = self.p_hat / (1.0 + gaps * torch.exp(-self._root(gaps)))
        return torch.where(flat, self.p_hat, raw / raw.sum())

    def pull_inside(self, p: Tensor) -> Tensor:
        """Return a positive vector as a distribution, moved straight towards ``p_hat`` as far as the set demands."""
        p = p / p.sum()
        if self.radius == 0.0:
            return self.p_hat
        if math.isinf(self.radius):
            return p
        away = p - self.p_hat

        def excess(shares: Tensor) -> Tensor:
            return self._divergence(self.p_hat + shares[:, None] * away) - self.nats

        # The divergence grows along the way, so those inside come first; as it is convex, so is what a straight line
        # across the last cell gives.
        share, width = _narrowed(lambda shares: excess(shares) <= 0.0, p.new_zeros(()), p.new_ones(()))
        inside, outside = excess(torch.stack([share, share + width]))
        along = (-inside / (outside - inside).clamp(min=1e-300)).clamp(0.0, 1.0)
        return self.p_hat + (share + along * width) * away

    def _divergence(self, p: Tensor) -> Tensor:
        """Return the divergence of ``p_hat`` from distributions (..., n_contexts), in nats."""
        terms = self.p_hat * (torch.log(self.p_hat) - torch.log(p))
        return torch.where(self.p_hat > 0, terms, 0.0).sum(-1)

    def _divergence_at(self, gaps: Tensor, log_slack: Tensor) -> Tensor:
        """Return the divergence at several places; it falls along the way."""
        # In units of the slack nothing cancels, however far away nu is; where nearly all is lost, what is left counts.
        ratio = gaps * torch.exp(-log_slack)[:, None]
        shares = self.p_hat / (1.0 + ratio)
        lost, left = (shares * ratio).sum(-1), shares.sum(-1)
        mean = torch.where(lost < 0.5, torch.log1p(-lost), torch.log(left))
        return (self.p_hat * torch.log1p(ratio)).sum(-1) + mean

    def _root(self, gaps: Tensor) -> Tensor:
        """Return the log of ``nu - max score``, in units of the spread, at which the divergence is the radius."""
        # Below the start the divergence is certainly above the radius: its largest term alone is. Beyond the end it is
        # certainly below, by Hoeffding's lemma.
        tied = gaps <= 0.0
        share = (self.p_hat * tied).sum()
        others = (self.p_hat * torch.where(tied, 0.0, torch.log(torch.where(tied, 1.0, gaps)))).sum()
        low = ((torch.log(share) + others - self.nats) / (1.0 - share).clamp(min=1e-300)).clamp(min=-600.0) - 1e-6
        end = 1e-6 - 0.5 * math.log(8.0 * self.nats)
        width = (end - low).clamp(min=1e-6)
        low, width = _narrowed(lambda places: self._divergence_at(gaps, places) > self.nats, low, width)
        # The cell is a hundred-millionth of the range wide: a straight line across it is exact to rounding.
        above, below = self._divergence_at(gaps, torch.stack([low, low + width])) - self.nats
        along = (above / (above - below).clamp(min=1e-300)).clamp(0.0, 1.0)
        return low + along * width


@dataclass(frozen=True)
class InMemory:
    """Any set of mixes, for arrays.

    Attributes
    ----------
    mixes : ContextSet
    """

    mixes: ContextSet

    def worst_case(self, scores: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the least favourable distribution for scores of shape (n_contexts,)."""
        return self.mixes.worst_case(scores).distribution

    def pull_inside(self, p: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return a positive vector as a distribution in the set: for a ball straight towards its centre."""
        p = p / p.sum()
        if not isinstance(self.mixes, KLBall):
            return self.mixes.project(p)
        if self.mixes.is_point:
            return self.mixes.p_hat
        return p if self.mixes.is_simplex else _towards(self.mixes, p)


@dataclass(frozen=True)
class OnHost:
    """Any set of mixes, asked on the host: every search waits for the scores to reach it.

    Attributes
    ----------
    mixes : ContextSet
    """

    mixes: ContextSet

    @torch.compiler.disable
    def worst_case(self, scores: Tensor) -> Tensor:
        """Return the least favourable distribution for scores of shape (n_contexts,)."""
        return _like(scores, InMemory(self.mixes).worst_case(scores.cpu().numpy()))

    @torch.compiler.disable
    def pull_inside(self, p: Tensor) -> Tensor:
        """Return a positive vector as a distribution in the set, close to it."""
        return _like(p, InMemory(self.mixes).pull_inside(p.cpu().numpy()))


def _towards(ball: KLBall, p: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the farthest member of a ball on the way from its centre to ``p``."""
    p = ball.supported(p)
    seen = ball.p_hat > 0.0
    shares, away = ball.p_hat[seen], (p - ball.p_hat)[seen]
    ratio, nats = p[seen] / shares, ball.radius * math.log(2.0)

    def at(share: float) -> tuple[float, float, float]:
        """Return the share, by how much the divergence exceeds the radius there, and its slope."""
        grown = (1.0 - share) + share * ratio
        return share, -float(shares @ np.log(grown)) - nats, -float(away @ (1.0 / grown))

    inside, outside = (0.0, -nats, 0.0), at(1.0)
    if outside[1] <= 0.0:
        return p
    for _ in range(_MOST_CHORDS):
        width = outside[0] - inside[0]
        # The divergence is convex along the way: a chord ends inside the ball, and a tangent outside of it.
        chord = inside[0] - inside[1] * width / (outside[1] - inside[1])
        tangent = min(end[0] - end[1] / end[2] if end[2] > 0.0 else 1.0 for end in (inside, outside))
        for share in (chord, tangent, 0.5 * (inside[0] + outside[0])):
            if inside[0] < share < outside[0] and outside[0] - inside[0] > 0.5 * width:
                found = at(share)
                inside, outside = (found, outside) if found[1] <= 0.0 else (inside, found)
        if outside[0] - inside[0] <= 1e-15 or outside[0] - inside[0] == width:
            break
    return ball.p_hat + inside[0] * (p - ball.p_hat)


def _like(like: Tensor, values: NDArray[np.float64]) -> Tensor:
    return torch.as_tensor(values, dtype=like.dtype, device=like.device)


def _narrowed(holds: Callable[[Tensor], Tensor], low: Tensor, width: Tensor) -> tuple[Tensor, Tensor]:
    """Return the cell in which a condition ceases to hold that holds at first; its width is 0 where it always does."""
    steps = torch.linspace(0.0, 1.0, _POINTS, dtype=low.dtype, device=low.device)
    for _ in range(_ROUNDS):
        places = low + width * steps
        last = holds(places).sum().clamp(min=1) - 1
        # places[last] would wait for the index to reach the host.
        low = places.index_select(0, last.reshape(1))[0]
        width = torch.where(last < _POINTS - 1, width / (_POINTS - 1), 0.0)
    return low, width
