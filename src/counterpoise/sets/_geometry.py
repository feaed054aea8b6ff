"""How a set looks to an interior-point solver: coordinates, linear conditions on them, and smooth inequalities."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Indices = NDArray[np.intp]
Mask = NDArray[np.bool_]

_NONE: Indices = np.zeros(0, dtype=np.intp)


@dataclass(frozen=True, eq=False)
class Constraints:
    r"""Smooth convex inequalities :math:`g_k(x) \le 0` at one place, or at a batch of them.

    Together with the set's :class:`Geometry` they describe it to an interior-point solver. Every Hessian is diagonal.
    What grows without bound as a coordinate vanishes is kept apart, because a solver multiplies it by that coordinate:
    with :math:`q` regular and :math:`\kappa` the poles,

    .. math:: \nabla g_k = q_k - \kappa_k / x, \qquad \nabla^2 g_k = \operatorname{diag}(q_k' + \kappa_k / x^2) .

    Attributes
    ----------
    x : ndarray of shape (..., n_coordinates)
        The coordinates, of which the probabilities are the first; mostly they are all.
    values : ndarray of shape (..., n_constraints)
    regular, curvature, poles : ndarray of shape (..., n_constraints, n_coordinates)
        :math:`q`, its derivative :math:`q'` and :math:`\kappa`, none of the latter two negative.
    """

    x: Array
    values: Array
    regular: Array
    curvature: Array
    poles: Array

    @classmethod
    def none(cls, x: Array) -> Constraints:
        """Return no inequality at all: a set that is the simplex, a point of it, or bounded by its geometry alone."""
        empty = np.zeros((*x.shape[:-1], 0, x.shape[-1]))
        return cls(x, np.zeros((*x.shape[:-1], 0)), empty, empty, empty)

    @cached_property
    def gradients(self) -> Array:
        """The gradients, of the same shape as the regular part."""
        # Where there is no pole a probability may be 0.
        out = np.zeros_like(self.regular)
        np.divide(self.poles, self.x[..., None, :], out=out, where=self.poles > 0.0)
        return self.regular - out


@dataclass(frozen=True, eq=False)
class Geometry:
    r"""The coordinates of a set and what is linear about it.

    Coordinates :math:`x \ge 0` are the probabilities, followed by auxiliary ones where a set is the shadow of a simpler
    one. They satisfy equalities :math:`E x = e`, of which the first is ``sum p = 1``, and keep their distances to
    bounds and links positive:

    .. math:: x_c - l_c, \qquad u_c - x_c, \qquad o_k + x_{j_k} - x_{i_k} .

    A link ties a probability :math:`i_k` to an auxiliary coordinate :math:`j_k`, which belongs to no other.

    Attributes
    ----------
    n_contexts : int
    equalities : ndarray of shape (n_equalities, n_coordinates)
        Linearly independent.
    totals : ndarray of shape (n_equalities,)
    floors, ceilings : ndarray of int
        Coordinates that are bounded below (beyond 0) and above.
    low, high : ndarray
        Those bounds.
    owners, helpers : ndarray of int
        The probabilities and auxiliary coordinates of the links.
    offsets : ndarray
    """

    n_contexts: int
    equalities: Array
    totals: Array
    floors: Indices = field(default_factory=_NONE.copy)
    low: Array = field(default_factory=lambda: np.zeros(0))
    ceilings: Indices = field(default_factory=_NONE.copy)
    high: Array = field(default_factory=lambda: np.zeros(0))
    owners: Indices = field(default_factory=_NONE.copy)
    helpers: Indices = field(default_factory=_NONE.copy)
    offsets: Array = field(default_factory=lambda: np.zeros(0))

    @classmethod
    def simplex(cls, n_contexts: int) -> Geometry:
        """Return the geometry of the simplex, which every set has that states nothing else."""
        return cls(n_contexts, np.ones((1, n_contexts)), np.ones(1))

    @property
    def size(self) -> int:
        """How many coordinates there are."""
        return self.equalities.shape[1]

    @cached_property
    def is_plain(self) -> bool:
        """Whether this is the simplex: no bounds, no links, no auxiliary coordinates."""
        return self.equalities.shape == (1, self.n_contexts) and self.n_rooms == 0

    @property
    def n_rooms(self) -> int:
        """How many distances are kept positive."""
        return len(self.floors) + len(self.ceilings) + len(self.owners)

    def rooms(self, x: Array) -> Array:
        """Return the distances to bounds and links."""
        links = self.offsets + x[..., self.helpers] - x[..., self.owners]
        return np.concatenate([x[..., self.floors] - self.low, self.high - x[..., self.ceilings], links], axis=-1)

    def rates(self, step: Array) -> Array:
        """Return how the distances change along a step."""
        links = step[..., self.helpers] - step[..., self.owners]
        return np.concatenate([step[..., self.floors], -step[..., self.ceilings], links], axis=-1)

    def forces(self, prices: Array) -> Array:
        """Return the gradient of ``prices @ rooms(x)``."""
        out = np.zeros((*prices.shape[:-1], self.size))
        low, high, links = np.split(prices, [len(self.floors), len(self.floors) + len(self.ceilings)], axis=-1)
        out[..., self.floors] += low
        out[..., self.ceilings] -= high
        if len(self.owners):
            out[..., self.helpers] += links
            # Several links may share a probability.
            np.subtract.at(out, (..., self.owners), links)  # type: ignore[arg-type]
        return out

    def stiffness(self, diagonal: Array, weights: Array) -> Stiffness:
        """Return ``diag(diagonal) + R' diag(weights) R``, where ``R`` maps a step to the rates of the distances."""
        diagonal = diagonal.copy()
        low, high, links = np.split(weights, [len(self.floors), len(self.floors) + len(self.ceilings)], axis=-1)
        diagonal[..., self.floors] += low
        diagonal[..., self.ceilings] += high
        return Stiffness(diagonal, self.owners, self.helpers, links)

    def weights(self, masses: Array) -> tuple[Array, Array]:
        """Return how the central path weighs coordinates and distances: probabilities by their masses."""
        extra = self.size - self.n_contexts
        x = np.concatenate([masses, np.full(extra, 1.0 / max(extra, 1))])
        rooms = np.concatenate([x[self.floors], x[self.ceilings], x[self.helpers]])
        return x, rooms


@dataclass(frozen=True, eq=False)
class Stiffness:
    """A matrix that is diagonal but for the links, each of which ties a probability to a coordinate of its own.

    It is factored as ``L D L'``, with the auxiliary coordinates eliminated first.
    """

    diagonal: Array
    owners: Indices
    helpers: Indices
    links: Array

    @cached_property
    def _pivots(self) -> Array:
        """The diagonal of D."""
        d, h = self.diagonal.copy(), self.links
        if len(self.owners):
            own = d[..., self.helpers]
            d[..., self.helpers] = own + h
            np.add.at(d, (..., self.owners), h * (own / (own + h)))  # type: ignore[arg-type]
        return d

    @cached_property
    def _shares(self) -> Array:
        """How much of an auxiliary coordinate's side goes to its owner."""
        return self.links / self._pivots[..., self.helpers]

    def reduced(self, rows: Array) -> Array:
        """Return ``L^-1 rows`` for sides of shape (..., n_coordinates, n_sides)."""
        if len(self.owners) == 0:
            return rows
        rows = rows.copy()
        moved = self._shares[..., None] * rows[..., self.helpers, :]
        np.add.at(rows, (..., self.owners, slice(None)), moved)  # type: ignore[arg-type]
        return rows

    def whitened(self, rows: Array) -> Array:
        """Return ``D^-1/2 L^-1 rows``, whose inner products are those of the inverse matrix."""
        return self.reduced(rows) / np.sqrt(self._pivots)[..., None]

    def solve(self, side: Array) -> Array:
        """Return the inverse times a side of shape (..., n_coordinates)."""
        x = self.reduced(side[..., None])[..., 0] / self._pivots
        if len(self.owners):
            x[..., self.helpers] += self._shares * x[..., self.owners]
        return x

    def apply(self, x: Array) -> Array:
        """Return the matrix times a vector of shape (..., n_coordinates)."""
        out = self.diagonal * x
        if len(self.owners):
            pull = self.links * (x[..., self.owners] - x[..., self.helpers])
            np.add.at(out, (..., self.owners), pull)  # type: ignore[arg-type]
            out[..., self.helpers] -= pull
        return out

    def matrix(self) -> Array:
        """Return the matrix itself."""
        out = np.diag(self.diagonal)
        for owner, helper, h in zip(self.owners, self.helpers, self.links, strict=True):
            out[owner, owner] += h
            out[helper, helper] += h
            out[owner, helper] -= h
            out[helper, owner] -= h
        return out
