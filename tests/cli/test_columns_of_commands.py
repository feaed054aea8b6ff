"""What the commands can be told about columns and contexts, and what they say about both."""

import json

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from counterpoise.cli import app

N = 160

pytestmark = pytest.mark.usefixtures("few_draws")


@pytest.fixture(scope="module")
def homes(tmp_path_factory):
    rng = np.random.default_rng(3)
    x = rng.normal(size=N)
    when = pd.Timestamp("2021-01-01") + pd.to_timedelta(rng.integers(0, 900 * 24, N), unit="h")
    price = np.exp(3.0 + 0.5 * x + 0.3 * rng.normal(size=N)).round(2)
    frame = pd.DataFrame(
        {
            "x": x,
            "sold": when,
            "postcode": rng.integers(10, 16, N) * 1000 + 1,
            "city": np.r_[["hut"] * 4, np.array(["Bonn", "bonn", "Ulm"])[rng.integers(0, 3, N - 4)]],
            "price": price,
            "tax": (0.19 * price).round(2),
        }
    )
    frame.loc[5:8, "sold"] = pd.NaT
    path = tmp_path_factory.mktemp("homes") / "homes.csv"
    frame.to_csv(path, index=False)
    return path


def called(*arguments):
    return CliRunner().invoke(app, [str(one) for one in arguments])


def compare(file, *more):
    return called("compare", file, "--target", "price", "--context", "city", "--folds", 2, *more)


CHOICES = ("--drop", "tax", "--date", "sold=month,trend", "--category", "postcode", "--log-target", "--min-rows", 10)


def test_compare_says_what_is_suspicious_and_lists_contexts_and_features(homes):
    result = compare(homes, "--only", "x", "--only", "tax")
    assert result.exit_code == 0, result.stderr
    assert "\nwarning: tax alone predicts price nearly perfectly (" in result.stderr
    assert "differ only in blanks or capitals" in result.stderr
    listed = result.stdout.split("4 contexts:\n")[1]
    assert listed.splitlines()[0].split() == ["context", "rows", "share"]
    assert [line.split() for line in listed.splitlines() if line.startswith("hut")] == [["hut", "4", "2.5%"]]
    assert "Features: 2 numbers (x, tax)" in listed


def test_compare_in_json_has_counts_and_features(homes):
    result = compare(homes, *CHOICES, "--json")
    assert result.exit_code == 0, result.stderr
    told = json.loads(result.stdout)
    assert {one["context"] for one in told["counts"]} == {"Bonn", "bonn", "Ulm"}
    assert sum(one["rows"] for one in told["counts"]) == N - 4
    assert told["features"] == {"numbers": ["x", "sold: trend"], "categories": ["postcode", "sold: month"]}
    assert any("fewer than 10 rows and is left out with its 4 rows: hut 4" in note for note in told["notes"])


def test_predictions_are_in_the_unit_of_the_target(homes, tmp_path):
    result = called(
        "fit", homes, "--target", "price", "--context", "city", "--folds", 2, *CHOICES, "-o", tmp_path / "m"
    )
    assert result.exit_code == 0, result.stderr
    new = pd.read_csv(homes).drop(columns=["price", "tax", "city"])
    # Another file writes its dates another way, and has one beyond the last of the fit.
    new["sold"] = pd.to_datetime(new["sold"])
    new.loc[0, "sold"] = pd.Timestamp("2026-02-03 04:00")
    new.to_parquet(tmp_path / "new.parquet")
    new["sold"] = new["sold"].dt.strftime("%d/%m/%Y %H:%M")
    new.to_csv(tmp_path / "new.csv", index=False)
    predicted = []
    for end in ("csv", "parquet"):
        out = tmp_path / f"predicted_{end}.csv"
        result = called("predict", tmp_path / "m", tmp_path / f"new.{end}", "-o", out)
        assert result.exit_code == 0, result.stderr
        predicted.append(pd.read_csv(out)["prediction"])
    np.testing.assert_allclose(*predicted, rtol=1e-12)
    own = pd.read_csv(homes)["price"]
    assert predicted[0].mean() == pytest.approx(own.mean(), rel=0.1)
    assert np.corrcoef(np.log(predicted[0]), np.log(own))[0, 1] > 0.7


@pytest.mark.parametrize("command", ["compare", "fit", "explore"])
@pytest.mark.parametrize(
    ("more", "message"),
    [
        (("--min-rows", "0"), "--min-rows is '0'; pass a whole number"),
        (("--min-rows", "some"), "--min-rows is 'some'"),
        (("--min-rows", "30", "--pool-below", "20"), "--min-rows 30 leaves out every context that --pool-below 20"),
        (("--category", "x", "--drop", "x"), "both --category and --drop"),
        (("--date", "x"), "holds numbers, not dates"),
        (("--log-target", "--task", "count"), "--log-target is for --task regression, quantile, huber, not count"),
    ],
)
def test_what_cannot_be_is_one_line(homes, tmp_path, command, more, message):
    out = () if command == "compare" else ("-o", tmp_path / "out")
    result = called(command, homes, "--target", "price", "--context", "city", *more, *out)
    assert result.exit_code == 2
    assert message in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_stock_has_no_features(homes, tmp_path):
    stock = ("--demand", "price", "--cost", 1, "--price", 2, "--context", "city", "-o", tmp_path / "page.html")
    result = called("explore", homes, *stock, "--log-target")
    assert result.exit_code == 2
    assert "--log-target is for a model (--target)" in result.stderr
