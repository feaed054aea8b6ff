"""Rows on a device dealt to folds: those of one fold are left out by taking their weight from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from counterpoise.rows._base import Array
from counterpoise.rows.device_stack import host


@dataclass(frozen=True, eq=False)
class TorchFolds:
    """Rows on a device, each held out in one fold.

    Attributes
    ----------
    rows : TorchRows
    fold : Tensor of shape (n,)
        The fold of the rows of all tiles; -1 where they only fill a tile up.
    n_folds : int
    """

    rows: Any
    fold: Tensor
    n_folds: int

    @classmethod
    def dealt(cls, rows: Any, n_folds: int) -> TorchFolds:
        """Deal rows out along their targets; see :func:`counterpoise.core.references.folds_within`."""
        real, codes = rows.real, rows.codes
        target = rows.target[real] if rows.target.ndim == 1 else rows.target[real, -1]
        order = torch.argsort(target, stable=True)
        order = order[torch.argsort(codes[order], stable=True)]
        sizes = torch.bincount(codes, minlength=rows.n_contexts)
        starts = torch.cumsum(sizes, 0) - sizes
        of = codes[order]
        rank = torch.arange(len(order), device=order.device) - starts[of]
        fold = torch.full((len(rows.weight),), -1, dtype=torch.long, device=order.device)
        fold[real[order]] = (rank + of) % n_folds
        return cls(rows, fold, n_folds)

    @classmethod
    def given(cls, rows: Any, folds: NDArray[np.intp], n_folds: int) -> TorchFolds:
        """Return rows whose folds are known, in the order of ``rows.real``."""
        fold = torch.full((len(rows.weight),), -1, dtype=torch.long, device=rows.weight.device)
        fold[rows.real] = torch.tensor(folds, dtype=torch.long, device=fold.device)
        return cls(rows, fold, n_folds)

    @cached_property
    def left(self) -> NDArray[np.intp]:
        """The rows of each context that a fold leaves, of shape (n_contexts, n_folds)."""
        pair = self.rows.codes * self.n_folds + self.fold[self.rows.real]
        held = torch.bincount(pair, minlength=self.rows.n_contexts * self.n_folds)
        held = held.reshape(self.rows.n_contexts, self.n_folds)
        return (held.sum(1, keepdim=True) - held).cpu().numpy().astype(np.intp)

    def without(self, k: int) -> Any:
        """Return the rows of the other folds; a context of which nothing is left keeps all of its own."""
        rows = self.rows
        kept = rows.weight * (self.fold != k)
        empty = rows.tiles.each(self.left[:, k] == 0)
        kept = torch.where(empty, rows.weight, kept)
        return rows.reweighted(kept / rows.tiles.each(rows.tiles.total(kept)))

    def losses(self, thetas: Sequence[Array], ridges: Sequence[Array]) -> Tensor:
        """Return the loss of each row under the parameters of its fold, (C, P) or (1, P), and what is added to it.

        Parameters
        ----------
        ridges : sequence of ndarray of shape (n_contexts,)
        """
        found = torch.zeros_like(self.rows.weight)
        for k, (theta, ridge) in enumerate(zip(thetas, ridges, strict=True)):
            value = self.rows.pointwise.value(self.rows.target, self.rows.tiles.product(theta))
            found = torch.where(self.fold == k, value + self.rows.tiles.each(ridge), found)
        return found

    def means(self, losses: Tensor) -> Array:
        """Return the mean loss of each context."""
        means: Array = self.rows.tiles.total(self.rows.weight * losses)
        return means

    def in_memory(self, losses: Tensor) -> Array:
        """Return the loss of each row, in the order of ``rows.real``."""
        return host(losses[self.rows.real])

    def folds_in_memory(self) -> NDArray[np.intp]:
        """Return the fold of each row, in the same order."""
        return self.fold[self.rows.real].cpu().numpy().astype(np.intp)
