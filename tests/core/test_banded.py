"""Rows near their hinges stand for all: their problem lies below, and what it proves holds of all rows."""

from dataclasses import replace

import numpy as np
import pytest

from counterpoise.contexts import Contexts
from counterpoise.core import banded
from counterpoise.core.fit import Robustness, fit_problem
from counterpoise.core.objective import ReferenceRisks
from counterpoise.core.oracle import LinearOracle
from counterpoise.core.problem import LinearProblem
from counterpoise.losses import Huber, Pinball
from counterpoise.rows import BlockRows
from tests.problems import make, minimise, oracle_of
from tests.referees import robust
from tests.rows.test_blocks import cut

LOSSES = [Pinball(0.3), Pinball(0.5), Pinball(0.9)]
every_loss = pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: f"{loss.quantile}")


def rows(loss, seed=0, sizes=(400, 700)):
    return make(loss, 3, 2, seed, sizes)


def in_blocks(loss, X, y, codes, alpha=1e-3, n_blocks=3):
    blocks, counts = cut(loss, X, y, codes, n_blocks, 0), np.bincount(codes)
    problem = LinearProblem(
        LinearOracle(BlockRows(blocks, loss, len(counts), X.shape[1]), alpha),
        Contexts.counted(np.arange(len(counts)), counts),
        counts.astype(float),
    )
    return problem, blocks


@pytest.fixture
def few(monkeypatch):
    """Let a part of the rows come into memory, however few there are."""
    monkeypatch.setattr(banded, "_PER_ROOT", 2.0)


# --- the smaller problem ------------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", [*LOSSES, Huber(0.8)], ids=lambda loss: f"{loss.name}")
@pytest.mark.parametrize("width", [0.0, 0.3, np.inf])
def test_its_risks_are_nowhere_above_and_the_same_where_it_was_made(loss, width):
    X, y, codes = rows(loss)
    whole, (problem, _), rng = oracle_of(loss, X, y, codes), in_blocks(loss, X, y, codes, 0.0), np.random.default_rng(3)
    everyone = np.arange(3)
    for theta in (rng.normal(size=3), rng.normal(size=(3, 3))):
        bands = banded.Bands(problem.oracle)
        bands.width[:], bands.share[:] = width, 1.0
        bands.look(theta, everyone)
        some = bands.reduced(everyone)
        assert some.is_whole.all()
        assert some.oracle.rows.n_rows < len(y) or width == np.inf
        true, mine = (rows.at(theta).values for rows in (whole.rows, some.oracle.rows))
        np.testing.assert_allclose(bands.answer.values, true, rtol=1e-12)
        if loss.softness == 0.0:
            np.testing.assert_allclose(mine, true, rtol=1e-12)
        for other in theta + rng.normal(size=(20, *theta.shape)):
            assert (some.oracle.rows.at(other).values <= whole.rows.at(other).values * (1.0 + 1e-12)).all()


def test_the_sums_of_a_look_are_known_afterwards():
    X, y, codes = rows(LOSSES[0])
    whole, (problem, blocks) = oracle_of(LOSSES[0], X, y, codes), in_blocks(LOSSES[0], X, y, codes)
    bands, theta = banded.Bands(problem.oracle), np.array([0.3, -0.2, 0.1])
    bands.look(theta, np.arange(3))
    before = blocks.n_passes
    found, expected = problem.oracle.rows.at(theta), whole.rows.at(theta)
    for name in ("values", "gradients", "sizes"):
        np.testing.assert_allclose(getattr(found, name), getattr(expected, name), rtol=1e-12, atol=1e-13)
    assert blocks.n_passes == before


def test_rows_that_are_drawn_stand_for_all_that_are_near():
    X, y, codes = rows(LOSSES[0])
    problem, _ = in_blocks(LOSSES[0], X, y, codes)
    bands = banded.Bands(problem.oracle)
    bands.width[:], bands.share[:] = 1.0, 0.2
    bands.look(np.zeros(3), np.arange(3))
    some = bands.reduced(np.array([0, 2]))
    assert not some.is_whole.any()
    assert (some.noise > 0.0).all()
    np.testing.assert_allclose(np.add.reduceat(some.oracle.rows.weight, some.oracle.rows.starts[:-1]), 1.0)
    assert some.oracle.rows.n_rows < 0.4 * len(y)


