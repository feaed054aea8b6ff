r"""Hinged losses, row by row in the dual, as an interior-point method wants them.

The saddle problem :math:`\min_\theta \max_p \sum_c p_c R_c(\theta)` becomes, with one dual variable
:math:`v_i = p_c u_i` per row (:math:`u_i` a slope between the loss's left and right ones),

.. math:: \max_{p, v} \; \sum_c \sum_{i \in c} w_i \Bigl(p_c\,\text{height}_i
    + v_i (x_i^\top\theta - \text{hinge}_i) - \text{softness}\,\frac{v_i^2}{2 p_c}\Bigr),
    \qquad \text{left}_i\, p_c \le v_i \le \text{right}_i\, p_c,

which is concave in (p, v). The multipliers ``above`` and ``below`` of the two inequalities are how far a prediction
lies beyond the stretch where the slope turns. Each row is held by three springs, towards the right slope, the left one
and, where the loss is soft, its own; rows are eliminated one by one, and what is left has the size of theta and of the
contexts. The minimum of one context's own risk is the same problem with its probability fixed at one.

A row's variables stay where the row is: they are the state of its block. What a step asks of the rows is linear or
quadratic in what is chosen afterwards (a target, a length), so three passes serve a step: one to move and to linearise,
one for the affine direction, one for the corrected one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np

from counterpoise.rows._base import Array, Codes, Mask
from counterpoise.rows.block_rows import SlopesAnswer
from counterpoise.rows.blocks import SHARED, Answer, Block, of_contexts, of_problems
from counterpoise.rows.layouts import Layout
from counterpoise.rows.memory import MemoryPart
from counterpoise.rows.slopes import RowSlopes

_TINY = float(np.finfo(np.float64).tiny)

_HAIR = 1e-150
"""What a slope keeps from its ends where rounding puts it on one, as a share of the interval: springs stay finite."""


@dataclass(frozen=True, eq=False)
class RowStep:
    """A direction in the rows' variables; ``low`` and ``high`` are the distances to the two ends."""

    v: Array
    above: Array
    below: Array
    low: Array
    high: Array


