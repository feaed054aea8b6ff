"""The study of small contexts: its truth is the truth, and it runs."""

import runpy
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.special import expit

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "small_contexts.py"


@pytest.fixture(scope="module")
def study():
    return SimpleNamespace(**runpy.run_path(str(SCRIPT), run_name="small_contexts"))


@pytest.mark.parametrize("kind", ["linear", "logistic"])
def test_excess_is_that_of_a_very_large_sample(study, kind):
    sample = study.World(60, (200,), 3).drawn(kind, 0)
    w, intercept = np.array([0.3, -0.2, 0.9, 0.4, -0.1]), 0.2
    found = sample.excess(SimpleNamespace(coef_=w, intercept_=intercept))
    X = np.random.default_rng(0).standard_normal((400_000, 5))
    z = X @ w + intercept
    for truth, excess in zip(sample.coef, found, strict=True):
        best = X @ truth
        if kind == "linear":
            losses = 0.5 * (z - best) ** 2
        else:
            losses = np.logaddexp(0.0, z) - np.logaddexp(0.0, best) - expit(best) * (z - best)
        assert excess == pytest.approx(losses.mean(), rel=0.02)
    perfect = sample.excess(SimpleNamespace(coef_=sample.coef[0], intercept_=0.0))
    np.testing.assert_allclose(perfect[sample.coef[:, 3] == 0.0], 0.0, atol=1e-12)


def test_contexts_are_as_described(study):
    sample = study.World().drawn("linear", 1)
    counts = np.bincount(sample.codes)
    assert counts[:3].tolist() == [2000, 1000, 300]
    assert len(counts) == 23
    assert 20 <= counts[3:].min() <= counts[3:].max() <= 30
    assert (sample.coef == study.BAD).all(axis=1).tolist() == [c == 2 for c in range(23)]


def test_a_small_run_prints_a_table():
    done = subprocess.run([sys.executable, str(SCRIPT), "--toy"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == 2 + 2 + 2 * 3 * 3
    assert {line.count("|") for line in lines} == {10}
    assert done.stderr == ""
