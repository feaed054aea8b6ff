"""Problems of the literature that are solved there by stochastic iterations, and here with a proof.

- Group-robust preference optimisation of log-linear policies (Ramesh and others, NeurIPS 2024): the worst loss over
  groups of preference pairs. With features ``d`` of the preferred answer less those of the other one, the loss of a
  pair is ``log(1 + exp(-d @ theta))`` (DPO) or ``(d @ theta - 1/2)^2`` (IPO); the temperature only rescales theta.
- Minimax excess risk (Zhang and others, ICML 2024): the worst risk above the least possible one of each group.

The iterations were written for this study from their formulas. Each is given its step sizes in hindsight: those of a
grid that end lowest. Seconds are those of the iteration; judging it is not counted.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray
from published_tables import Table
from scipy.special import expit
from sklearn.preprocessing import StandardScaler

import counterpoise as cpo

Array = NDArray[np.float64]
Row = dict[str, Any]

STEPS = (0.1, 1.0, 10.0)
"""Multiples of the step sizes of theory, for the parameters and for the weights."""

MULTIPLES = (1, 10)
"""When an iteration is looked at, besides its end: multiples of the time of our fit."""

REPEATS = 3
"""Our time is the median of so many fits: the first one of a process is slower."""

BATCH = 16


def softplus(z: Array) -> Array:
    """Return ``log(1 + exp(z))``."""
    return np.logaddexp(0.0, z)


@dataclass(frozen=True, eq=False)
class Groups:
    """Rows of several groups, and a loss of the margin ``sign * (x @ theta)``.

    Attributes
    ----------
    X : tuple of ndarray of shape (n_rows, n_features)
        A matrix for each group, rows multiplied by the sign of their label: a margin is ``x @ theta``.
    squared : bool
        The loss of IPO, ``(margin - 1/2)^2``, instead of the logistic one.
    alpha : float
        ``alpha / 2 * |theta|^2`` is added to every risk.
    """

    X: tuple[Array, ...]
    squared: bool = False
    alpha: float = 0.0

    @property
    def n_groups(self) -> int:
        return len(self.X)

    @property
    def n_features(self) -> int:
        return self.X[0].shape[1]

    @cached_property
    def sizes(self) -> Array:
        return np.array([len(x) for x in self.X], dtype=np.float64)

    def loss(self, margin: Array) -> Array:
        """Return the loss of each margin."""
        return (margin - 0.5) ** 2 if self.squared else softplus(-margin)

    def slope(self, margin: Array) -> Array:
        """Return the derivative of the loss."""
        return 2.0 * margin - 1.0 if self.squared else -expit(-margin)

    def risks(self, theta: Array) -> Array:
        """Return the mean loss of each group, with the ridge."""
        return np.array([self.loss(x @ theta).mean() for x in self.X]) + 0.5 * self.alpha * theta @ theta

    def gradients(self, theta: Array) -> Array:
        """Return the gradients of all risks, one row for each group."""
        return np.array([x.T @ self.slope(x @ theta) / len(x) for x in self.X]) + self.alpha * theta

    @cached_property
    def scale(self) -> float:
        """The typical norm of a row, by which a gradient is bounded."""
        return float(np.mean([np.sqrt((x**2).sum(axis=1).mean()) for x in self.X]))

    def drawn(self, rng: np.random.Generator, size: int = BATCH) -> Array:
        """Return a batch of every group, of shape (n_groups, size, n_features)."""
        return np.stack([x[rng.integers(len(x), size=size)] for x in self.X])


@dataclass(frozen=True, eq=False)
class Proven:
    """Our answer: the worst score is between two bounds."""

    theta: Array
    lower: float
    upper: float
    seconds: float
    references: Array


def solved(groups: Groups, *, excess: bool) -> Proven:
    """Solve the problem with a proof: minimax risk, or minimax excess risk, over all mixes of the groups."""
    # Flipping the signs of a row and of its label changes no margin; a classifier wants to see both classes.
    sign = np.concatenate([np.where(np.arange(len(x)) % 2, 1.0, -1.0) for x in groups.X])
    X, codes = np.vstack(groups.X) * sign[:, None], np.repeat(np.arange(groups.n_groups), groups.sizes.astype(int))
    options: dict[str, Any] = {"confidence": 1.0, "criterion": "excess" if excess else "risk", "fit_intercept": False}
    options["reference"] = "in-sample"
    # The estimator halves squares, and with them the ridge.
    model: Any = cpo.RobustLinearRegression(alpha=0.5 * groups.alpha, **options)
    target = 0.5 * sign
    if not groups.squared:
        model, target = cpo.RobustLogisticRegression(alpha=groups.alpha, **options), sign > 0
    seconds = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", cpo.exceptions.SmallContextWarning)
            model.fit(X, target, contexts=codes)
        seconds.append(time.perf_counter() - start)
    unit = 2.0 if groups.squared else 1.0
    bounds, references = model.certificate_, unit * model.reference_risks_
    theta = np.ravel(model.coef_)
    references = references if excess else np.zeros_like(references)
    return Proven(theta, unit * bounds.lower, unit * bounds.upper, float(np.median(seconds)), references)


Play = Iterator[tuple[Array, Array]]
"""What an iteration offers after each round: its last point, and the mean of its points."""


def group_robust_preferences(groups: Groups, steps: tuple[float, float], seed: int, n_rounds: int) -> Play:
    """Play one batch of one group at a time: exponentiated weights, weighted gradient steps (GR-DPO)."""
    rng = np.random.default_rng(seed)
    share, m = groups.sizes / groups.sizes.sum(), groups.n_groups
    eta_theta = steps[0] / (groups.scale * np.sqrt(n_rounds))
    eta_weight = steps[1] * np.sqrt(np.log(m) / n_rounds)
    theta = np.zeros(groups.n_features)
    total, log_weight = np.zeros_like(theta), np.zeros(m)
    for n, g in enumerate(rng.choice(m, size=n_rounds, p=share), 1):
        x = groups.X[g][rng.integers(len(groups.X[g]), size=BATCH)]
        margin = x @ theta
        log_weight[g] += eta_weight * groups.loss(margin).mean() / share[g]
        weight = np.exp(log_weight - np.logaddexp.reduce(log_weight))
        theta = theta - eta_theta * weight[g] / share[g] * (x.T @ groups.slope(margin) / BATCH + groups.alpha * theta)
        total += theta
        yield theta, total / n


def group_robust_regression(groups: Groups, steps: tuple[float, float], seed: int, n_rounds: int) -> Play:
    """Play exponentiated weights against the weighted least-squares answer of all rows (GR-IPO)."""
    moments = np.array([x.T @ x / len(x) for x in groups.X])
    means = np.array([0.5 * x.mean(axis=0) for x in groups.X])
    eta = steps[1] * np.sqrt(np.log(groups.n_groups) / n_rounds)
    log_weight, total = np.zeros(groups.n_groups), np.zeros(groups.n_features)
    ridge = 0.5 * groups.alpha * np.eye(groups.n_features)
    for n in range(1, n_rounds + 1):
        weight = np.exp(log_weight - np.logaddexp.reduce(log_weight))
        theta = np.linalg.solve(np.tensordot(weight, moments, 1) + ridge, weight @ means)
        log_weight = log_weight + eta * groups.risks(theta)
        total += theta
        yield theta, total / n


def _within(theta: Array, radius: float) -> Array:
    """Return the nearest points of a ball; the last axis is that of coordinates."""
    norm = np.linalg.norm(theta, axis=-1, keepdims=True)
    return theta * np.minimum(1.0, radius / np.maximum(norm, 1e-300))


@dataclass(frozen=True, eq=False)
class Descent:
    """Stochastic mirror descent for minimax excess risk: a batch of every group in each round.

    Attributes
    ----------
    radius : float
        Parameters stay in a ball of this radius.
    """

    groups: Groups
    radius: float

    def _slopes(self, x: Array, theta: Array) -> tuple[Array, Array]:
        """Return batch risks and gradients, by group; ``theta`` may differ from group to group."""
        groups = self.groups
        margin = np.einsum("gbd,gd->gb", x, np.broadcast_to(theta, (groups.n_groups, groups.n_features)))
        ridge = 0.5 * groups.alpha * (theta**2).sum(axis=-1)
        gradients = np.einsum("gbd,gb->gd", x, groups.slope(margin)) / x.shape[1] + groups.alpha * theta
        return groups.loss(margin).mean(axis=1) + ridge, gradients

    def two_stages(self, steps: tuple[float, float], seed: int, n_rounds: int) -> Play:
        """First estimate each group's least risk by descent of its own, then play against these estimates."""
        groups, rng = self.groups, np.random.default_rng(seed)
        n_first = n_rounds // 3
        eta = steps[0] * self.radius / (groups.scale * np.sqrt(n_rounds))
        own = np.zeros((groups.n_groups, groups.n_features))
        mean = np.zeros_like(own)
        nothing = np.zeros(groups.n_features)
        for _ in range(n_first):
            own = _within(own - eta * self._slopes(groups.drawn(rng), own)[1], self.radius)
            mean += own / n_first
            yield nothing, nothing
        least = np.array([groups.risks(w)[g] for g, w in enumerate(mean)])
        eta_q = steps[1] * np.sqrt(np.log(groups.n_groups) / n_rounds)
        theta, total, log_q = nothing, np.zeros_like(nothing), np.zeros(groups.n_groups)
        for n in range(1, n_rounds - n_first + 1):
            risks, gradients = self._slopes(groups.drawn(rng), theta)
            q = np.exp(log_q - np.logaddexp.reduce(log_q))
            theta = _within(theta - eta * (q @ gradients), self.radius)
            log_q = log_q + eta_q * (risks - least)
            total += theta
            yield theta, total / n

    def any_time(self, steps: tuple[float, float], seed: int, n_rounds: int) -> Play:
        """Estimate least risks and play at the same time, with steps that shrink: no number of rounds is planned."""
        groups, rng = self.groups, np.random.default_rng(seed)
        own = np.zeros((groups.n_groups, groups.n_features))
        mean_own, theta = own.copy(), np.zeros(groups.n_features)
        total, log_q, weight = np.zeros_like(theta), np.zeros(groups.n_groups), 0.0
        for n in range(1, n_rounds + 1):
            eta = steps[0] * self.radius / (groups.scale * np.sqrt(n))
            eta_q = steps[1] * np.sqrt(np.log(groups.n_groups) / n)
            x = groups.drawn(rng)
            own = _within(own - eta * self._slopes(x, own)[1], self.radius)
            weight += eta
            mean_own += eta / weight * (own - mean_own)
            risks, gradients = self._slopes(x, theta)
            q = np.exp(log_q - np.logaddexp.reduce(log_q))
            log_q = log_q + eta_q * (risks - self._slopes(x, mean_own)[0])
            theta = _within(theta - eta * (q @ gradients), self.radius)
            total += eta * theta
            yield theta, total / weight

    def variance_reduced(self, steps: tuple[float, float], seed: int, n_rounds: int, least: Array) -> Play:
        """Play mirror prox on the rows at hand, with gradients corrected by those of a snapshot (empirical MERO).

        Least risks are given: what it costs to find them is not counted.
        """
        groups, rng = self.groups, np.random.default_rng(seed)
        epoch = max(10, int(groups.sizes.mean() / BATCH))
        eta = steps[0] * self.radius / (groups.scale * np.sqrt(epoch))
        eta_q = steps[1] * np.sqrt(np.log(groups.n_groups) / epoch)
        theta, log_q = np.zeros(groups.n_features), np.zeros(groups.n_groups)
        total = np.zeros_like(theta)
        for n in range(1, n_rounds + 1):
            if (n - 1) % epoch == 0:
                anchor, anchor_risks, anchor_slopes = theta, groups.risks(theta), groups.gradients(theta)
            q = np.exp(log_q - np.logaddexp.reduce(log_q))
            ahead = _within(theta - eta * (q @ anchor_slopes), self.radius)
            ahead_q = np.exp(log_q + eta_q * (anchor_risks - least))
            ahead_q /= ahead_q.sum()
            x = groups.drawn(rng)
            (risks, slopes), (old_risks, old_slopes) = self._slopes(x, ahead), self._slopes(x, anchor)
            theta = _within(theta - eta * (ahead_q @ (slopes - old_slopes + anchor_slopes)), self.radius)
            log_q = log_q + eta_q * (risks - old_risks + anchor_risks - least)
            log_q -= np.logaddexp.reduce(log_q)
            total += theta
            yield theta, total / n


