"""Any learner that takes weights, made robust against the mix of contexts."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Self, Unpack

import numpy as np
from numpy.typing import NDArray
from sklearn.base import is_classifier
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.utils import _safe_indexing, assert_all_finite, column_or_1d, get_tags, indexable
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from counterpoise.contexts import encode
from counterpoise.core.objective import Certificate
from counterpoise.core.problem import Adjust, Reference, by_size, given_references
from counterpoise.core.references import ContextRows
from counterpoise.core.references.shrunk import reference_bracket, shrunk_references
from counterpoise.core.solvers.best_response import best_response
from counterpoise.estimators._base import (
    Array,
    MixParameters,
    RobustEstimator,
    check_switches,
    speaking_as,
    with_parameters_of,
)
from counterpoise.estimators.learners import (
    RowLoss,
    Split,
    check_takes_weights,
    default_loss,
    fold_of_rows,
    innermost,
    least_probability,
    out_of_fold_losses,
    row_losses,
    specialist_losses,
    splits_by,
    weighted_rows,
)
from counterpoise.estimators.own_models import OwnModels, judged_by_turns
from counterpoise.estimators.responses import Responses, Sketch
from counterpoise.exceptions import InvalidInputError, NotCertifiedWarning
from counterpoise.inference.choice import Choice, choose
from counterpoise.inference.excess import HeldOut
from counterpoise.inference.headroom import StopRule
from counterpoise.sets import ContextSet
from counterpoise.sets._base import shares_of
from counterpoise.validation import checked_row_weights, on_host, refuse_masked, unwrapped


def _of_learner(name: str, summary: str) -> Any:
    """Return a method that asks the fitted learner, available where the learner has it."""

    def has(self: ContextRobust) -> bool:
        return hasattr(vars(self).get("estimator_", self.estimator), name)

    def method(self: ContextRobust, X: Any) -> NDArray[Any]:
        check_is_fitted(self)
        return np.asarray(getattr(self.estimator_, name)(X))

    method.__name__, method.__qualname__, method.__doc__ = name, f"ContextRobust.{name}", summary
    return available_if(has)(method)


class ContextRobust(RobustEstimator):
    """Make any learner robust that takes ``sample_weight``.

    Two players take turns: one weighs the contexts, the other is the learner, fitted under these weights. Risks are
    those of rows held out, so a learner that memorises does not fool the first player. The game ends when the gap
    between the players stops shrinking, and the learner is fitted once more to all rows under the best weights: one
    deterministic model. Where that is no better on held-out rows than the plain learner, the latter is returned.

    With three folds the plain learner on held-out rows takes two plain fits, contexts' own models two at most, every
    further round two, and the final model one. Of many rows (60,000 or more) a tenth stands for all in the search, and
    what it finds is confirmed by rounds on all.

    Parameters
    ----------
    estimator : estimator
        A classifier or regressor whose ``fit`` takes ``sample_weight``; also a pipeline that ends in one.
    confidence, radius, draws, criterion, mix
        As in :class:`counterpoise.RobustLogisticRegression`.
    reference : {"cross-fit", "in-sample", "shrunk", "null", "pooled"} or mapping from context to risk, \
