"""The losses: unbiased, weighted as the exact set says, and safe to save, move, compile and resume."""

import copy
import io
import itertools
import math
import pickle

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from counterpoise import KLBall, confidence_radius  # noqa: E402
from counterpoise.exceptions import InvalidInputError  # noqa: E402
from counterpoise.torch import (  # noqa: E402
    ContextBatchSampler,
    ERMLoss,
    GroupDROLoss,
    InverseFrequencyLoss,
    RobustLoss,
)
from tests.torch_.test_ball import Waits  # noqa: E402

UPDATES = ["closed-form", "ascent"]
COUNTS = [5, 2, 1]
CODES = np.repeat([0, 1, 2], COUNTS)

every_update = pytest.mark.parametrize("update", UPDATES)


def every_loss():
    return [
        ERMLoss(COUNTS),
        InverseFrequencyLoss(COUNTS),
        GroupDROLoss(COUNTS, step_size=0.3),
        RobustLoss(COUNTS, radius=0.3, averaging=0.4),
        RobustLoss(COUNTS, radius=0.3, update="ascent", step_size=0.5, reference_risks=[0.1, 0.0, 0.2]),
        RobustLoss(COUNTS, radius=math.inf),
    ]


def names(losses):
    return [f"{type(one).__name__}-{getattr(one, 'update', '')}-{getattr(one, 'radius', '')}" for one in losses]


each_loss = pytest.mark.parametrize("loss", every_loss(), ids=names(every_loss()))


def batch(seed, n=12, n_contexts=3, dtype=torch.float32):
    """Return losses with a gradient, and contexts."""
    generator = torch.Generator().manual_seed(seed)
    contexts = torch.randint(n_contexts, (n,), generator=generator)
    losses = torch.rand(n, generator=generator, dtype=dtype) + 0.5 * contexts
    return losses.requires_grad_(True), contexts


def taught(loss, batches=6):
    """Return a loss that has seen some batches, so that its weights are not those it began with."""
    loss = copy.deepcopy(loss).train()
    for seed in range(batches):
        loss(*batch(seed))
    return loss


def rows_with_a_model():
    """Return a parameter and what gives the losses of rows: a gradient that differs from row to row."""
    rng = np.random.default_rng(0)
    x, y = (torch.tensor(rng.normal(size=len(CODES))) for _ in range(2))
    theta = torch.tensor(0.7, dtype=torch.float64, requires_grad=True)
    return theta, lambda rows: 0.5 * (theta * x[rows] - y[rows]).square()


def whole(theta, row_losses, weights):
    """Return ``sum_c p_c R_c`` over all rows, and its gradient."""
    losses = row_losses(np.arange(len(CODES)))
    risks = torch.stack([losses[c == CODES].mean() for c in range(3)])
    value = (weights.detach() * risks).sum()
    return value.item(), torch.autograd.grad(value, theta)[0].item()


def scalar(loss, theta, row_losses, rows):
    value = loss(row_losses(rows), torch.tensor(CODES[rows]))
    return value.item(), torch.autograd.grad(value, theta)[0].item()


# --- unbiased ------------------------------------------------------------------------------------------------


