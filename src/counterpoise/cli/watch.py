"""Whether a model in use is still used as it was made for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from counterpoise.cli import _options as options
from counterpoise.cli._base import NOT_BY_HALVES, Speaker, app, spoken, tell, tell_json
from counterpoise.exceptions import InvalidInputError

if TYPE_CHECKING:
    from counterpoise.tables.tabular.table_model import TableModel
    from counterpoise.watch.watch import Watch

ALARM = 3
"""The exit code where a watch has raised an alarm."""


@app.command()
@options.grouped
@spoken(NOT_BY_HALVES)
def watch(
    model: Annotated[Path, typer.Argument(help="Folder written by counterpoise fit.")],
    file: Annotated[Path, typer.Argument(help="New rows: csv, parquet or arrow, with the model's context columns.")],
    time: Annotated[
        str | None,
        typer.Option(help="Column of dates or numbers: rows are counted day by day, or time by time, in order."),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(
            help="Column of what came, by which risks are watched.",
            show_default="the target of the model, where the file has it",
        ),
    ] = None,
    context: Annotated[
        list[str] | None,
        typer.Option(help="Column of the contexts; repeat it to cross several.", show_default="those of the model"),
    ] = None,
    group: Annotated[
        str | None,
        typer.Option(help="Column of groups of related rows, such as a day or a patient: rows of one count together."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Where a page goes, .html; that of an earlier run is replaced.")
    ] = None,
    state: Annotated[
        Path | None,
        typer.Option(help="File in which the watch is kept.", show_default="<model>.watch.json, beside the model"),
    ] = None,
    batch: Annotated[
        str | None,
        typer.Option(
            help="Name of these rows: what was counted under a name is not counted again.",
            show_default="the name and the fingerprint of the file",
        ),
    ] = None,
    confidence: Annotated[
        float | None,
        typer.Option(help="No alarm is ever raised without a change, with this probability.", show_default="0.95"),
    ] = None,
    run_length: Annotated[
        float | None,
        typer.Option(
            metavar="<updates>",
            help="Instead: updates between two false alarms, on average at least.",
            show_default="off",
        ),
    ] = None,
    unseen_share: Annotated[
        float | None,
        typer.Option(help="Share of rows in contexts that the fit did not have which is tolerated.", show_default="0"),
    ] = None,
    restart: Annotated[bool, typer.Option("--restart", help="Forget what was seen, and begin anew.")] = False,
    force: options.Force = False,
    as_json: options.AsJson = False,
    *,
    speaker: Speaker,
) -> None:
    """Add new rows to the watch of a model, and say whether it is still used as it was made for.

    `counterpoise watch model/ today.csv`

    A year at once, day by day, with a page:

    `counterpoise watch model/ 2024.csv --time day --out watch.html`

    Three questions are asked: has the mix of contexts left the set that the model was made for, are there contexts that
    it has never seen, and, where targets are known, has the risk of a context grown beyond what the fit promised. Look
    as often as you like: without a change, the probability of an alarm, ever, is at most 1 - confidence.

    What was seen is kept beside the model. Exit codes: 0 all is well, 3 alarm, 1 failed, 2 invalid request.
    """
    from counterpoise.files import check_output, whole
    from counterpoise.reports.watch import is_page, written
    from counterpoise.tables.reading import open_table
    from counterpoise.tables.tabular.saved import load
    from counterpoise.tables.tabular.table_model import TableModel
    from counterpoise.tables.tabular.watching import WatchedColumns, new_rows

    if out is not None:
        if out.suffix.lower() not in (".html", ".htm"):
            raise InvalidInputError(f"{out} ends in {out.suffix or 'nothing'}; name a file ending in .html.")
        check_output(out, force or is_page(out))
    place = beside(model) if state is None else state
    with speaker.step("reading the model"):
        saved = load(model)
    check_output(place, force=True)
    table = open_table(file)
    columns = WatchedColumns.of(saved, table, target=target, context=context or (), group=group, time=time)
    rows = new_rows(saved, table, columns, speaker)
    speaker.note(*rows.notes)
    # An empty file is like any other; that nothing came today does not mean that nothing came yesterday.
    name = f"{table.path.name} {table.fingerprint}" if batch is None and rows.n_rows else batch
    given: dict[str, Any] = {"confidence": confidence, "run_length": run_length, "unseen_share": unseen_share}
    settings = {option: value for option, value in given.items() if value is not None}
    with speaker.step("watching"), kept(place, TableModel(saved), restart, **settings) as seen:
        seen.update(**rows.update, batch=name)
    speaker.note(*seen.notes)
    if out is not None:
        facts = {
            "model": str(model),
            "last file": f"{table.path.name} ({rows.n_rows:,} rows, fingerprint {table.fingerprint})",
            "context": " x ".join(columns.context),
            "target": columns.target or "not known",
            **({} if group is None else {"groups": group}),
            **({} if time is None else {"time": time}),
            "state": str(place),
        }
        html = written(seen, f"{saved.target} by {' x '.join(saved.context)}: the model on watch", facts)
        whole(
            out,
            lambda path: path.write_text(html, encoding="utf-8"),
            lambda: check_output(out, force or is_page(out)),
        )
    if as_json:
        tell_json(seen.json)
    else:
        tell(seen.words)
    if seen.alarm:
        raise typer.Exit(ALARM)


@contextmanager
def kept(path: Path, model: TableModel, restart: bool = False, **settings: Any) -> Iterator[Watch]:
    """Go on with a watch that is kept in a file, or begin one, and write it at the end: all of it, or nothing.

    Parameters
    ----------
    restart : bool
        Whether a watch begins anew where there is a file already.
    **settings
        Of :class:`counterpoise.Watch`.
    """
    from counterpoise.files import alone
    from counterpoise.watch.watch import Watch

    path.parent.mkdir(parents=True, exist_ok=True)
    if not restart:
        with Watch.open(path, model, **settings) as watch:
            yield watch
        return
    with alone(path.parent, patience=60.0, insist=True):
        watch = Watch(model, **settings)
        yield watch
        watch.save(path)


def beside(model: Path) -> Path:
    """Return where the watch of a model is kept.

    Not in its folder, which a new fit replaces: a watch of the model that was there before is not to vanish unnoticed.
    """
    folder = model.resolve()
    return folder.with_name(f"{folder.name}.watch.json")
