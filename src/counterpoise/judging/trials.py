"""Models fitted without the rows that judge them: every method, a model per context, the context as a feature."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np
from joblib import Parallel, delayed
from numpy.typing import NDArray
from scipy import sparse
from sklearn import config_context
from sklearn.base import clone
from sklearn.pipeline import Pipeline
from sklearn.utils import _safe_indexing

from counterpoise.contexts import plain
from counterpoise.core.robustness import METHODS
from counterpoise.estimators.learners import (
    RowLoss,
    Split,
    fit_routed,
    innermost,
    row_losses,
    specialist,
    step_name,
    within_contexts,
)
from counterpoise.inference.excess import HeldOut
from counterpoise.judging.measures import Predicted
from counterpoise.sets import Mix

Array = NDArray[np.float64]
Indices = NDArray[np.intp]

BASELINES: Mapping[str, Mapping[str, Any]] = {
    "robust": {},
    **{name: METHODS[name].switches for name in ("erm", "inverse-frequency", "minimax-risk", "minimax-regret")},
}
"""What each method changes in the estimator; inverse-frequency also weighs every context alike."""

PER_CONTEXT, AS_FEATURE = "model per context", "context as a feature"
"""What can be had where the context is known when predicting."""


@dataclass(frozen=True, eq=False)
class Judge:
    """How rows are judged.

    Attributes
    ----------
    loss : RowLoss, optional
        By default the one that models are fitted by.
    floor : float
        The least probability of the log loss.
    n_jobs : int, optional
    """

    loss: RowLoss | None
    floor: float
    n_jobs: int | None = None

    def of(self, model: Any, X: Any, y: NDArray[Any]) -> tuple[Array, Predicted]:
        """Return the losses of some rows under a fitted model, and what it predicts of them."""
        losses = row_losses(model, X, y, self.loss, self.floor)
        return losses, Predicted.of(model, X) if hasattr(model, "predict") else Predicted(losses, are_losses=True)


@dataclass(frozen=True, eq=False)
class Outcome:
    """What a method lost on rows that it was not fitted to, the mean where a row was judged several times.

    Attributes
    ----------
    losses : ndarray of shape (n_rows,)
        NaN for rows that were not judged, infinite for those without a model.
    predicted : Predicted
    """

    losses: Array
    predicted: Predicted

    @classmethod
    def joined(cls, parts: Sequence[tuple[Indices, Array, Predicted]], n_rows: int) -> Outcome:
        """Return the outcome of several splits as one."""
        total, times = np.zeros(n_rows), np.zeros(n_rows)
        for held, losses, _ in parts:
            total[held] += losses
            times[held] += 1.0
        with np.errstate(invalid="ignore"):
            return cls(total / times, Predicted.joined([(held, one) for held, _, one in parts], n_rows))

    def rows(self, at: NDArray[Any]) -> Outcome:
        """Return that of some rows."""
        return Outcome(self.losses[at], self.predicted.rows(at))

    def filled(self, other: Outcome) -> Outcome:
        """Return this outcome with that of another method in rows without a model."""
        lacks = ~np.isfinite(self.losses)
        parts = [(np.flatnonzero(rows), one.predicted.rows(rows)) for rows, one in ((~lacks, self), (lacks, other))]
        there = [part for part in parts if len(part[0])]
        return Outcome(np.where(lacks, other.losses, self.losses), Predicted.joined(there, len(self.losses)))


def trials(
    base: Any,
    methods: Sequence[str],
    X: Any,
    y: NDArray[Any],
    held_out: HeldOut,
    splits: Sequence[Split],
    judge: Judge,
    known: bool = False,
    progress: Callable[[float], None] | None = None,
) -> dict[str, Outcome]:
    """Judge every method on the rows that each split holds out; preprocessing is fitted once a split.

    Parameters
    ----------
    base : estimator
        A robust one, or a pipeline that ends in one.
    known : bool
        Whether the plain method with the context as a feature is judged beside them.
    progress : callable, optional
        Told the fraction that is done.
    """
    contexts, weight = held_out.contexts, held_out.weight
    models = {name: variant(base, name, contexts.labels, contexts.overlap) for name in methods}
    by_weight = [name for name in methods if METHODS[name].balanced and not contexts.overlap]
    prepares = isinstance(base, Pipeline) and len(base.steps) > 1

    def one(entries: Indices, held: Indices) -> list[tuple[Indices, Array, Predicted]]:
        seen, labels = contexts.given(entries)
        present = contexts.labels[np.unique(contexts.codes[entries])]
        before, after = _safe_indexing(X, seen), _safe_indexing(X, held)
        if prepares:
            with config_context(enable_metadata_routing=False):
                steps = clone(base[:-1])
                before, after = steps.fit_transform(before, y[seen]), steps.transform(after)
        equal = contexts.where(seen).balanced(weight[seen]) if by_weight else weight[seen]
        found = []
        for name, model in models.items():
            last = _informed(model.steps[-1][1] if prepares else model, contexts.labels, present)
            metadata = {"contexts": labels, "sample_weight": equal if name in by_weight else weight[seen]}
            found.append((held, *judge.of(fit_routed(last, before, y[seen], **metadata), after, y[held])))
        if known:
            last = models["erm"].steps[-1][1] if prepares else models["erm"]
            codes, size = contexts.codes, len(contexts.labels)
            fitted = fit_routed(
                _informed(last, contexts.labels, present),
                with_contexts(before, codes[seen], size),
                y[seen],
                contexts=labels,
                sample_weight=weight[seen],
            )
            found.append((held, *judge.of(fitted, with_contexts(after, codes[held], size), y[held])))
        return found

    by_split: list[Any] = []
    for found in Parallel(n_jobs=judge.n_jobs, return_as="generator")(delayed(one)(*split) for split in splits):
        by_split.append(found)
        if progress is not None:
            progress(len(by_split) / len(splits))
    names = [*methods, *([AS_FEATURE] if known else [])]
    return {name: Outcome.joined([found[k] for found in by_split], len(y)) for k, name in enumerate(names)}


def with_contexts(X: Any, codes: Indices, n_contexts: int) -> Any:
    """Return features with a column for every context but the first: one in its rows, zero elsewhere."""
    columns = (codes[:, None] == np.arange(1, n_contexts)).astype(np.float64)
    if sparse.issparse(X):
        return sparse.hstack([X, sparse.csr_array(columns)], format="csr")
    frame = nw.from_native(X, eager_only=True, pass_through=True)
    if isinstance(frame, nw.DataFrame):
        own = {f"context {k + 1}": columns[:, k] for k in range(n_contexts - 1)}
        series = [nw.new_series(name, values, backend=frame.implementation) for name, values in own.items()]
        return frame.with_columns(*series).to_native()
    return np.column_stack([np.asarray(X), columns])


def own_models(
    learner: Any,
    X: Any,
    y: NDArray[Any],
    held_out: HeldOut,
    splits: Sequence[Split],
    judge: Judge,
) -> Outcome:
    """Judge a model of every context's own; infinite where there is none."""
    codes, weight = held_out.contexts.codes, held_out.weight

    def one(seen: Indices, held: Indices) -> tuple[Indices, Array, Predicted] | None:
        fitted = specialist(learner, X, y, weight, seen) if len(held) else None
        return None if fitted is None else (held, *judge.of(fitted, _safe_indexing(X, held), y[held]))

    pairs = list(within_contexts(codes, splits))
    found = Parallel(n_jobs=judge.n_jobs)(delayed(one)(*pair) for pair in pairs)
    parts = [part for part in found if part is not None]
    lacking = [held for (_, held), part in zip(pairs, found, strict=True) if part is None]
    if not parts:
        losses = np.full(len(y), np.nan)
        losses[np.concatenate(lacking)] = np.inf
        return Outcome(losses, Predicted(np.full(len(y), np.nan)))
    own = Outcome.joined(parts, len(y))
    for held in lacking:
        own.losses[held] = np.inf
    return own


