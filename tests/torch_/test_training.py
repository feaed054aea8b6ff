"""The loop: it learns, stops and resumes as it says; and losses that are not convex come to rest where they should."""

import copy
import math

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.utils.data import DataLoader, TensorDataset  # noqa: E402

import counterpoise as cpo  # noqa: E402
from counterpoise import KLBall  # noqa: E402
from counterpoise.exceptions import CounterpoiseError, InvalidInputError  # noqa: E402
from counterpoise.torch import (  # noqa: E402
    ContextBatchSampler,
    ERMLoss,
    RobustLoss,
    context_risks,
    fit,
    per_sample,
)

COUNTS = np.array([120, 60, 20])
CODES = np.repeat([0, 1, 2], COUNTS)


def data(seed=0, noise=0.1):
    """Return rows of three contexts, each with a slope of its own."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(len(CODES), 2))
    own = np.array([[1.0, 0.0], [0.5, 0.5], [-0.5, 1.0]])
    y = np.einsum("nd,nd->n", X, own[CODES]) + noise * rng.normal(size=len(CODES))
    return torch.tensor(X).float(), torch.tensor(y).float(), torch.tensor(CODES)


def parts(loss=None, lr=0.05, dropout=0.0, kind=torch.optim.Adam):
    """Return a model, a loss and an optimiser, always the same ones."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Dropout(dropout), nn.Linear(4, 1))
    return model, loss or RobustLoss(COUNTS, radius=0.3), kind(model.parameters(), lr=lr)


def shuffled(**options):
    return DataLoader(TensorDataset(*data()), batch_size=32, shuffle=True, **options)


def with_sampler():
    return DataLoader(TensorDataset(*data()), batch_sampler=ContextBatchSampler(CODES, 32, seed=3))


class Scripted(nn.Module):
    """A model whose held-out losses are written down beforehand, epoch by epoch; it knows how often it was trained."""

    def __init__(self, script):
        super().__init__()
        self.script = script
        self.age = nn.Parameter(torch.zeros(()))
        self.register_buffer("epochs", torch.zeros(()))

    def forward(self, x):
        if self.training:
            self.epochs += 1
            return self.age + x
        return torch.tensor(self.script[int(self.epochs) - 1]) + 0.0 * x


def run_script(script, references=None, **options):
    """Train a scripted model on one batch per epoch; row losses are the predictions themselves."""
    model = Scripted(script)
    loss = RobustLoss([1, 1], radius=0.1, reference_risks=references)
    rows = [(torch.zeros(2), torch.zeros(2), torch.tensor([0, 1]))]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    history = fit(
        model,
        loss,
        rows,
        optimizer,
        held_out=rows,
        row_loss=lambda z, y: z + 0.0 * y,
        guard=False,
        **({"epochs": len(script)} | options),
    )
    return model, history


