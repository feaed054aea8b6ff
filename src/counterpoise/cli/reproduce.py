"""The paper, regenerated."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from counterpoise.cli._base import app, spoken, tame, tell
from counterpoise.cli._cluster import Cluster, on_cluster


@app.command()
@spoken("What was finished is kept; the same command goes on from there.")
def reproduce(
    panel: Annotated[list[str] | None, typer.Option(help="Panel to regenerate, such as 4b; repeatable.")] = None,
    runs: Annotated[int | None, typer.Option(help="Monte Carlo runs of each experiment (50; with --quick, 5).")] = None,
    seed: Annotated[int, typer.Option(help="Random seed.")] = 0,
    jobs: Annotated[int, typer.Option(help="Number of processes; -1 for one per core.")] = -1,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for figures, table and page.")] = Path(
        "reproduction"
    ),
    quick: Annotated[bool, typer.Option("--quick", help="A first look in a minute: fewer runs and steps.")] = False,
    mnist: Annotated[Path | None, typer.Option(help="Folder of the four standard MNIST files.")] = None,
    features: Annotated[str, typer.Option(help="Features of the images: autoencoder or pca.")] = "autoencoder",
    download: Annotated[bool, typer.Option("--download", help="Fetch MNIST from OpenML if it is missing.")] = False,
    cluster: Cluster = None,
) -> None:
    """Regenerate the paper: every panel of every figure, and every number in its text."""
    from counterpoise.experiments.reproduce import Settings, shown_progress
    from counterpoise.experiments.reproduce import reproduce as run

    settings = Settings(
        *(out, tuple(panel or ()), runs, seed, jobs, quick, mnist, features),  # type: ignore[arg-type]
        download=download,
    )
    with on_cluster(cluster), shown_progress() as progress:
        made = run(settings, progress)
    tell(f"{made.numbers}\n\n{made.claims}")
    for note in made.notes:
        typer.secho(tame(f"NOTE: {note}"), fg="red", err=True)
    tell(f"\nfigures, results.csv, results.parquet and the page are in {out}; open {made.index}")
