"""What robustness costs, against every peer: ratios measured side by side in one run.

Runs of both sides take turns, and medians are compared. Every fit of ours is checked by its certificate. The table is
printed, and kept as speed.csv.

Usage: python benchmarks/speed.py [--only fit import ...] [--repeats 3] [--out bench] [--peers PYTHON]
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import platform
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse
from threadpoolctl import threadpool_info

import counterpoise as cpo
from rows import logistic_rows

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Result:
    """One line of the table: what was done, against what, both in seconds (or the unit in the text), and the target."""

    work: str
    against: str
    ours: float
    theirs: float
    ratio: float
    target: str
    met: bool


def seconds(call: Callable[[], Any]) -> float:
    """Return how long a call takes."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def side_by_side(
    ours: Callable[[], Any], theirs: Callable[[], Any], repeats: int, in_a_row: int = 1
) -> tuple[float, float]:
    """Return the medians of two calls that take turns; what the first call of each loads is not counted.

    Where ours takes milliseconds it is called ``in_a_row``, so that the clock and the caches measure the call.
    """
    ours()
    theirs()
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(repeats):
        times[0].append(seconds(lambda: [ours() for _ in range(in_a_row)]) / in_a_row)
        times[1].append(seconds(theirs))
    return statistics.median(times[0]), statistics.median(times[1])


def certified(model: Any, tol: float = 1e-6) -> Any:
    """Return a fitted model whose proof is good."""
    assert model.certificate_.relative_gap <= tol, model.certificate_
    return model


def at_most(work: str, against: str, ours: float, theirs: float, limit: float) -> Result:
    """Return a line whose target is a share of the peer's time."""
    return Result(work, against, ours, theirs, ours / theirs, f"<= {limit:g} x", ours <= limit * theirs)


def faster(work: str, against: str, ours: float, theirs: float, times: float) -> Result:
    """Return a line whose target is to be so many times faster."""
    return Result(work, against, ours, theirs, theirs / ours, f">= {times:g} x faster", theirs >= times * ours)


def whole_fit(repeats: int, peers: str) -> Iterator[Result]:
    """A whole robust fit against scikit-learn's plain one, by its fastest solver."""
    from sklearn.linear_model import LogisticRegression

    X, y, contexts = logistic_rows(500_000, 50, 100)
    alpha = 1e-4

    def plain(solver: str) -> Callable[[], Any]:
        return lambda: LogisticRegression(solver=solver, tol=1e-6, C=1.0 / (alpha * len(y)), max_iter=1000).fit(X, y)

    best = min(("newton-cholesky", "lbfgs", "newton-cg"), key=lambda solver: seconds(plain(solver)))
    ours, theirs = side_by_side(
        lambda: certified(cpo.RobustLogisticRegression(alpha=alpha, tol=1e-6).fit(X, y, contexts=contexts)),
        plain(best),
        repeats,
    )
    yield at_most("robust fit, n=500k, d=50, C=100", f"scikit-learn {best}, tol 1e-6", ours, theirs, 1.5)


def conic(repeats: int, peers: str) -> Iterator[Result]:
    """A whole fit against CVXPY and Clarabel on the same objective."""
    import cvxpy as cp

    X, y, contexts = logistic_rows(10_000, 20, 10)
    alpha = 1e-3
    reached: dict[str, Any] = {}

    def ours() -> None:
        reached["ours"] = certified(cpo.RobustLogisticRegression(alpha=alpha).fit(X, y, contexts=contexts))

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

    ours_seconds, their_seconds = side_by_side(ours, theirs, repeats, in_a_row=10)
    assert reached["ours"].certificate_.upper <= reached["theirs"] + 1e-6 * abs(reached["theirs"])
    yield faster("robust fit, n=10k, d=20, C=10", "CVXPY + Clarabel, same objective", ours_seconds, their_seconds, 100)


def libraries(repeats: int, peers: str) -> Iterator[Result]:
    """A whole fit against other libraries, in their own environment."""
    X, y, contexts = logistic_rows(50_000, 20, 10)
    # What is loaded at the first use is no part of a fit.
    cpo.RobustLogisticRegression().fit(X[:2000], y[:2000], contexts=contexts[:2000])
    for name, title in (
        ("dro", "dro 0.4.3 GroupDRO"),
        ("fairlearn", "fairlearn 0.15 ExponentiatedGradient, BoundedGroupLoss"),
    ):
        mine, other = [], []
        for _ in range(min(repeats, 3)):
            mine.append(seconds(lambda: certified(cpo.RobustLogisticRegression().fit(X, y, contexts=contexts))))
            command = [peers, str(HERE / "peers.py"), name, str(len(y))]
            said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            other.append(json.loads(said.splitlines()[-1])["seconds"])
        yield faster("robust fit, n=50k, d=20, C=10", title, statistics.median(mine), statistics.median(other), 100)


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