# --- learning ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("update", ["closed-form", "ascent"])
def test_learns_what_the_certified_solver_finds(update):
    X, y, codes = data(noise=0.3)
    exact = cpo.RobustLinearRegression(radius=0.2, criterion="risk", alpha=0.0).fit(
        X.numpy(), y.numpy(), contexts=CODES
    )
    torch.manual_seed(0)
    model = nn.Linear(2, 1).double()
    loss = RobustLoss(COUNTS, radius=0.2, update=update, step_size=0.02, averaging=1.0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    fit(model, loss, [(X.double(), y.double(), codes)], optimizer, epochs=800)
    np.testing.assert_allclose(model.weight.detach().numpy()[0], exact.coef_, atol=2e-3)
    np.testing.assert_allclose(loss.context_weights.numpy(), exact.context_weights_, atol=2e-3)
    risks, _ = context_risks(model, [(X.double(), y.double(), codes)], 3)
    value = KLBall(COUNTS / 200, 0.2).worst_case(risks).value
    assert value == pytest.approx(exact.certificate_.upper, abs=1e-4)


def test_every_epoch_is_reported():
    rows, held = [], [data(seed=1)]
    model, loss, optimizer = parts()
    history = fit(model, loss, shuffled(), optimizer, epochs=4, held_out=held, progress=rows.append, guard=False)
    assert history.epochs["epoch"].tolist() == [0, 1, 2, 3]
    assert [row["objective"] for row in rows] == history.epochs["objective"].tolist()
    assert set(rows[0]) == {"epoch", "objective", "mean_risk", "worst_risk", "worst_excess", "worst_context"}
    assert not history.stopped_early
    risks, counts = context_risks(model, held, 3)
    assert history.risks.tolist() == risks.tolist()
    assert counts.tolist() == COUNTS.tolist()
    best = history.epochs.where(epoch=history.best_epoch)
    assert best["worst_risk"][0] == pytest.approx(risks.max())
    assert best["worst_context"][0] == risks.argmax()
    assert best["mean_risk"][0] == pytest.approx(risks @ COUNTS / 200)


def test_without_held_out_batches_the_last_epoch_is_kept():
    model, loss, optimizer = parts()
    history = fit(model, loss, shuffled(), optimizer, epochs=3)
    assert history.best_epoch == 2
    assert list(history.epochs) == ["epoch", "objective"]
    assert np.isnan(history.risks).all()


def test_the_scheduler_steps_once_an_epoch():
    model, loss, optimizer = parts(lr=1.0, kind=torch.optim.SGD)
    rates = []
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.1)
    fit(
        model,
        loss,
        shuffled(),
        optimizer,
        epochs=4,
        scheduler=scheduler,
        progress=lambda _: rates.append(optimizer.param_groups[0]["lr"]),
    )
    assert rates == pytest.approx([1.0, 0.1, 0.1, 0.01])


def test_risks_of_contexts():
    X, y, codes = data()
    model = nn.Linear(2, 1).train()
    risks, counts = context_risks(model, [(X[k::3], y[k::3], codes[k::3]) for k in range(3)], 4)
    losses = per_sample(model(X), y).detach().double().numpy()
    np.testing.assert_allclose(risks[:3], [losses[c == CODES].mean() for c in range(3)], rtol=1e-6)
    assert math.isnan(risks[3])
    assert counts.tolist() == [120, 60, 20, 0]
    assert model.training


def test_losses_of_samples():
    z, y = torch.randn(5, 3), torch.randn(5, 3)
    torch.testing.assert_close(per_sample(z, y), 0.5 * (z - y).square().mean(1))
    torch.testing.assert_close(per_sample(z[:, :1], y[:, 0]), 0.5 * (z[:, 0] - y[:, 0]).square())
    labels = torch.tensor([0, 2, 1, 1, 0])
    expected = nn.functional.cross_entropy(z, labels, reduction="none")
    torch.testing.assert_close(per_sample(z, labels), expected)


# --- early stopping ------------------------------------------------------------------------------------------

SCRIPT = [[0.5, 0.9], [0.4, 0.6], [0.1, 0.8], [0.7, 0.2], [0.9, 0.9], [0.0, 0.0]]


def test_the_epoch_of_the_least_worst_risk_is_kept():
    model, history = run_script(SCRIPT[:5])
    assert history.best_epoch == 1
    assert model.epochs == 2
    assert model.age.item() == pytest.approx(-0.2)
    assert history.risks.tolist() == pytest.approx([0.4, 0.6])
    assert not history.stopped_early


def test_excess_risk_decides_where_references_are_known():
    # The worst excess is 0.5, 0.4, 0.2, 0.7, 0.9 with these references: that of the loss, or given.
    model, history = run_script(SCRIPT[:5], references=[0.0, 0.7])
    assert history.best_epoch == 2
    assert model.epochs == 3
    assert history.epochs["worst_excess"].tolist() == pytest.approx([0.5, 0.4, 0.1, 0.7, 0.9])
    assert run_script(SCRIPT[:5], reference_risks=[0.0, 0.7])[1].best_epoch == 2


