"""A family of shapes: whole robust fits beside scikit-learn's plain ones, their certificates, and their memory."""

from __future__ import annotations

import subprocess
import sys
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from certified import Fits
from shapes import FAMILY, Shape
from sklearn.linear_model import LogisticRegression
from timing import Asked, Call, Result, alone, at_most, measured

import counterpoise as cpo

ALPHA = 1e-4
"""The ridge of both sides."""

LIMIT, GOAL = 1.5, 1.0
"""How many times as long as lbfgs a robust fit may take, and would better take."""

MEMORY = 1.3
"""The most memory beyond X, in units of X."""


def robust() -> Any:
    """Return the model that is timed."""
    return cpo.RobustLogisticRegression(alpha=ALPHA, tol=1e-6)


def plain(solver: str, X: Any, y: Any, alpha: float = ALPHA) -> Call:
    """Return a call that fits scikit-learn's model with the same ridge, to the same tolerance."""
    return lambda: LogisticRegression(solver=solver, tol=1e-6, C=1.0 / (alpha * len(y)), max_iter=2000).fit(X, y)


def family(asked: Asked, shapes: Sequence[Shape] = FAMILY) -> Iterator[Result]:
    """Time every shape beside two solvers of scikit-learn's, and have every certificate verified."""
    for shape in shapes:
        shape = shape.toy() if asked.toy else shape
        X, y, contexts = shape.rows()
        few = slice(0, 2000)
        # What is loaded at the first use is no part of a fit.
        for solver in ("lbfgs", "newton-cholesky"):
            plain(solver, X[few], y[few])()
        robust().fit(X[few], y[few], contexts=contexts[few])
        fits, steps = Fits("logistic", X, y, contexts), []
        ours, lbfgs, newton = asked.turns(
            lambda: fits.keep(robust().fit(X, y, contexts=contexts)),  # noqa: B023
            lambda: steps.append(plain("lbfgs", X, y)().n_iter_[0]),  # noqa: B023
            plain("newton-cholesky", X, y),
            warm=False,
        )
        work, note = f"robust fit, {shape}", f"goal {GOAL:g}; lbfgs takes {steps[0]} steps"
        yield at_most(work, "scikit-learn lbfgs, tol 1e-6", ours, lbfgs, LIMIT, note=note)
        yield measured(work, "scikit-learn newton-cholesky, tol 1e-6", ours, newton)
        yield fits.verified(f"certificate, {shape}")


def memory(asked: Asked, shapes: Sequence[Shape] = FAMILY) -> Iterator[Result]:
    """Measure the most memory beyond X of one fit of every shape, each in a process of its own."""
    for shape in shapes:
        command = [sys.executable, str(Path(__file__)), shape.name, *["toy"] * asked.toy]
        said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        extra, size = (float(number) / 1e6 for number in said.split()[-2:])
        title = f"peak memory beyond X (MB), {shape.toy() if asked.toy else shape}"
        yield at_most(title, "size of X (MB)", alone(extra), alone(size), MEMORY)


def _in_status(name: str) -> int:
    """Return one of the process's own amounts of memory, in bytes."""
    return 1024 * int(Path("/proc/self/status").read_text().split(f"{name}:")[1].split()[0])


def main(name: str, toy: bool) -> None:
    """Print how many bytes more than before one fit needs at its peak, and the size of X."""
    warnings.simplefilter("ignore")
    shape = next(shape for shape in FAMILY if shape.name == name)
    shape = shape.toy() if toy else shape
    X, y, contexts = shape.rows()
    few = slice(0, 2000)
    robust().fit(X[few], y[few], contexts=contexts[few])
    before = _in_status("VmRSS")
    # The peak begins anew: what the rows themselves needed while they were made does not count.
    Path("/proc/self/clear_refs").write_text("5")
    robust().fit(X, y, contexts=contexts)
    print(_in_status("VmHWM") - before, X.nbytes)


if __name__ == "__main__":
    main(sys.argv[1], "toy" in sys.argv[2:])
