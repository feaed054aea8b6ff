"""What robustness costs in a training step: a ResNet-18 on a GPU, and a small network on the CPU.

Usage: python benchmarks/gpu_step.py [--toy]

One optimiser step with the robust loss and one with a plain mean, interleaved after warming up: of a ResNet-18 (batch
256, 50 contexts) with images of 224 and of 32 pixels, where there is a GPU, and of a network of a hundred thousand
parameters for digits (batch 128, 10 contexts) on the CPU. The search for the mix takes its turn at every step.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Sequence

import numpy as np
import torch
from torch import nn

from counterpoise.torch import RobustLoss


class Block(nn.Module):
    """Two convolutions and a shortcut."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(before, after, 3, stride, 1, bias=False),
            nn.BatchNorm2d(after),
            nn.ReLU(inplace=True),
            nn.Conv2d(after, after, 3, 1, 1, bias=False),
            nn.BatchNorm2d(after),
        )
        same = before == after and stride == 1
        self.shortcut = (
            nn.Identity()
            if same
            else nn.Sequential(nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after))
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Add the shortcut."""
        return torch.relu(self.body(x) + self.shortcut(x))


def resnet18(n_classes: int = 1000) -> nn.Module:
    """Return the network of eleven million parameters."""
    widths = [(64, 64, 1), (64, 64, 1), (64, 128, 2), (128, 128, 1), (128, 256, 2), (256, 256, 1), (256, 512, 2)]
    stem = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
    blocks = [Block(*sizes) for sizes in [*widths, (512, 512, 1)]]
    return nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, n_classes))


def small_network(n_classes: int = 10) -> nn.Module:
    """Return a network of a hundred thousand parameters for images of 28 pixels."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(32 * 7 * 7, 60),
        nn.ReLU(),
        nn.Linear(60, n_classes),
    )


def steps(
    model: nn.Module,
    images: torch.Tensor,
    n_classes: int,
    n_contexts: int,
    *,
    amp: bool = False,
    update: str = "closed-form",
    refresh: int = 1,
    rounds: int = 15,
    in_a_row: int = 10,
) -> tuple[float, float]:
    """Return the median milliseconds of a plain and of a robust step, timed in turn."""
    device, n = images.device, len(images)
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
    y = torch.randint(n_classes, (n,), device=device)
    contexts = torch.randint(n_contexts, (n,), device=device)
    options = {"reference_risks": np.zeros(n_contexts), "radius": 0.1, "update": update, "refresh": refresh}
    robust = RobustLoss(np.full(n_contexts, 1000.0), **options).to(device)

    def step(robustly: bool) -> None:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(device.type, torch.bfloat16, enabled=amp):
            losses = nn.functional.cross_entropy(model(images), y, reduction="none")
        value = robust(losses, contexts) if robustly else losses.mean()
        value.backward()
        optimizer.step()

    def wait() -> None:
        if device.type == "cuda":
            torch.cuda.synchronize()

    for _ in range(in_a_row):
        step(False)
        step(True)
    # Several steps at a time, so that the host may run ahead of the device as it does in training.
    times: dict[bool, list[float]] = {False: [], True: []}
    for _ in range(rounds):
        for robustly in (False, True):
            wait()
            start = time.perf_counter()
            for _ in range(in_a_row):
                step(robustly)
            wait()
            times[robustly].append((time.perf_counter() - start) * 1000.0 / in_a_row)
    return statistics.median(times[False]), statistics.median(times[True])


def report(name: str, times: tuple[float, float]) -> None:
    """Print a line."""
    plain, robust = times
    print(f"{name}: plain {plain:.2f} ms, robust {robust:.2f} ms, ratio {robust / plain:.3f}", flush=True)


def main(arguments: Sequence[str] | None = None) -> None:
    """Time everything."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--toy", action="store_true", help="a few small steps on the CPU, to see that it runs")
    options = parser.parse_args(arguments)
    torch.manual_seed(0)
    kinds = [("closed-form", 1), ("ascent", 1), ("closed-form", 10)]
    if options.toy:
        report("ResNet-18, toy", steps(resnet18(3), torch.randn(2, 3, 32, 32), 3, 2, rounds=1, in_a_row=1))
    elif torch.cuda.is_available():
        for size in (224, 32):
            model = resnet18().to("cuda", memory_format=torch.channels_last)
            images = torch.randn(256, 3, size, size, device="cuda").to(memory_format=torch.channels_last)
            for amp in (False, True):
                for update, refresh in kinds:
                    kind = f"{'bfloat16' if amp else 'float32'}, {update}, refresh {refresh}"
                    times = steps(model, images, 1000, 50, amp=amp, update=update, refresh=refresh)
                    report(f"ResNet-18, {size} px, {kind}", times)
    rounds, images = (1, torch.randn(4, 1, 28, 28)) if options.toy else (40, torch.randn(128, 1, 28, 28))
    threads = torch.get_num_threads()
    for update, refresh in kinds:
        times = steps(small_network(), images, 10, 10, update=update, refresh=refresh, rounds=rounds, in_a_row=5)
        report(f"small network, CPU ({threads} threads), {update}, refresh {refresh}", times)


if __name__ == "__main__":
    main()
