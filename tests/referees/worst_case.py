"""High-precision referee for the inner maximum over the KL ball.

The ball is ``{p in simplex : D(p_hat || p) <= radius}`` with ``D`` in bits.
"""

import math

from mpmath import mp, mpf

_MAX_STEPS = 20_000


def _exact(x):
    """Convert without rounding: floats carry 53 bits, far below any working precision used here."""
    return x if isinstance(x, mpf) else mpf(float(x))


def _normalised(p_hat):
    masses = [_exact(x) for x in p_hat]
    if not masses or any(not mp.isfinite(m) or m < 0 for m in masses):
        raise ValueError("p_hat must be non-empty, finite and non-negative")
    total = mp.fsum(masses)
    if total <= 0:
        raise ValueError("p_hat must have positive mass")
    return [m / total for m in masses]


def divergence_bits(p_hat, p, digits=50):
    """Return ``D(p_hat || p)`` in bits as an mpf, ``p_hat`` renormalised and ``p`` taken as it stands."""
    # Near p = p_hat the terms are of order sqrt(D) and cancel down to D, hence the generous guard.
    with mp.workdps(digits + 60):
        pairs = [(a, _exact(b)) for a, b in zip(_normalised(p_hat), p, strict=True) if a > 0]
        if any(b <= 0 for _, b in pairs):
            return mp.inf
        return mp.fsum(a * mp.log(a / b) for a, b in pairs) / mp.ln(2)


def _merge(masses, gaps):
    """Pool equal gaps: the divergence below only sees the distribution of the gap."""
    pooled = {}
    for m, g in zip(masses, gaps, strict=True):
        pooled[g] = pooled.get(g, mpf(0)) + m
    return list(pooled.items())


def _profile(pooled, t):
    """Return ``(D, -dD/dlog t)`` in nats for ``p_c`` proportional to ``p_hat_c / (t + gap_c)``.

    In terms of ``r = t / (t + gap)`` these are ``log E r - E log r`` and ``Var r / E r``.
    """
    mean = mpf(0)
    mean_log = mpf(0)
    ratios = []
    for g, m in pooled:
        r = t / (t + g)
        ratios.append((r, m))
        mean += m * r
        mean_log += m * mp.log(r)
    variance = mp.fsum(m * (r - mean) ** 2 for r, m in ratios)
    return mp.log(mean) - mean_log, variance / mean


def _root(pooled, eps, t_start, digits):
    """Solve ``D(t) = eps`` by bisection in ``u = log t``, accelerated by Newton steps inside the bracket."""

    def excess(u):
        d, slope = _profile(pooled, mp.exp(u))
        if d <= 0:
            # Below the rounding level, hence far below eps: the infinite step makes the caller bisect.
            return -mp.inf, mpf(1)
        # log D is nearly linear in u when t is large and gently curved otherwise, which suits Newton.
        return mp.log(d / eps), slope / d

    # D decreases in u, so walk by doubling strides until the sign changes.
    u = mp.log(t_start)
    value, slope = excess(u)
    direction, stride, lower, upper = (1 if value > 0 else -1), mpf(1), None, None
    for _ in range(_MAX_STEPS):
        if value > 0:
            lower = u
        else:
            upper = u
        if lower is not None and upper is not None:
            break
        u += direction * stride
        stride *= 2
        value, slope = excess(u)
    else:
        raise ArithmeticError("no bracket for the multiplier")

    target = mpf(10) ** (-(digits + 15))
    for _ in range(_MAX_STEPS):
        if value > 0:
            lower = u
        else:
            upper = u
        step = value / slope
        if abs(step) <= target * (1 + abs(u)) or upper - lower <= target * (1 + abs(u)):
            return mp.exp(u)
        candidate = u + step
        # Newton must both stay inside the bracket and make real progress, or we bisect.
        if not lower < candidate < upper or abs(step) > (upper - lower) * mpf("0.9"):
            candidate = (lower + upper) / 2
        u = candidate
        value, slope = excess(u)
    raise ArithmeticError("the multiplier did not converge")


