"""Tables that do not fit into memory: the model, the columns and the notes are those of the table in memory."""

import dataclasses
import datetime
import tempfile
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from counterpoise.exceptions import CounterpoiseError, InvalidInputError
from counterpoise.rows.on_disk import BlocksOnDisk
from counterpoise.tables.reading import open_table, read_table
from counterpoise.tables.tabular import large, survey
from counterpoise.tables.tabular.columns import Columns
from counterpoise.tables.tabular.encoding import stand_in
from counterpoise.tables.tabular.fitting import pose
from counterpoise.tables.tabular.large import pose_large
from counterpoise.tables.tabular.medians import Medians
from counterpoise.tables.tabular.saved import SavedModel, load
from counterpoise.tables.tabular.seen import Moments, WordCounts
from counterpoise.tables.tabular.seen_groups import SeenGroups
from counterpoise.tables.tabular.task import pipeline
from tests.tables.tabular.examples import save

N = 1400
BUDGET = 2e6
TARGETS = ("ill", "stage", "cost", "days")
TASKS = [
    ("ill", "auto"),
    ("stage", "auto"),
    ("cost", "auto"),
    ("days", "count"),
    ("cost", "quantile"),
    ("cost", "huber"),
]


def mixed(n=N, seed=1):
    """Return columns of every kind, some of them of no use."""
    rng = np.random.default_rng(seed)
    c = rng.choice(3, n, p=[0.5, 0.3, 0.2])
    x, z = rng.normal(size=n), rng.normal(2.0, 5.0, size=n)
    steep = x * (1.0 - c) + 0.2 * (z - 2.0)
    return {
        "id": np.arange(n),
        "same": ["k"] * n,
        "age": [None if k % 7 == 0 else v for k, v in enumerate(x.round(4).tolist())],
        "z": z.round(3),
        "whole": rng.integers(0, 9, n),
        "word": [None if k % 31 == 0 else f"w{v}" for k, v in enumerate(rng.geometric(0.05, n).tolist())],
        "flag": [None if k % 50 == 0 else bool(v) for k, v in enumerate(rng.integers(0, 2, n))],
        "name": [f"person {k}" for k in range(n)],
        "day": [f"{k % 28 + 1:02}/02/2011" for k in range(n)],
        "site": np.array(["north", "south", "west"])[c],
        "code": np.array([7, 3, 5])[c],
        "ill": [None if k % 97 == 0 else w for k, w in enumerate(np.where(steep > rng.logistic(size=n), "yes", "no"))],
        "cost": (steep + rng.normal(size=n)).round(6),
        "days": rng.poisson(np.exp(0.3 * steep.clip(-3, 3))),
        "stage": np.array(["a", "b", "c"])[(steep + rng.normal(size=n) > 0).astype(int) + (steep > 1.0)],
    }


def both(path, target, task="auto", budget=BUDGET, tol=1e-6, context=("site",), drop=(), **switches):
    """Return the fit in memory and the one in chunks."""
    asked = {"task": task, "drop": [*drop, *(one for one in TARGETS if one != target)], "reference": "in-sample"}
    asked |= {"alpha": 1e-2, **switches}
    whole = pose(read_table(path), target, context, **asked)
    pieces = pose_large(open_table(path), target, context, budget, **asked)
    for problem in (whole, pieces):
        problem.model.set_params(model__tol=tol)
    return whole.fit(), pieces.fit()


def check_same(whole, pieces):
    one, two = whole.model[-1], pieces.model[-1]
    assert pieces.columns == whole.columns
    assert pieces.notes == whole.notes
    # Rows that are read in chunks cannot be held out.
    assert pieces.warned == tuple(one.replace("Use reference='cross-fit', raise", "Raise") for one in whole.warned)
    assert pieces.task == whole.task
    np.testing.assert_allclose(two.coef_, one.coef_, rtol=0, atol=1e-8)
    np.testing.assert_allclose(two.intercept_, one.intercept_, rtol=0, atol=1e-8)
    np.testing.assert_allclose(two.context_weights_, one.context_weights_, rtol=0, atol=1e-5)
    assert two.contexts_.tolist() == one.contexts_.tolist()
    assert two.context_counts_.tolist() == one.context_counts_.tolist()
    assert two.n_features_in_ == one.n_features_in_
    encoded = [fit.model[0].transform(whole.X) for fit in (whole, pieces)]
    np.testing.assert_allclose(*encoded, rtol=1e-10, atol=1e-12)
    names = [fit.model[0].get_feature_names_out().tolist() for fit in (whole, pieces)]
    assert names[0] == names[1]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tables")
    return {end: save(mixed(), folder / f"table.{end}") for end in ("parquet", "csv")}


