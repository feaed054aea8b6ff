"""Gradient boosting that is robust against the mix of contexts: their weights move with every round."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from numbers import Real
from typing import Any, ClassVar, Self, Unpack

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from counterpoise.core.problem import Reference, given_references
from counterpoise.estimators._base import (
    Array,
    MixParameters,
    RobustEstimator,
    ScoredOnHost,
    check_switches,
    share_parameters,
    speaking_as,
    with_parameters_of,
)
from counterpoise.estimators.boosters import LightGBMRun, Recipe, Run, XGBoostRun
from counterpoise.estimators.boosting_rounds import Rows, Split, least_risks, play
from counterpoise.estimators.learners import LossName, row_losses
from counterpoise.exceptions import InvalidInputError
from counterpoise.sets._base import shares_of
from counterpoise.validation import checked_weights, refuse_masked

_FLOATS = (np.float64, np.float32)


_NARROW = (1e-30, 1e30)
"""Sizes that the 32-bit floats of boosting libraries hold with room to spare for sums and squares."""


def _refuse_wide(values: Array, name: str, least: float) -> None:
    """Refuse numbers whose largest is beyond what 32-bit floats can work with."""
    largest = float(values.max(initial=0.0))
    if not least <= largest <= _NARROW[1]:
        raise InvalidInputError(
            f"{name} is as large as {largest:g}, and boosting libraries work with 32-bit floats. Rescale it."
        )


class RobustBooster(RobustEstimator):
    """What the boosters have in common.

    Parameters
    ----------
    confidence : float, default=0.99
        Level of the confidence set of context mixes; 1 is every mix.
    radius : {"types", "agrawal", "calibrated", "chi2"} or float, default="types"
        How the size of the set follows from the confidence, or the size itself in bits. 0 is the library's plain fit.
    draws : float or "groups", optional
        Independent draws of a context in the data, where rows are not independent. ``"groups"`` estimates them from
        ``groups``, which ``fit`` takes then; see :func:`counterpoise.effective_draws`.
    criterion : {"excess", "risk"}, default="excess"
        What the worst case is taken of: risk above the least possible in each context, or risk itself.
    mix : mapping, Mix or ContextSet, optional
        What is known about the mix, as in :class:`counterpoise.RobustLogisticRegression`.
    reference : "cross-fit" or mapping from context to risk, default="cross-fit"
        The least risk of each context: on held-out rows, what a plain booster of as many rounds reaches when trained on
        the context alone, or on all contexts where that is lower.
    n_estimators : int, default=100
        Rounds, at most.
    learning_rate : float, default=0.1
    params : dict, optional
        Further parameters by their name in the library, such as ``{"max_depth": 3}``.
    validation_fraction : float, default=0.2
        Share of every context that is held out while the weights are found, as one over a whole number: 0.5, 0.33,
        0.25, 0.2. The final fit uses all rows.
    patience : int, optional
        Stop after this many rounds without a lower worst case.
    n_jobs : int, optional
        Threads; by default what the library finds.
    random_state : int, RandomState instance or None, default=0
        Seed of the library, for what it draws (subsamples of rows and columns).
    verbose : int, default=0
        1 shows a line for each round.

    Attributes
    ----------
    booster_ : Booster
        The library's own, fitted to all rows.
    best_iteration_ : int
        Rounds in it: those after which the worst case on held-out rows was least. In a set of one distribution there is
        nothing to choose, and without ``patience`` all rounds are kept, as in a plain fit.
    contexts_ : ndarray of shape (n_contexts,)
        Labels; tuples where contexts are crossed. What follows is in their order.
    context_counts_ : ndarray of shape (n_contexts,)
        Rows, or the sum of their weights.
    context_weights_ : ndarray of shape (n_contexts,)
        The weights of the contexts in the last round of the booster.
    context_weights_path_ : ndarray of shape (best_iteration_, n_contexts)
        Those of every round.
    context_risks_, reference_risks_, excess_risks_ : ndarray of shape (n_contexts,)
        On held-out rows, after the best round.
    radius_ : float
        In bits.
    unseen_contexts_, unseen_weights_ : ndarray of shape (n_unseen,)
        Contexts without rows whose risk ``mix`` gave, and their part in the mix; mostly none.
    draws_ : float
        The number of draws that the size of the set follows from; NaN where the size was given.
    history_ : ndarray of shape (n_iter_,)
        The worst case on held-out rows after every round.
    n_iter_ : int
        Rounds tried.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Where X has names.
    classes_ : ndarray of shape (n_classes,)
        Of a classifier.
    """

    _library: ClassVar[type[Run]]
    _loss: ClassVar[LossName]

    @with_parameters_of(RobustEstimator)
    def __init__(
        self,
        *,
        reference: Reference = "cross-fit",
        n_estimators: int = 100,
        learning_rate: float = 0.1,
        params: Mapping[str, Any] | None = None,
        validation_fraction: float = 0.2,
        patience: int | None = None,
        n_jobs: int | None = None,
        random_state: Any = 0,
        verbose: int = 0,
        **shared: Unpack[MixParameters],
    ) -> None:
        super().__init__(**shared)
        self.reference = reference
        self.n_estimators = n_estimators
        self.learning_rate = learning_rate
        self.params = params
        self.validation_fraction = validation_fraction
        self.patience = patience
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Let every estimator's documentation list the parameters and attributes above."""
        super().__init_subclass__(**kwargs)
        share_parameters(cls, RobustBooster)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    def fit(self, X: Any, y: Any, contexts: Any = None, sample_weight: Any = None, *, groups: Any = None) -> Self:
        """Find the weights of every round on part of the rows, then boost all rows under them.

        Parameters
        ----------
        X : array or dataframe of shape (n_samples, n_features)
            Values may be missing (NaN).
        y : array of shape (n_samples,)
        contexts : labels of shape (n_samples,), a table of several columns, which are crossed, or Memberships
        sample_weight : array of shape (n_samples,), optional
        groups : labels of shape (n_samples,), optional
            Rows that belong together, such as those of one day; for ``draws="groups"``, and of no effect without it.
        """
        given = X
        with speaking_as(self):
            refuse_masked(X=X, y=y, sample_weight=sample_weight)
        X, y = self._checked(X, y)
        with speaking_as(self):
            self._check_switches()
            recipe = self._recipe(self._seed())
            encoded = self._encode(contexts, given, len(y))
            robustness = self.sized(X, contexts, groups, sample_weight, encoded)
            weight, (X, y, encoded) = checked_weights(sample_weight, X, y, encoded)
            _refuse_wide(weight, "sample_weight", _NARROW[0])
            _refuse_wide(np.abs(y), "y", 0.0)
            _refuse_wide(np.abs(X[np.isfinite(X)]), "X", 0.0)
            counts = np.bincount(encoded.codes, weight, len(encoded.labels)).astype(np.float64)
            mixes = robustness.mixes_of(encoded, counts)
            unseen = self.robustness.unseen(encoded.labels).risks
            shares = shares_of(counts)
            rows = Rows(X, y, weight, encoded.codes)
            split = Split.of(rows, self.validation_fraction, encoded.rows)
            if isinstance(self.reference, str):
                references = least_risks(self._library, recipe, split, self.n_estimators)
            else:
                references = given_references(self.reference, encoded)
            played = play(
                self._library(recipe, split.train.X, split.train.y, split.train.weight, split.held.X),
                split,
                mixes,
                references if self.criterion == "excess" else np.zeros_like(references),
                shares,
                unseen=unseen,
                learning_rate=recipe.learning_rate,
                n_rounds=self.n_estimators,
                patience=self.patience,
                callback=self._show if self.verbose else None,
            )
        # One distribution leaves nothing to choose: a plain fit, of all its rounds unless it was to stop early.
        plain = mixes.is_point and self.patience is None
        n_rounds = len(played.values) if plain else int(played.values.argmin()) + 1
        path = played.weights[:n_rounds]
        run = self._library(recipe, X, y, weight)
        for p in path:
            run.advance(rows.tilted(p[: len(shares)] / shares))
        self.booster_ = run.finish()
        self.best_iteration_ = n_rounds
        risks = played.risks[n_rounds - 1]
        self._keep_contexts(
            encoded,
            counts,
            mixes,
            draws=robustness.n_draws(counts),
            weights=path[-1],
            risks=risks,
            references=references,
        )
        self.context_weights_path_ = path[:, : len(shares)]
        self.history_ = played.values
        self.n_iter_ = len(played.values)
        return self

    def _checked(self, X: Any, y: Any) -> tuple[Array, Array]:
        """Check X and y as scikit-learn does, and return the targets as numbers."""
        raise NotImplementedError

    def _check_switches(self) -> None:
        check_switches(self)
        if isinstance(self.reference, str) and self.reference != "cross-fit":
            raise InvalidInputError(
                f"reference is {self.reference!r}; choose 'cross-fit', or map each context to its risk. On rows that "
                "trees were fitted to, their risk says nothing."
            )
        for name in ("n_estimators", "patience"):
            value = getattr(self, name)
            whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool) and value >= 1
            if not (whole or (name == "patience" and value is None)):
                raise InvalidInputError(f"{name} = {value!r}; pass a whole number of rounds, 1 or more.")
        if not (isinstance(self.learning_rate, Real) and 0.0 < self.learning_rate < np.inf):
            raise InvalidInputError(f"learning_rate = {self.learning_rate!r}; pass a number above 0, such as 0.1.")
        if not (isinstance(self.validation_fraction, Real) and 0.0 < self.validation_fraction <= 0.5):
            raise InvalidInputError(
                f"validation_fraction = {self.validation_fraction!r}; hold out more than 0 and at most half, e.g. 0.2."
            )

    def _seed(self) -> int:
        if isinstance(self.random_state, (int, np.integer)):
            return int(self.random_state)
        return int(check_random_state(self.random_state).randint(2**31 - 1))

    def _recipe(self, seed: int = 0) -> Recipe:
        n_classes = len(self.classes_) if hasattr(self, "classes_") else 0
        return Recipe(n_classes, float(self.learning_rate), dict(self.params or {}), self.n_jobs, seed)

    def _show(self, n: int, value: float) -> None:
        sys.stderr.write(f"{type(self).__name__}: round {n + 1}, worst case {value:.6g}\n")
        sys.stderr.flush()

    def _predictions(self, X: Any) -> NDArray[Any]:
        check_is_fitted(self)
        X = validate_data(self, X, dtype=_FLOATS, ensure_all_finite="allow-nan", reset=False)
        return self._library.predict(self.booster_, X, self._recipe())

    def row_losses(self, X: Any, y: Any) -> Array:
        """Return the loss of each row, of the kind the fit was about."""
        check_is_fitted(self)
        return row_losses(self, X, y, self._loss)


