"""The decision problem in full generality."""

import doctest

import numpy as np
import pytest
from scipy import optimize

import counterpoise as cpo
import counterpoise.core.minimization
from counterpoise.core.solvers import GradientDescent, InteriorPoint, Status, TwoTimeScale
from counterpoise.exceptions import InvalidInputError, NotCertifiedWarning

RNG = np.random.default_rng(0)
BASES = RNG.standard_normal((4, 3, 3))
CURVATURES = np.einsum("cij,ckj->cik", BASES, BASES) + 0.2 * np.eye(3)
CENTRES = RNG.standard_normal((4, 3))
COUNTS = np.array([60, 20, 10, 10])


def risks(theta):
    return 0.5 * np.einsum("ci,cij,cj->c", theta - CENTRES, CURVATURES, theta - CENTRES)


def jac(theta):
    return np.einsum("cij,cj->ci", CURVATURES, theta - CENTRES)


def hess(theta):
    return CURVATURES


def stock(theta, samples, price=10.0):
    return np.array([np.mean(theta * x - price * np.minimum(theta, y)) for x, y in samples])


@pytest.fixture(scope="module")
def weather():
    """The two-context illustration of stock control."""
    rng = np.random.default_rng(1)
    samples = []
    for lift in (15.0, 25.0):
        cost = np.exp(np.log(5.0) + 0.25 * rng.standard_normal(20_000))
        samples.append((cost, cost + lift + 2.0 * rng.standard_normal(20_000)))
    return samples


@pytest.mark.parametrize(("confidence", "level"), [(0.9, 23.1), (0.99, 25.0), (1.0, 25.0)], ids=["90%", "99%", "100%"])
def test_the_paper_s_two_context_stock_levels(weather, confidence, level):
    solution = cpo.minimize(
        lambda t: stock(t, weather), 20.0, counts=[19, 1], confidence=confidence, bounds=[(0, 100)], convex=True
    )
    assert solution.success
    assert solution.theta[0] == pytest.approx(level, abs=0.15)
    assert solution.certificate.scope == "global"
    assert solution.certificate.relative_gap < 1e-9


def test_the_two_switches_give_erm_and_minimax_risk(weather):
    erm = cpo.minimize(lambda t: stock(t, weather), 20.0, counts=[19, 1], radius=0, bounds=[(0, 100)])
    wald = cpo.minimize(
        lambda t: stock(t, weather), 20.0, counts=[19, 1], confidence=1, reference_risks=0, bounds=[(0, 100)]
    )
    assert erm.theta[0] == pytest.approx(20.2, abs=0.1)
    assert wald.theta[0] == pytest.approx(20.0, abs=0.1)
    assert wald.value == pytest.approx(stock(wald.theta, weather).max())


@pytest.mark.parametrize("derivatives", [{}, {"jac": jac}, {"jac": jac, "hess": hess}], ids=["none", "jac", "hess"])
@pytest.mark.parametrize("confidence", [0.0, 0.9, 1.0])
def test_derivatives_change_the_proof_but_not_the_answer(derivatives, confidence):
    solution = cpo.minimize(risks, np.zeros(3), counts=COUNTS, confidence=confidence, tol=1e-8, **derivatives)
    exact = cpo.minimize(risks, np.zeros(3), counts=COUNTS, confidence=confidence, jac=jac, hess=hess, tol=1e-10)
    assert solution.success
    assert solution.value == pytest.approx(exact.value, rel=1e-6)
    assert solution.theta == pytest.approx(exact.theta, abs=1e-3)
    assert solution.certificate.scope == ("global" if "hess" in derivatives else "local")


def test_the_references_are_the_least_risks():
    solution = cpo.minimize(risks, np.zeros(3), counts=COUNTS, jac=jac, hess=hess)
    assert solution.risks == pytest.approx(solution.scores, abs=1e-7)
    given = cpo.minimize(risks, np.zeros(3), counts=COUNTS, jac=jac, hess=hess, reference_risks=np.zeros(4))
    assert given.theta == pytest.approx(solution.theta, abs=1e-4)


