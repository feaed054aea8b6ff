"""The guard: a plain network, trained in the same way, is kept unless the robust one is better on held-out rows."""

import threading

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.utils.data import DataLoader, RandomSampler, TensorDataset  # noqa: E402

from counterpoise import KLBall, Mix  # noqa: E402
from counterpoise.exceptions import InvalidInputError  # noqa: E402
from counterpoise.torch import (  # noqa: E402
    ContextBatchSampler,
    ERMLoss,
    GroupDROLoss,
    InverseFrequencyLoss,
    RobustLoss,
    context_risks,
    fit,
)

SHARES = (0.8, 0.2)
COUNTS = (240, 60)


def digits(n, seed, agreement=(0.9, 0.1)):
    """Return pixels of a shape and a colour, whether a digit is high, and contexts in which colours mean the opposite.

    The colour is the clearer sign of the two, and agrees with the label more often in the common context.
    """
    rng = np.random.default_rng(seed)
    contexts = np.repeat([0, 1], np.round(n * np.array(SHARES)).astype(int))
    high = rng.integers(2, size=n)
    colour = np.where(rng.random(n) < np.array(agreement)[contexts], high, 1 - high)
    pixels = np.column_stack([2 * high - 1 + rng.normal(size=n), 2 * colour - 1 + 0.1 * rng.normal(size=n)])
    return torch.tensor(pixels).float(), torch.tensor(high), torch.tensor(contexts)


def noise(n, seed):
    """Return pixels that say nothing, about labels whose share is the same everywhere."""
    return digits(n, seed, agreement=(0.5, 0.5))


ONE_EACH = [tuple(part[[0, -1]] for part in digits(300, 9))]
"""A row of each context: nothing can be judged, and the simpler network is kept."""


def network(dropout=0.0, seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Dropout(dropout), nn.Linear(8, 2))


def loader(rows, **options):
    return DataLoader(TensorDataset(*rows), batch_size=64, **options)


def trained(loss=None, rows=None, held_out=None, *, model=None, optimizer=None, batches=None, **options):
    """Train a small network; return it and its history."""
    model = model or network(0.2)
    optimizer = (optimizer or adam)(model)
    batches = batches or loader(digits(300, 0) if rows is None else rows, shuffle=True)
    loss = loss or RobustLoss(COUNTS, confidence=1.0)
    scheduler = options.pop("scheduler", lambda _: None)(optimizer)
    held_out = [digits(3000, 1)] if held_out is None else held_out
    torch.manual_seed(1)
    history = fit(model, loss, batches, optimizer, held_out=held_out, scheduler=scheduler, **({"epochs": 4} | options))
    return model, history, optimizer, scheduler


def adam(model):
    return torch.optim.Adam(model.parameters(), 0.02)


def same(one, other):
    """Tell whether two states are equal, bit by bit."""
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[name], other[name]) for name in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    return one == other


# --- what is kept --------------------------------------------------------------------------------------------

LOSSES = {
    "robust": lambda: RobustLoss(COUNTS, confidence=1.0),
    "group-dro": lambda: GroupDROLoss(COUNTS, step_size=0.5),
    "inverse-frequency": lambda: InverseFrequencyLoss(COUNTS),
}


@pytest.mark.parametrize("method", LOSSES)
def test_a_planted_shift_is_learnt_by_the_robust_network(method):
    model, history, *_ = trained(LOSSES[method](), epochs=20)
    assert history.chosen == method
    assert history.candidates["candidate"].tolist() == ["erm", method]
    assert f"{method} is kept" in history.candidates.note
    fresh = [digits(4000, 5)]
    plain, *_ = trained(ERMLoss(COUNTS), epochs=20)
    (ours, _), (theirs, _) = (context_risks(one, fresh, 2) for one in (model, plain))
    assert ours.max() < theirs.max() - 0.05


@pytest.mark.parametrize("method", LOSSES)
def test_the_plain_network_is_kept_where_there_is_nothing_to_gain(method):
    chosen = [
        trained(LOSSES[method](), noise(300, seed), [noise(500, 50 + seed)], epochs=3)[1].chosen for seed in range(5)
    ]
    assert chosen.count("erm") >= 4


def test_the_plain_network_is_kept_where_robust_training_does_harm():
    # Nearly all of the weight is on three rows, which the network learns by heart.
    rows = [torch.cat([part[:240], part[-3:]]) for part in noise(300, 0)]
    judged = {"rows": rows, "held_out": [noise(2000, 2)], "epochs": 20}
    guarded, alone = (
        trained(RobustLoss([240, 3], mix=Mix(bounds={1: (0.95, 1.0)}, ball=None)), guard=guard, **judged)[1]
        for guard in (True, False)
    )
    assert guarded.chosen == "erm"
    assert guarded.risks.max() < alone.risks.max()


