"""What trees minimise: by its name in each library, and row by row in predictions that have left the library."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol, get_args

import numpy as np
from numpy.typing import NDArray

from counterpoise.exceptions import InvalidInputError
from counterpoise.losses import Loss, Pinball, Poisson, Squared

Array = NDArray[np.float64]

NumberLossName = Literal["squared_error", "poisson", "quantile"]

_LEAST_MEAN = 1e-30
"""A predicted mean below this counts as this much: 32-bit floats may round it to zero, which has no logarithm."""


class BoostedLoss(Protocol):
    """A loss that both libraries minimise, in terms of what they predict: a probability, a mean, a quantile."""

    @property
    def n_classes(self) -> int:
        """0 where a number is predicted."""

    @property
    def is_quantile(self) -> bool:
        """Whether leaves are quantiles of targets, which libraries define differently with weights and without."""

    @property
    def xgboost(self) -> Mapping[str, Any]:
        """The objective in XGBoost's words."""

    @property
    def lightgbm(self) -> Mapping[str, Any]:
        """The objective in LightGBM's words."""

    def rows(self, target: Array, predictions: NDArray[Any], least: float) -> Array:
        """Return the loss of each row; probabilities below ``least`` count as this much."""

    def constant(self, target: Array, weight: Array) -> NDArray[Any]:
        """Return the one prediction with the least mean loss: a number, or a probability per class."""

    def lowest(self, target: Array) -> Array:
        """Return the loss of a perfect prediction of each row."""

    def refuse(self, target: Array) -> None:
        """Raise where a target is outside the loss's domain."""


@dataclass(frozen=True)
class LogLoss:
    """Minus the logarithm of the probability of a row's class, in nats; classes are numbers from 0."""

    n_classes: int
    is_quantile: ClassVar[bool] = False

    @property
    def xgboost(self) -> Mapping[str, Any]:
        if self.n_classes == 2:
            return {"objective": "binary:logistic"}
        return {"objective": "multi:softprob", "num_class": self.n_classes}

    @property
    def lightgbm(self) -> Mapping[str, Any]:
        if self.n_classes == 2:
            return {"objective": "binary"}
        return {"objective": "multiclass", "num_class": self.n_classes}

    def rows(self, target: Array, predictions: NDArray[Any], least: float) -> Array:
        own = predictions[np.arange(len(target)), target.astype(np.intp)].astype(np.float64)
        return -np.log(np.clip(own, least, 1.0))

    def constant(self, target: Array, weight: Array) -> NDArray[Any]:
        totals = np.bincount(target.astype(np.intp), weight, self.n_classes)
        return np.asarray(totals / totals.sum())

    def lowest(self, target: Array) -> Array:
        return np.zeros(len(target))

    def refuse(self, target: Array) -> None:
        """Accept every class."""


@dataclass(frozen=True)
class NumberLoss:
    """The loss of a linear model, for trees.

    Attributes
    ----------
    loss : Loss
    xgboost, lightgbm : mapping
        The objective in the words of each library.
    of_logarithm : bool
        Whether the loss is one of the logarithm of what the libraries predict.
    """

    loss: Loss
    xgboost: Mapping[str, Any]
    lightgbm: Mapping[str, Any]
    of_logarithm: bool = False
    n_classes: int = 0

    @property
    def is_quantile(self) -> bool:
        return isinstance(self.loss, Pinball)

    @classmethod
    def named(cls, name: NumberLossName, quantile: float = 0.5) -> NumberLoss:
        """Return a loss by the name it has in the estimators."""
        if name == "squared_error":
            return cls(Squared(), {"objective": "reg:squarederror"}, {"objective": "regression"})
        if name == "poisson":
            return cls(Poisson(), {"objective": "count:poisson"}, {"objective": "poisson"}, of_logarithm=True)
        if name == "quantile":
            level = float(Pinball(quantile).quantile)
            return cls(
                Pinball(level),
                {"objective": "reg:quantileerror", "quantile_alpha": level},
                {"objective": "quantile", "alpha": level},
            )
        raise InvalidInputError(f"loss is {name!r}; choose one of {', '.join(map(repr, get_args(NumberLossName)))}.")

    def rows(self, target: Array, predictions: NDArray[Any], least: float = 0.0) -> Array:
        given = predictions.astype(np.float64)
        return self.loss.value(target, np.log(np.maximum(given, _LEAST_MEAN)) if self.of_logarithm else given)

    def constant(self, target: Array, weight: Array) -> NDArray[Any]:
        if isinstance(self.loss, Pinball):
            return np.asarray(_weighted_quantile(target, weight, self.loss.quantile))
        return np.asarray(np.average(target, weights=weight))

    def lowest(self, target: Array) -> Array:
        return self.loss.lowest(target)

    def refuse(self, target: Array) -> None:
        outside = np.flatnonzero(self.loss.outside(target))
        if outside.size:
            raise InvalidInputError(
                f"y is {target[outside[0]]:g} in row {outside[0]}; loss={self.loss.name!r} takes {self.loss.domain}."
            )


def _weighted_quantile(values: Array, weight: Array, level: float) -> float:
    """Return the smallest value that a share ``level`` of the weight does not exceed."""
    order = np.argsort(values, kind="stable")
    total = np.cumsum(weight[order])
    return float(values[order[np.searchsorted(total, (level - 1e-12) * total[-1])]])
