"""Weights that follow held-out risks: what moves them, where they stay, and what a training by them reports."""

import copy
import math
import warnings

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.utils.data import (  # noqa: E402
    DataLoader,
    IterableDataset,
    RandomSampler,
    TensorDataset,
    WeightedRandomSampler,
)

from counterpoise import Chi2Ball, KLBall, Mix, ShareBounds, TotalVariationBall  # noqa: E402
from counterpoise.exceptions import CounterpoiseWarning, InvalidInputError, LearntByHeartWarning  # noqa: E402
from counterpoise.torch import (  # noqa: E402
    ContextBatchSampler,
    ERMLoss,
    HeldOutWeights,
    References,
    RobustLoss,
    context_risks,
    fit,
)
from counterpoise.torch.training import shrunk_references  # noqa: E402
from tests.torch_.test_guard import COUNTS, adam, digits, loader, network, noise  # noqa: E402

SHARES = np.array([0.6, 0.3, 0.1])

SETS = {
    "every mix": lambda: KLBall(SHARES, math.inf),
    "kl": lambda: KLBall(SHARES, 0.1),
    "chi2": lambda: Chi2Ball(SHARES, 0.2),
    "total variation": lambda: TotalVariationBall(SHARES, 0.15),
    "bounds": lambda: ShareBounds([0.2, 0.2, 0.0], [0.7, 0.5, 0.2]),
    "both": lambda: KLBall(SHARES, 0.2) & ShareBounds([0.2, 0.2, 0.0], [0.7, 0.5, 0.2]),
    "a point": lambda: KLBall(SHARES, 0.0),
}


def weights(**options):
    return HeldOutWeights(100 * SHARES, **options)


# --- the mix --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SETS)
def test_the_mix_stays_in_the_set_and_climbs_to_its_worst_case(name):
    mixes, risks = SETS[name](), np.array([0.2, 0.5, 0.9])
    loss = weights(mix=mixes, step_size=0.5, sharpness=np.inf)
    values = []
    for _ in range(200):
        assert mixes.contains(loss.context_weights.numpy())
        values.append(float(loss.context_weights.numpy() @ risks))
        loss.update_risks(risks, np.full(3, 20.0))
    assert np.all(np.diff(values) > -1e-9)
    worst = mixes.worst_case(risks).value
    assert values[-1] <= worst + 1e-9
    assert values[-1] > worst - 1e-4
    assert loss.worst_excess == pytest.approx(worst)


def test_it_begins_with_equal_shares_or_as_near_as_the_set_allows():
    np.testing.assert_allclose(weights().context_weights, 1 / 3)
    np.testing.assert_allclose(weights(radius=0.0).context_weights, SHARES)
    small = weights(radius=0.02).context_weights.numpy()
    assert SHARES[2] < small[2] < 1 / 3


def test_one_step_is_that_of_the_formula():
    loss = weights(step_size=0.1, reference_risks=[0.1, 0.2, 0.3])
    loss.update_risks([0.5, 0.4, 0.9], [30, 20, 10])
    grown = np.exp(0.1 * np.array([0.4, 0.2, 0.6]) / ((0.5 * 30 + 0.4 * 20 + 0.9 * 10) / 60))
    np.testing.assert_allclose(loss.context_weights, grown / grown.sum())
    np.testing.assert_allclose(loss.held_out_excess, [0.4, 0.2, 0.6])


def test_the_mix_comes_to_rest_where_the_formula_says():
    loss, risks = weights(step_size=0.1, sharpness=2.0), np.array([0.2, 0.5, 0.9])
    for _ in range(1000):
        loss.update_risks(risks, np.full(3, 20.0))
    rest = np.exp(2.0 * risks / risks.mean())
    np.testing.assert_allclose(loss.context_weights, rest / rest.sum(), rtol=1e-9)


def test_a_round_that_went_wrong_is_forgotten():
    risks = np.array([0.1, 0.1, 0.6])
    loss, calm = weights(sharpness=2.0), weights(sharpness=2.0)
    loss.update_risks(100.0 * risks[::-1], np.full(3, 20.0))
    for _ in range(300):
        loss.update_risks(risks, np.full(3, 20.0))
        calm.update_risks(risks, np.full(3, 20.0))
    np.testing.assert_allclose(loss.context_weights, calm.context_weights, rtol=1e-4)


