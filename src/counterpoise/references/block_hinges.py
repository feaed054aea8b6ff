"""References of hinged losses whose rows are in blocks: every context's program in the same passes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from counterpoise.linalg import solve_stack
from counterpoise.losses import Hinged
from counterpoise.objective import ReferenceRisks
from counterpoise.oracle._base import Array
from counterpoise.oracle.batch import Batch
from counterpoise.oracle.blocks import Answer, Block, Codes
from counterpoise.oracle.blocks.rows import BlockRows
from counterpoise.oracle.blocks.scalar import BlockScalarOracle
from counterpoise.oracle.blocks.slopes import BlockSlopes
from counterpoise.oracle.linear_bounds import Ridge, RowSlopes, balanced_bounds
from counterpoise.oracle.scalar import ScalarOracle
from counterpoise.oracle.summed import SummedOracle
from counterpoise.references.polyhedral import RowAffine, RowPrograms, solve_programs
from counterpoise.references.specialists import Specialists

State = list[tuple[Array, Array, Array]]
"""The dual variables of a block's rows, tile by tile."""


def hinged_specialists(oracle: SummedOracle, tol: float) -> Specialists:
    """Minimise every context's risk on its own; see :func:`counterpoise.references.specialists.fit_specialists`."""
    if ScalarOracle.suits(oracle):
        least, theta = BlockScalarOracle.of(oracle).context_minima()
        return Specialists(ReferenceRisks.exactly(least), theta[:, None])
    programs = BlockPrograms.start(oracle)
    floor = np.where(np.isfinite(oracle.lowest_risks), oracle.lowest_risks, 0.0)
    scale = max(float(np.mean(np.abs(programs.first - floor))), 1e-3 * oracle.typical_risk)
    upper, lower, theta = solve_programs(programs, oracle.lowest_risks, tol, scale)
    reached = max(float(np.mean(np.abs(upper - floor))), 1e-3 * oracle.typical_risk)
    if reached < 1e-2 * scale:
        # Every context is fitted (nearly) perfectly: then the references set the scale.
        upper, lower, theta = solve_programs(programs, oracle.lowest_risks, tol, reached)
    return Specialists(ReferenceRisks(upper, np.minimum(lower, upper)), theta)


@dataclass(frozen=True)
class _LeastSquares:
    """The normal equations of every context's fit to its hinges."""

    n_parameters: int

    def about(self, contexts: Codes) -> _LeastSquares:
        return self

    def __call__(self, block: Block, state: Any) -> Answer:
        n = len(block.contexts)
        gram, right = np.zeros((n, self.n_parameters, self.n_parameters)), np.zeros((n, self.n_parameters))
        for batch, owner in block.tiles.batches(np.zeros((n, self.n_parameters))):
            assert isinstance(batch.loss, Hinged)
            hinge = batch.loss.pieces(batch.target)[0]
            np.add.at(gram, owner, batch.gram(batch.weight))
            np.add.at(right, owner, batch.transpose_product((batch.weight * hinge)[:, None]))
        return Answer(block.contexts, of_each=(gram, right))


@dataclass(frozen=True)
class _Compare:
    """Values of two sets of parameters, and how far each is from the hinges."""

    first: Array
    second: Array

    def about(self, contexts: Codes) -> _Compare:
        return _Compare(self.first[contexts], self.second[contexts])

    def __call__(self, block: Block, state: Any) -> Answer:
        out = np.zeros((4, len(block.contexts)))
        for k, theta in enumerate((self.first, self.second)):
            for batch, owner in block.tiles.batches(theta):
                assert isinstance(batch.loss, Hinged)
                away = np.abs(batch.predictions - batch.loss.pieces(batch.target)[0])
                np.add.at(out[k], owner, batch.value)
                np.add.at(out[2 + k], owner, batch.total(batch.weight * away))
        return Answer(block.contexts, of_each=tuple(out))


@dataclass(frozen=True)
class _Programs:
    """Where the programs of some contexts are; what all questions about them have in common.

    Attributes
    ----------
    theta : ndarray of shape (n_contexts, n_parameters)
    active : ndarray of bool of shape (n_contexts,)
        Programs that are not active rest.
    """

    theta: Array
    active: NDArray[np.bool_]

    def about(self, contexts: Codes) -> Any:
        sliced = {name: _sliced(value, contexts) for name, value in vars(self).items()}
        return replace(self, **sliced)

    def tiles(self, block: Block, state: State | None) -> Iterator[tuple[int, Batch, Codes, RowPrograms | None]]:
        """Yield the active tiles of a block, with their dual variables where there are any yet."""
        for k, (batch, owner) in enumerate(block.tiles.batches(self.theta)):
            if self.active[owner].any():
                yield k, batch, owner, None if state is None else RowPrograms(batch, *state[k])


