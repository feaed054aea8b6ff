"""Rows in blocks, wherever they are: what one pass over them asks, and what comes back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from counterpoise.losses import Loss
from counterpoise.oracle._base import Array
from counterpoise.oracle.batch import BATCH_ENTRIES, Batch, batches
from counterpoise.oracle.linear import LinearOracle

Codes = NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class Answer:
    """What some rows say to a question: arrays that are added up, and arrays of which the smallest entries count.

    Attributes
    ----------
    contexts : ndarray of shape (n,)
        The contexts of the rows, in order: what the first axis of ``of_each`` and ``least_of_each`` is about.
    sums, least : tuple of ndarray
        Over all rows.
    of_each, least_of_each : tuple of ndarray of shape (n, ...)
        Over the rows of each context.
    """

    contexts: Codes
    sums: tuple[Array, ...] = ()
    of_each: tuple[Array, ...] = ()
    least: tuple[Array, ...] = ()
    least_of_each: tuple[Array, ...] = ()


def combined(answers: Sequence[Answer]) -> Answer:
    """Return what rows say together, always added up in the same order."""
    first = answers[0]
    if len(answers) == 1:
        return first
    contexts = np.unique(np.concatenate([answer.contexts for answer in answers]))
    places = [np.searchsorted(contexts, answer.contexts) for answer in answers]

    def joined(name: str, fill: float, join: np.ufunc) -> tuple[Array, ...]:
        out = []
        for k, like in enumerate(getattr(first, name)):
            whole = np.full((len(contexts), *like.shape[1:]), fill)
            for answer, place in zip(answers, places, strict=True):
                whole[place] = join(whole[place], getattr(answer, name)[k])
            out.append(whole)
        return tuple(out)

    return Answer(
        contexts,
        tuple(np.add.reduce(list(parts)) for parts in zip(*(answer.sums for answer in answers), strict=True)),
        joined("of_each", 0.0, np.add),
        tuple(np.minimum.reduce(list(parts)) for parts in zip(*(answer.least for answer in answers), strict=True)),
        joined("least_of_each", np.inf, np.minimum),
    )


class Question(Protocol):
    """What is asked of every block in one pass; it travels to where the rows are."""

    def about(self, contexts: Codes) -> Question:
        """Return the part of the question that a block with these contexts needs."""

    def __call__(self, block: Block, state: Any) -> Any:
        """Return the answer of a block, or with :meth:`Blocks.advance` its next state and the answer."""


class Blocks(Protocol):
    """All rows. A state is what a block remembers from one question to the next, opaque to whoever asks."""

    def ask(self, question: Question, states: Any = None) -> Answer:
        """Put a question to every block, and return the answers combined."""

    def advance(self, question: Question, states: Any = None) -> tuple[Any, Answer]:
        """Do the same, with blocks that change their states."""


@dataclass(frozen=True, eq=False)
class Block:
    """Some rows of some contexts.

    Attributes
    ----------
    contexts : ndarray of shape (n,)
        Which of all contexts these are, in order.
    oracle : LinearOracle
        The rows, without a ridge. A context's row weights add up to one over all blocks, not in each.
    """

    contexts: Codes
    oracle: LinearOracle

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
        return cls(present, LinearOracle(X, target, share, starts, loss, 0.0, fit_intercept))

    @cached_property
    def tiles(self) -> Tiles:
        """The rows in pieces of bounded size, each of one context."""
        return Tiles.of(self.oracle)

    def sums_of_each(self, rows: Array) -> Array:
        """Add rows up by context."""
        return np.asarray(np.add.reduceat(rows, self.oracle.starts[:-1], axis=0))


@dataclass(frozen=True, eq=False)
class Tiles:
    """Rows of one context at a time, long contexts in several pieces, so that what is made of them stays small.

    Attributes
    ----------
    oracle : LinearOracle
        With a tile in place of a context.
    owner : ndarray of shape (n_tiles,)
        The context of each tile, among those of the block.
    """

    oracle: LinearOracle
    owner: Codes

    @classmethod
    def of(cls, oracle: LinearOracle) -> Tiles:
        """Cut contexts that are too long."""
        longest = max(1, BATCH_ENTRIES // max(oracle.n_parameters, 1))
        sizes = np.diff(oracle.starts)
        pieces = -(-sizes // longest)
        owner = np.repeat(np.arange(len(sizes)), pieces)
        # The number of a piece within its context.
        place = np.arange(len(owner)) - np.repeat(np.cumsum(pieces) - pieces, pieces)
        starts = np.append(oracle.starts[owner] + place * longest, oracle.starts[-1])
        return cls(replace(oracle, starts=starts), owner)

    def batches(self, theta: Array) -> Iterator[tuple[Batch, Codes]]:
        """Yield tiles side by side with the parameters of their contexts, and the contexts."""
        for tiles in batches(self.oracle):
            owner = self.owner[tiles]
            yield Batch.of(self.oracle, tiles, theta[0]).at(theta[owner]), owner


@dataclass(eq=False)
class BlocksInMemory:
    """Blocks that are at hand."""

    blocks: list[Block]
    n_passes: int = field(default=0)

    def ask(self, question: Question, states: Any = None) -> Answer:
        """Put a question to one block after the other."""
        return self._pass(question, states, lambda answer: answer)

    def advance(self, question: Question, states: Any = None) -> tuple[Any, Answer]:
        """Do the same, with blocks that change their states."""
        kept: list[Any] = []

        def keep(pair: tuple[Any, Answer]) -> Answer:
            kept.append(pair[0])
            return pair[1]

        answer = self._pass(question, states, keep)
        return kept, answer

    def _pass(self, question: Question, states: Any, read: Callable[[Any], Answer]) -> Answer:
        self.n_passes += 1
        known = [None] * len(self.blocks) if states is None else states
        return combined(
            [
                read(question.about(block.contexts)(block, state))
                for block, state in zip(self.blocks, known, strict=True)
            ]
        )
