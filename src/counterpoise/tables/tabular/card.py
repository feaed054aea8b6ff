"""JSON that somebody else may have written: read part by part, and each part checked."""

from __future__ import annotations

import datetime
import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

_INFINITE = {"inf": math.inf, "-inf": -math.inf}

_MOST = 2**53
"""Whole numbers up to which a float tells neighbours apart."""


class CardError(ValueError):
    """A part of a card is not what it must be; the message says which."""


def digest(card: Mapping[str, Any]) -> str:
    """Return the SHA-256 of all that a card says, however it is laid out."""
    said = json.dumps(card, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(said.encode()).hexdigest()


def parsed(text: str) -> dict[str, Any]:
    """Return the card in a text, or raise a ValueError."""

    def refuse(name: str) -> NoReturn:
        raise CardError(f"it holds {name}, which is no JSON")

    card = json.loads(text, parse_constant=refuse)
    if not isinstance(card, dict):
        raise CardError("it is no JSON object")
    return card


class Part:
    """A part of a card, and where in the card it is.

    Parameters
    ----------
    value : object
        What the JSON says.
    where : str
        For messages.
    """

    def __init__(self, value: Any, where: str = "") -> None:
        self.value, self.where = value, where

    def refuse(self, wanted: str) -> NoReturn:
        """Say what this part must be."""
        raise CardError(f"{self.where or 'it'} must be {wanted}, but it is {json.dumps(self.value)[:60]}")

    def __getitem__(self, name: str) -> Part:
        if not isinstance(self.value, dict):
            self.refuse("an object")
        where = f"{self.where}.{name}" if self.where else name
        if name not in self.value:
            raise CardError(f"{where} is missing")
        return Part(self.value[name], where)

    def get(self, name: str) -> Part:
        """Return a part that files of earlier versions lack; null where there is none."""
        return self[name] if isinstance(self.value, dict) and name in self.value else Part(None, f"{self.where}.{name}")

    @property
    def is_null(self) -> bool:
        """Whether there is nothing."""
        return self.value is None

    @property
    def items(self) -> dict[str, Part]:
        """The parts of an object."""
        if not isinstance(self.value, dict):
            self.refuse("an object")
        return {name: self[name] for name in self.value}

    @property
    def list(self) -> list[Part]:
        """The parts of a list."""
        if not isinstance(self.value, list):
            self.refuse("a list")
        return [Part(one, f"{self.where}[{k}]") for k, one in enumerate(self.value)]

    @property
    def text(self) -> str:
        """A text."""
        if not isinstance(self.value, str):
            self.refuse("text")
        return self.value

    @property
    def texts(self) -> tuple[str, ...]:
        """Different texts."""
        return self._distinct(tuple(one.text for one in self.list))

    @property
    def words(self) -> tuple[str | None, ...]:
        """Different texts, one of which may be null."""
        return self._distinct(tuple(None if one.is_null else one.text for one in self.list))

    def _distinct(self, found: tuple[Any, ...]) -> tuple[Any, ...]:
        if len(set(found)) < len(found):
            self.refuse("a list without repetitions")
        return found

    def one_of(self, choices: Sequence[str]) -> str:
        """Return one of several texts."""
        if self.value not in choices:
            self.refuse(f"one of {', '.join(choices)}")
        return str(self.value)

    @property
    def finite(self) -> float:
        """A number that is finite."""
        number = self.number
        if not math.isfinite(number):
            self.refuse("a finite number")
        return number

    @property
    def number(self) -> float:
        """A number; null is NaN, and "inf" is infinite."""
        if self.value is None:
            return math.nan
        if isinstance(self.value, str) and self.value in _INFINITE:
            return _INFINITE[self.value]
        if isinstance(self.value, bool) or not isinstance(self.value, (int, float)):
            self.refuse("a number")
        try:
            return float(self.value)
        except OverflowError:
            self.refuse("a number that a float can hold")

    @property
    def count(self) -> int:
        """A whole number, 0 or more."""
        if isinstance(self.value, bool) or not isinstance(self.value, int) or not 0 <= self.value < _MOST:
            self.refuse("a whole number, 0 or more")
        return self.value

    def numbers(self, n: int, *, finite: bool = False, least: float | None = None) -> NDArray[np.float64]:
        """Return as many numbers as there must be, none of them below the least."""
        parts = self.list
        if len(parts) != n:
            raise CardError(f"{self.where} must hold {n} numbers, but it holds {len(parts)}")
        found = np.array([one.finite if finite else one.number for one in parts], dtype=np.float64)
        if least is not None and not (found >= least).all():
            self.refuse(f"numbers, {least:g} or more")
        return found

    @property
    def python(self) -> Any:
        """The Python value that :func:`plain_json` wrote."""
        if isinstance(self.value, list):
            return [one.python for one in self.list]
        if not isinstance(self.value, dict):
            return self.value
        if len(self.value) != 1:
            self.refuse("a value of one kind")
        kind, part = next(iter(self.items.items()))
        try:
            return _READ[kind](part)
        except (KeyError, ValueError, TypeError) as error:
            if isinstance(error, CardError):
                raise
            self.refuse(f"one of {', '.join(_READ)}")


def _pairs(part: Part) -> dict[Any, Any]:
    return {key.python: value.python for key, value in (one.list for one in part.list)}


_READ: dict[str, Callable[[Part], Any]] = {
    "tuple": lambda part: tuple(one.python for one in part.list),
    "pairs": _pairs,
    "number": lambda part: part.number,
    "date": lambda part: datetime.date.fromisoformat(part.text),
    "datetime": lambda part: datetime.datetime.fromisoformat(part.text),
}


def plain_json(value: Any) -> Any:
    """Return a value of Python as JSON from which it can be told again; what has no form of its own becomes text."""
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {"number": number_json(value)}
    if isinstance(value, np.generic):
        return plain_json(value.item())
    if isinstance(value, tuple):
        return {"tuple": [plain_json(one) for one in value]}
    if isinstance(value, list):
        return [plain_json(one) for one in value]
    if isinstance(value, Mapping):
        return {"pairs": [[plain_json(key), plain_json(one)] for key, one in value.items()]}
    if isinstance(value, datetime.datetime):
        return {"datetime": value.isoformat()}
    if isinstance(value, datetime.date):
        return {"date": value.isoformat()}
    return str(value)


def number_json(value: float) -> float | str | None:
    """Return a number as JSON: NaN is null, and what is infinite a text."""
    value = float(value)
    if math.isnan(value):
        return None
    return value if math.isfinite(value) else ("inf" if value > 0 else "-inf")


def numbers_json(values: Any) -> list[float | str | None]:
    """Return numbers as JSON, with all their digits."""
    return [number_json(one) for one in np.asarray(values, dtype=np.float64).tolist()]
