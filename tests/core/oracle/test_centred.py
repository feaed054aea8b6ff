"""Intercepts at their own minimum, by which the ridge proves a bound."""

import numpy as np
import pytest

from counterpoise.contexts import encode
from counterpoise.losses import Logistic, Multinomial
from counterpoise.rows import MemoryRows
from tests.problems import make


@pytest.mark.parametrize("far", [0.1, 8.0])
@pytest.mark.parametrize("loss", [Logistic(), Multinomial(3), Multinomial(4)], ids=repr)
def test_centred_intercepts_leave_no_gradient(loss, far):
    """Near the minimum and far from it, of a mixture and of every context."""
    X, y, codes = make(loss, 3, 2, 5, (40, 60))
    rows = MemoryRows.of(X, y, encode(codes), loss)
    theta = far * np.random.default_rng(1).standard_normal(rows.coefficients.n_parameters)
    mixture = np.array([0.2, 0.5, 0.3])
    at = np.arange(rows.coefficients.width - 1, rows.coefficients.n_parameters, rows.coefficients.width)
    one = rows.at(theta).centred(mixture)
    np.testing.assert_allclose((mixture @ one.gradients)[at], 0.0, atol=1e-14)
    each = rows.whole.at(np.tile(theta, (3, 1))).centred(None)
    np.testing.assert_allclose(each.gradients[:, at], 0.0, atol=1e-14)
