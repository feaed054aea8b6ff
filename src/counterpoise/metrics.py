"""How a model does in each context: risk and excess risk on data it has not seen, and scores to select models by."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import indexable

from counterpoise.contexts import Contexts, encode, plain, shown
from counterpoise.core.problem import given_references, keyed
from counterpoise.estimators.learners import (
    RowLoss,
    fold_of_rows,
    innermost,
    least_probability,
    mean_by_context,
    out_of_fold_losses,
    row_losses,
    specialist_losses,
    splits_by,
)
from counterpoise.exceptions import InvalidInputError
from counterpoise.inference.excess import (
    ExcessBounds,
    ExcessDifference,
    HeldOut,
    excess_bounds,
    excess_difference,
)
from counterpoise.table import Table
from counterpoise.validation import check_aligned, unwrapped

__all__ = [
    "ContextScorer",
    "ExcessBounds",
    "ExcessDifference",
    "NominalScorer",
    "WorstContextScorer",
    "WorstExcessScorer",
    "by_context",
    "excess_bounds",
    "excess_difference",
    "reference_risks",
]

Array = NDArray[np.float64]


def by_context(
    model: Any,
    X: Any,
    y: Any,
    contexts: Any,
    *,
    reference: Mapping[Any, float] | None = None,
    loss: RowLoss | None = None,
    sample_weight: Any = None,
    groups: Any = None,
    confidence: float = 0.95,
) -> Table:
    """Judge a fitted model in every context of some data.

    Parameters
    ----------
    model : fitted estimator
        Any classifier or regressor, or a pipeline or search around one.
    contexts : labels of shape (n_samples,), a table of several columns, which are crossed, or Memberships
    reference : mapping from context to risk, optional
        The least risk of contexts; by default the ``reference_risks_`` of a robust model. In-sample references make
        small contexts look worse served than they are: see :func:`reference_risks`.
    loss : {"log_loss", "zero_one", "half_squared_error", "squared_error", "absolute_error"} or callable, optional
        By default the one the model was fitted by; see :func:`counterpoise.estimators.learners.row_losses`.
    groups : labels of shape (n_samples,), optional
        Rows that belong together (one patient, one day) count as one in the intervals.
    confidence : float
        Level at which the intervals of all contexts hold together. References count as known: judge against the
        losses of other models with :func:`excess_bounds`.

    Returns
    -------
    Table
        One row per context: ``context``, ``n``, ``risk``, ``reference``, ``excess``, ``seen``, and ``_low`` and
        ``_high`` of risk and excess, NaN where there is one row or one group. ``seen`` tells whether the model was
        fitted to that context; those it was not are named below the table. Without a reference the excess is NaN.
    """
    check_aligned(X, contexts)
    rows = row_losses(model, X, y, loss)
    held_out = HeldOut.of(len(rows), contexts, groups, sample_weight, confidence=confidence)
    held_out, rows = held_out.weighted(rows)
    labels = held_out.contexts.labels
    judged = held_out.excess_bounds(rows, np.zeros((len(rows), 1)), [""])
    risk, low, high = (judged.by_context[name] for name in ("excess", "low", "high"))
    own = innermost(model)
    trained = {plain(label): k for k, label in enumerate(getattr(own, "contexts_", ()))}
    known = keyed(reference) if reference is not None else _own_references(own)
    least = np.array([known.get(plain(label), np.nan) for label in labels], dtype=np.float64)
    seen = np.array([plain(label) in trained for label in labels]) if trained else np.ones(len(labels), dtype=bool)
    if reference is not None and np.isnan(least).all():
        raise InvalidInputError(
            f"reference names none of the contexts: it has {', '.join(shown(label) for label in list(known)[:5])}, and "
            f"the data have {', '.join(shown(label) for label in labels[:5])}. Use the same labels."
        )
    notes = {"not in the training data": labels[~seen]}
    # A model that knows of no references leaves nothing to name.
    if known:
        notes["without a reference"] = labels[np.isnan(least)]
    note = "; ".join(f"{words}: {', '.join(map(shown, which))}" for words, which in notes.items() if len(which))
    return Table.of(
        note,
        context=labels,
        n=held_out.contexts.counts,
        risk=risk,
        risk_low=low,
        risk_high=high,
        reference=least,
        excess=risk - least,
        excess_low=low - least,
        excess_high=high - least,
        seen=seen,
    )


def reference_risks(
    estimator: Any,
    X: Any,
    y: Any,
    contexts: Any,
    *,
    cv: Any = 5,
    loss: RowLoss | None = None,
    sample_weight: Any = None,
    n_jobs: int | None = None,
) -> dict[Any, float]:
    """Estimate the least risk of each context for a kind of model, on held-out rows.

    The lower of two: the risk of a model trained on the context alone, and of one trained on all contexts.

    Returns
    -------
    dict
        From context to risk, for ``reference=`` of the estimators, :func:`by_context` and :class:`WorstExcessScorer`.
    """
    check_aligned(X, contexts)
    X, target = indexable(X, np.asarray(unwrapped(y)))
    held_out = HeldOut.of(len(target), contexts, None, sample_weight)
    codes, weight, _ = held_out.of_rows
    folds = fold_of_rows(estimator, X, target, codes, weight, cv)
    held_out, X, target, folds = held_out.weighted(X, target, folds)
    weight, labels, codes = held_out.weight, held_out.contexts.labels, held_out.contexts.codes
    options: dict[str, Any] = {"loss": loss, "floor": least_probability(len(target)), "n_jobs": n_jobs}
    own = specialist_losses(estimator, X, target, weight, codes, splits_by(folds), **options)
    pooled = out_of_fold_losses(estimator, X, target, weight, np.ones(len(target)), folds, **options)
    least = np.minimum(*(mean_by_context(rows, weight, codes, len(labels)) for rows in (own, pooled)))
    return {plain(label): float(risk) for label, risk in zip(labels, least, strict=True)}


class ContextScorer(BaseEstimator):  # type: ignore[misc]
    """A score for model selection that looks at contexts; greater is better.

    It requests ``contexts`` itself: with scikit-learn's metadata routing enabled, pass them once, to the search.

    Parameters
    ----------
    loss : {"log_loss", "zero_one", "half_squared_error", "squared_error", "absolute_error"} or callable, optional
        By default the one the model was fitted by; see :func:`counterpoise.estimators.learners.row_losses`.
    """

    __metadata_request__score: ClassVar = {"contexts": True}

    def __init__(self, loss: RowLoss | None = None) -> None:
        self.loss = loss

    def __call__(self, estimator: Any, X: Any, y: Any, contexts: Any = None) -> float:
        """Return the score of a fitted estimator on some data."""
        if contexts is None:
            raise InvalidInputError(
                f"{type(self).__name__} got no contexts. Call sklearn.set_config(enable_metadata_routing=True), and "
                "pass contexts= to the search's fit, or params={'contexts': ...} to cross_validate."
            )
        rows = row_losses(estimator, X, y, self.loss)
        encoded = encode(contexts, len(rows), may_overlap=True)
        rows = encoded.repeated(rows)
        risks = mean_by_context(rows, np.ones(len(rows)), encoded.codes, len(encoded.labels))
        return -self._aggregate(risks, encoded)

    def score(self, *estimator_and_data: Any, contexts: Any = None) -> float:
        """Return the same as a call; the method for which scikit-learn reads the request of the class."""
        estimator, X, y = estimator_and_data
        return self(estimator, X, y, contexts)

    def _aggregate(self, risks: Array, contexts: Contexts) -> float:
        raise NotImplementedError


class WorstContextScorer(ContextScorer):
    """Minus the largest risk among the contexts present.

    Parameters
    ----------
    loss : {"log_loss", "zero_one", "half_squared_error", "squared_error", "absolute_error"} or callable, optional
    """

    def _aggregate(self, risks: Array, contexts: Contexts) -> float:
        return float(risks.max())


class NominalScorer(ContextScorer):
    """Minus the mean risk, in the mix of the data or in one that is given.

    Parameters
    ----------
    mix : mapping from context to share, optional
        The mix of contexts to judge by; shares are rescaled to the contexts present, and those not named have none.
    loss : {"log_loss", "zero_one", "half_squared_error", "squared_error", "absolute_error"} or callable, optional
    """

    def __init__(self, mix: Mapping[Any, float] | None = None, loss: RowLoss | None = None) -> None:
        super().__init__(loss)
        self.mix = mix

    def _aggregate(self, risks: Array, contexts: Contexts) -> float:
        shares: NDArray[Any] = contexts.counts
        if self.mix is not None:
            given = keyed(self.mix)
            shares = np.array([given.get(plain(label), 0.0) for label in contexts.labels], dtype=np.float64)
        if (shares < 0).any() or not shares.sum() > 0:
            raise InvalidInputError(
                f"NominalScorer: mix is {self.mix!r:.60}; shares are 0 or more, and not all 0 in the contexts present."
            )
        return float(np.average(risks, weights=shares))


class WorstExcessScorer(ContextScorer):
    """Minus the largest excess risk among the contexts present.

    Parameters
    ----------
    reference : mapping from context to risk
        The least risk of each context, the same for every model that is compared; see :func:`reference_risks`.
    loss : {"log_loss", "zero_one", "half_squared_error", "squared_error", "absolute_error"} or callable, optional
    """

    def __init__(self, reference: Mapping[Any, float], loss: RowLoss | None = None) -> None:
        super().__init__(loss)
        self.reference = reference

    def _aggregate(self, risks: Array, contexts: Contexts) -> float:
        if self.reference is None or isinstance(self.reference, str):
            raise InvalidInputError(
                f"WorstExcessScorer: reference is {self.reference!r}; map each context to its least risk, e.g. by "
                "counterpoise.metrics.reference_risks."
            )
        return float(np.max(risks - given_references(self.reference, contexts)))


def _own_references(model: Any) -> dict[Any, float]:
    if not hasattr(model, "reference_risks_"):
        return {}
    return {plain(label): risk for label, risk in zip(model.contexts_, model.reference_risks_, strict=True)}
