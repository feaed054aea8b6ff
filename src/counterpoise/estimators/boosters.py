"""Two boosting libraries behind one small interface: a round at a time, under weights that change in between."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from counterpoise.exceptions import InvalidInputError

Array = NDArray[np.float64]

_OWNED = {
    "n_estimators": "n_estimators num_boost_round num_iterations num_iteration n_iter num_tree num_trees num_round "
    "num_rounds nrounds max_iter",
    "learning_rate": "learning_rate eta shrinkage_rate",
    "n_jobs": "n_jobs nthread nthreads num_thread num_threads",
    "random_state": "random_state seed random_seed",
    "patience": "early_stopping_round early_stopping_rounds",
}
"""Parameters of the estimators, and what the libraries call them."""

_SETTLED = "objective objective_type app application loss num_class num_classes"
"""What follows from the estimator's class and the targets."""

_WEIGHTS_READ_ONCE: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("boosting", "boosting_type", "boost"), ("rf", "random_forest")),
    **dict.fromkeys(("device_type", "device"), ("cuda",)),
}
"""Where LightGBM keeps the first gradients (of a random forest), or a copy of the weights (on a device)."""


def library(name: str) -> Any:
    """Import a boosting library, or say how to get it."""
    try:
        return import_module(name)
    except ImportError as error:
        raise ImportError(
            f"the package {name} is not installed, and this estimator boosts with it. Run: "
            "pip install 'counterpoise[boosting]'"
        ) from error


@dataclass(frozen=True)
class Recipe:
    """What all boosters of one fit have in common.

    Attributes
    ----------
    n_classes : int
        0 where a number is predicted.
    learning_rate : float
    params : mapping
        Further parameters, in the library's own words.
    n_jobs : int, optional
    seed : int
    """

    n_classes: int
    learning_rate: float
    params: Mapping[str, Any]
    n_jobs: int | None
    seed: int

    def __post_init__(self) -> None:
        for name in self.params:
            own = [ours for ours, theirs in _OWNED.items() if name in theirs.split()]
            if own:
                raise InvalidInputError(f"params holds {name!r}, which is a parameter here. Pass {own[0]}= instead.")
            if name in _SETTLED.split():
                raise InvalidInputError(
                    f"params holds {name!r}, but classifiers have the log loss and regressors the squared error. "
                    "Drop it, or use ContextRobust with the library's own estimator for another loss."
                )

    @property
    def threads(self) -> int:
        """The threads to use; 0 leaves it to the library."""
        return 0 if self.n_jobs is None else max(self.n_jobs, 0)

    def objective(self, number: str, two: str, more: str) -> dict[str, Any]:
        """Choose the objective that suits the targets."""
        if self.n_classes > 2:
            return {"objective": more, "num_class": self.n_classes}
        return {"objective": number if self.n_classes == 0 else two}


class Run(Protocol):
    """A booster that grows."""

    def __init__(self, recipe: Recipe, X: Array, y: Array, weight: Array, held: Array | None = None) -> None:
        """Start with no trees; ``held`` are rows to be predicted after every round."""

    def advance(self, weight: Array | None = None) -> None:
        """Add one round of trees, under new weights of the rows where there are any."""

    def held_predictions(self) -> NDArray[Any]:
        """Return what the trees so far predict for the rows held out: numbers, or a probability per class."""

    def finish(self) -> Any:
        """Return the library's booster, without the data."""

    @staticmethod
    def predict(booster: Any, X: Array, recipe: Recipe) -> NDArray[Any]:
        """Return what a finished booster predicts."""

    @staticmethod
    def refusal() -> type[Exception]:
        """Return what the library raises where it cannot use the data."""