default="cross-fit"
        The least risk of each context: what the learner reaches on held-out rows when trained on the context alone, or
        on all contexts where that is lower; or on the rows it was trained on. ``"shrunk"`` is for many small contexts:
        what training on the context alone gains on held-out rows is moved towards what it gains in all contexts, the
        more, the fewer rows there are. ``"pooled"`` is what the plain learner reaches, ``"null"`` what one constant
        prediction does, both on held-out rows.
    adjust : {None, "standard-error"} or float, default=None
        Is added to the score of each context, as in :class:`counterpoise.RobustLogisticRegression`. The standard error
        is that of the plain learner's held-out risk; rows of one fold count as independent.
    loss : {"log_loss", "zero_one", "half_squared_error", "squared_error", "absolute_error"} or callable, optional
        Of targets and predictions, one number per row. By default the log loss of a classifier with probabilities, the
        error of one without, half the squared error of a regressor.
    cv : int or splitter, default=3
        How rows are held out. A number deals every context to that many folds, along the targets, and contexts' own
        models are judged in as many of them as it takes to know; rows that belong together need a splitter, or its list
        of splits. More folds take longer, and judge learners of more rows: with 5, a round costs four plain fits.
    guard : bool, default=True
        Keep the plain learner unless the robust one is better in the worst plausible mix of held-out rows, by more than
        the standard error of the difference.
    headroom : {"bound", "test"} or None, default="bound"
        When to stop before the game, with the plain learner: where models of the contexts' own show on held-out rows
        that nothing worth having can be gained (``"bound"``), or unless they show that something can (``"test"``,
        faster, and blind to gains that contexts cannot make on their own); None plays on. For references that are
        estimated on held-out rows; see :func:`counterpoise.headroom`.
    tol : float, default=1e-3
        Smallest gap worth another round, relative to the objective. With a guard, there is but one round where the
        first gap is below the standard error of the plain learner's score in its worst mix, and the last round is that
        whose gap is below a quarter of it, or a twentieth of the first. Without, the game is played until ``tol``.
    max_iter : int, default=20
        Rounds; each costs as many fits as there are folds.
    n_jobs : int, optional
        Fits at once, through joblib.
    verbose : int, default=0

    Attributes
    ----------
    estimator_ : estimator
        The learner fitted to all rows.
    contexts_, context_counts_, context_weights_, unseen_contexts_, unseen_weights_, radius_, draws_
        As in the linear models. The weights are those of the final fit, relative to ``context_counts_``.
    context_risks_, reference_risks_, excess_risks_ : ndarray of shape (n_contexts,)
        On held-out rows; none of them is adjusted.
    reference_bracket_ : ndarray of shape (n_contexts, 2), or None
        As in the linear models; the low end is ``-inf`` where the learner cannot be fitted to the context alone.
    adjustments_ : ndarray of shape (n_contexts,)
        What was added to the scores; zeros where ``adjust`` is None.
    certificate_ : Certificate
        The value that no answer went below, and that of the learner kept, adjustments included, with scope ``"local"``:
        as good as the learner is at minimising its own risk.
    chosen_ : {"erm", "robust"}
        What ``estimator_`` is: the plain learner, or the one under the weights of the game.
    candidates_ : Table
        What held-out rows said of each; see :class:`counterpoise.inference.choice.Choice`.
    headroom_ : Headroom or None
        What contexts could gain, where that was looked at.
    history_ : ndarray of shape (n_rounds, 2)
        The lower and the upper value of every round of the game on all rows.
    n_iter_ : int
        Rounds on all rows.
    classes_, n_features_in_, feature_names_in_
        The learner's.
    """

    references = ("cross-fit", "in-sample", "shrunk", "null", "pooled")

    @with_parameters_of(RobustEstimator)
    def __init__(
        self,
        estimator: Any,
        *,
        reference: Reference = "cross-fit",
        adjust: Adjust = None,
        loss: RowLoss | None = None,
        cv: Any = 3,
        guard: bool = True,
        headroom: StopRule = "bound",
        tol: float = 1e-3,
        max_iter: int = 20,
        n_jobs: int | None = None,
        verbose: int = 0,
        **shared: Unpack[MixParameters],
    ) -> None:
        super().__init__(**shared)
        self.estimator = estimator
        self.reference = reference
        self.adjust = adjust
        self.loss = loss
        self.cv = cv
        self.guard = guard
        self.headroom = headroom
        self.tol = tol
        self.max_iter = max_iter
        self.n_jobs = n_jobs
        self.verbose = verbose

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the learner's own score: accuracy, or the coefficient of determination."""
        check_is_fitted(self)
        weights = {} if sample_weight is None else {"sample_weight": sample_weight}
        return float(self.estimator_.score(on_host(X), on_host(y), **weights))

    def __sklearn_tags__(self) -> Any:
        tags, own = super().__sklearn_tags__(), get_tags(self.estimator)
        for name in ("estimator_type", "target_tags", "classifier_tags", "regressor_tags", "input_tags"):
            setattr(tags, name, getattr(own, name))
        tags.target_tags.multi_output = False
        return tags

    def fit(self, X: Any, y: Any, contexts: Any = None, sample_weight: Any = None, *, groups: Any = None) -> Self:
        """Play the game, and fit the learner under the weights it ends with.

        Parameters
        ----------
        X : anything the learner takes
        y : array of shape (n_samples,)
        contexts : labels of shape (n_samples,), a table of several columns, which are crossed, or Memberships
        sample_weight : array of shape (n_samples,), optional
        groups : labels of shape (n_samples,), optional
            Rows that belong together, such as those of one day; for ``draws="groups"``, and for the errors of guard and
            headroom, in which they count as one. Rows are held out as ``cv`` says, whatever their groups.
        """
        with speaking_as(self):
            check_takes_weights(self.estimator)
            check_switches(self)
            refuse_masked(X=X, y=y, sample_weight=sample_weight)
            X, y = indexable(X, self._checked_target(y))
            n_rows = len(y)
            encoded = self._encode(contexts, X, n_rows)
            weight = checked_row_weights(sample_weight, encoded)
            robustness = self.sized(X, contexts, groups, sample_weight, encoded)
            # From here on X, y, weight and folds are of rows, and losses of rows in each of their contexts.
            weight, codes = weight[encoded.firsts], encoded.codes[encoded.firsts]
            folds = fold_of_rows(self.estimator, X, y, codes, weight, self.cv)
            X, encoded, weight, y, folds, kept = weighted_rows(X, encoded, weight, y, folds, np.arange(n_rows))
            counts = np.bincount(encoded.codes, encoded.repeated(weight), len(encoded.labels)).astype(np.float64)
            judge: dict[str, Any] = {"loss": self.loss, "floor": least_probability(n_rows), "n_jobs": self.n_jobs}
            asked = Responses(self.estimator, X, y, encoded, weight, folds, shares_of(counts), judge)
            rows, shares = asked.rows, asked.shares
            mixes = robustness.mixes_of(encoded, rows.counts)
            unseen = self.robustness.unseen(encoded.labels).risks
            together = None if groups is None else encode(groups, n_rows, role="group").codes[kept]
            held_out = HeldOut(encoded, encoded.units(together), rows.weight, mixes, n_unseen=len(unseen))
            plain = asked.losses(shares)
            references, bracket, own = self._references(asked, held_out, plain)
            if self.adjust == "standard-error":
                adjustments = rows.standard_errors(plain)
            else:
                adjustments = by_size(self.adjust, rows.counts)
            scored = (references if self.criterion == "excess" else 0.0) - adjustments
            scored = np.append(scored, np.zeros_like(unseen))
            self.headroom_ = own.headroom() if own is not None and len(shares) > 1 else None
            stops = self.headroom_ is not None and self.headroom_.stops(self.headroom)
            if self.verbose and self.headroom_ is not None and self.headroom is not None:
                self._say(self.headroom_.verdict)
            answers: list[Array] = []
            sketch = Sketch(asked, rows.means(plain))

            def is_plain(p: Array) -> bool:
                # Around the shares of the data the first round is the plain learner's.
                return len(unseen) == 0 and np.allclose(p, shares, rtol=1e-12, atol=0.0)

            def risks_under(p: Array) -> Array:
                answers.append(plain if is_plain(p) else asked.losses(p))
                return np.append(rows.means(answers[-1]), unseen)

            def sketched_risks(p: Array) -> Array:
                return np.append(sketch(p), unseen)

            game = best_response(
                risks_under,
                mixes,
                scored,
                np.append(shares, np.zeros_like(unseen)),
                tol=self.tol,
                max_iter=1 if stops else self.max_iter,
                noise=self._noise(rows, plain, own, mixes, scored) if self.guard else 0.0,
                sketch=sketched_risks if asked.worth_sketching else None,
                callback=self._show if self.verbose else None,
            )
            candidates = {"erm": plain, "robust": answers[game.best]}
            if stops or not self.guard:
                candidates = {name: candidates[name] for name in candidates if (name == "erm") == stops}
            choice = self._choice(held_out, candidates, plain, own, scored[: len(shares)], adjustments)
            if self.verbose and len(candidates) > 1:
                self._say(choice.words)
        if choice.chosen == "erm":
            p, risks = np.append(shares, np.zeros_like(unseen)), np.append(rows.means(plain), unseen)
        else:
            p, risks = game.p, game.risks
        self.chosen_, self.candidates_ = choice.chosen, choice.candidates
        self.estimator_ = asked.fitted(p)
        self._n_rows = n_rows
        self._keep_contexts(
            encoded,
            rows.counts,
            mixes,
            draws=robustness.n_draws(rows.counts),
            weights=p,
            risks=risks,
            references=references,
        )
        self.reference_bracket_ = bracket
        self.adjustments_ = adjustments
        upper = float(mixes.worst_case(risks - scored).value)
        scale = max(float(mixes.worst_case(np.abs(risks - scored)).value), np.finfo(np.float64).tiny)
        self.certificate_ = Certificate(min(game.bound, upper), upper, "local", scale)
        if choice.chosen == "robust" and not game.converged and self.certificate_.relative_gap > self.tol:
            warnings.warn(
                f"ContextRobust: the rounds ran out with a gap of {self.certificate_.gap:.3g}, "
                f"{self.certificate_.relative_gap:.1g} of the objective; asked for {self.tol:g}. Raise max_iter, "
                "or tol.",
                NotCertifiedWarning,
                stacklevel=2,
            )
        self.history_ = np.column_stack([game.lower, game.upper])
        self.n_iter_ = len(game.upper)
        return self

    def _checked_target(self, y: Any) -> NDArray[Any]:
        if y is None:
            raise InvalidInputError("fit requires y to be passed, but the target y is None.")
        target = column_or_1d(unwrapped(y), warn=True)
        assert_all_finite(target, estimator_name=type(self).__name__, input_name="y")
        if is_classifier(self.estimator):
            check_classification_targets(target)
            return target
        with suppress(ValueError):
            target = target.astype(np.float64)
        return target

    def _references(
        self, asked: Responses, held_out: HeldOut, pooled: Array
    ) -> tuple[Array, Array | None, OwnModels | None]:
        """Return the least risk of each context as far as the learner can tell, an interval of it, and the own models.

        These are judged on rows held out, where it came to that.

        Parameters
        ----------
        pooled : ndarray of shape (n_samples,)
            Losses of the plain learner on rows held out.
        """
        contexts, rows = asked.contexts, asked.rows
        if not isinstance(self.reference, str):
            return given_references(self.reference, contexts), None, None
        X, y, folds = asked.X, asked.y, asked.folds
        if contexts.rows is not None:
            X, y, folds = _safe_indexing(X, contexts.rows), y[contexts.rows], folds[contexts.rows]

        def own_losses(held: Sequence[Split] | None) -> Array:
            return specialist_losses(self.estimator, X, y, rows.weight, rows.codes, held, **asked.judge)

        if self.reference == "pooled":
            return rows.means(pooled), None, None
        if self.reference == "null":
            if self.loss is None and hasattr(innermost(self.estimator), "row_losses"):
                raise InvalidInputError(
                    "reference is 'null', and the learner has a loss of its own, by which a constant cannot be judged. "
                    "Pass loss= by name, or map each context to its risk."
                )
            constant = DummyClassifier() if is_classifier(self.estimator) else DummyRegressor()
            by = {**asked.judge, "loss": self.loss or default_loss(self.estimator)}
            losses = out_of_fold_losses(constant, X, y, rows.weight, np.ones(len(y)), folds, **by)
            return rows.means(losses), None, None
        if self.reference == "in-sample":
            return np.minimum(rows.means(own_losses(None)), rows.means(pooled)), None, None
        if self.reference == "shrunk" or not isinstance(self.cv, (int, np.integer)):
            # Folds of a splitter need not be alike.
            own = OwnModels(held_out, pooled, own_losses(splits_by(folds)), np.zeros(rows.n_contexts, dtype=bool))
        else:
            own = judged_by_turns(held_out, pooled, splits_by(folds), lambda split: own_losses([split]))
        if self.reference == "shrunk":
            bracket = reference_bracket(rows, own_losses(None), own.losses, pooled)
            return shrunk_references(rows, own.losses, pooled, rows.means(own.losses)), bracket, own
        return own.references(rows.means(pooled)), None, own

    def _noise(self, rows: ContextRows, plain: Array, own: OwnModels | None, mixes: ContextSet, scored: Array) -> float:
        """Return the standard error of the plain learner's score in its worst mix; less could hardly be told apart."""
        errors = rows.standard_errors(plain)
        if own is not None and self.criterion == "excess":
            paired = own.standard_errors()
            errors = np.where(np.isfinite(paired), paired, errors)
        n = rows.n_contexts
        worst = mixes.worst_case(np.append(rows.means(plain) - scored[:n], np.zeros(len(scored) - n))).distribution
        return float(np.linalg.norm(worst[:n] * errors))

    def _choice(
        self,
        held_out: HeldOut,
        candidates: dict[str, Array],
        plain: Array,
        own: OwnModels | None,
        scored: Array,
        adjustments: Array,
    ) -> Choice:
        """Choose between the plain learner and the robust one, or note the one there is."""
        codes = held_out.contexts.codes
        if own is None or self.criterion == "risk" or self.reference != "cross-fit":
            return choose(held_out, candidates, {"reference": scored[codes]})
        at, losses = own.competitor()
        candidates = {name: values[at] for name, values in candidates.items()}
        # What a candidate reaches in a context is possible there.
        against = {"own": losses, "erm": plain[at], **candidates}
        return choose(
            held_out.where(at), candidates, {name: one - adjustments[codes[at]] for name, one in against.items()}
        )

    def _show(self, n: int, lower: float, upper: float) -> None:
        self._say(f"round {n + 1}, objective {upper:.6g}, gap {upper - lower:.2g}")

    def _say(self, words: str) -> None:
        sys.stderr.write(f"ContextRobust: {words}\n")
        sys.stderr.flush()

    predict = _of_learner("predict", "Return the learner's predictions.")
    predict_proba = _of_learner("predict_proba", "Return the learner's probabilities.")
    predict_log_proba = _of_learner("predict_log_proba", "Return the logarithm of the learner's probabilities.")
    decision_function = _of_learner("decision_function", "Return the learner's decision values.")

    def row_losses(self, X: Any, y: Any) -> Array:
        """Return the loss of each row, of the kind the fit was about."""
        check_is_fitted(self)
        return row_losses(self.estimator_, X, y, self.loss, least_probability(int(self._n_rows)))

    @property
    def classes_(self) -> NDArray[Any]:
        """The classes, of a classifier."""
        return np.asarray(self.estimator_.classes_)

    @property
    def n_features_in_(self) -> int:
        """Columns seen in fit."""
        return int(self.estimator_.n_features_in_)

    @property
    def feature_names_in_(self) -> NDArray[Any]:
        """Names of the columns seen in fit, where there are any."""
        return np.asarray(self.estimator_.feature_names_in_)
