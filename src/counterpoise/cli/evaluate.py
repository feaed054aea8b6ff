"""A model on later rows."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from counterpoise.cli import _options as options
from counterpoise.cli._base import NOT_BY_HALVES, Speaker, app, spoken, tell, tell_json
from counterpoise.exceptions import InvalidInputError


@app.command()
@options.grouped
@spoken(NOT_BY_HALVES)
def evaluate(
    model: Annotated[Path, typer.Argument(help="Folder that counterpoise fit wrote.")],
    file: Annotated[Path, typer.Argument(help="Later rows with what came: csv, parquet or arrow.")],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Where the page goes, or the numbers: .html or .json.")
    ] = None,
    target: Annotated[
        str | None, typer.Option(help="Column of what came.", show_default="the target of the model")
    ] = None,
    context: Annotated[
        list[str] | None,
        typer.Option(help="Column of the contexts; repeat it to cross several.", show_default="those of the model"),
    ] = None,
    group: Annotated[
        str | None,
        typer.Option(help="Column of rows that belong together, such as their day: they count as one in intervals."),
    ] = None,
    force: options.Force = False,
    as_json: options.AsJson = False,
    *,
    speaker: Speaker,
) -> None:
    """Judge a fitted model on later rows, context by context, beside the baselines that were kept with it.

    `counterpoise evaluate model/ later.csv -o evaluation.html`

    Where columns have other names than in the fit:

    `counterpoise evaluate model/ later.csv --target outcome --context site`

    The model is judged as it is. Contexts that the fit did not have are shown in a row of their own. Rows are read and
    predicted some at a time.
    """
    import json

    from counterpoise.files import check_output, whole
    from counterpoise.tables.reading import open_table
    from counterpoise.tables.tabular.evaluating import JudgedColumns, evaluate_table
    from counterpoise.tables.tabular.saved import load

    if out is not None:
        if out.suffix.lower() not in (".html", ".htm", ".json"):
            raise InvalidInputError(f"{out} ends in {out.suffix or 'nothing'}; name a file ending in .html or .json.")
        check_output(out, force)
    with speaker.step("reading the model"):
        saved = load(model)
    table = open_table(file)
    columns = JudgedColumns.of(saved, table, target, context or (), group)
    found = speaker.warnings_of(lambda: evaluate_table(saved, table, columns, speaker))
    speaker.note(*found.notes)
    if out is not None:
        if out.suffix.lower() == ".json":
            made = json.dumps(found.json, indent=1, ensure_ascii=False, allow_nan=False)
        else:
            from counterpoise.reports.evaluation import written

            contexts = f" by {' x '.join(columns.context)}" if columns.context else ""
            settings = {
                "model": str(model),
                "method": saved.method,
                "file": f"{table.path.name} ({found.n_rows:,} rows, fingerprint {table.fingerprint})",
                "target": f"{columns.target} ({found.task})",
                "context": " x ".join(columns.context) or "none",
                **({} if group is None else {"groups": group}),
            }
            made = written(found, f"{saved.target}{contexts}: the model on {table.path.name}", settings)
        whole(out, lambda path: path.write_text(made, encoding="utf-8"), lambda: check_output(out, force))
    if as_json:
        tell_json(found.json)
        return
    for sentence in found.sentences:
        tell(sentence)
    tell("")
    tell(str(found.in_units))
    if out is not None:
        tell(f"The {'numbers are' if out.suffix.lower() == '.json' else 'page is'} in {out}")