@pytest.mark.parametrize(("target", "task"), TASKS)
def test_the_model_is_that_of_the_table_in_memory(files, target, task):
    # Some take another way to the same optimum, so they are asked for more of it.
    tol = {"ill": 1e-10, "days": 1e-10, "stage": 1e-12}.get(target, 1e-6)
    check_same(*both(files["parquet"], target, task, tol=tol))


@pytest.fixture(scope="module")
def dated(tmp_path_factory):
    """Return a table with dates, codes, a positive target, a leak, small contexts and contexts spelt alike."""
    rng = np.random.default_rng(4)
    columns = mixed()
    start = datetime.datetime(2019, 11, 20)
    columns["when"] = [
        None if k % 43 == 0 else start + datetime.timedelta(hours=int(v))
        for k, v in enumerate(rng.integers(0, 15_000, N))
    ]
    columns["post"] = rng.integers(100, 180, N)
    columns["price"] = np.exp(columns["cost"] / 5.0)
    columns["tax"] = columns["price"] * 0.19
    columns["visit_id"] = rng.permutation(N)
    columns["site"] = np.where(
        np.arange(N) % 200 == 3, "tiny", np.where(np.arange(N) % 9 == 0, "NORTH", columns["site"])
    )
    columns["blood"] = np.where(columns["site"] == "tiny", "X", np.array(["A", "B"])[rng.integers(0, 2, N)])
    columns["ward"] = rng.integers(0, 90, N)
    columns["day"] = [f"{k % 28 + 1:02}/02/2011 {k % 24:02}:30" for k in range(N)]
    del columns["code"]
    return save(columns, tmp_path_factory.mktemp("dated") / "dated.csv")


CHOICES = {"date": ["when", "day=hour"], "category": ["post"], "min_rows": 20, "log_target": True, "group": "ward"}


def test_dates_categories_logarithms_and_small_contexts_are_the_same_in_chunks(dated):
    whole, pieces = both(dated, "price", drop=["word", "age", "z", "flag"], **CHOICES)
    check_same(whole, pieces)
    assert whole.columns.numbers[-1] == "when: trend"
    assert {"post", "when: month", "when: hour", "day: hour"} <= set(whole.columns.categories)
    assert whole.target.log
    assert "tiny" not in whole.coding.labels
    assert whole.n_rows == pieces.n_rows == N
    assert str(pieces.contexts_counted) == str(whole.contexts_counted)
    said = " ".join(whole.notes)
    for words in (
        "warning: tax alone predicts price",
        "column visit_id is left out",
        "left out with its 7 rows: tiny 7",
        "column post has 80 categories",
        "'NORTH'",
    ):
        assert words in said


def test_a_csv_gives_the_same_model(files):
    check_same(*both(files["csv"], "cost"))


COUNTS = st.dictionaries(
    st.one_of(st.none(), st.text("abcxyz", min_size=1, max_size=3)), st.integers(1, 9), min_size=1, max_size=120
)


@settings(max_examples=40, deadline=None)
@given(COUNTS, st.sampled_from([0.0, 0.25, 1.0]))
def test_a_small_stand_in_gives_the_same_encoder(counts, gaps):
    words = [word for word, count in counts.items() for _ in range(count)]
    words += words[:1] * (len(words) % 4)
    n, table = len(words), stand_in({"x": gaps}, {"word": Counter(words)})
    whole = pa.table({"x": np.where(np.arange(n) < gaps * n, np.nan, 1.0), "word": pa.array(words, pa.large_string())})
    encoders = [pipeline(Columns(("x",), ("word",)), "regression")[0].fit(one) for one in (whole, table)]
    names = [encoder.get_feature_names_out().tolist() for encoder in encoders]
    assert names[0] == names[1]
    encoded = [encoder.transform(whole) for encoder in encoders]
    np.testing.assert_array_equal(*(one[:, [name.startswith("word") for name in names[0]]] for one in encoded))


