"""A model in use: three questions, what to do, and a state that is never half written."""

import datetime
import json
import multiprocessing

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import Ridge

import counterpoise as cpo
from counterpoise.exceptions import InvalidInputError
from counterpoise.watch.promise import Promise

LABELS = ["a", "b", "c"]
SHARES = np.array([0.5, 0.3, 0.2])
BALL = cpo.KLBall(SHARES, 0.02)


def rows(rng, n, shares=SHARES, noise=1.0, slope=0.0):
    c = rng.choice(LABELS, n, p=shares)
    X = rng.standard_normal((n, 2))
    return X, X[:, 0] + (c == "c") * (1.0 + slope) * X[:, 1] + noise * rng.standard_normal(n), c


@pytest.fixture(scope="module")
def model():
    X, y, c = rows(np.random.default_rng(0), 1500)
    return cpo.RobustLinearRegression(radius="calibrated").fit(X, y, contexts=c)


def watched(watch, rng, updates, shares=SHARES, model=None, **kind):
    for _ in range(updates):
        X, y, c = rows(rng, 40, shares, **kind)
        losses = None if model is None else 0.5 * (y - model.predict(X)) ** 2
        watch.update(c, losses, time=watch.n_updates)
    return watch


def test_nothing_is_said_while_the_mix_moves_within_the_set():
    watch, rng = cpo.Watch(BALL, contexts=LABELS), np.random.default_rng(1)
    rims = [BALL.worst_case(one).distribution for one in np.eye(3)]
    for update in range(150):
        watch.update(rng.choice(LABELS, 30, p=rims[update % 3]), time=update)
    assert not watch.alarm
    assert watch.since is None
    assert watch.advice.action == "nothing to do"
    assert watch.words.startswith("All is well: 4,500 rows in 150 updates")


def test_a_mix_that_leaves_the_set_late_is_found_soon_and_dated(model):
    watch, rng = cpo.Watch(model), np.random.default_rng(2)
    watched(watch, rng, 100, model=model)
    assert not watch.alarm
    watched(watch, rng, 30, [0.2, 0.3, 0.5], model=model)
    assert watch.questions["alarm"].tolist() == [True, False, False]
    assert watch.e_value >= watch.threshold == pytest.approx(20.0)
    assert watch.p_value <= 0.05
    assert abs(watch.since - 100) <= 3
    assert 100 < watch.alarm_time < 115
    advice = watch.advice
    assert advice.worst_excess >= advice.excess > advice.promised_excess
    assert advice.action == "refit"
    assert 0.0 < advice.gain < advice.excess
    assert "would take" in watch.words


def test_an_alarm_stays():
    watch, rng = cpo.Watch(BALL, contexts=LABELS), np.random.default_rng(3)
    watched(watch, rng, 40, [0.2, 0.3, 0.5])
    since = watch.since
    watched(watch, rng, 200)
    assert watch.alarm
    assert watch.since == since


def test_one_row_of_a_new_context_is_proof_unless_some_are_allowed():
    rng = np.random.default_rng(4)
    strict, lenient = cpo.Watch(BALL, contexts=LABELS), cpo.Watch(BALL, contexts=LABELS, unseen_share=0.05)
    for _ in range(50):
        labels = [*rng.choice(LABELS, 49, p=SHARES).tolist(), "new"]
        strict.update(labels)
        lenient.update(labels)
    assert strict.alarm
    assert strict.since == 0
    assert np.isinf(strict.e_value)
    assert strict.p_value == 0.0
    assert strict.advice.action == "refit"
    assert strict.unseen.rows
    assert not lenient.alarm
    assert lenient.unseen_share == pytest.approx(0.02)
    assert lenient.unseen_interval[0] < 0.02 < lenient.unseen_interval[1]
    for _ in range(50):
        lenient.update([*rng.choice(LABELS, 40, p=SHARES).tolist(), *["new"] * 10])
    assert lenient.questions["alarm"].tolist() == [False, True, False]
    assert abs(lenient.since - 50) <= 2


def test_a_grown_risk_is_found_where_it_grew(model):
    rng = np.random.default_rng(5)
    X, y, c = rows(rng, 1000)
    watch = cpo.Watch(model, held_out=(c, 0.5 * (y - model.predict(X)) ** 2))
    watched(watch, rng, 60, model=model)
    assert not watch.alarm
    watched(watch, rng, 60, model=model, slope=3.0)
    assert watch.questions["alarm"].tolist() == [False, False, True]
    risks = watch.risks
    assert risks["context"][np.argmax(risks["e_value"])] == "c"
    assert abs(watch.since - 60) <= 5
    assert "in c the mean loss" in watch.advice.sentence


