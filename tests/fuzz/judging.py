"""Bounds of excess risk and of its differences."""

import numpy as np
from hypothesis import strategies as st

import counterpoise as cpo
from tests.fuzz.verdicts import outcome

_SIZES = st.lists(st.integers(1, 30), min_size=1, max_size=8)

bounds_case = st.fixed_dictionaries(
    {
        "seed": st.integers(0, 10_000),
        "sizes": _SIZES,
        "n_competitors": st.integers(1, 3),
        "kind": st.sampled_from(["normal", "same", "errors", "constant", "huge", "tiny", "skewed", "missing", "nan"]),
        "groups": st.sampled_from([None, None, 1, 3, 10_000]),
        "weight": st.sampled_from([None, None, "whole", "wide", "zero"]),
        "radius": st.sampled_from([None, 0.0, 1e-6, 0.1, 2.0, 60.0, np.inf]),
        "confidence": st.sampled_from([0.95, 0.95, 0.5, 0.999, 1e-9, 1.0]),
    }
)


def _rows(drawn):
    rng = np.random.default_rng(drawn["seed"])
    codes = np.repeat(np.arange(len(drawn["sizes"])), drawn["sizes"])
    n, k = len(codes), drawn["n_competitors"]
    losses, competitors = rng.standard_normal(n), rng.standard_normal((n, k))
    match drawn["kind"]:
        case "same":
            competitors[:, 0] = losses
        case "errors":
            losses, competitors = (losses > 1.0).astype(float), (competitors > 1.2).astype(float)
        case "constant":
            losses[:], competitors[:] = 1.0, 0.0
        case "huge":
            losses, competitors = 1e98 * losses, 1e98 * competitors
        case "tiny":
            losses, competitors = 1e-200 * losses, 1e-200 * competitors
        case "skewed":
            losses = np.exp(3.0 * losses)
        case "missing":
            competitors[codes == 0, 0] = np.inf
        case "nan":
            losses[0] = np.nan
    groups = None if drawn["groups"] is None else rng.integers(0, drawn["groups"], n)
    weight = {
        None: None,
        "whole": rng.integers(1, 4, n).astype(float),
        "wide": np.exp(6.0 * rng.standard_normal(n)),
        "zero": rng.integers(0, 2, n).astype(float),
    }[drawn["weight"]]
    shares = np.bincount(codes) / n
    mix = None if drawn["radius"] is None else cpo.KLBall(shares, drawn["radius"])
    return losses, competitors, codes, {"groups": groups, "sample_weight": weight, "mix": mix}, rng


def check_bounds(drawn):
    """Ends are in order, and NaN only where nothing can be judged."""
    losses, competitors, codes, options, rng = _rows(drawn)
    options["confidence"] = drawn["confidence"]
    found = outcome(lambda: cpo.metrics.excess_bounds(losses, competitors, codes, **options))
    other = outcome(
        lambda: cpo.metrics.excess_difference(losses, rng.permutation(losses), competitors, codes, **options)
    )
    assert (found is None) == (other is None)
    if found is None or other is None:
        return False
    bounds, difference = found[0], other[0]
    assert bounds.unjudged == difference.unjudged
    nothing = len(bounds.unjudged) == len(drawn["sizes"])
    for result in (bounds, difference):
        for prefix in ("", "mix_"):
            low, middle, high = (getattr(result, f"{prefix}{name}") for name in ("lower", "estimate", "upper"))
            assert (low <= middle <= high) or (nothing and np.isnan([low, middle, high]).all())
            assert not np.isinf([low, middle, high]).any()
    table = bounds.by_context
    judged = np.array([label not in bounds.unjudged for label in table["context"].tolist()])
    assert (table["low"][judged] <= table["high"][judged]).all()
    assert np.isnan(table["low"][~judged]).all()
    assert nothing or 0.0 < bounds.p_value <= 1.0
    assert len(repr(bounds)) > 0
    return True
