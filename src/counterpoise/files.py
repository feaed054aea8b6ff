"""Files that are written: whole or not at all, and never over another without being told to."""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Collection
from pathlib import Path

from counterpoise.exceptions import InvalidInputError


def whole(path: Path, write: Callable[[Path], object]) -> None:
    """Write a file beside its place and move it there, so that nobody ever sees half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # The name is cut, so that a long one still fits a file system's limit with what is added here.
    part = path.with_name(f".{path.name[:50]}.{os.getpid()}.{threading.get_ident()}.part")
    try:
        write(part)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def check_output(path: Path, force: bool = False) -> None:
    """Refuse a place where a file cannot or must not be written; called before any long work is done.

    Parameters
    ----------
    force : bool
        Whether a file that exists may be replaced.
    """
    try:
        if path.is_dir():
            raise InvalidInputError(f"{path} is a folder. Name a file, for example {path / 'report.html'}.")
        if path.exists() and not path.is_file():
            raise InvalidInputError(f"{path} is not a file that can be replaced. Name another file.")
        if path.exists() and not force:
            raise InvalidInputError(f"{path} exists already. Pass --force (force=True) to replace it, or name another.")
        folder = next(one for one in path.absolute().parents if one.exists())
        if not folder.is_dir():
            raise InvalidInputError(f"{path} cannot be written: {folder} is a file, not a folder. Name another place.")
        # Asked of the file system itself: permission bits say little on network drives, on Windows, and to root.
        with tempfile.TemporaryFile(dir=folder):
            pass
    except (OSError, ValueError) as error:
        if isinstance(error, InvalidInputError):
            raise
        reason = getattr(error, "strerror", None) or error
        raise InvalidInputError(f"{path} cannot be written: {reason}. Name another place.") from error


def whole_folder(path: Path, write: Callable[[Path], object]) -> None:
    """Write a folder beside its place and move it there; one that is there already is replaced only then.

    A folder that cannot be moved, such as a mount, keeps its place, and the files are moved into it one by one.
    """
    path = path.resolve()
    mark = f"{os.getpid()}.{threading.get_ident()}"
    part, old = (path.with_name(f".{path.name[:50]}.{mark}.{end}") for end in ("part", "old"))
    movable = not path.is_mount()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part.mkdir()
    except OSError:
        movable = False
        if not path.is_dir():
            raise
    if not movable:
        shutil.rmtree(part, ignore_errors=True)
        _into(path, path / f".{mark}.part", write)
        return
    try:
        write(part)
        if path.exists():
            path.replace(old)
        part.replace(path)
    finally:
        # Interrupted between the two moves: what was there is put back.
        if old.exists() and not path.exists():
            old.replace(path)
        shutil.rmtree(part, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)


def _into(path: Path, part: Path, write: Callable[[Path], object]) -> None:
    """Write files within a folder, and move each to its place once all are there."""
    part.mkdir()
    try:
        write(part)
        for file in sorted(part.iterdir()):
            file.replace(path / file.name)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def check_output_folder(path: Path, ours: Collection[str], force: bool = False) -> None:
    """Refuse a place where a folder cannot or must not be written; called before any long work is done.

    Parameters
    ----------
    ours : collection of str
        The names of the files that it will hold. A folder with others in it is not ours to replace.
    force : bool
        Whether a folder of ours may be replaced.
    """
    if path.is_symlink() or (path.exists() and not path.is_dir()):
        raise InvalidInputError(f"{path} exists and is not a folder. Name another place.")
    path = path.resolve()
    if path.is_dir():
        others = sorted(one.name for one in path.iterdir() if one.name not in ours)
        if others:
            raise InvalidInputError(
                f"{path} holds files that are not of a model ({', '.join(others[:3]):.100}). Name another folder."
            )
        if any(path.iterdir()) and not force:
            raise InvalidInputError(
                f"{path} holds a model already. Pass --force to replace it, or name another folder."
            )
    check_output(path / "report.html", force=True)
