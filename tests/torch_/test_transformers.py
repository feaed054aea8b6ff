"""Training by transformers, from several sources of text."""

import itertools
import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

# It would look for itself on the net, and wait.
os.environ["HF_HUB_OFFLINE"] = "1"

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("accelerate")

from torch import distributed  # noqa: E402
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments  # noqa: E402

from counterpoise.exceptions import CounterpoiseWarning, InvalidInputError  # noqa: E402
from counterpoise.torch import MixtureController, MixtureStream, proxy_losses, read_mix  # noqa: E402
from counterpoise.torch.transformers import MixtureCallback  # noqa: E402
from tests.torch_.processes import finish  # noqa: E402

WORDS, LENGTH, BATCH = 11, 8, 4
SOURCES = ("regular", "noise", "constant")


def text(name, n, seed):
    generator = torch.Generator().manual_seed(seed)
    if name == "noise":
        return torch.randint(WORDS, (n, LENGTH), generator=generator)
    step = 1 if name == "regular" else 0
    return (torch.randint(WORDS, (n, 1), generator=generator) + step * torch.arange(LENGTH)) % WORDS


def samples(name):
    rows = text(name, 20, SOURCES.index(name))
    return [{"input_ids": row, "labels": row} for row in rows]


def held_out():
    return {name: [{"input_ids": text(name, 6, 10 + k)}] for k, name in enumerate(SOURCES)}


def network(seed=0, **options):
    torch.manual_seed(seed)
    sizes = {"vocab_size": WORDS, "n_positions": LENGTH, "n_layer": 1, "n_embd": 16, "n_head": 2}
    return GPT2LMHeadModel(GPT2Config(**sizes, bos_token_id=0, eos_token_id=0, use_cache=False, **options))


def remember(model, args, kwargs):
    """Keep what a model is trained on."""
    if model.training:
        model.seen.append(kwargs["input_ids"].clone())


def controlled(tokens=1e6, **options):
    # Zeros say that losses themselves are meant.
    return MixtureController(dict.fromkeys(SOURCES, tokens), reference_losses=dict.fromkeys(SOURCES, 0.0), **options)


def parts(every=3, stream=None, **options):
    controller = controlled(budget=1.2e6, max_epochs=3.0)
    stream = MixtureStream({name: samples(name) for name in SOURCES}, controller, **(stream or {}))
    return MixtureCallback(controller, stream, held_out(), every=every, **options)


def trainer(folder, callback, steps=12, model=None, **options):
    model = network() if model is None else model
    if not hasattr(model, "seen"):
        model.seen = []
        model.register_forward_pre_hook(remember, with_kwargs=True)
    settings = {
        "max_steps": steps,
        "per_device_train_batch_size": BATCH,
        "learning_rate": 0.01,
        "lr_scheduler_type": "constant",
        "save_strategy": "no",
        "logging_strategy": "no",
        "report_to": [],
        "disable_tqdm": True,
        "use_cpu": True,
        "dataloader_pin_memory": False,
    }
    arguments = TrainingArguments(str(folder), **(settings | options))
    return Trainer(model, arguments, train_dataset=callback.rounds.stream, callbacks=[callback])


def same(one, other):
    return all(torch.equal(value, other.state_dict()[name]) for name, value in one.state_dict().items())


def test_rounds_come_as_often_as_asked_and_move_the_stream(tmp_path):
    callback = parts(every=3)
    run = trainer(tmp_path, callback)
    run.train()
    rounds = callback.rounds
    assert rounds.controller.history["at"].tolist() == [3.0, 6.0, 9.0, 12.0]
    assert (rounds.steps, rounds.consumed) == (12, 12 * BATCH)
    logged = [row for row in run.state.log_history if "worst_excess" in row]
    assert [row["step"] for row in logged] == [3, 6, 9, 12]
    assert logged[-1]["share/noise"] == rounds.controller.shares["noise"]
    assert logged[-1]["held_out_loss/noise"] == pytest.approx(rounds.controller.losses[1])
    # One batch is fetched beforehand, and one is in work.
    changes = rounds.stream.state_dict(0)["changes"]
    assert [row[0] for row in changes] == [0.0] + [(step + 2) * BATCH for step in (3, 6, 9, 12)]
    assert changes[-1][1:] == pytest.approx(rounds.controller.probabilities.tolist(), rel=1e-12)
    # What was trained on is what the stream says.
    seen = torch.cat(run.model.seen)
    rounds.stream.start = 0
    expected = torch.stack([sample["input_ids"] for sample in itertools.islice(rounds.stream, len(seen))])
    assert torch.equal(seen, expected)


