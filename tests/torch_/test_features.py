"""Features: exactly what the last layer is given, and the network left as it was."""

import copy

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.utils.data import DataLoader, TensorDataset  # noqa: E402

from counterpoise.exceptions import InvalidInputError  # noqa: E402
from counterpoise.torch import features  # noqa: E402
from counterpoise.torch.features import has_features, head_rows, last_layer  # noqa: E402

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


class OutOfOrder(nn.Module):
    """A network whose last layer is not the one that was registered last; all have the same shape."""

    def __init__(self):
        super().__init__()
        self.f, self.o, self.g = nn.Linear(3, 3), nn.Linear(3, 3), nn.Linear(3, 3)

    def forward(self, x):
        return self.o(self.g(self.f(x).tanh()).tanh())


class Squeezed(nn.Module):
    """A network with one output, in another shape than the layer's."""

    def __init__(self, shape):
        super().__init__()
        self.shape, self.f, self.o = shape, nn.Linear(3, 5), nn.Linear(5, 1)

    def forward(self, x):
        z = self.o(self.f(x).tanh())
        return z.squeeze() if self.shape is None else z.reshape(self.shape)


class InPlace(nn.Module):
    """A network that works in place on what its last layer is given and gives."""

    def __init__(self, ends_in_place):
        super().__init__()
        self.f, self.o, self.ends_in_place = nn.Linear(3, 5), nn.Linear(5, 2), ends_in_place

    def forward(self, x):
        h = self.f(x)
        z = self.o(input=h)
        h.zero_()
        return z.sub_(7.0) if self.ends_in_place else z


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
    assert not any(part._forward_hooks for part in model.modules())


def test_any_layer_may_be_named():
    model, x = network(), rows()[0]
    torch.testing.assert_close(features(model, x, layer="0"), x)
    torch.testing.assert_close(features(model, x, layer=model[0]), x)
    assert last_layer(model)[0] == "4"
    assert last_layer(nn.Linear(2, 1))[0] == ""


def test_by_default_the_layer_is_the_one_that_gives_the_output():
    model, (x, y, contexts) = OutOfOrder(), rows()
    seen = head_rows(model, [(x[:9], y[:9], contexts[:9]), (x[9:], y[9:], contexts[9:])])
    assert seen.layer == "o"
    assert torch.equal(features(model, x), features(model, x, layer="o"))
    with torch.no_grad():
        torch.testing.assert_close(seen.outputs, model(x))
        torch.testing.assert_close(model.o(seen.features), seen.outputs)


@pytest.mark.parametrize("shape", [(-1,), (-1, 1), (-1, 1, 1), None], ids=str)
def test_a_single_output_may_have_any_shape(shape):
    model, (x, y, contexts) = Squeezed(shape), rows()
    seen = head_rows(model, [(x[:1], y[:1], contexts[:1]), (x[1:], y[1:], contexts[1:])])
    assert seen.layer == "o"
    with torch.no_grad():
        torch.testing.assert_close(seen.outputs, model(x))
    assert has_features(model, x)
    assert has_features(model, x[:1])


def test_a_layer_that_does_not_give_the_output_is_refused():
    batches = [rows()]
    for model, layer in [(OutOfOrder(), "g"), (network(), "0"), (nn.Sequential(network(), nn.Softmax(1)), None)]:
        with pytest.raises(InvalidInputError, match=r"is not that of the network.* with layer="):
            head_rows(model, batches, layer)
        assert not has_features(model, rows()[0], layer)
    with pytest.raises(InvalidInputError, match=r"layer '0\.4' is not that of the network"):
        features(nn.Sequential(network(), nn.Softmax(1)), rows()[0])


def test_an_output_that_is_changed_in_later_batches_is_seen():
    model, (x, y, contexts) = nn.Sequential(nn.Linear(3, 1), nn.ReLU()), rows()
    with torch.no_grad():
        positive = model[0](x)[:, 0] > 0.0
    assert positive.any()
    assert not positive.all()
    first, second = ((x[part], y[part], contexts[part]) for part in (positive, ~positive))
    assert head_rows(model, [first]).layer == "0"
    assert has_features(model, first[0])
    assert not has_features(model, torch.cat([first[0], second[0]]))
    with pytest.raises(InvalidInputError, match="is not that of the network"):
        head_rows(model, [first, second])


def compiled(how):
    """Return a network that is compiled, and one that is not, with the same parameters."""
    model = network().eval()
    plain = copy.deepcopy(model)
    if how == "all of it":
        return torch.compile(model, backend="eager"), plain
    if how == "in place":
        model.compile(backend="eager")
    else:
        model[4] = torch.compile(model[4], backend="eager")
    return model, plain


@pytest.mark.parametrize("how", ["all of it", "in place", "its last layer"])
def test_features_of_compiled_networks(how):
    (model, plain), (x, y, contexts) = compiled(how), rows()
    with torch.no_grad():
        # Compiled now, in the mode of features, so that there is no occasion to compile again with hooks.
        expected = model(x)
    torch.testing.assert_close(features(model, x), features(plain, x))
    torch.testing.assert_close(head_rows(model, [(x, y, contexts)]).outputs, expected)
    assert has_features(model, x)
    assert not has_features(model, x, "0")


def test_layers_of_a_compiled_network_have_the_names_they_had():
    model, plain = compiled("all of it")
    assert last_layer(model)[0] == last_layer(plain)[0] == "4"
    assert last_layer(model, "_orig_mod.4") == last_layer(model, "4")
    with pytest.raises(InvalidInputError, match="Sequential has no linear layer"):
        last_layer(torch.compile(nn.Sequential(nn.ReLU()), backend="eager"))


def test_what_a_network_does_in_place_changes_no_features():
    model, x = InPlace(False), rows()[0]
    with torch.no_grad():
        torch.testing.assert_close(features(model, x), model.f(x))
    assert has_features(model, x)
    assert not has_features(InPlace(True), x)


def test_networks_without_features_are_told_apart():
    x = rows()[0]
    assert has_features(network(), x)
    assert has_features(network(), x, "4")
    assert has_features(OutOfOrder(), x)
    assert not has_features(OutOfOrder(), x, "f")
    assert not has_features(nn.ReLU(), x)
    assert not has_features(Twice(), x)
    assert not has_features(nn.Sequential(nn.Unflatten(1, (1, 3)), nn.Linear(3, 1)), x)
    assert not has_features(network(), x, "no such layer")
    assert not has_features(network(), [x])
    assert not has_features(network(), x[:0])


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