@dataclass(frozen=True)
class Trace:
    """How an iteration fared: seconds, and the lower worst score of its last and its mean point."""

    seconds: Array
    values: Array

    def at(self, seconds: float) -> float:
        """Return the value of the last look before a time; NaN before the first."""
        before = np.flatnonzero(self.seconds <= seconds)
        return float(self.values[before[-1]]) if len(before) else float("nan")

    def until(self, value: float) -> float:
        """Return the seconds until a value is reached; inf where it is not."""
        reached = np.flatnonzero(self.values <= value)
        return float(self.seconds[reached[0]]) if len(reached) else float("inf")


def traced(play: Play, value: Callable[[Array], float], n_rounds: int) -> Trace:
    """Follow an iteration, looking at it ever more rarely."""
    looks = set(np.unique(np.geomspace(1, n_rounds, 80).astype(int)).tolist())
    seconds, times, values = 0.0, [], []
    for n in range(1, n_rounds + 1):
        start = time.perf_counter()
        last, mean = next(play)
        seconds += time.perf_counter() - start
        if n in looks:
            times.append(seconds)
            values.append(min(value(last), value(mean)))
    return Trace(np.array(times), np.array(values))


@dataclass(frozen=True)
class Iteration:
    """A published method.

    Attributes
    ----------
    start : callable
        Takes the groups, our answer, step sizes, a seed and the number of rounds. From our answer it may take what its
        authors presume to be known.
    grid : tuple of pairs
        Step sizes to choose from.
    """

    start: Callable[[Groups, Proven, tuple[float, float], int, int], Play]
    grid: tuple[tuple[float, float], ...] = tuple(product(STEPS, STEPS))


