"""A second opinion on certificates, in which no solver of the library has a part.

Small problems are posed to CVXPY. Tiny ones, of two contexts, are solved with 50 digits: the ball is then an interval
of the first context's share, and the optimum is the largest value over it of the least mean risk, or the least value
over one parameter of the larger end's.
"""

from mpmath import mp, mpf

from tests.referees import losses

DIGITS = 50


def share_interval(share, radius):
    """Return the smallest and the largest first share of two in the ball, with 50 digits."""
    share = mpf(share)
    if radius == 0.0:
        return share, share
    if mp.isinf(mpf(radius)):
        return mpf(0), mpf(1)
    eps = mpf(radius) * mp.ln(2)

    def divergence(p):
        return share * mp.log(share / p) + (1 - share) * mp.log((1 - share) / (1 - p))

    ends = []
    for outer in (mpf(0), mpf(1)):
        inside = share
        for _ in range(4 * DIGITS):
            middle = (inside + outer) / 2
            inside, outer = (middle, outer) if divergence(middle) <= eps else (inside, middle)
        ends.append(inside)
    return tuple(ends)


def least_on_line(function, low=-60, high=60):
    """Return the least value of a convex function of one number, by golden sections to about 1e-25."""
    return _golden(function, mpf(low), mpf(high), 130)


def _risk(name, rows, theta, alpha, intercept, parameters):
    features = theta[:-1] if intercept else theta
    total = mpf(0)
    for x, y in rows:
        z = mp.fsum(a * mpf(b) for a, b in zip(features, x, strict=True)) + (theta[-1] if intercept else 0)
        total += losses.value(name, y, z, **parameters)
    return total / len(rows) + mpf(alpha) / 2 * mp.fsum(a * a for a in features)


def _least_smooth(name, weighted, width, alpha, intercept, parameters):
    """Return the least of a weighted sum of risks of a smooth loss, by damped Newton steps with 50 digits."""
    theta = [mpf(0)] * width

    def value(theta):
        return mp.fsum(w * _risk(name, rows, theta, alpha, intercept, parameters) for w, rows in weighted)

    here = value(theta)
    for _ in range(100):
        gradient, hessian = mp.matrix(width, 1), mp.matrix(width, width)
        for j in range(width - int(intercept)):
            gradient[j] += mpf(alpha) * theta[j] * mp.fsum(w for w, _ in weighted)
            hessian[j, j] += mpf(alpha) * mp.fsum(w for w, _ in weighted)
        for w, rows in weighted:
            for x, y in rows:
                row = [mpf(v) for v in x] + ([mpf(1)] if intercept else [])
                z = mp.fsum(a * b for a, b in zip(theta, row, strict=True))
                slope = losses.gradient(name, y, z, **parameters) * w / len(rows)
                bend = losses.curvature(name, y, z, **parameters) * w / len(rows)
                for j in range(width):
                    gradient[j] += slope * row[j]
                    for k in range(width):
                        hessian[j, k] += bend * row[j] * row[k]
        step = mp.lu_solve(hessian, gradient)
        length = mpf(1)
        while True:
            trial = [a - length * step[j] for j, a in enumerate(theta)]
            there = value(trial)
            if there <= here or length < mpf(10) ** -30:
                break
            length /= 2
        if not there < here:
            break
        theta, here = trial, there
        if mp.fsum(abs(s) for s in step) < mpf(10) ** (-DIGITS // 2 - 5):
            break
    return here


def tiny_optimum(name, contexts, radius, criterion, alpha, intercept, **parameters):
    """Return the optimum of a problem of two contexts and a smooth loss, as a float of a number with 50 digits.

    Parameters
    ----------
    contexts : pair of lists of (features, target)
    """
    with mp.workdps(DIGITS):
        width = len(contexts[0][0][0]) + int(intercept)
        shape = (width, alpha, intercept, parameters)
        references = [mpf(0), mpf(0)]
        if criterion == "excess":
            references = [_least_smooth(name, [(mpf(1), rows)], *shape) for rows in contexts]
        n = [mpf(len(rows)) for rows in contexts]
        low, high = share_interval(n[0] / (n[0] + n[1]), radius)

        def minus_least(p):
            shares = (p, 1 - p)
            pairs = [(w, rows) for w, rows in zip(shares, contexts, strict=True) if w > 0]
            taken = mp.fsum(w * r for w, r in zip(shares, references, strict=True))
            return taken - _least_smooth(name, pairs, *shape)

        if low == high:
            return float(-minus_least(low))
        return float(-_golden(minus_least, low, high))


def _golden(function, low, high, steps=60):
    """Return the least value on an interval to about 1e-25: near the optimum a function is flat."""
    ratio = (mp.sqrt(5) - 1) / 2
    ends = min(function(low), function(high))
    left, right = high - ratio * (high - low), low + ratio * (high - low)
    at_left, at_right = function(left), function(right)
    for _ in range(steps):
        if at_left <= at_right:
            high, right, at_right = right, left, at_left
            left = high - ratio * (high - low)
            at_left = function(left)
        else:
            low, left, at_left = left, right, at_right
            right = low + ratio * (high - low)
            at_right = function(right)
    return min(ends, at_left, at_right)


def tiny_optimum_on_line(name, contexts, radius, criterion, alpha, **parameters):
    """Return the same for one parameter and any convex loss: the larger of two means at the ends of the interval."""
    with mp.workdps(DIGITS):

        def risks(t):
            return [_risk(name, rows, [t], alpha, False, parameters) for rows in contexts]

        references = [mpf(0), mpf(0)]
        if criterion == "excess":
            references = [least_on_line(lambda t, c=c: risks(t)[c]) for c in (0, 1)]
        n = [mpf(len(rows)) for rows in contexts]
        ends = share_interval(n[0] / (n[0] + n[1]), radius)

        def worst(t):
            first, second = (r - s for r, s in zip(risks(t), references, strict=True))
            return max(p * first + (1 - p) * second for p in ends)

        return float(least_on_line(worst))