def test_the_worst_case_is_that_of_the_losses_own_set():
    held_out = [digits(3000, 1)]
    narrow, wide = RobustLoss(COUNTS, radius=1e-3), RobustLoss(COUNTS, confidence=1.0)
    one, other = (trained(loss, held_out=held_out)[1] for loss in (narrow, wide))
    risks, shares = one.risks, np.array(SHARES)
    kept = one.candidates.where(candidate=one.chosen)["worst_case"][0]
    assert kept == pytest.approx(KLBall(shares, 1e-3).worst_case(risks).value, abs=0.02)
    assert other.candidates.where(candidate="erm")["worst_case"][0] > kept + 0.05


def test_scores_are_counted_from_the_references():
    references = [0.3, 0.05]
    history = trained(RobustLoss(COUNTS, confidence=1.0, reference_risks=references))[1]
    kept = history.candidates.where(candidate=history.chosen)["worst_case"][0]
    assert kept == pytest.approx((history.risks - references).max(), abs=0.02)


def test_contexts_without_held_out_rows_are_not_judged():
    rows = [part[:2500] for part in digits(3000, 1)]
    _, history, *_ = trained(RobustLoss((*COUNTS, 30), radius=0.5), held_out=[rows])
    assert np.isfinite(history.candidates["worst_case"]).all()
    unseen = RobustLoss(COUNTS, mix=Mix(shares={0: 0.7, 1: 0.2, 2: 0.1}, radius=0.3, unseen_risks={2: 0.2}))
    assert np.isfinite(trained(unseen)[1].candidates["worst_case"]).all()


def test_where_nothing_can_be_judged_the_plain_network_is_kept():
    _, history, *_ = trained(held_out=ONE_EACH)
    assert history.chosen == "erm"
    assert np.isnan(history.candidates["change"][1])


def test_a_plain_training_that_diverges_is_no_candidate(monkeypatch):
    monkeypatch.setattr(ERMLoss, "context_weights", property(lambda self: self.p_hat * torch.nan))
    model, history, *_ = trained()
    assert history.chosen == "robust"
    assert history.candidates["candidate"].tolist() == ["robust"]
    assert same(model.state_dict(), trained(guard=False)[0].state_dict())


@pytest.mark.parametrize(
    ("loss", "options"),
    [
        (lambda: ERMLoss(COUNTS), {}),
        (lambda: RobustLoss(COUNTS, radius=0.0), {}),
        (lambda: GroupDROLoss([300]), {}),
        (lambda: RobustLoss(COUNTS, radius=0.3), {"guard": False}),
    ],
    ids=["erm", "a set of one mix", "one context", "guard=False"],
)
def test_no_second_network_is_trained_for_nothing(loss, options):
    calls = []
    rows = (*digits(300, 0)[:2], torch.zeros(300, dtype=torch.int64)) if loss().n_contexts == 1 else digits(300, 0)
    batches = [rows]
    model = network()
    model.register_forward_hook(lambda *_: calls.append(model.training))
    _, history, *_ = trained(loss(), model=model, batches=batches, held_out=batches, epochs=3, **options)
    assert sum(calls) == 3
    assert history.chosen is None
    assert history.candidates is None


# --- the plain training --------------------------------------------------------------------------------------


def groups(model):
    """Return the parameters in two groups."""
    return [{"params": model[0].parameters()}, {"params": model[3].parameters(), "lr": 0.005, "weight_decay": 0.1}]


def after_some_steps(model):
    """Return an optimiser that has been used already."""
    optimizer = torch.optim.Adam(model.parameters(), 0.02, amsgrad=True)
    for _ in range(3):
        model(torch.ones(4, 2)).square().sum().backward()
        optimizer.step()
    return optimizer


OPTIMIZERS = {
    "adam": adam,
    "momentum": lambda model: torch.optim.SGD(model.parameters(), 0.05, momentum=0.9, nesterov=True),
    "groups": lambda model: torch.optim.AdamW(groups(model), 0.02),
    "fused": lambda model: torch.optim.Adam(model.parameters(), 0.02, fused=True),
    "a tensor as rate": lambda model: torch.optim.Adam(model.parameters(), torch.tensor(0.02), foreach=False),
    "used before": after_some_steps,
}
SCHEDULES = {
    "none": lambda _: None,
    "lambda": lambda optimizer: torch.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: 0.5**epoch),
    "plateau": lambda optimizer: torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0, threshold=0.2),
    "one cycle": lambda optimizer: torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.05, total_steps=20),
    "sequence": lambda optimizer: torch.optim.lr_scheduler.SequentialLR(
        optimizer,
        [torch.optim.lr_scheduler.LinearLR(optimizer, 0.1), torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)],
        [2],
    ),
}
WAYS = [
    ("adam", "none"),
    ("momentum", "lambda"),
    ("groups", "plateau"),
    ("fused", "one cycle"),
    ("a tensor as rate", "none"),
    ("used before", "sequence"),
    ("groups", "one cycle"),
]


