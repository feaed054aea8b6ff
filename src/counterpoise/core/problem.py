"""From data to a problem: checked, encoded, grouped by context, with its references."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from numbers import Real
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from counterpoise.contexts import Contexts, encode, plain, shown
from counterpoise.core.objective import ReferenceRisks, RobustObjective
from counterpoise.core.oracle import Bounds, LinearOracle, Oracle
from counterpoise.core.oracle.linear import LinearPoint
from counterpoise.core.references import (
    CrossFit,
    Optimism,
    ReweightedCrossFit,
    Specialists,
    fit_specialists,
    measure_optimism,
    most_optimism,
)
from counterpoise.core.references.specialists import sketched
from counterpoise.exceptions import InvalidInputError
from counterpoise.losses import Loss
from counterpoise.sets import ContextSet
from counterpoise.threads import suited
from counterpoise.validation import checked_features, checked_weights, unwrapped

Array = NDArray[np.float64]
_FAR = 1e3
"""Standard deviations from zero at which a column is moved there: squares of it would hide what varies."""

Reference = Literal["auto", "in-sample", "cross-fit", "shrunk", "null", "pooled"] | Mapping[Any, float] | Array
"""Where the least risk of each context comes from."""

ReferenceKind = Literal["in-sample", "cross-fit", "shrunk", "null", "pooled", "given"]
"""Where references came from in the end."""

Adjust = Literal["standard-error"] | float | None
"""What is added to the score of each context, the more the fewer rows it has."""


@dataclass(frozen=True, eq=False)
class LinearProblem:
    """A linear model's risks in every context, whatever is scored and however large the set.

    Attributes
    ----------
    oracle : LinearOracle
    contexts : Contexts
    counts : ndarray of shape (n_contexts,)
        Rows, or the sum of their weights, in each context.
    shift : ndarray of shape (n_features,), optional
        What was taken off the features, where they lie far from zero. The intercept makes up for it.
    unseen : ndarray of shape (n_unseen,)
        Scores of contexts without rows, constants that the caller knows. In sets and solutions they follow the others.
    begin : ndarray of shape (n_parameters,), optional
        Where a solver begins that knows no better: the answer to a similar problem.
    """

    oracle: LinearOracle
    contexts: Contexts
    counts: Array
    shift: Array | None = None
    unseen: Array = field(default_factory=lambda: np.zeros(0))
    begin: Array | None = None

    @classmethod
    def from_data(
        cls,
        X: Any,
        y: Any,
        contexts: Any,
        loss: Loss,
        *,
        alpha: float = 1e-4,
        fit_intercept: bool = True,
        sample_weight: Any = None,
        declared: Any = None,
        bounds: Bounds | None = None,
        known_finite: bool = False,
    ) -> LinearProblem:
        """Check and group the data; the parameters are those of :func:`counterpoise.core.fit.fit_linear`.

        ``known_finite`` says that X has been looked through already.
        """
        if not isinstance(loss, Loss):
            raise InvalidInputError(f"loss must be a Loss such as Logistic(), got {loss!r:.60}.")
        X = checked_features(X, known_finite)
        target = loss.checked_target(unwrapped(y))
        if len(target) != X.shape[0]:
            raise InvalidInputError(f"X has {X.shape[0]} rows and y has {len(target)}. Pass one target per row.")
        check_alpha(alpha)
        encoded = encode(contexts, X.shape[0], declared, may_overlap=True)
        weight, (X, target, encoded) = checked_weights(sample_weight, X, target, encoded)
        counts = np.bincount(encoded.codes, weight, len(encoded.labels)).astype(np.float64)
        shift = _far_off(X) if fit_intercept else None
        if shift is not None:
            X = X - shift
        oracle = LinearOracle.from_rows(
            X,
            target,
            encoded,
            loss,
            sample_weight=None if sample_weight is None else weight,
            alpha=alpha,
            fit_intercept=fit_intercept,
        )
        if bounds is not None:
            oracle = replace(oracle, bounds=_checked_bounds(bounds, oracle))
        return cls.checked(oracle, encoded, counts, shift)

    @classmethod
    def checked(
        cls, oracle: LinearOracle, contexts: Contexts, counts: Array, shift: Array | None = None
    ) -> LinearProblem:
        """Return a problem, unless there is nothing to fit or the ridge is wrong."""
        check_alpha(oracle.alpha)
        if oracle.n_parameters == 0:
            raise InvalidInputError("there is nothing to fit: X has no columns and fit_intercept is False.")
        return cls(oracle, contexts, counts, shift)

    @property
    def size(self) -> int:
        """Rows times parameters; contexts times parameters where a device has the rows, and threads have none."""
        n = int(self.contexts.counts.sum()) if self.oracle.rows.computes_here else self.oracle.n_contexts
        return n * self.oracle.n_parameters

    def objective(self, mixes: ContextSet, references: ReferenceRisks, oracle: Oracle | None = None) -> RobustObjective:
        """Return the worst case over a set, with contexts that have no rows after those that have some.

        Parameters
        ----------
        mixes : ContextSet
            Over all of them.
        references : ReferenceRisks
            Of those with rows.
        oracle : Oracle, optional
            The problem in another form.
        """
        return RobustObjective.of(self.oracle if oracle is None else oracle, mixes, references, self.unseen)

    @cached_property
    def sketch(self) -> LinearPoint | None:
        """About the best parameters for all rows; see :func:`counterpoise.core.references.specialists.sketched`."""
        return sketched(self.oracle, self.counts)

    def alike(self, unseen: Array, counts: Array | None = None) -> LinearProblem:
        """Return the problem of the same rows with other contexts without rows, or with other weights of contexts.

        What is found of the rows for one of the two is known to the other.
        """
        begin = None if self.sketch is None else self.sketch.theta
        other = replace(self, unseen=unseen, counts=self.counts if counts is None else counts, begin=begin)
        vars(other).update(_specialists=self._specialists, answers=self.answers)
        if other.counts is self.counts:
            vars(other).update(sketch=self.sketch, _cross_fits=self._cross_fits)
        return other

    def references(self, reference: Reference, tol: float) -> ReferenceRisks:
        """Return the least risk of each context, to be used in a fit of this tolerance."""
        if isinstance(reference, str):
            # Their error enters the certificate in full, so they are solved well below its tolerance.
            if reference == "in-sample":
                return bounded(self.specialists(tol).risks, self.contexts, self.remedy)
            if reference in ("cross-fit", "shrunk"):
                if not self.oracle.rows.knows_predictions:
                    raise InvalidInputError(
                        f"reference is {reference!r}; where rows are not in memory, choose 'in-sample', 'null' or "
                        "'pooled', or map each context to its risk."
                    )
                found = self.cross_fit(tol)
                found.check(f"reference={reference!r}", "'in-sample'")
                with refusing_overflow():
                    estimates = found.references if reference == "cross-fit" else found.shrunk
                return bounded(ReferenceRisks.exactly(estimates), self.contexts, self.remedy)
            raise InvalidInputError(
                f"reference is {reference!r}; choose 'in-sample', 'cross-fit', 'shrunk', 'null' or 'pooled', or map "
                "each context to its risk."
            )
        return ReferenceRisks.exactly(given_references(reference, self.contexts))

    def specialists(self, tol: float) -> Specialists:
        """Return the model that is best for each context alone, for references in a fit of this tolerance."""
        tol = max(1e-2 * tol, 1e-12)
        if tol not in self._specialists:
            with suited(self.size), refusing_overflow():
                self._specialists[tol] = fit_specialists(self.oracle, tol, self.sketch)
        return self._specialists[tol]

    @cached_property
    def answers(self) -> list[LinearPoint]:
        """Solutions for other sets, references or weights of contexts: places to begin that were looked at."""
        return []

    @cached_property
    def _specialists(self) -> dict[float, Specialists]:
        return {}

    @property
    def expansion(self) -> LinearPoint | None:
        """Where specialists began, with the Hessian of every context's risk; None as long as that is not known."""
        return next((one.begin for one in self._specialists.values() if one.begin is not None), None)

    def optimism(self, tol: float, mixes: ContextSet) -> Optimism | None:
        """Return how much of what contexts gain by their in-sample references is noise, where that prevails.

        It takes about one look at the rows. None where real differences prevail, noise does not matter, or numbers are
        too large to tell.
        """
        specialists, sketch = self.specialists(tol), self.sketch
        # A weight of 2 is a row twice; weights that sum to less than there are rows are on another scale.
        rows = np.maximum(self.counts, self.contexts.counts)
        with suited(self.size), np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            try:
                if specialists.begin is not None:
                    most = most_optimism(specialists.begin, specialists, rows)
                    if most.is_finite and not most.prevails(mixes):
                        return None
                begin = None if sketch is None else sketch.theta
                found = measure_optimism(self.oracle, specialists, self.counts, begin, rows)
            except ArithmeticError:
                return None
            return found if found.is_finite and found.prevails(mixes) else None

    def reference_bracket(self, tol: float) -> Array:
        """Return an interval of each context's least possible risk; see :attr:`CrossFit.bracket`."""
        with refusing_overflow():
            return self.cross_fit(tol).bracket

    def adjustments(self, adjust: Adjust, tol: float) -> Array:
        """Return what is added to the score of each context, in a fit of this tolerance."""
        if adjust != "standard-error":
            return by_size(adjust, self.counts)
        if not self.oracle.rows.at_hand:
            raise InvalidInputError(
                f"adjust is {adjust!r}; where rows are not in memory, pass a positive number, or None."
            )
        found = self.cross_fit(tol)
        found.check("adjust='standard-error'", "None")
        with refusing_overflow():
            errors = found.standard_errors
        unknown = np.flatnonzero(~np.isfinite(errors))
        if unknown.size:
            raise InvalidInputError(
                f"the held-out risk of {self.contexts.describe(int(unknown[0]))} is not finite, so it has no standard "
                "error. Raise alpha, or pass a number as adjust."
            )
        return errors

    def cross_fit(self, tol: float) -> CrossFit:
        """Return models judged on held-out rows, the same ones whatever is asked of them in a fit of this tolerance."""
        accuracy = min(max(tol, 1e-12), 1e-6)
        if accuracy not in self._cross_fits:
            known = self._specialists.get(max(1e-2 * tol, 1e-12))
            kind = CrossFit if self.oracle.rows.at_hand else ReweightedCrossFit
            self._cross_fits[accuracy] = kind(self.oracle, self.counts, accuracy, sketch=self.sketch, known=known)
        return self._cross_fits[accuracy]

    @cached_property
    def _cross_fits(self) -> dict[float, CrossFit]:
        return {}

    def finish(self) -> None:
        """Forget what was kept in case the fit is cut short: it is done."""
        self.oracle.rows.finish()

    @property
    def remedy(self) -> str:
        """What to do where a risk has no minimum."""
        if not self.oracle.loss.is_hinged and not self.oracle.rows.at_hand:
            return "Raise alpha."
        if self.oracle.n_parameters == 1 and self.oracle.rows.at_hand:
            return "Bound theta, e.g. by max_stock=, and check costs and price."
        return "Check costs and price, or raise alpha."


