"""Streams of samples from several sources."""

import copy
import functools
import itertools
import json
import operator
import pickle
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from torch.utils.data import DataLoader, IterableDataset, TensorDataset, get_worker_info  # noqa: E402

from counterpoise.contexts import shown  # noqa: E402
from counterpoise.exceptions import InvalidInputError  # noqa: E402
from counterpoise.torch import MixtureController, MixtureStream, source_readers  # noqa: E402

SIZES = {"web": 50, "code": 20, "papers": 7}
SHARES = {"web": 0.55, "code": 0.3, "papers": 0.15}
LATER = {"web": 0.1, "code": 0.3, "papers": 0.6}

# More workers than cores are no matter here.
pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")


def numbered():
    return {name: [f"{name}/{k}" for k in range(size)] for name, size in SIZES.items()}


class InOrder(IterableDataset):
    """Samples that can only be read in their order."""

    def __init__(self, name, size):
        self.name, self.size, self.epoch = name, size, 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __iter__(self):
        # Every epoch in another order, as a source that shuffles a buffer has it.
        order = np.random.default_rng(self.epoch).permutation(self.size)
        return (f"{self.name}/{k}" for k in order)


class Divided(InOrder):
    """Samples that a source of good manners divides between workers by itself."""

    def __iter__(self):
        info = get_worker_info()
        first, step = (0, 1) if info is None else (info.id, info.num_workers)
        order = np.random.default_rng(self.epoch).permutation(self.size)
        return (f"{self.name}/{k}" for k in order[first::step])


def in_order(kind=InOrder):
    return {name: kind(name, size) for name, size in SIZES.items()}


KINDS = {
    "numbered": numbered,
    "in order": in_order,
    "divided by itself": lambda: in_order(Divided),
    "mixed": lambda: numbered() | {"web": InOrder("web", SIZES["web"])},
}
each_kind = pytest.mark.parametrize("kind", KINDS)


def stream(kind="numbered", shares=SHARES, **options):
    return MixtureStream(KINDS[kind](), shares, **options)


def first(one, n):
    return list(itertools.islice(one, n))


def of(samples):
    return [sample.partition("/")[0] for sample in samples]


def batches(one, n, size=4, workers=0, **options):
    """The first batches of a loader."""
    loader = DataLoader(one, size, num_workers=workers, collate_fn=list, **options)
    return first(loader, n)


# --- in which shares -------------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(
    weights=st.lists(st.floats(0.0, 1.0), min_size=2, max_size=8).filter(lambda found: sum(found) > 0.1),
    seed=st.integers(0, 2**32),
    place=st.integers(0, 10**12),
    n=st.integers(1, 3000),
)
def test_any_stretch_holds_every_source_in_its_share(weights, seed, place, n):
    shares = np.array(weights) / sum(weights)
    one = MixtureStream({k: [k] for k in range(len(shares))}, shares, seed=seed)
    drawn = np.bincount(one.drawn(place, place + n), minlength=len(shares))
    assert np.abs(drawn - n * shares).max() < 5.0
    assert not drawn[shares == 0.0].any()


def test_samples_come_from_the_sources_that_are_said_to_be_drawn():
    one = stream()
    names = np.array(list(SIZES))
    assert of(first(one, 3000)) == names[one.drawn(0, 3000)].tolist()


@pytest.mark.parametrize("never", SIZES)
def test_a_source_without_a_share_is_never_drawn(never):
    others = [name for name in SIZES if name != never]
    drawn = of(first(stream(shares=dict.fromkeys(others, 0.5)), 2000))
    assert never not in drawn
    assert drawn.count(others[0]) == pytest.approx(1000, abs=3)


def test_shares_come_from_a_controller_by_name():
    controller = MixtureController({"papers": 1e9, "web": 6e9, "code": 3e9}, radius=0.0)
    one = stream(shares=controller)
    assert of(first(one, 1000)).count("papers") == pytest.approx(100, abs=3)


# --- which samples ---------------------------------------------------------------------------------------------


