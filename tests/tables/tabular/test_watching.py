"""New rows for a watch: contexts as the fit called them, losses where targets are known, one update per time."""

from types import SimpleNamespace

import numpy as np
import pytest

import counterpoise as cpo
from counterpoise.exceptions import InvalidInputError
from counterpoise.judging.at_fit import watch_losses
from counterpoise.judging.measures import Judged, Predicted
from counterpoise.tables.reading import open_table
from counterpoise.tables.tabular import streaming
from counterpoise.tables.tabular.table_model import TableModel
from counterpoise.tables.tabular.watching import WatchedColumns, new_rows
from tests.tables.tabular.examples import FORMATS, patients, save
from tests.tables.tabular.test_evaluating import Silent, saved_model
from tests.tables.tabular.test_task import TASKS

pytestmark = pytest.mark.filterwarnings("ignore::counterpoise.exceptions.SmallContextWarning")


@pytest.fixture(scope="module")
def model():
    return saved_model()


def read(saved, path, **columns):
    table = open_table(path)
    return new_rows(saved, table, WatchedColumns.of(saved, table, **columns), Silent())


def told(rows):
    return SimpleNamespace(**rows.update)


@pytest.mark.parametrize(
    ("task", "kind"), [*((task, "csv") for task in TASKS), *(("count", one) for one in FORMATS[1:])]
)
def test_losses_are_of_what_the_model_predicts(tmp_path, task, kind):
    saved, columns = saved_model(task), patients(80, seed=5)
    target = TASKS[task][0]
    found = read(saved, save(columns, tmp_path / f"new.{kind}"))
    model = TableModel(saved)
    if task == "classification":
        own = Predicted(model.predict_proba(columns), model.classes_)
        rows = Judged.of([str(one) for one in columns[target]], own)
    else:
        own = Predicted(model.predict(columns), quantile=float(model.quantile or 0.5))
        rows = Judged.of(columns[target], own)
    expected = watch_losses(task, rows, float(model.parameters.get("delta") or 1.35))
    np.testing.assert_allclose(found.losses, expected)
    assert (found.losses >= 0.0).all()
    np.testing.assert_array_equal(found.labels[found.contexts], columns["hospital"])


def test_without_the_target_nothing_but_contexts_is_read(model, tmp_path):
    columns = {"hospital": patients(60)["hospital"]}
    found = read(model, save(columns, tmp_path / "new.csv"))
    assert found.losses is None
    assert found.n_rows == 60


def test_a_target_that_is_named_has_to_be_there(model, tmp_path):
    columns = {name: own for name, own in patients(60).items() if name != "ill"}
    path = save({**columns, "outcome": patients(60)["ill"]}, tmp_path / "new.csv")
    assert read(model, path).losses is None
    assert np.isfinite(read(model, path, target="outcome").losses).all()
    with pytest.raises(InvalidInputError, match=r"no column 'outcom' \(--target\). Did you mean 'outcome'"):
        read(model, path, target="outcom")


def test_a_target_that_is_not_known_yet_is_missing(model, tmp_path):
    columns = patients(60)
    columns["ill"] = np.where(np.arange(60) < 20, "", columns["ill"])
    found = read(model, save(columns, tmp_path / "new.csv"))
    np.testing.assert_array_equal(np.isnan(found.losses), np.arange(60) < 20)
    assert found.notes == ("20 of 60 rows have no ill yet, and count for the mix alone",)


def test_contexts_of_other_names_are_found(model, tmp_path):
    columns = {"site": np.r_[patients(60)["hospital"], ["west"]]}
    path = save(columns, tmp_path / "new.csv")
    found = read(model, path, context=["site"])
    assert set(found.labels.tolist()) == {"north", "south", "east", "west"}
    with pytest.raises(InvalidInputError, match=r"no column 'hospital' \(--context\)"):
        read(model, path)
    with pytest.raises(InvalidInputError, match="--context names 2"):
        read(model, path, context=["site", "site"])


def test_numbers_and_pools_are_called_as_in_the_fit(tmp_path):
    columns = {**patients(), "ward": np.where(np.arange(150) < 4, 9, np.arange(150) % 3)}
    saved = saved_model(columns=columns, context=("ward",))
    found = read(saved, save({"ward": [2, 0, 7]}, tmp_path / "new.csv"))
    assert found.labels[found.contexts].tolist() == ["ward 2", "ward 0", "ward 7"]
    assert {"ward 0", "ward 2", "ward 9"} <= set(saved.contexts)


