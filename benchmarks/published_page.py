"""The tables and sentences of docs/published.md, from the results of its parts."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from typing import Any

import numpy as np
from published_cells import FAMILIES, Cell, Difference, Study
from published_iterations import MULTIPLES
from published_sources import LEARNERS, METHODS

Row = dict[str, Any]

MARKER = re.compile(r"(<!-- published: (?P<name>[a-z-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table in markdown."""
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows))


def written(page: str, sections: dict[str, str]) -> str:
    """Return a page whose marked sections are replaced; sections that were not made anew stay as they are."""

    def replaced(found: re.Match[str]) -> str:
        if found["name"] not in sections:
            return found[0]
        return f"{found[1]}\n{sections[found['name']]}\n\n{found[3]}"

    return MARKER.sub(replaced, page)


def _change(one: Difference, digits: int) -> str:
    """Return a mean difference and its t, in bold where it is beyond chance."""
    text = f"{one.mean:+.{digits}f} ({one.t:+.1f})"
    return f"**{text}**" if one.significant else text


def _beyond(cells: Iterable[Cell], of: Callable[[Cell], Difference], sign: int) -> list[Cell]:
    return [cell for cell in cells if of(cell).significant and sign * of(cell).mean > 0]


def _list(words: Sequence[str]) -> str:
    return "; ".join(words) if words else "none"


EXCESS, WORST_ACCURACY, ACCURACY = attrgetter("excess"), attrgetter("worst_accuracy"), attrgetter("accuracy")
BETTER_WORSE = ((EXCESS, -1), (EXCESS, 1), (WORST_ACCURACY, 1), (WORST_ACCURACY, -1), (ACCURACY, 1), (ACCURACY, -1))


def _counts(cells: list[Cell]) -> str:
    kinds = {name: [cell for cell in cells if cell.setting == name] for name in dict.fromkeys(c.setting for c in cells)}
    ours = [cell for cell in cells if not cell.is_control]
    kinds |= {
        "**guarded**": [cell for cell in cells if cell.is_guarded],
        "**linear models without a guard**": [cell for cell in ours if not cell.is_guarded],
        "**controls**": [cell for cell in cells if cell.is_control],
        "**all**": cells,
    }
    rows = []
    for kind, here in ((kind, here) for kind, here in kinds.items() if here):
        times = np.exp(np.mean(np.log([cell.time for cell in here])))
        counts = [str(len(_beyond(here, of, sign))) for of, sign in BETTER_WORSE]
        rows.append([kind, str(len(here)), *counts, f"{times:.1f}"])
    head = ["setting", "cells", "worst excess better", "worse", "worst-group accuracy better", "worse"]
    head += ["accuracy better", "worse", "time, plain fits"]
    guarded = kinds["**guarded**"]
    n, n_splits = len(guarded), " or ".join(map(str, sorted({cell.n_splits for cell in cells})))
    better, worse, right, wrong = (len(_beyond(guarded, of, sign)) for of, sign in BETTER_WORSE[:4])
    said = [
        f"{len(cells)} cells of {n_splits} splits. In the {n} with a guard the worst excess is lower than the plain "
        f"learner's in {better} and higher in {worse}; the accuracy of the worst group is higher in {right} and lower "
        f"in {wrong}. If nothing differed, chance would put about {0.025 * n:.0f} cells on each side.",
        "",
        table(head, rows),
        "",
        "By name, without the controls:",
        "",
    ]
    for words, of, sign, digits in (
        ("Worst excess is higher (we lose)", EXCESS, 1, 4),
        ("Worst excess is lower (we win)", EXCESS, -1, 4),
        ("The worst group's accuracy is lower (we lose)", WORST_ACCURACY, -1, 3),
        ("The worst group's accuracy is higher (we win)", WORST_ACCURACY, 1, 3),
    ):
        named = [
            f"{cell.table}, {cell.family}, {cell.setting} {of(cell).mean:+.{digits}f}"
            for cell in _beyond(ours, of, sign)
        ]
        said.append(f"- {words}: {_list(named)}.")
    return "\n".join(said)


def _by_table(cells: list[Cell], of: Callable[[Cell], Difference], digits: int) -> str:
    tables = list(dict.fromkeys(cell.table for cell in cells))
    found = {(cell.family, cell.setting, cell.table): cell for cell in cells}
    rows = []
    for family, setting in dict.fromkeys((cell.family, cell.setting) for cell in cells):
        here = [found.get((family, setting, name)) for name in tables]
        rows.append([family, setting, *("" if cell is None else _change(of(cell), digits) for cell in here)])
    return table(["family", "setting", *tables], rows)


def _plain(study: Study) -> str:
    rows = [
        [
            one.table,
            one.family,
            f"{one.accuracy:.3f}",
            f"{one.worst_accuracy:.3f}",
            f"{one.excess:.4f}",
            f"{one.seconds:.2f}",
        ]
        for one in study.plain()
    ]
    return table(["table", "plain learner", "accuracy", "of the worst group", "worst excess", "seconds"], rows)


def _chosen(cells: list[Cell]) -> str:
    tables = list(dict.fromkeys(cell.table for cell in cells))
    guarded = [cell for cell in cells if cell.chosen]
    if not guarded:
        return "No estimator of this run says what it kept."

    def kept(counts: Counter[str]) -> str:
        return ", ".join(f"{name} {count}" for name, count in counts.most_common())

    found = {(cell.family, cell.setting, cell.table): cell for cell in guarded}
    rows = []
    for family, setting in dict.fromkeys((cell.family, cell.setting) for cell in guarded):
        here = [found.get((family, setting, name)) for name in tables]
        rows.append([family, setting, *("" if cell is None else kept(cell.chosen) for cell in here)])
    total: Counter[str] = sum((cell.chosen for cell in guarded), Counter())
    return table(["family", "setting", *tables], rows) + f"\n\nIn all: {kept(total)}."


