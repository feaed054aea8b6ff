"""What may come back: a result that an independent evaluation confirms, or an error that is documented."""

import signal
import traceback
import warnings
from contextlib import contextmanager
from pathlib import Path

from sklearn.exceptions import ConvergenceWarning, DataConversionWarning, UndefinedMetricWarning

import counterpoise
from counterpoise.exceptions import CounterpoiseError, CounterpoiseWarning

# A checkout may itself lie in a folder of this name, with everything installed inside it.
_LIBRARY = str(Path(counterpoise.__file__).parent)

PATIENCE = 30
"""Seconds after which an input counts as one that hangs."""

# What scikit-learn says of targets that look odd for their kind, in words it has always used.
_SKLEARN_WORDS = ("The number of unique classes", "The least populated class", "A single label was found")


class HangError(Exception):
    """An input took longer than PATIENCE."""


@contextmanager
def strict(patience=PATIENCE, foreign=False):
    """Turn every warning that is not documented into an error, and a hang into an exception.

    ``foreign`` says that a learner of somebody else is at work, whose arithmetic is its own affair.
    """

    def alarmed(signum, frame):
        raise HangError(f"more than {patience} seconds")

    before = signal.signal(signal.SIGALRM, alarmed)
    signal.setitimer(signal.ITIMER_REAL, patience)
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("error")
            for kind in (CounterpoiseWarning, ConvergenceWarning, DataConversionWarning, UndefinedMetricWarning):
                warnings.simplefilter("always", kind)
            if foreign:
                warnings.simplefilter("ignore", RuntimeWarning)
                warnings.filterwarnings("ignore", message="Singular matrix")
            for words in _SKLEARN_WORDS:
                warnings.filterwarnings("ignore", message=words)
            yield caught
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)


def is_documented(error):
    """Tell whether an error is one of the library's own, or of scikit-learn's validation, and says something."""
    if isinstance(error, CounterpoiseError):
        return len(str(error)) > 10
    if not isinstance(error, (ValueError, TypeError)) or isinstance(error, UnicodeError):
        return False
    places = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
    own = max((k for k, place in enumerate(places) if place.startswith(_LIBRARY)), default=-1)
    return len(places) > own + 1 and "sklearn" in Path(places[own + 1]).parts and len(str(error)) > 10


def outcome(action, foreign=False):
    """Run an action; return its result and the warnings, or None where it was refused as documented."""
    with strict(foreign=foreign) as caught:
        try:
            return action(), {warning.category.__name__ for warning in caught}
        except Exception as error:
            if is_documented(error):
                return None
            raise


def where(error):
    """Return the place of an error in the library, and the first words of what it says: findings alike share it."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if frame.filename.startswith(_LIBRARY)] or frames[-1:]
    name = own[-1].filename.rsplit("counterpoise/", 1)[-1]
    return f"{type(error).__name__} at {name}:{own[-1].lineno}: {str(error).splitlines()[0] if str(error) else ''}"[
        :200
    ]