@pytest.mark.parametrize(("patience", "epochs"), [(1, 3), (2, 4), (3, 5), (4, 6)])
def test_patience(patience, epochs):
    _, history = run_script(SCRIPT, patience=patience)
    assert history.epochs.n_rows == epochs
    assert history.stopped_early == (patience < 4)
    assert history.best_epoch == (1 if patience < 4 else 5)


def test_patience_needs_something_to_judge_by():
    model, loss, optimizer = parts()
    with pytest.raises(InvalidInputError, match="held_out"):
        fit(model, loss, shuffled(), optimizer, epochs=2, patience=1)


def test_a_run_that_stopped_early_is_not_trained_on_when_called_again(tmp_path):
    _, history = run_script(SCRIPT, patience=2, checkpoint=tmp_path / "run.pt")
    assert history.epochs.n_rows == 4
    model, again = run_script(SCRIPT, patience=2, checkpoint=tmp_path / "run.pt")
    assert again.epochs.n_rows == 4
    assert again.stopped_early
    assert again.best_epoch == 1
    assert model.epochs == 2


def test_a_held_out_context_whose_risk_is_not_a_number_is_not_passed_over():
    X, y, codes = data()
    X = torch.where(codes[:, None] == 2, math.nan, X)
    model, loss, optimizer = parts()
    with pytest.raises(CounterpoiseError, match=r"held-out|NaN|nan"):
        fit(model, loss, shuffled(), optimizer, epochs=2, held_out=[(X, y, codes)])


# --- checkpoints ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("batches", [shuffled, with_sampler], ids=["shuffle", "context sampler"])
@pytest.mark.parametrize("update", ["closed-form", "ascent"])
def test_a_resumed_run_is_an_undisturbed_one(tmp_path, batches, update):
    def run(epochs, checkpoint=None):
        model, loss, optimizer = parts(RobustLoss(COUNTS, radius=0.3, update=update), dropout=0.3)
        scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.8)
        held = DataLoader(TensorDataset(*data(seed=1)), batch_size=50)
        history = fit(
            model, loss, batches(), optimizer, epochs=epochs, held_out=held, scheduler=scheduler, checkpoint=checkpoint
        )
        return model.state_dict(), loss.state_dict(), history

    model, loss, history = run(6)
    run(2, tmp_path / "run.pt")
    run(3, tmp_path / "run.pt")
    resumed, resumed_loss, resumed_history = run(6, tmp_path / "run.pt")
    for name in history.epochs:
        np.testing.assert_array_equal(resumed_history.epochs[name], history.epochs[name])
    assert resumed_history.best_epoch == history.best_epoch
    assert all(torch.equal(model[name], resumed[name]) for name in model)
    assert all(torch.equal(loss[name], resumed_loss[name]) for name in loss)
    np.testing.assert_array_equal(resumed_history.risks, history.risks)


def test_a_finished_run_is_read_back(tmp_path):
    first, history = run_script(SCRIPT, checkpoint=tmp_path / "a folder" / "run.pt")
    second, again = run_script(SCRIPT, checkpoint=tmp_path / "a folder" / "run.pt")
    assert again.best_epoch == history.best_epoch == 5
    assert again.epochs["objective"].tolist() == history.epochs["objective"].tolist()
    assert second.age == first.age
    assert [path.name for path in (tmp_path / "a folder").iterdir()] == ["run.pt"]


def saved_model(path):
    torch.save(nn.Linear(1, 1), path)


def truncated(path):
    run_script(SCRIPT, checkpoint=path)
    path.write_bytes(path.read_bytes()[:1000])


BROKEN = {
    "text": lambda path: path.write_text("epoch 3 of 10\n" * 50),
    "empty": lambda path: path.write_bytes(b""),
    "truncated": truncated,
    "a whole model": saved_model,
    "a tensor": lambda path: torch.save(torch.ones(3), path),
    "a state": lambda path: torch.save(nn.Linear(1, 1).state_dict(), path),
    "a folder": lambda path: path.mkdir(),
}


