"""How often fairlearn's bootstrap of a group maximum misses the truth; run by coverage.py where fairlearn is.

Usage: python benchmarks/coverage_peer.py "[mean of each group]" SIZE
"""

from __future__ import annotations

import json
import sys
import warnings

import numpy as np
from fairlearn.metrics import MetricFrame

RUNS = 60


def main(means: list[float], size: int) -> None:
    """Print the shares of runs in which the interval lies above and below the largest mean."""
    missed = np.zeros(2)
    codes = np.repeat(np.arange(len(means)), size)
    for run in range(RUNS):
        losses = np.array(means)[codes] + np.random.default_rng(run).standard_normal(len(codes))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            frame = MetricFrame(
                metrics=lambda y_true, y_pred: float(np.mean(y_pred)),
                y_true=np.zeros(len(codes)),
                y_pred=losses,
                sensitive_features=codes,
                n_boot=100,
                ci_quantiles=[0.025, 0.975],
                random_state=run,
            )
        low, high = frame.group_max_ci()
        missed += [low > max(means), high < max(means)]
    print(*(missed / RUNS))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]), int(sys.argv[2]))
