"""Shares of text sources that follow held-out losses."""

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

import counterpoise as cpo  # noqa: E402
from counterpoise import KLBall, Mix, ShareBounds  # noqa: E402
from counterpoise.exceptions import CounterpoiseWarning, EmptySetError, InvalidInputError  # noqa: E402
from counterpoise.torch import MixtureController, MixtureStream, read_mix  # noqa: E402
from tests.referees import mixes  # noqa: E402

TOKENS = {"web": 6e9, "code": 3e9, "papers": 1e9}
SETS = {
    "every mix": {},
    "half a bit": {"radius": 0.5},
    "budget": {"budget": 2e10, "max_epochs": 4.0},
    "half a bit and budget": {"radius": 0.5, "budget": 2e10},
    "floors and caps": {"mix": Mix(bounds={"papers": (0.15, 0.4), "web": (0.0, 0.5)}, ball=None)},
    "never": {"mix": {"web": (0.0, 0.0)}},
    "stated": {"mix": Mix(shares={"web": 0.2, "code": 0.3, "papers": 0.5}, radius=0.1, ball="kl"), "budget": 8e9},
    "one mix": {"radius": 0.0},
    "towards the worst": {"sharpness": math.inf, "radius": 0.3, "budget": 2e10},
}
each_set = pytest.mark.parametrize("options", SETS.values(), ids=SETS)
# Properties hold with any references, also with those that are doubted.
any_references = pytest.mark.filterwarnings("ignore:the held-out loss of .* far below its reference")
losses_of_three = st.lists(st.floats(0.01, 12.0), min_size=3, max_size=3)


def controller(tokens=TOKENS, **options):
    # Zeros say that losses themselves are meant.
    return MixtureController(tokens, **{"reference_losses": np.zeros(len(tokens)), **options})


def snapshot(one):
    return json.dumps(one.state_dict())


# --- where shares may lie ---------------------------------------------------------------------------------------


@each_set
@settings(max_examples=25, deadline=None)
@given(rounds=st.lists(losses_of_three, min_size=1, max_size=5))
def test_shares_never_leave_the_set_or_the_budget(options, rounds):
    one = controller(**options)
    for losses in [None, *rounds]:
        if losses is not None:
            one.update(losses)
        assert one.probabilities.sum() == pytest.approx(1.0, abs=1e-12)
        assert one.mixes.contains(one.probabilities)
        assert one.allowed.contains(one.probabilities)
        if "budget" in options:
            assert (one.probabilities * options["budget"] <= 4.0 * one.tokens * (1 + 1e-8)).all()
    assert one.allowed.contains(list(one.average.values()))


def test_floors_and_caps_are_kept_at_the_extremes():
    one = controller(**SETS["floors and caps"], step_size=1.0)
    for _ in range(10):
        one.update({"web": 9.0, "code": 1.0, "papers": 1.0})
    assert one.shares["web"] == pytest.approx(0.5, abs=1e-6)
    assert one.shares["papers"] >= 0.15 - 1e-9
    for _ in range(30):
        one.update({"web": 0.1, "code": 0.1, "papers": 9.0})
    assert one.shares["papers"] == pytest.approx(0.4, abs=1e-6)


def test_caps_are_epochs_of_the_tokens():
    one = controller({"large": 1e9, "small": 1e7}, budget=1e9, max_epochs=4.0)
    for _ in range(30):
        one.update({"large": 1.0, "small": 5.0})
    assert one.shares["small"] == pytest.approx(4.0 * 1e7 / 1e9, rel=1e-6)


def test_a_budget_that_uses_every_epoch_leaves_one_mix():
    tokens = dict(zip("abcdefg", [3, 7, 11, 13, 17, 19, 23], strict=True))
    one = controller(tokens, budget=4.0 * 93)
    one.update({name: k + 1.0 for k, name in enumerate("abcdefg")})
    np.testing.assert_allclose(one.probabilities, one.tokens / 93, rtol=1e-6)


@pytest.mark.parametrize("seed", range(3))
def test_a_budget_of_every_epoch_may_be_rounded_up(seed):
    tokens = np.random.default_rng(seed).uniform(1.0, 1e9, 5)
    one = controller(dict(enumerate(tokens)), budget=4.0 * tokens.sum() * (1.0 + 5e-10))
    one.update([1.0, 2.0, 3.0, 4.0, 5.0])
    np.testing.assert_allclose(one.probabilities, tokens / tokens.sum(), rtol=1e-6)