@each_kind
def test_every_epoch_of_a_source_holds_each_sample_once(kind):
    samples = first(stream(kind), 2000)
    for name, size in SIZES.items():
        own = [sample for sample in samples if sample.startswith(name)]
        for begin in range(0, len(own) - size + 1, size):
            assert len(set(own[begin : begin + size])) == size


def test_numbered_samples_are_shuffled_anew_in_each_epoch():
    own = [sample for sample in first(stream(), 600) if sample.startswith("code")]
    epochs = [own[k : k + 20] for k in range(0, 100, 20)]
    assert all(one != other for one, other in itertools.pairwise(epochs))
    plain = [sample for sample in first(stream(shuffle=False), 600) if sample.startswith("code")]
    assert plain[:40] == numbered()["code"] * 2


def test_large_sources_are_shuffled_as_small_ones_are(monkeypatch):
    monkeypatch.setattr(source_readers, "_LARGEST_TABLE", 10)
    own = [sample for sample in first(stream(), 600) if sample.startswith("code")]
    epochs = [own[k : k + 20] for k in range(0, 100, 20)]
    assert all(sorted(one) == sorted(numbered()["code"]) for one in epochs)
    assert len(set(map(tuple, epochs))) == 5
    assert batches(stream(batch_size=4), 90, workers=2) == batches(stream(), 90)


class Endless:
    """More samples than any table holds."""

    def __len__(self):
        return 10**14

    def __getitem__(self, k):
        return k


def test_a_source_of_any_size_is_shuffled_at_once():
    found = first(MixtureStream({"web": Endless()}, [1.0]), 2000)
    assert len(set(found)) == 2000
    assert abs(np.mean(found) / 10**14 - 0.5) < 0.05
    assert 0 <= min(found) <= max(found) < 10**14


def test_it_is_a_function_of_the_seed():
    assert first(stream(seed=1), 200) == first(stream(seed=1), 200)
    assert of(first(stream(seed=1), 200)) != of(first(stream(seed=2), 200))
    torch.manual_seed(5)
    np.random.seed(5)  # noqa: NPY002 - what is global must not matter
    assert first(stream(seed=1), 200) == first(stream(seed=1), 200)


def test_datasets_and_epochs_of_iterables_are_taken_as_they_are():
    ordered = InOrder("web", 10)
    data = TensorDataset(torch.arange(5.0))
    one = MixtureStream({"web": ordered, "table": data}, [0.5, 0.5])
    found = first(one, 64)
    assert {float(sample[0]) for sample in found if isinstance(sample, tuple)} == set(range(5))
    assert ordered.epoch == sum(isinstance(sample, str) for sample in found[:-1]) // 10


def test_an_iterable_with_a_length_is_no_list():
    class Sized(InOrder):
        def __len__(self):
            return self.size

    source = Sized("web", 3)
    found = first(MixtureStream({"web": source}, [1.0]), 4)
    source.set_epoch(1)
    assert found[3] == next(iter(source))
    assert set(found) == {"web/0", "web/1", "web/2"}


def test_a_stream_is_read_from_its_beginning_again_and_again():
    one = MixtureStream(in_order(), SHARES)
    found = first(one, 200)
    one.start = 0
    assert first(one, 200) == found
    assert len(set(found)) == sum(SIZES.values())


def test_shares_that_were_planned_for_later_are_overtaken():
    one = MixtureStream(numbered(), {"web": 1.0})
    one.follow({"code": 1.0}, after=500)
    reader = iter(one)
    assert all(next(reader).startswith("web") for _ in range(20))
    one.follow({"papers": 1.0})
    assert all(next(reader).startswith("papers") for _ in range(600))


def test_a_mix_read_from_a_file_names_sources_in_words():
    one = MixtureStream({1: ["a"], ("b", 2): ["b"]}, {"1": 0.0, shown(("b", 2)): 1.0})
    assert set(first(one, 5)) == {"b"}


@pytest.mark.parametrize(("options", "words"), [({"seed": 3}, "seed 0"), ({}, "sources")])
def test_a_state_of_another_stream_is_refused(options, words):
    state = MixtureStream(numbered(), SHARES).state_dict(40)
    sources = numbered() if options else dict(reversed(numbered().items()))
    other = MixtureStream(sources, SHARES, **options)
    with pytest.raises(InvalidInputError, match=words):
        other.load_state_dict(state)
    assert other.start == 0


