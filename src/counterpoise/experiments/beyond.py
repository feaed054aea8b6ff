"""Beyond the paper: how often each radius covers, and how the paper's algorithm converges."""

from __future__ import annotations

import numpy as np

from counterpoise.core.fit import Robustness, fit_linear
from counterpoise.core.solvers import GradientDescent, InteriorPoint, Progress, Solver
from counterpoise.experiments._base import Array, Row, generator
from counterpoise.experiments.classification import Classification
from counterpoise.experiments.coloured_mnist import MIX
from counterpoise.experiments.stock_control import StockControl
from counterpoise.losses import Logistic
from counterpoise.sets import RadiusMethod, confidence_radius

CONFIDENCES = (0.5, 0.9, 0.99)
METHODS: tuple[RadiusMethod, ...] = ("types", "agrawal", "chi2")


def coverage(seed: int, n_draws: int) -> list[Row]:
    """Simulate how often the set covers the true mix, for the mixes and sample sizes of the three experiments."""
    problems = {
        "coverage-stock-control": (StockControl().mix, StockControl().n_samples),
        "coverage-classification": (Classification().mix, Classification().n_samples),
        "coverage-coloured-mnist": (MIX, 900),
    }
    rows = []
    for name, (p, n) in problems.items():
        divergence = _divergences(p, n, n_draws, generator(seed, name))
        for method in METHODS:
            for confidence in CONFIDENCES:
                radius = confidence_radius(n * p, confidence, method)
                rows.append(Row(name, method, f"radius@{confidence:g}", 0, radius))
                rows.append(Row(name, method, f"coverage@{confidence:g}", 0, float(np.mean(divergence <= radius))))
        rows += [
            Row(name, "exact", f"radius@{confidence:g}", 0, float(np.quantile(divergence, confidence)))
            for confidence in CONFIDENCES
        ]
    return rows


def _divergences(p: Array, n: int, n_draws: int, rng: np.random.Generator) -> Array:
    """Draw empirical mixes, and return their divergences from the truth, in bits."""
    shares = rng.multinomial(n, p, size=n_draws) / n
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = np.where(shares > 0, shares * np.log2(shares / p), 0.0)
    return np.asarray(terms.sum(axis=1))


def convergence(seed: int, n_steps: int) -> list[Row]:
    """Follow the paper's Algorithm 1, at its step size, and the certified solver on one draw of the classification."""
    experiment = Classification()
    data = experiment.sample(generator(seed, experiment.name, 0))
    seen: list[Progress] = []

    def solve(solver: Solver) -> float:
        return fit_linear(
            data.X, data.y, data.contexts, Logistic(), robustness=Robustness(), alpha=0.0, solver=solver
        ).solution.certificate.lower

    def followed(solver: Solver, name: str, optimum: float) -> list[Row]:
        seen.clear()
        solve(solver)
        return [
            Row("convergence", name, "suboptimality", one.n_iter, max(one.certificate.upper - optimum, 1e-16))
            for one in seen
        ]

    optimum = solve(InteriorPoint(tol=1e-12))
    descent = GradientDescent(step_size=0.05, max_iter=n_steps, tol=0.0, callback=seen.append)
    return [
        *followed(InteriorPoint(tol=1e-12, callback=seen.append), "interior-point", optimum),
        *followed(descent, "algorithm-1", optimum),
    ]
