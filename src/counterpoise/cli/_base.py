"""What the commands share: one application, one way to fail."""

from __future__ import annotations

import functools
import json
import re
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Annotated, Any, ParamSpec, TypeVar

import typer

from counterpoise import __version__
from counterpoise.cli._stopping import STOPS, told, too_late
from counterpoise.exceptions import CounterpoiseError, InvalidInputError, StrayCellWarning

P = ParamSpec("P")
T = TypeVar("T")

Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print only the result.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Print each step and how long it took.")]

app = typer.Typer(
    name="counterpoise",
    help="Learn from data from different contexts when the future mix of contexts is uncertain.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)


def _show_version(asked: bool) -> None:
    if asked:
        typer.echo(f"counterpoise {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Learn from data from different contexts when the future mix of contexts is uncertain."""


NOT_BY_HALVES = "Nothing is left half written."
"""What holds whenever a command that writes a file or a folder is stopped, be it after the last of them."""


def spoken(when_interrupted: str) -> Callable[[Callable[P, None]], Callable[P, None]]:
    """Turn a mistake of the user, and an interruption, into one line and an exit code.

    Parameters
    ----------
    when_interrupted : str
        What is left behind by a command that was stopped.
    """

    def decorated(command: Callable[P, None]) -> Callable[P, None]:
        @functools.wraps(command)
        def run(*args: P.args, **kwargs: P.kwargs) -> None:
            try:
                command(*args, **kwargs)
                # What it has told stands: from here on typer would end it with the code of an interruption and no word.
                too_late()
            except CounterpoiseError as error:
                typer.secho(tame(f"Error: {error}"), fg="red", err=True)
                # What was asked for cannot be: usage. What was asked for did not work: failure.
                raise typer.Exit(2 if isinstance(error, InvalidInputError) else 1) from None
            except BrokenPipeError:
                # Whoever reads has had enough; the application ends quietly.
                raise
            except OSError as error:
                typer.secho(tame(f"Error: {error}. Choose another place, or make room."), fg="red", err=True)
                raise typer.Exit(1) from None
            except MemoryError:
                typer.secho(
                    "Error: there is not enough memory. Use fewer rows or columns; fit reads in chunks with --memory, "
                    "such as --memory 2GB.",
                    fg="red",
                    err=True,
                )
                raise typer.Exit(1) from None
            except (*STOPS, RuntimeError) as error:
                # Where a class is just being made, Python wraps Ctrl-C in an error of its own.
                stop = error.__cause__ if isinstance(error, RuntimeError) else error
                if not isinstance(stop, STOPS):
                    raise
                word, code = told(stop)
                # A terminal that was closed hears nothing.
                with suppress(OSError):
                    say(f"{word} {when_interrupted}")
                raise typer.Exit(code) from None

        return run

    return decorated


def tame(words: str) -> str:
    """Return words without what would steer a terminal: names come from files."""
    return re.sub(
        r"[^\S \n\u00a0\u202f]|[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]", "\ufffd", words
    )


def tell(words: str) -> None:
    """Write a result for people."""
    typer.echo(tame(words))


def tell_json(result: Any) -> None:
    """Write a result for machines; where the output's encoding may lack letters, in the escapes of JSON."""
    lacks_none = getattr(sys.stdout, "encoding", None) in ("utf-8", "UTF-8")
    typer.echo(as_text(result, ensure_ascii=not lacks_none))


def as_text(result: Any, ensure_ascii: bool = False) -> str:
    """Return a result for machines as text."""
    return json.dumps(result, indent=1, ensure_ascii=ensure_ascii, allow_nan=False)


def say(words: str = "") -> None:
    """Write words for people, where they do not get into what machines read."""
    typer.echo(tame(words), err=True)


_OFTEN = 20.0
"""Seconds between two lines of progress in a log."""


def _nobody(fraction: float) -> None:
    """Hear nothing."""


def _left(fraction: float, start: float) -> str:
    """Return which part is done, and about how long the rest will take."""
    taken = time.perf_counter() - start
    if not 0.0 < fraction < 1.0:
        return f"{100 * fraction:.0f}%"
    return f"{100 * fraction:.0f}%, about {in_time(taken * (1.0 - fraction) / fraction)} left"


def in_time(seconds: float) -> str:
    """Return a time in words."""
    if seconds < 100:
        return f"{max(seconds, 1):.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


@dataclass
class _Log:
    """Says how far something is, where nobody can wipe it away again: now and then, and only of what takes long."""

    words: str
    start: float
    last: float = field(init=False)

    def __post_init__(self) -> None:
        self.last = self.start

    def __call__(self, fraction: float) -> None:
        """Hear which part is done."""
        now = time.perf_counter()
        if now - self.last >= _OFTEN and fraction < 1.0:
            self.last = now
            say(f"{self.words}: {_left(fraction, self.start)}")


@dataclass(frozen=True)
class Speaker:
    """Says what is going on, as much of it as was asked for.

    Parameters
    ----------
    quiet : bool
        Nothing but results and errors.
    verbose : bool
        Every step, with its time.
    """

    quiet: Quiet = False
    verbose: Verbose = False
    said: set[str] = field(default_factory=set, init=False, repr=False, compare=False)

    @contextmanager
    def step(self, words: str) -> Iterator[Callable[[float], None]]:
        """Show what is being done while it is, and how much of it is done, by what is returned."""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", StrayCellWarning)
            with self._shown(words) as progress:
                yield progress
        columns: set[str] = set()
        for one in caught:
            if not issubclass(one.category, StrayCellWarning):
                warnings.warn_explicit(one.message, one.category, one.filename, one.lineno)
                continue
            # Of a table that is read in pieces the first piece will do.
            about = str(one.message).partition(" has ")[0]
            if about not in columns | self.said:
                columns.add(about)
                self.note(str(one.message))
        self.said.update(columns)

    @contextmanager
    def _shown(self, words: str) -> Iterator[Callable[[float], None]]:
        start = time.perf_counter()
        if self.quiet:
            yield _nobody
        elif sys.stderr.isatty():
            from rich.console import Console

            # Wiped away again.
            with Console(stderr=True).status(f"{words} ...") as status:
                yield lambda fraction: status.update(f"{words} ... {_left(fraction, start)}")
        else:
            yield _Log(words, start)
        if self.verbose and not self.quiet:
            say(f"{words}: {time.perf_counter() - start:.2f} s")

    def note(self, *notes: str) -> None:
        """Say things that the user may want to know, each once."""
        for words in notes:
            if not self.quiet and words not in self.said:
                self.said.add(words)
                say(words if words.startswith("warning: ") else f"note: {words}")

    def warnings_of(self, action: Callable[[], T]) -> T:
        """Do something, and turn the library's warnings into notes."""
        from counterpoise.tables.tabular.fitting import recording

        result, warned = recording(action)
        self.note(*warned)
        return result