def test_bounds_are_respected_and_priced():
    box = [(-0.2, 0.2), (None, 0.1), (0.0, None)]
    solution = cpo.minimize(
        risks, np.zeros(3), counts=COUNTS, jac=jac, hess=hess, bounds=box, reference_risks=0, tol=1e-9
    )

    def worst(theta):
        return cpo.KLBall(COUNTS / COUNTS.sum(), cpo.confidence_radius(COUNTS)).worst_case(risks(theta)).value

    referee = optimize.minimize(worst, np.zeros(3), bounds=box, method="L-BFGS-B", options={"ftol": 1e-15})
    assert solution.success
    assert solution.value <= referee.fun + 1e-8
    assert solution.certificate.lower <= referee.fun + 1e-10
    assert -0.2 <= solution.theta[0] <= 0.2
    assert solution.theta[1] <= 0.1
    assert solution.theta[2] >= 0.0


def test_scipy_bounds_are_understood():
    pairs = cpo.minimize(risks, np.zeros(3), counts=COUNTS, jac=jac, hess=hess, bounds=[(-0.5, 0.5)] * 3)
    native = cpo.minimize(risks, np.zeros(3), counts=COUNTS, jac=jac, hess=hess, bounds=optimize.Bounds(-0.5, 0.5))
    assert np.array_equal(pairs.theta, native.theta)


def wavy(theta):
    return np.array(
        [
            np.sin(3 * theta[0]) + 0.1 * (theta[0] - 1) ** 2 + theta[1] ** 2,
            np.cos(2 * theta[0]) + 0.1 * (theta[0] + 1) ** 2 + (theta[1] - 1) ** 2,
        ]
    )


def wavy_hess(theta):
    return np.array(
        [
            [[-9 * np.sin(3 * theta[0]) + 0.2, 0.0], [0.0, 2.0]],
            [[-4 * np.cos(2 * theta[0]) + 0.2, 0.0], [0.0, 2.0]],
        ]
    )


@pytest.mark.parametrize("start", [(-2.0, 0.0), (0.5, 0.5), (3.0, 1.0)])
def test_risks_that_are_not_convex_get_a_local_answer_that_says_so(start):
    references = np.array([-1.2, -1.2])
    kwargs = {"counts": [30, 10], "reference_risks": references, "hess": wavy_hess}
    solution = cpo.minimize(wavy, np.array(start), **kwargs)
    assert solution.certificate.scope == "local"
    ball = cpo.KLBall([0.75, 0.25], cpo.confidence_radius([30, 10]))
    axis = np.linspace(-0.05, 0.05, 21)
    around = solution.theta + np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    nearby = ball.worst_case(np.array([wavy(theta) for theta in around]) - references).value
    assert nearby.min() >= solution.value - 1e-7


def test_a_declared_context_without_samples_counts_when_its_risk_is_given():
    solution = cpo.minimize(
        lambda t: np.array([(t[0] - 1) ** 2, (t[0] - 2) ** 2, (t[0] - 9) ** 2]), 0.0, counts=[50, 30, 0], radius=0.5
    )
    assert solution.success
    assert 0 < solution.p_worst[2] <= 1 - 2**-0.5 + 1e-9


def test_any_solver_can_be_chosen():
    solution = cpo.minimize(
        risks, np.zeros(3), counts=COUNTS, jac=jac, hess=hess, solver=TwoTimeScale(step_size=0.02, tol=1e-4)
    )
    exact = cpo.minimize(risks, np.zeros(3), counts=COUNTS, jac=jac, hess=hess)
    assert solution.value == pytest.approx(exact.value, rel=1e-3)


