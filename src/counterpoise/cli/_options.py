"""Options that several commands share."""

from __future__ import annotations

import datetime
import functools
import inspect
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_type_hints

import typer

from counterpoise.exceptions import InvalidInputError

if TYPE_CHECKING:
    from counterpoise.tables.known_mix import KnownMix
    from counterpoise.tables.tabular.columns import Asked

File = Annotated[Path, typer.Argument(help="The table: csv, parquet or arrow, or a folder of such files.")]
Cuts = Annotated[
    int,
    typer.Option(help="With --time: number of cut points; methods are fitted before a cut and judged after it."),
]
Gap = Annotated[
    str | None,
    typer.Option(
        metavar="<duration>",
        help="With --time: do not fit to rows this close before a cut: 7d, 12h, or a number in the column's units.",
        show_default="none",
    ),
]
Thorough = Annotated[
    bool,
    typer.Option("--thorough", help="Compare on all rows, not on a sample if there are more than 100,000."),
]
Folds = Annotated[int, typer.Option(help="Folds of the cross-validation; with --time, 0 judges by later rows alone.")]
Jobs = Annotated[int, typer.Option(help="Number of processes; -1 for one per core.")]
Force = Annotated[bool, typer.Option("--force", help="Replace files that exist.")]
Confidence = Annotated[float, typer.Option(help="Confidence level of the set of plausible mixes, from 0 to 1.")]
Radius = Annotated[
    str,
    typer.Option(
        help="Rule for the size of that set: calibrated, agrawal, types, chi2 or anytime; or its size in bits."
    ),
]
DrawsOption = Annotated[
    str | None,
    typer.Option(
        metavar="<number>|rows",
        help="Number of independent draws of the context in the data; rows counts every row as one.",
        show_default="as --group and --time imply, else rows",
    ),
]
Group = Annotated[
    str | None,
    typer.Option(
        help="Column of groups of related rows, such as a day: sizes the set, and no group is split across folds."
    ),
]
Share = Annotated[
    list[str] | None,
    typer.Option(
        metavar="<context>=<low>..<high>",
        help="Known share of a context, or bounds on it: winter=0.2, winter=0.1..0.3 or winter=..0.3; repeatable.",
        show_default="nothing is known",
    ),
]
MixFrom = Annotated[
    Path | None,
    typer.Option(
        metavar="<file>",
        help="Another table with the context column, such as a census. Its rows, or its column count, determine the "
        "centre and the size of the set.",
        show_default="the table itself",
    ),
]
SetOption = Annotated[
    str,
    typer.Option("--set", metavar="kl|chi2|tv", help="Distance of mixes: divergence, chi-square or total variation."),
]
Time = Annotated[
    str | None,
    typer.Option(
        help="Column of dates or numbers that orders the rows: sizes the set; methods are judged on later rows."
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """Let a command take options as objects: a parameter whose type is a dataclass stands for its fields."""
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {name: hint for name, hint in hints.items() if is_dataclass(hint)}
    parameters: list[inspect.Parameter] = []
    for one in inspect.signature(command).parameters.values():
        members = inspect.signature(groups[one.name]).parameters.values() if one.name in groups else [one]
        own = get_type_hints(groups[one.name], include_extras=True) if one.name in groups else hints
        parameters += [
            member.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=own[member.name]) for member in members
        ]

    @functools.wraps(command)
    def run(**given: Any) -> None:
        for name, group in groups.items():
            given[name] = group(**{one.name: given.pop(one.name) for one in fields(group) if one.init})
        command(**given)

    # What has to be given is listed first.
    parameters.sort(key=lambda one: one.default is not inspect.Parameter.empty)
    vars(run)["__signature__"] = inspect.Signature(parameters)
    run.__annotations__ = {one.name: one.annotation for one in parameters}
    return run


@dataclass(frozen=True, kw_only=True)
class FeatureColumns:
    """What the columns of a table are for, its target apart."""

    context: Annotated[
        list[str], typer.Option(help="Column of the contexts, never a feature; repeat to cross several.")
    ]
    task: Annotated[
        str, typer.Option(help="classification, regression, count, quantile or huber; auto decides by the target.")
    ] = "auto"
    drop: Annotated[list[str] | None, typer.Option(help="Column not to use as a feature; repeatable.")] = None
    only: Annotated[list[str] | None, typer.Option(help="Only column to use as a feature; repeatable.")] = None
    pool_below: Annotated[
        str | None,
        typer.Option(
            metavar="<int>",
            help="Pool contexts with fewer rows than this, such as 30; with --group, fewer groups.",
            show_default="no pooling",
        ),
    ] = None
    min_rows: Annotated[
        str | None,
        typer.Option(
            metavar="<int>",
            help="Leave out contexts with fewer rows than this, such as 10; with --group, fewer groups.",
            show_default="all are kept",
        ),
    ] = None
    date: Annotated[
        list[str] | None,
        typer.Option(
            metavar="<column>[=<parts>]",
            help="Column of dates to turn into features: month, weekday, hour and trend, or some of these, such as "
            "when=month,hour; repeatable.",
            show_default="dates are not used",
        ),
    ] = None
    category: Annotated[
        list[str] | None,
        typer.Option(help="Column of numbers to treat as categories, such as a postcode; repeatable."),
    ] = None
    log_target: Annotated[
        bool,
        typer.Option(
            "--log-target", help="Model the logarithm of a positive target; predictions are transformed back."
        ),
    ] = False

    group: Group = None
    time: Time = None

    def asked(self, model: Model, target: str) -> Asked:
        """Return what is asked of a table."""
        from counterpoise.tables.tabular.columns import Asked
        from counterpoise.tables.tabular.dates import DateColumn

        return Asked(
            target=target,
            context=tuple(self.context),
            task=self.task,
            drop=tuple(self.drop or ()),
            only=tuple(self.only or ()),
            group=self.group,
            time=self.time,
            pool_below=checked_pool_below(self.pool_below),
            min_rows=checked_min_rows(self.min_rows),
            date=tuple(DateColumn.of(one) for one in self.date or ()),
            category=tuple(self.category or ()),
            log_target=self.log_target,
            switches=model.switches(self.task),
            known_mix=model.known_mix(self.context),
        )

    def refuse_features(self) -> None:
        """Refuse what only a model has a use for, where there is none."""
        given = {"min-rows": self.min_rows, "date": self.date, "category": self.category, "log-target": self.log_target}
        for name, value in given.items():
            if value:
                raise InvalidInputError(f"--{name} is for a model (--target), and stock has none. Leave it out.")


@dataclass(frozen=True, kw_only=True)
class Columns(FeatureColumns):
    """What the columns of a table are for."""

    target: Annotated[str, typer.Option(help="Column to predict.")]


_REFERENCES = (
    "What the risk of each context is compared with: cross-fit (held-out rows), shrunk (for many small contexts), "
    "in-sample, auto (in-sample unless that is mostly optimism), null (a constant) or pooled (one plain model)."
)


@dataclass(frozen=True, kw_only=True)
class Model:
    """Parameters of a model."""

    confidence: Confidence = 0.99
    radius: Radius = "calibrated"
    draws: DrawsOption = None
    share: Share = None
    mix_from: MixFrom = None
    ball: SetOption = "kl"
    alpha: Annotated[float, typer.Option(help="Strength of the ridge penalty on scaled features.")] = 1e-3
    reference: Annotated[str | None, typer.Option(help=_REFERENCES)] = "cross-fit"
    quantile: Annotated[float, typer.Option(help="With --task quantile: which quantile to predict.")] = 0.5
    delta: Annotated[float, typer.Option(help="With --task huber: residual beyond which rows are outliers.")] = 1.35

    def switches(self, task: str) -> dict[str, Any]:
        """Return the parameters as the library takes them, those of a task among them."""
        if self.reference not in ("cross-fit", "shrunk", "in-sample", "auto", "null", "pooled", None):
            raise InvalidInputError(
                f"--reference is {self.reference!r}; choose cross-fit, shrunk, in-sample, auto, null or pooled."
            )
        switches: dict[str, Any] = {
            "confidence": self.confidence,
            "radius": checked_radius(self.radius),
            "draws": checked_draws(self.draws),
            "alpha": self.alpha,
            "reference": self.reference,
        }
        own = {"quantile": {"quantile": self.quantile}, "huber": {"delta": self.delta}}
        return switches | own.get(task, {})

    def known_mix(self, context: Sequence[str]) -> KnownMix | None:
        """Return what is known about the mix of the contexts in some columns."""
        return known_mix(self.share, self.mix_from, self.ball, context, self.draws)


def _renamed(value: str | None) -> None:
    if value is not None:
        raise typer.BadParameter(f"it is called --criterion now. Pass --criterion {value}.")


@dataclass(frozen=True, kw_only=True)
class JudgedModel(Model):
    """Parameters of a model that is compared with the baselines."""

    criterion: Annotated[str, typer.Option(help="What the worst case is about: excess (risk) or risk.")] = "excess"
    score: Annotated[str | None, typer.Option(hidden=True, callback=_renamed)] = None
    adjust: Annotated[
        str,
        typer.Option(
            help="What to add to a context's score for having few rows: none, standard-error, or a number, which is "
            "divided by the root of its rows.",
        ),
    ] = "none"

    def switches(self, task: str) -> dict[str, Any]:
        """Return the parameters as the library takes them, those of a task among them."""
        return super().switches(task) | {"criterion": self.criterion, "adjust": checked_adjust(self.adjust)}


@dataclass(frozen=True, kw_only=True)
class FittedModel(JudgedModel):
    """Parameters of a model whose rows need not fit into memory."""

    reference: Annotated[
        str | None,
        typer.Option(help=_REFERENCES, show_default="cross-fit; in-sample if rows do not fit into memory"),
    ] = None


def known_mix(
    share: Sequence[str] | None, mix_from: Path | None, ball: str, context: Sequence[str], draws: str | None
) -> KnownMix | None:
    """Return what ``--share``, ``--mix-from`` and ``--set`` say about the mix; None where that is nothing."""
    from counterpoise.tables.known_mix import KnownMix

    return KnownMix.of(share, mix_from, ball, context, draws)


def checked_memory(memory: str | None) -> float | None:
    """Return a size in bytes."""
    if memory is None:
        return None
    found = re.fullmatch(r"\s*(\d+\.?\d*|\.\d+)\s*([kmgt]?)(i?)b?\s*", memory, re.IGNORECASE)
    size = 0.0
    if found and not (found[3] and not found[2]):
        size = float(found[1]) * (1024.0 if found[3] else 1000.0) ** " kmgt".index(found[2].lower() or " ")
    if size < 1.0:
        raise InvalidInputError(f"--memory is {memory!r:.60}; pass a size such as 500MB, 2GB or 1.5GiB.")
    return size


def checked_pool_below(limit: str | None) -> int | None:
    """Return the least rows or groups of a context that is not pooled."""
    return _checked_count("--pool-below", limit, 30)


def checked_min_rows(limit: str | None) -> int | None:
    """Return the least rows or groups of a context that is used."""
    return _checked_count("--min-rows", limit, 10)


def _checked_count(option: str, given: str | None, example: int) -> int | None:
    if given is None:
        return None
    try:
        count = int(given)
    except ValueError:
        count = 0
    if count < 1:
        raise InvalidInputError(f"{option} is {given!r:.60}; pass a whole number, 1 or more, such as {example}.")
    return count


def checked_gap(gap: str | None) -> Any:
    """Return a duration, or a number in the units of the times."""
    if gap is None:
        return None
    found = re.fullmatch(r"\s*(\d+\.?\d*|\.\d+)\s*([wdhms]?)\s*", gap, re.IGNORECASE)
    if found is None:
        raise InvalidInputError(f"--gap is {gap!r:.60}; pass a duration such as 7d, 12h or 2w, or a number.")
    seconds = {"w": 604_800.0, "d": 86_400.0, "h": 3_600.0, "m": 60.0, "s": 1.0}
    if not found[2]:
        return float(found[1])
    return datetime.timedelta(seconds=float(found[1]) * seconds[found[2].lower()])


def checked_jobs(jobs: int, cluster: str | None) -> int:
    """Return a number of processes; as many as there are where a cluster has them."""
    if cluster is not None:
        return -1
    if jobs == 0:
        raise InvalidInputError("--jobs is 0; pass a number of processes, or -1 for one per core.")
    return jobs


def checked_draws(draws: str | None) -> Any:
    """Return a number of draws, or the word for counting rows."""
    if draws is None or draws == "rows":
        return draws
    try:
        number = float(draws)
    except ValueError:
        number = math.nan
    if not 0 < number < math.inf:
        raise InvalidInputError(f"--draws is {draws!r:.60}; pass a positive number, such as 20, or rows.")
    return number


def checked_radius(radius: str) -> Any:
    """Return a radius as the library takes it: a number of bits, or a method's name."""
    from counterpoise.sets import RadiusMethod

    if radius in get_args(RadiusMethod):
        return radius
    try:
        bits = float(radius)
    except ValueError:
        bits = math.nan
    if not bits >= 0:
        raise InvalidInputError(
            f"--radius is {radius!r}; choose calibrated, agrawal, types, chi2 or anytime, or a number of bits, "
            "0 or more."
        )
    return bits


def checked_adjust(adjust: str) -> Any:
    """Return an adjustment as the library takes it: None, a name, or a number."""
    if adjust in ("none", "standard-error"):
        return None if adjust == "none" else adjust
    try:
        number = float(adjust)
    except ValueError:
        number = math.nan
    if not 0 < number < math.inf:
        raise InvalidInputError(
            f"--adjust is {adjust!r:.60}; choose none or standard-error, or pass a positive number, such as 1."
        )
    return number
