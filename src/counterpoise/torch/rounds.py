"""Held-out rounds in somebody else's training loop: when one is due, what it gives the loss, which was the best."""

from __future__ import annotations

import copy
import math
from numbers import Integral, Real
from typing import Any, Protocol, cast

import torch
from torch import Tensor, nn

from counterpoise.exceptions import CounterpoiseError, InvalidInputError


class DivergedError(CounterpoiseError):
    """Losses are no longer finite."""


class LearnsFromHeldOut(Protocol):
    """A loss whose mix is decided by held-out losses."""

    worst_excess: float

    def update(self, losses: Tensor, contexts: Tensor) -> None:
        """Take the held-out losses of a round."""
        ...


class Rounds:
    """The held-out rounds of one training.

    Parameters
    ----------
    every : float or int
        A float is a share of an epoch, an int a number of training batches.

    Attributes
    ----------
    n_batches, n_rounds, best_round : int
        Training batches and rounds so far, and the best round from 0 on; -1 before the first.
    best_excess : float
        The least worst case of a round.
    best_state : dict or None
        The parameters of the model in the best round.
    """

    def __init__(self, every: float) -> None:
        self.every = every
        self.n_batches, self.n_rounds, self.best_round = 0, 0, -1
        self.best_excess = math.inf
        self.best_state: dict[str, Any] | None = None

    def is_due(self, per_epoch: float) -> bool:
        """Count a training batch, and tell whether a round is due after it, with so many batches in an epoch."""
        self.n_batches += 1
        if isinstance(self.every, float) and not math.isfinite(per_epoch):
            raise InvalidInputError(
                f"every = {self.every} epochs, but an epoch has no known length. Pass a number of batches, as an int."
            )
        return is_due(self.every, self.n_batches, per_epoch)

    def take(self, loss: LearnsFromHeldOut, losses: list[Tensor], contexts: list[Tensor]) -> bool:
        """Give a round's losses to the loss, and tell whether it was the best round so far."""
        if not losses:
            raise InvalidInputError("there are no held-out batches. Pass a DataLoader or a list, not a generator.")
        rows = torch.cat(losses)
        if not bool(torch.isfinite(rows).all()):
            raise DivergedError("a held-out loss is not a finite number: training diverged. Lower the learning rate.")
        loss.update(rows, torch.cat(contexts))
        is_best = loss.worst_excess < self.best_excess
        if is_best:
            self.best_excess, self.best_round = float(loss.worst_excess), self.n_rounds
        self.n_rounds += 1
        return is_best

    def remember(self, model: nn.Module, beside: nn.Module | None = None) -> None:
        """Keep a copy of a model's parameters; those of a part ``beside`` are left out."""
        own = {f"{name}." for name, part in model.named_modules() if part is beside}
        kept = model.state_dict().items()
        self.best_state = {key: copy.deepcopy(value) for key, value in kept if not key.startswith(tuple(own))}

    def restore(self, model: nn.Module) -> None:
        """Put the parameters of the best round back."""
        if self.best_state is not None:
            # What was left out is not missing.
            model.load_state_dict(self.best_state, strict=False)

    def state_dict(self) -> dict[str, Any]:
        """Return all that a checkpoint needs."""
        return {name: value for name, value in vars(self).items() if name != "every"}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a checkpoint."""
        vars(self).update(state)


def is_due(every: float, n_batches: int, per_epoch: float) -> bool:
    """Tell whether a round is due after so many training batches: ``every`` is epochs (a float) or batches (an int)."""
    interval = max(every * per_epoch, 1.0) if isinstance(every, float) else every
    # Rounded, so that the last batch of an epoch is one of the moments whatever a product of floats may be.
    done = [math.floor(round(n / interval, 9)) for n in (n_batches - 1, n_batches)]
    return done[1] > done[0]


def check_every(every: Any) -> float:
    """Return how often a round is due; raise unless that is a positive number of epochs or of batches."""
    if isinstance(every, Real) and not isinstance(every, bool) and 0.0 < float(every) < math.inf:
        return int(every) if isinstance(every, Integral) else float(every)
    raise InvalidInputError(
        f"every = {every!r}; pass a positive float for epochs (0.25: four rounds each), or an int for batches."
    )


def check_loss(loss: Any, where: str) -> LearnsFromHeldOut:
    """Raise unless a loss takes held-out losses."""
    if callable(getattr(loss, "update", None)):
        return cast(LearnsFromHeldOut, loss)
    raise InvalidInputError(
        f"{where} is {type(loss).__name__}, which takes no held-out losses. Use HeldOutWeights, or no callback: other "
        "losses learn from training batches alone."
    )
