"""Numbers that name things instead of measuring them."""

from __future__ import annotations

import re

import numpy as np
from numpy.typing import NDArray

from counterpoise.tables.tabular.seen import Running

Array = NDArray[np.float64]

_LEAST_ROWS = 50
_NEARLY_ALL = 0.95
_FEW = 20
"""Different values up to which a number is a code at most."""
_NAMES = re.compile(r"(^|[_\W\d])(id|uuid|guid|key)$", re.IGNORECASE)
_CAMEL = re.compile(r"[a-z0-9](Id|ID|Key)$")
_NUMBERS = re.compile(r"(^|[_\W\d])(nr|no|num|number|index|idx|serial|row)$", re.IGNORECASE)


def is_running_number(name: str, running: Running, values: Array) -> bool:
    """Tell whether whole numbers plainly count rows, though some may be gone or the order changed.

    They do where they rise or fall with every row, and there are hardly more numbers from the least to the largest than
    there are rows, or the name is that of an identifier; and where they are dense, all different, and so named.

    Parameters
    ----------
    values : ndarray of shape (n_rows,)
        Some or all of them, NaN where there is none.
    """
    known = values[~np.isnan(values)]
    if len(known) < _LEAST_ROWS:
        return False
    named = names_things(name) or _NUMBERS.search(name.strip()) is not None
    if running.is_monotone:
        return running.is_dense or named
    return running.is_dense and named and len(np.unique(known)) == len(known)


def doubts_about_number(name: str, running: Running, values: Array) -> str:
    """Say why a number may be an identifier; nothing where there is no reason."""
    known = values[~np.isnan(values)]
    if len(known) < _LEAST_ROWS or not (known == np.round(known)).all():
        return ""
    distinct = len(np.unique(known))
    if running.is_monotone:
        return f"{'rises' if known[-1] > known[0] else 'falls'} with every row, like a running number or a time"
    if running.is_dense and distinct == len(known):
        return "holds every whole number once, like a running number in another order"
    many = distinct >= _NEARLY_ALL * len(known)
    if many and (names_things(name) or _NUMBERS.search(name.strip())):
        return f"is a different whole number in {100.0 * distinct / len(known):.0f}% of the rows"
    if names_things(name) and distinct > _FEW:
        return f"has {distinct:,} different values and the name of an identifier"
    return ""


def names_things(name: str) -> bool:
    """Tell whether a column has the name of an identifier, such as patient_id or customerKey."""
    bare = name.strip()
    return _NAMES.search(bare) is not None or _CAMEL.search(bare) is not None
