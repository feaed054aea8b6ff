"""Models on disk: what is read predicts what was written, and what nobody of ours wrote is refused by name."""

import builtins
import json
import math
import os
import pickle
import subprocess
import sys
import warnings
from pathlib import Path

import joblib
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from counterpoise.exceptions import InvalidInputError
from counterpoise.tables.reading import DataFile
from counterpoise.tables.tabular import saved as saved_module
from counterpoise.tables.tabular.card import digest
from counterpoise.tables.tabular.columns import MOST_CATEGORIES
from counterpoise.tables.tabular.model_folder import as_method
from counterpoise.tables.tabular.saved import CARD, FILES, SavedModel, load
from tests.tables.tabular.examples import in_memory, patients, posed, save
from tests.tables.tabular.test_task import TASKS


def fitted(task="classification", columns=None, **options):
    """Return a pipeline and the model that is kept of it."""
    target, switches, _ = TASKS[task]
    problem = posed(columns or patients(), target, task=task, **switches, **options)
    pipeline = problem.fitted()[0]
    return pipeline, SavedModel.of({"robust": pipeline}, problem.columns, target, task)


def saved_model(*args, **options):
    return fitted(*args, **options)[1]


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    saved_model().write(folder)
    return folder


@pytest.fixture
def folder(written, tmp_path):
    """Return a copy of a model, to be damaged."""
    copy = tmp_path / "model"
    copy.mkdir()
    (copy / CARD).write_bytes((written / CARD).read_bytes())
    return copy


def refusal(folder):
    with pytest.raises(InvalidInputError) as caught:
        load(folder).predictions(in_memory(patients()))
    return str(caught.value)


def card_of(folder):
    return json.loads((folder / CARD).read_text(encoding="utf-8"))


def put(folder, card):
    """Write a card whose digest is right."""
    card = {name: value for name, value in card.items() if name != "sha256"}
    (folder / CARD).write_text(json.dumps({**card, "sha256": digest(card)}))


@pytest.mark.parametrize("task", TASKS)
def test_what_is_read_predicts_what_was_written(tmp_path, task):
    saved = saved_model(task)
    saved.write(tmp_path)
    again = load(tmp_path)
    for name in ("columns", "preprocessing", "target", "task", "classes", "contexts", "method", "pooled"):
        assert getattr(again, name) == getattr(saved, name)
    data = in_memory(patients(seed=4))
    before, after = saved.predictions(data), again.predictions(data)
    assert list(before) == list(after)
    for name, values in before.items():
        np.testing.assert_array_equal(after[name], values)


def test_all_that_a_fit_found_is_kept(tmp_path):
    problem = posed(patients(), confidence=1.0)
    robust = problem.fitted()[0]
    own = as_method(problem.model, "erm", problem.contexts)
    erm = own.fit(problem.X, problem.y, model__contexts=problem.contexts)
    risks = {"erm": [0.5, math.inf, math.nan]}
    pooled = {"label": "a + b", "rows": 3}
    models = {"robust": robust, "erm": erm}
    saved = SavedModel.of(
        models, problem.columns, "ill", "classification", method="erm", pooled=pooled, held_out_risks=risks
    )
    saved.write(tmp_path)
    again = load(tmp_path)
    assert (again.method, again.pooled, list(again.methods)) == ("erm", pooled, ["robust", "erm"])
    assert again.contexts == tuple(robust[-1].contexts_.tolist())
    np.testing.assert_array_equal(again.context_counts, robust[-1].context_counts_)
    for name, model in models.items():
        kept, own = again.methods[name], model[-1]
        for one in ("coef", "intercept", "context_weights", "context_risks", "reference_risks", "excess_risks"):
            np.testing.assert_array_equal(getattr(kept, one), getattr(own, f"{one}_"))
        np.testing.assert_array_equal([kept.radius, kept.draws], [own.radius_, own.draws_])
        assert kept.certificate["upper"] == own.certificate_.upper
        assert kept.parameters == {**own.get_params(deep=False), "mix": None}
    # Every mix: the size of the set is infinite, which JSON has no number for.
    assert again.methods["robust"].radius == math.inf
    np.testing.assert_array_equal(again.methods["erm"].held_out_risks, risks["erm"])
    assert again.methods["robust"].held_out_risks is None


