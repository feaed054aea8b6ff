"""Linear heads with a ridge, many at once: for every fold that is left out and every strength of the ridge.

Only the loss of rows that a head has not seen is wanted of it, so heads are solved to the accuracy of such losses and
without a certificate: by accelerated gradient steps in a metric that bounds the curvature from above (Böhning and Lindsay
1988). In the principal axes of the features that metric is diagonal, so that a step is two products of the rows for all
heads together, on any device and for any number of classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from counterpoise.exceptions import InvalidInputError

Task = Literal["classification", "regression"]

ALPHAS = (1e-3, 1e-2, 1e-1, 1.0, 10.0)
"""Strengths of the ridge that are tried, on standardised features: ``alpha / 2 * |coef|^2`` beside the mean loss."""

_CLOSE = 1e-5
"""Share of the typical loss that a head may be above its minimum, about."""

_MAX_ITER = 500

_NEGLIGIBLE = 1e-10
"""Share of the largest variance below which an axis is rounding."""


@dataclass(frozen=True, eq=False)
class HeadTarget:
    """Targets of a linear head, and its loss: cross-entropy of classes, half the squared error of numbers.

    Attributes
    ----------
    values : Tensor of shape (n_samples, n_outputs)
        Indicators of the classes (of the second one alone where there are two), or numbers.
    task : {"classification", "regression"}
    """

    values: Tensor
    task: Task

    @classmethod
    def of(cls, targets: Any, task: Task | None, like: Tensor) -> HeadTarget:
        """Read targets as :func:`counterpoise.torch.per_sample` does: whole numbers are classes."""
        values = torch.as_tensor(targets, device=like.device)
        if task not in (None, "classification", "regression"):
            raise InvalidInputError(f"task is {task!r}; choose 'classification' or 'regression'.")
        if len(values) != len(like):
            raise InvalidInputError(f"there are {len(like)} rows of features and {len(values)} targets.")
        if task is None:
            task = "regression" if values.is_floating_point() else "classification"
        if task == "regression":
            numbers = values.to(like.dtype).reshape(len(values), -1)
            if not bool(torch.isfinite(numbers).all()):
                raise InvalidInputError("targets are not all finite numbers.")
            return cls(numbers, task)
        classes, codes = torch.unique(values.reshape(len(like), -1).squeeze(1), return_inverse=True)
        # Classes without rows are no part of any loss here. A row of indicators is as good as a difference of two.
        if codes.ndim != 1:
            raise InvalidInputError(f"classes have shape {tuple(values.shape)}; pass one per row.")
        indicators = torch.nn.functional.one_hot(codes, max(len(classes), 2)).to(like.dtype)
        return cls(indicators[:, 1:] if indicators.shape[1] == 2 else indicators, task)

    @property
    def n_outputs(self) -> int:
        """Outputs of the head."""
        return self.values.shape[1]

    @property
    def bound(self) -> float:
        """The largest curvature of the loss of a row along any direction of its outputs."""
        if self.task == "regression":
            return 1.0 / self.n_outputs
        return 0.25 if self.n_outputs == 1 else 0.5

    @property
    def typical(self) -> float:
        """The loss of a head that knows nothing, about."""
        if self.task == "classification":
            return 0.5
        return max(float(0.5 * self.values.var(0, unbiased=False).mean()), torch.finfo(self.values.dtype).tiny)

    def subset(self, rows: Tensor) -> HeadTarget:
        """Return the targets of some rows."""
        return HeadTarget(self.values[rows], self.task)

    def losses(self, outputs: Tensor) -> Tensor:
        """Return the losses of rows under several heads: outputs of shape (n_samples, ..., n_outputs)."""
        target = self._beside(outputs)
        if self.task == "regression":
            return 0.5 * (outputs - target).square().mean(-1)
        if self.n_outputs == 1:
            return (torch.nn.functional.softplus(outputs) - target * outputs).sum(-1)
        return torch.logsumexp(outputs, -1) - (target * outputs).sum(-1)

    def slopes(self, outputs: Tensor) -> Tensor:
        """Return the derivatives of the losses in the outputs."""
        target = self._beside(outputs)
        if self.task == "regression":
            return (outputs - target) / self.n_outputs
        return (torch.sigmoid(outputs) if self.n_outputs == 1 else torch.softmax(outputs, -1)) - target

    def _beside(self, outputs: Tensor) -> Tensor:
        return self.values.reshape(len(self.values), *(1,) * (outputs.ndim - 2), self.n_outputs)


def left_out(folds: Tensor, n_folds: int) -> Tensor:
    """Return what each row counts without every fold, of shape (n_samples, n_folds): sums to one, or to zero."""
    kept = (folds[:, None] != torch.arange(n_folds, device=folds.device)).to(torch.float64)
    return kept / kept.sum(0).clamp(min=1.0)


def ridge_heads(
    features: Tensor,
    target: HeadTarget,
    weight: Tensor,
    alphas: Sequence[float],
    offset: Tensor | None = None,
) -> Tensor:
    """Return the outputs of all rows under heads for every weighting of them and every ridge.

    Parameters
    ----------
    features : Tensor of shape (n_samples, n_features)
    target : HeadTarget
    weight : Tensor of shape (n_samples, n_weightings)
        Such as :func:`left_out` returns. Where a column is zero, so is the head.
    alphas : sequence of float
    offset : Tensor of shape (n_samples, n_weightings, n_outputs), optional
        Outputs that the heads are added to; the ridge then shrinks them towards these, the intercept too.

    Returns
    -------
    Tensor of shape (n_samples, n_weightings, n_alphas, n_outputs)
    """
    n, weight = len(features), weight.to(features.dtype)
    axes, spread = _principal(features)
    ridge = torch.tensor(alphas, dtype=features.dtype, device=features.device)
    penalty = ridge.expand(axes.shape[1], -1)
    if offset is None:
        # As if one more row asked for even chances: without it a class that a fold has no rows of would lead ever on.
        penalty = torch.cat([penalty[:-1], torch.full_like(penalty[:1], 1.0 / n)])
    penalty = penalty[:, None, :, None]
    largest = weight.amax(0) * n
    metric = target.bound * spread[:, None, None, None] * largest[None, :, None, None] + penalty
    size = (weight.shape[1], len(alphas), target.n_outputs)
    now = axes.new_zeros(axes.shape[1], *size)
    ahead, pace = now, axes.new_ones(size[:2])
    base = 0.0 if offset is None else offset[:, :, None, :]
    for _ in range(_MAX_ITER):
        outputs = (axes @ ahead.flatten(1)).reshape(n, *size) + base
        slopes = target.slopes(outputs) * weight[:, :, None, None]
        gradient = (axes.T @ slopes.flatten(1)).reshape(now.shape) + penalty * ahead
        step = gradient / metric
        if bool((0.5 * (gradient * step).sum((0, 3))).amax() <= _CLOSE * target.typical):
            now = ahead
            break
        there = ahead - step
        # Momentum that leads uphill is dropped (O'Donoghue and Candès 2015).
        uphill = (gradient * (there - now)).sum((0, 3)) > 0.0
        pace = torch.where(uphill, 1.0, pace)
        quicker = 0.5 * (1.0 + torch.sqrt(1.0 + 4.0 * pace.square()))
        ahead = there + ((pace - 1.0) / quicker)[None, :, :, None] * (there - now)
        now, pace = there, quicker
    return (axes @ now.flatten(1)).reshape(n, *size) + base


def _principal(features: Tensor) -> tuple[Tensor, Tensor]:
    """Return the rows in the principal axes of their features, ones last, and the mean square of each column."""
    centred = features - features.mean(0)
    n, d = centred.shape
    wide = d > n
    gram = (centred @ centred.T if wide else centred.T @ centred).to(torch.float64) / n
    variance, vectors = torch.linalg.eigh(gram)
    real = variance > _NEGLIGIBLE * variance.amax().clamp(min=torch.finfo(torch.float64).tiny)
    variance, vectors = variance[real], vectors[:, real]
    axes = vectors * (n * variance).sqrt() if wide else None
    rotated = axes.to(features.dtype) if axes is not None else centred @ vectors.to(features.dtype)
    ones = torch.ones(n, 1, dtype=features.dtype, device=features.device)
    return torch.cat([rotated, ones], 1), torch.cat([variance.to(features.dtype), ones[0]])


def standardised(features: Any) -> Tensor:
    """Return features with mean zero and, unless they are constant, standard deviation one."""
    tensor = torch.as_tensor(features)
    if tensor.ndim != 2:
        raise InvalidInputError(f"features have shape {tuple(tensor.shape)}; pass one row per sample.")
    tensor = tensor.detach().to(torch.float64 if tensor.dtype == torch.float64 else torch.float32)
    if not bool(torch.isfinite(tensor).all()):
        raise InvalidInputError("features are not all finite numbers. Check the network on these rows.")
    spread = tensor.std(0, unbiased=False)
    return (tensor - tensor.mean(0)) / torch.where(spread > 0.0, spread, 1.0)


def checked_alphas(alphas: Sequence[float] | None) -> tuple[float, ...]:
    """Return the strengths of the ridge to try."""
    given: NDArray[np.float64] = np.asarray(ALPHAS if alphas is None else alphas, dtype=np.float64)
    if given.ndim != 1 or not len(given) or not (np.isfinite(given) & (given > 0.0)).all():
        raise InvalidInputError(f"alphas = {alphas!r:.60}; pass positive numbers.")
    return tuple(given.tolist())
