"""Handwritten digits, low or high, in colours whose association with the label depends on the context."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from counterpoise.estimators.linear import RobustLogisticRegression
from counterpoise.exceptions import InvalidInputError
from counterpoise.experiments._base import Array, ExcessStudy, Row, by_context, fitted, generator, series
from counterpoise.experiments.classification import Samples, line
from counterpoise.experiments.mnist import Digits, cached, default_cache, keep

Features = Literal["autoencoder", "pca"]

COLOUR_AGREES = np.array([0.95, 0.84, 0.72, 0.61, 0.50])
"""In each context, the probability that a low digit is red and a high one green."""

MIX = np.array([0.6, 0.1, 0.1, 0.1, 0.1])


def is_high(labels: NDArray[np.uint8]) -> NDArray[np.intp]:
    """Return 1 for the digits 5 to 9, and 0 for the others."""
    return (labels >= 5) * 1


def drawn(
    high: NDArray[np.intp], n_samples: int, rng: np.random.Generator
) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.intp]]:
    """Draw contexts, images, each at most once, and whether these are red."""
    contexts = rng.choice(len(MIX), size=n_samples, p=MIX)
    images = rng.choice(len(high), size=n_samples, replace=False)
    agrees = rng.random(n_samples) < COLOUR_AGREES[contexts]
    return contexts, images, np.where(agrees, 1 - high[images], high[images])


def in_contexts(agreeing: float, other: float) -> Array:
    """Return the mean of something in each context, from those over images whose colour agrees and does not."""
    return np.asarray(COLOUR_AGREES * agreeing + (1.0 - COLOUR_AGREES) * other)


@dataclass(frozen=True, eq=False)
class Encoded:
    """Four numbers for each image, and whether the digit is high."""

    train: Array
    train_high: NDArray[np.intp]
    test: Array
    test_high: NDArray[np.intp]
    key: str

    @classmethod
    def of(cls, digits: Digits, features: Features, seed: int = 0, cache: Path | None = None) -> Encoded:
        """Learn the features on the training images, once: they are kept in the cache."""
        key = hashlib.sha256(digits.train_images.tobytes() + digits.test_images.tobytes()).hexdigest()[:12]
        name = f"{features}-{seed}-{key}"
        kept = (default_cache() if cache is None else cache) / f"{name}.npz"
        arrays = cached(kept, ("train", "test"))
        if arrays is None:
            train, test = (_autoencoded if features == "autoencoder" else _projected)(digits, seed)
            arrays = {"train": train, "test": test}
            keep(kept, **arrays)
        return cls(arrays["train"], is_high(digits.train_labels), arrays["test"], is_high(digits.test_labels), name)


def _autoencoded(digits: Digits, seed: int) -> tuple[Array, Array]:
    """Return the four values in the middle of a small network that learns to repeat its input."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.neural_network import MLPRegressor

    train, test = digits.train_images / 255.0, digits.test_images / 255.0
    # As many steps as five passes over the complete set.
    epochs = max(5, round(5 * 60_000 / len(train)))
    network = MLPRegressor(hidden_layer_sizes=(128, 4, 128), activation="tanh", max_iter=epochs, random_state=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        network.fit(train, train)

    def middle(images: Array) -> Array:
        for weight, shift in zip(network.coefs_[:2], network.intercepts_[:2], strict=True):
            images = np.tanh(images @ weight + shift)
        return np.asarray(images, dtype=np.float64)

    return middle(train), middle(test)


def _projected(digits: Digits, seed: int) -> tuple[Array, Array]:
    """Return the four principal components."""
    from sklearn.decomposition import PCA

    model = PCA(4, svd_solver="covariance_eigh").fit(digits.train_images / 255.0)
    return model.transform(digits.train_images / 255.0), model.transform(digits.test_images / 255.0)


@dataclass(frozen=True)
class ColouredMNIST(ExcessStudy):
    """Low or high, from four features and a colour, in five contexts, from 900 samples; excess errors are in percent.

    Every test image is judged in both colours, weighted by how probable they are: a single colouring of 10,000 images
    would move the excess of the last context by up to two points.
    """

    name: ClassVar[str] = "coloured-mnist"
    mix: ClassVar[Array] = MIX
    encoded: Encoded
    n_samples: int = 900

    def __repr__(self) -> str:
        return f"ColouredMNIST({self.encoded.key}, n_samples={self.n_samples})"

    def sample(self, rng: np.random.Generator) -> Samples:
        """Draw contexts, training images and colours."""
        if len(self.encoded.train) < self.n_samples:
            raise InvalidInputError(
                f"there are {len(self.encoded.train)} training images; the experiment draws {self.n_samples} without "
                "replacement. Name the complete set with --mnist."
            )
        contexts, images, red = drawn(self.encoded.train_high, self.n_samples, rng)
        return Samples(np.column_stack([self.encoded.train[images], red]), self.encoded.train_high[images], contexts)

    def fit(self, method: str, data: Samples, rng: np.random.Generator) -> Array:
        """Return the coefficients: of the four features and the colour, and the intercept."""
        return line(fitted(RobustLogisticRegression, method, *data))

    def excess(self, decision: Array) -> Array:
        """Return the excess error in each context, in percent."""
        return 100.0 * (self._errors(decision) - self.least_errors)

    def evaluate(self, decision: Array) -> Mapping[str, float]:
        """Return the worst and the nominal excess error, and where the worst is."""
        return {**super().evaluate(decision), "worst-context": float(self.excess(decision).argmax() + 1)}

    def _errors(self, rule: Array) -> Array:
        """Return the error in each context, over all test images in both colours."""
        y = self.encoded.test_high
        score = self.encoded.test @ rule[:4] + rule[5]
        # Of the images in the colour that agrees with their digit (red if low), and in the other.
        return in_contexts(*(((score + rule[4] * red > 0) != y).mean() for red in (1 - y, y)))

    @cached_property
    def least_errors(self) -> Array:
        """The error in each context of the model fitted to that context of the test images, in both colours."""
        y = self.encoded.test_high
        X = np.concatenate([np.column_stack([self.encoded.test, red]) for red in (1 - y, y)])
        errors = []
        for c, agrees in enumerate(COLOUR_AGREES):
            weight = np.repeat([agrees, 1.0 - agrees], len(y))
            model = RobustLogisticRegression(radius=0.0, criterion="risk", alpha=0.0)
            model.fit(X, np.tile(y, 2), contexts=np.full(len(X), c), sample_weight=weight)
            errors.append(self._errors(line(model))[c])
        return np.array(errors)

    def facts(self) -> list[Row]:
        """Return the least error of each context."""
        return by_context(self.name, np.arange(len(MIX)), least_error=100.0 * self.least_errors)


def coloured_digits(digits: Digits, seed: int, per_context: int = 6) -> list[Row]:
    """Return a few coloured training images of every context, pixel by pixel."""
    rng = generator(seed, ColouredMNIST.name, "picture")
    rows = []
    for c, agrees in enumerate(COLOUR_AGREES):
        for k, image in enumerate(rng.choice(len(digits.train_images), size=per_context, replace=False)):
            high = int(is_high(digits.train_labels[image]))
            red = 1 - high if rng.random() < agrees else high
            name = f"context-{c + 1}-image-{k + 1}"
            rows += series(f"{ColouredMNIST.name}-data", name, pixel=digits.train_images[image], red=[red])
    return rows
