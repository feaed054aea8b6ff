"""Passes that are written down, so that a fit which was cut short goes on where it ended."""

from __future__ import annotations

import hashlib
import pickle
import struct
from contextlib import suppress
from dataclasses import dataclass, field, fields
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from counterpoise.exceptions import CounterpoiseError, InvalidInputError
from counterpoise.rows.blocks import Answer, Blocks, Question

_MAGIC = b"counterpoise checkpoint 2\n"


@dataclass(eq=False)
class Recorded:
    """Blocks whose answers are kept in a file; a question that was answered before is not asked again.

    Solvers depend on nothing but answers, so a fit that begins again takes the same way, at once as far as the file
    leads. States are made anew by the blocks themselves, and only where the way goes on.

    Parameters
    ----------
    blocks : Blocks
    path : Path
        Begun if it is not there.
    fingerprint : bytes
        Of the data and of what is asked of them; a file that belongs to others is refused.
    """

    blocks: Blocks
    path: Path
    fingerprint: bytes
    n_known: int = field(default=0, init=False)
    _answers: dict[bytes, tuple[int, int]] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        head = _MAGIC + hashlib.sha256(self.fingerprint).digest()
        check_checkpoint(self.path)
        try:
            if not self.path.exists() or _is_cut(self.path, head):
                self.path.write_bytes(head)
            with self.path.open("rb") as file:
                found = file.read(len(head))
                if not found.startswith(_MAGIC):
                    raise InvalidInputError(f"{self.path} is no checkpoint. Name another file.")
                if found != head:
                    raise InvalidInputError(
                        f"{self.path} is the checkpoint of another model, or of a fit to other data. Name another "
                        "file, or delete it."
                    )
                end = self._read(file, len(head))
            with self.path.open("r+b") as file:
                # What was written last may have been cut short.
                file.truncate(end)
        except OSError as error:
            raise CounterpoiseError(f"{self.path} cannot be used as a checkpoint: {error.strerror}.") from error
        self.n_known = len(self._answers)

    def ask(self, question: Question, states: Any = None) -> Answer:
        """Return the answer that is known, or ask."""
        key = _key(question, states)
        known = self._known(key, question)
        return known if known is not None else self._keep(key, self.blocks.ask(question, _made(states)))

    def advance(self, question: Question, states: Any = None) -> tuple[Any, Answer]:
        """Do the same; states that are not needed yet are not made."""
        key = _key(question, states)
        known = self._known(key, question)
        if known is not None:
            return _Later(self.blocks, question, states, key), known
        made, answer = self.blocks.advance(question, _made(states))
        return _Later(self.blocks, question, states, key, made), self._keep(key, answer)

    def finish(self) -> None:
        """Remove the file: the fit is done."""
        with suppress(OSError):
            self.path.unlink()

    def _known(self, key: bytes, question: Question) -> Answer | None:
        if key not in self._answers:
            return None
        first, last = self._answers[key]
        with self.path.open("rb") as file:
            file.seek(first)
            return _unpacked(file.read(last - first), question.answers)

    def _keep(self, key: bytes, answer: Answer) -> Answer:
        body = _packed(answer)
        record = key + hashlib.sha256(body).digest() + struct.pack("<Q", len(body))
        try:
            with self.path.open("ab") as file:
                first = file.tell() + len(record)
                file.write(record + body)
        except OSError as error:
            raise CounterpoiseError(f"the checkpoint {self.path} cannot be written: {error.strerror}.") from error
        self._answers[key] = (first, first + len(body))
        return answer

    def _read(self, file: Any, end: int) -> int:
        """Read what answers there are, and return where the last whole one ends."""
        whole = self.path.stat().st_size
        while len(head := file.read(72)) == 72:
            (size,) = struct.unpack("<Q", head[64:])
            # A length that was spoilt may be more than there is, and than there is memory for.
            body = file.read(size) if size <= whole - end else b""
            if len(body) != size or hashlib.sha256(body).digest() != head[32:64]:
                break
            self._answers[head[:32]] = (end + 72, end + 72 + size)
            end += 72 + size
        return end


@dataclass(eq=False)
class _Later:
    """States that are made when they are first needed, from those before them."""

    blocks: Blocks
    question: Question | None
    before: Any
    key: bytes
    made: Any = None

    def __post_init__(self) -> None:
        if self.made is not None:
            self.question = self.before = None

    def get(self) -> Any:
        # Not by recursion: there may be hundreds before this one.
        chain = [self]
        while isinstance(chain[-1].before, _Later) and chain[-1].made is None:
            chain.append(chain[-1].before)
        for link in reversed(chain):
            if link.made is None:
                assert link.question is not None
                link.made, _ = link.blocks.advance(link.question, _made(link.before))
                link.question = link.before = None
        return self.made


def check_checkpoint(path: Path) -> None:
    """Refuse a place where no checkpoint can be; called before any long work is done."""
    try:
        # Not only a folder: whoever opens a pipe waits for its other side.
        if path.exists() and not path.is_file():
            reason = "it is not a file"
        elif not path.parent.is_dir():
            reason = f"{path.parent} is not a folder"
        else:
            return
    except OSError as error:
        reason = error.strerror or str(error)
    raise InvalidInputError(f"{path} cannot be used as a checkpoint: {reason}. Name another file.")


def _is_cut(path: Path, head: bytes) -> bool:
    """Tell whether a file ends within the words it should begin with: it holds nothing yet."""
    with path.open("rb") as file:
        found = file.read(len(head))
    return len(found) < len(head) and head.startswith(found)


def _made(states: Any) -> Any:
    return states.get() if isinstance(states, _Later) else states


def _key(question: Question, states: Any) -> bytes:
    """Return what a question is known by: itself, and the way its states came about."""
    said = hashlib.sha256(pickle.dumps(question, protocol=5))
    said.update(type(question).__qualname__.encode())
    said.update(states.key if isinstance(states, _Later) else b"")
    return said.digest()


def _packed(answer: Answer) -> bytes:
    out = BytesIO()
    for one in fields(answer):
        array = getattr(answer, one.name)
        np.save(out, np.array(array is not None), allow_pickle=False)
        if array is not None:
            np.save(out, array, allow_pickle=False)
    return out.getvalue()


def _unpacked(body: bytes, kind: type[Answer]) -> Answer:
    source = BytesIO(body)
    found: dict[str, Any] = {}
    for one in fields(kind):
        is_there = bool(np.load(source, allow_pickle=False))
        found[one.name] = np.load(source, allow_pickle=False) if is_there else None
    return kind(**found)
