"""Timing side by side: calls take turns in one run, and medians are compared, with the range of their ratios."""

from __future__ import annotations

import csv
import resource
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

Call = Callable[[], Any]


@dataclass(frozen=True)
class Asked:
    """What the command line asks of a study.

    Attributes
    ----------
    repeats : int
        Turns of every call.
    peers : str
        The interpreter that has peers with requirements of their own.
    toy : bool
        Whether problems are so small that they take no time, and ratios mean nothing.
    clock : {"wall", "cpu", "user"}
        Seconds that pass, or seconds that this process and its children compute: the latter on a machine that others
        use as well, with one thread. ``"user"`` leaves out the kernel's own, which on a virtual machine may be most of
        them: there, memory that is new to a process may take longer to come than to be used.
    threads : int
        Threads that this process may use.
    patience : float
        Seconds on the wall after which calls take no more turns; they take two in any case, unless one is asked for.
    """

    repeats: int = 3
    peers: str = ""
    toy: bool = False
    clock: str = "wall"
    threads: int = 1
    patience: float = 60.0

    def now(self) -> float:
        """Return the time by the clock that is asked for."""
        if self.clock == "wall":
            return time.perf_counter()
        used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        return sum(one.ru_utime + (one.ru_stime if self.clock == "cpu" else 0.0) for one in used)

    def seconds(self, call: Call) -> float:
        """Return how long a call takes."""
        start = self.now()
        call()
        return self.now() - start

    def turns(self, *calls: Call, repeats: int | None = None, in_a_row: int = 1, warm: bool = True) -> list[Times]:
        """Return the times of calls that take turns.

        Parameters
        ----------
        in_a_row : int
            How often the first is called in one turn: where it takes milliseconds, so that the clock and the caches
            measure the call.
        warm : bool
            Whether every call is made once before, and not counted: what it loads is no part of it.
        """
        if warm:
            for call in calls:
                call()
        found: list[list[float]] = [[] for _ in calls]
        late = time.perf_counter() + self.patience
        for turn in range(repeats or self.repeats):
            if turn >= 2 and time.perf_counter() > late:
                break
            for k, call in enumerate(calls):
                times = in_a_row if k == 0 else 1
                found[k].append(self.seconds(lambda call=call, times=times: [call() for _ in range(times)]) / times)
        return [Times(tuple(one)) for one in found]


@dataclass(frozen=True)
class Times:
    """Seconds of one call, turn by turn."""

    turns: tuple[float, ...]

    @property
    def median(self) -> float:
        """The median of the turns."""
        return statistics.median(self.turns)

    def over(self, other: Times) -> tuple[float, float, float]:
        """Return the median, the least and the largest ratio to what took its turns beside."""
        ratios = [mine / theirs for mine, theirs in zip(self.turns, other.turns, strict=True)]
        return statistics.median(ratios), min(ratios), max(ratios)


@dataclass(frozen=True)
class Result:
    """One line of the table.

    Attributes
    ----------
    work, against : str
        What was done, beside what.
    ours, theirs : float
        Medians, in seconds or the unit in the text.
    ratio, low, high : float
        Median and range over the turns.
    target : str
        What the ratio is to be; "measured" where there is no target, "proven" where it is a gap.
    met : bool
    threads : int
        Threads that both might use.
    note : str
        What else there is to say.
    """

    work: str
    against: str
    ours: float
    theirs: float
    ratio: float
    low: float
    high: float
    target: str
    met: bool
    threads: int = 0
    note: str = ""

    def __str__(self) -> str:
        ends = f"({self.low:.3g} to {self.high:.3g})" if self.low < self.high else ""
        met = "" if self.target == "measured" else "met" if self.met else "MISSED"
        return (
            f"{self.work:<66} {self.against:<50} {self.threads:>2} {self.ours:>9.4g} {self.theirs:>9.4g} "
            f"{self.ratio:>8.3g} {ends:<18} {self.target:<18} {met} {self.note}"
        ).rstrip()


PROVEN = "proven"
"""The target of lines about certificates."""

HEADINGS = f"{'work':<66} {'against':<50} th {'ours':>9} {'theirs':>9} {'ratio':>8} {'range':<18} target"


def at_most(work: str, against: str, ours: Times, theirs: Times, limit: float, **more: Any) -> Result:
    """Return a line whose target is a share of the peer's time."""
    ratio, low, high = ours.over(theirs)
    return Result(
        work, against, ours.median, theirs.median, ratio, low, high, f"<= {limit:g} x", ratio <= limit, **more
    )


def faster(work: str, against: str, ours: Times, theirs: Times, times: float) -> Result:
    """Return a line whose target is to be so many times faster."""
    ratio, low, high = theirs.over(ours)
    target = f">= {times:g} x faster"
    return Result(work, against, ours.median, theirs.median, ratio, low, high, target, ratio >= times)


def measured(work: str, against: str, ours: Times, theirs: Times) -> Result:
    """Return a line without a target."""
    return Result(work, against, ours.median, theirs.median, *ours.over(theirs), "measured", True)


def alone(number: float) -> Times:
    """Return a number that was found once, and needs no turns."""
    return Times((number,))


def proven(work: str, gap: float, tol: float, complaint: str = "") -> Result:
    """Return a line about a gap, relative to its tolerance, and about what is wrong with its certificate."""
    ratio, good = gap / tol, not complaint and gap <= tol
    return Result(work, "gap and tolerance", gap, tol, ratio, ratio, ratio, PROVEN, good, note=complaint)


def write(path: Path, results: Iterable[Result]) -> None:
    """Keep a table."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, [field.name for field in fields(Result)])
        writer.writeheader()
        writer.writerows(asdict(result) for result in results)


def read(path: Path) -> list[Result]:
    """Return the lines of a table."""
    with path.open(newline="", encoding="utf-8") as file:
        lines = list(csv.DictReader(file))
    numbers = ("ours", "theirs", "ratio", "low", "high")
    return [
        Result(
            **{
                **line,
                **{name: float(line[name]) for name in numbers},
                "met": line["met"] == "True",
                "threads": int(line["threads"]),
            }
        )
        for line in lines
    ]


def verdict(results: Sequence[Result]) -> int:
    """Print which targets are missed; return the exit code, 1 if any is."""
    judged = [result for result in results if result.target != "measured"]
    missed = [result for result in judged if not result.met]
    print(f"{len(judged) - len(missed)} of {len(judged)} targets met" + (", missed:" if missed else ""))
    for result in missed:
        print(f"  {result.work}, {result.against}, {result.threads} threads: {result.ratio:.3g}, {result.target}")
    return 1 if missed else 0