@each_loss
@pytest.mark.parametrize("size", [1, 3, 8])
def test_mean_over_all_batches_is_the_weighted_risk(loss, size):
    loss = taught(loss).eval()
    theta, row_losses = rows_with_a_model()
    batches = [np.array(rows) for rows in itertools.combinations(range(len(CODES)), size)]
    mean = np.mean([scalar(loss, theta, row_losses, rows) for rows in batches], axis=0)
    np.testing.assert_allclose(mean, whole(theta, row_losses, loss.context_weights), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("sampling", ["balanced", [0.2, 0.5, 0.3], [2, 5, 3]], ids=str)
@each_loss
def test_mean_over_draws_with_other_probabilities_is_the_weighted_risk(loss, sampling):
    options = {"radius": 0.3} if isinstance(loss, RobustLoss) else {}
    loss = taught(type(loss)(COUNTS, sampling=sampling, **options)).eval()
    q = np.ones(3) if isinstance(sampling, str) else np.array(sampling)
    row_chance = (q / q.sum() / COUNTS)[CODES]
    theta, row_losses = rows_with_a_model()
    total = np.zeros(2)
    for rows in itertools.product(range(len(CODES)), repeat=2):
        total += np.prod(row_chance[list(rows)]) * np.array(scalar(loss, theta, row_losses, np.array(rows)))
    np.testing.assert_allclose(total, whole(theta, row_losses, loss.context_weights), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("mode", ["proportional", "balanced"])
def test_mean_over_the_samplers_batches_is_the_weighted_risk(mode):
    loss = taught(RobustLoss(COUNTS, radius=0.5, sampling=mode)).eval()
    theta, row_losses = rows_with_a_model()
    sampler = ContextBatchSampler(CODES, 4, mode=mode)
    values = np.array([scalar(loss, theta, row_losses, np.array(rows)) for _ in range(300) for rows in sampler])
    error = np.abs(values.mean(axis=0) - whole(theta, row_losses, loss.context_weights))
    assert (error <= 5 * values.std(axis=0) / np.sqrt(len(values)) + 1e-6).all()


@each_loss
def test_gradient_is_that_of_constant_weights(loss):
    loss = taught(loss)
    weights = (loss.context_weights / loss.sampled).clone()
    losses, contexts = batch(99)
    loss(losses, contexts).backward()
    expected = weights[contexts].float() / len(losses)
    torch.testing.assert_close(losses.grad, expected, rtol=1e-6, atol=1e-8)


def test_value_keeps_the_precision_of_the_losses():
    losses, contexts = batch(0, dtype=torch.float64)
    value = taught(RobustLoss(COUNTS, radius=0.3)).eval()(losses, contexts)
    assert torch.isfinite(value)
    assert value.dtype == torch.float64


def test_the_batch_is_weighed_by_what_came_before():
    loss = RobustLoss(COUNTS, radius=1.0, averaging=1.0)
    losses, contexts = batch(3)
    torch.testing.assert_close(loss(losses, contexts), losses.mean())
    assert not torch.allclose(loss.context_weights, loss.p_hat)


def test_evaluation_learns_nothing():
    for loss in every_loss():
        before = copy.deepcopy(loss.state_dict())
        loss.eval()(*batch(1))
        assert all(torch.equal(before[name], now) for name, now in loss.state_dict().items())


# --- weights -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "radius", [0.0, 1e-6, 0.01, 0.3, 2.0, 20.0, math.inf, "types", "chi2", "agrawal", "calibrated", "anytime"]
)
@pytest.mark.parametrize("references", [None, [0.4, 0.0, 0.9]], ids=["risk", "excess"])
def test_closed_form_weights_are_the_exact_worst_case(radius, references):
    counts = [500, 200, 50]
    loss = RobustLoss(counts, radius=radius, reference_risks=references, averaging=1.0, confidence=0.9)
    bits = confidence_radius(counts, 0.9, radius) if isinstance(radius, str) else radius
    losses, contexts = batch(4, n=60, dtype=torch.float64)
    loss.observe(losses, contexts)
    risks = np.array([losses.detach().numpy()[contexts.numpy() == c].mean() for c in range(3)])
    np.testing.assert_allclose(loss.context_risks.numpy(), risks, rtol=1e-13)
    scores = risks - (0.0 if references is None else np.array(references))
    expected = KLBall(np.array(counts) / 750, bits).worst_case(scores).distribution
    np.testing.assert_allclose(loss.context_weights.numpy(), expected, atol=1e-10)


def test_full_confidence_is_every_mix():
    loss = RobustLoss(COUNTS, confidence=1.0)
    loss.observe(torch.tensor([0.1, 0.5, 0.3]), torch.arange(3))
    assert loss.context_weights.tolist() == [0.0, 1.0, 0.0]


@pytest.mark.parametrize("radius", [1e-4, 0.05, 0.4, 3.0, math.inf])
@pytest.mark.parametrize(("step_size", "accuracy"), [(0.05, 1e-5), (0.2, 2e-4)])
def test_ascent_reaches_the_worst_case_of_fixed_scores_and_stays_inside(radius, step_size, accuracy):
    rng = np.random.default_rng(0)
    for counts in ([50, 30, 20], [970, 20, 10]):
        scores = rng.normal(size=len(counts))
        ball = KLBall(np.array(counts) / sum(counts), radius)
        loss = RobustLoss(counts, radius=radius, update="ascent", step_size=step_size, averaging=1.0)
        rows = torch.tensor(scores), torch.arange(len(counts))
        for k in range(int((120 if math.isinf(radius) else 40) / step_size)):
            loss.observe(*rows)
            if k % 50 == 0:
                assert ball.contains(loss.context_weights.numpy())
        missing = ball.worst_case(scores).value - float(loss.context_weights.numpy() @ scores)
        assert -1e-9 <= missing / np.ptp(scores) <= accuracy


@pytest.mark.parametrize("step_size", [1.0, 5.0])
def test_ascent_with_long_steps_settles_at_the_worst_case_too(step_size):
    # A step size decides how fast the mix moves, not where it ends.
    scores = np.array([1.0, 0.3, 0.0])
    loss = RobustLoss([10, 20, 70], radius=0.3, update="ascent", step_size=step_size, averaging=1.0)
    for _ in range(500):
        loss.observe(torch.tensor(scores), torch.arange(3))
    best = KLBall([0.1, 0.2, 0.7], 0.3).worst_case(scores).value
    assert float(loss.context_weights.numpy() @ scores) == pytest.approx(best, abs=1e-4)


@pytest.mark.parametrize("radius", [1e-4, 0.3, 5.0, math.inf])
def test_ascent_stays_inside_whatever_it_sees(radius):
    loss = RobustLoss([97, 2, 1], radius=radius, update="ascent", step_size=20.0)
    ball = KLBall([0.97, 0.02, 0.01], radius)
    for seed in range(100):
        losses, contexts = batch(seed, n=4)
        loss.observe(losses * 10.0 ** (seed % 13 - 6), contexts)
        assert ball.contains(loss.context_weights.numpy())


def test_ascent_never_gives_a_context_up_for_good():
    loss = RobustLoss([10, 10], radius=math.inf, update="ascent", step_size=1.0, averaging=1.0)
    for _ in range(1000):
        loss.observe(torch.tensor([0.0, 1.0]), torch.arange(2))
    for _ in range(1100):
        loss.observe(torch.tensor([1.0, 0.0]), torch.arange(2))
    assert loss.context_weights[0] > 0.5


def test_a_context_not_seen_yet_is_as_the_others_on_average():
    loss = RobustLoss([4, 4, 2], radius=0.5)
    assert torch.equal(loss.context_weights, loss.p_hat)
    assert torch.isnan(loss.context_risks).all()
    loss.observe(torch.tensor([1.0, 3.0]), torch.tensor([0, 1]))
    torch.testing.assert_close(loss.scores, torch.tensor([1.0, 3.0, 2.0], dtype=torch.float64))
    assert torch.isfinite(loss.context_weights).all()


# --- running risks -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("averaging", [0.0, 0.01, 0.1, 1.0])
def test_constant_losses_are_known_from_the_first_batch_on(averaging):
    loss = RobustLoss(COUNTS, averaging=averaging)
    for _ in range(50):
        loss.observe(torch.tensor([0.75, 0.75, 2.5, -3.0]), torch.tensor([0, 0, 1, 2]))
        torch.testing.assert_close(
            loss.context_risks, torch.tensor([0.75, 2.5, -3.0], dtype=torch.float64), rtol=1e-14, atol=0
        )


@every_update
def test_an_absent_context_keeps_its_risk(update):
    # Were it to fade, it would fade to nothing: a tenth is left at each of so many steps.
    loss = RobustLoss(COUNTS, radius=0.5, update=update, averaging=0.9)
    loss.observe(torch.tensor([0.2, 0.4, 1.25]), torch.tensor([0, 1, 2]))
    rows = torch.tensor([0.2, 0.4]), torch.tensor([0, 1])
    for _ in range(2_000):
        loss.observe(*rows)
    assert loss.context_risks[2] == 1.25
    assert all(torch.isfinite(buffer).all() for buffer in loss.buffers())
    assert torch.isfinite(loss.context_weights).all()
    assert torch.isfinite(loss(*batch(0)))


def test_running_risks_fade_as_said():
    loss = ERMLoss([1, 1], averaging=0.25)
    loss.observe(torch.tensor([1.0, 1.0, 5.0]), torch.tensor([0, 0, 1]))
    loss.observe(torch.tensor([4.0]), torch.tensor([0]))
    torch.testing.assert_close(loss.context_risks[0].item(), (0.75 * 2.0 + 4.0) / (0.75 * 2.0 + 1.0))
    assert loss.context_risks[1] == 5.0


# --- the other methods ---------------------------------------------------------------------------------------


def test_erm_is_the_plain_mean():
    losses, contexts = batch(0)
    torch.testing.assert_close(ERMLoss(COUNTS)(losses, contexts), losses.mean())


@every_update
def test_robust_with_no_radius_is_erm(update):
    robust, erm = RobustLoss(COUNTS, radius=0.0, update=update), ERMLoss(COUNTS)
    for seed in range(5):
        (a, contexts), (b, _) = batch(seed), batch(seed)
        robust(a, contexts).backward()
        erm(b, contexts).backward()
        torch.testing.assert_close(a.grad, b.grad, rtol=1e-6, atol=0)


def test_inverse_frequency_is_the_mean_over_contexts():
    losses = torch.rand(len(CODES))
    expected = torch.stack([losses[c == CODES].mean() for c in range(3)]).mean()
    torch.testing.assert_close(InverseFrequencyLoss(COUNTS)(losses, torch.tensor(CODES)), expected)
    drawn = torch.tensor([1.0, 2.0, 4.0]), torch.tensor([0, 1, 2])
    torch.testing.assert_close(InverseFrequencyLoss(COUNTS, sampling="balanced")(*drawn), drawn[0].mean())


def test_group_dro_by_hand():
    loss, q = GroupDROLoss(COUNTS, step_size=0.2), np.ones(3) / 3
    share = np.array(COUNTS) / sum(COUNTS)
    for seed in range(30):
        losses, contexts = batch(seed, n=5)
        rows, codes = losses.detach().double().numpy(), contexts.numpy()
        expected = np.mean((q / share)[codes] * rows)
        assert loss(losses, contexts).item() == pytest.approx(expected, rel=1e-5)
        for c in set(codes.tolist()):
            q[c] *= np.exp(0.2 * rows[codes == c].mean())
        q /= q.sum()
        np.testing.assert_allclose(loss.context_weights.numpy(), q, rtol=1e-10)


def test_group_dro_never_overflows():
    loss = GroupDROLoss([1, 1], step_size=10.0)
    for _ in range(2000):
        loss.observe(torch.tensor([100.0, 101.0]), torch.tensor([0, 1]))
    assert loss.context_weights.tolist() == [0.0, 1.0]
    for _ in range(2001):
        loss.observe(torch.tensor([101.0, 100.0]), torch.tensor([0, 1]))
    assert loss.context_weights[0] > 0.99


# --- state ---------------------------------------------------------------------------------------------------


def train(loss, seeds):
    model = torch.nn.Linear(2, 1)
    torch.nn.init.constant_(model.weight, 0.1)
    torch.nn.init.zeros_(model.bias)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return resume(loss, model, optimizer, seeds)


def resume(loss, model, optimizer, seeds):
    for seed in seeds:
        generator = torch.Generator().manual_seed(seed)
        x, y = torch.randn(10, 2, generator=generator), torch.randn(10, generator=generator)
        contexts = torch.randint(3, (10,), generator=generator)
        optimizer.zero_grad()
        loss((model(x)[:, 0] - y).square(), contexts).backward()
        optimizer.step()
    return model, optimizer


@each_loss
@pytest.mark.parametrize("way", ["state_dict", "deepcopy", "pickle", "file"])
def test_a_copy_goes_on_bit_for_bit(loss, way):
    loss = copy.deepcopy(loss)
    model, optimizer = train(loss, range(5))
    if way == "deepcopy":
        other = copy.deepcopy(loss)
    elif way == "pickle":
        other = pickle.loads(pickle.dumps(loss))
    else:
        kept = loss.state_dict()
        if way == "file":
            file = io.BytesIO()
            torch.save(kept, file)
            file.seek(0)
            kept = torch.load(file, weights_only=True)
        other = copy.deepcopy(loss)
        for buffer in other.buffers():
            buffer.mul_(0).add_(0.125)
        other.load_state_dict(kept)
    twin = copy.deepcopy(model)
    resume(loss, model, optimizer, range(5, 10))
    resume(other, twin, torch.optim.SGD(twin.parameters(), lr=0.1), range(5, 10))
    assert torch.equal(model.weight, twin.weight)
    assert torch.equal(loss.context_weights, other.context_weights)
    assert all(torch.equal(now, other.state_dict()[name]) for name, now in loss.state_dict().items())


def test_a_new_instance_takes_over_from_a_saved_state():
    options = {"radius": 0.3, "update": "ascent", "reference_risks": [0.1, 0.2, 0.3]}
    first, second = RobustLoss(COUNTS, **options), RobustLoss(COUNTS, **options)
    train(first, range(5))
    second.load_state_dict(first.state_dict())
    a, b = train(first, range(5, 10))[0], train(second, range(5, 10))[0]
    assert torch.equal(a.weight, b.weight)
    assert torch.equal(first.mix, second.mix)


@pytest.mark.parametrize(
    "move",
    [
        lambda module: module.half(),
        lambda module: module.to(torch.bfloat16),
        lambda module: module.float(),
        lambda module: module.to("cpu", torch.float16),
        lambda module: torch.nn.Sequential(torch.nn.Linear(1, 1), module).half()[1],
    ],
    ids=["half", "bfloat16", "float", "device and half", "inside a model"],
)
def test_buffers_stay_in_double_precision(move):
    loss = taught(RobustLoss([70_001, 20, 3], radius=0.3))
    before, weights = copy.deepcopy(loss.state_dict()), loss.context_weights
    loss = move(loss)
    assert all(buffer.dtype == torch.float64 for buffer in loss.buffers())
    assert all(torch.equal(before[name], now) for name, now in loss.state_dict().items())
    assert torch.equal(loss.context_weights, weights)
    loss(*batch(0))


@every_update
def test_gradients_accumulate(update):
    loss = RobustLoss(COUNTS, radius=0.3, update=update)
    for seed in range(3):
        loss(*batch(seed))
    frozen, theta = copy.deepcopy(loss).eval(), torch.tensor(1.0, requires_grad=True)
    losses, contexts = batch(7, n=12)
    pieces = [slice(0, 6), slice(6, 12)]
    for rows in pieces:
        (frozen(theta * losses.detach()[rows], contexts[rows]) / len(pieces)).backward()
    expected = torch.autograd.grad(frozen(theta * losses.detach(), contexts), theta)[0]
    torch.testing.assert_close(theta.grad, expected)
    # In training mode two backward passes and one step are no matter either.
    total = sum(loss(theta * losses.detach()[rows], contexts[rows]) for rows in pieces)
    total.backward()
    assert torch.isfinite(theta.grad)


@every_update
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast(update, dtype):
    torch.manual_seed(0)
    model, loss = torch.nn.Linear(4, 3), RobustLoss(COUNTS, radius=0.3, update=update)
    x, y = torch.randn(32, 4), torch.randint(3, (32,))
    contexts = torch.randint(3, (32,))
    expected = copy.deepcopy(loss)
    for _ in range(3):
        with torch.autocast("cpu", dtype=dtype):
            value = loss(torch.nn.functional.cross_entropy(model(x), y, reduction="none"), contexts)
        plain = expected(torch.nn.functional.cross_entropy(model(x), y, reduction="none"), contexts)
        value.backward()
        assert value.dtype == torch.float32
        torch.testing.assert_close(value, plain, rtol=0.02, atol=0.02)
    assert loss.context_weights.dtype == torch.float64
    torch.testing.assert_close(loss.context_weights, expected.context_weights, rtol=0.05, atol=0.02)


def test_losses_in_half_precision_are_summed_exactly():
    losses = torch.full((4096,), 0.5, dtype=torch.float16)
    loss = ERMLoss([1])
    assert loss(losses, torch.zeros(4096, dtype=torch.long)).item() == 0.5
    assert loss.context_risks.item() == 0.5


# --- the device is never waited for --------------------------------------------------------------------------

ROBUST = [
    {"radius": 0.3},
    {"radius": 0.3, "update": "ascent"},
    {"radius": math.inf},
    {"radius": math.inf, "update": "ascent"},
]


@pytest.mark.parametrize("options", ROBUST, ids=str)
def test_no_step_of_training_waits_for_the_host(options, monkeypatch):
    loss = RobustLoss(COUNTS, **options)
    batches = [batch(seed) for seed in range(3)]

    def refuse(*_, **__):
        raise AssertionError("a number was brought to the host")

    for name in ("item", "tolist", "cpu", "numpy", "__float__", "__bool__", "__int__", "__index__"):
        monkeypatch.setattr(torch.Tensor, name, refuse)
    with Waits() as waits:
        for losses, contexts in batches:
            loss(losses, contexts).backward()
    monkeypatch.undo()
    assert waits.seen == []


# Python 3.13.0 itself is slow here, torch says; 3.13.1 is not.
@pytest.mark.filterwarnings("ignore:Guards may run slower on Python 3.13.0:RuntimeWarning")
@pytest.mark.parametrize("options", [{"step_size": 0.1}, *ROBUST], ids=str)
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_compiles_in_one_piece_with_the_same_numbers(options, backend):
    kind = RobustLoss if "radius" in options else GroupDROLoss
    plain, inner = kind(COUNTS, **options), kind(COUNTS, **options)
    torch._dynamo.reset()
    compiled = torch.compile(inner, backend=backend, fullgraph=True)
    for seed in range(4):
        (a, contexts), (b, _) = batch(seed), batch(seed)
        x, y = plain(a, contexts), compiled(b, contexts)
        x.backward()
        y.backward()
        torch.testing.assert_close(y, x, rtol=1e-6, atol=1e-7)
        torch.testing.assert_close(b.grad, a.grad, rtol=1e-6, atol=1e-7)
    torch.testing.assert_close(inner.context_weights, plain.context_weights, rtol=1e-12, atol=1e-13)
    torch._dynamo.reset()


# --- what comes in -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("losses", "contexts"),
    [
        (torch.tensor(0.5), torch.tensor([0, 1])),
        (torch.rand(2), torch.tensor([0, 1, 2])),
        (torch.rand(2, 1), torch.tensor([[0], [1]])),
        (torch.rand(2, 1), torch.tensor([0, 1])),
        (torch.tensor(0.5), torch.tensor(0)),
    ],
    ids=["reduced", "too many contexts", "columns", "a column", "scalars"],
)
def test_wrong_shapes_are_refused(losses, contexts):
    for loss in (ERMLoss(COUNTS), RobustLoss(COUNTS)):
        with pytest.raises(InvalidInputError, match="reduction='none'"):
            loss(losses, contexts)