def raced(name: str, groups: Groups, iterations: dict[str, Iteration], *, excess: bool, n_rounds: int) -> list[Row]:
    """Return a row for our answer, and one for each iteration with the step sizes that served it best."""
    ours = solved(groups, excess=excess)

    def value(theta: Array) -> float:
        return float((groups.risks(theta) - ours.references).max())

    rows: list[Row] = [
        {
            "problem": name,
            "method": "with a proof",
            "lower": ours.lower,
            "value": value(ours.theta),
            "start": value(np.zeros(groups.n_features)),
            "seconds": ours.seconds,
        }
    ]
    for method, iteration in iterations.items():
        found = {
            steps: traced(iteration.start(groups, ours, steps, 0, n_rounds), value, n_rounds)
            for steps in iteration.grid
        }
        best = min(found, key=lambda steps: found[steps].values[-1])
        ends = [float(trace.values[-1]) for trace in found.values()]
        trace = found[best]
        rows.append(
            {
                "problem": name,
                "method": method,
                "steps": best,
                "above": [trace.at(k * ours.seconds) - ours.lower for k in MULTIPLES] + [min(ends) - ours.lower],
                "median above": float(np.median(ends)) - ours.lower,
                "times": float(trace.seconds[-1]) / ours.seconds,
                "until 1%": trace.until(1.01 * ours.lower) / ours.seconds,
                "trace": [trace.seconds.tolist(), (trace.values - ours.lower).tolist()],
            }
        )
    return rows