def test_a_loop_of_ones_own_goes_on_in_the_stream(tmp_path):
    callback = parts(every=3)
    trainer(tmp_path, callback).train()
    rounds = callback.rounds
    assert rounds.stream.start == 12 * BATCH
    reader = iter(rounds.stream)
    for _ in range(4):
        next(reader)
    rounds.stream.follow({"constant": 1.0})
    found = torch.stack([next(reader)["input_ids"] for _ in range(40)])
    assert (found == found[:, :1]).all()


def test_a_checkpoint_from_before_the_callback_does(tmp_path):
    before = parts()
    plain = trainer(tmp_path, before, steps=4, save_strategy="steps", save_steps=4)
    plain.callback_handler.callbacks = [one for one in plain.callback_handler.callbacks if one is not before]
    plain.train()
    callback = parts(every=3)
    with pytest.warns(CounterpoiseWarning, match="up to step 4 had no callback of a mixture: shares begin anew"):
        trainer(tmp_path, callback, model=plain.model).train(resume_from_checkpoint=str(tmp_path / "checkpoint-4"))
    assert callback.rounds.consumed == 12 * BATCH
    assert callback.rounds.controller.n_updates == 2


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("accumulation", [1, 2])
@pytest.mark.parametrize("ignore_data_skip", [False, True])
def test_a_run_goes_on_to_the_last_bit(ignore_data_skip, accumulation, workers, tmp_path):
    options = {
        "gradient_accumulation_steps": accumulation,
        "save_strategy": "steps",
        "save_steps": 5,
        "ignore_data_skip": ignore_data_skip,
        "dataloader_num_workers": workers,
        "lr_scheduler_type": "linear",
    }
    stream = {"batch_size": BATCH, "seed": 2}
    whole = parts(every=2, stream=stream)
    run = trainer(tmp_path / "whole", whole, **options)
    run.train()
    state = json.loads((tmp_path / "whole" / "checkpoint-5" / "trainer_state.json").read_text())
    assert state["stateful_callbacks"]["counterpoise.mixture"]["steps"] == 5
    again = parts(every=2, stream=stream)
    torch.manual_seed(99)
    resumed = trainer(tmp_path / "again", again, **options, model=network(seed=7))
    resumed.train(resume_from_checkpoint=str(tmp_path / "whole" / "checkpoint-5"))
    assert same(run.model, resumed.model)
    assert again.rounds.state_dict() == whole.rounds.state_dict()
    for one, other in zip(run.model.seen[5 * accumulation :], resumed.model.seen, strict=True):
        assert torch.equal(one, other)
    assert resumed.state.log_history[-2]["share/noise"] == run.state.log_history[-2]["share/noise"]


def test_a_run_goes_on_from_its_last_step(tmp_path):
    options = {"save_strategy": "steps", "save_steps": 6}
    whole = parts()
    run = trainer(tmp_path / "whole", whole, 12, **options)
    run.train()
    trainer(tmp_path / "part", parts(), 6, **options).train()
    again = parts()
    resumed = trainer(tmp_path / "part", again, 12, **options)
    resumed.train(resume_from_checkpoint=True)
    assert same(run.model, resumed.model)
    assert again.rounds.state_dict() == whole.rounds.state_dict()


def test_a_second_training_goes_on_in_the_stream(tmp_path):
    whole, callback = parts(), parts()
    run = trainer(tmp_path, whole, 12)
    run.train()
    model = network()
    trainer(tmp_path, callback, 6, model).train()
    with pytest.warns(CounterpoiseWarning, match="has learnt in 2 updates before"):
        trainer(tmp_path, callback, 6, model).train()
    assert callback.rounds.state_dict()["steps"] == 12
    assert torch.equal(torch.cat(run.model.seen)[: 9 * BATCH], torch.cat(model.seen)[: 9 * BATCH])


@pytest.mark.parametrize(
    ("every", "options", "words"),
    [
        (100, {}, "ends after 12 steps, before shares move: every = 100"),
        # The only round would be after the last step.
        (12, {}, "ends after 12 steps, before shares move: every = 12"),
        (3, {"budget": 200.0}, r"reads 384 tokens, 4 samples of 8 in a step.*a budget of 200"),
        (3, {"budget": 700.0, "accumulation": 2}, r"reads 768 tokens, 8 samples of 8 in a step.*a budget of 700"),
    ],
)
def test_what_will_not_go_as_it_is_meant_is_said_before_training(every, options, words, tmp_path):
    callback = parts(every)
    if "budget" in options:
        callback.rounds.controller = controlled(1e3, budget=options["budget"])
    run = trainer(tmp_path, callback, gradient_accumulation_steps=options.get("accumulation", 1))
    with pytest.warns(CounterpoiseWarning, match=words):
        run.train()


