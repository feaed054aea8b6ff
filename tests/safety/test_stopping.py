"""Ctrl-C, SIGTERM and a closed terminal, where there are temporary files, other processes, or a cluster."""

import contextlib
import os
import random
import signal
import sys
import time

import psutil
import pytest

from counterpoise.cli import main
from counterpoise.cli._stopping import Terminated, terminable
from counterpoise.experiments.results import Results
from counterpoise.signals import undisturbed
from tests.dask_.conftest import running
from tests.safety.processes import ILL, commands, listing, start, table
from tests.safety.test_interruption import TRIALS, is_whole
from tests.tables.tabular.examples import patients, save

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals of Unix")

WORDS = {"SIGINT": "Interrupted.", "SIGTERM": "Terminated.", "SIGHUP": "Terminated."}


def stopped_well(code, said, name):
    """Tell whether a command that was stopped says so in its last line, with the code that shells expect."""
    assert "Traceback" not in said, said
    return code == 128 + getattr(signal, name) and said.strip().splitlines()[-1].startswith(WORDS[name])


# --- files -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "kind"), [("SIGINT", "csv"), ("SIGTERM", "csv"), ("SIGINT", "parquet")])
def test_predictions_are_all_there_or_not_at_all(pressed, tmp_path, fitted, name, kind):
    out = tmp_path / "out"
    out.mkdir()
    new = save(patients(20_000), tmp_path / "new.csv")
    written = out / f"predicted.{kind}"
    arguments = ("predict", fitted[1], new, "--force", "--out", written)
    code, seconds, said = pressed(arguments)
    assert code == 0, said
    whole = written.read_bytes()
    number, rng = getattr(signal, name), random.Random(name)
    code, _, said = pressed(arguments, f"{out}/.predicted", number=number)
    assert stopped_well(code, said, name), said
    assert listing(out) == [written.name]
    assert written.read_bytes() == whole
    for _ in range(TRIALS):
        written.unlink(missing_ok=True)
        code, _, said = pressed(arguments, rng.uniform(0.1, 1.0) * seconds, number=number)
        # Before the command has begun it says nothing, or Python ends at once.
        silent = code == (130 if name == "SIGINT" else -number) and not said
        assert code == 0 or silent or stopped_well(code, said, name), said
        assert listing(out) == ([written.name] if code == 0 else [])
    assert pressed(arguments)[0] == 0
    assert written.read_bytes() == whole


@pytest.mark.parametrize("name", ["SIGINT", "SIGHUP"])
def test_a_fit_in_chunks_leaves_no_blocks_and_goes_on_from_its_checkpoint(pressed, tmp_path, name):
    out, temporary = tmp_path / "out", tmp_path / "temporary"
    out.mkdir()
    temporary.mkdir()
    file = save(patients(3000), tmp_path / "patients.csv")
    chunks = ("--memory", "100kB", "--checkpoint", out / "kept", "--folds", "2", "--radius", "0.1")
    arguments = ("fit", file, *ILL, *chunks, "--out", out / "model")
    elsewhere = f"import tempfile; tempfile.tempdir = {str(temporary)!r}"
    # While the table is written as blocks, and while these are read.
    for moment in (f"{temporary}/counterpoise-", f"{out}/kept"):
        code, _, said = pressed(arguments, moment, elsewhere, getattr(signal, name))
        assert stopped_well(code, said, name), said
        assert listing(temporary) == []
    assert listing(out) == ["kept"]
    assert pressed(arguments, before=elsewhere)[0] == 0
    assert listing(temporary) == []
    assert not (out / "kept").exists()
    assert is_whole(out / "model")


# --- processes -------------------------------------------------------------------------------------------------------


def stop_after_two_runs(process, out, name):
    """Stop a reproduction that has begun; return its exit code, what it said, and its processes that live on."""
    end = time.monotonic() + 60.0
    while len(list(out.rglob("runs/*/0*.json"))) < 2:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end
        time.sleep(0.005)
    workers = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(getattr(signal, name))
    # Ends only when nobody else holds the other side of these pipes.
    _, said = process.communicate(timeout=60)
    return process.returncode, said, psutil.wait_procs([one for one in workers if lives(one)], timeout=5)[1]


def lives(process):
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.status() != psutil.STATUS_ZOMBIE
    return False


@pytest.mark.parametrize("name", ["SIGTERM"])
def test_no_process_outlives_a_reproduction(pressed, tmp_path, name):
    out, temporary = tmp_path / "out", tmp_path / "temporary"
    temporary.mkdir()
    arguments = ("reproduce", "--panel", "4b", "--runs", "20", "--out", out)
    own = {"TMPDIR": str(temporary), "JOBLIB_TEMP_FOLDER": str(temporary), "MPLCONFIGDIR": str(tmp_path)}
    process = start((*arguments, "--jobs", "2"), tmp_path, **own)
    code, said, left = stop_after_two_runs(process, out, name)
    assert stopped_well(code, said, name), said
    assert not left
    assert listing(temporary) == []
    assert [one for one in listing(out) if one.endswith((".part", ".csv", ".html"))] == []
    code, _, said = pressed((*arguments, "--jobs", "1"))
    assert code == 0, said
    assert len(Results.load(out).series("stock-control", "robust", "worst")) == 20


def test_a_cluster_outlives_a_reproduction_and_serves_the_next(pressed, tmp_path):
    out = tmp_path / "out"
    with running(1) as client:
        arguments = ("reproduce", "--panel", "4b", "--runs", "20", "--out", out)
        arguments += ("--cluster", client.scheduler.address)
        process = start(arguments, tmp_path, MPLCONFIGDIR=str(tmp_path))
        code, said, left = stop_after_two_runs(process, out, "SIGINT")
        assert stopped_well(code, said, "SIGINT"), said
        assert not left
        kept = len(list(out.rglob("runs/*/0*.json")))
        assert kept < 20
        code, _, said = pressed(arguments)
        assert code == 0, said
    assert len(Results.load(out).series("stock-control", "robust", "worst")) == 20


# --- signals ---------------------------------------------------------------------------------------------------------


BEFOREHAND = """
import os, signal
from typer.core import TyperGroup

invoke = TyperGroup.invoke
TyperGroup.invoke = lambda *given: (os.kill(os.getpid(), signal.{}), invoke(*given))[1]
"""


@pytest.mark.parametrize(("name", "last"), [("SIGINT", ""), ("SIGTERM", "Terminated."), ("SIGHUP", "Terminated.")])
def test_a_command_that_is_stopped_before_it_begins_has_the_code_of_the_signal(pressed, tmp_path, name, last):
    arguments, written = commands(table(tmp_path), tmp_path)["explore"]
    code, _, said = pressed(arguments, None, BEFOREHAND.format(name))
    assert (code, said.strip()) == (128 + getattr(signal, name), last)
    assert not written.exists()


def test_a_signal_that_is_ignored_stays_ignored():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with terminable():
            os.kill(os.getpid(), signal.SIGHUP)
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_signal_waits_until_files_are_in_their_places():
    done = []

    def move():
        with undisturbed():
            os.kill(os.getpid(), signal.SIGTERM)
            done.append("moved")
        done.append("never")

    with pytest.raises(Terminated) as stop, terminable():
        move()
    assert done == ["moved"]
    assert stop.value.code == 128 + signal.SIGTERM


def test_the_command_leaves_signals_as_it_found_them(monkeypatch):
    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(sys, "argv", ["counterpoise", "--version"])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 0
    assert signal.getsignal(signal.SIGTERM) is before
