"""Beyond the paper: coverage of the radii, and how fast the algorithms are."""

import numpy as np
import pytest
from scipy.special import rel_entr

from counterpoise.experiments import beyond
from counterpoise.experiments.results import Results

N_DRAWS = 60_000
PROBLEMS = {
    "stock-control": (np.array([0.7] + [0.3 / 9.0] * 9), 400),
    "classification": (np.array([0.8, 0.1, 0.1]), 1000),
    "coloured-mnist": (np.array([0.6, 0.1, 0.1, 0.1, 0.1]), 900),
}


@pytest.fixture(scope="module")
def coverage():
    return Results(tuple(beyond.coverage(0, N_DRAWS)))


@pytest.fixture(scope="module")
def convergence():
    return Results(tuple(beyond.convergence(0, 500)))


def value(results, problem, method, metric):
    (found,) = results.series(f"coverage-{problem}", method, metric)
    return found


def test_the_figures_of_stock_control(coverage):
    assert value(coverage, "stock-control", "types", "radius@0.99") == pytest.approx(0.233, abs=5e-4)
    assert value(coverage, "stock-control", "exact", "radius@0.99") == pytest.approx(0.040, abs=1e-3)
    assert value(coverage, "stock-control", "agrawal", "radius@0.99") == pytest.approx(0.077, abs=5e-4)


@pytest.mark.parametrize("problem", PROBLEMS)
@pytest.mark.parametrize("confidence", [0.5, 0.9, 0.99])
def test_radii_follow_their_formulas(coverage, problem, confidence):
    p, n = PROBLEMS[problem]
    types = (len(p) * np.log2(n + 1) - np.log2(1.0 - confidence)) / n
    assert value(coverage, problem, "types", f"radius@{confidence:g}") == pytest.approx(types, rel=1e-12)
    x, k = value(coverage, problem, "agrawal", f"radius@{confidence:g}") * n * np.log(2.0), len(p) - 1
    assert x > k
    assert np.exp(-x) * (np.e * x / k) ** k == pytest.approx(1.0 - confidence, rel=1e-8)


@pytest.mark.parametrize("problem", PROBLEMS)
def test_quantiles_are_those_of_another_simulation(coverage, problem):
    p, n = PROBLEMS[problem]
    shares = np.random.default_rng(99).multinomial(n, p, size=N_DRAWS) / n
    divergence = rel_entr(shares, p).sum(axis=1) / np.log(2.0)
    for confidence, room in ((0.5, 0.02), (0.9, 0.02), (0.99, 0.05)):
        ours = value(coverage, problem, "exact", f"radius@{confidence:g}")
        assert ours == pytest.approx(np.quantile(divergence, confidence), rel=room)
        for method in ("types", "agrawal", "chi2"):
            covered = np.mean(divergence <= value(coverage, problem, method, f"radius@{confidence:g}"))
            error = np.sqrt(covered * (1 - covered) / N_DRAWS) + 1.0 / N_DRAWS
            found = value(coverage, problem, method, f"coverage@{confidence:g}")
            assert abs(found - covered) < 5.0 * error


@pytest.mark.parametrize("problem", PROBLEMS)
def test_the_paper_s_radius_always_covers_and_sharper_ones_as_promised(coverage, problem):
    for confidence in (0.5, 0.9, 0.99):
        assert value(coverage, problem, "types", f"coverage@{confidence:g}") == 1.0
        agrawal = value(coverage, problem, "agrawal", f"coverage@{confidence:g}")
        assert agrawal >= confidence
        # In the limit only.
        chi2 = value(coverage, problem, "chi2", f"coverage@{confidence:g}")
        assert chi2 == pytest.approx(confidence, abs=0.03)
        sizes = [value(coverage, problem, method, f"radius@{confidence:g}") for method in ("types", "agrawal", "exact")]
        assert sizes == sorted(sizes, reverse=True)


def test_coverage_is_seeded():
    first, again, other = (beyond.coverage(seed, 500) for seed in (1, 1, 2))
    assert first == again
    assert first != other


def test_the_interior_point_method_is_done_within_twenty_iterations(convergence):
    left = convergence.series("convergence", "interior-point", "suboptimality")
    steps = convergence.runs("convergence", "interior-point", "suboptimality")
    assert left[steps <= 20].min() < 1e-9
    assert steps[np.argmax(left < 1e-9)] <= 20
    assert np.all(left > 0.0)


def test_algorithm_1_gets_ever_nearer_and_is_not_there_after_hundreds_of_steps(convergence):
    left = convergence.series("convergence", "algorithm-1", "suboptimality")
    steps = convergence.runs("convergence", "algorithm-1", "suboptimality")
    assert steps[-1] == 500
    assert np.all(np.diff(left) < 0.0)
    assert left[0] > 0.1
    assert 1e-9 < left[-1] < 1e-3
