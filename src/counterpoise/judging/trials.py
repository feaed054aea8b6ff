"""Models fitted without the rows that judge them: every method, a model per context, the context as a feature."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np
from joblib import Parallel, delayed
from numpy.typing import NDArray
from scipy import sparse
from sklearn import config_context
from sklearn.base import clone, is_classifier
from sklearn.pipeline import Pipeline
from sklearn.utils import _safe_indexing

from counterpoise.contexts import plain
from counterpoise.core.robustness import METHODS
from counterpoise.estimators.learners import (
    RowLoss,
    Split,
    by_context,
    fit_routed,
    innermost,
    row_losses,
    specialist,
    specialist_losses,
    step_name,
)
from counterpoise.estimators.same_rows import SameRows, SideBySide
from counterpoise.inference.excess import HeldOut
from counterpoise.judging.measures import Predicted, task_of
from counterpoise.judging.shared_tables import arrived, departing
from counterpoise.log_targets import LogTarget
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
    log_target : bool
        Whether targets are logarithms, and predictions are read in the unit of what they are logarithms of.
    """

    loss: RowLoss | None
    floor: float
    n_jobs: int | None = None
    log_target: bool = False

    def of(self, model: Any, X: Any, y: NDArray[Any], fitted_to: tuple[Any, Any]) -> tuple[Array, Predicted]:
        """Return the losses of some rows under a model, and what it predicts of them.

        Parameters
        ----------
        fitted_to : pair of X and y
            The rows that it was fitted to.
        """
        losses = row_losses(model, X, y, self.loss, self.floor)
        if not hasattr(model, "predict"):
            return losses, Predicted(losses, are_losses=True)
        predicted = Predicted.of(model, X)
        if self.log_target:
            way_back = LogTarget.of(task_of(model), model, *fitted_to)
            predicted = replace(predicted, values=way_back.back(predicted.values))
        return losses, predicted


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
        """Return that of some rows, each at most once and in their order."""
        return self if len(at) == len(self.losses) else Outcome(self.losses[at], self.predicted.rows(at))

    def filled(self, other: Outcome) -> Outcome:
        """Return this outcome with that of another method in rows without a model."""
        lacks = ~np.isfinite(self.losses)
        parts = [(np.flatnonzero(rows), one.predicted.rows(rows)) for rows, one in ((~lacks, self), (lacks, other))]
        there = [part for part in parts if len(part[0])]
        return Outcome(np.where(lacks, other.losses, self.losses), Predicted.joined(there, len(self.losses)))


@dataclass(frozen=True, eq=False)
class Trials:
    """What was found on rows held out.

    Attributes
    ----------
    methods : dict from method to Outcome
    own : Outcome
        Of a model of every context's own; infinite where there is none.
    as_feature : Outcome or None
        Of the plain method with the context as a feature.
    """

    methods: dict[str, Outcome]
    own: Outcome
    as_feature: Outcome | None


