"""Labels that are dates, in whatever way they are written."""

import datetime

import numpy as np
import pytest

from counterpoise.contexts import objects
from counterpoise.times import as_times

ZONE = datetime.timezone(datetime.timedelta(hours=2))


@pytest.mark.parametrize(
    "labels",
    [
        ["2024-01-02", "2024-11-30"],
        ["2024/1/2", "2024/11/30"],
        ["2/1/2024", "30/11/2024"],
        ["1/2/2024", "11/30/2024"],
        ["2.1.2024", "30.11.2024"],
        [datetime.date(2024, 1, 2), datetime.date(2024, 11, 30)],
    ],
)
def test_dates_are_read(labels):
    assert as_times(objects(labels)).astype("M8[D]").tolist() == [
        datetime.date(2024, 1, 2),
        datetime.date(2024, 11, 30),
    ]


def test_times_of_day_are_read():
    expected = np.array(["2024-01-02T23:30", "2024-01-13T01:05:09"], dtype="M8[us]")
    for labels in (["2024-01-02 23:30", "2024-01-13T01:05:09"], ["2/1/2024 23:30:00", "13/1/2024 1:05:09"]):
        assert as_times(np.array(labels)).tolist() == expected.tolist()
    aware = [datetime.datetime(2024, 1, 3, 1, 30, tzinfo=ZONE), datetime.datetime(2024, 1, 13, 3, 5, 9, tzinfo=ZONE)]
    assert as_times(objects(aware)).tolist() == expected.tolist()


@pytest.mark.parametrize(
    "labels",
    [
        [],
        ["2024-01-02", "soon"],
        ["2024-01-02", 3],
        [1, 2, 3],
        ["1/2/2024", "3/4/2024"],
        ["31/2/2024", "1/2/2024"],
        ["31/12/2024", "12/31/2024"],
        ["2024-13-01"],
        [datetime.datetime(2024, 1, 1), datetime.datetime(2024, 1, 1, tzinfo=ZONE)],
    ],
)
def test_what_is_no_date_or_may_be_two_is_none(labels):
    assert as_times(objects(labels)) is None


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (["2023-01-01T10:00:00Z", "2023-01-01 11:00:00.250Z"], ["2023-01-01T10:00", "2023-01-01T11:00"]),
        (["2023-01-01T10:00:00+01:00", "2023-01-01T10:00-0330"], ["2023-01-01T09:00", "2023-01-01T13:30"]),
        (["2023-01", "2022-12"], ["2023-01-01", "2022-12-01"]),
    ],
)
def test_zones_fractions_and_months_are_understood(written, expected):
    np.testing.assert_array_equal(as_times(np.array(written)), np.array(expected, dtype="M8[us]"))


@pytest.mark.parametrize("written", [["2023-01-01T10:00Z", "2023-01-01T10:00"], ["2023-01", "2023-01-05"], ["2023.5"]])
def test_clocks_with_and_without_a_zone_months_and_days_and_numbers_do_not_mix(written):
    assert as_times(np.array(written)) is None
