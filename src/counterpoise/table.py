"""A small table: what results are made of, whatever library of data frames the reader has."""

from __future__ import annotations

import html
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from counterpoise.contexts import plain, shown
from counterpoise.exceptions import InvalidInputError


@dataclass(frozen=True, eq=False, repr=False)
class Table(Mapping[str, NDArray[Any]]):
    """Columns of equal length, by name.

    It is a mapping, so plotting libraries take it as ``data=``; :meth:`to_pandas` and :meth:`to_polars` make frames.

    Parameters
    ----------
    columns : mapping from name to array of shape (n_rows,)
    note : str
        Shown below the table.
    """

    columns: Mapping[str, NDArray[Any]]
    note: str = ""

    def __post_init__(self) -> None:
        lengths = {len(column) for column in self.columns.values()}
        if len(lengths) > 1:
            raise InvalidInputError(f"columns differ in length: {sorted(lengths)}.")

    @classmethod
    def of(cls, note: str = "", **columns: ArrayLike) -> Table:
        """Return a table of named columns."""
        return cls({name: np.asarray(column) for name, column in columns.items()}, note)

    def __getitem__(self, name: str) -> NDArray[Any]:
        if name not in self.columns:
            raise KeyError(f"there is no column {name!r}; the columns are {', '.join(self.columns)}")
        return self.columns[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.columns)

    # As mappings, tables would be compared column by column, for which arrays have no single answer.
    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def __len__(self) -> int:
        """Columns, as for any mapping; rows are ``n_rows``."""
        return len(self.columns)

    @property
    def n_rows(self) -> int:
        """Rows."""
        return len(next(iter(self.columns.values()), ()))

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield each row as plain Python values."""
        cells = {name: [plain(cell) for cell in column.tolist()] for name, column in self.columns.items()}
        for k in range(self.n_rows):
            yield {name: column[k] for name, column in cells.items()}

    def where(self, **values: Any) -> Table:
        """Return the rows with these values."""
        keep = np.ones(self.n_rows, dtype=bool)
        for name, value in values.items():
            keep &= np.fromiter((cell == value for cell in self[name].tolist()), bool, self.n_rows)
        return Table({name: column[keep] for name, column in self.columns.items()}, self.note)

    def to_pandas(self) -> Any:
        """Return a pandas data frame."""
        import pandas as pd

        return pd.DataFrame({name: list(column) for name, column in self.columns.items()})

    def to_polars(self) -> Any:
        """Return a polars data frame."""
        import polars as pl

        return pl.DataFrame({name: column.tolist() for name, column in self.columns.items()}, strict=False)

    def __repr__(self) -> str:
        cells = [list(self.columns), *([_shown(value) for value in row.values()] for row in self.rows())]
        widths = [max(len(line[k]) for line in cells) for k in range(len(self.columns))]
        right = [column.dtype.kind in "biufc" for column in self.columns.values()]
        lines = [
            "  ".join(
                cell.rjust(width) if side else cell.ljust(width)
                for cell, width, side in zip(line, widths, right, strict=True)
            ).rstrip()
            for line in cells
        ]
        return "\n".join([*lines, self.note] if self.note else lines)

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{html.escape(name)}</th>" for name in self.columns)
        body = "".join(
            "<tr>" + "".join(f"<td>{html.escape(_shown(value))}</td>" for value in row.values()) + "</tr>"
            for row in self.rows()
        )
        note = f"<p>{html.escape(self.note)}</p>" if self.note else ""
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{note}"


def plain_rows(table: Table) -> list[dict[str, Any]]:
    """Return the rows as what JSON can hold: no NaN, no infinity, labels in words."""
    return [{name: jsonable(value) for name, value in row.items()} for row in table.rows()]


def jsonable(value: Any) -> Any:
    """Return a value as what JSON can hold."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, (bool, int, str)) else shown(value)


def _shown(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else shown(value)


def written(value: float, sign: str = "", digits: int = 4) -> str:
    """Return a number with a few digits; large ones without an exponent, which few readers like."""
    return f"{value:{sign},.0f}" if 10.0**digits <= abs(value) < 1e15 else f"{value:{sign}.{digits}g}"
