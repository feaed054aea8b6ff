"""Estimators that drop into scikit-learn."""

from counterpoise.estimators.linear import (
    RobustHuberRegressor,
    RobustLinearRegression,
    RobustLogisticRegression,
    RobustPoissonRegressor,
    RobustQuantileRegressor,
)

__all__ = [
    "RobustHuberRegressor",
    "RobustLinearRegression",
    "RobustLogisticRegression",
    "RobustPoissonRegressor",
    "RobustQuantileRegressor",
]
