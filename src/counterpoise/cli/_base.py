"""What the commands share: one application, one way to fail."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Annotated, ParamSpec

import typer

from counterpoise import __version__
from counterpoise.exceptions import CounterpoiseError, InvalidInputError

P = ParamSpec("P")

app = typer.Typer(
    name="counterpoise",
    help="Learn from data of different contexts when the future mix of contexts is uncertain.",
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
    """Learn from data of different contexts when the future mix of contexts is uncertain."""


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
            except CounterpoiseError as error:
                typer.secho(f"Error: {error}", fg="red", err=True)
                # What was asked for cannot be: usage. What was asked for did not work: failure.
                raise typer.Exit(2 if isinstance(error, InvalidInputError) else 1) from None
            except BrokenPipeError:
                # Whoever reads has had enough; the application ends quietly.
                raise
            except OSError as error:
                typer.secho(f"Error: {error}. Choose another place, or make room.", fg="red", err=True)
                raise typer.Exit(1) from None
            except MemoryError:
                typer.secho("Error: there is not enough memory. Use fewer rows or columns.", fg="red", err=True)
                raise typer.Exit(1) from None
            except KeyboardInterrupt:
                typer.secho(f"Interrupted. {when_interrupted}", err=True)
                raise typer.Exit(130) from None

        return run

    return decorated


def say(words: str = "") -> None:
    """Write words for people, where they do not get into what machines read."""
    typer.echo(words, err=True)
