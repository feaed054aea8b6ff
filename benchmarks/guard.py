"""Does the guard keep the better model, and does headroom claim no more than there is?

Usage: python benchmarks/guard.py [--runs 20] [--jobs 2] [--studies choice,headroom,alike] [--toy]

Problems are made, so that the risk of every model in every context is known without sampling error to speak of. In the
first kind all contexts follow one rule; in the second each departs from it a little, so that plain and robust models
differ by less than a small table shows; in the third the smallest context follows another rule.

*choice*: forty-eight problems (three kinds; 3 or 10 contexts; the smallest has a share of 2% or 10%; 500 or 3,000 rows;
5 or 20 features), two sets of mixes each: the default one, and every mix. What ``compare`` keeps is judged by its
excess risk in the worst mix of the set, computed from the truth: regret is what it has above the best candidate in
hindsight, harm what it has above the plain model.

*headroom*: how often something to gain is claimed where there is nothing (5% at most), and where there is something.
Groups are days that share a shift of the target, and count as one.

*alike*: contexts that follow one rule, so that nothing can be gained and all true risks tie: how often
``ContextRobust`` keeps another model than the plain learner, how often that is worse, and by how much on average. Rows
are independent, or come in days as above, each of one context or of all; the guard is told of days or not, and they are
dealt to folds row by row or held out whole.

Prints tables in markdown.
"""

from __future__ import annotations

import argparse
import itertools
import time
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import NDArray
from scipy.special import ndtri
from sklearn.base import clone
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GroupKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import counterpoise as cpo
from counterpoise.judging.comparison import CANDIDATES

Array = NDArray[np.float64]
KINDS = {"one rule": 0.0, "departures": 0.35, "another rule": 0.0}


@dataclass(frozen=True)
class Problem:
    """A population of contexts, each with its own logistic rule.

    Attributes
    ----------
    kind : {"one rule", "departures", "another rule"}
    n_contexts : int
    smallest : float
        Share of the last context; the others have equal ones.
    n_rows, n_features : int
    """

    kind: str
    n_contexts: int
    smallest: float
    n_rows: int
    n_features: int

    @property
    def shares(self) -> Array:
        """The mix."""
        return np.append(np.full(self.n_contexts - 1, (1.0 - self.smallest) / (self.n_contexts - 1)), self.smallest)

    def rules(self, rng: np.random.Generator) -> Array:
        """Return the coefficients of every context."""
        size = 2.0 / np.sqrt(self.n_features)
        common = size * rng.standard_normal(self.n_features)
        rules = common + KINDS[self.kind] * size * rng.standard_normal((self.n_contexts, self.n_features))
        if self.kind == "another rule":
            rules[-1] = -0.5 * common + 0.5 * size * rng.standard_normal(self.n_features)
        return rules

    def drawn(self, rules: Array, rng: np.random.Generator) -> tuple[Array, NDArray[np.intp], NDArray[np.intp]]:
        """Return features, classes and contexts of a table in which every context has at least eight rows."""
        while True:
            codes = rng.choice(self.n_contexts, self.n_rows, p=self.shares)
            if np.bincount(codes, minlength=self.n_contexts).min() >= 8:
                break
        X = rng.standard_normal((self.n_rows, self.n_features))
        logits = np.einsum("nd,nd->n", X, rules[codes])
        return X, (rng.random(self.n_rows) < 1.0 / (1.0 + np.exp(-logits))).astype(np.intp), codes


PROBLEMS = tuple(itertools.starmap(Problem, itertools.product(KINDS, (3, 10), (0.02, 0.1), (500, 3000), (5, 20))))


def true_excess(model: Any, rules: Array, n_points: int, rng: np.random.Generator) -> Array:
    """Return the excess risk of a model of log-odds in every context, above that of the context's own rule."""
    excess = []
    for rule in rules:
        X = rng.standard_normal((n_points, rules.shape[1]))
        logits, found = X @ rule, model.decision_function(X)
        p = 1.0 / (1.0 + np.exp(-logits))
        # Without the noise of classes, which is the same for all models.
        loss = p * (np.logaddexp(0.0, -found) - np.logaddexp(0.0, -logits))
        excess.append(np.mean(loss + (1.0 - p) * (np.logaddexp(0.0, found) - np.logaddexp(0.0, logits))))
    return np.array(excess)


