"""Nets of skorch: any loss over contexts as their criterion, and held-out rounds by the callback."""

import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

torch = pytest.importorskip("torch")
pytest.importorskip("skorch")

from skorch.callbacks import EarlyStopping  # noqa: E402
from skorch.dataset import Dataset  # noqa: E402
from skorch.helper import SliceDict, predefined_split  # noqa: E402

from counterpoise.exceptions import InvalidInputError  # noqa: E402
from counterpoise.torch import (  # noqa: E402
    ERMLoss,
    GroupDROLoss,
    HeldOutWeights,
    InverseFrequencyLoss,
    RobustLoss,
    per_sample,
)
from counterpoise.torch.skorch import ContextNetClassifier, ContextNetRegressor, HeldOutCallback  # noqa: E402
from tests.torch_.held_out import HeldOutStandIn, rows  # noqa: E402


class Module(torch.nn.Module):
    def __init__(self, width=8, outputs=2):
        super().__init__()
        self.body = torch.nn.Sequential(
            torch.nn.Linear(4, width), torch.nn.Dropout(0.2), torch.nn.Tanh(), torch.nn.Linear(width, outputs)
        )

    def forward(self, pixels):
        return self.body(pixels)


class TwoInputs(Module):
    def forward(self, left, right):
        return self.body(torch.cat([left, right], 1))


def net(criterion=RobustLoss, *, kind=ContextNetClassifier, **options):
    torch.manual_seed(0)
    defaults = {"module": Module, "lr": 0.1, "max_epochs": 3, "batch_size": 16, "verbose": 0}
    return kind(criterion=criterion, **(defaults | options))


def held_out(n=48, seed=1):
    X, y, contexts = rows(n, seed)
    return Dataset({"x": X, "contexts": contexts}, y)


# --- any loss ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("criterion", [ERMLoss, InverseFrequencyLoss, GroupDROLoss, RobustLoss, HeldOutStandIn])
def test_any_loss_is_a_criterion(criterion):
    X, y, contexts = rows(80)
    model = net(criterion).fit(X, y, contexts=contexts)
    assert isinstance(model.criterion_, criterion)
    assert model.criterion_.counts.tolist() == np.bincount(contexts).tolist()
    assert np.isfinite(model.history[:, "train_loss"]).all()
    assert np.isfinite(model.history[:, "valid_loss"]).all()
    np.testing.assert_allclose(model.predict_proba(X).sum(axis=1), 1.0, rtol=1e-5)
    assert model.score(X, y) > 0.4


def test_the_loss_of_a_batch_is_the_criterion():
    X, y, contexts = rows(16)
    model = net(RobustLoss, criterion__radius=0.3, train_split=None, max_epochs=1, module=Module())
    start = pickle.loads(pickle.dumps(model.module))
    for part in (model.module.body, start.body):
        part[1].p = 0.0
    model.fit(X, y, contexts=contexts)
    expected = RobustLoss(np.bincount(contexts), radius=0.3)
    value = expected(per_sample(start(torch.tensor(X)), torch.tensor(y)), torch.tensor(contexts))
    assert model.history[-1, "train_loss"] == pytest.approx(value.item(), rel=1e-6)
    np.testing.assert_allclose(model.criterion_.context_weights, expected.context_weights, rtol=1e-6)


@pytest.mark.parametrize("kind", [dict, SliceDict])
def test_contexts_may_be_a_part_of_x(kind):
    X, y, contexts = rows(80)
    beside = net().fit(X, y, contexts=contexts)
    within = net().fit(kind(x=X, contexts=contexts), y)
    np.testing.assert_array_equal(within.predict_proba(X), beside.predict_proba(X))
    np.testing.assert_array_equal(within.predict_proba(kind(x=X, contexts=contexts)), beside.predict_proba(X))


def test_a_module_of_several_inputs():
    X, y, contexts = rows(80)
    parts = {"left": X[:, :1], "right": X[:, 1:]}
    model = net(module=TwoInputs).fit(parts, y, contexts=contexts)
    assert model.predict(parts).shape == (80,)


def test_regression():
    X, _, contexts = rows(80)
    y = X[:, :1] * 2.0
    model = net(kind=ContextNetRegressor, module__outputs=1).fit(X, y, contexts=contexts)
    assert model.predict(X).shape == (80, 1)
    assert model.history[-1, "train_loss"] < model.history[0, "train_loss"]


def test_training_goes_on():
    X, y, contexts = rows(80)
    model = net().partial_fit(X, y, contexts=contexts)
    before = model.criterion_.context_weights.clone()
    model.partial_fit(X, y, contexts=contexts)
    assert len(model.history) == 6
    assert not torch.equal(before, model.criterion_.context_weights)


def test_contexts_that_are_missing_or_labels_are_named():
    X, y, contexts = rows(80)
    with pytest.raises(InvalidInputError, match="contexts are missing"):
        net(criterion__counts=[5, 5, 5]).fit(X, y)
    with pytest.raises(InvalidInputError, match="return_inverse"):
        net().fit(X, y, contexts=contexts.astype(str))


# --- as an estimator -----------------------------------------------------------------------------------------