def test_crossed_contexts_and_numbers_as_contexts(tmp_path):
    columns = mixed(900)
    columns["half"] = (np.arange(900) // 5) % 2
    path = save(columns, tmp_path / "t.parquet")
    check_same(*both(path, "cost", context=("code", "half"), drop=["site"]))


# --- pooled contexts -------------------------------------------------------------------------------------------------


def many_contexts(n=1200):
    """Return the columns of :func:`mixed` with contexts of all sizes, in families that span some of them."""
    columns = mixed(n)
    rng = np.random.default_rng(5)
    kind = np.minimum(rng.geometric(0.35, n), 12)
    return columns | {
        "kind": np.array([f"kind {k}" for k in range(20)])[kind],
        "number": kind * 3,
        "half": rng.integers(0, 2, n).astype(bool),
        "family": [f"f{v}" for v in np.arange(n) // 4],
    }


@pytest.mark.parametrize(
    ("end", "asked"),
    [
        ("csv", {"context": ("kind",), "pool_below": 30, "drop": ["number"]}),
        ("parquet", {"context": ("kind",), "pool_below": 30, "group": "family", "drop": ["number"]}),
        ("csv", {"context": ("number",), "pool_below": 200, "drop": ["kind"]}),
        ("parquet", {"context": ("kind", "half"), "pool_below": 25, "drop": ["number"]}),
        ("csv", {"context": ("half", "number"), "pool_below": 40, "group": "family", "drop": ["kind"]}),
        ("parquet", {"context": ("kind",), "pool_below": 2, "drop": ["number"]}),
        ("csv", {"context": ("kind",), "drop": ["number"]}),
    ],
    ids=["rows", "groups", "numbers", "crossed", "crossed groups", "nothing rare", "no pooling"],
)
def test_pooled_contexts_are_those_of_the_table_in_memory(tmp_path, end, asked):
    path = save(many_contexts(), tmp_path / f"t.{end}")
    drop = [*asked["drop"], *([] if "group" in asked else ["family"])]
    whole, pieces = both(path, "cost", tol=1e-10, budget=4e5, only=["z", "age", "word"], **{**asked, "drop": drop})
    check_same(whole, pieces)
    assert pieces.pool == whole.pool
    if asked.get("pool_below", 0) > 2:
        assert whole.pool.note in whole.notes
        assert whole.model[-1].contexts_.tolist().count(whole.pool.label) == 1
        assert set(pieces.contexts.tolist()) == set(whole.contexts.tolist())


def test_a_column_that_says_the_same_as_the_pooled_contexts_is_no_feature(tmp_path):
    columns = many_contexts()
    problem = pose(read_table(save(columns, tmp_path / "t.parquet")), "cost", ["kind"], pool_below=150, only=["z"])
    assert len(problem.pool.members) > 3
    names = {label: f"n{k}" for k, label in enumerate(sorted(set(problem.contexts.tolist())))}
    columns["told"] = [None if k % 9 == 0 else names[label] for k, label in enumerate(problem.contexts.tolist())]
    # A property of a context that two others share tells less.
    columns["less"] = np.where(columns["kind"] == "kind 1", "one", "rest")
    path = save(columns, tmp_path / "u.parquet")
    asked = {"context": ("kind",), "drop": ["family", "number", "half"]}
    for fit in both(path, "cost", pool_below=150, **asked):
        assert fit.columns.left_out["told"] == "another name of the context"
        assert "less" in fit.columns.categories
    for fit in both(path, "cost", **asked):
        assert "told" in fit.columns.categories


def test_rows_without_a_target_do_not_count_towards_a_pool(tmp_path):
    columns = many_contexts()
    lost = (columns["kind"] == "kind 2") & (np.arange(len(columns["kind"])) % 10 > 0)
    columns["cost"] = [None if one else cost for one, cost in zip(lost, columns["cost"].tolist(), strict=True)]
    path = save(columns, tmp_path / "t.parquet")
    whole, pieces = both(path, "cost", context=("kind",), pool_below=60, drop=["number", "half", "family"], tol=1e-10)
    check_same(whole, pieces)
    assert whole.pool == pieces.pool
    assert "kind 2" in whole.pool.members


def test_groups_that_are_too_many_to_count_are_said(tmp_path, monkeypatch):
    monkeypatch.setattr(survey, "SeenGroups", lambda enough, most: SeenGroups(enough, most if most == np.inf else 20))
    path = save(many_contexts(), tmp_path / "t.parquet")
    asked = {"context": ("kind",), "pool_below": 30, "group": "family", "only": ["z"]}
    whole, pieces = both(path, "cost", **asked)
    assert pieces.model[-1].contexts_.tolist() == whole.model[-1].contexts_.tolist()
    assert "contexts have too many groups to count in this memory" in pieces.notes[-1]
    assert pieces.notes[:-1] == whole.notes


def test_medians_that_take_several_rounds_are_exact(files, monkeypatch):
    monkeypatch.setattr(survey.Budget, "sampled", 4800.0)
    monkeypatch.setattr(survey.Budget, "middle", 80.0)
    whole, pieces = both(files["parquet"], "cost")
    found = [fit.model[0].named_transformers_["numbers"]["impute"].statistics_ for fit in (whole, pieces)]
    np.testing.assert_array_equal(*found)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.sampled_from([0.0, 1.0, 2.5, 1e-9, -3.0, 7.0, np.nan, 1e20]), min_size=1, max_size=60),
    st.sampled_from([1, 3, 200]),
    st.sampled_from([0.0, 80.0, 1e6]),
)
def test_a_median_is_found_in_any_column(values, n_sampled, most):
    column = np.array(values)[:, None]
    medians = Medians(["x"], 8.0 * n_sampled)
    for _ in range(20):
        if medians.are_known:
            break
        for piece in np.array_split(column, 4):
            medians.look(piece)
        medians.end_round(most)
    known = column[~np.isnan(column)]
    np.testing.assert_array_equal(medians.values, [np.median(known) if known.size else np.nan])


