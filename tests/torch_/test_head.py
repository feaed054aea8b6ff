"""A certified last layer: the estimator's own answer, put back exactly, and never in place of a better one."""

import copy
import math

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.utils.data import DataLoader, TensorDataset  # noqa: E402

import counterpoise as cpo  # noqa: E402
from counterpoise.exceptions import InvalidInputError  # noqa: E402
from counterpoise.torch import RobustHead, features, head_references  # noqa: E402

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here: torch.cuda.is_available() is False")
SIZES = [300, 150, 60]
CODES = np.repeat(np.arange(3), SIZES)
TASKS = ["one logit", "two logits", "four logits", "numbers"]


def task(kind, seed=0, sizes=SIZES):
    """Return inputs, targets and contexts that have heads of their own on a network's features, and the network."""
    rng = np.random.default_rng(seed)
    codes = np.repeat(np.arange(len(sizes)), sizes)
    torch.manual_seed(seed)
    outputs = {"one logit": 1, "two logits": 2, "four logits": 4, "numbers": 1}[kind]
    model = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, outputs)).eval()
    x = torch.tensor(rng.normal(size=(len(codes), 4))).float()
    Z = features(model, x).double().numpy()
    heads = 2.0 * (rng.normal(size=(outputs, 6)) + rng.normal(size=(len(sizes), outputs, 6)))
    z = np.einsum("nd,nkd->nk", Z, heads[codes])
    if kind == "numbers":
        y = torch.tensor(z[:, 0] + rng.normal(size=len(z))).float()
    elif outputs == 1:
        y = torch.tensor(rng.random(len(z)) < 1.0 / (1.0 + np.exp(-z[:, 0]))).long()
    else:
        y = torch.tensor((z + rng.gumbel(size=z.shape)).argmax(axis=1))
    return model, x, y, torch.tensor(codes)


def as_loader(x, y, contexts):
    return DataLoader(TensorDataset(x, y, contexts), batch_size=64, shuffle=True)


def estimator(kind):
    return cpo.RobustLinearRegression if kind == "numbers" else cpo.RobustLogisticRegression


# --- the same as the estimator -------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", TASKS)
def test_coefficients_and_certificate_are_those_of_the_estimator(kind):
    model, x, y, contexts = task(kind)
    head = RobustHead(radius=0.3, alpha=0.01, guard=False).fit(model, [(x, y, contexts)])
    Z = features(model, x)
    Z = ((Z - Z.mean(0)) / Z.std(0, unbiased=False)).numpy()
    expected = estimator(kind)(radius=0.3, alpha=0.01, reference="in-sample").fit(Z, y.numpy(), contexts=CODES)
    np.testing.assert_allclose(head.estimator_.coef_, expected.coef_, rtol=1e-3, atol=1e-4)
    assert head.certificate_.upper == pytest.approx(expected.certificate_.upper, abs=1e-5)
    assert head.certificate_.relative_gap <= 1e-6
    np.testing.assert_allclose(head.context_weights_, expected.context_weights_, atol=1e-3)
    assert head.chosen_ == "robust"
    assert head.candidates_ is None


@pytest.mark.filterwarnings("ignore:.*mostly optimism")
@pytest.mark.parametrize("alpha", [1e-3, 1e-2, 1e-1])
def test_references_of_many_classes_are_the_least_risks_in_sample(alpha):
    # The smallest contexts are separable, so that little but the ridge keeps their coefficients finite.
    model, x, y, contexts = task("four logits", sizes=[200, 60, 12, 8])
    head = RobustHead(radius=0.3, alpha=alpha, guard=False).fit(model, [(x, y, contexts)])
    exact = cpo.RobustLogisticRegression(radius=0.3, alpha=alpha, reference="in-sample").fit(**head.data_)
    np.testing.assert_allclose(head.reference_risks_, exact.reference_risks_, rtol=1e-5)
    assert head.certificate_.upper == pytest.approx(exact.certificate_.upper, rel=1e-5)
    for c, found in enumerate(head.reference_risks_):
        X, targets = head.features_.double().numpy()[contexts == c], y.numpy()[contexts == c]
        # Of two classes this one has the difference, whose ridge is half of that of both.
        own = alpha * (0.5 if len(np.unique(targets)) == 2 else 1.0)
        alone = LogisticRegression(C=1.0 / (own * len(X)), tol=1e-10, max_iter=10_000).fit(X, targets)
        ridge = 0.5 * own * np.square(alone.coef_).sum()
        least = log_loss(targets, alone.predict_proba(X), labels=alone.classes_) + ridge
        assert found == pytest.approx(least, rel=1e-4)


