"""Shares in words: how far the set lets the share vary that matters most."""

import re

import numpy as np
import pytest

from counterpoise import KLBall, Mix
from counterpoise.core.robustness import Robustness
from counterpoise.reports.shares import Shares

LABELS = np.array(["Dingling", "Changping", "it's far"], dtype=object)
COUNTS = np.array([80.0, 800.0, 120.0])


def shares(worst, **switches):
    return Shares(LABELS, COUNTS, Robustness(**switches), np.array(worst))


def test_the_share_that_gains_most_is_asked_about_with_its_interval():
    found = shares([0.12, 0.75, 0.13])
    low, high = (f"{100 * found.rows[end][0]:.1f}%" for end in ("low", "high"))
    assert f"lets the share of Dingling vary from {low} to {high}; is that all you fear?" in found.question


def test_the_offered_option_allows_more_than_the_set():
    found = shares([0.12, 0.75, 0.13])
    (bound,) = re.findall(r"--confidence 1 --share Dingling=\.\.([\d.]+)\)", found.question)
    assert found.rows["high"][0] < float(bound) <= 1.0
    asked = shares([0.12, 0.75, 0.13], confidence=1.0, mix={"Dingling": (0.0, float(bound))})
    assert asked.rows["high"][0] == pytest.approx(float(bound))


def test_a_name_is_quoted_as_a_shell_needs_it():
    question = shares([0.08, 0.7, 0.22]).question
    assert "--share 'it'\"'\"'s far=.." in question


def test_a_share_taken_for_certain_is_said_to_be_fixed():
    assert "fixes the share of Dingling at 8.0%" in shares(COUNTS / 1000.0, radius=0.0).question


def test_around_a_census_it_is_the_gain_over_the_census_that_counts():
    census = Mix(counts={"Dingling": 500, "Changping": 100, "it's far": 400})
    assert "the share of Changping" in shares([0.48, 0.14, 0.38], mix=census).question


@pytest.mark.parametrize(
    "switches",
    [
        {"confidence": 1.0},
        {"mix": {"Dingling": (0.0, 0.3)}},
        {"mix": KLBall(COUNTS / 1000.0, 0.1)},
    ],
    ids=["every mix", "bounds", "a set"],
)
def test_nothing_is_asked_where_it_has_been_answered(switches):
    assert shares([0.12, 0.75, 0.13], **switches).question == ""
