"""One parameter and rows in blocks: the kinks that matter are found pass by pass, against a walk over all of them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from counterpoise.contexts import Contexts, encode
from counterpoise.core.fit import Robustness
from counterpoise.core.oracle import LinearOracle
from counterpoise.core.oracle.scalar import ScalarOracle
from counterpoise.core.oracle.scalar_blocks import BlockScalarOracle
from counterpoise.exceptions import InvalidInputError
from counterpoise.losses import Hinges
from counterpoise.rows import Block, BlocksInMemory
from counterpoise.stock.problem import StockProblem, Terms

PROPERTY = settings(max_examples=25, deadline=None, derandomize=True)

SALES = st.fixed_dictionaries(
    {
        "n_contexts": st.integers(1, 4),
        "n_rows": st.integers(1, 40),
        "kind": st.sampled_from(["spread", "tied", "one", "tiny and huge", "zero"]),
        "seed": st.integers(0, 2**32 - 1),
    }
)
TERMS = st.sampled_from(
    [
        Terms(10.0, 0.0, 0.0, np.inf, False),
        Terms(10.0, 1.0, 2.0, 12.5, False),
        Terms(10.0, 0.0, 0.0, np.inf, True),
        Terms(10.0, 0.5, 0.0, 7.0, True),
    ]
)


def sales_of(n_contexts, n_rows, kind, seed):
    """Return costs, demand and contexts, every context with at least a row."""
    rng = np.random.default_rng(seed)
    codes = np.concatenate([np.arange(n_contexts), rng.integers(0, n_contexts, n_rows)])
    n = len(codes)
    demand = {
        "spread": rng.gamma(2.0, 5.0, n),
        "tied": rng.integers(0, 4, n).astype(float),
        "one": np.full(n, 6.0),
        "tiny and huge": 10.0 ** rng.integers(-6, 7, n),
        "zero": np.zeros(n),
    }[kind]
    # Costs at which a stretch between two kinks is exactly flat, too.
    costs = rng.choice([2.0, 5.0, 5.0, 7.5, 9.0], n)
    return costs, demand, codes


def blocks_of(pieces, codes, weight, n_blocks, seed):
    totals = np.bincount(codes, weight)
    owner = np.random.default_rng(seed).integers(0, n_blocks, len(codes))
    X = np.empty((len(codes), 0))
    return BlocksInMemory(
        [
            Block.of(X[mine], pieces[mine], codes[mine].astype(np.intp), weight[mine], totals, Hinges(), True)
            for mine in (owner == k for k in range(n_blocks))
            if mine.any()
        ]
    )


def stocks(sales, terms, n_blocks, weighted=False):
    costs, demand, codes = sales_of(**sales)
    weight = np.random.default_rng(1).integers(1, 4, len(codes)).astype(float) if weighted else np.ones(len(codes))
    whole = StockProblem.from_data(costs, demand, codes, terms, sample_weight=weight)
    counts = np.bincount(codes, weight)
    contexts = encode(codes)
    blocks = blocks_of(terms.pieces(terms.sales(costs, demand)), codes, weight, n_blocks, sales["seed"])
    known = Contexts.counted(contexts.labels, contexts.counts)
    return whole, StockProblem.from_blocks(blocks, known, counts, terms, "in-sample"), (costs, demand, codes)


@PROPERTY
@given(SALES, TERMS, st.integers(1, 6), st.booleans())
def test_the_best_level_of_each_context_is_that_of_a_walk_over_its_kinks(sales, terms, n_blocks, weighted):
    whole, cut_up, _ = stocks(sales, terms, n_blocks, weighted)
    scale = max(float(np.abs(whole.references.upper).max()), 1.0)
    np.testing.assert_allclose(cut_up.references.upper, whole.references.upper, rtol=0, atol=1e-12 * scale)
    if not terms.integer:
        np.testing.assert_allclose(cut_up.context_levels, whole.context_levels, rtol=1e-12)


@PROPERTY
@given(SALES, TERMS, st.integers(1, 6), st.sampled_from([0.0, 0.1, 1.0, np.inf]))
def test_the_robust_level_is_that_of_all_rows_and_of_brute_force(sales, terms, n_blocks, radius):
    whole, cut_up, (costs, demand, codes) = stocks(sales, terms, n_blocks)
    robustness = Robustness(radius=radius)
    expected, found = whole.solve(robustness), cut_up.solve(robustness)
    scale = max(float(np.abs(expected.risks).max()), 1.0)
    for end in ("lower", "upper"):
        assert abs(getattr(found.certificate, end) - getattr(expected.certificate, end)) <= 1e-11 * scale
    # By hand: the worst excess cost at every candidate level is no less than what was found.
    ball = robustness.mixes(np.bincount(codes).astype(float))
    candidates = np.unique(np.concatenate([demand, found.theta, np.linspace(0.0, demand.max(), 7)]))
    candidates = np.unique(np.floor(candidates)) if terms.integer else candidates
    candidates = candidates[candidates <= terms.highest]
    values = []
    for level in candidates:
        sold = np.minimum(level, demand)
        cost = costs * level - terms.price * sold - terms.salvage * (level - sold) + terms.shortage * (demand - sold)
        # The unmet demand at no stock is charged in the library's loss as well.
        risks = np.bincount(codes, cost) / np.bincount(codes)
        values.append(ball.worst_case(risks - cut_up.references.upper).value)
    assert min(values) >= found.certificate.lower - 1e-9 * scale
    at_found = values[int(np.argmin(np.abs(candidates - found.theta[0])))]
    assert abs(at_found - found.certificate.upper) <= 1e-9 * scale


@PROPERTY
@given(SALES, st.integers(1, 6), st.integers(2, 9))
def test_few_parts_per_pass_find_the_same(sales, n_blocks, entries):
    costs, demand, codes = sales_of(**sales)
    terms, weight = Terms(10.0, 0.0, 0.0, np.inf, False), np.ones(len(codes))
    blocks = blocks_of(terms.pieces(terms.sales(costs, demand)), codes, weight, n_blocks, 0)
    n = int(codes.max()) + 1
    block = blocks_of(terms.pieces(terms.sales(costs, demand)), codes, weight, 1, 0).blocks[0]
    whole = ScalarOracle.of(LinearOracle(block.rows))
    bounds = (np.zeros(1), np.array([np.inf]))
    oracle = BlockScalarOracle(blocks, n, bounds, whole.lowest_risks, whole.typical_risk)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("counterpoise.core.oracle.scalar_blocks._parts", lambda n_contexts: entries)
        least, theta = oracle.context_minima()
    expected, at = whole.context_minima()
    np.testing.assert_allclose(least, expected, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(theta, np.maximum(at, 0.0), rtol=1e-12)


def test_a_cost_without_a_minimum_names_the_context():
    terms = Terms(10.0, 3.0, 0.0, np.inf, False)
    costs, demand, codes = np.array([4.0, 4.0, 2.0, 2.0]), np.array([1.0, 2.0, 3.0, 4.0]), np.array([0, 0, 1, 1])
    blocks = blocks_of(terms.pieces(terms.sales(costs, demand)), codes, np.ones(4), 2, 0)
    contexts = Contexts.counted(np.array(["north", "south"]), np.array([2, 2]))
    with pytest.raises(InvalidInputError, match="in context south"):
        StockProblem.from_blocks(blocks, contexts, np.array([2.0, 2.0]), terms, "in-sample")
