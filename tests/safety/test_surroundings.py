"""Names, encodings, pipes and places that are not as a command would like them: one line, never a traceback."""

import json
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest

from counterpoise.cli import main
from tests.safety.processes import COMMAND, MODEL, SALES, commands, environment, listing, table
from tests.tables.tabular.examples import patients, save

unix = pytest.mark.skipif(sys.platform == "win32", reason="names and pipes of Unix")


def ran(capsys, monkeypatch, *arguments):
    """Run a command here; return its exit code, and what it printed and said."""
    monkeypatch.setattr(sys, "argv", ["counterpoise", *map(str, arguments)])
    try:
        main()
        code = 0
    except SystemExit as end:
        code = end.code or 0
    return code, *capsys.readouterr()


@pytest.fixture
def run(capsys, monkeypatch):
    return lambda *arguments: ran(capsys, monkeypatch, *arguments)


def is_refusal(code, said):
    """Tell whether all that was said is one line, which is about a mistake of the user."""
    return code == 2 and said.count("\n") == 1 and said.startswith("Error: ")


def every(file, out, model):
    """Return commands that write to a place."""
    return {
        "fit": ("fit", file, *MODEL, "--out", out),
        "stock": ("stock", file, *SALES, "--out", out),
        "explore": ("explore", file, *SALES, "--out", out),
        "predict": ("predict", model, file, "--out", out.with_name(f"{out.name}.csv")),
        "reproduce": ("reproduce", "--panel", "1a", "--jobs", "1", "--out", out),
    }


NAMES = ("fit", "stock", "explore", "predict", "reproduce")

# --- names -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("length", [256, 5000])
def test_a_name_that_is_too_long_is_refused(run, tmp_path, fitted, name, length):
    code, _, said = run(*every(fitted[0], tmp_path / ("x" * length), fitted[1])[name])
    assert is_refusal(code, said.lstrip("\n")), said
    assert listing(tmp_path) == []


@unix
@pytest.mark.parametrize("name", ["two\nlines", "100%s%d{x}", "önü 中 \U0001f600", "red \x1b[31m", "x" * 200, "-n"])
def test_any_other_name_is_fine_and_does_not_steer_the_terminal(run, tmp_path, name):
    file = shutil.copy(table(tmp_path), tmp_path / f"{name}.csv")
    out = tmp_path / f"{name}.html"
    code, printed, said = run("stock", file, *SALES, "--out", out)
    assert code == 0, said
    assert out.read_text(encoding="utf-8").endswith("</html>\n")
    assert "\x1b" not in printed + said


@unix
def test_a_name_that_is_no_text_is_refused_or_used_but_never_a_traceback(run, tmp_path, fitted):
    strange = tmp_path / os.fsdecode(b"\xff\xfe.csv")
    try:
        shutil.copy(fitted[0], strange)
    except OSError:
        pytest.skip("this file system wants text")
    for arguments in (
        ("stock", strange, *SALES, "--out", tmp_path / "stock.html"),
        ("compare", strange, *MODEL),
        ("predict", fitted[1], fitted[0], "--force", "--out", strange),
    ):
        code, _, said = run(*arguments)
        assert is_refusal(code, said), said
        assert "is not UTF-8. Rename it" in said
    code, _, said = run("stock", fitted[0], *SALES, "--force", "--out", strange)
    assert code == 0, said
    assert strange.read_bytes().endswith(b"</html>\n")


# --- places ----------------------------------------------------------------------------------------------------------


@unix
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("leads", ["to a file", "nowhere", "to itself"])
def test_a_link_is_not_written_through_nor_replaced_unasked(run, tmp_path, fitted, name, leads):
    link, aim = tmp_path / "link", tmp_path / "elsewhere"
    if leads == "to a file":
        aim.write_text("precious")
    for one in (link, tmp_path / "link.csv"):
        one.symlink_to(one if leads == "to itself" else aim)
    code, _, said = run(*every(fitted[0], link, fitted[1])[name])
    assert is_refusal(code, said), said
    assert link.is_symlink()
    if leads == "to a file":
        assert aim.read_text() == "precious"
    else:
        assert not aim.exists()


@unix
def test_a_link_to_a_folder_is_followed_where_it_is_not_the_output_itself(run, tmp_path, fitted):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    code, _, said = run("stock", fitted[0], *SALES, "--out", tmp_path / "link" / "stock.html")
    assert code == 0, said
    assert listing(tmp_path / "real") == ["stock.html"]
    code, _, said = run("fit", fitted[0], *MODEL, "--out", tmp_path / "link")
    assert is_refusal(code, said)
    assert "Name what it leads to" in said


@unix
@pytest.mark.parametrize("becomes", ["nothing", "a file"])
@pytest.mark.parametrize("name", ["fit", "stock"])
def test_a_folder_that_vanishes_meanwhile(pressed, tmp_path, name, becomes):
    out = tmp_path / "out"
    out.mkdir()
    arguments, written = commands(table(tmp_path), out)[name]
    # Where the work begins, what was checked before it is no longer so.
    before = f"""
import counterpoise.tables.reading.opening as opening, os
kind = opening._kind

def vanish(path):
    if os.path.isdir({str(out)!r}):
        os.rmdir({str(out)!r})
        {becomes == "a file"} and open({str(out)!r}, "w").close()
    return kind(path)

opening._kind = vanish
"""
    code, _, said = pressed(arguments, before=before)
    assert "Traceback" not in said
    if becomes == "nothing":
        assert code == 0, said
        assert written.exists()
    else:
        assert code in (1, 2), said
        assert said.splitlines()[-1].startswith("Error: ")
        assert out.read_text() == ""
    assert not [one for one in listing(tmp_path) if one.endswith((".part", ".old"))]