def test_budgets_that_cannot_be_are_named():
    with pytest.raises(InvalidInputError, match=r"more than 4 epochs of all sources.*Lower the budget"):
        controller(budget=4.1e10)
    with pytest.raises(EmptySetError, match=r"at most 4 times.*Raise max_epochs"):
        controller(mix=Mix(bounds={"papers": (0.5, 1.0)}, ball=None), budget=2e10)


@pytest.mark.parametrize(
    ("tokens", "options", "words"),
    [
        ({}, {}, "mapping"),
        ([1.0, 2.0], {}, "mapping"),
        ({"web": 0.0}, {}, "tokens of web"),
        ({1: 1.0, "1": 2.0}, {}, "same name"),
        (TOKENS, {"budget": -1.0}, "budget"),
        (TOKENS, {"max_epochs": 0.0}, "max_epochs"),
        (TOKENS, {"max_epochs": 2.0}, "needs a budget"),
        (TOKENS, {"step_size": math.nan}, "step_size"),
        (TOKENS, {"step_size": 1.5}, "1 at most"),
        ({"web": list(range(1000))}, {}, r"^.{1,120}$"),
        (TOKENS, {"sharpness": 0.0}, "sharpness"),
        (TOKENS, {"sharpness": np.array([1.0, 2.0])}, "sharpness"),
        (TOKENS, {"reference_losses": {"web": 1.0, "news": 1.0}}, "news is no source"),
        (TOKENS, {"reference_losses": {}}, "are missing"),
        (TOKENS, {"reference_losses": {"web": math.nan}}, "not finite"),
        (TOKENS, {"draws": 300}, "draws = 300 sizes no set here.*which is 1"),
        (TOKENS, {"draws": 300, "confidence": 0.95, "radius": 0.3}, "sizes no set here"),
        (TOKENS, {"reference_losses": [1.0, math.nan, 2.0]}, "not finite"),
        (TOKENS, {"initial_shares": {"web": 1.0}}, "code is missing"),
        (TOKENS, {"initial_shares": [0.5, 0.4, 0.3]}, "initial_shares"),
        (TOKENS, {"initial_shares": [0.5, 0.5]}, "shape"),
        (TOKENS, {"mix": Mix(bounds={"news": (0.1, 0.5)}, ball=None, unseen_risks={"news": 1.0})}, "no tokens"),
    ],
)
def test_settings_out_of_range_are_refused(tokens, options, words):
    with pytest.raises(InvalidInputError, match=words):
        MixtureController(tokens, **options)


# --- where they begin -------------------------------------------------------------------------------------------


def test_they_begin_with_the_shares_of_the_tokens():
    np.testing.assert_allclose(controller().probabilities, [0.6, 0.3, 0.1], rtol=1e-12)
    assert controller().shares == pytest.approx({"web": 0.6, "code": 0.3, "papers": 0.1})
    # Where these are not allowed, the nearest ones are: free shares keep their ratio.
    bounded = controller(mix={"papers": (0.4, 1.0)})
    np.testing.assert_allclose(bounded.probabilities, [0.4, 0.2, 0.4], atol=1e-6)


def test_they_can_begin_elsewhere(tmp_path):
    small = controller()
    small.update([2.0, 3.0, 4.0])
    found = read_mix(small.export(tmp_path / "mix.json", last=True))
    assert controller(initial_shares=found).shares == small.shares
    assert controller(initial_shares=[0.2, 0.5, 0.3]).shares == {"web": 0.2, "code": 0.5, "papers": 0.3}
    capped = controller(initial_shares=[0.0, 0.2, 0.8], budget=2e10)
    assert capped.shares["papers"] == pytest.approx(0.2, rel=1e-6)
    # A source that begins with nothing can return.
    capped.update([9.0, 1.0, 1.0])
    assert capped.shares["web"] > 1e-7
    numbered = MixtureController(
        {1: 5.0, 2: 5.0}, initial_shares={"1": 0.25, "2": 0.75}, reference_losses={"1": 1.0, "2": 2.0}
    )
    assert numbered.shares == {1: 0.25, 2: 0.75}
    numbered.update({"1": 1.5}, {"1": 4.0})
    assert numbered.losses[0] == 1.5
    assert numbered.held_out_tokens.tolist() == [4.0, 0.0]


# --- where they come to rest ------------------------------------------------------------------------------------


