"""The coloured digits by a network from the pixels on: its samples, its truth, and a run in small."""

import sys

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from counterpoise.experiments import coloured_mnist_cnn as cnn  # noqa: E402
from counterpoise.experiments.coloured_mnist import COLOUR_AGREES, MIX, in_contexts  # noqa: E402
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


def test_going_by_the_colour_alone_errs_as_often_as_it_misleads():
    errors, risks = cnn.judged(ByColour(), few_digits(), torch.device("cpu"))
    assert errors == pytest.approx(1.0 - COLOUR_AGREES)
    assert np.all(np.diff(risks) > 0)
    assert in_contexts(0.0, 1.0) == pytest.approx(1.0 - COLOUR_AGREES)


def test_every_method_is_judged_in_every_context_and_a_seed_repeats():
    digits = few_digits()
    options = {"n_samples": 120, "epochs": 1, "methods": ["robust", "erm"]}
    rows = cnn.run(digits, 1, **options)
    assert rows == cnn.run(digits, 1, **options)
    assert len(rows) == 2 * (2 * len(MIX) + 2)
    for method in options["methods"]:
        value = {row.metric: row.value for row in rows if row.method == method}
        errors = np.array([value[f"error-{c}"] for c in range(1, 6)])
        assert value["worst-error"] == errors.max()
        assert value["mean-error"] == pytest.approx(MIX @ errors)
    assert {row.run for row in rows} == {1}


def test_the_command_prints_a_line_for_each_method(monkeypatch, capsys):
    monkeypatch.setattr(cnn, "load_digits", lambda folder, download: few_digits())
    monkeypatch.setattr(cnn, "METHODS", {name: cnn.METHODS[name] for name in ("erm", "group-dro")})
    monkeypatch.setattr(sys, "argv", ["coloured_mnist_cnn", "--seeds", "2", "--epochs", "1"])
    cnn.main()
    head, _, *lines = capsys.readouterr().out.splitlines()
    assert head.startswith("2 seeds, 160 samples, a test")
    assert [line.split()[0] for line in lines] == ["erm", "group-dro"]