@unix
@pytest.mark.parametrize("kind", ["pipe", "folder", "no folder", "too long"])
def test_a_checkpoint_that_cannot_be_one_is_refused_before_the_work(run, tmp_path, fitted, kind):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    places = {"no folder": tmp_path / "no" / "kept", "too long": tmp_path / ("x" * 300)}
    place = places.get(kind, tmp_path / kind)
    code, _, said = run("fit", fitted[0], *MODEL, "--checkpoint", place, "--memory", "1kB", "--out", tmp_path / "model")
    assert is_refusal(code, said), said
    assert "cannot be used as a checkpoint" in said
    assert listing(tmp_path) == ["folder", "pipe"]


# --- tables ----------------------------------------------------------------------------------------------------------


@unix
@pytest.mark.parametrize("name", ["fit", "compare", "stock", "explore", "predict"])
@pytest.mark.parametrize("kind", ["pipe", "/dev/zero", "/dev/null", "folder", "zeros", "bytes"])
def test_what_is_no_table_is_refused(run, tmp_path, fitted, name, kind):
    content = fitted[0].read_bytes()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "zeros").write_bytes(content.replace(b"north", b"no\0th"))
    (tmp_path / "bytes").write_bytes(np.random.default_rng(0).bytes(5000))
    place = tmp_path / kind
    if not place.exists():
        pytest.skip(f"there is no {kind}")
    given = {**every(place, tmp_path / "out", fitted[1]), "compare": ("compare", place, *MODEL)}
    code, _, said = run(*given[name])
    assert is_refusal(code, said), said
    assert listing(tmp_path) == ["bytes", "folder", "pipe", "zeros"]


def test_ten_thousand_columns_are_no_trouble(run, tmp_path):
    rng = np.random.default_rng(0)
    more = {f"column {k}": rng.integers(0, 9, 60) for k in range(10_000)}
    file = save({**{name: column[:60] for name, column in patients().items()}, **more}, tmp_path / "wide.csv")
    code, _, said = run("stock", file, *SALES, "--out", tmp_path / "stock.html")
    assert code == 0, said
    code, _, said = run("compare", file, "--target", "column", "--context", "hospital")
    assert is_refusal(code, said)
    assert len(said) < 1000


# --- what is printed -------------------------------------------------------------------------------------------------


# The command several times in one process, each time with an encoding of its own for what is printed.
IN_EACH_ENCODING = """
import io, sys
from counterpoise.cli import main

for encoding, *arguments in {calls!r}:
    sys.stdout = io.TextIOWrapper(open(arguments[-1] + ".printed", "wb"), encoding=encoding)
    sys.argv = ["counterpoise", *arguments]
    try:
        main()
    except SystemExit as end:
        assert not end.code, end.code
    sys.stdout.close()
"""
NARROW = (("cp1252", False), ("cp1252", True), ("ascii", True))
TOWNS = ("Zürich", "北 \U0001f600")


@pytest.fixture(scope="module")
def abroad(tmp_path_factory):
    """Return the folder of a process in the plainest locale, with neither a home nor a place for temporary files."""
    folder = tmp_path_factory.mktemp("abroad")
    file = save({**patients(), "hospital": np.array(TOWNS)[np.arange(150) % 2]}, folder / "sales.csv")
    calls = [
        (
            encoding,
            "stock",
            str(file),
            *SALES,
            *["--json"] * as_json,
            "--out",
            str(folder / f"{encoding} {as_json}.html"),
        )
        for encoding, as_json in NARROW
    ]
    done = subprocess.run(
        [sys.executable, "-c", IN_EACH_ENCODING.format(calls=calls)],
        cwd=folder,
        env=environment(
            folder,
            PYTHONUTF8="0",
            LANG="C",
            **dict.fromkeys(("HOME", "TMPDIR", "MPLCONFIGDIR"), str(folder / "none")),
        ),
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.parametrize(("encoding", "as_json"), NARROW)
def test_letters_that_the_output_lacks_are_no_reason_to_fail(abroad, encoding, as_json):
    printed = (abroad / f"{encoding} {as_json}.html.printed").read_bytes()
    if as_json:
        result = json.loads(printed.decode(encoding))
        assert {row["context"] for row in result["reasons"]} == set(TOWNS)
    else:
        assert b"Order" in printed


@unix
def test_neither_a_home_nor_a_place_for_temporary_files_is_needed(abroad):
    pages = [f"{encoding} {as_json}.html" for encoding, as_json in NARROW]
    assert listing(abroad) == sorted(["sales.csv", *pages, *(f"{page}.printed" for page in pages)])


@unix
def test_a_reader_that_has_had_enough_ends_the_command_quietly(tmp_path):
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [*COMMAND, "stock", str(table(tmp_path)), *SALES, "--out", str(tmp_path / "stock.html")],
        **{"cwd": tmp_path, "env": environment(tmp_path), "stdout": write, "stderr": subprocess.PIPE},
        check=False,
    )
    os.close(write)
    assert done.returncode == 1
    assert done.stderr == b""
    # What was asked for is there all the same.
    assert (tmp_path / "stock.html").read_text(encoding="utf-8").endswith("</html>\n")
