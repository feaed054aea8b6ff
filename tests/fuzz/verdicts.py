"""What may come back: a result that an independent evaluation confirms, or an error that is documented."""

import signal
import traceback
import warnings
from contextlib import contextmanager

import numpy as np
from sklearn.exceptions import ConvergenceWarning, DataConversionWarning, UndefinedMetricWarning

from counterpoise.exceptions import CounterpoiseError, CounterpoiseWarning
from tests.referees.worst_case import worst_case as referee

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
    places = [frame.filename.replace("\\", "/") for frame in traceback.extract_tb(error.__traceback__)]
    own = max((k for k, place in enumerate(places) if "/counterpoise/" in place), default=-1)
    return len(places) > own + 1 and "/sklearn/" in places[own + 1] and len(str(error)) > 10


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
    own = [frame for frame in frames if "/counterpoise/" in frame.filename] or frames[-1:]
    name = own[-1].filename.rsplit("counterpoise/", 1)[-1]
    return f"{type(error).__name__} at {name}:{own[-1].lineno}: {str(error).splitlines()[0] if str(error) else ''}"[
        :200
    ]


def worst_mean(p_hat, radius, scores):
    """Return the largest mean of scores over the ball, by bisection on the dual variable in its logarithm.

    NaN where floats would not do and the input was not chosen to be judged in high precision.
    """
    exact, shares = scores, np.asarray(p_hat)
    p_hat, scores = np.asarray(p_hat, np.longdouble), np.asarray(scores, np.longdouble)
    p_hat = p_hat / p_hat.sum()
    if radius == 0.0 or len(scores) == 1:
        return float(p_hat @ scores)
    top = scores.max()
    if radius > 1e5:
        return float(top)
    if not 1e-8 < radius < 1e3 or shares[shares > 0].min() < 1e-8:
        # Where doubles, or their longer kin, cancel or underflow; that takes its time, so only some are judged.
        return float(referee(shares, radius, exact)[0]) if hash((radius, *map(float, exact))) % 32 == 0 else np.nan
    gaps, eps = top - scores, np.longdouble(radius) * np.log(np.longdouble(2))
    spread = gaps[p_hat > 0].max()
    if spread == 0.0:
        return float(top)
    seen = p_hat > 0
    share, gap = p_hat[seen], gaps[seen]

    def divergence(log_t):
        u = gap / (spread * np.exp(log_t))
        kept = share @ (1 / (1 + u))
        return (np.log(kept) if kept < 0.5 else np.log1p(-(share @ (u / (1 + u))))) + share @ np.log1p(u)

    # Where every seen score is below an unseen one, nu stops at the latter, and what is left of the ball is its share.
    if gap.min() > 0 and (inside := np.log(share @ (1 / gap)) + share @ np.log(gap)) <= eps:
        tilted = share / gap
        tilted = tilted / tilted.sum() * np.exp(inside - eps)
        return float(top - tilted @ gap)
    low, high = np.longdouble(-9000), np.longdouble(60)
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if divergence(middle) > eps else (low, middle)
    tilted = share / (spread * np.exp(high) + gap)
    tilted = tilted / tilted.sum()
    return float(top - tilted @ gap)


def row_losses(kind, z, y, parameters):
    """Return the loss of every row, written out; ``y`` of the newsvendor is a pair of columns."""
    if kind == "logistic":
        return np.logaddexp(0, np.where(y > 0, -z, z))
    if kind == "multinomial":
        top = z.max(axis=1, keepdims=True)
        return np.log(np.exp(z - top).sum(axis=1)) + top[:, 0] - z[np.arange(len(z)), y.astype(int)]
    if kind == "squared":
        return (z - y) ** 2 / 2
    if kind == "huber":
        r, delta = np.abs(z - y), parameters["delta"]
        return np.where(r <= delta, r * r / 2, delta * r - delta * delta / 2)
    if kind == "poisson":
        return np.exp(z) - y * z
    if kind == "pinball":
        q = parameters["quantile"]
        return np.where(z >= y, (1 - q) * (z - y), q * (y - z))
    cost, demand = y.T
    salvage, shortage = parameters.get("salvage", 0.0), parameters.get("shortage", 0.0)
    over, under = np.maximum(z - demand, 0), np.maximum(demand - z, 0)
    return cost * z - parameters["price"] * np.minimum(z, demand) - salvage * over + shortage * under


def context_risks(kind, X, y, codes, weight, coef, intercept, alpha, parameters):
    """Return every context's risk with the ridge, in the longest floats there are."""
    wide = np.longdouble
    X, coef, intercept = np.asarray(X, wide), np.atleast_2d(np.asarray(coef, wide)), np.atleast_1d(intercept)
    y, weight = np.asarray(y, wide), np.asarray(weight, wide)
    with np.errstate(all="ignore"):
        z = X @ coef.T + np.asarray(intercept, wide)
        rows = row_losses(kind, z[:, 0] if z.shape[1] == 1 else z, y, parameters)
        means = [(weight[codes == c] @ rows[codes == c]) / weight[codes == c].sum() for c in range(codes.max() + 1)]
        return np.array(means, wide) + wide(alpha) / 2 * (coef**2).sum()
