"""What the tests of fit share."""

import numpy as np
import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st

from counterpoise.core.fit import METHODS
from tests.problems import LOSSES, SMOOTH, referee_arguments
from tests.referees import robust

PROPERTY = settings(max_examples=3, deadline=None, derandomize=True, phases=(Phase.explicit, Phase.generate))
SEEDS = st.integers(0, 2**32 - 1)

every_loss = pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
every_smooth_loss = pytest.mark.parametrize("loss", SMOOTH, ids=lambda loss: loss.name)
every_method = pytest.mark.parametrize("method", METHODS)


def theta_of(fit):
    """Return coefficients and intercepts in one vector."""
    return np.column_stack([fit.coef, fit.intercept]).ravel()


def identified(fit):
    """Return what data determine of theta: a common shift of several intercepts changes no prediction."""
    intercept = fit.intercept if len(fit.intercept) == 1 else fit.intercept - fit.intercept.mean()
    return np.column_stack([fit.coef, intercept]).ravel()


def referee(loss, data, fit, criterion, alpha, **options):
    """Return the answer of a convex program to the problem a fit has solved."""
    X, y, codes = data
    return robust.solve(
        **referee_arguments(loss),
        X=X,
        y=y,
        codes=codes,
        radius_bits=fit.mixes.radius,
        criterion=criterion,
        alpha=alpha,
        fit_intercept=True,
        **options,
    )