@dataclass(frozen=True, eq=False)
class RowModel:
    """Rows with their dual variables, eliminated: what they contribute to the system in theta and p.

    Attributes
    ----------
    part : MemoryPart
        The rows.
    own : Layout
        The groups of rows that have a theta: all rows together, or every context by itself.
    theta : ndarray of shape (n_problems, n_parameters)
    v, above, below : ndarray of shape (n,)
    p : ndarray of shape (n_contexts,)
        Probabilities of the contexts. They are the weights of the central path too: along it slopes, which are the
        dual variables without them, come to their ends in all contexts alike.
    """

    part: MemoryPart
    own: Layout
    theta: Array
    v: Array
    above: Array
    below: Array
    p: Array
    _steps: dict[Any, RowStep] = field(default_factory=dict, init=False, repr=False)

    @classmethod
    def start(cls, part: MemoryPart, own: Layout, theta: Array, margin: Array, p: Array) -> RowModel:
        """Put every variable well inside its bounds, by a margin for each problem."""
        hinge, _, left, right = part.loss.pieces(part.target)
        beyond, room = own.product(theta)[:, 0] - hinge, own.each(margin)
        xp = part.xp
        above, below = xp.maximum(beyond, 0.0) + room, xp.maximum(-beyond, 0.0) + room
        return cls(part, own, theta, 0.5 * (left + right) * part.layout.each(p), above, below, p)

    @cached_property
    def _pieces(self) -> tuple[Array, Array, Array, Array]:
        return self.part.loss.pieces(self.part.target)

    @cached_property
    def _share(self) -> Array:
        return self.part.layout.each(self.p)

    @cached_property
    def predictions(self) -> Array:
        """The prediction of each row."""
        return self.own.product(self.theta)[:, 0]

    @cached_property
    def _high(self) -> Array:
        """Distance of v to its upper end."""
        _, _, left, right = self._pieces
        return self.part.xp.maximum(right * self._share - self.v, _HAIR * (right - left))

    @cached_property
    def _low(self) -> Array:
        """Distance of v to its lower end."""
        _, _, left, right = self._pieces
        return self.part.xp.maximum(self.v - left * self._share, _HAIR * (right - left))

    @cached_property
    def _slope(self) -> Array:
        """The slope of each row, ``v`` without its probability."""
        return self.v / self._share

    @cached_property
    def _off(self) -> Array:
        """How far each row is from stationary in its slope."""
        beyond = self.predictions - self._pieces[0]
        return beyond - self.part.loss.softness * self._slope - self.above + self.below

    @cached_property
    def _springs(self) -> tuple[Array, Array, Array]:
        """Towards the right slope, the left slope and, of a soft loss, the present one."""
        return self.above / self._high, self.below / self._low, self.part.loss.softness / self._share

    @cached_property
    def _bend(self) -> Array:
        up, down, own = self._springs
        return 1.0 / (up + down + own)

    @cached_property
    def _tilt(self) -> Array:
        """How v follows p: the mean of the slopes, weighted by their springs."""
        _, _, left, right = self._pieces
        up, down, own = self._springs
        return (up * right + down * left + own * self._slope) * self._bend

    def _of_contexts(self, rows: Array) -> Array:
        return self.part.layout.total(self.part.weight * rows)

    def _of_problems(self, rows: Array) -> Array:
        return self.own.total(self.part.weight * rows)

    def _gather(self, rows: Array) -> Array:
        return self.own.gather((self.part.weight * rows)[:, None])

    # --- the first-order model ---------------------------------------------------------------------------------------

    @property
    def values(self) -> Array:
        """The mean loss of each context."""
        return self._of_contexts(self.part.losses(self.predictions))

    @property
    def risks(self) -> Array:
        """The mean losses as the dual variables see them."""
        _, height, left, right = self._pieces
        bowl = 0.5 * self.part.loss.softness * self._slope**2
        return self._of_contexts(height + right * self.above - left * self.below + bowl)

    @property
    def gradient(self) -> Array:
        """The residual of stationarity in theta."""
        return self._gather(self.v)

    @property
    def jacobian(self) -> Array:
        """How the risks respond to theta."""
        return self.part.layout.gather((self.part.weight * self._tilt)[:, None])

    @property
    def curvature(self) -> Array:
        """The Hessian the rows leave behind."""
        return self.own.graded_gram(self.part.weight * self._bend)

    @property
    def stiffness(self) -> Array:
        """What the rows add to the resistance of p."""
        _, _, left, right = self._pieces
        up, down, own = self._springs
        spread = up * (right - self._tilt) ** 2 + down * (left - self._tilt) ** 2
        return self._of_contexts(spread + own * (self._slope - self._tilt) ** 2)

    def _response(self, up: Array, down: Array, off: Array | float) -> tuple[Array, Array]:
        """Return what residuals of the rows' conditions, products and slope, add to those of theta and p."""
        _, _, left, right = self._pieces
        off = off - up / self._high + down / self._low
        return self._gather(self._bend * off), self._of_contexts(
            right * up / self._high - left * down / self._low + self._tilt * off
        )

    @cached_property
    def shifts(self) -> tuple[Array, Array]:
        """What the rows' own residuals add to stationarity in theta and in p, without a target."""
        return self._response(-self._high * self.above, -self._low * self.below, self._off)

    @cached_property
    def lifts(self) -> tuple[Array, Array]:
        """What a target of 1 adds to them."""
        return self._response(self._share, self._share, 0.0)

    @property
    def complementarity(self) -> Array:
        """The mean product of a variable and its price."""
        return 0.5 * self._of_problems(self._high * self.above + self._low * self.below)

    def residual(self, around: float) -> Array:
        """Return the squared residual of the rows' own conditions, as a polynomial in ``target - around``."""
        share = self._share
        up, down = around * share - self._high * self.above, around * share - self._low * self.below
        parts = ((up**2 + down**2) / share + share * self._off**2, 2.0 * (up + down), 2.0 * share)
        return np.stack([self._of_problems(part) for part in parts], axis=1)

    @property
    def lagging(self) -> Array:
        """The smallest product of a row over its target at ``mu = 1``."""
        share = self._share
        least = self.part.xp.minimum(self._high * self.above, self._low * self.below) / share
        return self.own.least(self.part.xp.where(self.part.weight > 0, least, np.inf))

    # --- steps -------------------------------------------------------------------------------------------------------

    def expand(self, theta: Array, p: Array, mu: Array, affine: RowStep | None) -> RowStep:
        """Return the rows' part of a direction, for a target of each problem, corrected by the affine step."""
        # Each pass of a step begins with the directions of those before it.
        key = (theta.tobytes(), p.tobytes(), mu.tobytes(), affine is None)
        if key not in self._steps:
            self._steps[key] = self._expand(theta, p, mu, affine)
        return self._steps[key]

    def _expand(self, theta: Array, p: Array, mu: Array, affine: RowStep | None) -> RowStep:
        _, _, left, right = self._pieces
        target = self.own.each(mu) * self._share
        up, down = target - self._high * self.above, target - self._low * self.below
        if affine is not None:
            up, down = up - affine.high * affine.above, down - affine.low * affine.below
        off = self._off - up / self._high + down / self._low
        d_p = self.part.layout.each(p)
        v = self._bend * (self.own.product(theta)[:, 0] + off) + self._tilt * d_p
        high, low = right * d_p - v, v - left * d_p
        above, below = (up - self.above * high) / self._high, (down - self.below * low) / self._low
        return RowStep(v, above, below, low, high)

    def longest(self, step: RowStep) -> Array:
        """Return, for each problem, the longest step that keeps every variable positive."""
        xp, longest = self.part.xp, self.part.xp.where(self.part.weight > 0, np.inf, np.inf)
        pairs = ((self.above, step.above), (self.below, step.below), (self._low, step.low), (self._high, step.high))
        for value, change in pairs:
            # Rows that only fill up a group have no weight and no say.
            shrinks = (change < 0) & (self.part.weight > 0)
            room = xp.where(shrinks, -value / xp.where(shrinks, change, -1.0), np.inf)
            longest = xp.minimum(longest, room)
        return self.own.least(longest)

    def products(self, step: RowStep) -> Array:
        """Return what a step adds to the mean product: times its length, and times the length squared."""
        first = self._high * step.above + step.high * self.above + self._low * step.below + step.low * self.below
        second = step.high * step.above + step.low * step.below
        return 0.5 * np.stack([self._of_problems(first), self._of_problems(second)], axis=1)

    def correction(self, affine: RowStep) -> tuple[Array, Array]:
        """Return what the second order of an affine step adds to the shifts."""
        return self._response(-affine.high * affine.above, -affine.low * affine.below, 0.0)

    def moved(self, theta: Array, length: Array, step: RowStep, p: Array) -> RowModel:
        """Return the rows a step away, each problem by a length of its own."""
        far = self.own.each(length)
        v, above, below = self.v + far * step.v, self.above + far * step.above, self.below + far * step.below
        return replace(self, theta=theta, v=v, above=above, below=below, p=p)

    # --- bounds ------------------------------------------------------------------------------------------------------

    def slopes(self) -> RowSlopes:
        """Return the slopes that the dual variables are, for a bound."""
        high, low = self._pieces[3] * self._share - self.v, self.v - self._pieces[2] * self._share
        xp = self.part.xp
        high, low = xp.maximum(high, 0.0), xp.maximum(low, 0.0)
        # The springs in series, written so that a row at either end does not move.
        soft = self.part.loss.softness * high * low / self._share
        bend = high * low / (self.above * low + self.below * high + soft + _TINY)
        return RowSlopes.inside(self.part, self.own, self.part.weight, self.predictions, self.v, bend, self._share)


