"""``python -m tests.fuzz``: many inputs for every entry; what is found is counted and written down."""

import argparse
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from tests.fuzz.entries import ENTRIES
from tests.fuzz.running import run


def main():
    """Run the entries, and print and write a line for each."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("entries", nargs="*", help=f"of {', '.join(ENTRIES)}; all by default")
    parser.add_argument("--examples", type=int, default=int(os.environ.get("FUZZ_EXAMPLES") or 110_000))
    parser.add_argument("--seed", type=int, default=int(os.environ.get("FUZZ_SEED") or 0))
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--out", type=Path, default=Path("fuzz/report.txt"))
    asked = parser.parse_args()
    strange = [name for name in asked.entries if name not in ENTRIES]
    if strange:
        parser.error(f"there is no entry {strange[0]!r}")
    names = asked.entries or list(ENTRIES)
    whole = sum(ENTRIES[name].share for name in names)
    asked.out.parent.mkdir(parents=True, exist_ok=True)
    total, found, began = 0, 0, time.perf_counter()
    with asked.out.open("w", encoding="utf-8") as report:

        def say(words):
            print(words, flush=True)
            report.write(words + "\n")
            report.flush()

        say(f"seed {asked.seed}")
        say(f"{'entry':<28}{'inputs':>8}{'results':>9}{'refused':>9}{'findings':>10}{'seconds':>9}")
        numbers = [max(1, round(asked.examples * ENTRIES[name].share / whole)) for name in names]
        # Each entry is a process's own: what one leaves behind does not reach another.
        with ProcessPoolExecutor(asked.jobs, get_context("spawn"), max_tasks_per_child=1) as pool:
            results = pool.map(run, names, numbers, [asked.seed] * len(names))
            for name, (counts, findings, seconds) in zip(names, results, strict=True):
                bad = sum(known[0] for known in findings.values())
                n = sum(counts.values()) + bad
                say(f"{name:<28}{n:>8}{counts['result']:>9}{counts['refused']:>9}{bad:>10}{seconds:>9.0f}")
                total, found = total + n, found + bad
                for words, (times, example, trace) in sorted(findings.items(), key=lambda one: -one[1][0]):
                    say(f"  {times} times {words}\n    for example {example:.1500}")
                    report.write(trace + "\n")
        say(f"{'in all':<28}{total:>8}{'':>18}{found:>10}{time.perf_counter() - began:>9.0f}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
