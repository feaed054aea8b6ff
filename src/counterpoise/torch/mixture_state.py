"""The state of a mixture controller in checkpoints: plain numbers, which JSON keeps to the last bit."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from counterpoise.exceptions import InvalidInputError
from counterpoise.sets._base import checked_distribution

Array = NDArray[np.float64]

STATE = ("references", "first_probabilities", "probabilities", "share_sums", "unit", "losses", "held_out_tokens")
"""Arrays that a checkpoint holds."""

ROUND = ("at", "worst_excess", "loss", "share")
"""What is recorded of an update."""


def checked_state(
    state: Any, names: Sequence[str], shapes: Mapping[str, tuple[int, ...]]
) -> tuple[dict[str, Array], list[dict[str, Any]]]:
    """Return the arrays and the rounds of a state, or raise where it is of another controller or damaged.

    Parameters
    ----------
    state : mapping
    names : sequence of str
        The sources of the controller, in words.
    shapes : mapping
        Of its arrays.
    """
    if not isinstance(state, Mapping):
        raise InvalidInputError(f"the state is {state!r:.60}; pass what state_dict returned.")
    if list(state.get("sources") or ()) != list(names):
        raise InvalidInputError(
            f"the state is of {state.get('sources')!r:.80}, and the controller of {list(names)!r:.80}. "
            "Make it with the same sources in the same order."
        )
    try:
        arrays = {name: np.array(state[name], dtype=np.float64) for name in STATE}
        rounds = [
            {name: plain_numbers(np.array(one[name], dtype=np.float64)) for name in ROUND} for one in state["rounds"]
        ]
        sizes = {len(one[name]) for one in rounds for name in ("loss", "share")} - {len(names)}
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidInputError(f"this is no state of a controller: {error!r:.80}.") from error
    if sizes or any(values.shape != shapes[name] for name, values in arrays.items()):
        raise InvalidInputError("the state has arrays of other sizes than the controller. Is the file whole?")
    finite = [arrays[name] for name in ("share_sums", "unit", "held_out_tokens")]
    if not all(np.isfinite(one).all() for one in finite) or np.isnan(arrays["references"]).all():
        raise InvalidInputError("the state has numbers that are not finite. Is the file whole?")
    if not math.isclose(arrays["share_sums"].sum(), len(rounds), rel_tol=1e-6, abs_tol=1e-9):
        raise InvalidInputError(
            f"the state has {len(rounds):,} rounds and sums of shares of others. Is the file whole?"
        )
    for name in ("first_probabilities", "probabilities"):
        checked_distribution(arrays[name], f"{name} of the state")
    return arrays, rounds


def plain_numbers(values: Array) -> Any:
    """Return a number or several as JSON has them: it knows no NaN."""
    if values.ndim == 0:
        return float(values) if math.isfinite(values) else None
    return [value if math.isfinite(value) else None for value in values.tolist()]
