"""Numbers of text sources, as callers state them: by name, or in their order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from counterpoise.contexts import shown
from counterpoise.exceptions import InvalidInputError


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
        named = {shown(name): value for name, value in given.items()}
        strange = [name for name in named if name not in names]
        lacking = [name for name in names if name not in named]
        if strange:
            raise InvalidInputError(f"{what}: {strange[0]} is no source; the sources are {', '.join(names[:8])}.")
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