@pytest.mark.parametrize("step", [0.1, 5.0])
def test_the_mix_rests_at_the_same_place_whatever_the_step(step):
    loss, risks = weights(step_size=step, sharpness=0.5), np.array([0.2, 0.5, 0.9])
    for _ in range(300):
        loss.update_risks(risks, np.full(3, 20.0))
    rest = np.exp(0.5 * risks / risks.mean())
    np.testing.assert_allclose(loss.context_weights, rest / rest.sum(), rtol=1e-9)


def test_losses_are_as_good_as_their_means_and_their_unit_does_not_matter():
    rng = np.random.default_rng(0)
    losses, codes = torch.tensor(rng.exponential(size=90)), torch.tensor(rng.integers(3, size=90))
    one, other, scaled = weights(), weights(), weights()
    one.update(losses, codes)
    counts = torch.bincount(codes)
    other.update_risks(torch.bincount(codes, losses) / counts, counts)
    scaled.update(1000.0 * losses, codes)
    np.testing.assert_allclose(one.context_weights, other.context_weights)
    np.testing.assert_allclose(one.context_weights, scaled.context_weights)


def test_a_context_without_held_out_rows_is_as_the_others_on_average():
    loss = weights(step_size=1.0)
    loss.update_risks([0.2, 0.8, math.nan], [10, 10, 0])
    low, high, unknown = loss.context_weights.tolist()
    assert low < unknown < high
    assert math.isnan(float(loss.held_out_risks[2]))
    assert loss.worst_excess == pytest.approx(0.8)


@pytest.mark.parametrize("risks", [[0.1, math.inf, 0.2], [0.1, math.nan, 0.2], [math.nan] * 3])
def test_risks_that_are_no_numbers_move_nothing(risks):
    loss = weights()
    loss.update_risks(risks, [10, 10, 10])
    np.testing.assert_allclose(loss.context_weights, 1 / 3)


def test_before_the_first_update_nothing_is_known():
    loss = weights()
    assert math.isnan(loss.worst_excess)
    assert torch.isnan(loss.held_out_risks).all()
    loss.update_risks([math.nan] * 3, [0, 0, 0])
    assert math.isnan(loss.worst_excess)


def test_training_batches_do_not_move_the_mix():
    loss = weights()
    for _ in range(5):
        value = loss(torch.tensor([1.0, 2.0, 3.0]), torch.tensor([0, 1, 2]))
    np.testing.assert_allclose(loss.context_weights, 1 / 3)
    np.testing.assert_allclose(loss.context_risks, [1.0, 2.0, 3.0])
    np.testing.assert_allclose(value, np.mean([1 / 0.6, 2 / 0.3, 3 / 0.1]) / 3, rtol=1e-6)


def test_all_that_is_learnt_is_in_its_state():
    loss, again = weights(radius=0.3), weights(radius=0.3)
    loss(torch.tensor([1.0, 2.0]), torch.tensor([0, 2]))
    loss.update_risks([0.5, 0.4, 0.9], [30, 20, 10])
    again.load_state_dict(loss.state_dict())
    twin = copy.deepcopy(loss)
    for one in (loss, again, twin):
        one.update_risks([0.3, 0.2, 0.9], [30, 20, 10])
    assert torch.equal(loss.mix, again.mix)
    assert torch.equal(loss.mix, twin.mix)
    assert loss.worst_excess == again.worst_excess


def test_contexts_that_only_the_mix_knows():
    mix = Mix(shares={0: 0.5, 1: 0.3, 2: 0.1, "new": 0.1}, radius=0.3, unseen_risks={"new": 0.7})
    loss = weights(mix=mix)
    loss.update_risks([0.1, 0.1, 0.2], [10, 10, 10])
    assert loss.context_weights.shape == (3,)
    assert 0.1 < loss.worst_excess < 0.7


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"criterion": "regret"}, "criterion"),
        ({"criterion": "risk", "reference_risks": [0, 0, 1]}, "criterion is 'risk'"),
        ({"step_size": 0.0}, "step_size"),
        ({"sharpness": -1.0}, "sharpness"),
        ({"reference_risks": [1.0]}, "reference_risks"),
        ({"radius": -1.0}, "radius"),
    ],
)
def test_what_cannot_be_is_said(options, words):
    with pytest.raises(InvalidInputError, match=words):
        weights(**options)