# --- questions to blocks ---------------------------------------------------------------------------------------------

State = list[Any]
"""What a block remembers: for each of its tiles the dual variables of the rows, or where rows stay, their model."""


@dataclass(frozen=True, eq=False)
class ModelAnswer(Answer):
    """The first-order model of some rows; what is about p only where all contexts share a theta."""

    values: Array = of_contexts()
    gradient: Array = of_problems()
    curvature: Array = of_problems()
    theta_shift: Array = of_problems()
    theta_lift: Array = of_problems()
    complementarity: Array = of_problems()
    risks: Array = of_contexts()
    jacobian: Array = of_contexts()
    stiffness: Array = of_contexts()
    p_shift: Array = of_contexts()
    p_lift: Array = of_contexts()
    residual: Array = of_problems()
    lagging: Array = of_problems(np.minimum)


@dataclass(frozen=True, eq=False)
class StepAnswer(Answer):
    """What a direction does: how far it may go, to the mean product, and by its second order."""

    longest: Array = of_problems(np.minimum)
    products: Array = of_problems()
    theta: Array = of_problems()
    p: Array = of_contexts()


def _by(what: str) -> Any:
    """Declare an array with an entry per context, or per problem where every context is one."""
    return field(default=None, metadata={"by": what})


@dataclass(frozen=True)
class Place:
    """Where rows are; what all questions about them have in common.

    Attributes
    ----------
    theta : ndarray of shape (1, n_parameters), or (n_contexts, n_parameters)
        One for all contexts, or one for each.
    p : ndarray of shape (n_contexts,)
    each : bool
        Whether every context has a theta of its own; then those that are not active rest.
    active : ndarray of bool of shape (n_contexts,)
    around : float
        The mean product about which residuals are expanded.
    """

    theta: Array = _by("problems")
    p: Array = _by("contexts")
    each: bool = False
    active: Mask = _by("problems")
    around: float = 0.0

    answers: ClassVar[Any] = ModelAnswer

    def about(self, contexts: Codes) -> Self:
        """Return the question to a block with these contexts."""
        sliced: dict[str, Any] = {}
        for one in fields(self):
            value = getattr(self, one.name)
            if value is None or not (one.metadata.get("by") == "contexts" or (one.metadata and self.each)):
                continue
            sliced[one.name] = tuple(part[contexts] for part in value) if isinstance(value, tuple) else value[contexts]
        return replace(self, **sliced)

    def tiles(self, block: Block, state: State | None) -> Iterator[tuple[int, RowModel | None, MemoryPart, Any, Codes]]:
        """Yield the rows of a block in pieces, with their models, and the problems that they belong to."""
        if not self.each:
            whole = block.rows.whole
            model = None if state is None else self._model(whole, whole.pooled, state[0], slice(None), slice(None))
            yield 0, model, whole, whole.pooled, SHARED
            return
        for k, (part, owner) in enumerate(block.tiles()):
            if self.active[owner].any():
                model = None if state is None else self._model(part, part.layout, state[k], owner, owner)
                yield k, model, part, part.layout, owner

    def _model(self, part: MemoryPart, own: Layout, kept: Any, problems: Any, contexts: Any) -> RowModel:
        if isinstance(kept, RowModel):
            return kept
        v, above, below = kept
        return RowModel(part, own, self.theta[problems], v, above, below, self.p[contexts])

    def model_answer(self, block: Block, models: list[tuple[RowModel, Codes]]) -> ModelAnswer:
        """Return all that is asked of a first-order model before a direction is chosen."""
        if not self.each:
            model = models[0][0]
            names = ("values", "gradient", "curvature", "complementarity", "risks", "jacobian", "stiffness", "lagging")
            found = {name: getattr(model, name) for name in names}
            found["curvature"] = np.asarray(found["curvature"])
            (found["theta_shift"], found["p_shift"]), (found["theta_lift"], found["p_lift"]) = model.shifts, model.lifts
            return ModelAnswer(block.contexts, SHARED, residual=model.residual(self.around), **found)
        if block.part is not None:
            # One tile has all contexts, in order.
            model = models[0][0]
            found = {name: getattr(model, name) for name in ("values", "gradient", "curvature", "complementarity")}
            shifts, lifts = model.shifts[0], model.lifts[0]
            return ModelAnswer(block.contexts, block.contexts, theta_shift=shifts, theta_lift=lifts, **found)
        n, size = self.theta.shape
        out = {"values": np.zeros(n), "complementarity": np.zeros(n), "curvature": np.zeros((n, size, size))}
        out |= {name: np.zeros((n, size)) for name in ("gradient", "theta_shift", "theta_lift")}
        for model, owner in models:
            for name in ("values", "complementarity", "curvature", "gradient"):
                # A context may own several tiles.
                np.add.at(out[name], owner, getattr(model, name))
            np.add.at(out["theta_shift"], owner, model.shifts[0])
            np.add.at(out["theta_lift"], owner, model.lifts[0])
        return ModelAnswer(block.contexts, block.contexts, **out)

    def kept(self, block: Block, model: RowModel) -> Any:
        """Return what is remembered of rows."""
        return model if block.part is not None else (model.v, model.above, model.below)