def test_steps_are_in_units_of_the_largest_mean_loss_of_late():
    calm, late = controller(), controller()
    calm.update([4.0, 4.0, 4.0])
    late.update([1.0, 1.0, 1.0])
    for one in (calm, late):
        before = one.probabilities
        one.update([1.0, 1.0, 1.5])
        move = np.log(one.probabilities / before)
        unit = max(0.9 * (4.0 if one is calm else 1.0), 1.0 + 0.5 / 3)
        # What is forgotten is the same share of the logarithms, for which the last two sources stand.
        forgotten = np.log(before[2] / before[1]) * 0.1
        assert move[2] - move[1] == pytest.approx(0.1 * 60.0 * 0.5 / unit - forgotten, rel=1e-9)


@any_references
@settings(max_examples=15, deadline=None)
@given(
    losses=losses_of_three, sharpness=st.floats(0.5, 5.0), references=st.lists(st.floats(0, 2), min_size=3, max_size=3)
)
def test_on_the_simplex_they_rest_at_the_tempered_excess(losses, sharpness, references):
    one = controller(sharpness=sharpness, step_size=0.5, reference_losses=references)
    excess = np.array(losses) - references
    for _ in range(80):
        one.update(losses)
    logs = sharpness * excess / np.mean(losses)
    expected = np.exp(logs - logs.max())
    expected = np.maximum(expected, 1e-6)
    np.testing.assert_allclose(one.probabilities, expected / expected.sum(), rtol=1e-6, atol=1e-6)