@dataclass(frozen=True, eq=False, kw_only=True)
class Field:
    """Rows, and the methods that are tried on them; preprocessing is fitted once for all methods of a split.

    Attributes
    ----------
    base : estimator
        A robust one, or a pipeline that ends in one.
    methods : tuple of names
    X, y
        An entry for each row that has weight; where contexts overlap, for each membership.
    held_out : HeldOut
        Their contexts and weights.
    judge : Judge
    """

    base: Any
    methods: tuple[str, ...]
    X: Any
    y: NDArray[Any]
    held_out: HeldOut
    judge: Judge

    def __getstate__(self) -> dict[str, Any]:
        """Return what goes to another process."""
        return {**vars(self), "X": departing(self.X)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take what has come from another process."""
        vars(self).update({**state, "X": arrived(state["X"])})

    @property
    def last(self) -> Any:
        """The estimator that decides."""
        return innermost(self.base)

    @property
    def _prepares(self) -> bool:
        return isinstance(self.base, Pipeline) and len(self.base.steps) > 1

    def _decider(self, model: Any) -> Any:
        return model.steps[-1][1] if isinstance(self.base, Pipeline) else model

    @cached_property
    def _models(self) -> dict[str, Any]:
        contexts = self.held_out.contexts
        return {
            name: self._decider(variant(self.base, name, contexts.labels, contexts.overlap)) for name in self.methods
        }

    @cached_property
    def _alone(self) -> Any:
        """What is fitted to a context alone."""
        return self._decider(variant(self.base, "erm", [0]))

    def _prepared(self, seen: Indices, *others: Indices) -> list[Any]:
        """Return features of rows, and of others, as a preprocessing makes them that was fitted to the first."""
        given = [_safe_indexing(self.X, rows) for rows in (seen, *others)]
        if not self._prepares:
            return given
        with config_context(enable_metadata_routing=False):
            steps = clone(self.base[:-1])
            return [steps.fit_transform(given[0], self.y[seen]), *map(steps.transform, given[1:])]

    def fitted(self) -> Array:
        """Return the loss of every row under the model of its context, which was fitted to it."""
        judge: dict[str, Any] = {"loss": self.judge.loss, "floor": self.judge.floor}
        contexts, weight = self.held_out.contexts, self.held_out.weight
        losses, rest = np.full(len(self.y), np.nan), np.arange(len(self.y))
        if SameRows.serves(self._alone) and (X := self._each_prepared()) is not None:
            same = SameRows.of(self._alone, X=X, y=self.y, contexts=contexts.codes, sample_weight=weight)
            models = same.alone(self._alone)
            place = models.places(range(len(contexts.labels)))[contexts.codes]
            rows, rest = np.flatnonzero(place >= 0), np.flatnonzero(place < 0)
            if len(rows):
                losses[rows] = row_losses(*models.together(_safe_indexing(X, rows), place[rows]), self.y[rows], **judge)
        if len(rest):
            own = (_safe_indexing(self.X, rest), self.y[rest], weight[rest], contexts.codes[rest], None)
            losses[rest] = specialist_losses(variant(self.base, "erm", [0]), *own, **judge, n_jobs=self.judge.n_jobs)
        return losses

    def _each_prepared(self) -> Any | None:
        """Return features as preprocessings make them that are fitted to each context alone.

        None where these do not make one table, as by categories that only some contexts have.
        """
        if not self._prepares:
            return self.X
        prepared = None
        try:
            for own in by_context(self.held_out.contexts.codes, len(self.held_out.contexts.labels)):
                found = self._prepared(own)[0]
                prepared = np.empty((len(self.y), found.shape[1])) if prepared is None else prepared
                if not isinstance(found, np.ndarray) or found.shape[1] != prepared.shape[1]:
                    return None
                prepared[own] = found
        except ValueError:
            # A context may be too small, as where it is fitted alone.
            return None
        return prepared

    def tried(
        self,
        splits: Sequence[Split],
        known: bool = False,
        progress: Callable[[float], None] | None = None,
        *,
        of_the_past: bool = False,
    ) -> Trials:
        """Judge every method, and a model of every context's own, on the rows that each split holds out.

        Parameters
        ----------
        known : bool
            Whether the plain method with the context as a feature is judged beside them.
        progress : callable, optional
            Told the fraction that is done.
        of_the_past : bool
            Whether models know no more draws of contexts than their own rows are worth, as nobody knew of later ones.
        """
        found: list[_Tried] = []
        jobs = (delayed(self._one)(*split, known, of_the_past) for split in splits)
        for one in Parallel(n_jobs=self.judge.n_jobs, return_as="generator")(jobs):
            found.append(one)
            if progress is not None:
                progress(len(found) / len(splits))
        n = len(self.y)
        feature = Outcome.joined([one.as_feature for one in found if one.as_feature], n) if known else None
        methods = {name: Outcome.joined([one.methods[name] for one in found], n) for name in self.methods}
        own = _own([part for one in found for part in one.own], [part for one in found for part in one.lacking], n)
        return Trials(methods, own, feature)

    def _one(self, entries: Indices, held: Indices, known: bool, of_the_past: bool) -> _Tried:
        """Fit all models to the rows of a split, and judge them on those held out."""
        contexts, weight, y = self.held_out.contexts, self.held_out.weight, self.y
        seen, labels = contexts.given(entries)
        present = contexts.labels[np.unique(contexts.codes[entries])]
        before, after = self._prepared(seen, held)
        told = {name: _informed(model, contexts.labels, present) for name, model in self._models.items()}
        if of_the_past:
            share = float(weight[entries].sum() / weight.sum())
            told = {name: _with_draws(model, share) for name, model in told.items()}
        same, fits = self._fits(told, before, seen, labels)
        methods = {name: (held, *self.judge.of(fitted, after, y[held], (before, y[seen]))) for name, fitted in fits}
        feature = None
        if known:
            codes, size = contexts.codes, len(contexts.labels)
            metadata = {"contexts": labels, "sample_weight": weight[seen]}
            wider = with_contexts(before, codes[seen], size)
            fitted = fit_routed(told["erm"], wider, y[seen], **metadata)
            after_wider = with_contexts(after, codes[held], size)
            feature = (held, *self.judge.of(fitted, after_wider, y[held], (wider, y[seen])))
        if contexts.overlap:
            # Every membership, where a row was one above.
            before = self._prepared(seen, entries)[1]
        own = None if same is None or contexts.overlap else same.alone(self._alone)
        return _Tried(methods, feature, *self._specialists(entries, before, held, after, own))

    def _fits(
        self, models: Mapping[str, Any], X: Any, rows: Indices, labels: Any
    ) -> tuple[SameRows | None, Iterator[tuple[str, Any]]]:
        """Return models fitted to the features of some rows, one after the other; linear ones share these rows."""
        weight, y, contexts = self.held_out.weight[rows], self.y[rows], self.held_out.contexts
        balanced = [name for name in models if METHODS[name].balanced and not contexts.overlap]
        if all(map(SameRows.serves, models.values())):
            same = SameRows.of(models["erm"], X=X, y=y, contexts=labels, sample_weight=weight)
            return same, ((name, same.fitted(one, balanced=name in balanced)) for name, one in models.items())
        equal = contexts.where(rows).balanced(weight) if balanced else weight

        def fitted(name: str) -> Any:
            own = equal if name in balanced else weight
            return fit_routed(models[name], X, y, contexts=labels, sample_weight=own)

        return None, ((name, fitted(name)) for name in models)

    def _specialists(
        self, entries: Indices, before: Any, held: Indices, after: Any, known: SideBySide | None
    ) -> tuple[list[_Part], list[Indices]]:
        """Judge models of every context's own, and return which rows have none; some may be known already."""
        contexts, weight, y = self.held_out.contexts, self.held_out.weight, self.y
        n_contexts, own, lacking = len(contexts.labels), list[_Part](), list[Indices]()
        place = np.full(n_contexts, -1) if known is None else known.places(contexts.labels)
        codes = contexts.codes[held]
        together = place[codes] >= 0
        if is_classifier(self._alone) and known is not None and together.any():
            # What a class costs that no model knows depends on how many rows are judged.
            together &= ~np.isin(codes, codes[~np.isin(y[held], known.taught.classes_)])
        # The way back from logarithms depends on the rows of each model.
        rows = np.flatnonzero(together & (not self.judge.log_target))
        if known is not None and len(rows):
            model, features = known.together(_safe_indexing(after, rows), place[codes[rows]])
            own.append((held[rows], *self.judge.of(model, features, y[held[rows]], (None, None))))
            codes = np.where(together, -1, codes)
        rest = np.flatnonzero(codes >= 0)
        if not len(rest):
            return own, lacking
        fitted_to = by_context(contexts.codes[entries], n_contexts)
        for c, among in enumerate(by_context(codes[rest], n_contexts)):
            if not len(among):
                continue
            judged, seen = rest[among], fitted_to[c]
            if known is not None and place[c] >= 0:
                fitted = known.one(place[c])
            else:
                fitted = specialist(self._alone, before, y[entries], weight[entries], seen)
            if fitted is None:
                lacking.append(held[judged])
            else:
                of = (_safe_indexing(before, seen), y[entries[seen]]) if self.judge.log_target else (None, None)
                target = y[held[judged]]
                own.append((held[judged], *self.judge.of(fitted, _safe_indexing(after, judged), target, of)))
        return own, lacking


_Part = tuple[Indices, Array, Predicted]
"""Rows, their losses and what was predicted of them."""


@dataclass(frozen=True, eq=False)
class _Tried:
    """What one split found; ``lacking`` are the rows without a model of their context's own."""

    methods: dict[str, _Part]
    as_feature: _Part | None
    own: list[_Part]
    lacking: list[Indices]


def _own(parts: Sequence[_Part], lacking: Sequence[Indices], n_rows: int) -> Outcome:
    """Return the outcome of models of contexts' own, infinite where there is none."""
    own = Outcome(np.full(n_rows, np.nan), Predicted(np.full(n_rows, np.nan)))
    if parts:
        own = Outcome.joined(parts, n_rows)
    for rows in lacking:
        own.losses[rows] = np.inf
    return own


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


def _informed(model: Any, labels: NDArray[Any], present: Iterable[Any]) -> Any:
    """Return a model that is told of no contexts but those among its rows: a fold may lack one of a single row."""
    own = innermost(model)
    mix, there = own.get_params(deep=False).get("mix"), {plain(label) for label in present}
    lacking = [label for label in labels if plain(label) not in there]
    if not lacking or not isinstance(mix, (Mix, Mapping)):
        return model
    return clone(model).set_params(**{f"{step_name(model)}mix": Mix.of(mix).without(lacking)})


def _with_draws(model: Any, share: float) -> Any:
    """Return a model of a share of the rows, of whose draws it has no more than that share."""
    draws = innermost(model).get_params(deep=False).get("draws")
    if isinstance(draws, str) or draws is None:
        return model
    return clone(model).set_params(**{f"{step_name(model)}draws": share * draws})


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
