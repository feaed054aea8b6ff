"""Where a whole fit spends its time, and how far that is from what the memory and the BLAS allow.

Functions that touch rows are wrapped, and count what they read in units of X: a look is a product with theta or with
the slopes of all rows. One thread, seconds of the processor. What no function of the table accounts for is the rest,
of which the largest functions are listed. A function of the table that no longer exists is an error.

Usage: python benchmarks/profile_fit.py --shape near [--toy]
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import resource
import statistics
import sys
import time
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import wraps
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from shapes import FAMILY, Shape
from speed_family import robust
from threadpoolctl import threadpool_limits

Units = Callable[[Any, Any], float]
"""What a call has read, in entries of X, from its arguments and its result."""

REPEATS = 3
"""Fits of which the median is shown: new memory costs more at some times than at others."""

READS = "looks: X theta", "looks: X' slopes", "Gram products", "copies of rows", "looks: both at once"
"""What reads X, and is counted in units of it."""


def _predicted(arguments: Any, result: Any) -> float:
    return len(result) * arguments[0].coefficients.n_features


def _of_slopes(arguments: Any, result: Any) -> float:
    return len(arguments[1]) * arguments[0].coefficients.n_features


def _looked(arguments: Any, result: Any) -> float:
    return 0.0 if result is None else float(len(result.predictions)) * arguments[0].coefficients.n_features


def _copied(arguments: Any, result: Any) -> float:
    return float(result.size if hasattr(result, "size") else 0)


def _padded(arguments: Any, result: Any) -> float:
    return float(result.layout.X.size)


def _selected(arguments: Any, result: Any) -> float:
    X = (result[0] if isinstance(result, tuple) else result).X
    return 0.0 if np.shares_memory(X, arguments[0].X) else float(X.size)


def _nothing(arguments: Any, result: Any) -> float:
    return 0.0


@dataclass(frozen=True)
class Entry:
    """A function of the library, or of scikit-learn, and what it does."""

    does: str
    module: str
    name: str
    units: Units = _nothing


TABLE = (
    Entry(READS[4], "counterpoise.rows.layouts", "Layout.look", _looked),
    Entry(READS[0], "counterpoise.rows.layouts", "Layout.product", _predicted),
    Entry(READS[1], "counterpoise.rows.layouts", "Layout.gather", _of_slopes),
    Entry(READS[2], "counterpoise.rows.layouts", "Layout.gram", _of_slopes),
    Entry(READS[3], "counterpoise.rows.products", "gathered", _copied),
    Entry(READS[3], "counterpoise.rows.memory", "MemoryRows.padded", _padded),
    Entry(READS[3], "counterpoise.rows.memory", "MemoryRows.subset", _selected),
    Entry(READS[3], "counterpoise.rows.memory", "MemoryRows.thinned", _selected),
    Entry(READS[3], "counterpoise.rows.memory", "MemoryRows.masked", _selected),
    Entry("losses of rows", "counterpoise.losses", "Loss.value"),
    Entry("losses of rows", "counterpoise.losses", "Loss.gradient"),
    Entry("losses of rows", "counterpoise.losses", "Loss.value_and_gradient"),
    Entry("losses of rows", "counterpoise.losses", "Loss.curvature"),
    Entry("losses of rows", "counterpoise.losses", "Loss.truncated"),
    Entry("checks of the input", "sklearn.utils.validation", "check_array"),
    Entry("checks of the input", "sklearn.utils.validation", "check_X_y"),
    Entry("checks of the input", "counterpoise.rows.products", "largest_entries"),
    Entry("contexts encoded", "counterpoise.contexts", "encode"),
    Entry("contexts encoded", "counterpoise.contexts", "Contexts.grouping_order"),
    Entry("small dense algebra", "counterpoise.linalg", "positive_solver"),
    Entry("small dense algebra", "counterpoise.linalg", "solve_stack"),
    Entry("small dense algebra", "counterpoise.linalg", "pseudo_inverse"),
    Entry("small dense algebra", "counterpoise.linalg", "spectrum"),
    Entry("small dense algebra", "counterpoise.linalg", "ArrayStack.solve"),
    Entry("small dense algebra", "counterpoise.linalg", "ArrayStack.inverse"),
    Entry("copies of rows", "counterpoise.rows.memory", "MemoryPart.thinned"),
    Entry("between looks: references", "counterpoise.core.references.newton", "minimise"),
    Entry("between looks: robust problem", "counterpoise.core.fit", "fit_problem"),
)


@dataclass
class Meter:
    """Seconds of each kind of work, without those of another kind inside it, and what was read."""

    clock: Callable[[], float] = time.process_time
    seconds: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    entries: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    calls: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    _inside: list[str] = field(default_factory=list)
    _since: float = 0.0

    def _turn(self) -> None:
        """Charge the time since the last turn to what is going on."""
        now = self.clock()
        if self._inside:
            self.seconds[self._inside[-1]] += now - self._since
        self._since = now

    def metered(self, entry: Entry, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that says what it costs."""

        @wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            self._turn()
            # Work inside work of the same kind is counted once.
            counts = entry.does not in self._inside
            self._inside.append(entry.does)
            try:
                result = function(*args, **kwargs)
            finally:
                self._turn()
                self._inside.pop()
            if counts:
                self.calls[entry.does] += 1
                self.entries[entry.does] += entry.units(args, result)
            return result

        return call

    @contextmanager
    def watching(self, table: Sequence[Entry] = TABLE) -> Iterator[None]:
        """Wrap the functions of a table, wherever they are imported."""
        undo: list[tuple[Any, str, Any]] = []
        try:
            for entry in table:
                for place, name, old in _places(entry):
                    undo.append((place, name, old))
                    setattr(place, name, self.metered(entry, old))
            yield
        finally:
            for place, name, old in reversed(undo):
                setattr(place, name, old)


