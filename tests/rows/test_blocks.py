"""Rows in blocks: however they are cut, what comes back is what all rows say together."""

import gc
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy import sparse

from counterpoise.contexts import Contexts
from counterpoise.core.fit import Robustness, fit_problem
from counterpoise.core.objective import ReferenceRisks
from counterpoise.core.oracle import LinearOracle
from counterpoise.core.problem import LinearProblem
from counterpoise.losses import Huber, Logistic, Multinomial, Pinball, Squared
from counterpoise.rows import Answer, Block, BlockRows, BlocksInMemory, combined
from counterpoise.rows.blocks import of_all, of_contexts, of_problems
from counterpoise.rows.on_disk import BlocksOnDisk
from tests.problems import LOSSES, SMOOTH, make, oracle_of, random_distribution

# Tiles are patched once for all examples.
STEADY = {"deadline": None, "derandomize": True, "suppress_health_check": [HealthCheck.function_scoped_fixture]}
PROPERTY = settings(max_examples=5, **STEADY)
FEW = settings(max_examples=3, **STEADY)

every_loss = pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
every_smooth_loss = pytest.mark.parametrize("loss", SMOOTH, ids=lambda loss: loss.name)

SHAPES = st.fixed_dictionaries(
    {
        "n_contexts": st.integers(1, 4),
        "n_features": st.integers(1, 3),
        "seed": st.integers(0, 2**32 - 1),
        "rows": st.sampled_from([(1, 3), (4, 12)]),
    }
)


@pytest.fixture(params=[None, 6], ids=["whole", "tiny tiles"])
def tiles(request, monkeypatch):
    """Contexts as they are, or cut into tiles of one or two rows."""
    if request.param is not None:
        monkeypatch.setattr("counterpoise.rows.blocks.BATCH_ENTRIES", request.param)


def cut(loss, X, y, codes, n_blocks, seed, weight=None, fit_intercept=True, kind=BlocksInMemory):
    """Deal rows out to blocks at random; some blocks may get none, and are then left out."""
    weight = np.ones(len(codes)) if weight is None else weight
    totals = np.bincount(codes, weight)
    owner = np.random.default_rng(seed).integers(0, n_blocks, len(codes))
    target = loss.checked_target(y)
    blocks = [
        Block.of(X[mine], target[mine], codes[mine].astype(np.intp), weight[mine], totals, loss, fit_intercept)
        for mine in (owner == k for k in range(n_blocks))
        if mine.any()
    ]
    if kind is BlocksInMemory:
        return BlocksInMemory(blocks)
    on_disk = BlocksOnDisk()
    on_disk.extend(blocks)
    return on_disk


def rows_of(blocks, loss, oracle):
    return BlockRows(blocks, loss, oracle.n_contexts, oracle.n_features, oracle.fit_intercept)


def both(loss, shape, n_blocks, weighted, fit_intercept, alpha, kind=BlocksInMemory):
    """Return an oracle of rows in memory, one of the same rows in blocks, and a generator."""
    X, y, codes = make(loss, **shape)
    rng = np.random.default_rng(shape["seed"])
    weight = rng.random(len(codes)) + 0.1 if weighted else None
    oracle = oracle_of(loss, X, y, codes, sample_weight=weight, alpha=alpha, fit_intercept=fit_intercept)
    blocks = cut(loss, X, y, codes, n_blocks, shape["seed"], weight, fit_intercept, kind)
    return oracle, LinearOracle(rows_of(blocks, loss, oracle), alpha), rng


def close(found, expected, tol=1e-11, err_msg=""):
    expected = np.asarray(expected)
    np.testing.assert_allclose(
        found, expected, rtol=tol, atol=tol * max(float(np.abs(expected).max(initial=0.0)), 1e-12), err_msg=err_msg
    )


# --- answers ------------------------------------------------------------------------------------------------


ANSWERS = st.lists(st.sets(st.integers(0, 6), min_size=1), min_size=1, max_size=9)


