"""Write the cars of the vega_datasets package as a csv file: fuel use of 406 cars from three parts of the world.

Usage: python examples/cars.py cars.csv
"""

from __future__ import annotations

import csv
import json
import sys
from importlib.util import find_spec
from pathlib import Path


def main(out: Path) -> None:
    """Read the package's own copy, without importing it, and write it with the year as a number."""
    package = find_spec("vega_datasets")
    if package is None or package.origin is None:
        sys.exit("The cars are in a package that is not installed: pip install vega_datasets")
    cars = json.loads((Path(package.origin).parent / "_data" / "cars.json").read_text(encoding="utf-8"))
    out.parent.mkdir(parents=True, exist_ok=True)
    with out.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(cars[0]))
        writer.writeheader()
        writer.writerows({**car, "Year": car["Year"][:4]} for car in cars)
    print(f"{len(cars)} cars are in {out}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
