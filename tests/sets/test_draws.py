"""What grouped rows are worth: against loops over dense matrices, in cases that are known, and by simulation."""

import datetime

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import counterpoise as cpo
from counterpoise.contexts import encode
from counterpoise.exceptions import InvalidInputError
from counterpoise.sets import count_draws, draws_in_groups

LEVEL = 0.999


def persistent(rng, n_groups, shares, stays):
    """Return a context per group, which stays that of the group before with some probability."""
    contexts = rng.choice(len(shares), n_groups, p=shares)
    for g in range(1, n_groups):
        if rng.random() < stays:
            contexts[g] = contexts[g - 1]
    return contexts


def table(seed=0, n_groups=40, n_contexts=4, mixed=True):
    """Return counts of groups of different sizes in contexts."""
    rng = np.random.default_rng(seed)
    shares = np.arange(1.0, n_contexts + 1) / (n_contexts * (n_contexts + 1) / 2)
    own = np.eye(n_contexts)[persistent(rng, n_groups, shares, 0.5)]
    return rng.multinomial(rng.integers(1, 30, n_groups), 0.5 * own + 0.5 * shares if mixed else own)


def triplets(x):
    groups, contexts = np.nonzero(x)
    return groups, contexts, x[groups, contexts]


def lean(evenness, freedom):
    limit = stats.chi2.ppf(LEVEL, evenness) / evenness
    return max(1.0, stats.f.ppf(LEVEL, evenness, freedom) / limit) if np.isfinite(freedom) else 1.0


def capped_evenness(trace, square, p, w):
    covariance = np.sqrt(np.outer(w, w)) * (np.diag(p) - np.outer(p, p))
    most = np.trace(covariance) ** 2 / np.sum(covariance**2)
    return min(most, max(1.0, trace**2 / square)) if square > 0 else most


def unordered(x):
    """Return the estimate and the lean of independent groups, one deviation after the other."""
    n_groups, m, total, p = len(x), x.sum(axis=1), x.sum(), x.sum(axis=0) / x.sum()
    v = [x[g] - m[g] * p for g in range(n_groups)]
    # The variance of the deviations of groups whose shares have the same variance, over that of the shares.
    kept = 0.0
    for g in range(n_groups):
        pulls = np.array([(h == g) - m[h] / total for h in range(n_groups)])
        kept += m[g] ** 2 * float(pulls @ pulls)
    kept /= sum(m**2)

    def ratio(w):
        return total**2 * sum(w * p * (1 - p)) / (sum(float(w @ one**2) for one in v) / kept)

    w = 1 / (p + 2 / min(1 + ratio(1 / p), total**2 / (m @ m)))
    squares = np.array([float(w @ one**2) for one in v])

    def log_effect(weight):
        """Return the logarithm of the design effect, of groups that count so often, for a derivative."""
        shares = weight @ x / (weight @ m)
        deviations = x - np.outer(m, shares)
        top = sum(weight[g] * float(w @ deviations[g] ** 2) for g in range(n_groups))
        # Sizes are given: how many rows there are does not vary.
        return np.log(top) - np.log(sum(w * shares * (1 - shares)))

    step, influence = 1e-5, np.empty(n_groups)
    for g in range(n_groups):
        ends = [log_effect(1 + sign * step * (np.arange(n_groups) == g)) for sign in (1, -1)]
        influence[g] = (ends[0] - ends[1]) / (2 * step)
    spread = n_groups / (n_groups - 1) * float(((influence - influence.mean()) ** 2).sum())
    square = sum(
        float((np.sqrt(w) * a) @ (np.sqrt(w) * b)) ** 2 for i, a in enumerate(v) for j, b in enumerate(v) if i != j
    )
    evenness = capped_evenness(squares.sum(), square / (1 - sum(m**4) / sum(m**2) ** 2), p, w)
    if (np.count_nonzero(x, axis=1) > 1).any():
        spread = max(spread, 2 / ((n_groups - 1) * evenness))
    return ratio(w), lean(evenness, 2 / spread)


