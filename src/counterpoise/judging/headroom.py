"""Before anything robust is fitted: can any context be served better at all?"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils import indexable

from counterpoise.core.robustness import Mixes
from counterpoise.estimators.learners import (
    RowLoss,
    check_takes_weights,
    fold_of_rows,
    innermost,
    least_probability,
    out_of_fold_losses,
    specialist_losses,
    splits_by,
)
from counterpoise.exceptions import InvalidInputError
from counterpoise.inference.excess import HeldOut
from counterpoise.inference.headroom import Headroom, headroom_of
from counterpoise.judging.comparison import default_estimator
from counterpoise.judging.trials import variant
from counterpoise.validation import check_aligned, unwrapped


def headroom(
    X: Any,
    y: Any,
    contexts: Any,
    estimator: Any = None,
    *,
    mix: Mixes | None = None,
    cv: Any = 5,
    groups: Any = None,
    loss: RowLoss | None = None,
    sample_weight: Any = None,
    confidence: float = 0.95,
    n_jobs: int | None = None,
) -> Headroom:
    """Ask whether any context can be served better than by one plain model for all.

    On rows held out, a model trained on each context alone is compared with one trained on all. Where no context's own
    model is better, weighing contexts differently has little to win: what it takes from one context it can hardly give
    to another. Contexts too small for models of their own may still gain from weights, which this does not see.

    Parameters
    ----------
    contexts : labels of shape (n_samples,), a table of several columns, which are crossed, or Memberships
    estimator : estimator, optional
        Any classifier or regressor that takes ``sample_weight``, or a pipeline that ends in one; of a robust one its
        plain fit is taken. By default scaled features and a logistic or linear regression, by the kind of y.
    mix : mapping, Mix or ContextSet, optional
        The plausible mixes, as in :func:`counterpoise.metrics.excess_bounds`.
    cv, groups, loss, sample_weight, n_jobs
        As in :func:`counterpoise.compare`.
    confidence : float
        Level of the test and of the intervals.

    Returns
    -------
    Headroom
        ``something`` and ``nothing`` tell what was found, if anything; ``verdict`` says it; ``p_value``, ``estimate``,
        ``lower``, ``upper`` and ``by_context`` have the numbers.

    Examples
    --------
    >>> import numpy as np
    >>> import counterpoise as cpo
    >>> rng = np.random.default_rng(0)
    >>> X, ward = rng.standard_normal((900, 2)), np.repeat(["a", "b", "c"], 300)
    >>> y = X @ [1.0, -1.0] + rng.standard_normal(900)
    >>> found = cpo.headroom(X, y, ward)
    >>> found.something
    False
    >>> cpo.headroom(X, np.where(ward == "c", -y, y), ward).something
    True
    """
    check_aligned(X, contexts)
    X, target = indexable(X, np.asarray(unwrapped(y)))
    held_out = HeldOut.of(len(target), contexts, groups, sample_weight, mix=mix, confidence=confidence)
    if len(held_out.contexts.labels) < 2:
        raise InvalidInputError("there is one context; whether one is served worse than others takes two.")
    learner = default_estimator(target) if estimator is None else estimator
    last = innermost(learner)
    if "radius" in getattr(last, "get_params", dict)():
        learner = variant(learner, "erm", [0])
    check_takes_weights(learner)
    codes, weight, together = held_out.of_rows
    folds = fold_of_rows(learner, X, target, codes, weight, cv, together)
    held_out, X, target, folds = held_out.weighted(X, target, folds)
    judge: dict[str, Any] = {"loss": loss, "floor": least_probability(len(target)), "n_jobs": n_jobs}
    plain = out_of_fold_losses(learner, X, target, held_out.weight, np.ones(len(target)), folds, **judge)
    own = specialist_losses(learner, X, target, held_out.weight, held_out.contexts.codes, splits_by(folds), **judge)
    lowest = last.lowest_losses(target) if loss is None and hasattr(last, "lowest_losses") else 0.0
    return headroom_of(held_out, plain, own, lowest)
