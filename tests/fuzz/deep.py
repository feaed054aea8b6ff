"""Losses for training loops: weights stay in the set, whatever the batches hold."""

import numpy as np
import torch
from hypothesis import strategies as st

import counterpoise.torch as cpt
from counterpoise import KLBall
from tests.fuzz import data
from tests.fuzz.verdicts import outcome

_count = st.one_of(st.integers(1, 10**6), st.sampled_from([1.0, 0.5, 1e12, 1e-12]))
_loss = st.one_of(st.floats(0, 10, width=32), st.sampled_from([0.0, 1e-30, 1e6, 1e30]))
_bad_loss = st.sampled_from([float("nan"), float("inf"), -float("inf"), -1.0, 3e38])

torch_case = st.fixed_dictionaries(
    {
        "counts": st.lists(
            data.often(_count, st.sampled_from([0, -1, float("nan"), 10**400, "x"])), min_size=1, max_size=6
        ),
        "radius": data.often(data.switch_radius, data.wrong_radius),
        "references": st.one_of(st.none(), st.lists(data.often(_loss, _bad_loss), min_size=1, max_size=6)),
        "update": st.sampled_from([*["closed-form", "ascent"] * 10, "odd"]),
        "sampling": st.sampled_from([*["proportional", "balanced"] * 10, "odd"]),
        "averaging": st.sampled_from([*[0.1, 0.5, 1.0, 0.0] * 5, -1.0, 2.0, float("nan")]),
        "batches": st.lists(
            st.lists(st.tuples(data.often(_loss, _bad_loss), st.integers(0, 5)), min_size=1, max_size=8),
            min_size=1,
            max_size=4,
        ),
        "double": st.booleans(),
    }
)


def check_torch(drawn):
    """Train a little; the mix is a member of the set, and the least favourable one where that is promised."""
    references = drawn["references"]
    if references is not None:
        references = list(np.resize(np.array(references, dtype=object), len(drawn["counts"])))

    def run():
        names = ("radius", "update", "sampling", "averaging")
        loss = cpt.RobustLoss(drawn["counts"], reference_risks=references, **{name: drawn[name] for name in names})
        values = []
        for batch in drawn["batches"]:
            rows = torch.tensor([row[0] for row in batch], dtype=torch.float64 if drawn["double"] else torch.float32)
            rows.requires_grad_()
            value = loss(rows, torch.tensor([row[1] % loss.n_contexts for row in batch]))
            value.backward()
            values.append((rows.detach(), value.item(), rows.grad))
        return loss, values

    found = outcome(run)
    if found is None:
        return False
    loss, values = found[0]
    mix, p_hat = loss.context_weights.numpy(), loss.p_hat.numpy()
    assert np.isfinite(mix).all(), "a weight is not finite"
    assert (mix >= 0.0).all()
    assert abs(mix.sum() - 1.0) < 1e-9
    ball = KLBall(p_hat, loss.radius)
    with np.errstate(divide="ignore"):
        assert loss.radius == np.inf or ball.divergence(mix) <= loss.radius * (1 + 1e-6) + 1e-6, "outside the set"
    scores = loss.scores.numpy()
    assert np.isfinite(scores).all(), "a score is not finite"
    if loss.update == "closed-form":
        best, size = ball.worst_case(scores).value, np.abs(scores).max()
        assert mix @ scores >= best - 1e-7 * size, "not the least favourable mix"
    for rows, value, gradient in values:
        if torch.isfinite(rows).all() and rows.abs().max() < 1e25:
            assert np.isfinite(value), "the loss of finite losses is not finite"
            assert torch.isfinite(gradient).all()
            assert (gradient >= 0.0).all()
    return True
