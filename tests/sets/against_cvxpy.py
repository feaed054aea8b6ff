"""Random sets of mixes against CVXPY and Clarabel: ``python -m tests.sets.against_cvxpy``.

Worst cases of single sets and intersections of every kind, with 2 to 1,000 contexts; their speed beside the plain ball;
and a model fitted within bounds.
"""

import argparse
import statistics
import sys
import time
import warnings
from collections import defaultdict

import cvxpy as cp
import numpy as np

import counterpoise as cpo
from tests.referees.mixes import largest_expected_score
from tests.referees.random_sets import random_scores, random_set

SIZES = (2, 3, 5, 10, 30, 100, 300, 1000)


def difference(seed, n_contexts):
    """Return what a set is made of, and by how much it misses the referee in units of the scores; NaN without one."""
    rng = np.random.default_rng([20, seed])
    mixes, kinds = random_set(rng, n_contexts)
    scores = random_scores(rng, n_contexts)
    worst = mixes.worst_case(scores)
    assert mixes.contains(worst.distribution)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        referee = largest_expected_score(mixes, scores, n_contexts)
    size = max(1.0, float(np.abs(scores).max()))
    return " & ".join(sorted(kinds)), np.nan if referee is None else (worst.value - referee) / size


def worst_cases(n_sets):
    """Print the largest differences by kind; return the largest of all."""
    found = defaultdict(list)
    for seed in range(n_sets):
        kinds, missed = difference(seed, SIZES[seed % len(SIZES)])
        found[kinds].append(missed)
    print("| set | sets | without a referee | largest difference |\n|---|---|---|---|")
    for kinds, missed in sorted(found.items(), key=lambda one: (one[0].count("&"), one[0])):
        known = [abs(one) for one in missed if not np.isnan(one)]
        print(f"| {kinds} | {len(missed)} | {len(missed) - len(known)} | {max(known, default=np.nan):.1e} |")
    everything = [abs(one) for missed in found.values() for one in missed if not np.isnan(one)]
    print(f"\n{n_sets} sets, {n_sets - len(everything)} without a referee, largest difference {max(everything):.1e}\n")
    return max(everything)


