"""Words that claim no more than their intervals."""

import pytest

from counterpoise.inference.headroom import to_gain
from counterpoise.judging.verdict import change_in_words


@pytest.mark.parametrize(
    ("low", "high", "verb"),
    [
        (-0.2, -0.1, "lowers"),
        (0.1, 0.2, "raises"),
        (-0.1, 0.2, "does not clearly change"),
        (0.0, 0.0, "does not clearly change"),
        (float("nan"), float("nan"), "does not clearly change"),
    ],
)
def test_a_change_is_claimed_only_where_zero_is_excluded(low, high, verb):
    assert change_in_words(low, high) == verb


def test_one_model_is_enough_only_where_the_upper_end_is_negligible():
    assert "something to gain" in to_gain(0.01, 0.5, 0.1, 0.95, 3, 3)
    assert "One model is enough" in to_gain(0.4, 0.05, 0.1, 0.95, 3, 3)
    assert "all contexts that can be judged" in to_gain(0.4, 0.05, 0.1, 0.95, 3, 2)
    assert "Only one context can be judged" in to_gain(0.4, 0.05, 0.1, 0.95, 3, 1)
    assert "cannot tell" in to_gain(0.4, 0.5, 0.1, 0.95, 3, 3)
    assert "cannot tell" in to_gain(float("nan"), float("nan"), 0.1, 0.95, 3, 3)
