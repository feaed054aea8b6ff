"""Models on disk: what is read predicts what was written, and nothing that is read is run."""

import hashlib
import io
import json
import os
import pickle
import zipfile
from functools import partial

import joblib
import numpy as np
import pytest
import skops.io
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from counterpoise.exceptions import InvalidInputError
from counterpoise.tables.tabular.saved import CARD, FILES, MODEL, SavedModel, load
from tests.tables.tabular.examples import in_memory, patients, posed
from tests.tables.tabular.test_task import TASKS


def saved_model(task="classification", columns=None, **options):
    target, switches, _ = TASKS[task]
    problem = posed(columns or patients(), target, task=task, **switches, **options)
    return SavedModel(problem.fitted()[0], problem.columns, target, task)


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
    for name in (MODEL, CARD):
        (copy / name).write_bytes((written / name).read_bytes())
    return copy


def refusal(folder):
    with pytest.raises(InvalidInputError) as caught:
        load(folder).predictions(in_memory(patients()))
    return str(caught.value)


def change_card(folder, **changes):
    card = json.loads((folder / CARD).read_text()) | changes
    (folder / CARD).write_text(json.dumps(card))


def put(folder, content):
    """Replace the model by something else, of which the card knows the digest."""
    (folder / MODEL).write_bytes(content)
    change_card(folder, sha256=hashlib.sha256(content).hexdigest())


@pytest.mark.parametrize("task", TASKS)
def test_what_is_read_predicts_what_was_written(tmp_path, task):
    saved = saved_model(task)
    saved.write(tmp_path)
    again = load(tmp_path)
    assert (again.columns, again.target, again.task) == (saved.columns, saved.target, saved.task)
    data = in_memory(patients(seed=4))
    before, after = saved.predictions(data), again.predictions(data)
    assert list(before) == list(after)
    for name, values in before.items():
        np.testing.assert_array_equal(after[name], values)


def test_the_folder_holds_what_it_says(written):
    assert {path.name for path in written.iterdir()} <= set(FILES)
    card = json.loads((written / CARD).read_text(encoding="utf-8"))
    assert card["sha256"] == hashlib.sha256((written / MODEL).read_bytes()).hexdigest()
    assert (card["target"], card["task"]) == ("ill", "classification")


def test_nothing_is_unpickled(written, monkeypatch):
    def refuse(*args, **kwargs):
        raise AssertionError("unpickled")

    for module, name in ((pickle, "load"), (pickle, "loads"), (pickle, "Unpickler"), (joblib, "load")):
        monkeypatch.setattr(module, name, refuse)
    load(written)


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


def test_a_model_of_numbers_alone_knows_every_category():
    assert saved_model(only=["age"]).unknown(in_memory(patients())) == {}


# --- what is refused -------------------------------------------------------------------------------------------------


def test_no_folder_and_no_model(folder, tmp_path):
    assert "there is no folder" in refusal(tmp_path / "no")
    assert "counterpoise fit" in refusal(tmp_path / "no")
    for name in (MODEL, CARD):
        content = (folder / name).read_bytes()
        (folder / name).unlink()
        assert "holds no model (model.skops and model.json)" in refusal(folder)
        (folder / name).mkdir()
        assert "holds no model" in refusal(folder)
        (folder / name).rmdir()
        (folder / name).write_bytes(content)
    assert "holds no model" in refusal(folder / MODEL)


