"""How often a watch cries wolf in a year of daily looks, how soon it finds a change, and what it costs.

Usage: python benchmarks/watch.py [--part a|b|c ...] [--cells WORDS ...] [--streams N] [--jobs N] [--toy]
                                  [--river PYTHON] [--alibi PYTHON]

Part a: false alarms over 365 daily looks where the mix stays in the set and risks stay as promised, beside rules that
are in use, on the same rows. Part b: days until a change is found, beside the best tests of a fixed sample, which know
its day, and beside rules in use whose thresholds make as few false alarms. Part c: seconds, memory and the size of the
state. ``--cells`` keeps the rows of tables whose name has one of these words; ``--river`` and ``--alibi`` name Pythons
that have river and alibi-detect. Tables are printed as they go into the documentation.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import watch_rules as rules
from joblib import Parallel, delayed
from scipy import stats
from watch_streams import LOSSES, NEW, Array, Bounded, Day, Losses, Sized, Stream, rows_a_day, seeded, shares

import counterpoise as cpo

DAYS = 365
UNSEEN = 0.01
"""The share of new contexts that is allowed for where some come."""


@dataclass(frozen=True)
class Cell:
    """A row of a table: a set, and streams of rows, one for each run."""

    name: str
    mixes: Sized | Bounded
    stream: Callable[[np.random.Generator], Stream]
    unseen_share: float = 0.0
    promised: Losses | None = None
    held_out: int = 0
    """Rows from which the promise is estimated; none: it is known."""

    @property
    def n_contexts(self) -> int:
        """How many contexts the fit had."""
        return self.mixes.n_contexts

    def watch(self, run: int) -> Any:
        """Return a watch that has seen nothing yet."""
        settings: dict[str, Any] = {"unseen_share": self.unseen_share}
        if self.promised is not None:
            means = self.promised.means(self.n_contexts)
            rng = seeded(self.name, "held out", run)
            settings |= (
                {"held_out": self.held_out_rows(rng)}
                if self.held_out
                else {"promised": dict(enumerate(means.tolist()))}
            )
        return cpo.Watch(self.mixes.ball, **settings)

    def held_out_rows(self, rng: np.random.Generator) -> tuple[Any, ...]:
        """Return contexts and losses of rows held out, and their groups where rows come in groups."""
        codes, losses, groups = next(replace(self.stream(rng), rows=self.held_out).days(rng, 1))
        return (codes, losses) if groups is None else (codes, losses, groups)

    def days(self, run: int, n_days: int) -> Iterator[Day]:
        """Return the days of one stream."""
        rng = seeded(self.name, run)
        return self.stream(rng).days(rng, n_days)


QUESTIONS = ("mix", "unseen", "risk")


def watched(cell: Cell, run: int, n_days: int) -> tuple[float, list[bool], Array]:
    """Return the first day of alarm (inf: none), which questions raised it, and the counts of every day."""
    watch, first, asked = cell.watch(run), np.inf, [False] * len(QUESTIONS)
    counts = np.zeros((n_days, cell.n_contexts), dtype=np.int32)
    for day, (codes, losses, groups) in enumerate(cell.days(run, n_days)):
        counts[day] = np.bincount(codes[codes >= 0], minlength=cell.n_contexts)
        if first < np.inf:
            continue
        labels: Any = codes
        if (codes < 0).any():
            labels = codes.astype(object)
            labels[codes < 0] = NEW
        watch.update(labels, losses=losses, groups=groups)
        if watch.alarm:
            first = float(day)
            asked = [bool(raised) for raised in watch.questions["alarm"]]
    return first, asked, counts


# --- part a: false alarms --------------------------------------------------------------------------------------


def always(mix: Array) -> Callable[[int], Array]:
    """Return the same mix for every day."""
    return lambda day: mix


def still(name: str, mixes: Sized | Bounded, mix: Callable[[np.random.Generator], Any], **more: Any) -> Cell:
    """Return a cell in which nothing leaves the set: ``mix`` draws a mix, or a function of days, for each stream."""
    settings = {key: more.pop(key) for key in ("unseen_share", "promised", "held_out") if key in more}

    def stream(rng: np.random.Generator) -> Stream:
        found = mix(rng)
        return Stream(found if callable(found) else always(found), rows_a_day(mixes.n_contexts), **more)

    return Cell(f"{mixes.n_contexts} contexts: {name}", mixes, stream, **settings)


def false_alarm_cells() -> list[Cell]:
    """Return every situation in which an alarm is false."""
    found = []
    for n_contexts in (2, 5, 20, 100):
        one, ball, bounds = Sized(n_contexts, 0), Sized(n_contexts), Bounded(n_contexts)
        found += [
            still("set of one mix", one, lambda rng, ball=ball: ball.ball.p_hat),
            still("centre", ball, lambda rng, ball=ball: ball.ball.p_hat),
            still("rim, towards the rare context", ball, lambda rng, ball=ball: ball.towards(ball.n_contexts - 1)),
            still("rim, towards the common context", ball, lambda rng, ball=ball: ball.towards(0)),
            still("rim, away from the rare context", ball, lambda rng, ball=ball: ball.away(ball.n_contexts - 1)),
            still("rim, at random", ball, lambda rng, ball=ball: ball.random(rng)),
            still("vertex of bounds", bounds, lambda rng, bounds=bounds: bounds.vertex(rng)),
            still("weekdays and weekends on opposite rims", ball, lambda rng, ball=ball: weekly(ball)),
        ]
    for n_contexts in (5, 20):
        one, ball = Sized(n_contexts, 0), Sized(n_contexts)
        found += [
            still("another rim in July", ball, lambda rng, ball=ball: half_years(ball)),
            still("a random rim every day", ball, lambda rng, ball=ball: restless(ball, rng)),
        ]
        for kind in ("shared", "related", "unequal"):
            found += [
                still(f"set of one mix, groups {kind}", one, lambda rng, one=one: one.ball.p_hat, groups=kind),
                still(f"rim, at random, groups {kind}", ball, lambda rng, ball=ball: ball.random(rng), groups=kind),
            ]
    for n_contexts in (5, 20, 100):
        ball = Sized(n_contexts)
        centre = lambda rng, ball=ball: ball.ball.p_hat  # noqa: E731
        names = LOSSES if n_contexts == 5 else ("0-1 losses", "lognormal losses")
        for name in names:
            losses = LOSSES[name]
            found.append(still(f"centre, {name}", ball, centre, losses=losses, promised=losses))
            for rows in (400, 4000):
                words = f"centre, {name}, promised from {rows:,} rows"
                found.append(still(words, ball, centre, losses=losses, promised=losses, held_out=rows))
        for name in ("0-1 losses", "lognormal losses"):
            some: dict[str, Any] = {"losses": LOSSES[name], "promised": LOSSES[name]}
            found.append(still(f"centre, {name}, groups related", ball, centre, groups="related", **some))
            for kind in ("shared", "related", "unequal"):
                words = f"centre, {name}, groups {kind}, promised from 4,000 rows"
                found.append(still(words, ball, centre, groups=kind, held_out=4000, **some))
            everything = still(
                f"all at once: one mix, {name}, 1% unseen",
                Sized(n_contexts, 0),
                centre,
                unseen=lambda day: UNSEEN,
                unseen_share=UNSEEN,
                **some,
            )
            found.append(everything)
    return found


def weekly(ball: Sized) -> Callable[[int], Array]:
    """Return mixes that change between weekdays and weekends."""
    towards, other = ball.towards(ball.n_contexts - 1), ball.towards(0)
    return lambda day: towards if day % 7 < 5 else other


def half_years(ball: Sized) -> Callable[[int], Array]:
    """Return mixes that stay on one rim for half a year, then on another."""
    towards, other = ball.towards(ball.n_contexts - 1), ball.towards(0)
    return lambda day: towards if day < DAYS // 2 else other


def restless(ball: Sized, rng: np.random.Generator) -> Callable[[int], Array]:
    """Return another random point of the rim every day."""
    mixes = [ball.random(rng) for _ in range(DAYS)]
    return lambda day: mixes[day % DAYS]


def false_alarms(options: argparse.Namespace) -> None:
    """Print how often there is an alarm in a year in which nothing left the set."""
    cells = chosen(options, false_alarm_cells())
    peers = [name for name, python in (("ADWIN", options.river), ("ChiSquareDrift", options.alibi)) if python]
    print(
        "\n| situation | watch: any alarm | of the mix, unseen, risk | chi-squared, the day | chi-squared, all so far "
        "| PSI, the day | PSI, 30 days |"
        + "".join(f" {name} |" for name in peers)
        + "\n"
        + "|---" * (7 + len(peers))
        + "|"
    )
    for cell in cells:
        found = spread(options, watched, [(cell, run, options.days) for run in range(options.streams)])
        alarms = np.array([first < np.inf for first, _, _ in found])
        asked = np.mean([raised for _, raised, _ in found], axis=0)
        counts = np.array([one for _, _, one in found], dtype=np.float64)
        p_hat, others = shares(cell.n_contexts), []
        for rule in ("chi-squared, the day", "chi-squared, all so far", "PSI, the day", "PSI, 30 days"):
            path = rules.paths(rule, counts, p_hat)
            others.append(np.mean((path > rules.usual_threshold(rule, cell.n_contexts)).any(axis=1)))
        # They look at one row after the other, and at every context.
        some = counts[: 10 if options.toy else 100 if cell.n_contexts <= 20 else 20]
        if options.river:
            others.append(np.mean(np.isfinite(first_days(options.river, "adwin", some, p_hat, [0.002])[0])))
        if options.alibi:
            others.append(np.mean(np.isfinite(first_days(options.alibi, "chi-squared", some, p_hat, [0.05])[0])))
        # A share above 5% by more than chance is marked.
        surprise = stats.binom.sf(alarms.sum() - 1, len(alarms), rules.LEVEL)
        print(
            f"| {cell.name} | {alarms.mean():.3f}{' **above 5%**' if surprise < 0.01 else ''} "
            f"| {', '.join(f'{share:.3f}' for share in asked)} | {' | '.join(f'{share:.2f}' for share in others)} |",
            flush=True,
        )


def first_days(python: str, name: str, counts: Array, p_hat: Array, settings: list[float]) -> list[Array]:
    """Return the first days of alarm of a detector of another library, for each of its settings."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "counts.npz"
        np.savez(path, counts=counts, p_hat=p_hat)
        asked = [str(python), str(Path(__file__).with_name("watch_peer.py")), name, str(path), *map(str, settings)]
        lines = subprocess.run(asked, check=True, capture_output=True, text=True).stdout.splitlines()
    return [np.array(line.split(), dtype=np.float64) for line in lines]


