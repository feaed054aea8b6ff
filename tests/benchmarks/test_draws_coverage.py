"""The study of draws from groups: its mix is the true one, and it runs."""

import runpy
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "draws_coverage.py"


@pytest.fixture(scope="module")
def study():
    return SimpleNamespace(**runpy.run_path(str(SCRIPT), run_name="draws_coverage"))


def test_the_mix_of_every_setting_is_the_true_one(study):
    scenes = [study.Setting(name, study.zipf(3), 1, **options) for name, options in study.SCENES.items()]
    for setting in (*scenes, *study.OTHERS):
        counts = replace(setting, n_days=6000).drawn(np.random.default_rng(0))
        rows = counts.sum(axis=1, keepdims=True)
        # Equal days, so that a long tail of sizes does not decide.
        np.testing.assert_allclose((counts / rows).mean(axis=0), setting.shares, atol=0.06)


def test_weather_stays_as_often_as_it_says(study):
    weather = study.Setting("", (0.5, 0.3, 0.2), 20_000, 0.6).weather(np.random.default_rng(1))
    again = 0.6 + 0.4 * (0.25 + 0.09 + 0.04)
    assert np.mean(weather[1:] == weather[:-1]) == pytest.approx(again, abs=0.02)


def test_a_small_run_prints_tables():
    done = subprocess.run([sys.executable, str(SCRIPT), "--toy"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert done.stdout.count("| contexts |") >= 3
    assert "| shares of days scatter, stays .5 | 100 |" in done.stdout