def test_influence_of_contexts_is_kept_unless_there_are_many(tmp_path, monkeypatch):
    pipeline, saved = fitted()
    assert pipeline[-1].context_influence_.shape == (3, 3)
    saved.write(tmp_path)
    np.testing.assert_array_equal(load(tmp_path).methods["robust"].context_influence, pipeline[-1].context_influence_)
    monkeypatch.setattr(saved_module, "_MOST_INFLUENCES", 2)
    many = fitted()[1]
    many.write(tmp_path)
    assert many.methods["robust"].context_influence is None
    assert load(tmp_path).methods["robust"].context_influence is None


def test_files_of_earlier_versions_have_no_influence_of_contexts(folder):
    card = card_of(folder)
    del card["methods"]["robust"]["context_influence"]
    put(folder, card)
    assert load(folder).methods["robust"].context_influence is None


def test_models_of_different_rows_are_not_kept_together():
    columns = {**patients(), "age": patients(seed=1)["age"]}
    models = {"robust": fitted()[0], "erm": fitted(columns=columns)[0]}
    with pytest.raises(InvalidInputError, match="fitted to different rows"):
        SavedModel.of(models, saved_model().columns, "ill", "classification")


@pytest.mark.parametrize("labels", [["1 ward", ("a", 2)], [True, False], [("x", None), ("x", 1.5)]])
def test_labels_of_any_kind_come_back(folder, labels):
    import datetime

    from counterpoise.tables.tabular.card import Part, plain_json

    labels = [*labels, datetime.date(2024, 2, 29), datetime.datetime(2024, 2, 29, 12, 30)]
    again = [Part(json.loads(json.dumps(plain_json(one)))).python for one in labels]
    assert again == labels
    assert list(map(type, again)) == list(map(type, labels))


def test_the_file_is_readable(written):
    card = card_of(written)
    assert [path.name for path in written.iterdir()] == [CARD]
    assert CARD in FILES
    assert (card["format"], card["target"], card["task"], card["classes"]) == (
        2,
        "ill",
        "classification",
        ["no", "yes"],
    )
    assert card["features"] == ["age", "weight", "blood=0", "blood=A", "blood=B"]
    assert len(card["methods"]["robust"]["coef"][0]) == 5


def test_nothing_is_unpickled_and_nothing_is_run(written, monkeypatch):
    def refuse(*args, **kwargs):
        raise AssertionError("run")

    for module, name in ((pickle, "load"), (pickle, "loads"), (pickle, "Unpickler"), (joblib, "load"), (os, "system")):
        monkeypatch.setattr(module, name, refuse)
    monkeypatch.setattr(builtins, "eval", refuse)
    monkeypatch.setattr(builtins, "exec", refuse)
    load(written)


# --- the same numbers as the pipeline --------------------------------------------------------------------------------


def assert_alike(pipeline, saved, data):
    """Assert that what is kept predicts what the pipeline predicts of the same table."""
    X = saved.columns.of(data)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Found unknown categories")
        if saved.classes is None:
            expected = {"prediction": pipeline.predict(X)}
        else:
            columns = pipeline.predict_proba(X).T
            expected = {f"probability[{name}]": own for name, own in zip(pipeline.classes_, columns, strict=True)}
    found = saved.predictions(data)
    for name, values in expected.items():
        np.testing.assert_allclose(found[name], values, rtol=1e-12, atol=1e-12)
    if saved.classes is not None:
        assert set(found) == {*expected, "prediction"}