@pytest.mark.parametrize("kind", TASKS)
def test_put_back_the_network_predicts_what_the_estimator_does(kind):
    model, x, y, contexts = task(kind)
    old = model[-1]
    head = RobustHead(guard=False).fit(model, [(x, y, contexts)])
    assert head.put_back(model) is model
    assert model[-1] is not old
    with torch.no_grad():
        z = model(x).double()
    if kind == "numbers":
        np.testing.assert_allclose(z[:, 0], head.estimator_.predict(head.features_.numpy()), rtol=1e-4, atol=1e-4)
        return
    found = torch.cat([-z, z], 1).mul(0.5) if kind == "one logit" else z
    np.testing.assert_allclose(
        found.softmax(1), head.estimator_.predict_proba(head.features_.numpy()), rtol=1e-3, atol=1e-5
    )


class OutOfOrder(nn.Module):
    """A network whose last layer is not the one that was registered last; all have the same shape."""

    def __init__(self):
        super().__init__()
        self.f, self.o, self.g = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x):
        return self.o(self.g(self.f(x).tanh()).tanh())


def test_only_the_layer_that_gives_the_output_is_replaced():
    _, x, y, contexts = task("four logits")
    model = OutOfOrder()
    before = {name: getattr(model, name) for name in "fog"}
    head = RobustHead(alpha=0.1, guard=False).fit(model, [(x, y, contexts)])
    assert head.layer_ == "o"
    with torch.no_grad():
        z = head.put_back(model)(x).double()
    assert model.f is before["f"]
    assert model.g is before["g"]
    np.testing.assert_allclose(
        z.softmax(1), head.estimator_.predict_proba(head.features_.numpy()), rtol=1e-3, atol=1e-5
    )
    with pytest.raises(InvalidInputError, match="layer 'g' is not that of the network"):
        RobustHead().fit(model, [(x, y, contexts)], layer="g")


@pytest.mark.parametrize("alone", [False, True], ids=["network", "layer alone"])
def test_compiled_networks_get_their_head_back(alone):
    model, x, y, contexts = task("two logits")
    expected = RobustHead(alpha=0.1, guard=False).fit(model, [(x, y, contexts)]).put_back(copy.deepcopy(model))
    if alone:
        model[2] = torch.compile(model[2], backend="eager")
    compiled = model if alone else torch.compile(model, backend="eager")
    with torch.no_grad():
        compiled(x)
    head = RobustHead(alpha=0.1, guard=False).fit(compiled, [(x, y, contexts)])
    assert head.put_back(compiled) is compiled
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), expected(x))
    torch.testing.assert_close(model[2].weight, head.linear.weight)


def test_a_head_fitted_to_features_asks_which_layer_to_replace():
    _, x, y, contexts = task("four logits")
    model = OutOfOrder()
    head = RobustHead(alpha=0.1, guard=False).fit_features(features(model, x), y, contexts)
    with pytest.raises(InvalidInputError, match=r"'f', 'o', 'g' all have the shape of the head.*layer="):
        head.put_back(model)
    o, g = model.o, model.g
    assert head.put_back(model, layer="o").o is not o
    assert model.g is g
    with pytest.raises(InvalidInputError, match="layer '1' has 4 and 2"):
        head.put_back(nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2)))


def test_weights_are_what_their_names_say():
    model, x, y, contexts = task("two logits")
    plain, balanced, robust = (
        RobustHead(weights=weights, guard=False, alpha=0.1).fit(model, [(x, y, contexts)])
        for weights in ("erm", "inverse-frequency", "robust")
    )
    np.testing.assert_allclose(plain.context_weights_, np.array(SIZES) / sum(SIZES))
    np.testing.assert_allclose(balanced.context_weights_, np.full(3, 1.0 / 3.0))
    erm = cpo.RobustLogisticRegression(radius=0.0, alpha=0.1, reference="in-sample").fit(**plain.data_)
    np.testing.assert_allclose(plain.estimator_.coef_, erm.coef_, rtol=1e-6, atol=1e-8)
    assert robust.estimator_.excess_risks_.max() < plain.estimator_.excess_risks_.max()


