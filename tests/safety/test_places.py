"""Places that are full, read-only or shared; and what commands touch beside what they were told to write."""

import errno
import json
import os
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from counterpoise import files
from counterpoise.cli import app
from counterpoise.exceptions import InvalidInputError
from counterpoise.experiments.mnist import keep
from counterpoise.experiments.reproduce import Settings, Silent, reproduce
from counterpoise.files import alone, check_output_folder, whole, whole_folder
from counterpoise.tables.tabular.saved import FILES, load
from tests.safety.processes import MODEL, SALES, SOURCE, commands, environment, listing, table

unix = pytest.mark.skipif(sys.platform == "win32", reason="limits and mounts of Unix")

# A file may grow to so many bytes: what a full disk does to whoever writes.
FULL = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, ({0}, {0}))"


@unix
@pytest.mark.parametrize(("name", "room"), [("fit", 1000), ("fit", 15_000), ("stock", 1000)])
def test_a_full_disk_is_one_line_and_leaves_what_was_there(pressed, tmp_path, name, room):
    out = tmp_path / "out"
    out.mkdir()
    arguments, written = commands(table(tmp_path), out)[name]
    if name == "fit":
        written.mkdir()
    old = written / "report.html" if name == "fit" else written
    old.write_text("old")
    code, _, said = pressed(arguments, before=FULL.format(room))
    assert code == 1
    assert said.splitlines()[-1].startswith("Error: ")
    assert said.splitlines()[-1].endswith("Choose another place, or make room.")
    assert "Traceback" not in said
    assert old.read_text() == "old"
    assert len(listing(out)) == (2 if name == "fit" else 1)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full")
def test_a_printout_that_finds_no_room_is_one_line(tmp_path):
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-c", "from counterpoise.cli import main; main()", "stock", str(table(tmp_path)), *SALES],
            **{"cwd": tmp_path, "env": environment(tmp_path), "stdout": full, "stderr": subprocess.PIPE, "text": True},
            check=False,
        )
    assert done.returncode == 1
    assert "No space left" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("name", ["fit", "stock", "explore", "reproduce"])
def test_a_read_only_folder_is_refused_before_the_work(tmp_path, monkeypatch, name):
    def refuse(dir):
        raise OSError(errno.EROFS, "Read-only file system", str(dir))

    arguments, _ = {
        **commands(table(tmp_path), tmp_path),
        "reproduce": (("reproduce", "--panel", "4b", "--out", tmp_path / "paper"), None),
    }[name]
    monkeypatch.setattr(files.tempfile, "TemporaryFile", refuse)
    result = CliRunner().invoke(app, [str(one) for one in arguments], catch_exceptions=False)
    assert result.exit_code == 2
    assert "cannot be written: Read-only file system. Name another place." in result.stderr
    assert listing(tmp_path) == ["patients.csv"]


@pytest.mark.skipif(sys.platform != "linux" or os.geteuid() != 0, reason="mounts a folder, as root")
def test_a_mount_that_is_read_only_or_full(pressed, tmp_path):
    file, mount = table(tmp_path), tmp_path / "mount"
    mount.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24k", "tmpfs", mount], check=False, capture_output=True)
    if made.returncode:
        pytest.skip("nothing can be mounted here")
    try:
        code, _, said = pressed(("fit", file, *MODEL, "--out", mount / "model"))
        assert code == 1
        assert "No space left on device" in said
        assert listing(mount) == []
        subprocess.run(["mount", "-o", "remount,ro", mount], check=True)
        code, _, said = pressed(("stock", file, *SALES, "--out", mount / "stock.html"))
        assert code == 2
        assert "Read-only file system" in said
    finally:
        subprocess.run(["umount", mount], check=True)


def test_a_cache_that_cannot_be_written_is_done_without(tmp_path):
    (tmp_path / "file").write_text("in the way")
    keep(tmp_path / "file" / "below.npz", numbers=[1.0])
    assert listing(tmp_path) == ["file"]


# --- two at once -----------------------------------------------------------------------------------------------------


# Two go on from here at once; who began them waits, and ends as the worse of them does.
TWICE = """
import os

begun = []
for _ in range(2):
    begun.append(os.fork())
    if begun[-1] == 0:
        break
else:
    os._exit(max(os.waitstatus_to_exitcode(os.waitpid(one, 0)[1]) % 256 for one in begun))
"""


