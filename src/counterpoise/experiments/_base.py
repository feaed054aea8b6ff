"""What an experiment is: a draw of data, methods that meet the same draw, and a judge."""

from __future__ import annotations

import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from counterpoise.contexts import encode
from counterpoise.core.robustness import METHODS

Array = NDArray[np.float64]

SWITCHES: Mapping[str, Mapping[str, Any]] = {
    **{
        name: METHODS[name].switches
        for name in ("robust", "erm", "minimax-risk", "minimax-regret", "inverse-frequency")
    },
    "robust-agrawal": {"radius": "agrawal"},
    "robust-chi2": {"radius": "chi2"},
}
"""What the estimators are told for each method; inverse-frequency also weighs every context alike."""


class Row(NamedTuple):
    """One value of the results table."""

    experiment: str
    method: str
    metric: str
    run: int
    value: float


def generator(seed: int, *names: str | int) -> np.random.Generator:
    """Return a source of randomness for this purpose alone: adding another purpose moves nobody's draws."""
    keys = [name if isinstance(name, int) else zlib.crc32(name.encode()) for name in names]
    return np.random.default_rng([seed, *keys])


def balanced(contexts: NDArray[Any]) -> Array:
    """Return weights under which every context counts alike."""
    return encode(contexts).balanced(np.ones(len(contexts)))


def fitted(estimator: type, method: str, X: Any, y: Any, contexts: NDArray[Any], **parameters: Any) -> Any:
    """Return an estimator of the library, fitted as a method demands."""
    weight = balanced(contexts) if method == "inverse-frequency" else None
    return estimator(**parameters, **SWITCHES[method]).fit(X, y, contexts=contexts, sample_weight=weight)


def series(experiment: str, method: str, **metrics: Iterable[float]) -> list[Row]:
    """Return values as rows, numbered in their order; in the name of a metric a dash takes the place of ``_``."""
    return [
        Row(experiment, method, metric.replace("_", "-"), k, float(value))
        for metric, values in metrics.items()
        for k, value in enumerate(values)
    ]


def by_context(experiment: str, contexts: NDArray[np.intp], **metrics: NDArray[Any]) -> list[Row]:
    """Return values as rows, one context after the other."""
    return [
        row
        for c in range(contexts.max() + 1)
        for row in series(
            experiment, f"context-{c + 1}", **{name: values[contexts == c] for name, values in metrics.items()}
        )
    ]


@dataclass(frozen=True)
class Experiment(ABC):
    """A Monte Carlo study.

    The data of a run depend on the experiment and the run alone, so all methods meet the same draws; a method's own
    randomness is seeded by its name.
    """

    name: ClassVar[str]
    methods: ClassVar[tuple[str, ...]] = tuple(SWITCHES)

    @abstractmethod
    def sample(self, rng: np.random.Generator) -> Any:
        """Draw the data of one run."""

    @abstractmethod
    def fit(self, method: str, data: Any, rng: np.random.Generator) -> Any:
        """Return the decision of a method, made by the library."""

    @abstractmethod
    def evaluate(self, decision: Any) -> Mapping[str, float]:
        """Judge a decision by the truth; a value for each metric."""

    def run(self, number: int, seed: int) -> list[Row]:
        """Return what every method made of one draw."""
        data = self.sample(generator(seed, self.name, number))
        return [
            Row(self.name, method, metric, number, float(value))
            for method in self.methods
            for metric, value in self.evaluate(
                self.fit(method, data, generator(seed, self.name, number, method))
            ).items()
        ]

    def picture(self, seed: int) -> list[Row]:
        """Return the data of the first run, for a figure, under the name of the experiment and ``-data``."""
        return []

    def facts(self) -> list[Row]:
        """Return what does not depend on any draw, such as the least error of each context."""
        return []


@dataclass(frozen=True)
class ExcessStudy(Experiment):
    """A study whose decisions are judged by their true excess in every context: the worst, and in the true mix."""

    mix: ClassVar[Array]

    @abstractmethod
    def excess(self, decision: Any) -> Array:
        """Return what a decision loses in each context, above the least that can be lost there."""

    def evaluate(self, decision: Any) -> Mapping[str, float]:
        """Return the worst and the nominal excess."""
        excess = self.excess(decision)
        return {"worst": excess.max(), "nominal": self.mix @ excess}
