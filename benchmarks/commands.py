"""Wall time and peak memory of every command, on tables of 400 to 5,000,000 rows.

Usage: python benchmarks/commands.py [--rows 400 20000 300000 5000000] [--commands fit predict ...] [--folder DIR]

Every command runs in a process of its own, imports included, on csv files that are made first: eight numbers, two
categories, a day, 16 contexts, a target of two classes; for ``stock`` a cost and a demand per row. Peak memory is what
the operating system reports of the process and those it starts. Prints a table for docs/speed.md.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv

ROWS = (400, 20_000, 300_000, 5_000_000)
COMMANDS = ("fit", "fit --time", "predict", "evaluate", "watch", "compare", "explore", "stock")
N_CONTEXTS, N_NUMBERS, N_DAYS = 16, 8, 730
PIECE = 500_000


@dataclass(frozen=True)
class Cost:
    """What a command took.

    Attributes
    ----------
    seconds : float
    memory : float
        Peak, in bytes.
    code : int
        Its exit code.
    """

    seconds: float
    memory: float
    code: int

    @property
    def words(self) -> str:
        """As a cell of a table."""
        if self.code:
            return f"exit {self.code}"
        seconds = f"{self.seconds:.1f} s" if self.seconds < 100 else f"{self.seconds:.0f} s"
        return f"{seconds}, {self.memory / 1e6:,.0f} MB"


def write_table(path: Path, n_rows: int) -> None:
    """Write a table of rows in the order of time."""
    rng = np.random.default_rng(n_rows)
    effects = rng.standard_normal((N_CONTEXTS, N_NUMBERS)) * 0.5 + np.linspace(1.0, -0.5, N_NUMBERS)
    shares = rng.dirichlet(np.full(N_CONTEXTS, 3.0))
    writer = None
    for start in range(0, n_rows, PIECE):
        n = min(PIECE, n_rows - start)
        numbers = np.round(rng.standard_normal((n, N_NUMBERS)), 4)
        context = rng.choice(N_CONTEXTS, n, p=shares)
        chance = 1.0 / (1.0 + np.exp(-np.einsum("nd,nd->n", numbers, effects[context])))
        day = np.datetime64("2023-01-01") + ((start + np.arange(n)) * N_DAYS // n_rows)
        piece = pa.table(
            {
                "day": day.astype(str),
                "site": np.char.add("site ", (context + 1).astype(str)),
                **{f"x{k + 1}": numbers[:, k] for k in range(N_NUMBERS)},
                "colour": np.array(["red", "green", "blue", "black"])[rng.integers(0, 4, n)],
                "size": np.array(["small", "medium", "large"])[rng.integers(0, 3, n)],
                "ill": np.where(rng.random(n) < chance, "yes", "no"),
                "unit_cost": np.round(rng.uniform(3.0, 4.0, n), 2),
                "units": rng.poisson(20 + 2 * context),
            }
        )
        writer = writer or pa.csv.CSVWriter(path, piece.schema)
        writer.write_table(piece)
    assert writer is not None
    writer.close()


def arguments(command: str, table: Path, folder: Path) -> list[str]:
    """Return what is typed for a command."""
    name, *extra = command.split(" ", 1)
    roles = ["--target", "ill", "--context", "site", "--drop", "unit_cost", "--drop", "units"]
    later = ["--time", "day"] if extra else ["--drop", "day"]
    model = str(folder / "model")
    typed = {
        "fit": ["fit", str(table), *roles, *later, "-o", model + ("-later" if extra else ""), "--force"],
        "predict": ["predict", model, str(table), "-o", str(folder / "predicted.csv"), "--force"],
        "evaluate": ["evaluate", model, str(table), "-o", str(folder / "evaluation.html"), "--force"],
        "watch": ["watch", model, str(table), "--time", "day", "-o", str(folder / "watch.html"), "--restart"],
        "compare": ["compare", str(table), *roles, *later, "--json"],
        "explore": ["explore", str(table), *roles, *later, "-o", str(folder / "explore.html"), "--force"],
        "stock": [
            *("stock", str(table), "--demand", "units", "--cost", "unit_cost", "--price", "12", "--context", "site"),
            *("--min-rows", "1", "-o", str(folder / "stock.html"), "--force"),
        ],
    }
    return typed[name]


def cost(typed: Sequence[str], quiet: bool = True) -> Cost:
    """Run a command in a process of its own."""
    start = time.perf_counter()
    pid = os.fork()
    if pid == 0:
        if quiet:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, 1)
            os.dup2(nowhere, 2)
        program = str(Path(sys.executable).with_name("counterpoise"))
        os.execv(program, [program, *typed])
    _, status, usage = os.wait4(pid, 0)
    # Kilobytes on Linux.
    return Cost(time.perf_counter() - start, usage.ru_maxrss * 1024.0, os.waitstatus_to_exitcode(status))


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=list(ROWS))
    parser.add_argument("--commands", nargs="+", default=list(COMMANDS), choices=COMMANDS)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--loud", action="store_true", help="let the commands speak")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=asked.folder) as place:
        folder = Path(place)
        costs: dict[str, list[Cost]] = {command: [] for command in asked.commands}
        for n_rows in asked.rows:
            table = folder / f"table-{n_rows}.csv"
            write_table(table, n_rows)
            for command in asked.commands:
                costs[command].append(cost(arguments(command, table, folder), quiet=not asked.loud))
                print(f"{n_rows:,} rows, {command}: {costs[command][-1].words}", file=sys.stderr, flush=True)
            table.unlink()
    print(f"| command | {' | '.join(f'{n:,} rows' for n in asked.rows)} |")
    print(f"|---|{'---:|' * len(asked.rows)}")
    for command, found in costs.items():
        print(f"| `{command}` | {' | '.join(one.words for one in found)} |")


if __name__ == "__main__":
    main()
