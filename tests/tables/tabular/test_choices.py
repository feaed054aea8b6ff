"""What is chosen about columns and contexts: categories, logarithms, the least rows; and what is said about both."""

import numpy as np
import pandas as pd
import pytest

from counterpoise.exceptions import InvalidInputError
from counterpoise.log_targets import LogTarget
from counterpoise.tables.known_mix import KnownMix
from counterpoise.tables.tabular.labels import alike
from tests.tables.tabular.examples import FORMATS, in_memory, patients, posed, posed_file, save

N = 150


def cycle(*values):
    return (list(values) * N)[:N]


# --- categories ------------------------------------------------------------------------------------------------------


def test_numbers_become_categories_by_choice_in_every_format(tmp_path):
    columns = {**patients(), "ward": cycle(3, 10, 7), "score": pd.array(cycle(1, None, 2), dtype="Int64")}
    for end in FORMATS:
        problem = posed_file(save(columns, tmp_path / f"patients.{end}"), category=["ward", "score"])
        assert problem.columns.categories == ("blood", "ward", "score")
        assert problem.columns.coded == ("ward", "score")
        assert problem.X["ward"].to_pylist()[:3] == ["3", "10", "7"]
        assert problem.X["score"].to_pylist()[:3] == ["1", None, "2"]


def test_a_code_is_the_same_category_however_its_file_writes_it(tmp_path):
    columns = {**patients(), "code": cycle("07", "11", "B2")}
    problem = posed_file(save(columns, tmp_path / "patients.csv"), category=["code"])
    for others in (["07", "11"], [7, 11], [7.0, 11.0], ["7", "B2"]):
        data = in_memory({**patients(), "code": cycle(*others)})
        assert set(problem.columns.of(data, ["code"])["code"].to_pylist()) <= {"7", "11", "B2"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"category": ["ill"]}, "both --category and --target. Pass --task classification"),
        ({"category": ["hospital"]}, "both --category and --context"),
        ({"category": ["age"], "drop": ["age"]}, "both --category and --drop"),
        ({"category": ["blood"], "group": "blood"}, "both --category and --group"),
        ({"category": ["age"], "only": ["blood"]}, "is not among --only. Add --only age"),
        ({"category": ["blood", "blood"]}, "named twice by --category"),
        ({"category": ["aeg"]}, r"no column 'aeg' \(--category\)"),
    ],
)
def test_contradictory_roles_are_refused(options, message):
    with pytest.raises(InvalidInputError, match=message):
        posed(patients(), **options)


def test_a_category_that_differs_in_most_rows_is_refused():
    with pytest.raises(InvalidInputError, match="column 'age' cannot be a feature: it is different in most rows"):
        posed(patients(), category=["age"])


def test_categories_beyond_the_limit_are_said_with_their_rows():
    town = np.r_[np.arange(60), np.arange(60), np.arange(30)]
    problem = posed({**patients(), "town": [f"t{k}" for k in town]})
    (said,) = [note for note in problem.notes if "town" in note]
    assert said == (
        "column town has 60 categories: the 49 most frequent are told apart, and the other 11 (22 rows) share one"
    )
    encoder = problem.fitted()[0][0].named_transformers_["categories"]
    shared = encoder.infrequent_categories_[problem.columns.categories.index("town")]
    assert len(shared) == 11
    assert not any("town" in note for note in posed({**patients(), "town": [f"t{k % 49}" for k in range(N)]}).notes)


# --- logarithms ------------------------------------------------------------------------------------------------------


def priced(n=4000, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=n)
    return {
        "x": x,
        "city": np.array(["a", "b"])[rng.integers(0, 2, n)],
        "price": np.exp(1.0 + 0.5 * x + 0.8 * rng.normal(size=n)),
    }


def test_the_mean_of_a_lognormal_target_is_predicted():
    columns = priced()
    problem = posed(columns, "price", ("city",), log_target=True)
    assert problem.target.log
    assert problem.task == "regression"
    np.testing.assert_allclose(problem.y, np.log(columns["price"]))
    model, _ = problem.fitted()
    back = LogTarget.of(problem.task, model, problem.X, problem.y)
    # The mean of exp(e) is exp(.8^2 / 2); its standard error is about 2% here.
    np.testing.assert_allclose(back.factor, np.exp(0.32), rtol=0.06)
    truth = np.exp(1.0 + 0.5 * columns["x"] + 0.32)
    np.testing.assert_allclose(back.back(model.predict(problem.X)), truth, rtol=0.25)
    np.testing.assert_allclose(back.back(model.predict(problem.X)).mean(), columns["price"].mean(), rtol=0.03)


