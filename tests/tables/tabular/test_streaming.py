"""Predictions piece by piece: the bytes that come out are those of the table at once, in bounded memory."""

import gzip
import json
import subprocess
import sys

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from counterpoise.cli import app
from counterpoise.exceptions import InvalidInputError
from counterpoise.tables.reading import open_table
from counterpoise.tables.tabular import streaming
from counterpoise.tables.tabular.saved import SavedModel, load
from counterpoise.tables.tabular.streaming import PredictedTable, pieces, predicted
from tests.tables.tabular.examples import FORMATS, patients, posed, save


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return the folder of two models, fitted to a table with gaps."""
    columns = patients()
    columns["blood"] = [None if k % 9 == 0 else word for k, word in enumerate(columns["blood"].tolist())]
    problem = posed(columns)
    robust, plain = problem.fitted()[0], posed(columns, radius=0.0).fitted()[0]
    folder = tmp_path_factory.mktemp("model")
    SavedModel.of({"robust": robust, "erm": plain}, problem.columns, "ill", "classification").write(folder)
    return folder


def new_rows(n=1200, **more):
    """Return rows of which the last ones are unlike the first: gaps, unknown words, and a cell that needs quotes."""
    columns = {**patients(n, seed=5), "ward": np.arange(n) % 7, **more}
    columns["blood"] = ["AB" if k % 400 == 399 else word for k, word in enumerate(columns["blood"].tolist())]
    columns["age"] = [None if k % 500 == 0 else age for k, age in enumerate(columns["age"].tolist())]
    return columns


@pytest.fixture
def in_pieces(monkeypatch):
    """Return what lets every table be cut into small pieces."""

    def cut(at_once=0.0, chunk=8_000.0):
        monkeypatch.setattr(streaming, "AT_ONCE", at_once)
        monkeypatch.setattr(streaming, "CHUNK", chunk)

    return cut


def written(folder, file, out, *more):
    words = ["predict", folder, file, "--out", out, "--force", *more]
    done = CliRunner().invoke(app, [str(one) for one in words], catch_exceptions=False)
    assert done.exit_code == 0, done.stderr
    return out.read_bytes(), done.stderr


NOTES = {
    "plain": {},
    "a cell that needs quotes, at the end": {"note": ["plain"] * 1199 + ['says "no", twice\n']},
    "a column of nothing": {"empty": [None] * 1200},
    "a number that becomes a word": {"label": [*range(1199), "x"]},
}


@pytest.mark.parametrize("end", [*FORMATS, "csv.gz", "folder"])
@pytest.mark.parametrize("case", NOTES)
def test_the_bytes_are_those_of_the_table_at_once(folder, tmp_path, in_pieces, end, case):
    columns = new_rows(**NOTES[case])
    if end not in ("csv", "csv.gz") and "label" in columns:
        columns["label"] = list(map(str, columns["label"]))
    if end == "folder":
        (tmp_path / "new").mkdir()
        table = pa.table({name: pa.array(column) for name, column in columns.items()})
        for k in range(3):
            pq.write_table(table.slice(400 * k, 400), tmp_path / "new" / f"{k}.parquet")
        file = tmp_path / "new"
    elif end == "csv.gz":
        file = tmp_path / "new.csv.gz"
        file.write_bytes(gzip.compress(save(columns, tmp_path / "new.csv").read_bytes()))
    else:
        file = save(columns, tmp_path / f"new.{end}")
    for out in ("out.csv", "out.parquet"):
        at_once, said = written(folder, file, tmp_path / out)
        assert said == "note: 3 of 1,200 rows have a blood that the model has not seen\n"
        in_pieces()
        assert len(list(pieces(open_table(file)))) > 5
        cut, also_said = written(folder, file, tmp_path / out)
        in_pieces(at_once=1e9)
        assert also_said == said
        if out.endswith("csv"):
            assert cut == at_once
        else:
            assert pq.read_table(pa.BufferReader(cut)).equals(pq.read_table(pa.BufferReader(at_once)))


def test_types_are_those_of_all_rows(folder, tmp_path, in_pieces):
    """A code that is a number in all rows but the last is a word in all of them."""
    file = save(new_rows(label=[*range(1199), "x"]), tmp_path / "new.csv")
    in_pieces()
    written(folder, file, tmp_path / "out.parquet")
    schema = pq.read_schema(tmp_path / "out.parquet")
    assert str(schema.field("label").type) in ("string", "large_string")
    assert pa.types.is_integer(schema.field("ward").type)


def test_pieces_are_small_and_predictions_of_every_method_are_given(folder, tmp_path, in_pieces):
    file = save(new_rows(), tmp_path / "new.csv")
    in_pieces()
    saved, table = load(folder), open_table(file)
    found = list(predicted(saved, table, methods=("robust", "erm"), typed=saved.columns.sources))
    assert max(one.data.raw.nbytes for one in found) <= 9_000
    assert sum(one.unknown.get("blood", 0) for one in found) == 3
    whole = table.read()
    for method in ("robust", "erm"):
        expected = saved.predictions(whole, method)
        for name, values in expected.items():
            np.testing.assert_array_equal(np.concatenate([one.predictions[method][name] for one in found]), values)
    # Columns of the file that are no features can be read all the same.
    assert [label for one in found for label in one.data.labels("hospital")] == whole.labels("hospital").tolist()


def test_a_table_can_be_begun_again(folder, tmp_path, in_pieces):
    file = save(new_rows(), tmp_path / "new.csv")
    in_pieces()
    rows = PredictedTable(load(folder), open_table(file), typed=False)
    first = [table.num_rows for table, _ in rows.pieces()]
    assert [table.num_rows for table, _ in rows.pieces()] == first
    assert (rows.n_rows, rows.unknown) == (1200, {"blood": 3})


@pytest.mark.parametrize("end", FORMATS)
def test_a_cell_at_the_end_that_is_wrong_leaves_nothing(folder, tmp_path, in_pieces, end):
    weights = [*patients(1200)["weight"].tolist()[:-1], 1e300]
    file = save({**new_rows(), "weight": weights}, tmp_path / f"new.{end}")
    in_pieces()
    done = CliRunner().invoke(app, ["predict", str(folder), str(file), "--out", str(tmp_path / "out.csv")])
    assert done.exit_code == 2
    assert f"holds 1e+300 in row {1201 if end == 'csv' else 1200}" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == [file.name]


def test_a_column_that_is_missing_is_known_before_anything_is_made(folder, tmp_path, in_pieces):
    columns = new_rows()
    del columns["age"]
    file = save(columns, tmp_path / "new.csv")
    in_pieces()
    with pytest.raises(InvalidInputError, match="has no column 'age'"):
        PredictedTable(load(folder), open_table(file), typed=False)
    done = CliRunner().invoke(app, ["predict", str(folder), str(file), "--out", str(tmp_path / "made" / "out.csv")])
    assert done.exit_code == 2
    assert not (tmp_path / "made").exists()


_PEAK = """
import sys, pyarrow.csv, pyarrow.parquet, numpy
pyarrow.array(numpy.zeros(3))
from pathlib import Path
from counterpoise.tables.reading import open_table
from counterpoise.tables.tabular.saved import load
from counterpoise.tables.tabular.streaming import PredictedTable
from counterpoise.tables.tabular.writing import writer
def peak():
    # What getrusage tells begins with the peak of the process that started this one.
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
model, file, out = map(Path, sys.argv[1:])
before = peak()
rows = PredictedTable(load(model), open_table(file), typed=out.suffix == ".parquet")
writer(out)(out, rows.pieces)
print(peak() - before, rows.n_rows)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="peak memory is counted in other units elsewhere")
def test_memory_does_not_grow_with_the_file(folder, tmp_path):
    rows = pd.DataFrame(new_rows(20_000)).to_csv(index=False)
    header, _, body = rows.partition("\n")
    with (tmp_path / "new.csv").open("w") as file:
        file.write(header + "\n")
        file.writelines([body] * 60)
    assert (tmp_path / "new.csv").stat().st_size > 35e6
    words = [str(folder), str(tmp_path / "new.csv"), str(tmp_path / "out.csv")]
    done = subprocess.run([sys.executable, "-c", _PEAK, *words], capture_output=True, text=True, check=True)
    peak, n_rows = map(int, done.stdout.split())
    assert n_rows == 1_200_000
    # Kilobytes; at once it takes 280 MB.
    assert peak < 130_000


def test_the_model_file_says_what_is_kept(folder):
    assert list(json.loads((folder / "model.json").read_text())["methods"]) == ["robust", "erm"]