TOO_LARGE = (
    "the risks are not finite numbers wherever they were looked at: what enters them is too large, or too uneven, for "
    "floats. Rescale the features, the target and the weights to moderate sizes, e.g. with StandardScaler."
)


def _far_off(X: Any) -> Array | None:
    """Return the means of columns that lie far from zero, judged by some rows, and 0 for the others; None for none."""
    if sparse.issparse(X) or not X.size:
        return None
    some = X[:: max(1, len(X) // 1000)]
    with np.errstate(over="ignore", invalid="ignore"):
        mean, spread = some.mean(axis=0), some.std(axis=0)
        far = np.isfinite(mean) & (np.abs(mean) > _FAR * np.where(spread > 0.0, spread, 1.0))
    return np.where(far, mean, 0.0) if far.any() else None


@contextmanager
def refusing_overflow() -> Iterator[None]:
    """Let numbers overflow quietly on the way, and say what to do where no answer comes of it."""
    try:
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            yield
    except ArithmeticError as error:
        raise InvalidInputError(TOO_LARGE) from error


def by_size(adjust: float | None, counts: Array) -> Array:
    """Return an adjustment over the root of each context's size; zeros for none."""
    return np.zeros(len(counts)) if adjust is None else float(adjust) / np.sqrt(counts)


def bounded(references: ReferenceRisks, contexts: Contexts, remedy: str) -> ReferenceRisks:
    """Return references, or name a context whose risk has no minimum."""
    unbounded = np.flatnonzero(~np.isfinite(references.upper) | ~np.isfinite(references.lower))
    if unbounded.size:
        raise InvalidInputError(
            f"the risk of {contexts.describe(int(unbounded[0]))} has no minimum (the more extreme the decision, the "
            f"better). {remedy}"
        )
    return references


def check_alpha(alpha: Any) -> None:
    """Refuse a ridge that is none."""
    number = isinstance(alpha, Real)
    if not (number and math.isfinite(alpha) and alpha >= 0):
        raise InvalidInputError(f"alpha = {alpha}; the ridge is a finite number, 0 or more.")


def _checked_bounds(bounds: Any, oracle: LinearOracle) -> Bounds:
    if not oracle.is_scalar:
        raise InvalidInputError(
            "bounds on theta need a piecewise linear loss, one parameter and alpha=0. "
            "Use counterpoise.minimize for other problems."
        )
    wrong = f"bounds must be (low, high) with low < high, got {bounds!r:.80}."
    try:
        low, high = (np.atleast_1d(np.asarray(b, dtype=np.float64)) for b in bounds)
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidInputError(wrong) from error
    if low.shape != (1,) or high.shape != (1,) or not low[0] < high[0]:
        raise InvalidInputError(wrong)
    return low, high


def given_references(reference: Any, contexts: Contexts) -> Array:
    """Return references that the caller knows, in the order of the contexts."""
    labels = [plain(label) for label in contexts.labels]
    values = reference
    if isinstance(reference, Mapping) or hasattr(reference, "to_dict"):
        known = keyed(reference)
        missing = [label for label in labels if label not in known]
        if missing:
            raise InvalidInputError(
                f"reference has no risk for context {shown(missing[0]):.60} ({len(missing)} of {len(labels)} are "
                "missing). Map every context in the data to its least risk."
            )
        values = [known[label] for label in labels]
    try:
        risks = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidInputError(f"reference must hold numbers, one per context, got {reference!r:.60}.") from error
    if risks.shape != (len(labels),):
        raise InvalidInputError(
            f"reference is {reference!r:.60}, of shape {risks.shape}; choose 'in-sample', 'cross-fit' or 'shrunk', or "
            f"map each of {len(labels)} contexts to its least risk."
        )
    if not np.isfinite(risks).all():
        c = int(np.flatnonzero(~np.isfinite(risks))[0])
        raise InvalidInputError(f"reference of {contexts.describe(c)} is {risks[c]}; a risk is a finite number.")
    return risks


def keyed(reference: Any) -> dict[Any, Any]:
    """Return a mapping, or a series with labels as its index, by plain labels."""
    items = reference if isinstance(reference, Mapping) else reference.to_dict()
    return {plain(label): value for label, value in items.items()}