@pytest.mark.parametrize("broken", BROKEN)
def test_a_file_that_is_no_checkpoint_is_refused(tmp_path, broken):
    path = tmp_path / "run.pt"
    BROKEN[broken](path)
    with pytest.raises(InvalidInputError, match=r"run\.pt is no checkpoint"):
        run_script(SCRIPT, checkpoint=path)


def test_a_checkpoint_of_another_model_is_refused(tmp_path):
    path = tmp_path / "run.pt"
    model, loss, optimizer = parts()
    fit(model, loss, shuffled(), optimizer, epochs=1, checkpoint=path)
    other = nn.Linear(2, 1)
    with pytest.raises(InvalidInputError, match="no checkpoint"):
        fit(other, loss, shuffled(), torch.optim.Adam(other.parameters()), epochs=2, checkpoint=path)
    model, _, optimizer = parts()
    with pytest.raises(InvalidInputError, match="no checkpoint"):
        fit(model, ERMLoss([1, 1]), shuffled(), optimizer, epochs=2, checkpoint=path)


@pytest.mark.parametrize("first", [True, False], ids=["later without", "later with"])
def test_held_out_batches_may_come_and_go_between_runs(tmp_path, first):
    for epochs, with_held_out in ((2, first), (4, not first)):
        model, loss, optimizer = parts()
        held = [data(seed=1)] if with_held_out else None
        history = fit(model, loss, shuffled(), optimizer, epochs=epochs, held_out=held, checkpoint=tmp_path / "run.pt")
    assert history.epochs["epoch"].tolist() == [0, 1, 2, 3]
    assert "worst_risk" in history.epochs


# --- what goes wrong -----------------------------------------------------------------------------------------


def test_a_loss_that_is_not_a_number_ends_the_run():
    X, y, codes = data()
    model, loss, optimizer = parts()
    with pytest.raises(CounterpoiseError, match="diverged"):
        fit(model, loss, [(X / 0.0, y, codes)], optimizer, epochs=3)


def test_a_run_that_diverges_is_ended():
    model, loss, optimizer = parts(lr=1e20, kind=torch.optim.SGD)
    with pytest.raises(CounterpoiseError, match="Lower the learning rate"):
        fit(model, loss, shuffled(), optimizer, epochs=20)


@pytest.mark.parametrize("which", ["batches", "held_out"])
def test_generators_are_told_from_loaders(which):
    model, loss, optimizer = parts()
    once = (batch for batch in [data()])
    given = {"batches": [data()], "held_out": [data()]} | {which: once}
    with pytest.raises(InvalidInputError, match="generator"):
        fit(model, loss, given["batches"], optimizer, epochs=3, held_out=given["held_out"])


@pytest.mark.parametrize("epochs", [0, -1, 2.5, None])
def test_epochs_are_a_whole_number(epochs):
    model, loss, optimizer = parts()
    with pytest.raises(InvalidInputError, match="epochs"):
        fit(model, loss, shuffled(), optimizer, epochs=epochs)


def test_references_are_one_per_context():
    model, loss, optimizer = parts()
    with pytest.raises(InvalidInputError, match="reference_risks"):
        fit(model, loss, shuffled(), optimizer, epochs=1, held_out=[data()], reference_risks=[0.1])


# --- losses that are not convex ------------------------------------------------------------------------------

WELLS = torch.tensor([[-1.5, 0.5], [1.2, -0.4], [0.3, 1.6]], dtype=torch.float64)
SIDE = torch.tensor([[1.6, 1.4], [-1.1, -1.3], [-0.4, -1.7]], dtype=torch.float64)
ROWS = torch.tensor([0, 0, 0, 0, 0, 0, 1, 1, 1, 2])
SHARES = np.array([0.6, 0.3, 0.1])
START_POINTS = [(-1.4, 0.4), (1.2, -0.4), (0.3, 1.5), (0.0, 0.0), (1.5, 1.5), (-1.0, -1.5)]