@pytest.mark.parametrize(("optimizer", "scheduler"), WAYS)
def test_the_plain_network_is_that_of_a_plain_training(optimizer, scheduler):
    ways = {"optimizer": OPTIMIZERS[optimizer], "scheduler": SCHEDULES[scheduler], "held_out": ONE_EACH}
    model, history, trainer, rates = trained(**ways)
    assert history.chosen == "erm"
    plain, alone, *_ = trained(ERMLoss(COUNTS), **ways)
    assert same(model.state_dict(), plain.state_dict())
    assert history.best_epoch == alone.best_epoch
    assert history.risks.tolist() == alone.risks.tolist()
    robust, _, other, others_rates = trained(guard=False, **ways)
    assert not same(robust.state_dict(), plain.state_dict())
    assert same(trainer.state_dict(), other.state_dict())
    assert rates is None or same(rates.state_dict(), others_rates.state_dict())
    kept = [parameter for group in trainer.param_groups for parameter in group["params"]]
    assert all(parameter is own for parameter, own in zip(model.parameters(), kept, strict=True))


def sampled():
    return DataLoader(TensorDataset(*digits(300, 0)), batch_sampler=ContextBatchSampler(digits(300, 0)[2], 64))


def with_generator():
    return loader(digits(300, 0), shuffle=True, generator=torch.Generator().manual_seed(3))


def with_sampler_of_its_own():
    rows = TensorDataset(*digits(300, 0))
    return DataLoader(rows, 64, sampler=RandomSampler(rows, generator=torch.Generator().manual_seed(3)))


def shuffled():
    return loader(digits(300, 0), shuffle=True)


@pytest.mark.parametrize("batches", [shuffled, sampled, with_generator, with_sampler_of_its_own])
def test_the_robust_training_draws_what_it_would_without_a_guard(batches):
    left = []
    for guard in (True, False):
        given = batches()
        model, history, *_ = trained(batches=given, epochs=8, guard=guard)
        drawn = torch.cat([contexts for *_, contexts in given])
        left.append((model.state_dict(), [*history.epochs.values()], drawn, torch.rand(3)))
    assert history.chosen is None
    (ours, epochs, drawn, number), (alone, other_epochs, other_drawn, other_number) = left
    assert same(ours, alone)
    np.testing.assert_array_equal(epochs, other_epochs)
    assert torch.equal(drawn, other_drawn)
    assert torch.equal(number, other_number)


@pytest.mark.parametrize("batches", [sampled, with_generator, with_sampler_of_its_own])
def test_both_networks_see_the_same_batches(batches):
    given = batches()
    seen, model = [], network()
    model.register_forward_pre_hook(lambda net, inputs: seen.append(inputs[0]) if net.training else None)
    trained(model=model, batches=given, held_out=ONE_EACH)
    half = len(seen) // 2
    assert half == 4 * len(given)
    assert all(map(torch.equal, seen[:half], seen[half:]))


def test_held_out_batches_may_come_in_any_order():
    in_order, shuffled_ = (
        trained(held_out=loader(digits(1000, 1), shuffle=shuffle), batches=with_generator(), model=network())[1]
        for shuffle in (False, True)
    )
    assert in_order.chosen == shuffled_.chosen
    for name in ("worst_case", "change", "error"):
        np.testing.assert_allclose(in_order.candidates[name], shuffled_.candidates[name], rtol=0.02, atol=1e-3)


def test_the_same_call_makes_the_same_choice():
    (model, history, *_), (again, repeated, *_) = (trained(epochs=6) for _ in range(2))
    assert history.chosen == repeated.chosen
    assert same(model.state_dict(), again.state_dict())
    assert list(history.candidates.rows()) == list(repeated.candidates.rows())


def test_patience_holds_for_both():
    calls, model = [], network()
    model.register_forward_hook(lambda *_: calls.append(1) if model.training else None)
    batches = [digits(300, 0)]
    _, history, *_ = trained(
        model=model,
        batches=batches,
        held_out=batches,
        patience=1,
        epochs=50,
        optimizer=lambda m: torch.optim.SGD(m.parameters(), 5.0),
    )
    assert history.stopped_early
    assert len(calls) < 60


class Locked(nn.Sequential):
    """A network that cannot be copied."""

    def __init__(self, *layers):
        super().__init__(*layers)
        self.lock = threading.Lock()


@pytest.mark.parametrize("kind", ["cannot be copied", "compiled"])
def test_any_network_will_do(kind):
    inner = network()
    model = Locked(*inner) if kind == "cannot be copied" else torch.compile(inner, backend="eager")
    _, history, *_ = trained(model=model, held_out=ONE_EACH)
    assert history.chosen == "erm"
    plain = network()
    trained(ERMLoss(COUNTS), model=plain, held_out=ONE_EACH)
    assert same(inner.state_dict(), plain.state_dict())


