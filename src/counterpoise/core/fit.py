"""From data to a certified robust model: check, encode, find references, solve."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from counterpoise.contexts import Contexts
from counterpoise.core import banded
from counterpoise.core.common_parabola import CommonParabola
from counterpoise.core.objective import ReferenceRisks, RobustObjective
from counterpoise.core.oracle import Bounds, LinearOracle
from counterpoise.core.oracle.kinked import KinkedOracle
from counterpoise.core.oracle.scalar_blocks import BlockScalarOracle, scalar_form
from counterpoise.core.parabolas import Follower
from counterpoise.core.problem import TOO_LARGE, LinearProblem, Reference, ReferenceKind, refusing_overflow
from counterpoise.core.references import Optimism, by_class
from counterpoise.core.references.specialists import by_products
from counterpoise.core.robustness import METHODS, Criterion, Robustness, named
from counterpoise.core.solvers import (
    InteriorPoint,
    ModelNewton,
    Newton,
    PolyhedralInteriorPoint,
    Progress,
    ScalarSearch,
    Solution,
    Solver,
)
from counterpoise.core.solvers._base import judged_again, not_certified
from counterpoise.core.solvers.model_newton import MANY_CONTEXTS
from counterpoise.core.solvers.scalar import narrowed
from counterpoise.exceptions import InvalidInputError, NotCertifiedWarning
from counterpoise.losses import Loss
from counterpoise.sets import ContextSet, KLBall
from counterpoise.threads import suited

Array = NDArray[np.float64]

__all__ = [
    "METHODS",
    "LinearFit",
    "Robustness",
    "coefficients_of",
    "fit_linear",
    "fit_problem",
    "found_references",
    "scored_references",
    "settled_reference",
]

_LARGE = 2e6
"""Rows times parameters from which a look at the rows costs more than solving a model of them."""


_ADRIFT = 1e3
"""Size of a shift common to all classes beyond which it costs digits."""

_WELL_BELOW = 1e-4
"""Share of a tolerance at which a model is so close to its minimum that its risk in each context is as accurate."""

_PLAIN = 1e-2
"""Share of a tolerance to which plain models are solved, since others are compared with them."""

_STIFF = 1e6
"""Ridge that leaves nothing of coefficients, for features and slopes of size one."""

_ENOUGH = 50
"""Rows of a context that say something of its risk."""


@dataclass(frozen=True, eq=False)
class LinearFit:
    """A solved problem with what it was made of.

    Attributes
    ----------
    coef, intercept : ndarray of shape (n_outputs, n_features) and (n_outputs,)
    solution : Solution
        Its ``theta`` is that of ``LinearProblem.oracle``, whose features may be shifted.
    contexts : Contexts
    counts : ndarray of shape (n_contexts,)
        Rows, or the sum of their weights, in each context.
    mixes : ContextSet
    references : ReferenceRisks

    Whatever there is one of per context is in the order of ``contexts.labels``; in the set and the solution contexts
    without rows follow, where the problem has any.
    """

    coef: Array
    intercept: Array
    solution: Solution
    contexts: Contexts
    counts: Array
    mixes: ContextSet
    references: ReferenceRisks

    @classmethod
    def of(cls, problem: LinearProblem, mixes: ContextSet, references: ReferenceRisks, solution: Solution) -> LinearFit:
        """Read the coefficients off a solution."""
        theta, shift = _without_common_shift(problem.oracle, solution.theta)
        if shift > 0.0:
            solution = replace(solution, theta=theta)
        if shift > _ADRIFT:
            # So far out predictions were rounded; here they are not.
            solution = judged_again(problem.objective(mixes, references), solution)
        coef, intercept = coefficients_of(problem, theta)
        return cls(coef, intercept, solution, problem.contexts, problem.counts, mixes, references)


def coefficients_of(problem: LinearProblem, theta: Array) -> tuple[Array, Array]:
    """Return coefficients and intercepts, of shape (n_outputs, n_features) and (n_outputs,), of the features as given.

    Parameters
    ----------
    theta : ndarray of shape (n_parameters,)
        Of ``LinearProblem.oracle``.
    """
    oracle = problem.oracle
    n_features, outputs = oracle.n_features, oracle.loss.n_outputs
    matrix = theta.reshape(outputs, oracle.coefficients.width).copy()
    intercept = matrix[:, n_features] if oracle.fit_intercept else np.zeros(outputs)
    if problem.shift is not None:
        intercept = intercept - matrix[:, :n_features] @ problem.shift
    return matrix[:, :n_features], intercept


def _without_common_shift(oracle: LinearOracle, theta: Array) -> tuple[Array, float]:
    """Return parameters without a shift common to all classes, and its size.

    It changes no prediction; without it the answer is unique.
    """
    if oracle.loss.n_outputs == 1:
        return theta, 0.0
    matrix = theta.reshape(oracle.loss.n_outputs, oracle.coefficients.width).copy()
    free = slice(None) if oracle.alpha == 0.0 else slice(oracle.n_features, None)
    shift = matrix[:, free].mean(axis=0)
    matrix[:, free] -= shift
    return matrix.ravel(), float(np.abs(shift).max(initial=0.0))


def fit_linear(
    X: Any,
    y: Any,
    contexts: Any,
    loss: Loss,
    *,
    robustness: Robustness | str = "robust",
    alpha: float = 1e-4,
    fit_intercept: bool = True,
    sample_weight: Any = None,
    declared: Any = None,
    reference: Reference = "in-sample",
    bounds: Bounds | None = None,
    solver: Solver | None = None,
    tol: float = 1e-6,
    max_iter: int | None = None,
    callback: Callable[[Progress], None] | None = None,
) -> LinearFit:
    """Fit a linear model robustly.

    Parameters
    ----------
    X : array, sparse matrix or dataframe of shape (n_samples, n_features)
    y : array of shape (n_samples,), or (n_samples, target_columns)
    contexts : labels of shape (n_samples,)
    loss : Loss
    robustness : Robustness or the name of a method
    alpha : float
        ``alpha / 2 * |coef|^2`` is added to every context's mean loss; the intercept is not penalised.
    sample_weight : array of shape (n_samples,), optional
        A whole number is the same as repeating the row; 0 drops it.
    declared : iterable of labels, optional
        The contexts that exist.
    reference : {"in-sample", "cross-fit", "shrunk", "null", "pooled", "auto"}, mapping from context to risk, or array
        The least risk of each context: solved for, estimated on held-out rows, or known; or the risk of a model to be
        compared with. An array, of shape (n_contexts,), is in the order of ``LinearFit.contexts.labels``.
    bounds : pair of arrays, optional
        On theta; with a piecewise linear loss of one parameter.
    solver : Solver, optional
        Chosen by the shape of the problem when not given. One that is given brings its own ``tol``, ``max_iter`` and
        ``callback``; those below are then not used.
    tol : float
        Largest gap, relative to the objective's scale.
    max_iter : int, optional
    callback : callable, optional
        Called with a :class:`counterpoise.core.solvers.Progress` at every check.

    Returns
    -------
    LinearFit
    """
    robustness = named(robustness) if isinstance(robustness, str) else robustness
    if not isinstance(robustness, Robustness):
        raise InvalidInputError(
            f"robustness is {robustness!r:.60}; pass a method's name, or e.g. Robustness(confidence=0.9)."
        )
    if solver is not None and not isinstance(solver, Solver):
        raise InvalidInputError(f"solver must be a Solver such as InteriorPoint(), got {solver!r:.60}.")
    problem = LinearProblem.from_data(
        X,
        y,
        contexts,
        loss,
        alpha=alpha,
        fit_intercept=fit_intercept,
        sample_weight=sample_weight,
        declared=declared,
        bounds=bounds,
    )
    labels = problem.contexts.labels
    problem = replace(problem, unseen=robustness.unseen(labels).risks)
    mixes, accuracy = robustness.mixes_of(problem.contexts, problem.counts), tol if solver is None else solver.tol
    if isinstance(reference, str) and reference == "auto":
        kind, _ = settled_reference(problem, mixes, robustness.criterion, reference, accuracy)
        reference = "cross-fit" if kind == "cross-fit" else "in-sample"
    references = scored_references(problem, robustness.criterion, reference, accuracy)
    return fit_problem(problem, mixes, references, solver=solver, tol=tol, max_iter=max_iter, callback=callback)


def settled_reference(
    problem: LinearProblem, mixes: ContextSet, criterion: Criterion, reference: Reference, tol: float
) -> tuple[ReferenceKind, Optimism | None]:
    """Return which references are used, and where in-sample ones are mostly optimism, what says so.

    ``"auto"`` is ``"cross-fit"`` in that case, as long as rows can be held out, and ``"in-sample"`` otherwise. Nothing
    is looked at where references do not matter: for one context, a set of one mix, or a criterion without them.
    """
    if not isinstance(reference, str):
        return "given", None
    if reference != "auto" and reference != "in-sample":
        return reference, None
    idle = criterion != "excess" or mixes.is_point or problem.oracle.n_contexts == 1
    optimism = None if idle else problem.optimism(tol, mixes)
    if optimism is None:
        return "in-sample", None
    held = reference == "auto" and problem.oracle.rows.knows_predictions
    return "cross-fit" if held else "in-sample", optimism


def found_references(problem: LinearProblem, reference: Reference, tol: float) -> ReferenceRisks:
    """Return the least risk of each context, or the risk of a model that is given by its kind.

    ``"pooled"`` is the plain model, best for the mix of the data; ``"null"`` the best constant prediction for that mix,
    or zero where there is no intercept.
    """
    if not isinstance(reference, str) or reference not in ("null", "pooled"):
        return problem.references(reference, tol)
    oracle = problem.oracle
    if reference == "pooled":
        return ReferenceRisks.exactly(_plain(problem, oracle, tol).risks)
    if not oracle.fit_intercept:
        return ReferenceRisks.exactly(oracle.at(np.zeros(oracle.n_parameters)).risks)
    if oracle.rows.at_hand:
        rows = replace(oracle.rows, X=np.zeros((len(oracle.rows.target), 0)))
        return ReferenceRisks.exactly(_plain(problem, replace(oracle, rows=rows, alpha=0.0), tol).risks)
    # Where columns cannot be dropped, a ridge holds their coefficients at nearly zero.
    stiff = replace(oracle, alpha=_STIFF * max(float(oracle.reach.max()), 1.0) ** 2)
    constant = _plain(problem, stiff, tol).theta * (1.0 - oracle.coefficients.penalised)
    return ReferenceRisks.exactly(oracle.at(constant).risks)


def _plain(problem: LinearProblem, oracle: LinearOracle, tol: float) -> Solution:
    """Minimise the risk in the mix of the data."""
    alone = replace(problem, oracle=oracle, shift=None, unseen=np.zeros(0))
    here, nothing = KLBall(problem.counts / problem.counts.sum(), 0.0), np.zeros(oracle.n_contexts)
    with warnings.catch_warnings():
        # The risks at the answer are the references, however close to the minimum it is.
        warnings.simplefilter("ignore", NotCertifiedWarning)
        close = max(_WELL_BELOW * tol, 1e-12)
        return fit_problem(alone, here, ReferenceRisks.exactly(nothing), tol=close).solution


def scored_references(problem: LinearProblem, criterion: Criterion, reference: Reference, tol: float) -> ReferenceRisks:
    """Return what is taken off each risk: nothing where the criterion is the risk itself."""
    if criterion == "excess":
        return found_references(problem, reference, tol)
    if criterion != "risk":
        raise InvalidInputError(f"criterion is {criterion!r}; choose 'excess' or 'risk'.")
    if not isinstance(reference, str):
        raise InvalidInputError("references are for criterion='excess'; with criterion='risk' there are none to use.")
    return ReferenceRisks.exactly(np.zeros(problem.oracle.n_contexts))


def fit_problem(
    problem: LinearProblem,
    mixes: ContextSet,
    references: ReferenceRisks,
    *,
    solver: Solver | None = None,
    tol: float = 1e-6,
    max_iter: int | None = None,
    callback: Callable[[Progress], None] | None = None,
    speaker: str = "fit",
    stacklevel: int = 3,
) -> LinearFit:
    """Solve a problem for a set and references that are there already; see :func:`fit_linear`."""
    with suited(problem.size), warnings.catch_warnings(), refusing_overflow():
        # Said below, once it is known that the problem has a minimum at all.
        warnings.simplefilter("ignore", NotCertifiedWarning)
        solution = _solve(problem, mixes, references, solver, tol, max_iter, callback)
    if not (np.isfinite(solution.theta).all() and math.isfinite(solution.certificate.upper)):
        raise InvalidInputError(TOO_LARGE)
    if not solution.success:
        _refuse_bottomless(problem, mixes, solution)
        if solver is None or solver.certifies:
            asked = tol if solver is None else solver.tol
            words = not_certified(solution.status, solution.certificate, asked)
            warnings.warn(f"{speaker}: {words}", NotCertifiedWarning, stacklevel=stacklevel)
    return LinearFit.of(problem, mixes, references, solution)


def _solve(
    problem: LinearProblem,
    mixes: ContextSet,
    references: ReferenceRisks,
    solver: Solver | None,
    tol: float,
    max_iter: int | None,
    callback: Callable[[Progress], None] | None,
) -> Solution:
    """Solve by the given solver, or by those that suit the shape of the problem until one succeeds."""
    oracle = problem.oracle
    if solver is not None:
        if isinstance(solver, ScalarSearch) and oracle.is_scalar:
            return solver.solve(_scalar(problem, mixes, references))
        by_rows = isinstance(solver, PolyhedralInteriorPoint) and oracle.loss.is_hinged
        return solver.solve(problem.objective(mixes, references, KinkedOracle.of(oracle) if by_rows else oracle))
    options: dict[str, Any] = {"tol": tol, "callback": callback}
    if max_iter is not None:
        options["max_iter"] = max_iter
    best: Solution | None = None
    classes = by_class.suits(oracle)
    if problem.expansion is not None and not (classes and mixes.is_point):
        close = min(tol, max(_PLAIN * tol, 1e-12)) if mixes.is_point else tol
        follower = (CommonParabola if classes else Follower).of(problem, references, close)
        follower.begin_near(mixes)
        solution = follower.tried(mixes)
        if solution is not None:
            if follower.point is not None and not problem.unseen.size:
                problem.answers.append(follower.point)
            if callback is not None:
                callback(Progress(solution.n_iter, solution.certificate))
            return solution
    if banded.suits(oracle):
        best = solve_in_bands(problem, mixes, references, tol, callback)
        if best is not None and best.success:
            return best
    for objective, solver_type in _attempts(problem, mixes, references):
        more, start = _head_start(problem, mixes, references, solver_type)
        solution = solver_type(**options, **more).solve(objective, start)
        if solution.success:
            return solution
        # A later answer has to be clearly better, or rounding would choose between them.
        if best is None or solution.certificate.relative_gap < 0.5 * best.certificate.relative_gap:
            best = solution
    assert best is not None
    return best


def solve_in_bands(
    problem: LinearProblem,
    mixes: ContextSet,
    references: ReferenceRisks,
    tol: float,
    callback: Callable[[Progress], None] | None = None,
    begin: Array | None = None,
) -> Solution | None:
    """Solve a problem with kinks by the rows near their hinges; see :func:`counterpoise.core.banded.suits`.

    Parameters
    ----------
    begin : ndarray of shape (P,), optional
        About where the solution is, for rows in memory; see :func:`counterpoise.core.banded.serves`.

    Returns
    -------
    The best that was found; None if there is nothing.
    """

    def solve(oracle: LinearOracle, own: ReferenceRisks, accuracy: float) -> Solution:
        return PolyhedralInteriorPoint(tol=accuracy).solve(problem.objective(mixes, own, KinkedOracle.of(oracle)))

    objective = problem.objective(mixes, references)
    return banded.minimise_worst_case(objective, problem.oracle, references, tol, solve, callback, begin)


def _head_start(
    problem: LinearProblem, mixes: ContextSet, references: ReferenceRisks, solver_type: type[Solver]
) -> tuple[dict[str, Any], Array | None]:
    """Return how and where a solver begins, if not by itself: where references began, or where some rows lead."""
    sketch = problem.sketch if solver_type in (InteriorPoint, ModelNewton) else None
    if sketch is None:
        return {}, problem.begin if solver_type is Newton else None
    whole = sketch.oracle is problem.oracle
    if solver_type is InteriorPoint and whole:
        # The solver itself would seek what the sketch is, unless the set has another centre.
        own = mixes.p_hat[: len(problem.counts)]
        return {"warm": np.allclose(own * problem.counts.sum(), problem.counts)}, sketch.theta
    if solver_type is InteriorPoint:
        return {}, None
    start = sketch.theta
    if whole:
        return {}, start
    # Where rows are not at hand, a look at all of them is no dearer than the search between two looks.
    if problem.oracle.rows.at_hand and sketch.oracle.rows.n_rows >= _ENOUGH * mixes.p_hat.size:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NotCertifiedWarning)
            rough = ModelNewton(tol=1e-3, max_iter=20)
            start = rough.solve(problem.objective(mixes, references, sketch.oracle), start).theta
    return {"thrifty": True}, start


def _attempts(
    problem: LinearProblem, mixes: ContextSet, references: ReferenceRisks
) -> list[tuple[RobustObjective, type[Solver]]]:
    """Return the problem in the forms that suit it, each with the solver for that form, the fastest first."""
    oracle, plain = problem.oracle, problem.objective(mixes, references)
    if oracle.is_scalar:
        return [(_scalar(problem, mixes, references), ScalarSearch)]
    if not oracle.forms_hessian:
        return [(plain, solver) for solver in by_products(oracle)]
    # Newton comes last, for data so separable that the empirical risk minimiser has no risk left in any context.
    smooth: list[tuple[RobustObjective, type[Solver]]] = [(plain, Newton)]
    if not mixes.is_point:
        smooth.insert(0, (plain, InteriorPoint))
        large = problem.counts.sum() * oracle.n_parameters >= _LARGE
        if not oracle.loss.is_hinged:
            first = large or oracle.n_contexts >= MANY_CONTEXTS * oracle.n_parameters
            smooth.insert(0 if first else 1, (plain, ModelNewton))
    if not oracle.loss.is_hinged:
        return smooth
    by_rows = problem.objective(mixes, references, KinkedOracle.of(oracle))
    # A soft hinge has curvature, unless most rows are far from it.
    last: tuple[RobustObjective, type[Solver]] = (by_rows, PolyhedralInteriorPoint)
    return [smooth[0], last] if oracle.loss.softness > 0.0 else [last]


def _scalar(problem: LinearProblem, mixes: ContextSet, references: ReferenceRisks) -> RobustObjective:
    """Return a problem of one parameter; of rows in blocks, on the range between two kinks that holds the minimum."""
    form: Any = scalar_form(problem.oracle)
    objective = problem.objective(mixes, references, form)
    return narrowed(objective) if isinstance(form, BlockScalarOracle) else objective


def _refuse_bottomless(problem: LinearProblem, mixes: ContextSet, solution: Solution) -> None:
    """Say that a problem has no minimum, where going on in the direction of the answer lowers the risk for ever."""
    oracle = problem.oracle
    if solution.certificate.lower > -math.inf or not oracle.loss.is_hinged or oracle.alpha > 0.0:
        return
    directions = [np.ones(1), -np.ones(1)] if oracle.n_parameters == 1 else [solution.theta]
    for direction in directions:
        if float(mixes.worst_case(np.append(oracle.drift(direction), np.zeros(len(problem.unseen)))).value) < 0.0:
            raise InvalidInputError(
                f"the risk has no minimum (the more extreme the decision, the better). {problem.remedy}"
            )
