"""Blocks of rows on disk: one is in memory at a time."""

from __future__ import annotations

import pickle
import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from counterpoise.losses import Loss
from counterpoise.rows._base import Codes
from counterpoise.rows.blocks import Block, Question, combined
from counterpoise.rows.memory import MemoryRows
from counterpoise.signals import undisturbed


class BlocksOnDisk:
    """Blocks in a temporary folder, which is gone when they are.

    Parameters
    ----------
    folder : path, optional
        Where the temporary folder is made; the system's own place when not given.
    """

    def __init__(self, folder: str | Path | None = None) -> None:
        self.n_passes = 0
        try:
            with undisturbed():
                self._folder = Path(tempfile.mkdtemp(prefix="counterpoise-", dir=folder))
                self._gone = weakref.finalize(self, _remove, str(self._folder))
        except BaseException:
            # What stops a program waited until the folder was there; nobody else will know of it.
            if hasattr(self, "_gone"):
                self._gone()
            raise
        self._contexts: list[Codes] = []
        # Of sparse features; None where they are dense.
        self._shapes: list[tuple[int, int] | None] = []
        self._like: tuple[Loss, bool] | None = None
        self._n_states = 0

    def __len__(self) -> int:
        return len(self._contexts)

    def append(self, block: Block) -> None:
        """Write a block."""
        rows = block.rows
        with self._path("block", len(self)).open("wb") as file:
            for array in (*_arrays(rows.X), rows.target, rows.weight, rows.starts):
                np.save(file, array, allow_pickle=False)
        self._contexts.append(block.contexts)
        self._shapes.append(rows.X.shape if sparse.issparse(rows.X) else None)
        self._like = (rows.loss, rows.fit_intercept)

    def extend(self, blocks: Iterable[Block]) -> None:
        """Write blocks one after the other."""
        for block in blocks:
            self.append(block)

    def close(self) -> None:
        """Remove the folder."""
        self._gone()

    def ask(self, question: Question, states: Any = None) -> Any:
        """Put a question to one block after the other."""
        return self._pass(question, states, lambda _, answer: answer)

    def advance(self, question: Question, states: Any = None) -> tuple[Any, Any]:
        """Do the same, with blocks that change their states; those are on disk too."""
        self._n_states += 1
        kept = _States(self._path(f"states-{self._n_states}", 0))

        def keep(k: int, pair: tuple[Any, Any]) -> Any:
            kept.write(k, pair[0])
            return pair[1]

        answer = self._pass(question, states, keep)
        return kept, answer

    def finish(self) -> None:
        """Nothing was kept."""

    def _pass(self, question: Question, states: _States | None, read: Callable[[int, Any], Any]) -> Any:
        self.n_passes += 1
        total: Any = None
        for k, contexts in enumerate(self._contexts):
            found = question.about(contexts)(self._block(k), None if states is None else states.read(k))
            answer = read(k, found)
            total = answer if total is None else combined([total, answer])
        return total

    def _block(self, k: int) -> Block:
        assert self._like is not None
        loss, fit_intercept = self._like
        shape = self._shapes[k]
        with self._path("block", k).open("rb") as file:
            *features, target, weight, starts = (
                np.load(file, allow_pickle=False) for _ in range(4 if shape is None else 6)
            )
        X = features[0] if shape is None else sparse.csr_array(tuple(features), shape=shape)
        return Block(self._contexts[k], MemoryRows(X, target, weight, starts, loss, fit_intercept))

    def _path(self, kind: str, k: int) -> Path:
        return self._folder / f"{kind}-{k}"


def _remove(folder: str) -> None:
    with undisturbed():
        shutil.rmtree(folder, ignore_errors=True)


def _arrays(X: Any) -> tuple[Any, ...]:
    """Return the arrays that features are made of."""
    return (X.data, X.indices, X.indptr) if sparse.issparse(X) else (X,)


class _States:
    """What blocks remember, a file each, removed when nobody needs it any more."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._folder = folder
        weakref.finalize(self, _remove, str(folder))

    def write(self, k: int, state: Any) -> None:
        with (self._folder / str(k)).open("wb") as file:
            pickle.dump(state, file, protocol=5)

    def read(self, k: int) -> Any:
        with (self._folder / str(k)).open("rb") as file:
            return pickle.load(file)
