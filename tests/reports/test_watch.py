"""The page of a watch: the verdict first, everything drawn that was seen, and nothing that a name could do to it."""

import datetime
import re
from dataclasses import dataclass, field
from types import SimpleNamespace

import numpy as np
import pytest

from counterpoise.contexts import objects
from counterpoise.reports.watch import QUESTIONS, written
from counterpoise.table import Table
from tests.reports.pages.hostile import NAMES


@dataclass
class Seen:
    """What a page is told of a watch."""

    n_contexts: int = 3
    n_periods: int = 30
    names: tuple = ()
    alarm: bool = False
    with_risks: bool = True
    with_unseen: bool = True
    dated: bool = True
    confidence: float = 0.95
    threshold: float = 20.0
    notes: tuple = ()
    words: str = "All is well: after 3,000 rows no sign of a change (largest e-value 1.2 of 20)."
    unseen_share: float = 0.01
    unseen_lower: float = 0.005
    unseen_upper: float = 0.02
    labels: list = field(init=False)

    def __post_init__(self):
        self.labels = list(self.names) or [f"store {k}" for k in range(self.n_contexts)]
        self.n_contexts = len(self.labels)
        rng = np.random.default_rng(0)
        then = rng.dirichlet(np.full(self.n_contexts, 3.0))
        now = rng.dirichlet(100.0 * then)
        self.n_rows, self.n_updates = 100 * self.n_periods, self.n_periods
        c, nan = self.n_contexts, np.full(self.n_contexts, np.nan)
        self.shares = Table(
            {
                "context": objects(self.labels),
                "then": then,
                "low": 0.8 * then,
                "high": np.minimum(1.2 * then, 1.0),
                "now": now,
                "lower": 0.95 * now,
                "upper": 1.05 * now,
            }
        )
        risk = then + 1.0 if self.with_risks else nan
        self.risks = Table(
            {
                "context": objects(self.labels),
                "n": np.full(c, 50 if self.with_risks else 0),
                "promised": risk,
                "bound": 1.1 * risk,
                "now": 1.3 * risk,
                "lower": 1.15 * risk,
                "upper": 1.5 * risk,
                "e_value": np.ones(c),
            }
        )
        times = [datetime.date(2024, 1, 1) + datetime.timedelta(k) for k in range(self.n_periods)]
        times = times if self.dated else list(range(self.n_periods))
        e = np.exp(rng.normal(size=self.n_periods).cumsum())
        n = self.n_periods
        self.history = Table(
            {
                "time": objects(times),
                "until": objects(times),
                "updates": np.ones(n, dtype=int),
                "rows": np.full(n, 100),
                "e_value": e,
                "mix": e,
                "unseen": np.ones(n),
                "risk": e if self.with_risks else np.full(n, np.nan),
                "unseen_rows": np.zeros(n, dtype=int),
            }
        )
        over_time = rng.dirichlet(100.0 * then, n).reshape(-1)
        self.history_by_context = Table(
            {
                "time": objects([time for time in times for _ in range(c)]),
                "context": objects(self.labels * n),
                "rows": 100.0 * over_time,
                "share": over_time,
                "risk": np.full(n * c, np.nan),
            }
        )
        asked = ["mix", "unseen", "risk"] if self.with_risks else ["mix", "unseen"]
        q = len(asked)
        self.questions = Table(
            {
                "question": objects(asked),
                "budget": np.full(q, 1.0 / q),
                "e_value": np.full(q, 1.2),
                "largest": np.full(q, 400.0 if self.alarm else 1.5),
                "p_value": np.full(q, 0.0005 if self.alarm else 0.8),
                "alarm": np.array([self.alarm] + [False] * (q - 1)),
                "since": objects([times[-1] if self.alarm and n else None] + [None] * (q - 1)),
            }
        )
        unseen = ["moon"] if self.with_unseen else []
        self.unseen = Table(
            {"context": objects(unseen), "rows": np.array([7] * len(unseen)), "share": np.array([0.01] * len(unseen))}
        )
        self.advice = SimpleNamespace(action="nothing to do", sentence="Nothing needs to be done.")


