"""The confidence set on any device: no step of these searches waits for a number to reach the host."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

_POINTS = 512
"""Places tried at once: one round of launches instead of nine."""

_ROUNDS = 3


@dataclass(frozen=True)
class Ball:
    """Distributions within ``radius`` bits of ``p_hat``; see :class:`counterpoise.KLBall`.

    The tensors may be on any device. The radius is a number on the host, and so is the range that is searched.

    Attributes
    ----------
    p_hat : Tensor of shape (n_contexts,)
        In double precision.
    radius : float
        In bits.
    least_rest : float
        One minus the largest share, which bounds how far out a search may have to go.
    """

    p_hat: Tensor
    radius: float
    least_rest: float

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
        log_slack = self._root(gaps)
        p = self._distribution(gaps, log_slack)
        return torch.where(flat, self.p_hat, p)

    def pull_inside(self, p: Tensor) -> Tensor:
        """Return a positive vector as a distribution, moved straight towards ``p_hat`` as far as the set demands."""
        p = p / p.sum()
        if self.radius == 0.0:
            return self.p_hat
        if math.isinf(self.radius):
            return p
        away = p - self.p_hat
        low = torch.zeros((), dtype=p.dtype, device=p.device)
        width = torch.ones((), dtype=p.dtype, device=p.device)
        for _ in range(_ROUNDS):
            shares = low + width * torch.linspace(0.0, 1.0, _POINTS, dtype=p.dtype, device=p.device)
            inside = self._divergence(self.p_hat + shares[:, None] * away) <= self.nats
            # The divergence grows along the way, so those inside come first.
            last = (inside.sum() - 1).clamp(min=0)
            low = _at(shares, last)
            width = width * ((last < _POINTS - 1) / (_POINTS - 1))
        return self.p_hat + low * away

    def _divergence(self, p: Tensor) -> Tensor:
        """Return the divergence of ``p_hat`` from distributions (..., n_contexts), in nats."""
        terms = self.p_hat * (torch.log(self.p_hat) - torch.log(p))
        return torch.where(self.p_hat > 0, terms, 0.0).sum(-1)

    def _distribution(self, gaps: Tensor, log_slack: Tensor) -> Tensor:
        raw = self.p_hat / (torch.exp(log_slack) + gaps)
        return raw / raw.sum()

    def _root(self, gaps: Tensor) -> Tensor:
        """Return the log of ``nu - max score``, in units of the spread, at which the divergence is the radius."""
        # Outside of this range the divergence is certainly above, or below, the radius.
        start = max(-(self.nats + 2.0 * math.log(len(gaps)) + 5.0) / max(self.least_rest, 1e-2), -600.0)
        end = max(3.0, 3.0 - 0.5 * math.log(self.nats))
        low = torch.full((), start, dtype=gaps.dtype, device=gaps.device)
        width = torch.full((), end - start, dtype=gaps.dtype, device=gaps.device)
        for _ in range(_ROUNDS):
            places = low + width * torch.linspace(0.0, 1.0, _POINTS, dtype=gaps.dtype, device=gaps.device)
            slack = torch.exp(places)[:, None] + gaps
            divergence = torch.log(slack) @ self.p_hat + torch.log((1.0 / slack) @ self.p_hat)
            # It falls along the way: the last place where it is still too large.
            last = (divergence > self.nats).sum().clamp(min=1, max=_POINTS - 1) - 1
            low, width = _at(places, last), width / (_POINTS - 1)
        # The cell is a hundred-millionth of the range wide: a straight line across it is exact to rounding.
        ends = torch.stack([low, low + width])
        slack = torch.exp(ends)[:, None] + gaps
        above, below = torch.log(slack) @ self.p_hat + torch.log((1.0 / slack) @ self.p_hat) - self.nats
        share = (above / (above - below).clamp(min=1e-300)).clamp(0.0, 1.0)
        return low + share * width


def _at(values: Tensor, index: Tensor) -> Tensor:
    """Return one of several values; ``values[index]`` would wait for the index to reach the host."""
    return values.index_select(0, index.reshape(1))[0]
