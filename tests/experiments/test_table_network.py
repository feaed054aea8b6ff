"""A network on a table: how the table is read and split, and a run in small."""

import sys

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from counterpoise.exceptions import InvalidInputError  # noqa: E402
from counterpoise.experiments import table_network  # noqa: E402


@pytest.fixture
def file(tmp_path):
    rng = np.random.default_rng(0)
    lines = ["size,colour,shop,price,sold,id"]
    for k in range(200):
        size = "" if k % 10 == 0 else f"{rng.normal():.3f}"
        words = rng.choice(["red", "green", ""]), rng.choice(["north", "south"], p=[0.8, 0.2])
        lines.append(f"{size},{words[0]},{words[1]},{rng.normal(10, 2):.2f},{rng.choice(['yes', 'no'])},{k}")
    path = tmp_path / "shops.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


def test_numbers_are_filled_and_words_are_indicators(file):
    rows = table_network.read(file, "price", "shop", ["id", "sold"])
    assert rows.features.shape == (200, 4)
    assert np.isfinite(rows.features).all()
    assert set(np.unique(rows.features[:, 1:])) == {0.0, 1.0}
    np.testing.assert_array_equal(rows.features[:, 1:].sum(1), 1.0)
    assert rows.labels == ["north", "south"]
    assert not rows.is_classified


def test_words_are_classes_and_numbers_may_be(file):
    assert table_network.read(file, "sold", "shop", ["id"]).is_classified
    above = table_network.read(file, "size", "shop", ["id"], positive=True)
    assert above.is_classified
    assert set(above.target) == {0, 1}


def test_a_column_that_is_not_there_is_named(file):
    with pytest.raises(InvalidInputError, match="no column 'cost'; it has size"):
        table_network.read(file, "cost", "shop", [])


@pytest.mark.parametrize("target", ["price", "sold"])
def test_parts_are_disjoint_and_every_context_is_in_each(file, target):
    rows = table_network.read(file, target, "shop", [])
    task = table_network.task(3, rows, "shops")
    numbers = [part[0][:, -1] for part in (task.samples, task.held_out)]
    assert len(set(torch.cat(numbers).tolist())) == sum(map(len, numbers)) == 150
    for part, share in ((task.samples, 2), (task.held_out, 1)):
        counts = torch.bincount(part[2])
        assert counts.tolist() == pytest.approx(np.bincount(rows.contexts) * share / 4, abs=2)
    assert task.samples[0].mean(0).abs().max() < 1e-5
    found = task.judged(task.network(), np.zeros(2))
    errors = np.array([found["error-1"], found["error-2"]])
    assert found["worst-error"] == errors.max()
    assert found["mean-error"] == pytest.approx(np.bincount(rows.contexts) / 200 @ errors)


def test_the_command_prints_a_line_for_each_method(file, monkeypatch, capsys):
    asked = f"{file} --target price --context shop --drop id --seeds 1 --epochs 1 --decays 0 --methods erm held-out"
    monkeypatch.setattr(sys, "argv", ["table_network", *asked.split()])
    table_network.main()
    said = capsys.readouterr().out
    assert "200 rows in shop (north" in said
    assert [line.split()[1] for line in said.splitlines() if line.startswith("| ")] == ["method", "erm", "held-out"]
