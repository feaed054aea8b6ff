"""The certified solvers over the whole grid of problems they promise to solve."""

import itertools

import numpy as np
import pytest

from counterpoise.core.fit import Robustness, fit_linear, fit_problem, scored_references
from counterpoise.core.problem import LinearProblem
from counterpoise.losses import Huber, Logistic, Multinomial, Newsvendor, Pinball, Poisson, Squared
from counterpoise.sets import KLBall, confidence_radius
from tests.problems import make

LOSSES = [Logistic(), Multinomial(3), Squared(), Huber(1.0), Poisson(), Pinball(0.3), Newsvendor(10.0)]
CONTEXTS = (1, 2, 3, 10, 50)
FEATURES = (1, 3, 20)
RADII = (0.0, 1e-6, "types", 1.0, 30.0, np.inf)
CRITERIA = ("risk", "excess")
ALPHAS = (0.0, 1e-4)


def shared_out(n_contexts, n_features, alpha):
    """Return every other radius and criterion; those between are for neighbours in the grid of sizes.

    So each alpha meets every radius and criterion, and each loss too, at some size.
    """
    first = CONTEXTS.index(n_contexts) + FEATURES.index(n_features) + ALPHAS.index(alpha)
    places = itertools.product(enumerate(RADII), enumerate(CRITERIA))
    return [(radius, criterion) for (j, radius), (k, criterion) in places if (first + j + k) % 2 == 0]


def objective(fit, loss, X, y, codes, alpha):
    """Recompute the worst-case score at the fitted coefficients, from scratch and context by context."""
    z = X @ fit.coef.T + fit.intercept
    z = z[:, 0] if loss.n_outputs == 1 else z
    rows = loss.value(y, z)
    risks = np.array([rows[codes == c].mean() for c in range(codes.max() + 1)]) + 0.5 * alpha * np.sum(fit.coef**2)
    return KLBall(fit.mixes.p_hat, fit.mixes.radius).worst_case(risks - fit.references.upper).value


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
@pytest.mark.parametrize("n_features", FEATURES)
@pytest.mark.parametrize("n_contexts", CONTEXTS)
def test_every_problem_is_certified(loss, n_contexts, n_features):
    # Neighbours in the grid have the other one.
    alpha = ALPHAS[(LOSSES.index(loss) + CONTEXTS.index(n_contexts) + FEATURES.index(n_features)) % 2]
    X, y, codes = make(loss, n_contexts, n_features, seed=100 * n_contexts + n_features)
    promised = 1e-6 if loss.name in ("pinball", "newsvendor") else 1e-8
    # Posed once, as a path over radii is: the least risk of each context is the same for all of them.
    problem = LinearProblem.from_data(X, y, codes, loss, alpha=alpha)
    for radius, criterion in shared_out(n_contexts, n_features, alpha):
        mixes = Robustness(radius=radius).mixes_of(problem.contexts, problem.counts)
        references = scored_references(problem, criterion, "in-sample", promised / 2)
        fit = fit_problem(problem, mixes, references, tol=promised / 2)
        solution, certificate = fit.solution, fit.solution.certificate
        assert solution.success, (radius, criterion, certificate)
        assert certificate.gap <= promised * certificate.scale
        assert certificate.scope == "global"
        assert certificate.upper == pytest.approx(
            objective(fit, loss, X, y, codes, alpha), abs=promised * certificate.scale
        )
        assert fit.mixes.contains(solution.p_worst)


@pytest.mark.parametrize("loss", [Pinball(0.3), Newsvendor(10.0)], ids=lambda loss: loss.name)
@pytest.mark.parametrize("n_contexts", CONTEXTS)
def test_one_parameter_piecewise_linear_is_exact_to_rounding(loss, n_contexts):
    X, y, codes = make(loss, n_contexts, 1, seed=n_contexts)
    for radius, criterion in itertools.product(RADII, CRITERIA):
        fit = fit_linear(
            np.ones_like(X),
            y,
            codes,
            loss,
            robustness=Robustness(radius=radius, criterion=criterion),
            alpha=0.0,
            fit_intercept=False,
            bounds=(np.array([0.0]), np.array([100.0])),
            tol=1e-12,
        )
        assert fit.solution.success, (radius, criterion, fit.solution.certificate)


def test_the_default_tolerance_is_a_millionth_and_a_billionth_is_within_reach():
    X, y, codes = make(Logistic(), 5, 4, seed=0)
    rough, fine = fit_linear(X, y, codes, Logistic()), fit_linear(X, y, codes, Logistic(), tol=1e-9)
    assert rough.solution.certificate.relative_gap <= 1e-6
    assert fine.solution.certificate.relative_gap <= 1e-9
    assert fine.mixes.radius == confidence_radius(np.bincount(codes), 0.99)


def test_every_radius_and_criterion_is_had_with_one_alpha_or_the_other():
    for sizes in itertools.product(CONTEXTS, FEATURES):
        cells = [cell for alpha in ALPHAS for cell in shared_out(*sizes, alpha)]
        assert sorted(map(str, cells)) == sorted(map(str, itertools.product(RADII, CRITERIA)))
    for alpha in ALPHAS:
        met = {cell for sizes in itertools.product(CONTEXTS, FEATURES) for cell in shared_out(*sizes, alpha)}
        assert met == set(itertools.product(RADII, CRITERIA))