def test_more_rounds_than_a_stream_keeps_are_refused_before_training(tmp_path):
    callback = parts(every=1)
    most = callback.rounds.stream.most_changes
    with pytest.raises(InvalidInputError, match=rf"shares would change {most + 1:,} times.*Make rounds less often"):
        trainer(tmp_path, callback, steps=most).train()
    assert not callback.rounds.controller.n_updates


@pytest.mark.parametrize("length", [0, 3])
def test_samples_of_several_lengths_are_not_counted_by_one(length, tmp_path):
    callback = parts(every=3)
    callback.rounds.controller = controlled(1e3, budget=200.0)
    row = text("noise", 1, 0)[0][:length].tolist()
    callback.rounds.stream.sources["noise"][10] = {"input_ids": row, "labels": row}
    # It would read 384 tokens if all had the length of the first.
    with pytest.warns(CounterpoiseWarning) as told:
        callback.rounds.foresee(12, 4)
    assert [f"samples have {length} to 8 tokens, and shares count" in str(one.message) for one in told] == [True]
    for one in callback.rounds.stream.sources.values():
        one[10] = {"input_ids": [1] * LENGTH}
    with pytest.warns(CounterpoiseWarning, match="reads 384 tokens"):
        callback.rounds.foresee(12, 4)


def test_a_run_that_goes_on_counts_what_it_has_read(tmp_path):
    def begun():
        callback = parts(every=2)
        callback.rounds.controller = controlled(1e3, budget=12.0 * BATCH * LENGTH)
        return callback

    trainer(tmp_path, begun(), 12, save_strategy="steps", save_steps=6).train()
    place = str(tmp_path / "checkpoint-6")
    trainer(tmp_path, begun(), 12).train(resume_from_checkpoint=place)
    with pytest.warns(CounterpoiseWarning, match=f"reads {14 * BATCH * LENGTH} tokens"):
        trainer(tmp_path, begun(), 14).train(resume_from_checkpoint=place)


def test_a_callback_beside_others_is_restored_with_them(tmp_path):
    options = {"save_strategy": "steps", "save_steps": 6, "restore_callback_states_from_checkpoint": True}
    whole, again = parts(), parts()
    run = trainer(tmp_path, whole, **options)
    run.train()
    resumed = trainer(tmp_path, again, **options)
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-6"))
    assert same(run.model, resumed.model)
    assert again.rounds.state_dict() == whole.rounds.state_dict()


def test_a_new_cap_holds_from_where_a_run_goes_on(tmp_path):
    trainer(tmp_path, parts(every=2), 6, save_strategy="steps", save_steps=6).train()
    again = parts(every=12)
    again.rounds.controller = controlled(mix={"noise": (0.0, 0.1)})
    trainer(tmp_path, again, 12).train(resume_from_checkpoint=str(tmp_path / "checkpoint-6"))
    # Before the first round of the run that goes on, too.
    (share,) = (row[2] for row in again.rounds.stream.state_dict(0)["changes"] if row[0] == 6 * BATCH)
    assert share <= 0.1 + 1e-12
    drawn = again.rounds.stream.drawn(6 * BATCH, 1000 + 6 * BATCH)
    assert (drawn[: 8 * BATCH] == 1).sum() <= 4
    found = np.bincount(drawn[8 * BATCH :], minlength=3) / len(drawn[8 * BATCH :])
    np.testing.assert_allclose(found, again.rounds.controller.probabilities, atol=5e-3)


@pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")
@pytest.mark.parametrize("workers", [0, 1])
def test_a_run_goes_on_with_fewer_workers(workers, tmp_path):
    options = {"save_strategy": "steps", "save_steps": 6, "max_steps": 14}
    callback = parts(every=2, stream={"batch_size": BATCH})
    trainer(tmp_path, callback, **options, dataloader_num_workers=4).train()
    again = parts(every=2, stream={"batch_size": BATCH})
    resumed = trainer(tmp_path, again, **options, dataloader_num_workers=workers)
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-6"))
    assert again.rounds.controller.n_updates == 7
    assert again.rounds.consumed == 14 * BATCH


