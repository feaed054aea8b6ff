"""A few inputs of every entry in every run of the tests; ``make fuzz`` takes very many."""

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from tests.fuzz.entries import ENTRIES

SLOW = {"command": 6, "compare": 4, "minimize": 12, "boosting": 10, "ContextRobust": 15, "confidence_path": 10}


@pytest.mark.parametrize("name", ENTRIES)
def test_there_is_a_sound_result_or_a_documented_error(name):
    @settings(
        max_examples=SLOW.get(name, 25),
        phases=(Phase.explicit, Phase.generate),
        suppress_health_check=list(HealthCheck),
    )
    @given(ENTRIES[name].inputs)
    def judged(drawn):
        ENTRIES[name].check(drawn)

    judged()
