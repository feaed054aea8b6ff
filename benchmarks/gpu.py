"""What robustness costs on a GPU: a training step of a network, and a linear fit whose rows lie on the device.

Usage: python benchmarks/gpu.py [step] [fit] [--rows 10000000] [--columns 100] [--contexts 1000] [--toy]

``step`` times optimiser steps with the robust loss and with a plain mean: see ``benchmarks/gpu_step.py``. ``fit`` fits
a robust logistic regression, counts its passes over the rows, and compares with the time that reading the rows so often
would take at the bandwidth that is measured first.
"""

from __future__ import annotations

import argparse
import functools
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import gpu_step
import numpy as np
import torch

from counterpoise.contexts import encode
from counterpoise.core.fit import Robustness, fit_problem
from counterpoise.core.oracle import LinearOracle
from counterpoise.core.problem import LinearProblem
from counterpoise.losses import Logistic
from counterpoise.rows.device import TorchRows


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
    if "step" in options.what:
        gpu_step.main([])
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
