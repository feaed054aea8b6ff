"""Numbers of text sources, as callers state them: by name, or in their order."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from counterpoise.contexts import nearest, shown
from counterpoise.exceptions import InvalidInputError
from counterpoise.sets._base import checked_distribution

_ROUNDING = 1e-3
"""How far from 1 the sum of shares may be: they come rounded, from half precision and from tables."""


def names_of(sources: Iterable[Any], what: str = "sources") -> tuple[str, ...]:
    """Return sources in words, by which files know them, and raise where two have the same ones."""
    names = tuple(map(shown, sources))
    if len(set(names)) < len(names):
        twice = next(name for k, name in enumerate(names) if name in names[:k])
        raise InvalidInputError(f"two {what} have the same name in words, {twice}. Give each another name.")
    return names


def source_shares(given: Any, what: str, names: Sequence[str], missing: float | None = None) -> NDArray[np.float64]:
    """Return the share of each source, as :func:`source_numbers` takes them; they sum to 1 but for rounding."""
    shares = source_numbers(given, what, names, missing)
    total = shares.sum()
    if abs(total - 1.0) <= _ROUNDING:
        shares = shares / total
    return checked_distribution(shares, what)


def whole_number(value: Any, what: str) -> int:
    """Return a value that must be a whole number, 1 or more."""
    if not (isinstance(value, int | np.integer) and not isinstance(value, bool) and value >= 1):
        raise InvalidInputError(f"{what} = {value!r:.60}; pass a whole number, 1 or more.")
    return int(value)


def source_numbers(given: Any, what: str, names: Sequence[str], missing: float | None = None) -> NDArray[np.float64]:
    """Return one number for each source, in their order.

    Parameters
    ----------
    given : mapping from source to number, or sequence, array or Tensor
    what : str
        Their name in errors.
    names : sequence of str
        The sources in words, by which what was read from a file knows them.
    missing : float, optional
        The number of sources that a mapping leaves out; by default all must be there.
    """
    if isinstance(given, Mapping):
        named = dict(zip(names_of(given, f"names in {what}"), given.values(), strict=True))
        strange = [name for name in named if name not in names]
        lacking = [name for name in names if name not in named]
        if strange:
            raise InvalidInputError(
                f"{what}: {strange[0]} is no source; the sources are {', '.join(names[:8])}."
                f"{nearest(strange[0], names)}"
            )
        if lacking and missing is None:
            raise InvalidInputError(f"{what}: {lacking[0]} is missing. Pass a number for every source.")
        given = [named.get(name, missing) for name in names]
    try:
        values = given.tolist() if isinstance(given, torch.Tensor | np.ndarray) else list(given)
        plain = [one.item() if isinstance(one, torch.Tensor) else one for one in values]
        numbers = np.array(plain, dtype=np.float64)
    except (TypeError, ValueError, RuntimeError) as error:
        star = " Did you mean update(*source_losses(...))?" * isinstance(given, tuple)
        raise InvalidInputError(f"{what} must be numbers, one for each source, got {given!r:.60}.{star}") from error
    if numbers.shape != (len(names),):
        raise InvalidInputError(
            f"{what} have shape {numbers.shape} for {len(names)} sources. Pass one number for each."
        )
    return numbers
