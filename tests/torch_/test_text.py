"""Losses of language models by source, and what a source's own model would reach."""

import copy
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.utils.data import DataLoader  # noqa: E402

from counterpoise.exceptions import InvalidInputError  # noqa: E402
from counterpoise.torch import extrapolated_losses, next_token_loss, proxy_losses, source_losses  # noqa: E402
from counterpoise.torch.text import to_device  # noqa: E402

WORDS, LENGTH = 7, 6


class Bigram(nn.Module):
    """Logits of the next token from this one, with what makes a mode visible."""

    def __init__(self, seed=0):
        super().__init__()
        torch.manual_seed(seed)
        self.table = nn.Embedding(WORDS, WORDS)
        self.dropout = nn.Dropout(0.5)
        self.norm = nn.BatchNorm1d(3)

    def forward(self, input_ids):
        return self.dropout(self.table(input_ids))


class WithMask(Bigram):
    """As models of transformers: keywords in, an object out."""

    def forward(self, input_ids, attention_mask=None):
        assert attention_mask is not None
        return type("Output", (), {"logits": super().forward(input_ids)})


def text(n, seed, low=0, high=WORDS):
    return torch.randint(low, high, (n, LENGTH), generator=torch.Generator().manual_seed(seed))


def by_hand(model, tokens, counts):
    """Sum and number of log losses of the tokens that count, one by one."""
    table = model.table.weight.detach().double().numpy()
    total, number = 0.0, 0
    for row, keep in zip(tokens.numpy(), counts, strict=True):
        for k in range(1, LENGTH):
            if keep[k]:
                scores = table[row[k - 1]]
                total += np.log(np.exp(scores).sum()) - scores[row[k]]
                number += 1
    return total, number


def test_losses_are_those_of_the_next_tokens():
    model, tokens = Bigram().eval(), text(5, 1)
    total, number = next_token_loss(model, tokens)
    expected = by_hand(model, tokens, np.ones((5, LENGTH), dtype=bool))
    assert (float(total.detach()), int(number)) == (pytest.approx(expected[0], rel=1e-5), expected[1])


@pytest.mark.parametrize("kind", ["mask", "labels", "labels and mask"])
def test_masked_tokens_and_ignored_labels_do_not_count(kind):
    model, tokens = WithMask().eval(), text(6, 2)
    keep = np.random.default_rng(0).random((6, LENGTH)) < 0.6
    batch = {"input_ids": tokens, "attention_mask": torch.ones_like(tokens)}
    if kind != "labels":
        batch["attention_mask"] = torch.as_tensor(keep).long()
    if kind != "mask":
        batch["labels"] = tokens.masked_fill(torch.as_tensor(~keep), -100)
    total, number = next_token_loss(model, batch)
    expected = by_hand(model, tokens, keep)
    assert (float(total.detach()), int(number)) == (pytest.approx(expected[0], rel=1e-5), expected[1])


def test_losses_of_sources_are_means_over_tokens_and_not_over_batches():
    model = WithMask()
    keep = np.array([[True] * LENGTH, [True, True] + [False] * (LENGTH - 2), [True] * LENGTH])
    tokens = text(3, 3)
    batches = [
        {"input_ids": tokens[rows], "attention_mask": torch.as_tensor(keep[rows]).long()} for rows in ([0], [1, 2])
    ]
    losses, counts = source_losses(model, {"web": batches, "code": batches[:1]})
    total, number = by_hand(model, tokens, keep)
    assert counts == {"web": number, "code": LENGTH - 1}
    assert losses["web"] == pytest.approx(total / number, rel=1e-5)
    total, number = by_hand(model, tokens[:1], keep[:1])
    assert losses["code"] == pytest.approx(total / number, rel=1e-5)


def test_modes_and_random_numbers_are_as_before():
    model = Bigram().train()
    model.norm.eval()
    state = torch.random.get_rng_state()
    with pytest.raises(RuntimeError, match="stop"):
        source_losses(model, {"web": [text(2, 0)]}, batch_loss=lambda *_: (_ for _ in ()).throw(RuntimeError("stop")))
    losses = [source_losses(model, {"web": [text(2, 0)]})[0] for _ in range(2)]
    # Without dropout.
    assert losses[0] == losses[1]
    assert [part.training for part in model.modules()] == [True, True, True, False]
    assert torch.equal(torch.random.get_rng_state(), state)
    assert all(parameter.grad is None for parameter in model.parameters())


