"""Robust learning beside its baselines, on data held out, context by context."""

from __future__ import annotations

import html
import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import _safe_indexing, indexable
from sklearn.utils.multiclass import type_of_target

from counterpoise.contexts import Contexts, encode, plain, shown
from counterpoise.estimators.linear import RobustLinearRegression, RobustLogisticRegression
from counterpoise.exceptions import InvalidInputError
from counterpoise.fit import METHODS
from counterpoise.learners import (
    RowLoss,
    fit_routed,
    fold_of_rows,
    held_out_losses,
    innermost,
    least_probability,
    specialist_losses,
    step_name,
    weighted_rows,
)
from counterpoise.tables import Table
from counterpoise.validation import check_aligned, checked_row_weights, unwrapped

Array = NDArray[np.float64]

BASELINES: Mapping[str, Mapping[str, Any]] = {
    "robust": {},
    **{name: METHODS[name].switches for name in ("erm", "inverse-frequency", "minimax-risk", "minimax-regret")},
}
"""What each method changes in the estimator; inverse-frequency also weighs every context alike."""


@dataclass(frozen=True, eq=False)
class Comparison:
    """How methods did on held-out rows.

    Attributes
    ----------
    summary : Table
        A row per method: mean risk in the mix of the data (``nominal_risk``), largest risk and largest excess risk of
        any context and the context it occurs in; then the change of worst excess and of nominal risk against ``erm``.
        Columns that end in ``_low`` and ``_high`` are bootstrap intervals, paired between methods.
    by_context : Table
        A row per method and context: ``n``, ``risk``, ``excess`` and their intervals.
    references : dict
        The least risk of each context: the lowest any of the compared models reached on held-out rows, models trained
        on the context alone included.
    verdict : str
        What to make of it, in words.
    confidence : float
        Level of the intervals.
    model : str
        What was fitted, in words.
    remarks : str
        The verdict without its first sentence.
    """

    summary: Table
    by_context: Table
    references: dict[Any, float]
    verdict: str
    confidence: float
    model: str = ""
    remarks: str = ""

    @property
    def overview(self) -> Table:
        """The summary with intervals in words, short enough to read."""

        def with_interval(name: str) -> list[str]:
            low, high = self.summary[f"{name}_low"], self.summary[f"{name}_high"]
            return [
                f"{value:.4g} [{a:.3g}, {b:.3g}]" for value, a, b in zip(self.summary[name], low, high, strict=True)
            ]

        return Table(
            {
                "method": self.summary["method"],
                "worst excess": np.array(with_interval("worst_excess")),
                "in": self.summary["worst_context"],
                "against erm": np.array(with_interval("worst_excess_change")),
                "mean risk": self.summary["nominal_risk"],
                "its change": np.array(with_interval("nominal_risk_change")),
            },
            f"{self.model}, on held-out rows; {100 * self.confidence:g}% bootstrap intervals",
        )

    def __repr__(self) -> str:
        return f"{self.verdict}\n\n{self.overview}"

    def _repr_html_(self) -> str:
        return f"<p>{html.escape(self.verdict)}</p>{self.overview._repr_html_()}"


