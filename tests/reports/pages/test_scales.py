import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from counterpoise.reports.pages.scales import Flag, extent, labels, number, spread, stagger, ticks

any_float = st.floats(allow_nan=True, allow_infinity=True)


@given(any_float, any_float)
def test_ticks_are_round_even_and_cover(low, high):
    found = ticks(low, high)
    least, most = extent((low, high))
    assert 2 <= len(found) <= 6
    step = found[1] - found[0]
    assert found[0] <= least + 1e-5 * step
    assert found[-1] >= most - 1e-5 * step
    np.testing.assert_allclose(np.diff(found), step, rtol=1e-6)
    digits = float(f"{step:.6e}".split("e")[0])
    assert any(math.isclose(digits, round_one, rel_tol=1e-5) for round_one in (1, 2, 5, 10))


@given(st.floats(-1e12, 1e12), st.floats(-1e12, 1e12))
def test_tick_labels_differ_and_are_short(low, high):
    words = labels(ticks(low, high))
    assert len(set(words)) == len(words)
    assert max(map(len, words)) <= 17


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0.0, 1.0, ["0", "0.2", "0.4", "0.6", "0.8", "1.0"]),
        (0.0, 9_600.0, ["0", "2000", "4000", "6000", "8000", "10\u202f000"]),
        (-3.0, 4.0, ["−4", "−2", "0", "2", "4"]),
        (0.0, 3.1e9, ["0", "1\u202fbn", "2\u202fbn", "3\u202fbn", "4\u202fbn"]),
        (0.0, 4.9e6, ["0", "1\u202fM", "2\u202fM", "3\u202fM", "4\u202fM", "5\u202fM"]),
        (0.0, 2e-9, ["0", "0.5×10⁻⁹", "1.0×10⁻⁹", "1.5×10⁻⁹", "2.0×10⁻⁹"]),
        (5.0, 5.0, ["4.5", "5.0", "5.5"]),
        (0.0, 0.0, ["0", "0.2", "0.4", "0.6", "0.8", "1.0"]),
    ],
)
def test_ticks_in_words(low, high, expected):
    assert labels(ticks(low, high)) == expected


def test_ticks_are_the_nearest_floats():
    assert ticks(0.0, 0.5) == [float(Fraction(k, 10)) for k in range(6)]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (3.2, "3.2"),
        (0.0, "0"),
        (-0.01234, "−0.0123"),
        (999.96, "1000"),
        (0.99996, "1"),
        (12345.6, "12\u202f346"),
        (1.25e6, "1.25\u202fM"),
        (-7e9, "−7\u202fbn"),
        (1.5e-7, "1.5×10⁻⁷"),
        (float("nan"), "–"),
        (float("-inf"), "−∞"),
        (5e-324, "0"),
        (1.7e308, "1.7×10³⁰⁸"),
    ],
)
def test_numbers_are_written_short(value, expected):
    assert number(value) == expected


@given(any_float)
def test_every_number_can_be_written(value):
    assert 1 <= len(number(value)) <= 20


@given(st.lists(st.floats(0.0, 100.0), max_size=12))
def test_spread_keeps_order_gaps_and_bounds(wanted):
    places = np.array(spread(wanted, 16.0, 0.0, 100.0))
    gap = min(16.0, 100.0 / max(len(wanted) - 1, 1))
    order = np.argsort(wanted, kind="stable")
    assert np.all(np.diff(places[order]) >= gap - 1e-9)
    assert np.all((places >= -1e-9) & (places <= 100.0 + 1e-9))


def test_spread_leaves_alone_what_is_apart():
    np.testing.assert_allclose(spread([80.0, 10.0, 40.0], 16.0, 0.0, 100.0), [80.0, 10.0, 40.0])


flags = st.lists(
    st.tuples(st.floats(0, 400), st.floats(5, 150), st.booleans()).map(
        lambda t: Flag(t[0], t[0] + 4, t[0] + 4 + t[1]) if t[2] else Flag(t[0], t[0] - 4 - t[1], t[0] - 4)
    ),
    max_size=7,
)


@given(flags)
def test_staggered_labels_never_meet(placed):
    rows = stagger(placed)
    for i, a in enumerate(placed):
        for j, b in enumerate(placed[:i]):
            assert rows[i] != rows[j] or a.end < b.start or b.end < a.start


def reaches_over(a, b):
    # With the room that is left between a label and a line.
    return a.start - 3.0 <= b.at <= a.end + 3.0


@given(flags)
def test_lines_cross_no_label_unless_two_reach_over_each_other(placed):
    rows = stagger(placed)
    if any(reaches_over(a, b) and reaches_over(b, a) for a in placed for b in placed if a is not b):
        return
    for i, a in enumerate(placed):
        for j, b in enumerate(placed):
            assert i == j or rows[i] > rows[j] or not reaches_over(a, b)


def test_labels_are_as_low_as_they_can_be():
    placed = [Flag(x, x + 4, x + 90) for x in (10.0, 12.0, 60.0, 300.0)]
    assert stagger(placed) == [2, 1, 0, 0]
    assert stagger(placed[::-1]) == [0, 0, 1, 2]
