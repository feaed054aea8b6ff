"""One curvature for all contexts, learnt from gradients: the same optimum as by the Hessians of each, and proven."""

from dataclasses import replace

import numpy as np
import pytest

from counterpoise.core.common_parabola import CommonParabola
from counterpoise.core.fit import Robustness, fit_problem
from counterpoise.core.problem import LinearProblem
from counterpoise.core.references import by_class, specialists
from counterpoise.losses import Multinomial
from counterpoise.sets.mix import Mix

MIXES = {
    "types": Robustness(),
    "minimax regret": Robustness(confidence=1.0),
    "small": Robustness(radius=1e-3),
    "risk": Robustness(radius=0.05, criterion="risk"),
    "unseen": Robustness(radius=0.3, mix=Mix(unseen_risks={"elsewhere": 0.2})),
}


def rows_of(classes, n, d, n_contexts, seed, unlike=False):
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, n_contexts, n)
    X = rng.standard_normal((n, d))
    if unlike:
        # Contexts whose features, and so whose Hessians, have nothing to do with each other.
        X = X * np.exp(1.5 * rng.standard_normal((n_contexts, d)))[codes]
    own = rng.standard_normal((classes, d)) + 0.7 * rng.standard_normal((n_contexts, classes, d))
    z = np.einsum("nd,nkd->nk", X, own[codes]) / np.sqrt(d)
    return X, np.argmax(z + rng.gumbel(size=z.shape), axis=1).astype(float), codes


def fitted(X, y, codes, classes, robustness, alpha=1e-3):
    problem = LinearProblem.from_data(X, y, codes, Multinomial(classes), alpha=alpha)
    problem = replace(problem, unseen=robustness.unseen(problem.contexts.labels).risks)
    mixes = robustness.mixes_of(problem.contexts, problem.counts)
    scored = robustness.scored(problem.references("in-sample", 1e-6))
    return fit_problem(problem, mixes, scored, tol=1e-6)


@pytest.mark.parametrize("unlike", [False, True])
@pytest.mark.parametrize("robustness", MIXES.values(), ids=MIXES)
def test_it_leads_to_the_optimum_that_hessians_lead_to(robustness, unlike, monkeypatch):
    data = rows_of(7, 6000, 9, 5, 1, unlike)
    monkeypatch.setattr(specialists, "MANY_ENTRIES", 0.0)
    solved = []
    real = CommonParabola.solve
    monkeypatch.setattr(CommonParabola, "solve", lambda *args: solved.append(real(*args)) or solved[-1])
    ours = fitted(*data, 7, robustness)
    assert solved[0] is not None
    monkeypatch.setattr(by_class, "MANY_PARAMETERS", 10**6)
    other = fitted(*data, 7, robustness)
    assert len(solved) == 1
    one, two = ours.solution.certificate, other.solution.certificate
    assert max(one.gap, two.gap) <= 1e-6 * one.scale
    assert max(one.lower, two.lower) <= min(one.upper, two.upper) + 1e-12
    np.testing.assert_allclose(ours.solution.risks, other.solution.risks, atol=3e-3)


def test_a_ridge_too_weak_to_prove_anything_is_left_to_other_solvers(monkeypatch):
    data = rows_of(7, 3000, 9, 3, 2)
    monkeypatch.setattr(specialists, "MANY_ENTRIES", 0.0)
    fit = fitted(*data, 7, Robustness(), alpha=1e-12)
    assert fit.solution.success
