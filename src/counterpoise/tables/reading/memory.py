"""How much memory may be used, as the system and the container tell it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from counterpoise.exceptions import InvalidInputError

_CGROUPS = Path("/sys/fs/cgroup")

_WORK = 6.0
"""How many times what a table takes is needed to fit it in memory: as read, as numbers, encoded, grouped, in folds."""


def memory_budget() -> float:
    """Return half of the bytes that are free: the other half is for working on what was read. ``inf`` if unknown."""
    return min([_free_in_machine(), *_free_in_containers()]) / 2


def needed(size: float) -> float:
    """Return about how many bytes are needed to fit a table in memory that takes so many."""
    return _WORK * size


def _free_in_machine() -> float:
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return math.inf
    found = [float(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")]
    return found[0] if found else math.inf


def _free_in_containers() -> Iterator[float]:
    """Yield what every control group around this process leaves, of either version of them."""
    try:
        lines = Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, group = line.split(":", 2)
        if controllers == "":
            root, limit, used = _CGROUPS, "memory.max", "memory.current"
        elif controllers == "memory":
            root, limit, used = _CGROUPS / "memory", "memory.limit_in_bytes", "memory.usage_in_bytes"
        else:
            continue
        inner = root / group.strip("/")
        for folder in (inner, *inner.parents):
            if folder.is_relative_to(root):
                yield _room(folder, limit, used)


def _room(folder: Path, limit: str, used: str) -> float:
    try:
        room = float((folder / limit).read_text()) - float((folder / used).read_text())
        kept = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
    except (OSError, ValueError):
        # There is no such group, or its limit is "max".
        return math.inf
    # Copies of files count as used, but the system drops them as soon as memory is needed.
    return max(0.0, room + float(kept.get("inactive_file", 0)))


def gather(path: Path, batches: Iterable[Any], schema: Any) -> Any:
    """Return the table that record batches make, or stop as soon as they no longer fit."""
    import pyarrow as pa

    budget, size, n_rows = memory_budget(), 0, 0
    kept: list[Any] = []
    for batch in batches:
        kept.append(batch)
        size += batch.nbytes
        n_rows += batch.num_rows
        check_fits(path, size, f"the first {n_rows} rows", budget)
    return pa.Table.from_batches(kept, schema)


def check_fits(path: Path, size: float, what: str, budget: float | None = None) -> None:
    """Refuse what takes more memory than may be used (or than a given budget), and say what to do."""
    budget = memory_budget() if budget is None else budget
    if size > budget:
        raise InvalidInputError(
            f"{what} of {path.name} take about {in_words(size)} of memory, and {in_words(budget)} can be used (half "
            "of what is free). Name fewer columns, save it as parquet, or take a sample of its rows; counterpoise fit "
            "reads it in chunks."
        )


def in_words(n_bytes: float) -> str:
    """Return an amount of memory as people say it."""
    for unit, size in (("GB", 1e9), ("MB", 1e6)):
        if n_bytes >= size:
            return f"{n_bytes / size:.3g} {unit}"
    return f"{n_bytes / 1e3:.3g} kB"
