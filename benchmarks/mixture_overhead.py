"""What a mixture of sources costs in a training step, beside plain sampling.

Usage: python benchmarks/mixture_overhead.py [--toy]

A small language model (ten million parameters on a GPU, one million on the CPU) is trained on batches from a
MixtureStream, whose controller is updated every fifty steps with given losses; from all sources together in random
order; and by a weighted sampler. Fifty steps of each take turns. A ratio is the median over turns of their time by that
of plain sampling in the same turn, with the middle half of turns. What reading alone takes is timed without the model.
Held-out evaluation, which plain training needs as well in order to be judged, is timed by itself.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
from torch import nn
from torch.utils.data import ConcatDataset, DataLoader, RandomSampler, WeightedRandomSampler

from counterpoise.torch import MixtureController, MixtureStream, next_token_loss, source_losses

EVERY = 50
SIZES = {f"source {k}": int(60_000 * 0.7**k) for k in range(10)}


class LanguageModel(nn.Module):
    """A decoder: tokens in, logits of the next ones out."""

    def __init__(self, width: int, depth: int, length: int, n_words: int = 1000) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(n_words, width), nn.Embedding(length, width)
        layer = nn.TransformerEncoderLayer(width, width // 32, 4 * width, 0.0, batch_first=True, norm_first=True)
        self.body = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(length))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return logits."""
        hidden = self.words(tokens) + self.places.weight
        return self.body(hidden, mask=self.mask, is_causal=True) @ self.words.weight.T


Batches = Iterator[torch.Tensor]
Arm = tuple[Batches, Callable[[int], None]]


def endless(loader: DataLoader[torch.Tensor]) -> Batches:
    """Begin a loader again at its end."""
    while True:
        yield from loader


def arms(sources: dict[str, torch.Tensor], batch_size: int) -> dict[str, Arm]:
    """Return batches of each way to sample, and what is done after a number of steps."""
    together = ConcatDataset(list(sources.values()))
    plain = DataLoader(together, batch_size, sampler=RandomSampler(together))
    weights = np.concatenate([np.full(len(rows), 1.0 / len(rows)) for rows in sources.values()])
    weighted = DataLoader(together, batch_size, sampler=WeightedRandomSampler(weights.tolist(), 100_000))
    controller = MixtureController({name: float(len(rows)) for name, rows in sources.items()}, radius=1.0)
    stream = MixtureStream(sources, controller)
    rng = np.random.default_rng(0)

    def update(step: int) -> None:
        controller.update(rng.uniform(2.0, 3.0, len(sources)), at=step)
        stream.follow(controller)

    mixture = DataLoader(stream, batch_size)
    return {
        "plain": (endless(plain), lambda step: None),
        "weighted": (endless(weighted), lambda step: None),
        "mixture": (iter(mixture), update),
    }


def timed(arm: Arm, train: Callable[[torch.Tensor], None], first: int, wait: Callable[[], None]) -> float:
    """Return the milliseconds of a step, over fifty of them."""
    batches, update = arm
    wait()
    start = time.perf_counter()
    for _ in range(EVERY):
        train(next(batches))
    update(first + EVERY)
    wait()
    return (time.perf_counter() - start) * 1000.0 / EVERY


def measure(width: int, depth: int, length: int, batch_size: int, rounds: int, device: str) -> list[str]:
    """Return a line for each way to sample, and one for held-out evaluation."""
    torch.manual_seed(0)
    sources = {name: torch.randint(1000, (size, length)) for name, size in SIZES.items()}
    model = LanguageModel(width, depth, length).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)

    def train(batch: torch.Tensor) -> None:
        total, number = next_token_loss(model, batch.to(device, non_blocking=True))
        optimizer.zero_grad(set_to_none=True)
        (total / number).backward()
        optimizer.step()

    def read(batch: torch.Tensor) -> None:
        batch.to(device, non_blocking=True)

    def wait() -> None:
        if device == "cuda":
            torch.cuda.synchronize()

    ways = arms(sources, batch_size)
    times: dict[str, list[float]] = {name: [] for name in ways}
    reading: dict[str, list[float]] = {name: [] for name in ways}
    for k in range(-1, rounds):
        # Whose turn is first changes, so that nobody always follows the same one.
        for name in sorted(ways, key=lambda name: (list(ways).index(name) + k) % len(ways)):
            one, other = (
                timed(ways[name], train, 2 * k * EVERY, wait),
                timed(ways[name], read, (2 * k + 1) * EVERY, wait),
            )
            if k >= 0:
                times[name].append(one)
                reading[name].append(other)
    held_out = {name: list(rows[: 4 * batch_size].split(batch_size)) for name, rows in sources.items()}
    wait()
    start = time.perf_counter()
    source_losses(model, held_out)
    wait()
    judged = (time.perf_counter() - start) * 1000.0
    size = sum(parameter.numel() for parameter in model.parameters()) / 1e6
    step = statistics.median(times["plain"])
    lines = [f"{device}, {size:.1f} million parameters, {batch_size} x {length} tokens, {len(sources)} sources"]
    for name, found in times.items():
        ratios = np.array(found) / times["plain"]
        low, middle, high = np.quantile(ratios, [0.25, 0.5, 0.75])
        lines.append(
            f"{name}: {statistics.median(found):.2f} ms a step, reading {statistics.median(reading[name]):.3f} ms, "
            f"ratio {middle:.3f} ({low:.3f} to {high:.3f})"
        )
    lines.append(
        f"held-out evaluation: {judged:.0f} ms for {sum(map(len, held_out.values()))} batches, "
        f"{judged / (EVERY * step):.1%} of {EVERY} steps, {judged / (1000 * step):.1%} of 1000"
    )
    return lines


def main(arguments: Sequence[str] | None = None) -> int:
    """Time everything; return 1 where the target is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--toy", action="store_true", help="a tiny model for two turns, to see that it runs")
    options = parser.parse_args(arguments)
    if options.toy:
        lines = measure(32, 1, 8, 2, 2, "cpu")
    elif torch.cuda.is_available():
        lines = measure(320, 8, 256, 32, 20, "cuda")
    else:
        lines = measure(128, 4, 128, 8, 20, "cpu")
    print("\n".join(lines), flush=True)
    ratio = float(lines[-2].partition("ratio ")[2].partition(" ")[0])
    return int(not options.toy and ratio > 1.02)


if __name__ == "__main__":
    raise SystemExit(main())
