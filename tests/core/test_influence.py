"""Influence of contexts on one another: one look at the rows, wherever they are, and none where there is no answer."""

from dataclasses import replace

import numpy as np
import pytest

from counterpoise.contexts import Contexts
from counterpoise.core import influence
from counterpoise.core.fit import Robustness, fit_problem
from counterpoise.core.influence import context_influence
from counterpoise.core.objective import ReferenceRisks
from counterpoise.core.oracle import LinearOracle
from counterpoise.core.problem import LinearProblem
from counterpoise.rows import BlockRows
from counterpoise.rows.on_disk import BlocksOnDisk
from tests.problems import SHARP, SMOOTH, make, oracle_of
from tests.rows.test_blocks import cut

every_smooth_loss = pytest.mark.parametrize("loss", SMOOTH, ids=lambda loss: loss.name)


def problem_of(loss, seed=0, alpha=0.1):
    X, y, codes = make(loss, 3, 2, seed, (20, 30))
    contexts = Contexts(np.arange(3), codes.astype(np.intp))
    return LinearProblem(oracle_of(loss, X, y, codes, alpha=alpha), contexts, np.bincount(codes).astype(np.float64))


def on_disk(loss, seed=0, alpha=0.1):
    X, y, codes = make(loss, 3, 2, seed, (20, 30))
    whole = problem_of(loss, seed, alpha)
    blocks = cut(loss, X, y, codes, 4, seed, kind=BlocksOnDisk)
    return replace(whole, oracle=LinearOracle(BlockRows(blocks, loss, 3, 2, True), alpha)), blocks


def solved(problem, radius=0.2):
    nothing = ReferenceRisks.exactly(np.zeros(3))
    return fit_problem(problem, Robustness(radius=radius).mixes(problem.counts), nothing, tol=1e-8).solution


@every_smooth_loss
def test_one_pass_at_most_over_rows_on_disk(loss):
    whole, (problem, blocks) = problem_of(loss), on_disk(loss)
    solution = solved(whole)
    before = blocks.n_passes
    found = context_influence(problem, solution)
    assert blocks.n_passes - before == 1
    np.testing.assert_allclose(found, context_influence(whole, solution), rtol=1e-8, atol=1e-10)
    # After a fit of its own, what the solver looked at last may be known.
    own = solved(problem)
    before = blocks.n_passes
    assert context_influence(problem, own) is not None
    assert blocks.n_passes - before <= 1


@pytest.mark.parametrize("loss", SHARP, ids=lambda loss: loss.name)
def test_kinks_are_not_looked_at(loss):
    problem, blocks = on_disk(loss)
    solution = solved(problem)
    before = blocks.n_passes
    assert context_influence(problem, solution) is None
    assert blocks.n_passes == before


def test_many_contexts_are_not_looked_at(monkeypatch):
    problem, blocks = on_disk(SMOOTH[0])
    solution = solved(problem)
    monkeypatch.setattr(influence, "MOST_CONTEXTS", 2)
    before = blocks.n_passes
    assert context_influence(problem, solution) is None
    assert blocks.n_passes == before


@every_smooth_loss
def test_parameters_that_are_no_numbers_have_none(loss):
    problem = problem_of(loss)
    solution = solved(problem)
    assert context_influence(problem, replace(solution, theta=np.full_like(solution.theta, np.nan))) is None
