"""The study of the following year: what it uses comes from the first one, and it runs."""

import sys
from pathlib import Path

import numpy as np
import pytest

import counterpoise as cpo


@pytest.fixture
def study(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    import later_year

    yield later_year
    sys.modules.pop("later_year")


@pytest.fixture
def two(study):
    """The losses of the plain method and of minimax regret on the made-up years."""
    years = study.toy()
    kept = ("plain", "minimax regret")
    models = {name: study.fitted(years, study.methods(years)[name]) for name in kept}
    return study.judged(years, models, 1.0)


def test_bounds_hold_every_mix_that_they_come_from(study):
    past = study.toy().past
    mixes = cpo.Mix(bounds=study.bounds(past, "M"), ball=None).over(["dry", "rain"], [1, 1])
    months = study.shares(past, "M", ["dry", "rain"]).to_numpy()
    assert len(months) == 12
    assert all(mixes.contains(month) for month in months)


def test_only_the_census_knows_the_later_year(study):
    years = study.toy()
    changed = years.rows.copy()
    later = changed["day"].dt.year == 2022
    changed.loc[later, "context"] = "rain"
    moved = study.Years(changed, years.numbers, years.categories, 2021)
    known, told = study.methods(years), study.methods(moved)
    assert {name for name in known if known[name] != told[name]} == {study.CENSUS}


def test_the_mean_over_months_is_that_of_their_mixes(two):
    judged = two
    worst, _ = judged.month("minimax regret")
    own = (judged.losses["minimax regret"] - judged.least)[judged.known]
    by_context = {label: own[judged.contexts[judged.known] == label].mean() for label in judged.months.columns}
    expected = judged.months.to_numpy() @ np.array([by_context[label] for label in judged.months.columns])
    np.testing.assert_allclose(worst.by_context["excess"], expected, rtol=1e-9)


def test_made_up_years_give_a_row_for_each_method(study, capsys):
    assert study.main(["--toy"]) == 0
    out = capsys.readouterr().out
    for name in study.methods(study.toy()):
        assert out.count(f"\n| {name} |") == 3


def test_tables_that_do_not_exist_are_refused(study, capsys, tmp_path):
    with pytest.raises(SystemExit, match="2"):
        study.main([str(tmp_path), "candy"])
    assert "bakery-2017" in capsys.readouterr().err