@pytest.mark.parametrize("held_out", [None, ONE_EACH], ids=["robust", "erm"])
def test_parameters_beside_the_networks_are_those_of_the_one_kept(held_out):
    def run(loss, **options):
        temperature = nn.Parameter(torch.zeros(()))
        _, history, *_ = trained(
            loss,
            held_out=held_out,
            epochs=8,
            optimizer=lambda model: torch.optim.Adam([*model.parameters(), temperature], 0.02),
            row_loss=lambda z, y: nn.functional.cross_entropy(z * temperature.exp(), y, reduction="none"),
            **options,
        )
        return temperature.item(), history.chosen

    found, chosen = run(RobustLoss(COUNTS, confidence=1.0))
    assert chosen == ("robust" if held_out is None else "erm")
    assert found == run(RobustLoss(COUNTS, confidence=1.0) if held_out is None else ERMLoss(COUNTS), guard=False)[0]


# --- checkpoints ---------------------------------------------------------------------------------------------


class InterruptedRunError(Exception):
    """Somebody pulled the plug."""


def cut_after(epochs):
    """Return batches that end a run in the middle of an epoch: four are the robust training's, four the plain one's."""

    class Cut(DataLoader):
        passes = 0

        def __iter__(self):
            Cut.passes += 1
            for k, batch in enumerate(super().__iter__()):
                if epochs < Cut.passes and k == 2:
                    raise InterruptedRunError
                yield batch

    return Cut(TensorDataset(*digits(300, 0)), batch_size=64, shuffle=True)


@pytest.mark.parametrize(
    ("kept", "cut"), [("erm", 0), ("erm", 2), ("erm", 4), ("erm", 6), ("robust", 2), ("robust", 6)]
)
def test_a_resumed_run_is_an_undisturbed_one(tmp_path, cut, kept):
    options = {"held_out": ONE_EACH if kept == "erm" else None, "scheduler": SCHEDULES["lambda"]}
    if kept == "robust":
        options |= {"optimizer": lambda model: torch.optim.Adam(model.parameters(), 0.1)}
    expected, history, *_ = trained(**options)
    assert history.chosen == kept
    path = tmp_path / "run.pt"
    with pytest.raises(InterruptedRunError):
        trained(batches=cut_after(cut), checkpoint=path, **options)
    # Where training has begun, the start is that of the file.
    model, again, *_ = trained(model=network(0.2, seed=0 if cut == 0 else 7), checkpoint=path, **options)
    assert again.chosen == kept
    assert again.best_epoch == history.best_epoch
    for name in ("worst_case", "change", "error"):
        np.testing.assert_array_equal(again.candidates[name], history.candidates[name])
    assert same(model.state_dict(), expected.state_dict())
    assert sorted(file.name for file in tmp_path.iterdir()) == ["run.plain.pt", "run.pt"]


def test_more_epochs_are_added_to_both(tmp_path):
    path = tmp_path / "run.pt"
    trained(held_out=ONE_EACH, checkpoint=path, epochs=2)
    model, *_ = trained(held_out=ONE_EACH, checkpoint=path, epochs=5)
    assert same(model.state_dict(), trained(held_out=ONE_EACH, epochs=5)[0].state_dict())


def test_a_plain_checkpoint_that_was_left_over_is_not_used(tmp_path):
    path = tmp_path / "run.pt"
    trained(model=network(0.2, seed=7), held_out=ONE_EACH, checkpoint=path)
    path.unlink()
    model, *_ = trained(held_out=ONE_EACH, checkpoint=path)
    assert same(model.state_dict(), trained(held_out=ONE_EACH)[0].state_dict())


def test_a_broken_plain_checkpoint_is_named_and_the_robust_network_kept(tmp_path):
    path = tmp_path / "run.pt"
    trained(held_out=ONE_EACH, checkpoint=path)
    (tmp_path / "run.plain.pt").write_text("no checkpoint")
    model = network(0.2)
    with pytest.raises(InvalidInputError, match=r"run\.plain\.pt is no checkpoint"):
        trained(model=model, held_out=ONE_EACH, checkpoint=path)
    assert same(model.state_dict(), trained(held_out=ONE_EACH, guard=False)[0].state_dict())


def test_a_run_that_began_without_a_guard_may_go_on_with_one(tmp_path):
    path = tmp_path / "run.pt"
    trained(held_out=ONE_EACH, checkpoint=path, epochs=2, guard=False)
    model, history, *_ = trained(held_out=ONE_EACH, checkpoint=path)
    assert history.chosen == "erm"
    assert same(model.state_dict(), trained(ERMLoss(COUNTS), held_out=ONE_EACH)[0].state_dict())
