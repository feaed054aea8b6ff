"""A last training on all samples: what it learns from, for how long, with which weights, and how it resumes."""

import copy
import math

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.utils.data import DataLoader, TensorDataset  # noqa: E402

from counterpoise.exceptions import CounterpoiseError, InvalidInputError  # noqa: E402
from counterpoise.torch import (  # noqa: E402
    ERMLoss,
    FixedWeights,
    GroupDROLoss,
    HeldOutWeights,
    InverseFrequencyLoss,
    RobustLoss,
    fit,
    zero_one,
)

COUNTS = np.array([120, 60, 20])
CODES = np.repeat([0, 1, 2], COUNTS)
OWN = np.array([[1.0, 0.0], [0.5, 0.5], [-0.5, 1.0]])


def data(n_times=1):
    rng = np.random.default_rng(0)
    codes = np.tile(CODES, n_times)
    X = rng.normal(size=(len(codes), 2))
    y = (np.einsum("nd,nd->n", X, OWN[codes]) + 0.3 * rng.normal(size=len(codes)) > 0).astype(np.int64)
    return torch.tensor(X).float(), torch.tensor(y), torch.tensor(codes)


def loader(rows=None, seed=1):
    generator = torch.Generator().manual_seed(seed)
    return DataLoader(TensorDataset(*(rows or data())), batch_size=40, shuffle=True, generator=generator)


def parts(lr=0.05):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 2))
    return model, torch.optim.Adam(model.parameters(), lr=lr)


def weights():
    return HeldOutWeights(COUNTS, reference_risks=[0.1, 0.1, 0.1], step_size=0.5)


def trained(loss, batches, **options):
    model, optimizer = parts()
    history = fit(model, loss, batches, optimizer, **{"epochs": 4, "guard": False, **options})
    return model, history


def same(one, other):
    for name, value in one.state_dict().items():
        torch.testing.assert_close(value, other.state_dict()[name], rtol=0.0, atol=0.0)


# --- what it is ---------------------------------------------------------------------------------------------------


def test_it_is_a_training_on_all_samples_with_the_mean_weights_and_the_epochs_that_were_kept():
    model, history = trained(weights(), loader())
    assert history.refit_epochs == max(1, round(history.rounds["epoch"][history.best_round]))
    mean = history.weights[: history.best_round + 1].mean(axis=0)
    batches = loader()
    again, _ = trained(
        FixedWeights(COUNTS, mean), batches, epochs=history.refit_epochs, average=1.0 - 1.0 / len(batches)
    )
    same(model, again)


def test_without_it_the_best_round_is_kept_and_the_history_is_the_same():
    model, history = trained(weights(), loader(), refit=False)
    other, longer = trained(weights(), loader())
    assert history.refit_epochs is None
    np.testing.assert_array_equal(history.risks, longer.risks)
    assert not torch.equal(model[0].weight, other[0].weight)


def test_a_plain_network_that_was_kept_is_trained_again_with_the_shares_of_the_data():
    """Contexts that are all alike have nothing to gain, so the guard keeps the plain network."""
    X, _, c = data()
    rows = X, (X[:, 0] > 0).long(), c
    model, history = trained(weights(), loader(rows), guard=True)
    assert history.chosen == "erm"
    batches = loader(rows)
    again, _ = trained(ERMLoss(COUNTS), batches, epochs=history.refit_epochs, average=1.0 - 1.0 / len(batches))
    same(model, again)


def test_any_loss_is_trained_again_where_a_share_is_held_out():
    _, history = trained(InverseFrequencyLoss(COUNTS), loader(), held_out=0.25)
    assert history.refit_epochs >= 1
    _, history = trained(InverseFrequencyLoss(COUNTS), loader())
    assert history.refit_epochs is None


def test_batches_of_all_samples_may_be_given():
    rows = data()
    every = torch.arange(len(CODES)) % 4 == 0
    judges, others = ([tuple(part[at] for part in rows)] for at in (every, ~every))
    model, history = trained(weights(), others, held_out=judges, refit=[rows])
    assert history.refit_epochs >= 1
    mean = history.weights[: history.best_round + 1].mean(axis=0)
    again, _ = trained(FixedWeights(COUNTS, mean), [rows], epochs=history.refit_epochs, average=0.0)
    same(model, again)


