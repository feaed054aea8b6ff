"""Files: damaged, cut short, or strange from the beginning."""

import gzip
import io
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
from hypothesis import strategies as st
from typer.testing import CliRunner

from counterpoise.cli import app
from counterpoise.tables.reading import open_table, read_table
from counterpoise.tables.tabular.fitting import pose
from tests.fuzz.verdicts import outcome, strict

_WORDS = ["", "a", "b", "NA", "nan", "inf", "-inf", "1e400", "1e-400", "0", "1", "2", "1,5", "1.5", "1e300", " 3 ", "é"]
_WORDS += [
    "2024-01-01",
    "12:30",
    "TRUE",
    "false",
    '"',
    "'",
    "=1+1",
    "\x00",
    "\t",
    "€ 5",
    "5%",
    "0x10",
    "1_000",
    "١",
    "-",
]
_NAMES = ["y", "c", "x", "x1", "", " ", "y ", "a,b", "é", "prediction", "x" * 40]

cell = st.one_of(st.sampled_from(_WORDS), st.sampled_from(_WORDS), st.text(max_size=6), st.integers(-99, 99).map(str))


@st.composite
def text_tables(draw):
    """Return the bytes of a text file."""
    width = draw(st.integers(1, 4))
    names = draw(st.lists(st.sampled_from(_NAMES), min_size=width, max_size=width))
    if draw(st.booleans()):
        names = ["y", "c", "x", "x1"][:width]
    mark = draw(st.sampled_from([",", ",", ";", "\t", "|"]))
    rows = draw(st.lists(st.lists(cell, min_size=width, max_size=width), max_size=8))
    end = draw(st.sampled_from(["\n", "\n", "\r\n", "\r"]))
    text = end.join(mark.join(row) for row in [names, *rows])
    code = draw(st.sampled_from(["utf-8", "utf-8", "utf-8", "utf-16", "latin-1", "utf-8-sig"]))
    content = text.encode(code, errors="replace")
    return gzip.compress(content) if draw(st.integers(0, 9)) == 0 else content


_COLUMN_KINDS = 12


def _column(kind, n, rng):
    options = [
        lambda: pa.array(rng.standard_normal(n)),
        lambda: pa.array(rng.integers(0, 3, n)),
        lambda: pa.array([None] * n, pa.float64()),
        lambda: pa.array(rng.choice(["a", "b", ""], n)).dictionary_encode(),
        lambda: pa.array(rng.choice([True, False, None], n).tolist(), pa.bool_()),
        lambda: pa.array(np.where(rng.random(n) < 0.3, np.nan, 1e300)),
        lambda: pa.array(rng.integers(0, 10**9, n), pa.timestamp("s")),
        lambda: pa.array([[1, 2]] * n),
        lambda: pa.array([{"a": 1}] * n),
        lambda: pa.array(rng.integers(0, 99, n).tolist(), pa.int64()).cast(pa.decimal128(25, 2)),
        lambda: pa.array([b"\xff"] * n),
        lambda: pa.array(rng.standard_normal(n).astype(np.float16)),
    ]
    return options[kind]()


