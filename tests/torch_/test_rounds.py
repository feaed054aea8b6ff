"""When held-out rounds are due, and which parameters are kept."""

import math

import pytest

torch = pytest.importorskip("torch")

from counterpoise.exceptions import InvalidInputError  # noqa: E402
from counterpoise.torch import HeldOutWeights, RobustLoss  # noqa: E402
from counterpoise.torch.rounds import DivergedError, Rounds, check_every, check_loss  # noqa: E402
from tests.torch_.held_out import HeldOutStandIn  # noqa: E402


def moments(every, per_epoch, n_batches):
    rounds = Rounds(every)
    return [k for k in range(1, n_batches + 1) if rounds.is_due(per_epoch)]


@pytest.mark.parametrize("per_epoch", [4, 7, 10, 30, 33])
@pytest.mark.parametrize("share", [0.1, 0.25, 0.3, 1.0])
def test_as_many_rounds_in_an_epoch_as_asked(share, per_epoch):
    n_epochs = 10
    due = moments(share, per_epoch, n_epochs * per_epoch)
    assert len(due) == min(round(n_epochs / share - 0.5 + 1e-9), n_epochs * per_epoch)
    if (1.0 / share).is_integer():
        assert due[-1] == n_epochs * per_epoch


def test_every_other_epoch_and_every_so_many_batches():
    assert moments(2.0, 5, 30) == [10, 20, 30]
    assert moments(4, 5, 13) == [4, 8, 12]
    assert moments(4, math.inf, 8) == [4, 8]


def test_a_share_of_an_epoch_needs_its_length():
    with pytest.raises(InvalidInputError, match="as an int"):
        Rounds(0.5).is_due(math.inf)


@pytest.mark.parametrize("every", [0, -1, 0.0, -0.5, math.inf, math.nan, True, "often", None])
def test_what_cannot_be_meant_is_refused(every):
    with pytest.raises(InvalidInputError, match="every"):
        check_every(every)


def test_losses_that_take_none_are_refused():
    with pytest.raises(InvalidInputError, match="criterion is RobustLoss, which takes no held-out losses"):
        check_loss(RobustLoss([1, 2]), "criterion")


def test_no_batches_are_refused():
    with pytest.raises(InvalidInputError, match="no held-out batches"):
        Rounds(1).take(HeldOutStandIn([1, 2]), [], [])


def test_the_best_round_is_put_back_but_for_the_loss():
    model = torch.nn.Sequential(torch.nn.Linear(1, 1), HeldOutStandIn([1, 2]))
    rounds, found = Rounds(1), []
    for level in (2.0, 1.0, 3.0):
        with torch.no_grad():
            model[0].weight.fill_(level)
        if rounds.take(model[1], [torch.tensor([0.5, level])], [torch.arange(2)]):
            rounds.remember(model, beside=model[1])
        found.append(model[1].mix.clone())
    rounds.restore(model)
    assert model[0].weight.item() == 1.0
    assert (rounds.n_rounds, rounds.best_round, rounds.best_excess) == (3, 1, 1.0)
    assert torch.equal(model[1].mix, found[-1])


def test_a_state_goes_on():
    one, other = Rounds(2), Rounds(2)
    model = torch.nn.Linear(1, 1)
    one.is_due(5)
    one.take(HeldOutStandIn([1, 2]), [torch.tensor([1.0, 2.0])], [torch.arange(2)])
    one.remember(model)
    other.load_state_dict(one.state_dict())
    assert (other.n_batches, other.n_rounds, other.best_excess) == (1, 1, 2.0)
    assert other.is_due(5)


def test_a_held_out_loss_that_is_not_finite_ends_the_training():
    losses = [torch.tensor([0.1, float("nan")])]
    with pytest.raises(DivergedError, match="training diverged"):
        Rounds(1).take(HeldOutWeights([5, 5]), losses, [torch.tensor([0, 1])])
