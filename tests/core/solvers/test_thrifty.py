"""A Hessian that is kept from look to look: every bound on the way is one."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import counterpoise as cpo
from counterpoise.core.objective import RobustObjective
from counterpoise.core.problem import LinearProblem
from counterpoise.core.solvers import InteriorPoint, ModelNewton
from counterpoise.losses import Logistic, Poisson, Squared

LOSSES = {"logistic": Logistic(), "poisson": Poisson(), "squared": Squared()}


def objective_of(name, n_contexts, radius, seed):
    rng = np.random.default_rng(seed)
    n = 60 * n_contexts
    X, contexts = rng.standard_normal((n, 4)), np.arange(n) % n_contexts
    z = 0.7 * np.einsum("nd,nd->n", X, rng.standard_normal((n_contexts, 4))[contexts])
    y = {
        "logistic": (rng.random(n) < 1 / (1 + np.exp(-2 * z))).astype(float),
        "poisson": rng.poisson(np.exp(np.clip(z, -4.0, 2.0))).astype(float),
        "squared": z + rng.standard_normal(n),
    }[name]
    problem = LinearProblem.from_data(X, y, contexts, LOSSES[name], alpha=1e-3)
    references = problem.references("in-sample", 1e-9)
    return RobustObjective(problem.oracle, cpo.KLBall(problem.counts / problem.counts.sum(), radius), references)


@pytest.mark.parametrize("name", LOSSES)
@settings(max_examples=15, deadline=None)
@given(
    n_contexts=st.sampled_from([2, 3, 7, 60]),
    radius=st.sampled_from([1e-3, 0.05, 1.0, 10.0]),
    seed=st.integers(0, 2**32 - 1),
    far=st.sampled_from([0.0, 0.3]),
)
def test_no_bound_on_the_way_is_above_the_optimum(name, n_contexts, radius, seed, far):
    objective = objective_of(name, n_contexts, radius, seed)
    known = [solver.solve(objective).certificate for solver in (InteriorPoint(tol=1e-8), ModelNewton(tol=1e-8))]
    best_upper, best_lower = min(c.upper for c in known), max(c.lower for c in known)
    seen = []
    rng = np.random.default_rng(seed)
    start = objective.oracle.start() + far * rng.standard_normal(objective.oracle.n_parameters)
    solver = ModelNewton(tol=1e-8, thrifty=True, callback=lambda progress: seen.append(progress.certificate))
    solution = solver.solve(objective, start)
    assert solution.success
    slack = 1e-12 * known[0].scale
    for certificate in seen:
        assert certificate.lower <= best_upper + slack
        assert certificate.upper >= best_lower - slack


def test_fewer_hessians_are_formed():
    objective = objective_of("logistic", 5, 0.05, 1)
    near = InteriorPoint(tol=1e-2).solve(objective).theta
    formed = {}
    for thrifty in (False, True):
        made = []
        point_type = type(objective.oracle.at(near))
        real = point_type.hessian
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(point_type, "hessian", lambda self, p, real=real, made=made: made.append(1) or real(self, p))
            assert ModelNewton(tol=1e-9, thrifty=thrifty).solve(objective, near).success
        formed[thrifty] = len(made)
    assert formed[True] < formed[False]