def test_a_refit_that_diverges_leaves_what_was_kept():
    rows = data()
    every = torch.arange(len(CODES)) % 4 == 0
    judges, others = ([tuple(part[at] for part in rows)] for at in (every, ~every))
    broken = [(rows[0] * math.nan, rows[1], rows[2])]
    kept, _ = trained(weights(), others, held_out=judges)
    model, optimizer = parts()
    options = {"epochs": 4, "guard": False, "held_out": judges}
    history = fit(model, weights(), others, optimizer, **options, refit=broken)
    assert history.refit_epochs is None
    same(model, kept)
    assert {int(state["step"]) for state in optimizer.state.values()} == {4}
    # An error of another kind is not swallowed, and loses nothing either.
    with pytest.raises(RuntimeError):
        fit(*(found := parts())[:1], weights(), others, found[1], **options, refit=[(rows[0][:, :1], *rows[1:])])
    same(found[0], kept)


@pytest.mark.parametrize("kind", [GroupDROLoss, RobustLoss])
def test_a_loss_that_learns_from_batches_begins_anew(kind):
    model, history = trained(kind(COUNTS), loader(), held_out=0.25)
    batches = loader()
    again, _ = trained(kind(COUNTS), batches, epochs=history.refit_epochs, average=1.0 - 1.0 / len(batches))
    same(model, again)


def test_held_out_samples_may_have_other_shares_than_the_rest():
    """What counts is how often a batch of all samples draws a context."""
    rows = data()
    others = [tuple(part[:150] for part in rows)]
    judges = [tuple(part[100:] for part in rows)]
    loss = HeldOutWeights([120, 30, 1], reference_risks=[0.1, 0.1, 0.1])
    model, history = trained(loss, others, held_out=judges, refit=[rows])
    mean = history.weights[: history.best_round + 1].mean(axis=0)
    same(model, trained(FixedWeights(COUNTS, mean), [rows], epochs=history.refit_epochs, average=0.0)[0])


def test_an_average_that_was_asked_for_is_that_of_the_last_training_and_has_buffers():
    def run(loss, **options):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(2, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 2))
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        cosine = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 4)
        return model, fit(model, loss, loader(), optimizer, scheduler=cosine, guard=False, average=0.5, **options)

    model, history = run(weights(), epochs=4)
    mean = history.weights[: history.best_round + 1].mean(axis=0)
    same(model, run(FixedWeights(COUNTS, mean), epochs=history.refit_epochs)[0])


def test_more_samples_are_worth_more():
    """Where data are scarce, a network that learns the held-out samples too is better on fresh ones, on average."""
    fresh = data(20)
    risks = {True: [], False: []}
    for seed in range(12):
        order = torch.randperm(len(fresh[0]), generator=torch.Generator().manual_seed(seed))
        few = tuple(part[order[:60]] for part in fresh)
        for refit, found in risks.items():
            model, _ = trained(InverseFrequencyLoss([36, 18, 6]), loader(few), epochs=20, held_out=0.4, refit=refit)
            with torch.no_grad():
                found.append(float(nn.functional.cross_entropy(model(fresh[0]), fresh[1])))
    assert np.mean(risks[True]) < np.mean(risks[False])


# --- checkpoints and errors ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("guard", [False, True])
def test_an_interrupted_refit_goes_on_to_the_same_network(tmp_path, guard):
    whole, history = trained(weights(), loader(), guard=guard, epochs=6)
    assert history.refit_epochs > 1

    def interrupted():
        batches, passes = loader(), []
        model, optimizer = parts()
        step = optimizer.step

        def counted(*given, **options):
            passes.append(None)
            if len(passes) > (12 if guard else 6) * 4 + 7:  # 4 batches of 150 samples; then the second of 5 of all
                raise KeyboardInterrupt
            return step(*given, **options)

        optimizer.step = counted
        with pytest.raises(KeyboardInterrupt):
            fit(model, weights(), batches, optimizer, epochs=6, guard=guard, checkpoint=tmp_path / "run.pt")

    interrupted()
    assert (tmp_path / "run.refit.pt").exists()
    model, found = trained(weights(), loader(), guard=guard, epochs=6, checkpoint=tmp_path / "run.pt")
    assert found.refit_epochs == history.refit_epochs
    same(model, whole)
    # A run that is over is not repeated, and one that is given more epochs is as if it had had them from the beginning.
    again, _ = trained(weights(), loader(), guard=guard, epochs=6, checkpoint=tmp_path / "run.pt")
    same(again, whole)
    longer, _ = trained(weights(), loader(), guard=guard, epochs=9, checkpoint=tmp_path / "run.pt")
    same(longer, trained(weights(), loader(), guard=guard, epochs=9)[0])