@dataclass(frozen=True)
class Begin(Place):
    """Every variable well inside its bounds; then the first-order model."""

    margin: Array = _by("problems")

    def __call__(self, block: Block, state: Any) -> tuple[State, ModelAnswer]:
        models = []
        for _, _, part, own, owner in self.tiles(block, None):
            problems, contexts = (owner, owner) if self.each else (slice(None), slice(None))
            theta, margin = self.theta[problems], self.margin[problems]
            models.append((RowModel.start(part, own, theta, margin, self.p[contexts]), owner))
        return [self.kept(block, model) for model, _ in models], self.model_answer(block, models)


@dataclass(frozen=True)
class Here(Place):
    """The first-order model where the rows are, under another distribution perhaps."""

    def __call__(self, block: Block, state: State) -> tuple[State, ModelAnswer]:
        kept, models = list(state), []
        for k, model, _, _, owner in self.tiles(block, state):
            assert model is not None
            models.append((replace(model, p=self.p), owner))
            kept[k] = self.kept(block, models[-1][0])
        return kept, self.model_answer(block, models)


@dataclass(frozen=True)
class Direction(Place):
    """What a direction does.

    Attributes
    ----------
    d_theta, d_p, mu : ndarray
        The direction, and the target of each problem.
    affine_theta, affine_p : ndarray, optional
        The changes of theta and p in the affine direction, by whose second order this one is corrected.
    """

    d_theta: Array = _by("problems")
    d_p: Array = _by("contexts")
    mu: Array = _by("problems")
    affine_theta: Array | None = _by("problems")
    affine_p: Array | None = _by("contexts")

    answers: ClassVar[Any] = StepAnswer

    def step(self, model: RowModel, owner: Codes) -> RowStep:
        """Return the rows' part of the direction."""
        at, of = (owner, owner) if self.each else (slice(None), slice(None))
        affine = None
        if self.affine_theta is not None and self.affine_p is not None:
            affine = model.expand(self.affine_theta[at], self.affine_p[of], np.zeros_like(self.mu[at]), None)
        return model.expand(self.d_theta[at], self.d_p[of], self.mu[at], affine)

    def __call__(self, block: Block, state: State) -> Any:
        n, size = self.theta.shape
        longest, products, theta = np.full(n, np.inf), np.zeros((n, 2)), np.zeros((n, size))
        p: Any = None
        for _, model, _, _, owner in self.tiles(block, state):
            assert model is not None
            step = self.step(model, owner)
            np.minimum.at(longest, owner, model.longest(step))
            np.add.at(products, owner, model.products(step))
            if self.affine_theta is None:
                shift, own = model.correction(step)
                np.add.at(theta, owner, shift)
                p = None if self.each else own
        problems = block.contexts if self.each else SHARED
        return StepAnswer(block.contexts, problems, longest, products, theta, p)