@any_references
@each_set
def test_a_factor_of_all_losses_changes_nothing(options):
    references = np.array([1.0, 0.5, 2.0])
    one, other = (
        controller(**options, reference_losses=references),
        controller(**options, reference_losses=8.0 * references),
    )
    for losses in np.random.default_rng(0).uniform(1, 4, (6, 3)):
        one.update(losses)
        other.update(8.0 * losses)
    np.testing.assert_allclose(one.probabilities, other.probabilities, rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("options", [SETS[name] for name in SETS if name not in ("stated",)])
def test_the_order_of_sources_does_not_matter(options):
    names = ["papers", "web", "code"]
    one, other = controller(**options), controller({name: TOKENS[name] for name in names}, **options)
    for losses in np.random.default_rng(1).uniform(1, 4, (6, 3)):
        named = dict(zip(TOKENS, losses, strict=True))
        one.update(named)
        other.update(named)
    for name in names:
        assert one.shares[name] == pytest.approx(other.shares[name], rel=1e-5, abs=1e-8)


@each_set
def test_more_excess_is_never_less_share(options):
    low, high = controller(**options), controller(**options)
    low.update({"web": 2.0, "code": 2.0, "papers": 2.0})
    high.update({"web": 2.0, "code": 3.0, "papers": 2.0})
    assert high.shares["code"] >= low.shares["code"] - 1e-7


@pytest.mark.parametrize("step_size", [0.05, 0.1])
@pytest.mark.parametrize(
    "options",
    [
        {"radius": 0.1},
        {"mix": cpo.TotalVariationBall([0.6, 0.3, 0.1], 0.2)},
        {"mix": cpo.Chi2Ball([0.6, 0.3, 0.1], 0.3)},
        {"mix": cpo.ShareBounds([0.1, 0.1, 0.2], [0.5, 0.6, 0.7])},
        {"mix": KLBall([0.6, 0.3, 0.1], 0.3), "budget": 2.1e10},
    ],
    ids=["kl", "tv", "chi2", "bounds", "kl and budget"],
)
def test_within_a_set_they_rest_at_the_best_of_excess_and_entropy(options, step_size):
    losses = np.array([2.2, 2.8, 3.1])
    for sharpness in (3.0, 30.0):
        one = controller(**options, sharpness=sharpness, step_size=step_size)
        expected = mixes.largest_with_entropy(one.allowed, sharpness * losses / losses.mean())
        is_slow = isinstance(options.get("mix"), KLBall | cpo.Chi2Ball)
        if is_slow:  # begin there, and stay
            one.probabilities = one.allowed.likeliest(expected).distribution
        for _ in range(8 if is_slow else 100):
            one.update(losses)
        np.testing.assert_allclose(one.probabilities, expected, atol=4e-3)


@pytest.mark.parametrize(("sharpness", "step_size"), [(30.0, 0.3), (60.0, 0.1), (math.inf, 0.1), (math.inf, 1.0)])
def test_large_steps_within_a_ball_end_near_the_best(sharpness, step_size):
    one = controller(radius=0.3, sharpness=sharpness, step_size=step_size)
    losses = np.array([1.2, 5.6, 3.1])  # nothing is known to count from
    for _ in range(60):
        one.update(losses)
    best = one.allowed.worst_case(losses).distribution
    if sharpness < math.inf:
        best = mixes.largest_with_entropy(one.allowed, sharpness * losses / losses.mean())
    assert float((best - one.probabilities) @ losses) < 5e-3
    np.testing.assert_allclose(one.probabilities, best, atol=0.03)


def test_without_forgetting_they_move_until_excess_is_equal():
    own, slope = np.array([0.3, 0.1, 0.5]), np.array([0.2, 0.3, 0.4])
    found = {}
    for sharpness in (10.0, 60.0, math.inf):
        one = controller(sharpness=sharpness, reference_losses=[2.0, 2.0, 2.0])
        for _ in range(400):
            excess = own - slope * np.log(one.probabilities)  # the more of a source, the less
            one.update(2.0 + excess)
        found[sharpness] = excess
    assert np.ptp(found[math.inf]) < 1e-6
    assert found[math.inf].max() < found[60.0].max() < found[10.0].max()
    assert found[math.inf].mean() > found[60.0].mean() > found[10.0].mean()


@pytest.mark.parametrize("options", [{"radius": 0.3}, {"budget": 2.1e10}, {"mix": {"code": (0.1, 0.6)}}])
def test_without_forgetting_they_end_at_the_worst_mix_of_losses_that_stay(options):
    one = controller(sharpness=math.inf, **options)
    losses = np.array([2.2, 3.1, 2.8])
    for _ in range(60):
        one.update(losses)
    assert float(one.probabilities @ losses) == pytest.approx(one.allowed.worst_case(losses).value, rel=2e-3)


def test_equal_excess_rests_at_equal_shares():
    one = controller(reference_losses={"web": 2.0, "code": 1.0, "papers": 3.0})
    one.update({"web": 3.5, "code": 1.5, "papers": 3.0})
    assert np.ptp(one.probabilities) > 0.1
    for _ in range(150):
        one.update({"web": 2.5, "code": 1.5, "papers": 3.5})
    np.testing.assert_allclose(one.probabilities, 1 / 3, rtol=1e-5)


def test_worst_excess_is_over_the_plausible_mixes_and_not_the_allowed_ones():
    one = controller(radius=0.5, budget=2e10, reference_losses=[1.0, 1.0, 1.0])
    assert math.isnan(one.worst_excess)
    one.update([2.0, 3.0, 4.0])
    p_hat = one.tokens / one.tokens.sum()
    assert one.worst_excess == pytest.approx(KLBall(p_hat, 0.5).worst_case([1.0, 2.0, 3.0]).value)
    plain = controller(radius=0.0)
    plain.update([2.0, 3.0, 4.0])
    assert plain.worst_excess == pytest.approx(p_hat @ [2.0, 3.0, 4.0])


def test_any_set_of_mixes_will_do():
    bounds = ShareBounds([0.2, 0.2, 0.2], [0.6, 0.6, 0.6])
    one = controller(mix=bounds)
    for _ in range(40):
        one.update([1.0, 1.0, 5.0])
    np.testing.assert_allclose(one.probabilities, [0.2, 0.2, 0.6], atol=1e-6)


# --- what it is told --------------------------------------------------------------------------------------------


def test_a_source_without_held_out_text_counts_as_the_others_on_average():
    one, other = controller(), controller()
    one.update({"web": 2.0, "code": 4.0})
    other.update({"web": 2.0, "code": 4.0, "papers": 3.0})
    np.testing.assert_allclose(one.probabilities, other.probabilities, rtol=1e-12)
    assert math.isnan(one.excess[2])
    third = controller()
    third.update([2.0, 4.0, math.nan], tokens=[5.0, 5.0, 0.0])
    assert np.array_equal(third.probabilities, one.probabilities)


def test_a_source_without_held_out_text_needs_no_reference():
    one, other = controller(reference_losses={"web": 1.0, "code": 2.0}), controller(reference_losses=[1.0, 2.0, 9.0])
    for each in (one, other):
        each.update({"web": 2.0, "code": 4.0})
    assert np.array_equal(one.probabilities, other.probabilities)
    assert one.worst_excess == other.worst_excess == 2.0
    again = controller(reference_losses={"web": 1.0, "code": 2.0})
    again.load_state_dict(json.loads(json.dumps(one.state_dict(), allow_nan=False)))
    assert snapshot(again) == snapshot(one)
    before = snapshot(one)
    with pytest.raises(InvalidInputError, match=r"papers has held-out text and no reference\. Pass"):
        one.update([2.0, 4.0, 3.0])
    assert snapshot(one) == before


@pytest.mark.parametrize(
    ("losses", "options", "words"),
    [
        ([2.0, math.nan, 1.0], {}, "loss of code is not finite"),
        ([2.0, math.inf, 1.0], {}, "loss of code is not finite"),
        ({"web": -math.inf}, {}, "loss of web is not finite"),
        ({"web": math.nan}, {"tokens": {"web": 5.0}}, "not finite"),
        ({}, {}, "no source has a held-out loss"),
        ([1.0, 1.0, 1.0], {"tokens": [0.0, 0.0, 0.0]}, "no source has a held-out loss"),
        ({"web": 1.0, "code": 1.0}, {"tokens": {"web": 1.0}}, "tokens: code is missing"),
        ([1.0, 1.0, 1.0], {"tokens": {"web": 1.0, "code": 1.0}}, "tokens: papers is missing"),
        ([1.0, 1.0, 1.0], {"tokens": [1.0, -1.0, 1.0]}, "held-out tokens"),
        ([1.0, 1.0, 1.0], {"tokens": [1.0, math.nan, 1.0]}, "held-out tokens"),
        ([1.0, 1.0, 1.0], {"tokens": [1.0, math.inf, 1.0]}, "held-out tokens"),
        ([1.0, 2.0], {}, "shape"),
        ({"news": 1.0}, {}, "news is no source"),
        ("abc", {}, "numbers"),
        (({"web": 1.0}, {"web": 5.0}), {}, r"numbers.*update\(\*source_losses"),
        (None, {}, "numbers"),
    ],
)
def test_what_is_refused_changes_nothing(losses, options, words):
    one = controller(radius=0.4)
    one.update([2.0, 3.0, 1.0])
    before = snapshot(one)
    with pytest.raises(InvalidInputError, match=words):
        one.update(losses, **options)
    assert snapshot(one) == before


def test_an_update_that_is_interrupted_changes_nothing(monkeypatch):
    one = controller(radius=0.4)
    one.update([2.0, 3.0, 1.0])
    before = snapshot(one)

    def press(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(type(one), "_moved", press)
    with pytest.raises(KeyboardInterrupt):
        one.update([5.0, 3.0, 1.0])
    assert snapshot(one) == before


def test_references_are_replaced_whole_or_not_at_all():
    one = controller()
    one.set_references({"web": 1.0, "code": 2.0, "papers": 3.0})
    with pytest.raises(InvalidInputError, match="not finite"):
        one.set_references([1.0, math.inf, 2.0])
    np.testing.assert_array_equal(one.references, [1.0, 2.0, 3.0])


def test_the_average_is_what_the_run_was_drawn_by():
    one, found = controller(), []
    for losses in np.random.default_rng(2).uniform(1, 4, (5, 3)):
        found.append(one.probabilities)
        one.update(losses)
    np.testing.assert_allclose(list(one.average.values()), np.mean(found, axis=0), rtol=1e-12)
    np.testing.assert_array_equal(one.history["share[code]"][-1], one.probabilities[1])
    assert one.history["at"].tolist() == [1.0, 2.0, 3.0, 4.0, 5.0]
    assert one.n_updates == 5


# --- what is kept -----------------------------------------------------------------------------------------------


@each_set
@pytest.mark.parametrize("kind", ["json", "torch"])
def test_a_controller_goes_on_to_the_last_bit(options, kind, tmp_path):
    rounds = np.random.default_rng(3).uniform(1, 4, (8, 3))
    whole = controller(**options)
    for k, losses in enumerate(rounds):
        whole.update(losses)
        if k == 3:
            state = whole.state_dict()
            if kind == "json":
                state = json.loads(json.dumps(state, allow_nan=False))
            else:
                torch.save(state, tmp_path / "state.pt")
                state = torch.load(tmp_path / "state.pt", weights_only=True)
    again = controller(**options)
    again.load_state_dict(state)
    for losses in rounds[4:]:
        again.update(losses)
    assert again.state_dict() == whole.state_dict()
    assert again.average == whole.average


def test_a_state_of_a_fresh_controller_is_one_too():
    one = controller()
    state = json.loads(json.dumps(one.state_dict(), allow_nan=False))
    again = controller()
    again.load_state_dict(state)
    assert again.state_dict() == one.state_dict()
    assert math.isnan(again.worst_excess)


@pytest.mark.parametrize("kind", ["sources", "missing", "sizes", "no mix", "words"])
def test_a_state_that_does_not_fit_changes_nothing(kind):
    one = controller()
    one.update([2.0, 3.0, 1.0])
    state, before = one.state_dict(), snapshot(one)
    {
        "sources": lambda: state.update(sources=["web", "papers", "code"]),
        "missing": lambda: state.pop("rounds"),
        "sizes": lambda: state.update(unit=[1.0, 2.0]),
        "no mix": lambda: state.update(probabilities=[0.9, 0.9, 0.9]),
        "words": lambda: state.update(losses=["a", "b", "c"]),
    }[kind]()
    with pytest.raises(InvalidInputError):
        one.load_state_dict(state)
    assert snapshot(one) == before


def test_a_state_of_a_smaller_budget_is_pulled_into_the_larger_one():
    one = controller(budget=1e9)
    for _ in range(40):
        one.update([1.0, 1.0, 9.0])
    longer = controller(budget=2e10)
    longer.load_state_dict(one.state_dict())
    assert one.shares["papers"] > 0.5
    assert longer.allowed.contains(longer.probabilities)
    assert longer.shares["papers"] == pytest.approx(4e9 / 2e10, rel=1e-6)


def test_a_mix_that_is_exported_is_allowed_by_the_budget_beside_it(tmp_path):
    one = controller(budget=1e9)
    for _ in range(40):
        one.update([1.0, 1.0, 9.0])
    longer = controller(budget=2e10)
    longer.load_state_dict(one.state_dict())
    longer.update([1.0, 1.0, 9.0])
    place = longer.export(tmp_path / "mix.json")
    # More was read of it before than the larger budget allows.
    assert longer.average["papers"] > 2 * 4e9 / 2e10
    mix = read_mix(place)
    assert mix["papers"] == pytest.approx(4e9 / 2e10, rel=1e-6)
    assert mix["web"] / mix["code"] == pytest.approx(longer.average["web"] / longer.average["code"], rel=1e-3)


def test_references_of_a_state_take_the_place_of_others_not_in_silence():
    one, same, none = (controller(reference_losses=given) for given in ([1.0, 2.0, 1.5], [1.0, 2.0, 1.5], None))
    one.update([2.0, 3.0, 2.5])
    for other in (same, none):
        other.load_state_dict(one.state_dict())
    other = controller(reference_losses=[1.0, 2.0, 1.4])
    with pytest.warns(CounterpoiseWarning, match="has other reference losses"):
        other.load_state_dict(one.state_dict())
    assert other.references.tolist() == [1.0, 2.0, 1.5]


def test_shares_may_be_rounded():
    for shares in (torch.softmax(torch.arange(3.0).half(), 0), np.float32([0.1, 0.2, 0.7]), [0.333, 0.333, 0.333]):
        found = controller(initial_shares=shares).probabilities
        assert found.sum() == pytest.approx(1.0, abs=1e-15)
        np.testing.assert_allclose(found, list(map(float, shares)), atol=1e-3)
    learnt = torch.softmax(torch.zeros(3, requires_grad=True), 0)
    assert list(controller(initial_shares=learnt).shares.values()) == pytest.approx([1 / 3] * 3)


def test_a_set_that_names_other_contexts_is_refused():
    bounds = ShareBounds([0.6, 0.0, 0.0], [0.9, 0.4, 0.4], labels=("code", "web", "papers"))
    for mix in (bounds, bounds & KLBall([0.7, 0.2, 0.1], 0.5)):
        with pytest.raises(
            InvalidInputError, match="over code, web, papers, in this order; the data have web, code, pap"
        ):
            controller(mix=mix)
    ordered = {name: TOKENS[name] for name in ("code", "web", "papers")}
    assert controller(ordered, mix=bounds).shares["code"] == pytest.approx(0.6)


def test_names_that_are_one_in_words_are_refused():
    for made in (
        lambda: controller({1: 2.0, "1": 3.0}),
        lambda: MixtureStream({1: [1], "1": [2]}, [0.5, 0.5]),
        lambda: controller({1: 1.0, 2: 2.0}).update({1: 1.0, "1": 9.0, 2: 3.0}),
    ):
        with pytest.raises(InvalidInputError, match="have the same name in words, 1"):
            made()


def test_tokens_are_not_taken_for_draws_in_silence():
    with pytest.warns(CounterpoiseWarning, match=r"confidence = 0\.95 takes every token for a draw"):
        controller(confidence=0.95)
    for mix in ({"web": (0.0, 0.7)}, Mix(bounds={"web": (0.0, 0.7)})):
        with pytest.warns(CounterpoiseWarning, match="takes every token for a draw"):
            controller(confidence=0.95, mix=mix)
    counts = Mix(counts={"web": 30, "code": 5, "papers": 5})
    for options in (
        {"confidence": 0.95, "draws": 40},
        {"confidence": 0.95, "radius": 0.3},
        {"radius": "agrawal"},
        {"confidence": 0.95, "mix": counts},
        {"confidence": 0.95, "mix": Mix(bounds={"web": (0.0, 0.7)}, ball=None)},
    ):
        controller(**options)


def test_a_stream_that_does_not_follow_is_told_of():
    one = controller()
    stream = MixtureStream({name: [name] for name in TOKENS}, one)
    one.update([2.0, 3.0, 1.0])
    stream.follow(one)
    one.update([2.0, 3.0, 1.0])
    with pytest.warns(CounterpoiseWarning, match="no stream was told of the last update"):
        one.update([2.0, 3.0, 1.0])
    # Once is enough, and nobody has to draw by a stream.
    one.update([2.0, 3.0, 1.0])
    assert one.n_updates == 4


@pytest.mark.parametrize("options", [{}, {"budget": 2e10}, {"radius": 3.0, "sharpness": math.inf}])
def test_a_source_that_losses_starve_is_told_of_once(options):
    def learn(one):
        for _ in range(40):
            one.update({"web": 3.2, "code": 1.2, "papers": 2.8})

    meant, silent = controller(**options), MixtureController(TOKENS, **options)
    with pytest.warns(CounterpoiseWarning, match=r"share of code has fallen from 0\.3 to .*No reference losses"):
        learn(silent)
    # Once is enough, and where losses are meant nobody has to be told.
    learn(silent)
    learn(meant)
    learn(meant)
    assert silent.shares == meant.shares
    assert silent.shares["code"] < 0.003


@pytest.mark.parametrize(
    "options",
    [{"mix": {"code": (0.01, 1.0), "papers": (0.01, 1.0)}}, {"reference_losses": [2.6, 0.8, 2.2]}, {"radius": 0.1}],
    ids=["floor", "references", "radius"],
)
def test_nobody_is_told_of_starving_where_nothing_starves(options):
    one = MixtureController(TOKENS, **options)
    for _ in range(40):
        one.update({"web": 3.2, "code": 1.2, "papers": 2.8})
    assert one.shares["code"] > 0.003


def test_nobody_is_told_of_starving_where_a_checkpoint_brought_references():
    known, one = MixtureController(TOKENS, reference_losses=[0.2, 3.0, 2.6]), MixtureController(TOKENS)
    one.load_state_dict(known.state_dict())
    for _ in range(40):
        one.update({"web": 3.2, "code": 3.2, "papers": 2.8})
    assert one.shares["code"] < 0.003


def test_references_in_another_unit_are_doubted_once():
    losses = {"web": 3.0, "code": 2.0, "papers": 2.5}
    one = controller(reference_losses={name: math.exp(loss - 0.3) for name, loss in losses.items()})
    with pytest.warns(CounterpoiseWarning, match=r"web is 3, far below its reference of 14\.88.*nats per token"):
        one.update(losses)
    one.update(losses)
    in_bits = controller(reference_losses={name: (loss - 0.1) / math.log(2.0) for name, loss in losses.items()})
    with pytest.warns(CounterpoiseWarning, match="far below its reference"):
        in_bits.update(losses)
    # A little ahead, noise and transfer may bring any model.
    controller(reference_losses={name: loss + 0.2 for name, loss in losses.items()}).update(losses)


# --- what is handed on ------------------------------------------------------------------------------------------

ODD = {
    "web, crawl": 6e9,
    "\x7f\x85\u2028\ud800": 5.0,
    'a "quoted": name': 3e16,
    "naïve ☃ 😀": 1e-5,
    "null": 7.0,
    "12": 3.0,
    "#no": 1.0,
}


@pytest.mark.parametrize("tokens", [TOKENS, ODD], ids=["plain", "odd names"])
@pytest.mark.parametrize("last", [False, True])
def test_an_exported_mix_is_read_back_exactly(tokens, last, tmp_path):
    one = controller(tokens, radius=8.0)
    for losses in np.random.default_rng(4).uniform(1, 4, (3, len(tokens))):
        one.update(losses)
    place = one.export(tmp_path / "deep" / "mix.json", last=last)
    expected = one.shares if last else one.average
    assert read_mix(place) == expected
    content = json.loads(place.read_text(encoding="utf-8"))
    assert content["tokens"] == tokens
    assert content["updates"] == 3
    assert content["held_out_loss"] == dict(zip(tokens, one.losses.tolist(), strict=True))


@pytest.mark.parametrize("tokens", [TOKENS, ODD], ids=["plain", "odd names"])
@pytest.mark.parametrize("ending", [".yaml", ".yml"])
def test_yaml_says_what_json_says(tokens, ending, tmp_path):
    yaml = pytest.importorskip("yaml")
    one = controller(tokens, radius=8.0)
    one.update({name: k + 1.0 for k, name in enumerate(list(tokens)[1:])})
    one.export(tmp_path / "mix.json")
    place = one.export(tmp_path / f"mix{ending}")
    read = yaml.safe_load(place.read_text(encoding="utf-8"))
    assert read == json.loads((tmp_path / "mix.json").read_text(encoding="utf-8"))
    assert read["held_out_loss"][next(iter(tokens))] is None


def test_an_export_is_whole_or_not_there(tmp_path, monkeypatch):
    one, place = controller(), tmp_path / "mix.json"
    with pytest.warns(CounterpoiseWarning, match="no update: the mix is the one that it began with"):
        one.export(place)
    before = place.read_text()
    one.update([1.0, 2.0, 3.0])
    one.update([1.0, 2.0, 3.0])
    with pytest.raises(InvalidInputError, match="exists already"):
        one.export(place)

    def full(self, text, **_):
        with self.open("w") as file:
            file.write(text[:20])
        raise OSError("no space left")

    monkeypatch.setattr(type(place), "write_text", full)
    with pytest.raises(OSError, match="no space"):
        one.export(place, force=True)
    monkeypatch.undo()
    assert place.read_text() == before
    assert [file.name for file in tmp_path.iterdir()] == ["mix.json"]
    one.export(place, force=True)
    assert read_mix(place) == one.average


def test_other_endings_and_other_files_are_refused(tmp_path):
    with pytest.raises(InvalidInputError, match=r"choose \.json"):
        controller().export(tmp_path / "mix.toml")
    (tmp_path / "other.json").write_text("[1, 2]")
    with pytest.raises(InvalidInputError, match="not what export wrote"):
        read_mix(tmp_path / "other.json")
    with pytest.raises(InvalidInputError, match=r"is YAML, which is for other programs.*with \.json"):
        read_mix(tmp_path / "mix.yaml")


def test_a_mix_is_pulled_into_the_caps_of_a_longer_training(tmp_path):
    short = controller(budget=1e9, max_epochs=3.0)
    for _ in range(40):
        short.update([1.0, 1.0, 1.5])
    place = short.export(tmp_path / "mix.json")
    content = json.loads(place.read_text())
    assert (content["budget"], content["max_epochs"]) == (1e9, 3.0)
    long = controller(budget=2e10, initial_shares=read_mix(place))
    papers = TOKENS["papers"]
    assert short.average["papers"] * 2e10 > 5 * papers
    assert long.shares["papers"] * 2e10 <= 4 * papers * (1 + 1e-9)


@pytest.mark.parametrize("at", ["later", math.nan, math.inf, [1, 2]])
def test_a_time_that_is_none_is_refused(at):
    one = controller()
    before = snapshot(one)
    with pytest.raises(InvalidInputError, match="at = "):
        one.update([1.0, 2.0, 3.0], at=at)
    assert snapshot(one) == before


@pytest.mark.parametrize("named", [False, True])
def test_losses_may_be_tensors_of_half_precision_with_gradients(named):
    one, other = controller(), controller()
    losses = torch.tensor([1.0, 2.0, 3.0], dtype=torch.bfloat16, requires_grad=True)
    one.update(dict(zip(TOKENS, losses, strict=True)) if named else losses)
    other.update([1.0, 2.0, 3.0])
    assert snapshot(one) == snapshot(other)


SHORT = {"at": 1.0, "worst_excess": 1.0, "loss": [1.0, 2.0], "share": [0.5, 0.5]}


@pytest.mark.parametrize(
    "damage",
    [
        {"rounds": [{}]},
        {"rounds": [SHORT]},
        {"rounds": [SHORT | {"loss": [1.0, "x", 1.0], "share": [0.5, 0.5, 0.0]}]},
        {"rounds": []},
        {"sources": None},
        {"unit": [math.nan]},
        {"share_sums": [math.nan] * 3},
        {"first_probabilities": [0.5, 0.5, 0.5]},
    ],
)
def test_a_damaged_state_is_refused(damage):
    one, other = controller(), controller()
    one.update([1.0, 2.0, 3.0])
    before = snapshot(other)
    with pytest.raises(InvalidInputError, match="state"):
        other.load_state_dict(one.state_dict() | damage)
    assert snapshot(other) == before
