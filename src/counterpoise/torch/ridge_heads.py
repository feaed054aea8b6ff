"""Linear heads with a ridge, many at once: for every fold that is left out and every strength of the ridge.

Heads serve to judge rows they have not seen, so they are solved to the accuracy of such losses, and the intercept has
a small penalty too. Risks in sample, and all else that enters a certificate, come
from :mod:`counterpoise.core`. Steps are accelerated gradient steps in a metric that bounds the curvature from above
(Böhning and Lindsay 1988). In the principal axes of the features that metric is diagonal, so that a step is two
products of the rows for all heads together, on any device and for any number of classes.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from counterpoise.exceptions import InvalidInputError, NotCertifiedWarning

Array = NDArray[np.float64]
Task = Literal["classification", "regression"]

ALPHAS = (1e-3, 1e-2, 1e-1, 1.0, 10.0)
"""Strengths of the ridge that are tried, on standardised features: ``alpha / 2 * |coef|^2`` beside the mean loss."""

_CLOSE = 1e-4
"""Share of the typical loss that a head may be above its minimum."""

_MAX_ITER, _LOOK = 2000, 5

_ROUNDING = 1e-6
"""Share of its largest value below which the standard deviation of a feature is rounding."""

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
    typical : float
        The loss of a head that knows nothing, about, over all rows: what losses are measured by.
    """

    values: Tensor
    task: Task
    typical: float = 0.5

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
            spread = 0.5 * float(numbers.var(0, unbiased=False).mean())
            # Of numbers that are all the same, rounding is left.
            rounding = torch.finfo(numbers.dtype).eps * float(numbers.square().mean())
            return cls(numbers, task, max(spread, rounding, torch.finfo(numbers.dtype).tiny))
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

    def subset(self, rows: Tensor) -> HeadTarget:
        """Return the targets of some rows."""
        return HeadTarget(self.values[rows], self.task, self.typical)

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


@dataclass(frozen=True, eq=False)
class Heads:
    """Linear heads for several weightings of the rows and several ridges.

    Attributes
    ----------
    outputs : Tensor of shape (n_samples, n_weightings, n_alphas, n_outputs)
        Of all rows.
    ridge : Tensor of shape (n_weightings, n_alphas)
        ``alpha / 2 * |coef|^2``.
    gap : float
        No head is above its minimum by more.
    """

    outputs: Tensor
    ridge: Tensor
    gap: float


def dealt_folds(codes: NDArray[np.intp], n_folds: int, seed: int) -> NDArray[np.intp]:
    """Deal the rows of every context to folds at random.

    Not along their targets: where every fold has as many rows of a class as chance has given the context, a head knows
    that share of rows it has not seen, and the risk is too low by about half a parameter over the rows.
    """
    # Here, not above: those who take a loss for a loop of their own need not wait for what references import.
    from counterpoise.core.references.cross_fit import folds_within

    if not (isinstance(n_folds, (int, np.integer)) and not isinstance(n_folds, bool) and n_folds >= 2):
        raise InvalidInputError(f"folds = {n_folds!r}; pass a whole number, 2 or more.")
    return folds_within(codes, np.random.default_rng(seed).random(len(codes)), int(n_folds))


def left_out(folds: NDArray[np.intp], n_folds: int, codes: NDArray[np.intp], mix: Array) -> Array:
    """Return what each row counts without every fold, of shape (n_samples, n_folds): sums to one, or to zero.

    Parameters
    ----------
    codes : ndarray of shape (n_samples,)
        The context of each row.
    mix : ndarray of shape (n_contexts,)
        What each context counts; rows of one count alike.
    """
    kept = (folds[:, None] != np.arange(n_folds)).astype(np.float64)
    sizes = np.zeros((len(mix), n_folds))
    np.add.at(sizes, codes, kept)
    weight = kept * (mix[:, None] / np.maximum(sizes, 1.0))[codes]
    total = weight.sum(axis=0)
    return np.asarray(weight / np.where(total > 0.0, total, 1.0))