@dataclass(frozen=True)
class Move(Direction):
    """A step in a direction, and the first-order model there."""

    length: Array = _by("problems")
    new_theta: Array = _by("problems")
    new_p: Array = _by("contexts")

    answers: ClassVar[Any] = ModelAnswer

    def __call__(self, block: Block, state: State) -> Any:
        kept, models = list(state), []
        for k, model, _, _, owner in self.tiles(block, state):
            assert model is not None
            at, of = (owner, owner) if self.each else (slice(None), slice(None))
            step = self.step(model, owner)
            models.append((model.moved(self.new_theta[at], self.length[at], step, self.new_p[of]), owner))
            kept[k] = self.kept(block, models[-1][0])
        return kept, self.model_answer(block, models)


@dataclass(frozen=True)
class DualSlopes(Place):
    """The slopes that the dual variables are, after some moves."""

    moves: tuple[Array, ...] = field(default=(), metadata={"by": "problems"})

    answers: ClassVar[Any] = SlopesAnswer

    def __call__(self, block: Block, state: State) -> SlopesAnswer:
        if not self.each:
            model = next(self.tiles(block, state))[1]
            assert model is not None
            return SlopesAnswer.after(block.contexts, replace(model, p=self.p).slopes(), self.moves)
        if block.part is not None:
            model = next(self.tiles(block, state))[1]
            assert model is not None
            return SlopesAnswer.after(block.contexts, model.slopes(), self.moves, block.contexts)
        n, size = self.theta.shape
        out = {"pull": np.zeros((n, size)), "size": np.zeros(n), "value": np.zeros(n)}
        if not self.moves:
            out["gram"] = np.zeros((n, size, size))
        for _, model, _, _, owner in self.tiles(block, state):
            assert model is not None
            slopes = model.slopes()
            for move in self.moves:
                slopes = slopes.moved(move[owner])
            for name, whole in out.items():
                np.add.at(whole, owner, getattr(slopes, name))
        return SlopesAnswer(block.contexts, block.contexts, **out)


