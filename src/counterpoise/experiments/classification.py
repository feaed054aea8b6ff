"""Two features, three contexts, and a feature that misleads outside the prevalent one."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit, ndtr

from counterpoise.core.fit import fit_linear
from counterpoise.core.solvers import GroupDRO
from counterpoise.estimators.linear import RobustLogisticRegression
from counterpoise.experiments._base import SWITCHES, Array, ExcessStudy, Row, by_context, fitted, generator, series
from counterpoise.losses import Logistic

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(400)


class Samples(NamedTuple):
    """Features, labels and contexts."""

    X: Array
    y: NDArray[np.intp]
    contexts: NDArray[np.intp]


def line(model: Any) -> Array:
    """Return the coefficients of a linear model of two classes, and its intercept."""
    return np.append(model.coef_[0], model.intercept_)


@dataclass(frozen=True)
class Population:
    """Where the samples come from; errors of linear rules are exact up to quadrature over the first feature."""

    shift: tuple[float, ...] = (-1.0, 0.0, 1.0)
    offset: tuple[float, ...] = (-8.0, 0.0, 8.0)
    spread: float = 2.0

    def draw(self, contexts: NDArray[np.intp], rng: np.random.Generator) -> Samples:
        """Draw features and labels for given contexts."""
        x1 = rng.uniform(-5.0, 5.0, len(contexts)) + np.array(self.shift)[contexts]
        y = (rng.random(len(contexts)) < expit(x1)).astype(np.intp)
        mean = x1 + np.array(self.offset)[contexts] + np.where(y == 0, 2.0, -2.0)
        x2 = mean + self.spread * rng.standard_normal(len(contexts))
        return Samples(np.column_stack([x1, x2]), y, contexts)

    def error(self, rule: Array, context: int) -> float:
        """Return the probability that the sign of ``rule . (x1, x2, 1)`` is wrong in a context."""
        x1 = 5.0 * _NODES + self.shift[context]
        chance = expit(x1)
        score = rule[0] * x1 + rule[2]
        wrong = np.zeros_like(x1)
        for y, share in ((0, 1.0 - chance), (1, chance)):
            mean = score + rule[1] * (x1 + self.offset[context] + (2.0 if y == 0 else -2.0))
            # A rule that ignores x2 has a step here; a hair of spread keeps it a number.
            above = ndtr(mean / max(abs(rule[1]) * self.spread, 1e-12))
            wrong += share * (above if y == 0 else 1.0 - above)
        return float(0.5 * _WEIGHTS @ wrong)

    @cached_property
    def least_errors(self) -> Array:
        """The least error of any linear rule in each context."""
        return np.array([self._least(c) for c in range(len(self.shift))])

    def _least(self, context: int) -> float:
        rng = np.random.default_rng(context)
        drawn = self.draw(np.full(20_000, context), rng)
        model = RobustLogisticRegression(radius=0.0, criterion="risk").fit(drawn.X, drawn.y, contexts=drawn.contexts)
        options = {"xatol": 1e-8, "fatol": 1e-12, "maxiter": 4000}
        found = minimize(lambda rule: self.error(rule, context), line(model), method="Nelder-Mead", options=options)
        return float(found.fun)


@dataclass(frozen=True)
class Classification(ExcessStudy):
    """A line that separates two classes in three contexts, from 1,000 samples; excess errors are in percent."""

    name: ClassVar[str] = "classification"
    methods: ClassVar[tuple[str, ...]] = (*SWITCHES, "group-dro")
    mix: ClassVar[Array] = np.array([0.8, 0.1, 0.1])
    n_samples: int = 1000
    group_dro_steps: int = 20_000

    @cached_property
    def population(self) -> Population:
        """Where the samples come from."""
        return Population()

    def sample(self, rng: np.random.Generator) -> Samples:
        """Draw contexts, features and labels."""
        return self.population.draw(rng.choice(3, size=self.n_samples, p=self.mix), rng)

    def fit(self, method: str, data: Samples, rng: np.random.Generator) -> Array:
        """Return the coefficients of a line: of both features, and the intercept."""
        if method == "group-dro":
            solver = GroupDRO(tol=0.0, step_size=0.1, p_step_size=0.1, max_iter=self.group_dro_steps, rng=rng)
            return fit_linear(
                data.X, data.y, data.contexts, Logistic(), robustness="minimax-risk", alpha=0.0, solver=solver
            ).solution.theta
        return line(fitted(RobustLogisticRegression, method, *data, alpha=0.0))

    def excess(self, decision: Array) -> Array:
        """Return the excess error in each context, in percent."""
        errors = np.array([self.population.error(decision, c) for c in range(3)])
        return 100.0 * (errors - self.population.least_errors)

    def picture(self, seed: int) -> list[Row]:
        """Return the features and labels by context, and the line of every method."""
        name, data = f"{self.name}-data", self.sample(generator(seed, self.name, 0))
        rows = by_context(name, data.contexts, x1=data.X[:, 0], x2=data.X[:, 1], label=data.y)
        for method in self.methods:
            rows += series(name, method, line=self.fit(method, data, generator(seed, self.name, 0, method)))
        return rows

    def facts(self) -> list[Row]:
        """Return the least error of each context."""
        return by_context(self.name, np.arange(3), least_error=100.0 * self.population.least_errors)
