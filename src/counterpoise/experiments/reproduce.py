"""The paper, regenerated: compute what is missing, draw every panel, and write a page about it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from counterpoise.exceptions import CounterpoiseError, InvalidInputError
from counterpoise.experiments import beyond, page
from counterpoise.experiments._base import Experiment, Row
from counterpoise.experiments.classification import Classification
from counterpoise.experiments.coloured_mnist import ColouredMNIST, Encoded, Features, coloured_digits
from counterpoise.experiments.figures import PANELS, Panel, draw
from counterpoise.experiments.illustration import Illustration
from counterpoise.experiments.mnist import load_digits
from counterpoise.experiments.numbers import claim_table, number_table
from counterpoise.experiments.results import Results, collect
from counterpoise.experiments.stock_control import StockControl
from counterpoise.files import alone, check_output, whole
from counterpoise.table import Table


class Progress(Protocol):
    """Whoever wants to know how far things are."""

    def begin(self, title: str, total: int) -> Callable[[int], None]:
        """Announce something long; the answer is called with how much of it is done."""

    def say(self, words: str) -> None:
        """Tell something."""


@dataclass(frozen=True)
class Settings:
    """What to reproduce, and how.

    Parameters
    ----------
    out : path
        Where figures, table and page go; what has been computed is kept in ``out/runs``.
    panels : tuple of names
        Of :data:`counterpoise.experiments.figures.PANELS`; empty for all.
    runs : int, optional
        Monte Carlo runs of each experiment; by default 50, or 5 where ``quick``.
    seed : int
    jobs : int, optional
        Processes; by default one per core.
    quick : bool
        Fewer runs and steps, for a first look.
    mnist : path, optional
        The folder of the four standard files.
    features : {"autoencoder", "pca"}
        Of the images.
    cache : path, optional
        Where downloads and features are kept.
    download : bool
        Whether images that are nowhere here may be fetched from OpenML.
    """

    out: Path
    panels: tuple[str, ...] = ()
    runs: int | None = None
    seed: int = 0
    jobs: int | None = -1
    quick: bool = False
    mnist: Path | None = None
    features: Features = "autoencoder"
    cache: Path | None = None
    download: bool = False

    def __post_init__(self) -> None:
        strange = [name for name in self.panels if name not in PANELS]
        if strange:
            raise InvalidInputError(f"there is no panel {strange[0]!r}; choose from {', '.join(PANELS)}.")
        if self.runs is not None and self.runs < 1:
            raise InvalidInputError(f"runs = {self.runs}; pass a whole number, 1 or more.")
        if self.seed < 0:
            raise InvalidInputError(f"seed = {self.seed}; pass a whole number, 0 or more.")
        if self.jobs == 0:
            raise InvalidInputError("jobs = 0; pass a number of processes, or -1 for one per core.")
        if os.path.lexists(self.out) and not os.path.isdir(self.out):
            raise InvalidInputError(f"out names a file, {self.out.name}; name a folder.")
        if self.features not in ("autoencoder", "pca"):
            raise InvalidInputError(f"features is {self.features!r}; choose 'autoencoder' or 'pca'.")

    @property
    def n_runs(self) -> int:
        """Runs of each experiment."""
        return self.runs if self.runs is not None else 5 if self.quick else 50

    @property
    def wanted(self) -> list[Panel]:
        """The panels to draw."""
        return [PANELS[name] for name in self.panels or PANELS]


@dataclass(frozen=True, eq=False)
class Reproduction:
    """What was made.

    Attributes
    ----------
    results : Results
    numbers, claims : Table
        What the paper prints, and what it says, beside ours.
    index : path
        The page.
    notes : tuple of str
        What has to be said about the data.
    """

    results: Results
    numbers: Table
    claims: Table
    index: Path
    notes: tuple[str, ...]


def reproduce(settings: Settings, progress: Progress) -> Reproduction:
    """Regenerate panels and numbers; whatever an earlier call finished is used again."""
    _require_extra()
    check_output(settings.out / _INDEX, force=True)
    settings.out.mkdir(parents=True, exist_ok=True)
    needed = {name for panel in settings.wanted for name in panel.experiments}
    rows: list[Row] = []
    about: dict[str, Any] = {}
    for title, names, compute in _parts(settings, progress):
        if needed.intersection(names):
            found, note = compute()
            rows += found
            quick = f"quick: {settings.n_runs} runs, fewer steps" if settings.quick else ""
            said = {"seed": settings.seed, "notes": [one for one in (quick, note) if one]}
            about |= dict.fromkeys(names, said)
            progress.say(f"{title}: done")
    # Another run may have added to the folder meanwhile.
    with alone(settings.out):
        results = Results.load(settings.out).merged(Results(tuple(rows)))
        results.save(settings.out)
        about = _read_about(settings.out) | about
        text = json.dumps(about, indent=1)
        whole(settings.out / _ABOUT, lambda path: path.write_text(text, encoding="utf-8"))
    for panel in settings.wanted:
        figure = draw(panel, results, "; ".join(_notes(about, [panel])))
        for ending in ("png", "svg"):
            whole(settings.out / f"{panel.name}.{ending}", partial(_save, figure, ending))
    index = settings.out / _INDEX
    with alone(settings.out):
        results, about = Results.load(settings.out), _read_about(settings.out)
        drawn = [panel for panel in PANELS.values() if (settings.out / f"{panel.name}.svg").exists()]
        numbers, claims, notes = number_table(results), claim_table(results), _notes(about, drawn)
        html = page.written(drawn, numbers, claims, _facts(results, about), notes)
        whole(index, lambda path: path.write_text(html, encoding="utf-8"))
    return Reproduction(results, numbers, claims, index, tuple(notes))


_INDEX = "index.html"
_ABOUT = "about.json"
"""What has to be said of the experiments in the table, kept beside it: other commands add to the same folder."""


def _read_about(folder: Path) -> dict[str, Any]:
    try:
        return dict(json.loads((folder / _ABOUT).read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return {}


def _notes(about: dict[str, Any], panels: Sequence[Panel]) -> list[str]:
    """Return what has to be said about some panels, each thing once."""
    names = [name for panel in panels for name in panel.experiments]
    return list(dict.fromkeys(note for name in names for note in about.get(name, {}).get("notes", [])))


def _facts(results: Results, about: dict[str, Any]) -> dict[str, str]:
    """Return runs and seed of every study in the table."""
    return {
        name.replace("-", " "): f"{n} runs, seed {about.get(name, {}).get('seed', 'unknown')}"
        for name in (StockControl.name, Classification.name, ColouredMNIST.name)
        if (n := len(results.series(name, "robust", "worst")))
    }


def _save(figure: Any, ending: str, path: Path) -> None:
    from matplotlib import rc_context

    # No date in the file: the same table gives the same picture.
    metadata = {"Date": None} if ending == "svg" else {"Software": None}
    with rc_context({"svg.hashsalt": "counterpoise"}):
        figure.savefig(path, format=ending, dpi=150, metadata=metadata)


_Computed = tuple[list[Row], str]
"""Rows, and what has to be said about them."""


def _parts(settings: Settings, progress: Progress) -> Iterator[tuple[str, tuple[str, ...], Callable[[], _Computed]]]:
    """Yield what can be computed: a title, the experiments in the table it fills, and how."""
    lines = Classification(group_dro_steps=2000) if settings.quick else Classification()
    n_draws, n_steps = (20_000, 500) if settings.quick else (200_000, 10_000)
    yield "illustration", (Illustration.name,), lambda: (Illustration().rows(settings.seed), "")
    yield "stock control", _filled(StockControl), lambda: _study(StockControl(), settings, progress)
    yield "classification", _filled(Classification), lambda: _study(lines, settings, progress)
    yield "coloured MNIST", _filled(ColouredMNIST), lambda: _mnist(settings, progress)
    yield "coverage", PANELS["coverage"].experiments, lambda: (beyond.coverage(settings.seed, n_draws), "")
    yield "convergence", ("convergence",), lambda: (beyond.convergence(settings.seed, n_steps), "")


def _filled(experiment: type[Experiment]) -> tuple[str, str]:
    return experiment.name, f"{experiment.name}-data"


def _study(experiment: Experiment, settings: Settings, progress: Progress) -> _Computed:
    advance = progress.begin(experiment.name, settings.n_runs)
    runs = collect(experiment, settings.n_runs, settings.seed, settings.out / "runs", settings.jobs, advance)
    return [*experiment.picture(settings.seed), *runs], ""


def _mnist(settings: Settings, progress: Progress) -> _Computed:
    digits = load_digits(settings.mnist, settings.cache, settings.download)
    progress.say(f"MNIST from {digits.source}: {len(digits.train_labels):,} images to train on")
    notes = [] if digits.complete else [f"coloured MNIST on {digits.source} only, not on the complete set"]
    if notes and settings.mnist is None and not settings.download:
        progress.say("the complete set: --download fetches it from OpenML, --mnist names its files")
    if settings.features != "autoencoder":
        notes.append(f"coloured MNIST with features by {settings.features}")
    encoded = Encoded.of(digits, settings.features, settings.seed, settings.cache)
    rows, _ = _study(ColouredMNIST(encoded), settings, progress)
    return [*rows, *coloured_digits(digits, settings.seed)], "; ".join(notes)


def _require_extra() -> None:
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise CounterpoiseError(
            f"reproducing needs the package {error.name}. Run: pip install 'counterpoise[experiments]'"
        ) from error


class Silent:
    """Progress nobody looks at."""

    def begin(self, title: str, total: int) -> Callable[[int], None]:
        """Announce nothing."""
        return lambda done: None

    def say(self, words: str) -> None:
        """Say nothing."""


@contextmanager
def shown_progress() -> Iterator[Progress]:
    """Show bars with the time left, on standard error."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    console = Console(stderr=True)
    columns = (TextColumn("{task.description:<16}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Bars(*columns, console=console) as bars:

        class Shown:
            def begin(self, title: str, total: int) -> Callable[[int], None]:
                task = bars.add_task(title, total=total)
                return lambda done: bars.update(task, completed=done)

            def say(self, words: str) -> None:
                bars.console.print(words)

        yield Shown()
