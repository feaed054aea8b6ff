"""All that a plain install can do, without anything of an extra; run by itself, in a process of its own."""

import os
import tempfile
from pathlib import Path

import numpy as np

QUICK = ("--folds", "2", "--reference", "in-sample", "--radius", "0.1")


def write_table(path: Path) -> None:
    """Write a small table, by hand."""
    rng = np.random.default_rng(0)
    lines = ["age,blood,hospital,ill,units"]
    for k in range(120):
        hospital, age = "south" if k % 3 else "north", rng.normal(60.0, 9.0)
        ill = "yes" if age + 12.0 * rng.normal() > (55.0 if hospital == "north" else 65.0) else "no"
        lines.append(f"{age:.2f},{'AB0'[k % 3]},{hospital},{ill},{rng.poisson(9.0)}")
    path.write_text("\n".join(lines), encoding="utf-8")


def main() -> None:
    """Call every command that needs no extra."""
    from counterpoise.cli import app

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.chdir(folder)
        write_table(folder / "table.csv")
        ill = ("--target", "ill", "--context", "hospital", "--drop", "units")
        sales = ("--demand", "units", "--cost", "2", "--price", "5", "--context", "hospital")
        for command, *arguments in (
            ("fit", "table.csv", *ill, *QUICK, "--out", "model"),
            ("predict", "model", "table.csv", "--out", "new.csv"),
            ("predict", "model", "table.csv", "--out", "new.parquet"),
            ("compare", "table.csv", *ill, *QUICK),
            ("explore", "table.csv", *sales, "--out", "page.html"),
            ("stock", "table.csv", *sales, "--out", "stock.html"),
        ):
            app([command, *arguments], standalone_mode=False)
        os.chdir("/")
        written = sorted(path.name for path in folder.iterdir())
    assert written == ["model", "new.csv", "new.parquet", "page.html", "stock.html", "table.csv"], written


if __name__ == "__main__":
    main()
