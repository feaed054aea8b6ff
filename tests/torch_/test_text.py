"""Losses of language models by source."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from counterpoise.exceptions import InvalidInputError  # noqa: E402
from counterpoise.torch import next_token_loss, sample_losses, source_losses  # noqa: E402
from counterpoise.torch.text import to_device  # noqa: E402
from tests.torch_.bigrams import LENGTH, WORDS, Bigram, text  # noqa: E402


class WithMask(Bigram):
    """As models of transformers: keywords in, an object out."""

    def forward(self, input_ids, attention_mask=None):
        assert attention_mask is not None
        return type("Output", (), {"logits": super().forward(input_ids)})


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


class Talking(torch.nn.parallel.DistributedDataParallel):
    """One that would talk to other processes in every batch."""

    def __init__(self, module):
        torch.nn.Module.__init__(self)
        self.module = module

    def forward(self, *_):
        raise AssertionError("other processes may have fewer batches")


def test_a_model_of_several_processes_is_judged_without_them():
    model, held_out = Bigram(), {"a": [text(5, 1)]}
    assert source_losses(Talking(model), held_out) == source_losses(model, held_out)


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


def test_token_numbers_may_be_small_integers():
    model, tokens = Bigram().eval(), text(5, 1)
    expected = next_token_loss(model, tokens)
    for kind in (torch.uint8, torch.int16, torch.uint16, torch.int32, torch.uint32):
        for batch in (tokens.to(kind), {"input_ids": tokens.to(kind)}):
            assert next_token_loss(model, batch) == expected


@pytest.mark.parametrize("kind", ["plain", "mask"])
def test_losses_of_samples_are_those_of_each_alone(kind):
    tokens = [text(4, 1), text(2, 2)]
    model, batches = Bigram(), tokens
    if kind == "mask":
        model = WithMask()
        batches = [
            {"input_ids": one, "attention_mask": torch.ones_like(one).index_fill(1, torch.tensor([4, 5]), 0)}
            for one in tokens
        ]
    found = sample_losses(model, batches)
    rows = [
        row[None] if kind == "plain" else {name: value[k : k + 1] for name, value in batch.items()}
        for batch in batches
        for k, row in enumerate(batch if kind == "plain" else batch["input_ids"])
    ]
    alone = source_losses(model, {k: [row] for k, row in enumerate(rows)})[0]
    assert found.tolist() == pytest.approx(list(alone.values()), rel=1e-6)
    assert model.training
    with pytest.raises(InvalidInputError, match="no batches to judge"):
        sample_losses(model, [])
    none = {"input_ids": text(2, 0), "attention_mask": torch.ones(2, LENGTH), "labels": torch.full((2, LENGTH), -100)}
    with pytest.raises(InvalidInputError, match="no token of sample 0"):
        sample_losses(WithMask(), [none])


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
        ([], "no batches of code. Pass some, or leave the source out"),
        (torch.utils.data.TensorDataset(torch.zeros(0)), "for code. Pass a list of batches"),
        (iter([]), "not a generator"),
        (None, "None for code. Pass a list"),
        ({"input_ids": [1]}, "for code. Pass a list of batches"),
        (torch.utils.data.DataLoader(range(0)), "for code. Pass a list"),
        ([torch.zeros(2, 1, dtype=torch.long)], "no token counts in the held-out text of code"),
        (text(2, 0), r"a single tensor for code, of shape \(2, 6\). If it is a batch, pass it in a list"),
        (
            list(text(2, 0)),
            r"text of code: a batch holds token numbers of shape \(6,\); pass tensors of shape \(batch, len",
        ),
        ([{"words": text(2, 0)}], "text of code: a batch holds token numbers None; .*input_ids"),
        (
            [{"input_ids": [torch.arange(2)]}],
            r"text of code: a batch holds token numbers \[tensor.*a collate_fn, such as",
        ),
        (["words"], "text of code: a batch holds token numbers 'words'"),
        ([text(2, 0) + WORDS], "text of code: index out of range.*tokens that the model does not know"),
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


def test_models_that_return_no_logits_are_refused():
    class WithLoss(Bigram):
        def forward(self, input_ids):
            return super().forward(input_ids).mean()

    with pytest.raises(InvalidInputError, match=r"returns shape \(\), not logits.*batch_loss="):
        source_losses(WithLoss(), {"web": [text(2, 0)]})
    with pytest.raises(InvalidInputError, match="held_out is"):
        source_losses(Bigram(), [text(2, 0)])


def test_what_a_batch_loss_has_to_return_is_said():
    with pytest.raises(
        InvalidInputError, match=r"batch_loss returns tensor\(1.*the sum of the losses.* and their number"
    ):
        source_losses(Bigram(), {"web": [text(2, 0)]}, batch_loss=lambda model, batch: torch.tensor(1.0))


def test_batches_may_be_lists():
    found = to_device([torch.ones(2), (torch.zeros(1), "word")], torch.device("meta"))
    assert [found[0].device.type, found[1][0].device.type, found[1][1]] == ["meta", "meta", "word"]
