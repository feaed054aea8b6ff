"""Reference risks: near the truth, never flattering, and read back from a file only where they are the same."""

import functools
import json

import numpy as np
import pytest
from scipy.stats import norm

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.utils.data import Dataset, TensorDataset  # noqa: E402

from counterpoise.exceptions import InvalidInputError  # noqa: E402
from counterpoise.torch import head_references, per_sample, reference_risks, references  # noqa: E402

NOISE = np.array([1.0, 0.6, 0.3])
COUNTS = [2000, 1000, 500]
CONTEXTS = np.repeat(["a", "b", "c"], COUNTS)
ADAM = functools.partial(torch.optim.Adam, lr=0.02)


def linear_rows(seed=0):
    """Return rows whose context has coefficients and a noise of its own: the least risk is half the variance."""
    rng = np.random.default_rng(seed)
    codes = np.repeat([0, 1, 2], COUNTS)
    X = rng.normal(size=(len(codes), 3))
    own = rng.normal(size=(3, 3))
    y = np.einsum("nd,nd->n", X, own[codes]) + NOISE[codes] * rng.normal(size=len(codes))
    return TensorDataset(torch.tensor(X).float(), torch.tensor(y).float())


def small(n=40):
    rng = np.random.default_rng(1)
    X = torch.tensor(rng.normal(size=(n, 2))).float()
    return TensorDataset(X, X.sum(1)), np.arange(n) % 2


def model():
    torch.manual_seed(0)
    return nn.Linear(2, 1)


class AsDataset(Dataset):
    """The same rows, one by one."""

    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, k):
        return self.rows[k]


@pytest.fixture
def untrained(monkeypatch):
    """Let every training be an error."""

    def refuse(*_, **__):
        raise AssertionError("a network was trained")

    return lambda: monkeypatch.setattr(references, "fit", refuse)


@pytest.mark.parametrize("seed", [0, 1])
def test_close_to_the_truth_and_never_far_below_it(seed):
    torch.manual_seed(seed)
    risks = reference_risks(
        nn.Linear(3, 1), linear_rows(seed), CONTEXTS, epochs=12, batch_size=32, optimizer=ADAM, seed=seed
    )
    truth = 0.5 * NOISE**2
    # Half a squared normal number has standard deviation variance / sqrt(2); a fifth of the rows judge.
    error = truth * np.sqrt(2.0 / (0.2 * np.array(COUNTS)))
    assert (risks >= truth - 4 * error).all()
    assert (risks <= truth + 4 * error + 0.03).all()


def test_a_small_context_learnt_by_heart_is_not_flattered():
    # Targets are noise of variance 1, and the network can learn eight rows by heart.
    rng = np.random.default_rng(0)
    contexts = np.repeat([0, 1], [400, 10])
    data = TensorDataset(torch.tensor(rng.normal(size=(410, 30))).float(), torch.tensor(rng.normal(size=410)).float())
    torch.manual_seed(0)
    risks = reference_risks(nn.Linear(30, 1), data, contexts, epochs=30, optimizer=ADAM, held_out=0.5)
    assert risks[1] > 0.1


def test_the_model_is_left_alone_and_the_answer_repeats():
    data, contexts = small()
    given = model()
    before = {name: value.clone() for name, value in given.state_dict().items()}
    first = reference_risks(given, data, contexts, epochs=2)
    second = reference_risks(given, data, contexts, epochs=2)
    assert first.tolist() == second.tolist()
    assert all(torch.equal(before[name], value) for name, value in given.state_dict().items())
    assert given.training


def test_any_dataset_and_any_labels():
    data, contexts = small()
    expected = reference_risks(model(), data, contexts, epochs=2)
    for rows, labels in (
        (AsDataset(data), contexts),
        (data, torch.tensor(contexts)),
        (data, ["even" if c == 0 else "odd" for c in contexts]),
    ):
        np.testing.assert_allclose(reference_risks(model(), rows, labels, epochs=2), expected, rtol=1e-5)


def test_global_seeds_are_not_touched():
    data, contexts = small()
    given = model()
    before = torch.get_rng_state()
    reference_risks(given, data, contexts, epochs=1)
    assert torch.equal(before, torch.get_rng_state())


# --- the file ------------------------------------------------------------------------------------------------


def test_what_is_known_is_not_trained_again(tmp_path, untrained):
    data, contexts = small()
    path = tmp_path / "a folder" / "references.json"
    first = reference_risks(model(), data, contexts, epochs=1, cache=path)
    untrained()
    assert reference_risks(model(), data, contexts, epochs=1, cache=str(path)).tolist() == first.tolist()


def other_rows():
    data, _ = small()
    return TensorDataset(data.tensors[0], 10.0 * data.tensors[1])


def slow(parameters):
    return torch.optim.SGD(parameters, lr=1e-6)


