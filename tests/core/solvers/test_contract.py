"""What every solver promises, whatever its method. A new solver is tested by being exported."""

from functools import cache

import numpy as np
import pytest

import counterpoise.core.solvers as solvers
from counterpoise.contexts import encode
from counterpoise.core.objective import ReferenceRisks, RobustObjective
from counterpoise.core.oracle import LinearOracle
from counterpoise.core.oracle.callables import CallableOracle
from counterpoise.core.oracle.kinked import KinkedOracle
from counterpoise.core.oracle.scalar import ScalarOracle
from counterpoise.core.references import reference_risks
from counterpoise.core.solvers._base import not_certified
from counterpoise.exceptions import InvalidInputError
from counterpoise.losses import Logistic, Pinball
from counterpoise.sets import Chi2Ball, KLBall, Marginal, ShareBounds, ShareLimits, TotalVariationBall
from tests.problems import make
from tests.test_documentation import ROOT, run_blocks

SMOOTH = ("InteriorPoint", "ModelNewton", "NewtonCG", "TruncatedNewton", "GradientDescent", "TwoTimeScale")

CAPPED = run_blocks(ROOT / "docs" / "extending" / "set.md")["Capped"]

SETS = {
    "KLBall": KLBall,
    "Chi2Ball": Chi2Ball,
    "Capped": lambda p_hat, radius: CAPPED(p_hat, 1.0 + radius),
    "TotalVariationBall": TotalVariationBall,
    "ShareBounds": lambda p_hat, radius: ShareBounds(p_hat * 2.0**-radius, np.minimum(p_hat * 2.0**radius, 1.0)),
    "one limit": lambda p_hat, radius: (
        KLBall(p_hat, radius) & ShareLimits([np.arange(len(p_hat)) < 1], [p_hat[0] + 0.1 * radius])
    ),
    "a fixed share": lambda p_hat, radius: (
        Chi2Ball(p_hat, radius)
        & ShareBounds(p_hat * (np.arange(len(p_hat)) == 1), np.where(p_hat == p_hat[1], p_hat, 1))
    ),
    "everything": lambda p_hat, radius: (
        KLBall(p_hat, radius)
        & ShareBounds(0.5 * p_hat, np.minimum(1.5 * p_hat, 1.0))
        & Marginal(TotalVariationBall([p_hat[0], 1.0 - p_hat[0]], radius), np.minimum(np.arange(len(p_hat)), 1))
    ),
}
"""How sets are made from a centre and a radius, of which 0 is the centre alone."""


def every_solver():
    classes = [getattr(solvers, name) for name in solvers.__all__]
    return [c for c in classes if isinstance(c, type) and issubclass(c, solvers.Solver) and c is not solvers.Solver]


def sets_and_solvers():
    """Return every solver with a KL ball, and those that certify with every other set too."""
    return [(one, ball) for one in every_solver() for ball in SETS if ball == "KLBall" or one.certifies]


def problem_for(name, ball="KLBall", tol=1e-11):
    """Return a small problem of the shape a solver needs."""
    make_set = SETS[ball]
    if name == "GoldenSection":
        oracle = CallableOracle(lambda t: np.array([abs(t[0] - 1), (t[0] - 3) ** 2]), np.zeros(1), 2, convex=True)
        return RobustObjective(oracle, make_set(np.array([0.8, 0.2]), 0.5), ReferenceRisks.exactly(np.zeros(2)))
    loss = Pinball(0.4) if name in ("PolyhedralInteriorPoint", "ScalarSearch") else Logistic()
    n_features, intercept = (1, False) if name == "ScalarSearch" else (3, True)
    X, y, codes = make(loss, 4, n_features, seed=3)
    alpha = 0.0 if name == "ScalarSearch" else 1e-2
    linear = LinearOracle.from_rows(X, y, encode(codes), loss, alpha=alpha, fit_intercept=intercept)
    references = reference_risks(linear, tol)
    wrap = {"PolyhedralInteriorPoint": KinkedOracle.of, "ScalarSearch": ScalarOracle.of}.get(name, lambda o: o)
    radius = {"Newton": 0.0, "GroupDRO": np.inf}.get(name, 0.2)
    return RobustObjective(wrap(linear), make_set(np.bincount(codes) / len(codes), radius), references)


@cache
def solved(name, ball):
    """Return a small problem of the shape a solver needs, and what it finds."""
    problem = problem_for(name, ball)
    return problem, getattr(solvers, name)(tol=1e-7).solve(problem)


@cache
def closely(ball):
    """Return the solution, to ten digits, of the problem of all methods for smooth ones."""
    return solvers.InteriorPoint(tol=1e-10).solve(problem_for("InteriorPoint", ball))