def _places(entry: Entry) -> list[tuple[Any, str, Any]]:
    """Return where a function is looked up: in its class and those below, or in all modules that have imported it."""
    module = import_module(entry.module)
    owner, _, name = entry.name.rpartition(".")
    place = getattr(module, owner, None) if owner else module
    if place is None or not hasattr(place, name):
        gone = f"{entry.module}.{entry.name} no longer exists"
        raise LookupError(f"{gone}; say in TABLE of profile_fit.py what does {entry.does!r} now.")
    if owner:
        return [(cls, name, vars(cls)[name]) for cls in _with_heirs(place) if name in vars(cls)]
    own = getattr(module, name)
    modules = [one for key, one in list(sys.modules.items()) if key.startswith(("counterpoise", "sklearn"))]
    return [(one, name, own) for one in modules if vars(one).get(name) is own]


def _with_heirs(cls: type) -> list[type]:
    return [cls, *(heir for below in cls.__subclasses__() for heir in _with_heirs(below))]


@dataclass(frozen=True)
class Floor:
    """Seconds that the memory and the BLAS need for rows of one shape: the medians of a few calls."""

    read: float
    gram: float
    write: float
    fresh: float

    @classmethod
    def of(cls, X: np.ndarray, clock: Callable[[], float], repeats: int = 5) -> Floor:
        """Measure reading X by a product with a vector, its Gram product, and copies into old and into new memory."""
        v, copy = np.ones(X.shape[1]), np.empty_like(X)

        def seconds(call: Callable[[], Any]) -> float:
            start = clock()
            call()
            return clock() - start

        calls = (lambda: X @ v, lambda: X.T @ X, lambda: np.copyto(copy, X), X.copy)
        return cls(*(statistics.median(seconds(call) for _ in range(repeats)) for call in calls))

    def least(self, meter: Meter, size: int) -> float:
        """Return the seconds of the same looks, Grams and copies if memory and BLAS alone set the pace.

        Slopes are known as soon as predictions are, so that a look with both products need read a block of rows from
        memory once; the input is read once to be checked.
        """
        units = {does: meter.entries[does] / size for does in READS}
        looks = units[READS[4]] + max(units[READS[0]], units[READS[1]])
        return (1.0 + looks) * self.read + units[READS[2]] * self.gram + units[READS[3]] * self.write


