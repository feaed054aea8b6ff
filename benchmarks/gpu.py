"""What robustness costs on a GPU: a training step of a network, and a linear fit whose rows lie on the device.

Usage: python benchmarks/gpu.py [step] [fit] [--rows 10000000] [--columns 100] [--contexts 1000]

``step`` times one optimiser step of a ResNet-18 (batch 256, 50 contexts) with the robust loss and with a plain mean,
interleaved, after warming up. ``fit`` fits a robust logistic regression, counts its passes over the rows, and compares
with the time that reading the rows so often would take at the bandwidth that is measured first.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch
from counterpoise.oracle.summed import SummedOracle, Sums
from counterpoise.torch.rows import TorchRows
from torch import nn

from counterpoise.contexts import encode
from counterpoise.fit import Robustness, fit_problem
from counterpoise.losses import Logistic
from counterpoise.problem import SummedProblem
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


@dataclass(eq=False)
class Counted:
    """Rows that count how often they are passed over, and for how long."""

    rows: TorchRows
    passes: dict[str, int] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)

    def __getattr__(self, name: str) -> object:
        return getattr(self.rows, name)

    def _timed(self, name: str, call: Callable[[], object]) -> object:
        start = time.perf_counter()
        result = call()
        self.passes[name] = self.passes.get(name, 0) + 1
        self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start
        return result

    def sums(self, theta: np.ndarray, cut: float = 0.0) -> Sums:
        """Count one pass."""
        name = "sums" if theta.ndim == 1 else "sums of each"
        return self._timed(name, lambda: self.rows.sums(theta, cut))  # type: ignore

    def hessian(self, theta: np.ndarray, weights: np.ndarray, cut: float = 0.0) -> np.ndarray:
        """Count one pass."""
        return self._timed("hessian", lambda: self.rows.hessian(theta, weights, cut))  # type: ignore

    def hessians(self, theta: np.ndarray, cut: float = 0.0) -> np.ndarray:
        """Count one pass."""
        return self._timed("hessians of each", lambda: self.rows.hessians(theta, cut))  # type: ignore


def bandwidth(device: torch.device) -> float:
    """Return bytes read per second by a sum over a gigabyte and more."""
    x = torch.ones(1 << 28, dtype=torch.float64 if device.type == "cuda" else torch.float32, device=device)
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


def linear_fit(n: int, d: int, n_contexts: int, dtype: torch.dtype, device: torch.device) -> None:
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
    rows = Counted(TorchRows.of(X, y, weight, contexts.codes, n_contexts, Logistic()))
    problem = SummedProblem(SummedOracle(rows, 1e-4), contexts, contexts.counts.astype(float))  # type: ignore[arg-type]
    robustness = Robustness(radius=0.05)
    _wait(device)
    start = time.perf_counter()
    references = problem.references("in-sample", 1e-6)
    middle = time.perf_counter()
    fit = fit_problem(problem, robustness.ball(problem.counts), references, tol=1e-6)
    _wait(device)
    end = time.perf_counter()
    passes = sum(rows.passes.values())
    size = X.numel() * X.element_size()
    floor = size / bandwidth(device) * passes
    name = torch.cuda.get_device_name() if device.type == "cuda" else f"CPU, {torch.get_num_threads()} threads"
    print(
        f"{name}: n={n:,} d={d} C={n_contexts} {str(dtype)[6:]}: {end - start:.2f} s "
        f"(references {middle - start:.2f}), {passes} passes, floor {floor:.3f} s, "
        f"ratio {(end - start) / floor:.1f}, gap {fit.solution.certificate.relative_gap:.1e}, "
        f"certified {fit.solution.success}"
    )
    print(
        "    "
        + ", ".join(
            f"{name} {rows.passes[name]} x {rows.seconds[name] / rows.passes[name]:.4f} s" for name in rows.passes
        )
    )


def main() -> None:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="*", default=["step", "fit"])
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--columns", type=int, default=100)
    parser.add_argument("--contexts", type=int, default=1000)
    options = parser.parse_args()
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
