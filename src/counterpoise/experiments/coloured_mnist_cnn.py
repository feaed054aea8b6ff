"""The coloured digits again, by a small convolutional network from the pixels on, with no features learnt beforehand.

Usage: python -m counterpoise.experiments.coloured_mnist_cnn [FOLDER OF MNIST] [--seeds 5] [--device cuda]

It needs PyTorch (extra ``torch``). Contexts, their mix and the colours are those of the paper's experiment.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from counterpoise.experiments._base import Array, Row, generator
from counterpoise.experiments.coloured_mnist import MIX, drawn, in_contexts, is_high
from counterpoise.experiments.mnist import Digits, load_digits
from counterpoise.experiments.results import Results
from counterpoise.torch import (
    ContextLoss,
    ERMLoss,
    GroupDROLoss,
    InverseFrequencyLoss,
    RobustLoss,
    fit,
    per_sample,
    reference_risks,
)

NAME = "coloured-mnist-cnn"

Methods = dict[str, Callable[[Array, Array], ContextLoss]]

METHODS: Methods = {
    "robust": lambda counts, least: RobustLoss(counts, reference_risks=least, draws=_DRAWS),
    "robust-ascent": lambda counts, least: RobustLoss(counts, reference_risks=least, draws=_DRAWS, update="ascent"),
    "erm": lambda counts, least: ERMLoss(counts),
    "inverse-frequency": lambda counts, least: InverseFrequencyLoss(counts),
    "minimax-risk": lambda counts, least: RobustLoss(counts, confidence=1.0),
    "minimax-regret": lambda counts, least: RobustLoss(counts, confidence=1.0, reference_risks=least),
    "group-dro": lambda counts, least: GroupDROLoss(counts),
}
"""Every method, from the counts and the least risks of contexts."""

_DRAWS = 900
"""Independent draws of a context: as many as the samples of the paper's experiment, so that the set is as large."""


def network() -> nn.Module:
    """Return two convolutions and two layers on top: 102,000 parameters."""
    return nn.Sequential(
        nn.Conv2d(2, 16, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(32 * 49, 56),
        nn.ReLU(),
        nn.Linear(56, 2),
    )


def coloured(images: Any, red: Any) -> Tensor:
    """Return images as (n, 2, 28, 28), the digit in one of two channels."""
    pixels = torch.as_tensor(np.asarray(images, dtype=np.float32) / 255.0).reshape(-1, 1, 28, 28)
    in_red = torch.as_tensor(np.asarray(red, dtype=np.float32)).reshape(-1, 1, 1, 1)
    return torch.cat([pixels * in_red, pixels * (1.0 - in_red)], dim=1)


@torch.no_grad()
def judged(model: nn.Module, digits: Digits, device: torch.device) -> tuple[Array, Array]:
    """Return error and log loss in each context, over all test images in both colours, as probable as these are."""
    model.eval()
    high = is_high(digits.test_labels)
    target = torch.as_tensor(high, device=device)
    errors, losses = [], []
    for red in (1 - high, high):
        scores = torch.cat([model(part.to(device)) for part in torch.split(coloured(digits.test_images, red), 2000)])
        errors.append(float((scores.argmax(1) != target).double().mean()))
        losses.append(float(per_sample(scores, target).double().mean()))
    return in_contexts(*errors), in_contexts(*losses)


def run(
    digits: Digits, seed: int, *, n_samples: int = 20_000, epochs: int = 6, device: str = "cpu", methods: Any = None
) -> list[Row]:
    """Train every method from the same start on the same samples; return errors (in percent) and risks."""
    place = torch.device(device)
    high = is_high(digits.train_labels)
    contexts, images, red = drawn(high, n_samples, generator(seed, NAME, "data"))
    samples = coloured(digits.train_images[images], red), torch.as_tensor(high[images]), torch.as_tensor(contexts)
    # A quarter decides which epoch is kept.
    held_out, data = zip(*(torch.tensor_split(part, [n_samples // 4]) for part in samples), strict=True)
    counts = np.bincount(data[2].numpy(), minlength=len(MIX)).astype(np.float64)
    torch.manual_seed(seed)
    start = network().to(place)
    least = reference_risks(start, TensorDataset(*data[:2]), data[2], epochs=epochs, seed=seed)
    rows = []
    for name in methods or METHODS:
        model = network().to(place)
        model.load_state_dict(start.state_dict())
        loss, optimizer = METHODS[name](counts, least), torch.optim.Adam(model.parameters(), 1e-3)
        # Every method is judged by the same rule: the largest held-out excess risk of any context.
        judges = {"held_out": _Batches(held_out, 1000, seed, place), "reference_risks": least.tolist(), "guard": False}
        fit(model, loss, _Batches(data, 128, seed, place), optimizer, epochs=epochs, device=place, **judges)
        errors, risks = judged(model, digits, place)
        rows += [Row(NAME, name, f"error-{c + 1}", seed, 100.0 * error) for c, error in enumerate(errors)]
        rows += [Row(NAME, name, f"risk-{c + 1}", seed, risk) for c, risk in enumerate(risks)]
        rows += [Row(NAME, name, "worst-error", seed, 100.0 * errors.max())]
        rows += [Row(NAME, name, "mean-error", seed, 100.0 * float(MIX @ errors))]
    return rows


@dataclass(eq=False)
class _Batches:
    """Batches of samples that lie on the device already."""

    data: tuple[Tensor, ...]
    size: int
    seed: int
    device: torch.device

    def __post_init__(self) -> None:
        self.parts = tuple(part.to(self.device) for part in self.data)
        self.generator = torch.Generator().manual_seed(self.seed)

    def __iter__(self) -> Any:
        order = torch.randperm(len(self.parts[0]), generator=self.generator).to(self.device)
        for chosen in torch.split(order, self.size):
            yield tuple(part[chosen] for part in self.parts)


def main() -> None:
    """Run all seeds, and print medians."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, help="with the four standard MNIST files")
    parser.add_argument("--download", action="store_true", help="fetch the images from OpenML where they are not here")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--samples", type=int, default=20_000)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    digits = load_digits(options.folder, download=options.download)
    samples = min(options.samples, len(digits.train_images))
    rows = [
        row
        for seed in range(options.seeds)
        for row in run(digits, seed, n_samples=samples, epochs=options.epochs, device=options.device)
    ]
    print(f"{options.seeds} seeds, {samples} samples, {digits.source}; medians, in brackets the range")
    print(f"{'method':<20}{'worst-context error %':>30}{'mean error %':>26}")
    results = Results(tuple(rows))
    for name in METHODS:
        worst, mean = (results.series(NAME, name, metric) for metric in ("worst-error", "mean-error"))
        print(f"{name:<20}{_with_range(worst):>30}{_with_range(mean):>26}")


def _with_range(values: Array) -> str:
    return f"{np.median(values):.2f} [{values.min():.2f}, {values.max():.2f}]"


if __name__ == "__main__":
    main()