@dataclass(frozen=True)
class Profile:
    """One shape: seconds of a fit, of these in the kernel, of a fit that is watched, what it did, and the floor."""

    shape: Shape
    plain: float
    kernel: float
    watched: float
    meter: Meter
    floor: Floor
    calls: cProfile.Profile

    @classmethod
    def of(cls, shape: Shape) -> Profile:
        """Fit a few times as it is, a few times watched, and once under Python's own profiler."""
        clock = time.process_time
        X, y, contexts = shape.rows()
        few = slice(0, 2000)
        robust().fit(X[few], y[few], contexts=contexts[few])
        floor = Floor.of(X, clock)

        def fit() -> float:
            start = clock()
            robust().fit(X, y, contexts=contexts)
            return clock() - start

        def watched() -> tuple[float, Meter]:
            meter = Meter(clock)
            with meter.watching():
                return fit(), meter

        before = resource.getrusage(resource.RUSAGE_SELF).ru_stime
        plain = statistics.median(fit() for _ in range(REPEATS))
        kernel = (resource.getrusage(resource.RUSAGE_SELF).ru_stime - before) / REPEATS
        seconds, meter = sorted((watched() for _ in range(REPEATS)), key=lambda pair: pair[0])[REPEATS // 2]
        calls = cProfile.Profile(clock)
        calls.runcall(fit)
        return cls(shape, plain, kernel, seconds, meter, floor, calls)

    def show(self) -> None:
        """Print the table."""
        meter, floor, size = self.meter, self.floor, self.shape.n * self.shape.d
        print(f"{self.shape}: {self.plain:.3f} s of the processor, {self.watched:.3f} s while watched, one thread")
        print(f"medians of {REPEATS} fits; the kernel takes {self.kernel:.3f} s of each on average, for new memory")
        print(f"{'what':<34}{'seconds':>9}{'share':>8}{'calls':>8}{'units of X':>12}{'s per unit':>12}")
        for does in dict.fromkeys(entry.does for entry in TABLE):
            units = f"{meter.entries[does] / size:.2f}" if does in READS else ""
            each = f"{meter.seconds[does] * size / meter.entries[does]:.4f}" if meter.entries[does] else ""
            seconds = meter.seconds[does]
            print(f"{does:<34}{seconds:>9.3f}{seconds / self.watched:>8.1%}{meter.calls[does]:>8}{units:>12}{each:>12}")
        rest = self.watched - sum(meter.seconds.values())
        print(f"{'the rest':<34}{rest:>9.3f}{rest / self.watched:>8.1%}")
        gigabytes, least = 8e-9 * size, floor.least(meter, size)
        print(f"reading X once ({gigabytes:.2f} GB): {floor.read:.4f} s, {gigabytes / floor.read:.1f} GB/s")
        print(f"a Gram product of all rows: {floor.gram:.4f} s")
        print(f"a copy of X: {floor.write:.4f} s into memory that is there, {floor.fresh:.4f} s into new memory")
        print(f"floor of these looks, Grams and copies, each row read once for both products: {least:.3f} s")
        print(f"the fit takes {self.plain / least:.2f} times its floor, {self.plain / floor.read:.1f} reads of X")
        print("largest functions, by their own seconds:")
        for line in _largest(self.calls):
            print(f"  {line}")


def _largest(profile: cProfile.Profile, n: int = 14) -> list[str]:
    """Return the functions that take longest by themselves."""
    stats: Any = pstats.Stats(profile)
    found = sorted(((own, calls, where) for where, (_, calls, own, _, _) in stats.stats.items()), reverse=True)
    return [
        f"{own:>8.3f} s {calls:>8} calls  {f'{Path(file).name}:{line} ' if line else ''}{name}"
        for own, calls, (file, line, name) in found[:n]
    ]


def main(arguments: Sequence[str] | None = None) -> None:
    """Profile the shapes that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [shape.name for shape in FAMILY]
    parser.add_argument("--shape", nargs="+", choices=names, default=names)
    parser.add_argument("--toy", action="store_true", help="so small that times mean nothing")
    options = parser.parse_args(arguments)
    warnings.simplefilter("ignore")
    with threadpool_limits(1):
        for shape in FAMILY:
            if shape.name in options.shape:
                Profile.of(shape.toy() if options.toy else shape).show()


if __name__ == "__main__":
    main()
