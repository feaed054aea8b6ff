"""Radii, sets and the decision problem in general."""

import math
import warnings

import numpy as np
from hypothesis import strategies as st

import counterpoise as cpo
from counterpoise.exceptions import CounterpoiseWarning
from counterpoise.sets import implied_confidence
from tests.fuzz import data
from tests.fuzz.verdicts import outcome
from tests.referees.certificates import worst_mean

_ODD = st.sampled_from([None, "abc", [], [[1.0, 2.0]], [None, 1], [1 + 2j], np.array(3.0), {"a": 1}, [10**400, 1]])
_counts = st.one_of(
    st.lists(st.integers(0, 50), min_size=1, max_size=8),
    st.lists(st.floats(0, 1e6), min_size=1, max_size=5),
    st.lists(data.any_number, min_size=1, max_size=5),
    _ODD,
)


radius_case = st.tuples(
    _counts,
    data.often(data.confidences, data.wrong_confidence),
    st.sampled_from([*["types", "agrawal", "calibrated", "chi2", "anytime"] * 5, "odd", None]),
    st.one_of(*[st.none()] * 4, st.sampled_from([1.0, 20.0, 1e-300, 5e-324, 1e300, 0.0, -1.0, "x", 10**400])),
)


def check_radius(drawn):
    """A radius is a number of bits, 0 or more, that grows with the confidence."""
    counts, confidence, method, draws = drawn
    found = outcome(lambda: cpo.confidence_radius(counts, confidence, method, draws=draws))
    if found is None:
        return False
    radius = found[0]
    assert isinstance(radius, float)
    assert radius >= 0.0
    assert math.isfinite(radius) or confidence == 1.0 or (draws or sum(counts)) < 1e-200, "the radius is infinite"
    less = outcome(lambda: cpo.confidence_radius(counts, 0.5 * float(confidence), method, draws=draws))[0]
    assert less <= radius * (1.0 + 1e-12) + 1e-300
    back = outcome(lambda: implied_confidence(radius, counts, method, draws=draws))[0]
    assert 0.0 <= back <= 1.0
    return True


def _shares(weights):
    total = math.fsum(weights)
    return [w / total for w in weights] if 0.0 < total < math.inf else weights


_p_hat = st.one_of(
    st.lists(st.integers(0, 50), min_size=1, max_size=6).map(_shares),
    st.lists(st.floats(0, 1), min_size=1, max_size=6).map(_shares),
    st.lists(st.sampled_from([1.0, 1e-300, 1e-17, 5e-324, 1e-8, 0.0]), min_size=1, max_size=5).map(_shares),
)
_scores = st.one_of(
    st.lists(st.floats(-10, 10), min_size=1, max_size=6),
    st.lists(data.number, min_size=1, max_size=6),
    st.lists(st.sampled_from([1.0, 1.0 + 2e-16, 1.0 - 1e-16, 0.0, 5e-324, 1e-308]), min_size=1, max_size=6),
    st.lists(data.any_number, min_size=1, max_size=6),
)
ball_case = st.tuples(
    data.often(_p_hat, _ODD), data.often(data.radii, data.wrong_radius), data.often(_scores, _ODD), st.booleans()
)


def _fitted_length(scores, n):
    return (scores * n)[:n] if isinstance(scores, list) and len(scores) > 0 else scores


def check_worst_case(drawn):
    """The least favourable member is one, and no member is worse."""
    p_hat, radius, scores, batch = drawn
    ball = outcome(lambda: cpo.KLBall(p_hat, radius))
    if ball is None:
        return False
    ball = ball[0]
    scores = _fitted_length(scores, len(ball.p_hat))
    found = outcome(lambda: ball.worst_case([scores, scores] if batch else scores))
    if found is None:
        return False
    p, value = found[0].distribution, found[0].value
    if batch and np.ndim(value):
        assert np.array_equal(p[0], p[1])
        p, value = p[0], value[0]
    values = np.asarray(scores, float)
    if values.ndim != 1:
        return True
    size = float(np.abs(values).max())
    assert np.isfinite(p).all()
    assert (p >= 0.0).all()
    assert abs(p.sum() - 1.0) < 1e-12
    assert np.isfinite(value), "the value is not finite"
    assert ball.contains(p), "the least favourable distribution is not a member"
    expected = worst_mean(ball.p_hat, ball.radius, values)
    spread = float(values.max() - values.min()) if size < 1e308 else size
    assert not abs(value - expected) > 1e-9 * spread + 1e-14 * size + 1e-300, f"the value is {value}, not {expected}"
    return True


interval_case = st.tuples(
    data.often(_p_hat, _ODD),
    data.often(data.radii, data.wrong_radius),
    st.one_of(st.integers(-3, 6), st.sampled_from([None, 1.5, "a", True, 10**30, np.int64(1)])),
)


def check_interval(drawn):
    """The extreme shares of a context are members' shares, and hold the empirical one."""
    p_hat, radius, context = drawn
    ball = outcome(lambda: cpo.KLBall(p_hat, radius))
    found = None if ball is None else outcome(lambda: ball[0].interval(context))
    if found is None:
        return False
    ball, (low, high) = ball[0], found[0]
    assert 0.0 <= low <= high <= 1.0
    assert low <= ball.p_hat[context] * (1 + 1e-12)
    assert high >= ball.p_hat[context] * (1 - 1e-12)
    unit = np.zeros(len(ball.p_hat))
    unit[context] = 1.0
    assert not abs(high - worst_mean(ball.p_hat, ball.radius, unit)) > 1e-9
    assert not abs(low + worst_mean(ball.p_hat, ball.radius, -unit)) > 1e-9
    return True


