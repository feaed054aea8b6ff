"""What is learnt from a batch is the same however it is computed: by numpy, launch by launch, or replayed."""

import copy
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from counterpoise import KLBall  # noqa: E402
from counterpoise.torch import ERMLoss, GroupDROLoss, InverseFrequencyLoss, RobustLoss  # noqa: E402
from counterpoise.torch.ball import Ball, InMemory  # noqa: E402
from tests.torch_.test_ball import Waits  # noqa: E402

COUNTS = [50, 20, 6, 4]
LOSSES = {
    "erm": lambda: ERMLoss(COUNTS),
    "inverse frequency": lambda: InverseFrequencyLoss(COUNTS, averaging=0.3),
    "group dro": lambda: GroupDROLoss(COUNTS, step_size=0.2),
    "closed form": lambda: RobustLoss(COUNTS, radius=0.3, reference_risks=[0.1, 0.0, 0.3, 0.2]),
    "small radius": lambda: RobustLoss(COUNTS, radius=1e-6),
    "ascent": lambda: RobustLoss(COUNTS, radius=0.05, update="ascent", step_size=0.8),
    "every mix": lambda: RobustLoss(COUNTS, radius=math.inf),
    "one mix": lambda: RobustLoss(COUNTS, radius=0.0),
    "every third step": lambda: RobustLoss(COUNTS, radius=0.3, refresh=3),
    "around other shares": lambda: RobustLoss(COUNTS, mix=KLBall([0.25] * 4, 0.2)),
}

each_loss = pytest.mark.parametrize("make", LOSSES.values(), ids=LOSSES)
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here: torch.cuda.is_available() is False")


class OneByOne(torch.Tensor):
    """Losses of another kind, for which every operation is one of torch."""


def batches(n_batches, size=16, seed=0):
    """Return losses and contexts; some batches lack a context, and one has losses that are not finite."""
    rng = np.random.default_rng(seed)
    found = []
    for k in range(n_batches):
        contexts = rng.integers(k % 2, 4, size)
        losses = rng.exponential(1.0 + contexts)
        if k == 2:
            losses[contexts == 1] = math.inf
        found.append((torch.tensor(losses), torch.tensor(contexts)))
    return found


def assert_same_state(one, other, **tolerance):
    for name, value in one.state_dict().items():
        torch.testing.assert_close(other.state_dict()[name].cpu(), value.cpu(), check_dtype=True, **tolerance)


@each_loss
def test_numpy_learns_what_torch_does(make):
    one, other = make(), make()
    for losses, contexts in batches(12):
        value = one(losses, contexts)
        again = other(losses.as_subclass(OneByOne), contexts).as_subclass(torch.Tensor)
        torch.testing.assert_close(again, value, equal_nan=True)
        assert_same_state(one, other, rtol=1e-11, atol=1e-12)


@each_loss
def test_moving_in_memory_changes_nothing(make):
    # Sharing memory between processes takes a tensor elsewhere without making another of it.
    moves = [
        lambda loss: loss.share_memory(),
        lambda loss: [buffer.share_memory_() for buffer in loss.buffers()] and loss,
        lambda loss: loss.to("cpu").double(),
        copy.deepcopy,
        lambda loss: (loss.load_state_dict(copy.deepcopy(loss.state_dict()), assign=True), loss)[1],
    ]
    stays, moved = make(), make()
    for k, (losses, contexts) in enumerate(batches(12)):
        stays(losses, contexts)
        moved = moves[k % len(moves)](moved)
        moved(losses, contexts)
    assert_same_state(stays, moved, rtol=0, atol=0)


def test_the_set_follows_the_counts_of_a_state_that_is_loaded():
    loss, other = RobustLoss([50, 20], radius=0.1, averaging=1.0), RobustLoss([1, 9], radius=0.1, averaging=1.0)
    rows = torch.tensor([1.0, 2.0]), torch.arange(2)
    loss(*rows)
    loss.load_state_dict(other.state_dict())
    loss(*rows)
    expected = KLBall([0.1, 0.9], 0.1).worst_case([1.0, 2.0]).distribution
    np.testing.assert_allclose(loss.context_weights.numpy(), expected, atol=1e-12)


def test_autograd_notices_that_weights_have_changed():
    loss, scale = RobustLoss(COUNTS, radius=0.3), torch.ones(4, dtype=torch.float64, requires_grad=True)
    value = (loss.context_weights * scale).sum()
    loss(*batches(1)[0])
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        value.backward()


def test_a_loss_may_be_made_where_there_are_no_numbers():
    with torch.device("meta"):
        assert ERMLoss(COUNTS).counts.is_meta