def _sliced(value: Any, contexts: Codes) -> Any:
    if isinstance(value, tuple):
        return tuple(one[contexts] for one in value)
    return value[contexts]


@dataclass(frozen=True)
class _Begin(_Programs):
    """Every variable well inside; then sums."""

    mean: Array

    def __call__(self, block: Block, state: Any) -> tuple[State, Answer]:
        kept = [RowPrograms.inside(batch, self.mean[owner]) for batch, owner in block.tiles.batches(self.theta)]
        kept_state = [(rows.v, rows.over, rows.under) for rows in kept]
        return kept_state, _sums(self, block, kept_state)


def _sums(where: _Programs, block: Block, state: State) -> Answer:
    """Return all that is asked of programs before a direction is chosen."""
    n, size = where.theta.shape
    out = (np.zeros(n), np.zeros(n), np.zeros(n), np.zeros((n, size)), np.zeros((n, size)), np.zeros((n, size, size)))
    for _, _, owner, rows in where.tiles(block, state):
        assert rows is not None
        parts = (rows.value, rows.above, rows.mu, rows.residual, rows.lift, rows.hessian)
        for whole, part in zip(out, parts, strict=True):
            np.add.at(whole, owner, part)
    return Answer(block.contexts, of_each=out)


@dataclass(frozen=True)
class _Affine(_Programs):
    """How far the affine direction may go, and what it does."""

    direction: Array

    def __call__(self, block: Block, state: State) -> Answer:
        n, size = self.theta.shape
        out = (np.zeros(n), np.zeros(n), np.zeros((n, size)))
        longest = np.ones(n)
        for _, _, owner, rows in self.tiles(block, state):
            assert rows is not None
            affine = rows.affine(self.direction[owner])
            for whole, part in zip(out, (*affine.products, affine.response), strict=True):
                np.add.at(whole, owner, part)
            np.minimum.at(longest, owner, affine.longest)
        return Answer(block.contexts, of_each=out, least_of_each=(longest,))


@dataclass(frozen=True)
class _Corrected(_Programs):
    """How far the corrected direction may go."""

    affine: Array
    direction: Array
    target: Array

    def steps(self, block: Block, state: State) -> Iterator[tuple[int, Codes, RowPrograms, RowAffine]]:
        """Yield active tiles with their affine steps."""
        for k, _, owner, rows in self.tiles(block, state):
            assert rows is not None
            yield k, owner, rows, rows.affine(self.affine[owner])

    def __call__(self, block: Block, state: State) -> Any:
        longest = np.ones(len(block.contexts))
        for _, owner, rows, affine in self.steps(block, state):
            np.minimum.at(longest, owner, rows.longest(self.direction[owner], self.target[owner], affine))
        return Answer(block.contexts, least_of_each=(longest,))


@dataclass(frozen=True)
class _Move(_Corrected):
    """A step of the corrected direction; then sums."""

    length: Array

    def __call__(self, block: Block, state: State) -> tuple[State, Answer]:
        kept = list(state)
        for k, owner, rows, affine in self.steps(block, state):
            moved = rows.moved(self.direction[owner], self.target[owner], affine, self.length[owner])
            kept[k] = (moved.v, moved.over, moved.under)
        there = _Programs(self.theta + self.length[:, None] * self.direction, self.active)
        return kept, _sums(there, block, kept)


@dataclass(frozen=True)
class _Slopes(_Programs):
    """The slopes that the dual variables are, after some moves."""

    moves: tuple[Array, ...] = ()

    def __call__(self, block: Block, state: State) -> Answer:
        n, size = self.theta.shape
        out = [np.zeros((n, size)), np.zeros(n), np.zeros(n)]
        if not self.moves:
            out.append(np.zeros((n, size, size)))
        for _, batch, owner, rows in self.tiles(block, state):
            assert rows is not None
            slopes = RowSlopes.inside(batch, rows.v, rows.bend, np.ones_like(rows.v))
            for move in self.moves:
                slopes = slopes.moved(move[owner])
            parts = [slopes.pull, slopes.size, slopes.value]
            if not self.moves:
                parts.append(slopes.gram)
            for whole, part in zip(out, parts, strict=True):
                np.add.at(whole, owner, part)
        return Answer(block.contexts, of_each=tuple(out))


