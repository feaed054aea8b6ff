"""Two boosting libraries behind one small interface: a round at a time, under weights that change in between."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from counterpoise.estimators.booster_parameters import (
    refuse_owned,
    refuse_unknown_to_lightgbm,
    refuse_unknown_to_xgboost,
)
from counterpoise.estimators.boosting_losses import BoostedLoss
from counterpoise.exceptions import InvalidInputError

Array = NDArray[np.float64]

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
    loss : BoostedLoss
    learning_rate : float
    params : mapping
        Further parameters, in the library's own words.
    n_jobs : int, optional
    seed : int
    categories : tuple of int
        Columns of X that hold codes of categories.
    callbacks : tuple
        In the library's own form, called around every round of every run.
    n_rounds : int
        Rounds of a whole run, for callbacks that follow a schedule.
    """

    loss: BoostedLoss
    learning_rate: float
    params: Mapping[str, Any]
    n_jobs: int | None
    seed: int
    categories: tuple[int, ...] = ()
    callbacks: tuple[Any, ...] = ()
    n_rounds: int = 1

    def __post_init__(self) -> None:
        refuse_owned(self.params)

    @property
    def threads(self) -> int:
        """The threads to use; 0 leaves it to the library."""
        return 0 if self.n_jobs is None else max(self.n_jobs, 0)

    @property
    def drops_trees(self) -> bool:
        """Whether trees of earlier rounds change later on, so that the first rounds of a run are no shorter run."""
        return "dart" in (self.params.get(name) for name in ("booster", "boosting", "boosting_type", "boost"))


class Grows(Protocol):
    """What grows by a round at a time, and is judged by rows held out."""

    def advance(self, weight: Array | None = None) -> None:
        """Add one round of trees, under new weights of the rows where there are any."""

    def held_predictions(self) -> NDArray[Any]:
        """Return what the trees so far predict for the rows held out: numbers, or a probability per class."""

    def held_predictions_of(self, rounds: Sequence[int]) -> NDArray[Any]:
        """Return what the trees of the first rounds predict for the rows held out.

        Parameters
        ----------
        rounds : sequence of int
            How many of them, for each booster that grows.
        """


class Run(Grows, Protocol):
    """A booster that grows."""

    def __init__(self, recipe: Recipe, X: Array, y: Array, weight: Array | None, held: Array | None = None) -> None:
        """Start with no trees.

        Parameters
        ----------
        weight : ndarray of shape (n_samples,), optional
            At the start; without it there are none, and none can come later. That is not the same as weights of 1
            everywhere: of quantiles in leaves, the libraries have two definitions.
        held : ndarray of shape (n_held, n_features), optional
            Rows to be predicted after every round.
        """

    def finish(self) -> Any:
        """Return the library's booster, without the data."""

    @staticmethod
    def predict(booster: Any, X: Array, recipe: Recipe) -> NDArray[Any]:
        """Return what a finished booster predicts."""

    @staticmethod
    def check(recipe: Recipe, width: int) -> None:
        """Refuse parameters that the library does not know, for this many columns."""

    @staticmethod
    def refusal() -> type[Exception]:
        """Return what the library raises where it cannot use the data."""