def test_sets_that_are_no_balls_are_asked_in_memory_too():
    loss = RobustLoss([5, 5], mix={1: (0.0, 0.7)}, averaging=1.0)
    loss(torch.tensor([1.0, 3.0]), torch.arange(2))
    assert loss.context_weights.tolist() == pytest.approx([0.3, 0.7])


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    rows=st.lists(st.tuples(st.integers(1, 10**6), st.floats(1e-12, 1.0)), min_size=1, max_size=8),
    radius=st.sampled_from([0.0, 1e-12, 1e-6, 1e-3, 0.1, 0.7, 2.0, 8.0, 300.0, math.inf]),
)
def test_arrays_are_pulled_inside_as_tensors_are(rows, radius):
    counts, raw = np.array(rows, dtype=np.float64).T
    ball = KLBall(counts / counts.sum(), radius)
    pulled = InMemory(ball).pull_inside(raw)
    assert ball.divergence(pulled) <= radius * (1 + 1e-9) + 1e-14
    expected = Ball(torch.tensor(ball.p_hat), radius).pull_inside(torch.tensor(raw)).numpy()
    np.testing.assert_allclose(pulled, expected, rtol=1e-9, atol=1e-9)


def test_an_array_is_pulled_inside_from_the_edge_of_the_simplex():
    ball = KLBall([0.1, 0.1, 0.8], 0.5)
    pulled = InMemory(ball).pull_inside(np.array([1.0, 0.0, 0.0]))
    assert ball.divergence(pulled) == pytest.approx(0.5, abs=1e-9)


def test_contexts_that_were_not_seen_get_their_share():
    ball = KLBall([0.5, 0.5, 0.0], 0.3)
    pulled = InMemory(ball).pull_inside(np.array([0.1, 0.2, 0.7]))
    assert ball.contains(pulled)
    assert pulled[2] > 0.0


# --- replayed on a GPU ---------------------------------------------------------------------------------------


def on_gpu(losses, contexts):
    return losses.cuda(), contexts.cuda()


@needs_gpu
@each_loss
def test_replayed_launches_learn_what_single_ones_do(make):
    one, other, here = make().cuda(), make().cuda(), make()
    for losses, contexts in batches(20):
        here(losses, contexts)
        rows, codes = on_gpu(losses, contexts)
        one(rows, codes)
        other(rows.as_subclass(OneByOne), codes)
    assert_same_state(one, other, rtol=1e-13, atol=1e-14)
    assert_same_state(one, here, rtol=1e-9, atol=1e-10)


@needs_gpu
@each_loss
def test_replayed_steps_go_on_after_moves_copies_and_loads(make):
    stays, moved = make().cuda(), make().cuda()
    moves = [
        lambda loss: loss.cpu().cuda(),
        copy.deepcopy,
        lambda loss: (loss.load_state_dict(copy.deepcopy(loss.state_dict())), loss)[1],
        lambda loss: (loss.load_state_dict(copy.deepcopy(loss.state_dict()), assign=True), loss)[1],
    ]
    for k, (losses, contexts) in enumerate(batches(24)):
        rows, codes = on_gpu(losses, contexts)
        stays(rows, codes)
        if k % 6 == 5:
            moved = moves[k // 6](moved)
        moved(rows, codes)
    assert_same_state(stays, moved, rtol=1e-13, atol=1e-14)


@needs_gpu
def test_other_settings_are_captured_anew():
    one, other = (RobustLoss(COUNTS, radius=0.3).cuda() for _ in range(2))
    for k, (losses, contexts) in enumerate(batches(20)):
        one.averaging = other.averaging = 0.1 if k < 10 else 0.5
        rows, codes = on_gpu(losses, contexts)
        one(rows, codes)
        other(rows.as_subclass(OneByOne), codes)
    assert_same_state(one, other, rtol=1e-13, atol=1e-14)


@needs_gpu
@pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype")
@pytest.mark.parametrize("update", ["closed-form", "ascent"])
def test_neither_capture_nor_replay_waits(update):
    loss = RobustLoss(COUNTS, radius=0.3, update=update).cuda()
    rows = [on_gpu(*batch) for batch in batches(8)]
    loss(*rows[0])
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        with Waits() as waits:
            for losses, contexts in rows:
                loss(losses, contexts)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert waits.seen == []


@needs_gpu
def test_steps_inside_a_graph_of_ones_own():
    own, plain = (RobustLoss(COUNTS, radius=0.3).cuda() for _ in range(2))
    rows = [on_gpu(*batch) for batch in batches(10)]
    losses, contexts = rows[0][0].clone(), rows[0][1].clone()
    beside = torch.cuda.Stream()
    beside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(beside):
        for _ in range(3):
            own(losses, contexts)
    torch.cuda.current_stream().wait_stream(beside)
    for _ in range(3):
        plain(losses, contexts)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        own(losses, contexts)
    for one, code in rows:
        losses.copy_(one)
        contexts.copy_(code)
        graph.replay()
        plain(one, code)
    assert_same_state(own, plain, rtol=1e-13, atol=1e-14)
