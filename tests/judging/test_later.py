"""Fitted to the past and judged on what came later: who is fitted to what, what carries over, and what changed."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.model_selection import KFold, PredefinedSplit, ShuffleSplit, TimeSeriesSplit

import counterpoise as cpo
from counterpoise.exceptions import CounterpoiseWarning, InvalidInputError
from counterpoise.inference.excess import HeldOut
from counterpoise.judging.later import agreement, drift_of, later_rows
from counterpoise.table import Table

# What is asked here does not depend on how finely intervals are drawn.
pytestmark = pytest.mark.usefixtures("few_draws")

RNG = np.random.default_rng(11)
N = 360
X = RNG.standard_normal((N, 2))
C = np.array(["a", "b", "c"])[RNG.choice(3, N, p=[0.5, 0.3, 0.2])]
Y = X[:, 0] * np.where(C == "c", -1.0, 1.0) + RNG.standard_normal(N)
DAYS = np.datetime64("2024-01-01") + np.sort(RNG.integers(0, 365, N))
TWO = ("robust", "erm")
SEEN: list[tuple[float, float, int]] = []


class Recorder(RegressorMixin, BaseEstimator):
    """Remembers the times it is fitted to, which are its only feature, and those that it is asked about."""

    def __init__(self, radius=0.1, confidence=0.9, criterion="excess", mix=None, draws=None):
        self.radius, self.confidence, self.criterion, self.mix, self.draws = radius, confidence, criterion, mix, draws

    def fit(self, X, y, contexts=None, sample_weight=None):
        self.latest_ = X[:, 0].max()
        self.mean_ = np.mean(y)
        return self

    def predict(self, X):
        SEEN.append((self.latest_, X[:, 0].min(), len(X)))
        return np.full(len(X), self.mean_)


@pytest.fixture(scope="module")
def both():
    return cpo.compare(X, Y, C, time=DAYS)


@pytest.mark.parametrize("gap", [0, 5])
def test_no_model_is_fitted_to_what_came_later(gap):
    times = np.repeat(np.arange(60.0), 4)
    SEEN.clear()
    cpo.compare(times[:, None], times, np.arange(240) % 3, estimator=Recorder(), cv=None, time=times, gap=gap)
    assert SEEN
    assert all(latest + gap < first for latest, first, _ in SEEN)


def test_both_validations_are_there_and_later_rows_decide(both):
    assert both.forward is not None
    assert both.validation == "held-out rows"
    assert both.forward.validation == "later months"
    assert both.chosen == both.forward.choice.chosen == both.decisive.chosen
    assert both.verdict.startswith(both.forward.headline)
    assert both.agreement in both.verdict
    assert both.drift.words in both.verdict
    alone = cpo.compare(X, Y, C, time=DAYS, cv=None)
    np.testing.assert_allclose(alone.summary["mix_excess"], both.forward.summary["mix_excess"])
    assert alone.forward is None


def test_later_rows_are_judged_by_models_of_the_past_alone(both):
    """A computation by hand of the plain model's risk."""
    order = np.unique(DAYS)
    total, n = 0.0, 0
    from counterpoise.inference.windows import expanding_windows

    for seen, later in expanding_windows(DAYS):
        assert DAYS[seen].max() < DAYS[later].min()
        scaled = (X - X[seen].mean(axis=0)) / X[seen].std(axis=0)
        model = cpo.RobustLinearRegression(radius=0.0).fit(scaled[seen], Y[seen], contexts=C[seen])
        total += np.sum(0.5 * (model.predict(scaled[later]) - Y[later]) ** 2)
        n += len(later)
    row = both.forward.summary.where(method="erm")
    assert row["nominal_risk"][0] == pytest.approx(total / n, rel=1e-6)
    assert both.forward.by_context.where(method="erm")["n"].sum() == n < len(order) * N


def test_rows_without_weight_have_no_part_in_it(both):
    doubled = np.concatenate([X, X + 100.0]), np.concatenate([Y, -Y]), np.concatenate([C, C])
    weight = np.concatenate([np.ones(N), np.zeros(N)])
    again = cpo.compare(*doubled, time=np.concatenate([DAYS, DAYS]), sample_weight=weight)
    np.testing.assert_allclose(again.forward.summary["mix_excess"], both.forward.summary["mix_excess"], rtol=1e-6)


