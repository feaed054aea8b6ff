"""The study of references: splits are fair, every method has its row, and contexts that are alike are noticed."""

import sys
from pathlib import Path

import numpy as np
import pytest


@pytest.fixture
def study(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    import references

    yield references
    for name in ("references", "published_tables"):
        sys.modules.pop(name)


def test_every_context_is_split_alike(study):
    groups = np.repeat(["a", "b"], [100, 30])
    train = study.split(groups, 0)
    assert [train[groups == label].sum() for label in ("a", "b")] == [70, 21]
    assert (study.split(groups, 0) == train).all()
    assert (study.split(groups, 1) != train).any()


def test_every_reference_has_a_row_and_contexts_alike_are_noticed(study):
    alike, differing = study.toy()
    found = {table.name: study.study(table, 1) for table in (alike, differing)}
    for columns in found.values():
        assert len(columns) == 1 + len(study.SETS) * len(study.REFERENCES)
        assert len(list(study.lines("toy", columns))) == len(columns)
    assert found["alike"]["confidence=1", "auto"].used == ["cross-fit"]
    # A model of the plain kind is the answer where it is what contexts are compared with.
    assert found["one differs"]["confidence=1", "pooled"].worst == pytest.approx(
        found["one differs"][study.PLAIN].worst, abs=1e-3
    )
