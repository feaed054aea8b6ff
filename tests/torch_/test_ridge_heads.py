"""Many ridge heads at once: each as close to its minimum as is said."""

import numpy as np
import pytest
from scipy.optimize import minimize

torch = pytest.importorskip("torch")

from counterpoise.exceptions import NotCertifiedWarning  # noqa: E402
from counterpoise.torch.ridge_heads import HeadTarget, left_out, ridge_heads  # noqa: E402

ALPHAS = (1e-3, 1e-1, 10.0)


def task(kind, n, d, n_classes=3, signal=3.0):
    """Return features, and targets of a strong linear head on them."""
    rng = np.random.default_rng(0)
    X = torch.tensor(rng.normal(size=(n, d)))
    z = X.numpy() @ rng.normal(size=(d, n_classes)) * signal / np.sqrt(d)
    noisy = z + rng.gumbel(size=z.shape)
    targets = torch.tensor(noisy[:, 0] if kind == "regression" else noisy.argmax(axis=1))
    return X, HeadTarget.of(targets, kind, X)


def least_objective(rows, target, counts, penalty):
    """Return the least weighted loss with a penalty on each coefficient."""

    def value(theta):
        coef = torch.tensor(theta.reshape(rows.shape[1], -1), requires_grad=True)
        loss = counts @ target.losses(rows @ coef) + 0.5 * (penalty @ coef.square()).sum()
        loss.backward()
        return float(loss.detach()), coef.grad.numpy().ravel()

    options = {"maxiter": 10_000, "maxfun": 10_000, "ftol": 1e-15, "gtol": 1e-10}
    return minimize(value, np.zeros(rows.shape[1] * target.n_outputs), jac=True, method="L-BFGS-B", options=options).fun


@pytest.mark.parametrize("kind", ["classification", "regression"])
@pytest.mark.parametrize(("n", "d"), [(12, 2), (30, 40), (200, 6)])
def test_heads_are_no_further_from_their_minimum_than_the_gap(kind, n, d):
    X, target = task(kind, n, d)
    weight = left_out(np.arange(n) % 3, 3, np.zeros(n, dtype=np.intp), np.ones(1))
    heads = ridge_heads(X, target, weight, ALPHAS)
    assert heads.gap <= 1e-4 * target.typical
    # The intercept is that of features whose weighted mean is zero, and is penalised as by one more row.
    overall = torch.tensor(weight.mean(axis=1))
    intercepts = torch.tensordot(overall / overall.sum(), heads.outputs, 1)
    centred = X - overall @ X / overall.sum()
    rows = torch.cat([centred, torch.ones(n, 1, dtype=X.dtype)], 1)
    for f, counts in enumerate(torch.tensor(weight.T)):
        for k, alpha in enumerate(ALPHAS):
            # Numbers are counted from their mean.
            mean = counts @ target.values if kind == "regression" else 0.0
            losses = target.losses(heads.outputs[:, f, k])
            found = counts @ losses + heads.ridge[f, k] + 0.5 / n * (intercepts[f, k] - mean).square().sum()
            penalty = torch.tensor([alpha] * d + [1.0 / n], dtype=X.dtype)
            least = least_objective(rows, HeadTarget(target.values - mean, kind), counts, penalty)
            assert least - 1e-8 <= float(found) <= least + heads.gap + 1e-8


def test_a_shift_of_the_numbers_shifts_the_heads():
    X, target = task("regression", 30, 4)
    weight = left_out(np.arange(30) % 3, 3, np.zeros(30, dtype=np.intp), np.ones(1))
    shifted = HeadTarget.of(target.values + 1000.0, "regression", X)
    here, there = (ridge_heads(X, one, weight, ALPHAS).outputs for one in (target, shifted))
    torch.testing.assert_close(there - 1000.0, here, rtol=0.0, atol=1e-8)


@pytest.mark.parametrize("number", [0.0, 3.0])
def test_numbers_that_are_all_the_same_are_reached(number):
    X = task("regression", 30, 4)[0].float()
    target = HeadTarget.of(torch.full((30,), number), "regression", X)
    outputs = ridge_heads(X, target, np.full((30, 1), 1.0 / 30.0), ALPHAS).outputs
    torch.testing.assert_close(outputs, torch.full_like(outputs, number))


def test_heads_that_are_not_solved_say_so():
    # Separable by little: coefficients are large, and the curvature is far below its bound.
    X, target = task("classification", 40, 30)
    weight = np.full((40, 1), 1.0 / 40.0)
    with pytest.warns(NotCertifiedWarning, match="above their least loss after 2000 steps"):
        heads = ridge_heads(X, target, weight, [1e-9])
    assert heads.gap > 1e-4 * target.typical
