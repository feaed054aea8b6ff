"""Training by Lightning: every loss as it is, and held-out rounds by the callback."""

import copy
import itertools

import pytest

torch = pytest.importorskip("torch")

# A test has few rows; and Lightning asks torch something in a way that this will drop.
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*does not have many workers:UserWarning"),
    pytest.mark.filterwarnings("ignore:`isinstance.treespec, LeafSpec.` is deprecated:FutureWarning"),
]

pytest.importorskip("lightning")

from lightning.pytorch import LightningModule, Trainer, seed_everything  # noqa: E402
from lightning.pytorch.callbacks import Callback, ModelCheckpoint  # noqa: E402
from torch.utils.data import DataLoader, TensorDataset  # noqa: E402

from counterpoise.exceptions import CounterpoiseWarning, InvalidInputError  # noqa: E402
from counterpoise.torch import (  # noqa: E402
    GroupDROLoss,
    HeldOutWeights,
    MixtureController,
    MixtureStream,
    RobustLoss,
    context_risks,
    next_token_loss,
    per_sample,
)
from counterpoise.torch.lightning import HeldOutCallback, MixtureCallback  # noqa: E402
from tests.torch_.held_out import HeldOutStandIn, rows  # noqa: E402

COUNTS = [60, 30, 10]


class Net(LightningModule):
    def __init__(self, loss, beside=False):
        super().__init__()
        torch.manual_seed(0)
        self.body = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(0.2), torch.nn.Linear(8, 2))
        self.frozen = torch.nn.BatchNorm1d(4)
        if beside:
            # Lightning would take an attribute for a part of the module.
            self.__dict__["loss"] = loss
        else:
            self.loss = loss

    def on_train_start(self):
        self.frozen.eval()

    def forward(self, x):
        return self.body(x)

    def training_step(self, batch, _):
        assert self.body.training
        x, y, contexts = batch
        return self.loss(per_sample(self(x), y), contexts)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), 1e-2)


def loader(n=64, seed=0, size=8):
    return DataLoader(TensorDataset(*map(torch.tensor, rows(n, seed))), batch_size=size)


def trainer(folder, *callbacks, epochs=2, **options):
    return Trainer(
        max_epochs=epochs,
        accelerator="cpu",
        devices=1,
        callbacks=list(callbacks),
        default_root_dir=folder,
        enable_progress_bar=False,
        enable_model_summary=False,
        logger=False,
        **({"enable_checkpointing": any(isinstance(one, ModelCheckpoint) for one in callbacks)} | options),
    )


@pytest.mark.parametrize("loss", [RobustLoss(COUNTS, radius=0.2), GroupDROLoss(COUNTS)], ids=lambda loss: loss.method)
def test_a_loss_needs_nothing_and_goes_on_from_a_checkpoint(loss, tmp_path):
    whole, parts = Net(copy.deepcopy(loss)), Net(copy.deepcopy(loss))
    seed_everything(0, verbose=False)
    trainer(tmp_path, epochs=3).fit(whole, loader())
    seed_everything(0, verbose=False)
    first = trainer(tmp_path, epochs=2)
    first.fit(parts, loader())
    first.save_checkpoint(tmp_path / "run.ckpt")
    state = torch.random.get_rng_state()
    again = Net(copy.deepcopy(loss))
    torch.random.set_rng_state(state)
    trainer(tmp_path, epochs=3).fit(again, loader(), ckpt_path=tmp_path / "run.ckpt", weights_only=True)
    for name, value in whole.state_dict().items():
        assert torch.equal(again.state_dict()[name], value), name
    assert not torch.equal(whole.loss.context_weights, copy.deepcopy(loss).context_weights)


@pytest.mark.parametrize("beside", [False, True], ids=["attribute", "object"])
def test_held_out_losses_reach_the_loss_as_often_as_asked(beside, tmp_path):
    loss = HeldOutStandIn(COUNTS)
    net, held_out = Net(loss, beside), loader(48, seed=1)
    callback = HeldOutCallback(loss if beside else "loss", held_out, every=0.25, restore_best=False)
    run = trainer(tmp_path, callback, epochs=2)
    run.fit(net, loader())
    assert [one["rows"] for one in loss.rounds] == [48] * 8
    assert callback.rounds.n_rounds == 8
    assert run.callback_metrics["worst_excess"].item() == pytest.approx(loss.worst_excess)
    assert net.body.training
    assert not net.frozen.training
    # The last round came after the last batch, in evaluation mode.
    assert loss.worst_excess == pytest.approx(context_risks(net, held_out, 3)[0].max(), rel=1e-5)