def compare(
    X: Any,
    y: Any,
    contexts: Any = None,
    *,
    estimator: Any = None,
    methods: Sequence[str] = tuple(BASELINES),
    cv: Any = 5,
    groups: Any = None,
    loss: RowLoss | None = None,
    sample_weight: Any = None,
    confidence: float = 0.95,
    n_bootstrap: int = 1000,
    random_state: int = 0,
    n_jobs: int | None = None,
) -> Comparison:
    """Cross-validate a robust model and its baselines, and say which serves the worst context best at what price.

    Parameters
    ----------
    contexts : labels of shape (n_samples,), or a table of several columns, which are crossed
    estimator : estimator, optional
        A robust estimator, or a pipeline that ends in one; all preprocessing in it is fitted inside the folds. By
        default scaled features and a robust logistic or linear regression, by the kind of y.
    methods : sequence of names
        Of ``"robust"`` (the estimator as it is), ``"erm"``, ``"inverse-frequency"``, ``"minimax-risk"`` and
        ``"minimax-regret"``.
    cv : int or splitter
        A number deals the rows of every context to that many folds, along the targets.
    groups : labels of shape (n_samples,), optional
        Rows that belong together (one patient, one day): they are kept in one fold, and drawn together in the
        bootstrap.
    loss : {"log_loss", "zero_one", "half_squared_error", "squared_error", "absolute_error"} or callable, optional
        By default the one the models are fitted by.
    confidence : float
        Level of the bootstrap intervals, which reflect the rows that happened to be there, not the folds.

    Returns
    -------
    Comparison
    """
    if contexts is None:
        raise InvalidInputError("compare needs contexts=, one label per row.")
    strange = [name for name in methods if name not in BASELINES]
    if strange or "robust" not in methods or "erm" not in methods:
        raise InvalidInputError(
            f"methods are {list(methods)!r:.80}; choose from {', '.join(BASELINES)}, 'robust' and 'erm' among them."
        )
    if not 0.0 < confidence < 1.0:
        raise InvalidInputError(f"confidence = {confidence}; the level of an interval lies between 0 and 1.")
    check_aligned(X, contexts)
    X, target = indexable(X, np.asarray(unwrapped(y)))
    encoded = encode(contexts, len(target))
    units = _group_codes(groups, len(target))
    weight = checked_row_weights(sample_weight, encoded)
    base = default_estimator(target) if estimator is None else estimator
    if n_bootstrap < 0:
        raise InvalidInputError(f"n_bootstrap = {n_bootstrap}; pass a number of resamples, 0 or more.")
    last = innermost(base)
    if isinstance(base, type) or not hasattr(last, "get_params") or "radius" not in last.get_params():
        raise InvalidInputError(
            f"compare needs a robust estimator, got {base!r:.60}. Wrap others: ContextRobust(estimator)."
        )
    folds = fold_of_rows(base, X, target, encoded.codes, weight, cv, units)
    units = units if units is None else units[weight > 0]
    X, encoded, weight, target, folds = weighted_rows(X, encoded, weight, target, folds)
    judge: dict[str, Any] = {"loss": loss, "floor": least_probability(len(target)), "n_jobs": n_jobs}
    with _each_warning_once():
        rows = {
            name: held_out_losses(_fit(base, name, X, target, encoded, weight), X, target, folds, **judge)
            for name in methods
        }
        alone = specialist_losses(_variant(base, "erm", [0]), X, target, weight, encoded.codes, folds, **judge)
    model = type(last).__name__ if estimator is not None else f"{type(last).__name__}, chosen by the kind of y"
    judged = _judged(rows, alone, weight, encoded, units, confidence, n_bootstrap, random_state)
    return replace(judged, model=model)


def _group_codes(groups: Any, n_rows: int) -> NDArray[np.intp] | None:
    if groups is None:
        return None
    try:
        return encode(groups, n_rows).codes
    except InvalidInputError as error:
        raise InvalidInputError(str(error).replace("context", "group")) from error