@pytest.mark.parametrize("options", [{"seed": -1}, {"seed": 1.5}, {"batch_size": 2.5}, {"batch_size": 0}])
def test_numbers_that_are_none_are_refused(options):
    with pytest.raises(InvalidInputError, match=next(iter(options))):
        MixtureStream(numbered(), SHARES, **options)


class Once(IterableDataset):
    """A dataset that cannot be read again."""

    def __init__(self):
        self.rest = iter(range(3))

    def __iter__(self):
        return self.rest


@pytest.mark.parametrize("empty", [[], InOrder("web", 0), Once()])
def test_a_source_that_ends_for_good_is_named(empty):
    with pytest.raises(InvalidInputError, match="source web has"):
        first(MixtureStream({"web": empty}, [1.0]), 5)


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (iter([1]), "a list_iterator, which can be read only once"),
        ((k for k in range(3)), "a generator, which can be read only once"),
        (DataLoader([1, 2], 2), "a DataLoader, whose samples are batches"),
    ],
)
def test_sources_that_are_no_samples_to_read_again_are_refused(source, words):
    with pytest.raises(InvalidInputError, match=f"source web is {words}"):
        MixtureStream({"web": source}, [1.0])


# --- workers and processes -------------------------------------------------------------------------------------


@each_kind
@pytest.mark.parametrize("workers", [1, 2, 3])
def test_batches_are_the_same_with_any_number_of_workers(kind, workers):
    alone = batches(stream(kind), 40)
    assert batches(stream(kind, batch_size=4), 40, workers=workers) == alone


def test_workers_that_know_no_batches_read_every_sample_once():
    alone = first(stream(), 60)
    found = batches(stream(), 15, workers=3)
    assert sorted(functools.reduce(operator.iadd, found, [])) == sorted(alone)


@each_kind
@pytest.mark.parametrize("workers", [0, 2])
def test_two_processes_have_the_batches_of_one(kind, workers):
    alone = batches(stream(kind), 24, size=8)
    parts = [batches(stream(kind, rank=rank, world_size=2, batch_size=4), 24, workers=workers) for rank in range(2)]
    for whole, *halves in zip(alone, *parts, strict=True):
        assert sorted(functools.reduce(operator.iadd, halves, [])) == sorted(whole)


class Sharing(InOrder):
    """Samples whose epoch is in memory that workers share, and is asked for late, as Hugging Face's is."""

    def __init__(self, name, size):
        super().__init__(name, size)
        self.epoch = torch.tensor(0).share_memory_()

    def set_epoch(self, epoch):
        self.epoch += epoch - self.epoch

    def __iter__(self):
        time.sleep(0.01)
        yield from (f"{self.name}/{k}" for k in np.random.default_rng(int(self.epoch)).permutation(self.size))


class Around(InOrder):
    """A source that hands on what it is told."""

    def __init__(self, inner):
        self.inner, inner.outer = inner, self

    def set_epoch(self, epoch):
        self.inner.set_epoch(epoch)

    def __iter__(self):
        return iter(self.inner)


@pytest.mark.parametrize("around", [lambda source: source, Around], ids=["itself", "around it"])
def test_workers_do_not_move_the_epoch_of_others(around):
    sources = {name: around(Sharing(name, 3)) for name in SIZES}
    found = [batches(MixtureStream(sources, SHARES, batch_size=4), 12, workers=n) for n in (0, 3, 3)]
    assert found[0] == found[1] == found[2]


def test_a_loader_that_spawns_has_the_same_batches():
    alone = batches(stream(), 8)
    assert batches(stream(batch_size=4), 8, workers=1, multiprocessing_context="spawn") == alone


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_workers_hear_of_new_shares(workers):
    one, other = stream(batch_size=4), stream()
    loader = iter(DataLoader(one, 4, num_workers=workers, collate_fn=list))
    found = first(loader, 5)
    one.follow(LATER, after=80)
    found += first(loader, 35)
    other.follow(LATER, after=80)
    assert found == batches(other, 40)
    drawn = of(functools.reduce(operator.iadd, found, []))
    assert drawn[:80].count("papers") == pytest.approx(12, abs=3)
    assert drawn[80:].count("papers") == pytest.approx(48, abs=3)


