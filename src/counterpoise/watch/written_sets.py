"""Sets of mixes as JSON, so that a watch can go on without the model."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np

from counterpoise.contexts import plain
from counterpoise.sets import (
    Chi2Ball,
    ContextSet,
    Intersection,
    KLBall,
    Marginal,
    ShareBounds,
    ShareLimits,
    TotalVariationBall,
)
from counterpoise.tables.tabular.card import Part, number_json, numbers_json, plain_json

_KINDS: dict[str, type[ContextSet]] = {
    one.__name__: one
    for one in (KLBall, Chi2Ball, TotalVariationBall, ShareBounds, ShareLimits, Marginal, Intersection)
}


def set_json(mixes: ContextSet) -> dict[str, Any]:
    """Return a set as what JSON can hold: its kind, and what it is made of."""
    kind = type(mixes).__name__
    given = [one.name for one in fields(mixes) if one.init]  # type: ignore[arg-type]
    return {kind: {name: _json(name, getattr(mixes, name)) for name in given}}


def _json(name: str, value: Any) -> Any:
    if isinstance(value, ContextSet):
        return set_json(value)
    if name == "labels" and value is not None:
        return [plain_json(plain(one)) for one in value]
    if isinstance(value, tuple):
        return [_json(name, one) for one in value]
    if isinstance(value, np.ndarray):
        if value.ndim == 2:
            return [numbers_json(row) for row in value]
        return value.tolist() if value.dtype.kind in "iu" else numbers_json(value)
    return number_json(value) if isinstance(value, float) else value


def read_set(part: Part) -> ContextSet:
    """Return a set that was written."""
    kind, own = next(iter(part.items.items()), ("", part))
    if kind not in _KINDS or len(part.items) != 1:
        part.refuse(f"one of {', '.join(_KINDS)}")
    return _KINDS[kind](**{name: _read(name, one) for name, one in own.items.items()})


def _read(name: str, part: Part) -> Any:
    if part.is_null:
        return None
    if name == "labels":
        return tuple(one.python for one in part.list)
    if name == "parts":
        return tuple(read_set(one) for one in part.list)
    if name == "mixes":
        return read_set(part)
    if name == "parents":
        return np.array([int(one.finite) for one in part.list])
    if name == "around":
        return part.text
    if isinstance(part.value, list):
        return np.array([_read(name, one) for one in part.list])
    return part.number