def test_contexts_that_only_the_past_or_only_the_future_has_are_judged_or_left_out_by_name():
    labels = C.astype(object)
    labels[:60] = "gone"
    labels[-40:] = "new"
    found = cpo.compare(X, Y, labels, methods=TWO, time=np.arange(N), cuts=2)
    contexts = found.forward.by_context["context"].tolist()
    assert "gone" not in contexts
    assert "new" in contexts
    assert "gone" in found.by_context["context"].tolist()
    assert found.drift.new_share == pytest.approx(40 / found.forward.held_out.weight.sum())
    assert "contexts not seen before" in found.drift.words


def opposite(begins, cuts, **more):
    """Two sites with opposite effects, of which the second begins some time after the first."""
    rng, n = np.random.default_rng(21), 300
    x, when = rng.standard_normal((n, 1)), np.arange(n)
    site = np.where(when < begins, "A", rng.choice(["A", "B"], n))
    site = np.where(when < begins, "A", "B") if more.pop("ends", False) else site
    y = np.where(site == "A", 3.0, -3.0) * x[:, 0] + 0.3 * rng.standard_normal(n)
    model = cpo.RobustLinearRegression()
    return cpo.compare(x, y, site, estimator=model, methods=TWO, time=when, cuts=cuts, **more), site


def test_a_context_that_no_past_model_has_seen_is_not_judged_by_excess():
    found, site = opposite(200, 2)
    later, n = found.forward, np.sum(site == "B")
    row = next(one for one in later.by_context.rows() if (one["method"], one["context"]) == ("erm", "B"))
    assert row["n"] == n
    assert row["risk"] > 10.0
    assert np.isnan([row["excess"], row["excess_low"], row["excess_high"]]).all()
    assert later.by_context.note == "not judged: B"
    assert later.headroom.bounds.unjudged == ("B",)
    assert np.isnan(later.references["B"])
    said = f"Not judged, since models had no rows of it: B ({n} rows)."
    assert said in found.verdict
    assert "Only one context can be judged: whether one model is enough for all cannot be told." in found.verdict
    assert "One model is enough" not in found.verdict
    # What is said of the other context does not depend on this one.
    assert later.summary["worst_context"].tolist() == ["A", "A"]
    assert later.headroom.negligible < 0.1
    # Shuffled rows know both.
    assert np.isfinite(found.by_context["excess"]).all()
    assert "Not judged" not in found.remarks


def test_where_models_have_seen_no_context_nothing_is_judged_and_that_is_said():
    found, _ = opposite(150, 1, ends=True)
    later = found.forward
    assert np.isnan(later.by_context["excess"]).all()
    assert np.isnan(later.summary["mix_excess"]).all()
    assert not later.headroom.something
    assert not later.headroom.nothing
    assert "Not judged, since models had no rows of it: B (150 rows)." in found.verdict
    assert "One model is enough" not in found.verdict
    assert "Too little of the later rows can be judged" in found.agreement
    assert later.kept == "To be kept: erm, since on later rows no other can be judged."


def test_a_context_is_judged_from_the_rows_on_that_models_had_some_before():
    found, site = opposite(120, 2, cv=None)
    after = np.sum(site[200:] == "B")
    row = next(one for one in found.by_context.rows() if (one["method"], one["context"]) == ("erm", "B"))
    assert row["n"] == np.sum(site == "B") > after
    assert row["competitor"] == "own"
    assert row["excess_low"] > 1.0
    assert dict(zip(found.brackets["context"], found.brackets["n"], strict=True))["B"] == after
    assert f"Excess risk is that of {200 - np.sum(site[120:200] == 'B')} of 200 rows" in found.verdict
    assert "Some context's own model is better" in found.verdict


