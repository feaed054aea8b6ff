"""Ratios that have become worse are found, whichever way worse is."""

import csv
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "regression.py"
HEAD = ["work", "against", "ours", "theirs", "ratio", "target", "met"]


def compared(folder, old, new, *more):
    """Return the exit code and the table of lines (work, against, ratio, target)."""
    for name, lines in (("old", old), ("new", new)):
        with (folder / f"{name}.csv").open("w", newline="") as file:
            csv.writer(file).writerows([HEAD, *([w, a, 1.0, 1.0, r, t, True] for w, a, r, t in lines)])
    command = [sys.executable, str(SCRIPT), str(folder / "old.csv"), str(folder / "new.csv"), *more]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


LESS, MORE = "<= 1.5 x", ">= 10 x faster"


@pytest.mark.parametrize(
    ("target", "old", "new", "worse"),
    [
        (LESS, 1.0, 1.29, False),
        (LESS, 1.0, 1.31, True),
        (LESS, 1.0, 0.1, False),
        (MORE, 10.0, 7.8, False),
        (MORE, 10.0, 7.6, True),
        (MORE, 10.0, 90.0, False),
        (LESS, 1.0, float("nan"), True),
    ],
)
def test_larger_is_worse_below_a_target_and_smaller_above_one(tmp_path, target, old, new, worse):
    code, said = compared(tmp_path, [("fit", "peer", old, target)], [("fit", "another peer", new, target)])
    assert code == worse
    assert ("WORSE" in said) == worse


def test_the_tolerance_is_a_choice(tmp_path):
    lines = [("fit", "peer", 1.0, LESS)], [("fit", "peer", 1.1, LESS)]
    assert compared(tmp_path, *lines)[0] == 0
    assert compared(tmp_path, *lines, "--tolerance", "0.05")[0] == 1


def test_what_is_missing_counts_and_what_is_new_does_not(tmp_path):
    one, two = ("fit", "peer", 1.0, LESS), ("solve", "peer", 1.0, LESS)
    code, said = compared(tmp_path, [one, two], [one])
    assert code == 1
    assert "MISSING" in said
    assert compared(tmp_path, [one], [one, two])[0] == 0


def test_one_work_may_have_several_peers(tmp_path):
    old = [("fit", "a", 1.0, LESS), ("fit", "b", 1.0, LESS)]
    code, said = compared(tmp_path, old, [("fit", "a", 1.0, LESS), ("fit", "b", 2.0, LESS)])
    assert code == 1
    assert said.count("WORSE") == 1


def test_a_file_that_is_no_table_is_usage(tmp_path):
    (tmp_path / "no.csv").write_text("a,b\n1,2\n")
    done = subprocess.run(
        [sys.executable, str(SCRIPT), tmp_path / "no.csv", tmp_path / "no.csv"], capture_output=True, check=False
    )
    assert done.returncode == 2


def test_threads_are_compared_with_the_same_number_of_them_and_gaps_not_at_all(tmp_path):
    head = [*HEAD, "threads"]
    for name, ratios in (("old", (1.0, 3.0, 1e-9)), ("new", (1.1, 1.2, 0.9))):
        lines = [("fit", 1, LESS), ("fit", 2, LESS), ("certificate", 1, "proven")]
        with (tmp_path / f"{name}.csv").open("w", newline="") as file:
            rows = [[w, "peer", 1.0, 1.0, r, t, True, n] for (w, n, t), r in zip(lines, ratios, strict=True)]
            csv.writer(file).writerows([head, *rows])
    command = [sys.executable, str(SCRIPT), str(tmp_path / "old.csv"), str(tmp_path / "new.csv")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert "fit, 1 threads" in done.stdout
    assert "0 of 2 are worse" in done.stdout