# --- part b: delay ---------------------------------------------------------------------------------------------

SETS = ((400, "types"), (400, "calibrated"), (4000, "types"), (4000, "calibrated"))
CHANGE_DAYS = (0, 100)
SAMPLED = LOSSES["0-1 losses"]


def scaled(context: int, factor: float) -> Array:
    """Return the shares of the fit with that of one context multiplied, and the others in proportion."""
    p = shares(5)
    new = p * (1.0 - factor * p[context]) / (1.0 - p[context])
    new[context] = factor * p[context]
    return new


def moved(source: int, goal: int, by: float) -> Array:
    """Return the shares of the fit with some of one context's given to another."""
    return shares(5) + by * (np.eye(5)[goal] - np.eye(5)[source])


MIXES = {
    "rare share doubled (2% to 4%)": scaled(4, 2.0),
    "rare share quadrupled (2% to 8%)": scaled(4, 4.0),
    "a share moved by .1 (40% to 30%, 10% to 20%)": moved(0, 3, 0.1),
}


def changed_mix(name: str, new: Array, mixes: Sized, start: int) -> Cell:
    """Return streams whose mix is that of the fit until a day, and another from then on."""
    old = shares(5)
    mix = lambda day: old if day < start else new  # noqa: E731
    sized = f"{mixes.draws:,} draws, {mixes.method}"
    return Cell(f"{name}, {sized}, day {start}", mixes, lambda rng: Stream(mix, rows_a_day(5)))


