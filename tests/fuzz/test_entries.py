"""A few inputs of every entry in every run of the tests; ``make fuzz`` takes very many."""

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from tests.draws import fewer_draws
from tests.fuzz.entries import ENTRIES

SLOW = {
    "command": 6,
    "compare": 4,
    "evaluate": 15,
    "minimize": 12,
    "boosting": 10,
    "ContextRobust": 15,
    "confidence_path": 10,
    "pages and figures": 5,
}


FEW_DRAWS = {"command", "compare", "evaluate", "pages and figures"}
"""Entries that only show intervals; ``excess_bounds``, which is about them, draws as many errors as a user does."""


@pytest.mark.parametrize("name", ENTRIES)
def test_there_is_a_sound_result_or_a_documented_error(name, monkeypatch):
    if name in FEW_DRAWS:
        fewer_draws(monkeypatch.setattr)
    # Places of every bound that can be moved; names are shown, and numbers written, the same way for all of them.
    monkeypatch.setattr("counterpoise.reports.explorer.bounds._STEPS", 2)

    @settings(
        max_examples=SLOW.get(name, 25),
        phases=(Phase.explicit, Phase.generate),
        suppress_health_check=list(HealthCheck),
    )
    @given(ENTRIES[name].inputs)
    def judged(drawn):
        ENTRIES[name].check(drawn)

    judged()
