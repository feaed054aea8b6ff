"""Learn from data of different contexts when the future mix of contexts is uncertain."""

from counterpoise.estimators import (
    RobustHuberRegressor,
    RobustLinearRegression,
    RobustLogisticRegression,
    RobustPoissonRegressor,
    RobustQuantileRegressor,
)
from counterpoise.minimization import minimize
from counterpoise.objective import Certificate
from counterpoise.sets import KLBall, WorstCase, confidence_radius
from counterpoise.solvers import Solution, Status

__version__ = "0.1.0.dev0"

__all__ = [
    "Certificate",
    "KLBall",
    "RobustHuberRegressor",
    "RobustLinearRegression",
    "RobustLogisticRegression",
    "RobustPoissonRegressor",
    "RobustQuantileRegressor",
    "Solution",
    "Status",
    "WorstCase",
    "__version__",
    "confidence_radius",
    "minimize",
]