class XGBoostRun:
    """XGBoost, whose objectives read the weights of the training matrix anew in every round."""

    def __init__(self, recipe: Recipe, X: Array, y: Array, weight: Array | None, held: Array | None = None) -> None:
        xgb = library("xgboost")
        self.recipe = recipe
        self.n_rounds = 0
        # The bins of a histogram and the first margin follow from the weights at the start.
        self.train = _matrix(xgb, recipe, X, label=y, weight=weight)
        # Some objectives ask every matrix they meet for targets.
        self.held = None if held is None else _matrix(xgb, recipe, held, label=np.zeros(len(held)))
        params = {
            **recipe.loss.xgboost,
            "learning_rate": recipe.learning_rate,
            "nthread": recipe.threads,
            "seed": recipe.seed,
            **_written(recipe.params),
        }
        # Matrices named here have their predictions cached, so that a round costs its own trees only.
        self.booster = xgb.Booster(params, [matrix for matrix in (self.train, self.held) if matrix is not None])
        for callback in recipe.callbacks:
            self.booster = callback.before_training(self.booster)

    def advance(self, weight: Array | None = None) -> None:
        if weight is not None:
            self.train.set_weight(weight)
        self._call("before_iteration")
        self.booster.update(self.train, self.n_rounds)
        self._call("after_iteration")
        self.n_rounds += 1

    def _call(self, moment: str) -> None:
        for callback in self.recipe.callbacks:
            if getattr(callback, moment)(self.booster, self.n_rounds, {}):
                _refuse_stop(callback, self.n_rounds)

    def held_predictions(self) -> NDArray[Any]:
        return _columns(self.booster.predict(self.held), self.recipe)

    def held_predictions_of(self, rounds: Sequence[int]) -> NDArray[Any]:
        (n_rounds,) = rounds
        return _columns(self.booster.predict(self.held, iteration_range=(0, n_rounds)), self.recipe)

    def finish(self) -> Any:
        for callback in self.recipe.callbacks:
            self.booster = callback.after_training(self.booster)
        return self.booster.reset()

    @staticmethod
    def predict(booster: Any, X: Array, recipe: Recipe) -> NDArray[Any]:
        return _columns(booster.inplace_predict(X), recipe)

    @staticmethod
    def check(recipe: Recipe, width: int) -> None:
        xgb = library("xgboost")
        for callback in recipe.callbacks:
            _refuse_stopper(isinstance(callback, xgb.callback.EarlyStopping))
            if not isinstance(callback, xgb.callback.TrainingCallback):
                raise InvalidInputError(
                    f"callbacks hold {callback!r:.60}; XGBoost's are instances of xgboost.callback.TrainingCallback."
                )
        if recipe.params.get("booster") == "gblinear":
            raise InvalidInputError(
                "params holds booster='gblinear', which has no trees. Use a robust linear model, such as "
                "RobustLogisticRegression, which comes with a proof."
            )
        refuse_unknown_to_xgboost(xgb, _written(recipe.params), recipe.loss.xgboost, width)

    @staticmethod
    def refusal() -> type[Exception]:
        return library("xgboost").core.XGBoostError


def _matrix(xgb: Any, recipe: Recipe, X: Array, **rows: Array | None) -> Any:
    """Return rows as XGBoost takes them, with its names of the kinds of columns where some hold categories."""
    kinds = None
    if recipe.categories:
        kinds = ["c" if column in recipe.categories else "q" for column in range(X.shape[1])]
    return xgb.DMatrix(
        X, feature_types=kinds, enable_categorical=kinds is not None, nthread=recipe.threads or None, **rows
    )


