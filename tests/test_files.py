"""Outputs: whole or not at all, and refused before the work, not after it."""

import multiprocessing
import sys
import threading
from pathlib import Path

import pytest

from counterpoise.exceptions import InvalidInputError
from counterpoise.files import check_output, check_output_folder, whole, whole_folder


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


# --- folders ---------------------------------------------------------------------------------------------------------


def fill(folder, text="new"):
    (folder / "model.json").write_text(text)
    (folder / "report.html").write_text(text)


def content(folder):
    return {path.name: path.read_text() for path in folder.iterdir()}


def test_a_folder_is_written_with_the_folders_around_it(tmp_path):
    path = tmp_path / "a" / "b" / "model"
    whole_folder(path, fill)
    assert content(path) == {"model.json": "new", "report.html": "new"}
    assert list(path.parent.iterdir()) == [path]


def test_a_folder_that_is_there_is_replaced_with_all_that_was_in_it(tmp_path):
    path = tmp_path / "model"
    whole_folder(path, lambda part: (fill(part, "old"), (part / "metrics.json").write_text("old")))
    whole_folder(path, fill)
    assert content(path) == {"model.json": "new", "report.html": "new"}
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("there", [False, True])
@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_an_interrupted_folder_keeps_the_old_one_and_leaves_no_part(tmp_path, error, there):
    path = tmp_path / "model"
    if there:
        whole_folder(path, lambda part: fill(part, "old"))

    def write(part):
        fill(part)
        raise error

    with pytest.raises(error):
        whole_folder(path, write)
    assert list(tmp_path.iterdir()) == [path] * there
    assert not there or content(path) == {"model.json": "old", "report.html": "old"}


@pytest.mark.parametrize("move", [0, 1])
@pytest.mark.parametrize("before", [False, True])
def test_an_interruption_between_the_moves_loses_nothing(tmp_path, monkeypatch, move, before):
    path, moved, replace = tmp_path / "model", [], Path.replace
    whole_folder(path, lambda part: fill(part, "old"))

    def interrupted(self, target):
        moved.append(target)
        if len(moved) == move + 1 and before:
            raise KeyboardInterrupt
        replace(self, target)
        if len(moved) == move + 1 and not before:
            raise KeyboardInterrupt

    monkeypatch.setattr(Path, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        whole_folder(path, fill)
    assert list(tmp_path.iterdir()) == [path]
    assert content(path) in ({"model.json": text, "report.html": text} for text in ("old", "new"))


def test_threads_that_write_the_same_folder_leave_one_of_theirs(tmp_path):
    path, failed = tmp_path / "model", []

    def write_often(letter):
        for _ in range(30):
            try:
                whole_folder(path, lambda part: fill(part, letter * 1000))
            except OSError:
                # Whoever comes second may be told so; nobody may be given a mixture.
                failed.append(letter)

    threads = [threading.Thread(target=write_often, args=(letter,)) for letter in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert list(tmp_path.iterdir()) == [path]
    assert len(set(content(path).values())) == 1
    assert len(failed) < 60


OURS = ("model.json", "report.html")


def test_a_folder_of_ours_is_replaced_only_with_force(tmp_path):
    path = tmp_path / "model"
    check_output_folder(path, OURS)
    path.mkdir()
    check_output_folder(path, OURS)
    fill(path, "old")
    with pytest.raises(InvalidInputError, match=r"holds a model already. Pass --force"):
        check_output_folder(path, OURS)
    check_output_folder(path, OURS, force=True)
    assert content(path) == dict.fromkeys(OURS, "old")
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("force", [False, True])
def test_what_is_not_a_folder_of_ours_is_never_replaced(tmp_path, force):
    path = tmp_path / "model"
    path.mkdir()
    fill(path)
    (path / "thesis.tex").write_text("years of work")
    with pytest.raises(InvalidInputError, match=r"files that are not of a model \(thesis.tex\)"):
        check_output_folder(path, OURS, force)
    with pytest.raises(InvalidInputError, match="is not a folder"):
        check_output_folder(path / "thesis.tex", OURS, force)
    (tmp_path / "link").symlink_to(path)
    with pytest.raises(InvalidInputError, match="is not a folder"):
        check_output_folder(tmp_path / "link", OURS, force)
    with pytest.raises(InvalidInputError, match="is a file, not a folder"):
        check_output_folder(path / "thesis.tex" / "model", OURS, force)


def test_a_folder_that_cannot_be_moved_is_filled_where_it_is(tmp_path, monkeypatch):
    path, make = tmp_path / "model", Path.mkdir
    path.mkdir()

    def refuse(self, *args, **kwargs):
        if self.parent == tmp_path:
            raise PermissionError(13, "Permission denied", str(self))
        return make(self, *args, **kwargs)

    monkeypatch.setattr(Path, "mkdir", refuse)
    check_output_folder(path, OURS)
    whole_folder(path, fill)
    assert content(path) == dict.fromkeys(OURS, "new")


@pytest.mark.parametrize("place", [".", "", "../here"])
def test_the_folder_one_is_in_can_be_written_or_is_refused(tmp_path, monkeypatch, place):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    try:
        check_output_folder(Path(place), OURS)
    except InvalidInputError:
        return
    whole_folder(Path(place), fill)
    assert content(tmp_path / "here") == dict.fromkeys(OURS, "new")
    assert [one.name for one in tmp_path.iterdir()] == ["here"]