def first_order(repeats: int, peers: str) -> Iterator[Result]:
    """The time to 1e-6 of the optimum, against the paper's Algorithm 1 at its step."""
    from counterpoise.core.solvers import GradientDescent, InteriorPoint, Newton

    data = _paper_task()
    objective, best = _paper_objective(data, "excess", 0.99)
    erm = Newton(tol=1e-8).solve(_centre(objective)).theta
    # How many steps it takes is found first, without a clock.
    steps = 100
    while steps < 2_000_000:
        reached = GradientDescent(step_size=0.01, max_iter=steps, tol=0.0).solve(objective, erm)
        if objective.value(objective.oracle.at(reached.theta)) - best <= 1e-6 * abs(best):
            break
        steps *= 2
    ours, theirs = side_by_side(
        lambda: InteriorPoint(tol=1e-6).solve(objective),
        lambda: GradientDescent(step_size=0.01, max_iter=steps, tol=0.0).solve(objective, erm),
        repeats,
        in_a_row=20,
    )
    note = f"Algorithm 1, step .01 ({steps:,} steps{'' if steps < 2_000_000 else ', not reached'})"
    yield faster("to 1e-6 of the optimum, paper's classification", note, ours, theirs, 50)


def _centre(objective: Any) -> Any:
    from dataclasses import replace

    return replace(objective, mixes=cpo.KLBall(objective.mixes.p_hat, 0.0))


def group_dro(repeats: int, peers: str) -> Iterator[Result]:
    """Minimax risk against online group DRO."""
    from counterpoise.core.solvers import GroupDRO, InteriorPoint

    data = _paper_task()
    objective, best = _paper_objective(data, "risk", 1.0)
    reached = {}

    def ours() -> None:
        reached["ours"] = InteriorPoint(tol=1e-10).solve(objective).theta

    def theirs() -> None:
        solver = GroupDRO(tol=0.0, step_size=0.1, p_step_size=0.1, max_iter=20_000)
        reached["theirs"] = solver.solve(objective).theta

    ours_seconds, their_seconds = side_by_side(ours, theirs, repeats, in_a_row=20)
    off = {name: objective.value(objective.oracle.at(theta)) - best for name, theta in reached.items()}
    # What is left above the optimum is rounding, or it is less than theirs.
    assert off["ours"] <= max(off["theirs"], 1e-10), off
    title = f"online group DRO, 20,000 steps of .1 (ends {off['theirs']:.0e} above the optimum)"
    yield faster("minimax risk, paper's classification", title, ours_seconds, their_seconds, 500)


def worst_case(repeats: int, peers: str) -> Iterator[Result]:
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

    mine, other = side_by_side(ours, theirs, max(repeats, 5), in_a_row=100)
    assert abs(found["ours"] - found["theirs"]) <= 1e-6
    yield faster("least favourable distribution, C=1,000", "CVXPY + Clarabel", mine, other, 1000)
    many = rng.dirichlet(np.full(1_000_000, 2.0))
    values, large = rng.standard_normal(1_000_000), cpo.KLBall(many, 0.1)
    mine, other = side_by_side(lambda: large.worst_case(values), lambda: np.log(many), max(repeats, 9))
    yield at_most("least favourable distribution, C=1,000,000", "one np.log pass", mine, other, 15)


