"""Linear models of the same rows: these are checked, encoded and put in order once, and references are found once."""

from __future__ import annotations

from collections.abc import Iterable
from copy import copy
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import clone, is_classifier

from counterpoise.contexts import plain
from counterpoise.core.fit import coefficients_of
from counterpoise.core.problem import LinearProblem, refusing_overflow
from counterpoise.estimators._base import Array, check_switches, speaking_as
from counterpoise.estimators.linear import RobustLinearModel
from counterpoise.exceptions import InvalidInputError
from counterpoise.rows import Mask
from counterpoise.threads import suited

Indices = NDArray[np.intp]

_LEARNT = ("classes_", "n_features_in_", "feature_names_in_")
"""What a model learns of rows before it is fitted."""


@dataclass(frozen=True, eq=False)
class SameRows:
    """A problem, and models that differ in what they make of it: the set, the criterion and the references.

    Attributes
    ----------
    problem : LinearProblem
    like : RobustLinearModel
        The one that posed it; the ridge, the intercept and the tolerance are the same for all.
    """

    problem: LinearProblem
    like: RobustLinearModel

    @staticmethod
    def serves(model: Any) -> bool:
        """Tell whether a model is fitted by posing a problem and solving it, and by nothing of its own."""
        return isinstance(model, RobustLinearModel) and type(model).fit is RobustLinearModel.fit

    @classmethod
    def of(cls, model: RobustLinearModel, **columns: Any) -> SameRows:
        """Pose the problem of rows, by what the model's ``fit`` takes of each of them."""
        like = clone(model)
        return cls(like.pose(**columns), like)

    def taught(self, model: RobustLinearModel) -> Any:
        """Return a clone that knows of the rows what a model learns before it is fitted."""
        one = clone(model)
        vars(one).update({name: getattr(self.like, name) for name in _LEARNT if hasattr(self.like, name)})
        return one

    def fitted(self, model: RobustLinearModel, *, balanced: bool = False) -> Any:
        """Return a clone that is fitted, but for ``context_influence_``; its draws are a number, if any.

        Parameters
        ----------
        balanced : bool
            Whether every context counts alike, as by row weights of the same sum.
        """
        one, n = self.taught(model), len(self.problem.counts)
        check_switches(one)
        with speaking_as(one):
            robustness = one.robustness.stated() if self.problem.contexts.overlap else one.robustness
            unseen = robustness.unseen(self.problem.contexts.labels).risks
        counts = np.full(n, self.problem.counts.sum() / n) if balanced else None
        return one.fit_problem(self.problem.alike(unseen, counts), robustness, with_influence=False)

    def alone(self, model: RobustLinearModel) -> SideBySide:
        """Return the models that are best for a context alone, where these take no fit of their own.

        It does where not all classes occur, as the others are then unknown to it; where it is not proven to be as close
        to its minimum as a fit would be; and where rows are not at hand.
        """
        problem, tol = self.problem, self.like.tol
        if not problem.oracle.rows.at_hand:
            return SideBySide.none(model)
        try:
            with suited(problem.size), refusing_overflow():
                found = problem.cross_fit(tol).specialists
        except InvalidInputError:
            return SideBySide.none(model)
        with np.errstate(invalid="ignore"):
            known = found.risks.upper - found.risks.lower <= tol * self._above_lowest(found.risks.upper)
        if is_classifier(model):
            known &= self._all_classes()
        each = [coefficients_of(problem, found.theta[c]) for c in np.flatnonzero(known)]
        labels = map(plain, problem.contexts.labels[known])
        return SideBySide(self.taught(model), {label: k for k, label in enumerate(labels)}, each)

    def _above_lowest(self, risks: Array) -> Array:
        """Return the scale on which a fit of each context alone would measure its gap, or less."""
        lowest = self.problem.oracle.lowest_risks
        return np.where(np.isfinite(lowest), risks - np.where(np.isfinite(lowest), lowest, 0.0), np.abs(risks))

    def _all_classes(self) -> Mask:
        """Tell which contexts have rows of all classes."""
        rows, n_classes = self.problem.oracle.rows, len(self.like.classes_)
        there = np.zeros((self.problem.oracle.n_contexts, n_classes), dtype=bool)
        there[rows.owner, rows.target.astype(np.intp)] = True
        return np.asarray(there.all(axis=1))


@dataclass(frozen=True, eq=False)
class SideBySide:
    """Linear models of one context each: by themselves, or as one model that has features of its own for every context.

    Attributes
    ----------
    taught : RobustLinearModel
        Not fitted; it knows of the rows what a model learns before it is.
    place : dict from label to int
        Where the model of a context is.
    each : list of pairs of ndarray
        Their coefficients and intercepts, of shape (n_outputs, n_features) and (n_outputs,).
    """

    taught: RobustLinearModel
    place: dict[Any, int]
    each: list[tuple[Array, Array]]

    @classmethod
    def none(cls, model: RobustLinearModel) -> SideBySide:
        """Return that of no context."""
        return cls(model, {}, [])

    def places(self, labels: Iterable[Any]) -> Indices:
        """Return where the models of contexts are; -1 for those that have none."""
        return np.array([self.place.get(plain(label), -1) for label in labels], dtype=np.intp)

    def one(self, place: int) -> Any:
        """Return the model of a context by itself."""
        return copy(self.taught).keep_coefficients(*self.each[place])

    def together(self, X: Any, place: Indices) -> tuple[Any, Any]:
        """Return the one model, and its features of rows whose contexts have the models at these places.

        All other features of a row are zero, so that one product predicts the rows of all contexts.
        """
        X = self.taught.features(X)
        (n, width), n_models = X.shape, len(self.each)
        if sparse.issparse(X):
            data, starts = X.data, X.indptr
            columns = X.indices + np.repeat(place * width, np.diff(starts))
        else:
            data, starts = X.ravel(), np.arange(n + 1) * width
            columns = (place[:, None] * width + np.arange(width)).ravel()
        own = sparse.csr_array((data, columns, starts), shape=(n, n_models * width))
        constant = sparse.csr_array((np.ones(n), place, np.arange(n + 1)), shape=(n, n_models))
        model = copy(self.taught)
        model.n_features_in_ = n_models * (width + 1)
        model.__dict__.pop("feature_names_in_", None)
        coef = np.concatenate([coef for coef, _ in self.each] + [intercept[:, None] for _, intercept in self.each], 1)
        return model.keep_coefficients(coef, np.zeros(len(coef))), sparse.hstack([own, constant], format="csr")