def _written(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return parameters with interactions as XGBoost writes positions; in lists it looks for names."""
    groups = params.get("interaction_constraints")
    if not isinstance(groups, (list, tuple)):
        return dict(params)
    return {**params, "interaction_constraints": str([list(group) for group in groups])}


class LightGBMRun:
    """LightGBM, whose objectives point into the weights of the training set.

    That they see a change between rounds is not documented; the tests compare every objective to gradients by hand, or
    to runs that the library continues under other weights.
    """

    def __init__(self, recipe: Recipe, X: Array, y: Array, weight: Array | None, held: Array | None = None) -> None:
        lgb = library("lightgbm")
        self.recipe = recipe
        self.n_rounds = 0
        params = {
            **recipe.loss.lightgbm,
            "learning_rate": recipe.learning_rate,
            "num_threads": recipe.threads,
            "seed": recipe.seed,
            "deterministic": True,
            "metric": "None",
            "verbosity": -1,
            **recipe.params,
        }
        self.params = params
        chosen = list(recipe.categories) or "auto"
        self.train = lgb.Dataset(X, y, params=params, categorical_feature=chosen).construct()
        # Not by set_weight, which drops weights that are all 1 and would leave the objective nothing to point to.
        if weight is not None:
            self.train.set_field("weight", np.asarray(weight, dtype=np.float32))
        self.booster = lgb.Booster(params, self.train)
        self.held = held
        if held is not None:
            self.booster.add_valid(lgb.Dataset(held, np.zeros(len(held)), reference=self.train, params=params), "held")

    def advance(self, weight: Array | None = None) -> None:
        if weight is not None:
            self.train.set_field("weight", np.asarray(weight, dtype=np.float32))
        self._call(before=True)
        self.booster.update()
        self._call(before=False)
        self.n_rounds += 1

    def _call(self, before: bool) -> None:
        if not self.recipe.callbacks:
            return
        callback_module = library("lightgbm").callback
        moment = callback_module.CallbackEnv(self.booster, self.params, self.n_rounds, 0, self.recipe.n_rounds, [])
        due = [one for one in self.recipe.callbacks if bool(getattr(one, "before_iteration", False)) is before]
        for callback in sorted(due, key=lambda one: getattr(one, "order", 0)):
            try:
                callback(moment)
            except callback_module.EarlyStopException:
                _refuse_stop(callback, self.n_rounds)

    def held_predictions(self) -> NDArray[Any]:
        seen = []

        def look(predictions: Array, _: Any) -> tuple[str, float, bool]:
            seen.append(_columns(predictions, self.recipe))
            return "seen", 0.0, False

        self.booster.eval_valid(look)
        return seen[0]

    def held_predictions_of(self, rounds: Sequence[int]) -> NDArray[Any]:
        (n_rounds,) = rounds
        found = self.booster.predict(self.held, num_iteration=n_rounds, num_threads=self.recipe.threads)
        return _columns(found, self.recipe)

    def finish(self) -> Any:
        # As lightgbm.train does: what is kept is what a copy from disk would be.
        return self.booster.model_from_string(self.booster.model_to_string()).free_dataset()

    @staticmethod
    def predict(booster: Any, X: Array, recipe: Recipe) -> NDArray[Any]:
        return _columns(booster.predict(X, num_threads=recipe.threads), recipe)

    @staticmethod
    def check(recipe: Recipe, width: int) -> None:
        lgb = library("lightgbm")
        for name, value in recipe.params.items():
            if isinstance(value, str) and value in _WEIGHTS_READ_ONCE.get(name, ()):
                raise InvalidInputError(
                    f"params holds {name}={value!r}, with which LightGBM reads the weights once; here they change with "
                    "every round. Choose another value, or use ContextRobust with LightGBM's own estimator."
                )
        for callback in recipe.callbacks:
            _refuse_stopper(type(callback).__name__ == "_EarlyStoppingCallback")
            if not callable(callback):
                raise InvalidInputError(f"callbacks hold {callback!r:.60}; LightGBM's are functions of a CallbackEnv.")
        settled = [name for name in recipe.params if name in recipe.loss.lightgbm]
        if settled:
            raise InvalidInputError(
                f"params holds {settled[0]!r}, which follows from loss= and quantile= here. Pass these instead."
            )
        refuse_unknown_to_lightgbm(lgb, recipe.params)

    @staticmethod
    def refusal() -> type[Exception]:
        return library("lightgbm").basic.LightGBMError


def _refuse_stopper(stops: bool) -> None:
    if stops:
        raise InvalidInputError(
            "callbacks hold one that stops early. Pass patience= instead: it follows the worst case."
        )


def _refuse_stop(callback: Any, n_rounds: int) -> None:
    raise InvalidInputError(
        f"the callback {callback!r:.60} asks to stop in round {n_rounds + 1}. Rounds are chosen by the worst case on "
        "held-out rows: pass patience= instead."
    )


def _columns(predictions: NDArray[Any], recipe: Recipe) -> NDArray[Any]:
    """Return one number per row, or one probability per row and class, in the library's own precision."""
    # LightGBM's are overwritten by the next round.
    values = np.array(predictions)
    return np.column_stack([1 - values, values]) if recipe.loss.n_classes == 2 else values