def test_the_verdict_comes_first():
    seen = Seen()
    html = written(seen, "sales by store", {"file": "new.csv"})
    text = html[html.index("<main") :]
    places = [
        text.index(one)
        for one in (
            "All is well: after",
            "Nothing needs to be done",
            QUESTIONS["mix"],
            "Is the mix still in the set?",
            "How strong is the evidence?",
            "Does the model keep its promise?",
            "Contexts that the fit did not have",
            "new.csv",
        )
    ]
    assert places == sorted(places)
    assert "<script" not in html
    assert 'class="verdict alarm"' not in html


def test_an_alarm_is_marked():
    html = written(Seen(alarm=True, words="Alarm: the mix has left the set."))
    assert 'class="verdict alarm"' in html
    assert "2024-01-30" in html
    assert "&lt; 0.001" in html


def test_advice_is_not_said_twice():
    seen = Seen(words="All is well. Nothing needs to be done.")
    assert written(seen).count("Nothing needs to be done.") == 1


def test_every_context_has_a_band_a_line_and_its_share_at_the_fit():
    html = written(Seen(n_contexts=5))
    # Drawn for screens and for phones.
    assert len(re.findall('class="band"', html)) == len(re.findall('class="level"', html)) == 2 * 5


def test_of_many_contexts_twelve_are_drawn_and_all_are_listed():
    html = written(Seen(n_contexts=40))
    assert len(re.findall('class="band"', html)) == 2 * 12
    assert "28 more contexts are in the table" in html
    table = html[html.index("The share of each context</caption>") :]
    table = table[: table.index("</table>")]
    assert table.count("<tr") - 1 == 40


def test_the_furthest_outside_come_first():
    seen = Seen(n_contexts=3)
    then = np.array([0.5, 0.3, 0.2])
    seen.shares = Table(
        {
            **seen.shares,
            "then": then,
            "low": then - 0.05,
            "high": then + 0.05,
            "now": np.array([0.5, 0.2, 0.3]),
            "lower": np.array([0.49, 0.19, 0.29]),
            "upper": np.array([0.51, 0.21, 0.31]),
        }
    )
    html = written(seen)
    table = html[html.index("The share of each context</caption>") :]
    order = re.findall(r"store \d", table)[:3]
    assert order[2] == "store 0"
    assert "above the set" in table
    assert "below the set" in table


@pytest.mark.parametrize("dated", [True, False])
@pytest.mark.parametrize("n_periods", [0, 1, 2, 400])
def test_any_number_of_periods_is_drawn(n_periods, dated):
    html = written(Seen(n_periods=n_periods, dated=dated))
    assert "nan" not in re.sub(r"<style.*?</style>", "", html, flags=re.DOTALL).lower().replace("nanometre", "")


def test_without_targets_no_promise_is_spoken_of():
    html = written(Seen(with_risks=False))
    assert "keep its promise" not in html


def test_without_unseen_contexts_that_is_said():
    html = written(Seen(with_unseen=False))
    assert "None so far." in html


@pytest.mark.parametrize("value", [0.0, 1e-300, 1e250, np.inf])
def test_any_e_value_can_be_drawn(value):
    seen = Seen()
    n = seen.history.n_rows
    seen.history = Table({**seen.history, **{name: np.full(n, value) for name in ("e_value", "mix", "risk")}})
    assert "How strongly rows speak for a change" in written(seen)


def test_names_do_nothing_to_the_page():
    html = written(Seen(names=tuple(NAMES)), NAMES[0], {NAMES[0]: NAMES[1 % len(NAMES)]})
    assert "<script" not in html
    assert "onerror=" not in re.sub(r"&[a-z#0-9]+;[^<]*", "", html)


def test_crossed_contexts_are_shown_in_words():
    html = written(Seen(names=(("north", 1), ("north", 2), ("south", 1))))
    assert "north x 1" in html or "north, 1" in html or "north × 1" in html