def test_features_and_batches_give_the_same_head():
    model, x, y, contexts = task("two logits")
    by_network = RobustHead().fit(model, [(x, y, contexts)])
    labels = np.array(["a", "b", "c"])[CODES]
    by_features = RobustHead().fit_features(features(model, x), y, labels, layer=model[-1])
    torch.testing.assert_close(by_network.linear.weight, by_features.linear.weight)
    assert by_features.contexts_.tolist() == ["a", "b", "c"]
    assert by_features.chosen_ == by_network.chosen_
    without = RobustHead(guard=False).fit_features(features(model, x).numpy(), y.numpy(), labels)
    assert without.linear.out_features == 2


def test_batches_in_any_order_give_the_same_certificate():
    model, x, y, contexts = task("two logits")
    one, other = (
        RobustHead(alpha=0.1, guard=False).fit(model, b) for b in (as_loader(x, y, contexts), [(x, y, contexts)])
    )
    assert one.certificate_.upper == pytest.approx(other.certificate_.upper, abs=1e-5)


def test_the_path_and_the_bounds_of_a_head_are_those_of_its_estimator():
    model, x, y, contexts = task("two logits")
    head = RobustHead().fit(model, [(x, y, contexts)])
    path = cpo.confidence_path(head.estimator_, **head.data_, levels=4)
    assert path.n_rows >= 4
    assert (np.diff(path["worst_excess"]) <= 1e-6).all()


# --- the ridge -----------------------------------------------------------------------------------------------


def test_the_ridge_is_the_one_with_the_least_held_out_worst_case():
    model, x, y, contexts = task("two logits")
    head = RobustHead(alphas=[1e-3, 1e-1, 100.0]).fit(model, [(x, y, contexts)])
    table = head.alphas_
    assert table["alpha"].tolist() == [1e-3, 1e-1, 100.0]
    assert head.alpha_ == table["alpha"][table["worst_case"].argmin()]
    assert head.alpha_ < 100.0
    assert head.estimator_.alpha == head.alpha_


def test_noise_asks_for_a_strong_ridge():
    rng = np.random.default_rng(0)
    head = RobustHead(alphas=[1e-4, 10.0], guard=False)
    head.fit_features(rng.normal(size=(200, 60)), rng.integers(2, size=200), np.arange(200) % 2)
    assert head.alpha_ == 10.0


# --- the guard -----------------------------------------------------------------------------------------------


def test_a_network_that_is_right_already_keeps_its_layer():
    # The layer is the truth in every context, and no head fitted to some rows can be better.
    rng = np.random.default_rng(0)
    Z = torch.tensor(rng.normal(size=(400, 8))).float()
    layer = nn.Linear(8, 2)
    with torch.no_grad():
        y = torch.distributions.Categorical(logits=layer(Z) * 1.0).sample()
    head = RobustHead().fit_features(Z, y, np.arange(400) % 4, layer=layer)
    assert head.chosen_ == "network"
    torch.testing.assert_close(head.linear.weight, layer.weight)
    assert head.linear.weight is not layer.weight
    assert head.candidates_["candidate"].tolist() == ["network", "erm", "robust"]
    assert head.candidates_.note.startswith("network is kept: ")
    assert RobustHead(guard=False).fit_features(Z, y, np.arange(400) % 4, layer=layer).chosen_ == "robust"


def test_a_network_that_knows_nothing_is_replaced():
    model, x, y, contexts = task("two logits")
    head = RobustHead().fit(model, [(x, y, contexts)])
    assert head.chosen_ in ("erm", "robust")
    assert not torch.equal(head.linear.weight, model[-1].weight)


