"""A running average of a network's parameters: less noise from the last batches than in the last step."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import get_ema_multi_avg_fn

from counterpoise.exceptions import InvalidInputError


class RunningAverage:
    """An exponential running mean of parameters and buffers, which can take the place of those of the model.

    The model itself is not copied, so that compiled ones, and ones that several processes train, will do.

    Parameters
    ----------
    model : Module
    decay : float
        What a step leaves of the average, below 1; less at the beginning, so that the start is soon forgotten.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        if not (isinstance(decay, (int, float)) and not isinstance(decay, bool) and 0.0 <= decay < 1.0):
            raise InvalidInputError(f"average = {decay!r}; pass what a step leaves of it, from 0 to below 1.")
        self.model, self.decay, self.n_steps = model, float(decay), 0
        self.values = _copied(model.state_dict())

    @torch.no_grad()
    def update(self) -> None:
        """Take in the parameters of the model after a step."""
        self.n_steps += 1
        kept = min(self.decay, self.n_steps / (9.0 + self.n_steps))
        means: list[Tensor] = []
        news: list[Tensor] = []
        for name, new in self.model.state_dict().items():
            if isinstance(new, Tensor) and new.is_floating_point():
                means.append(self.values[name])
                news.append(new)
            else:
                self.values[name] = _copied({name: new})[name]
        get_ema_multi_avg_fn(kept)(means, news, self.n_steps)  # type: ignore[no-untyped-call]

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Let the model have the averages for a while."""
        own = _copied(self.model.state_dict())
        self.model.load_state_dict(self.values)
        try:
            yield
        finally:
            self.model.load_state_dict(own)

    def state_dict(self) -> dict[str, Any]:
        """Return what is needed to go on."""
        return {"n_steps": self.n_steps, "values": self.values}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from there."""
        self.n_steps, self.values = int(state["n_steps"]), _copied(state["values"])


def _copied(state: dict[str, Any]) -> dict[str, Any]:
    return {name: value.detach().clone() if isinstance(value, Tensor) else value for name, value in state.items()}
