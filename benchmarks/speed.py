"""What robustness costs, against every peer: ratios measured side by side in one run.

Calls of both sides take turns; the table shows medians, and the median and the range of the ratios. Certificates are
verified by an evaluation that shares nothing with the library. The table is printed, and kept as speed.csv. Exit code 1
with the list of targets that are missed, 0 if there is none.

Usage: python benchmarks/speed.py [--only family import ...] [--shapes near ...] [--threads 1 2] [--repeats 3]
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import speed_family
import speed_peers
import speed_scale
import speed_whole
from shapes import FAMILY
from threadpoolctl import threadpool_info
from timing import HEADINGS, Asked, Result, read, verdict, write

Study = Callable[[Asked], Iterator[Result]]

STUDIES: dict[str, Study] = {
    "family": speed_family.family,
    "memory": speed_family.memory,
    "many-contexts": speed_scale.many_contexts,
    "multinomial": speed_scale.multinomial,
    "sparse": speed_scale.sparse_rows,
    "growth": speed_scale.growth,
    "compare": speed_whole.compare,
    "any-learner": speed_whole.any_learner,
    "path": speed_whole.path,
    "passes": speed_whole.passes,
    "conic": speed_peers.conic,
    "libraries": speed_peers.libraries,
    "first-order": speed_peers.first_order,
    "group-dro": speed_peers.group_dro,
    "worst-case": speed_peers.worst_case,
    "import": speed_peers.imports,
}

BY_THREADS = ("family",)
"""Studies that are made for every number of threads; the others for the last of them."""

POOLS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
"""What tells libraries, ours and the peers', how many threads they may use."""


def run(names: Sequence[str], studies: dict[str, Study], asked: Asked, kept: Path) -> list[Result]:
    """Run studies in this process, print their lines, and keep them as soon as a study is done."""
    results: list[Result] = []
    for name in names:
        start = time.perf_counter()
        try:
            for result in studies[name](asked):
                results.append(replace(result, threads=asked.threads))
                print(results[-1], flush=True)
        except Exception as error:
            # The other studies are still worth their time; this one is missed.
            words = f"{type(error).__name__}: {error}".splitlines()[0]
            failed = Result(name, "", 0.0, 0.0, 0.0, 0.0, 0.0, "to end", False, asked.threads, words)
            results.append(failed)
            print(failed, flush=True)
        write(kept, results)
        print(f"# {name}: {time.perf_counter() - start:.0f} s", flush=True)
    return results


def in_processes(options: argparse.Namespace) -> list[Result]:
    """Run studies in a process for every number of threads: pools are as large as they are when they are made."""
    results: list[Result] = []
    for threads in options.threads:
        last = threads == options.threads[-1]
        names = [name for name in options.only if last or name in BY_THREADS]
        if not names:
            continue
        folder = options.out / f"threads-{threads}"
        command = [sys.executable, str(Path(__file__)), "--only", *names, "--out", str(folder), "--inside"]
        command += ["--repeats", str(options.repeats), "--clock", options.clock, "--peers", options.peers]
        command += ["--shapes", *options.shapes, *["--toy"] * options.toy]
        done = subprocess.run(command, env=os.environ | dict.fromkeys(POOLS, str(threads)), check=False)
        if done.returncode:
            raise SystemExit(f"the studies with {threads} threads ended with {done.returncode}")
        results += read(folder / "speed.csv")
    return results


def parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=STUDIES, default=list(STUDIES))
    names = [shape.name for shape in FAMILY]
    parser.add_argument("--shapes", nargs="+", choices=names, default=names, help="of the family")
    parser.add_argument("--threads", nargs="+", type=int, help="a process for each number; as it is when not given")
    parser.add_argument("--repeats", type=int, default=3)
    clocks = "cpu: on a busy machine, one thread; user: without what the kernel takes for new memory"
    parser.add_argument("--clock", choices=("wall", "cpu", "user"), default="wall", help=clocks)
    parser.add_argument("--out", type=Path, default=Path("bench"))
    parser.add_argument("--peers", default=sys.executable, help="the interpreter that has dro and fairlearn")
    parser.add_argument("--toy", action="store_true", help="so small that ratios mean nothing")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the studies that are asked for, print the table and keep it; return the exit code."""
    options, start = parsed(arguments), time.perf_counter()
    warnings.simplefilter("ignore")
    options.out.mkdir(parents=True, exist_ok=True)
    if not options.inside:
        print(
            f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
        )
        print(HEADINGS, flush=True)
    if options.threads:
        results = in_processes(options)
        write(options.out / "speed.csv", results)
    else:
        pools = threadpool_info()
        threads = max((pool["num_threads"] for pool in pools), default=1)
        said = ", ".join(f"{Path(pool['filepath']).name.split('-')[0]} {pool['num_threads']}" for pool in pools)
        print(f"# pools of threads: {said}", flush=True)
        asked = Asked(options.repeats, options.peers, options.toy, options.clock, threads)
        chosen = [shape for shape in FAMILY if shape.name in options.shapes]
        narrowed = {name: partial(STUDIES[name], shapes=chosen) for name in ("family", "memory")}
        results = run(options.only, STUDIES | narrowed, asked, options.out / "speed.csv")
    if options.inside:
        return 0
    print(f"kept in {options.out / 'speed.csv'} after {time.perf_counter() - start:.0f} s")
    return verdict(results)


if __name__ == "__main__":
    sys.exit(main())
