"""What holds for every test."""

import pytest
from hypothesis import settings

from tests.draws import fewer_draws

# The same examples on every run: a failure found once is found again. Fuzzing with fresh ones is a run of its own.
settings.register_profile("steady", derandomize=True, deadline=None)
settings.load_profile("steady")


@pytest.fixture(scope="module")
def few_draws():
    """Fewer draws behind every interval, for modules that test what is done with intervals, not the intervals."""
    with pytest.MonkeyPatch.context() as patch:
        fewer_draws(patch.setattr)
        yield
