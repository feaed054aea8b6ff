"""Whether we have become slower: the ratios of two tables that ``benchmarks/speed.py`` wrote.

    python benchmarks/regression.py old.csv new.csv

Seconds differ between machines; ratios against a peer that ran beside us do so much less. Exit code 1 where one is
worse by more than the tolerance, or is missing from the new table.
"""

from __future__ import annotations

import argparse
import csv
import sys
from pathlib import Path


def read(path: Path) -> dict[str, tuple[float, bool]]:
    """Return the ratio of every line, and whether less is better."""
    with path.open(newline="", encoding="utf-8") as file:
        lines = list(csv.DictReader(file))
    # How much smaller than its tolerance a gap happens to be says nothing.
    lines = [line for line in lines if line["target"].startswith(("<", ">", "measured"))]
    # Names of the fastest peer may change; what was done does not, unless one work has several peers.
    works = [_work(line) for line in lines]
    names = [
        work if works.count(work) == 1 else f"{work}, {line['against']}"
        for work, line in zip(works, lines, strict=True)
    ]
    ratios = [(float(line["ratio"]), not line["target"].startswith(">")) for line in lines]
    return dict(zip(names, ratios, strict=True))


def _work(line: dict[str, str]) -> str:
    """Return what was done, and with how many threads, where that is said."""
    return f"{line['work']}, {line['threads']} threads" if line.get("threads") else line["work"]


def worse_by(old: float, new: float, less_is_better: bool) -> float:
    """Return by which share a ratio has become worse; negative where it is better."""
    return (new / old if less_is_better else old / new) - 1.0


def main() -> int:
    """Print a table, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--tolerance", type=float, default=0.3, help="share by which a ratio may be worse")
    asked = parser.parse_args()
    try:
        before, after = read(asked.old), read(asked.new)
    except (OSError, KeyError, ValueError) as error:
        parser.error(f"no table of benchmarks/speed.py ({error!r})")
    n_worse = 0
    print(f"{'work':<64}{'old':>10}{'new':>10}{'worse by':>10}")
    for work, (old, less_is_better) in before.items():
        if work not in after:
            n_worse += 1
            print(f"{work:<64.63}{old:>10.3g}{'':>20}  MISSING")
            continue
        new = after[work][0]
        change = worse_by(old, new, less_is_better)
        # Also where it is not a number.
        worse = not change <= asked.tolerance
        n_worse += worse
        print(f"{work:<64.63}{old:>10.3g}{new:>10.3g}{change:>10.0%}{'  WORSE' * worse}")
    for work in after.keys() - before.keys():
        print(f"{work:<64.63}{'':>10}{after[work][0]:>10.3g}  new")
    print(f"{n_worse} of {len(before)} are worse by more than {asked.tolerance:.0%}, or missing")
    return 1 if n_worse else 0


if __name__ == "__main__":
    sys.exit(main())