def test_an_error_inside_the_caller_s_function_comes_through_as_it_is():
    def broken(theta):
        raise KeyError("demand")

    with pytest.raises(KeyError, match="demand"):
        cpo.minimize(broken, 0.0, counts=[1, 1])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"counts": [1, -1, 1, 1]}, "counts"),
        ({"counts": [0, 0, 0, 0]}, "zero"),
        ({"counts": [1, 2]}, "shape"),
        ({"confidence": 1.5}, r"\[0, 1\]"),
        ({"confidence": np.nan}, "confidence"),
        ({"radius": -1.0}, "radius"),
        ({"radius": "size"}, "types"),
        ({"theta0": [[0.0]]}, "theta0"),
        ({"theta0": "here"}, "theta0"),
        ({"bounds": [(0, 1)]}, "bounds"),
        ({"bounds": [(1, 0)] * 3}, "bounds"),
        ({"jac": lambda t: np.zeros((4, 2))}, "jac"),
        ({"hess": lambda t: np.zeros((4, 3))}, "hess"),
        ({"risks": lambda t: np.full(4, np.nan)}, "NaN"),
        ({"risks": lambda t: np.full(4, np.inf)}, "finite"),
        ({"risks": 3}, "function"),
        ({"reference_risks": [0.0, 1.0]}, "reference_risks"),
    ],
)
def test_bad_input_is_named(change, message):
    arguments = {"risks": risks, "theta0": np.zeros(3), "counts": COUNTS, "jac": jac, "hess": hess} | change
    with pytest.raises(InvalidInputError, match=message):
        cpo.minimize(arguments.pop("risks"), arguments.pop("theta0"), **arguments)


def test_not_reaching_the_tolerance_warns_with_the_gap():
    with pytest.warns(NotCertifiedWarning, match="Gap"):
        solution = cpo.minimize(risks, np.zeros(3), counts=COUNTS, jac=jac, hess=hess, max_iter=1, tol=1e-12)
    assert not solution.success


def test_the_examples_in_the_documentation_run():
    assert doctest.testmod(counterpoise.core.minimization).failed == 0


@pytest.mark.parametrize("start", [0.3, 1.0, 2.0, 3.0])
@pytest.mark.filterwarnings("ignore::counterpoise.exceptions.NotCertifiedWarning")
def test_hessians_of_one_parameter_are_looked_at_before_a_bound_is_called_global(start):
    def risks(theta):
        return np.array([np.cos(3 * theta[0]) + 0.1 * theta[0] ** 2, np.sin(2 * theta[0])])

    def hess(theta):
        return np.array([[[-9 * np.cos(3 * theta[0]) + 0.2]], [[-4 * np.sin(2 * theta[0])]]])

    for given in ({"reference_risks": [0.0, -1.0]}, {"bounds": [(-5, 5)]}):
        assert cpo.minimize(risks, start, counts=[30, 10], hess=hess, **given).certificate.scope == "local"


def test_a_function_may_return_the_same_array_every_time():
    answer = np.empty(2)

    def risks(theta):
        answer[:] = (theta[0] - 1.0) ** 2 + 1.0, (theta[0] + 2.0) ** 2
        return answer

    reused = cpo.minimize(risks, 0.0, counts=[30, 10], convex=True)
    fresh = cpo.minimize(lambda theta: risks(theta).copy(), 0.0, counts=[30, 10], convex=True)
    assert reused.theta == fresh.theta
    assert reused.certificate == fresh.certificate


def test_complex_risks_are_refused():
    with pytest.raises(InvalidInputError, match="must return numbers"):
        cpo.minimize(lambda theta: np.array([theta[0] ** 2 + 1j, 1.0]), 0.0, counts=[3, 1])


def test_a_set_takes_the_place_of_counts_and_confidence():
    usual = cpo.minimize(risks, np.zeros(3), counts=COUNTS, jac=jac, hess=hess)
    ball = cpo.KLBall(COUNTS / COUNTS.sum(), cpo.confidence_radius(COUNTS))
    same = cpo.minimize(risks, np.zeros(3), mix=ball, jac=jac, hess=hess)
    np.testing.assert_array_equal(same.theta, usual.theta)
    assert same.certificate == usual.certificate