def test_a_head_that_serves_a_neglected_context_is_kept():
    # In the rare context the sign of the only useful feature is turned; a second one is right in both.
    rng = np.random.default_rng(1)
    contexts = np.repeat([0, 1], [1500, 300])
    y = rng.integers(2, size=1800)
    sign = 2.0 * y - 1.0
    spurious = np.where(contexts == 0, sign, -sign) * 1.5 + rng.normal(size=1800)
    Z = np.column_stack([spurious, sign + rng.normal(size=1800), rng.normal(size=(1800, 3))])
    head = RobustHead(radius=math.inf).fit_features(Z, y, contexts)
    assert head.chosen_ == "robust"
    plain = RobustHead(weights="erm", guard=False).fit_features(Z, y, contexts)
    rare = torch.tensor(Z[contexts == 1]).double()

    def errors(one):
        with torch.no_grad():
            return float((one.linear.double()(rare).argmax(1).numpy() != y[contexts == 1]).mean())

    assert errors(head) < errors(plain) - 0.1


# --- shapes --------------------------------------------------------------------------------------------------


def test_classes_without_rows_get_an_output_and_are_improbable():
    model, x, y, contexts = task("four logits")
    seen = (y != 1) & (y != 2)
    head = RobustHead(guard=False).fit(model, [(x[seen], y[seen], contexts[seen])])
    assert head.estimator_.classes_.tolist() == [0, 3]
    probabilities = head.put_back(model)(x[seen]).softmax(1).detach()
    assert probabilities[:, [1, 2]].mean() < 3.0 / int(seen.sum())
    two = head.estimator_.predict_proba(head.features_.numpy())
    conditional = probabilities[:, [0, 3]] / probabilities[:, [0, 3]].sum(1, keepdim=True)
    np.testing.assert_allclose(conditional, two, rtol=1e-3, atol=1e-5)
    three = y != 1
    again = RobustHead().fit(task("four logits")[0], [(x[three], y[three], contexts[three])])
    assert again.linear.out_features == 4
    assert torch.isfinite(again.linear.bias).all()


def test_a_class_that_a_fold_has_no_rows_of_does_no_harm():
    model, x, y, contexts = task("four logits")
    y = y.clone()
    y[y == 2] = 0
    y[0] = 2
    head = RobustHead().fit(model, [(x, y, contexts)])
    assert np.isfinite(head.alphas_["worst_case"]).all()
    assert np.isfinite(head.references_.risks).all()


def test_float_targets_of_one_logit_have_to_be_named():
    model, x, y, contexts = task("one logit")
    with pytest.raises(InvalidInputError, match="task='classification'"):
        RobustHead().fit(model, [(x, y.float(), contexts)])
    named = RobustHead(task="classification").fit(model, [(x, y.float()[:, None], contexts)])
    torch.testing.assert_close(named.linear.weight, RobustHead().fit(model, [(x, y, contexts)]).linear.weight)


def test_constant_features_and_layers_without_a_bias():
    model, x, y, contexts = task("two logits")
    model[-1] = nn.Linear(6, 2, bias=False)
    Z = torch.cat([features(model, x)[:, :5], torch.full((len(x), 1), 7.0)], 1)
    head = RobustHead(guard=False).fit_features(Z, y, contexts, layer=model[-1])
    assert torch.isfinite(head.linear.weight).all()
    assert (head.linear.weight[:, 5] == 0.0).all()
    assert head.linear.bias is not None


def test_precision_is_that_of_the_network():
    model, x, y, contexts = task("two logits")
    double = copy.deepcopy(model).double()
    head = RobustHead(guard=False, alpha=0.1).fit(double, [(x.double(), y, contexts)])
    assert head.linear.weight.dtype == torch.float64
    assert head.put_back(model)[-1].weight.dtype == torch.float32
    small = copy.deepcopy(model).to(torch.bfloat16)
    assert (
        RobustHead(guard=False, alpha=0.1).fit(small, [(x.bfloat16(), y, contexts)]).linear.weight.dtype
        == torch.bfloat16
    )


def test_few_rows_and_contexts_of_one():
    model, x, y, contexts = task("two logits", sizes=[30, 5, 1])
    head = RobustHead().fit(model, [(x, y, contexts)])
    assert torch.isfinite(head.linear.weight).all()
    assert np.isfinite(head.references_.risks).all()


@pytest.mark.parametrize("criterion", ["risk", "excess"])
def test_both_criteria_and_a_mix_with_bounds(criterion):
    model, x, y, contexts = task("two logits")
    head = RobustHead(criterion=criterion, mix={2: (0.1, 0.5)}).fit(model, [(x, y, contexts)])
    assert 0.1 - 1e-9 <= head.context_weights_[2] <= 0.5 + 1e-9