@dataclass(frozen=True, eq=False)
class FitAnswer(Answer):
    """Normal equations of a least-squares fit, and distances to the hinges."""

    gram: Array = of_problems()
    right: Array = of_problems()
    distance: Array = of_problems()
    weight: Array = of_problems()
    values: Array = of_contexts()


@dataclass(frozen=True)
class LeastSquares(Place):
    """The normal equations of a fit to the hinges."""

    answers: ClassVar[Any] = FitAnswer

    def __call__(self, block: Block, state: Any) -> FitAnswer:
        if block.part is not None and self.each:
            part = block.part
            right = part.layout.gather((part.weight * part.loss.pieces(part.target)[0])[:, None])
            return FitAnswer(block.contexts, block.contexts, part.layout.gram(part.weight), right)
        n, size = self.theta.shape
        gram, right = np.zeros((n, size, size)), np.zeros((n, size))
        for _, _, part, own, owner in self.tiles(block, None):
            np.add.at(gram, owner, np.asarray(own.gram(part.weight)))
            np.add.at(right, owner, own.gather((part.weight * part.loss.pieces(part.target)[0])[:, None]))
        return FitAnswer(block.contexts, block.contexts if self.each else SHARED, gram, right)


@dataclass(frozen=True)
class Distance(Place):
    """The mean loss of every context, and how far predictions are from their hinges."""

    answers: ClassVar[Any] = FitAnswer

    def __call__(self, block: Block, state: Any) -> FitAnswer:
        n = len(self.theta)
        distance, weight, values = np.zeros(n), np.zeros(n), np.zeros(len(block.contexts))
        for _, _, part, own, owner in self.tiles(block, None):
            z = own.product(self.theta[owner])[:, 0]
            away = part.xp.abs(z - part.loss.pieces(part.target)[0])
            np.add.at(distance, owner, own.total(part.weight * away))
            np.add.at(weight, owner, own.total(part.weight))
            losses = part.layout.total(part.weight * part.losses(z))
            np.add.at(values, owner if self.each else np.arange(len(values)), losses)
        problems = block.contexts if self.each else SHARED
        return FitAnswer(block.contexts, problems, distance=distance, weight=weight, values=values)