def days_of(heard):
    return [str(one) for one in np.unique(heard.time)]


def test_rows_have_their_times(model, tmp_path):
    days = [f"2024-01-{day:02d}" for day in (3, 1, 2, 3, 1, 2, 3, 1, 2)]
    columns = {"hospital": patients(9)["hospital"], "day": days}
    heard = told(read(model, save(columns, tmp_path / "new.csv"), time="day"))
    assert [str(one) for one in heard.time] == days
    assert heard.contexts.tolist() == columns["hospital"].tolist()


def test_hours_of_many_days_are_taken_day_by_day(model, tmp_path):
    hospital = patients(72)["hospital"]
    for n, expected in ((72, 3), (30, 30)):
        times = [f"2024-01-{1 + k // 24:02d} {k % 24:02d}:00" for k in range(n)]
        path = save({"hospital": hospital[:n], "when": times}, tmp_path / f"{n}.csv")
        found = days_of(told(read(model, path, time="when")))
        assert len(found) == expected
        assert found[0].startswith("2024-01-01")
        assert (found[0] == "2024-01-01") == (n == 72)


def test_numbers_are_times(model, tmp_path):
    columns = {"hospital": patients(6)["hospital"], "week": [10, 9, 10, 9, 11, 11]}
    heard = told(read(model, save(columns, tmp_path / "new.csv"), time="week"))
    assert heard.time.tolist() == columns["week"]
    assert heard.time.dtype.kind == "i"


def test_words_are_no_times(model, tmp_path):
    columns = {"hospital": patients(6)["hospital"], "when": ["now", "then"] * 3}
    with pytest.raises(InvalidInputError, match=r"'when' of new\.csv \(--time\) holds"):
        read(model, save(columns, tmp_path / "new.csv"), time="when")


def test_groups_are_told(model, tmp_path):
    columns = {"hospital": patients(40)["hospital"], "patient": np.arange(40) // 2}
    heard = told(read(model, save(columns, tmp_path / "new.csv"), group="patient"))
    assert heard.time is None
    assert len(set(heard.groups.tolist())) == 20


@pytest.mark.parametrize("time", [None, "day"])
@pytest.mark.parametrize("target", [True, False])
def test_no_rows_are_an_empty_update(model, tmp_path, time, target):
    names = (*patients(), "day") if target else ("hospital", "day")
    path = tmp_path / "new.csv"
    path.write_text(",".join(names) + "\n")
    heard = told(read(model, path, time=time, group="day"))
    assert len(heard.contexts) == len(heard.groups) == 0
    assert heard.time is None
    assert (heard.losses is not None) == target


def test_pieces_say_what_the_whole_says(model, tmp_path, monkeypatch):
    columns = {**patients(300, seed=3), "day": [f"2024-01-{1 + k % 9:02d}" for k in range(300)]}
    path = save(columns, tmp_path / "new.csv")
    whole = told(read(model, path, time="day", group="day"))
    monkeypatch.setattr(streaming, "AT_ONCE", 0.0)
    monkeypatch.setattr(streaming, "CHUNK", 2e3)
    parts = told(read(model, path, time="day", group="day"))
    assert len(days_of(whole)) == 9
    for name in ("contexts", "groups", "time"):
        assert getattr(whole, name).tolist() == getattr(parts, name).tolist()
    np.testing.assert_allclose(whole.losses, parts.losses, rtol=1e-12)


def test_crossed_contexts_and_pools_are_those_of_the_fit(tmp_path):
    columns = {**patients(300, seed=2), "ward": np.where(np.arange(300) < 150, 1, 2)}
    saved = saved_model(columns=columns, context=("hospital", "ward"))
    new = {"hospital": ["north", "west", "south"], "ward": [1, 2, 2]}
    watch = cpo.Watch(TableModel(saved)).update(**read(saved, save(new, tmp_path / "new.csv")).update)
    assert watch.unseen["context"].tolist() == [("west", "ward 2")]
    assert watch.n_rows == 3
