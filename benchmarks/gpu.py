"""What robustness costs on a GPU: a training step of a network, and a linear fit whose rows lie on the device.

Usage: python benchmarks/gpu.py [step] [fit] [--rows 10000000] [--columns 100] [--contexts 1000] [--toy]

``step`` times optimiser steps with the robust loss and with a plain mean: see ``benchmarks/gpu_step.py``.
``fit`` fits robust linear models (logistic; with a tenth of the rows kinked losses, cross-fitted references and a whole
path of radii too), counts the passes over the rows, and compares with the time that reading the rows so often would
take at the bandwidth that is measured. A look at predictions and gradients is one pass, though it reads the rows twice;
Gram matrices are another.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from typing import Any, Literal

import gpu_step
import numpy as np
import torch

from counterpoise.contexts import encode
from counterpoise.core.fit import fit_problem
from counterpoise.core.oracle import LinearOracle
from counterpoise.core.path import solve_path
from counterpoise.core.problem import LinearProblem
from counterpoise.losses import Huber, Logistic, Loss, Pinball
from counterpoise.rows.device import TorchRows, TorchTiles
from counterpoise.sets import KLBall


@dataclass
class Passes:
    """How often rows were looked at: their predictions (with gradients, which come along), and Gram matrices.

    Part of the rows is part of a pass.
    """

    n_rows: int
    predictions: float = 0.0
    grams: float = 0.0

    @property
    def total(self) -> float:
        """All of them."""
        return self.predictions + self.grams


@contextmanager
def counted(n_rows: int) -> Iterator[Passes]:
    """Count the looks at rows on a device."""
    passes, product, gram = Passes(n_rows), TorchTiles.product, TorchTiles.gram

    def looked(tiles: TorchTiles) -> float:
        n, tile = tiles.shape
        return n * tile / passes.n_rows

    def counted_product(tiles: TorchTiles, theta: Any) -> Any:
        # Constant predictions are no look.
        passes.predictions += looked(tiles) * bool(theta[:, : tiles.coefficients.n_features].any())
        return product(tiles, theta)

    def counted_gram(tiles: TorchTiles, *args: Any, **options: Any) -> Any:
        passes.grams += looked(tiles)
        return gram(tiles, *args, **options)

    TorchTiles.product, TorchTiles.gram = counted_product, counted_gram  # type: ignore[method-assign]
    try:
        yield passes
    finally:
        TorchTiles.product, TorchTiles.gram = product, gram  # type: ignore[method-assign]


def bandwidth(device: torch.device, n: int, dtype: torch.dtype) -> float:
    """Return bytes read per second by a sum over so many numbers."""
    x = torch.ones(n, dtype=dtype, device=device)
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


@dataclass(frozen=True)
class Task:
    """What is fitted: a loss, where references come from, and whether a whole path of radii is."""

    words: str
    loss: Loss
    reference: Literal["in-sample", "cross-fit"] = "in-sample"
    radii: tuple[float, ...] = (0.05,)


TASKS = {
    "fit": Task("", Logistic()),
    "quantile": Task("quantile: ", Pinball(0.5)),
    "huber": Task("huber: ", Huber()),
    "cross-fit": Task("logistic, cross-fit: ", Logistic(), reference="cross-fit"),
    "path": Task("logistic, path of 50: ", Logistic(), radii=tuple(0.2 * (np.arange(50) / 49.0) ** 2)),
}


def drawn(n: int, d: int, n_contexts: int, dtype: torch.dtype, device: torch.device) -> tuple[Any, Any, Any]:
    """Return features, linear predictions, and sorted contexts that differ in three coefficients."""
    generator = torch.Generator(device=device).manual_seed(0)
    X = torch.randn(n, d, dtype=dtype, device=device, generator=generator)
    codes = np.sort(np.random.default_rng(0).integers(n_contexts, size=n))
    shift = 0.3 * torch.randn(n_contexts, 3, dtype=dtype, device=device, generator=generator)
    coef = torch.randn(d, dtype=dtype, device=device, generator=generator) / d**0.5
    z = X @ coef + (X[:, :3] * shift[torch.as_tensor(codes, device=device)]).sum(1)
    noise = torch.rand(n, dtype=dtype, device=device, generator=generator)
    return X, (z, noise), codes


def linear_fit(
    n: int,
    d: int,
    n_contexts: int,
    dtype: torch.dtype,
    device: torch.device,
    n_read: int = 1 << 28,
    task: Task = TASKS["fit"],
) -> None:
    """Fit a robust model, references included, and print the time beside that of reading the rows as often."""
    X, (z, noise), codes = drawn(n, d, n_contexts, dtype, device)
    logit = torch.logit(noise.double().clamp(1e-12, 1.0 - 1e-12))
    y = z.double() + logit if task.loss.is_hinged else (noise < torch.sigmoid(z)).double()
    contexts = encode(codes)
    weight = torch.as_tensor(1.0 / contexts.counts[codes], device=device)
    rows = TorchRows.of(X, y, weight, contexts.codes, n_contexts, task.loss)
    problem = LinearProblem(LinearOracle(rows, 1e-4), contexts, contexts.counts.astype(float))
    ball = KLBall(problem.counts / problem.counts.sum(), task.radii[-1])
    tiles, tile = rows.tiles.shape
    with counted(tiles * tile) as passes:
        _wait(device)
        start = time.perf_counter()
        references = problem.references(task.reference, 1e-6)
        middle = time.perf_counter()
        if len(task.radii) > 1:
            solutions = list(solve_path(problem, references, ball, np.array(task.radii), 1e-6))
        else:
            solutions = [fit_problem(problem, ball, references, tol=1e-6).solution]
        _wait(device)
        end = time.perf_counter()
    # The largest features are looked for once.
    looks = passes.total + ("reach" in vars(rows))
    floor = X.numel() * X.element_size() / bandwidth(device, n_read, dtype) * looks
    name = torch.cuda.get_device_name() if device.type == "cuda" else f"CPU, {torch.get_num_threads()} threads"
    gap = max(solution.certificate.relative_gap for solution in solutions)
    print(
        f"{name}: {task.words}n={n:,} d={d} C={n_contexts} {str(dtype)[6:]}: {end - start:.3f} s "
        f"(references {middle - start:.3f}), {looks:.0f} passes ({passes.grams:.1f} of Gram matrices), "
        f"floor {floor:.3f} s, ratio {(end - start) / floor:.1f}, "
        f"gap {gap:.1e}, certified {all(solution.success for solution in solutions)}"
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="*", default=["step", "fit"])
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--columns", type=int, default=100)
    parser.add_argument("--contexts", type=int, default=1000)
    parser.add_argument("--toy", action="store_true", help="small fits on the CPU, to see that they run")
    options = parser.parse_args(arguments)
    if options.toy:
        for task in TASKS.values():
            linear_fit(400, 3, 4, torch.float64, torch.device("cpu"), 1 << 16, task)
        return
    has_gpu = torch.cuda.is_available()
    print(f"torch {torch.__version__}, {torch.cuda.get_device_name() if has_gpu else 'no GPU'}")
    if "step" in options.what:
        gpu_step.main([])
    if "fit" in options.what:
        shape = (options.rows, options.columns, options.contexts)
        small = (min(options.rows, 1_000_000), *shape[1:])
        if has_gpu:
            # Whatever is loaded or chosen at a first call is not part of a fit.
            with redirect_stdout(None):
                for dtype in (torch.float32, torch.float64):
                    linear_fit(100_000, options.columns, 50, dtype, torch.device("cuda"))
            for dtype in (torch.float32, torch.float64):
                linear_fit(*shape, dtype, torch.device("cuda"))
                linear_fit(*small, dtype, torch.device("cuda"))
            for task in list(TASKS.values())[1:]:
                linear_fit(*small, torch.float64, torch.device("cuda"), task=task)
        if "cpu" in options.what or not has_gpu:
            linear_fit(*small, torch.float64, torch.device("cpu"))


if __name__ == "__main__":
    main()