@pytest.mark.parametrize(
    ("batches", "words"),
    [
        ([], "for code. Pass a list of batches"),
        (iter([]), "not a generator"),
        (None, "None for code. Pass a list"),
        ({"input_ids": [1]}, "for code. Pass a list of batches"),
        (torch.utils.data.DataLoader(range(0)), "for code. Pass a list"),
        ([torch.zeros(2, 1, dtype=torch.long)], "no token counts in the held-out text of code"),
        (text(2, 0), r"text of code: a batch of token numbers is shape \(6,\); pass tensors of shape \(batch, length"),
        ([{"words": text(2, 0)}], "(?s)text of code: a batch of token numbers is .*input_ids"),
        (["words"], "text of code: a batch of token numbers is 'words'"),
    ],
)
def test_held_out_text_that_cannot_be_judged_is_named(batches, words):
    with pytest.raises(InvalidInputError, match=words):
        source_losses(Bigram(), {"web": [text(2, 0)], "code": batches})


def test_held_out_text_may_come_from_a_loader_without_a_length():
    class Rows(torch.utils.data.IterableDataset):
        def __iter__(self):
            return iter(text(6, 0))

    batches = torch.utils.data.DataLoader(Rows(), 4)
    found = source_losses(Bigram(), {"web": batches})
    expected = source_losses(Bigram(), {"web": [text(6, 0)]})
    assert found[0]["web"] == pytest.approx(expected[0]["web"])
    assert found[1] == expected[1]


def test_a_batch_may_have_labels_and_no_token_numbers():
    class FromVectors(Bigram):
        def forward(self, inputs_embeds):
            return inputs_embeds @ self.table.weight.T

    batch = {"inputs_embeds": torch.ones(2, LENGTH, WORDS), "labels": text(2, 0)}
    assert float(next_token_loss(FromVectors(), batch)[1]) == 2 * (LENGTH - 1)


def test_proxies_are_no_worse_than_the_model_they_come_from():
    held = {name: [torch.stack(rows[:8])] for name, rows in sources().items()}
    before, _ = source_losses(Bigram(), held)
    wild = proxy_losses(
        Bigram(), sources(), held, steps=3, batch_size=4, optimizer=lambda every: torch.optim.SGD(every, 1e8)
    )
    # A huge step learns the regular source by chance, and nothing of noise.
    assert wild["noise"] == pytest.approx(before["noise"])
    assert wild["regular"] <= before["regular"]
    with pytest.raises(InvalidInputError, match="optimizer is an optimiser"):
        proxy_losses(Bigram(), sources(), held, steps=3, optimizer=torch.optim.SGD(Bigram().parameters()))
    broken = Bigram()
    torch.nn.init.constant_(broken.table.weight, math.nan)
    with pytest.raises(InvalidInputError, match="loss of regular is nan before any training"):
        proxy_losses(broken, sources(), held, steps=3)


def test_models_that_return_no_logits_are_refused():
    class WithLoss(Bigram):
        def forward(self, input_ids):
            return super().forward(input_ids).mean()

    with pytest.raises(InvalidInputError, match=r"returns shape \(\), not logits.*batch_loss="):
        source_losses(WithLoss(), {"web": [text(2, 0)]})
    with pytest.raises(InvalidInputError, match="held_out is"):
        source_losses(Bigram(), [text(2, 0)])


# --- references -------------------------------------------------------------------------------------------------


def sources():
    """One source that is regular, and one that is noise."""
    regular = (torch.arange(LENGTH)[None] + torch.arange(40)[:, None]) % WORDS
    return {"regular": list(regular), "noise": list(text(40, 5))}


def held_out():
    regular = (torch.arange(LENGTH)[None] + torch.arange(14)[:, None]) % WORDS
    return {"regular": [regular], "noise": DataLoader(text(40, 6), 20)}


