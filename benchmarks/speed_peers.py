"""Speed against peers that solve the same problem, or one like it: conic programs, libraries, other algorithms."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from certified import Fits
from timing import Asked, Call, Result, Times, at_most, faster

import counterpoise as cpo
from rows import logistic_rows

HERE = Path(__file__).parent


def conic(asked: Asked) -> Iterator[Result]:
    """A whole fit against CVXPY and Clarabel on the same objective."""
    import cvxpy as cp

    X, y, contexts = logistic_rows(200, 3, 3) if asked.toy else logistic_rows(10_000, 20, 10)
    alpha, fits = 1e-3, Fits("logistic", X, y, contexts)
    reached: dict[str, Any] = {}

    def ours() -> None:
        reached["ours"] = fits.keep(cpo.RobustLogisticRegression(alpha=alpha).fit(X, y, contexts=contexts))

    def theirs() -> None:
        model = reached["ours"]
        coef, intercept, nu = cp.Variable(X.shape[1]), cp.Variable(), cp.Variable()
        scores = []
        for c, reference in zip(model.contexts_, model.reference_risks_, strict=True):
            rows = contexts == c
            z = X[rows] @ coef + intercept
            loss = cp.sum(cp.logistic(z) - cp.multiply(y[rows], z)) / rows.sum()
            scores.append(loss + 0.5 * alpha * cp.sum_squares(coef) - reference)
        # The one-dimensional dual of the worst case: nu less a weighted geometric mean of the slacks.
        slack, mean = cp.Variable(len(scores), nonneg=True), cp.Variable(nonneg=True)
        shares = model.context_counts_ / model.context_counts_.sum()
        constraints = [criterion <= nu - slack[k] for k, criterion in enumerate(scores)]
        constraints += [cp.sum(cp.multiply(shares, cp.rel_entr(mean * np.ones(len(scores)), slack))) <= 0]
        problem = cp.Problem(cp.Minimize(nu - 2.0**-model.radius_ * mean), constraints)
        reached["theirs"] = problem.solve(solver=cp.CLARABEL)

    mine, other = asked.turns(ours, theirs, in_a_row=10)
    # Both are within the tolerance of the optimum, which is measured on the scale of the risks.
    proven = reached["ours"].certificate_
    assert proven.upper <= reached["theirs"] + 1e-6 * proven.scale, (proven, reached["theirs"])
    assert proven.lower <= reached["theirs"] + 1e-7 * proven.scale, (proven, reached["theirs"])
    yield faster("robust fit, n=10k, d=20, C=10", "CVXPY + Clarabel, same objective", mine, other, 100)
    yield fits.verified("certificate, n=10k, d=20, C=10")


def libraries(asked: Asked) -> Iterator[Result]:
    """A whole fit against other libraries, in their own environment."""
    X, y, contexts = logistic_rows(50_000, 20, 10)
    # What is loaded at the first use is no part of a fit.
    cpo.RobustLogisticRegression().fit(X[:2000], y[:2000], contexts=contexts[:2000])
    # Peers look at the clock on the wall themselves.
    asked, fits = replace(asked, clock="wall"), Fits("logistic", X, y, contexts)
    for name, title in (
        ("dro", "dro 0.4.3 GroupDRO"),
        ("fairlearn", "fairlearn 0.15 ExponentiatedGradient, BoundedGroupLoss"),
    ):
        mine, other = [], []
        for _ in range(min(asked.repeats, 3)):
            mine.append(asked.seconds(lambda: fits.keep(cpo.RobustLogisticRegression().fit(X, y, contexts=contexts))))
            command = [asked.peers, str(HERE / "peers.py"), name, str(len(y))]
            said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            other.append(json.loads(said.splitlines()[-1])["seconds"])
        yield faster("robust fit, n=50k, d=20, C=10", title, Times(tuple(mine)), Times(tuple(other)), 100)
    yield fits.verified("certificate, n=50k, d=20, C=10")


def _paper_task() -> Any:
    from counterpoise.experiments._base import generator
    from counterpoise.experiments.classification import Classification

    task = Classification()
    return task.sample(generator(0, task.name, 0))


def _paper_objective(data: Any, criterion: str, confidence: float) -> tuple[Any, float]:
    """Return the paper's classification problem, and its optimum."""
    from counterpoise.core.fit import Robustness, fit_problem, scored_references
    from counterpoise.core.objective import RobustObjective
    from counterpoise.core.problem import LinearProblem
    from counterpoise.losses import Logistic

    robustness = Robustness(confidence=confidence, criterion=criterion)  # type: ignore[arg-type]
    problem = LinearProblem.from_data(data.X, data.y, data.contexts, Logistic(), alpha=0.0)
    references = scored_references(problem, robustness.criterion, "in-sample", 1e-10)
    ball = robustness.mixes(problem.counts)
    best = fit_problem(problem, ball, references, tol=1e-10).solution.certificate.upper
    return RobustObjective(problem.oracle, ball, references), best