def test_what_a_deleted_run_has_left_over_is_not_taken_for_this_one(tmp_path):
    """Equal weights and as many epochs, but other samples."""
    path, X, y, c = tmp_path / "run.pt", *data()
    options = {"held_out": 0.25, "epochs": 1}
    trained(InverseFrequencyLoss(COUNTS), loader((X, 1 - y, c)), checkpoint=path, **options)
    path.unlink()
    model, _ = trained(InverseFrequencyLoss(COUNTS), loader(), checkpoint=path, **options)
    same(model, trained(InverseFrequencyLoss(COUNTS), loader(), **options)[0])


def test_what_cannot_be_asked_is_said():
    with pytest.raises(InvalidInputError, match="split nothing off"):
        trained(ERMLoss(COUNTS), loader(), refit=True)
    with pytest.raises(InvalidInputError, match="refit needs held_out"):
        trained(ERMLoss(COUNTS), loader(), refit=loader())
    for wrong in (1, iter(loader())):
        with pytest.raises(InvalidInputError, match="refit is"):
            trained(weights(), loader(), held_out=[data()], refit=wrong)


# --- weights that are given ---------------------------------------------------------------------------------------


def test_fixed_weights_are_scaled_saved_and_checked():
    loss = FixedWeights(COUNTS, [1.0, 1.0, 2.0])
    np.testing.assert_allclose(loss.context_weights, [0.25, 0.25, 0.5])
    np.testing.assert_allclose(FixedWeights(COUNTS).context_weights, COUNTS / COUNTS.sum())
    other = FixedWeights(COUNTS)
    other.load_state_dict(copy.deepcopy(loss.state_dict()))
    np.testing.assert_allclose(other.context_weights, loss.context_weights)
    for wrong in ([1.0, 1.0], [1.0, -1.0, 1.0], [0.0, 0.0, 0.0], [math.nan, 1.0, 1.0]):
        with pytest.raises(InvalidInputError, match="weights"):
            FixedWeights(COUNTS, wrong)


def test_equal_weights_are_inverse_frequency():
    one, _ = trained(FixedWeights(COUNTS, np.ones(3)), loader())
    other, _ = trained(InverseFrequencyLoss(COUNTS), loader())
    same(one, other)


# --- another loss to judge by -------------------------------------------------------------------------------------


def test_rounds_are_judged_by_the_error_of_the_worst_context_and_ties_by_the_mean_risk():
    _, history = trained(InverseFrequencyLoss(COUNTS), loader(), held_out=0.25, judged_by=zero_one, epochs=10)
    score, mean = history.rounds["score"], history.rounds["mean_risk"]
    held_out = COUNTS * 0.25
    errors = score[:, None] * held_out
    # The worst error is a whole number of samples of some context.
    assert (np.abs(errors - errors.round()).min(axis=1) < 1e-9).all()
    ties = np.flatnonzero(score == score.min())
    assert len(ties) > 1
    best = ties[mean[ties].argmin()]
    assert history.best_round == best
    np.testing.assert_array_equal(history.risks, history.held_out_risks[best])


def test_a_round_whose_judged_losses_are_no_numbers_is_not_the_best():
    def unknown(prediction, target):
        return torch.full((len(target),), math.nan)

    with pytest.raises(CounterpoiseError, match="diverged"):
        trained(ERMLoss(COUNTS), loader(), held_out=0.25, judged_by=unknown)


def test_zero_one_counts_wrong_classes():
    target = torch.tensor([0, 1, 1])
    scores = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]])
    assert zero_one(scores, target).tolist() == [0.0, 0.0, 1.0]
    assert zero_one(scores[:, 1:] - 0.5, target).tolist() == [0.0, 0.0, 1.0]
    assert zero_one(scores[:, 1] - 0.5, target).tolist() == [0.0, 0.0, 1.0]
    assert zero_one(scores[:, 1:] - 0.5, target[:, None].float()).tolist() == [0.0, 0.0, 1.0]
