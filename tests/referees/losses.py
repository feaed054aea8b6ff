"""High-precision pointwise losses with first and second derivatives in the prediction ``z``.

Inputs are floats taken as exact.  The newsvendor's ``y`` is the pair ``(cost, demand)``, that of hinges
``(left, right, height, hinge)``; the multinomial's
``z`` is a list of scores and its ``y`` a class index.  At a kink the right derivative is returned.
"""

from mpmath import mp, mpf

DIGITS = 50
_GUARD = 30


def _exact(x):
    return x if isinstance(x, mpf) else mpf(float(x))


def _softplus(z):
    return z + mp.log1p(mp.exp(-z)) if z > 0 else mp.log1p(mp.exp(z))


def _sigmoid(z):
    return 1 / (1 + mp.exp(-z)) if z > 0 else mp.exp(z) / (1 + mp.exp(z))


def _logistic(y, z):
    # softplus(z) - y z, written as a mixture so that nothing cancels in the tails.
    y, z = _exact(y), _exact(z)
    up, down = _sigmoid(z), _sigmoid(-z)
    value = (1 - y) * _softplus(z) + y * _softplus(-z)
    return value, (1 - y) * up - y * down, up * down


def _multinomial(y, z, n_classes=None):
    z, y = [_exact(x) for x in z], int(y)
    size = len(z)
    if n_classes is not None and size != n_classes:
        raise ValueError("z must have n_classes entries")
    if not 0 <= y < size:
        raise ValueError("y must be a class index")
    top = max(z)
    terms = [mp.exp(x - top) for x in z]
    total = mp.fsum(terms)
    prob = [t / total for t in terms]
    # 1 - prob[k] as a sum of the others keeps its relative accuracy when prob[k] is near one.
    rest = [mp.fsum(terms[:k] + terms[k + 1 :]) / total for k in range(size)]
    value = mp.log1p(mp.fsum(mp.exp(x - z[y]) for k, x in enumerate(z) if k != y))
    gradient_ = [-rest[k] if k == y else prob[k] for k in range(size)]
    hessian = [[prob[k] * rest[k] if j == k else -prob[j] * prob[k] for k in range(size)] for j in range(size)]
    return value, gradient_, hessian


def _squared(y, z):
    r = _exact(z) - _exact(y)
    return r * r / 2, r, mpf(1)


def _huber(y, z, delta):
    r, delta = _exact(z) - _exact(y), _exact(delta)
    if abs(r) <= delta:
        return r * r / 2, r, mpf(1)
    return delta * abs(r) - delta * delta / 2, delta * mp.sign(r), mpf(0)


def _poisson(y, z):
    y, z = _exact(y), _exact(z)
    rate = mp.exp(z)
    return rate - y * z, rate - y, rate


def _pinball(y, z, quantile):
    y, z, q = _exact(y), _exact(z), _exact(quantile)
    if z >= y:
        return (1 - q) * (z - y), 1 - q, mpf(0)
    return q * (y - z), -q, mpf(0)


def _newsvendor(y, z, price):
    cost, demand = (_exact(v) for v in y)
    z, price = _exact(z), _exact(price)
    return z * cost - price * min(z, demand), cost if z >= demand else cost - price, mpf(0)


def _hinges(y, z):
    left, right, height, hinge = (_exact(v) for v in y)
    slope = right if _exact(z) >= hinge else left
    return height + slope * (_exact(z) - hinge), slope, mpf(0)


_LOSSES = {
    "hinges": _hinges,
    "logistic": _logistic,
    "multinomial": _multinomial,
    "squared": _squared,
    "huber": _huber,
    "poisson": _poisson,
    "pinball": _pinball,
    "newsvendor": _newsvendor,
}


def _evaluate(name, y, z, params):
    with mp.workdps(DIGITS + _GUARD):
        return _LOSSES[name](y, z, **params)


def value(name, y, z, **params):
    """Return the loss as an mpf."""
    return _evaluate(name, y, z, params)[0]


def gradient(name, y, z, **params):
    """Return the derivative in ``z`` (a list for the multinomial loss)."""
    return _evaluate(name, y, z, params)[1]


def curvature(name, y, z, **params):
    """Return the second derivative in ``z`` (a list of lists for the multinomial loss)."""
    return _evaluate(name, y, z, params)[2]