contains_case = st.tuples(
    data.often(_p_hat, _ODD), data.often(data.radii, data.wrong_radius), st.one_of(_p_hat, _p_hat, _counts)
)


def check_contains(drawn):
    """A set holds its centre, and answers True or False."""
    p_hat, radius, p = drawn
    ball = outcome(lambda: cpo.KLBall(p_hat, radius))
    if ball is None:
        return False
    assert ball[0].contains(ball[0].p_hat)
    found = outcome(lambda: ball[0].contains(_fitted_length(p, len(ball[0].p_hat))))
    if found is None:
        return False
    assert isinstance(found[0], (bool, np.bool_))
    return True


_SHAPES = ["quadratic", "quadratic", "absolute", "exponential", "quartic", "linear", "concave", "wild", "nan", "text"]
minimize_case = st.fixed_dictionaries(
    {
        "shape": st.sampled_from(_SHAPES),
        "d": st.integers(1, 3),
        "counts": st.lists(st.integers(0, 30), min_size=1, max_size=4),
        "seed": st.integers(0, 2**32 - 1),
        "scale": st.sampled_from([1.0, 1.0, 1.0, 1e-8, 1e8, 1e-150, 1e150, 1e300]),
        "start": st.sampled_from([0.0, 1.0, 0.0, 1.0, -5.0, 1e8, 1e300, float("nan"), float("inf")]),
        "radius": data.often(data.switch_radius, data.wrong_radius),
        "confidence": data.confidences,
        "derivatives": st.integers(0, 2),
        "bounds": st.sampled_from([None, None, (-1.0, 1.0), (0.0, None), (1.0, 0.0), (0.0, 1e-300), "odd"]),
        "reference": st.sampled_from([None, None, 0.0, "nan", "short"]),
        "convex": st.sampled_from([None, None, True, False]),
        "tol": st.sampled_from([1e-6, 1e-6, 1e-3, 0.0, -1.0]),
    }
)


def _risks(case):
    rng = np.random.default_rng(case["seed"])
    n, d, scale = len(case["counts"]), case["d"], case["scale"]
    centre, root = rng.normal(size=(n, d)), rng.normal(size=(n, d, d))
    matrix = np.einsum("cij,ckj->cik", root, root) + 0.1 * np.eye(d)
    shape = case["shape"]

    def risks(theta):
        with np.errstate(all="ignore"):
            away = theta - centre
            if shape == "absolute":
                return scale * np.abs(away).sum(axis=1)
            if shape == "exponential":
                return scale * (np.exp(away) - away).sum(axis=1)
            if shape == "quartic":
                return scale * (away**4).sum(axis=1)
            if shape == "linear":
                return scale * away.sum(axis=1)
            if shape == "concave":
                return -scale * (away**2).sum(axis=1)
            if shape == "wild":
                return scale * (np.sin(3 * away) + 0.1 * away**2).sum(axis=1)
            if shape == "nan":
                return np.where(theta.sum() > 0.5, np.nan, scale * (away**2).sum(axis=1))
            if shape == "text":
                return ["a"] * n
            return 0.5 * scale * np.einsum("ci,cij,cj->c", away, matrix, away)

    def jac(theta):
        with np.errstate(all="ignore"):
            return scale * np.einsum("cij,cj->ci", matrix, theta - centre)

    more = {}
    if shape == "quadratic" and case["derivatives"]:
        more["jac"] = jac
        if case["derivatives"] == 2:
            more["hess"] = lambda theta: scale * matrix
    return risks, more


def check_minimize(case):
    """The value is the worst mean at theta, and a global bound is below every value."""
    risks, more = _risks(case)
    d, n = case["d"], len(case["counts"])
    bounds = case["bounds"] if case["bounds"] in (None, "odd") else [case["bounds"]] * d
    reference = {"nan": np.full(n, np.nan), "short": np.zeros(n + 1)}.get(case["reference"], case["reference"])

    def run():
        return cpo.minimize(
            risks,
            np.full(d, case["start"]),
            counts=case["counts"],
            confidence=case["confidence"],
            radius=case["radius"],
            bounds=bounds,
            reference_risks=reference,
            convex=case["convex"] if case["shape"] not in ("concave", "wild", "nan") else None,
            tol=case["tol"],
            **more,
        )

    found = outcome(run)
    if found is None:
        return False
    solution, warned = found
    certificate = solution.certificate
    assert np.isfinite(solution.theta).all(), "theta is not finite"
    assert np.isfinite(solution.risks).all(), "a risk is not finite"
    assert not np.isnan([certificate.lower, certificate.upper, solution.value]).any()
    assert certificate.lower <= certificate.upper
    assert solution.success == ("NotCertifiedWarning" not in warned)
    p_hat = np.array(case["counts"], float) / np.sum(case["counts"])
    taken = solution.risks - solution.scores
    radius = case["radius"]
    if isinstance(radius, str):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CounterpoiseWarning)
            radius = cpo.confidence_radius(case["counts"], case["confidence"], radius)

    def value(theta):
        return worst_mean(p_hat, radius, np.asarray(risks(theta)) - taken)

    size = certificate.scale + float(np.abs(taken).max())
    assert not abs(value(solution.theta) - solution.value) > 1e-9 * size, "the value is not the worst mean at theta"
    if certificate.scope == "global":
        rng = np.random.default_rng(1)
        for step in (1e-6, 1e-3, 1.0):
            other = solution.theta + step * rng.standard_normal(d)
            if bounds is not None:
                other = np.clip(
                    other, *[np.inf * s if b is None else b for s, b in zip((-1, 1), bounds[0], strict=True)]
                )
            assert not value(other) < certificate.lower - 1e-8 * size, "lower is above a value that is attained"
    return True