def test_workers_that_persist_begin_where_they_are_told():
    one = stream(batch_size=4)
    loader = DataLoader(one, 4, num_workers=2, collate_fn=list, persistent_workers=True)
    alone = batches(stream(), 30)
    found = first(loader, 10)
    one.start = 40
    assert found + first(loader, 20) == alone


# --- shares that change ----------------------------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(
    changes=st.lists(st.tuples(st.integers(0, 300), st.integers(0, 2)), max_size=5),
    n=st.integers(1, 400),
    start=st.integers(0, 400),
)
def test_shares_are_in_force_exactly_from_their_place_on(changes, n, start):
    corners = np.eye(3)
    one, force = stream(shares=corners[0]), np.zeros(800, dtype=int)
    for place, corner in sorted(changes, key=lambda change: change[0]):
        one.follow(corners[corner], after=place)
        force[place:] = corner
    np.testing.assert_array_equal(one.drawn(start, start + n), force[start : start + n])
    one.start = start
    assert of(first(one, n)) == [list(SIZES)[k] for k in force[start : start + n]]


def test_by_default_shares_change_at_once():
    one = stream(shares=[1.0, 0.0, 0.0])
    reader = iter(one)
    assert set(of(first(reader, 7))) == {"web"}
    one.follow([0.0, 1.0, 0.0])
    assert set(of(first(reader, 7))) == {"code"}
    again = stream(shares=[1.0, 0.0, 0.0])
    again.follow([0.0, 1.0, 0.0], after=7)
    assert first(again, 14) == first(one, 14)


def test_shares_cannot_change_behind_what_was_drawn():
    one = stream()
    first(one, 10)
    with pytest.raises(InvalidInputError, match=r"after 9 samples: 10 are drawn"):
        one.follow(LATER, after=9)
    one.follow(LATER, after=10)


@pytest.mark.parametrize("after", ["x", np.nan, 1.5, -1])
def test_places_that_are_no_numbers_of_samples_are_refused(after):
    with pytest.raises(InvalidInputError, match="pass a number of samples"):
        stream().follow(LATER, after=after)


@pytest.mark.parametrize("kind", ["workers", "processes"])
def test_others_who_read_must_be_told_where_shares_change(kind):
    one = stream(world_size=2) if kind == "processes" else stream(batch_size=4)
    if kind == "workers":
        batches(one, 2, workers=1)
    with pytest.raises(InvalidInputError, match="Pass after="):
        one.follow(LATER)


def test_who_begins_anew_asks_no_workers_that_are_gone():
    one = stream(batch_size=4)
    batches(one, 20, workers=2)
    assert len(first(one, 40)) == 40
    one.start = 12
    assert len(first(one, 4)) == 4
    one.follow(LATER)
    assert one.planned == 16
    one.start = 0
    one.follow(SHARES, after=8)
    assert one.planned == 8


@pytest.mark.parametrize("place", [-1, 2.5, None])
def test_places_that_are_none_are_refused(place):
    one = stream()
    with pytest.raises(InvalidInputError, match="start = "):
        one.start = place
    with pytest.raises(InvalidInputError, match="consumed = "):
        one.state_dict(place)
    with pytest.raises(InvalidInputError, match="the state is None"):
        one.load_state_dict(None)


@pytest.mark.parametrize("source", ["a/file.txt", b"words", None, 3, {"train": [1]}])
def test_sources_that_hold_no_samples_are_refused(source):
    with pytest.raises(InvalidInputError, match=r"source code is .*dataset"):
        MixtureStream({"web": [1], "code": source}, [0.5, 0.5])


def test_a_stream_tells_what_it_draws_by():
    one = MixtureStream({"web": [1], "code": [2]}, MixtureController({"web": 3.0, "code": 1.0}))
    first(one, 5)
    assert repr(one) == "MixtureStream(web 0.750, code 0.250; next sample 0)"