def cells_sections(units: Iterable[Row]) -> dict[str, str]:
    """Return the sections of part a."""
    study = Study.of(units)
    cells = list(study.cells())
    return {
        "tables-plain": _plain(study),
        "tables-counts": _counts(cells),
        "tables-excess": _by_table(cells, EXCESS, 4),
        "tables-accuracy": _by_table(cells, WORST_ACCURACY, 3),
        "tables-chosen": _chosen(cells),
    }


def planted_sections(units: Iterable[Row]) -> dict[str, str]:
    """Return the sections of part e."""
    study = Study.of(units)
    cells = list(study.cells())
    ours = [cell for cell in cells if not cell.is_control]
    wins = [cell for cell in ours if cell.excess.significant and cell.excess.mean < 0]
    families = [family for family in FAMILIES if any(cell.family == family for cell in cells)]
    regret = [cell for cell in ours if cell.setting == "minimax regret"]
    everywhere = [
        family
        for family in families
        if all(cell.excess.significant and cell.excess.mean < 0 for cell in regret if cell.family == family)
    ]
    losses = [
        f"{cell.table}, {cell.family}, {cell.setting} {cell.excess.mean:+.3f}" for cell in ours if cell not in wins
    ]
    said = (
        f"Our settings lower the worst excess beyond chance in {len(wins)} of {len(ours)} cells; minimax regret does "
        f"so on every size in {len(everywhere)} of {len(families)} families ({', '.join(everywhere) or 'none'}). Not "
        f"lower beyond chance: {_list(losses)}."
    )
    return {
        "planted": "\n\n".join(
            [
                said,
                _plain(study),
                "Change of the worst excess (t):",
                _by_table(cells, EXCESS, 3),
                "Change of the worst group's accuracy (t):",
                _by_table(cells, WORST_ACCURACY, 3),
                "What was kept:",
                _chosen(cells),
            ]
        )
    }


def _amount(value: float) -> str:
    """Return a small number so that its size can be seen, a large one without digits nobody needs."""
    return f"{value:.1e}" if abs(value) < 1e-3 else f"{value:.4f}"


def _times(value: float) -> str:
    return f"{value:.1f}" if np.isfinite(value) else "never"


def race_section(rows: list[Row]) -> str:
    """Return the table of parts b and c: our answer, and how far above it iterations are after a while."""
    ours = {row["problem"]: row for row in rows if "lower" in row}
    head = ["problem", "proven: at least", "reached", "seconds", "method", "above after our time"]
    head += [f"after {k} times our time" for k in MULTIPLES[1:]]
    head += ["at its end", "end, times our time", "at its end, median of steps", "within 1% after, times our time"]
    body = []
    others = [row for row in rows if "lower" not in row]
    for row in others:
        own = ours[row["problem"]]
        above = ["" if not np.isfinite(value) else _amount(value) for value in row["above"]]
        body.append(
            [
                row["problem"],
                f"{own['lower']:.6f}",
                f"{own['value']:.6f}",
                f"{own['seconds']:.3f}",
                row["method"],
                *above,
                f"{row['times']:.0f}",
                _amount(row["median above"]),
                _times(row["until 1%"]),
            ]
        )
    late = sorted(row["until 1%"] for row in others if np.isfinite(row["until 1%"]))
    when = " to ".join(dict.fromkeys(f"{value:.1f}" for value in (late[0], late[-1]))) if late else ""
    said = (
        f"Of {len(others)} runs, with step sizes chosen in hindsight, {len(late)} came within 1% of the optimum"
        + (
            f", after {when} times our time, {sum(one <= 1.0 for one in late)} of them before we were done"
            if late
            else ""
        )
        + ". None says how far it is."
    )
    return f"{said}\n\n{table(head, body)}"


def sources_section(rows: list[Row]) -> str:
    """Return the table of part d."""
    body, verdicts = [], []
    keys = sorted(
        {(row["learner"], row["sources"]) for row in rows}, key=lambda key: (list(LEARNERS).index(key[0]), key[1])
    )
    for learner, n_sources in keys:
        here = [row for row in rows if (row["learner"], row["sources"]) == (learner, n_sources)]
        rewards = {name: np.array([row[name]["reward"] for row in here]) for name in METHODS}
        seconds = {name: np.mean([row[name]["seconds"] for row in here]) for name in METHODS}
        change = Difference.of(rewards["robust"] - rewards["maximin aggregation"])
        over_plain = Difference.of(rewards["robust"] - rewards["plain"])
        body.append(
            [learner, str(n_sources)]
            + [f"{rewards[name].mean():.3f} ({seconds[name]:.1f} s)" for name in METHODS]
            + [_change(over_plain, 3), _change(change, 3)]
        )
        verdicts.append((change, over_plain))
    head = ["learner", "sources", *METHODS, "robust against plain", "robust against aggregation"]
    wins, losses = (sum(c.significant and sign * c.mean > 0 for c, _ in verdicts) for sign in (1, -1))
    n_draws = len({row["seed"] for row in rows})
    over = sum(p.significant and p.mean > 0 for _, p in verdicts)
    said = (
        f"The robust fit has a higher worst reward than the plain one in {over} of {len(verdicts)} rows, than maximin "
        f"aggregation in {wins}, and a lower one than aggregation in {losses}, beyond chance over {n_draws} draws."
    )
    return f"{said}\n\n{table(head, body)}"
