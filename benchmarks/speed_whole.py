"""What is built of many fits, in units of one: comparisons, any learner, paths of confidence, passes over blocks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
from certified import Fits
from confidence_path import data as rows_of_a_path
from sklearn.base import clone
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from timing import Asked, Result, Times, alone, at_most, measured, proven

import counterpoise as cpo
from rows import logistic_rows

FOLDS = 5
"""Folds of a comparison."""


def compare(asked: Asked) -> Iterator[Result]:
    """Compare five methods, beside one robust fit per fold."""
    shape = (600, 3, 3) if asked.toy else (217_000, 20, 16)
    X, y, contexts = logistic_rows(*shape)
    fold = np.random.default_rng(0).permutation(np.arange(len(y)) % FOLDS)
    model, fits = cpo.RobustLogisticRegression(), []

    def one_fit_per_fold() -> None:
        fits.clear()
        for k in range(FOLDS):
            rows = fold != k
            fits.append(Fits("logistic", X[rows], y[rows], contexts[rows]))
            fits[-1].keep(clone(model).fit(X[rows], y[rows], contexts=contexts[rows]))

    def five_methods() -> None:
        found = cpo.compare(X, y, contexts=contexts, estimator=model, cv=FOLDS)
        assert len(found.outcomes) == 5

    few = slice(0, 1000)
    cpo.compare(X[few], y[few], contexts=contexts[few] % 3, estimator=model, cv=FOLDS)
    ours, theirs = asked.turns(five_methods, one_fit_per_fold, warm=False)
    work = f"compare, five methods, n={len(y):,}, d={X.shape[1]}, C={shape[2]}"
    yield at_most(work, "one robust fit per fold", ours, theirs, 2.5)
    yield at_most(work, "20 s", ours, Times((20.0,) * len(ours.turns)), 1)
    for k, one in enumerate(fits):
        yield one.verified(f"certificate, fold {k} of the comparison")


class CountedTrees(HistGradientBoostingClassifier):
    """Boosted trees that count how often they are fitted."""

    fits: ClassVar[int] = 0

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> CountedTrees:
        """Fit, and count."""
        CountedTrees.fits += 1
        return super().fit(X, y, sample_weight)


class CountedLogistic(LogisticRegression):
    """A logistic regression that counts how often it is fitted."""

    fits: ClassVar[int] = 0

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> CountedLogistic:
        """Fit, and count."""
        CountedLogistic.fits += 1
        return super().fit(X, y, sample_weight)


def any_learner(asked: Asked) -> Iterator[Result]:
    """Make learners of others robust, beside their own plain fit."""
    n, d, n_contexts = (300, 3, 3) if asked.toy else (30_000, 10, 5)
    rng = np.random.default_rng(0)
    contexts = rng.permutation(np.arange(n) % n_contexts)
    X, common, own = rng.standard_normal((n, d)), rng.standard_normal(d), rng.standard_normal((n_contexts, d))
    # Trees stop early from 10,000 rows on, unless told not to; a fit to all rows would then cost less than one to some.
    trees = CountedTrees(max_iter=5 if asked.toy else 100, early_stopping=False, random_state=0)
    for kind, spread in (("contexts differ", 1.0), ("contexts alike", 0.0)):
        z = X @ common + spread * np.einsum("nd,nd->n", X, own[contexts])
        y = (rng.random(n) < 1.0 / (1.0 + np.exp(-1.5 * z / z.std()))).astype(int)
        for learner in (trees, CountedLogistic()):
            counted: dict[str, int] = {}

            def robust() -> None:
                type(learner).fits = 0  # noqa: B023
                cpo.ContextRobust(clone(learner)).fit(X, y, contexts=contexts)  # noqa: B023
                counted["fits"] = type(learner).fits  # noqa: B023

            clone(learner).fit(X[:500], y[:500])
            ours, theirs, weighted = asked.turns(
                robust,
                lambda: clone(learner).fit(X, y),  # noqa: B023
                lambda: clone(learner).fit(X, y, np.ones(n)),  # noqa: B023
                warm=False,
            )
            name = "boosted trees" if learner is trees else "logistic regression"
            work = f"ContextRobust, {name}, {kind}, n={n:,}, C={n_contexts}"
            note = f"{counted['fits']} fits, most of them to some of the rows"
            yield at_most(work, "a plain fit", ours, theirs, 10, note=note)
            # Some learners take far longer as soon as rows have weights, even equal ones.
            yield measured(work, "a plain fit with weights of one", ours, weighted)


def path(asked: Asked) -> Iterator[Result]:
    """Find fifty levels of confidence, beside one fit."""
    sizes = {"logistic": ((10_000, 20, 10), (100_000, 30, 50)), "quantile": ((10_000, 20, 10), (50_000, 20, 20))}
    models = {"logistic": cpo.RobustLogisticRegression, "quantile": cpo.RobustQuantileRegressor}
    for name, shapes in sizes.items():
        for shape in ((300, 3, 3),) if asked.toy else shapes:
            n, d, n_contexts = shape
            X, y, contexts = logistic_rows(*shape) if name == "logistic" else rows_of_a_path(name, *shape)
            model = models[name](radius="agrawal")
            kind, parameters = ("logistic", {}) if name == "logistic" else ("pinball", {"quantile": model.quantile})
            fits = Fits(kind, X, y, contexts, parameters)
            along: list[Any] = []

            def levels() -> None:
                along[:] = cpo.confidence_path(model, X, y, contexts=contexts, levels=50).models  # noqa: B023
                assert len(along) >= 50  # noqa: B023

            ours, theirs = asked.turns(
                levels,
                lambda: fits.keep(clone(model).fit(X, y, contexts=contexts)),  # noqa: B023
                warm=n <= 10_000,
            )
            work = f"50-level path, {name}, n={n:,}, d={d}, C={n_contexts}"
            yield at_most(work, "one fit", ours, theirs, 5)
            gap = max(one.certificate_.relative_gap for one in along)
            # With kinks, levels are promised to be within what can be seen in a picture of the path.
            tol = model.tol if name == "logistic" else 1e-3
            wrong = {fits.complaint(one) for one in (along[0], along[len(along) // 2], along[-1])} - {""}
            yield proven(f"largest gap, {work}", gap, tol, "; ".join(sorted(wrong)))
            yield fits.verified(f"certificate, {name}, n={n:,}, d={d}, C={n_contexts}")


def passes(asked: Asked) -> Iterator[Result]:
    """Count passes over rows in blocks, which are what such fits cost."""
    from counterpoise.contexts import Contexts
    from counterpoise.core.oracle import LinearOracle
    from counterpoise.core.problem import LinearProblem
    from counterpoise.estimators.linear import RowReader
    from counterpoise.rows import Block, BlockRows, BlocksInMemory

    models: dict[str, tuple[str, Any]] = {
        "logistic": ("logistic", cpo.RobustLogisticRegression()),
        "huber": ("huber", cpo.RobustHuberRegressor()),
        "quantile": ("pinball", cpo.RobustQuantileRegressor()),
        "quantile .9": ("pinball", cpo.RobustQuantileRegressor(quantile=0.9)),
    }
    n, d, n_contexts = (300, 3, 3) if asked.toy else (100_000, 20, 10)
    for name, (kind, model) in models.items():
        X, y, codes = rows_of_a_path(name.split()[0], n, d, n_contexts)
        if name == "logistic":
            model.classes_ = np.unique(y)
        loss, counts = RowReader(model).loss(), np.bincount(codes).astype(np.float64)
        target = loss.checked_target(y)
        blocks = BlocksInMemory(
            [
                Block.of(X[own], target[own], codes[own], np.ones(len(own)), counts, loss, True)
                for own in np.array_split(np.arange(n), 8)
            ]
        )
        rows = BlockRows(blocks, loss, n_contexts, d, True)
        contexts = Contexts.counted(np.arange(n_contexts), counts.astype(np.intp))
        fits = Fits(kind, X, y, codes, {"delta": 1.35, "quantile": getattr(model, "quantile", 0.5)})
        model.n_features_in_ = d
        fits.keep(model.fit_problem(LinearProblem(LinearOracle(rows, model.alpha), contexts, counts)))
        work = f"{name} in 8 blocks, n={n:,}, d={d}, C={n_contexts} (passes)"
        yield at_most(work, "39 passes", alone(blocks.n_passes), alone(39.0), 1)
        yield fits.verified(f"certificate, {work}")