@pytest.mark.parametrize("held_out", [False, True])
def test_losses_as_promised_are_no_alarm(model, held_out):
    rng = np.random.default_rng(6)
    X, y, c = rows(rng, 300)
    given = {"held_out": (c, 0.5 * (y - model.predict(X)) ** 2)} if held_out else {}
    assert sum(watched(cpo.Watch(model, **given), rng, 60, model=model).alarm for _ in range(12)) <= 1


def test_a_promise_of_groups_is_the_mean_over_rows_with_the_error_of_a_ratio():
    rng = np.random.default_rng(16)
    sizes = rng.geometric(0.1, 400)
    groups = np.repeat(np.arange(400), sizes)
    contexts = rng.choice(LABELS, 400, p=SHARES)[groups]
    losses = rng.exponential(size=400)[groups] * rng.exponential(size=len(groups))
    promise = Promise.of(BALL, LABELS, held_out=(contexts, losses, groups))
    for k, label in enumerate(LABELS):
        here = contexts == label
        assert promise.risks[k] == pytest.approx(losses[here].mean())
        drawn = [np.flatnonzero(groups == g) for g in np.unique(groups[here])]
        means = []
        for _ in range(400):
            again = np.concatenate([drawn[j] for j in rng.integers(len(drawn), size=len(drawn))])
            means.append(losses[again].mean())
        assert promise.errors[k] == pytest.approx(np.std(means), rel=0.25)


def test_losses_of_groups_as_promised_are_no_alarm():
    rng = np.random.default_rng(17)

    def drawn(n):
        groups = np.repeat(np.arange(n), rng.geometric(0.1, n))
        means = rng.exponential(size=n)
        return rng.choice(LABELS, n, p=SHARES)[groups], means[groups] * rng.exponential(size=len(groups)), groups

    alarms = 0
    for _ in range(5):
        watch = cpo.Watch(BALL, contexts=LABELS, held_out=drawn(2000))
        for _ in range(60):
            contexts, losses, groups = drawn(4)
            watch.update(contexts, losses, groups)
        alarms += watch.alarm
    assert alarms == 0


def test_risks_may_be_stated():
    watch = cpo.Watch(BALL, contexts=LABELS, promised={"a": 1.0})
    rng = np.random.default_rng(7)
    for _ in range(30):
        watch.update(rng.choice(LABELS, 30, p=SHARES), rng.exponential(2.0, 30))
    assert watch.questions["alarm"].tolist() == [False, False, True]
    with pytest.raises(InvalidInputError, match="no context of the model"):
        cpo.Watch(BALL, contexts=LABELS, promised={"z": 1.0})
    with pytest.raises(InvalidInputError, match="not negative"):
        watch.update(["a"], [-1.0])


def test_rows_of_a_group_are_one_draw():
    # Each day all rows are of one context: as rows they are far from any mix, as days they are not.
    rng = np.random.default_rng(8)
    by_row, by_day = cpo.Watch(BALL, contexts=LABELS), cpo.Watch(BALL, contexts=LABELS)
    for day in range(100):
        labels = [rng.choice(LABELS, p=SHARES)] * 20
        by_row.update(labels)
        by_day.update(labels, groups=[day] * 20)
    assert by_row.alarm
    assert not by_day.alarm
    assert by_day.n_rows == 2000


def test_rows_are_worth_what_they_were_worth_at_the_fit():
    rng = np.random.default_rng(9)
    X, y, c = rows(rng, 1000)
    dependent = cpo.RobustLinearRegression(radius="calibrated", draws=50).fit(X, y, contexts=c)
    watch = cpo.Watch(dependent)
    for _ in range(60):
        watch.update([rng.choice(LABELS, p=SHARES)] * 20)
    assert not watch.alarm