def test_held_out_references_may_be_used_in_the_fit():
    model, x, y, contexts = task("two logits")
    head = RobustHead(reference="heads", guard=False).fit(model, [(x, y, contexts)])
    own = head_references(
        features(model, x), y, CODES, own_losses=nn.functional.cross_entropy(model(x), y, reduction="none")
    )
    np.testing.assert_allclose(head.reference_risks_, own.risks, rtol=1e-4)
    np.testing.assert_allclose(head.references_.risks, own.risks, rtol=1e-4)


# --- what is refused -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "change", "words"),
    [
        ({"weights": "sgd"}, {}, "weights is 'sgd'"),
        ({"criterion": "regret"}, {}, "criterion is 'regret'"),
        ({"alpha": -1.0}, {}, "alphas"),
        ({"alphas": []}, {}, "alphas"),
        ({"folds": 1}, {}, "folds = 1"),
        ({"task": "ranking"}, {}, "task is 'ranking'"),
        ({"draws": "groups"}, {}, "draws is 'groups'"),
        ({}, {"targets": torch.full((510,), 2)}, "classes run from 2 to 2; pass whole numbers from 0 to 1"),
        ({}, {"targets": torch.rand(510)}, "the layer has 2 outputs, and targets are numbers"),
        ({}, {"targets": torch.zeros(510, dtype=torch.long)}, "one class"),
        ({}, {"targets": torch.zeros(509, dtype=torch.long)}, "targets have shape"),
        ({}, {"features": torch.full((510, 6), math.nan)}, "not all finite"),
        ({}, {"features": torch.zeros(510, 5)}, "the layer takes 6 features; there are 5"),
        ({}, {"features": torch.zeros(510)}, "features have shape"),
        ({}, {"contexts": np.zeros(3)}, "3 context labels for 510 rows"),
    ],
    ids=str,
)
def test_what_cannot_be_meant_is_named(options, change, words):
    model, x, y, contexts = task("two logits")
    given = {"features": features(model, x), "targets": y, "contexts": contexts, "layer": model[-1]} | change
    with pytest.raises(InvalidInputError, match=words):
        RobustHead(**options).fit_features(**given)


def test_a_head_goes_back_only_where_it_fits():
    model, x, y, contexts = task("two logits")
    with pytest.raises(InvalidInputError, match="Call fit first"):
        RobustHead().put_back(model)
    head = RobustHead(alpha=0.1, guard=False).fit(model, [(x, y, contexts)])
    with pytest.raises(InvalidInputError, match="has 6 features and 2 outputs"):
        head.put_back(nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3)))
    whole = RobustHead(alpha=0.1, guard=False).fit_features(features(model, x), y, contexts)
    with pytest.raises(InvalidInputError, match="the model is the layer itself"):
        whole.put_back(nn.Linear(6, 2))


def test_parameters_network_and_seeds_are_not_touched():
    model, x, y, contexts = task("two logits")
    before, state = copy.deepcopy(model.state_dict()), torch.get_rng_state()
    head = RobustHead()
    settings = dict(vars(head))
    assert head.fit(model, [(x, y, contexts)]) is head
    assert {name: getattr(head, name) for name in settings} == settings
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    np.testing.assert_array_equal(torch.get_rng_state(), state)


# --- on a GPU ------------------------------------------------------------------------------------------------


@needs_gpu
@pytest.mark.parametrize("kind", TASKS)
def test_the_same_head_on_a_gpu(kind):
    model, x, y, contexts = task(kind)
    here = RobustHead(alpha=0.1, guard=False).fit(model, [(x, y, contexts)])
    there = RobustHead(alpha=0.1, guard=False).fit(copy.deepcopy(model).cuda(), [(x, y, contexts)])
    assert there.features_.is_cuda
    assert there.linear.weight.is_cuda
    torch.testing.assert_close(there.linear.weight.cpu(), here.linear.weight, rtol=1e-2, atol=1e-3)
    assert there.certificate_.upper == pytest.approx(here.certificate_.upper, abs=1e-4)
    assert RobustHead().fit(model.cuda(), [(x, y, contexts)]).chosen_ in ("network", "erm", "robust")