CHANGES = {
    "epochs": {"epochs": 2},
    "batch size": {"batch_size": 7},
    "held out": {"held_out": 0.4},
    "seed": {"seed": 1},
    "optimiser": {"optimizer": torch.optim.SGD},
    "settings of the optimiser": {"optimizer": functools.partial(torch.optim.SGD, lr=0.1)},
    "contexts": {"contexts": np.arange(40) // 20},
    "shape of the model": {"model": nn.Linear(2, 1, bias=False)},
    "row loss": {"row_loss": lambda z, y: 10.0 * per_sample(z, y)},
    "targets": {"dataset": other_rows()},
}


@pytest.mark.parametrize("change", CHANGES)
def test_whatever_changes_the_answer_is_trained_again(tmp_path, untrained, change):
    data, contexts = small()
    path = tmp_path / "references.json"
    given = {"model": model(), "dataset": data, "contexts": contexts, "epochs": 1, "optimizer": slow, "cache": path}
    reference_risks(**given)
    untrained()
    with pytest.raises(AssertionError, match="trained"):
        reference_risks(**(given | CHANGES[change]))


def test_two_optimisers_without_a_name_are_not_mixed_up(tmp_path, untrained):
    data, contexts = small()
    path = tmp_path / "references.json"
    reference_risks(model(), data, contexts, epochs=1, cache=path, optimizer=lambda p: torch.optim.SGD(p, lr=1e-6))
    untrained()
    with pytest.raises(AssertionError, match="trained"):
        reference_risks(model(), data, contexts, epochs=1, cache=path, optimizer=lambda p: torch.optim.Adam(p, lr=0.1))


def test_several_answers_share_a_file(tmp_path, untrained):
    data, contexts = small()
    path = tmp_path / "references.json"
    answers = [reference_risks(model(), data, contexts, epochs=k, cache=path).tolist() for k in (1, 2)]
    assert len(json.loads(path.read_text())) == 2
    untrained()
    assert [reference_risks(model(), data, contexts, epochs=k, cache=path).tolist() for k in (1, 2)] == answers


@pytest.mark.parametrize("text", ["", "risks: 1, 2", "[]", '{"a": 1}', '{"a": ["x"]}'])
def test_a_file_that_holds_no_risks_is_refused(tmp_path, text, untrained):
    data, contexts = small()
    path = tmp_path / "references.json"
    path.write_text(text)
    untrained()
    with pytest.raises(InvalidInputError, match=r"references\.json holds no reference risks"):
        reference_risks(model(), data, contexts, cache=path)


def test_a_folder_in_place_of_the_file_is_refused_before_training(tmp_path, untrained):
    data, contexts = small()
    untrained()
    with pytest.raises(InvalidInputError):
        reference_risks(model(), data, contexts, cache=tmp_path)


# --- what is refused -----------------------------------------------------------------------------------------


def test_a_context_with_one_row_is_refused():
    data, contexts = small()
    with pytest.raises(InvalidInputError, match="context 7 has one sample"):
        reference_risks(model(), data, np.where(np.arange(40) == 3, 7, contexts))


def test_two_rows_are_enough():
    data, contexts = small()
    risks = reference_risks(model(), data, np.where(np.arange(40) < 2, 7, contexts), epochs=1)
    assert np.isfinite(risks).all()


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"held_out": 0.0}, "held_out"),
        ({"held_out": 1.0}, "held_out"),
        ({"epochs": 0}, "epochs"),
        ({"contexts": np.arange(39) % 2}, "39 context labels"),
        ({"batch_size": 0}, "batch_size"),
    ],
    ids=str,
)
def test_what_cannot_be_meant_is_refused(options, word):
    data, contexts = small()
    with pytest.raises(ValueError, match=word):
        reference_risks(**({"model": model(), "dataset": data, "contexts": contexts} | options))


# --- linear heads on frozen features -------------------------------------------------------------------------

SIZES = [600, 200, 60, 12]


def featured_rows(seed, differ, classes):
    """Return features, targets and contexts whose least risks are those of known linear heads, and these risks."""
    rng = np.random.default_rng(seed)
    codes, d = np.repeat(np.arange(4), SIZES), 10
    heads = 1.5 / np.sqrt(d) * (rng.normal(size=d) + differ * rng.normal(size=(4, d)))
    X = rng.normal(size=(len(codes), d))
    z = np.einsum("nd,nd->n", X, heads[codes])
    if not classes:
        return X, z + rng.normal(size=len(z)), codes, np.full(4, 0.5)
    # Along a head normal features have one normal output, whose entropy is a sum over its quantiles.
    outputs = np.linalg.norm(heads, axis=1)[:, None] * norm.ppf((np.arange(1000) + 0.5) / 1000)
    least = (np.logaddexp(0.0, outputs) - outputs / (1.0 + np.exp(-outputs))).mean(axis=1)
    return X, (rng.random(len(z)) < 1.0 / (1.0 + np.exp(-z))).astype(int), codes, least