def preferences(sizes: tuple[int, ...], n_features: int, seed: int) -> tuple[Array, ...]:
    """Return features of preferred answers less those of the others; groups differ in what they prefer.

    Answers have Gaussian features, and a group prefers by the Bradley-Terry model with parameters that are half common
    to all groups and half its own.
    """
    rng = np.random.default_rng(seed)
    common = rng.standard_normal(n_features)
    made = []
    for n in sizes:
        theta = common + rng.standard_normal(n_features)
        d = rng.standard_normal((n, n_features)) - rng.standard_normal((n, n_features))
        made.append(d * np.where(rng.random(n) < expit(d @ theta), 1.0, -1.0)[:, None])
    return tuple(made)


PREFERENCES = {
    "2 groups of 1,000": (1000, 1000),
    "2 groups, 1,600 and 400": (1600, 400),
    "5 groups, 200 to 3,200": (3200, 1600, 800, 400, 200),
}


GR_DPO = Iteration(lambda groups, ours, *told: group_robust_preferences(groups, *told))
GR_IPO = Iteration(lambda groups, ours, *told: group_robust_regression(groups, *told), tuple((1.0, k) for k in STEPS))


def study_preferences(name: str, n_rounds: int) -> list[Row]:
    """Part b: group-robust preference optimisation with log-linear policies."""
    sizes = PREFERENCES[name]
    X = preferences(sizes, 8, seed=len(sizes))
    options: dict[str, Any] = {"excess": False, "n_rounds": n_rounds}
    return [
        *raced(f"DPO, {name}", Groups(X), {"GR-DPO": GR_DPO}, **options),
        *raced(f"IPO, {name}", Groups(X, squared=True), {"GR-IPO": GR_IPO}, **options),
    ]


