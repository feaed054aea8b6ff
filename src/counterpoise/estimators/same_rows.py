"""Linear models of the same rows: these are checked, encoded and put in order once, and references are found once."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import clone, is_classifier

from counterpoise.contexts import plain
from counterpoise.core.fit import coefficients_of
from counterpoise.core.problem import LinearProblem, refusing_overflow
from counterpoise.estimators._base import Array, check_switches, speaking_as
from counterpoise.estimators.linear import RobustLinearModel
from counterpoise.exceptions import InvalidInputError
from counterpoise.rows import Mask
from counterpoise.threads import suited

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

    def alone(self, model: RobustLinearModel) -> dict[Any, Any]:
        """Return the model that is best for a context alone, by its label, where it takes no fit of its own.

        It does where not all classes occur, as the others are then unknown to it; where it is not proven to be as close
        to its minimum as a fit would be; and where rows are not at hand.
        """
        problem, tol = self.problem, self.like.tol
        if not problem.oracle.rows.at_hand:
            return {}
        try:
            with suited(problem.size), refusing_overflow():
                found = problem.cross_fit(tol).specialists
        except InvalidInputError:
            return {}
        with np.errstate(invalid="ignore"):
            known = found.risks.upper - found.risks.lower <= tol * self._above_lowest(found.risks.upper)
        if is_classifier(model):
            known &= self._all_classes()
        taught = self.taught(model)

        labels = problem.contexts.labels
        return {
            plain(labels[c]): copy(taught).keep_coefficients(*coefficients_of(problem, found.theta[c]))
            for c in np.flatnonzero(known)
        }

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