@dataclass(frozen=True, eq=False)
class Some(Answer):
    total: object = of_all()
    lowest: object = of_all(np.minimum)
    of_each: object = of_contexts()
    least_of_each: object = of_contexts(np.minimum)
    of_problem: object = of_problems()
    left_out: object = of_contexts()


def answers_of(sets, seed):
    rng = np.random.default_rng(seed)
    out = []
    for contexts in sets:
        codes = np.array(sorted(contexts))
        draw, least = rng.normal(size=(len(codes), 2)), rng.normal(size=len(codes))
        shared = np.zeros(1, dtype=int)
        out.append(Some(codes, shared, rng.normal(size=3), rng.normal(size=2), draw, least, rng.normal(size=(1, 4))))
    return out


def spread(values, codes, fill):
    whole = np.full((7, *values.shape[1:]), fill)
    whole[codes] = values
    return whole


@PROPERTY
@given(ANSWERS, st.integers(0, 99))
def test_combined_answers_are_sums_and_minima_written_out(sets, seed):
    answers = answers_of(sets, seed)
    whole = combined(answers)
    present = sorted(set().union(*sets))
    assert whole.contexts.tolist() == present
    close(whole.total, sum(answer.total for answer in answers))
    close(whole.of_problem, sum(answer.of_problem for answer in answers))
    close(whole.lowest, np.min([answer.lowest for answer in answers], axis=0))
    close(whole.of_each, sum(spread(a.of_each, a.contexts, 0.0) for a in answers)[present])
    lowest = np.min([spread(a.least_of_each, a.contexts, np.inf) for a in answers], axis=0)
    close(whole.least_of_each, lowest[present])
    assert whole.left_out is None


@PROPERTY
@given(ANSWERS, st.integers(0, 99), st.integers(1, 8))
def test_answers_combine_in_any_grouping(sets, seed, first):
    answers = answers_of(sets, seed)
    once = combined(answers)
    groups = [group for group in (answers[:first], answers[first:]) if group]
    twice = combined([combined(group) for group in groups])
    np.testing.assert_array_equal(once.contexts, twice.contexts)
    for name in ("total", "lowest", "of_each", "least_of_each", "of_problem"):
        np.testing.assert_allclose(getattr(once, name), getattr(twice, name), rtol=1e-12, atol=1e-13)


# --- tiles --------------------------------------------------------------------------------------------------


