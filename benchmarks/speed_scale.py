"""How whole fits grow: with rows, contexts, classes and sparse features."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from certified import Fits
from many_contexts import data as rows_of_many_contexts
from scipy import sparse
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from timing import Asked, Call, Result, Times, at_most

import counterpoise as cpo
from rows import logistic_rows


def _lbfgs(X: Any, y: np.ndarray, alpha: float) -> Call:
    return lambda: LogisticRegression(solver="lbfgs", tol=1e-6, C=1.0 / (alpha * len(y)), max_iter=5000).fit(X, y)


def many_contexts(asked: Asked) -> Iterator[Result]:
    """Time from ten to a hundred thousand contexts, the rows and their labels the same.

    Contexts as small as those of the largest number get references on held-out rows by default, which are several fits;
    so the same work is timed as well.
    """
    sizes = {1_000_000: (10, 1_000, 10_000, 100_000), 4_000_000: (10, 100_000)}
    for n, counts in {600: (3, 6, 60)}.items() if asked.toy else sizes.items():
        X, y, finest = rows_of_many_contexts("logistic", n, 3 if asked.toy else 20, counts[-1])
        kinds = [*((count, "in-sample") for count in counts), (counts[-1], "auto")]
        fits = {kind: Fits("logistic", X, y, finest % kind[0]) for kind in kinds}

        def fit(kind: tuple[int, str]) -> Call:
            own = fits[kind]  # noqa: B023
            model = cpo.RobustLogisticRegression(alpha=1e-3, reference=kind[1])
            return lambda: own.keep(clone(model).fit(own.X, own.y, contexts=own.contexts))

        cpo.RobustLogisticRegression().fit(X[:2000], y[:2000], contexts=finest[:2000] % 10)
        # Millions of rows vary little from turn to turn.
        repeats = min(asked.repeats, 3 if n <= 1_000_000 else 2)
        few, *more = asked.turns(*(fit(kind) for kind in kinds), repeats=repeats, warm=False)
        for kind, times in zip(kinds[1:], more, strict=True):
            work = f"{kind[0]:,} contexts, {kind[1]} references, n={n:,}, d={X.shape[1]}"
            note = f"{next(iter(fits[kind].models.values())).reference_} references"
            yield at_most(work, f"the same rows in {counts[0]} contexts", times, few, 2.5, note=note)
        for kind in kinds:
            yield fits[kind].verified(f"certificate, {kind[0]:,} contexts, {kind[1]} references, n={n:,}")


def multinomial(asked: Asked) -> Iterator[Result]:
    """Time several classes beside scikit-learn."""
    for classes, n, d in ((3, 100_000, 20), (10, 100_000, 20), (30, 50_000, 20)):
        n, d, alpha = (50 * classes, 2, 1e-3) if asked.toy else (n, d, 1e-4)
        rng = np.random.default_rng(classes)
        contexts = rng.permutation(np.arange(n) % 10)
        X = rng.standard_normal((n, d))
        own = rng.standard_normal((1, classes, d)) + 0.5 * rng.standard_normal((10, classes, d))
        z = 1.5 * np.einsum("nd,nkd->nk", X, own[contexts]) / np.sqrt(d)
        y = np.argmax(z + rng.gumbel(size=z.shape), axis=1)
        fits = Fits("multinomial", X, y, contexts)
        ours, theirs = asked.turns(
            lambda: fits.keep(cpo.RobustLogisticRegression(alpha=alpha).fit(X, y, contexts=contexts)),  # noqa: B023
            _lbfgs(X, y, alpha),
            warm=False,
        )
        work = f"{classes} classes, n={n:,}, d={d}, C=10"
        yield at_most(work, "scikit-learn lbfgs, tol 1e-6", ours, theirs, 3)
        yield fits.verified(f"certificate, {work}")


def sparse_rows(asked: Asked) -> Iterator[Result]:
    """Time sparse features beside scikit-learn."""
    for d, density in ((10_000, 2e-3), (50_000, 1e-3)):
        n, d, density = (400, 200, 0.05) if asked.toy else (200_000, d, density)
        alpha, rng = 1e-4, np.random.default_rng(0)
        X = sparse.random_array((n, d), density=density, format="csr", rng=rng, data_sampler=rng.random)
        contexts = rng.integers(0, 10, n)
        coefficients = rng.standard_normal((10, d))
        z = np.zeros(n)
        for c in range(10):
            rows = contexts == c
            z[rows] = X[rows] @ (coefficients[0] + 0.5 * coefficients[c])
        y = (rng.random(n) < 1.0 / (1.0 + np.exp(-z))).astype(int)
        fits = Fits("logistic", X, y, contexts)
        ours, theirs = asked.turns(
            lambda: fits.keep(cpo.RobustLogisticRegression(alpha=alpha).fit(X, y, contexts=contexts)),  # noqa: B023
            _lbfgs(X, y, alpha),
            warm=False,
        )
        work = f"sparse, n={n:,}, d={d:,}, {density:.1%} filled"
        yield at_most(work, "scikit-learn lbfgs, tol 1e-6", ours, theirs, 3)
        yield fits.verified(f"certificate, {work}")


def growth(asked: Asked) -> Iterator[Result]:
    """Find how time grows with rows."""
    sizes = (300, 600, 1200) if asked.toy else (10_000, 100_000, 1_000_000)
    times: list[Times] = []
    for n in sizes:
        X, y, contexts = logistic_rows(n, 20, 20)
        fits = Fits("logistic", X, y, contexts)
        times += asked.turns(lambda: fits.keep(cpo.RobustLogisticRegression().fit(X, y, contexts=contexts)))  # noqa: B023
        yield fits.verified(f"certificate, n={n:,}, d=20, C=20")
    exponent = float(np.polyfit(np.log(sizes), np.log([one.median for one in times]), 1)[0])
    title, peer = f"exponent of growth, n={sizes[0]:,} to {sizes[-1]:,}, d=20, C=20", "seconds at the last and first"
    ends = times[-1].median, times[0].median
    yield Result(title, peer, *ends, exponent, exponent, exponent, "<= 1.05", exponent <= 1.05)
