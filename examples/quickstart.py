"""Two decisions under an uncertain mix of contexts, each in a few lines.

1. How much to stock, when demand depends on the weather and 19 of 20 past days were dry.
2. A classifier for three sites, one of which supplied four fifths of the data.
"""

from __future__ import annotations

import numpy as np

import counterpoise as cpo
from counterpoise.core.fit import METHODS, fit_linear
from counterpoise.losses import Logistic


def stock_control(rng: np.random.Generator) -> None:
    """Choose a stock level by the risks of two circumstances, given as a plain function."""
    price, counts = 10.0, np.array([19, 1])
    past = []
    for lift in (15.0, 25.0):
        cost = np.exp(np.log(5.0) + 0.25 * rng.standard_normal(2_000))
        past.append((cost, cost + lift + 2.0 * rng.standard_normal(2_000)))

    def risks(level: np.ndarray) -> np.ndarray:
        return np.array([np.mean(level * cost - price * np.minimum(level, demand)) for cost, demand in past])

    print("1. Stock level, with 19 dry days and 1 wet day seen (price 10, unit cost about 5)")
    print("   Regret: what a level costs more than the best one for the weather. Gap: how far from optimal, at most.\n")
    print(f"   {'rule':<24}{'level':>8}{'worst regret':>15}{'regret in the usual mix':>26}{'gap':>11}")
    settings = {
        "ERM": {"radius": 0.0},
        "robust, 90%": {"confidence": 0.90},
        "robust, 99%": {"confidence": 0.99},
        "minimax regret": {"confidence": 1.0},
    }
    for name, setting in settings.items():
        solution = cpo.minimize(risks, 20.0, counts=counts, bounds=[(0, 100)], convex=True, **setting)
        usual = float(counts / counts.sum() @ solution.scores)
        print(
            f"   {name:<24}{solution.theta[0]:>8.2f}{solution.scores.max():>15.2f}{usual:>26.2f}"
            f"{solution.certificate.gap:>11.0e}"
        )


def classification(rng: np.random.Generator) -> None:
    """Fit one linear classifier to three contexts by every method of the family."""
    n, shares = 1_000, np.array([0.8, 0.1, 0.1])
    site = rng.choice(3, size=n, p=shares)
    x1 = rng.uniform(-5.0, 5.0, n) + np.array([-1.0, 0.0, 1.0])[site]
    y = (rng.random(n) < 1.0 / (1.0 + np.exp(-x1))).astype(float)
    x2 = x1 + np.array([-8.0, 0.0, 8.0])[site] + 2.0 * (1.0 - 2.0 * y) + 2.0 * rng.standard_normal(n)
    X = np.column_stack([x1, x2])

    excess = fit_linear(X, y, site, Logistic(), robustness="minimax-regret").references.upper
    print(f"\n2. Logistic regression, three sites with {', '.join(map(str, np.bincount(site)))} rows\n")
    print(f"   {'method':<24}{'worst excess risk':>18}{'excess in the usual mix':>26}{'iterations':>12}{'gap':>9}")
    for name in METHODS:
        fit = fit_linear(X, y, site, Logistic(), robustness=name)
        regrets = fit.solution.risks - excess
        usual = float(fit.counts / fit.counts.sum() @ regrets)
        print(
            f"   {name:<24}{regrets.max():>18.4f}{usual:>26.4f}{fit.solution.n_iter:>12d}"
            f"{fit.solution.certificate.gap:>9.0e}"
        )
    robust = fit_linear(X, y, site, Logistic())
    weights = ", ".join(f"site {c}: {w:.2f}" for c, w in enumerate(robust.solution.p_worst))
    print(f"\n   The robust fit guards against the mix {weights}")
    print(f"   (a confidence set of {robust.mixes.radius:.3f} bits around the mix that was seen).")
    lower, upper = robust.solution.certificate.lower, robust.solution.certificate.upper
    print(f"   Proof: no linear classifier has a worst-case excess below {lower:.8f}; this one has {upper:.8f}.")


if __name__ == "__main__":
    generator = np.random.default_rng(7)
    stock_control(generator)
    classification(generator)
