"""Fits by other libraries, in an environment of their own: prints seconds and the worst risk as JSON.

Usage: python peers.py {dro,fairlearn} rows
"""

from __future__ import annotations

import importlib.util
import json
import sys
import time
import types
import warnings

import numpy as np

from rows import logistic_rows


def dro(X: np.ndarray, y: np.ndarray, contexts: np.ndarray) -> np.ndarray:
    """Fit the linear group DRO of the library dro, which solves a conic program; return the coefficients."""
    # The package itself would load networks and images, which the linear models do not need.
    if "dro" not in sys.modules:
        package = types.ModuleType("dro")
        package.__path__ = list(importlib.util.find_spec("dro").submodule_search_locations)
        sys.modules["dro"] = package
    from dro.linear_model.group_dro import GroupDRO

    with_contexts = np.column_stack([X, contexts])
    model = GroupDRO(input_dim=with_contexts.shape[1], group_idx=X.shape[1], model_type="logistic")
    model.fit(with_contexts, 2.0 * y - 1.0)
    return np.append(model.theta, model.b)


def fairlearn(X: np.ndarray, y: np.ndarray, contexts: np.ndarray) -> None:
    """Fit fairlearn's reduction with a bound on every context's loss: a lottery over models."""
    from fairlearn.reductions import BoundedGroupLoss, ExponentiatedGradient, ZeroOneLoss
    from sklearn.linear_model import LogisticRegression

    bound = BoundedGroupLoss(ZeroOneLoss(), upper_bound=0.2)
    ExponentiatedGradient(LogisticRegression(), bound).fit(X, y, sensitive_features=contexts)


def main() -> None:
    """Time one fit."""
    warnings.simplefilter("ignore")
    name, n = sys.argv[1], int(sys.argv[2])
    X, y, contexts = logistic_rows(n, 20, 10)
    fit = {"dro": dro, "fairlearn": fairlearn}[name]
    # What is loaded at the first use is not part of the fit.
    fit(*logistic_rows(400, 20, 10))
    start = time.perf_counter()
    fit(X, y, contexts)
    print(json.dumps({"seconds": time.perf_counter() - start}))


if __name__ == "__main__":
    main()
