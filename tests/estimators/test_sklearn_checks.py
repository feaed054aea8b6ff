"""scikit-learn's own checks, with no failure expected."""

import pytest
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.utils.estimator_checks import parametrize_with_checks

import counterpoise as cpo

ESTIMATORS = [
    cpo.RobustLogisticRegression(),
    cpo.RobustLinearRegression(),
    cpo.RobustHuberRegressor(),
    cpo.RobustPoissonRegressor(),
    cpo.RobustQuantileRegressor(),
    cpo.RobustNewsvendorRegressor(10.0, cost=4.0),
    cpo.ContextRobust(LogisticRegression(max_iter=1000)),
    cpo.ContextRobust(Ridge()),
]


# The checks pass no contexts, of which the estimators warn.
@pytest.mark.filterwarnings("ignore::counterpoise.exceptions.OneContextWarning")
@parametrize_with_checks(ESTIMATORS)
def test_scikit_learn_checks(estimator, check):
    check(estimator)
