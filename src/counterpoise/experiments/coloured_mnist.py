"""Handwritten digits, low or high, in colours whose association with the label depends on the context."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from counterpoise.estimators.linear import RobustLogisticRegression
from counterpoise.exceptions import InvalidInputError, OneContextWarning
from counterpoise.experiments._base import SWITCHES, Array, Experiment, Row, balanced, generator, series
from counterpoise.experiments.classification import Samples
from counterpoise.experiments.mnist import Digits, cached, default_cache, keep

Features = Literal["autoencoder", "pca"]

COLOUR_AGREES = np.array([0.95, 0.84, 0.72, 0.61, 0.50])
"""In each context, the probability that a low digit is red and a high one green."""

MIX = np.array([0.6, 0.1, 0.1, 0.1, 0.1])


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
        high = {"train_high": (digits.train_labels >= 5) * 1, "test_high": (digits.test_labels >= 5) * 1}
        arrays = cached(kept, ("train", "test"))
        if arrays is not None:
            return cls(train=arrays["train"], test=arrays["test"], key=name, **high)
        train, test = (_autoencoded if features == "autoencoder" else _projected)(digits, seed)
        keep(kept, train=train, test=test)
        return cls(train=train, test=test, key=name, **high)


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
class ColouredMNIST(Experiment):
    """Low or high, from four features and a colour, in five contexts, from 900 samples; excess errors are in percent.

    Every test image is judged in both colours, weighted by how probable they are: a single colouring of 10,000 images
    would move the excess of the last context by up to two points.
    """

    name: ClassVar[str] = "coloured-mnist"
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
        contexts = rng.choice(5, size=self.n_samples, p=MIX)
        images = rng.choice(len(self.encoded.train), size=self.n_samples, replace=False)
        y = self.encoded.train_high[images]
        agrees = rng.random(self.n_samples) < COLOUR_AGREES[contexts]
        red = np.where(agrees, 1 - y, y)
        return Samples(np.column_stack([self.encoded.train[images], red]), y, contexts)

    def fit(self, method: str, data: Samples, rng: np.random.Generator) -> Array:
        """Return the coefficients: of the four features and the colour, and the intercept."""
        weight = balanced(data.contexts) if method == "inverse-frequency" else None
        model = RobustLogisticRegression(**SWITCHES[method])
        model.fit(data.X, data.y, contexts=data.contexts, sample_weight=weight)
        return _rule(model)

    def evaluate(self, decision: Array) -> Mapping[str, float]:
        """Return the worst and the nominal excess error, in percent."""
        excess = 100.0 * (self._errors(decision) - self.least_errors)
        return {"worst": excess.max(), "nominal": MIX @ excess, "worst-context": float(excess.argmax() + 1)}

    def _errors(self, rule: Array) -> Array:
        """Return the error in each context, over all test images in both colours."""
        y = self.encoded.test_high
        score = self.encoded.test @ rule[:4] + rule[5]
        # Of the images in the colour that agrees with their digit (red if low), and in the other.
        wrong = [((score + rule[4] * red > 0) != y).mean() for red in (1 - y, y)]
        return np.asarray(COLOUR_AGREES * wrong[0] + (1.0 - COLOUR_AGREES) * wrong[1])

    @cached_property
    def least_errors(self) -> Array:
        """The error in each context of the model fitted to that context of the test images, in both colours."""
        y = self.encoded.test_high
        X = np.concatenate([np.column_stack([self.encoded.test, red]) for red in (1 - y, y)])
        errors = []
        for c, agrees in enumerate(COLOUR_AGREES):
            weight = np.repeat([agrees, 1.0 - agrees], len(y))
            model = RobustLogisticRegression(radius=0.0, criterion="risk", alpha=0.0)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", OneContextWarning)
                model.fit(X, np.tile(y, 2), sample_weight=weight)
            errors.append(self._errors(_rule(model))[c])
        return np.array(errors)

    def facts(self) -> list[Row]:
        """Return the least error of each context."""
        return [
            Row(self.name, f"context-{c + 1}", "least-error", 0, 100.0 * error)
            for c, error in enumerate(self.least_errors)
        ]


def coloured_digits(digits: Digits, seed: int, per_context: int = 6) -> list[Row]:
    """Return a few coloured training images of every context, pixel by pixel."""
    rng = generator(seed, ColouredMNIST.name, "picture")
    rows = []
    for c, agrees in enumerate(COLOUR_AGREES):
        for k, image in enumerate(rng.choice(len(digits.train_images), size=per_context, replace=False)):
            high = int(digits.train_labels[image] >= 5)
            red = 1 - high if rng.random() < agrees else high
            name = f"context-{c + 1}-image-{k + 1}"
            rows += series(f"{ColouredMNIST.name}-data", name, "pixel", digits.train_images[image])
            rows.append(Row(f"{ColouredMNIST.name}-data", name, "red", 0, red))
    return rows


def _rule(model: Any) -> Array:
    return np.append(model.coef_[0], model.intercept_)
