"""How probable counts are under a mixture of mixes: what evidence against a mix is measured by."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import gammaln


def log_mixture(counts: ArrayLike, prior: ArrayLike = 0.5) -> Any:
    """Return the logarithm of the Dirichlet-multinomial probability of a sequence with these counts.

    Parameters
    ----------
    counts : array-like of shape (..., n_contexts)
        They may be fractions.
    prior : float or array-like of shape (n_contexts,)
        The parameters of the Dirichlet distribution; 1/2 is Jeffreys'.
    """
    x = np.asarray(counts, dtype=np.float64)
    a = np.broadcast_to(np.asarray(prior, dtype=np.float64), x.shape[-1:])
    return gammaln(a.sum()) - gammaln(a.sum() + x.sum(axis=-1)) + (gammaln(a + x) - gammaln(a)).sum(axis=-1)