def many_contexts(repeats: int, peers: str) -> Iterator[Result]:
    """Ten thousand contexts of 100 rows against the same rows in ten."""
    X, y, _ = logistic_rows(1_000_000, 20, 10)
    rng = np.random.default_rng(1)
    fine = rng.permutation(np.repeat(np.arange(10_000), 100))
    model = cpo.RobustLogisticRegression(alpha=1e-3)
    ours, theirs = side_by_side(
        lambda: certified(model.fit(X, y, contexts=fine)),
        lambda: certified(model.fit(X, y, contexts=fine // 1000)),
        repeats,
    )
    yield at_most("10,000 contexts of 100 rows, d=20", "the same rows in 10 contexts", ours, theirs, 3)


def sparse_rows(repeats: int, peers: str) -> Iterator[Result]:
    """Sparse features against scikit-learn on the same."""
    from sklearn.linear_model import LogisticRegression

    n, d, alpha = 200_000, 50_000, 1e-4
    rng = np.random.default_rng(0)
    X = sparse.random_array((n, d), density=1e-3, format="csr", rng=rng, data_sampler=lambda size: rng.random(size))
    contexts = rng.integers(0, 10, n)
    coefficients = rng.standard_normal((10, d))
    z = np.zeros(n)
    for c in range(10):
        rows = contexts == c
        z[rows] = X[rows] @ (coefficients[0] + 0.5 * coefficients[c])
    y = (rng.random(n) < 1.0 / (1.0 + np.exp(-z))).astype(int)
    ours, theirs = side_by_side(
        lambda: certified(cpo.RobustLogisticRegression(alpha=alpha).fit(X, y, contexts=contexts)),
        lambda: LogisticRegression(solver="lbfgs", tol=1e-6, C=1.0 / (alpha * n), max_iter=5000).fit(X, y),
        repeats,
    )
    yield at_most("sparse, n=200k, d=50k, 0.1% filled", "scikit-learn lbfgs, tol 1e-6", ours, theirs, 3)


def path(repeats: int, peers: str) -> Iterator[Result]:
    """Fifty levels of confidence against one fit."""
    for n, d, n_contexts in ((10_000, 20, 10), (100_000, 30, 50)):
        X, y, contexts = logistic_rows(n, d, n_contexts)
        model = cpo.RobustLogisticRegression(radius="agrawal")

        def levels() -> None:
            found = cpo.confidence_path(model, X, y, contexts=contexts)  # noqa: B023
            assert len(found["gap"]) >= 50

        ours, theirs = side_by_side(levels, lambda: certified(model.fit(X, y, contexts=contexts)), repeats)  # noqa: B023
        yield at_most(f"50-level path, n={n:,}, d={d}, C={n_contexts}", "one fit", ours, theirs, 5)


def growth(repeats: int, peers: str) -> Iterator[Result]:
    """How time grows with rows."""
    sizes, times = (10_000, 100_000, 1_000_000), []
    for n in sizes:
        X, y, contexts = logistic_rows(n, 20, 20)
        model = cpo.RobustLogisticRegression()
        times.append(
            statistics.median(
                seconds(lambda: certified(model.fit(X, y, contexts=contexts)))  # noqa: B023
                for _ in range(repeats)
            )
        )
    exponent = np.polyfit(np.log(sizes), np.log(times), 1)[0]
    title = "exponent of growth with n, 1e4 to 1e6, d=20, C=20"
    yield Result(title, "seconds at 1e4 and 1e6", times[-1], times[0], float(exponent), "<= 1.05", exponent <= 1.05)


_MEMORY = """
import resource, sys
sys.path.insert(0, {here!r})
import numpy as np
from rows import logistic_rows
import counterpoise as cpo
warm = logistic_rows(2000, 50, 10)
cpo.RobustLogisticRegression().fit(*warm[:2], contexts=warm[2])
X, y, contexts = logistic_rows(500_000, 50, 100)
# What the rows themselves needed while they were made is given back.
before = int(open("/proc/self/status").read().split("VmRSS:")[1].split()[0])
open("/proc/self/clear_refs", "w").write("5")
model = cpo.RobustLogisticRegression().fit(X, y, contexts=contexts)
peak = int(open("/proc/self/status").read().split("VmHWM:")[1].split()[0])
assert model.certificate_.relative_gap <= 1e-6
print(1024 * (peak - before), X.nbytes)
"""


def memory(repeats: int, peers: str) -> Iterator[Result]:
    """The most memory beyond X itself."""
    said = subprocess.run(
        [sys.executable, "-c", _MEMORY.format(here=str(HERE))], check=True, capture_output=True, text=True
    ).stdout
    extra, size = (float(number) / 1e6 for number in said.split())
    title = "peak memory beyond X (MB), n=500k, d=50, C=100"
    yield at_most(title, "size of X (MB)", extra, size, 1.3)


def imports(repeats: int, peers: str) -> Iterator[Result]:
    """The import against scikit-learn's linear models."""

    def importing(name: str) -> Callable[[], Any]:
        return lambda: subprocess.run([sys.executable, "-c", f"import {name}"], check=True)

    ours, theirs = side_by_side(importing("counterpoise"), importing("sklearn.linear_model"), max(repeats, 9))
    yield at_most("import counterpoise", "import sklearn.linear_model", ours, theirs, 1.2)


STUDIES: dict[str, Callable[[int, str], Iterator[Result]]] = {
    "fit": whole_fit,
    "conic": conic,
    "libraries": libraries,
    "first-order": first_order,
    "group-dro": group_dro,
    "worst-case": worst_case,
    "many-contexts": many_contexts,
    "sparse": sparse_rows,
    "path": path,
    "growth": growth,
    "memory": memory,
    "import": imports,
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the studies that are asked for, print the table and keep it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", choices=STUDIES, default=list(STUDIES))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("bench"))
    parser.add_argument("--peers", default=sys.executable, help="the interpreter that has dro and fairlearn")
    asked = parser.parse_args(arguments)
    warnings.simplefilter("ignore")
    threads = {info["internal_api"]: info["num_threads"] for info in threadpool_info()}
    machine = platform.processor() or platform.machine()
    print(f"{machine}, {os.cpu_count()} cores, threads {threads}, Python {platform.python_version()}")
    asked.out.mkdir(exist_ok=True)
    results: list[Result] = []
    for name in asked.only:
        for result in STUDIES[name](asked.repeats, asked.peers):
            results.append(result)
            met = "met" if result.met else "MISSED"
            print(
                f"{result.work:<48} {result.against:<58} {result.ours:>10.4g} {result.theirs:>10.4g} "
                f"{result.ratio:>10.3g}  {result.target:<18} {met}",
                flush=True,
            )
    with (asked.out / "speed.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["work", "against", "ours", "theirs", "ratio", "target", "met"])
        writer.writerows([r.work, r.against, r.ours, r.theirs, r.ratio, r.target, r.met] for r in results)
    print(f"kept in {asked.out / 'speed.csv'}; {sum(r.met for r in results)} of {len(results)} targets met")


if __name__ == "__main__":
    main()
