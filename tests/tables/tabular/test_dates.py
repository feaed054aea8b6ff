"""Dates become features by choice, the same whatever the file they come from."""

import datetime
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import counterpoise as cpo
from counterpoise.exceptions import InvalidInputError
from counterpoise.log_targets import LogTarget
from counterpoise.tables.reading import DataFile, read_table
from counterpoise.tables.tabular.dates import DateColumn
from counterpoise.tables.tabular.saved import SavedModel, load
from tests.tables.tabular.examples import in_memory, patients, posed, posed_file, save

N = 150
MOMENTS = pd.Timestamp("1968-12-30 23:30") + pd.to_timedelta(np.random.default_rng(2).integers(0, 30_000, N), unit="h")


def dated(when):
    return {**patients(), "when": when}


def features(column, date=None):
    data = in_memory({"when": column})
    return (date or DateColumn("when")).settled(data).features(data)


def test_parts_of_a_date_are_those_of_the_calendar():
    found = features(pa.array(MOMENTS))
    assert found["when: month"].to_pylist() == [moment.strftime("%b") for moment in MOMENTS]
    assert found["when: weekday"].to_pylist() == [moment.strftime("%a") for moment in MOMENTS]
    assert found["when: hour"].to_pylist() == [moment.strftime("%H") for moment in MOMENTS]
    days = (MOMENTS - pd.Timestamp("2000-01-01")) / pd.Timedelta(days=1)
    np.testing.assert_allclose(found["when: trend"].to_numpy(), 2000.0 + days / 365.25, rtol=1e-12)


WRITTEN = {
    "ISO": "%Y-%m-%d %H:%M:%S",
    "ISO with T and an offset": "%Y-%m-%dT%H:%M:%S+02:00",
    "ISO in UTC": "%Y-%m-%dT%H:%M:%SZ",
    "slashes and the year first": "%Y/%m/%d %H:%M",
    "the day first": "%d/%m/%Y %H:%M",
    "the month first": "%m/%d/%Y %H:%M",
    "the month first and half a day": "%m/%d/%Y %I:%M %p",
    "points": "%d.%m.%Y %H:%M",
}


@pytest.mark.parametrize("way", WRITTEN)
def test_text_is_read_as_the_clock_showed_it(tmp_path, way):
    expected = {name: column.to_pylist() for name, column in features(pa.array(MOMENTS)).items()}
    path = save(dated([moment.strftime(WRITTEN[way]) for moment in MOMENTS]), tmp_path / "patients.csv")
    data = read_table(path)
    found = DateColumn("when").settled(data).features(data)
    assert {name: column.to_pylist() for name, column in found.items()} == expected


@pytest.mark.parametrize("zone", ["Europe/Berlin", "UTC", "America/New_York"])
@pytest.mark.parametrize("unit", ["ns", "us", "s"])
def test_times_with_a_zone_are_those_of_its_clock(zone, unit):
    aware = pd.DatetimeIndex(MOMENTS).tz_localize("UTC")
    column = pa.array(aware).cast(pa.timestamp(unit, zone), safe=False)
    found = features(pa.chunked_array([column]))
    assert found["when: hour"].to_pylist() == [moment.strftime("%H") for moment in aware.tz_convert(zone)]


def test_another_zone_is_converted_to_that_of_the_fit():
    aware = pa.array(pd.DatetimeIndex(MOMENTS).tz_localize("UTC"))
    date = DateColumn("when").settled(in_memory({"when": aware.cast(pa.timestamp("ns", "Asia/Tokyo"))}))
    assert date.zone == "Asia/Tokyo"
    tokyo, utc = (features(aware.cast(pa.timestamp("ns", zone)), date) for zone in ("Asia/Tokyo", "UTC"))
    assert tokyo["when: hour"].to_pylist() == utc["when: hour"].to_pylist()


def test_missing_dates_are_missing_in_every_part():
    found = features(pa.array([MOMENTS[0].to_pydatetime(), None, MOMENTS[2].to_pydatetime()]))
    assert found["when: month"].null_count == 1
    assert np.isnan(found["when: trend"].to_numpy()).tolist() == [False, True, False]


def test_the_features_of_a_model_are_numbers_and_categories(tmp_path):
    columns = dated([None if k % 20 == 0 else moment for k, moment in enumerate(MOMENTS)])
    problems = [
        posed_file(save(columns, tmp_path / f"patients.{end}"), date=["when"]) for end in ("csv", "parquet", "arrow")
    ]
    for problem in problems:
        assert problem.columns.numbers == ("age", "weight", "when: trend")
        assert problem.columns.categories == ("blood", "when: month", "when: weekday", "when: hour")
        assert problem.columns.sources == ("age", "weight", "when", "blood")
        assert problem.X.to_pandas().equals(problems[0].X.to_pandas())
        model, _ = problem.fitted()
        assert np.isfinite(model.predict_proba(problem.X)).all()
    assert any("goes on beyond the last date" in note for note in problems[0].notes)


def test_columns_survive_being_written(tmp_path):
    problem = posed(dated(MOMENTS), date=["when=month,trend"], category=["blood"])
    model, _ = problem.fitted()
    SavedModel.of({"robust": model}, problem.columns, "ill", problem.task).write(tmp_path)
    again = load(tmp_path)
    assert again.columns == problem.columns
    assert again.columns.of(problem.data).equals(problem.X)
    expected = model.predict_proba(problem.X)[:, 1]
    np.testing.assert_allclose(again.predictions(problem.data)["probability[yes]"], expected, rtol=1e-12)