@st.composite
def typed_tables(draw):
    """Return the bytes of a parquet or Arrow file, as often damaged as not."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n = draw(st.integers(0, 12))
    kinds = draw(st.lists(st.integers(0, _COLUMN_KINDS - 1), min_size=1, max_size=4))
    names = draw(st.sampled_from([["y", "c", "x", "x1"], ["y", "y", "c", ""]]))[: len(kinds)]
    table = pa.table([_column(kind, n, rng) for kind in kinds], names=names)
    buffer = io.BytesIO()
    form = draw(st.sampled_from(["parquet", "feather", "stream"]))
    try:
        if form == "parquet":
            pq.write_table(table, buffer)
        elif form == "feather":
            feather.write_feather(table, buffer)
        else:
            with pa.ipc.new_stream(buffer, table.schema) as stream:
                stream.write_table(table)
    except (pa.ArrowException, ValueError):
        return b"PAR1"
    return _damaged(bytearray(buffer.getvalue()), draw(st.integers(0, 3)), rng)


def _damaged(content, how, rng):
    end = len(content)
    if content[-4:] == b"PAR1":
        # pyarrow ends the process itself over some footers that were changed, so these are left as they are.
        end -= 8 + int.from_bytes(content[-8:-4], "little")
    if end <= 8:
        return bytes(content)
    if how == 1 and len(content) > 8:
        content = content[: rng.integers(4, len(content))]
    elif how == 2:
        for _ in range(rng.integers(1, 6)):
            content[rng.integers(4, end)] = rng.integers(256)
    elif how == 3:
        start = rng.integers(4, end)
        content = content[:start] + bytes(rng.integers(0, 256, 8, dtype=np.uint8)) + content[start:]
    return bytes(content)


text_case = st.tuples(st.one_of(text_tables(), text_tables(), text_tables(), st.binary(max_size=60)), st.just(".csv"))
typed_case = st.tuples(typed_tables(), st.sampled_from([".parquet", ".arrow", ".feather", ".csv"]))


def check_reading(drawn):
    """Read a file whole and in chunks, look at every column, and pose a problem; both ways agree on the rows."""
    content, suffix = drawn
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"table{suffix}"
        path.write_bytes(content)
        found = outcome(lambda: read_table(path))
        if found is None:
            return False
        file = found[0]
        assert file.n_rows > 0
        assert outcome(lambda: file.table.num_rows) is None or file.table.num_rows == file.n_rows
        for name in file.names:
            for role in (file.numbers, file.labels, file.texts):
                answer = outcome(lambda role=role, name=name: role(name))
                assert answer is None or len(answer[0]) == file.n_rows
        chunked = outcome(lambda: sum(chunk.n_rows for chunk in open_table(path).chunks(1e6)))
        assert chunked is None or chunked[0] == file.n_rows, "chunks have other rows than the whole"
        outcome(lambda: pose(open_table(path).read(), "y", ["c"]))
    return True


_ROLES = [
    ("--target", "y"),
    ("--context", "c"),
    ("--context", "x"),
    ("--drop", "x"),
    ("--only", "x"),
    ("--group", "x1"),
]
_ROLES += [
    ("--task", "count"),
    ("--task", "quantile"),
    ("--task", "regression"),
    ("--task", "huber"),
    ("--task", "odd"),
]
_ROLES += [
    ("--radius", "0.1"),
    ("--radius", "inf"),
    ("--radius", "x"),
    ("--alpha", "0"),
    ("--memory", "1MB"),
    ("--json",),
]
_ROLES += [("--confidence", "2"), ("--draws", "-1"), ("--criterion", "risk"), ("--folds", "1"), ("--nonsense",)]
_ROLES += [("--pool-below", "9"), ("--pool-below", "2"), ("--pool-below", "0")]


@st.composite
def sensible_tables(draw):
    """Return the bytes of a text file that could be fitted, with a few odd cells."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n = draw(st.integers(1, 40))
    target = [rng.integers(0, 2, n), rng.poisson(2.0, n), rng.standard_normal(n), rng.choice(["a", "b", "z"], n)]
    columns = [target[draw(st.integers(0, 3))], rng.integers(0, 3, n), rng.standard_normal(n), rng.integers(0, 9, n)]
    rows = [[str(value) for value in row] for row in zip(*columns, strict=True)]
    for _ in range(draw(st.integers(0, 3))):
        rows[rng.integers(n)][rng.integers(4)] = draw(cell)
    return "\n".join([*map(",".join, [["y", "c", "x", "x1"], *rows])]).encode(errors="replace")


_commands = st.sampled_from(["fit", "fit", "compare", "stock", "explore", "predict"])
command_case = st.one_of(
    st.tuples(sensible_tables(), st.just(".csv"), st.lists(st.sampled_from(_ROLES), max_size=1), _commands),
    st.tuples(
        st.one_of(sensible_tables(), text_tables(), typed_tables()),
        st.sampled_from([".csv", ".csv", ".parquet", ".arrow", ""]),
        st.lists(st.sampled_from(_ROLES), max_size=3),
        _commands,
    ),
)


def check_command(drawn):
    """Exit codes are 0, 1 or 2; what fails says one line that begins with Error, and leaves nothing behind."""
    content, suffix, more, command = drawn
    with tempfile.TemporaryDirectory() as folder:
        path, out = Path(folder) / f"table{suffix}", Path(folder) / "out"
        path.write_bytes(content)
        arguments = [command, str(path)]
        if command in ("fit", "compare", "explore"):
            arguments += ["--target", "y", "--context", "c"]
        if command == "fit":
            arguments += ["--out", str(out), "--folds", "2", "--reference", "in-sample"]
        elif command == "stock":
            arguments += ["--demand", "y", "--cost", "1", "--price", "3", "--context", "c", "--out", str(out)]
        elif command == "explore":
            arguments += ["--out", str(out)]
        elif command == "predict":
            arguments = ["predict", str(folder), str(path), "-o", str(out)]
        arguments += [word for words in more for word in words]
        with strict():
            result = CliRunner().invoke(app, arguments, catch_exceptions=False)
        assert result.exit_code in (0, 1, 2), f"exit code {result.exit_code}"
        if result.exit_code:
            assert result.stderr.strip(), "it failed without a word"
            assert not out.exists(), "something was left behind"
        return result.exit_code == 0
