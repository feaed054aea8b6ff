"""Names and colours of methods: one vocabulary, and colours that every reader can tell apart."""

from itertools import combinations

import numpy as np
import pytest

from counterpoise.judging.comparison import BASELINES
from counterpoise.reports.methods import COLOURS, MODELS, WORDS
from counterpoise.reports.pages.svg import contrast

# Machado, Oliveira and Fernandes (2009), severity 1, on linear RGB.
VISIONS = {
    "normal": np.eye(3),
    "protanopia": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "deuteranopia": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
    "tritanopia": np.array(
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]]
    ),
}
TO_XYZ = np.array(
    [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]]
)
WHITE = np.array([0.95047, 1.0, 1.08883])


def linear(colour):
    channels = np.array([int(colour[k : k + 2], 16) for k in (1, 3, 5)]) / 255.0
    return np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)


def lab(rgb):
    t = TO_XYZ @ np.clip(rgb, 0.0, 1.0) / WHITE
    f = np.where(t > (6 / 29) ** 3, np.cbrt(t), t / (3 * (6 / 29) ** 2) + 4 / 29)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.mark.parametrize("vision", VISIONS)
def test_methods_have_colours_that_every_reader_can_tell_apart(vision):
    seen = {name: lab(VISIONS[vision] @ linear(COLOURS[name])) for name in BASELINES}
    for a, b in combinations(seen, 2):
        assert np.linalg.norm(seen[a] - seen[b]) >= 30.0, (a, b)


def test_colours_of_methods_can_be_read_as_text():
    assert all(contrast(COLOURS[name]) >= 4.5 for name in BASELINES)


def test_methods_are_named_as_python_names_them():
    assert list(WORDS) == list(BASELINES)
    assert all(name == words for name, words in WORDS.items())
    assert set(MODELS) == set(BASELINES)
    assert len(set(MODELS.values())) == len(MODELS)