def delay_of(options: argparse.Namespace, cell: Cell, start: int) -> tuple[float, float, float]:
    """Return the median number of days until the alarm, the share of alarms before the change, and after it."""
    n_days = start + options.days
    jobs = [(cell, run, n_days) for run in range(options.streams)]
    first = np.array(spread(options, first_alarm, jobs))
    after = first[first >= start]
    median = float(np.median(after - start + 1.0)) if len(after) else np.inf
    return median, float(np.mean(first < start)), float(np.mean(np.isfinite(after))) if len(after) else 0.0


def first_alarm(cell: Cell, run: int, n_days: int) -> float:
    """Return the first day of alarm, inf where there is none."""
    watch = cell.watch(run)
    for day, (codes, losses, groups) in enumerate(cell.days(run, n_days)):
        labels: Any = codes
        if (codes < 0).any():
            labels = codes.astype(object)
            labels[codes < 0] = NEW
        watch.update(labels, losses=losses, groups=groups)
        if watch.alarm:
            return float(day)
    return np.inf


def days_in_words(days: float, n_days: int) -> str:
    """Return a number of days, or that there were not enough."""
    return f"{days:.0f}" if days < np.inf else f"> {n_days}"


def line(options: argparse.Namespace, cell: Cell, outside: bool, start: int, fixed: float, *more: str) -> None:
    """Print one row of a table of delays."""
    median, before, found = delay_of(options, cell, start)
    ratio = f"{median / fixed:.1f}" if outside and max(median, fixed) < np.inf else "-"
    print(
        f"| {cell.name} | {'yes' if outside else 'no'} | {days_in_words(median, options.days)} | {found:.2f} "
        f"| {before:.3f} | {days_in_words(fixed, options.days) if outside else '-'} | {ratio} |"
        + "".join(f" {one} |" for one in more),
        flush=True,
    )


