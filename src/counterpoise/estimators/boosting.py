"""Gradient boosting that is robust against the mix of contexts: their weights move with every round."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any, ClassVar, Self, Unpack, get_args

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils import check_random_state, check_X_y
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from counterpoise.contexts import Contexts, encode
from counterpoise.core.robustness import check_parameters
from counterpoise.estimators._base import (
    Array,
    MixParameters,
    RobustEstimator,
    ScoredOnHost,
    share_parameters,
    speaking_as,
    with_parameters_of,
)
from counterpoise.estimators.booster_parameters import with_positions
from counterpoise.estimators.boosters import LightGBMRun, Recipe, Run, XGBoostRun
from counterpoise.estimators.boosting_losses import BoostedLoss, LogLoss, NumberLoss, NumberLossName
from counterpoise.estimators.boosting_references import BoostingReference
from counterpoise.estimators.boosting_rounds import Rows, Split, dealt
from counterpoise.estimators.boosting_search import Found, Search, point_name
from counterpoise.estimators.boosting_tables import FLOATS, categories_of, coded, refuse_text
from counterpoise.estimators.learners import Indices, fold_of_rows, row_losses
from counterpoise.exceptions import InvalidInputError
from counterpoise.inference.headroom import StopRule
from counterpoise.sets import ContextSet
from counterpoise.sets._base import shares_of
from counterpoise.validation import checked_row_weights, checked_weights, refuse_masked

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
    radius : {"types", "agrawal", "calibrated", "chi2", "anytime"} or float, default="types"
        How the size of the set follows from the confidence, or the size itself in bits. 0 is the library's plain fit.
    draws : float or "groups", optional
        Independent draws of a context in the data, where rows are not independent. ``"groups"`` estimates them from
        ``groups``, which ``fit`` takes then; see :func:`counterpoise.effective_draws`.
    criterion : {"excess", "risk"}, default="excess"
        What the worst case is taken of: risk above the least possible in each context, or risk itself.
    mix : mapping, Mix or ContextSet, optional
        What is known about the mix, as in :class:`counterpoise.RobustLogisticRegression`.
    reference : {"cross-fit", "pooled", "null"} or mapping from context to risk, default="cross-fit"
        What the risk of each context is measured against, on held-out rows: what a plain booster of as many rounds
        reaches when trained on the context alone, or on all contexts where that is lower; the second of these; or what
        one constant prediction reaches, so that the worst case is that of explained variance or deviance.
    guard : bool, default=True
        Keep the plain booster, of all its rounds or stopped where it was best, unless the robust one is better in the
        worst plausible mix of the held-out rows by more than its error.
    headroom : {"bound", "test", None}, default="bound"
        When to stop before weights are looked for, with the plain booster: where the contexts' own boosters show on
        held-out rows that nothing worth having can be gained (``"bound"``), or unless they show that something can
        (``"test"``); None never. For cross-fitted references; see :func:`counterpoise.headroom`.
    n_estimators : int, default=100
        Rounds, at most.
    learning_rate : float, default=0.1
    params : dict, optional
        Further parameters by their name in the library, such as ``{"max_depth": 3}``; names that it does not use are
        refused. Constraints (``monotone_constraints``, ``interaction_constraints``) may name columns.
    callbacks : sequence, optional
        In the library's own form, such as a schedule of learning rates; called around every round of every run of the
        fit, of which the one on all rows is the last. None may stop a run: that is for ``patience``.
    cv : int, splitter or None, default=3
        Folds of rows, as in :class:`counterpoise.ContextRobust`. Each is held out from a booster of its own while the
        weights are found, and all of them share the weights; the final fit uses all rows. None holds out one part,
        which takes less time and is noisier. In a set of one distribution no rows are held out unless there is
        ``patience``.
    validation_fraction : float, default=0.2
        With ``cv=None``, the share of every context that is held out, as one over a whole number: 0.5, 0.33, 0.25, 0.2.
    patience : int, optional
        Stop after this many rounds without a lower worst case: what libraries call early stopping. The plain boosters
        stop as well, after as many rounds without a lower mean loss, and count as they were when it was least.
    n_jobs : int, optional
        Threads; by default what the library finds.
    random_state : int, RandomState instance or None, default=0
        Seed of the library, for what it draws (subsamples of rows and columns).
    verbose : int, default=0
        1 shows a line for each round, and what headroom and guard found.

    Attributes
    ----------
    booster_ : Booster
        The library's own, fitted to all rows.
    best_iteration_ : int
        Rounds in it: those after which the worst case on held-out rows was least; all where ``chosen_`` is ``"erm"``.
    chosen_ : {"erm", "erm-stopped", "robust"}
        What was kept: the library's plain fit to all rows, the same of fewer rounds, or the robust booster.
    candidates_ : Table or None
        What held-out rows said of each; see :class:`counterpoise.inference.choice.Choice`. The robust booster is not
        among them where headroom ended the search. None without ``guard``, and in a set of one distribution.
    headroom_ : Headroom or None
        What a booster of each context's own gains over the plain one; None where that is not known, since there is
        one context, the criterion is risk or the references are of another kind.
    contexts_ : ndarray of shape (n_contexts,)
        Labels; tuples where contexts are crossed. What follows is in their order.
    context_counts_ : ndarray of shape (n_contexts,)
        Rows, or the sum of their weights.
    context_weights_ : ndarray of shape (n_contexts,)
        The weights of the contexts in the last round of the booster.
    context_weights_path_ : ndarray of shape (best_iteration_, n_contexts)
        Those of every round.
    context_risks_, reference_risks_, excess_risks_ : ndarray of shape (n_contexts,)
        On held-out rows, after the best round; NaN where none were held out.
    radius_ : float
        In bits.
    unseen_contexts_, unseen_weights_ : ndarray of shape (n_unseen,)
        Contexts without rows whose risk ``mix`` gave, and their part in the mix; mostly none.
    draws_ : float
        The number of draws that the size of the set follows from; NaN where the size was given.
    history_ : ndarray of shape (n_iter_,)
        The worst case on held-out rows after every round of the robust booster, whichever was kept; of the plain one
        where headroom ended the search; empty where no rows were held out.
    n_iter_ : int
        Rounds tried.
    categories_ : dict from column to list
        The columns of X that are categories, with their labels.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Where X has names.
    classes_ : ndarray of shape (n_classes,)
        Of a classifier.
    """

    _library: ClassVar[type[Run]]

    @with_parameters_of(RobustEstimator)
    def __init__(
        self,
        *,
        reference: BoostingReference | Mapping[Any, float] = "cross-fit",
        guard: bool = True,
        headroom: StopRule = "bound",
        n_estimators: int = 100,
        learning_rate: float = 0.1,
        params: Mapping[str, Any] | None = None,
        callbacks: Sequence[Any] | None = None,
        cv: Any = 3,
        validation_fraction: float = 0.2,
        patience: int | None = None,
        n_jobs: int | None = None,
        random_state: Any = 0,
        verbose: int = 0,
        **shared: Unpack[MixParameters],
    ) -> None:
        super().__init__(**shared)
        self.reference = reference
        self.guard = guard
        self.headroom = headroom
        self.n_estimators = n_estimators
        self.learning_rate = learning_rate
        self.params = params
        self.callbacks = callbacks
        self.cv = cv
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
            Values may be missing (NaN). Categories of a data frame (``category`` in pandas, ``Categorical`` or ``Enum``
            in polars) go to the library as such.
        y : array of shape (n_samples,)
        contexts : labels of shape (n_samples,), a table of several columns, which are crossed, or Memberships
        sample_weight : array of shape (n_samples,), optional
        groups : labels of shape (n_samples,), optional
            Rows that belong together, such as those of one day: for ``draws="groups"``, and for the errors that
            ``guard`` and ``headroom`` go by. Rows are held out as ``cv`` says, whatever their groups.
        """
        given = X
        with speaking_as(self):
            refuse_masked(X=X, y=y, sample_weight=sample_weight)
        X, y = self._checked(X, y)
        with speaking_as(self):
            self._check_switches()
            loss = self._boosted_loss()
            loss.refuse(y)
            recipe = self._recipe(loss, self._seed())
            self._library.check(recipe, X.shape[1])
            encoded = self._encode(contexts, given, len(y))
            robustness = self.sized(X, contexts, groups, sample_weight, encoded)
            units = None if groups is None else encode(groups, len(y), role="group").codes
            folds = self._folds(X, y, encoded, sample_weight)
            weight, (at, y, encoded) = checked_weights(sample_weight, np.arange(len(y)), y, encoded)
            # Rows without weight are dropped, and those of several contexts repeated.
            X = X[at] if len(at) < len(X) or encoded.overlap else X
            units = encoded.rows if units is None else units[at]
            folds = None if folds is None else folds[at]
            _refuse_wide(weight, "sample_weight", _NARROW[0])
            _refuse_wide(np.abs(y), "y", 0.0)
            _refuse_wide(np.abs(X[np.isfinite(X)]), "X", 0.0)
            counts = np.bincount(encoded.codes, weight, len(encoded.labels)).astype(np.float64)
            mixes = robustness.mixes_of(encoded, counts)
            rows = Rows(X, y, weight, encoded.codes)
            found = self._searched(recipe, rows, encoded, units, folds, mixes, shares_of(counts))
        n = len(encoded.labels)
        is_plain = found.chosen != "robust"
        run = self._library(recipe, X, y, rows.plain_weight(loss) if is_plain else weight)
        for p in found.path:
            run.advance(None if is_plain else rows.tilted(p[:n] / shares_of(counts)))
        self.booster_ = run.finish()
        self.best_iteration_ = len(found.path)
        self._keep_contexts(
            encoded,
            counts,
            mixes,
            draws=robustness.n_draws(counts),
            weights=found.path[-1],
            risks=found.risks,
            references=found.references,
        )
        self.context_weights_path_ = found.path[:, :n]
        self.chosen_ = found.chosen
        self.candidates_ = found.candidates
        self.headroom_ = found.headroom
        self.history_ = found.history
        self.n_iter_ = found.n_iter
        return self

    def _searched(
        self,
        recipe: Recipe,
        rows: Rows,
        contexts: Contexts,
        units: Indices | None,
        folds: Indices | None,
        mixes: ContextSet,
        shares: Array,
    ) -> Found:
        """Return the weights of every round; ``units`` are the same for rows that belong together."""
        unseen = self.robustness.unseen(contexts.labels).risks
        if mixes.is_point and self.patience is None:
            # One distribution leaves nothing to choose: a plain fit, for which no rows need be held out.
            unknown = np.full(len(shares), np.nan)
            path = np.tile(mixes.p_hat, (self.n_estimators, 1))
            return Found(point_name(mixes, shares), path, unknown, unknown, np.zeros(0), self.n_estimators)
        if self.cv is None:
            split = Split.of(rows, self.validation_fraction, contexts.rows, recipe.loss)
        else:
            folds = dealt(rows, self.cv, contexts.rows) if folds is None else folds
            split = Split.in_turn(rows, folds, recipe.loss)
        search = Search(
            self._library,
            recipe,
            split,
            contexts,
            units,
            mixes,
            shares,
            unseen,
            self.reference,
            self.criterion,
            self.guard,
            self.headroom,
            self.n_estimators,
            self.patience,
            report=self._say if self.verbose else lambda words: None,
            callback=self._show if self.verbose else None,
        )
        return search.run()

    def _folds(self, X: Array, y: Array, contexts: Contexts, sample_weight: Any) -> Indices | None:
        """Return the fold of each row where a splitter says it."""
        if self.cv is None or isinstance(self.cv, (int, np.integer)):
            return None
        weight = checked_row_weights(sample_weight, contexts)[contexts.firsts]
        return fold_of_rows(self, X, y, contexts.codes[contexts.firsts], weight, self.cv)

    def _checked(self, X: Any, y: Any) -> tuple[Array, Array]:
        """Check X and y as scikit-learn does, and return the targets as numbers."""
        raise NotImplementedError

    def _check_switches(self) -> None:
        reference, known = self.reference, get_args(BoostingReference)
        if isinstance(reference, str) and reference not in known:
            raise InvalidInputError(
                f"reference is {reference!r}; choose {', '.join(map(repr, known))}, or map each context to its risk. "
                "On rows that trees were fitted to, their risk says nothing."
            )
        check_parameters({**self.get_params(deep=False), "reference": "cross-fit"})
        for name in ("n_estimators", "patience"):
            value = getattr(self, name)
            whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool) and value >= 1
            if not (whole or (name == "patience" and value is None)):
                raise InvalidInputError(f"{name} = {value!r}; pass a whole number of rounds, 1 or more.")
        if isinstance(self.cv, (int, np.integer)) and (isinstance(self.cv, bool) or self.cv < 2):
            raise InvalidInputError(f"cv = {self.cv!r}; pass two folds or more, or None to hold out one part.")
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

    def _boosted_loss(self) -> BoostedLoss:
        """Return what the trees minimise."""
        raise NotImplementedError

    def _recipe(self, loss: BoostedLoss, seed: int = 0) -> Recipe:
        names = getattr(self, "feature_names_in_", None)
        return Recipe(
            loss,
            float(self.learning_rate),
            with_positions(self.params or {}, None if names is None else names.tolist(), self.n_features_in_),
            self.n_jobs,
            seed,
            tuple(names.tolist().index(column) for column in self.categories_) if names is not None else (),
            tuple(self.callbacks or ()),
            self.n_estimators,
        )

    def _say(self, words: str) -> None:
        sys.stderr.write(f"{type(self).__name__}: {words}\n")
        sys.stderr.flush()

    def _show(self, n: int, value: float) -> None:
        self._say(f"round {n + 1}, worst case {value:.6g}")

    def _features(self, X: Any, *target: Any, reset: bool, **options: Any) -> Any:
        """Return X as numbers, with the targets where there are any; categories become codes."""
        with speaking_as(self):
            if reset:
                self.categories_ = categories_of(X)
            refuse_text(X, self.categories_)
        options |= {"dtype": FLOATS, "ensure_all_finite": "allow-nan"}
        if not self.categories_:
            return validate_data(self, X, *target, reset=reset, **options)
        with speaking_as(self):
            numbers = coded(X, self.categories_, type(self).__name__)
        # Names and the number of columns are those of the table.
        validate_data(self, X, reset=reset, skip_check_array=True)
        return check_X_y(numbers, *target, estimator=self, **options) if target else numbers

    def _predictions(self, X: Any) -> NDArray[Any]:
        check_is_fitted(self)
        X = self._features(X, reset=False)
        return self._library.predict(self.booster_, X, self._recipe(self._boosted_loss()))


class _RobustBoosterClassifier(ScoredOnHost, ClassifierMixin, RobustBooster):  # type: ignore[misc]
    """A booster of classes."""

    def _checked(self, X: Any, y: Any) -> tuple[Array, Array]:
        X, y = self._features(X, y, reset=True)
        check_classification_targets(y)
        self.classes_, codes = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise InvalidInputError(
                f"{type(self).__name__}: y holds one class, {self.classes_[0]!r}; a classifier needs two or more."
            )
        return X, codes.astype(np.float64)

    def _boosted_loss(self) -> BoostedLoss:
        return LogLoss(len(self.classes_))

    def predict_proba(self, X: Any) -> NDArray[Any]:
        """Return the probability of each class."""
        return self._predictions(X)

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the most probable class."""
        probabilities = self.predict_proba(X)
        return np.asarray(self.classes_[probabilities.argmax(axis=1)])

    def row_losses(self, X: Any, y: Any) -> Array:
        """Return the log loss of each row."""
        check_is_fitted(self)
        return row_losses(self, X, y, "log_loss")


