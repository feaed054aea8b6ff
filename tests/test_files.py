"""Outputs: whole or not at all, and refused before the work, not after it."""

import multiprocessing
import sys
import threading
from pathlib import Path

import pytest

from counterpoise.exceptions import InvalidInputError
from counterpoise.files import check_output, whole


def test_a_file_is_written_with_the_folders_around_it(tmp_path):
    path = tmp_path / "a" / "b" / "report.html"
    whole(path, lambda part: part.write_text("new"))
    assert path.read_text() == "new"
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit, GeneratorExit])
def test_an_interrupted_write_keeps_the_old_file_and_leaves_no_part(tmp_path, error):
    path = tmp_path / "report.html"
    path.write_text("old")

    def write(part):
        part.write_text("half")
        raise error

    with pytest.raises(error):
        whole(path, write)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_the_longest_name_a_file_system_takes_can_be_written(tmp_path):
    path = tmp_path / ("x" * 250 + ".html")
    whole(path, lambda part: part.write_text("new"))
    assert path.read_text() == "new"


def _write_often(path, letter):
    for _ in range(50):
        whole(Path(path), lambda part: part.write_text(letter * 100_000))


@pytest.mark.parametrize("kind", ["threads", "processes"])
def test_writers_of_the_same_file_do_not_mix(tmp_path, kind):
    path = tmp_path / "report.html"
    start = threading.Thread if kind == "threads" else multiprocessing.get_context("spawn").Process
    writers = [start(target=_write_often, args=(str(path), letter)) for letter in "ab"]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
        assert kind == "threads" or writer.exitcode == 0
    text = path.read_text()
    assert len(text) == 100_000
    assert len(set(text)) == 1
    assert list(tmp_path.iterdir()) == [path]


def test_an_existing_file_is_replaced_only_with_force(tmp_path):
    path = tmp_path / "report.html"
    check_output(path)
    path.write_text("old")
    with pytest.raises(InvalidInputError, match=rf"{path} exists already. Pass --force"):
        check_output(path)
    check_output(path, force=True)
    assert path.read_text() == "old"


def test_a_place_in_folders_that_do_not_exist_is_fine_and_nothing_is_made(tmp_path):
    check_output(tmp_path / "a" / "b" / "report.html")
    assert list(tmp_path.iterdir()) == []


def test_a_relative_place_is_fine(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    check_output(Path("report.html"))


@pytest.mark.parametrize("force", [False, True])
def test_places_where_no_file_can_be_are_refused(tmp_path, force):
    file = tmp_path / "sales.csv"
    file.write_text("a\n1\n")
    with pytest.raises(InvalidInputError, match=r"is a folder. Name a file"):
        check_output(tmp_path, force)
    for below in (file / "report.html", file / "deep" / "report.html"):
        with pytest.raises(InvalidInputError, match=r"sales.csv is a file, not a folder"):
            check_output(below, force)
    with pytest.raises(InvalidInputError, match="cannot be written"):
        check_output(tmp_path / ("x" * 5000), force)


@pytest.mark.skipif(sys.platform != "linux", reason="asks for /proc and /dev")
def test_places_the_system_guards_are_refused():
    with pytest.raises(InvalidInputError, match="cannot be written"):
        check_output(Path("/proc/report.html"))
    with pytest.raises(InvalidInputError, match="is not a file that can be replaced"):
        check_output(Path("/dev/null"), force=True)


def test_a_folder_that_may_not_be_written_is_refused(tmp_path, monkeypatch):
    def refuse(dir):
        raise PermissionError(13, "Permission denied", str(dir))

    monkeypatch.setattr("counterpoise.files.tempfile.TemporaryFile", refuse)
    with pytest.raises(InvalidInputError, match=r"report.html cannot be written: Permission denied. Name another"):
        check_output(tmp_path / "report.html")