@pytest.mark.parametrize("radius", [0.0, 0.1, 1.0, np.inf])
def test_any_set_will_do(radius):
    ball = cpo.Chi2Ball(COUNTS / COUNTS.sum(), radius)
    solution = cpo.minimize(risks, np.zeros(3), mix=ball, jac=jac, hess=hess)
    assert solution.success
    assert solution.certificate.scope == "global"
    assert ball.contains(solution.p_worst)
    assert solution.value == pytest.approx(ball.worst_case(solution.scores).value)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "pass either counts or mix, got neither"),
        ({"counts": COUNTS, "mix": cpo.KLBall(COUNTS / COUNTS.sum(), 0.1)}, "pass either counts or mix, got both"),
        ({"mix": 0.1}, r"mix is 0.1; pass a set of mixes such as KLBall"),
        ({"mix": cpo.KLBall([0.5, 0.5], 0.1)}, r"risks"),
    ],
)
def test_counts_and_mix_exclude_each_other(given, message):
    with pytest.raises(InvalidInputError, match=message):
        cpo.minimize(risks, np.zeros(3), jac=jac, hess=hess, **given)


def test_a_solver_of_ones_own_that_certifies_is_warned_about_once():
    with pytest.warns(NotCertifiedWarning, match="asked for 1e-12") as caught:
        cpo.minimize(risks, np.zeros(3), counts=COUNTS, jac=jac, hess=hess, solver=InteriorPoint(tol=1e-12, max_iter=1))
    assert len(caught) == 1
    assert caught[0].filename == __file__
    plain = GradientDescent(max_iter=1)
    assert not cpo.minimize(risks, np.zeros(3), counts=COUNTS, jac=jac, hess=hess, solver=plain).success


@pytest.mark.parametrize("derivatives", [{"jac": jac}, {"jac": jac, "hess": hess}], ids=["jac", "hess"])
def test_criterion_risk_is_references_of_zero(derivatives):
    found = cpo.minimize(risks, np.zeros(3), counts=COUNTS, criterion="risk", **derivatives)
    usual = cpo.minimize(risks, np.zeros(3), counts=COUNTS, reference_risks=0, **derivatives)
    np.testing.assert_array_equal(found.theta, usual.theta)
    np.testing.assert_array_equal(found.scores, found.risks)
    assert found.certificate == usual.certificate


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"criterion": "loss"}, "criterion is 'loss'; choose 'excess' or 'risk'"),
        ({"criterion": "risk", "reference_risks": 0.0}, "reference_risks are for criterion='excess'"),
    ],
)
def test_criteria_that_cannot_be_meant_are_refused(given, words):
    with pytest.raises(InvalidInputError, match=words):
        cpo.minimize(risks, np.zeros(3), counts=COUNTS, **given)


@pytest.mark.parametrize("bounds", [None, [(-10, 10), (-10, None), (None, None)]])
@pytest.mark.parametrize("criterion", ["excess", "risk"])
def test_convex_risks_without_hessians_or_bounds_say_what_a_proof_lacks(criterion, bounds):
    calls = []

    def counted(theta):
        calls.append(theta)
        return risks(theta)

    problem = {"counts": COUNTS, "jac": jac, "criterion": criterion}
    with pytest.warns(NotCertifiedWarning, match=r"convex=True alone.*hess=, or bounds=") as caught:
        found = cpo.minimize(counted, np.zeros(3), convex=True, bounds=bounds, **problem)
    assert len(caught) == 1
    assert found.status is Status.UNPROVED
    assert not found.success
    exact = cpo.minimize(risks, np.zeros(3), hess=hess, **problem)
    assert found.certificate.scope == "local"
    assert found.certificate.relative_gap <= 1e-6
    np.testing.assert_allclose(found.theta, exact.theta, atol=1e-3)
    # Convex risks have no saddle to be driven off, and what cannot be proved is not waited for.
    assert len(calls) < 150


@pytest.mark.parametrize("more", [{"hess": hess}, {"bounds": [(-10, 10)] * 3}], ids=["hess", "bounds"])
def test_convex_risks_with_either_are_proved(more):
    found = cpo.minimize(risks, np.zeros(3), counts=COUNTS, jac=jac, convex=True, **more)
    assert found.success
    assert found.certificate.scope == "global"
    assert found.certificate.relative_gap <= 1e-6