class _RobustBoosterClassifier(ScoredOnHost, ClassifierMixin, RobustBooster):  # type: ignore[misc]
    """A booster of classes."""

    _loss = "log_loss"

    def _checked(self, X: Any, y: Any) -> tuple[Array, Array]:
        X, y = validate_data(self, X, y, dtype=_FLOATS, ensure_all_finite="allow-nan")
        check_classification_targets(y)
        self.classes_, codes = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise InvalidInputError(
                f"{type(self).__name__}: y holds one class, {self.classes_[0]!r}; a classifier needs two or more."
            )
        return X, codes.astype(np.float64)

    def predict_proba(self, X: Any) -> NDArray[Any]:
        """Return the probability of each class."""
        return self._predictions(X)

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the most probable class."""
        probabilities = self.predict_proba(X)
        return np.asarray(self.classes_[probabilities.argmax(axis=1)])


class _RobustBoosterRegressor(ScoredOnHost, RegressorMixin, RobustBooster):  # type: ignore[misc]
    """A booster of a number."""

    _loss = "half_squared_error"

    def _checked(self, X: Any, y: Any) -> tuple[Array, Array]:
        X, y = validate_data(self, X, y, dtype=_FLOATS, ensure_all_finite="allow-nan", y_numeric=True)
        return X, np.asarray(y, dtype=np.float64)

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the prediction of each row."""
        return self._predictions(X)


