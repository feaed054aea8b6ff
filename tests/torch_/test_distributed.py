"""Two processes that share a batch are one process with all of it."""

import math
import os
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from torch import distributed, nn  # noqa: E402
from torch.utils.data import DataLoader, TensorDataset  # noqa: E402

from counterpoise.exceptions import InvalidInputError  # noqa: E402
from counterpoise.torch import (  # noqa: E402
    ContextBatchSampler,
    ERMLoss,
    GroupDROLoss,
    HeldOutWeights,
    MixtureController,
    MixtureStream,
    RobustLoss,
    fit,
    next_token_loss,
    proxy_losses,
    source_losses,
)
from tests.torch_.processes import finish  # noqa: E402
from tests.torch_.test_guard import ONE_EACH, digits, network  # noqa: E402

pytestmark = pytest.mark.skipif(
    not (distributed.is_available() and distributed.is_gloo_available()), reason="this torch has no gloo"
)

COUNTS = [60, 30, 10]
SPLITS = {"equal": 8, "unequal": 3}
"""Rows of the first process, of sixteen; the second never sees context 0, and in step 2 neither sees context 2."""

KINDS = {
    "closed-form": lambda: RobustLoss(COUNTS, radius=0.3, reference_risks=[0.1, 0.0, 0.2]),
    "ascent": lambda: RobustLoss(COUNTS, radius=0.3, update="ascent", step_size=0.5),
    "every mix": lambda: RobustLoss(COUNTS, confidence=1.0),
    "balanced": lambda: RobustLoss(COUNTS, radius=0.3, sampling="balanced"),
    "group-dro": lambda: GroupDROLoss(COUNTS, step_size=0.5),
    "held-out": lambda: HeldOutWeights(COUNTS, radius=0.3, step_size=0.5),
    "erm": lambda: ERMLoss(COUNTS),
}
STEPS = 4
SOURCES = [("a", 5), ("b", 3), ("c", 2)]


def rows(step, first):
    """Return a batch of sixteen rows, the second process's part without context 0."""
    generator = torch.Generator().manual_seed(step)
    x, y = torch.randn(16, 2, generator=generator), torch.randn(16, generator=generator)
    contexts = torch.randint(3, (16,), generator=generator)
    contexts[first:] = contexts[first:].clamp(min=1)
    if step == 2:
        contexts = contexts.clamp(max=1)
    return x, y + contexts, contexts


def train(kind, split, rank=None):
    """Train for a few steps, alone on whole batches or as one of two; return every number that must agree."""
    first = SPLITS[split]
    model, loss = nn.Linear(2, 1), KINDS[kind]()
    nn.init.constant_(model.weight, 0.3)
    nn.init.zeros_(model.bias)
    wrapped = model if rank is None else nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    part = slice(None) if rank is None else (slice(0, first) if rank == 0 else slice(first, None))
    out = {"gradients": [], "weights": [], "values": []}
    for step in range(STEPS):
        x, y, contexts = (one[part] for one in rows(step, first))
        optimizer.zero_grad()
        value = loss((wrapped(x)[:, 0] - y).square(), contexts)
        value.backward()
        if isinstance(loss, HeldOutWeights):
            loss.update((model(x)[:, 0] - y).square(), contexts)
        out["values"].append(value.detach())
        out["gradients"].append(model.weight.grad.clone())
        out["weights"].append(loss.context_weights.clone())
        optimizer.step()
    return out | {"state": loss.state_dict(), "model": model.state_dict()}


def guarded(rank=None, held_out=None):
    """Fit with a guard for an epoch, alone or as one of two; return what was kept, and the parameters."""
    rows = digits(1200, 0)
    parts = {} if rank is None else {"rank": rank, "world_size": 2}
    sampler = ContextBatchSampler(rows[2], 64 if rank is None else 32, **parts)
    model = network()
    wrapped = model if rank is None else nn.parallel.DistributedDataParallel(model)
    loss, optimizer = RobustLoss([960, 240], confidence=1.0), torch.optim.Adam(model.parameters(), lr=0.1)
    batches = DataLoader(TensorDataset(*rows), batch_sampler=sampler)
    history = fit(wrapped, loss, batches, optimizer, epochs=1, held_out=held_out or [digits(3000, 1)])
    return {"chosen": history.chosen, "own": history.candidates.note, "model": model.state_dict()}