def one_choice(problem: Problem, seed: int, n_points: int) -> list[dict[str, Any]]:
    """Let compare choose, and look up what the candidates are worth."""
    warnings.simplefilter("ignore")
    rng = np.random.default_rng([seed, *map(int, (problem.n_contexts, 100 * problem.smallest, problem.n_rows))])
    rules = problem.rules(rng)
    X, y, codes = problem.drawn(rules, rng)
    counts = np.bincount(codes)
    rows = []
    for words, confidence in (("default set", 0.99), ("every mix", 1.0)):
        robust = cpo.RobustLogisticRegression(confidence=confidence)
        began = time.perf_counter()
        comparison = cpo.compare(X, y, codes, estimator=robust, methods=CANDIDATES)
        seconds = time.perf_counter() - began
        models = {
            "erm": cpo.RobustLogisticRegression(radius=0.0, criterion="risk").fit(X, y, contexts=codes),
            "inverse-frequency": cpo.RobustLogisticRegression(radius=0.0, criterion="risk").fit(
                X, y, contexts=codes, sample_weight=(1.0 / counts)[codes]
            ),
            "robust": robust.fit(X, y, contexts=codes),
        }
        worth = {
            name: float(
                comparison.mixes.worst_case(true_excess(model, rules, n_points, np.random.default_rng(7))).value
            )
            for name, model in models.items()
        }
        rows.append({"kind": problem.kind, "set": words, "chosen": comparison.chosen, "seconds": seconds, **worth})
    return rows


