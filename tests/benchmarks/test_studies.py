"""Studies that are run by hand, in small, so that none rots."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import counterpoise as cpo

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def study(monkeypatch):
    """Import a study by name."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return __import__


def test_coverage_prints_its_tables(study, capsys):
    assert study("coverage").main(["--toy"]) == 0
    out = capsys.readouterr().out
    for words in ("ties | 3 | 30", "percentile bootstrap", "peak, another peak", "Bonferroni", "one model for all"):
        assert words in out
    assert "nan" not in out


def test_the_truth_of_a_comparison_is_that_of_the_models_of_its_folds(study):
    coverage = study("coverage")
    missed = np.mean([coverage.compared_of("a rare context differs", run) for run in range(6)], axis=0)
    # Six runs rarely miss at all; a truth of other models would be missed by the interval of their difference.
    assert missed[:5].max() <= 2 / 6
    assert missed[7] >= 0.5


def test_coverage_says_which_studies_there_are(study, capsys):
    with pytest.raises(SystemExit):
        study("coverage").main(["magic"])
    assert "bounds, differences, power, compare" in capsys.readouterr().err


def test_real_tables_prints_a_row_for_each_method(study, monkeypatch, capsys, tmp_path):
    real_tables = study("real_tables")
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.standard_normal((120, 2)), columns=["a", "b"])
    site = np.repeat(["north", "south"], 60)
    y = X["a"].to_numpy() + rng.standard_normal(120)
    model = cpo.RobustLinearRegression(reference="cross-fit")
    monkeypatch.setattr(real_tables, "STUDIES", {"small": lambda folder: real_tables.Study(X, y, site, model)})
    assert real_tables.main([str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert out.count("| small |") == 5
    assert "worst plausible mix on" in out
    assert real_tables.main([]) == 2


def test_a_backtest_prints_a_row_for_each_method(study, capsys):
    backtest = study("stock_backtest")
    rng = np.random.default_rng(0)
    day = pd.date_range("2024-01-01", periods=200)
    rows = pd.DataFrame(
        {"day": day, "demand": rng.poisson(20.0, 200).astype(float), "surcharge": 0.0, "problem": "all"}
    )
    rows["context"] = np.where(rng.uniform(size=200) < 0.3, "rain", "dry")
    study_ = backtest.Study(rows, (0.4,), unit="day", rows_per_unit=1, window=84, salvage=0.0)
    lines = backtest.report(backtest.backtest(study_, 0.4, 4), "day")
    assert [line.split(" | ")[0] for line in lines[2:-2]] == [
        f"| {name}" for name in [*backtest.METHODS, "context known"]
    ]
    assert lines[-1].startswith("better than robust in worst excess")