def delays(options: argparse.Namespace) -> None:
    """Print how many days pass until a change is found."""
    head = (
        "| change | outside | watch: median days | found in a year | alarms before | fixed sample, knows the day: days "
        "| ratio |"
    )
    print(f"\n{head} best daily test, knows day and mix: days |\n" + "|---" * 8 + "|")
    rows = rows_a_day(5)
    for name, new in MIXES.items():
        for draws, method in SETS:
            sized = Sized(5, draws, method)
            outside = sized.ball.divergence(new) > sized.ball.radius
            cells = chosen(options, [changed_mix(name, new, sized, start) for start in CHANGE_DAYS])
            if not cells:
                continue
            tests = (np.inf, np.inf)
            if outside:
                n_draws = 400 if options.toy else 4000
                tests = (
                    rules.days_of_ratio_test(new, sized, rows, options.days, n_draws),
                    rules.days_of_oracle(new, sized, rows, options.days, n_draws),
                )
            for cell in cells:
                start = int(cell.name.rpartition(" ")[2])
                line(options, cell, outside, start, tests[0], days_in_words(tests[1], options.days) if outside else "-")
    print(f"\n{head}\n" + "|---" * 7 + "|")
    for allowed, start in ((0.0, 0), (0.0, 100), (0.005, 0), (0.005, 100)):
        new_context = Cell(
            f"a new context at 2%, {allowed:.1%} allowed, day {start}",
            Sized(5),
            lambda rng, start=start: Stream(always(shares(5)), rows, unseen=lambda day: 0.02 if day >= start else 0.0),
            unseen_share=allowed,
        )
        for cell in chosen(options, [new_context]):
            line(options, cell, True, start, rules.days_of_binomial_test(allowed, 0.02, rows, options.days))
    for context, factor in ((0, 1.2), (0, 1.5), (3, 1.2), (3, 1.5), (4, 1.5)):
        for kind, losses in LOSSES.items():
            if kind == "heavy-tailed losses":
                continue
            p = shares(5)[context]
            mean = losses.means(5)[context]
            relative_sd = np.sqrt((1.0 - mean) / mean) if losses.drawn is None else _relative_sd(losses)
            fixed = rules.days_of_mean_test(p, factor, relative_sd, rows, 5, options.days)
            for start in CHANGE_DAYS:
                cell = Cell(
                    f"risk of a context of {p:.0%} up by {factor - 1:.0%}, {kind}, day {start}",
                    Sized(5),
                    lambda rng, losses=losses, context=context, factor=factor, start=start: Stream(
                        always(shares(5)),
                        rows,
                        losses=losses,
                        raised=lambda day: 1.0 + (factor - 1.0) * (day >= start) * np.eye(5)[context],
                    ),
                    promised=losses,
                )
                for one in chosen(options, [cell]):
                    line(options, one, True, start, fixed)
    at_equal_rates(options)


def _relative_sd(losses: Losses) -> float:
    assert losses.drawn is not None
    return float(losses.drawn(seeded("deviation"), 1_000_000).std())


