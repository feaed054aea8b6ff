"""Losses of a network on batches: per sample, per context, and of several sets of parameters on the same rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, distributed, nn

from counterpoise.torch.losses import are_several, context_sums

RowLoss = Callable[[Tensor, Tensor], Tensor]
Batches = Iterable[tuple[Tensor, Tensor, Tensor]]


def per_sample(prediction: Tensor, target: Tensor) -> Tensor:
    """Return the loss of every sample: cross-entropy for classes, half the squared error for numbers."""
    if target.is_floating_point():
        squares = 0.5 * (prediction.reshape(target.shape) - target).square()
        return squares if squares.ndim == 1 else squares.flatten(1).mean(1)
    return nn.functional.cross_entropy(prediction, target, reduction="none")


def zero_one(prediction: Tensor, target: Tensor) -> Tensor:
    """Return 1 for every sample whose class is not the predicted one, and 0 otherwise.

    A single output is a score, above 0 for class 1. It has no gradient to train by: see ``judged_by`` of
    :func:`counterpoise.torch.fit`.
    """
    scores = prediction.squeeze(1) if prediction.ndim == 2 and prediction.shape[1] == 1 else prediction
    guess = (scores > 0).to(target.dtype) if scores.ndim == 1 else scores.argmax(1)
    return (guess != target.reshape(guess.shape)).double()


@torch.no_grad()
def context_risks(
    model: nn.Module,
    batches: Batches,
    n_contexts: int,
    row_loss: RowLoss = per_sample,
    device: str | torch.device | None = None,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the mean loss and the number of samples in each context; NaN where there are none."""
    place = torch.device(device) if device is not None else next(model.parameters()).device
    (found,) = HeldOutRisks.of(model, batches, n_contexts, [row_loss], place)
    return found.risks, found.counts


@dataclass(frozen=True, eq=False)
class HeldOutRisks:
    """Means of losses by context.

    Attributes
    ----------
    risks, counts, errors : ndarray of shape (n_contexts,)
        Mean losses, samples, and standard errors of the means; NaN where there are none.
    """

    risks: NDArray[np.float64]
    counts: NDArray[np.float64]
    errors: NDArray[np.float64]

    @classmethod
    @torch.no_grad()
    def of(
        cls,
        model: nn.Module,
        batches: Batches,
        n_contexts: int,
        row_losses: Sequence[RowLoss],
        device: torch.device,
        *,
        shared: bool = False,
    ) -> list[HeldOutRisks]:
        """Look at all batches once, in evaluation mode.

        Parameters
        ----------
        row_losses : sequence of callable
            There is one result for each.
        shared : bool
            Whether the rows of several processes are taken together: those that train one model must judge it alike.
        """
        was_training = model.training
        model.eval()
        sums = torch.zeros(len(row_losses), 3, n_contexts, dtype=torch.float64, device=device)
        for batch in batches:
            inputs, targets, contexts = (part.to(device) for part in batch)
            predictions = model(inputs)
            for own, row_loss in zip(sums, row_losses, strict=True):
                losses = row_loss(predictions, targets).detach().double()
                own[:2] += context_sums(losses, contexts, n_contexts)
                own[2].index_add_(0, contexts, losses.square())
        model.train(was_training)
        if shared and are_several():
            distributed.all_reduce(sums)
        return [cls._from(own) for own in sums.cpu().numpy()]

    @classmethod
    def _from(cls, sums: NDArray[np.float64]) -> HeldOutRisks:
        total, counts, squares = sums
        with np.errstate(invalid="ignore", divide="ignore"):
            risks = total / np.where(counts > 0, counts, np.nan)
            variance = (
                np.maximum(squares / counts - risks**2, 0.0) * counts / np.where(counts > 1, counts - 1.0, np.nan)
            )
            return cls(risks, counts, np.sqrt(variance / counts))


@torch.no_grad()
def row_losses(
    model: nn.Module,
    candidates: Mapping[str, Callable[[], object]],
    batches: Batches,
    row_loss: RowLoss,
    device: torch.device,
) -> tuple[dict[str, NDArray[np.float64]], NDArray[np.intp]]:
    """Return the loss of every row with each of several sets of parameters, and the contexts of the rows.

    There is one pass over the batches, in which every batch is shown to every candidate, so that losses are paired even
    where batches come in another order each time. The model is left with the last one's parameters.

    Parameters
    ----------
    candidates : mapping from name to callable
        What puts each one's parameters into the model.
    """
    was_training = model.training
    model.eval()
    losses: dict[str, list[Tensor]] = {name: [] for name in candidates}
    codes: list[Tensor] = []
    for batch in batches:
        inputs, targets, contexts = (part.to(device) for part in batch)
        codes.append(contexts)
        for name, put_in_place in candidates.items():
            put_in_place()
            losses[name].append(row_loss(model(inputs), targets).to(torch.float64))
    model.train(was_training)
    found = {name: torch.cat(parts).cpu().numpy() for name, parts in losses.items()}
    return found, torch.cat(codes).cpu().numpy().astype(np.intp)
