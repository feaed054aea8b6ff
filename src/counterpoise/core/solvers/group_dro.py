"""Online group DRO (Sagawa et al. 2020): exponentiated gradient against gradient descent, on the whole simplex."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from counterpoise.core.objective import RobustObjective
from counterpoise.core.solvers._base import Array, Solver, State, projected
from counterpoise.exceptions import InvalidInputError


@dataclass(frozen=True)
class GroupDRO(Solver):
    """The minimax method the paper compares with.

    Parameters
    ----------
    step_size, p_step_size : float
        Of theta and of the distribution.
    average : bool
        Judge the average of the iterates, for which there is a guarantee, instead of the last one.
    rng : numpy Generator, optional
        With it a step draws one context and one row of it, as in the original; the last iterate is then noisy. Without,
        a step uses all rows.
    """

    step_size: float = 0.1
    p_step_size: float = 0.1
    average: bool = False
    rng: np.random.Generator | None = field(default=None, repr=False)
    max_iter: int = 20_000

    check_every: ClassVar[int] = 1000
    certifies: ClassVar[bool] = False

    def check(self, objective: RobustObjective) -> None:
        """Refuse a set that is not the whole simplex, and draws from risks without rows."""
        if not objective.mixes.is_simplex:
            raise InvalidInputError(
                "online group DRO works on the whole simplex, got a smaller set. Use confidence=1, or another solver."
            )
        if self.rng is not None and "rows" not in objective.oracle.offers:
            raise InvalidInputError("sampled group DRO needs rows to draw from, which these risks have not. Drop rng.")

    def start(self, objective: RobustObjective, theta: Array) -> State:
        """Begin at ``theta`` with all contexts alike."""
        p = np.full(objective.oracle.n_contexts, 1.0 / objective.oracle.n_contexts)
        point = objective.oracle.at(projected(objective, theta))
        return State(point, p, extra=(1, point.theta, p))

    def step(self, objective: RobustObjective, state: State) -> State:
        """Raise the weight of contexts with a large score, then descend under the new weights."""
        if self.rng is not None:
            p, gradient = self._sampled(objective, state, self.rng)
        else:
            scores = objective.scores(state.point)
            p = state.p * np.exp(self.p_step_size * (scores - scores.max()))
            p = p / p.sum()
            gradient = p @ state.point.jacobian
        theta = projected(objective, state.point.theta - self.step_size * gradient)
        count, mean_theta, mean_p = state.extra
        count += 1
        means = (mean_theta + (theta - mean_theta) / count, mean_p + (p - mean_p) / count)
        return State(objective.oracle.at(theta), p, extra=(count, *means))

    def _sampled(self, objective: RobustObjective, state: State, rng: np.random.Generator) -> tuple[Array, Array]:
        """Return the distribution and the gradient after a look at one row of one context."""
        oracle: Any = objective.oracle
        context = int(rng.integers(oracle.n_contexts))
        value, gradient = oracle.random_row(context, state.point.theta, rng)
        p = state.p.copy()
        p[context] *= np.exp(self.p_step_size * (value - objective.references.upper[context]))
        p /= p.sum()
        return p, p[context] * gradient

    def result(self, objective: RobustObjective, state: State) -> State:
        """Return the average of the iterates if asked to."""
        if not self.average:
            return state
        _, theta, p = state.extra
        return State(objective.oracle.at(theta), p)
