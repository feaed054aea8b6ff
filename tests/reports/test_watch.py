"""The page of a watch: the verdict first, everything drawn that was seen, and nothing that a name could do to it."""

import datetime
import re

import numpy as np
import pytest

import counterpoise as cpo
from counterpoise.reports.watch import QUESTIONS, is_page, written
from counterpoise.table import Table
from tests.reports.pages.hostile import NAMES

FIRST = datetime.date(2024, 1, 1)


def watched(
    n_contexts=3, n_updates=30, *, names=None, now=None, risk=1.0, losses=True, unseen=False, dated=True, **settings
):
    """Return a watch that has seen updates of 100 rows, in the mix ``now``."""
    rng = np.random.default_rng(0)
    labels = [f"store {k}" for k in range(n_contexts)] if names is None else list(names)
    shares = np.full(len(labels), 1.0 / len(labels))
    watch = cpo.Watch(
        cpo.KLBall(shares, 0.01), contexts=labels, promised=dict.fromkeys(labels, 1.2) if losses else None, **settings
    )
    for k in range(n_updates):
        codes = rng.choice(len(labels), 100, p=shares if now is None else now)
        rows = np.empty(100, dtype=object)
        rows[:] = [labels[c] for c in codes]
        if unseen:
            rows[0] = "moon"
        time = FIRST + datetime.timedelta(k) if dated else None
        watch.update(rows, risk * rng.exponential(size=100) if losses else None, time=time)
    return watch


def table_of(html, caption):
    found = html[html.index(f"{caption}</caption>") :]
    return found[: found.index("</table>")]


def test_the_verdict_comes_first():
    watch = watched(unseen=True, unseen_share=0.1)
    assert not watch.alarm
    html = written(watch, "sales by store", {"file": "new.csv"})
    text = html[html.index("<main") :]
    places = [
        text.index(one)
        for one in (
            "All is well: ",
            "Nothing to do: ",
            QUESTIONS["mix"],
            "Is the mix still in the set?",
            "How strong is the evidence?",
            "Does the model keep its promise?",
            "<h2>Contexts that the fit did not have",
            "moon",
            "new.csv",
        )
    ]
    assert places == sorted(places)
    assert "<script" not in html
    assert 'class="verdict alarm"' not in html
    assert 'class="mark"' not in html


def test_an_alarm_is_marked_with_when_it_began():
    watch = watched(now=[0.8, 0.1, 0.1])
    html = written(watch)
    assert 'class="verdict alarm"' in html
    assert watch.words.split(".")[0] in html
    assert str(watch.since) in table_of(html, "What is watched")
    assert "&lt; 0.001" in html
    # On a screen and on a phone.
    assert html.count("mix since") == 2


def test_advice_is_not_said_twice():
    watch = watched(now=[0.8, 0.1, 0.1])
    assert watch.advice.sentence in watch.words
    assert written(watch).count("Enlarge the set") + written(watch).count("Refit") == 1


def test_every_context_has_a_band_a_line_and_its_share_at_the_fit():
    html = written(watched(n_contexts=5))
    # Drawn for screens and for phones.
    assert len(re.findall('class="band"', html)) == len(re.findall('class="level"', html)) == 2 * 5


def test_of_many_contexts_twelve_are_drawn_and_all_are_listed():
    html = written(watched(n_contexts=40))
    assert len(re.findall('class="band"', html)) == 2 * 12
    assert "28 more contexts are in the table" in html
    assert table_of(html, "The share of each context").count("<tr") - 1 == 40


def test_the_furthest_outside_come_first():
    html = written(watched(now=[0.33, 0.02, 0.65]))
    table = table_of(html, "The share of each context")
    assert re.findall(r"store \d", table)[2] == "store 0"
    assert table.count("above the set") == table.count("below the set") == 1


def test_a_risk_that_has_grown_is_named():
    html = written(watched(risk=2.0))
    assert table_of(html, "The risk of each context").count("grown") == 3
    assert table_of(written(watched()), "The risk of each context").count("grown") == 0


@pytest.mark.parametrize("dated", [True, False])
@pytest.mark.parametrize("n_updates", [0, 1, 2, 500])
def test_any_number_of_updates_is_drawn(n_updates, dated):
    html = written(watched(n_updates=n_updates, dated=dated))
    assert not re.search(r"\bnan\b", re.sub(r"<style.*?</style>", "", html, flags=re.DOTALL).lower())


def test_without_targets_no_promise_is_spoken_of():
    html = written(watched(losses=False))
    assert "keep its promise" not in html
    assert "nothing is promised" in html


def test_without_unseen_contexts_that_is_said():
    assert "None so far." in written(watched())


def test_one_row_of_an_unseen_context_is_proof_and_has_no_line():
    html = written(watched(unseen=True))
    assert 'class="verdict alarm"' in html
    assert "there is no line for it" in html
    assert "there is no line for it" not in written(watched(unseen=True, unseen_share=0.1))


def test_a_run_length_is_said():
    html = written(watched(run_length=1000))
    assert "at least 1000 updates apart" in html
    assert "p-values hold" not in html


@pytest.mark.parametrize("value", [0.0, 1e-300, 1e250, np.inf])
def test_any_e_value_can_be_drawn(value, monkeypatch):
    watch = watched()
    history = watch.history
    changed = Table({**history, **{name: np.full(history.n_rows, value) for name in ("mix", "risk")}})
    monkeypatch.setattr(type(watch), "history", changed)
    assert "How strongly rows speak for a change" in written(watch)


def test_names_do_nothing_to_the_page():
    html = written(watched(names=[one for one in NAMES if one is not None]), NAMES[0], {NAMES[0]: NAMES[1]})
    assert "<script" not in html
    assert "<img" not in html


def test_crossed_contexts_are_shown_in_words():
    html = written(watched(names=[("north", 1), ("north", 2), ("south", 1)]))
    assert "north x 1" in html


def test_a_page_of_a_watch_is_known_again(tmp_path):
    page = tmp_path / "watch.html"
    assert not is_page(page)
    page.write_text("<html>mine</html>")
    assert not is_page(page)
    page.write_text(written(watched()), encoding="utf-8")
    assert is_page(page)
    assert not is_page(tmp_path)