def test_a_quantile_passes_through_the_exponential():
    columns = priced(1500)
    problem = posed(columns, "price", ("city",), task="quantile", quantile=0.8, log_target=True)
    model, _ = problem.fitted()
    back = LogTarget.of(problem.task, model, problem.X, problem.y)
    assert back.factor == 1.0
    assert np.mean(columns["price"] <= back.back(model.predict(problem.X))) == pytest.approx(0.8, abs=0.02)


def test_a_target_without_logarithm_is_refused_by_its_row():
    columns = priced(100)
    columns["price"][[4, 7]] = 0.0, -2.0
    with pytest.raises(InvalidInputError, match=r"has 0 in row 5 \(and 1 more such cell\); --log-target needs numbers"):
        posed(columns, "price", ("city",), log_target=True)


@pytest.mark.parametrize(("target", "task"), [("ill", "auto"), ("ill", "classification"), ("days", "count")])
def test_classes_and_counts_have_no_logarithm(target, task):
    with pytest.raises(InvalidInputError, match="--log-target"):
        posed(patients(), target, task=task, log_target=True)


# --- contexts --------------------------------------------------------------------------------------------------------


def test_contexts_with_fewer_rows_are_left_out_with_their_rows():
    columns = patients()
    columns["hospital"] = np.r_[["tiny"] * 3, columns["hospital"][3:]]
    counts = dict(zip(*np.unique(columns["hospital"], return_counts=True), strict=True))
    problem = posed(columns, min_rows=4)
    assert set(problem.contexts) == {"north", "south", "east"}
    assert len(problem.y) == problem.X.num_rows == problem.n_kept == N - 3
    assert problem.n_rows == N
    assert "1 context has fewer than 4 rows and is left out with its 3 rows: tiny 3" in problem.notes
    table = problem.contexts_counted
    assert {row["context"]: row["rows"] for row in table.rows()} == {k: v for k, v in counts.items() if k != "tiny"}
    assert table["share"].sum() == pytest.approx(1.0)


def test_leaving_contexts_out_is_as_if_their_rows_were_not_there():
    columns = {**patients(), "town": cycle("x", "y", "z", None), "when": pd.date_range("2020-01-01", periods=N)}
    rare = np.arange(N) % 40 == 0
    columns["hospital"] = np.where(rare, "tiny", columns["hospital"])
    # Their rows alone have a class and a category of their own.
    columns["ill"] = np.where(rare, "unknown", columns["ill"])
    columns["blood"] = np.where(rare, "X", columns["blood"])
    without = {name: np.asarray(column, dtype=object)[~rare] for name, column in columns.items()}
    one, two = posed(columns, min_rows=5, date=["when"]), posed(without, date=["when"])
    assert one.columns == two.columns
    assert one.X.equals(two.X)
    assert one.target.classes.tolist() == ["no", "yes"]
    models = [problem.fitted()[0] for problem in (one, two)]
    np.testing.assert_array_equal(models[0][-1].coef_, models[1][-1].coef_)


def test_with_groups_groups_are_counted():
    columns = patients()
    columns["hospital"] = np.r_[["tiny"] * 6, columns["hospital"][6:]]
    columns["family"] = np.r_[[0] * 6, np.arange(6, N)]
    problem = posed(columns, min_rows=2, group="family")
    assert "1 context has fewer than 2 groups and is left out with its 6 rows: tiny 1" in problem.notes
    assert problem.groups.shape == problem.y.shape
    table = problem.contexts_counted
    assert table["groups"].tolist() == table["rows"].tolist()