@unix
def test_two_fits_to_one_folder_leave_the_whole_of_one(pressed, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    arguments, written = commands(table(tmp_path), out)["fit"]
    code, _, said = pressed(arguments, before=TWICE)
    assert code == 0, said
    assert listing(written) == sorted(FILES)
    assert listing(out) == sorted(["model", *(f"model/{name}" for name in FILES)])
    load(written)


def test_what_another_run_wrote_meanwhile_is_not_replaced_unasked(tmp_path):
    path = tmp_path / "model"

    def write(folder):
        # The other one is done while this one writes.
        path.mkdir()
        (path / "report.html").write_text("of the other")
        (folder / "report.html").write_text("mine")

    with pytest.raises(InvalidInputError, match="holds a model already"):
        whole_folder(path, write, lambda: check_output_folder(path, FILES))
    assert (path / "report.html").read_text() == "of the other"
    assert listing(tmp_path) == ["model", "model/report.html"]


@pytest.mark.parametrize("name", ["stock", "predict"])
def test_a_file_that_another_run_wrote_meanwhile_is_not_replaced_unasked(tmp_path, monkeypatch, name):
    file, out = table(tmp_path), tmp_path / "out.csv"
    if name == "stock":
        from counterpoise.reports import stock as module

        work, arguments = "written", ("stock", file, *SALES)
    else:
        from counterpoise.tables.tabular import saved as module

        fitted = CliRunner().invoke(app, [str(one) for one in commands(file, tmp_path)["fit"][0]])
        assert fitted.exit_code == 0
        work, arguments = "load", ("predict", tmp_path / "model", file)
    before = getattr(module, work)

    def slow(*args, **options):
        out.write_text("of the other")
        return before(*args, **options)

    monkeypatch.setattr(module, work, slow)
    result = CliRunner().invoke(app, [str(one) for one in (*arguments, "--out", out)], catch_exceptions=False)
    assert result.exit_code == 2
    assert "exists already. Pass --force" in result.stderr
    assert out.read_text() == "of the other"


@unix
def test_two_reproductions_in_one_folder_add_to_each_other(tmp_path):
    out, said = tmp_path / "paper", []

    class Slow(Silent):
        def say(self, words):
            # While the first draws nothing yet, a second begins and ends.
            if not said:
                said.append(words)
                reproduce(Settings(out, ("1a",), jobs=1), Silent())

    reproduce(Settings(out, ("4b",), runs=2, jobs=1), Slow())
    about = json.loads((out / "about.json").read_text(encoding="utf-8"))
    assert {"illustration", "stock-control"} <= set(about)
    table = (out / "results.csv").read_text(encoding="utf-8")
    assert "illustration," in table
    assert "stock-control," in table
    page = (out / "index.html").read_text(encoding="utf-8")
    assert "1a.svg" in page
    assert "4b.svg" in page


@unix
def test_a_lock_is_waited_for_and_not_for_ever(tmp_path):
    with alone(tmp_path), alone(tmp_path, patience=0.05):
        whole(tmp_path / "report.html", lambda part: part.write_text("new"))
    with alone(tmp_path / "nowhere"):
        pass
    assert listing(tmp_path) == ["report.html"]


# --- nothing else is touched -----------------------------------------------------------------------------------------

NO_NETWORK = """
import socket

def refuse(*args, **kwargs):
    raise AssertionError("asked for the network")

socket.socket.connect = socket.socket.connect_ex = refuse
socket.getaddrinfo = socket.create_connection = refuse
"""


@pytest.mark.parametrize("name", ["fit", "compare", "stock", "explore", "predict", "reproduce"])
def test_nothing_is_written_elsewhere_and_no_network_is_used(pressed, tmp_path, fitted, name):
    file, model = fitted
    home, temporary, out = tmp_path / "home", tmp_path / "temporary", tmp_path / "out"
    for folder in (home, temporary, out):
        folder.mkdir()
    arguments = {
        **{key: one[0] for key, one in commands(file, out).items()},
        "predict": ("predict", model, file, "--out", out / "new.csv"),
        "reproduce": (
            "reproduce",
            "--panel",
            "1a",
            "--panel",
            "6a",
            "--features",
            "pca",
            "--runs",
            1,
            "--jobs",
            1,
            "--out",
            out,
        ),
    }[name]
    before = listing(file.parent)
    own = {"HOME": str(home), "TMPDIR": str(temporary), "COUNTERPOISE_CACHE": str(out)}
    elsewhere = f"import os, tempfile; os.chdir({str(home)!r}); os.environ |= {own}; tempfile.tempdir = None"
    code, _, said = pressed(arguments, before=f"{NO_NETWORK}\n{elsewhere}")
    assert code == 0, said
    assert listing(home) == []
    assert listing(file.parent) == before
    assert listing(temporary) == []
    assert (listing(out) == []) == (name == "compare")


def test_importing_writes_nothing_and_asks_for_no_network(tmp_path):
    code = f"{NO_NETWORK}\nimport counterpoise.cli, counterpoise.reports.explorer, counterpoise.tables.tabular.saved"
    subprocess.run([sys.executable, "-Bc", code], cwd=tmp_path, env=environment(tmp_path), check=True)
    assert listing(tmp_path) == []


def test_no_module_of_ours_knows_the_network():
    words = ("urllib.request", "import requests", "http.client", "import socket", " fetch_", ".fetch_")
    found = {path.name for path in SOURCE.rglob("*.py") if any(word in path.read_text("utf-8") for word in words)}
    assert found == {"mnist.py"}
