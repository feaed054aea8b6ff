"""Losses whose weights are given, or follow training losses as is common: baselines for robust ones."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from counterpoise.exceptions import InvalidInputError
from counterpoise.torch.losses import ContextLoss, Sampling, finite_numbers, positive_number
from counterpoise.torch.step import Arrays


class FixedWeights(ContextLoss):
    """Weights of contexts that do not change: those that another training has found, for example.

    Parameters
    ----------
    weights : sequence of float, of length n_contexts, optional
        Scaled to sum one; by default the shares in the data.
    """

    method = "fixed"
    mix: Tensor

    def __init__(
        self, counts: Any, weights: Any = None, *, sampling: Sampling = "proportional", averaging: float = 0.1
    ) -> None:
        super().__init__(counts, sampling=sampling, averaging=averaging)
        self._keep("mix", self.p_hat.numpy())
        if weights is not None:
            self.set_weights(weights)

    @property
    def is_plain(self) -> bool:
        """True: nothing is weighed anew."""
        return True

    @property
    def context_weights(self) -> Tensor:
        """The weights."""
        return self.mix

    def set_weights(self, weights: Any) -> None:
        """Take other weights from here on."""
        given = finite_numbers(weights, "weights")
        if given.shape != (self.n_contexts,) or (given < 0.0).any() or given.sum() == 0.0:
            raise InvalidInputError(
                f"weights are {given!r:.80} for {self.n_contexts} contexts. Pass one for each, 0 or more, not all 0."
            )
        self.mix.copy_(torch.as_tensor(given / given.sum()))


class ERMLoss(ContextLoss):
    """Empirical risk minimisation: contexts count as in the data."""

    method = "erm"

    @property
    def is_plain(self) -> bool:
        """True."""
        return True

    @property
    def context_weights(self) -> Tensor:
        """The shares in the data."""
        return self.p_hat


class InverseFrequencyLoss(ContextLoss):
    """Inverse-frequency weights: all contexts count alike."""

    method = "inverse-frequency"

    @property
    def context_weights(self) -> Tensor:
        """Equal weights."""
        return torch.full_like(self.counts, 1.0 / self.n_contexts)


class GroupDROLoss(ContextLoss):
    """Online group DRO: weights grow exponentially with the losses that a context shows.

    Parameters
    ----------
    step_size : float
        Of the weights.
    adjustment : float
        Weights grow as if the loss of a context were higher by this number over the square root of its samples: few
        samples are learnt by heart sooner (Sagawa and others 2020, who try 1 to 5).
    """

    method = "group-dro"
    log_weights: Tensor

    def __init__(
        self, counts: Any, *, step_size: float = 0.01, adjustment: float = 0.0, sampling: Sampling = "proportional"
    ) -> None:
        super().__init__(counts, sampling=sampling)
        self.step_size: float = positive_number(step_size, "step_size")
        self.adjustment: float = 0.0 if adjustment == 0.0 else positive_number(adjustment, "adjustment")
        self._keep("log_weights", np.zeros(self.n_contexts))

    @property
    def context_weights(self) -> Tensor:
        """The weights reached so far."""
        return torch.softmax(self.log_weights, 0)

    @torch.no_grad()
    def _learn(self, sums: Tensor, counts: Tensor) -> None:
        super()._learn(sums, counts)
        self._run(self._grow, ("log_weights",), sums, counts)

    @property
    def _settings(self) -> tuple[Any, ...]:
        return (*super()._settings, self.step_size, self.adjustment)

    def _grow(self, xp: ModuleType, of: Arrays) -> None:
        steps = xp.where(xp.isfinite(of.batch_sums), of.batch_sums, 0.0) / xp.clip(of.batch_counts, 1.0, None)
        if self.adjustment:
            steps = steps + self.adjustment / xp.sqrt(of.counts)
        logs = of.log_weights
        logs += self.step_size * steps
        logs -= logs.max()
