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
    model: Annotated[Path, typer.Argument(help="Folder that counterpoise fit wrote.")],
    file: Annotated[Path, typer.Argument(help="New rows: csv, parquet or arrow. No context is needed.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Where they go, with predictions: .csv or .parquet.")],
    force: options.Force = False,
    *,
    speaker: Speaker,
) -> None:
    """Add predictions to a table of new rows.

    `counterpoise predict model/ new.csv -o predicted.csv`

    A model is read without running anything that is in it; one that holds anything but what counterpoise writes is
    refused.
    """
    from counterpoise.files import check_output, whole
    from counterpoise.tables.reading import read_table
    from counterpoise.tables.tabular.saved import load
    from counterpoise.tables.tabular.writing import writer

    check_output(out, force)
    write = writer(out)
    with speaker.step("reading the model"):
        saved = load(model)
    with speaker.step("reading the rows"):
        data = read_table(file)
    with speaker.step("predicting"):
        columns = saved.predictions(data)
    for name, count in saved.unknown(data).items():
        speaker.note(f"{count:,} of {data.n_rows:,} rows have a {name} that the model has not seen")
    rows = data.table if out.suffix.lower() == ".parquet" else data.raw
    renamed = [name for name in columns if name in data.raw.column_names]
    speaker.note(*(f"the file has a column {name} already; the new one is called {name}_" for name in renamed))
    check_output(out, force)
    whole(out, lambda path: write(path, rows, columns), too_late)
    tell(f"{data.n_rows:,} predictions of {saved.target} are in {out}")