def test_training_ends_with_the_best_round(tmp_path):
    loss, held_out = HeldOutStandIn(COUNTS), loader(48, seed=1)
    net = Net(loss)
    callback = HeldOutCallback("loss", held_out, every=2)
    trainer(tmp_path, callback, epochs=6).fit(net, loader())
    worst = [one["worst"] for one in loss.rounds]
    assert callback.rounds.best_round == worst.index(min(worst)) < len(worst) - 1
    assert context_risks(net, held_out, 3)[0].max() == pytest.approx(min(worst), rel=1e-5)


def test_held_out_weights_follow_the_held_out_rows(tmp_path):
    loss, held_out = HeldOutWeights(COUNTS, radius=0.3), loader(48, seed=1)
    net, callback = Net(loss), HeldOutCallback("loss", held_out, every=0.5)
    before = loss.context_weights.clone()
    run = trainer(tmp_path, callback, epochs=3)
    run.fit(net, loader())
    assert callback.rounds.n_rounds == 6
    assert not torch.equal(loss.context_weights, before)
    assert run.callback_metrics["worst_excess"].item() == pytest.approx(loss.worst_excess)
    risks = context_risks(net, held_out, 3)[0]
    assert loss.mixes.worst_case(risks).value == pytest.approx(callback.rounds.best_excess, rel=1e-5)


def test_worst_excess_chooses_checkpoints(tmp_path):
    chosen = ModelCheckpoint(tmp_path, "best", monitor="worst_excess", every_n_train_steps=4)
    loss = HeldOutStandIn(COUNTS)
    trainer(tmp_path, HeldOutCallback("loss", loader(48, seed=1), every=4), chosen).fit(Net(loss), loader())
    assert chosen.best_model_score.item() == pytest.approx(min(one["worst"] for one in loss.rounds))


class SaveEveryEpoch(Callback):
    """Writes a checkpoint before training ends with the best round's parameters."""

    def __init__(self, path):
        self.path = path

    def on_train_epoch_end(self, trainer, pl_module):
        trainer.save_checkpoint(self.path)


@pytest.mark.parametrize("beside", [False, True], ids=["attribute", "object"])
def test_rounds_go_on_from_a_checkpoint(beside, tmp_path):
    def start(epochs):
        loss = HeldOutStandIn(COUNTS)
        callback = HeldOutCallback(loss if beside else "loss", loader(48, seed=1), every=3)
        return Net(loss, beside), callback, trainer(tmp_path, callback, SaveEveryEpoch(path), epochs=epochs)

    path = tmp_path / "run.ckpt"
    whole, callback, run = start(3)
    seed_everything(0, verbose=False)
    run.fit(whole, loader())
    parts, _, run = start(2)
    seed_everything(0, verbose=False)
    run.fit(parts, loader())
    state = torch.random.get_rng_state()
    again, resumed, run = start(3)
    torch.random.set_rng_state(state)
    run.fit(again, loader(), ckpt_path=path, weights_only=True)
    assert resumed.rounds.n_rounds == callback.rounds.n_rounds == 8
    assert resumed.rounds.best_round == callback.rounds.best_round
    for name, value in whole.state_dict().items():
        assert torch.equal(again.state_dict()[name], value), name
    assert torch.equal(again.loss.mix, whole.loss.mix)


def test_a_round_is_predicted_with_the_precision_of_training(tmp_path):
    loss = HeldOutStandIn(COUNTS)
    seen = []

    def row_loss(prediction, target):
        seen.append(prediction.dtype)
        return per_sample(prediction.float(), target)

    callback = HeldOutCallback("loss", loader(48, seed=1), row_loss=row_loss, every=4)
    trainer(tmp_path, callback, epochs=1, precision="bf16-mixed").fit(Net(loss), loader())
    assert set(seen) == {torch.bfloat16}