@contextmanager
def _each_warning_once() -> Iterator[None]:
    """Pass on one warning of each kind: the same fit is made many times."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    for warning in {record.category: record for record in reversed(caught)}.values():
        warnings.warn(warning.message, stacklevel=4)


def default_estimator(y: NDArray[Any]) -> Any:
    """Return scaled features and a robust linear model for this kind of target."""
    # Numbers too large for a whole one are none.
    with np.errstate(over="ignore", invalid="ignore"):
        kind = type_of_target(y)
    # Two numbers are classes; more are, as whole numbers, unless there are more than anyone would name.
    n_values = len(np.unique(y))
    number = n_values > 2 and (y.dtype.kind == "f" or (y.dtype.kind in "iu" and n_values > 20))
    if kind in ("binary", "multiclass") and not number:
        return make_pipeline(StandardScaler(), RobustLogisticRegression(reference="cross-fit"))
    if kind in ("continuous", "multiclass"):
        return make_pipeline(StandardScaler(), RobustLinearRegression(reference="cross-fit"))
    raise InvalidInputError(f"y is {kind}; compare handles one class or one number per row.")


def _fit(
    base: Any, method: str, X: Any, y: NDArray[Any], contexts: Contexts, weight: Array
) -> Callable[[NDArray[np.intp]], Any]:
    """Return how a method is fitted to some of the rows."""
    model = _variant(base, method, contexts.labels)
    weight = contexts.balanced(weight) if METHODS[method].balanced else weight
    labels = contexts.labels[contexts.codes]

    def fit(rows: NDArray[np.intp]) -> Any:
        chosen = _safe_indexing(X, rows)
        return fit_routed(model, chosen, y[rows], contexts=labels[rows], sample_weight=weight[rows])

    return fit


def _variant(base: Any, method: str, contexts: Iterable[Any]) -> Any:
    """Return the estimator with its switches set for a method; without contexts a fit has one, 0."""
    prefix, switches = step_name(base), dict(BASELINES[method])
    if switches.get("score") == "risk" and "reference" in innermost(base).get_params():
        # What is not scored need not be estimated.
        switches["reference"] = dict.fromkeys(map(plain, contexts), 0.0)
    return clone(base).set_params(**{prefix + name: value for name, value in switches.items()})


def _judged(
    rows: Mapping[str, Array],
    alone: Array,
    weight: Array,
    contexts: Contexts,
    units: NDArray[np.intp] | None,
    confidence: float,
    n_bootstrap: int,
    seed: int,
) -> Comparison:
    """Turn losses of rows into tables and words."""
    names, labels = list(rows), contexts.labels
    shares = np.bincount(contexts.codes, weight, len(labels)) / weight.sum()
    losses = np.column_stack([*rows.values(), alone])
    drawn = np.random.default_rng(seed)
    # (n_bootstrap + 1, n_methods + 1, n_contexts), the first without resampling.
    risks = np.stack(
        [
            _resampled(losses[own], weight[own], None if units is None else units[own], n_bootstrap, drawn)
            for own in (contexts.codes == c for c in range(len(labels)))
        ],
        axis=2,
    )
    least = risks.min(axis=1)
    risks = risks[:, :-1]
    excess = risks - least[:, None]
    nominal, worst = risks @ shares, excess.max(axis=2)
    tail = 0.5 * (1.0 - confidence)

    # What one row, or one group, would have been otherwise, nobody knows.
    n_units = contexts.counts
    if units is not None:
        n_units = np.array([len(np.unique(units[contexts.codes == c])) for c in range(len(labels))])
    alone_in_context = n_units == 1
    known = n_bootstrap > 0 and not alone_in_context.all()

    def interval(samples: Array) -> tuple[Array, Array]:
        if not known:
            return np.full_like(samples[0], np.nan), np.full_like(samples[0], np.nan)
        low, high = np.quantile(samples[1:], [tail, 1.0 - tail], axis=0)
        return low, high

    erm = names.index("erm")
    # The largest excess is not known to be what it is, where it is that of a context with one row.
    lone = alone_in_context[excess[0].argmax(axis=1)]
    unknown = {"worst_excess": lone, "worst_excess_change": lone | lone[erm]}
    columns: dict[str, Any] = {"method": np.array(names)}
    for name, samples in (
        ("nominal_risk", nominal),
        ("worst_risk", risks.max(axis=2)),
        ("worst_excess", worst),
        ("worst_excess_change", worst - worst[:, [erm]]),
        ("nominal_risk_change", nominal - nominal[:, [erm]]),
    ):
        columns[name] = samples[0]
        doubtful = unknown.get(name, np.zeros_like(lone))
        ends = (np.where(doubtful, np.nan, end) for end in interval(samples))
        columns[f"{name}_low"], columns[f"{name}_high"] = ends
    columns["worst_context"] = labels[excess[0].argmax(axis=1)]
    summary = Table(columns)
    cells: dict[str, Any] = {
        "method": np.repeat(names, len(labels)),
        "context": np.concatenate([labels] * len(names)),
        "n": np.tile(contexts.counts, len(names)),
    }
    for name, samples in (("risk", risks), ("excess", excess)):
        cells[name] = samples[0].ravel()
        ends = (np.where(alone_in_context, np.nan, end) for end in interval(samples))
        cells[f"{name}_low"], cells[f"{name}_high"] = (end.ravel() for end in ends)
    references = dict(zip(labels.tolist(), least[0].tolist(), strict=True))
    words = _verdict(names, worst, nominal, labels[excess[0].argmax(axis=1)], lone, interval)
    return Comparison(summary, Table(cells), references, " ".join(words), confidence, remarks=" ".join(words[1:]))


def _resampled(
    losses: Array, weight: Array, units: NDArray[np.intp] | None, n_bootstrap: int, drawn: np.random.Generator
) -> Array:
    """Return the mean loss of one context's rows for every model: as they are, then resampled."""
    # An infinite loss says that there is no model of the context's own.
    finite = np.isfinite(losses).all(axis=0)
    sums = np.column_stack([weight[:, None] * np.where(finite, losses, 0.0), weight])
    if units is not None:
        position = np.unique(units, return_inverse=True)[1]
        sums = np.stack([np.bincount(position, column) for column in sums.T], axis=1)
    n = len(sums)
    totals = [sums.sum(axis=0, keepdims=True)]
    # Poisson counts resample without n-way draws; in blocks, for memory.
    step = max(1, (1 << 22) // n)
    for first in range(0, n_bootstrap, step):
        size = min(step, n_bootstrap - first)
        counts = drawn.poisson(1.0, size=(size, n)) if n > 1000 else drawn.multinomial(n, np.full(n, 1.0 / n), size)
        totals.append(counts @ sums)
    total = np.concatenate(totals)
    return np.asarray(np.where(finite, total[:, :-1] / total[:, -1:], np.inf))


def _verdict(
    names: list[str],
    worst: Array,
    nominal: Array,
    where: NDArray[Any],
    lone: NDArray[np.bool_],
    interval: Callable[[Array], tuple[Array, Array]],
) -> list[str]:
    """Say in words which method serves the worst context best, and what that costs on average."""
    robust, erm = names.index("robust"), names.index("erm")

    def against(samples: Array, other: str) -> tuple[str, float, float]:
        difference = samples[:, [robust]] - samples[:, [names.index(other)]]
        low, high = (float(end[0]) for end in interval(difference))
        if samples is worst and (lone[robust] or lone[names.index(other)]):
            low = high = math.nan
        words = f"{difference[0, 0]:+.4g}" + (f" [{low:+.4g}, {high:+.4g}]" if low == low else "")
        return words, low, high

    gain, low, high = against(worst, "erm")
    verb = "lowers" if high < 0 else "raises" if low > 0 else "does not clearly change"
    words = [
        f"Robust {verb} the largest excess risk: {worst[0, robust]:.4g} (in {shown(where[robust])}) against "
        f"{worst[0, erm]:.4g} (in {shown(where[erm])}) for plain empirical risk minimisation, a difference of {gain}.",
        f"On average its risk is {nominal[0, robust]:.4g} against {nominal[0, erm]:.4g}, a difference of "
        f"{against(nominal, 'erm')[0]}.",
    ]
    if "inverse-frequency" in names:
        _, low, high = against(worst, "inverse-frequency")
        value = f"{worst[0, names.index('inverse-frequency')]:.4g}"
        if low > 0:
            words.append(f"Plain inverse-frequency weights do better in the worst context ({value}).")
        elif high < 0:
            words.append(f"Inverse-frequency weights do not do as well ({value}).")
        else:
            words.append(
                f"Plain inverse-frequency weights are as good in the worst context, within the noise ({value})."
            )
    best = int(worst[0].argmin())
    words.append(f"Lowest worst-context excess: {names[best]} ({worst[0, best]:.4g}).")
    return words
