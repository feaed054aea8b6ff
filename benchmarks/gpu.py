"""What robustness costs on a GPU: a training step of a network, and a linear fit whose rows lie on the device.

Usage: python benchmarks/gpu.py [step] [fit] [--rows 10000000] [--columns 100] [--contexts 1000] [--toy]

``step`` times one optimiser step of a ResNet-18 (batch 256, 50 contexts) with the robust loss and with a plain mean,
interleaved, after warming up. ``fit`` fits a robust logistic regression, counts its passes over the rows, and compares
with the time that reading the rows so often would take at the bandwidth that is measured first.
"""

from __future__ import annotations

import argparse
import functools
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from counterpoise.contexts import encode
from counterpoise.core.fit import Robustness, fit_problem
from counterpoise.core.oracle import LinearOracle
from counterpoise.core.problem import LinearProblem
from counterpoise.losses import Logistic
from counterpoise.rows.device import TorchRows
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


def steps(size: int, amp: bool, update: str, refresh: int) -> tuple[float, float]:
    """Return the median milliseconds of a plain and of a robust step, timed in turn."""
    device = torch.device("cuda")
    torch.manual_seed(0)
    model = resnet18().to(device, memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
    x = torch.randn(256, 3, size, size, device=device).to(memory_format=torch.channels_last)
    y = torch.randint(1000, (256,), device=device)
    contexts = torch.randint(50, (256,), device=device)
    options = {"reference_risks": np.zeros(50), "radius": 0.1, "update": update, "refresh": refresh}
    robust = RobustLoss(np.full(50, 1000.0), **options).to(device)

    def step(robustly: bool) -> None:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", torch.bfloat16, enabled=amp):
            losses = nn.functional.cross_entropy(model(x), y, reduction="none")
        value = robust(losses, contexts) if robustly else losses.mean()
        value.backward()
        optimizer.step()

    for _ in range(10):
        step(False)
        step(True)
    # Ten steps at a time, so that the host may run ahead of the device as it does in training.
    times: dict[bool, list[float]] = {False: [], True: []}
    for _ in range(15):
        for robustly in (False, True):
            torch.cuda.synchronize()
            start = time.perf_counter()
            for _ in range(10):
                step(robustly)
            torch.cuda.synchronize()
            times[robustly].append((time.perf_counter() - start) * 100.0)
    return statistics.median(times[False]), statistics.median(times[True])


class CountedRows(TorchRows):
    """Rows that count how often they are looked at from the first to the last."""

    n_passes = 0

    def pieces(self, copies: int) -> Iterator[slice]:
        """Yield tiles in pieces, once for each pass."""
        type(self).n_passes += 1
        return super().pieces(copies)


def _counted(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def call(self: Any, theta: np.ndarray, *args: Any, **options: Any) -> Any:
        start = time.perf_counter()
        answer = method(self, theta, *args, **options)
        if answer is not None:
            name = method.__name__ + " of each" * (theta.ndim == 2)
            self.passes.setdefault(name, []).append(time.perf_counter() - start)
        return answer

    return call


def bandwidth(device: torch.device, n: int) -> float:
    """Return bytes read per second by a sum over so many numbers."""
    x = torch.ones(n, dtype=torch.float64 if device.type == "cuda" else torch.float32, device=device)
    best = 0.0
    for _ in range(5):
        _wait(device)
        start = time.perf_counter()
        x.sum()
        _wait(device)
        best = max(best, x.numel() * x.element_size() / (time.perf_counter() - start))
    return best


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def linear_fit(
    n: int, d: int, n_contexts: int, dtype: torch.dtype, device: torch.device, n_read: int = 1 << 28
) -> None:
    """Fit a robust logistic regression, references included, and print where the time went."""
    generator = torch.Generator(device=device).manual_seed(0)
    X = torch.randn(n, d, dtype=dtype, device=device, generator=generator)
    codes = np.sort(np.random.default_rng(0).integers(n_contexts, size=n))
    shift = 0.3 * torch.randn(n_contexts, 3, dtype=dtype, device=device, generator=generator)
    coef = torch.randn(d, dtype=dtype, device=device, generator=generator) / d**0.5
    z = X @ coef + (X[:, :3] * shift[torch.as_tensor(codes, device=device)]).sum(1)
    y = (torch.rand(n, dtype=dtype, device=device, generator=generator) < torch.sigmoid(z)).double()
    contexts = encode(codes)
    weight = torch.as_tensor(1.0 / contexts.counts[codes], device=device)
    rows = CountedRows.of(X, y, weight, contexts.codes, n_contexts, Logistic())
    CountedRows.n_passes = 0
    problem = LinearProblem(LinearOracle(rows, 1e-4), contexts, contexts.counts.astype(float))
    robustness = Robustness(radius=0.05)
    _wait(device)
    start = time.perf_counter()
    references = problem.references("in-sample", 1e-6)
    middle = time.perf_counter()
    fit = fit_problem(problem, robustness.mixes(problem.counts), references, tol=1e-6)
    _wait(device)
    end = time.perf_counter()
    passes = rows.n_passes
    size = X.numel() * X.element_size()
    floor = size / bandwidth(device, n_read) * passes
    name = torch.cuda.get_device_name() if device.type == "cuda" else f"CPU, {torch.get_num_threads()} threads"
    print(
        f"{name}: n={n:,} d={d} C={n_contexts} {str(dtype)[6:]}: {end - start:.2f} s "
        f"(references {middle - start:.2f}), {passes} passes, floor {floor:.3f} s, "
        f"ratio {(end - start) / floor:.1f}, gap {fit.solution.certificate.relative_gap:.1e}, "
        f"certified {fit.solution.success}"
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="*", default=["step", "fit"])
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--columns", type=int, default=100)
    parser.add_argument("--contexts", type=int, default=1000)
    parser.add_argument("--toy", action="store_true", help="one small fit on the CPU, to see that it runs")
    options = parser.parse_args(arguments)
    if options.toy:
        linear_fit(400, 3, 4, torch.float64, torch.device("cpu"), 1 << 16)
        return
    has_gpu = torch.cuda.is_available()
    print(f"torch {torch.__version__}, {torch.cuda.get_device_name() if has_gpu else 'no GPU'}")
    if "step" in options.what and has_gpu:
        for size in (224, 32):
            for amp in (False, True):
                for update, refresh in (("closed-form", 1), ("ascent", 1), ("closed-form", 10)):
                    plain, robust = steps(size, amp, update, refresh)
                    kind = f"{'bfloat16' if amp else 'float32'}, {update}, refresh {refresh}"
                    print(
                        f"ResNet-18, {size} px, {kind}: plain {plain:.2f} ms, "
                        f"robust {robust:.2f} ms, ratio {robust / plain:.3f}"
                    )
    if "fit" in options.what:
        shape = (options.rows, options.columns, options.contexts)
        if has_gpu:
            for dtype in (torch.float32, torch.float64):
                linear_fit(*shape, dtype, torch.device("cuda"))
        small = (min(options.rows, 1_000_000), options.columns, options.contexts)
        for device in ("cuda", "cpu") if has_gpu else ("cpu",):
            linear_fit(*small, torch.float64, torch.device(device))


if __name__ == "__main__":
    main()