@pytest.mark.parametrize(
    ("loss", "words"),
    [("other", "Net has no attribute 'other'"), ("loss", "Net.loss is RobustLoss, which takes no held-out losses")],
)
def test_a_loss_that_is_not_meant_is_named_before_training(loss, words, tmp_path):
    with pytest.raises(InvalidInputError, match=words):
        trainer(tmp_path, HeldOutCallback(loss, loader())).fit(Net(RobustLoss(COUNTS)), loader())


# --- sources of text --------------------------------------------------------------------------------------------

SOURCES = {"regular": 20, "noise": 9, "constant": 30}
WORDS, SIZE = 7, 4


def text(name, n, seed):
    generator = torch.Generator().manual_seed(seed)
    if name == "noise":
        return torch.randint(WORDS, (n, 6), generator=generator)
    step = 1 if name == "regular" else 0
    return (torch.randint(WORDS, (n, 1), generator=generator) + step * torch.arange(6)) % WORDS


class Words(LightningModule):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.body = torch.nn.Sequential(torch.nn.Embedding(WORDS, 8), torch.nn.Dropout(0.2), torch.nn.Linear(8, WORDS))
        self.seen = []

    def forward(self, tokens):
        return self.body(tokens)

    def training_step(self, batch, _):
        self.seen.append(batch.clone())
        total, number = next_token_loss(self, batch)
        return total / number

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), 1e-2)


def mixture(workers=0, every=3, budget=None, **options):
    controller = MixtureController({name: 1e6 * n for name, n in SOURCES.items()}, radius=1.0, budget=budget)
    sources = {name: list(text(name, n, 1)) for name, n in SOURCES.items()}
    stream = MixtureStream(sources, controller, **({"batch_size": SIZE, "seed": 4} | options))
    held_out = {name: [text(name, 8, 2)] for name in SOURCES}
    return MixtureCallback(controller, stream, held_out, every=every), DataLoader(stream, SIZE, num_workers=workers)


@pytest.mark.parametrize("per_epoch", [None, 5], ids=["one epoch", "epochs"])
@pytest.mark.parametrize("workers", [0, 1])
def test_a_mixture_follows_held_out_text(per_epoch, workers, tmp_path):
    net, (callback, batches) = Words(), mixture(workers)
    epochs = {"max_steps": 12, "limit_train_batches": per_epoch}
    run = trainer(tmp_path, callback, epochs=None if per_epoch is None else -1, **epochs)
    run.fit(net, batches)
    rounds = callback.rounds
    assert rounds.controller.history["at"].tolist() == [3.0, 6.0, 9.0, 12.0]
    assert run.callback_metrics["share/noise"].item() == pytest.approx(rounds.controller.shares["noise"])
    assert run.callback_metrics["worst_excess"].item() == pytest.approx(rounds.controller.worst_excess)
    assert net.training
    # Nothing is read twice or left out where an epoch ends.
    assert rounds.consumed == rounds.stream.start == 12 * SIZE
    rounds.stream.start = 0
    seen = torch.cat(net.seen)
    assert torch.equal(seen, torch.stack(list(itertools.islice(rounds.stream, len(seen)))))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"epochs": 1, "limit_train_batches": 2}, "ends after 2 steps, before shares move"),
        ({"epochs": 2, "max_steps": 1, "accumulate_grad_batches": 2}, "ends after 2 steps, before shares move"),
        ({"epochs": 1, "max_time": {"seconds": 1}}, "no last step, as the stream has no end. Pass max_steps"),
    ],
)
def test_training_that_ends_too_early_or_never_is_named(options, words, tmp_path):
    callback, batches = mixture()
    with pytest.warns(CounterpoiseWarning, match=words):
        trainer(tmp_path, callback, **options).fit(Words(), batches)


