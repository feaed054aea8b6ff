r"""What a sequence of contexts says about its mix, however often one looks: mixtures of likelihoods.

If contexts are drawn from the mix :math:`p`, the ratio of any mixture of likelihoods to the likelihood itself,

.. math:: E_n = \frac{\int \prod_c q_c^{x_c} \, \pi(dq)}{\prod_c p_c^{x_c}},

is a nonnegative martingale that starts at 1. By Ville's inequality it ever reaches :math:`1/\alpha` with probability at
most :math:`\alpha`: the mixes at which it has not done so are a confidence set at every number of draws at once. With a
Dirichlet prior the mixture is in closed form.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from counterpoise.exceptions import InvalidInputError

JEFFREYS = 0.5
"""Parameter of the Dirichlet prior under which no mix is favoured by the number of draws it takes to tell it."""


def log_mixture(counts: ArrayLike, prior: ArrayLike = JEFFREYS) -> Any:
    r"""Return the logarithm of the probability of a sequence with these counts, under a Dirichlet mixture of mixes.

    .. math:: \log \frac{\Gamma(A)}{\Gamma(A + n)} + \sum_c \log \frac{\Gamma(x_c + a_c)}{\Gamma(a_c)},
        \qquad A = \sum_c a_c, \quad n = \sum_c x_c

    Parameters
    ----------
    counts : array-like of shape (..., n_contexts)
        Not negative; fractions are allowed.
    prior : float or array-like of shape (n_contexts,)
        The Dirichlet parameters :math:`a`, positive; one number for all contexts, or one for each.

    Returns
    -------
    float, or ndarray of shape (...,)
        In nats: of a sequence in any given order, not of the counts, which may come in many orders.
    """
    try:
        x = np.asarray(counts, dtype=np.float64)
        a = np.asarray(prior, dtype=np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidInputError(f"counts and prior must be numbers, got {counts!r:.40} and {prior!r:.40}.") from error
    if x.ndim == 0 or x.shape[-1] == 0:
        raise InvalidInputError(f"counts must hold one number per context, got shape {x.shape}.")
    if a.shape not in ((), x.shape[-1:]):
        raise InvalidInputError(
            f"prior has shape {a.shape}; pass one number, or one for each of {x.shape[-1]} contexts."
        )
    if not (np.isfinite(x).all() and x.min(initial=0.0) >= 0.0):
        raise InvalidInputError("counts hold a number that is negative or not finite; a count is neither.")
    if not (np.isfinite(a).all() and a.min() > 0.0):
        raise InvalidInputError(f"prior is {prior!r:.60}; Dirichlet parameters are finite and positive.")
    a = np.broadcast_to(a, x.shape[-1:])
    own = (special.gammaln(x + a) - special.gammaln(a)).sum(axis=-1)
    found = own - (special.gammaln(x.sum(axis=-1) + a.sum()) - special.gammaln(a.sum()))
    return float(found) if x.ndim == 1 else found