@dataclass(frozen=True, eq=False)
class BlockPrograms:
    """The programs of all contexts; those that are no longer active rest.

    What is asked for, such as ``theta`` and ``value``, is of the active ones. ``first`` are the risks of the start.
    """

    oracle: SummedOracle
    all_theta: Array
    active: NDArray[np.bool_]
    states: Any
    answer: Answer
    first: Array = field(default_factory=lambda: np.zeros(0))

    @classmethod
    def start(cls, oracle: SummedOracle) -> BlockPrograms:
        """Begin at the least-squares fits to the hinges, or at a constant where that is better."""
        assert isinstance(oracle.rows, BlockRows)
        blocks, n = oracle.rows.blocks, oracle.n_contexts
        gram, right = blocks.ask(_LeastSquares(oracle.n_parameters)).of_each
        fit = solve_stack(gram + np.diag(oracle.alpha * oracle.penalised), right)
        constant = np.tile(oracle.start(), (n, 1))
        value, other, away, other_away = blocks.ask(_Compare(fit, constant)).of_each
        ridge, other_ridge = (_ridge(oracle, theta) for theta in (fit, constant))
        better = value + ridge <= other + other_ridge
        theta = np.where(better[:, None], fit, constant)
        active = np.ones(n, dtype=bool)
        states, answer = blocks.advance(_Begin(theta, active, np.where(better, away, other_away)))
        return cls(oracle, theta, active, states, answer, other + other_ridge)

    @property
    def _blocks(self) -> Any:
        return self.oracle.rows.blocks  # type: ignore[attr-defined]

    @property
    def _where(self) -> dict[str, Any]:
        return {"theta": self.all_theta, "active": self.active}

    def _all(self, values: Array) -> Array:
        """Return values of the active programs among zeros."""
        out = np.zeros((len(self.active), *values.shape[1:]))
        out[self.active] = values
        return out

    @property
    def theta(self) -> Array:
        return self.all_theta[self.active]

    @cached_property
    def value(self) -> Array:
        return (self.answer.of_each[0] + _ridge(self.oracle, self.all_theta))[self.active]

    @property
    def above(self) -> Array:
        return self.answer.of_each[1][self.active]

    @property
    def mu(self) -> Array:
        return self.answer.of_each[2][self.active]

    @property
    def residual(self) -> Array:
        return self.answer.of_each[3][self.active] + self.oracle.alpha * self.theta * self.oracle.penalised

    @property
    def lift(self) -> Array:
        return self.answer.of_each[4][self.active]

    @cached_property
    def hessian(self) -> Array:
        return self.answer.of_each[5][self.active] + np.diag(self.oracle.alpha * self.oracle.penalised)

    def affine(self, theta: Array) -> BlockAffine:
        direction = self._all(theta)
        return BlockAffine(self, direction, self._blocks.ask(_Affine(**self._where, direction=direction), self.states))

    def longest(self, theta: Array, target: Array, affine: BlockAffine) -> Array:
        question = _Corrected(
            **self._where, affine=affine.direction, direction=self._all(theta), target=self._all(target)
        )
        return self._blocks.ask(question, self.states).least_of_each[0][self.active]

    def moved(self, theta: Array, target: Array, affine: BlockAffine, length: Array) -> BlockPrograms:
        direction, far = self._all(theta), self._all(length)
        question = _Move(
            **self._where, affine=affine.direction, direction=direction, target=self._all(target), length=far
        )
        states, answer = self._blocks.advance(question, self.states)
        there = self.all_theta + far[:, None] * direction
        return BlockPrograms(self.oracle, there, self.active, states, answer, self.first)

    def bounds(self, ready: NDArray[np.bool_]) -> Array:
        chosen = self.active.copy()
        chosen[self.active] = ready
        slopes = BlockSlopes(self._blocks, _Slopes(self.all_theta, chosen), self.states, each=True)
        bounds = balanced_bounds(slopes, slopes.gram, Ridge.of(self.oracle, self.all_theta))
        return np.maximum(bounds, self.oracle.lowest_risks)[chosen]

    def subset(self, keep: NDArray[np.bool_]) -> BlockPrograms:
        active = self.active.copy()
        active[self.active] = keep
        return replace(self, active=active)


@dataclass(frozen=True, eq=False)
class BlockAffine:
    """The affine step of rows in blocks."""

    programs: BlockPrograms
    direction: Array
    answer: Answer

    @property
    def _active(self) -> NDArray[np.bool_]:
        return self.programs.active

    @property
    def longest(self) -> Array:
        return self.answer.least_of_each[0][self._active]

    @property
    def response(self) -> Array:
        return self.answer.of_each[2][self._active]

    def mu_after(self, length: Array) -> Array:
        first, second = (part[self._active] for part in self.answer.of_each[:2])
        return self.programs.mu + length * (first + length * second)


def _ridge(oracle: SummedOracle, theta: Array) -> Array:
    return 0.5 * oracle.alpha * np.sum((theta * oracle.penalised) ** 2, axis=1)
