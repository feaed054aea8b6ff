"""The paper's decision problem in full generality: the caller supplies risks, the library the robustness."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from counterpoise.core.objective import ReferenceRisks, RobustObjective
from counterpoise.core.oracle import Bounds
from counterpoise.core.oracle.callables import CallableOracle
from counterpoise.core.robustness import Criterion
from counterpoise.core.solvers import GoldenSection, InteriorPoint, Progress, Solution, Solver, Status
from counterpoise.core.solvers._base import not_certified, projected
from counterpoise.exceptions import InvalidInputError, NotCertifiedWarning
from counterpoise.sets import ContextSet, KLBall, RadiusMethod, confidence_radius

Array = NDArray[np.float64]

_BOTTOMLESS = 1e12
"""How many times its starting size a risk may fall below zero before it is taken to have no minimum."""


def minimize(
    risks: Callable[[Array], Any],
    theta0: ArrayLike,
    *,
    counts: ArrayLike | None = None,
    confidence: float = 0.99,
    radius: RadiusMethod | float = "types",
    draws: float | None = None,
    mix: ContextSet | None = None,
    jac: Callable[[Array], Any] | None = None,
    hess: Callable[[Array], Any] | None = None,
    bounds: Any = None,
    criterion: Criterion = "excess",
    reference_risks: ArrayLike | None = None,
    convex: bool | None = None,
    tol: float = 1e-6,
    max_iter: int | None = None,
    solver: Solver | None = None,
    callback: Callable[[Progress], None] | None = None,
) -> Solution:
    r"""Minimise the worst-case excess risk over a set of context distributions, a confidence set of counts by default.

    .. math:: \min_\theta \max_{p \in P} \sum_c p_c (R_c(\theta) - r_c), \qquad
        P = \{p : D(\hat p \| p) \le \text{radius}\} \text{ or } \text{mix}

    Parameters
    ----------
    risks : callable
        ``risks(theta) -> (n_contexts,)``, the risk of a decision in each context.
    theta0 : array-like of shape (n_parameters,), or a number
        Where to start.
    counts : array-like of shape (n_contexts,), optional
        Samples per context. A count of 0 declares a context never seen; its risk is the caller's word. Pass either
        these or ``mix``.
    confidence : float
        Level of the confidence set; 1 is the whole simplex, that is minimax regret.
    radius : {"types", "agrawal", "calibrated", "chi2", "anytime"} or float
        How the radius follows from the confidence, or the radius itself in bits; 0 is empirical risk minimisation.
    draws : float, optional
        Independent draws of a context, where the counted samples are not; see :func:`counterpoise.effective_draws`.
    mix : ContextSet, optional
        The mixes to be prepared for, such as ``Chi2Ball(p_hat, 0.5)``, instead of a confidence set of counts.
        ``confidence``, ``radius`` and ``draws`` then say nothing.
    jac : callable, optional
        ``jac(theta) -> (n_contexts, n_parameters)``. Central differences when not given.
    hess : callable, optional
        ``hess(theta) -> (n_contexts, n_parameters, n_parameters)``. Without it the certificate is local.
    bounds : sequence of (low, high) pairs or scipy.optimize.Bounds, optional
        One pair per parameter; None for no bound.
    criterion : {"excess", "risk"}
        What the worst case is taken of: risk above the least possible in each context, or risk itself.
    reference_risks : array-like of shape (n_contexts,), or a number, optional
        The least risk possible in each context; for ``criterion="excess"``. Solved for, context by context, when not
        given (for risks that are not convex, the local minimum reached from ``theta0``).
    convex : bool, optional
        True says that every risk is convex. That is a proof with Hessians, with finite bounds on every parameter, or
        with one parameter; otherwise nothing bounds the optimum from below, and ``status`` and a warning say so. False
        says that some risks are not convex. By default Hessians, where given, are watched for signs of it.
    tol : float
        Largest gap, relative to the objective's scale.
    solver : Solver, optional
        Any of :mod:`counterpoise.core.solvers`, with its own ``tol``, ``max_iter`` and ``callback``. Chosen
        by the shape of the problem when not given.

    Returns
    -------
    Solution
        With ``theta``, ``p_worst``, ``value``, ``certificate`` (``lower``, ``upper``, ``gap``, ``scope``), ``status``.
        ``certificate.scope`` is ``"local"`` where the bound is only an estimate: risks that are not convex, or have no
        Hessian.

    Examples
    --------
    >>> import numpy as np, counterpoise as cpo
    >>> targets = np.array([0.0, 10.0])
    >>> sol = cpo.minimize(lambda t: (t - targets) ** 2, 1.0, counts=[90, 10], confidence=1.0)
    >>> sol.theta.round(6)
    array([5.])
    """
    theta = np.atleast_1d(_floats(theta0, "theta0"))
    if theta.ndim != 1 or theta.size == 0:
        raise InvalidInputError(f"theta0 must be a number or a vector, got shape {theta.shape}.")
    mixes = _checked_mixes(counts, confidence, radius, draws, mix)
    for name, function in (("risks", risks), ("jac", jac), ("hess", hess)):
        if function is not None and not callable(function):
            raise InvalidInputError(f"{name} must be a function of theta, got {type(function).__name__}.")
    box = _checked_bounds(bounds, theta.size)
    theta = theta if box is None else np.clip(theta, *box)
    # Trial points may be far off, where risks overflow; a point that does is not taken.
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        oracle = CallableOracle(risks, theta, len(mixes.p_hat), jac, hess, box, convex)
        start = oracle.at(theta).risks
        if not np.isfinite(start).all():
            c = int(np.flatnonzero(~np.isfinite(start))[0])
            raise InvalidInputError(
                f"the risk of context {c} is {start[c]} at theta0. Start where every risk is finite."
            )
        if solver is not None and not isinstance(solver, Solver):
            raise InvalidInputError(f"solver must be a Solver such as InteriorPoint(), got {solver!r:.60}.")
        try:
            references = _references(oracle, criterion, reference_risks, max(1e-2 * tol, 1e-12))
            objective = RobustObjective(oracle, mixes, references)
            if solver is not None:
                solution = solver.solve(objective, theta)
            else:
                solution = _solve(objective, theta, tol, max_iter, callback)
        except FloatingPointError as error:
            raise InvalidInputError(
                f"risks or their derivatives near theta0 are too large to compute with ({error}). Rescale them."
            ) from error
    if solution.success and oracle.convex and not oracle.is_rigorous:
        solution = replace(solution, status=Status.UNPROVED)
    if not solution.success and (solver is None or solver.certifies):
        asked = tol if solver is None else solver.tol
        warnings.warn(not_certified(solution.status, solution.certificate, asked), NotCertifiedWarning, stacklevel=2)
    return solution


def _checked_mixes(
    counts: ArrayLike | None,
    confidence: float,
    radius: RadiusMethod | float,
    draws: float | None,
    mix: ContextSet | None,
) -> ContextSet:
    """Return the set that was given, or the confidence set of the counts."""
    if (counts is None) == (mix is None):
        raise InvalidInputError(
            f"pass either counts or mix, got {'neither' if mix is None else 'both'}: the set of mixes follows from "
            "counts= and confidence=, or is given with mix=."
        )
    if mix is not None:
        if not isinstance(mix, ContextSet):
            raise InvalidInputError(f"mix is {mix!r:.60}; pass a set of mixes such as KLBall(p_hat, radius).")
        return mix
    number = _floats(counts, "counts")
    calibrated = confidence_radius(number, confidence, radius if isinstance(radius, str) else "types", draws=draws)
    return KLBall(number / number.sum(), calibrated if isinstance(radius, str) else radius)


def _solve(
    objective: RobustObjective,
    theta: Array,
    tol: float,
    max_iter: int | None,
    callback: Callable[[Progress], None] | None = None,
) -> Solution:
    """Solve by the method that suits the problem; doubt what is not proved."""
    options: dict[str, Any] = {"tol": tol, "callback": callback}
    if max_iter is not None:
        options["max_iter"] = max_iter
    if len(theta) == 1:
        return GoldenSection(**options).solve(objective, theta)
    solution = InteriorPoint(**options).solve(objective, theta)
    oracle = cast("CallableOracle", objective.oracle)
    if max_iter is None and not (solution.success and (oracle.convex or oracle.is_rigorous)):
        return _improved(objective, solution, options)
    return solution


def _improved(objective: RobustObjective, solution: Solution, options: dict[str, Any]) -> Solution:
    """Look for a better point near a solution that may be a saddle, or where the solver stalled."""
    rng = np.random.default_rng(0)
    for _ in range(3):
        scale = 1e-3 * np.maximum(1.0, np.abs(solution.theta))
        nudges = [scale * rng.standard_normal(len(scale)) for _ in range(4)]
        places = [projected(objective, solution.theta + nudge) for nudge in (np.zeros_like(scale), *nudges)]
        found = min(
            (_descend(objective, place) for place in places), key=lambda t: objective.value(objective.oracle.at(t))
        )
        better = objective.value(objective.oracle.at(found))
        if solution.success and not better < solution.value - options["tol"] * solution.certificate.scale:
            break
        again = InteriorPoint(**options, warm=objective.oracle.bounds is None).solve(objective, found)
        solution = min(
            solution, again, key=lambda s: (s.value > better + options["tol"] * s.certificate.scale, not s.success)
        )
    return solution


def _descend(objective: RobustObjective, theta: Array) -> Array:
    """Lower the objective by quasi-Newton steps on its Danskin gradient, which need no convexity."""
    # In units of its own, for whose size the method's tolerances are made.
    unit = objective.scale(objective.oracle.at(theta))
    if not 0.0 < unit < math.inf:
        return theta

    def value_and_gradient(x: Array) -> tuple[float, Array]:
        point = objective.oracle.at(x)
        if not np.isfinite(point.risks).all():
            return math.inf, np.zeros_like(x)
        worst = objective.worst_case(point)
        return float(worst.value) / unit, worst.distribution @ point.jacobian / unit

    # Imported here: it would double the time to import the package, for a path that few problems take.
    from scipy import optimize

    box = None if objective.oracle.bounds is None else optimize.Bounds(*objective.oracle.bounds)
    limits = {"maxiter": 500, "maxfun": 1000}
    result = optimize.minimize(value_and_gradient, theta, jac=True, method="L-BFGS-B", bounds=box, options=limits)
    return np.asarray(result.x if result.fun <= value_and_gradient(theta)[0] else theta)


def _references(oracle: CallableOracle, criterion: Criterion, given: ArrayLike | None, tol: float) -> ReferenceRisks:
    """Return what is taken off the risks: what the caller knows, the least risk of each context, or nothing."""
    if criterion not in ("excess", "risk"):
        raise InvalidInputError(f"criterion is {criterion!r:.60}; choose 'excess' or 'risk'.")
    if criterion == "risk":
        if given is not None:
            raise InvalidInputError(
                "reference_risks are for criterion='excess'; with criterion='risk' there are none to use."
            )
        given = 0.0
    if given is not None:
        values = _floats(given, "reference_risks")
        if values.shape not in ((), (oracle.n_contexts,)) or not np.isfinite(values).all():
            raise InvalidInputError(
                f"reference_risks have shape {values.shape}; pass a finite number, or one for each of "
                f"{oracle.n_contexts} contexts."
            )
        return ReferenceRisks.exactly(np.broadcast_to(values, (oracle.n_contexts,)).astype(np.float64))
    alone = KLBall(np.ones(1), 0.0)
    bounds = []
    for c in range(oracle.n_contexts):
        objective = RobustObjective(oracle.context(c), alone, ReferenceRisks.exactly(np.zeros(1)))
        certificate = _solve(objective, oracle.first, tol, None).certificate
        start = abs(float(oracle.at(oracle.first).risks[c]))
        if not math.isfinite(certificate.upper) or certificate.upper < -_BOTTOMLESS * (1.0 + start):
            raise InvalidInputError(f"the risk of context {c} has no minimum. Bound theta, or pass reference_risks.")
        bounds.append((certificate.upper, certificate.lower))
    upper, lower = np.array(bounds).T
    # Where nothing could be proved, the attained value stands; the certificate is local then anyway.
    return ReferenceRisks(upper, np.where(np.isfinite(lower), np.minimum(lower, upper), upper))


def _checked_bounds(bounds: Any, n: int) -> Bounds | None:
    if bounds is None:
        return None
    if hasattr(bounds, "lb") and hasattr(bounds, "ub"):
        pairs = list(zip(np.broadcast_to(bounds.lb, n), np.broadcast_to(bounds.ub, n), strict=True))
    else:
        pairs = list(bounds) if np.iterable(bounds) else []
        if len(pairs) == 2 and n == 1 and not np.iterable(pairs[0]):
            pairs = [tuple(pairs)]
    if len(pairs) != n or any(len(tuple(pair)) != 2 for pair in pairs):
        raise InvalidInputError(
            f"bounds must hold one (low, high) pair for each of {n} parameters, got {bounds!r:.80}."
        )
    low = np.array([-math.inf if pair[0] is None else float(pair[0]) for pair in pairs])
    high = np.array([math.inf if pair[1] is None else float(pair[1]) for pair in pairs])
    if not (low < high).all():
        j = int(np.flatnonzero(~(low < high))[0])
        raise InvalidInputError(
            f"the bounds of parameter {j} are ({low[j]}, {high[j]}); the lower must be the smaller."
        )
    return low, high


def _floats(values: Any, name: str) -> Array:
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidInputError(f"{name} must be numbers, got {values!r:.60}.") from error
    if np.isnan(array).any():
        raise InvalidInputError(f"{name} holds NaN.")
    return array