@pytest.mark.parametrize("time", ["dates", "texts", "numbers"])
def test_with_a_time_for_each_row_there_is_an_update_for_each_time(time):
    rng = np.random.default_rng(10)
    days = np.sort(rng.integers(0, 30, 600))
    start = datetime.date(2024, 1, 1)
    times = {
        "dates": [start + datetime.timedelta(int(day)) for day in days],
        "texts": [str(start + datetime.timedelta(int(day))) for day in days],
        "numbers": days,
    }[time]
    order = rng.permutation(600)
    labels = rng.choice(LABELS, 600, p=SHARES)
    watch = cpo.Watch(BALL, contexts=LABELS).update(labels[order], time=pd.Series(times).to_numpy()[order])
    assert watch.n_updates == len(set(days.tolist()))
    one_by_one = cpo.Watch(BALL, contexts=LABELS)
    for day in sorted(set(days.tolist())):
        one_by_one.update(labels[days == day], time=day)
    assert watch.e_value == pytest.approx(one_by_one.e_value)
    assert watch.history["rows"].sum() == 600


def test_a_clock_that_runs_backwards_is_said_and_loses_no_rows():
    watch = cpo.Watch(BALL, contexts=LABELS).update(["a", "b"], time="2024-05-02").update(["c"], time="2024-05-01")
    assert watch.n_rows == 3
    assert watch.history["time"].tolist() == ["2024-05-02", "2024-05-02"]
    assert "is before the last update" in watch.notes[-1]


def test_a_batch_counts_once():
    watch = cpo.Watch(BALL, contexts=LABELS).update(["a", "b"], batch=1).update(["a", "b"], batch=1)
    assert watch.n_rows == 2
    assert "not counted again" in watch.notes[-1]
    assert watch.update(["c"], batch=2).n_rows == 3


def test_an_update_that_fails_changes_nothing():
    watch = cpo.Watch(BALL, contexts=LABELS).update(["a", "b"])
    for bad in ({"losses": [1.0]}, {"losses": [1.0, np.inf]}, {"groups": [1]}, {"time": [1]}):
        with pytest.raises(InvalidInputError):
            watch.update(["a", "b"], **bad)
    assert watch.n_updates == 1


def test_shares_have_a_confidence_sequence():
    rng, lost = np.random.default_rng(11), 0
    for _ in range(40):
        watch, missed = cpo.Watch(BALL, contexts=LABELS), False
        for _ in range(10):
            shares = watch.update(rng.choice(LABELS, 20, p=SHARES)).shares
            missed |= bool(((shares["lower"] > SHARES) | (shares["upper"] < SHARES)).any())
        lost += missed
    assert lost <= 5


@pytest.mark.parametrize(
    "mixes",
    [
        BALL,
        cpo.Chi2Ball(SHARES, 0.05),
        cpo.TotalVariationBall(SHARES, 0.1),
        cpo.ShareBounds([0.3, 0.2, 0.1], [0.7, 0.5, 0.4]),
        cpo.ShareLimits([[1.0, 1.0, 0.0]], [0.85]),
        BALL & cpo.ShareBounds([0.0, 0.0, 0.0], [1.0, 1.0, 0.25]),
        cpo.sets.Marginal(cpo.KLBall([0.8, 0.2], 0.02), [0, 0, 1]),
        cpo.KLBall(SHARES, np.inf),
    ],
    ids=lambda one: type(one).__name__,
)
def test_a_watch_goes_on_from_its_file_as_if_it_had_never_stopped(tmp_path, mixes):
    rng, path = np.random.default_rng(12), tmp_path / "watch.json"
    watch = watched(cpo.Watch(mixes, contexts=LABELS, unseen_share=0.01), rng, 20)
    watch.save(path)
    for again in (cpo.Watch.load(path), cpo.Watch.load(path, mixes)):
        assert again.words == watch.words
        labels = rng.choice(LABELS, 30)
        one, other = cpo.Watch.load(path).update(labels, time=20), again.update(labels, time=20)
        assert one.e_value == pytest.approx(other.e_value, rel=1e-9)
    ahead = watch.update(labels, time=20)
    assert ahead.e_value == pytest.approx(again.e_value, rel=1e-4)
    assert ahead.json["shares"] == again.json["shares"]


def test_the_state_of_a_model_comes_back_whole(model, tmp_path):
    rng, path = np.random.default_rng(13), tmp_path / "watch.json"
    watch = watched(cpo.Watch(model), rng, 40, [0.2, 0.3, 0.5], model=model)
    watch.save(path)
    for again in (cpo.Watch.load(path), cpo.Watch.load(path, model)):
        assert again.advice.sentence == watch.advice.sentence
        assert (again.words, again.since, again.alarm_time) == (watch.words, watch.since, watch.alarm_time)
        for name in ("questions", "risks", "history_by_context"):
            for column, values in getattr(watch, name).items():
                if values.dtype.kind == "f":
                    np.testing.assert_allclose(getattr(again, name)[column], values, rtol=1e-4)
    assert path.stat().st_size < 100_000