def test_a_run_goes_on_with_larger_batches_where_the_trainer_skips_nothing(tmp_path):
    trainer(tmp_path, parts(), 6, save_strategy="steps", save_steps=6).train()
    options, place = {"per_device_train_batch_size": 2 * BATCH}, str(tmp_path / "checkpoint-6")
    with pytest.raises(InvalidInputError, match=r"has seen 24 samples, and would skip 48.*ignore_data_skip=True"):
        trainer(tmp_path, parts(), 8, **options).train(resume_from_checkpoint=place)
    again = parts()
    resumed = trainer(tmp_path, again, 8, **options, ignore_data_skip=True)
    resumed.train(resume_from_checkpoint=place)
    assert again.rounds.consumed == 10 * BATCH
    again.rounds.stream.start = 6 * BATCH
    expected = torch.stack([one["input_ids"] for one in itertools.islice(again.rounds.stream, 4 * BATCH)])
    assert torch.equal(torch.cat(resumed.model.seen), expected)


def test_other_callbacks_hear_of_rounds_if_asked(tmp_path):
    heard = []

    class Listener(TrainerCallback):
        def on_log(self, args, state, control, logs=None, **kwargs):
            heard.append(dict(logs))

    callback = parts(every=3)
    run = trainer(tmp_path, callback, logging_strategy="steps", logging_steps=2)
    run.add_callback(Listener())
    callback.log = run.log
    run.train()
    # Rows of the Trainer's own are not lost where a round is at the same step.
    assert [row["step"] for row in run.state.log_history if "loss" in row] == [2, 4, 6, 8, 10, 12]
    shares = [row["share/noise"] for row in heard if "share/noise" in row]
    assert len(shares) == 4
    assert shares[-1] == callback.rounds.controller.shares["noise"]
    assert sum("share/noise" in row for row in run.state.log_history) == 4


def test_a_source_without_held_out_text_is_allowed(tmp_path):
    callback = parts()
    del callback.rounds.held_out["noise"]
    run = trainer(tmp_path, callback, 4)
    run.train()
    losses = callback.rounds.controller.losses
    assert np.isnan(losses).tolist() == [False, True, False]
    json.dumps(callback.rounds.state_dict(), allow_nan=False)
    assert "held_out_loss/noise" not in run.state.log_history[0]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"stream": {"world_size": 2}}, "world_size=2, and 1 is right"),
        ({"stream": {"batch_size": 2}}, "batch_size=4"),
    ],
)
def test_a_stream_that_is_divided_otherwise_is_named_before_training(change, words, tmp_path):
    with pytest.raises(InvalidInputError, match=words):
        trainer(tmp_path, parts(**change), dataloader_num_workers=1).train()


def test_data_that_are_not_the_stream_are_named(tmp_path):
    run = trainer(tmp_path, parts())
    run.train_dataset = samples("noise")
    with pytest.raises(InvalidInputError, match="other data than the stream"):
        run.train()


def test_sources_read_from_a_file_have_names_in_words(tmp_path):
    callback = parts()
    controller = MixtureController({"1": 1e6, "2": 1e6}, reference_losses={1: 0.5})
    stream = MixtureStream({1: samples("regular"), 2: samples("noise")}, controller)
    callback.rounds = MixtureCallback(controller, stream, {1: held_out()["regular"]}, every=3).rounds
    run = trainer(tmp_path, callback)
    run.train()
    assert [name for name in run.state.log_history[0] if name.startswith("held_out")] == ["held_out_loss/1"]
    assert controller.n_updates == 4
    with pytest.raises(InvalidInputError, match="2 has held-out text and no reference"):
        MixtureCallback(controller, stream, {"1": [1], "2": [1]})


def test_a_state_that_does_not_fit_changes_nothing():
    rounds = parts().rounds
    before = rounds.state_dict()
    other = parts(stream={"seed": 5}).rounds
    other.controller.update([2.0, 3.0, 1.0])
    strange = other.state_dict()
    fewer = {**parts().rounds.state_dict(), "steps": 8, "controller": {**strange["controller"], "rounds": 3}}
    for state in (strange, fewer, {"steps": 1}):
        with pytest.raises(InvalidInputError):
            rounds.load_state_dict(state)
        assert rounds.state_dict() == before
        assert rounds.controller.n_updates == 0


def test_what_does_not_belong_together_is_named():
    one, other = parts().rounds, MixtureStream({"regular": [1]}, [1.0])
    with pytest.raises(InvalidInputError, match=r"the stream and the controller .*constant, noise"):
        MixtureCallback(one.controller, other, held_out())
    with pytest.raises(InvalidInputError, match=r"held_out and the controller .*news"):
        MixtureCallback(one.controller, one.stream, {"news": [1]})
    with pytest.raises(InvalidInputError, match="not a generator"):
        MixtureCallback(one.controller, one.stream, {"noise": iter([1])})
    with pytest.raises(InvalidInputError, match=r"^controller is .*pass a MixtureController"):
        MixtureCallback(one.stream, one.controller, held_out())
    with pytest.raises(InvalidInputError, match="mapping"):
        MixtureCallback(one.controller, one.stream, [])
    for every in (0, 2.5, True):
        with pytest.raises(InvalidInputError, match="every"):
            MixtureCallback(one.controller, one.stream, held_out(), every=every)


