"""How whole fits grow: with rows, contexts, classes and sparse features."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from certified import Fits
from many_contexts import data as rows_of_many_contexts
from scipy import sparse
from sklearn.linear_model import LogisticRegression
from timing import Asked, Call, Result, Times, at_most

import counterpoise as cpo
from rows import logistic_rows


def _lbfgs(X: Any, y: np.ndarray, alpha: float) -> Call:
    return lambda: LogisticRegression(solver="lbfgs", tol=1e-6, C=1.0 / (alpha * len(y)), max_iter=5000).fit(X, y)


def many_contexts(asked: Asked) -> Iterator[Result]:
    """Time from ten to a hundred thousand contexts, the rows and their labels the same."""
    for n in (600, 1200) if asked.toy else (1_000_000, 4_000_000):
        most, counts = (60, (10, 30, 60)) if asked.toy else (100_000, (10, 1_000, 100_000))
        X, y, finest = rows_of_many_contexts("logistic", n, 3 if asked.toy else 20, most)
        model, fits = cpo.RobustLogisticRegression(alpha=1e-3), {}
        model.fit(X[:2000], y[:2000], contexts=finest[:2000] % 10)

        def fit(n_contexts: int) -> Call:
            contexts = finest % n_contexts  # noqa: B023
            fits[n_contexts] = Fits("logistic", X, y, contexts)  # noqa: B023
            return lambda: fits[n_contexts].keep(  # noqa: B023
                cpo.RobustLogisticRegression(alpha=1e-3).fit(X, y, contexts=contexts)  # noqa: B023
            )

        # Millions of rows vary little from turn to turn.
        repeats = min(asked.repeats, 3 if n <= 1_000_000 else 2)
        few, *more = asked.turns(*(fit(count) for count in counts), repeats=repeats, warm=False)
        for count, times in zip(counts[1:], more, strict=True):
            work = f"{count:,} contexts, n={n:,}, d={X.shape[1]}"
            found = next(iter(fits[count].models.values())).reference_
            yield at_most(work, f"the same rows in {counts[0]} contexts", times, few, 2.5, note=f"{found} references")
        for count in counts:
            yield fits[count].verified(f"certificate, {count:,} contexts, n={n:,}")


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