def test_losses_must_be_one_per_sample():
    with pytest.raises(InvalidInputError, match="one of each per sample"):
        weights().update(torch.tensor(1.0), torch.tensor([0]))


# --- training by them -----------------------------------------------------------------------------------------


def test_a_planted_shift_is_learnt_and_everything_is_reported():
    rows, model = digits(400, 0), network()
    loss = HeldOutWeights(torch.bincount(rows[2]))
    history = fit(model, loss, loader(rows, shuffle=True), adam(model), epochs=20)
    assert history.chosen == "robust"
    # A quarter of every context is held out, and looked at four times an epoch.
    assert loss.held_out_counts.tolist() == [80, 20]
    assert len(history.rounds["epoch"]) == 80
    assert history.rounds["epoch"][-1] == 20.0
    for found in (history.weights, history.training_risks, history.held_out_risks):
        assert found.shape == (80, 2)
    np.testing.assert_allclose(history.weights.sum(1), 1.0)
    np.testing.assert_allclose(loss.references, history.reference_risks)
    excess = (history.held_out_risks - history.reference_risks).max(1)
    np.testing.assert_allclose(history.rounds["worst_excess"], excess)
    np.testing.assert_allclose(history.rounds["score"], excess, atol=1e-6)
    assert int(excess.argmin()) // 4 == history.best_epoch
    fresh = [digits(4000, 5)]
    plain = network()
    fit(plain, ERMLoss(COUNTS), loader(digits(300, 0), shuffle=True), adam(plain), epochs=20)
    (ours, _), (theirs, _) = (context_risks(one, fresh, 2) for one in (model, plain))
    assert ours.max() < theirs.max() - 0.05


def test_the_plain_network_is_kept_where_nothing_is_to_be_gained():
    chosen = []
    for seed in range(4):
        model = network(seed=seed)
        batches = loader(noise(300, seed), shuffle=True)
        chosen.append(fit(model, HeldOutWeights(COUNTS), batches, adam(model), epochs=3).chosen)
    assert chosen.count("erm") >= 3


def test_training_by_them_draws_the_same_with_and_without_a_guard():
    references, found = [0.2, 0.2], []
    for guard in (True, False):
        model = network(0.2)
        batches = loader(digits(300, 0), shuffle=True, generator=torch.Generator().manual_seed(3))
        loss = HeldOutWeights(COUNTS, reference_risks=references)
        torch.manual_seed(1)
        found.append(fit(model, loss, batches, adam(model), epochs=3, guard=guard).rounds["worst_excess"])
    np.testing.assert_array_equal(*found)


def test_references_that_are_given_are_used():
    model = network()
    loss = HeldOutWeights(COUNTS)
    history = fit(model, loss, loader(digits(300, 0)), adam(model), epochs=1, reference_risks=[0.1, 0.3], guard=False)
    np.testing.assert_allclose(loss.references, [0.1, 0.3])
    np.testing.assert_allclose(history.reference_risks, [0.1, 0.3])


def test_by_risk_there_are_no_references():
    model = network()
    history = fit(model, HeldOutWeights(COUNTS, criterion="risk"), loader(digits(300, 0)), adam(model), epochs=1)
    assert history.reference_risks is None
    np.testing.assert_array_equal(history.rounds["worst_excess"], history.rounds["worst_risk"])