def with_gaps(n=160, seed=0):
    """Return a table with every kind of gap: numbers with, without and of nothing but gaps, rare and missing words."""
    rng, columns = np.random.default_rng(seed), patients(n, seed)
    columns["age"] = [None if one < 0.2 else age for one, age in zip(rng.random(n), columns["age"], strict=True)]
    columns["noisy"] = np.where(rng.random(n) < 0.3, np.nan, rng.normal(size=n))
    columns["blood"] = [None if one < 0.1 else word for one, word in zip(rng.random(n), columns["blood"], strict=True)]
    columns["town"] = [f"town {k}" for k in rng.geometric(0.08, n)]
    columns["code"] = rng.choice([7, 8, 30], n)
    columns["smoker"] = rng.choice([True, False], n)
    return columns


@pytest.mark.parametrize("task", TASKS)
def test_every_gap_is_encoded_as_the_pipeline_does(task):
    pipeline, saved = fitted(task, with_gaps())
    numbers, categories = saved.preprocessing.numbers, {one.name: one for one in saved.preprocessing.categories}
    assert {one.missing is None for one in numbers} == {True, False}
    assert None in categories["blood"].words
    assert len(categories["town"].rare) > 1
    assert not categories["smoker"].rare
    assert len(saved.preprocessing.features) == pipeline[-1].n_features_in_
    strange = with_gaps(seed=7)
    strange["weight"] = [None] * len(strange["weight"])
    strange["blood"] = ["AB" if k % 3 == 0 else None for k in range(len(strange["blood"]))]
    for columns in (with_gaps(), with_gaps(seed=3), strange):
        assert_alike(pipeline, saved, in_memory(columns))


def test_three_classes_and_more_categories_than_are_told_apart():
    rng = np.random.default_rng(2)
    columns = patients(600)
    columns["ill"] = rng.choice(["no", "mild", "severe"], 600)
    columns["town"] = [f"town {k}" for k in rng.integers(0, 80, 600)]
    pipeline, saved = fitted(columns=columns)
    town = next(one for one in saved.preprocessing.categories if one.name == "town")
    assert town.n_features == MOST_CATEGORIES
    assert_alike(pipeline, saved, in_memory(columns))
    assert len(saved.classes) == 3


def test_a_number_that_was_never_there_is_like_nothing():
    pipeline, saved = fitted(columns=patients())
    empty = in_memory({**patients(), "age": [None] * 150, "weight": np.full(150, np.nan)})
    assert_alike(pipeline, saved, empty)


WORDS = st.sampled_from(["A", "B", "0", "AB", "a ", "", "NA", "nan", "7", "7.0", "007", "true", None])
NUMBERS = st.one_of(st.none(), st.just(math.nan), st.floats(-1e6, 1e6), st.sampled_from([0.0, -0.0, 1e-300, 1e40]))