def wells(theta):
    """Return three risks with a deep and a shallow well each, (..., 3)."""
    near = (theta[..., None, :] - WELLS).square().sum(-1)
    side = (theta[..., None, :] - SIDE).square().sum(-1)
    return 1.5 - torch.exp(-near / 3.0) - 0.5 * torch.exp(-side / 0.8) + 0.02 * theta.square().sum(-1, keepdim=True)


def robust_value(risks, radius):
    return KLBall(SHARES, radius).worst_case(risks.detach().numpy()).value


def descend(start, radius, update, steps=700, decay=False):
    """Full-batch descent with the loss's own weights; return theta and the loss."""
    theta = torch.tensor(start, dtype=torch.float64, requires_grad=True)
    loss = RobustLoss([6, 3, 1], radius=radius, update=update, step_size=0.1, averaging=1.0)
    optimizer = torch.optim.SGD([theta], lr=0.1)
    for k in range(steps):
        optimizer.param_groups[0]["lr"] = 0.1 * (1.0 - k / steps) if decay else 0.1
        optimizer.zero_grad()
        loss(wells(theta)[ROWS], ROWS).backward()
        optimizer.step()
    return theta.detach(), loss


def grid_best(radius, centre=(0.0, 0.0), reach=2.5, points=161):
    """Return the least robust value on a fine grid."""
    sides = [torch.linspace(at - reach, at + reach, points, dtype=torch.float64) for at in centre]
    return robust_value(wells(torch.cartesian_prod(*sides)), radius).min()


def slope(theta, radius):
    """Return the length of the gradient of the robust value, by Danskin's theorem with the exact weights."""
    theta = theta.clone().requires_grad_(True)
    risks = wells(theta)
    p = KLBall(SHARES, radius).worst_case(risks.detach().numpy()).distribution
    return torch.autograd.grad((torch.tensor(p) * risks).sum(), theta)[0].norm().item()


def test_non_convex_descent_comes_to_rest_and_finds_the_best():
    radius, best = 0.05, grid_best(0.05)
    ends = [descend(start, radius, "closed-form") for start in START_POINTS]
    values = [robust_value(wells(theta), radius) for theta, _ in ends]
    assert len({round(value, 3) for value in values}) > 1, "one valley only: not the problem meant"
    assert min(values) <= best + 1e-3
    for theta, loss in ends:
        assert slope(theta, radius) < 1e-3
        exact = KLBall(SHARES, radius).worst_case(wells(theta).numpy()).distribution
        np.testing.assert_allclose(loss.context_weights.numpy(), exact, atol=1e-3)


def test_non_convex_ascent_agrees():
    for start in START_POINTS[3:5]:
        (theta, _), (other, _) = (descend(start, 0.05, update) for update in ("closed-form", "ascent"))
        assert slope(other, 0.05) < 1e-3
        assert robust_value(wells(other), 0.05) == pytest.approx(robust_value(wells(theta), 0.05), abs=1e-3)


def test_non_convex_descent_with_falling_steps_finds_a_kink():
    # With a larger set the best point has equal risks everywhere; constant steps go round it for ever.
    radius, best = 0.3, grid_best(0.3)
    values = []
    for start in START_POINTS[::2]:
        theta, _ = descend(start, radius, "closed-form", decay=True)
        values.append(robust_value(wells(theta), radius))
        assert grid_best(radius, theta.tolist(), 0.05, 41) >= values[-1] - 1e-3
    assert min(values) <= best + 1e-3


def test_deepcopied_loss_and_model_train_alike():
    model, loss, optimizer = parts()
    twin, other = copy.deepcopy(model), copy.deepcopy(loss)
    fit(model, loss, [data()], optimizer, epochs=3)
    fit(twin, other, [data()], torch.optim.Adam(twin.parameters(), lr=0.05), epochs=3)
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), twin.parameters(), strict=True))