def examples(n_contexts, rng):
    """Return a set of each kind around the same shares."""
    p = rng.dirichlet(np.full(n_contexts, 5.0))
    ball, bounds = cpo.KLBall(p, 0.2), cpo.ShareBounds(0.5 * p, np.minimum(2.0 * p, 1.0))
    half = (np.arange(n_contexts) < n_contexts // 2).astype(float)
    limit = cpo.ShareLimits([half], [float(half @ p) + 0.05])
    return {
        "KL ball": ball,
        "total variation": cpo.TotalVariationBall(p, 0.2),
        "bounds": bounds,
        "KL & bounds": ball & bounds,
        "KL & one limit": ball & limit,
        "KL & bounds & limit": ball & bounds & limit,
        "KL & total variation": ball & cpo.TotalVariationBall(p, 0.1),
    }


def speed(sizes, repeats):
    """Print the median time of a worst case, alone and in a batch of 200."""
    print("| set | contexts | one, us | in a batch, us each |\n|---|---|---|---|")
    for n_contexts in sizes:
        rng = np.random.default_rng(0)
        scores = rng.normal(size=(200, n_contexts))
        for name, mixes in examples(n_contexts, rng).items():
            one = statistics.median(_seconds(mixes, scores[:repeats]))
            batch = statistics.median(_seconds(mixes, [scores] * max(repeats // 10, 1)))
            print(f"| {name} | {n_contexts} | {1e6 * one:.0f} | {1e6 * batch / 200:.0f} |")
    print()


def _seconds(mixes, questions):
    out = []
    for scores in questions:
        begin = time.perf_counter()
        mixes.worst_case(scores)
        out.append(time.perf_counter() - begin)
    return out


def fits(n_rows, n_features, n_contexts, repeats):
    """Fit logistic regression within bounds, and solve the same problem by CVXPY; print values and the ratio."""
    rng = np.random.default_rng(0)
    codes = rng.choice(n_contexts, n_rows, p=rng.dirichlet(np.full(n_contexts, 3.0)))
    X = rng.normal(size=(n_rows, n_features))
    slopes = rng.normal(size=n_features) + 0.7 * rng.normal(size=(n_contexts, n_features))
    y = (np.einsum("nd,nd->n", X, slopes[codes]) + rng.logistic(size=n_rows) > 0).astype(int)
    p = np.bincount(codes) / n_rows
    mix = cpo.KLBall(p, 0.1) & cpo.ShareBounds(0.7 * p, np.minimum(1.4 * p, 1.0))
    ours, theirs, values = [], [], []
    # What is loaded at the first use is no part of a fit.
    first = slice(None, 200)
    cpo.RobustLogisticRegression(mix=mix, criterion="risk").fit(
        X[first], y[first], contexts=np.arange(200) % n_contexts
    )
    for _ in range(repeats):
        begin = time.perf_counter()
        model = cpo.RobustLogisticRegression(mix=mix, criterion="risk", alpha=1e-4).fit(X, y, contexts=codes)
        ours.append(time.perf_counter() - begin)
        begin = time.perf_counter()
        values.append((model.certificate_.upper, _by_cvxpy(X, y, codes, mix, 1e-4)))
        theirs.append(time.perf_counter() - begin)
    mine, referee = values[0]
    ratio = statistics.median(theirs) / statistics.median(ours)
    print(
        f"fit within bounds, {n_rows} rows, {n_features} features, {n_contexts} contexts: {mine:.9f}, CVXPY "
        f"{referee:.9f}, apart by {abs(mine - referee) / referee:.1e}; {1e3 * statistics.median(ours):.0f} ms against "
        f"{statistics.median(theirs):.2f} s, {ratio:.0f} times faster; gap {model.certificate_.relative_gap:.1e}"
    )
    return abs(mine - referee) / referee


def _by_cvxpy(X, y, codes, mix, alpha):
    """Return the least worst case, with the inner problem replaced by its dual."""
    theta, intercept, nu = cp.Variable(X.shape[1]), cp.Variable(), cp.Variable()
    ball, bounds = mix.parts
    n_contexts = len(ball.p_hat)
    low, high = cp.Variable(n_contexts, nonneg=True), cp.Variable(n_contexts, nonneg=True)
    # Of the ball's part a weighted geometric mean of the slacks is left.
    slack, mean = cp.Variable(n_contexts, nonneg=True), cp.Variable(nonneg=True)
    constraints = [cp.sum(cp.multiply(ball.p_hat, cp.rel_entr(mean * np.ones(n_contexts), slack))) <= 0]
    for c in range(n_contexts):
        rows = codes == c
        z = X[rows] @ theta + intercept
        risk = cp.sum(cp.logistic(z) - cp.multiply(y[rows], z)) / rows.sum() + 0.5 * alpha * cp.sum_squares(theta)
        constraints.append(risk + low[c] - high[c] <= nu - slack[c])
    value = nu - 2.0**-ball.radius * mean - low @ bounds.low + high @ bounds.high
    problem = cp.Problem(cp.Minimize(value), constraints)
    with warnings.catch_warnings():
        # That a solution is not as accurate as it might be shows in the comparison.
        warnings.simplefilter("ignore", UserWarning)
        problem.solve(solver=cp.CLARABEL)
    return float(problem.value)


def main(argv=None):
    """Run all three; return 0 where nothing differs by more than it may."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", type=int, default=2000)
    parser.add_argument("--sizes", type=int, nargs="+", default=[10, 100, 1000])
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--repeats", type=int, default=50)
    options = parser.parse_args(argv)
    largest = worst_cases(options.sets)
    speed(options.sizes, options.repeats)
    apart = fits(options.rows, 20, 10, max(options.repeats // 10, 1))
    return int(largest > 1e-8 or apart > 1e-6)


if __name__ == "__main__":
    sys.exit(main())