@pytest.mark.parametrize("average", [None, 0.9])
def test_an_interrupted_training_goes_on_as_if_nothing_had_been(tmp_path, average):
    def train(path, progress=None):
        model = network(0.2)
        batches = loader(digits(300, 0), shuffle=True, generator=torch.Generator().manual_seed(3))
        torch.manual_seed(1)
        loss = HeldOutWeights(COUNTS)
        options = {"epochs": 4, "checkpoint": path, "average": average, "progress": progress}
        return fit(model, loss, batches, adam(model), **options), model

    def press(row):
        if row["epoch"] == 1:
            raise KeyboardInterrupt

    whole, one = train(tmp_path / "whole.pt")
    with pytest.raises(KeyboardInterrupt):
        train(tmp_path / "run.pt", press)
    parts, other = train(tmp_path / "run.pt")
    for name in ("score", "mean_risk", "training_excess"):
        np.testing.assert_array_equal(whole.rounds[name], parts.rounds[name])
    np.testing.assert_array_equal(whole.weights, parts.weights)
    assert whole.chosen == parts.chosen
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))


def test_a_narrower_judge_may_keep_another_round():
    def scores(judge):
        model = network()
        loss = HeldOutWeights(COUNTS, reference_risks=[0.2, 0.2])
        options = {"epochs": 2, "guard": False, "judge": judge}
        return fit(model, loss, loader(digits(300, 0)), adam(model), **options).rounds

    mean, largest = scores(KLBall([0.8, 0.2], 0.0)), scores(None)
    np.testing.assert_allclose(mean["score"], mean["mean_risk"] - 0.2)
    np.testing.assert_allclose(largest["score"], largest["worst_excess"], atol=1e-6)


def test_iterables_without_a_length_are_judged_at_the_end_of_the_first_epoch():
    class Stream(IterableDataset):
        def __iter__(self):
            return iter(TensorDataset(*digits(300, 0)))

    model = network()
    loss = HeldOutWeights(COUNTS, reference_risks=[0.2, 0.2])
    batches = DataLoader(Stream(), batch_size=50)
    history = fit(model, loss, batches, adam(model), epochs=2, held_out=[digits(100, 1)], guard=False)
    np.testing.assert_allclose(history.rounds["epoch"], [1.0, 1 + 2 / 6, 1 + 3 / 6, 1 + 5 / 6, 2.0])


def test_a_small_context_is_not_taken_to_be_hard():
    risks, counts = np.array([0.2, 0.6, 0.6, 0.1, np.nan]), np.array([300, 100, 20, 20, 0])
    errors = np.array([0.01, 0.02, 0.1, 0.05, np.nan])
    found = shrunk_references(References(risks, errors), counts)
    mean = (300 * 0.2 + 100 * 0.6 + 20 * 0.6 + 20 * 0.1) / 440
    np.testing.assert_allclose(found, [0.19, 0.58, 0.2 * 0.6 + 0.8 * mean - 0.1, 0.05, mean])