class RobustXGBClassifier(_RobustBoosterClassifier):
    """XGBoost for classes, binary or more, and an uncertain mix of contexts.

    The risk of a context is its mean log loss, in nats. The weights of contexts follow the risks of held-out rows from
    round to round, so robustness costs a few plain fits: one to find the weights, one for the answer, and those of the
    references.
    """

    _library = XGBoostRun


class RobustXGBRegressor(_RobustBoosterRegressor):
    """XGBoost for a number, and an uncertain mix of contexts.

    The risk of a context is half its mean squared error. Otherwise as :class:`RobustXGBClassifier`.
    """

    _library = XGBoostRun


class RobustLGBMClassifier(_RobustBoosterClassifier):
    """LightGBM for classes, binary or more, and an uncertain mix of contexts.

    The risk of a context is its mean log loss, in nats. The weights of contexts follow the risks of held-out rows from
    round to round, so robustness costs a few plain fits: one to find the weights, one for the answer, and those of the
    references.
    """

    _library = LightGBMRun


class RobustLGBMRegressor(_RobustBoosterRegressor):
    """LightGBM for a number, and an uncertain mix of contexts.

    The risk of a context is half its mean squared error. Otherwise as :class:`RobustLGBMClassifier`.
    """

    _library = LightGBMRun
