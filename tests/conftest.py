"""What holds for every test."""

import gc
import signal
from functools import cache, partial

import pytest
import typer.main
import typer.testing
from hypothesis import settings

from tests.draws import fewer_draws

# The same examples on every run: a failure found once is found again. Fuzzing with fresh ones is a run of its own.
settings.register_profile("steady", derandomize=True, deadline=None)
settings.load_profile("steady")

# The command line is put together from its functions once, not again for every command that a test types.
typer.main.get_command = typer.testing._get_command = cache(typer.main.get_command)

# All that is imported and collected stays until the end: a million objects in which no garbage need be looked for.
gc.disable()


_LISTENING = {
    number: signal.getsignal(number)
    for number in (getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))
}

COSTLY_FIXTURES = ("test_reproduce.py", "test_distributed.py")
"""Files whose tests look at one result that takes many seconds."""


def pytest_collection_modifyitems(items):
    """Put files that share a costly result first, and folders of many short tests last.

    Tests are handed out in portions, the first of them large: files at the start stay in one process, where their
    result is made once, and no process waits at the end for a long test of another.
    """

    def place(item):
        return item.path.parent.name in ("losses", "sets"), item.path.name not in COSTLY_FIXTURES

    items.sort(key=place)


def pytest_collection_finish():
    """Leave what is there out of every search for garbage from here on."""
    gc.freeze()
    # What tests leave behind grows with every one of them; look through it less often than every 700 objects.
    gc.set_threshold(10_000, 20, 20)
    gc.enable()


@pytest.fixture(autouse=True)
def same_signals():
    """Listen to signals as at the start: once a command has ended, nothing stops its process, nor those it begins."""
    for number, handler in _LISTENING.items():
        signal.signal(number, handler)


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