def test_observed_batches_are_checked_too():
    with pytest.raises(InvalidInputError, match="reduction='none'"):
        RobustLoss(COUNTS).observe(torch.rand(4).mean(), torch.tensor([0, 1, 2, 0]))


@pytest.mark.parametrize("contexts", [[0, 3], [0, -1]])
def test_contexts_out_of_range_are_refused(contexts):
    with pytest.raises((IndexError, InvalidInputError)):
        ERMLoss(COUNTS)(torch.rand(2), torch.tensor(contexts))


def test_contexts_of_any_integer_type():
    losses = torch.tensor([1.0, 3.0, 5.0])
    for dtype in (torch.int64, torch.int32):
        assert ERMLoss(COUNTS)(losses, torch.tensor([0, 1, 2], dtype=dtype)).item() == 3.0


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"counts": [3, 0]}, "context 1"),
        ({"counts": [3, -1]}, "context 1"),
        ({"counts": []}, "counts"),
        ({"counts": [[1, 2]]}, "counts"),
        ({"counts": [1.0, math.nan]}, "counts"),
        ({"counts": "ab"}, "counts"),
        ({"counts": None}, "counts"),
        ({"update": "sgd"}, "update"),
        ({"radius": -1.0}, "radius"),
        ({"radius": math.nan}, "radius"),
        ({"radius": "kl"}, "types"),
        ({"radius": None}, "radius"),
        ({"confidence": 1.5}, "confidence"),
        ({"sampling": "uniform"}, "sampling"),
        ({"sampling": [0.5, 0.3, 0.2]}, "sampling"),
        ({"sampling": [0.5, 0.0]}, "sampling"),
        ({"sampling": [0.5, -0.5]}, "sampling"),
        ({"averaging": 1.5}, "averaging"),
        ({"averaging": -0.1}, "averaging"),
        ({"averaging": math.nan}, "averaging"),
        ({"averaging": "fast"}, "averaging"),
        ({"step_size": 0.0}, "step_size"),
        ({"step_size": math.nan}, "step_size"),
        ({"reference_risks": [0.1]}, "reference_risks"),
        ({"reference_risks": [0.1, math.nan]}, "reference_risks"),
        ({"reference_risks": 0.1}, "reference_risks"),
    ],
    ids=str,
)
def test_what_cannot_be_meant_is_refused(options, word):
    with pytest.raises(InvalidInputError, match=word):
        RobustLoss(**({"counts": [3, 2]} | options))


@pytest.mark.parametrize("step_size", [-0.1, math.nan, math.inf, "fast"])
def test_group_dro_refuses_steps_that_cannot_be_meant(step_size):
    with pytest.raises(InvalidInputError, match="step_size"):
        GroupDROLoss([3, 2], step_size=step_size)


@pytest.mark.parametrize("radius", [1, np.float64(0.5), np.float32(0.5), np.int64(1)], ids=lambda r: type(r).__name__)
def test_radius_of_any_number_type(radius):
    assert RobustLoss([3, 2], radius=radius).radius == float(radius)


@pytest.mark.parametrize("counts", [[3, 2], (3, 2), np.array([3, 2]), torch.tensor([3, 2])], ids=str)
def test_counts_in_any_container(counts):
    assert RobustLoss(counts, reference_risks=counts).p_hat.tolist() == [0.6, 0.4]


def test_printed_form_says_what_it_is():
    assert "update='ascent'" in repr(RobustLoss([1, 2], update="ascent"))
    assert "n_contexts=2" in repr(ERMLoss([1, 2]))