def at_equal_rates(options: argparse.Namespace) -> None:
    """Print the delays of rules in use with thresholds that 5% of years without change pass."""
    rows, p_hat, n_streams = rows_a_day(5), shares(5), 20 if options.toy else 1000
    print(
        "\n| rule | set | calibrated | false alarms a year: at the centre, on the worst rim |"
        + "".join(f" {name}, day {start} |" for name in MIXES for start in CHANGE_DAYS)
        + "\n"
        + "|---" * (4 + 2 * len(MIXES))
        + "|"
    )
    for draws, method in SETS[1:4:2]:
        sized = Sized(5, draws, method)
        rims = list(sized.corners.values())
        for rule in [one for one in rules.RULES if not options.cells or any(word in one for word in options.cells)]:
            for where, nulls in (("at the centre", [p_hat]), ("on the rim", rims)):
                threshold = rules.calibrated(rule, nulls, p_hat, rows, options.days, n_streams)

                def false(mix: Array, rule: str = rule, threshold: float = threshold) -> float:
                    counts = rules.years(mix, rows, options.days, n_streams, seeded("check", mix.round(12).tolist()))
                    return float(np.mean((rules.paths(rule, counts, p_hat) > threshold).any(axis=1)))

                found = [delay_of_rule(rule, threshold, new, start, options, n_streams) for new, start in changes()]
                rates = f"{false(p_hat):.2f}, {max(map(false, rims)):.2f}"
                print(
                    f"| {rule} | {draws:,} draws, {method} | {where} | {rates} | "
                    + " | ".join(days_in_words(days, options.days) for days in found)
                    + " |",
                    flush=True,
                )
    if options.river:
        river_at_equal_rates(options)


def changes() -> list[tuple[Array, int]]:
    """Return every change of the mix with its day."""
    return [(new, start) for new in MIXES.values() for start in CHANGE_DAYS]


def changed_years(new: Array, start: int, options: argparse.Namespace, n_streams: int) -> Array:
    """Return counts of years whose mix changes on a day."""
    rng, rows = seeded("change", new.round(12).tolist(), start), rows_a_day(5)
    before = rules.years(shares(5), rows, start, n_streams, rng)
    return np.concatenate([before, rules.years(new, rows, options.days, n_streams, rng)], axis=1)


def delay_of_rule(
    rule: str, threshold: float, new: Array, start: int, options: argparse.Namespace, n_streams: int
) -> float:
    """Return the median number of days until a rule raises its alarm, where it did not before the change."""
    path = rules.paths(rule, changed_years(new, start, options, n_streams), shares(5))
    first = rules.first_day(path > threshold)
    after = first[first >= start]
    return float(np.median(after - start + 1.0)) if len(after) else np.inf


def river_at_equal_rates(options: argparse.Namespace) -> None:
    """Print the same for ADWIN, whose setting is the largest of some with at most 5% false alarms."""
    n_streams, settings = (10, [0.002]) if options.toy else (200, [1.0, 0.3, 0.1, 0.03, 0.01, 0.002])
    p_hat = shares(5)
    calm = rules.years(p_hat, rows_a_day(5), options.days, n_streams, seeded("calm"))
    rates = [np.mean(np.isfinite(days)) for days in first_days(options.river, "adwin", calm, p_hat, settings)]
    setting = next((one for one, rate in zip(settings, rates, strict=True) if rate <= rules.LEVEL), settings[-1])
    found = []
    for new, start in changes():
        years = changed_years(new, start, options, n_streams)
        (first,) = first_days(options.river, "adwin", years, p_hat, [setting])
        after = first[first >= start]
        found.append(float(np.median(after - start + 1.0)) if len(after) else np.inf)
    print(
        f"| river's ADWIN, delta {setting:g} | - | at the centre | {rates[settings.index(setting)]:.2f}, - | "
        + " | ".join(days_in_words(days, options.days) for days in found)
        + " |",
        flush=True,
    )


# --- part c: cost ----------------------------------------------------------------------------------------------