def _guard_digits(eps, peak, rest):
    """Bound the digits lost to cancellation, given the masses on (``peak``) and off the top score."""
    lost = mp.log10(1 + 1 / eps) + mp.log10(1 + 1 / peak) + mp.log10(1 + 1 / rest)
    # A peak of mass near one makes log t as large as eps / rest, which the exponent must resolve too.
    lost += mp.log10(1 + eps / rest)
    return 30 + 2 * math.ceil(float(lost))


def worst_case(p_hat, radius_bits, scores, digits=50):
    """Return ``(value, p)``: the maximum of ``sum p_c s_c`` over the KL ball, and a maximiser.

    Parameters
    ----------
    p_hat, scores : sequences of float (or mpf), taken as exact; ``p_hat`` is renormalised.
    radius_bits : float, may be 0 or inf.
    digits : int, number of trustworthy decimal digits wanted.

    Returns
    -------
    value : mpf
    p : list of mpf
    """
    if len(p_hat) != len(scores):
        raise ValueError("p_hat and scores differ in length")
    if not radius_bits >= 0:
        raise ValueError("the radius must be non-negative")
    # Enough for exact differences of floats some 24 orders of magnitude apart, and then some.
    base = digits + 60
    with mp.workdps(base):
        masses = _normalised(p_hat)
        s = [_exact(x) for x in scores]
        if not all(mp.isfinite(x) for x in s):
            raise ValueError("the scores must be finite")
        size = len(s)
        if radius_bits == 0:
            return mp.fdot(masses, s), masses
        if mp.isinf(radius_bits):
            best = max(range(size), key=s.__getitem__)
            return s[best], [mpf(int(c == best)) for c in range(size)]

        seen = [c for c in range(size) if masses[c] > 0]
        unseen = [c for c in range(size) if masses[c] == 0]
        top = max(s[c] for c in seen)
        scout = max(unseen, key=s.__getitem__) if unseen else None
        lift = s[scout] - top if unseen else mpf(0)
        flat = all(s[c] == top for c in seen)
        if flat and lift <= 0:
            return top, masses
        eps = _exact(radius_bits) * mp.ln(2)
        # When all seen scores are equal there is nothing to cancel (D vanishes identically).
        peak = mp.fsum(masses[c] for c in seen if s[c] == top)
        rest = mp.fsum(masses[c] for c in seen if s[c] < top)
        guard = 30 if flat else _guard_digits(eps, peak, rest)

    with mp.workdps(base + guard):
        masses = _normalised(p_hat)
        eps = _exact(radius_bits) * mp.ln(2)
        lift = s[scout] - top if unseen else mpf(0)
        gaps = [top - s[c] for c in seen]
        pooled = _merge([masses[c] for c in seen], gaps)

        # t = nu - top.  The multiplier nu may not drop below an unseen score, which then takes up the slack.
        at_lift = (mpf(0) if flat else _profile(pooled, lift)[0]) if lift > 0 else mp.inf
        if at_lift <= eps:
            t, seen_mass = lift, mp.exp(at_lift - eps)
        else:
            t, seen_mass = _root(pooled, eps, max(gaps), digits), mpf(1)

        weights = [masses[c] / (t + g) for c, g in zip(seen, gaps, strict=True)]
        total = mp.fsum(weights)
        p = [mpf(0)] * size
        for c, w in zip(seen, weights, strict=True):
            p[c] = seen_mass * w / total
        if seen_mass < 1:
            p[scout] = -mp.expm1(at_lift - eps)
        # Summing relative to the top score avoids cancellation between large scores.
        drop = mp.fsum(p[c] * g for c, g in zip(seen, gaps, strict=True))
        gain = p[scout] * lift if seen_mass < 1 else mpf(0)
        return top - drop + gain, p
