"""An answer does not depend on what only rounding sees: the order of rows."""

import numpy as np
import pytest

from counterpoise.core.fit import fit_linear
from counterpoise.losses import Logistic, Multinomial, Poisson

N = 600


def rows(seed):
    rng = np.random.default_rng(seed)
    X = np.round(rng.normal(size=(N, 6)), 3)
    contexts = rng.choice(3, N, p=[0.5, 0.3, 0.2])
    score = X[:, 0] + np.where(contexts == 2, -1.0, 1.0) * X[:, 1]
    return rng, X, contexts, score


def target(loss, rng, score):
    if isinstance(loss, Poisson):
        return rng.poisson(np.exp(0.3 * score))
    noisy = score + rng.logistic(size=N)
    return (noisy > 0).astype(int) + (noisy > 1.5) * isinstance(loss, Multinomial)


@pytest.mark.parametrize("loss", [Logistic(), Multinomial(3), Poisson()], ids=lambda loss: type(loss).__name__)
@pytest.mark.parametrize("seed", range(8))
def test_the_order_of_rows_is_seen_by_rounding_only(loss, seed):
    rng, X, contexts, score = rows(seed)
    y = target(loss, rng, score)
    order = rng.permutation(N)
    one, two = (fit_linear(X[i], y[i], contexts[i], loss, alpha=1e-2, tol=1e-12) for i in (np.arange(N), order))
    np.testing.assert_allclose(two.coef, one.coef, rtol=0, atol=1e-10)
    np.testing.assert_allclose(two.intercept, one.intercept, rtol=0, atol=1e-10)