def test_a_splitter_that_holds_whole_contexts_out_leaves_nothing_to_judge():
    site = np.repeat(["A", "B"], N // 2)
    found = cpo.compare(X, Y, site, methods=TWO, cv=KFold(2))
    assert "Not judged, since models had no rows of them: A (180 rows), B (180 rows)." in found.verdict


def test_a_set_without_labels_cannot_be_judged_where_a_context_is_not():
    labels = C.astype(object)
    labels[:60] = "gone"
    model = cpo.RobustLinearRegression(mix=cpo.KLBall(np.full(4, 0.25), 0.1))
    with pytest.raises(InvalidInputError, match="no row of context gone is held out"):
        cpo.compare(X, Y, labels, methods=TWO, estimator=model, time=np.arange(N), cuts=2, cv=None)


def test_a_mix_by_name_is_the_same_whatever_the_order_of_judged_contexts():
    labels = C.astype(object)
    labels[:60] = "aaa, gone"
    mix = cpo.Mix(shares={"aaa, gone": 0.1, "a": 0.3, "b": 0.3, "c": 0.3}, radius=0.2)
    found = cpo.compare(X, Y, labels, methods=TWO, time=np.arange(N), mix=mix)
    shares = dict(zip(["a", "b", "c", "aaa, gone"], found.forward.mixes.p_hat, strict=True))
    assert shares["aaa, gone"] == pytest.approx(0.1)
    assert found.mixes.p_hat[1] == pytest.approx(0.1)


def test_a_splitter_that_does_not_test_every_row_is_accepted_and_said():
    found = cpo.compare(X, Y, C, methods=TWO, cv=TimeSeriesSplit(4))
    assert found.by_context.where(method="robust")["n"].sum() == 288
    assert "Of 360 rows 288 are judged" in found.verdict
    assert "are judged" not in cpo.compare(X, Y, C, methods=TWO, cv=KFold(4)).verdict
    # One that tests some rows twice counts each once, by the mean of its losses.
    again = cpo.compare(X, Y, C, methods=TWO, cv=ShuffleSplit(8, random_state=0))
    assert again.by_context.where(method="robust")["n"].sum() == len(again.rows) < N


def test_a_splitter_that_judges_what_it_fits_is_refused():
    rows = np.arange(N)
    with pytest.raises(InvalidInputError, match="fitted to it"):
        cpo.compare(X, Y, C, methods=TWO, cv=[(rows, rows)])


def test_gains_that_shuffled_rows_show_and_later_rows_do_not_are_said():
    """What tells the rare context apart holds for a while only, and every fold of shuffled rows has seen it."""
    rng = np.random.default_rng(5)
    n = 3000
    time = np.arange(n)
    codes = rng.choice(2, n, p=[0.85, 0.15])
    turn = np.where((time // 500) % 2 == 0, 1.0, -1.0)
    features = np.column_stack([rng.standard_normal(n), np.eye(6)[time // 500]])
    # In the rare context the level jumps from block to block, which folds know and the past does not.
    y = features[:, 0] * np.where(codes == 1, 0.2, 1.0) + 2.0 * turn * (codes == 1) + 0.5 * rng.standard_normal(n)
    model = cpo.RobustLinearRegression(radius=0.3, reference="cross-fit")
    found = cpo.compare(features, y, codes, estimator=model, methods=TWO, time=time, cuts=5)
    robust = found.summary.where(method="robust")
    assert robust["mix_excess_change_high"][0] < 0.0
    assert "did not carry over to later rows" in found.agreement or "turns into a loss" in found.agreement


def _summary(low, high):
    robust = {"mix_excess_change": (low + high) / 2, "mix_excess_change_low": low, "mix_excess_change_high": high}
    return Table.of(method=["robust"], **{name: [value] for name, value in robust.items()})


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ((-2, -1), (-2, -1), "carries over to later weeks"),
        ((-2, -1), (-0.5, 1), "did not carry over to later weeks"),
        ((-2, -1), (-2, 1), "In later weeks it cannot be told whether the gain"),
        ((-2, -1), (1, 2), "turns into a loss in later weeks"),
        ((-1, 1), (-2, -1), "that shuffled rows do not show"),
        ((-1, 1), (1, 2), "does harm, which shuffled rows do not show"),
        ((1, 2), (1, 2), "does harm:"),
        ((-1, 1), (0.001, 0.01), "costs a little, less than matters in practice"),
        ((-1, 1), (-1, 1), "Neither shuffled rows nor later weeks"),
        ((-2, -1), (np.nan, np.nan), "Too little of the later weeks"),
    ],
)
def test_agreement_is_said_by_both_intervals(before, after, words):
    said = agreement(_summary(*before), _summary(*after), "later weeks", "90%", small=0.1)
    assert words in said
    assert "(90% intervals)" in said or "Too little" in said


def test_a_gain_where_later_rows_judge_nothing_is_not_said_to_be_lost():
    said = agreement(_summary(-2, -1), _summary(0, 0), "later weeks", "90%", unjudged=True)
    assert "In later weeks it cannot be told whether the gain" in said
    assert "did not carry over" in agreement(_summary(-2, -1), _summary(0, 0), "later weeks", "90%")


@pytest.mark.parametrize(("days", "name"), [(0.2, "hours"), (3, "days"), (30, "weeks"), (90, "months"), (800, "years")])
def test_later_rows_are_called_by_how_long_a_block_lasts(days, name):
    times = np.datetime64("2020-01-01") + (np.arange(50) * days * 5 * 86_400 / 49).astype("m8[s]")
    assert later_rows(times, 4) == f"later {name}"
    assert later_rows(np.arange(50), 4) == "later rows"


def _drift(codes_before, losses_before, codes_after, losses_after):
    codes = np.concatenate([codes_before, codes_after])
    n = len(codes_before)
    held_out = HeldOut.of(len(codes), codes)
    past, later = np.arange(n), np.arange(n, len(codes))
    shuffled = np.concatenate([losses_before, np.full(len(later), 7.0)])
    losses = {"erm": (shuffled, np.asarray(losses_after))}
    return drift_of(losses, (np.arange(len(codes)), later), [(past, later)], held_out, "later days")


def test_a_change_of_the_mix_alone_is_no_drift():
    found = _drift([0, 0, 0, 1], [1.0, 1.0, 1.0, 3.0], [0, 1, 1, 1], [1.0, 3.0, 3.0, 3.0]).table
    assert found["mix"][0] == pytest.approx(1.0)
    assert found["within"][0] == pytest.approx(0.0)
    assert found["change"][0] == pytest.approx(1.0)


def test_a_change_within_contexts_alone_is_drift():
    found = _drift([0, 0, 1, 1], [1.0, 1.0, 3.0, 3.0], [0, 0, 1, 1], [2.0, 2.0, 3.0, 3.0]).table
    assert found["mix"][0] == pytest.approx(0.0)
    assert found["within"][0] == pytest.approx(0.5)


@pytest.mark.parametrize("seed", range(5))
def test_the_parts_of_a_change_add_up_also_with_contexts_that_come_and_go(seed):
    rng = np.random.default_rng(seed)
    before, after = rng.integers(0, 4, 80), rng.integers(1, 6, 70)
    losses = rng.exponential(size=80), rng.exponential(size=70)
    found = _drift(before, losses[0], after, losses[1])
    row = next(found.table.rows())
    assert row["before"] == pytest.approx(losses[0].mean())
    assert row["after"] == pytest.approx(losses[1].mean())
    assert row["mix"] + row["within"] + row["new"] == pytest.approx(row["change"])
    assert found.new_share == pytest.approx(np.mean(after > 3))


def test_the_error_of_drift_is_that_of_repeated_draws():
    """Simulated: the mix and the risks are known, and only rows are drawn."""
    rng = np.random.default_rng(0)
    estimates, errors = [], []
    for _ in range(300):
        codes = np.repeat([0, 1], 40), np.repeat([0, 1], [20, 60])
        losses = rng.exponential(1.0, 80), rng.exponential(1.5, 80)
        row = next(_drift(codes[0], losses[0], codes[1], losses[1]).table.rows())
        estimates.append(row["within"])
        errors.append(row["within_error"])
    assert np.mean(estimates) == pytest.approx(0.5, abs=0.05)
    assert np.mean(errors) == pytest.approx(np.std(estimates), rel=0.15)


def test_contexts_known_when_predicting_show_what_they_could_give():
    rng = np.random.default_rng(8)
    day = np.array(["Mon", "Tue", "Wed", "Thu", "Fri"])[np.arange(1000) % 5]
    features = rng.standard_normal((1000, 2))
    demand = features[:, 0] + np.where(day == "Fri", 4.0, 0.0) + rng.standard_normal(1000)
    found = cpo.compare(features, demand, day, methods=TWO)
    every = {row["method"]: row for row in found.known_contexts.rows() if row["context"] == "all"}
    assert every["model per context"]["size"] == every["context as a feature"]["size"] == "better"
    assert every["context as a feature"]["after"] == pytest.approx(1.0, abs=0.07)
    assert "calendar" in found.verdict
    assert "the context as a feature has RMSE" in found.verdict
    assert cpo.compare(features, demand, day, methods=TWO, context_known=False).known_contexts is None
    assert cpo.compare(X, Y, C, methods=TWO).known_contexts is None
    assert cpo.compare(X, Y, C, methods=TWO, context_known=True).known_contexts is not None


def test_headlines_are_about_a_context_with_its_rows_and_weigh_what_they_claim(both):
    decisive = both.forward
    own = decisive.by_context.where(method="erm")
    named = own["context"][np.argmax(own["excess"])]
    n = int(np.sum(decisive.by_context["n"][decisive.by_context["context"] == named][0]))
    assert f"{named} ({n} rows) loses most by sharing one model: RMSE" in both.headline
    assert "The best baseline, " in both.headline
    row = next(row for row in decisive.changes.where(method="robust").rows() if row["context"] == named)
    assert row["size"] in both.headline
    assert "as good" not in both.verdict
    measured = decisive.measures.where(method="robust")
    at = measured["context"].tolist().index(named)
    assert row["after"] == pytest.approx(measured["RMSE"][at])


def test_times_that_do_not_fit_are_refused():
    with pytest.raises(InvalidInputError, match="Pass one for each row"):
        cpo.compare(X, Y, C, time=np.arange(5))
    with pytest.raises(InvalidInputError, match="no rows are held out"):
        cpo.compare(X, Y, C, methods=TWO, cv=None)
    with pytest.raises(InvalidInputError, match="different times"):
        cpo.compare(X, Y, C, time=np.arange(N) % 2, cuts=4)


def test_logarithms_of_targets_are_read_in_the_unit_of_the_target():
    rng = np.random.default_rng(9)
    level = 1.0 + 0.5 * X[:, 0]
    price = np.exp(level + 0.4 * rng.standard_normal(N))
    found = cpo.compare(X, np.log(price), C, methods=TWO, log_target=True)
    np.testing.assert_allclose(found.y, price)
    every = next(found.measures.where(method="erm").rows())
    # The way back is that of means, of which there is no bias.
    assert abs(every["bias"]) < 3.0 * price.std() / np.sqrt(N) / 3.0
    assert every["RMSE"] == pytest.approx(np.sqrt(np.mean((price - np.exp(level + 0.08)) ** 2)), rel=0.05)
    plain = cpo.compare(X, np.log(price), C, methods=TWO)
    np.testing.assert_allclose(found.summary["nominal_risk"], plain.summary["nominal_risk"])


def test_rows_that_all_agree_do_not_prove_that_there_is_no_difference():
    """Twelve rows of which two classifiers get none wrong leave room for a difference."""
    held_out = HeldOut.of(12, np.repeat(["a", "b"], 6))
    right = np.zeros(12)
    value, low, high = held_out.mean(right, right, may_be_errors=True)
    assert value == 0.0
    assert low < -0.02
    assert high > 0.02
    # Numbers that agree to the last digit are those of one model.
    losses = np.arange(12.0)
    assert tuple(held_out.mean(losses, losses, may_be_errors=True)) == (0.0, 0.0, 0.0)


def test_windows_have_the_share_of_the_draws_that_they_have_of_the_rows():
    radii = []

    class Sized(cpo.RobustLinearRegression):
        def fit(self, X, y, contexts=None, sample_weight=None, *, groups=None):
            super().fit(X, y, contexts, sample_weight, groups=groups)
            if contexts is not None and self.radius != 0.0:
                radii.append((len(y), self.draws_))
            return self

    cpo.compare(X, Y, C, estimator=Sized(draws=120.0, reference="cross-fit"), methods=TWO, cv=None, time=np.arange(N))
    assert radii
    for n, draws in radii:
        assert draws == pytest.approx(120.0 * n / N)


def test_windows_of_one_class_are_left_out_and_said():
    y = (Y > 0).astype(int)
    y[:90] = 0
    with pytest.warns(CounterpoiseWarning, match="1 of 4 cuts are left out"):
        found = cpo.compare(X, y, C, methods=TWO, cv=None, time=np.arange(N))
    assert len(found.rows) == N * 3 // 5
    with pytest.raises(InvalidInputError, match="one class"):
        cpo.compare(X, np.where(np.arange(N) < 300, 0, y), C, methods=TWO, cv=None, time=np.arange(N), cuts=1)


def test_a_context_may_be_called_all():
    found = cpo.compare(X, Y, np.where(C == "a", "all", C), methods=TWO)
    assert f"over all {N} rows" in found.headline
    assert found.natural["method"].tolist() == list(TWO)


def test_rows_of_the_past_that_were_never_held_out_leave_drift_unknown():
    last = PredefinedSplit(np.where(np.arange(N) < 300, -1, 0))
    found = cpo.compare(X, Y, C, methods=TWO, cv=last, time=np.arange(N), cuts=1)
    assert found.drift is None or np.isfinite(found.drift.table["mix"]).all()
    assert found.agreement


def test_every_block_of_later_rows_has_its_times_and_its_measure(both):
    blocks = both.forward.blocks
    assert blocks.n_rows == 4
    assert (blocks["first"][1:] > blocks["last"][:-1]).all()
    assert (np.diff(blocks["rows_before"]) == blocks["rows"][:-1]).all()
    whole = both.forward.measures.where(method="erm")["RMSE"][0]
    assert np.average(blocks["erm"] ** 2, weights=blocks["rows"]) == pytest.approx(whole**2)


def test_predictions_that_are_too_good_are_pointed_out():
    found = cpo.compare(np.column_stack([X, Y + 0.01 * X[:, 0]]), Y, C, methods=TWO)
    assert "gives it away" in found.too_good[0]
    assert cpo.compare(X, Y, C, methods=TWO).too_good == []


class Known(RegressorMixin, BaseEstimator):
    """A model whose losses are features: of the plain method, of the robust one, of a context's own."""

    def __init__(self, radius=0.1, criterion="excess"):
        self.radius, self.criterion = radius, criterion

    def fit(self, X, y, contexts=None, sample_weight=None):
        self.column_ = 2 if contexts is None else 0 if self.radius == 0.0 else 1
        return self

    def row_losses(self, X, y):
        return np.asarray(X)[:, self.column_]


def test_a_gain_that_does_not_change_is_seldom_said_not_to_carry_over():
    """Days are drawn, contexts tie and one is small; the gain is the same before and after every cut."""
    rng = np.random.default_rng(12)
    day = np.repeat(np.arange(40), 8)
    codes = np.tile([0, 0, 0, 1, 1, 2, 2, 3], 40)
    said = []
    for _ in range(24):
        common = rng.standard_normal(40)[day] + rng.exponential(size=len(day))
        gain = 0.3 + 0.5 * rng.standard_normal(40)[day] + 0.5 * rng.standard_normal(len(day))
        losses = np.column_stack([common, common - gain, common - 0.5])
        found = cpo.compare(losses, common, codes, estimator=Known(), methods=TWO, time=day, groups=day, cv=2)
        said.append(found.agreement.split(":")[0])
    assert sum("carries over to later" in words for words in said) >= 12
    # Nothing changes, so whoever says that something did is wrong: 5% of the time.
    assert sum("did not carry over" in words or "turns into" in words for words in said) <= 3
