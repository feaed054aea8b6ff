"""The command: it parses, calls one function, and says what it wrote and where."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
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
)


def _show_version(asked: bool) -> None:
    if asked:
        typer.echo(f"counterpoise {__version__}")
        raise typer.Exit


def spoken(command: Callable[P, None]) -> Callable[P, None]:
    """Turn a mistake of the user, and an interruption, into one line and an exit code."""

    @functools.wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            command(*args, **kwargs)
        except CounterpoiseError as error:
            typer.secho(f"Error: {error}", fg="red", err=True)
            # What was asked for cannot be: usage. What was asked for did not work: failure.
            raise typer.Exit(2 if isinstance(error, InvalidInputError) else 1) from None
        except OSError as error:
            typer.secho(f"Error: {error}. Choose another place, or make room.", fg="red", err=True)
            raise typer.Exit(1) from None
        except KeyboardInterrupt:
            typer.secho("Interrupted. What was finished is kept; the same command goes on from there.", err=True)
            raise typer.Exit(130) from None

    return run


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Learn from data of different contexts when the future mix of contexts is uncertain."""


@app.command()
@spoken
def reproduce(
    panel: Annotated[list[str] | None, typer.Option(help="A panel, such as 4b; may be repeated; else all.")] = None,
    runs: Annotated[int | None, typer.Option(help="Monte Carlo runs of each experiment (50; with --quick 5).")] = None,
    seed: Annotated[int, typer.Option(help="Seed of all randomness.")] = 0,
    jobs: Annotated[int, typer.Option(help="Processes; -1 is one per core.")] = -1,
    out: Annotated[Path, typer.Option(help="Where figures, table and page go.")] = Path("reproduction"),
    quick: Annotated[bool, typer.Option("--quick", help="A first look in a minute: fewer runs and steps.")] = False,
    mnist: Annotated[Path | None, typer.Option(help="Folder of the four standard MNIST files.")] = None,
    features: Annotated[str, typer.Option(help="Of the images: autoencoder or pca.")] = "autoencoder",
) -> None:
    """Regenerate the paper: every panel of every figure, and every number in its text."""
    from counterpoise.experiments.reproduce import Settings, shown_progress
    from counterpoise.experiments.reproduce import reproduce as run

    settings = Settings(out, tuple(panel or ()), runs, seed, jobs, quick, mnist, features)  # type: ignore[arg-type]
    with shown_progress() as progress:
        made = run(settings, progress)
    typer.echo(f"{made.numbers}\n\n{made.claims}")
    for note in made.notes:
        typer.secho(f"NOTE: {note}", fg="red", err=True)
    typer.echo(f"\nfigures, results.csv, results.parquet and the page are in {out}; open {made.index}")


def main() -> None:
    """Run the command."""
    app()
