"""Contexts' own models, judged a fold at a time: the same answer where no fold is spared, and which are spared."""

import numpy as np
import pytest

from counterpoise.contexts import Contexts
from counterpoise.core.references import ContextRows
from counterpoise.estimators.learners import splits_by
from counterpoise.estimators.own_models import OwnModels, judged_by_turns
from counterpoise.inference.excess import HeldOut
from counterpoise.inference.headroom import headroom_of

N, N_FOLDS = 90, 3
CODES = np.arange(3 * N) % 3
FOLDS = np.arange(3 * N) // 3 % N_FOLDS
ROWS = ContextRows(CODES, np.ones(3 * N), 3)
HELD_OUT = HeldOut(Contexts(np.array(["a", "b", "c"]), CODES), None, np.ones(3 * N))


def judged(own, plain):
    """Return what is known of own models, and the folds in which each context was judged."""
    asked = {c: [] for c in range(3)}

    def judge(split):
        seen, held = split
        assert not set(seen) & set(held)
        for c in np.unique(CODES[held]):
            asked[c].append(int(FOLDS[held][0]))
        found = np.full(len(own), np.nan)
        found[held] = own[held]
        return found

    return judged_by_turns(HELD_OUT, plain, splits_by(FOLDS), judge), asked


def undecided():
    """Return differences of no sign: as much above as below in every fold of every context, with errors of 0.1."""
    cells = CODES * N_FOLDS + FOLDS
    order = np.argsort(cells, kind="stable")
    signs = np.empty(3 * N)
    signs[order] = np.tile([1.0, -1.0], 3 * N // 2)
    size = 1.0 + 0.1 * np.random.default_rng(1).random(3 * N // 2).repeat(2)
    return 0.5 * signs * size[np.argsort(order)]


@pytest.fixture
def plain():
    return np.random.default_rng(0).exponential(size=3 * N)


def test_where_nothing_is_settled_every_fold_is_judged_and_all_is_as_if_at_once(plain):
    own = plain + undecided() - 0.05 * (CODES == 2)
    found, asked = judged(own, plain)
    assert asked == {c: [0, 1, 2] for c in range(3)}
    assert not found.given_up.any()
    np.testing.assert_array_equal(found.losses, own)
    means = np.minimum(ROWS.means(own), ROWS.means(plain))
    np.testing.assert_allclose(found.references(ROWS.means(plain)), means, rtol=1e-14)
    np.testing.assert_allclose(found.standard_errors(), ROWS.standard_errors(plain - own))
    rows, competitor = found.competitor()
    assert len(rows) == 3 * N
    np.testing.assert_array_equal(competitor, own)
    whole = headroom_of(HELD_OUT, plain, own)
    assert found.headroom().upper == whole.upper
    assert found.headroom().negligible == whole.negligible


@pytest.mark.parametrize("worse", [0.1, 5.0])
def test_a_model_that_is_probably_worse_is_given_up_and_no_reference(plain, worse):
    # By one standard error of a fold, or beyond doubt.
    own = plain + undecided() + worse * (CODES == 1)
    found, asked = judged(own, plain)
    assert asked == {0: [0, 1, 2], 1: [0], 2: [0, 1, 2]}
    assert found.given_up.tolist() == [False, True, False]
    assert found.references(ROWS.means(plain))[1] == ROWS.means(plain)[1]
    # All its rows judge candidates, with no model of its own among their competitors.
    rows, competitor = found.competitor()
    assert len(rows) == 3 * N
    assert np.isinf(competitor[CODES == 1]).all()
    assert found.headroom().by_context["n"].tolist() == [N, N // 3, N]


def test_a_model_that_turns_out_worse_in_the_last_fold_only_is_not_given_up(plain):
    own = plain + undecided() + 5.0 * ((CODES == 1) & (FOLDS == 2))
    found, asked = judged(own, plain)
    assert asked == {c: [0, 1, 2] for c in range(3)}
    assert not found.given_up.any()
    assert found.references(ROWS.means(plain))[1] == ROWS.means(plain)[1]


def test_a_difference_that_is_known_well_is_not_judged_further(plain):
    own = plain - 0.3 + 1e-3 * np.random.default_rng(1).standard_normal(3 * N)
    found, asked = judged(own, plain)
    assert asked == {c: [0] for c in range(3)}
    assert not found.given_up.any()
    # What the own model gains on some rows is taken off the plain risk on all.
    np.testing.assert_allclose(found.references(ROWS.means(plain)), ROWS.means(plain) - 0.3, atol=1e-3)
    rows, competitor = found.competitor()
    np.testing.assert_array_equal(rows, np.flatnonzero(FOLDS == 0))
    np.testing.assert_array_equal(competitor, own[rows])
    assert found.headroom().something


def test_a_context_without_a_model_has_the_plain_reference(plain):
    own = plain + undecided()
    own[(CODES == 0) & (FOLDS == 1)] = np.inf
    found, asked = judged(own, plain)
    assert asked[0] == [0, 1]
    assert found.references(ROWS.means(plain))[0] == ROWS.means(plain)[0]
    assert np.isnan(found.standard_errors()[0])
    assert found.headroom().bounds.unjudged == ("a",)


def test_few_rows_settle_nothing():
    # A single row per fold has no spread, and two that agree prove nothing.
    codes, folds = np.repeat([0, 1], [3, 60]), np.concatenate([[0, 1, 2], np.arange(60) % 3])
    held_out = HeldOut(Contexts(np.array(["tiny", "large"]), codes), None, np.ones(63))
    plain = np.linspace(0.0, 1.0, 63)
    own = np.where(codes == 0, plain + 0.5, plain + np.where(np.arange(63) % 2, 0.5, -0.5))
    asked = []

    def judge(split):
        asked.append(set(codes[split[1]].tolist()))
        return np.where(np.isin(np.arange(63), split[1]), own, np.nan)

    found = judged_by_turns(held_out, plain, splits_by(folds), judge)
    assert asked[:2] == [{0, 1}, {0, 1}]
    assert isinstance(found, OwnModels)
    assert not np.isnan(found.losses[codes == 1]).any()
