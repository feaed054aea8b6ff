"""Predictions for new rows."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from counterpoise.cli import _options as options
from counterpoise.cli._base import NOT_BY_HALVES, Speaker, app, spoken, tell
from counterpoise.cli._stopping import too_late


@app.command()
@options.grouped
@spoken(NOT_BY_HALVES)
def predict(
    model: Annotated[Path, typer.Argument(help="Folder written by counterpoise fit.")],
    file: Annotated[Path, typer.Argument(help="New rows: csv, parquet or arrow. No contexts are needed.")],
    out: Annotated[
        Path, typer.Option("--out", "-o", help="File for the rows with their predictions: .csv or .parquet.")
    ],
    force: options.Force = False,
    *,
    speaker: Speaker,
) -> None:
    """Add predictions to a table of new rows.

    `counterpoise predict model/ new.csv -o predicted.csv`

    Rows are read, predicted and written in batches, so a file of any size takes little memory. Reading a model never
    runs code from it; a model file that was damaged or edited is refused. If the file has the model's target and
    context columns, a note says how well it predicts; `counterpoise evaluate` says more.
    """
    from counterpoise.files import check_output, whole
    from counterpoise.tables.reading import open_table
    from counterpoise.tables.tabular.saved import load
    from counterpoise.tables.tabular.streaming import PredictedTable
    from counterpoise.tables.tabular.writing import writer

    check_output(out, force)
    write = writer(out)
    with speaker.step("reading the model"):
        saved = load(model)
    with speaker.step("reading the rows"):
        rows = PredictedTable(saved, open_table(file), typed=out.suffix.lower() == ".parquet")

    def written(path: Path) -> None:
        with speaker.step("predicting"):
            write(path, rows.pieces)

    def end() -> None:
        for name, count in rows.unknown.items():
            speaker.note(f"{count:,} of {rows.n_rows:,} rows have a {name} that the model has not seen")
        renamed = (f"the file has a column {name} already; the new one is called {name}_" for name in rows.renamed)
        speaker.note(*renamed)
        if rows.glance.words:
            speaker.note(rows.glance.words)
        check_output(out, force)
        too_late()

    whole(out, written, end)
    tell(f"{rows.n_rows:,} predictions of {saved.target} are in {out}")