@settings(max_examples=40, deadline=None)
@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=40), st.integers(1, 5), st.floats(-1e9, 1e9))
def test_means_and_spreads_are_those_of_all_rows(values, n_pieces, shift):
    column = np.array(values) + shift
    seen = Moments(1)
    for piece in np.array_split(column, n_pieces):
        seen.look(piece[:, None])
    assert seen.mean[0] == pytest.approx(column.mean(), rel=1e-12, abs=1e-9)
    assert seen.spread[0] / len(column) == pytest.approx(column.var(), rel=1e-6, abs=1e-6)
    assert (seen.n_rows, seen.n[0]) == (len(column), len(column))


def test_the_most_frequent_of_too_many_words_are_counted():
    rng = np.random.default_rng(0)
    counts = WordCounts(1000)
    for _ in range(40):
        words = [*(f"rare {k}" for k in rng.integers(0, 10**9, 500)), *["often"] * 100, *["sometimes"] * 30]
        counts.look(pa.chunked_array([pa.array(words, pa.large_string())]))
    assert not counts.are_all
    assert counts.distinct == pytest.approx(20_002, rel=0.02)
    assert {word: counts.counts[word] for word in ("often", "sometimes")} == {"often": 4000, "sometimes": 1200}
    assert len(counts.counts) <= 1000


def test_a_saved_model_predicts_the_same(files, tmp_path):
    whole, pieces = both(files["csv"], "ill", tol=1e-10, drop=["word"])
    saved = []
    for name, fit in (("whole", whole), ("pieces", pieces)):
        (tmp_path / name).mkdir()
        SavedModel.of({"robust": fit.model}, fit.columns, "ill", fit.task).write(tmp_path / name)
        saved.append(load(tmp_path / name).predictions(read_table(files["csv"])))
    assert saved[0]["prediction"].tolist() == saved[1]["prediction"].tolist()
    np.testing.assert_allclose(saved[0]["probability[yes]"], saved[1]["probability[yes]"], atol=1e-8)


def test_the_sample_is_rows_of_the_table(files, monkeypatch):
    monkeypatch.setattr(survey.Budget, "report_rows", lambda self, width: 300)
    whole, pieces = both(files["parquet"], "cost", group="name")
    assert pieces.n_fitted == N
    assert len(pieces.y) == len(set(pieces.groups.tolist())) == 300
    rows = np.array([int(name.split()[1]) for name in pieces.groups])
    assert np.all(np.diff(rows) > 0)
    np.testing.assert_array_equal(pieces.y, whole.y[rows])
    assert pieces.contexts.tolist() == whole.contexts[rows].tolist()
    assert pieces.X.to_pylist()[:5] == whole.X.take(rows).to_pylist()[:5]