def test_a_search_splits_contexts_with_the_rows():
    X, y, contexts = rows(90)
    search = GridSearchCV(
        net(callbacks=[("rounds", HeldOutCallback(every=1.0))], criterion=HeldOutStandIn),
        {"criterion__strength": [0.1, 0.9], "callbacks__rounds__every": [1.0, 2]},
        cv=2,
        refit=True,
    )
    search.fit(X, y, contexts=contexts)
    assert search.best_estimator_.criterion_.strength == search.best_params_["criterion__strength"]
    assert search.best_estimator_.criterion_.counts.sum() == 90
    assert search.predict(X).shape == (90,)


def test_clones_and_pickles():
    X, y, contexts = rows(80)
    model = net(HeldOutStandIn, callbacks=[HeldOutCallback(every=2)], criterion__strength=0.3)
    twin = clone(model)
    assert twin.get_params()["criterion__strength"] == 0.3
    torch.manual_seed(0)
    model.fit(X, y, contexts=contexts)
    torch.manual_seed(0)
    twin.fit(X, y, contexts=contexts)
    np.testing.assert_array_equal(model.predict_proba(X), twin.predict_proba(X))
    assert clone(model).get_params().keys() == clone(twin).get_params().keys()
    loaded = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(model.predict_proba(X), loaded.predict_proba(X))
    assert torch.equal(loaded.criterion_.mix, model.criterion_.mix)
    torch.manual_seed(1)
    model.partial_fit(X, y, contexts=contexts)
    torch.manual_seed(1)
    loaded.partial_fit(X, y, contexts=contexts)
    np.testing.assert_array_equal(model.predict_proba(X), loaded.predict_proba(X))


def test_saved_parameters_hold_the_state_of_the_loss(tmp_path):
    X, y, contexts = rows(80)
    model = net(HeldOutStandIn, callbacks=[HeldOutCallback(every=2)]).fit(X, y, contexts=contexts)
    model.save_params(f_params=tmp_path / "module.pt", f_criterion=tmp_path / "criterion.pt")
    other = net(HeldOutStandIn, criterion__counts=np.bincount(contexts)).initialize()
    other.load_params(f_params=tmp_path / "module.pt", f_criterion=tmp_path / "criterion.pt")
    assert torch.equal(other.criterion_.mix, model.criterion_.mix)


# --- held-out rounds -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("own", [True, False], ids=["validation rows", "other rows"])
def test_held_out_losses_reach_the_loss_as_often_as_asked(own):
    X, y, contexts = rows(80)
    callback = HeldOutCallback(None if own else held_out(), every=0.5, restore_best=False)
    model = net(HeldOutStandIn, callbacks=[("rounds", callback)], batch_size=8).fit(X, y, contexts=contexts)
    found = model.criterion_.rounds
    assert [one["rows"] for one in found] == [16 if own else 48] * 6
    assert model.history[:, "worst_excess"] == [one["worst"] for one in found[1::2]]


def test_training_ends_with_the_best_round():
    X, y, contexts = rows(80)
    data = held_out()
    model = net(HeldOutStandIn, callbacks=[("rounds", HeldOutCallback(data, every=2))], max_epochs=15, lr=2.0)
    model.fit(X, y, contexts=contexts)
    worst = [one["worst"] for one in model.criterion_.rounds]
    rounds = dict(model.callbacks_)["rounds"].rounds_
    assert rounds.best_round == worst.index(min(worst)) < len(worst) - 1
    losses = per_sample(model.forward(data.X), torch.tensor(data.y)).numpy()
    risks = [losses[data.X["contexts"] == c].mean() for c in range(3)]
    assert max(risks) == pytest.approx(min(worst), rel=1e-5)


def test_held_out_weights_follow_the_held_out_rows():
    X, y, contexts = rows(80)
    data = held_out()
    model = net(HeldOutWeights, criterion__radius=0.3, callbacks=[("rounds", HeldOutCallback(data, every=1))])
    model.fit(X, y, contexts=contexts)
    losses = per_sample(model.forward(data.X), torch.tensor(data.y)).numpy()
    risks = [losses[data.X["contexts"] == c].mean() for c in range(3)]
    worst = model.criterion_.mixes.worst_case(risks).value
    assert worst == pytest.approx(dict(model.callbacks_)["rounds"].rounds_.best_excess, rel=1e-5)
    assert model.history[-1, "worst_excess"] == pytest.approx(model.criterion_.worst_excess)
    assert model.criterion_.held_out_counts.sum() == 48


def test_the_worst_excess_stops_training():
    X, y, contexts = rows(80)
    callbacks = [HeldOutCallback(every=1.0), EarlyStopping("worst_excess", patience=2, sink=lambda _: None)]
    model = net(HeldOutStandIn, callbacks=callbacks, max_epochs=60, lr=2.0)
    model.fit(X, y, contexts=contexts)
    assert len(model.history) < 60


def test_what_a_round_lacks_is_named():
    X, y, contexts = rows(80)
    with pytest.raises(InvalidInputError, match="no rows are held out"):
        net(HeldOutStandIn, callbacks=[HeldOutCallback()], train_split=None).fit(X, y, contexts=contexts)
    with pytest.raises(InvalidInputError, match="criterion is RobustLoss"):
        net(callbacks=[HeldOutCallback()]).fit(X, y, contexts=contexts)
    without = predefined_split(Dataset(*rows(20)[:2]))
    with pytest.raises(InvalidInputError, match="contexts are missing"):
        net(HeldOutStandIn, callbacks=[HeldOutCallback()], train_split=without).fit(X, y, contexts=contexts)
