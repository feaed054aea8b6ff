"""What a fit promises: the risk of each context on held-out rows, with its standard error, in the loss of a watch."""

import json
import math

import numpy as np
import pytest
from typer.testing import CliRunner

import counterpoise as cpo
from counterpoise.cli import app
from counterpoise.judging.at_fit import fit_losses, watch_losses
from counterpoise.judging.measures import Judged, Predicted
from counterpoise.tables.tabular.card import digest
from counterpoise.tables.tabular.saved import CARD, PROMISE
from tests.tables.tabular.examples import OTHERS, patients, save

pytestmark = pytest.mark.usefixtures("few_draws")

QUICK = ("--folds", "2", "--reference", "in-sample", "--radius", "0.1", "--method", "robust")


def fitted(folder, columns, target, *more):
    """Return the model that the command makes of columns."""
    file, out = save(columns, folder / "table.csv"), folder / "model"
    drop = [word for name in OTHERS[target] for word in ("--drop", name)]
    arguments = ["fit", file, "--target", target, "--context", "hospital", "--out", out, *drop, *QUICK, *more]
    assert CliRunner().invoke(app, [str(one) for one in arguments], catch_exceptions=False).exit_code == 0
    return cpo.load(out)


def test_errors_are_of_the_size_of_rows_and_groups(tmp_path):
    one = patients(400)
    alone = fitted(tmp_path, one, "cost")
    # Losses of rows vary about as much as their mean is large: squares of normal ones by root two times as much.
    ratio = alone.held_out_errors_ * np.sqrt(alone.context_counts_) / alone.held_out_risks_
    assert ((ratio > 0.8) & (ratio < 2.5)).all()
    np.testing.assert_array_equal(alone.promised_risks_, alone.held_out_risks_)
    np.testing.assert_array_equal(alone.promised_errors_, alone.held_out_errors_)


def test_rows_of_a_group_count_together(tmp_path):
    one = patients(200)
    four = {name: np.repeat(values, 4) for name, values in one.items()}
    four["patient"] = np.repeat(np.arange(200), 4)
    (tmp_path / "rows").mkdir(), (tmp_path / "groups").mkdir()
    rows = fitted(tmp_path / "rows", four, "cost", "--drop", "patient")
    groups = fitted(tmp_path / "groups", four, "cost", "--group", "patient")
    # Four times the same row is one: errors are twice as large as of rows by themselves.
    ratio = groups.held_out_errors_ / rows.held_out_errors_
    assert (ratio > 1.8).all()


def test_counts_are_promised_in_deviance(tmp_path):
    model = fitted(tmp_path, patients(300), "days", "--task", "count")
    assert model.task == "count"
    # The loss of the fit is below zero here, as the mean is far above one.
    assert (model.held_out_risks_ < 0.0).all()
    assert (model.promised_risks_ > 0.2).all()
    assert (model.promised_risks_ < 2.0).all()
    assert (model.promised_errors_ > 0.0).all()


def test_models_of_a_logarithm_are_promised_in_the_unit_of_the_target(tmp_path):
    model = fitted(tmp_path, patients(300), "cost", "--log-target")
    assert (model.held_out_risks_ < 0.1).all()
    # Noise of ten in the unit of the target.
    assert (model.promised_risks_ > 20.0).all()
    assert (model.promised_risks_ < 300.0).all()


def test_a_context_of_one_group_has_no_error(tmp_path):
    columns = patients(200)
    columns["patient"] = np.arange(200)
    columns["patient"][columns["hospital"] == "east"] = 1000
    model = fitted(tmp_path, columns, "cost", "--group", "patient")
    east = model.contexts_.tolist().index("east")
    assert math.isnan(model.held_out_errors_[east])
    assert np.isfinite(np.delete(model.held_out_errors_, east)).all()


def test_files_without_errors_are_read(tmp_path):
    fitted(tmp_path, patients(), "cost")
    card = json.loads((tmp_path / "model" / CARD).read_text(encoding="utf-8"))
    card.pop("sha256")
    for one in card["methods"].values():
        assert [name for name in PROMISE if one.pop(name, None)] == ["held_out_errors"]
    (tmp_path / "model" / CARD).write_text(json.dumps({**card, "sha256": digest(card)}))
    again = cpo.load(tmp_path / "model")
    assert again.held_out_errors_ is again.promised_errors_ is None
    np.testing.assert_array_equal(again.promised_risks_, again.held_out_risks_)


def test_the_loss_of_a_watch_is_never_negative():
    y, mean = np.array([0.0, 1.0, 7.0, 7.0]), np.array([0.5, 2.0, 7.0, 9.0])
    rows = Judged.of(y, Predicted(mean))
    losses = watch_losses("count", rows)
    np.testing.assert_allclose(losses, [0.5, 2.0 - 1.0 - math.log(2.0), 0.0, 2.0 + 7.0 * math.log(7.0 / 9.0)])
    # It differs from that of the fit by what no prediction changes.
    other = Judged.of(y, Predicted(np.full(4, 3.0)))
    np.testing.assert_allclose(
        losses - fit_losses("count", rows), watch_losses("count", other) - fit_losses("count", other)
    )
    np.testing.assert_array_equal(watch_losses("regression", rows), fit_losses("regression", rows))