@PROPERTY
@given(SHAPES, st.integers(1, 40))
def test_tiles_hold_every_row_once_and_one_context_each(shape, entries):
    X, y, codes = make(Squared(), **shape)
    oracle = oracle_of(Squared(), X, y, codes)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("counterpoise.rows.blocks.BATCH_ENTRIES", entries)
        rows, owner = Block(np.arange(oracle.n_contexts), oracle.rows)._tiles
    starts = rows.starts
    assert starts[0] == 0
    assert starts[-1] == len(y)
    assert (np.diff(starts) > 0).all()
    assert np.diff(starts).max() <= max(1, entries // oracle.n_parameters)
    np.testing.assert_array_equal(np.repeat(owner, np.diff(starts)), oracle.rows.owner)


# --- sums ---------------------------------------------------------------------------------------------------


@every_loss
@PROPERTY
@given(SHAPES, st.integers(1, 7), st.booleans(), st.booleans(), st.sampled_from([0.0, 0.3]))
def test_sums_of_blocks_are_those_of_all_rows(loss, shape, n_blocks, weighted, fit_intercept, alpha):
    oracle, summed, rng = both(loss, shape, n_blocks, weighted, fit_intercept, alpha)
    theta, p = rng.normal(size=oracle.n_parameters), random_distribution(oracle.n_contexts, rng)
    here, there = oracle.at(theta), summed.at(theta)
    close(there.risks, here.risks)
    close(there.jacobian, here.jacobian)
    close(there.hessian(p), here.hessian(p))
    close(summed.reach, oracle.reach)
    close(summed.lowest_risks, oracle.lowest_risks)
    close(summed.typical_risk, oracle.typical_risk)
    close(summed.start(), oracle.start())
    majorant = here.majorant(p)
    if majorant is not None:
        close(there.majorant(p), majorant)


@every_smooth_loss
@PROPERTY
@given(SHAPES, st.integers(1, 7), st.booleans())
def test_a_theta_for_each_context_is_asked_for_as_one_by_one(tiles, loss, shape, n_blocks, fit_intercept):
    oracle, summed, rng = both(loss, shape, n_blocks, True, fit_intercept, 0.0)
    theta = rng.normal(size=(oracle.n_contexts, oracle.n_parameters))
    found = summed.rows.at(theta)
    hessians = found.hessians
    for c in range(oracle.n_contexts):
        point, only = oracle.at(theta[c]), np.eye(oracle.n_contexts)[c]
        close(found.values[c], point.risks[c])
        close(found.gradients[c], point.jacobian[c])
        close(hessians[c], point.hessian(only))
    # A stack that did not come along is fetched in a pass of its own.
    close(found.hessians, hessians)


@PROPERTY
@given(SHAPES, st.integers(1, 7), st.sampled_from([Pinball(0.3), Huber(0.8), Pinball(0.5)]))
def test_the_median_hinge_is_found_by_narrowing(shape, n_blocks, loss):
    X, y, codes = make(loss, **shape)
    # Ties, and numbers of very different sizes.
    y = np.where(np.arange(len(y)) % 3 == 0, np.round(y), y * 10.0 ** (np.arange(len(y)) % 5 * 3))
    oracle = oracle_of(loss, X, y, codes)
    found = rows_of(cut(loss, X, y, codes, n_blocks, 0), loss, oracle).typical
    weight = 1.0 / np.bincount(codes)[codes]
    below = sum(weight[y < found])
    at_most = sum(weight[y <= found])
    half = 0.5 * oracle.n_contexts
    assert found in y
    assert below <= half + 1e-9
    assert at_most >= half - 1e-9


# --- fits ---------------------------------------------------------------------------------------------------


def problem_pair(loss, shape, n_blocks, kind, weighted=False, fit_intercept=True, alpha=1e-2):
    oracle, summed, _ = both(loss, shape, n_blocks, weighted, fit_intercept, alpha, kind)
    counts = oracle.rows.sizes
    contexts = Contexts(np.arange(len(counts)), np.repeat(np.arange(len(counts)), counts))
    return (
        LinearProblem(oracle, contexts, counts.astype(float)),
        LinearProblem(summed, Contexts.counted(contexts.labels, counts), counts.astype(float)),
    )


FITS = st.fixed_dictionaries(
    {
        "n_contexts": st.integers(1, 4),
        "n_features": st.integers(1, 2),
        "seed": st.integers(0, 2**32 - 1),
        "rows": st.just((4, 10)),
    }
)


@every_loss
@pytest.mark.parametrize("kind", [BlocksInMemory, BlocksOnDisk], ids=["memory", "disk"])
@FEW
@given(FITS, st.integers(1, 6), st.booleans(), st.sampled_from([0.0, 0.2, np.inf]))
def test_a_fit_to_blocks_is_the_fit_to_all_rows(tiles, loss, kind, shape, n_blocks, weighted, radius):
    whole, cut_up = problem_pair(loss, shape, n_blocks, kind, weighted)
    ball = Robustness(radius=radius).mixes(whole.counts)
    references = whole.references("in-sample", 1e-6)
    expected = fit_problem(whole, ball, references).solution
    found = fit_problem(cut_up, ball, references).solution
    # Where all classes have an intercept, one direction is free, and rounding decides there.
    tol = 1e-6 if isinstance(loss, Multinomial) else 1e-9
    close(found.theta, expected.theta, tol)
    close(found.p_worst, expected.p_worst, tol)
    scale = max(float(np.abs(expected.risks).max()), whole.oracle.typical_risk)
    np.testing.assert_allclose(found.risks, expected.risks, rtol=0.0, atol=tol * scale)
    for end in ("lower", "upper"):
        assert abs(getattr(found.certificate, end) - getattr(expected.certificate, end)) <= tol * scale


@every_loss
@FEW
@given(FITS, st.integers(1, 6), st.sampled_from([0.0, 0.1]))
def test_references_of_blocks_are_those_of_all_rows(tiles, loss, shape, n_blocks, alpha):
    whole, cut_up = problem_pair(loss, shape, n_blocks, BlocksInMemory, alpha=alpha)
    if alpha == 0.0 and loss.name in ("logistic", "multinomial", "poisson"):
        # A handful of rows is separable: then there is nothing to find.
        return
    here, there = (problem.references("in-sample", 1e-8) for problem in (whole, cut_up))
    scale = max(float(np.abs(here.upper).max()), 1e-3 * whole.oracle.typical_risk)
    np.testing.assert_allclose(there.upper, here.upper, atol=1e-8 * scale)
    assert (there.lower <= there.upper).all()
    assert (there.lower <= here.upper + 1e-13 * scale).all()
    assert (here.lower <= there.upper + 1e-13 * scale).all()


@pytest.mark.parametrize("loss", [Huber(0.8), Pinball(0.3)], ids=lambda loss: loss.name)
@pytest.mark.parametrize("n_contexts", [1, 4])
def test_a_fit_of_kinks_takes_few_passes(loss, n_contexts):
    shape = {"n_contexts": n_contexts, "n_features": 3, "seed": 0, "rows": (400, 900)}
    _, problem = problem_pair(loss, shape, 4, BlocksOnDisk)
    references = problem.references("in-sample", 1e-6)
    assert fit_problem(problem, Robustness(radius=0.05).mixes(problem.counts), references).solution.success
    assert problem.oracle.rows.blocks.n_passes < 40


@pytest.mark.parametrize("loss", [Logistic(), Squared(), Pinball(0.4)], ids=lambda loss: loss.name)
def test_sparse_rows_on_disk_are_dense_rows_in_memory(loss):
    X, y, codes = make(loss, 3, 4, 5, (8, 12))
    X = np.where(np.abs(X) > 0.7, X, 0.0)
    problems = []
    for features, kind in ((X, BlocksInMemory), (sparse.csr_array(X), BlocksOnDisk)):
        oracle = oracle_of(loss, X, y, codes)
        blocks = cut(loss, features, y, codes, 4, 1, kind=kind)
        problems.append(LinearOracle(rows_of(blocks, loss, oracle), 0.1))
    theta = np.linspace(-1.0, 1.0, 5)
    close(problems[1].at(theta).risks, problems[0].at(theta).risks)
    counts = np.bincount(codes)
    contexts = Contexts.counted(np.arange(3), counts)
    ball = Robustness(radius=0.2).mixes(counts.astype(float))
    nothing = ReferenceRisks.exactly(np.zeros(3))
    fits = [fit_problem(LinearProblem(problem, contexts, counts.astype(float)), ball, nothing) for problem in problems]
    close(fits[1].solution.theta, fits[0].solution.theta, 1e-9)


# --- disk ---------------------------------------------------------------------------------------------------


def test_the_folder_is_gone_with_the_blocks(tmp_path):
    X, y, codes = make(Pinball(0.3), 2, 1, 0, (3, 5))
    oracle = oracle_of(Pinball(0.3), X, y, codes)
    blocks = BlocksOnDisk(tmp_path)
    blocks.extend(cut(Pinball(0.3), X, y, codes, 3, 0).blocks)
    assert len(blocks) == 3
    problem = LinearProblem(
        LinearOracle(rows_of(blocks, Pinball(0.3), oracle), 0.1),
        Contexts.counted(np.arange(2), np.bincount(codes)),
        np.bincount(codes).astype(float),
    )
    problem.references("in-sample", 1e-6)
    (folder,) = tmp_path.iterdir()
    gc.collect()
    # States of steps that are past are no longer there.
    assert len(list(folder.glob("states-*"))) <= 2
    del problem, blocks
    gc.collect()
    assert not list(tmp_path.iterdir())
