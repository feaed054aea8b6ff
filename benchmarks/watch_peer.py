"""First days on which a detector of another library raises an alarm; run by the Python that has this library.

Usage: python watch_peer.py adwin|page-hinkley|chi-squared COUNTS.npz [SETTING ...]

COUNTS.npz holds ``counts`` of shape (streams, days, contexts) and ``p_hat``; the rows of a day are fed one by one, in
random order. Prints a line of days for every setting, ``inf`` where a year passes without alarm.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np


def rows_of(counts: Any, rng: np.random.Generator) -> list[Any]:
    """Return the codes of contexts of each day, in random order."""
    return [rng.permutation(np.repeat(np.arange(counts.shape[1]), day)) for day in counts.astype(int)]


def river(name: str, days: list[Any], n_contexts: int, setting: float) -> float:
    """Return the first day on which one detector of a context's indicator warns."""
    from river import drift

    made = {
        "adwin": lambda: drift.ADWIN(delta=setting / n_contexts),
        "page-hinkley": lambda: drift.PageHinkley(threshold=setting, mode="up"),
    }
    detectors = [made[name]() for _ in range(n_contexts)]
    for day, codes in enumerate(days):
        for code in codes:
            for context, detector in enumerate(detectors):
                detector.update(float(context == code))
            # A change within the day is found at its end, as by everyone else: ADWIN keeps no memory of it.
            if any(detector.drift_detected for detector in detectors):
                return float(day)
    return np.inf


def alibi(days: list[Any], p_hat: Any, rng: np.random.Generator, setting: float) -> float:
    """Return the first day on which the rows of the day differ from 4,000 rows of the fit."""
    from alibi_detect.cd import ChiSquareDrift

    reference = rng.choice(len(p_hat), 4000, p=p_hat)[:, None]
    detector = ChiSquareDrift(reference, p_val=setting, categories_per_feature={0: len(p_hat)})
    for day, codes in enumerate(days):
        if detector.predict(codes[:, None])["data"]["is_drift"]:
            return float(day)
    return np.inf


def main(arguments: list[str]) -> int:
    """Print the first days."""
    name, path, *settings = arguments
    with np.load(path) as stored:
        counts, p_hat = stored["counts"], stored["p_hat"]
    for setting in map(float, settings):
        found = []
        for run, stream in enumerate(counts):
            rng = np.random.default_rng(run)
            days = rows_of(stream, rng)
            if name == "chi-squared":
                found.append(alibi(days, p_hat, rng, setting))
            else:
                found.append(river(name, days, counts.shape[2], setting))
        print(*found, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
