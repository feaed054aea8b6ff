"""Rows on a GPU, or anywhere else that torch computes: only sums come back."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from counterpoise.exceptions import InvalidInputError
from counterpoise.losses import Logistic, Loss, Multinomial, Poisson, Squared
from counterpoise.oracle.summed import Sums

Array = NDArray[np.float64]

_BLOCK_BYTES = 1 << 28
"""Memory of what is made of the rows at once."""


@dataclass(frozen=True, eq=False)
class TorchRows:
    """Rows as tensors, grouped by context; sums are taken in double precision, whatever X is stored in.

    Attributes
    ----------
    X : Tensor of shape (n_samples, n_features)
    target, weight : Tensor of shape (n_samples,)
        In double precision; weights add up to one in each context.
    starts : ndarray of shape (n_contexts + 1,)
        Context ``c`` holds the rows ``starts[c]:starts[c + 1]``.
    """

    X: Tensor
    target: Tensor
    weight: Tensor
    starts: NDArray[np.intp]
    loss: Loss
    fit_intercept: bool = True

    def __post_init__(self) -> None:
        if type(self.loss) not in _POINTWISE:
            raise InvalidInputError(
                f"the {self.loss.name} loss is not fitted on a device; choose a logistic, linear or Poisson model, or "
                "pass numpy arrays."
            )

    @property
    def n_contexts(self) -> int:
        """Contexts."""
        return len(self.starts) - 1

    @property
    def n_features(self) -> int:
        """Columns of X."""
        return int(self.X.shape[1])

    @property
    def width(self) -> int:
        """Columns of the coefficient matrix, the intercept counted."""
        return self.n_features + self.fit_intercept

    @cached_property
    def codes(self) -> Tensor:
        """The context of each row."""
        sizes = torch.as_tensor(np.diff(self.starts), device=self.X.device)
        return torch.repeat_interleave(torch.arange(self.n_contexts, device=self.X.device), sizes)

    @cached_property
    def reach(self) -> Array:
        """The largest absolute value of each column."""
        return _host(self.X.abs().amax(dim=0))

    @cached_property
    def target_means(self) -> Array:
        """The mean target of each context."""
        return _host(self._total(self.weight * self.target))

    def floors(self, constant: float) -> tuple[Array, float]:
        """Return each context's mean lowest loss, and how far the loss of a constant prediction is above it."""
        rows = torch.full((len(self.target), self.loss.n_outputs), constant, dtype=torch.float64, device=self.X.device)
        value = _POINTWISE[type(self.loss)].value(self.target, rows)
        lowest = _POINTWISE[type(self.loss)].lowest(self.target)
        size = torch.maximum(value.abs(), lowest.abs())
        above = float((self.weight * (value - lowest + 1e-3 * size)).sum()) / self.n_contexts
        return _host(self._total(self.weight * lowest)), above

    def sums(self, theta: Array) -> Sums:
        """Return sums at one theta, or at one for each context."""
        at = self._on_device(theta)
        outputs = self.loss.n_outputs
        loss = _POINTWISE[type(self.loss)]
        values = torch.zeros(self.n_contexts, dtype=torch.float64, device=self.X.device)
        pulls = torch.zeros_like(values)
        gradients = torch.zeros(self.n_contexts, outputs, self.width, dtype=torch.float64, device=self.X.device)
        for rows in self._blocks(2 if theta.ndim == 1 else 4):
            X = self.X[rows].double()
            z = self._predictions(X, at, rows)
            weight, codes = self.weight[rows], self.codes[rows]
            slopes = loss.gradient(self.target[rows], z)
            values.index_add_(0, codes, weight * loss.value(self.target[rows], z))
            pulls.index_add_(0, codes, weight * slopes.abs().amax(dim=1))
            weighted = weight[:, None] * slopes
            self._add_products(gradients, weighted, X, rows)
        return Sums(_host(values), _host(gradients).reshape(self.n_contexts, -1), _host(pulls))

    def _add_products(self, out: Tensor, weighted: Tensor, X: Tensor, rows: slice) -> None:
        """Add each context's ``sum_i weighted_i (x) [x_i 1]`` of a block."""
        first = int(np.searchsorted(self.starts, rows.start, "right")) - 1
        last = int(np.searchsorted(self.starts, rows.stop, "left"))
        # The block as a sparse matrix of contexts by rows: one product reads X once for all of them.
        offsets = np.clip(self.starts[first : last + 1] - rows.start, 0, rows.stop - rows.start)
        crow = torch.as_tensor(offsets, device=X.device)
        columns = torch.arange(len(X), device=X.device)
        for k in range(weighted.shape[1]):
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")
                spread = torch.sparse_csr_tensor(
                    crow, columns, weighted[:, k], (last - first, len(X)), check_invariants=False
                )
            out[first:last, k, : self.n_features] += spread @ X
        if self.fit_intercept:
            out[:, :, -1].index_add_(0, self.codes[rows], weighted)

    def hessian(self, theta: Array, weights: Array) -> Array:
        """Return the Hessian of ``sum_c weights_c risk_c`` at one theta."""
        at = self._on_device(theta)
        per_context = torch.tensor(weights, dtype=torch.float64, device=self.X.device)
        outputs, width = self.loss.n_outputs, self.width
        out = torch.zeros(outputs, width, outputs, width, dtype=torch.float64, device=self.X.device)
        for rows in self._blocks(3):
            X = self._bordered(self.X[rows].double())
            z = self._predictions(X[:, : self.n_features], at, rows)
            bend = _POINTWISE[type(self.loss)].curvature(self.target[rows], z)
            bend = bend * (self.weight[rows] * per_context[self.codes[rows]])[:, None, None]
            for k in range(outputs):
                for m in range(k + 1):
                    block = X.T @ (X * bend[:, k, m, None])
                    out[k, :, m, :] += block
                    if m < k:
                        out[m, :, k, :] += block
        return _host(out).reshape(outputs * width, outputs * width)

    def hessians(self, theta: Array) -> Array:
        """Return the Hessian of every context's risk at a theta of its own."""
        at = self._on_device(theta)
        outputs, width = self.loss.n_outputs, self.width
        out = torch.zeros(self.n_contexts, outputs, width, outputs, width, dtype=torch.float64, device=self.X.device)
        for contexts, index, inside in self._padded():
            flat = index.reshape(-1)
            X = self._bordered(self.X[flat].double())
            z = self._predictions(X[:, : self.n_features], at, flat)
            bend = _POINTWISE[type(self.loss)].curvature(self.target[flat], z)
            bend = bend * (self.weight[flat] * inside.reshape(-1))[:, None, None]
            stack = X.reshape(len(contexts), -1, width)
            for k in range(outputs):
                for m in range(k + 1):
                    scaled = stack * bend[:, k, m].reshape(len(contexts), -1, 1)
                    block = stack.transpose(1, 2) @ scaled
                    out[contexts, k, :, m, :] += block
                    if m < k:
                        out[contexts, m, :, k, :] += block
        return _host(out).reshape(self.n_contexts, outputs * width, outputs * width)

    def _padded(self) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Yield contexts of similar size together: their numbers, their rows padded to equal length, which are real.

        A context too large for a block comes in several pieces.
        """
        limit = max(1, _BLOCK_BYTES // (8 * self.width * 3))
        sizes = np.diff(self.starts)
        pieces = (
            [
                (c, first, min(first + limit, self.starts[c + 1]))
                for c in range(self.n_contexts)
                for first in range(self.starts[c], self.starts[c + 1], limit)
            ]
            if sizes.max() > limit
            else list(zip(range(self.n_contexts), self.starts[:-1], self.starts[1:], strict=True))
        )
        table = np.array(pieces, dtype=np.intp)
        lengths = table[:, 2] - table[:, 1]
        order = np.argsort(lengths, kind="stable")
        place = 0
        while place < len(order):
            # As many as fit, none padded to more than twice its length.
            longest = lengths[order[place]] * 2
            end = place + int(np.searchsorted(lengths[order[place:]], longest, "right"))
            end = min(end, place + max(1, limit // max(int(lengths[order[end - 1]]), 1)))
            chosen = table[order[place:end]]
            span = np.arange(int((chosen[:, 2] - chosen[:, 1]).max()))
            inside = span < (chosen[:, 2] - chosen[:, 1])[:, None]
            index = np.where(inside, chosen[:, 1:2] + span, chosen[:, 1:2])
            device = self.X.device
            yield (
                torch.as_tensor(chosen[:, 0], device=device),
                torch.as_tensor(index, device=device),
                torch.as_tensor(inside, dtype=torch.float64, device=device),
            )
            place = end

    def _blocks(self, copies: int) -> Iterator[slice]:
        """Yield the rows in pieces of which a few copies in double precision fit the memory set aside."""
        step = max(1, _BLOCK_BYTES // (8 * self.width * copies))
        for first in range(0, len(self.X), step):
            yield slice(first, min(first + step, len(self.X)))

    def _bordered(self, X: Tensor) -> Tensor:
        return torch.cat([X, X.new_ones(len(X), 1)], dim=1) if self.fit_intercept else X

    def _on_device(self, theta: Array) -> Tensor:
        matrix = np.asarray(theta, dtype=np.float64).reshape(*theta.shape[:-1], self.loss.n_outputs, self.width)
        return torch.tensor(matrix, device=self.X.device)

    def _predictions(self, X: Tensor, theta: Tensor, rows: slice | Tensor) -> Tensor:
        """Return predictions of some rows, always (n, n_outputs)."""
        d = self.n_features
        if theta.ndim == 2:
            z = X @ theta[:, :d].T
            return z + theta[:, d] if self.fit_intercept else z
        own = theta[self.codes[rows]]
        z = torch.einsum("nd,nkd->nk", X, own[:, :, :d])
        return z + own[:, :, d] if self.fit_intercept else z

    def _total(self, rows: Tensor) -> Tensor:
        out = torch.zeros(self.n_contexts, dtype=torch.float64, device=self.X.device)
        return out.index_add_(0, self.codes, rows)


class _Logistic:
    """As :class:`counterpoise.losses.Logistic`."""

    @staticmethod
    def value(target: Tensor, z: Tensor) -> Tensor:
        return torch.nn.functional.softplus((1.0 - 2.0 * target) * z[:, 0], threshold=1e9)

    @staticmethod
    def gradient(target: Tensor, z: Tensor) -> Tensor:
        sign = 1.0 - 2.0 * target
        return (sign * torch.sigmoid(sign * z[:, 0]))[:, None]

    @staticmethod
    def curvature(target: Tensor, z: Tensor) -> Tensor:
        return (torch.sigmoid(z) * torch.sigmoid(-z))[:, :, None]

    @staticmethod
    def lowest(target: Tensor) -> Tensor:
        return torch.zeros_like(target)


class _Squared:
    """As :class:`counterpoise.losses.Squared`."""

    @staticmethod
    def value(target: Tensor, z: Tensor) -> Tensor:
        return 0.5 * (z[:, 0] - target) ** 2

    @staticmethod
    def gradient(target: Tensor, z: Tensor) -> Tensor:
        return z - target[:, None]

    @staticmethod
    def curvature(target: Tensor, z: Tensor) -> Tensor:
        return torch.ones_like(z)[:, :, None]

    lowest = _Logistic.lowest


class _Poisson:
    """As :class:`counterpoise.losses.Poisson`."""

    @staticmethod
    def value(target: Tensor, z: Tensor) -> Tensor:
        return torch.exp(z[:, 0]) - target * z[:, 0]

    @staticmethod
    def gradient(target: Tensor, z: Tensor) -> Tensor:
        return torch.exp(z) - target[:, None]

    @staticmethod
    def curvature(target: Tensor, z: Tensor) -> Tensor:
        return torch.exp(z)[:, :, None]

    @staticmethod
    def lowest(target: Tensor) -> Tensor:
        return target - torch.special.xlogy(target, target)


class _Multinomial:
    """As :class:`counterpoise.losses.Multinomial`."""

    @staticmethod
    def value(target: Tensor, z: Tensor) -> Tensor:
        return torch.nn.functional.cross_entropy(z, target.long(), reduction="none")

    @staticmethod
    def gradient(target: Tensor, z: Tensor) -> Tensor:
        slopes = torch.softmax(z, dim=1)
        rows = torch.arange(len(target), device=z.device)
        slopes[rows, target.long()] -= 1.0
        return slopes

    @staticmethod
    def curvature(target: Tensor, z: Tensor) -> Tensor:
        q = torch.softmax(z, dim=1)
        return torch.diag_embed(q) - q[:, :, None] * q[:, None, :]

    lowest = _Logistic.lowest


_POINTWISE: dict[type[Loss], Any] = {
    Logistic: _Logistic,
    Squared: _Squared,
    Poisson: _Poisson,
    Multinomial: _Multinomial,
}


def _host(values: Tensor) -> Array:
    return values.detach().to("cpu", torch.float64).numpy()