@pytest.mark.filterwarnings("ignore:.*resuming from a checkpoint that ended before the epoch ended:UserWarning")
def test_training_that_goes_as_it_is_meant_is_not_warned_of(tmp_path):
    """Other warnings are errors in tests."""
    callback, batches = mixture()
    trainer(tmp_path, callback, fast_dev_run=True).fit(Words(), batches)
    options = {"epochs": 2, "limit_train_batches": 6}
    exact = 12 * SIZE * 6
    for begun, path in ((False, None), (True, tmp_path / "run.ckpt")):
        callback, batches = mixture(budget=exact)
        stopped = StoppedAt(8, tmp_path / "run.ckpt")
        stopped.kept = torch.random.get_rng_state()
        stopped.goes_on = begun
        trainer(tmp_path, callback, stopped, **options).fit(Words(), batches, ckpt_path=path, weights_only=True)
        assert callback.rounds.consumed == 12 * SIZE
    callback, batches = mixture(budget=exact)
    with pytest.warns(CounterpoiseWarning, match=f"reads {18 * SIZE * 6} tokens"):
        trainer(tmp_path, callback, **(options | {"epochs": 3})).fit(
            Words(), batches, ckpt_path=tmp_path / "run.ckpt", weights_only=True
        )


@pytest.mark.parametrize(("several", "words"), [(True, "other data than the stream"), (False, "has no batch_size")])
def test_what_is_not_one_loader_of_batches_is_named(several, words, tmp_path):
    callback, batches = mixture()
    given = {"one": batches, "other": batches} if several else DataLoader(batches.dataset, batch_size=None)
    with pytest.raises(InvalidInputError, match=words):
        trainer(tmp_path, callback, epochs=None, max_steps=2).fit(Words(), given)


def test_a_mixture_is_judged_with_the_precision_of_training(tmp_path):
    callback, batches = mixture()
    seen = []

    def batch_loss(model, batch):
        seen.append(model(batch).dtype)
        return next_token_loss(model, batch)

    callback.rounds.batch_loss = batch_loss
    trainer(tmp_path, callback, epochs=None, max_steps=4, precision="bf16-mixed").fit(Words(), batches)
    assert set(seen) == {torch.bfloat16}


@pytest.mark.filterwarnings("ignore:.*resuming from a checkpoint that ended before the epoch ended:UserWarning")
@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("stop", [5, 6])
def test_a_mixture_goes_on_from_a_checkpoint(stop, workers, tmp_path):
    whole, (callback, batches) = Words(), mixture(workers)
    stopped = StoppedAt(stop, tmp_path / "run.ckpt")
    trainer(tmp_path, callback, stopped, epochs=None, max_steps=12).fit(whole, batches)
    again, (resumed, batches) = Words(), mixture(workers)
    stopped.goes_on = True
    run = trainer(tmp_path, resumed, stopped, epochs=None, max_steps=12)
    run.fit(again, batches, ckpt_path=stopped.path, weights_only=True)
    assert resumed.state_dict() == callback.state_dict()
    for one, other in zip(whole.seen[stop:], again.seen, strict=True):
        assert torch.equal(one, other)
    assert all(torch.equal(value, again.state_dict()[name]) for name, value in whole.state_dict().items())


class StoppedAt(Callback):
    """Saves a checkpoint after a step, and what Lightning does not: where random numbers were."""

    def __init__(self, step, path):
        self.step, self.path, self.goes_on = step, path, False

    def on_train_batch_end(self, trainer, *_):
        if trainer.global_step == self.step:
            trainer.save_checkpoint(self.path)

    def on_train_batch_start(self, trainer, *_):
        if trainer.global_step == self.step:
            if self.goes_on:
                torch.random.set_rng_state(self.kept)
            self.kept = torch.random.get_rng_state()


@pytest.mark.parametrize(
    ("options", "words"),
    [({"world_size": 2}, "world_size=2, and 1 is right"), ({"batch_size": 1, "workers": 1}, "batch_size=4")],
)
def test_a_stream_that_is_divided_otherwise_is_named(options, words, tmp_path):
    callback, batches = mixture(**options)
    with pytest.raises(InvalidInputError, match=words):
        trainer(tmp_path, callback, epochs=None, max_steps=2).fit(Words(), batches)


def test_a_process_that_reads_as_another_one_does_is_named():
    callback, batches = mixture(world_size=2, rank=0)
    callback.rounds.check(batches, 0, 2)
    with pytest.raises(InvalidInputError, match="rank=0 in the process of rank 1"):
        callback.rounds.check(batches, 1, 2)
