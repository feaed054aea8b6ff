r"""The least value of the largest of several parabolas, by Newton steps on those that are largest together.

Where every mix of contexts is plausible, the worst case is the largest score,

.. math:: \min_\theta \max_c s_c(\theta), \qquad
    \sum_{c \in A} p_c \nabla s_c = 0, \quad s_c = t \ (c \in A), \quad \sum_{c \in A} p_c = 1, \quad p \ge 0,

which is a smooth system once the active contexts A are known. They change little from one expansion of the risks to the
next, so that a few small systems replace the many steps of an interior-point method.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from counterpoise.core.objective import RobustObjective
from counterpoise.core.oracle._base import Array
from counterpoise.linalg import positive_solver

_MOST_STEPS = 40
"""Systems that are solved before another method is asked."""

_LEAST_SHARE = 1e-6
"""Share of the largest weight from which on a context is taken to be active."""


def minimise_largest(parabolas: RobustObjective, p: Array, accuracy: float) -> tuple[Array, Array] | None:
    """Return the minimiser and the distribution that proves it; None where the active contexts are not found.

    Parameters
    ----------
    parabolas : RobustObjective
        Over all mixes, with risks that are parabolas.
    p : ndarray of shape (n_contexts,)
        About the distribution sought, as where risks were expanded at another point.
    accuracy : float
        Within which its value is to be.
    """
    active = np.flatnonzero(p > _LEAST_SHARE * p.max())
    point = parabolas.oracle.at(parabolas.oracle.start())
    for _ in range(_MOST_STEPS):
        scores, jacobian, solve = parabolas.scores(point), point.jacobian, positive_solver(point.hessian(p))
        gradient = p @ jacobian
        # The minimum under p is the most that the optimum can be below.
        if scores.max() - p @ scores + 0.5 * float(gradient @ solve(gradient)) <= accuracy:
            return point.theta, p
        while len(active) > len(gradient) + 1:
            p, active = _exchanged(scores, jacobian, p, active)
        found = _balanced(scores, jacobian, solve(jacobian[active].T), active)
        while found is not None and found[0].min() < 0.0 and len(active) > 1:
            active = np.delete(active, found[0].argmin())
            found = _balanced(scores, jacobian, solve(jacobian[active].T), active)
        if found is None:
            return None
        weights, step = found
        p = np.zeros_like(p)
        p[active] = weights
        point = parabolas.oracle.at(point.theta + step)
        largest = int(parabolas.scores(point).argmax())
        if largest not in active:
            active = np.append(active, largest)
    return None


def _exchanged(scores: Array, jacobian: Array, p: Array, active: NDArray[np.intp]) -> tuple[Array, NDArray[np.intp]]:
    """Let go of one of more active contexts than there are equations, as in a step of the simplex method.

    Weights then move in a direction that changes neither their sum nor the gradient, and raises the mean score, until
    the first of them vanishes.
    """
    gradients = jacobian[active].T
    equations = np.vstack([gradients / max(np.abs(gradients).max(), np.finfo(float).tiny), np.ones(len(active))])
    direction = np.linalg.svd(equations)[2][-1]
    if direction @ (scores[active] - scores[active].max()) < 0.0:
        direction = -direction
    # It sums to zero, so that some weights fall.
    lengths = np.full(len(active), np.inf)
    np.divide(p[active], -direction, out=lengths, where=direction < 0.0)
    out = int(lengths.argmin())
    p = p.copy()
    p[active] = np.maximum(p[active] + lengths[out] * direction, 0.0)
    p[active[out]] = 0.0
    return p, np.delete(active, out)


def _balanced(
    scores: Array, jacobian: Array, directions: Array, active: NDArray[np.intp]
) -> tuple[Array, Array] | None:
    """Return weights of the active contexts under which the step to the minimum makes their scores equal, and the step.

    Parameters
    ----------
    directions : ndarray of shape (n_parameters, n_active)
        The gradients of the active contexts, solved for with the Hessian.
    """
    n = len(active)
    system = np.ones((n + 1, n + 1))
    system[:n, :n], system[n, n] = jacobian[active] @ directions, 0.0
    try:
        solution = np.linalg.solve(system, np.append(scores[active], 1.0))
    except np.linalg.LinAlgError:
        return None
    weights = solution[:n]
    return (weights, -(directions @ weights)) if np.isfinite(solution).all() else None
