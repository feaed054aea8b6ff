"""What a fitted model knows of the rows that it was fitted to: their contexts, the mix, and the risks."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from counterpoise.contexts import objects, plain
from counterpoise.core.robustness import Robustness
from counterpoise.estimators.learners import innermost, least_probability
from counterpoise.exceptions import CoverageWarning
from counterpoise.judging.measures import MEASURES, Judged, Task
from counterpoise.losses import Huber
from counterpoise.sets import ContextSet

Array = NDArray[np.float64]


def robustness_of(model: Any) -> Robustness:
    """Return what is scored and how large the set is, of a fitted robust estimator, with the draws as a number."""
    robustness: Robustness = model.robustness
    if robustness.draws == "groups":
        return replace(robustness, draws=None if math.isnan(model.draws_) else model.draws_)
    return robustness


@dataclass(frozen=True, eq=False)
class AtFit:
    """The contexts of a fit.

    Attributes
    ----------
    labels : ndarray of shape (n_contexts,)
    counts : ndarray of shape (n_contexts,)
        Rows of each.
    mixes : ContextSet or None
        The set that the model was made for; None where it was made for the mix of its rows alone.
    others : tuple of labels
        Contexts without rows that the set has after these.
    references : ndarray of shape (n_contexts,) or None
        The least possible risk of each context.
    risks : mapping from method to ndarray of shape (n_contexts,)
        On rows held out, where they were kept, else on the rows of the fit.
    held_out : bool
        Which of the two.
    """

    labels: NDArray[Any]
    counts: Array
    mixes: ContextSet | None
    others: tuple[Any, ...]
    references: Array | None
    risks: Mapping[str, Array]
    held_out: bool

    @classmethod
    def of(cls, models: Mapping[str, Any], kept: str) -> AtFit | None:
        """Ask models; None where the one that is kept knows nothing of contexts.

        Parameters
        ----------
        models : mapping from method to fitted estimator
        kept : str
            The one that is judged.
        """
        own = innermost(models[kept])
        labels = getattr(own, "contexts_", None)
        if labels is None or not hasattr(own, "context_counts_") or len(labels) < 2:
            return None
        known = [plain(label) for label in labels]
        alike = {
            name: one
            for name, one in ((name, innermost(one)) for name, one in models.items())
            if [plain(label) for label in getattr(one, "contexts_", ())] == known
        }
        counts = np.asarray(own.context_counts_, dtype=np.float64)
        mixes, others = _mixes(alike.get("robust", own), labels, counts)
        references = getattr(own, "reference_risks_", None)
        # The logarithm of a target was modelled: risks are of that, and say nothing in the unit of the target.
        in_logarithms = getattr(own, "log", None) is not None
        risks = {} if in_logarithms else {name: _risks(one) for name, one in alike.items()}
        return cls(
            objects(known),
            counts,
            mixes,
            others,
            None if references is None or in_logarithms else np.asarray(references, dtype=np.float64),
            {name: one for name, one in risks.items() if one is not None},
            getattr(own, "held_out_risks_", None) is not None,
        )

    @property
    def shares(self) -> Array:
        """The mix of these rows."""
        return self.counts / self.counts.sum()


def _mixes(model: Any, labels: Any, counts: Array) -> tuple[ContextSet | None, tuple[Any, ...]]:
    """Return the set of a model, unless that is a single mix, and contexts without rows that it has."""
    if not hasattr(model, "robustness"):
        return None, ()
    robustness = robustness_of(model)
    with warnings.catch_warnings():
        # Said by the fit.
        warnings.simplefilter("ignore", CoverageWarning)
        mixes = robustness.mixes(counts, labels)
    return (None if getattr(mixes, "is_point", False) else mixes), tuple(robustness.unseen(labels).labels)


def _risks(model: Any) -> Array | None:
    """Return the risk of each context: on rows held out where it is known, else on those of the fit."""
    in_sample = getattr(model, "context_risks_", None)
    if in_sample is None:
        return None
    held_out = getattr(model, "held_out_risks_", None)
    risks = np.asarray(in_sample if held_out is None else held_out, dtype=np.float64)
    return np.where(np.isnan(risks), in_sample, risks)


def fit_losses(task: Task, rows: Judged, delta: float = 1.35) -> Array:
    """Return the loss of each row that models of a task minimise, from predictions alone.

    Parameters
    ----------
    delta : float
        Where a residual counts as an outlier, where the task is huber.
    """
    values = rows.predicted.values
    if task == "classification":
        log_loss = MEASURES[task][2].per_row
        assert log_loss is not None
        # A class that the model does not know is one that was not seen in so many rows.
        return np.where(rows.target < 0, -math.log(least_probability(len(rows.target))), log_loss(rows))
    if task == "count":
        return np.asarray(values - rows.target * np.log(np.maximum(values, 1e-300)))
    if task == "quantile":
        pinball = MEASURES[task][0].per_row
        assert pinball is not None
        return pinball(rows)
    if task == "huber":
        return np.asarray(Huber(delta).value(rows.target, values))
    return 0.5 * np.square(rows.residual)


def watch_losses(task: Task, rows: Judged, delta: float = 1.35) -> Array:
    """Return the loss of each row by which a model is watched: that of the fit, and never negative.

    Of counts it is half the Poisson deviance, ``y log(y / f) - y + f``, which differs from the loss of the fit by
    what no prediction changes.

    Parameters
    ----------
    delta : float
        Where a residual counts as an outlier, where the task is huber.
    """
    if task != "count":
        return fit_losses(task, rows, delta)
    deviance = MEASURES[task][0].per_row
    assert deviance is not None
    # Of a prediction that is right to the last digit, rounding might leave less than nothing.
    return np.maximum(0.5 * deviance(rows), 0.0)