def test_changed_bytes_are_noticed(folder):
    content = bytearray((folder / MODEL).read_bytes())
    content[len(content) // 2] ^= 1
    (folder / MODEL).write_bytes(content)
    assert "it was changed" in refusal(folder)
    (folder / MODEL).write_bytes(content[:100])
    assert "it was changed" in refusal(folder)


def zipped(how=zipfile.ZIP_DEFLATED, **files):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", how) as archive:
        for name, content in files.items():
            archive.writestr(name.replace("_json", ".json"), content)
    return file.getvalue()


DAMAGED = {
    "nothing": lambda model: b"",
    "no archive": lambda model: b"not a zip file",
    "half of it": lambda model: model[: len(model) // 2],
    "a pickle": lambda model: pickle.dumps({"a": 1}),
    "an archive of nothing": lambda model: zipped(),
    "an archive of something else": lambda model: zipped(readme="hello"),
    "a schema of nothing": lambda model: zipped(schema_json="{}"),
    "a schema of a list": lambda model: zipped(schema_json="[]"),
    "a schema cut short": lambda model: zipped(schema_json='{"__class__": "Pipe'),
    "a schema too deep": lambda model: zipped(schema_json="[" * 100_000),
    "twenty million zeros": lambda model: zipped(schema_json=b"\0" * 20_000_000),
}


@pytest.mark.parametrize("case", DAMAGED)
def test_a_damaged_model_is_refused(folder, case):
    put(folder, DAMAGED[case]((folder / MODEL).read_bytes()))
    assert "cannot be read" in refusal(folder)


class Stranger:
    """Something that no model of ours is made of."""


RAN = []


def ran(*args):
    RAN.append(args)


FOREIGN = {
    "a class": Stranger(),
    "a class within": make_pipeline(StandardScaler()).set_params(standardscaler__copy=Stranger()),
    "a call": partial(os.system, "false"),
    "a function": FunctionTransformer(ran),
    "a function of the library": FunctionTransformer(load),
    "a function that skops trusts": FunctionTransformer(np.exp),
    "a class that skops trusts": make_pipeline(StandardScaler(), LogisticRegression()),
    "a method": FunctionTransformer("x".join),
}


@pytest.mark.parametrize("case", FOREIGN)
def test_a_foreign_type_is_refused_and_not_run(folder, case):
    put(folder, skops.io.dumps(FOREIGN[case]))
    assert "holds types that no model of counterpoise is made of" in refusal(folder)
    assert RAN == []


def test_the_types_are_listed(folder):
    put(folder, skops.io.dumps([Stranger(), partial(os.system, "false")]))
    said = refusal(folder)
    assert "tests.tables.tabular.test_saved.Stranger" in said
    assert "posix.system" in said
    assert "could run code of whoever wrote the file" in said


@pytest.mark.parametrize("loader", ["OperatorFuncNode", "MethodNode", "PartialNode", "ReduceNode", "SomethingNewNode"])
def test_a_known_type_made_in_another_way_is_refused(folder, loader):
    # The names say list; the way to make it would call something.
    with zipfile.ZipFile(folder / MODEL) as archive:
        schema = json.loads(archive.read("schema.json"))
    schema["content"] = {
        "__class__": "list",
        "__module__": "builtins",
        "__loader__": loader,
        "__id__": 1,
        "content": [],
    }
    put(folder, zipped(schema_json=json.dumps(schema) + " " * 10_000, how=zipfile.ZIP_STORED))
    assert loader in refusal(folder)


BOMBS = {
    "compressed zeros": lambda: zipped(**{"1.npy": b"\0" * 50_000_000}, schema_json="{}"),
    "a compressed schema": lambda: zipped(schema_json=json.dumps({"__class__": "x" * 10_000_000})),
    "an archive within": lambda: zipped(**{"1.npz": b"PK"}, schema_json="{}", how=zipfile.ZIP_STORED),
}


@pytest.mark.parametrize("case", BOMBS)
def test_an_archive_that_would_fill_the_memory_is_refused_unread(folder, monkeypatch, case):
    monkeypatch.setattr(zipfile.ZipFile, "read", lambda *_: pytest.fail("read"))
    put(folder, BOMBS[case]())
    assert "cannot be read" in refusal(folder)


@pytest.mark.parametrize("name", ["../outside", "/tmp/outside", "..\\outside", "a/../../outside.npy"])
def test_names_in_an_archive_lead_nowhere(folder, tmp_path, monkeypatch, name):
    monkeypatch.chdir(folder)
    with zipfile.ZipFile(folder / MODEL) as archive:
        files = {one: archive.read(one) for one in archive.namelist()}
    before = sorted(tmp_path.rglob("*"))
    put(folder, zipped(**files, **{name: b"surprise"}, how=zipfile.ZIP_STORED))
    # A file that nobody asks for is not even looked at.
    if name.endswith(".npy"):
        load(folder)
    else:
        assert "it holds a file" in refusal(folder)
    assert sorted(tmp_path.rglob("*")) == before


NO_MODELS = {
    "a dictionary": lambda: {"a": 1},
    "an array": lambda: np.arange(3),
    "a classifier": lambda: LogisticRegression().fit([[0.0], [1.0]], [0, 1]),
    "a pipeline not fitted": lambda: posed(patients()).model,
    "another pipeline": lambda: make_pipeline(StandardScaler(), LogisticRegression()).fit([[0.0], [1.0]], [0, 1]),
}


@pytest.mark.parametrize("case", NO_MODELS)
def test_something_harmless_that_is_no_model_is_refused(folder, case):
    put(folder, skops.io.dumps(NO_MODELS[case]()))
    assert MODEL in refusal(folder)


CARDS = {
    "nothing": "",
    "no JSON": "{",
    "a list": "[]",
    "a number": "1",
    "null": "null",
    "an empty object": "{}",
    "too deep": "[" * 100_000,
    "no text": b"\xff\xfe\xfd",
    "not a number": '{"format": NaN}',
}


@pytest.mark.parametrize("case", CARDS)
def test_a_damaged_card_is_refused(folder, case):
    content = CARDS[case]
    (folder / CARD).write_bytes(content if isinstance(content, bytes) else content.encode())
    assert CARD in refusal(folder)


CHANGED = {
    "another version": {"format": 2},
    "no version": {"format": None},
    "a digest that is a number": {"sha256": 1},
    "no columns": {"columns": None},
    "columns that are text": {"columns": {"numbers": "age", "categories": "blood", "left_out": {}}},
    "columns that are numbers": {"columns": {"numbers": [1], "categories": [], "left_out": {}}},
    "fewer columns": {"columns": {"numbers": ["age"], "categories": ["blood"], "left_out": {}}},
    "columns of another kind": {"columns": {"numbers": ["age"], "categories": ["weight", "blood"], "left_out": {}}},
    "a reason that is no text": {"columns": {"numbers": [], "categories": [], "left_out": []}},
    "a task unknown": {"task": "clustering"},
    "a task that is a list": {"task": []},
    "a target that is a list": {"target": []},
}


@pytest.mark.parametrize("case", CHANGED)
def test_a_card_that_does_not_describe_the_model_is_refused(folder, case):
    change_card(folder, **CHANGED[case])
    assert CARD in refusal(folder)


def test_links_are_followed(folder, tmp_path):
    (tmp_path / "link").symlink_to(folder)
    load(tmp_path / "link")
    (tmp_path / "broken").symlink_to(tmp_path / "nowhere")
    assert "there is no folder" in refusal(tmp_path / "broken")
    (folder / MODEL).unlink()
    (folder / MODEL).symlink_to(folder / "nowhere")
    assert "holds no model" in refusal(folder)
