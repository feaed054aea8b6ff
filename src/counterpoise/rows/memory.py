"""Rows in memory, dense or sparse, grouped by context."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, ClassVar

import numpy as np
from scipy import sparse

from counterpoise.contexts import Contexts
from counterpoise.linalg import ArrayStack, Stack, pseudo_inverse
from counterpoise.losses import Loss, Multinomial
from counterpoise.rows._base import Array, Codes, Mask
from counterpoise.rows.layouts import Coefficients, Grouped, Layout, Padded
from counterpoise.rows.products import gathered, largest_entries, some_rows, squares_product, summed
from counterpoise.rows.slopes import RowSlopes
from counterpoise.threads import parts, spread

_LARGEST_HESSIAN = 2500
"""Parameters up to which a square matrix is formed (50 MB, a second to factor)."""

_LARGEST_SPARSE_HESSIAN = 300
"""The same for sparse rows with a ridge: their products are cheap, and the ridge proves what a matrix would."""

BATCH_ENTRIES = 1 << 21
"""Entries of padded features, or of Hessians, handled at once (16 MB)."""

STRIP = 128
"""Rows of a context from which it is not padded."""

_WIDE = 64
"""Parameters from which a Hessian over all rows costs many looks at them."""

_TELLING = 24
"""Rows per parameter that tell a Hessian well enough to take steps with."""

_TELLING_BLOCKS = 60
"""Rows per column that tell the block of one class: most rows tell little of most classes."""

_LOST = 4.0
"""How many times the variance of a class its mean squared slope is where it is given up."""

_NOISY = 2000
"""Rows that tell how much their gradients vary, to a few per cent."""

_ROUGHLY = 500
"""Rows that tell the mean of their squared slopes to about five per cent."""

_AT_ONCE = 1 << 14
"""Rows of which something is worked out at once, so that it stays in the cache (128 KB)."""

_NEAR = 1e-3
"""Step of intercepts within which their curvature hardly changes."""

_FEW = 16
"""Contexts for which padding does not pay, however short."""


@dataclass(frozen=True, eq=False)
class MemoryRows:
    """Rows of all contexts, those of one context after the other.

    Attributes
    ----------
    X : ndarray or csr_array of shape (n_samples, n_features)
    target : ndarray of shape (n_samples,) or (n_samples, target_columns)
    weight : ndarray of shape (n_samples,)
        Sums to one within each context; in a block, over all blocks.
    starts : ndarray of shape (n_contexts + 1,)
        Context ``c`` holds the rows ``starts[c]:starts[c + 1]``.
    together : ndarray of shape (n_samples,), optional
        Numbers that are the same for rows which are held out together. Rows of several contexts that share one are a
        row that counts in each of them.
    """

    X: Any
    target: Array
    weight: Array
    starts: Codes
    loss: Loss
    fit_intercept: bool = True
    together: Codes | None = None

    at_hand = True
    knows_predictions = True
    computes_here = True

    @property
    def n_rows(self) -> int:
        """Rows of all contexts."""
        return len(self.target)

    @classmethod
    def of(
        cls,
        X: Any,
        target: Array,
        contexts: Contexts,
        loss: Loss,
        sample_weight: Array | None = None,
        fit_intercept: bool = True,
    ) -> MemoryRows:
        """Group rows by context; arguments have been checked by the caller."""
        order = contexts.grouping_order()
        weight = np.ones(len(target)) if sample_weight is None else sample_weight
        together = contexts.rows
        if order is not None:
            X, target, weight = gathered(X, order), target[order], weight[order]
            together = None if together is None else together[order]
        return cls(X, target, weight, contexts.starts, loss, fit_intercept, together)._normalised()

    def _normalised(self) -> MemoryRows:
        """Return the rows with weights that add up to one in each context."""
        weight, first = self.weight, self.starts[:-1]
        with np.errstate(over="ignore"):
            totals = np.add.reduceat(weight, first)
        if not np.isfinite(totals).all():
            # The largest weights are ones then, and no sum of them overflows.
            weight = weight / np.repeat(np.maximum.reduceat(weight, first), self.sizes)
            totals = np.add.reduceat(weight, first)
        return replace(self, weight=weight / np.repeat(totals, self.sizes))

    @property
    def n_contexts(self) -> int:
        """Contexts."""
        return len(self.starts) - 1

    @cached_property
    def sizes(self) -> Codes:
        """Rows of each context."""
        return np.diff(self.starts)

    @cached_property
    def coefficients(self) -> Coefficients:
        """The shape of theta."""
        return Coefficients(self.loss.n_outputs, int(self.X.shape[1]), self.fit_intercept)

    @property
    def are_short(self) -> Mask:
        """Which contexts have few rows."""
        return self.sizes < STRIP

    @property
    def owner(self) -> Codes:
        """The context of each row."""
        return np.repeat(np.arange(self.n_contexts), self.sizes)

    def forms_hessian(self, alpha: float) -> bool:
        """Tell whether a square matrix of the size of theta is affordable, and worth its price, beside a ridge."""
        cheap_products = sparse.issparse(self.X) and alpha > 0.0
        return self.coefficients.n_parameters <= (_LARGEST_SPARSE_HESSIAN if cheap_products else _LARGEST_HESSIAN)

    # --- facts -------------------------------------------------------------------------------------------------------

    @cached_property
    def reach(self) -> Array:
        """The largest absolute value of each column."""
        if sparse.issparse(self.X):
            X, columns = summed(self.X), np.zeros(self.X.shape[1])
            np.maximum.at(columns, X.indices, np.abs(X.data))
            return columns
        extremes = spread(lambda part: largest_entries(self.X[part]), parts(len(self.X), self.X.size))
        return np.max(extremes, axis=0)

    @cached_property
    def typical(self) -> float:
        """A constant prediction that makes sense, every context with the same weight."""
        return self.loss.typical(self.target, self.weight)

    @cached_property
    def lowest(self) -> Array:
        """Each context's mean lowest loss."""
        return np.add.reduceat(self.weight * self.loss.lowest(self.target), self.starts[:-1])

    def above_lowest(self, constant: float) -> float:
        """Return how far the mean loss of a constant prediction is above the lowest, on average over contexts."""
        outputs, total = self.loss.n_outputs, 0.0
        for first in range(0, len(self.target), _AT_ONCE):
            target, weight = self.target[first : first + _AT_ONCE], self.weight[first : first + _AT_ONCE]
            shape = (len(target), outputs) if outputs > 1 else len(target)
            rows, lowest = self.loss.value(target, np.full(shape, constant)), self.loss.lowest(target)
            known = np.isfinite(lowest)
            above = np.where(known, rows - lowest, np.abs(rows))
            # A perfect constant leaves nothing above the floor; rounding is then relative to the floor itself.
            size = np.maximum(np.abs(rows), np.where(known, np.abs(lowest), 0.0))
            total += float(weight @ (above + 1e-3 * size))
        return total / self.n_contexts

    def drift(self, direction: Array) -> Array:
        """Return how fast each risk of a hinged loss changes in the end along a direction."""
        _, _, left, right = self.loss.pieces(self.target)
        move = self.whole.pooled.product(direction[None])[:, 0]
        return np.add.reduceat(self.weight * np.where(move > 0, right, left) * move, self.starts[:-1])

    # --- sums --------------------------------------------------------------------------------------------------------

    @cached_property
    def _layout(self) -> Grouped:
        return Grouped(self.X, self.coefficients, self.starts[:-1], self.sizes)

    @cached_property
    def whole(self) -> MemoryPart:
        """All contexts as they lie."""
        return MemoryPart(self._layout, self.target, self.weight, self.loss, self._reach_of_theta)

    @property
    def _reach_of_theta(self) -> Callable[[], Array]:
        return lambda: self.coefficients.for_each_output(self.reach)

    def at(self, theta: Array, expecting: Array | None = None) -> MemorySums:
        """Return sums at one theta, or at one for each context."""
        sums, shape = self.whole.at(theta), self.coefficients
        matrix = theta.reshape(-1, shape.width)
        if theta.ndim == 1 and not matrix[:, : shape.n_features].any():
            # A constant prediction, where references begin, does not need the features.
            constant = matrix[:, -1] if shape.fit_intercept else np.zeros(shape.n_outputs)
            each = np.broadcast_to(constant, (len(self.target), shape.n_outputs))
            vars(sums)["predictions"] = each[:, 0] if shape.n_outputs == 1 else each
        return sums

    def known_at(
        self, theta: Array, values: Array, gradients: Array, predictions: list[tuple[Codes, Array]]
    ) -> MemorySums:
        """Return sums at one theta that have been computed already; predictions are given part by part."""
        sums, known = self.whole.at(theta), np.empty((len(self.target), *predictions[0][1].shape[1:]))
        for contexts, own in predictions:
            known[self.places(contexts)] = own
        vars(sums).update(values=values, gradients=gradients, predictions=known)
        return sums

    def unpadded(self, contexts: Codes, sums: MemorySums) -> Array:
        """Return the predictions of some contexts' own rows."""
        if not isinstance(sums.part.layout, Padded):
            return sums.predictions
        inside = np.arange(sums.part.layout.X.shape[1]) < self.sizes[contexts][:, None]
        return np.asarray(sums.predictions[inside.ravel()])

    def finish(self) -> None:
        """Nothing was kept."""

    @cached_property
    def blocks(self) -> Any:
        """The rows as one block, for questions that keep a state of every row."""
        # Blocks are made of rows in memory.
        from counterpoise.rows.blocks import in_memory

        return in_memory(self)

    # --- contexts side by side ---------------------------------------------------------------------------------------

    def parts(self, among: Mask | None = None) -> list[tuple[Codes, Callable[[], MemoryPart]]]:
        """Return contexts, or some of them, in parts: those of many rows as they lie, others padded to few lengths.

        Each part is made when it is called, by whoever works on it.
        """
        among = np.ones(self.n_contexts, dtype=bool) if among is None else among
        long = among & (self.sizes >= STRIP) & (not sparse.issparse(self.X))
        if not sparse.issparse(self.X) and (among & ~long).sum() < _FEW:
            long |= among & (self.sizes >= self.coefficients.n_parameters)
        groups = [(np.flatnonzero(long), self.grouped)] if long.any() else []
        groups += [(contexts, self.padded) for contexts in self.alike(among & ~long)]
        return [(contexts, partial(lay, contexts)) for contexts, lay in groups]

    def alike(self, among: Mask | None = None) -> Iterator[Codes]:
        """Group contexts, or some of them, whose sizes round up to the same multiple of about a quarter.

        The groups are of bounded memory once padded.
        """
        order = np.argsort(self.sizes, kind="stable")
        order = order if among is None else order[among[order]]
        # A quarter of the power of two below the size: at most a fifth of a block is padding.
        unit = 1 << np.maximum(np.frexp(self.sizes[order])[1].astype(np.intp) - 3, 0)
        padded, n_parameters = -(-self.sizes[order] // unit) * unit, self.coefficients.n_parameters
        for length in np.unique(padded):
            same = order[padded == length]
            # The features of a context, or its Hessian where that is larger.
            step = max(1, BATCH_ENTRIES // (n_parameters * max(int(length), n_parameters)))
            for first in range(0, len(same), step):
                yield np.sort(same[first : first + step])

    def batches(self, among: Mask) -> list[Codes]:
        """Return some contexts in batches whose rows fit into the cache; a longer context is one of its own."""
        contexts = np.flatnonzero(among)
        entries = np.cumsum(self.sizes[contexts] * self.coefficients.n_features)
        return [part for part in np.split(contexts, np.flatnonzero(np.diff(entries // BATCH_ENTRIES)) + 1) if part.size]

    def grouped(self, contexts: Codes) -> MemoryPart:
        """Return some contexts as they lie."""
        if len(contexts) == self.n_contexts:
            return self.whole
        layout = Grouped(self.X, self.coefficients, self.starts[contexts], self.sizes[contexts])
        rows = self.places(contexts)
        return MemoryPart(layout, self.target[rows], self.weight[rows], self.loss, self._reach_of_theta)

    def places(self, contexts: Codes) -> slice | Mask:
        """Return where the rows of some contexts are."""
        if contexts[-1] - contexts[0] == len(contexts) - 1:
            return slice(self.starts[contexts[0]], self.starts[contexts[-1] + 1])
        return np.isin(self.owner, contexts)

    def padded(self, contexts: Codes) -> MemoryPart:
        """Return some contexts filled up to one length with rows of no weight."""
        first, sizes = self.starts[contexts], self.sizes[contexts]
        inside = np.arange(sizes.max()) < sizes[:, None]
        rows = np.where(inside, first[:, None] + np.arange(sizes.max()), first[:, None]).ravel()
        X = self.X[rows]
        X = X.toarray() if sparse.issparse(X) else X
        layout = Padded(X.reshape(*inside.shape, -1), self.coefficients)
        weight = np.where(inside.ravel(), self.weight[rows], 0.0)
        return MemoryPart(layout, self.target[rows], weight, self.loss, self._reach_of_theta)

    # --- some of the rows --------------------------------------------------------------------------------------------

    def subset(self, contexts: Codes) -> MemoryRows:
        """Return the rows of some contexts alone."""
        sizes = self.sizes[contexts]
        starts = np.concatenate([[0], np.cumsum(sizes)])
        first = self.starts[:-1][contexts]
        rows: slice | Codes = slice(first[0], first[0] + sizes[0])
        if len(sizes) == 1:
            X = some_rows(self.X, first[0], first[0] + sizes[0])
        else:
            rows = np.arange(starts[-1]) + np.repeat(first - starts[:-1], sizes)
            X = self.X[rows]
        return replace(self, X=X, target=self.target[rows], weight=self.weight[rows], starts=starts)

    def thinned(self, every: int) -> MemoryRows:
        """Return one row in so many of each context."""
        if sparse.issparse(self.X) or self.sizes.min() < 2 * every:
            return self._some(*self._layout.every(np.full(self.n_contexts, every)))
        thin = self._some(slice(None, None, every), -(-self.starts // every))
        # What is read several times is better read without gaps.
        return replace(thin, X=np.ascontiguousarray(thin.X))

    def masked(self, mask: Mask) -> tuple[MemoryRows, Codes]:
        """Return some rows, and the contexts that still have any."""
        sizes = np.add.reduceat(mask, self.starts[:-1], dtype=np.intp)
        present = np.flatnonzero(sizes)
        return self._some(mask, np.concatenate([[0], np.cumsum(sizes[present])])), present

    def _some(self, rows: slice | Mask | Codes, starts: Codes) -> MemoryRows:
        together = None if self.together is None else self.together[rows]
        X, target, weight = self.X[rows], self.target[rows], self.weight[rows]
        return replace(self, X=X, target=target, weight=weight, starts=starts, together=together)._normalised()

    def as_one(self, counts: Array) -> MemoryRows:
        """Return all rows as one context, in the proportions of the data."""
        weight = self.weight * np.repeat(counts / counts.sum(), self.sizes)
        return replace(self, weight=weight, starts=np.array([0, len(weight)]))

    def one_row(self, context: int, rng: np.random.Generator) -> MemoryRows:
        """Return one row drawn from a context, in proportion to its weight."""
        first, last = self.starts[context], self.starts[context + 1]
        i = int(rng.choice(np.arange(first, last), p=self.weight[first:last]))
        return replace(
            self,
            X=some_rows(self.X, i, i + 1),
            target=self.target[i : i + 1],
            weight=np.ones(1),
            starts=np.array([0, 1]),
        )


@dataclass(frozen=True, eq=False)
class MemoryPart:
    """Rows of some contexts, laid out for products.

    Attributes
    ----------
    layout : Layout
    target, weight : ndarray of shape (n, ...)
    loss : Loss
    find_reach : callable
        Returns the largest absolute feature behind each parameter.
    """

    layout: Layout
    target: Array
    weight: Array
    loss: Loss
    find_reach: Callable[[], Array]

    at_hand = True
    knows_predictions = True
    rounding = 1e-15
    xp: ClassVar[Any] = np
    """What rows are computed with."""

    def losses(self, predictions: Array) -> Array:
        """Return the loss of each row."""
        return self.loss.value(self.target, predictions)

    @property
    def coefficients(self) -> Coefficients:
        """The shape of theta."""
        return self.layout.coefficients

    @cached_property
    def reach(self) -> Array:
        """The largest absolute feature behind each parameter."""
        return self.find_reach()

    @cached_property
    def lowest(self) -> Array:
        """Each context's mean lowest loss."""
        # A row that has none, and no weight, is not there.
        return self.layout.total(self.weight * np.where(self.weight > 0.0, self.loss.lowest(self.target), 0.0))

    @cached_property
    def pooled(self) -> Layout:
        """The same rows as one group, where they are all rows."""
        return Grouped.pooled(self.layout.X, self.coefficients)

    def at(self, theta: Array) -> MemorySums:
        """Return sums at one theta, or at one for each context."""
        return MemorySums(self, theta)

    @property
    def minimiser(self) -> Callable[[Array, float], Array] | None:
        """Compiled code for contexts of few rows, which leads from any parameters to about the minima with a ridge.

        None where there is none.
        """
        found = self.layout.minimiser(self.loss)
        return None if found is None else partial(found, self.target, self.weight)

    def subset(self, keep: Mask) -> MemoryPart:
        """Return some of the contexts."""
        rows = self.layout.each(keep)
        return replace(self, layout=self.layout.subset(keep), target=self.target[rows], weight=self.weight[rows])

    def thinned(self, layout: Grouped, every: Codes) -> tuple[MemoryPart, Codes]:
        """Return one row in so many of each context with the weights they have, and where they are."""
        rows, starts = layout.every(every)
        shift = layout.first - (np.cumsum(layout.sizes) - layout.sizes)
        sizes = np.diff(starts)
        some = Grouped(layout.X[rows + np.repeat(shift, sizes)], self.coefficients, starts[:-1], sizes)
        return replace(self, layout=some, target=self.target[rows], weight=self.weight[rows]), rows

    def condensed(self) -> tuple[MemoryPart, Array] | None:
        """Return the same contexts in as many features as they have rows, where these are fewer, and the old features.

        With a ridge the best coefficients are a combination of the rows: directions at right angles to all of them cost
        and gain nothing. The new features are coordinates in an orthonormal basis of the rows, so that the ridge stays
        the same. The basis, of shape (B, n_features, length), leads back.
        """
        X = self.layout.X
        if not isinstance(self.layout, Padded) or X.shape[1] >= X.shape[2]:
            return None
        basis, coordinates = np.linalg.qr(X.transpose(0, 2, 1))
        own = np.ascontiguousarray(coordinates.transpose(0, 2, 1))
        shape = replace(self.coefficients, n_features=own.shape[2])
        part = replace(
            self,
            layout=Padded(own, shape),
            find_reach=lambda: shape.for_each_output(np.abs(own).max(axis=(0, 1))),
        )
        return part, basis


@dataclass(frozen=True, eq=False)
class MemorySums:
    """Sums over rows in memory; each is computed when first asked for."""

    part: MemoryPart
    theta: Array
    cut: float = 0.0

    @property
    def _own(self) -> Layout:
        """The groups that have a theta."""
        return self.part.pooled if self.theta.ndim == 1 else self.part.layout

    @cached_property
    def predictions(self) -> Array:
        """Predictions of all rows: (n,), or (n, n_outputs)."""
        z = self._own.product(np.atleast_2d(self.theta))
        return z[:, 0] if self.part.loss.n_outputs == 1 else z

    @cached_property
    def _truncated(self) -> tuple[Array, Array, Array]:
        return self.part.loss.truncated(self.part.target, self.predictions, self.cut)

    @property
    def losses(self) -> Array:
        """The loss of every row, worked out for so many rows at once that little else is needed beside them."""
        return self._truncated[0] if self.cut else self._of_rows(self.part.loss.value)

    @cached_property
    def row_slopes(self) -> Array:
        """Slope of each row's loss, always (n, n_outputs)."""
        slopes = self._truncated[1] if self.cut else self._of_rows(self.part.loss.gradient)
        return slopes.reshape(len(self.part.weight), -1)

    @property
    def curvature(self) -> Array:
        """Curvature of each row's loss: (n,), or (n, n_outputs, n_outputs)."""
        return self._truncated[2] if self.cut else self._of_rows(self.part.loss.curvature)

    def _of_rows(self, told: Callable[[Array, Array], Array]) -> Array:
        """Return what a loss tells of every row, worked out for so many at once that little is needed beside it."""
        target, predictions = self.part.target, self.predictions
        out = told(target[:_AT_ONCE], predictions[:_AT_ONCE])
        if len(out) == len(predictions):
            return out
        out = np.empty((len(predictions), *out.shape[1:]))
        for first in range(0, len(predictions), _AT_ONCE):
            some = slice(first, first + _AT_ONCE)
            out[some] = told(target[some], predictions[some])
        return out

    @cached_property
    def values(self) -> Array:
        """Mean losses of contexts."""
        if self._looked():
            return vars(self)["values"]
        return self.part.layout.total(self.part.weight * self.losses)

    @cached_property
    def gradients(self) -> Array:
        """Their gradients."""
        if self._looked():
            return vars(self)["gradients"]
        return self.part.layout.gather(self.part.weight[:, None] * self.row_slopes)

    def _looked(self) -> bool:
        """Find values, gradients, sizes and predictions by one pass over rows that nobody has looked at here.

        Tell whether that was possible.
        """
        part, known = self.part, vars(self)
        if self.cut or "predictions" in known:
            return False
        found = part.layout.look(np.atleast_2d(self.theta), part.loss, part.target, part.weight)
        known |= {} if found is None else found._asdict()
        return found is not None

    @cached_property
    def sizes(self) -> Array:
        """Mean absolute slopes."""
        slopes = np.abs(self.row_slopes)
        return self.part.layout.total(self.part.weight * (slopes[:, 0] if slopes.shape[1] == 1 else slopes.max(axis=1)))

    def _mixed(self, weights: Array | None) -> Array:
        """Return the weight of each row, in a mixture of contexts."""
        return self.part.weight if weights is None else self.part.weight * self.part.layout.each(weights)

    def hessian(self, weights: Array) -> Array:
        """Return the Hessian of a mixture of contexts at one theta."""
        return self._gram(self.part.pooled, self._mixed(weights))[0]

    @property
    def hessians(self) -> Array:
        """The Hessian of every context's mean loss, computed whenever it is asked for."""
        return self._gram(self.part.layout, self.part.weight)

    def _gram(self, layout: Layout, weight: Array) -> Array:
        """Return the Hessian of every group's loss, by weights of the rows."""
        loss = self.part.loss
        if self.cut or not isinstance(loss, Multinomial):
            return layout.gram(_scaled(self.curvature, weight))
        return layout.gram_of_classes(*loss.probabilities_and_variances(self.predictions), weight)

    @property
    def rough_hessians(self) -> Stack | None:
        """The same by a sample, where parameters are many; None where all rows are needed."""
        return self.sampled_hessians if self.part.coefficients.n_parameters >= _WIDE else None

    @property
    def sampled_hessians(self) -> Stack | None:
        """The same by as many rows of each context as tell it well enough; None where there are not many more.

        What some rows bend is part of what all of them do, and that part is certain.
        """
        thin = self._thinned(_TELLING * self.part.coefficients.width)
        if thin is None:
            return None
        share = self._share(thin)
        return ArrayStack(thin.hessians / share[:, None, None], share)

    @property
    def class_blocks(self) -> Array:
        """The blocks of classes on the diagonal of every context's Hessian, by as many rows as tell them.

        Of shape (n_contexts, n_outputs, width, width).
        """
        thin, loss = self._thinned(_TELLING_BLOCKS * self.part.coefficients.width) or self, self.part.loss
        assert isinstance(loss, Multinomial)
        layout, weight = thin.part.layout, thin.part.weight[:, None]
        _, variances = loss.probabilities_and_variances(thin.predictions)
        squares = np.square(thin.row_slopes)
        # In the end the two agree on average. A class that is given up for now, though there are rows of it, hardly
        # bends, and would be led anywhere.
        lost = layout.total(squares * weight) > _LOST * layout.total(variances * weight)
        if lost.any():
            variances = np.where(layout.each(lost), np.maximum(variances, squares), variances)
        return layout.grams(variances * weight) / self._share(thin)[:, None, None, None]

    @property
    def moments(self) -> Array:
        """The mean product of every context's row gradients, computed whenever it is asked for.

        Of a long context some rows tell it: what is asked for is how much noise there is, and more or less.
        """
        thin = self._thinned(max(_NOISY, 4 * self.part.coefficients.width)) or self
        slopes, part = thin.row_slopes, thin.part
        squares = np.square(slopes)
        if slopes.shape[1] == 1:
            found = part.layout.gram(squares[:, 0] * part.weight)
        else:
            found = -part.layout.gram_of_classes(slopes, -squares, part.weight)
        return found / self._share(thin)[:, None, None]

    def _share(self, thin: MemorySums) -> Array:
        """Return how much of the weight of each context some of its rows have."""
        return thin.part.layout.total(thin.part.weight) / self.part.layout.total(self.part.weight)

    def _thinned(self, enough: int) -> MemorySums | None:
        """Return sums over so many rows of each context at the least, where any has twice as many; None for none.

        The weights of a context then add up to its part of the rows.
        """
        layout = self.part.layout
        if not isinstance(layout, Grouped) or not layout.is_read_in_strips:
            return None
        every = np.maximum(layout.sizes // enough, 1)
        if (every == 1).all():
            return None
        part, rows = self.part.thinned(layout, every)
        sums = MemorySums(part, self.theta, self.cut)
        vars(sums)["predictions"] = self.predictions[rows]
        return sums

    def majorant(self, weights: Array) -> Array | None:
        """Return a matrix that lies above the Hessian of a mixture wherever theta is; None if none."""
        found = self._majorants(self.part.pooled, self._mixed(weights))
        return None if found is None else found[0]

    @property
    def majorants(self) -> Array | None:
        """The same of every context."""
        return self._majorants(self.part.layout, self.part.weight)

    def _majorants(self, layout: Layout, weight: Array) -> Array | None:
        """Return a matrix that lies above the Hessian of every group, by weights of the rows; None if none."""
        loss = self.part.loss
        if isinstance(loss, Multinomial):
            # One bound for all rows.
            bound, size = loss.majorant(self.part.target[:1], self.predictions[:1])[0], layout.coefficients.n_parameters
            grams = layout.grams(weight[:, None])[:, 0]
            return np.einsum("km,bij->bkimj", bound, grams).reshape(-1, size, size)
        bend = loss.majorant(self.part.target, self.predictions)
        return None if bend is None else layout.gram(_scaled(bend, weight))

    def truncated(self, cut: float) -> MemorySums:
        """Return the sums of a loss that lies below."""
        return self._alike(self.part, self.theta, cut=cut)

    def slopes(self, weights: Array | None) -> RowSlopes:
        """Return the slopes of a hinged loss, of a mixture of contexts or of every context."""
        layout = self.part.layout if weights is None else self.part.pooled
        bend = self.part.loss.curvature(self.part.target, self.predictions)
        v, share = self.row_slopes[:, 0], np.ones(len(self.part.weight))
        return RowSlopes.inside(self.part, layout, self._mixed(weights), self.predictions, v, bend, share)

    def subset(self, keep: Mask) -> MemorySums:
        """Return the sums of some contexts; what is known already is not worked out again."""
        rows, known = self.part.layout.each(keep), vars(self)
        some = MemorySums(self.part.subset(keep), self.theta[keep], self.cut)
        for name, own in (("predictions", rows), ("row_slopes", rows)):
            if name in known:
                vars(some)[name] = known[name][own]
        for name in ("values", "gradients", "sizes"):
            if name in known:
                vars(some)[name] = known[name][keep]
        return some

    def _alike(self, part: MemoryPart, theta: Array, cut: float, shift: Array | None = None) -> MemorySums:
        """Return sums at the same predictions, or at shifted ones."""
        sums = MemorySums(part, theta, cut)
        vars(sums)["predictions"] = self.predictions if shift is None else self.predictions + shift
        return sums

    # --- what only rows at hand can tell -----------------------------------------------------------------------------

    def moved(self, other: MemorySums) -> float:
        """Return how far the predictions of any row are from those elsewhere; with several outputs, their range."""
        here, there, most = self.predictions, other.predictions, 0.0
        for first in range(0, len(here), _AT_ONCE):
            change = here[first : first + _AT_ONCE] - there[first : first + _AT_ONCE]
            most = np.maximum(most, (np.abs(change) if change.ndim == 1 else np.ptp(change, axis=1)).max())
        return float(most)

    def slopes_and_stiffness(self) -> tuple[Array, Array]:
        """Return the mean squared slope and the mean curvature of every context's rows, summed over outputs.

        Of a long context some rows tell them.
        """
        part, predictions = self.part, self.predictions
        target, weight = part.target, part.weight
        total: Callable[[Array], Array] = part.layout.total
        if isinstance(part.layout, Grouped):
            rows, starts = part.layout.every(np.maximum(part.layout.sizes // _ROUGHLY, 1))
            if len(rows) < len(weight):
                target, weight, predictions = target[rows], weight[rows], predictions[rows]
                total = partial(np.add.reduceat, indices=starts[:-1])
                weight = weight / np.repeat(total(weight), np.diff(starts))
        both = np.empty((2, len(weight)))
        for first in range(0, len(weight), _AT_ONCE):
            some = slice(first, first + _AT_ONCE)
            slopes = part.loss.gradient(target[some], predictions[some]).reshape(-1, part.loss.n_outputs)
            if isinstance(part.loss, Multinomial):
                bend = part.loss.probabilities_and_variances(predictions[some])[1].sum(axis=1)
            else:
                bend = part.loss.curvature(target[some], predictions[some])
            both[0, some], both[1, some] = np.square(slopes).sum(axis=1), bend
        return total(weight * both[0]), total(weight * both[1])

    def moved_from(self, predictions: Array) -> Array:
        """Return how far the predictions of any row of a context are from others; with several outputs, their range."""
        change = self.predictions - predictions
        far = np.abs(change) if change.ndim == 1 else np.ptp(change, axis=1)
        return -self.part.layout.least(-far)

    def centred(self, weights: Array | None) -> MemorySums:
        """Return sums with the intercepts brought to their own minimum, of a mixture or of every context."""
        part, outputs = self.part, self.part.loss.n_outputs
        layout, weight, sums = part.layout if weights is None else part.pooled, self._mixed(weights), self
        own = self.gradients.reshape(len(self.gradients), outputs, -1)[:, :, -1]
        pull, far, bend = own if weights is None else weights[None] @ own, np.inf, np.empty(0)
        for _ in range(60):
            # After a short step the same curvature leads on, and costs a look at all predictions.
            bend = sums._intercept_curvature(layout, weight) if far > _NEAR else bend
            step = _intercept_steps(pull, bend)
            far = float(np.abs(step).max())
            if far <= 1e-15 * (1.0 + float(np.abs(sums.predictions).max())):
                break
            move = layout.each(step)
            sums = sums._alike(part, self.theta, 0.0, move[:, 0] if outputs == 1 else move)
            pull = layout.total(weight[:, None] * sums.row_slopes)
        return sums

    def _intercept_curvature(self, layout: Layout, weight: Array) -> Array:
        """Return the Hessian of every group in its intercepts alone: (B, n_outputs, n_outputs)."""
        outputs = self.part.loss.n_outputs
        alone = replace(layout, X=np.empty((*layout.X.shape[:-1], 0)), coefficients=Coefficients(outputs, 0, True))
        return self._gram(alone, weight)

    def hessian_product(self, weights: Array) -> Callable[[Array], Array]:
        """Return the map ``v -> hessian(weights) @ v``."""
        curvature, pooled = _scaled(self.curvature, self._mixed(weights)), self.part.pooled

        def product(v: Array) -> Array:
            move = pooled.product(v[None])
            bent = curvature[:, None] * move if curvature.ndim == 1 else np.einsum("nkm,nm->nk", curvature, move)
            return pooled.gather(bent)[0]

        return product

    def hessian_diagonal(self, weights: Array) -> Array:
        """Return the diagonal of ``hessian(weights)``."""
        curvature, shape, X = _scaled(self.curvature, self._mixed(weights)), self.part.coefficients, self.part.layout.X
        own = curvature[:, None] if curvature.ndim == 1 else np.einsum("nkk->nk", curvature)
        out = np.empty((shape.n_outputs, shape.width))
        out[:, : shape.n_features] = (squares_product(X, own) if sparse.issparse(X) else np.square(X).T @ own).T
        if shape.fit_intercept:
            out[:, -1] = own.sum(axis=0)
        return out.ravel()


def _intercept_steps(pull: Array, bend: Array) -> Array:
    """Return steps towards the minimum in the intercepts, of shape (n_groups, n_outputs), at most one unit long.

    No loss here bends by more than e within a unit. Of several outputs Newton's step is taken where it is short, and
    half of one for each output by itself elsewhere.
    """
    stiff, outputs = np.einsum("ckk->ck", bend), pull.shape[1]
    # A class out of reach stays there.
    pull = np.where(stiff > 1e-15 * stiff.max(axis=1, keepdims=True), pull, 0.0)
    step = -pull / np.maximum(stiff, 1e-12 * np.abs(pull) + 1e-300)
    if outputs == 1:
        return np.clip(step, -1.0, 1.0)
    # A shift common to all classes changes nothing: any curvature in that direction leaves it out.
    held = bend + stiff.mean(axis=1)[:, None, None] / outputs
    newton = -(pseudo_inverse(held) @ pull[:, :, None])[:, :, 0]
    near = np.isfinite(newton).all(axis=1, keepdims=True) & (np.abs(newton).max(axis=1, keepdims=True) <= 0.5)
    return np.where(near, newton, np.clip(0.5 * step, -1.0, 1.0))


def _scaled(curvature: Array, weight: Array) -> Array:
    return curvature * weight.reshape((-1,) + (1,) * (curvature.ndim - 1))