# --- what is refused, and what is left behind ------------------------------------------------------------------------


def refused(columns, tmp_path, target="cost", error=InvalidInputError, **options):
    path = save(columns, tmp_path / "t.parquet")
    with pytest.raises(error) as caught:
        pose_large(open_table(path), target, ["site"], 2e5, **{"reference": "in-sample", **options}).fit()
    return str(caught.value)


def test_cells_that_are_wrong_are_named(tmp_path):
    columns = mixed(600)
    costs = columns["cost"].copy()
    costs[417] = np.inf
    assert "row 418 holds inf" in refused({**columns, "cost": costs}, tmp_path)
    z = columns["z"].copy()
    z[500] = 1e200
    assert "holds 1e+200 in row 501" in refused({**columns, "z": z}, tmp_path)
    days = columns["days"].copy()
    days[300] = -1
    said = refused({**columns, "days": days}, tmp_path, "days", task="count")
    assert "-1 in row 301" in said
    sites = columns["site"].tolist()
    sites[222] = None
    assert "is empty in row 223" in refused({**columns, "site": sites}, tmp_path)


def test_a_number_that_is_too_large_does_not_matter_where_it_is_no_feature(tmp_path):
    columns = mixed(600)
    path = save({**columns, "huge": np.where(columns["site"] == "west", 1e200, 1.0)}, tmp_path / "t.parquet")
    asked = {"reference": "in-sample", "only": ["z"]}
    assert pose_large(open_table(path), "cost", ["site"], 2e5, **asked).columns.features == ("z",)


def test_what_cannot_be_is_refused_before_rows_are_read(files, monkeypatch):
    monkeypatch.setattr(large, "Survey", None)
    table = open_table(files["parquet"])
    with pytest.raises(InvalidInputError, match="cross-fit needs all rows in memory"):
        pose_large(table, "cost", ["site"], 1e6, reference="cross-fit")
    with pytest.raises(InvalidInputError, match="--reference shrunk needs all rows in memory"):
        pose_large(table, "cost", ["site"], 1e6, reference="shrunk")
    with pytest.raises(InvalidInputError, match=r"--adjust standard-error needs all rows in memory.* --adjust 1"):
        pose_large(table, "cost", ["site"], 1e6, adjust="standard-error")
    with pytest.raises(InvalidInputError, match="confidence is 2"):
        pose_large(table, "cost", ["site"], 1e6, reference="in-sample", confidence=2)
    with pytest.raises(InvalidInputError, match="alpha"):
        pose_large(table, "cost", ["site"], 1e6, reference="in-sample", alpha=-1.0)
    with pytest.raises(InvalidInputError, match="--task is 'x'"):
        pose_large(table, "cost", ["site"], 1e6, reference="in-sample", task="x")


@pytest.mark.parametrize("error", [KeyboardInterrupt, InvalidInputError("no")])
def test_nothing_is_left_behind(files, tmp_path, monkeypatch, error):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    problem = pose_large(open_table(files["parquet"]), "cost", ["site"], BUDGET, reference="in-sample")
    written = []

    def interrupted(self, block):
        written.append(list(Path(tmp_path).iterdir()))
        raise error

    monkeypatch.setattr(BlocksOnDisk, "append", interrupted)
    with pytest.raises(error if isinstance(error, type) else type(error)):
        problem.fit()
    assert written[0]
    assert not list(tmp_path.iterdir())


def test_a_full_disk_is_told_with_what_is_needed(files, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    problem = pose_large(open_table(files["parquet"]), "cost", ["site"], BUDGET, reference="in-sample")

    def full(self, block):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(BlocksOnDisk, "append", full)
        with pytest.raises(CounterpoiseError, match=r"the rows take .* in .* which is full\. Make room there"):
            problem.fit()
    usage = dataclasses.make_dataclass("Usage", ["free"])
    monkeypatch.setattr(large.shutil, "disk_usage", lambda path: usage(1000))
    with pytest.raises(CounterpoiseError, match=r"where 1 kB are free"):
        problem.fit()
    assert not list(tmp_path.iterdir())
