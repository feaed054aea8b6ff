"""Training by Lightning: every loss as it is, and held-out rounds by the callback."""

import copy

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

from counterpoise.exceptions import InvalidInputError  # noqa: E402
from counterpoise.torch import GroupDROLoss, HeldOutWeights, RobustLoss, context_risks, per_sample  # noqa: E402
from counterpoise.torch.lightning import HeldOutCallback  # noqa: E402
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