def test_frames_give_what_files_give(tmp_path):
    columns = dated([None if k % 20 == 0 else moment for k, moment in enumerate(MOMENTS)])
    problem = posed_file(
        save(columns, tmp_path / "patients.parquet"), "cost", date=["when"], category=["blood"], log_target=True
    )
    model, _ = problem.fitted()
    back = LogTarget.of(problem.task, model, problem.X, problem.y)
    SavedModel.of({"robust": model}, problem.columns, "cost", problem.task, logs={"robust": back}).write(tmp_path)
    again, expected = cpo.load(tmp_path), back.back(model.predict(problem.X))
    frame = pd.DataFrame(columns)
    assert again.feature_names_in_.tolist() == ["age", "weight", "when", "blood"]
    for own in (frame, pl.from_pandas(frame), pa.table(frame), columns, frame.astype({"when": str})):
        np.testing.assert_allclose(again.predict(own), expected, rtol=1e-12)


def test_only_the_parts_that_are_asked_for_are_made():
    problem = posed(dated(MOMENTS), date=["when=weekday"])
    assert problem.columns.dates == (DateColumn("when", ("weekday",)),)
    assert [name for name in problem.columns.features if name.startswith("when")] == ["when: weekday"]


def test_dates_without_a_time_have_no_hour():
    days = [datetime.date(2020, 1, 1) + datetime.timedelta(k) for k in range(N)]
    problem = posed(dated(days), date=["when"])
    assert [name for name in problem.columns.features if "when" in name] == [
        "when: trend",
        "when: month",
        "when: weekday",
    ]
    assert problem.columns.left_out == {}


def test_a_date_that_is_not_named_is_left_out_and_offered():
    problem = posed(dated(MOMENTS))
    assert "when" in problem.columns.left_out
    assert any(note.endswith("such as the month: --date when") for note in problem.notes)


def test_a_part_that_renames_the_context_is_left_out():
    columns = dated(MOMENTS)
    columns["season"] = [moment.strftime("%B") for moment in MOMENTS]
    problem = posed(columns, context=("season",), drop=["hospital"], date=["when"])
    assert problem.columns.left_out["when: month"] == "another name of the context"
    assert "when: weekday" in problem.columns.categories


def test_the_column_of_times_may_be_one_of_dates_too():
    problem = posed(dated(MOMENTS), date=["when"], time="when", only=["age", "when"])
    assert set(problem.columns.sources) == {"age", "when"}


def test_rows_in_another_order_give_the_same_columns():
    columns = dated([moment.strftime("%d/%m/%Y") for moment in MOMENTS])
    order = np.random.default_rng(3).permutation(N)
    shuffled = {name: np.asarray(column)[order] for name, column in columns.items()}
    assert posed(shuffled, date=["when"]).columns == posed(columns, date=["when"]).columns


def test_a_trend_is_a_straight_line_beyond_the_last_date():
    rng = np.random.default_rng(0)
    days = np.arange(400)
    when = pd.Timestamp("2020-01-01") + pd.to_timedelta(days, unit="D")
    columns = {"when": when, "place": np.array(["a", "b"])[rng.integers(0, 2, 400)], "sold": 5.0 + 0.01 * days}
    problem = posed(columns, "sold", ("place",), date=["when=trend"], alpha=0.0)
    model, _ = problem.fitted()
    later = DataFile(Path("new.parquet"), ("when",), pa.table({"when": pa.array([datetime.datetime(2023, 1, 1)])}))
    expected = 5.0 + 0.01 * (datetime.date(2023, 1, 1) - datetime.date(2020, 1, 1)).days
    np.testing.assert_allclose(model.predict(problem.columns.of(later)), expected, rtol=1e-4)


REFUSED = {
    "no date": (["2020-01-01", "yesterday"] * 75, r"'yesterday' in row 2, which cannot be read as a date"),
    "a day that is none": (["31/01/2020", "31/02/2020"] * 75, r"'31/02/2020' in row 2"),
    "two digits": (["01.02.20"] * N, "cannot be read as a date"),
    "no order": (["01/02/2020", "03/04/2020"] * 75, "the day cannot be told from the month"),
    "both orders": (["13/02/2020", "02/13/2020"] * 75, "some cells have the day first and some the month"),
    "numbers": ([20200101, 20200102] * 75, "holds numbers, not dates"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_no_date_is_refused_by_its_cell(case):
    column, message = REFUSED[case]
    with pytest.raises(InvalidInputError, match=message):
        posed(dated(column), date=["when"])


def test_unknown_parts_and_columns_are_refused():
    with pytest.raises(InvalidInputError, match="of a date the parts are month, weekday, hour, trend, not 'monht'"):
        posed(dated(MOMENTS), date=["when=monht"])
    with pytest.raises(InvalidInputError, match=r"no column 'whenn' \(--date\).*Did you mean 'when'"):
        posed(dated(MOMENTS), date=["whenn"])


@pytest.mark.parametrize("role", ["target", "context", "drop", "category"])
def test_a_column_of_dates_cannot_be_something_else_as_well(role):
    more = {"target": "when"} if role == "target" else {role: ("when",)}
    with pytest.raises(InvalidInputError, match=rf"column 'when' is both --(date|category) and --({role}|date)"):
        posed(dated(MOMENTS), date=["when"], **more)


def test_a_feature_made_of_a_date_must_not_take_the_name_of_a_column():
    with pytest.raises(InvalidInputError, match="there is a column of that name"):
        posed({**dated(MOMENTS), "when: month": range(N)}, date=["when"])