def test_groups_of_a_pool_count_once():
    columns = patients()
    columns["family"] = np.arange(N) % 10
    columns["hospital"] = np.where(np.arange(N) % 10 == 1, "w", np.where(np.arange(N) % 10 == 2, "v", "big"))
    columns["hospital"][:2] = "u", "v"
    table = posed(columns, pool_below=3, group="family").contexts_counted
    assert dict(zip(table["context"].tolist(), table["groups"].tolist(), strict=True)) == {"big": 8, "v + u + w": 3}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"min_rows": 30, "pool_below": 20}, "--min-rows 30 leaves out every context that --pool-below 20 would pool"),
        ({"min_rows": 1000}, r"--min-rows 1000 leaves no context \(counts: north"),
        ({"min_rows": 80}, r"--min-rows 80 leaves a single context .* Choose a limit of at most \d+"),
    ],
)
def test_limits_that_leave_nothing_are_refused(options, message):
    with pytest.raises(InvalidInputError, match=message):
        posed(patients(), **options)


def test_another_table_may_count_what_is_left_out(tmp_path):
    columns = patients()
    columns["hospital"] = np.r_[["tiny"] * 3, columns["hospital"][3:]]
    census = save({"hospital": ["north", "south", "east", "tiny"], "count": [50, 30, 10, 900]}, tmp_path / "census.csv")
    known = KnownMix.of(None, census, "kl", ["hospital"], None)
    problem = posed(columns, min_rows=4, known_mix=known)
    assert problem.mix.counts == {"north": 50.0, "south": 30.0, "east": 10.0}
    census.write_text(census.read_text().replace("tiny", "elsewhere"))
    known = KnownMix.of(None, census, "kl", ["hospital"], None)
    with pytest.raises(InvalidInputError, match="counts elsewhere, of which the data have no rows"):
        posed(columns, min_rows=4, known_mix=known)


def test_small_contexts_are_left_out_and_others_pooled():
    columns = patients(400)
    columns["hospital"] = np.array(["big"] * 340 + ["a"] * 30 + ["b"] * 27 + ["tiny"] * 3)
    problem = posed(columns, min_rows=5, pool_below=40)
    assert dict(zip(*np.unique(problem.contexts, return_counts=True), strict=True)) == {"a + b": 57, "big": 340}


def test_a_cell_that_is_wrong_is_named_by_its_row_in_the_file(tmp_path):
    columns = {**patients(), "rate": ["1.5"] * N}
    columns["hospital"] = np.r_[["tiny"] * 3, columns["hospital"][3:]]
    columns["rate"][9] = "1e80"
    columns["rate"][10] = "2"
    with pytest.raises(InvalidInputError, match="in row 11"):
        posed_file(save(columns, tmp_path / "patients.csv"), min_rows=4)


def test_contexts_that_are_spelt_alike_are_pointed_out():
    labels = np.array(["North", "north ", "NORTH", "south", "north  west", "North West"], dtype=object)
    (said,) = alike(labels, np.array([210, 35, 4, 90, 5, 6]))
    assert "'North' 210, 'north ' 35, 'NORTH' 4; 'North West' 6, 'north  west' 5" in said
    assert said.endswith("write them alike")
    assert alike(labels[:1], np.array([210])) == []
    crossed = np.empty(2, dtype=object)
    crossed[:] = [("North", "a"), ("north", "A")]
    assert "'North' x 'a' 2, 'north' x 'A' 1" in alike(crossed, np.array([2, 1]))[0]


def test_a_table_says_which_contexts_are_spelt_alike():
    columns = patients()
    columns["hospital"] = np.where(np.arange(N) % 9 == 0, np.char.upper(columns["hospital"]), columns["hospital"])
    assert any("differ only in blanks or capitals" in note for note in posed(columns).notes)
    assert not any("differ only" in note for note in posed(patients()).notes)


def test_many_contexts_are_listed_by_the_largest_and_the_smallest():
    columns = patients(600)
    columns["hospital"] = np.repeat([f"h{k:02}" for k in range(24)], 25)
    columns["hospital"][:24] = "h23"
    said = posed(columns).described
    assert said.startswith("24 contexts, of which these are the 10 largest and the 10 smallest:")
    assert "h00" in said
    assert len([line for line in said.splitlines() if line.startswith("h")]) == 20
    assert said.endswith("Features: 2 numbers (age, weight); 1 category (blood)")