def test_a_proxy_run_finds_the_mix_for_a_larger_model(tmp_path):
    names = {name: samples(name) for name in SOURCES}
    batches = {name: [{"input_ids": text(name, 6, 10 + k)}] for k, name in enumerate(SOURCES)}
    references = proxy_losses(network(), names, batches, steps=30, batch_size=BATCH)
    controller = MixtureController(dict.fromkeys(SOURCES, 1e6), radius=1.0, reference_losses=references)
    stream = MixtureStream(names, controller)
    trainer(tmp_path / "small", MixtureCallback(controller, stream, batches, every=2)).train()
    place = controller.export(tmp_path / "mix.json")
    large = MixtureStream(names, read_mix(place))
    callback = parts()
    callback.rounds.stream = large
    arguments = trainer(tmp_path / "large", callback).args
    Trainer(network(resid_pdrop=0.0), arguments, train_dataset=large).train()
    drawn = np.bincount(large.drawn(0, 3000), minlength=3) / 3000
    np.testing.assert_allclose(drawn, list(controller.average.values()), atol=2e-3)


# --- several processes ------------------------------------------------------------------------------------------


READ = {
    "by the first": {"accelerator_config": {"dispatch_batches": None}},
    "by each": {"accelerator_config": {"dispatch_batches": False}},
    "split by the first": {"accelerator_config": {"dispatch_batches": True, "split_batches": True}},
    "by workers of the first": {"dataloader_num_workers": 2},
    "by workers of each": {"dataloader_num_workers": 2, "accelerator_config": {"dispatch_batches": False}},
}


def shared(folder, read, world):
    """Train for a few steps; return what must agree."""
    batch = BATCH if read == "split by the first" else BATCH // world
    callback = parts(every=2, stream={"batch_size": batch if read == "by workers of the first" else BATCH})
    settings = READ[read] | {
        "per_device_train_batch_size": batch,
        "optim": "sgd",
    }
    run = trainer(folder, callback, 7, network(resid_pdrop=0.0, attn_pdrop=0.0, embd_pdrop=0.0), **settings)
    run.train()
    shares = callback.rounds.controller.history
    return {
        "model": dict(run.model.state_dict().items()),
        "seen": torch.stack(run.model.seen),
        "shares": torch.tensor(np.stack([shares[f"share[{name}]"] for name in SOURCES])),
        "losses": torch.tensor(callback.rounds.controller.losses),
        "consumed": callback.rounds.consumed,
    }


def main(folder):
    """Be one of two processes."""
    rank = os.environ["RANK"]
    found = {read: shared(f"{folder}/run", read, 2) for read in READ}
    torch.save(found, f"{folder}/{rank}.pt")
    distributed.destroy_process_group()


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """What each of two processes found."""
    folder = tmp_path_factory.mktemp("two")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2"}
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.torch_.test_transformers", str(folder)],
            env=os.environ
            | environment
            | {"RANK": str(rank), "LOCAL_RANK": str(rank), "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"},
            cwd=Path(__file__).parents[2],
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    finish(processes, 90.0)
    return [torch.load(folder / f"{rank}.pt", weights_only=True) for rank in range(2)]


@pytest.mark.skipif(
    not (distributed.is_available() and distributed.is_gloo_available()), reason="this torch has no gloo"
)
@pytest.mark.parametrize("read", READ)
def test_two_processes_are_one_with_the_whole_batch(both, read, tmp_path):
    alone = shared(tmp_path, read, 1)
    first, second = (found[read] for found in both)
    for one in (first, second):
        assert one["consumed"] == alone["consumed"] == 7 * BATCH
        torch.testing.assert_close(one["shares"], alone["shares"], rtol=1e-5, atol=1e-7)
        for name, value in alone["model"].items():
            torch.testing.assert_close(one["model"][name], value, rtol=1e-4, atol=1e-5)
    assert torch.equal(first["shares"], second["shares"])
    assert torch.equal(torch.cat([first["seen"], second["seen"]], dim=1), alone["seen"])


if __name__ == "__main__":
    main(sys.argv[1])