@pytest.mark.parametrize("classes", [False, True], ids=["numbers", "classes"])
@pytest.mark.parametrize("differ", [0.0, 1.0])
def test_heads_are_close_to_the_least_risk_and_not_below_it(differ, classes):
    distances, errors, above = [], [], []
    for seed in range(30):
        X, y, codes, least = featured_rows(seed, differ, classes)
        found = head_references(X, y, codes, seed=seed)
        distances.append((found.risks - least) / found.standard_errors)
        errors.append(found.standard_errors)
        above.append(found.risks - least)
    # The error of a mean of 30 runs; contexts of 12 rows have standard errors that are themselves rough.
    mean, error = np.mean(above, axis=0), np.mean(errors, axis=0) / np.sqrt(30)
    assert (mean > -3 * error).all()
    # What so few rows cannot tell is added: about half the parameters over the rows for a likelihood.
    assert (mean[:2] < 0.05 + 3 * error[:2]).all()
    assert (np.abs(np.array(distances)[:, :2]) < 4.5).all()


def test_a_network_that_is_better_than_any_head_is_the_reference():
    X, y, codes, _ = featured_rows(0, 0.0, True)
    found = head_references(np.random.default_rng(0).normal(size=X.shape), y, codes, own_losses=np.full(len(y), 0.1))
    np.testing.assert_allclose(found.risks, 0.1)
    np.testing.assert_allclose(found.standard_errors, 0.0, atol=1e-12)


def test_rows_that_were_learnt_by_heart_flatter_no_context():
    # Nothing is to be learnt: the least risk is that of even chances. What is chosen by heads that have seen the rows
    # it is judged on lies below.
    codes, above = np.repeat(np.arange(51), [300, *[8] * 40, *[30] * 10]), []
    for seed in range(10):
        rng = np.random.default_rng(seed)
        found = head_references(rng.normal(size=(920, 60)), rng.integers(2, size=920), codes, seed=seed)
        above.append(found.risks - np.log(2.0))
    for some in (slice(0, 1), slice(1, 41), slice(41, 51)):
        mean = np.mean(np.array(above)[:, some], axis=1)
        assert mean.mean() > -2.0 * mean.std(ddof=1) / np.sqrt(len(mean))


def test_contexts_without_rows_have_no_reference():
    X, y, codes, _ = featured_rows(0, 0.0, True)
    found = head_references(X, y, codes, 6)
    assert np.isnan(found.risks).tolist() == [False] * 4 + [True] * 2
    assert np.isnan(found.standard_errors).tolist() == [False] * 4 + [True] * 2


@pytest.mark.parametrize("kind", ["four classes", "two numbers", "one class"])
def test_any_targets(kind):
    X, _, codes, _ = featured_rows(0, 1.0, True)
    rng = np.random.default_rng(1)
    y = {
        "four classes": rng.integers(4, size=len(X)),
        "two numbers": rng.normal(size=(len(X), 2)),
        "one class": np.zeros(len(X), dtype=int),
    }[kind]
    found = head_references(X.astype(np.float32), torch.tensor(y), torch.tensor(codes))
    least = {"four classes": np.log(4.0), "two numbers": 0.5, "one class": 0.0}[kind]
    assert (np.abs(found.risks[:2] - least) < 0.15).all()


def test_standard_errors_are_returned_where_they_are_asked_for(tmp_path, untrained):
    data, contexts = small()
    path = tmp_path / "references.json"
    risks = reference_risks(model(), data, contexts, epochs=1)
    both = reference_risks(model(), data, contexts, epochs=1, cache=path, return_errors=True)
    assert both.risks.tolist() == risks.tolist()
    assert (both.standard_errors > 0.0).all()
    untrained()
    again = reference_risks(model(), data, contexts, epochs=1, cache=path, return_errors=True)
    assert again.risks.tolist() == both.risks.tolist()
    assert again.standard_errors.tolist() == both.standard_errors.tolist()


def test_a_network_without_features_is_fine_tuned_alone():
    data, contexts = small()
    torch.manual_seed(0)
    folded = nn.Sequential(nn.Unflatten(1, (1, 2)), nn.Conv1d(1, 1, 2), nn.Flatten())
    assert np.isfinite(reference_risks(folded, data, contexts, epochs=1)).all()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"folds": 1}, "folds = 1"),
        ({"alphas": [0.0]}, "alphas"),
        ({"own_losses": np.zeros(3)}, "own_losses"),
        ({"n_contexts": 2}, "contexts run from 0 to 3; they are numbered from 0 to 1"),
        ({"contexts": np.zeros(872)}, "contexts are float64"),
        ({"targets": np.zeros(3)}, "872 rows of features and 3 targets"),
        ({"task": "ranking"}, "task is 'ranking'"),
        ({"features": np.full((872, 2), np.nan)}, "not all finite"),
    ],
    ids=str,
)
def test_heads_that_cannot_be_meant_are_refused(change, words):
    X, y, codes, _ = featured_rows(0, 0.0, True)
    with pytest.raises(InvalidInputError, match=words):
        head_references(**({"features": X, "targets": y, "contexts": codes} | change))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here: torch.cuda.is_available() is False")
def test_the_same_heads_on_a_gpu():
    X, y, codes, _ = featured_rows(0, 1.0, True)
    here, there = head_references(X, y, codes), head_references(torch.tensor(X).cuda(), torch.tensor(y), codes)
    np.testing.assert_allclose(there.risks, here.risks, rtol=1e-4)
    np.testing.assert_allclose(there.standard_errors, here.standard_errors, rtol=1e-3)