# --- what is split off ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["shuffled", "in order", "balanced"])
def test_a_share_of_every_context_is_split_off(kind):
    rows = digits(300, 0)
    rows = (torch.arange(300.0)[:, None] * torch.ones(2), *rows[1:])
    data = TensorDataset(*rows)
    batches = {
        "shuffled": lambda: DataLoader(data, batch_size=50, shuffle=True),
        "in order": lambda: DataLoader(data, batch_size=50),
        "balanced": lambda: DataLoader(data, batch_sampler=ContextBatchSampler(rows[2], 50, mode="balanced")),
    }[kind]()
    seen = []

    class Watched(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(2, 2)

        def forward(self, x):
            seen.append((self.training, x[:, 0].detach()))
            return self.layer(x)

    model = Watched()
    sampling = "balanced" if kind == "balanced" else "proportional"
    loss = HeldOutWeights(COUNTS, reference_risks=[0.2, 0.2], sampling=sampling)
    still = torch.optim.SGD(model.parameters(), 0.0)
    fit(model, loss, batches, still, epochs=1, held_out=0.2, guard=False, refit=False)
    trained, judged = (
        {int(k) for training, numbers in seen if training == which for k in numbers} for which in (True, False)
    )
    assert not trained & judged
    assert np.bincount(rows[2][sorted(judged)]).tolist() == [48, 12]
    if kind != "balanced":
        assert len(trained) == 240


@pytest.mark.parametrize("kind", ["a list", "weighted", "no contexts", "too large"])
def test_what_cannot_be_split_is_said(kind):
    rows = digits(300, 0)
    batches, share, words = {
        "a list": ([rows], 0.2, "DataLoader"),
        "weighted": (loader(rows, sampler=WeightedRandomSampler(torch.ones(300), 300)), 0.2, "sampler of its own"),
        "no contexts": (DataLoader(TensorDataset(*rows[:2])), 0.2, "by context"),
        "too large": (loader(rows), 1.5, "between 0 and 1"),
    }[kind]
    model = network()
    with pytest.raises(InvalidInputError, match=words):
        fit(model, HeldOutWeights(COUNTS), batches, adam(model), epochs=1, held_out=share)


@pytest.mark.parametrize(
    "options",
    [
        {"every": 0.0},
        {"every": 2.5},
        {"every": "often"},
        {"average": 1.0},
        {"average": "no"},
        {"judge": KLBall(SHARES, 0.1)},
        {"reference_risks": [0.1]},
    ],
)
def test_settings_out_of_range_are_refused(options):
    model = network()
    with pytest.raises(InvalidInputError, match=next(iter(options))):
        fit(model, HeldOutWeights(COUNTS), loader(digits(300, 0)), adam(model), epochs=1, **options)


def test_references_are_refused_where_risk_is_asked_for():
    model = network()
    loss = HeldOutWeights(COUNTS, criterion="risk")
    with pytest.raises(InvalidInputError, match="criterion is 'risk'"):
        fit(model, loss, loader(digits(300, 0)), adam(model), epochs=1, reference_risks=[0.1, 0.1])


def test_rounds_may_be_counted_in_batches():
    model = network()
    loss = HeldOutWeights(COUNTS, reference_risks=[0.2, 0.2])
    options = {"epochs": 2, "held_out": [digits(100, 1)], "guard": False, "every": 2}
    # Five batches an epoch: rounds after 2, 4, 6, 8 and 10 of them, and at the end of the first epoch.
    history = fit(model, loss, loader(digits(300, 0)), adam(model), **options)
    np.testing.assert_allclose(history.rounds["epoch"], [0.4, 0.8, 1.0, 1.2, 1.6, 2.0])


def test_a_sampler_that_draws_with_replacement_is_not_replaced():
    rows, model = digits(300, 0), network()
    batches = loader(rows, sampler=RandomSampler(range(300), replacement=True, num_samples=40))
    with pytest.raises(InvalidInputError, match="sampler of its own"):
        fit(model, HeldOutWeights(COUNTS), batches, adam(model), epochs=1)


def test_what_is_left_of_small_contexts_is_what_batches_draw():
    rows = tuple(torch.cat([part[:240], part[-3:]]) for part in digits(300, 0))
    model, loss = network(), HeldOutWeights([240, 3], reference_risks=[0.2, 0.2])
    fit(model, loss, loader(rows), adam(model), epochs=1, guard=False)
    np.testing.assert_allclose(loss.sampled, np.array([180, 2]) / 182)


def test_a_row_loss_by_another_name_has_references_and_any_other_says_it_has_none():
    def cross_entropy(scores, target):
        return nn.functional.cross_entropy(scores, target, reduction="none")

    def brier(scores, target):
        return (scores.softmax(1) - nn.functional.one_hot(target, 2)).square().sum(1)

    model = network()
    history = fit(model, HeldOutWeights(COUNTS), loader(digits(300, 0)), adam(model), epochs=1, row_loss=cross_entropy)
    assert history.reference_risks is not None
    with pytest.warns(CounterpoiseWarning, match="row loss is neither"):
        history = fit(model, HeldOutWeights(COUNTS), loader(digits(300, 0)), adam(model), epochs=1, row_loss=brier)
    assert history.reference_risks is None


def test_a_network_without_a_last_layer_is_said_to_have_no_references():
    class Bare(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.eye(2))

        def forward(self, x):
            return x @ self.weight

    model = Bare()
    with pytest.warns(CounterpoiseWarning, match="does not end with a linear layer"):
        history = fit(model, HeldOutWeights(COUNTS), loader(digits(300, 0)), adam(model), epochs=1)
    assert history.reference_risks is None
    assert history.chosen in ("erm", "robust")


def test_rounds_are_judged_as_the_loss_judges_contexts_without_samples():
    mix = Mix(shares={0: 0.4, 1: 0.4, 2: 0.2}, radius=0.1, unseen_risks={2: 3.0})
    loss, model = HeldOutWeights(COUNTS, mix=mix, reference_risks=[0.1, 0.1]), network()
    history = fit(model, loss, loader(digits(300, 0)), adam(model), epochs=1, guard=False)
    assert history.rounds["score"][-1] == pytest.approx(loss.worst_excess)
    assert loss.worst_excess > 0.5


def test_more_epochs_go_on_by_the_same_rule(tmp_path):
    def train(epochs):
        model = network()
        batches = loader(digits(300, 0), generator=torch.Generator().manual_seed(3))
        fit(model, HeldOutWeights(COUNTS), batches, adam(model), epochs=epochs, checkpoint=tmp_path / "run.pt")
        return torch.load(tmp_path / "run.plain.pt", weights_only=True)["training"]

    train(1)
    rounds = train(3)["rounds"]
    assert [row["score"] for row in rounds] == pytest.approx([row["mean_risk"] for row in rounds], rel=1e-6)


def test_a_loss_that_is_not_a_number_leaves_the_worst_case_unknown():
    loss = weights()
    loss.update_risks([0.1, math.nan, 0.2], [10, 10, 10])
    assert math.isnan(loss.worst_excess)


def test_small_differences_are_no_learning_by_heart():
    rows = noise(300, 0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for reference in (0.69, 0.72):
            loss, model = RobustLoss(COUNTS, confidence=1.0, reference_risks=[reference] * 2), nn.Linear(2, 2)
            options = {"epochs": 5, "held_out": [noise(300, 1)], "guard": False}
            fit(model, loss, loader(rows), torch.optim.SGD(model.parameters(), 0.1), **options)


# --- learning by heart -----------------------------------------------------------------------------------------


def test_learning_by_heart_is_said_of_weights_that_follow_training_risks():
    def rows(seed):
        # Labels that have nothing to do with forty inputs.
        generator = torch.Generator().manual_seed(seed)
        inputs, labels = torch.randn(300, 40, generator=generator), torch.randint(2, (300,), generator=generator)
        return inputs, labels, digits(300, 0)[2]

    def train(loss, model):
        batches, optimizer = loader(rows(0), shuffle=True), torch.optim.Adam(model.parameters(), 0.01)
        return fit(model, loss, batches, optimizer, epochs=20, held_out=[rows(1)], guard=False)

    torch.manual_seed(0)
    large, small = nn.Sequential(nn.Linear(40, 256), nn.ReLU(), nn.Linear(256, 2)), nn.Linear(40, 2)
    small.weight.data.zero_()
    with pytest.warns(LearntByHeartWarning, match="HeldOutWeights"):
        train(RobustLoss(COUNTS, confidence=1.0), copy.deepcopy(large))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        train(RobustLoss(COUNTS, confidence=1.0), small)
        history = train(HeldOutWeights(COUNTS, reference_risks=[0.6, 0.6]), large)
    assert history.rounds["training_excess"][-1] < history.rounds["worst_excess"][-1] - 0.1


# --- averaged parameters ---------------------------------------------------------------------------------------


def test_the_average_is_that_of_the_steps_and_is_what_is_kept():
    model = nn.Linear(2, 2)
    steps = []

    class Remembering(torch.optim.SGD):
        def step(self, closure=None):
            super().step(closure)
            steps.append(model.weight.detach().clone())

    start = model.weight.detach().clone()
    batches = loader(digits(300, 0))
    fit(model, ERMLoss(COUNTS), batches, Remembering(model.parameters(), 0.5), epochs=2, average=0.5, guard=False)
    mean = start
    for k, step in enumerate(steps, 1):
        kept = min(0.5, k / (9 + k))
        mean = kept * mean + (1 - kept) * step
    np.testing.assert_allclose(model.weight.detach(), mean, rtol=1e-5)


def test_numbers_that_are_not_floats_are_taken_as_they_are():
    model = nn.Sequential(nn.Linear(2, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
    held_out = [digits(100, 1)]
    fit(model, ERMLoss(COUNTS), loader(digits(300, 0)), adam(model), epochs=1, held_out=held_out, average=0.9)
    assert int(model[1].num_batches_tracked) == 5