# --- what it proves -----------------------------------------------------------------------------------------


@every_loss
@pytest.mark.parametrize("seed", range(2))
def test_references_are_the_minima_of_linear_programs(loss, seed, few):
    X, y, codes = rows(loss, seed)
    problem, blocks = in_blocks(loss, X, y, codes, alpha=0.0)
    assert banded.suits(problem.oracle)
    found = problem.references("in-sample", 1e-6)
    for c in range(3):
        mine = codes == c
        least, _ = minimise(loss, X[mine], y[mine], np.full(mine.sum(), 1.0 / mine.sum()))
        assert found.lower[c] <= least + 1e-9
        assert found.upper[c] >= least - 1e-9
        assert found.upper[c] - found.lower[c] <= 1e-7
    assert blocks.n_passes < 16


@every_loss
@pytest.mark.parametrize("radius", [0.0, 0.05, np.inf])
def test_a_fit_agrees_with_a_conic_solver(loss, radius, few):
    X, y, codes = make(loss, 3, 2, 5, (60, 90))
    problem, _ = in_blocks(loss, X, y, codes, alpha=1e-2)
    assert banded._room(problem.oracle.rows.sizes, 3).sum() < 0.5 * len(y)
    fit = fit_problem(problem, Robustness(radius=radius).mixes(problem.counts), problem.references("in-sample", 1e-8))
    referee = robust.solve("pinball", X, y, codes, radius, "excess", 1e-2, True, quantile=loss.quantile)
    certificate = fit.solution.certificate
    assert fit.solution.success
    assert certificate.lower <= referee.value + 2e-7 * certificate.scale
    assert certificate.upper >= referee.value - 2e-7 * certificate.scale


@every_loss
def test_a_fit_is_the_one_in_memory_in_few_passes(loss, few):
    X, y, codes = rows(loss, 4, (1500, 2500))
    problem, blocks = in_blocks(loss, X, y, codes)
    whole = LinearProblem.from_data(X, y, codes, loss, alpha=1e-3)
    ball = Robustness(radius=0.1).mixes(whole.counts)
    found = fit_problem(problem, ball, problem.references("in-sample", 1e-6)).solution
    expected = fit_problem(whole, ball, whole.references("in-sample", 1e-9), tol=1e-9).solution
    assert found.success
    assert found.certificate.lower <= expected.certificate.upper + 1e-12
    assert found.certificate.upper >= expected.certificate.lower - 1e-12
    np.testing.assert_allclose(found.risks, problem.oracle.at(found.theta).risks, rtol=1e-12)
    assert ball.contains(found.p_worst)
    assert blocks.n_passes < 25


def test_targets_in_steps_are_no_obstacle(few):
    loss = Pinball(0.4)
    X, y, codes = rows(loss, 1)
    X, y = np.round(X), np.round(y)
    problem, _ = in_blocks(loss, X, y, codes)
    whole = LinearProblem.from_data(X, y, codes, loss, alpha=1e-3)
    here, there = (one.references("in-sample", 1e-6) for one in (whole, problem))
    np.testing.assert_allclose(there.upper, here.upper, atol=1e-7)
    assert (there.lower <= here.upper + 1e-13).all()


@pytest.mark.parametrize("most", [0, 1 << 24], ids=["not allowed", "without end"])
def test_where_bands_lead_nowhere_rows_are_solved_where_they_are(most, few, monkeypatch):
    monkeypatch.setattr(banded, "_ROUNDS", 1)
    loss = LOSSES[0]
    X, y, codes = make(loss, 3, 2, 0, (60, 90))
    problem, _ = in_blocks(loss, X, y, codes)
    problem = replace(problem, oracle=replace(problem.oracle, rows=replace(problem.oracle.rows, most_entries=most)))
    assert banded.suits(problem.oracle) == (most > 0)
    nothing = ReferenceRisks.exactly(np.zeros(3))
    found = fit_problem(problem, Robustness(radius=0.1).mixes(problem.counts), nothing).solution
    assert found.success
    assert (problem.references("in-sample", 1e-6).upper <= found.risks + 1e-9).all()
