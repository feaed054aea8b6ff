"""Batches: every row once or contexts alike, the same for the same seed and epoch, shared by processes."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

torch = pytest.importorskip("torch")

from torch.utils.data import DataLoader, TensorDataset  # noqa: E402

from counterpoise.exceptions import InvalidInputError  # noqa: E402
from counterpoise.torch import ContextBatchSampler  # noqa: E402

PROPERTY = settings(max_examples=80, deadline=None, derandomize=True)
CONTEXTS = np.repeat(["a", "b", "c"], [70, 25, 5])
MODES = ["proportional", "balanced"]

each_mode = pytest.mark.parametrize("mode", MODES)


@PROPERTY
@given(st.integers(1, 60), st.integers(1, 20), st.integers(1, 4), st.booleans(), st.integers(0, 5))
def test_every_row_once_per_epoch_shared_by_all_ranks(rows, batch_size, world_size, drop_last, epoch):
    ranks = [
        ContextBatchSampler(np.arange(rows) % 3, batch_size, rank=rank, world_size=world_size, drop_last=drop_last)
        for rank in range(world_size)
    ]
    passes = []
    for sampler in ranks:
        sampler.set_epoch(epoch)
        passes.append(list(sampler))
        assert len(passes[-1]) == len(sampler)
    drawn = [row for batches in passes for batch in batches for row in batch]
    assert len(drawn) == len(set(drawn))
    whole = batch_size * world_size
    # A last batch that would leave a process without a row is left out.
    last = rows % whole
    assert len(drawn) == rows - (last if drop_last or last < world_size else 0)
    for batches in zip(*passes, strict=True):
        sizes = [len(batch) for batch in batches]
        assert max(sizes) <= batch_size
        assert max(sizes) - min(sizes) <= 1


@each_mode
@pytest.mark.parametrize("rows", [8, 9, 15])
def test_every_rank_has_rows_in_every_batch(mode, rows):
    data = TensorDataset(torch.arange(rows))
    for rank in range(2):
        sampler = ContextBatchSampler(np.arange(rows) % 2, 4, mode=mode, rank=rank, world_size=2)
        sizes = [len(batch) for (batch,) in DataLoader(data, batch_sampler=sampler)]
        assert min(sizes) >= 1


def test_balanced_contexts_are_alike_and_rows_within_them_too():
    sampler = ContextBatchSampler(CONTEXTS, 20, mode="balanced", seed=4)
    drawn = np.concatenate([batch for _ in range(100) for batch in sampler])
    assert len(drawn) == 100 * len(CONTEXTS)
    per_row = np.bincount(drawn, minlength=len(CONTEXTS))
    per_context = [per_row[c == CONTEXTS].sum() for c in "abc"]
    assert stats.chisquare(per_context).pvalue > 1e-4
    for c in "abc":
        assert stats.chisquare(per_row[c == CONTEXTS]).pvalue > 1e-4


def test_balanced_batches_are_independent_draws():
    sampler = ContextBatchSampler(CONTEXTS, 4, mode="balanced")
    rare = [np.sum(CONTEXTS[batch] == "c") for _ in range(80) for batch in sampler]
    expected = stats.binom.pmf(np.arange(5), 4, 1 / 3) * len(rare)
    assert stats.chisquare(np.bincount(rare, minlength=5), expected).pvalue > 1e-4


def test_balanced_ranks_share_one_draw():
    samplers = [ContextBatchSampler(CONTEXTS, 5, mode="balanced", rank=r, world_size=2, seed=1) for r in range(2)]
    both = [np.concatenate(pair) for pair in zip(*samplers, strict=True)]
    alone = list(ContextBatchSampler(CONTEXTS, 10, mode="balanced", seed=1))
    assert [sorted(rows) for rows in both] == [sorted(rows) for rows in alone]


@each_mode
def test_drawn_from_seed_and_epoch_alone(mode):
    first, second = (ContextBatchSampler(CONTEXTS, 8, mode=mode, seed=7) for _ in range(2))
    passes = [list(first) for _ in range(3)]
    assert [list(second) for _ in range(3)] == passes
    assert passes[0] != passes[1]
    second.set_epoch(1)
    assert list(second) == passes[1]
    assert list(second) == passes[2]
    assert list(ContextBatchSampler(CONTEXTS, 8, mode=mode, seed=8)) != passes[0]


def test_global_seeds_are_of_no_matter():
    passes = []
    for seed in range(2):
        np.random.seed(seed)  # noqa: NPY002
        torch.manual_seed(seed)
        passes.append(list(ContextBatchSampler(CONTEXTS, 8)))
    assert passes[0] == passes[1]


@pytest.mark.parametrize(("drop_last", "sizes"), [(False, [30, 30, 30, 10]), (True, [30, 30, 30])])
def test_last_batch(drop_last, sizes):
    sampler = ContextBatchSampler(CONTEXTS, 30, drop_last=drop_last)
    assert [len(batch) for batch in sampler] == sizes
    assert len(sampler) == len(sizes)


def test_in_a_data_loader():
    x = torch.arange(100.0)
    loader = DataLoader(TensorDataset(x), batch_sampler=ContextBatchSampler(CONTEXTS, 16))
    assert len(loader) == 7
    assert sorted(torch.cat([batch for (batch,) in loader]).tolist()) == x.tolist()


@pytest.mark.parametrize(
    "contexts", [CONTEXTS, CONTEXTS.tolist(), torch.arange(100) % 3], ids=["text", "list", "tensor"]
)
def test_contexts_in_any_container(contexts):
    sampler = ContextBatchSampler(contexts, 10, mode="balanced")
    assert len(sampler.contexts.labels) == 3
    assert all(isinstance(row, int) for batch in sampler for row in batch)


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"batch_size": 0}, "batch_size"),
        ({"batch_size": 2.5}, "batch_size"),
        ({"mode": "uniform"}, "mode"),
        ({"rank": 2, "world_size": 2}, "rank"),
        ({"rank": -1, "world_size": 2}, "rank"),
        ({"contexts": []}, "contexts"),
        ({"contexts": [1.0, float("nan")]}, "context"),
    ],
    ids=str,
)
def test_what_cannot_be_meant_is_refused(options, word):
    with pytest.raises(InvalidInputError, match=word):
        ContextBatchSampler(**({"contexts": [0, 1, 1], "batch_size": 2} | options))


def test_batch_size_of_any_integer_type():
    assert len(ContextBatchSampler(CONTEXTS, np.int64(10))) == 10
