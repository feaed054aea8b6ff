"""Groups of rows per context, counted while a table passes by."""

from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from counterpoise.tables.tabular import seen_groups
from counterpoise.tables.tabular.seen_groups import SeenGroups

PROPERTY = settings(max_examples=80, deadline=None, derandomize=True)

PAIRS = st.lists(st.tuples(st.integers(0, 5), st.integers(-3, 20)), max_size=80)


def seen(pairs, n_pieces, enough=3, most=10**6):
    found = SeenGroups(enough, most)
    for piece in np.array_split(np.array(pairs, dtype=np.intp).reshape(-1, 2), n_pieces):
        values, groups = np.unique(piece[:, 1], return_inverse=True)
        found.look(piece[:, 0], [*values.tolist(), None], groups.reshape(-1))
    return found


def exact(pairs):
    groups = defaultdict(set)
    for context, group in pairs:
        groups[context].add(group)
    return groups


@PROPERTY
@given(PAIRS, st.integers(1, 7), st.sampled_from([0, 5, 1 << 16]))
def test_groups_are_counted_once(pairs, n_pieces, few):
    groups = exact(pairs)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(seen_groups, "_FEW", few)
        found = seen(pairs, n_pieces)
    assert found.counts(6).tolist() == [len(groups[c]) for c in range(6)]
    for mask in (np.arange(6) < 3, np.arange(6) % 2 == 0, np.zeros(6, dtype=bool)):
        assert found.together(mask) == len(set().union(*(groups[c] for c in np.flatnonzero(mask).tolist())))
    assert found.n_forgotten == 0


@PROPERTY
@given(PAIRS, st.integers(1, 7), st.integers(0, 30))
def test_small_contexts_are_exact_however_little_is_kept(pairs, n_pieces, most):
    groups = exact(pairs)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(seen_groups, "_FEW", 0)
        found = seen(pairs, n_pieces, enough=4, most=most)
    for c, count in enumerate(found.counts(6).tolist()):
        if len(groups[c]) < 4:
            assert count == len(groups[c])
        else:
            assert 4 <= count <= len(groups[c])
            assert 4 <= found.together(np.arange(6) == c) <= len(groups[c])


def test_the_contexts_with_the_most_groups_are_forgotten_first():
    found = seen([(c, g) for c, n in enumerate((3, 500, 40, 2)) for g in range(n)], 1, enough=4, most=100)
    assert found.counts(4).tolist() == [3, 500, 40, 2]
    assert found.n_forgotten == 1
    found.look(np.array([1, 0]), [900, 901, None], np.array([0, 1]))
    assert found.counts(4).tolist() == [4, 500, 40, 2]