def _informed(model: Any, labels: NDArray[Any], present: Iterable[Any]) -> Any:
    """Return a model that is told of no contexts but those among its rows: a fold may lack one of a single row."""
    own = innermost(model)
    mix, there = own.get_params(deep=False).get("mix"), {plain(label) for label in present}
    lacking = [label for label in labels if plain(label) not in there]
    if not lacking or not isinstance(mix, (Mix, Mapping)):
        return model
    return clone(model).set_params(**{f"{step_name(model)}mix": Mix.of(mix).without(lacking)})


def variant(base: Any, method: str, contexts: Sequence[Any] | NDArray[Any], overlap: bool = False) -> Any:
    """Return the estimator with its switches set for a method; without contexts a fit has one, 0."""
    prefix, switches = step_name(base), dict(BASELINES[method])
    given = innermost(base).get_params()
    if switches.get("criterion") == "risk" and "reference" in given:
        # What is not scored need not be estimated.
        switches["reference"] = dict.fromkeys(map(plain, contexts), 0.0)
    if method != "robust":
        switches |= {name: None for name in ("adjust", "mix") if name in given}
    # What is compared is the method itself; which one to keep is said in the end.
    switches |= {name: value for name, value in (("guard", False), ("headroom", None)) if name in given}
    if overlap and METHODS[method].balanced:
        # A row in several contexts has no one weight by which each of them counts alike.
        switches["mix"] = Mix(shares={plain(label): 1.0 / len(contexts) for label in contexts}, radius=0.0)
    return clone(base).set_params(**{prefix + name: value for name, value in switches.items()})
