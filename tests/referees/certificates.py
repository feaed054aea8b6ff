"""A second opinion on the certificate of a fitted linear model: an evaluation that shares nothing with the library.

Risks are summed in the longest floats there are, and worst cases found by bisection. The objective at the model must be
what the certificate says; no parameters that are tried may do better than its lower bound, nor better in a context than
the context's reference.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from scipy import sparse

from tests.referees.worst_case import worst_case as referee

_BLOCK = 1 << 20
"""Entries of X in the longest floats at once (16 MB)."""

STEPS = (0.0, 1e-8, 1e-4, 1e-2, 1.0)
"""How far from the model other parameters are tried, in units of its largest one."""


def worst_mean(p_hat, radius, scores):
    """Return the largest mean of scores over the ball, by bisection on the dual variable in its logarithm.

    NaN where floats would not do and the input was not chosen to be judged in high precision.
    """
    exact, shares = scores, np.asarray(p_hat)
    p_hat, scores = np.asarray(p_hat, np.longdouble), np.asarray(scores, np.longdouble)
    p_hat = p_hat / p_hat.sum()
    if radius == 0.0 or len(scores) == 1:
        return float(p_hat @ scores)
    top = scores.max()
    if radius > 1e5:
        return float(top)
    if not 1e-8 < radius < 1e3 or shares[shares > 0].min() < 1e-8:
        # Where doubles, or their longer kin, cancel or underflow; that takes its time, so only some are judged.
        return float(referee(shares, radius, exact)[0]) if hash((radius, *map(float, exact))) % 32 == 0 else np.nan
    gaps, eps = top - scores, np.longdouble(radius) * np.log(np.longdouble(2))
    spread = gaps[p_hat > 0].max()
    if spread == 0.0:
        return float(top)
    seen = p_hat > 0
    share, gap = p_hat[seen], gaps[seen]

    def divergence(log_t):
        u = gap / (spread * np.exp(log_t))
        kept = share @ (1 / (1 + u))
        return (np.log(kept) if kept < 0.5 else np.log1p(-(share @ (u / (1 + u))))) + share @ np.log1p(u)

    # Where every seen score is below an unseen one, nu stops at the latter, and what is left of the ball is its share.
    if gap.min() > 0 and (inside := np.log(share @ (1 / gap)) + share @ np.log(gap)) <= eps:
        tilted = share / gap
        tilted = tilted / tilted.sum() * np.exp(inside - eps)
        return float(top - tilted @ gap)
    low, high = np.longdouble(-9000), np.longdouble(60)
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if divergence(middle) > eps else (low, middle)
    tilted = share / (spread * np.exp(high) + gap)
    tilted = tilted / tilted.sum()
    return float(top - tilted @ gap)


def row_losses(kind, z, y, parameters):
    """Return the loss of every row, written out; ``y`` of the newsvendor is a pair of columns."""
    if kind == "logistic":
        return np.logaddexp(0, np.where(y > 0, -z, z))
    if kind == "multinomial":
        top = z.max(axis=1, keepdims=True)
        return np.log(np.exp(z - top).sum(axis=1)) + top[:, 0] - z[np.arange(len(z)), y.astype(int)]
    if kind == "squared":
        return (z - y) ** 2 / 2
    if kind == "huber":
        r, delta = np.abs(z - y), parameters["delta"]
        return np.where(r <= delta, r * r / 2, delta * r - delta * delta / 2)
    if kind == "poisson":
        return np.exp(z) - y * z
    if kind == "pinball":
        q = parameters["quantile"]
        return np.where(z >= y, (1 - q) * (z - y), q * (y - z))
    cost, demand = y.T
    salvage, shortage = parameters.get("salvage", 0.0), parameters.get("shortage", 0.0)
    over, under = np.maximum(z - demand, 0), np.maximum(demand - z, 0)
    return cost * z - parameters["price"] * np.minimum(z, demand) - salvage * over + shortage * under


@dataclass(frozen=True)
class Judged:
    """The rows that a model was fitted to.

    Attributes
    ----------
    kind : str
        The loss, as in :func:`row_losses`.
    X : ndarray or sparse array of shape (n, d)
    y : ndarray of shape (n,) or (n, 2)
        Classes are numbered from 0.
    codes : ndarray of shape (n,)
        Contexts, numbered from 0; each occurs.
    weight : ndarray of shape (n,)
        Above 0.
    parameters : dict
        Of the loss.
    """

    kind: str
    X: object
    y: np.ndarray
    codes: np.ndarray
    weight: np.ndarray
    parameters: dict = field(default_factory=dict)

    @property
    def p_hat(self):
        """The share of each context."""
        counts = np.bincount(self.codes, self.weight)
        return counts / counts.sum()

    def _means(self, rows):
        """Return the weighted mean of each context's rows."""
        weight, order = np.asarray(self.weight, np.longdouble), np.argsort(self.codes, kind="stable")
        first = np.searchsorted(self.codes[order], np.arange(self.codes.max() + 1))
        return np.add.reduceat((weight * rows)[order], first) / np.add.reduceat(weight[order], first)

    def _products(self, coef):
        """Return the products of rows and coefficients, and those of their sizes, some rows at a time."""
        out = np.empty((2, self.X.shape[0], len(coef)), np.longdouble)
        step = max(1, _BLOCK // max(self.X.shape[1], 1))
        for first in range(0, out.shape[1], step):
            block = self.X[first : first + step]
            wide = block.astype(np.longdouble) if sparse.issparse(block) else np.asarray(block, np.longdouble)
            out[0, first : first + step], out[1, first : first + step] = wide @ coef.T, abs(wide) @ abs(coef).T
        return out

    def risks(self, coef, intercept, alpha):
        """Return every context's risk with the ridge, and how far each may be off by rounding alone."""
        with np.errstate(all="ignore"):
            coef, y = np.atleast_2d(np.asarray(coef, np.longdouble)), np.asarray(self.y, np.longdouble)
            intercept = np.atleast_1d(np.asarray(intercept, np.longdouble))
            z, sizes = self._products(coef)
            z, off = z + intercept, 1e-13 * (sizes + np.abs(intercept))
            z, off = (z[:, 0], off[:, 0]) if z.shape[1] == 1 else (z, off.max(axis=1, keepdims=True))
            kind, ridge = self.kind, np.longdouble(alpha) * (coef**2).sum()
            off = off if kind in ("logistic", "multinomial", "poisson") else off + 1e-14 * np.abs(y)
            here = row_losses(kind, z, y, self.parameters)
            doubt = sum(np.abs(row_losses(kind, z + sign * off, y, self.parameters) - here) for sign in (-1, 1))
            size = np.abs(here) if kind != "poisson" else np.exp(z) + np.abs(y * z)
            # The slope on one side is known up to the rounding of the other's.
            size = size + 0.1 * np.abs(z - y) if kind == "pinball" else size
            doubt = doubt + 1e-13 * size + (2 * off.ravel() if kind == "multinomial" else 0.0)
            return self._means(here) + ridge / 2, self._means(doubt) + 1e-13 * ridge + 1e-290


def check_certificate(rows: Judged, model, certified: bool, seed: int, others: Iterable = ()) -> None:
    """Raise AssertionError, in words, where the certificate of a model claims what is not so.

    Parameters
    ----------
    rows : Judged
    model : fitted robust linear model
    certified : bool
        Whether the model was said to be within its tolerance.
    seed : int
        Of the parameters that are tried around the model.
    others : iterable of (coef, intercept)
        More parameters that are tried.
    """
    params, certificate, p_hat = model.get_params(), model.certificate_, rows.p_hat
    references = (model.reference_risks_ if params["criterion"] == "excess" else 0.0) - model.adjustments_
    coef, intercept = np.atleast_2d(model.coef_), np.atleast_1d(model.intercept_)
    far = float(np.abs(references).max())
    mine, doubt = rows.risks(coef, intercept, params["alpha"])
    assert (np.abs(mine - model.context_risks_) <= doubt + 1e-9 * certificate.scale).all(), "risks differ"
    upper = worst_mean(p_hat, model.radius_, mine - references)
    slack = float(doubt.max()) + 1e-9 * certificate.scale + 1e-14 * far
    assert not upper > certificate.upper + slack, "upper is below the objective"
    if certified:
        # It holds what is not proven of the references, which the gap allows for.
        room = slack + max(1e-5, params["tol"]) * certificate.scale
        assert not certificate.upper > upper + room, "upper is far above the objective"
    # The certificate vouches for references where they are a part of the objective.
    vouched = certified and model.reference_ == "in-sample" and params["criterion"] == "excess"
    for other in (*_around(coef, intercept, params["fit_intercept"], seed), *others):
        there, doubt = rows.risks(*other, params["alpha"])
        if not (np.abs(there) < 1e300).all():
            continue
        scores = there - references
        slack = float(doubt.max()) + 1e-8 * certificate.scale + 1e-14 * far
        if model.context_weights_ @ scores < certificate.lower - slack:
            value = worst_mean(p_hat, model.radius_, scores)
            assert not value < certificate.lower - slack, "lower is above a value that is attained"
        if vouched:
            room = slack + 1e-6 * np.abs(there - model.reference_risks_).astype(float) + 1e-5 * certificate.scale
            assert (there >= model.reference_risks_ - room).all(), "a reference is above a risk that is attained"


def _around(coef, intercept, fit_intercept, seed):
    """Yield parameters near the model and far from it."""
    rng = np.random.default_rng(seed)
    size = np.abs(np.append(coef, intercept)).max() or 1.0
    for step in STEPS:
        moves = [rng.standard_normal(coef.shape), rng.standard_normal(intercept.shape) * fit_intercept]
        if step == 1.0:
            yield 0.0 * coef, intercept
        else:
            yield coef + step * size * moves[0], intercept + step * size * moves[1]