def test_a_controller_must_know_every_source():
    one = MixtureController({"web": 1.0, "code": 1.0})
    with pytest.raises(InvalidInputError, match="does not know papers"):
        MixtureStream({"web": [1], "code": [2], "papers": [3]}, one)


@pytest.mark.parametrize(
    ("shares", "words"),
    [
        ({"news": 1.0}, "news is no source; the sources are web, code, papers"),
        ([0.5, 0.5], r"shape \(2,\) for 3 sources"),
        ({"web": 0.5, "Code": 0.5}, "Did you mean 'code'"),
        ([0.5, 0.5, 0.5], "sums to 1.5, not 1"),
        ([0.5, 0.25, 0.247], "sums to 0.997, not 1"),
        ("x", "numbers"),
    ],
)
def test_shares_that_are_none_are_refused(shares, words):
    one = stream()
    with pytest.raises(InvalidInputError, match=words):
        one.follow(shares)
    assert first(one, 50) == first(stream(), 50)
    with pytest.raises(InvalidInputError, match=words):
        stream(shares=shares)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"rank": 2, "world_size": 2}, "rank 2 of 2"),
        ({"batch_size": 0}, "batch_size"),
        ({"rank": -1}, "rank -1"),
        ({"rank": "0"}, "whole numbers"),
        ({"rank": 0.5, "world_size": 2}, "rank = 0.5"),
    ],
)
def test_settings_out_of_range_are_refused(options, words):
    with pytest.raises(InvalidInputError, match=words):
        stream(**options)
    with pytest.raises(InvalidInputError, match="mapping"):
        MixtureStream([[1, 2]], [1.0])


# --- going on --------------------------------------------------------------------------------------------------


@each_kind
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("consumed", [0, 12, 100])
def test_a_stream_goes_on_as_if_it_had_not_been_stopped(kind, workers, consumed):
    def start():
        return stream(kind, batch_size=4, seed=3)

    whole = start()
    whole.follow(LATER, after=40)
    whole.follow(SHARES, after=130)
    expected = batches(whole, 60)
    broken = start()
    broken.follow(LATER, after=40)
    batches(broken, consumed // 4 + 2)
    broken.follow(SHARES, after=130)
    state = json.loads(json.dumps(broken.state_dict(consumed)))
    again = start()
    again.load_state_dict(state)
    assert batches(again, 60 - consumed // 4, workers=workers) == expected[consumed // 4 :]
    assert again.state_dict(consumed) == state


@pytest.mark.parametrize("kind", ["missing", "sources", "start", "shares", "order", "words", "empty"])
def test_a_state_that_does_not_fit_changes_nothing(kind):
    one = stream()
    one.follow(LATER, after=10)
    state, before = one.state_dict(20), one.state_dict(0)
    {
        "missing": lambda: state.pop("changes"),
        "sources": lambda: state.update(changes=[[0, 0.5, 0.5]]),
        "start": lambda: state.update(start=-1),
        "shares": lambda: state.update(changes=[[0, 0.9, 0.9, 0.9]]),
        "order": lambda: state["changes"].reverse(),
        "words": lambda: state.update(changes="abc"),
        "empty": lambda: state.update(changes=[]),
    }[kind]()
    with pytest.raises(InvalidInputError):
        one.load_state_dict(state)
    assert one.state_dict(0) == before


@pytest.mark.parametrize(
    "copied", [copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))], ids=["deepcopy", "pickle"]
)
def test_a_copy_reads_the_same_and_is_followed_by_its_own_workers(copied):
    one = stream(batch_size=4)
    other = copied(one)
    one.follow(LATER)
    assert batches(other, 10) == batches(stream(), 10)
    other = copied(stream(batch_size=4))
    loader = iter(DataLoader(other, 4, num_workers=1, collate_fn=list))
    found = first(loader, 2)
    other.follow(LATER, after=80)
    expected = stream()
    expected.follow(LATER, after=80)
    assert found + first(loader, 38) == batches(expected, 40)


def test_many_sources_need_little_memory():
    one = MixtureStream({k: [k] for k in range(5000)}, np.full(5000, 1 / 5000))
    assert one._changes.nbytes < 50e6
    for k in range(1000):
        one.follow(np.full(5000, 1 / 5000), after=k)