class XGBoostRun:
    """XGBoost, whose objectives read the weights of the training matrix anew in every round."""

    def __init__(self, recipe: Recipe, X: Array, y: Array, weight: Array, held: Array | None = None) -> None:
        xgb = library("xgboost")
        self.recipe = recipe
        # The bins of a histogram and the first margin follow from the weights at the start.
        self.train = xgb.DMatrix(X, y, weight=weight, nthread=recipe.threads or None)
        self.held = None if held is None else xgb.DMatrix(held, nthread=recipe.threads or None)
        params = {
            **recipe.objective("reg:squarederror", "binary:logistic", "multi:softprob"),
            "learning_rate": recipe.learning_rate,
            "nthread": recipe.threads,
            "seed": recipe.seed,
            **recipe.params,
        }
        # Matrices named here have their predictions cached, so that a round costs its own trees only.
        self.booster = xgb.Booster(params, [matrix for matrix in (self.train, self.held) if matrix is not None])

    def advance(self, weight: Array | None = None) -> None:
        if weight is not None:
            self.train.set_weight(weight)
        self.booster.update(self.train, self.booster.num_boosted_rounds())

    def held_predictions(self) -> NDArray[Any]:
        return _columns(self.booster.predict(self.held), self.recipe)

    def finish(self) -> Any:
        return self.booster.reset()

    @staticmethod
    def predict(booster: Any, X: Array, recipe: Recipe) -> NDArray[Any]:
        return _columns(booster.inplace_predict(X), recipe)

    @staticmethod
    def refusal() -> type[Exception]:
        return library("xgboost").core.XGBoostError


class LightGBMRun:
    """LightGBM, whose objectives point into the weights of the training set.

    That they see a change between rounds is not documented; the tests compare every objective to gradients by hand.
    """

    def __init__(self, recipe: Recipe, X: Array, y: Array, weight: Array, held: Array | None = None) -> None:
        lgb = library("lightgbm")
        for name, value in recipe.params.items():
            if value in _WEIGHTS_READ_ONCE.get(name, ()):
                raise InvalidInputError(
                    f"params holds {name}={value!r}, with which LightGBM reads the weights once; here they change with "
                    "every round. Choose another value, or use ContextRobust with LightGBM's own estimator."
                )
        self.recipe = recipe
        params = {
            **recipe.objective("regression", "binary", "multiclass"),
            "learning_rate": recipe.learning_rate,
            "num_threads": recipe.threads,
            "seed": recipe.seed,
            "deterministic": True,
            "metric": "None",
            "verbosity": -1,
            **recipe.params,
        }
        self.train = lgb.Dataset(X, y, params=params).construct()
        # Not by set_weight, which drops weights that are all 1 and would leave the objective nothing to point to.
        self.train.set_field("weight", np.asarray(weight, dtype=np.float32))
        self.booster = lgb.Booster(params, self.train)
        if held is not None:
            self.booster.add_valid(lgb.Dataset(held, np.zeros(len(held)), reference=self.train, params=params), "held")

    def advance(self, weight: Array | None = None) -> None:
        if weight is not None:
            self.train.set_field("weight", np.asarray(weight, dtype=np.float32))
        self.booster.update()

    def held_predictions(self) -> NDArray[Any]:
        seen = []

        def look(predictions: Array, _: Any) -> tuple[str, float, bool]:
            seen.append(_columns(predictions, self.recipe))
            return "seen", 0.0, False

        self.booster.eval_valid(look)
        return seen[0]

    def finish(self) -> Any:
        # As lightgbm.train does: what is kept is what a copy from disk would be.
        return self.booster.model_from_string(self.booster.model_to_string()).free_dataset()

    @staticmethod
    def predict(booster: Any, X: Array, recipe: Recipe) -> NDArray[Any]:
        return _columns(booster.predict(X, num_threads=recipe.threads), recipe)

    @staticmethod
    def refusal() -> type[Exception]:
        return library("lightgbm").basic.LightGBMError


def _columns(predictions: NDArray[Any], recipe: Recipe) -> NDArray[Any]:
    """Return one number per row, or one probability per row and class, in the library's own precision."""
    # LightGBM's are overwritten by the next round.
    values = np.array(predictions)
    return np.column_stack([1 - values, values]) if recipe.n_classes == 2 else values
