"""Ctrl-C at any moment: valid files or none, no rest, one line, and a state from which one can go on."""

import json
import os
import random
import shutil

import pytest

from counterpoise.experiments.results import Results
from counterpoise.tables.tabular.saved import FILES, load
from tests.safety.processes import commands, listing, table

TRIALS = int(os.environ.get("COUNTERPOISE_TRIALS", "1"))
"""Moments at which each command is interrupted; ``make stress`` asks for more."""


def is_whole(path):
    """Tell whether what a command wrote is complete."""
    if path.is_dir():
        assert listing(path) == sorted(FILES)
        assert json.loads((path / "metrics.json").read_text(encoding="utf-8"))
        load(path)
        path = path / "report.html"
    return path.read_text(encoding="utf-8").endswith("</html>\n")


def ended_well(code, said):
    """Tell whether a command was done or said in one line that it was interrupted."""
    # Python does not let Ctrl-C out of what it calls when objects die, nor out of what C calls; it says so and goes on.
    assert "Traceback" not in said or "Exception ignored in" in said or "Exception ignored on" in said, said
    if code == 0:
        return True
    # Before a command begins typer speaks, or does not.
    last = said.partition("Exception ignored")[0].strip().splitlines()[-1:]
    return code in (1, 130) and (not last or last[0].startswith(("Interrupted.", "Aborted")))


@pytest.mark.parametrize("name", ["fit", "stock", "explore"])
def test_a_command_that_writes_leaves_all_or_nothing(pressed, tmp_path, name):
    out = tmp_path / "out"
    out.mkdir()
    arguments, written = commands(table(tmp_path), out)[name]
    code, seconds, said = pressed(arguments)
    assert code == 0, said
    rng = random.Random(name)
    # Any moment; the end; and that at which files are written. There is an older file every other time.
    moments = [rng.uniform(0.0, 1.0) * seconds for _ in range(TRIALS)]
    moments += [rng.uniform(0.9, 1.0) * seconds for _ in range(TRIALS)] + 2 * [f"{out}/.{written.name}"]
    for k, moment in enumerate(moments):
        there = k % 2 == 0
        if not there:
            shutil.rmtree(written) if written.is_dir() else written.unlink(missing_ok=True)
        elif not written.exists():
            assert pressed(arguments)[0] == 0
        code, _, said = pressed(arguments, moment)
        assert ended_well(code, said), said
        assert listing(out) in ([], sorted([written.name, *listing_of(written)]))
        assert not written.exists() or is_whole(written)
        assert written.exists() or (code and not there)


def listing_of(path):
    return [f"{path.name}/{name}" for name in FILES] if path.is_dir() else []


AFTERWARDS = """
import os, signal
from typer.core import TyperGroup

invoke = TyperGroup.invoke
TyperGroup.invoke = lambda *given: (invoke(*given), os.kill(os.getpid(), signal.SIGINT))[0]
"""


def test_a_command_that_is_done_is_not_interrupted(pressed, tmp_path):
    arguments, written = commands(table(tmp_path), tmp_path)["explore"]
    code, _, said = pressed(arguments, None, AFTERWARDS)
    assert code == 0, said
    assert said.startswith("The page is in")
    assert is_whole(written)


def test_compare_writes_nothing_and_says_one_line(pressed, tmp_path):
    arguments, _ = commands(table(tmp_path), tmp_path)["compare"]
    _, seconds, _ = pressed(arguments)
    for k in range(TRIALS):
        code, _, said = pressed(arguments, seconds * (k + 0.5) / TRIALS)
        assert ended_well(code, said), said
    assert listing(tmp_path) == ["patients.csv"]


def test_a_reproduction_goes_on_to_the_same_table(pressed, tmp_path):
    arguments = ("reproduce", "--panel", "4b", "--runs", "12", "--jobs", "1", "--out")
    code, seconds, said = pressed((*arguments, tmp_path / "calm"))
    assert code == 0, said
    rng, out, kept = random.Random(0), tmp_path / "out", 0
    moments = [f"{out}/.results.csv", *(rng.uniform(0.05, 1.0) * seconds for _ in range(TRIALS)), f"{out}/.4b"]
    for moment in [*moments, f"{out}/.index"]:
        code, _, said = pressed((*arguments, out), moment)
        assert ended_well(code, said), said
        assert not [name for name in listing(out) if name.endswith(".part")]
        runs = list((out / "runs").rglob("*.json")) if out.exists() else []
        assert len(runs) >= kept
        kept = len(runs)
        for path in runs:
            assert json.loads(path.read_text(encoding="utf-8"))
    code, _, said = pressed((*arguments, out))
    assert code == 0, said
    assert Results.load(out).rows == Results.load(tmp_path / "calm").rows
    assert listing(out) == listing(tmp_path / "calm")