@pytest.mark.parametrize(("solver", "ball"), sets_and_solvers())
def test_a_solution_is_consistent_and_bracketed(solver, ball):
    problem, solution = solved(solver.__name__, ball)
    point = problem.oracle.at(solution.theta)
    assert solution.value == pytest.approx(problem.worst_case(point).value, rel=1e-10)
    assert solution.certificate.lower <= solution.certificate.upper
    assert solution.value <= solution.certificate.upper + 1e-12
    assert problem.mixes.contains(solution.p_worst)
    assert solution.scores == pytest.approx(solution.risks - problem.references.upper)
    assert isinstance(solution.status.value, str)
    assert solution.success == (solution.certificate.gap <= 1e-7 * solution.certificate.scale)
    if solver.certifies:
        assert solution.success


@pytest.mark.parametrize("solver", every_solver(), ids=lambda c: c.__name__)
def test_two_runs_give_the_same_numbers(solver):
    first, second = (
        solver(tol=1e-6, max_iter=min(solver.max_iter, 2000)).solve(problem_for(solver.__name__)) for _ in range(2)
    )
    assert np.array_equal(first.theta, second.theta)
    assert first.certificate == second.certificate


def smooth_methods_and_sets():
    """Return methods for one problem with every set; plain methods of many steps with the quick ones."""
    quick = ("KLBall", "Chi2Ball", "Capped", "ShareBounds")
    return [(name, ball) for name in SMOOTH for ball in SETS if getattr(solvers, name).certifies or ball in quick]


@pytest.mark.parametrize(("name", "ball"), smooth_methods_and_sets())
def test_methods_for_the_same_problem_agree(name, ball):
    reference, (_, solution) = closely(ball), solved(name, ball)
    assert solution.certificate.lower <= reference.certificate.upper + 1e-12
    assert solution.certificate.upper >= reference.certificate.lower - 1e-12
    assert solution.value == pytest.approx(reference.value, rel=1e-3)


@pytest.mark.parametrize("solver", every_solver(), ids=lambda c: c.__name__)
def test_running_out_of_iterations_is_a_status_with_the_gap(solver):
    problem = problem_for(solver.__name__)
    # Warnings are errors here: a solver gives none, the public function that asked it does.
    solution = solver(tol=1e-13, max_iter=0).solve(problem)
    assert not solution.success
    assert solution.certificate.gap > 0
    assert solution.status is (solvers.Status.ITERATION_LIMIT if solver.certifies else solvers.Status.FINISHED)
    words = not_certified(solution.status, solution.certificate, 1e-13)
    assert "Gap" in words
    assert ("max_iter" in words) == solver.certifies


def test_the_callback_sees_a_shrinking_gap():
    seen = []
    solvers.InteriorPoint(tol=1e-9, callback=seen.append).solve(problem_for("InteriorPoint"))
    gaps = [progress.certificate.gap for progress in seen]
    assert [progress.n_iter for progress in seen] == list(range(len(seen)))
    assert gaps == sorted(gaps, reverse=True)
    assert gaps[-1] < 1e-8


def test_group_dro_names_the_set_it_cannot_use():
    with pytest.raises(InvalidInputError, match="simplex"):
        solvers.GroupDRO().solve(problem_for("InteriorPoint"))


def test_the_average_iterate_of_group_dro_is_calmer_than_the_last():
    problem = problem_for("GroupDRO")
    exact = solvers.InteriorPoint(tol=1e-10).solve(problem).value
    mean = solvers.GroupDRO(average=True, max_iter=5000, tol=0.0).solve(problem)
    assert mean.value == pytest.approx(exact, rel=2e-2)
    assert mean.value >= exact - 1e-9


@pytest.mark.parametrize(
    ("solver", "problem", "fact"),
    [
        ("ScalarSearch", "InteriorPoint", "kinks"),
        ("PolyhedralInteriorPoint", "InteriorPoint", "row_duals"),
        ("InteriorPoint", "ScalarSearch", "hessian"),
        ("ModelNewton", "PolyhedralInteriorPoint", "hessian"),
        ("NewtonCG", "PolyhedralInteriorPoint", "hessian_product"),
        ("Newton", "ScalarSearch", "hessian"),
    ],
)
def test_what_a_solver_lacks_is_named_before_it_runs(solver, problem, fact):
    objective = problem_for(problem)
    offers = type(objective.oracle).__name__
    with pytest.raises(InvalidInputError, match=rf"{solver} is for .*it needs '{fact}', which {offers} does not offer"):
        getattr(solvers, solver)().solve(objective)


def test_a_thrifty_solver_needs_points_that_know_what_is_left_of_a_hessian():
    oracle = CallableOracle(lambda t: np.array([t @ t, (t - 1) @ (t - 1)]), np.zeros(2), 2, convex=True)
    objective = RobustObjective(oracle, KLBall([0.5, 0.5], 0.1), ReferenceRisks.exactly(np.zeros(2)))
    with pytest.raises(InvalidInputError, match="curvature_share"):
        solvers.ModelNewton(thrifty=True).solve(objective)