def fast(parameters):
    return torch.optim.Adam(parameters, 0.1)


def test_a_proxy_learns_its_source_alone():
    model = Bigram()
    before = copy.deepcopy(model.state_dict())
    found = proxy_losses(model, sources(), held_out(), steps=40, batch_size=8, optimizer=fast)
    assert found["regular"] < 0.3
    # Nobody foresees noise, and who has learnt it by heart is judged by an earlier look.
    assert math.log(WORDS) - 0.1 < found["noise"] < source_losses(model, held_out())[0]["noise"]
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_proxies_depend_on_their_seed_alone():
    options = {"steps": 5, "batch_size": 8, "optimizer": fast}
    torch.manual_seed(1)
    one = proxy_losses(Bigram(), sources(), held_out(), **options)
    model = Bigram()
    torch.manual_seed(2)
    state = torch.random.get_rng_state()
    backwards = dict(reversed(sources().items()))
    other = proxy_losses(model, backwards, held_out(), **options)
    assert torch.equal(torch.random.get_rng_state(), state)
    assert other == one
    assert list(other) == ["noise", "regular"]
    assert proxy_losses(model, sources(), held_out(), seed=3, **options) != one


@pytest.mark.parametrize(("steps", "kept", "words"), [(0, 2, "steps"), (2.5, 2, "steps"), (3, 1, "of noise")])
def test_what_proxies_cannot_be_trained_on_is_named(steps, kept, words):
    held = dict(list(held_out().items())[:kept])
    with pytest.raises(InvalidInputError, match=words):
        proxy_losses(Bigram(), sources(), held, steps=steps)


@settings(max_examples=25, deadline=None)
@given(floor=st.floats(0.5, 4.0), factor=st.floats(0.5, 3.0), exponent=st.floats(0.1, 1.0), at=st.floats(1e8, 1e12))
def test_a_known_law_is_recovered(floor, factor, exponent, at):
    tokens = np.geomspace(1e6, 1e9, 6)

    def law(n):
        return floor + factor * (n / 1e6) ** -exponent

    found = extrapolated_losses(tokens, {"web": law(tokens), "code": 2 * law(tokens)}, at)
    assert found["web"] == pytest.approx(law(at), rel=1e-4)
    assert found["code"] == pytest.approx(2 * law(at), rel=1e-4)
    assert extrapolated_losses(tokens, {"web": law(tokens)})["web"] == pytest.approx(floor, rel=1e-3)


def test_losses_that_do_not_fall_are_taken_as_they_are():
    found = extrapolated_losses([1e6, 1e7, 1e8], {"web": [2.0, 2.0, 2.0], "worse": [2.0, 2.1, 2.2]}, 1e10)
    assert found["web"] == pytest.approx(2.0)
    assert found["worse"] == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("tokens", "losses", "at", "words"),
    [
        ([1e6, 1e7, 1e7], [3.0, 2.0, 1.0], 1e9, "three different"),
        ([1e6, -1.0, 1e7], [3.0, 2.0, 1.0], 1e9, "three different"),
        ([1e6, 1e7, 1e8], [3.0, 2.0], 1e9, "losses of web"),
        ([1e6, 1e7, 1e8], [3.0, math.nan, 1.0], 1e9, "losses of web"),
        ([1e6, 1e7, 1e8], [3.0, 2.0, 1.0], 0.0, "at = "),
    ],
)
def test_curves_that_say_nothing_are_refused(tokens, losses, at, words):
    with pytest.raises(InvalidInputError, match=words):
        extrapolated_losses(tokens, {"web": losses}, at)


def test_scaling_laws_refuse_words():
    for tokens, losses in (("abc", {"web": [3.0, 2.0, 1.0]}), ([1.0, 2.0, 3.0], {"web": "abc"})):
        with pytest.raises(InvalidInputError):
            extrapolated_losses(tokens, losses)


def test_batches_may_be_lists():
    found = to_device([torch.ones(2), (torch.zeros(1), "word")], torch.device("meta"))
    assert [found[0].device.type, found[1][0].device.type, found[1][1]] == ["meta", "meta", "word"]