def by_held_out(rank=None):
    """Fit by held-out weights for an epoch, alone or as one of two with half of the held-out rows each."""
    rows, held_out = digits(1200, 0), digits(400, 1)
    parts = {} if rank is None else {"rank": rank, "world_size": 2}
    model = network()
    wrapped = model if rank is None else nn.parallel.DistributedDataParallel(model)
    batches = DataLoader(
        TensorDataset(*rows), batch_sampler=ContextBatchSampler(rows[2], 64 if rank is None else 32, **parts)
    )
    loss, optimizer = HeldOutWeights([960, 240], reference_risks=[0.1, 0.2]), torch.optim.SGD(model.parameters(), 0.5)
    own = [held_out if rank is None else tuple(part[rank::2] for part in held_out)]
    history = fit(wrapped, loss, batches, optimizer, epochs=1, held_out=own, guard=False)
    return {"weights": torch.tensor(history.weights), "risks": torch.tensor(history.held_out_risks)}


def mixture(rank=None):
    """Train a language model on a mixture of sources, alone or as one of two, and resume it in between."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(5, 6), nn.BatchNorm1d(4), nn.Linear(6, 5))
    wrapped = model if rank is None else nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), 0.5)
    model[1].eval()
    texts = {
        name: torch.randint(high, (24, 4), generator=torch.Generator().manual_seed(high)) for name, high in SOURCES
    }
    # Processes have unequal numbers of batches, and the second none of the last source.
    held_out = {name: list(rows[:12].split(4 if name != "c" else 12)) for name, rows in texts.items()}
    sources = {name: list(rows) for name, rows in texts.items()}
    references = proxy_losses(
        nn.Sequential(nn.Embedding(5, 6), nn.Dropout(0.2), nn.Linear(6, 5)), sources, held_out, steps=4
    )

    def made():
        return MixtureController({"a": 3e6, "b": 2e6, "c": 1e6}, radius=1.0, reference_losses=references)

    def start():
        controller = made()
        parts = {} if rank is None else {"rank": rank, "world_size": 2}
        return controller, MixtureStream(sources, controller, **parts)

    controller, stream = start()
    batches, consumed = iter(DataLoader(stream, 8 if rank is None else 4)), 0
    for step in range(1, 13):
        optimizer.zero_grad()
        total, number = next_token_loss(wrapped, next(batches))
        (total / number).backward()
        optimizer.step()
        consumed += 8
        if step % 3 == 0:
            controller.update(*source_losses(wrapped, held_out))
            stream.follow(controller, after=consumed + 16)
        if step == 7:
            states = controller.state_dict(), stream.state_dict(consumed)
            controller, stream = start()
            controller.load_state_dict(states[0])
            stream.load_state_dict(states[1])
            batches = iter(DataLoader(stream, 8 if rank is None else 4))
    given = made()
    for losses in ([0.3, 0.7, 0.2], [0.1, 0.9, 1.7]):
        given.update(losses, tokens=[7, 3, 11])
    return {
        "references": torch.tensor(list(references.values())),
        "shares": torch.tensor(controller.probabilities),
        "average": torch.tensor(list(controller.average.values())),
        "given": torch.tensor(given.probabilities),
        "model": model.state_dict(),
        "refused": all(refuses(given, losses) for losses in ([math.nan, 1.0, 1.0], [1.0, math.inf, 1.0])),
    }


def patient(rank):
    """Train proxies, the first of which takes longer than processes of the default group wait for each other."""

    def slow(model, batch):
        if rank == 0:
            time.sleep(0.2)
        return next_token_loss(model, batch)

    text = {name: [torch.zeros(2, 4, dtype=torch.long)] for name in "abc"}
    sources = {name: [one[0] for one in batches] for name, batches in text.items()}
    model = nn.Sequential(nn.Embedding(5, 6), nn.Linear(6, 5))
    return list(proxy_losses(model, sources, text, steps=8, batch_size=2, batch_loss=slow).values())


def refuses(controller, losses):
    """Whether losses are refused that are wrong on the first process alone, and change nothing."""
    before = controller.state_dict()
    is_first = not distributed.is_initialized() or distributed.get_rank() == 0
    try:
        controller.update(losses if is_first else [1.0, 1.0, 1.0])
    except InvalidInputError:
        return controller.state_dict() == before
    return False


def main(rank, rendezvous, file):
    """Be one of two processes."""
    distributed.init_process_group("gloo", init_method=rendezvous, rank=rank, world_size=2)
    try:
        found = {(kind, split): train(kind, split, rank) for kind in KINDS for split in SPLITS}
        # The second process has too few rows to prefer anything but the plain network.
        found["guard"] = guarded(rank, None if rank == 0 else ONE_EACH)
        found["held-out"] = by_held_out(rank)
        found["mixture"] = mixture(rank)
        distributed.destroy_process_group()
        options = {"init_method": f"{rendezvous}_again", "timeout": timedelta(seconds=2)}
        distributed.init_process_group("gloo", rank=rank, world_size=2, **options)
        found["patient"] = torch.tensor(patient(rank))
        torch.save(found, file)
    finally:
        distributed.destroy_process_group()


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """What each of two processes found."""
    folder = tmp_path_factory.mktemp("two")
    files = [folder / f"{rank}.pt" for rank in range(2)]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.torch_.test_distributed", str(rank), (folder / "meet").as_uri(), str(file)],
            env=environment,
            cwd=Path(__file__).parents[2],
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank, file in enumerate(files)
    ]
    finish(processes, 60.0)
    return [torch.load(file, weights_only=True) for file in files]


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("kind", KINDS)
def test_two_processes_are_one_with_the_whole_batch(both, kind, split):
    alone = train(kind, split)
    for found in both:
        part = found[kind, split]
        for name in ("gradients", "weights"):
            for one, all_ in zip(part[name], alone[name], strict=True):
                torch.testing.assert_close(one, all_, rtol=1e-5, atol=1e-6)
        for name in ("state", "model"):
            for key, value in alone[name].items():
                torch.testing.assert_close(part[name][key], value, rtol=1e-5, atol=1e-6)


def test_processes_wait_for_proxies_of_others(both):
    assert torch.equal(both[0]["patient"], both[1]["patient"])
    assert (both[0]["patient"] > 0.0).all()


def test_two_processes_follow_the_held_out_rows_of_both(both):
    alone = by_held_out()
    for found in both:
        torch.testing.assert_close(found["held-out"]["weights"], alone["weights"], rtol=1e-4, atol=1e-6)
        torch.testing.assert_close(found["held-out"]["risks"], alone["risks"], rtol=1e-4, atol=1e-6)
    assert alone["weights"][-1].max() > 0.501


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("kind", KINDS)
def test_values_average_to_that_of_the_whole_batch(both, kind, split):
    alone = train(kind, split)
    for step in range(STEPS):
        mean = sum(found[kind, split]["values"][step] for found in both) / 2
        torch.testing.assert_close(mean, alone["values"][step], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_weights_are_the_same_bits_everywhere(both, kind):
    first, second = (found[kind, "unequal"]["state"] for found in both)
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_two_processes_keep_the_same_network(both):
    alone = guarded()
    assert alone["chosen"] == "robust"
    first, second = (found["guard"] for found in both)
    assert "no other can be judged" in second["own"]
    for found in (first, second):
        assert found["chosen"] == "robust"
        for name, value in alone["model"].items():
            torch.testing.assert_close(found["model"][name], value, rtol=1e-4, atol=1e-5)


# A few steps of training are ahead of proxies that had fewer.
@pytest.mark.filterwarnings("ignore:the held-out loss of . is .* far below its reference")
def test_two_processes_train_on_the_mixture_of_one(both):
    alone = mixture()
    first, second = (found["mixture"] for found in both)
    for name in ("references", "shares", "average", "given"):
        assert torch.equal(first[name], second[name]), name
    assert torch.equal(first["given"], alone["given"])
    assert torch.equal(first["references"], alone["references"])
    for name in ("shares", "average"):
        torch.testing.assert_close(first[name], alone[name], rtol=1e-5, atol=1e-7)
    for name, value in alone["model"].items():
        torch.testing.assert_close(first["model"][name], value, rtol=1e-4, atol=1e-5)
    assert all(found["refused"] for found in (alone, first, second))


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3])
