"""Features: exactly what the last layer is given, and the network left as it was."""

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.utils.data import DataLoader, TensorDataset  # noqa: E402

from counterpoise.exceptions import InvalidInputError  # noqa: E402
from counterpoise.torch import features  # noqa: E402
from counterpoise.torch.features import head_rows, last_layer  # noqa: E402

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here: torch.cuda.is_available() is False")
DEVICES = ["cpu", pytest.param("cuda", marks=needs_gpu)]


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Dropout(0.5), nn.Linear(5, 2))


class Twice(nn.Module):
    """A network whose layer is called twice."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, x):
        return self.layer(self.layer(x))


def rows(n=20):
    generator = torch.Generator().manual_seed(1)
    return torch.randn(n, 3, generator=generator), torch.arange(n) % 2, torch.arange(n) % 3


@pytest.mark.parametrize("device", DEVICES)
def test_the_layer_of_the_features_is_the_network(device):
    model = network().to(device).eval()
    x = rows()[0].to(device)
    found = features(model, x)
    assert found.shape == (20, 5)
    assert found.device.type == device
    assert not found.requires_grad
    torch.testing.assert_close(model[-1](found), model(x))


def test_tensors_loaders_and_lists_of_batches_are_the_same():
    model, (x, y, contexts) = network(), rows()
    expected = features(model, x)
    loader = DataLoader(TensorDataset(x, y, contexts), batch_size=7)
    for batches in (loader, [(x[:4], y[:4]), (x[4:], y[4:])], x.split(3)):
        torch.testing.assert_close(features(model, batches), expected)


def test_more_rows_than_are_shown_at_once():
    x = torch.randn(2500, 3)
    torch.testing.assert_close(features(network(), x)[1500:], features(network(), x[1500:]))


def test_features_targets_and_contexts_stay_together_when_batches_are_shuffled():
    model, (x, y, contexts) = network(), rows()
    seen = head_rows(model, DataLoader(TensorDataset(x, y, contexts), batch_size=6, shuffle=True))
    own = features(model, x)
    # Products of other batches are rounded otherwise.
    nearest = torch.cdist(seen.features, own).argmin(1)
    torch.testing.assert_close(seen.features, own[nearest])
    assert torch.equal(seen.targets, y[nearest])
    assert torch.equal(seen.contexts, contexts[nearest])


def test_the_network_is_left_as_it_was():
    model = network().train()
    model[1].eval()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    features(model, rows()[0])
    assert [part.training for part in model.modules()] == [True, True, False, True, True, True]
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert not model[-1]._forward_pre_hooks


def test_any_layer_may_be_named():
    model, x = network(), rows()[0]
    torch.testing.assert_close(features(model, x, layer="0"), x)
    torch.testing.assert_close(features(model, x, layer=model[0]), x)
    assert last_layer(model)[0] == "4"
    assert last_layer(nn.Linear(2, 1))[0] == ""


@pytest.mark.parametrize(
    ("model", "options", "words"),
    [
        (nn.ReLU(), {}, "ReLU has no linear layer"),
        (network(), {"layer": "1"}, "no linear layer '1'; there are '0', '4'"),
        (network(), {"layer": nn.Linear(3, 2)}, "which is no linear layer of this Sequential"),
        (Twice(), {}, "'layer' is called 2 times"),
        (nn.Sequential(nn.Unflatten(1, (1, 3)), nn.Linear(3, 1)), {}, r"shape \(20, 1, 3\) for a batch of 20"),
    ],
    ids=["no layer", "no such name", "another's layer", "twice", "three dimensions"],
)
def test_what_has_no_features_is_named(model, options, words):
    with pytest.raises(InvalidInputError, match=words):
        features(model, rows()[0], **options)


def test_batches_are_checked():
    with pytest.raises(InvalidInputError, match="no batches"):
        features(network(), [])
    with pytest.raises(InvalidInputError, match=r"\(inputs, targets, contexts\)"):
        head_rows(network(), [rows()[:2]])