def synthetic_groups(n_groups: int = 6, n: int = 2000, n_features: int = 10, seed: int = 0) -> Groups:
    """Return groups with classifiers of their own on the unit sphere; more labels are flipped in later groups."""
    rng = np.random.default_rng(seed)
    made = []
    for kept in np.linspace(0.95, 0.7, n_groups):
        w = rng.standard_normal(n_features)
        x = rng.standard_normal((n, n_features))
        y = np.where(x @ w > 0, 1.0, -1.0) * np.where(rng.random(n) < kept, 1.0, -1.0)
        made.append(x * y[:, None])
    return Groups(tuple(made), alpha=ALPHA)


ALPHA = 1e-3


def groups_of(table: Table) -> Groups:
    """Return the groups of a table, features scaled, a column of ones among them."""
    X = StandardScaler().fit_transform(table.X)
    X = np.column_stack([X[:, X.std(axis=0) > 0.0], np.ones(len(X))])
    signed = X * np.where(table.y == 1, 1.0, -1.0)[:, None]
    return Groups(tuple(signed[table.groups == label] for label in np.unique(table.groups)), alpha=ALPHA)


def _descent(groups: Groups, ours: Proven) -> Descent:
    """Return descent in a ball that holds the answer, which nobody would know beforehand."""
    return Descent(groups, 2.0 * float(np.linalg.norm(ours.theta)))


DESCENTS = {
    "two-stage mirror descent": Iteration(lambda groups, ours, *told: _descent(groups, ours).two_stages(*told)),
    "anytime mirror descent": Iteration(lambda groups, ours, *told: _descent(groups, ours).any_time(*told)),
    "variance-reduced mirror prox": Iteration(
        lambda groups, ours, *told: _descent(groups, ours).variance_reduced(*told, ours.references)
    ),
}


def study_excess(name: str, groups: Groups, n_rounds: int) -> list[Row]:
    """Part c: minimax excess risk."""
    return raced(name, groups, DESCENTS, excess=True, n_rounds=n_rounds)
