"""Learn from data of different contexts when the future mix of contexts is uncertain."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from counterpoise import exceptions as exceptions
    from counterpoise import metrics as metrics
    from counterpoise.core.minimization import minimize
    from counterpoise.core.objective import Certificate
    from counterpoise.core.solvers import Solution, Status
    from counterpoise.estimators.any_learner import ContextRobust
    from counterpoise.estimators.boosting import (
        RobustLGBMClassifier,
        RobustLGBMRegressor,
        RobustXGBClassifier,
        RobustXGBRegressor,
    )
    from counterpoise.estimators.linear import (
        RobustHuberRegressor,
        RobustLinearRegression,
        RobustLogisticRegression,
        RobustPoissonRegressor,
        RobustQuantileRegressor,
    )
    from counterpoise.estimators.newsvendor import RobustNewsvendor
    from counterpoise.estimators.order_rule import RobustNewsvendorRegressor
    from counterpoise.judging.comparison import compare
    from counterpoise.judging.confidence import confidence_path
    from counterpoise.judging.evaluation import evaluate
    from counterpoise.judging.headroom import headroom
    from counterpoise.memberships import Memberships
    from counterpoise.reports.report import Report
    from counterpoise.sets import (
        Chi2Ball,
        KLBall,
        Mix,
        ShareBounds,
        ShareLimits,
        TotalVariationBall,
        WorstCase,
        confidence_radius,
        effective_draws,
    )
    from counterpoise.stock.planning import plan_stock
    from counterpoise.tables.pooling import pool_rare
    from counterpoise.tables.tabular.table_model import load
    from counterpoise.watch.watch import Watch

__version__ = "0.1.0.dev0"

__all__ = [
    "Certificate",
    "Chi2Ball",
    "ContextRobust",
    "KLBall",
    "Memberships",
    "Mix",
    "Report",
    "RobustHuberRegressor",
    "RobustLGBMClassifier",
    "RobustLGBMRegressor",
    "RobustLinearRegression",
    "RobustLogisticRegression",
    "RobustNewsvendor",
    "RobustNewsvendorRegressor",
    "RobustPoissonRegressor",
    "RobustQuantileRegressor",
    "RobustXGBClassifier",
    "RobustXGBRegressor",
    "ShareBounds",
    "ShareLimits",
    "Solution",
    "Status",
    "TotalVariationBall",
    "Watch",
    "WorstCase",
    "__version__",
    "compare",
    "confidence_path",
    "confidence_radius",
    "effective_draws",
    "evaluate",
    "headroom",
    "load",
    "minimize",
    "plan_stock",
    "pool_rare",
]

# All is imported when it is first used: a command that only predicts needs neither scipy nor scikit-learn, which take
# longer to import than it takes to run.
_WHEN_USED = {
    "Certificate": "core.objective",
    "Chi2Ball": "sets",
    "KLBall": "sets",
    "Memberships": "memberships",
    "Mix": "sets",
    "ShareBounds": "sets",
    "ShareLimits": "sets",
    "Solution": "core.solvers",
    "Status": "core.solvers",
    "TotalVariationBall": "sets",
    "Watch": "watch.watch",
    "WorstCase": "sets",
    "confidence_radius": "sets",
    "effective_draws": "sets",
    "load": "tables.tabular.table_model",
    "minimize": "core.minimization",
    "compare": "judging.comparison",
    "confidence_path": "judging.confidence",
    "evaluate": "judging.evaluation",
    "headroom": "judging.headroom",
    "Report": "reports.report",
    "plan_stock": "stock.planning",
    "pool_rare": "tables.pooling",
    "ContextRobust": "estimators.any_learner",
    "RobustHuberRegressor": "estimators.linear",
    "RobustLGBMClassifier": "estimators.boosting",
    "RobustLGBMRegressor": "estimators.boosting",
    "RobustLinearRegression": "estimators.linear",
    "RobustLogisticRegression": "estimators.linear",
    "RobustNewsvendor": "estimators.newsvendor",
    "RobustNewsvendorRegressor": "estimators.order_rule",
    "RobustPoissonRegressor": "estimators.linear",
    "RobustQuantileRegressor": "estimators.linear",
    "RobustXGBClassifier": "estimators.boosting",
    "RobustXGBRegressor": "estimators.boosting",
}

_MODULES = ("core", "exceptions", "losses", "metrics", "sets")
"""Modules that are there without being imported by name."""


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"{__name__}.{name}")
    if name not in _WHEN_USED:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_WHEN_USED[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, "metrics"])
