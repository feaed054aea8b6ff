"""What it costs to make any learner robust, in plain fits, and what that gains where the truth is known.

Usage: python benchmarks/any_learner.py [--runs 1] [--every 1] [--learners boosting,forest,logistic] [--cv 5] [--large]
                                        [--toy]

*Problems*: the forty-eight of ``guard.py`` or every so-manieth, two sets of mixes each: the default one, and every mix.
The cost is the CPU time of ``ContextRobust.fit`` over that of the learner's own ``fit`` to the same rows, before and
after it, without weights and with; *fits* counts those of the learner, and *rows* the rows fitted, over those of the
table. What is kept is judged by the truth: a model is worth its excess risk in the worst mix of the set, above the rule
of each context. The gap is what the plain learner has above the best that weights of contexts attain, found by a game
played with the true risks. Harm is what the model kept has above the plain one.

*--large*: one fit to a table of many rows and 16 contexts, of which the smallest, 1%, follows another rule; and what a
prediction of 400 rows takes beside the plain learner's.

Prints tables in markdown.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from guard import KINDS, PROBLEMS, Array, Problem, true_excess
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression

import counterpoise as cpo
from counterpoise.core.solvers.best_response import best_response

Codes = NDArray[np.intp]

LEARNERS: dict[str, Any] = {
    "boosting": HistGradientBoostingClassifier(max_iter=30, max_leaf_nodes=8, early_stopping=False, random_state=0),
    "forest": RandomForestClassifier(30, min_samples_leaf=5, random_state=0),
    "logistic": LogisticRegression(),
}
SETS = {"default set": 0.99, "every mix": 1.0}

LARGE: dict[str, tuple[Any, int]] = {
    "boosting": (HistGradientBoostingClassifier(random_state=0), 309_000),
    "forest": (RandomForestClassifier(30, min_samples_leaf=20, random_state=0), 100_000),
    "logistic": (LogisticRegression(), 309_000),
}
"""Learners, and how many rows they are fitted to."""


def cpu_seconds(call: Callable[[], Any]) -> float:
    """Return the processor time of a call, of all threads of this process together."""
    began = time.process_time()
    call()
    return time.process_time() - began


def counting(learner: Any) -> tuple[Any, list[int]]:
    """Return a learner of the same kind, and a list to which each of its fits adds its number of rows."""
    fits: list[int] = []

    class Counting(type(learner)):  # type: ignore[misc]
        def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
            fits.append(len(y))
            return super().fit(X, y, sample_weight=sample_weight)

    return Counting(**learner.get_params(deep=False)), fits


@dataclass(frozen=True)
class Cost:
    """CPU seconds of a robust fit and of a plain one, without weights and with; and what the robust one fitted."""

    model: cpo.ContextRobust
    robust: float
    plain: float
    weighted: float
    fits: int
    rows: float

    @property
    def ratio(self) -> float:
        """The robust fit in plain fits."""
        return self.robust / self.plain


def cost_of(learner: Any, X: Array, y: NDArray[Any], codes: Codes, repeats: int = 3, **options: Any) -> Cost:
    """Fit a robust learner, with plain fits before and after it.

    Parameters
    ----------
    repeats : int
        Plain fits on either side; their median counts.
    options : dict
        Of :class:`counterpoise.ContextRobust`.
    """
    counted, fits = counting(learner)
    model = cpo.ContextRobust(counted, **options)

    def plain(**weights: Array) -> list[float]:
        return [cpu_seconds(lambda: clone(learner).fit(X, y, **weights)) for _ in range(repeats)]

    before = plain()
    robust = cpu_seconds(lambda: model.fit(X, y, contexts=codes))
    weighted = statistics.median(plain(sample_weight=np.ones(len(y))))
    return Cost(model, robust, statistics.median([*before, *plain()]), weighted, len(fits), sum(fits) / len(y))


@dataclass(frozen=True)
class LogOdds:
    """A fitted classifier of two classes; no probability is known to be below a floor."""

    model: Any
    floor: float

    def decision_function(self, X: Array) -> Array:
        """Return log-odds."""
        p = np.clip(self.model.predict_proba(X)[:, 1], self.floor, 1.0 - self.floor)
        return np.asarray(np.log(p / (1.0 - p)))


@dataclass(frozen=True)
class Fitted:
    """What one fit cost, and what it is worth in the worst mix, beside the plain learner and the best weights."""

    kind: str
    cost: Cost
    plain: float
    kept: float
    best: float


def fitted(problem: Problem, learner: Any, confidence: float, seed: int, n_points: int, **options: Any) -> Fitted:
    """Fit a robust learner to a table of a problem, and look up what it is worth."""
    rng = np.random.default_rng([seed, *map(int, (problem.n_contexts, 100 * problem.smallest, problem.n_rows))])
    rules = problem.rules(rng)
    X, y, codes = problem.drawn(rules, rng)
    shares = np.bincount(codes) / len(codes)
    cost = cost_of(learner, X, y, codes, confidence=confidence, **options)
    mixes = cpo.KLBall(shares, cost.model.radius_)

    def excess(model: Any) -> Array:
        return true_excess(LogOdds(model, 0.5 / len(y)), rules, n_points, np.random.default_rng(7))

    def answer(p: Array) -> Array:
        # The plain learner has no weights, with which a forest draws other rows.
        weight = (p / shares)[codes]
        weights = {} if np.ptp(weight) == 0.0 else {"sample_weight": weight / weight.mean()}
        return excess(clone(learner).fit(X, y, **weights))

    game = best_response(answer, mixes, np.zeros(len(shares)), shares, tol=1e-2, max_iter=12)
    plain, kept = game.upper[0], float(mixes.worst_case(excess(cost.model.estimator_)).value)
    return Fitted(problem.kind, cost, plain, kept, min(game.upper.min(), kept))


def line(name: str, words: str, found: Sequence[Fitted]) -> str:
    """Return a row of the table of costs and gains."""
    ratios = [one.cost.ratio for one in found]
    rows = [one.cost.rows for one in found]
    gaps, gained = sum(one.plain - one.best for one in found), sum(one.plain - one.kept for one in found)
    robust = [one for one in found if one.cost.model.chosen_ == "robust"]
    harmed = sum(one.kept > one.plain for one in robust)
    numbers = (
        f"{statistics.median(ratios):.1f} ({min(ratios):.1f} to {max(ratios):.1f})",
        f"{statistics.median(one.cost.robust / one.cost.weighted for one in found):.1f}",
        f"{statistics.median(one.cost.fits for one in found):.0f}",
        f"{statistics.median(rows):.1f} ({min(rows):.1f} to {max(rows):.1f})",
        f"{statistics.mean(one.cost.model.n_iter_ for one in found):.1f}",
        f"{len(robust)} of {len(found)}, {harmed}",
        f"{gained / gaps:.2f}" if gaps > 0.0 else "-",
        f"{statistics.mean(max(one.kept - one.plain, 0.0) for one in found):.5f}",
    )
    return f"| {name} | {words} | {' | '.join(numbers)} |"


def costs_and_gains(names: Iterable[str], found: dict[str, list[Fitted]]) -> str:
    """Return what fits of each learner cost and gained, by kind of problem and over all."""
    lines = [
        "| learner | contexts | time, plain fits | time, plain fits with weights | fits | rows, plain fits | rounds | "
        "robust kept, of these worse | share of the gap closed | harm |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name, kind in itertools.product(names, (*KINDS, None)):
        some = [one for one in found[name] if kind in (None, one.kind)]
        if some:
            lines.append(line(name, kind or "all", some))
    return "\n".join(lines)


def large_rows(n: int, n_contexts: int = 16, d: int = 10, seed: int = 0) -> tuple[Array, NDArray[Any], Codes]:
    """Return features, classes and contexts that depart a little from one rule; the last, 1%, follows another."""
    problem = Problem("departures", n_contexts, 0.01, n, d)
    rng = np.random.default_rng(seed)
    rules = problem.rules(rng)
    rules[-1] = -0.5 * rules[0]
    return problem.drawn(rules, rng)


def large_line(name: str, learner: Any, n: int, confidence: float, **options: Any) -> str:
    """Return the cost of a fit to many rows, and of a prediction of few."""
    X, y, codes = large_rows(n)
    cost = cost_of(learner, X, y, codes, repeats=1, confidence=confidence, **options)
    models = (cost.model, cost.model.estimator_)
    predict = [statistics.median(cpu_seconds(lambda m=m: m.predict(X[:400])) for _ in range(20)) for m in models]
    numbers = (
        f"{cost.plain:.2f} s",
        f"{cost.robust:.1f} s",
        f"{cost.ratio:.1f}",
        f"{cost.fits}",
        f"{cost.rows:.1f}",
        f"{cost.model.n_iter_}",
        cost.model.chosen_,
        f"{1e3 * predict[0]:.2f} ms ({1e3 * predict[1]:.2f} ms)",
    )
    return f"| {name} | {n:,} | {confidence:g} | {' | '.join(numbers)} |"


LARGE_HEAD = (
    "| learner | rows | confidence | plain fit | robust fit | time, plain fits | fits | rows, plain fits | rounds | "
    "kept | predict 400 rows (plain) |\n|---|---|---|---|---|---|---|---|---|---|---|"
)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print what fits cost."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=1, help="tables of each problem")
    parser.add_argument("--every", type=int, default=1, help="take every so-manieth problem only")
    parser.add_argument("--learners", default=",".join(LEARNERS))
    parser.add_argument("--cv", type=int, help="folds, where not the default")
    parser.add_argument("--large", action="store_true", help="many rows instead of the problems")
    parser.add_argument("--toy", action="store_true", help="a run that only shows that it runs")
    asked = parser.parse_args(arguments)
    warnings.simplefilter("ignore")
    names = asked.learners.split(",")
    options = {} if asked.cv is None else {"cv": asked.cv}
    if asked.large:
        print(LARGE_HEAD)
        for name, confidence in itertools.product(names, SETS.values()):
            learner, n = LARGE[name]
            print(large_line(name, learner, 800 if asked.toy else n, confidence, **options), flush=True)
        return
    problems = PROBLEMS[:: 16 if asked.toy else asked.every]
    found: dict[str, list[Fitted]] = {
        name: [
            fitted(problem, LEARNERS[name], confidence, seed, 500 if asked.toy else 5000, **options)
            for problem in problems
            for seed in range(asked.runs)
            for confidence in SETS.values()
        ]
        for name in names
    }
    print(f"{len(problems)} problems, {asked.runs} tables each\n\n{costs_and_gains(names, found)}")


if __name__ == "__main__":
    main()
