"""Losses in tensors, row by row: the same formulas as in :mod:`counterpoise.losses`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from counterpoise.losses import Logistic, Loss, Multinomial, Poisson, Squared


class TensorMath:
    """What rows are computed with, in tensors: functions of numpy by the same names, with numbers as arguments too."""

    abs = staticmethod(torch.abs)
    where = staticmethod(torch.where)
    clip = staticmethod(torch.clamp)

    @staticmethod
    def maximum(rows: Tensor, other: Any) -> Tensor:
        return torch.clamp(rows, min=other)

    @staticmethod
    def minimum(rows: Tensor, other: Any) -> Tensor:
        return torch.clamp(rows, max=other)


class TorchLogistic:
    """As :class:`counterpoise.losses.Logistic`."""

    @staticmethod
    def value(target: Tensor, z: Tensor) -> Tensor:
        margin = torch.rsub(target, 1.0, alpha=2.0) * z[:, 0]
        # log(1 + exp(margin)), finite wherever the margin is.
        return torch.logaddexp(margin, margin.new_zeros(()))

    @staticmethod
    def gradient(target: Tensor, z: Tensor) -> Tensor:
        sign = torch.rsub(target, 1.0, alpha=2.0)
        return (sign * torch.sigmoid(sign * z[:, 0]))[:, None]

    @staticmethod
    def curvature(target: Tensor, z: Tensor) -> Tensor:
        return (torch.sigmoid(z) * torch.sigmoid(-z))[:, :, None]

    @staticmethod
    def lowest(target: Tensor) -> Tensor:
        return torch.zeros_like(target)


class TorchSquared:
    """As :class:`counterpoise.losses.Squared`."""

    @staticmethod
    def value(target: Tensor, z: Tensor) -> Tensor:
        return 0.5 * (z[:, 0] - target) ** 2

    @staticmethod
    def gradient(target: Tensor, z: Tensor) -> Tensor:
        return z - target[:, None]

    @staticmethod
    def curvature(target: Tensor, z: Tensor) -> Tensor:
        return torch.ones_like(z)[:, :, None]

    lowest = TorchLogistic.lowest


class TorchPoisson:
    """As :class:`counterpoise.losses.Poisson`."""

    @staticmethod
    def value(target: Tensor, z: Tensor) -> Tensor:
        return torch.exp(z[:, 0]) - target * z[:, 0]

    @staticmethod
    def gradient(target: Tensor, z: Tensor) -> Tensor:
        return torch.exp(z) - target[:, None]

    @staticmethod
    def curvature(target: Tensor, z: Tensor) -> Tensor:
        return torch.exp(z)[:, :, None]

    @staticmethod
    def lowest(target: Tensor) -> Tensor:
        return target - torch.special.xlogy(target, target)


class TorchMultinomial:
    """As :class:`counterpoise.losses.Multinomial`."""

    @staticmethod
    def value(target: Tensor, z: Tensor) -> Tensor:
        return torch.nn.functional.cross_entropy(z, target.long(), reduction="none")

    @staticmethod
    def gradient(target: Tensor, z: Tensor) -> Tensor:
        slopes = torch.softmax(z, dim=1)
        rows = torch.arange(len(target), device=z.device)
        slopes[rows, target.long()] -= 1.0
        return slopes

    @staticmethod
    def curvature(target: Tensor, z: Tensor) -> Tensor:
        q = torch.softmax(z, dim=1)
        return torch.diag_embed(q) - q[:, :, None] * q[:, None, :]

    lowest = TorchLogistic.lowest


class Truncated:
    """As ``truncated`` of the losses: rows, or classes, in which less than a cut can be lost count as lost."""

    def __init__(self, loss: Any, cut: float) -> None:
        self.loss, self.cut = loss, cut

    def _kept(self, target: Tensor, z: Tensor) -> tuple[Tensor, Tensor]:
        """Return which rows are kept, and predictions without the classes that are not."""
        if self.loss is not TorchMultinomial:
            return self.loss.value(target, z) - self.loss.lowest(target) > self.cut, z
        kept = torch.softmax(z, dim=1) > self.cut
        kept[torch.arange(len(target), device=z.device), target.long()] = True
        return torch.ones_like(target, dtype=torch.bool), torch.where(kept, z, -torch.inf)

    def value(self, target: Tensor, z: Tensor) -> Tensor:
        kept, z = self._kept(target, z)
        return torch.where(kept, self.loss.value(target, z), self.loss.lowest(target))

    def gradient(self, target: Tensor, z: Tensor) -> Tensor:
        kept, z = self._kept(target, z)
        return torch.where(kept[:, None], self.loss.gradient(target, z), 0.0)

    def curvature(self, target: Tensor, z: Tensor) -> Tensor:
        kept, z = self._kept(target, z)
        return torch.where(kept[:, None, None], self.loss.curvature(target, z), 0.0)


@dataclass(frozen=True)
class TorchHinged:
    """As :class:`counterpoise.losses.Hinged`, of any loss that is one.

    Attributes
    ----------
    loss : Loss
        Its pieces are plain arithmetic, in arrays as in tensors.
    """

    loss: Loss

    def gradient(self, target: Tensor, z: Tensor) -> Tensor:
        hinge, _, left, right = self._pieces(target)
        beyond = z[:, 0] - hinge
        if self.loss.softness == 0.0:
            return torch.where(beyond >= 0, right, left)[:, None]
        return torch.clamp(beyond / self.loss.softness, left, right)[:, None]

    def value(self, target: Tensor, z: Tensor) -> Tensor:
        hinge, height, _, _ = self._pieces(target)
        slope = self.gradient(target, z)[:, 0]
        return height + slope * (z[:, 0] - hinge - 0.5 * self.loss.softness * slope)

    def curvature(self, target: Tensor, z: Tensor) -> Tensor:
        if self.loss.softness == 0.0:
            return torch.zeros_like(z)[:, :, None]
        hinge, _, left, right = self._pieces(target)
        turn = (z[:, 0] - hinge) / self.loss.softness
        return torch.where((turn >= left) & (turn <= right), 1.0 / self.loss.softness, 0.0)[:, None, None]

    def lowest(self, target: Tensor) -> Tensor:
        _, height, left, right = self._pieces(target)
        return torch.where((left <= 0) & (right >= 0), height, -torch.inf)

    def _pieces(self, target: Tensor) -> Any:
        return self.loss.pieces(target)  # type: ignore[arg-type]


_SMOOTH: dict[type[Loss], Any] = {
    Logistic: TorchLogistic,
    Squared: TorchSquared,
    Poisson: TorchPoisson,
    Multinomial: TorchMultinomial,
}


def in_tensors(loss: Loss) -> Any:
    """Return a loss in tensors; None where there is none."""
    return TorchHinged(loss) if loss.is_hinged else _SMOOTH.get(type(loss))