@pytest.mark.parametrize("mixed", [True, False])
@pytest.mark.parametrize("seed", range(3))
def test_independent_groups_against_loops(seed, mixed):
    x = table(seed, mixed=mixed)
    found = count_draws(*triplets(x))
    estimate, leaning = unordered(x)
    assert found.estimate == pytest.approx(min(1 + estimate, x.sum()), rel=1e-9)
    assert found.effective == pytest.approx(min(1 + estimate / leaning, x.sum()), rel=1e-4)
    assert (found.rows, found.groups, found.ordered) == (x.sum(), 40, False)


def ordered(x):
    """Return the estimate and the lean of groups in the order of time, with dense matrices."""
    n_groups, m, total, p = len(x), x.sum(axis=1), x.sum(), x.sum(axis=0) / x.sum()
    v = x - np.outer(m, p)

    def ratio(w, trace):
        return total**2 * sum(w * p * (1 - p)) / trace

    equal, alone = total**2 / (m @ m), ratio(1 / p, np.trace(v / p @ v.T))
    w = 1 / (p + 2 / min(1 + alone, equal))
    covariance = np.sqrt(np.outer(w, w)) * (np.diag(p) - np.outer(p, p))
    most = np.trace(covariance) ** 2 / np.sum(covariance**2)

    def lagged(k):
        return np.trace(v[k:] * w @ v[:-k].T) / (m[k:] @ m[:-k]) / (np.trace(v * w @ v.T) / (m @ m))

    r, error = lagged(1), 1 / np.sqrt(equal * most)
    r += (1 + 3 * max(r, 0)) / equal
    r += 1.6449 * np.sqrt(1 - r**2) * error
    for k in (1, 2):  # of 40 groups
        if not (lagged(k) > 2.5 * error and lagged(2 * k) > 0):
            break
        r = min(max(r, ((lagged(2 * k) + error) / lagged(k)) ** (1 / k)), 0.97)
    n = min(int(n_groups ** (2 / 3)), max(3, int(np.sqrt(0.15 / r) * (1 - r) / np.pi * n_groups)))
    waves = np.sqrt(2) * np.cos(np.pi * np.outer(np.arange(1, n + 1), np.arange(n_groups) + 0.5) / n_groups)
    toeplitz = r ** np.abs(np.subtract.outer(np.arange(n_groups), np.arange(n_groups)))
    held = (waves - (waves @ m / total)[:, None]) * m
    lost = (m @ toeplitz @ m) / np.mean([one @ toeplitz @ one for one in held])
    transforms = waves @ v
    crude = ratio(1 / p, lost * np.mean((transforms**2) @ (1 / p)))
    w = 1 / (p + 2 / min(1 + crude, equal * min(crude / alone, 1)))
    gram = transforms * w @ transforms.T
    trace = np.trace(gram) / n
    square = (np.sum(gram**2) - np.sum(np.diag(gram) ** 2)) / (n * (n - 1))
    evenness = capped_evenness(trace, square, p, w)
    return ratio(w, lost * trace), lean(evenness, n * evenness)


@pytest.mark.parametrize("seed", range(3))
def test_groups_in_order_against_dense_matrices(seed):
    x = table(seed)
    found = count_draws(*triplets(x), ordered=True)
    estimate, leaning = ordered(x)
    assert found.ordered
    assert found.estimate == pytest.approx(1 + estimate, rel=1e-9)
    assert found.effective == pytest.approx(1 + estimate / leaning, rel=1e-9)


def test_weather_of_weeks_under_the_noise_of_days_is_few_draws():
    """A fifth of the rows of a day follow a weather of 60 days, the others are drawn anew."""
    rng, shares, held = np.random.default_rng(3), np.array([0.5, 0.3, 0.2]), 0
    for _ in range(40):
        own = np.eye(3)[persistent(rng, 730, shares, 1 - 1 / 60)]
        x = rng.multinomial(20, 0.2 * own + 0.8 * shares)
        draws = count_draws(*triplets(x), ordered=True).effective
        radius = cpo.confidence_radius(np.ones(3), 0.9, "calibrated", draws=draws)
        held += cpo.KLBall(x.sum(axis=0) / x.sum(), radius).contains(shares)
    assert held >= 34


