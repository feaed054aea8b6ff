"""The coloured digits by a network from the pixels on: its samples, its truth, and a run in small."""

import dataclasses
import itertools
import sys

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from counterpoise.experiments import coloured_mnist_cnn as cnn  # noqa: E402
from counterpoise.experiments import networks  # noqa: E402
from counterpoise.experiments.coloured_mnist import MIX  # noqa: E402
from counterpoise.experiments.mnist import Digits  # noqa: E402


def few_digits(n_train=160, n_test=30):
    rng = np.random.default_rng(0)
    images = [rng.integers(0, 256, (n, 784)).astype(np.uint8) for n in (n_train, n_test)]
    labels = [rng.integers(0, 10, n).astype(np.uint8) for n in (n_train, n_test)]
    return Digits(images[0], labels[0], images[1], labels[1], source="a test")


class ByColour(torch.nn.Module):
    """Calls a red digit low."""

    def forward(self, images):
        red, green = images.sum(dim=(2, 3)).T
        return torch.stack([red, green], dim=1)


def test_an_image_is_in_one_of_two_channels():
    images = np.arange(2 * 784, dtype=np.uint8).reshape(2, 784)
    red, green = cnn.coloured(images, [1, 0])
    assert torch.equal(red[0], torch.as_tensor(images[0] / 255.0, dtype=torch.float32).reshape(28, 28))
    assert torch.equal(green[1], torch.as_tensor(images[1] / 255.0, dtype=torch.float32).reshape(28, 28))
    assert not red[1].any()
    assert not green[0].any()


class ByShape(torch.nn.Module):
    """Knows every digit, by its first pixel: test images of high ones are marked there."""

    def forward(self, images):
        high = (images[:, :, 0, 0].sum(1) > 0.5).float()
        return torch.stack([1.0 - high, high], dim=1)


def marked_digits():
    digits = few_digits()
    digits.test_images[:, 0] = np.where(digits.test_labels >= 5, 255, 0)
    return digits


@pytest.mark.parametrize("setting", cnn.SETTINGS)
def test_going_by_the_colour_alone_errs_as_often_as_it_misleads(setting):
    of = cnn.SETTINGS[setting]
    errors, risks = cnn.judged(ByColour(), few_digits(), of)
    assert errors == pytest.approx(1.0 - of.agrees)
    assert np.all(np.diff(risks) > 0)


@pytest.mark.parametrize("setting", cnn.SETTINGS)
def test_going_by_the_shape_alone_errs_as_often_as_labels_are_wrong(setting):
    of = cnn.SETTINGS[setting]
    errors, _ = cnn.judged(ByShape(), marked_digits(), of)
    assert errors == pytest.approx(np.full(len(of.mix), of.noise))
    assert (errors >= of.least_errors - 1e-12).all()


def test_least_risks_are_those_of_the_true_probabilities():
    of = cnn.SETTINGS["misleading"]
    rng = np.random.default_rng(0)
    labels = np.where(rng.random(400_000) < of.noise, 0, 1)  # Every digit is high.
    for agrees, least in zip(of.agrees, of.least_risks, strict=True):
        green = np.where(rng.random(len(labels)) < agrees, labels, 1 - labels)
        colour = np.where(green == 1, agrees / (1 - agrees), (1 - agrees) / agrees)
        odds = (1 - of.noise) / of.noise * colour
        given = np.where(labels == 1, odds, 1.0) / (1.0 + odds)
        assert -np.log(given).mean() == pytest.approx(least, abs=0.005)
    assert cnn.SETTINGS["paper"].least_risks == pytest.approx(0.0)


def test_samples_are_drawn_as_the_setting_says():
    of = cnn.SETTINGS["misleading"]
    high = np.random.default_rng(0).integers(2, size=60_000)
    contexts, images, labels, red = cnn.drawn(high, of, 60_000, np.random.default_rng(1))
    assert len(set(images)) == 60_000
    assert np.bincount(contexts) / 60_000 == pytest.approx(of.mix, abs=0.01)
    assert (labels != high[images]).mean() == pytest.approx(of.noise, abs=0.01)
    agrees = [(red == 1 - labels)[contexts == c].mean() for c in range(5)]
    assert agrees == pytest.approx(of.agrees, abs=0.03)


def test_every_method_is_judged_in_every_context_and_a_seed_repeats():
    task = cnn.task(1, few_digits(), "paper", 120)
    budget = networks.Budget(epochs=1, decays=(1e-3,))
    rows = networks.run(task, 1, budget)
    assert {row.method for row in rows} == {"references", *networks.METHODS}
    for method, name in itertools.product(networks.METHODS, (task.name, networks.SPLIT.format(task.name))):
        value = {row.metric: row.value for row in rows if (row.method, row.experiment) == (method, name)}
        errors = np.array([value[f"error-{c}"] for c in range(1, 6)])
        assert value["worst-error"] == errors.max()
        assert value["mean-error"] == pytest.approx(MIX @ errors)
    some = networks.run(task, 1, budget, ["held-out", "erm"])
    assert set(some) <= set(rows) | {row for row in some if np.isnan(row.value)}


def test_the_decay_of_the_least_worst_case_is_chosen(monkeypatch):
    monkeypatch.setattr(networks, "references", lambda *_: np.full(5, 0.1))
    # By risk: errors of so few samples are often equal.
    task = dataclasses.replace(cnn.task(1, few_digits(), "paper", 120), judged_by=None)
    one, other, both = (
        next(row.value for row in networks.run(task, 1, networks.Budget(2, decays), ["erm"]) if row.metric == "score")
        for decays in ((0.0,), (3.0,), (0.0, 3.0))
    )
    assert both == min(one, other) < max(one, other)


def test_a_method_that_is_not_known_is_named():
    with pytest.raises(ValueError, match="'best' is none of"):
        networks.run(cnn.task(1, few_digits(), "paper", 120), 1, networks.Budget(1), ["best"])


def test_the_command_prints_a_line_for_each_method(monkeypatch, capsys):
    monkeypatch.setattr(cnn, "load_digits", lambda folder, download: few_digits())
    asked = "--seeds 2 --epochs 1 --decays 0.001 --setting paper --methods erm group-dro"
    monkeypatch.setattr(sys, "argv", ["coloured_mnist_cnn", *asked.split()])
    cnn.main()
    said = capsys.readouterr().out
    assert "paper: 2 seeds, 160 samples, 1 epochs, a test" in said
    # One table of networks that have learnt all samples, one of those before.
    table = ["method", "erm", "group-dro"]
    assert [line.split()[1] for line in said.splitlines() if line.startswith("| ")] == 2 * table