def choice_table(rows: Sequence[dict[str, Any]]) -> str:
    """Return how often what was kept, and what that was worth."""
    lines = [
        "| contexts | set | kept: erm, inverse-frequency, robust | regret of the guard | always erm | always "
        "inverse-frequency | always robust | harm of the guard | harm of robust |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for kind, words in itertools.product(KINDS, ("default set", "every mix")):
        some = [row for row in rows if row["kind"] == kind and row["set"] == words]
        if not some:
            continue
        kept = [np.mean([row["chosen"] == name for row in some]) for name in CANDIDATES]
        best = np.array([min(row[name] for name in CANDIDATES) for row in some])
        plain = np.array([row["erm"] for row in some])
        guarded = np.array([row[row["chosen"]] for row in some])
        always = [np.array([row[name] for row in some]) for name in CANDIDATES]
        regrets = [float(np.mean(values - best)) for values in (guarded, *always)]
        harms = [float(np.mean(np.maximum(values - plain, 0.0))) for values in (guarded, always[-1])]
        numbers = [f"{value:.4f}" for value in (*regrets, *harms)]
        lines.append(f"| {kind} | {words} | {', '.join(f'{share:.2f}' for share in kept)} | {' | '.join(numbers)} |")
    return "\n".join(lines)


@dataclass(frozen=True)
class Setting:
    """A table in which contexts may have something to gain.

    Attributes
    ----------
    n_contexts, n_rows : int
    turned : float
        By how much the rule of the first context is turned towards another.
    days : int
        Where positive, rows come in so many days that share a shift of the target.
    learner : {"linear", "trees"}
    """

    n_contexts: int
    n_rows: int
    turned: float = 0.0
    days: int = 0
    learner: str = "linear"

    def claims(self, seed: int) -> tuple[bool, bool, float]:
        """Return whether something was claimed, whether nothing was, and the seconds it took beside one plain fit."""
        warnings.simplefilter("ignore")
        rng = np.random.default_rng([seed, self.n_contexts, self.n_rows, self.days])
        X, codes = rng.standard_normal((self.n_rows, 5)), np.arange(self.n_rows) % self.n_contexts
        logits = np.where(codes == 0, X @ [1.0, self.turned, 0, 0, 0] - self.turned * X[:, 0], X[:, 0])
        day = None
        if self.days:
            day = rng.integers(self.days, size=self.n_rows)
            logits = logits + rng.standard_normal(self.days)[day]
        y = (rng.random(self.n_rows) < 1.0 / (1.0 + np.exp(-logits))).astype(int)
        learner: Any = make_pipeline(StandardScaler(), cpo.RobustLogisticRegression(radius=0.0, criterion="risk"))
        if self.learner == "trees":
            learner = HistGradientBoostingClassifier(max_iter=20, max_leaf_nodes=7, early_stopping=False)
        began = time.perf_counter()
        learner.fit(X, y)
        once = time.perf_counter() - began
        began = time.perf_counter()
        found = cpo.headroom(X, y, codes, learner, groups=day)
        return found.something, found.nothing, (time.perf_counter() - began) / once


SETTINGS = (
    *(Setting(c, n) for c, n in ((3, 300), (3, 3000), (10, 300), (10, 3000), (30, 900), (30, 9000))),
    *(Setting(5, 1000, days=days) for days in (50, 200)),
    *(Setting(c, 2000, learner="trees") for c in (3, 10)),
    *(Setting(5, n, turned) for n in (500, 5000) for turned in (0.3, 0.6, 1.0)),
    *(Setting(5, 2000, 1.0, learner=learner) for learner in ("linear", "trees")),
)


def headroom_table(settings: Iterable[Setting], claims: Sequence[Sequence[tuple[bool, bool, float]]]) -> str:
    """Return how often something, or nothing, was said to be there."""
    lines = [
        "| contexts | rows | first context turned by | days | learner | something to gain | nothing to gain | time, in "
        "plain fits |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for one, found in zip(settings, claims, strict=True):
        something, nothing, ratio = (np.array(part, dtype=np.float64) for part in zip(*found, strict=True))
        lines.append(
            f"| {one.n_contexts} | {one.n_rows} | {one.turned:g} | {one.days or '-'} | {one.learner} | "
            f"{something.mean():.3f} | {nothing.mean():.3f} | {np.median(ratio):.0f} |"
        )
    return "\n".join(lines)


@dataclass(frozen=True)
class Alike:
    """A table of contexts that follow one rule.

    Attributes
    ----------
    n_contexts, n_rows : int
    days : int
        Where positive, rows come in so many days that share a shift of the target.
    within : bool
        Whether each day belongs to one context.
    told : bool
        Whether days are passed as groups.
    whole : bool
        Whether a day is held out as a whole.
    loss : {"log_loss", "zero_one"}
        Errors of classes have many ties among rows too.
    """

    n_contexts: int
    n_rows: int
    days: int = 0
    within: bool = False
    told: bool = False
    whole: bool = False
    loss: Literal["log_loss", "zero_one"] = "log_loss"

    def kept(self, seed: int, confidence: float, n_points: int) -> tuple[bool, float]:
        """Return whether the robust model was kept, and the true risk of what was, above the plain learner's."""
        warnings.simplefilter("ignore")
        rng = np.random.default_rng([seed, self.n_contexts, self.n_rows, self.days])
        X, codes = rng.standard_normal((self.n_rows, 5)), np.arange(self.n_rows) % self.n_contexts
        # Of unequal sizes: the last context has a tenth of the rows of the others.
        smaller = (codes < self.n_contexts - 1) | (rng.random(self.n_rows) < 0.1)
        X, codes = X[smaller], codes[smaller]
        logits, day = X[:, 0], None
        if self.days:
            day = rng.integers(self.days, size=len(codes))
            if self.within:
                # As many days in each context; their numbers differ.
                day = day // self.n_contexts * self.n_contexts + codes
            logits = logits + rng.standard_normal(self.days + self.n_contexts)[day]
        y = (rng.random(len(codes)) < 1.0 / (1.0 + np.exp(-logits))).astype(int)
        cv = list(GroupKFold(3).split(X, y, day)) if self.whole else 3
        learner = LogisticRegression()
        model = cpo.ContextRobust(learner, confidence=confidence, loss=self.loss, cv=cv)
        model.fit(X, y, contexts=codes, groups=day if self.told else None)
        if model.chosen_ == "erm":
            return False, 0.0
        risks = [self.true_risk(one, n_points) for one in (model.estimator_, clone(learner).fit(X, y))]
        return True, risks[0] - risks[1]

    def true_risk(self, model: Any, n_points: int) -> float:
        """Return the risk of a model, which is the same in every context; on days that are new where there are any."""
        X = np.random.default_rng(7).standard_normal((n_points, 5))
        shifts = ndtri((np.arange(50) + 0.5) / 50) if self.days else np.zeros(1)
        p = np.mean(1.0 / (1.0 + np.exp(-X[:, :1] - shifts)), axis=1)
        q = model.predict_proba(X)[:, 1]
        if self.loss == "zero_one":
            return float(np.mean(np.where(q > 0.5, 1.0 - p, p)))
        return float(-np.mean(p * np.log(q) + (1.0 - p) * np.log1p(-q)))


ALIKE = (
    *(Alike(c, n, loss=loss) for loss in ("log_loss", "zero_one") for c, n in ((3, 300), (3, 3000), (10, 3000))),
    *(
        Alike(c, n, days, within, told, whole)
        for c, n, days in ((3, 300, 30), (3, 3000, 60), (3, 3000, 9))
        for within in (False, True)
        for told, whole in ((False, False), (True, False), (True, True))
    ),
)


def alike_table(settings: Iterable[Alike], found: Sequence[Sequence[tuple[bool, float]]]) -> str:
    """Return how often a model other than the plain one was kept where none is better, and what that cost."""
    lines = [
        "| contexts | rows | loss | days | the guard is told | held out whole | robust kept | of these worse | "
        "harm, mean of all | where kept |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for one, tables in zip(settings, found, strict=True):
        kept, harm = (np.array(part, dtype=np.float64) for part in zip(*tables, strict=True))
        days = f"{one.days} {'within contexts' if one.within else 'across contexts'}" if one.days else "-"
        told = [("yes" if flag else "no") if one.days else "-" for flag in (one.told, one.whole)]
        worse = f"{np.mean(harm[kept > 0] > 0):.2f}" if kept.any() else "-"
        harms = f"{harm.mean():.5f} | {harm[kept > 0].mean():.4f}" if kept.any() else "0 | -"
        lines.append(
            f"| {one.n_contexts} | {one.n_rows} | {one.loss} | {days} | {told[0]} | {told[1]} | {kept.mean():.3f} | "
            f"{worse} | {harms} |"
        )
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the studies that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=20, help="tables of each problem; of headroom twenty times as many")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--studies", default="choice,headroom,alike")
    parser.add_argument("--toy", action="store_true", help="a run that only shows that it runs")
    asked = parser.parse_args(arguments)
    parallel = Parallel(n_jobs=asked.jobs)
    studies = asked.studies.split(",")
    if "choice" in studies:
        problems = PROBLEMS[::16] if asked.toy else PROBLEMS
        runs = 1 if asked.toy else asked.runs
        found = parallel(
            delayed(one_choice)(problem, seed, 500 if asked.toy else 20_000)
            for problem in problems
            for seed in range(runs)
        )
        rows = [row for some in found for row in some]
        print(f"{len(problems)} problems, {runs} tables each; excess risk in nats\n\n{choice_table(rows)}\n")
    if "headroom" in studies:
        settings = SETTINGS[:1] if asked.toy else SETTINGS
        runs = 2 if asked.toy else 20 * asked.runs
        drawn = parallel(delayed(one.claims)(seed) for one in settings for seed in range(runs))
        claims = [drawn[k * runs : (k + 1) * runs] for k in range(len(settings))]
        print(f"{runs} tables of each setting; level 95%\n\n{headroom_table(settings, claims)}\n")
    if "alike" in studies:
        same = ALIKE[:: len(ALIKE) - 1] if asked.toy else ALIKE
        runs = 2 if asked.toy else 10 * asked.runs
        for words, confidence in (("default set", 0.99), ("every mix", 1.0)):
            fits = parallel(
                delayed(one.kept)(seed, confidence, 500 if asked.toy else 5000) for one in same for seed in range(runs)
            )
            tables = [fits[k * runs : (k + 1) * runs] for k in range(len(same))]
            print(f"{words}, {runs} tables of each setting\n\n{alike_table(same, tables)}\n")


if __name__ == "__main__":
    main()