def cost_of(n_contexts: int, with_losses: bool, n_updates: int, batch: int) -> list[float]:
    """Return seconds, the growth of memory in MB and the size of the state in kB; call it in a process of its own."""
    rng = seeded("cost", n_contexts)
    names = np.array([f"context number {c}" for c in range(n_contexts)])
    p_hat = shares(n_contexts)
    batches = [names[rng.choice(n_contexts, batch, p=p_hat)] for _ in range(10)]
    losses = [rng.random(batch) for _ in range(10)]
    promised = dict.fromkeys(names.tolist(), 0.5) if with_losses else None
    watch = cpo.Watch(Sized(n_contexts).ball, contexts=names.tolist(), promised=promised)
    watch.update(batches[0][:10], losses=losses[0][:10] if with_losses else None, time="2024-01-01")
    before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.perf_counter()
    first = np.datetime64("2024-01-01")
    for k in range(n_updates):
        watch.update(batches[k % 10], losses=losses[k % 10] if with_losses else None, time=str(first + 1 + k))
    seconds = time.perf_counter() - start
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "state.json"
        watch.save(path)
        size = path.stat().st_size
    return [seconds, grown / 1024.0, size / 1000.0]


def cost(options: argparse.Namespace) -> None:
    """Print seconds, memory and the size of the state."""
    print(
        "\n| rows | contexts | losses | updates | seconds | rows a second | growth of memory | state |\n"
        + "|---" * 8
        + "|"
    )
    few = 5 if options.toy else None
    for n_contexts, with_losses, n_updates, batch in (
        (10, False, few or 1000, 10_000),
        (10, True, few or 1000, 10_000),
        (100, False, few or 365, 1000),
        (100, True, few or 365, 1000),
    ):
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            seconds, grown, size = pool.apply(cost_of, (n_contexts, with_losses, n_updates, batch))
        print(
            f"| {n_updates * batch:,} | {n_contexts} | {'yes' if with_losses else 'no'} | {n_updates} | {seconds:.1f} "
            f"| {n_updates * batch / seconds:,.0f} | {grown:.0f} MB | {size:.0f} kB |",
            flush=True,
        )


# --- the command -----------------------------------------------------------------------------------------------


def chosen(options: argparse.Namespace, cells: list[Cell]) -> list[Cell]:
    """Return the cells whose name has one of the words that were asked for."""
    return [cell for cell in cells if not options.cells or any(word in cell.name for word in options.cells)]


def spread(options: argparse.Namespace, run: Callable[..., Any], jobs: list[tuple[Any, ...]]) -> list[Any]:
    """Run jobs on as many processes as asked for, many to a task."""
    n_tasks = min(len(jobs), 4 * options.jobs)
    if options.jobs == 1:
        return [run(*job) for job in jobs]
    batches = [jobs[k::n_tasks] for k in range(n_tasks)]

    def all_of(batch: list[tuple[Any, ...]]) -> list[Any]:
        return [run(*job) for job in batch]

    parts = Parallel(n_jobs=options.jobs)(delayed(all_of)(batch) for batch in batches)
    found: list[Any] = [None] * len(jobs)
    for k, part in enumerate(parts):
        found[k::n_tasks] = part
    return found


PARTS = {"a": false_alarms, "b": delays, "c": cost}


def main(arguments: list[str]) -> int:
    """Print the tables of the study."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", nargs="*", choices=list(PARTS), default=list(PARTS))
    parser.add_argument("--cells", nargs="*", default=[], help="words, one of which the name of a row must have")
    parser.add_argument("--streams", type=int, help="1,000 for false alarms and 200 for delays by default")
    parser.add_argument("--days", type=int, default=DAYS)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--river", help="a Python that has river")
    parser.add_argument("--alibi", help="a Python that has alibi-detect")
    parser.add_argument("--toy", action="store_true", help="a few days of a few cells, to see that all works")
    options = parser.parse_args(arguments)
    if options.toy:
        options.days, options.streams, options.jobs = 12, options.streams or 3, 1
        options.cells = options.cells or [
            "5 contexts: rim, at random",
            "5 contexts: all at once",
            "quadrupled",
            "the day",
        ]
    streams = options.streams
    for part in options.part:
        options.streams = streams or {"a": 1000, "b": 200, "c": 1}[part]
        start = time.perf_counter()
        print(f"\n## {PARTS[part].__name__.replace('_', ' ')}")
        PARTS[part](options)
        print(f"\n({time.perf_counter() - start:.0f} s, {options.jobs} processes)", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
