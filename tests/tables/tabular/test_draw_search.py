"""What sizes the set of a table: groups, times, numbers; and what is said where none of them is named."""

import datetime

import numpy as np
import pytest

import counterpoise as cpo
from counterpoise.exceptions import InvalidInputError
from counterpoise.tables.reading import open_table
from counterpoise.tables.tabular import seen_draws
from counterpoise.tables.tabular.large import pose_large
from counterpoise.tables.tabular.seen_draws import RowOrder, SeenGroupCounts
from tests.tables.tabular.examples import posed, posed_file, save

N_DAYS, N_ROWS = 120, 6


def weather(seed=0, stays=0.6):
    """Return hourly rows whose weather is that of the day, which may stay."""
    rng = np.random.default_rng(seed)
    own = rng.choice(3, N_DAYS, p=[0.5, 0.3, 0.2])
    for day in range(1, N_DAYS):
        if rng.random() < stays:
            own[day] = own[day - 1]
    day = np.repeat(np.arange(N_DAYS), N_ROWS)
    start = datetime.date(2023, 11, 20)
    return {
        "hires": rng.normal(size=len(day)).round(3),
        "warm": rng.normal(size=len(day)).round(3),
        "weather": np.array(["clear", "mist", "rain"])[own[day]],
        "day": day,
        "date": [(start + datetime.timedelta(days=int(one))).strftime("%d/%m/%Y") for one in day],
    }


COLUMNS = weather()
ORDERED = cpo.effective_draws(COLUMNS["weather"], COLUMNS["day"], ordered=True)


def found(columns=COLUMNS, **options):
    return posed(columns, "hires", ("weather",), **options)


def about_draws(problem):
    return [note for note in problem.notes if "draw" in note]


@pytest.mark.parametrize(
    "named", [{"group": "day"}, {"time": "day"}, {"time": "date"}, {"group": "day", "time": "date"}]
)
def test_groups_and_times_size_the_set_and_it_is_said(named):
    problem = found(**named)
    assert problem.model[-1].draws == pytest.approx(ORDERED, rel=1e-3)
    (note,) = about_draws(problem)
    where = "in 120 groups of day" if "group" in named else f"at 120 times ({named['time']})"
    assert note.startswith(f"720 rows {where} are worth about {ORDERED:.2g} draws of weather")
    assert "with a standard error of" in note
    assert not {"day", "date"} & (set(problem.columns.features) & set(named.values()))


def test_a_number_of_draws_and_the_word_rows_win():
    assert found(group="day", draws=17.0).model[-1].draws == 17.0
    every = found(group="day", draws="rows")
    assert every.model[-1].draws is None
    assert about_draws(every) == []


def test_a_set_of_a_given_size_is_not_sized_again():
    for given in ({"radius": 0.1}, {"confidence": 1.0}):
        problem = found(group="day", **given)
        assert problem.model[-1].draws is None
        assert about_draws(problem) == []


def test_groups_are_in_the_order_of_their_times(tmp_path):
    columns = dict(COLUMNS)
    names = np.random.default_rng(1).permutation(N_DAYS)
    columns["trip"] = np.array([f"trip {k}" for k in names])[columns["day"]]
    assert found(columns, group="trip").model[-1].draws > 2 * ORDERED
    assert found(columns, group="trip", time="date").model[-1].draws == pytest.approx(ORDERED, rel=1e-3)


def test_text_files_say_the_same_as_typed_ones(tmp_path):
    # '10' is after '9' as a number, and before it as text.
    problem = posed_file(save(COLUMNS, tmp_path / "hours.csv"), "hires", ("weather",), group="day")
    assert problem.model[-1].draws == pytest.approx(ORDERED, rel=1e-3)


def test_chunks_say_the_same_as_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(seen_draws, "_WAITING", 10)
    path = save(COLUMNS, tmp_path / "hours.csv")
    for named in ({"group": "day"}, {"time": "date"}, {"group": "day", "time": "date"}, {}):
        large = pose_large(open_table(path), "hires", ["weather"], 2e6, **named)
        assert large.notes == posed_file(path, "hires", ("weather",), **named).notes
        assert large.model[-1].draws == found(**named).model[-1].draws


def test_pooled_contexts_are_drawn_together():
    columns = dict(COLUMNS)
    columns["weather"] = columns["weather"].copy()
    columns["weather"][5::200] = "hail"
    columns["weather"][7::300] = "snow"
    problem = found(columns, group="day", pool_below=10)
    left = cpo.effective_draws(problem.contexts, columns["day"], ordered=True)
    assert problem.model[-1].draws == pytest.approx(left, rel=1e-3)


def test_too_many_groups_for_the_memory_are_said():
    seen = SeenGroupCounts(most=5)
    seen.look(np.zeros(8, dtype=np.intp), list(range(8)), np.arange(8))
    assert seen.draws(np.zeros(1, dtype=np.intp)) is None


@pytest.mark.parametrize(
    ("cells", "words"),
    [("later", "holds 'later'"), ("", "is empty"), ("2024-01-05", "mixes ways of writing a time")],
)
def test_a_time_that_is_none_is_named(tmp_path, cells, words):
    columns = dict(COLUMNS, date=[*COLUMNS["date"][:-1], cells])
    path = save(columns, tmp_path / "hours.csv")
    with pytest.raises(InvalidInputError, match=rf"column 'date' of hours.csv \(--time\) {words}"):
        posed_file(path, "hires", ("weather",), time="date")


# --- doubts ----------------------------------------------------------------------------------------------------------


def test_a_column_of_dates_raises_a_doubt():
    (note,) = about_draws(found())
    assert note.startswith("every row counts as a draw of weather, and the set may be too small: in the order of date")
    assert f"worth about {ORDERED:.2g}," in note
    assert "--time date" in note


def test_long_runs_raise_a_doubt_and_shuffled_rows_none():
    columns = {name: COLUMNS[name] for name in ("hires", "warm", "weather")}
    (note,) = about_draws(found(columns))
    assert "neighbouring rows share it" in note
    order = np.random.default_rng(2).permutation(N_DAYS * N_ROWS)
    assert about_draws(found({name: values[order] for name, values in columns.items()})) == []
    assert about_draws(found(columns, draws="rows")) == []


def test_a_table_sorted_by_context_raises_none():
    columns = {name: COLUMNS[name] for name in ("hires", "warm", "weather")}
    order = np.argsort(columns["weather"], kind="stable")
    assert about_draws(found({name: values[order] for name, values in columns.items()})) == []
    # Part by part, and sorted within each.
    columns["weather"] = np.random.default_rng(5).permutation(columns["weather"])
    order = np.lexsort([columns["weather"], np.arange(720) // 36])
    assert about_draws(found({name: values[order] for name, values in columns.items()})) == []


def test_runs_of_independent_rows_are_seldom_doubted():
    rng, doubts = np.random.default_rng(3), 0
    for n_contexts in (2, 3, 10):
        for _ in range(100):
            order = RowOrder()
            order.look(rng.choice(n_contexts, 300))
            doubts += order.draws(np.arange(n_contexts)) is not None
    assert doubts == 0


def test_pieces_of_rows_are_one_order():
    codes = np.repeat(np.random.default_rng(4).choice(3, 3000), 4)
    whole, parts = RowOrder(), RowOrder()
    whole.look(codes)
    for piece in np.array_split(codes, 11):
        parts.look(piece)
    (longer, draws), (again, others) = (order.draws(np.arange(3)) for order in (whole, parts))
    assert longer == again
    assert draws == others
    assert draws.effective == pytest.approx(3000, rel=0.5)
