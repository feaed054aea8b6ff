"""Write 406 cars of the vega_datasets package as a csv file: how fast they are, and where and when they were made.

Usage: python examples/cars.py cars.csv
"""

from __future__ import annotations

import csv
import json
import sys
from importlib.util import find_spec
from pathlib import Path

COLUMNS = {
    "Year": "year",
    "Origin": "origin",
    "Cylinders": "cylinders",
    "Displacement": "displacement",
    "Horsepower": "horsepower",
    "Weight_in_lbs": "weight",
    "Miles_per_Gallon": "miles_per_gallon",
    "Acceleration": "seconds_to_60",
}
"""Names in the package, and names that say what they mean: its ``Acceleration`` is the time from 0 to 60 mph."""


def main(out: Path) -> None:
    """Read the package's own copy, without importing it or pandas, and write it with the year as a number."""
    package = find_spec("vega_datasets")
    if package is None or package.origin is None:
        sys.exit("The cars are in a package that is not installed: pip install vega-datasets")
    cars = json.loads((Path(package.origin).parent / "_data" / "cars.json").read_text(encoding="utf-8"))
    out.parent.mkdir(parents=True, exist_ok=True)
    with out.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS.values())
        writer.writerows([car["Year"][:4] if name == "Year" else car[name] for name in COLUMNS] for car in cars)
    print(f"{len(cars)} cars of 1970 to 1982, from the USA, Europe and Japan, are in {out}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
