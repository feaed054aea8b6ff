"""A small table of patients, and files of it in every format."""

from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from counterpoise.tables.reading import DataFile, read_table
from counterpoise.tables.tabular.fitting import pose

FORMATS = ("csv", "parquet", "arrow")


def patients(n=150, seed=0):
    """Return columns in which the effect of age differs between three hospitals, one of them small."""
    rng = np.random.default_rng(seed)
    c = np.r_[0, 0, 1, 1, 2, 2, rng.choice(3, n - 6, p=[0.6, 0.3, 0.1])]
    age, weight = rng.normal(60.0, 9.0, n).round(3), rng.normal(80.0, 11.0, n).round(3)
    steep = (age - 60.0) / 9.0 * (1.0 - c) + (weight - 80.0) / 11.0 + rng.normal(size=n)
    return {
        "age": age,
        "weight": weight,
        "blood": np.array(["A", "B", "0"])[rng.choice(3, n)],
        "hospital": np.array(["north", "south", "east"])[c],
        "ill": np.where(steep > 0.0, "yes", "no"),
        "days": rng.poisson(np.exp(1.0 + 0.3 * steep)),
        "cost": (100.0 + 10.0 * steep).round(3),
    }


OTHERS = {"ill": ("days", "cost"), "days": ("ill", "cost"), "cost": ("ill", "days")}
"""For each target the columns that would give it away."""


def save(columns, path):
    """Write columns to a file whose name says in which format, and return its place."""
    path = Path(path)
    if path.suffix == ".csv":
        pd.DataFrame(columns).to_csv(path, index=False)
        return path
    table = pa.table({name: pa.array(column) for name, column in columns.items()})
    if path.suffix == ".parquet":
        pq.write_table(table, path)
    else:
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
            writer.write_table(table)
    return path


def in_memory(columns):
    """Return columns as a typed file would give them."""
    table = pa.table({name: pa.array(column) for name, column in columns.items()})
    return DataFile(Path("patients.parquet"), tuple(table.column_names), table)


def posed(columns, target="ill", context=("hospital",), **options):
    """Return the problem in a typed table; what gives its target away is dropped."""
    drop = (*options.pop("drop", ()), *(name for name in OTHERS.get(target, ()) if name in columns))
    return pose(in_memory(columns), target, list(context), drop=drop, **options)


def posed_file(path, target="ill", context=("hospital",), **options):
    """Return the problem in a file."""
    data = read_table(path)
    drop = (*options.pop("drop", ()), *(name for name in OTHERS.get(target, ()) if name in data.names))
    return pose(data, target, list(context), drop=drop, **options)
