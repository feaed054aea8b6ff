"""Files that are written: whole or not at all, and never over another without being told to."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from counterpoise.exceptions import InvalidInputError
from counterpoise.signals import undisturbed


def whole(path: Path, write: Callable[[Path], object], when_written: Callable[[], object] = lambda: None) -> None:
    """Write a file beside its place and move it there, so that nobody ever sees half of it.

    Parameters
    ----------
    when_written : callable
        Called before the move.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # The name is cut, so that a long one still fits a file system's limit with what is added here.
    part = path.with_name(f".{path.name[:50]}.{os.getpid()}.{threading.get_ident()}.part")
    try:
        write(part)
        when_written()
        part.replace(path)
    finally:
        with undisturbed():
            part.unlink(missing_ok=True)


@contextmanager
def alone(folder: Path, patience: float = 5.0, *, insist: bool = False) -> Iterator[None]:
    """Keep other runs of ours from changing a folder meanwhile, where the system can lock one.

    Parameters
    ----------
    patience : float
        Seconds to wait for another run; then it goes on all the same, for the lock may be somebody else's.
    insist : bool
        Whether it gives up instead, since what the other run writes would be lost.
    """
    try:
        import fcntl

        handle = os.open(folder, os.O_RDONLY)
    except (ImportError, OSError):
        yield
        return
    try:
        end = time.monotonic() + patience
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() < end:
                    time.sleep(0.02)
                    continue
                if insist:
                    raise InvalidInputError(
                        f"another run has been busy in {folder} for {patience:.0f} seconds. Try again once it is done."
                    ) from None
            except OSError:
                # Some network drives lock nothing.
                pass
            break
        yield
    finally:
        os.close(handle)


def check_output(path: Path, force: bool = False) -> None:
    """Refuse a place where a file cannot or must not be written; called before any long work is done.

    Parameters
    ----------
    force : bool
        Whether a file that exists may be replaced.
    """
    with _told(path):
        if path.is_dir():
            raise InvalidInputError(f"{path} is a folder. Name a file, for example {path / 'report.html'}.")
        if path.exists() and not path.is_file():
            raise InvalidInputError(f"{path} is not a file that can be replaced. Name another file.")
        # A link that leads nowhere is there all the same.
        if (path.exists() or path.is_symlink()) and not force:
            raise InvalidInputError(f"{path} exists already. Pass --force (force=True) to replace it, or name another.")
        folder = next(one for one in path.absolute().parents if one.exists())
        if not folder.is_dir():
            raise InvalidInputError(f"{path} cannot be written: {folder} is a file, not a folder. Name another place.")
        # Asked of the file system itself: permission bits say little on network drives, on Windows, and to root.
        with tempfile.TemporaryFile(dir=folder):
            pass


@contextmanager
def _told(path: Path) -> Iterator[None]:
    """Turn what the system says of a place into a refusal of it."""
    try:
        yield
    except InvalidInputError:
        raise
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InvalidInputError(f"{path} cannot be written: {reason}. Name another place.") from error


def check_name(path: Path) -> None:
    """Refuse a name that is no text, which Unix allows and Arrow cannot open."""
    try:
        str(path).encode()
    except UnicodeEncodeError:
        raise InvalidInputError(f"the name {str(path)!r} is not UTF-8. Rename it, or name another.") from None


def whole_folder(path: Path, write: Callable[[Path], object], check: Callable[[], object] = lambda: None) -> None:
    """Write a folder beside its place and move it there; one that is there already is replaced only then.

    A folder that cannot be moved, such as a mount, keeps its place, and the files are moved into it one by one.

    Parameters
    ----------
    check : callable
        Asked once more before the move, for another run may have been there meanwhile; it raises where nothing may be
        replaced.
    """
    path = path.resolve()
    mark = f"{os.getpid()}.{threading.get_ident()}"
    part, old = (path.with_name(f".{path.name[:50]}.{mark}.{end}") for end in ("part", "old"))
    try:
        if not _is_made(part, path):
            _into(path, path / f".{mark}.part", write, check)
            return
        write(part)
        with alone(path.parent), undisturbed():
            check()
            if path.exists():
                path.replace(old)
            part.replace(path)
    finally:
        with undisturbed():
            # Stopped between the two moves: what was there is put back.
            if old.exists() and not path.exists():
                old.replace(path)
            shutil.rmtree(part, ignore_errors=True)
            shutil.rmtree(old, ignore_errors=True)


def _is_made(part: Path, path: Path) -> bool:
    """Make a folder beside another, and tell whether it is there and can take the other's place."""
    if path.is_mount():
        return False
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part.mkdir()
    except OSError:
        if not path.is_dir():
            raise
        return False
    return True


def _into(path: Path, part: Path, write: Callable[[Path], object], check: Callable[[], object]) -> None:
    """Write files within a folder, and move each to its place once all are there."""
    try:
        part.mkdir()
        write(part)
        with alone(path), undisturbed():
            check()
            for file in sorted(part.iterdir()):
                file.replace(path / file.name)
    finally:
        with undisturbed():
            shutil.rmtree(part, ignore_errors=True)


def _is_part(name: str) -> bool:
    return re.fullmatch(r"\.\d+\.\d+\.part", name) is not None


def check_output_folder(path: Path, ours: Collection[str], force: bool = False) -> None:
    """Refuse a place where a folder cannot or must not be written; called before any long work is done.

    Parameters
    ----------
    ours : collection of str
        The names of the files that it will hold. A folder with others in it is not ours to replace.
    force : bool
        Whether a folder of ours may be replaced.
    """
    with _told(path):
        if path.is_symlink():
            raise InvalidInputError(f"{path} is a link and is not a folder itself. Name what it leads to.")
        if path.exists() and not path.is_dir():
            raise InvalidInputError(f"{path} exists and is not a folder. Name another place.")
        path = path.resolve()
        # What a run of ours is writing there just now, or left behind when it was killed, is neither.
        found = [one.name for one in path.iterdir() if not _is_part(one.name)] if path.is_dir() else []
    others = sorted(name for name in found if name not in ours)
    if others:
        raise InvalidInputError(
            f"{path} holds files that are not of a model ({', '.join(others[:3]):.100}). Name another folder."
        )
    if found and not force:
        raise InvalidInputError(f"{path} holds a model already. Pass --force to replace it, or name another folder.")
    check_output(path / "report.html", force=True)
