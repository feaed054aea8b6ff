"""Between the last layer of a network and a linear estimator: what outputs mean, and how features are scaled."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from counterpoise.exceptions import InvalidInputError
from counterpoise.torch.evaluation import per_sample
from counterpoise.torch.ridge_heads import HeadTarget, Task, scales
from counterpoise.validation import on_host

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Outputs:
    """What the outputs of a layer mean, and the targets they are for.

    Attributes
    ----------
    values : ndarray of shape (n_samples,)
        Classes or numbers, as an estimator takes them.
    task : {"classification", "regression"}
    n_outputs : int
        Of the layer: one for each class; or one, the log-odds of class 1 or a number.
    """

    values: NDArray[Any]
    task: Task
    n_outputs: int

    @classmethod
    def of(cls, targets: Any, task: Task | None, n_rows: int, layer: nn.Linear | None) -> Outputs:
        """Check targets against a layer; without one there is an output for each class up to the largest."""
        values = np.asarray(on_host(targets))
        if values.ndim == 2 and values.shape[1] == 1:
            values = values[:, 0]
        if values.shape != (n_rows,):
            raise InvalidInputError(f"targets have shape {values.shape} for {n_rows} rows; pass one number per row.")
        if task not in (None, "classification", "regression"):
            raise InvalidInputError(f"task is {task!r}; choose 'classification' or 'regression'.")
        if task is None:
            task = "regression" if np.issubdtype(values.dtype, np.floating) else "classification"
            if task == "regression" and np.isin(values, (0.0, 1.0)).all():
                raise InvalidInputError(
                    "targets are floats that are all 0 or 1. Pass task='classification' if they are classes, "
                    "task='regression' if they are numbers."
                )
        if task == "regression":
            if layer is not None and layer.out_features != 1:
                raise InvalidInputError(
                    f"the layer has {layer.out_features} outputs, and targets are numbers, one per row. Pass whole "
                    "numbers if they are classes."
                )
            return cls(values.astype(np.float64), task, 1)
        classes = values.astype(np.intp)
        most = max(int(classes.max()) + 1, 2) if layer is None else max(layer.out_features, 2)
        if not np.array_equal(classes, values) or classes.min() < 0 or classes.max() >= most:
            raise InvalidInputError(
                f"classes run from {values.min()} to {values.max()}; pass whole numbers from 0 to {most - 1}."
            )
        return cls(classes, task, most if layer is None else layer.out_features)

    def target(self, like: Tensor) -> HeadTarget:
        """Return the targets as cross-fitted heads take them."""
        return HeadTarget.of(torch.as_tensor(self.values), self.task, like)

    def losses(self, outputs: Tensor) -> Array:
        """Return the loss of each row under a layer with these outputs."""
        exact = outputs.double()
        target = torch.as_tensor(self.values, device=outputs.device)
        if self.task == "classification" and self.n_outputs == 1:
            found = nn.functional.softplus(torch.where(target > 0, -exact[:, 0], exact[:, 0]))
        else:
            found = per_sample(exact, target)
        return np.asarray(found.cpu().numpy())

    def spread_out(self, coef: Array, intercept: Array, classes: NDArray[Any] | None, X: Tensor) -> tuple[Array, Array]:
        """Return coefficients of an estimator as those of a layer with an output for every class.

        A class that the estimator has not seen gets a constant output, with which it is about as probable as one row in
        all those that were seen.

        Parameters
        ----------
        classes : ndarray or None
            Those of the estimator.
        X : Tensor of shape (n_samples, n_features)
            Its rows.
        """
        coef, intercept = np.atleast_2d(coef), np.atleast_1d(intercept)
        if self.n_outputs == 1 or classes is None:
            return coef, intercept
        if len(classes) == 2:
            # Halves of either sign: the least change of two outputs that makes the same difference.
            coef, intercept = np.concatenate([-coef, coef]) / 2.0, np.concatenate([-intercept, intercept]) / 2.0
        weight, bias = np.zeros((self.n_outputs, coef.shape[1])), np.zeros(self.n_outputs)
        seen = np.asarray(classes, dtype=np.intp)
        weight[seen], bias[seen] = coef, intercept
        missing = np.setdiff1d(np.arange(self.n_outputs), seen)
        if missing.size:
            known = X @ torch.as_tensor(coef.T, dtype=X.dtype, device=X.device)
            size = torch.logsumexp(known.double() + torch.as_tensor(intercept, device=X.device), 1).mean()
            bias[missing] = float(size) - math.log(len(X) + 1.0)
        return weight, bias


@dataclass(frozen=True, eq=False)
class Scaling:
    """How features are standardised.

    Attributes
    ----------
    shift, scale : Tensor of shape (n_features,)
        What is taken off raw features, and what the rest is multiplied by.
    """

    shift: Tensor
    scale: Tensor

    @classmethod
    def of(cls, features: Tensor) -> Scaling:
        """Take means and standard deviations from features."""
        return cls(*scales(features))

    def applied(self, features: Tensor) -> Tensor:
        """Return standardised features."""
        return (features - self.shift).mul_(self.scale)

    def folded(self, coef: Array, intercept: Array) -> tuple[Array, Array]:
        """Return coefficients and intercept for raw features."""
        shift, scale = (part.double().cpu().numpy() for part in (self.shift, self.scale))
        raw = coef * scale
        return raw, intercept - raw @ shift


def linear_like(layer: nn.Linear | None, weight: Any, bias: Any, features: Tensor) -> nn.Linear:
    """Return a new layer with a copy of these parameters, with the dtype and device of a layer, or of features."""
    like = features if layer is None else layer.weight
    weight = torch.as_tensor(weight).detach()
    # Drawing parameters that are overwritten would move the global seed.
    new: nn.Linear = nn.utils.skip_init(  # type: ignore[no-untyped-call]
        nn.Linear, weight.shape[1], weight.shape[0], bias=bias is not None, device=like.device, dtype=like.dtype
    )
    with torch.no_grad():
        new.weight.copy_(weight)
        if bias is not None:
            new.bias.copy_(torch.as_tensor(bias).detach())
    return new