def ridge_heads(
    features: Tensor,
    target: HeadTarget,
    weight: Array,
    alphas: Sequence[float],
    offset: Tensor | None = None,
) -> Heads:
    """Fit a head for every weighting of the rows and every ridge.

    Parameters
    ----------
    features : Tensor of shape (n_samples, n_features)
    target : HeadTarget
    weight : ndarray of shape (n_samples, n_weightings)
        Such as :func:`left_out` returns. Where a column is zero, so is the head.
    alphas : sequence of float
    offset : Tensor of shape (n_samples, n_weightings, n_outputs), optional
        Outputs that the heads are added to; the ridge then shrinks them towards these, the intercept too.

    Returns
    -------
    Heads

    Warns
    -----
    NotCertifiedWarning
        If the goal is not reached.
    """
    n, like = len(features), partial(torch.as_tensor, dtype=features.dtype, device=features.device)
    overall = weight.mean(axis=1)
    axes, spread = _principal(features, like(overall))
    # No weighting gives a row more than this many times what it has on average over them.
    most = like((weight / np.where(overall > 0.0, overall, 1.0)[:, None]).max(axis=0))
    weights = like(weight)[:, :, None, None]
    penalty = like(alphas).repeat(axes.shape[1], 1)
    if offset is None:
        # As if one more row asked for even chances: without this, the intercept of a class that has no rows outside
        # the fold would diverge.
        penalty[-1] = 1.0 / n
    penalty = penalty[:, None, :, None]
    metric = target.bound * spread[:, None, None, None] * most[None, :, None, None] + penalty
    size = (weight.shape[1], len(alphas), target.n_outputs)
    now = axes.new_zeros(axes.shape[1], *size)
    ahead, pace = now, axes.new_ones(size[:2])
    if offset is None:
        # Numbers are counted from their mean, so that the penalty on the intercept does not move it.
        means = target.values.T @ like(weight) if target.task == "regression" else axes.new_zeros(size[2], size[0])
        base = means.T[None, :, None, :]
    else:
        base = offset[:, :, None, :]
    goal, gap = _CLOSE * target.typical, float("inf")
    for n_iter in range(_MAX_ITER):
        outputs = (axes @ ahead.flatten(1)).reshape(n, *size) + base
        slopes = target.slopes(outputs) * weights
        gradient = (axes.T @ slopes.flatten(1)).reshape(now.shape) + penalty * ahead
        step = gradient / metric
        there = ahead - step
        # Looked at now and then: on a GPU the host would wait for it every time.
        if n_iter % _LOOK == 0 or n_iter == _MAX_ITER - 1:
            # Penalties make the objective strongly convex, so that a gradient bounds the distance from the minimum.
            gap = float((0.5 * (gradient.square() / penalty).sum((0, 3))).amax())
            if gap <= goal:
                now = there
                break
        # Momentum that leads uphill is dropped (O'Donoghue and Candès 2015).
        uphill = (gradient * (there - now)).sum((0, 3)) > 0.0
        pace = torch.where(uphill, 1.0, pace)
        quicker = 0.5 * (1.0 + torch.sqrt(1.0 + 4.0 * pace.square()))
        ahead = there + ((pace - 1.0) / quicker)[None, :, :, None] * (there - now)
        now, pace = there, quicker
    else:
        warnings.warn(
            f"linear heads are up to {gap:.2g} above their least loss after {_MAX_ITER} steps (goal {goal:.2g}), so "
            "held-out risks and references may be off. Leave out the smallest alphas, or scale the features.",
            NotCertifiedWarning,
            stacklevel=2,
        )
    squares = 0.5 * now[:-1].square().sum((0, 3))
    return Heads((axes @ now.flatten(1)).reshape(n, *size) + base, squares * like(alphas), gap)


def held_out_losses(outputs: Tensor, target: HeadTarget, folds: NDArray[np.intp]) -> Array:
    """Return the loss of each row under the heads without its fold, of shape (n_samples, n_alphas).

    Parameters
    ----------
    outputs : Tensor of shape (n_samples, n_folds, n_alphas, n_outputs)
        Of heads whose weightings leave out a fold each.
    """
    rows = torch.arange(len(outputs), device=outputs.device)
    own = outputs[rows, torch.as_tensor(folds, device=outputs.device)]
    return np.asarray(target.losses(own).double().cpu().numpy())


def _principal(features: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Return the rows in the principal axes of their features, ones last, and the mean square of each column.

    Means are weighted.
    """
    total = weight.sum().clamp(min=torch.finfo(weight.dtype).tiny)
    centred = features - (weight / total) @ features
    n, d = centred.shape
    half = weight.sqrt()[:, None]
    scaled = half * centred
    wide = d > n
    variance, vectors = torch.linalg.eigh((scaled @ scaled.T if wide else scaled.T @ scaled).double())
    real = variance > _NEGLIGIBLE * variance.amax().clamp(min=torch.finfo(torch.float64).tiny)
    variance, vectors = variance[real].to(features.dtype), vectors[:, real].to(features.dtype)
    directions = scaled.T @ (vectors / variance.sqrt()) if wide else vectors
    ones = torch.ones(n, 1, dtype=features.dtype, device=features.device)
    return torch.cat([centred @ directions, ones], 1), torch.cat([variance, total.reshape(1)])


def checked_features(features: Any) -> Tensor:
    """Return features as a tensor of floats, where they are."""
    tensor = torch.as_tensor(features).detach()
    if tensor.ndim != 2 or not len(tensor):
        raise InvalidInputError(f"features have shape {tuple(tensor.shape)}; pass one row per sample.")
    tensor = tensor.to(torch.float64 if tensor.dtype == torch.float64 else torch.float32)
    if not bool(torch.isfinite(tensor).all()):
        raise InvalidInputError("features are not all finite numbers. Check the network on these rows.")
    return tensor


def scales(features: Tensor) -> tuple[Tensor, Tensor]:
    """Return the mean of each feature, and one over its standard deviation: 0 where it is constant up to rounding."""
    mean, spread = features.mean(0), features.std(0, unbiased=False)
    varies = spread > _ROUNDING * features.abs().amax(0)
    return mean, torch.where(varies, 1.0 / torch.where(varies, spread, 1.0), 0.0)


def checked_alphas(alphas: Sequence[float] | None) -> tuple[float, ...]:
    """Return the strengths of the ridge to try."""
    given: NDArray[np.float64] = np.asarray(ALPHAS if alphas is None else alphas, dtype=np.float64)
    if given.ndim != 1 or not len(given) or not (np.isfinite(given) & (given > 0.0)).all():
        raise InvalidInputError(f"alphas = {alphas!r:.60}; pass positive numbers.")
    return tuple(given.tolist())
