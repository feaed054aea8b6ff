"""Features that may not be what they seem: those that give the target away, and numbers that name things."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from counterpoise.exceptions import InvalidInputError
from counterpoise.tables.tabular.identifiers import doubts_about_number, is_running_number
from counterpoise.tables.tabular.leaks import Leak, find_gap_leak, find_leak

if TYPE_CHECKING:
    from counterpoise.tables.reading import DataFile
    from counterpoise.tables.tabular.columns import Columns
    from counterpoise.tables.tabular.seen import SeenColumn
    from counterpoise.tables.tabular.task import Target

Array = NDArray[np.float64]
Codes = NDArray[np.intp]


class Suspicions:
    """What a sample of rows says about single features.

    Parameters
    ----------
    sample : DataFile or None
        Rows that have a target.
    target : Target
    columns : mapping from feature to SeenColumn
        What all rows say.
    """

    def __init__(self, sample: DataFile | None, target: Target, columns: Mapping[str, SeenColumn]) -> None:
        self._sample, self._target, self._columns = sample, target, columns

    def counts_rows(self, name: str) -> bool:
        """Tell whether a column of numbers is plainly a running number."""
        return is_running_number(name, self._columns[name].running, self._numbers(name))

    def notes(self, columns: Columns) -> list[str]:
        """Say which features are suspicious, and what can be done."""
        if self._sample is None:
            return []
        return [*self._leaks(columns), *self._identifiers(columns)]

    def _identifiers(self, columns: Columns) -> list[str]:
        made = {name for one in columns.dates for name in one.names.values()}
        doubts = {
            name: doubts_about_number(name, self._columns[name].running, self._numbers(name))
            for name in columns.numbers
            if name not in made
        }
        return [
            f"{name} {doubt}, and is used as a number; if it names things rather than measures them, leave it out: "
            f"--drop {name}"
            for name, doubt in doubts.items()
            if doubt
        ]

    def _leaks(self, columns: Columns) -> list[str]:
        assert self._sample is not None
        target, _ = self._target.read(self._sample)
        n_classes = 0 if self._target.classes is None else len(self._target.classes)
        notes = []
        for name in columns.features:
            feature = self._numbers(name) if name in columns.numbers else self._categories(name)
            known = ~np.isnan(feature) if feature.dtype.kind == "f" else feature >= 0
            leak, what = find_leak(feature, target, n_classes), name
            if leak is None:
                leak, what = find_gap_leak(known, target, n_classes), f"whether {name} is empty"
            if leak is not None:
                notes.append(self._warning(name, what, leak, columns))
        return notes

    def _warning(self, name: str, what: str, leak: Leak, columns: Columns) -> str:
        date = next((one.column for one in columns.dates if name in one.names.values()), None)
        remedy = f"--drop {name}" if date is None else f"choose other parts of the date: --date {date}=..."
        return (
            f"warning: {what} alone predicts {self._target.name} nearly perfectly ({leak}); if it is not known when "
            f"predicting, or is {self._target.name} in another form, leave it out: {remedy}"
        )

    def _numbers(self, name: str) -> Array:
        """Return a column of numbers; none where some of its cells are no numbers that can be used."""
        if self._sample is None:
            return np.empty(0)
        try:
            return self._sample.numbers(name, allow_missing=True)
        except InvalidInputError:
            # What is wrong with it is said where it is read as a feature.
            return np.full(self._sample.n_rows, np.nan)

    def _categories(self, name: str) -> Codes:
        """Return a column of categories as codes, -1 where there is none."""
        assert self._sample is not None
        encoded = self._sample.texts(name).combine_chunks().dictionary_encode()
        return np.asarray(encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)).astype(np.intp)