@settings(
    max_examples=40,
    deadline=None,
    derandomize=True,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
@given(data=st.data())
def test_any_rows_are_encoded_as_the_pipeline_does(data):
    pipeline, saved = gapped()
    n = data.draw(st.integers(1, 20))

    def drawn(cells, kind):
        return pa.array(data.draw(st.lists(cells, min_size=n, max_size=n)), kind)

    rows = {
        **{name: drawn(NUMBERS, pa.float64()) for name in ("age", "weight", "noisy")},
        **{name: drawn(WORDS, pa.string()) for name in ("blood", "town")},
        "code": drawn(st.sampled_from([7, 8, 9, None]), pa.int64()),
        "smoker": drawn(st.sampled_from([True, False, None]), pa.bool_()),
    }
    assert_alike(pipeline, saved, in_memory(rows))


def gapped(kept=[]):  # noqa: B006
    """Return the same model every time."""
    kept.extend([] if kept else [fitted(columns=with_gaps())])
    return kept[0]


@pytest.mark.parametrize("task", ["classification", "count"])
def test_a_row_is_given_the_same_whatever_is_beside_it(task):
    """Down to the last bit, or what a file is cut into would show."""
    saved = saved_model(task, with_gaps())
    data = in_memory(with_gaps(seed=9))
    whole = saved.predictions(data)
    for size in (1, 7, 64):
        pieces = [
            saved.predictions(DataFile(data.path, data.names, data.raw.slice(k, size)))
            for k in range(0, data.n_rows, size)
        ]
        for name, values in whole.items():
            np.testing.assert_array_equal(np.concatenate([one[name] for one in pieces]), values)


# --- what is not seen, and what is not there -------------------------------------------------------------------------


def test_a_model_needs_no_context_and_no_target(written):
    columns = {name: column for name, column in patients().items() if name in ("age", "weight", "blood")}
    predicted = load(written).predictions(in_memory(columns))
    assert set(predicted["prediction"]) <= {"yes", "no"}
    np.testing.assert_allclose(predicted["probability[no]"] + predicted["probability[yes]"], 1.0)
    highest = np.where(predicted["probability[yes]"] > 0.5, "yes", "no")
    assert predicted["prediction"].tolist() == highest.tolist()


def test_what_the_model_has_not_seen_is_counted_and_survived(written):
    columns = patients()
    columns["blood"] = ["AB" if k < 5 else None if k < 7 else word for k, word in enumerate(columns["blood"].tolist())]
    columns["age"] = [None] * len(columns["age"])
    saved, data = load(written), in_memory(columns)
    assert saved.unknown(data) == {"blood": 7}
    assert np.isfinite(saved.predictions(data)["probability[no]"]).all()
    assert saved.unknown(in_memory(patients(seed=9))) == {}


def test_a_missing_category_that_fit_has_seen_is_known():
    columns = patients()
    columns["blood"] = [None if k % 5 == 0 else word for k, word in enumerate(columns["blood"].tolist())]
    assert saved_model(columns=columns).unknown(in_memory(columns)) == {}


def test_a_rare_category_that_fit_has_seen_is_known():
    columns = with_gaps()
    assert saved_model(columns=columns).unknown(in_memory(columns)) == {}


def test_a_model_of_numbers_alone_knows_every_category():
    assert saved_model(only=["age"]).unknown(in_memory(patients())) == {}


@pytest.mark.parametrize("as_fitted", [["7", "8", "30"], ["007", "008", "030"]])
def test_a_code_is_known_as_a_word_and_as_a_number(as_fitted):
    """Whether a file is text decides which of the two it is; the model knows it in either."""
    columns = {**patients(), "code": (as_fitted * 50)[:150]}
    text = pa.table({name: pa.array(list(map(str, column))) for name, column in columns.items()})
    as_text = DataFile(Path("p.csv"), tuple(columns), text, delimiter=",")
    saved = saved_model(columns=columns)
    typed = in_memory(columns)
    assert saved.unknown(as_text) == saved.unknown(typed) == {}
    for name, values in saved.predictions(typed).items():
        np.testing.assert_array_equal(saved.predictions(as_text)[name], values)


def test_a_row_too_far_out_is_named():
    saved = saved_model("count")
    columns = patients()
    columns["age"][3] = 1e9 * math.copysign(1.0, saved.methods["robust"].coef[0, 0])
    with pytest.raises(InvalidInputError, match=r"the prediction of row 4 of patients.parquet is too large"):
        saved.predictions(in_memory(columns))


# --- what is refused -------------------------------------------------------------------------------------------------


def test_no_folder_and_no_model(folder, tmp_path):
    assert "there is no folder" in refusal(tmp_path / "no")
    assert "counterpoise fit" in refusal(tmp_path / "no")
    content = (folder / CARD).read_bytes()
    (folder / CARD).unlink()
    assert "holds no model (model.json)" in refusal(folder)
    (folder / CARD).mkdir()
    assert "holds no model" in refusal(folder)
    (folder / CARD).rmdir()
    (folder / CARD).write_bytes(content)
    assert "holds no model" in refusal(folder / CARD)


def test_a_model_of_an_earlier_version_is_to_be_fitted_again(folder):
    (folder / "model.skops").write_bytes(b"PK")
    (folder / CARD).write_text(json.dumps({"format": 1, "counterpoise": "0.1", "sha256": "0"}))
    assert f"{folder / CARD} is of an earlier version of counterpoise. Fit the model again." == refusal(folder)


@pytest.mark.parametrize("version", [None, 0, 3, 2.5, "2", True, [2]])
def test_another_version_is_refused(folder, version):
    put(folder, {**card_of(folder), "format": version})
    assert "is of another version of counterpoise" in refusal(folder)


def test_changed_numbers_are_noticed(folder):
    card = card_of(folder)
    card["methods"]["robust"]["coef"][0][1] *= 1.0 + 1e-15
    (folder / CARD).write_text(json.dumps(card))
    assert "it was changed after it was written" in refusal(folder)
    for said in (None, 1, "", "0" * 64, []):
        (folder / CARD).write_text(json.dumps({**card_of(folder), "sha256": said}))
        assert "it was changed after it was written" in refusal(folder)


def test_how_the_file_is_laid_out_is_of_no_matter(folder):
    (folder / CARD).write_text(json.dumps(card_of(folder), sort_keys=True, indent=None))
    load(folder)


def test_any_byte_that_is_changed_is_noticed_or_changes_nothing(folder, written):
    content = (written / CARD).read_bytes()
    data, rng = in_memory(patients()), np.random.default_rng(0)
    expected = load(written).predictions(data)
    for place in rng.integers(0, len(content), 200):
        changed = bytearray(content)
        changed[place] ^= 1 << int(rng.integers(0, 8))
        (folder / CARD).write_bytes(changed)
        said = ""
        try:
            found = load(folder).predictions(data)
        except InvalidInputError as error:
            said = str(error)
        if said:
            assert CARD in said
            continue
        for name, values in expected.items():
            np.testing.assert_array_equal(found[name], values)


DAMAGED = {
    "nothing": b"",
    "no JSON": b"{",
    "a list": b"[]",
    "a number": b"1",
    "null": b"null",
    "too deep": b"[" * 100_000,
    "objects too deep": b'{"format":2,"a":' + b'{"a":' * 100_000,
    "no text": b"\xff\xfe\xfd",
    "an archive": b"PK\x03\x04not a model",
    "a pickle": pickle.dumps({"a": 1}),
    "not a number": b'{"format": NaN}',
    "infinity": b'{"format": -Infinity}',
    "twenty million zeros": b"\0" * 20_000_000,
    "a number of a million digits": b'{"format": ' + b"9" * 1_000_000 + b"}",
}


@pytest.mark.parametrize("case", DAMAGED)
def test_a_damaged_file_is_refused(folder, case):
    (folder / CARD).write_bytes(DAMAGED[case])
    said = refusal(folder)
    assert f"{folder / CARD} cannot be read" in said
    assert len(said) < 500


def test_half_a_file_is_refused(folder):
    content = (folder / CARD).read_bytes()
    (folder / CARD).write_bytes(content[: len(content) // 2])
    assert "cannot be read" in refusal(folder)


def test_a_file_that_would_fill_the_memory_is_refused_unread(folder, monkeypatch):
    monkeypatch.setattr(saved_module, "memory_budget", lambda: 10_000.0)
    monkeypatch.setattr(Path, "read_bytes", lambda *_: pytest.fail("read"))
    assert "too much to be read as a model" in refusal(folder)


def changed(path, value):
    """Return what puts a value at a place of a card."""

    def change(card):
        *above, last = path
        for one in above:
            card = card[one]
        if value is MISSING:
            del card[last]
        else:
            card[last] = value

    return change


MISSING = object()
ROBUST = ("methods", "robust")
NUMBER = ("preprocessing", "numbers", 0)
CATEGORY = ("preprocessing", "categories", 0)

FOREIGN = {
    "no target": (("target",), MISSING, "target is missing"),
    "a target that is a list": (("target",), [], "target must be text"),
    "a task unknown": (("task",), "clustering", "task must be one of classification"),
    "a task that is a list": (("task",), [], "task must be one of"),
    "another task": (("task",), "regression", "classes must be"),
    "no classes": (("classes",), None, "classes must be"),
    "one class": (("classes",), ["no"], "classes must be"),
    "a class twice": (("classes",), ["no", "no"], "classes must be a list without repetitions"),
    "more classes": (("classes",), ["a", "b", "c"], "methods.robust.coef must hold 3 lists"),
    "no columns": (("columns",), None, "columns must be an object"),
    "columns that are text": (("columns", "numbers"), "age", "columns.numbers must be a list"),
    "columns that are numbers": (("columns", "numbers"), [1], "columns.numbers[0] must be text"),
    "fewer columns": (("columns", "numbers"), ["age"], "preprocessing is of other columns"),
    "a reason that is no text": (("columns", "left_out"), [], "columns.left_out must be an object"),
    "a median that is text": ((*NUMBER, "median"), "high", "median must be a number"),
    "a median that is infinite": ((*NUMBER, "median"), "inf", "median must be a finite number"),
    "a median beyond floats": ((*NUMBER, "median"), 10**400, "median must be a number that a float can hold"),
    "a mean that is true": ((*NUMBER, "mean"), True, "mean must be a number"),
    "a scale of zero": ((*NUMBER, "scale"), 0, "scale must be positive"),
    "a scale below zero": ((*NUMBER, "scale"), -1.0, "scale must be positive"),
    "a mark that was not there": ((*NUMBER, "missing"), {"mean": 0.1, "scale": 1.0}, "coef[0] must hold 6 numbers"),
    "a mark of nothing": ((*NUMBER, "missing"), {}, "missing.mean is missing"),
    "words that are numbers": ((*CATEGORY, "words"), [0, 1, 2], "words[0] must be text"),
    "fewer words": ((*CATEGORY, "words"), ["A"], "must hold 3 numbers, but it holds 5"),
    "a word twice": ((*CATEGORY, "words"), ["A", "A", "B"], "without repetitions"),
    "a word that is also rare": ((*CATEGORY, "rare"), ["A"], "both rare and not"),
    "no coefficients": ((*ROBUST, "coef"), [], "coef must hold 1 lists, but it holds 0"),
    "a coefficient too few": ((*ROBUST, "coef"), [[0.0] * 4], "must hold 5 numbers, but it holds 4"),
    "a coefficient that is null": ((*ROBUST, "coef", 0, 1), None, "coef[0][1] must be a finite number"),
    "a coefficient that is infinite": ((*ROBUST, "coef", 0, 1), "-inf", "coef[0][1] must be a finite number"),
    "a coefficient that is an object": ((*ROBUST, "coef", 0, 1), {}, "coef[0][1] must be a number"),
    "no intercept": ((*ROBUST, "intercept"), MISSING, "intercept is missing"),
    "two intercepts": ((*ROBUST, "intercept"), [0.0, 0.0], "intercept must hold 1 numbers"),
    "a risk too few": ((*ROBUST, "context_risks"), [0.1], "context_risks must hold 3 numbers"),
    "a held-out risk too many": ((*ROBUST, "held_out_risks"), [0.1] * 4, "held_out_risks must hold 3 numbers"),
    "an influence too few": ((*ROBUST, "context_influence"), [[0.0] * 3], "must hold 3 lists, but it holds 1"),
    "an influence of four": ((*ROBUST, "context_influence", 1), [0.0] * 4, "context_influence[1] must hold 3 numbers"),
    "an influence of nothing": ((*ROBUST, "context_influence", 0, 2), None, "[2] must be a finite number"),
    "a radius that is text": ((*ROBUST, "radius"), "wide", "radius must be a number"),
    "a certificate of nothing": ((*ROBUST, "certificate"), {}, "certificate.lower is missing"),
    "a scope unknown": ((*ROBUST, "certificate", "scope"), "cosmic", "scope must be one of global, local"),
    "a mix that is text": ((*ROBUST, "parameters", "mix"), "any", "mix must be null or the parameters of a mix"),
    "a mix of another kind": ((*ROBUST, "parameters", "mix"), {"call": "os.system"}, "mix must be one of tuple"),
    "labels that cannot be": (("contexts", 0), {"date": "yesterday"}, "contexts[0] must be one of"),
    "labels of two kinds": (("contexts", 0), {"date": "2024-01-01", "tuple": []}, "a value of one kind"),
    "a pair of three": (("contexts", 0), {"pairs": [[1, 2, 3]]}, "contexts[0] must be one of"),
    "a key that is a list": (("contexts", 0), {"pairs": [[[1], 2]]}, "contexts[0] must be one of"),
    "a count too few": (("context_counts",), [1.0], "context_counts must hold 3 numbers"),
    "a method that is not there": (("method",), "erm", "method must be one of robust"),
    "no methods": (("methods",), {}, "method must be one of"),
    "methods that are a list": (("methods",), [], "methods must be an object"),
    "pools that are a list": (("pooled",), [1], "pooled must be an object"),
}


@pytest.mark.parametrize("case", FOREIGN)
def test_a_part_that_cannot_be_is_refused_by_name(folder, case):
    path, value, reason = FOREIGN[case]
    card = card_of(folder)
    changed(path, value)(card)
    put(folder, card)
    said = refusal(folder)
    assert said.startswith(f"{folder / CARD} is not as counterpoise wrote it: ")
    assert reason in said
    assert said.endswith(". Fit the model again.")


def test_every_part_of_the_card_is_needed(folder):
    whole = card_of(folder)
    for name in whole.keys() - {"format", "sha256", "counterpoise", "features"}:
        put(folder, {one: value for one, value in whole.items() if one != name})
        assert f"{name} is missing" in refusal(folder)
    for name in whole["methods"]["robust"].keys() - {"context_influence"}:
        card = json.loads(json.dumps(whole))
        del card["methods"]["robust"][name]
        put(folder, card)
        assert "is missing" in refusal(folder)


def test_links_are_followed(folder, tmp_path):
    (tmp_path / "link").symlink_to(folder)
    load(tmp_path / "link")
    (tmp_path / "broken").symlink_to(tmp_path / "nowhere")
    assert "there is no folder" in refusal(tmp_path / "broken")
    (folder / CARD).unlink()
    (folder / CARD).symlink_to(folder / "nowhere")
    assert "holds no model" in refusal(folder)


# --- imports ---------------------------------------------------------------------------------------------------------

# Arrow itself imports pandas, where that is installed.
HEAVY = ("sklearn", "scipy", "torch", "jinja2", "polars", "matplotlib", "joblib", "dask", "narwhals", "skops")


def test_predicting_imports_nothing_but_numpy_and_arrow(folder, tmp_path):
    (tmp_path / "new.csv").write_text("age,weight,blood\n50,80,A\n,70,\n")
    words = ["predict", str(folder), str(tmp_path / "new.csv"), "--out", str(tmp_path / "out.csv")]
    code = f"""
import sys
sys.argv = ["counterpoise", *{words!r}]
from counterpoise.cli import main
try:
    main()
except SystemExit as end:
    assert not end.code, end.code
import counterpoise, numpy, pyarrow
counterpoise.load({str(folder)!r}).predict(pyarrow.table({{"age": [1.0], "weight": [2.0], "blood": ["A"]}}))
found = {{name.partition(".")[0] for name in sys.modules}}
print(sorted(found & set({HEAVY!r})))
own = sorted(name for name in sys.modules if name.startswith("counterpoise."))
print([name for name in own if name.split(".")[1] in ("core", "estimators", "judging", "reports", "rows", "sets")])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[1:] == ["[]", "[]"]


def test_fitting_imports_no_extra(tmp_path):
    file = save(patients(), tmp_path / "patients.csv")
    words = ["fit", str(file), "--target", "ill", "--context", "hospital", "--drop", "days", "--drop", "cost"]
    words += [
        "--folds",
        "2",
        "--reference",
        "in-sample",
        "--radius",
        "0.1",
        "--quiet",
        "--out",
        str(tmp_path / "model"),
    ]
    code = f"""
import sys
sys.argv = ["counterpoise", *{words!r}]
from counterpoise.cli import main
try:
    main()
except SystemExit as end:
    assert not end.code, end.code
heavy = ("torch", "dask", "polars", "matplotlib", "xgboost", "lightgbm", "skops", "sklearn.ensemble")
print([name for name in heavy if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "[]"
