"""Rows in blocks, wherever they are: what one pass over them asks, and what comes back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, ClassVar, Protocol

import numpy as np

from counterpoise.losses import Loss
from counterpoise.rows._base import Array, Codes
from counterpoise.rows.memory import BATCH_ENTRIES, MemoryPart, MemoryRows


@dataclass(frozen=True, eq=False)
class Answer:
    """What some rows say to a question.

    Every kind of answer names its arrays, and how those of several blocks become one: see :func:`of_contexts`,
    :func:`of_problems`, :func:`of_all` and :func:`of_rows`. An array that was not asked for is None.

    Attributes
    ----------
    contexts : ndarray of shape (n,)
        The contexts of the rows, in order: what the first axis of their arrays is about.
    problems : ndarray of shape (m,)
        The same for parameters: the contexts again, where each has its own, and ``[0]`` where all share one.
    """

    contexts: Codes
    problems: Codes


def of_contexts(join: np.ufunc = np.add) -> Any:
    """Declare an array with an entry per context, joined by sums or minima."""
    return field(default=None, metadata={"by": "contexts", "join": join})


def of_problems(join: np.ufunc = np.add) -> Any:
    """Declare an array with an entry per parameter vector, joined by sums or minima."""
    return field(default=None, metadata={"by": "problems", "join": join})


def of_all(join: np.ufunc = np.add) -> Any:
    """Declare an array about all rows, joined by sums or minima."""
    return field(default=None, metadata={"by": None, "join": join})


def of_rows() -> Any:
    """Declare an array with an entry per row, those of one block after the other."""
    return field(default=None, metadata={"by": "rows", "join": None})


SHARED: Codes = np.zeros(1, dtype=np.intp)
"""The problems of an answer where all contexts share one theta."""


def combined(answers: Sequence[Any]) -> Any:
    """Return what rows say together, always added up in the same order."""
    first = answers[0]
    if len(answers) == 1:
        return first
    places, index = {}, {}
    for by in ("contexts", "problems"):
        index[by] = np.unique(np.concatenate([getattr(answer, by) for answer in answers]))
        places[by] = [np.searchsorted(index[by], getattr(answer, by)) for answer in answers]
    joined: dict[str, Array] = {}
    for one in fields(first):
        arrays = [getattr(answer, one.name) for answer in answers]
        if not one.metadata or arrays[0] is None:
            continue
        by, join = one.metadata["by"], one.metadata["join"]
        if by == "rows":
            joined[one.name] = np.concatenate(arrays)
            continue
        if by is None:
            joined[one.name] = join.reduce(arrays)
            continue
        whole = np.full((len(index[by]), *arrays[0].shape[1:]), 0.0 if join is np.add else np.inf)
        for array, place in zip(arrays, places[by], strict=True):
            whole[place] = join(whole[place], array)
        joined[one.name] = whole
    return type(first)(**index, **joined)


class Question(Protocol):
    """What is asked of every block in one pass; it travels to where the rows are."""

    answers: ClassVar[Any]
    """The kind of answer, a class."""

    def about(self, contexts: Codes) -> Question:
        """Return the part of the question that a block with these contexts needs."""

    def __call__(self, block: Block, state: Any) -> Any:
        """Return the answer of a block, or with :meth:`Blocks.advance` its next state and the answer."""


class Blocks(Protocol):
    """All rows. A state is what a block remembers from one question to the next, opaque to whoever asks."""

    def ask(self, question: Question, states: Any = None) -> Any:
        """Put a question to every block, and return the answers combined."""

    def advance(self, question: Question, states: Any = None) -> tuple[Any, Any]:
        """Do the same, with blocks that change their states."""

    def finish(self) -> None:
        """Forget what was kept in case the work is cut short: it is done."""


@dataclass(frozen=True, eq=False)
class Block:
    """Some rows of some contexts.

    Attributes
    ----------
    contexts : ndarray of shape (n,)
        Which of all contexts these are, in order.
    rows : MemoryRows
        A context's row weights add up to one over all blocks, not in each.
    part : MemoryPart, optional
        The contexts side by side, where the block is a part of rows in memory; states then keep what was made of rows.
    """

    contexts: Codes
    rows: MemoryRows
    part: MemoryPart | None = None

    @classmethod
    def of(
        cls, X: Any, target: Array, codes: Codes, weight: Array, totals: Array, loss: Loss, fit_intercept: bool
    ) -> Block:
        """Group rows by context.

        Parameters
        ----------
        codes : ndarray of shape (n_rows,)
            The contexts of the rows, among all contexts.
        weight : ndarray of shape (n_rows,)
        totals : ndarray of shape (n_contexts,)
            The sum of weights of each context over all blocks.
        """
        present, local = np.unique(codes, return_inverse=True)
        share = weight / totals[codes]
        if np.any(local[1:] < local[:-1]):
            order = np.argsort(local, kind="stable")
            X, target, share = X[order], target[order], share[order]
        starts = np.concatenate([[0], np.cumsum(np.bincount(local, minlength=len(present)))])
        return cls(present, MemoryRows(X, target, share, starts, loss, fit_intercept))

    @cached_property
    def _tiles(self) -> tuple[MemoryRows, Codes]:
        """Contexts cut into pieces of bounded size, and the context of each piece."""
        rows = self.rows
        longest = max(1, BATCH_ENTRIES // max(rows.coefficients.n_parameters, 1))
        pieces = -(-rows.sizes // longest)
        owner = np.repeat(np.arange(rows.n_contexts), pieces)
        # The number of a piece within its context.
        place = np.arange(len(owner)) - np.repeat(np.cumsum(pieces) - pieces, pieces)
        return replace(rows, starts=np.append(rows.starts[owner] + place * longest, rows.starts[-1])), owner

    def tiles(self) -> Iterator[tuple[MemoryPart, Codes]]:
        """Yield pieces of contexts side by side, each of bounded memory once padded, and their contexts here."""
        if self.part is not None:
            yield self.part, self.contexts
            return
        rows, owner = self._tiles
        for tiles in rows.alike():
            yield rows.padded(tiles), owner[tiles]


@dataclass(eq=False)
class BlocksInMemory:
    """Blocks that are at hand."""

    blocks: list[Block]
    n_passes: int = field(default=0)

    def ask(self, question: Question, states: Any = None) -> Any:
        """Put a question to one block after the other."""
        return self._pass(question, states, lambda answer: answer)

    def advance(self, question: Question, states: Any = None) -> tuple[Any, Any]:
        """Do the same, with blocks that change their states."""
        kept: list[Any] = []

        def keep(pair: tuple[Any, Any]) -> Any:
            kept.append(pair[0])
            return pair[1]

        answer = self._pass(question, states, keep)
        return kept, answer

    def finish(self) -> None:
        """Nothing was kept."""

    def _pass(self, question: Question, states: Any, read: Callable[[Any], Any]) -> Any:
        self.n_passes += 1
        known = [None] * len(self.blocks) if states is None else states
        return combined(
            [
                read(question.about(block.contexts)(block, state))
                for block, state in zip(self.blocks, known, strict=True)
            ]
        )


def in_memory(rows: MemoryRows, part: MemoryPart | None = None) -> BlocksInMemory:
    """Return rows in memory, or a part of their contexts, as one block that keeps what is made of it."""
    part = rows.whole if part is None else part
    return BlocksInMemory([Block(np.arange(part.layout.n_groups), rows, part)])
