"""The file of results of the study of mixtures: what can be reached in each source, and every run."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from mixture_training import Trained
from numpy.typing import NDArray

from counterpoise.exceptions import InvalidInputError
from counterpoise.files import whole

Array = NDArray[np.float64]

SPARE = "spare"
"""The method of runs that fill a group up."""


class Results:
    """What a study has found so far.

    Parameters
    ----------
    place : path
        Of the file, which must not exist unless it is the one that is added to.
    tokens : mapping from source to number
        Of all texts to train on, by which results of other texts are told.
    known : path, optional
        The file of an earlier part of the study, to add to.

    Attributes
    ----------
    content : dict
        What the file holds: ``sources``, ``tokens``, ``runs``, and what is known of each size by its name.
    """

    def __init__(self, place: Path, tokens: dict[str, int], known: Path | None = None) -> None:
        if place.exists() and (known is None or place.resolve() != known.resolve()):
            raise InvalidInputError(f"{place} exists. Add to it with --known {place}, or choose another --out.")
        self.place = place
        texts = {"sources": list(tokens), "tokens": list(tokens.values())}
        self.content: dict[str, Any] = texts | {"runs": []}
        if known is not None:
            self.content = json.loads(known.read_text(encoding="utf-8"))
            if {name: self.content.get(name) for name in texts} != texts:
                raise InvalidInputError(
                    f"{known} is of other texts. Pass the results of these, or choose another --out."
                )

    def check(self, size: str, about: dict[str, Any]) -> None:
        """Raise unless runs of a size can be added to those that are there."""
        known = self.content.get(size, about)
        if strange := [name for name, value in about.items() if known[name] != value]:
            raise InvalidInputError(
                f"{self.place} has models of the size {size} with other {' and '.join(strange)}, which tables cannot "
                "compare with these. Choose another --out."
            )

    def add(self, groups: Sequence[Trained], size: str) -> None:
        """Keep runs, in the place of earlier ones of the same method and seed, and write the file."""
        runs = {_key(run): run for run in self.content["runs"]}
        for group in groups:
            for run in group.runs:
                if run.method == SPARE:
                    continue
                kept = {
                    "size": size,
                    "method": run.method,
                    "seed": run.seed,
                    "judged": run.judged.tolist(),
                    "mixes": np.round(run.mixes, 5).tolist(),
                    "watched": np.round(run.watched, 4).tolist(),
                    "exported": None if run.rule.exported is None else run.rule.exported.tolist(),
                }
                runs[_key(kept)] = kept
        self.content["runs"] = list(runs.values())
        self.save()

    def save(self) -> None:
        """Write the file, whole."""
        self.place.parent.mkdir(parents=True, exist_ok=True)
        whole(self.place, lambda part: part.write_text(json.dumps(self.content), encoding="utf-8"))

    def exported(self, size: str, method: str, seed: int) -> Array:
        """Return the mix that a method gives to another training of the same seed."""
        found = [run["exported"] for run in self.content["runs"] if _key(run) == (size, method, seed)]
        if not found:
            raise InvalidInputError(
                f"no model of the size {size} was trained by {method!r} with seed {seed}. Finish that size first."
            )
        return np.array(found[0])


def _key(run: dict[str, Any]) -> tuple[str, str, int]:
    return run["size"], run["method"], run["seed"]