def first_order(asked: Asked) -> Iterator[Result]:
    """The time to 1e-6 of the optimum, against the paper's Algorithm 1 at its step."""
    from counterpoise.core.solvers import GradientDescent, InteriorPoint, Newton

    data = _paper_task()
    objective, best = _paper_objective(data, "excess", 0.99)
    erm = Newton(tol=1e-8).solve(_centre(objective)).theta
    # How many steps it takes is found first, without a clock.
    steps, most = 100, 200 if asked.toy else 2_000_000
    while steps < most:
        reached = GradientDescent(step_size=0.01, max_iter=steps, tol=0.0).solve(objective, erm)
        if objective.value(objective.oracle.at(reached.theta)) - best <= 1e-6 * abs(best):
            break
        steps *= 2
    ours, theirs = asked.turns(
        lambda: InteriorPoint(tol=1e-6).solve(objective),
        lambda: GradientDescent(step_size=0.01, max_iter=steps, tol=0.0).solve(objective, erm),
        in_a_row=20,
    )
    note = f"Algorithm 1, step .01 ({steps:,} steps{'' if steps < most else ', not reached'})"
    yield faster("to 1e-6 of the optimum, paper's classification", note, ours, theirs, 50)


def _centre(objective: Any) -> Any:
    return replace(objective, mixes=cpo.KLBall(objective.mixes.p_hat, 0.0))


def group_dro(asked: Asked) -> Iterator[Result]:
    """Minimax risk against online group DRO."""
    from counterpoise.core.solvers import GroupDRO, InteriorPoint

    data = _paper_task()
    objective, best = _paper_objective(data, "risk", 1.0)
    reached, steps = {}, 200 if asked.toy else 20_000

    def ours() -> None:
        reached["ours"] = InteriorPoint(tol=1e-10).solve(objective).theta

    def theirs() -> None:
        solver = GroupDRO(tol=0.0, step_size=0.1, p_step_size=0.1, max_iter=steps)
        reached["theirs"] = solver.solve(objective).theta

    mine, other = asked.turns(ours, theirs, in_a_row=20)
    off = {name: objective.value(objective.oracle.at(theta)) - best for name, theta in reached.items()}
    # What is left above the optimum is rounding, or it is less than theirs.
    assert off["ours"] <= max(off["theirs"], 1e-10), off
    title = f"online group DRO, {steps:,} steps of .1 (ends {off['theirs']:.0e} above the optimum)"
    yield faster("minimax risk, paper's classification", title, mine, other, 500)


def worst_case(asked: Asked) -> Iterator[Result]:
    """The least favourable distribution, against a conic solver and against passes over the vector."""
    import cvxpy as cp

    rng = np.random.default_rng(0)
    p_hat, scores = rng.dirichlet(np.full(1000, 2.0)), rng.standard_normal(1000)
    ball = cpo.KLBall(p_hat, 0.1)
    found: dict[str, float] = {}

    def ours() -> None:
        found["ours"] = float(ball.worst_case(scores).value)

    def theirs() -> None:
        p = cp.Variable(1000, nonneg=True)
        inside = cp.sum(cp.multiply(p_hat, np.log(p_hat) - cp.log(p))) <= 0.1 * np.log(2.0)
        found["theirs"] = cp.Problem(cp.Maximize(p @ scores), [inside, cp.sum(p) == 1]).solve(solver=cp.CLARABEL)

    mine, other = asked.turns(ours, theirs, repeats=max(asked.repeats, 5), in_a_row=100)
    assert abs(found["ours"] - found["theirs"]) <= 1e-6
    yield faster("least favourable distribution, C=1,000", "CVXPY + Clarabel", mine, other, 1000)
    size = 1000 if asked.toy else 1_000_000
    many = rng.dirichlet(np.full(size, 2.0))
    values, large = rng.standard_normal(size), cpo.KLBall(many, 0.1)
    repeats = max(asked.repeats, 9)
    mine, other = asked.turns(lambda: large.worst_case(values), lambda: np.log(many), repeats=repeats)
    yield at_most("least favourable distribution, C=1,000,000", "one np.log pass", mine, other, 15)


def imports(asked: Asked) -> Iterator[Result]:
    """The import against scikit-learn's linear models."""

    def importing(statement: str) -> Call:
        return lambda: subprocess.run([sys.executable, "-c", statement], check=True)

    repeats = 1 if asked.toy else max(asked.repeats, 9)
    # What a user waits for is a model: the package itself loads its parts when they are asked for.
    for ours in ("import counterpoise", "from counterpoise import RobustLogisticRegression"):
        theirs = "from sklearn.linear_model import LogisticRegression"
        yield at_most(ours, theirs, *asked.turns(importing(ours), importing(theirs), repeats=repeats), 1.2)
