"""Files of a mix of sources: JSON, or YAML."""

from __future__ import annotations

import json
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

from counterpoise.exceptions import InvalidInputError

SUFFIXES = (".json", ".yaml", ".yml")
"""Endings of the names of files that a mix can be written to."""


def mix_text(content: Mapping[str, Any], suffix: str) -> str:
    """Return the text of a file with two levels of mappings."""
    if suffix != ".json":
        return _yaml(content) + "\n"
    is_plain = all(map(_is_plain, (name for part in content.values() if isinstance(part, Mapping) for name in part)))
    return json.dumps(content, indent=2, ensure_ascii=not is_plain) + "\n"


def _is_plain(name: str) -> bool:
    """Tell whether a name can be written as it is: YAML forbids control characters, and UTF-8 half a surrogate pair."""
    return name.isprintable()


def read_mix(path: str | PathLike[str]) -> dict[str, float]:
    """Return the shares by source, named in words, from a JSON file that :meth:`MixtureController.export` wrote."""
    if Path(path).suffix in SUFFIXES[1:]:
        raise InvalidInputError(
            f"{path} is YAML, which is for other programs. Export the mix with .json, and read that."
        )
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
        return {str(name): float(share) for name, share in content["mix"].items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InvalidInputError(f"{path} is not what export wrote. Export the mix again.") from error


def _yaml(content: Mapping[str, Any]) -> str:
    """Return two levels of mappings as YAML."""
    lines = []
    for name, part in content.items():
        if isinstance(part, Mapping):
            words = (f"  {_word(key)}: {_scalar(value)}" for key, value in part.items())
            lines += [f"{name}:", *words]
        else:
            lines.append(f"{name}: {_scalar(part)}")
    return "\n".join(lines)


def _word(name: str) -> str:
    return json.dumps(name, ensure_ascii=not _is_plain(name))


def _scalar(value: float | None) -> str:
    """Return a number as JSON has it, but with the point without which YAML 1.1 reads 1e-05 as a word."""
    text = json.dumps(value)
    return text.replace("e", ".0e") if "e" in text and "." not in text else text
