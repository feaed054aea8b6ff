"""What can be reached in each source: proxies that are trained on it alone, and scaling laws."""

import copy
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from torch.utils.data import DataLoader  # noqa: E402

from counterpoise.exceptions import InvalidInputError  # noqa: E402
from counterpoise.torch import (  # noqa: E402
    MixtureStream,
    extrapolated_losses,
    proxy_losses,
    proxy_models,
    source_losses,
)
from tests.torch_.bigrams import LENGTH, WORDS, Bigram, text  # noqa: E402


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


def test_a_proxy_is_judged_while_it_learns_by_heart():
    few, held = {"noise": list(text(12, 5))}, {"noise": held_out()["noise"]}
    seen = []

    def watched(parameters):
        seen.append(list(parameters))
        return fast(seen[-1])

    found = proxy_losses(Bigram(), few, held, steps=64, batch_size=12, optimizer=watched)["noise"]
    before, after = Bigram(), Bigram()
    with torch.no_grad():
        for parameter, value in zip(after.parameters(), seen[0], strict=True):
            parameter.copy_(value)
    assert found < min(source_losses(one, held)[0]["noise"] for one in (before, after)) - 0.05


def test_proxies_are_no_worse_than_the_model_they_come_from():
    held = {name: [torch.stack(rows[:8])] for name, rows in sources().items()}
    before, _ = source_losses(Bigram(), held)
    wild = proxy_losses(
        Bigram(), sources(), held, steps=3, batch_size=4, optimizer=lambda every: torch.optim.SGD(every, 1e8)
    )
    # A huge step learns the regular source by chance, and nothing of noise.
    assert wild["noise"] == pytest.approx(before["noise"])
    assert wild["regular"] <= before["regular"]
    with pytest.raises(InvalidInputError, match=r"optimizer is of type SGD\. Pass what makes one"):
        proxy_losses(Bigram(), sources(), held, steps=3, optimizer=torch.optim.SGD(Bigram().parameters()))
    broken = Bigram()
    torch.nn.init.constant_(broken.table.weight, math.nan)
    with pytest.raises(InvalidInputError, match="loss of regular is nan before any training"):
        proxy_losses(broken, sources(), held, steps=3)


def test_proxy_models_are_those_that_losses_are_of():
    model, options = Bigram(), {"steps": 40, "batch_size": 8, "optimizer": fast}
    losses, models = (
        proxy_losses(model, sources(), held_out(), **options),
        proxy_models(model, sources(), held_out(), **options),
    )
    for name, own in models.items():
        assert source_losses(own, {name: held_out()[name]})[0][name] == losses[name]
    broken = Bigram()
    torch.nn.init.constant_(broken.table.weight, math.nan)
    with pytest.raises(InvalidInputError, match="loss of regular is nan before any training"):
        proxy_models(broken, sources(), held_out(), steps=3)


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


@pytest.mark.parametrize("given", [{}, MixtureStream(sources(), [0.5, 0.5])], ids=["none", "a stream"])
def test_proxies_need_sources_by_name(given):
    with pytest.raises(InvalidInputError, match="pass a mapping from each to its samples"):
        proxy_losses(Bigram(), given, held_out(), steps=3)
    with pytest.raises(InvalidInputError, match="batch_size = 0"):
        proxy_losses(Bigram(), sources(), held_out(), steps=3, batch_size=0)
    with pytest.raises(InvalidInputError, match="no parameter of the model is to be trained"):
        proxy_losses(Bigram().requires_grad_(False), sources(), held_out(), steps=np.int64(3))


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
        ([1e6, 1e7, 1e8], [3.0, 2.0, 1.0], "x", "at = "),
        ([1e6, 1e7, 1e8], [3.0, 2.0, 1.0], None, "at = "),
    ],
)
def test_curves_that_say_nothing_are_refused(tokens, losses, at, words):
    with pytest.raises(InvalidInputError, match=words):
        extrapolated_losses(tokens, {"web": losses}, at)


def test_scaling_laws_refuse_words():
    for tokens, losses in (("abc", {"web": [3.0, 2.0, 1.0]}), ([1.0, 2.0, 3.0], {"web": "abc"})):
        with pytest.raises(InvalidInputError):
            extrapolated_losses(tokens, losses)