class _RobustBoosterRegressor(ScoredOnHost, RegressorMixin, RobustBooster):  # type: ignore[misc]
    """A booster of a number."""

    @with_parameters_of(RobustBooster)
    def __init__(self, *, loss: NumberLossName = "squared_error", quantile: float = 0.5, **shared: Any) -> None:
        super().__init__(**shared)
        self.loss = loss
        self.quantile = quantile

    def _checked(self, X: Any, y: Any) -> tuple[Array, Array]:
        X, y = self._features(X, y, reset=True, y_numeric=True)
        return X, np.asarray(y, dtype=np.float64)

    def _boosted_loss(self) -> NumberLoss:
        return NumberLoss.named(self.loss, self.quantile)

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the prediction of each row: its mean, or its quantile."""
        return self._predictions(X)

    def row_losses(self, X: Any, y: Any) -> Array:
        """Return the loss of each row, of the kind the fit was about."""
        check_is_fitted(self)
        return row_losses(self, X, y, self._boosted_loss().rows)


class RobustXGBClassifier(_RobustBoosterClassifier):
    """XGBoost for classes, binary or more, and an uncertain mix of contexts.

    The risk of a context is its mean log loss, in nats. The weights of contexts follow the risks of held-out rows from
    round to round, so robustness costs some plain fits: those to find the weights, those of the references, and one for
    the answer. Where held-out rows do not speak for it, the plain booster is returned.
    """

    _library = XGBoostRun


class RobustXGBRegressor(_RobustBoosterRegressor):
    """XGBoost for a number (a mean, the mean of a count, a quantile), and an uncertain mix of contexts.

    The risk of a context is half its mean squared error, or the mean of another ``loss``. Otherwise as
    :class:`RobustXGBClassifier`.

    Parameters
    ----------
    loss : {"squared_error", "poisson", "quantile"}, default="squared_error"
        What trees minimise and risks are means of: half the squared error; the Poisson loss of a count under the
        logarithm of its mean, as in :class:`counterpoise.RobustPoissonRegressor`; or the pinball loss.
    quantile : float, default=0.5
        The level, with ``loss="quantile"``.
    """

    _library = XGBoostRun


class RobustLGBMClassifier(_RobustBoosterClassifier):
    """LightGBM for classes, binary or more, and an uncertain mix of contexts.

    The risk of a context is its mean log loss, in nats. The weights of contexts follow the risks of held-out rows from
    round to round, so robustness costs some plain fits: those to find the weights, those of the references, and one for
    the answer. Where held-out rows do not speak for it, the plain booster is returned.
    """

    _library = LightGBMRun


class RobustLGBMRegressor(_RobustBoosterRegressor):
    """LightGBM for a number (a mean, the mean of a count, a quantile), and an uncertain mix of contexts.

    The risk of a context is half its mean squared error, or the mean of another ``loss``. Otherwise as
    :class:`RobustLGBMClassifier`.

    Parameters
    ----------
    loss : {"squared_error", "poisson", "quantile"}, default="squared_error"
        What trees minimise and risks are means of: half the squared error; the Poisson loss of a count under the
        logarithm of its mean, as in :class:`counterpoise.RobustPoissonRegressor`; or the pinball loss.
    quantile : float, default=0.5
        The level, with ``loss="quantile"``.
    """

    _library = LightGBMRun
