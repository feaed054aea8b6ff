"""In what shares to train on sources: rules from the literature and ours, for the study of mixtures."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from counterpoise.torch import MixtureController

Array = NDArray[np.float64]


class Rule:
    """Shares that do not change.

    Attributes
    ----------
    shares : ndarray of shape (n_sources,)
        By which samples are drawn.
    weights : Tensor of shape (n_sources,) or None
        By which their losses count, one on average.
    """

    weights: Tensor | None = None

    def __init__(self, shares: Array) -> None:
        self.shares = np.asarray(shares, dtype=np.float64) / np.sum(shares)

    def batch(self, losses: Tensor, sources: Tensor, references: Tensor | None) -> None:
        """Learn from the losses of a batch.

        Parameters
        ----------
        losses : Tensor of shape (batch, length)
        sources : integer Tensor of shape (batch,)
        references : Tensor like ``losses``, or None
            Of the same tokens, by another model.
        """

    def round(self, losses: Array, step: int) -> None:
        """Learn from the held-out loss of each source."""

    @property
    def mix(self) -> Array:
        """What counts: how often a source is drawn, times how much it counts then."""
        return self.shares

    @property
    def exported(self) -> Array | None:
        """The mix for another training, where the rule has a mean of its own."""
        return None


class Controlled(Rule):
    """Ours: shares of a :class:`~counterpoise.torch.MixtureController`."""

    def __init__(self, controller: MixtureController) -> None:
        self.controller = controller
        super().__init__(controller.probabilities)

    def round(self, losses: Array, step: int) -> None:
        self.controller.update(losses, at=step)
        self.shares = self.controller.probabilities

    @property
    def exported(self) -> Array:
        return np.array(list(self.controller.average.values()))


class DynamicLoading(Rule):
    """Sheared-LLaMA's: shares are multiplied by the exponential of what a source's loss is above its reference."""

    def __init__(self, shares: Array, references: Array) -> None:
        super().__init__(shares)
        self.references = references

    def round(self, losses: Array, step: int) -> None:
        logs = np.log(self.shares) + np.maximum(losses - self.references, 0.0)
        grown = np.exp(logs - logs.max())
        self.shares = grown / grown.sum()


class _Weighted(Rule):
    """Sources are sampled uniformly, and their losses count by weights that move with every batch."""

    def __init__(self, n_sources: int, device: str) -> None:
        super().__init__(np.ones(n_sources))
        self.mixing = torch.full((n_sources,), 1.0 / n_sources, device=device)

    @property
    def weights(self) -> Tensor:
        return self.mixing * len(self.mixing)

    @property
    def mix(self) -> Array:
        return self.mixing.double().cpu().numpy()

    def _means(self, losses: Tensor, sources: Tensor) -> Tensor:
        """Return the mean of each source in a batch; nothing counts for one that is not in it."""
        sums = torch.zeros_like(self.mixing).index_add_(0, sources, losses.mean(1))
        return sums / torch.bincount(sources, minlength=len(sums)).clamp(min=1)


class GroupDRO(_Weighted):
    """Online group DRO: exponential weights on the losses of each batch."""

    rate = 0.01

    def batch(self, losses: Tensor, sources: Tensor, references: Tensor | None) -> None:
        grown = self.mixing * torch.exp(self.rate * self._means(losses, sources))
        self.mixing = grown / grown.sum()


class DoReMi(_Weighted):
    """DoReMi's proxy: exponential weights on what tokens lose to a reference model, clipped at 0; their mean counts."""

    rate, smoothing = 1.0, 1e-3

    def __init__(self, n_sources: int, device: str) -> None:
        super().__init__(n_sources, device)
        self._sums, self._steps = torch.zeros_like(self.mixing), 0

    def batch(self, losses: Tensor, sources: Tensor, references: Tensor | None) -> None:
        assert references is not None
        excess = self._means((losses - references).clamp(min=0.0), sources)
        grown = self.mixing * torch.exp(self.rate * excess)
        self.mixing = (1.0 - self.smoothing) * grown / grown.sum() + self.smoothing / len(grown)
        self._sums += self.mixing
        self._steps += 1

    @property
    def exported(self) -> Array:
        return (self._sums / self._steps).double().cpu().numpy()