# --- cases that are known --------------------------------------------------------------------------------------------


def test_rows_that_are_their_own_groups_are_draws():
    contexts = np.random.default_rng(0).choice(["a", "b", "c"], 200, p=[0.7, 0.2, 0.1])
    assert cpo.effective_draws(contexts, np.arange(200)) == pytest.approx(200)


@pytest.mark.parametrize("n_groups", [5, 30, 400])
def test_equal_groups_of_one_context_each_are_draws(n_groups):
    contexts = np.random.default_rng(1).choice(4, n_groups, p=[0.4, 0.3, 0.2, 0.1])
    contexts[:2] = 0, 1
    found = count_draws(np.repeat(np.arange(n_groups), 7), np.repeat(contexts, 7))
    assert found.effective == pytest.approx(n_groups)
    assert found.estimate == pytest.approx(n_groups)


def test_one_group_is_one_draw():
    assert cpo.effective_draws(list("abab"), [7, 7, 7, 7]) == 1.0


def test_one_context_is_drawn_once_a_group():
    assert cpo.effective_draws(["a"] * 6, [1, 1, 2, 2, 3, 3]) == 3.0


def test_groups_alike_are_worth_no_more_than_their_rows():
    assert cpo.effective_draws(list("ab") * 50, np.arange(100) // 2) == 100.0


def test_a_context_of_a_single_group_is_no_reason_to_fail():
    contexts = np.append(np.tile([0, 1], 50), [2] * 4)
    groups = np.append(np.arange(100) // 5, [20] * 4)
    for order in (True, False):
        assert 1.0 <= cpo.effective_draws(contexts, groups, ordered=order) <= 104.0


def test_a_group_that_holds_nearly_all_rows_leaves_few_draws():
    contexts = np.append(np.repeat([0, 1], 500), np.arange(20) % 2)
    groups = np.append(np.zeros(1000, dtype=int), np.arange(1, 21))
    assert cpo.effective_draws(contexts, groups) < 1020
    contexts[:1000] = 0
    assert cpo.effective_draws(contexts, groups) < 5


def test_the_unit_of_weights_does_not_matter():
    groups, contexts, counts = triplets(table(3).astype(float))
    expected = count_draws(groups, contexts, counts, ordered=True).effective
    assert count_draws(groups, contexts, 1e200 * counts, ordered=True).effective == pytest.approx(expected, rel=1e-12)


def test_pieces_of_a_table_count_together():
    x = table(4)
    groups, contexts, counts = triplets(x)
    single = np.repeat(np.stack([groups, contexts]), counts, axis=1)
    whole = count_draws(groups, contexts, counts, ordered=True)
    pieces = count_draws(*single[:, np.random.default_rng(0).permutation(single.shape[1])], ordered=True)
    assert (pieces.rows, pieces.groups) == (whole.rows, whole.groups)
    assert pieces.effective == pytest.approx(whole.effective, rel=1e-12)


def test_codes_without_rows_change_nothing():
    x = table(5)
    groups, contexts, counts = triplets(x)
    assert count_draws(3 * groups, 2 * contexts, counts, ordered=True) == count_draws(
        groups, contexts, counts, ordered=True
    )


def test_the_lean_vanishes_as_groups_grow():
    leans = []
    for n_groups in (30, 300, 3000, 30_000):
        found = count_draws(*triplets(table(6, n_groups, 3)))
        leans.append(found.estimate / found.effective)
    assert leans == sorted(leans, reverse=True)
    assert leans[-1] < 1.02
    assert leans[0] > 1.05


# --- order -----------------------------------------------------------------------------------------------------------

RNG = np.random.default_rng(8)
WEATHER = np.repeat(persistent(RNG, 300, [0.5, 0.3, 0.2], 0.8), 6)
DAY = np.repeat(np.arange(300), 6)


def test_persistence_is_seen_in_order_only():
    alone, together = (cpo.effective_draws(WEATHER, DAY, ordered=order) for order in (False, True))
    assert alone == pytest.approx(300)
    # (1 - .8) / (1 + .8) of the days, and fewer to be safe.
    assert 5 < together < 45


def test_dates_are_in_the_order_of_time_however_they_are_written():
    start = datetime.date(2023, 12, 1)
    dates = [start + datetime.timedelta(days=int(day)) for day in DAY]
    expected = cpo.effective_draws(WEATHER, DAY, ordered=True)
    for labels in (
        dates,
        np.array(dates, dtype="M8[D]"),
        pd.Series(pd.to_datetime(dates)),
        [f"{one.day}/{one.month}/{one.year}" for one in dates],
        [f"{one.month}/{one.day}/{one.year}" for one in dates],
        [one.isoformat() for one in dates],
    ):
        assert cpo.effective_draws(WEATHER, labels, ordered=True) == expected
        assert cpo.effective_draws(WEATHER, labels, ordered=None) == expected


def test_labels_decide_whether_there_is_an_order():
    expected = cpo.effective_draws(WEATHER, DAY, ordered=True)
    assert cpo.effective_draws(WEATHER, DAY, ordered=None) == expected
    # Words and numbers cannot be compared, so there is no order.
    unordered_labels = np.array([f"day {day}" if day % 2 else int(day) for day in DAY.tolist()], dtype=object)
    assert cpo.effective_draws(WEATHER, unordered_labels, ordered=None) == pytest.approx(300)


def test_numbers_given_context_by_context_are_no_order_in_time():
    hospital = np.repeat([0, 1, 2], [120, 90, 60])
    patient = np.arange(270) // 3
    assert cpo.effective_draws(hospital, patient, ordered=None) == pytest.approx(90)
    assert cpo.effective_draws(hospital, patient, ordered=True) < 20
    # Dates are what they are: this weather changed twice.
    assert cpo.effective_draws(hospital, patient.astype("M8[D]"), ordered=None) < 20


def test_the_inner_function_takes_what_encode_gives():
    groups = encode(DAY)
    assert draws_in_groups(WEATHER, groups, ordered=True).effective == cpo.effective_draws(WEATHER, DAY, ordered=True)


# --- coverage --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("stays", "n_groups"), [(0.0, 60), (0.6, 60), (0.6, 300)])
def test_the_set_covers_where_groups_persist(stays, n_groups):
    rng, shares = np.random.default_rng(9), np.array([0.5, 0.3, 0.2])
    held = []
    for _ in range(150):
        contexts = persistent(rng, n_groups, shares, stays)
        counts = np.bincount(contexts, minlength=3)
        draws = count_draws(np.arange(n_groups), contexts, np.full(n_groups, 20), ordered=True).effective
        held.append(
            cpo.KLBall(counts / n_groups, cpo.confidence_radius(counts, 0.9, "agrawal", draws=draws)).contains(shares)
        )
    assert np.mean(held) > 0.9


# --- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("contexts", "groups", "words"),
    [
        (["a", "b"], [1], "got 1 group labels for 2 rows"),
        (["a", "b"], [1, None], "the group of row 1 is None"),
        (["a", None], [1, 2], "the context of row 1 is None"),
        ([], [], "there are no rows"),
    ],
)
def test_bad_labels_are_named(contexts, groups, words):
    with pytest.raises(InvalidInputError, match=words):
        cpo.effective_draws(contexts, groups)


def test_an_order_that_is_none_is_refused():
    with pytest.raises(InvalidInputError, match="ordered is 'yes'"):
        cpo.effective_draws([1, 2], [1, 2], ordered="yes")