def test_another_model_is_refused_by_name(model, tmp_path):
    path = tmp_path / "watch.json"
    cpo.Watch(model).save(path)
    X, y, c = rows(np.random.default_rng(14), 1500)
    other = cpo.RobustLinearRegression(radius="calibrated").fit(X, y, contexts=c)
    with pytest.raises(InvalidInputError, match="fitted again"):
        cpo.Watch.load(path, other)
    with pytest.raises(InvalidInputError, match="fitted again"), cpo.Watch.open(path, other):
        pass


@pytest.mark.parametrize("damage", ["", "{}", "[1]", "half", '{"format": 2}', "numbers"])
def test_a_damaged_file_is_named(tmp_path, damage):
    path = tmp_path / "watch.json"
    cpo.Watch(BALL, contexts=LABELS).update(["a"]).save(path)
    text = path.read_text()
    changed = {"half": text[: len(text) // 2], "numbers": text.replace('"rows":[1.0,', '"rows":["x",')}
    path.write_text(changed.get(damage, damage))
    with pytest.raises(InvalidInputError, match=r"watch\.json"):
        cpo.Watch.load(path)


def _leaves(node, top=None):
    """Yield every number and text but the checksum: the part of the state that it is in, what holds it, and where."""
    for key, value in node.items() if isinstance(node, dict) else enumerate(node):
        if isinstance(value, (dict, list)):
            yield from _leaves(value, top or key)
        elif key != "sha256":
            yield top or key, node, key


@pytest.fixture(scope="module")
def states(model, tmp_path_factory):
    """Saved states, by name."""
    path, rng = tmp_path_factory.mktemp("states") / "watch.json", np.random.default_rng(31)
    found = {"set": watched(cpo.Watch(BALL, contexts=LABELS, unseen_share=0.02), rng, 20)}
    found["model"] = watched(cpo.Watch(model), rng, 20, [0.1, 0.2, 0.7], model=model)
    found["proof"] = watched(cpo.Watch(BALL, contexts=LABELS), rng, 5).update(["elsewhere"])
    texts = {}
    for name, watch in found.items():
        watch.save(path)
        texts[name] = path.read_text()
    return texts


ODD = (None, "inf", "x", [], -1, 0.5, 1e300, 2**70)


@pytest.mark.parametrize("name", ["set", "model", "proof"])
def test_a_state_that_was_changed_is_refused(states, tmp_path, name):
    path, rng, text = tmp_path / "watch.json", np.random.default_rng(32), states[name]
    for k in range(100):
        card = json.loads(text)
        every = list(_leaves(card))
        _, node, key = every[rng.integers(len(every))]
        odd = [one for one in ODD if one != node[key]]
        node[key] = odd[rng.integers(len(odd))]
        if k % 5 == 0:
            del node[key]
        # One in three loses a few letters instead.
        at = int(rng.integers(text.index('"sha256"')))
        path.write_text(json.dumps(card) if k % 3 else text[:at] + text[at + int(rng.integers(1, 9)) :])
        with pytest.raises(InvalidInputError, match="is no state of a watch, or is damaged"):
            cpo.Watch.load(path)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", ["set", "model", "proof"])
def test_a_state_of_earlier_versions_has_no_checksum_and_is_refused_where_it_cannot_be(states, tmp_path, name):
    path, rng = tmp_path / "watch.json", np.random.default_rng(33)
    card = json.loads(states[name])
    card.pop("sha256", None)
    text = json.dumps(card)
    path.write_text(text)
    whole = cpo.Watch.load(path)
    assert whole.n_updates > 0
    for _ in range(200):
        card = json.loads(text)
        parts = sorted(card)
        top = parts[rng.integers(len(parts))]
        own = [one for one in _leaves(card) if one[0] == top]
        if own:
            _, node, key = own[rng.integers(len(own))]
            node[key] = ODD[rng.integers(len(ODD))]
            path.write_text(json.dumps(card))
            try:
                watch = cpo.Watch.load(path)
            except InvalidInputError:
                continue
            assert watch.alarm == whole.alarm
            assert watch.e_value == pytest.approx(whole.e_value, rel=1e-3), (top, key, node)
            assert watch.update(["a"] * 5 + ["b"] * 3 + ["c"]).json["e_value"] is not None


def test_where_the_body_raises_the_file_stays_as_it_was(tmp_path):
    path = tmp_path / "watch.json"
    with cpo.Watch.open(path, BALL, contexts=LABELS) as watch:
        watch.update(["a"])
    before = path.read_bytes()
    with pytest.raises(InvalidInputError), cpo.Watch.open(path, BALL, contexts=LABELS) as watch:
        watch.update(["b"]).update(["b"], losses=[-1.0])
    assert path.read_bytes() == before
    with (
        pytest.raises(InvalidInputError, match="begun with"),
        cpo.Watch.open(path, BALL, contexts=LABELS, confidence=0.9),
    ):
        pass


def _one_process(path, times):
    for _ in range(times):
        with cpo.Watch.open(path, BALL, contexts=LABELS) as watch:
            watch.update(["a", "b", "c"])


def test_two_processes_lose_no_rows(tmp_path):
    path = tmp_path / "watch.json"
    both = [multiprocessing.get_context("fork").Process(target=_one_process, args=(path, 15)) for _ in range(2)]
    for one in both:
        one.start()
    for one in both:
        one.join()
    assert cpo.Watch.load(path).n_rows == 90


def test_neither_memory_nor_state_grow_with_rows(tmp_path):
    rng, path = np.random.default_rng(15), tmp_path / "watch.json"
    watch = cpo.Watch(cpo.KLBall(np.full(40, 1 / 40), 0.05))
    sizes = []
    for update in range(900):
        watch.update(rng.integers(0, 40, 50), rng.exponential(size=50), time=update, batch=update)
        if update in (300, 899):
            watch.save(path)
            sizes.append(path.stat().st_size)
    assert max(sizes) < 100_000
    assert sizes[1] < 1.5 * sizes[0]
    assert watch.history["rows"].sum() == 45_000
    assert watch.history["updates"].sum() == 900


def test_with_a_run_length_false_alarms_are_far_apart():
    rng, lengths = np.random.default_rng(16), []
    for _ in range(25):
        watch = cpo.Watch(cpo.KLBall([0.5, 0.5], 0.0), run_length=30.0)
        while not watch.alarm and watch.n_updates < 150:
            watch.update(rng.integers(0, 2, 10))
        lengths.append(watch.n_updates)
    assert np.mean(lengths) > 30.0
    assert np.isnan(watch.p_value)
    for _ in range(60):
        watch.update(np.ones(10, dtype=int))
    assert watch.alarm


def test_what_cannot_be_watched_is_refused():
    X, y, _ = rows(np.random.default_rng(17), 50)
    for bad in (Ridge().fit(X, y), Ridge, 3, cpo.RobustLinearRegression()):
        with pytest.raises((InvalidInputError, ValueError)):
            cpo.Watch(bad)
    for name, value in {"confidence": 1.0, "unseen_share": -0.1, "run_length": 0.5, "contexts": ["a", "b"]}.items():
        with pytest.raises(InvalidInputError, match=name):
            cpo.Watch(BALL, **{name: value})


def test_the_boosted_and_the_wrapped_are_watched_too():
    X, y, c = rows(np.random.default_rng(18), 300)
    plain = cpo.RobustLinearRegression(radius=0).fit(X, y, contexts=c)
    assert "for the mix of its rows alone" in cpo.Watch(plain).notes[0]
    wrapped = cpo.ContextRobust(Ridge(), cv=2, max_iter=3).fit(X, y, contexts=c)
    assert np.isfinite(cpo.Watch(wrapped).update(c).risks["promised"]).all()
    stock = cpo.RobustNewsvendor(price=10.0).fit(np.full(300, 4.0), np.abs(y), contexts=c)
    assert not cpo.Watch(stock).update(c).alarm


@pytest.mark.parametrize("saved", [False, True])
def test_contexts_that_stay_away_for_long_prove_nothing(tmp_path, saved):
    # Every mix that comes is in the set; what it lacks was forgotten.
    bounds, rng, alarms = cpo.ShareBounds(np.zeros(3), [0.5, 1.0, 1.0]), np.random.default_rng(19), 0
    for _ in range(10):
        watch = cpo.Watch(bounds)
        for update in range(20):
            mix = [[0.5, 0.5, 0.0], [0.5, 0.0, 0.5]][update % 2]
            watch.update(np.repeat([0, 1, 2], rng.multinomial(6000 if saved else 150_000, mix)))
            if saved:
                watch.save(tmp_path / "watch.json")
                watch = cpo.Watch.load(tmp_path / "watch.json")
        alarms += watch.alarm
    assert alarms <= 2


def test_a_group_that_spans_several_times_is_one_draw():
    rng, alarms = np.random.default_rng(20), 0
    rim = cpo.KLBall([0.5, 0.5], 0.02).worst_case([1.0, 0.0]).distribution
    for _ in range(10):
        patients = rng.choice(2, 30, p=rim)
        patient, day = np.repeat(np.arange(30), 60), np.tile(np.arange(60), 30)
        watch = cpo.Watch(cpo.KLBall([0.5, 0.5], 0.02))
        alarms += watch.update(patients[patient], rng.exponential(size=1800), groups=patient, time=day).alarm
    assert alarms <= 2


def test_groups_of_unequal_sizes_leave_shares_and_means_those_of_rows():
    rng = np.random.default_rng(21)
    watch = cpo.Watch(cpo.KLBall([0.1, 0.9], 0.02), promised={0: 2.2, 1: 1.1})
    for _ in range(60):
        large = rng.random(20) < 0.5
        labels = np.repeat(large.astype(int), np.where(large, 9, 1))
        losses = rng.exponential(np.where(labels == 1, 1.0, 2.0))
        watch.update(labels, losses, groups=np.repeat(np.arange(20), np.where(large, 9, 1)))
    assert not watch.alarm
    np.testing.assert_allclose(watch.shares["now"], watch.shares["rows"] / watch.n_rows)


def test_a_context_that_no_member_allows_is_proof():
    for mixes in (cpo.Chi2Ball([0.5, 0.5, 0.0], 0.1), cpo.KLBall([0.5, 0.5, 0.0], 0.0)):
        watch = cpo.Watch(mixes).update([0, 1, 2]).update([0, 1, 2]).update([0, 1])
        assert watch.alarm
        assert watch.p_value == 0.0


def test_empty_batches_are_no_trouble():
    frame = pd.DataFrame({"c": ["a", "b"], "day": pd.to_datetime(["2024-01-01", "2024-01-02"])})
    watch = cpo.Watch(BALL, contexts=LABELS).update(frame["c"], time=frame["day"])
    watch.update(frame["c"][:0], time=frame["day"][:0]).update([], time=pd.NaT)
    assert watch.update(frame["c"], time=frame["day"]).n_rows == 4
    assert "is before" in watch.notes[-1]
    with pytest.raises(InvalidInputError, match="losses has 2 rows"):
        watch.update([], losses=[1.0, 2.0])
    with pytest.raises(InvalidInputError, match="is no column"):
        watch.update(5)


def test_labels_that_a_file_cannot_hold_are_named(tmp_path):
    watch = cpo.Watch(BALL, contexts=[pd.Interval(k, k + 1) for k in range(3)])
    with pytest.raises(InvalidInputError, match="a file cannot hold"):
        watch.save(tmp_path / "watch.json")
    dated = cpo.Watch(cpo.KLBall([0.5, 0.5], 0.1, labels=(3, 4)))
    dated.save(tmp_path / "watch.json")
    assert not cpo.Watch.load(tmp_path / "watch.json").update([3, 4]).alarm


def test_another_set_with_the_same_intervals_is_another_one(tmp_path):
    first, second = [[1, 1, 0, 0], [0, 0, 1, 1]], [[1, 0, 1, 0], [0, 1, 0, 1]]
    cpo.Watch(cpo.ShareLimits(first, [0.8, 0.8])).save(tmp_path / "watch.json")
    with pytest.raises(InvalidInputError, match="another one"):
        cpo.Watch.load(tmp_path / "watch.json", cpo.ShareLimits(second, [0.8, 0.8]))
    with cpo.Watch.open(tmp_path / "deep" / "w.json", BALL, confidence=0.9, unseen_share=0.02, promised={0: 1.0}):
        pass
    with cpo.Watch.open(tmp_path / "deep" / "w.json", BALL, confidence=0.9) as watch:
        assert watch.confidence == 0.9
    with (
        pytest.raises(InvalidInputError, match="begun with"),
        cpo.Watch.open(tmp_path / "deep" / "w.json", BALL, promised={0: 9.0}),
    ):
        pass
