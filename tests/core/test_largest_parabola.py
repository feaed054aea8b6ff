"""The least value of the largest of several parabolas, against an interior-point method and a certificate by hand."""

import numpy as np
import pytest

from counterpoise.core.largest_parabola import minimise_largest
from counterpoise.core.objective import ReferenceRisks, RobustObjective
from counterpoise.core.oracle.quadratic import QuadraticOracle
from counterpoise.core.solvers import InteriorPoint
from counterpoise.sets import KLBall


def parabolas(seed, n_contexts, size, apart=1.0):
    rng = np.random.default_rng(seed)
    roots = rng.standard_normal((n_contexts, 2 * size, size))
    hessians = np.einsum("cnd,cne->cde", roots, roots) / size
    own = apart * rng.standard_normal((n_contexts, size))
    gradients = -np.einsum("cde,ce->cd", hessians, own)
    values = rng.random(n_contexts) + 0.5 * np.einsum("cd,cde,ce->c", own, hessians, own)
    oracle = QuadraticOracle(np.zeros(size), values, gradients, hessians)
    mixes = KLBall(np.full(n_contexts, 1.0 / n_contexts), np.inf)
    return RobustObjective(oracle, mixes, ReferenceRisks.exactly(rng.random(n_contexts)))


def first(objective):
    return objective.worst_case(objective.oracle.at(objective.oracle.start())).distribution


@pytest.mark.parametrize("apart", [0.01, 1.0, 30.0])
@pytest.mark.parametrize(("n_contexts", "size"), [(1, 3), (2, 1), (3, 8), (16, 5), (40, 3)])
def test_the_optimum_is_that_of_the_interior_point_method_and_is_proven(n_contexts, size, apart):
    objective = parabolas(n_contexts, n_contexts, size, apart)
    scale = max(1.0, apart**2 * size)
    found = minimise_largest(objective, first(objective), 1e-10 * scale)
    assert found is not None
    theta, p = found
    assert (p >= 0).all()
    assert p.sum() == pytest.approx(1.0)
    value = objective.value(objective.oracle.at(theta))
    # The minimum under p, in closed form.
    hessian = np.einsum("c,cde->de", p, objective.oracle.hessians)
    gradient = p @ objective.oracle.gradients
    lower = p @ (objective.oracle.values - objective.references.upper)
    lower -= 0.5 * gradient @ np.linalg.solve(hessian, gradient)
    assert -1e-12 * scale <= value - lower <= 2e-10 * scale
    assert value == pytest.approx(InteriorPoint(tol=1e-10).solve(objective).value, abs=1e-7 * scale)


def test_contexts_that_were_active_elsewhere_are_let_go():
    objective = parabolas(3, 6, 4)
    expected = minimise_largest(objective, first(objective), 1e-10)
    found = minimise_largest(objective, np.full(6, 1.0 / 6.0), 1e-10)
    np.testing.assert_allclose(found[0], expected[0], atol=1e-4)
    np.testing.assert_allclose(found[1], expected[1], atol=1e-4)


def test_twins_give_up_rather_than_answer_wrongly():
    one = parabolas(0, 2, 3)
    oracle = one.oracle
    twice = QuadraticOracle(
        oracle.centre, np.tile(oracle.values, 2), np.tile(oracle.gradients, (2, 1)), np.tile(oracle.hessians, (2, 1, 1))
    )
    mixes = KLBall(np.full(4, 0.25), np.inf)
    objective = RobustObjective(twice, mixes, ReferenceRisks.exactly(np.tile(one.references.upper, 2)))
    found = minimise_largest(objective, np.full(4, 0.25), 1e-10)
    expected = minimise_largest(one, np.full(2, 0.5), 1e-10)
    if found is not None:
        assert objective.value(twice.at(found[0])) == pytest.approx(one.value(oracle.at(expected[0])), abs=1e-9)


@pytest.mark.parametrize("seed", range(30))
def test_more_contexts_than_equations_exchange_places(seed):
    # Contexts outnumber parameters, so that another one is largest while as many are active as can be balanced.
    objective = parabolas(seed, 60, 2)
    theta, p = minimise_largest(objective, np.full(60, 1.0 / 60.0), 1e-10)
    assert np.count_nonzero(p) <= 3
    assert objective.value(objective.oracle.at(theta)) == pytest.approx(
        InteriorPoint(tol=1e-10).solve(objective).value, abs=1e-7
    )
