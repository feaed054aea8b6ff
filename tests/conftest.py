"""What holds for every test."""

import gc
from functools import partial

import pytest
from hypothesis import settings

from tests.draws import fewer_draws

# The same examples on every run: a failure found once is found again. Fuzzing with fresh ones is a run of its own.
settings.register_profile("steady", derandomize=True, deadline=None)
settings.load_profile("steady")

# All that is imported and collected stays until the end: a million objects in which no garbage need be looked for.
gc.disable()


def pytest_collection_modifyitems(items):
    """Put folders of many short tests last, so that no process waits at the end for a long one of another."""
    items.sort(key=lambda item: item.path.parent.name in ("losses", "sets"))


def pytest_collection_finish():
    """Leave what is there out of every search for garbage from here on."""
    gc.freeze()
    gc.enable()


@pytest.fixture
def few_levels(monkeypatch):
    """Explorers of few levels and places of bounds, for tests of what is asked of them rather than of the levels."""
    from counterpoise.reports import explorer

    monkeypatch.setattr("counterpoise.reports.explorer.bounds._STEPS", 2)
    for name in ("sweep", "stock_sweep"):
        monkeypatch.setattr(explorer, name, partial(getattr(explorer, name), levels=4))


@pytest.fixture(scope="module")
def few_draws():
    """Fewer draws behind every interval, for modules that test what is done with intervals, not the intervals."""
    with pytest.MonkeyPatch.context() as patch:
        fewer_draws(patch.setattr)
        yield
