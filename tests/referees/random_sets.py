"""Random sets of mixes of every kind, and their intersections, with ties, tight bounds and single points."""

import numpy as np

from counterpoise import sets
from counterpoise.exceptions import EmptySetError


def random_shares(rng, n):
    kind = rng.integers(3)
    if kind == 0:
        return rng.dirichlet(np.full(n, rng.choice([0.3, 1.0, 10.0])))
    if kind == 1:
        return np.full(n, 1.0 / n)
    counts = rng.integers(1, 20, n).astype(float)
    return counts / counts.sum()


def random_bounds(rng, around):
    n = len(around)
    width = rng.choice([1e-3, 0.1, 0.5, 2.0])
    low = np.maximum(around * (1.0 - width * rng.uniform(size=n)), 0.0) * (rng.uniform(size=n) < rng.choice([0.3, 1.0]))
    high = np.where(rng.uniform(size=n) < rng.choice([0.3, 1.0]), np.minimum(around * (1.0 + width * rng.uniform(size=n)), 1.0), 1.0)
    if rng.uniform() < 0.2:
        k = rng.integers(n)
        low[k] = high[k] = around[k]
    if rng.uniform() < 0.05:
        low = high = around
    return sets.ShareBounds(low, np.maximum(high, low))


def random_part(rng, kind, inside, parents):
    n = len(inside)
    if kind in ("kl", "chi2", "tv"):
        make = {"kl": sets.KLBall, "chi2": sets.Chi2Ball, "tv": sets.TotalVariationBall}[kind]
        p_hat = inside if rng.uniform() < 0.5 else 0.5 * inside + 0.5 * random_shares(rng, n)
        ball = make(p_hat, 1.0)
        radius = 1.2 * ball.divergence(inside) + rng.choice([1e-3, 0.02, 0.2, 1.0]) * rng.uniform(0.2, 1.0)
        return ball.resized(min(radius, 1.0) if kind == "tv" else radius)
    if kind == "bounds":
        return random_bounds(rng, inside)
    if kind == "limits":
        A = rng.choice([-1.0, 0.0, 0.0, 1.0], size=(rng.integers(1, 4), n)) * rng.choice([1.0, rng.uniform(0.1, 3.0)])
        b = A @ inside + rng.choice([0.0, 0.01, 0.1, 1.0]) * rng.uniform(size=len(A))
        if rng.uniform() < 0.2:
            A, b = np.vstack([A, -A[:1]]), np.append(b, -(A[0] @ inside))
            b[0] = A[0] @ inside
        return sets.ShareLimits(A, b)
    sums = np.bincount(parents, inside)
    inner = random_part(rng, rng.choice(["kl", "chi2", "tv", "bounds"]), sums, np.zeros(len(sums), dtype=int))
    return sets.Marginal(inner, parents)


KINDS = ("kl", "chi2", "tv", "bounds", "limits", "marginal")


def random_set(rng, n):
    """Return a set that is not empty, and the kinds it is made of."""
    inside = random_shares(rng, n) * (1.0 - 1e-6) + 1e-6 / n
    kinds = list(rng.choice(KINDS, size=rng.choice([1, 2, 2, 3]), replace=rng.uniform() < 0.2))
    # Every parent has a context.
    n_parents = int(rng.integers(1, min(n, 6) + 1))
    parents = np.concatenate([np.arange(n_parents), rng.integers(n_parents, size=n - n_parents)])
    made = [random_part(rng, kind, inside, parents) for kind in kinds]
    mixes = made[0]
    for one in made[1:]:
        mixes = mixes & one
    return mixes, kinds


def random_scores(rng, n):
    kind = rng.integers(4)
    scores = rng.normal(size=n)
    if kind == 1:
        scores = scores.round(0)
    if kind == 2:
        scores = np.where(rng.uniform(size=n) < 0.5, 0.0, 1.0)
    if kind == 3:
        scores = scores * 1e-3 + 5.0
    return scores


__all__ = ["KINDS", "EmptySetError", "random_scores", "random_set"]
