"""The page of a run of a mixture controller: a safe file, with the controller's own numbers in it."""

import re

import numpy as np
import pytest

from counterpoise import KLBall, Mix
from counterpoise.exceptions import CounterpoiseWarning, InvalidInputError
from counterpoise.reports.mixture import save, written
from counterpoise.reports.mixture_run import MixtureRun
from tests.reports.pages.hostile import NAMES
from tests.reports.test_stock import NEVER, check_page

pytest.importorskip("torch")

from counterpoise.torch import MixtureController

TOKENS = {"Web pages": 9e9, "Go code": 1.1e9, "Papers": 1.5e9, "Chat logs": 1.2e8, "Bible": 4.4e6}


def trained(
    tokens=TOKENS, n_updates=12, *, budget=2e10, references=True, missing=(), ahead=0.0, at=None, seed=0, **settings
):
    """Return a controller after updates of losses that fall where a source has had much of the text."""
    rng, names = np.random.default_rng(seed), list(tokens)
    least = rng.uniform(1.5, 3.0, len(names))
    given = dict(zip(names, least if references else np.zeros(len(names)), strict=True))
    controller = MixtureController(tokens, budget=budget, reference_losses=given, **settings)
    had = np.zeros(len(names))
    for k in range(n_updates):
        had += controller.probabilities
        losses = least - ahead + rng.uniform(0.5, 1.5, len(names)) / (1.0 + len(names) * had)
        found = {name: loss for name, loss in zip(names, losses, strict=True) if name not in missing}
        controller.update(found, at=None if at is None else at(k))
    return controller


def numbers(cells):
    """Return cells of one form as numbers: percentages as shares, a dash as NaN."""
    scale = {"%": 0.01, "M": 1e6, "bn": 1e9}
    found = []
    for cell in cells:
        word = cell.replace("\u202f", " ").replace("\u2212", "-").replace("\u2013", "nan").strip()
        unit = next((unit for unit in scale if word.endswith(unit)), "")
        found.append(float(word.removesuffix(unit).replace(" ", "")) * scale.get(unit, 1.0))
    return np.array(found)


def columns_of(page, first):
    """Return the columns of the table whose first column has a heading, by their headings."""
    return [
        dict(zip(rows[0], zip(*rows[1:], strict=True), strict=True))
        for rows in check_page(page).tables
        if rows[0][0] == first
    ]


def visible(page):
    return re.sub(r"<(style|title|desc)\b.*?</\1>", "", page, flags=re.DOTALL)


def headline(page):
    return " ".join(re.search(r'<p class="verdict">(.*?)</p>', page, re.DOTALL).group(1).split())


def text(value):
    return f"{value:.3f}"


def test_the_headline_says_where_the_run_is_and_where_it_was():
    controller = trained(radius=0.5)
    excess = dict(zip(controller.sources, controller.excess.tolist(), strict=True))
    worst, best = max(excess, key=excess.get), min(excess, key=excess.get)
    first = float(controller.history["worst_excess"][0])
    assert headline(written(controller)) == (
        f"After 12 updates the model is {text(controller.worst_excess)} nats per token behind what can be "
        f"reached in the worst plausible mix of sources; at the first update it was {text(first)} behind. {worst} is "
        f"furthest behind ({text(excess[worst])}), {best} is nearest ({text(excess[best])})."
    )


def test_the_unit_is_the_users():
    assert " bits per byte behind" in headline(written(trained(), unit="bits per byte"))


def test_a_model_that_is_ahead_is_said_to_be():
    with pytest.warns(CounterpoiseWarning, match="far below its reference"):
        controller = trained(ahead=5.0)
    said = headline(written(controller))
    assert f"{text(-controller.worst_excess)} nats per token ahead of the references" in said
    assert "are ahead of their references: more can be reached than was thought" in written(controller)
    assert "more can be reached" not in written(trained())
    assert "is the least ahead" in said
    assert "-" not in said.replace("held-out", "")


def test_one_update_is_compared_with_nothing():
    page = written(trained(n_updates=1))
    said = headline(page)
    assert said.startswith("After 1 update the model")
    assert "at the first update" not in check_page(page).text
    assert len(columns_of(page, "source")[1]) == len(columns_of(written(trained()), "source")[1]) - 2


def test_without_references_losses_are_compared():
    page = written(trained(references=False))
    read = check_page(page)
    assert "the held-out loss is" in headline(page)
    assert "has the highest loss" in headline(page)
    assert "No reference losses were given" in read.text
    assert "can be reached" not in " ".join(cell for rows in read.tables for cell in rows[0])
    assert "No reference losses" not in check_page(written(trained())).text


def test_sections_come_in_the_order_in_which_they_are_asked_for():
    text = check_page(written(trained(), "small models", {"model": "160 M"})).text
    places = [
        text.index(one)
        for one in (
            "small models",
            "After 12 updates",
            "How shares and losses moved",
            "The mix, source by source",
            "Progress by source",
            "No model was trained on the other mixes",
            "How it was made",
            "160 M",
        )
    ]
    # The title is in the head as well.
    assert places == sorted(places)


def test_shares_are_those_of_the_controller():
    controller = trained()
    cells = columns_of(written(controller), "source")[0]
    places = [controller.sources.index(name) for name in cells["source"]]
    assert sorted(places) == list(range(len(TOKENS)))
    total = controller.tokens.sum()
    mean = np.array(list(controller.average.values()))
    tempered = {power: controller.tokens**power / (controller.tokens**power).sum() for power in (0.7, 0.3)}
    wanted = {
        "tokens": controller.tokens,
        "mean": mean,
        "last": controller.probabilities,
        "proportional": controller.tokens / total,
        "tempered, 0.7": tempered[0.7],
        "tempered, 0.3": tempered[0.3],
        "uniform": np.full(len(TOKENS), 1.0 / len(TOKENS)),
        "epochs": mean * controller.budget / controller.tokens,
    }
    for name, values in wanted.items():
        np.testing.assert_allclose(numbers(cells[name]), values[places], rtol=0.03, atol=6e-4, err_msg=name)
    assert "0.7 (temperature 1.43)" in written(controller)


def test_caps_of_the_budget_are_shown():
    page = written(controller := trained())
    cells = columns_of(page, "source")[0]
    caps = dict(zip(controller.sources, 4.0 * controller.tokens / controller.budget, strict=True))
    for name, words in zip(cells["source"], cells["allowed"], strict=True):
        if caps[name] < 1.0:
            np.testing.assert_allclose(numbers([words.removeprefix("up to\u00a0")]), caps[name], rtol=0.03)
    # The others can take so much only.
    rest = 1.0 - sum(cap for cap in caps.values() if cap < 1.0)
    assert dict(zip(cells["source"], cells["allowed"], strict=True))["Web pages"] == f"{rest:.1%} to\u00a0100.0%"
    # On a screen and on a phone.
    assert len(re.findall('class="band"', page)) == 2 * len(TOKENS)
    held = [name for name, cap in caps.items() if controller.shares[name] > 0.999 * cap]
    assert "Bible" in held
    (note,) = re.findall(r"([^<>]*) (?:is|are) held at the largest shares? that the budget allows: 4 epochs", page)
    assert set(re.split(", | and ", note.strip())) == set(held)
    free = written(trained(budget=None))
    assert "epochs" not in columns_of(free, "source")[0]
    assert set(columns_of(free, "source")[0]["allowed"]) == {"any"}
    assert 'class="band"' not in free


def test_a_source_at_a_limit_of_the_plausible_mixes_is_said_to_be():
    worst = max(trained().excess)
    name = next(one for one, excess in zip(TOKENS, trained().excess, strict=True) if excess == worst)
    controller = trained(budget=None, n_updates=60, mix=Mix(bounds={name: (0.0, 0.1)}, ball=None))
    assert controller.shares[name] == pytest.approx(0.1)
    assert f"{name} is held at the largest share that the set of plausible mixes allows." in written(controller)
    assert "is held at" not in written(trained(budget=None))


def test_a_cap_far_above_the_share_leaves_the_share_to_be_seen():
    tokens = dict.fromkeys((f"language {k}" for k in range(30)), 1e7)
    page = written(trained(tokens, budget=None, mix={"language 3": (0.0, 0.6)}))
    cells = columns_of(page, "source")[0]
    assert dict(zip(cells["source"], cells["allowed"], strict=True))["language 3"] == "up to\u00a060.0%"
    assert "The band is the range that the set of plausible mixes allows" in check_page(page).text
    assert 'class="band"' not in page


def test_losses_are_those_of_the_controller():
    controller = trained(radius=0.5)
    cells = columns_of(written(controller), "source")[1]
    places = [controller.sources.index(name) for name in cells["source"]]
    excess = controller.excess
    assert list(excess[places]) == sorted(excess, reverse=True)
    first = np.array([controller.history[f"loss[{name}]"][0] for name in controller.sources]) - controller.references
    wanted = {
        "held-out loss": controller.losses,
        "can be reached": controller.references,
        "excess": excess,
        "first excess": first,
        "change": excess - first,
        "share in the worst mix": controller.mixes.worst_case(excess).distribution,
    }
    for name, values in wanted.items():
        np.testing.assert_allclose(numbers(cells[name]), values[places], atol=6e-4, err_msg=name)


def test_the_page_says_by_how_much_held_out_text_losses_are_known():
    controller = trained()
    assert "text that the shares followed." in " ".join(visible(written(controller)).split())
    controller.update(controller.losses, [500.0, 800.0, 600.0, 700.0, 0.0])
    words = " ".join(visible(written(controller)).split())
    assert "text that the shares followed, 500 to 800 tokens of each source. They are noisy" in words


def test_other_mixes_are_judged_by_the_last_update():
    controller = trained(radius=0.5)
    (cells,) = columns_of(written(controller), "mix")
    assert cells["mix"][-1] == "worst plausible"
    proportional = controller.tokens / controller.tokens.sum()
    mixes = {
        "mean of the run": np.array(list(controller.average.values())),
        "last": controller.probabilities,
        "proportional": proportional,
        "uniform": np.full(len(TOKENS), 1.0 / len(TOKENS)),
        "worst plausible": controller.mixes.worst_case(controller.excess).distribution,
    }
    found = dict(zip(cells["mix"], numbers(cells["mean excess"]), strict=True))
    plausible = dict(zip(cells["mix"], cells["plausible at use"], strict=True))
    for name, mix in mixes.items():
        assert found[name] == pytest.approx(mix @ controller.excess, abs=6e-4), name
        if name != "worst plausible":
            assert plausible[name] == ("yes" if controller.mixes.contains(mix) else "no")
    assert found["worst plausible"] == pytest.approx(controller.worst_excess, abs=6e-4)
    # The worst mix of the first update, which was another one.
    then = dict(zip(cells["mix"], numbers(cells["at the first update"]), strict=True))
    assert then["worst plausible"] == pytest.approx(controller.history["worst_excess"][0], abs=6e-4)
    first = np.array([controller.history[f"loss[{name}]"][0] for name in TOKENS]) - controller.references
    for name in ("proportional", "uniform"):
        assert then[name] == pytest.approx(mixes[name] @ first, abs=6e-4)
    assert plausible["proportional"] == "yes"
    assert plausible["uniform"] == "no"
    most = dict(zip(cells["mix"], cells["most epochs if trained on it"], strict=True))
    assert most["uniform"] == f"{controller.budget / len(TOKENS) / TOKENS['Bible']:.0f} (Bible)"
    # All are read as often.
    assert float(most["proportional"]) == pytest.approx(controller.budget / sum(TOKENS.values()), abs=6e-3)


def test_every_source_has_its_share_and_its_excess_drawn():
    page = written(trained(n_updates=30))
    drawn = re.findall(r'<path class="line"[^>]*><title>([^<]*)</title>', page)
    for name in TOKENS:
        # Two pictures, each on a screen and on a phone.
        assert drawn.count(name) == 4


def test_many_updates_are_thinned():
    short, long = (len(written(trained(n_updates=n, radius=0.5))) for n in (150, 1500))
    assert long < 1.1 * short


@pytest.mark.parametrize("budget", [None, 4e10])
def test_thirty_sources(budget):
    tokens = {f"language {k}": 1e7 * 1.3**k for k in range(30)}
    page = written(trained(tokens, budget=budget and 2.0 * sum(tokens.values())))
    for cells in columns_of(page, "source"):
        assert sorted(cells["source"]) == sorted(tokens)
    drawn = re.findall(r'<path class="line"[^>]*><title>([^<]*)</title>', page)
    assert all(drawn.count(name) == 4 for name in tokens)
    assert "The other sources" in page
    assert len(page) < 500_000


def test_a_single_source_has_no_mix():
    controller = trained({"all": 1e9}, budget=2e9)
    page = written(controller)
    assert f"is {text(controller.worst_excess)} nats per token behind the reference of all" in headline(page)
    assert "other mixes" not in check_page(page).text
    assert numbers(columns_of(page, "source")[0]["epochs"]) == pytest.approx(2.0)
    assert "the only source" in headline(written(trained({"all": 1e9}, budget=None, references=False)))


def test_sources_without_held_out_text_are_named_and_nothing_is_nan():
    controller = trained(missing=("Bible", "Papers"), radius=0.5)
    # Nobody knows what they could reach, either.
    controller.set_references({name: 1.5 for name in TOKENS if name not in ("Bible", "Papers")})
    page = written(controller)
    assert "Papers and Bible have no held-out loss" in check_page(page).text
    assert not re.search(r"\bnan\b", visible(page).lower())
    losses = columns_of(page, "source")[1]
    assert {name for name, cell in zip(losses["source"], losses["excess"], strict=True) if cell == "–"} == {
        "Bible",
        "Papers",
    }
    assert losses["can be reached"].count("–") == 2
    (mixes,) = columns_of(page, "mix")
    assert numbers(mixes["mean excess"])[-1] == pytest.approx(controller.worst_excess, abs=6e-4)


def test_a_source_that_was_judged_at_times_only():
    controller = trained(n_updates=4)
    controller.update({"Web pages": 2.5})
    page = written(controller)
    assert "4 more" not in headline(page)
    assert "Web pages" not in headline(page)
    assert not re.search(r"\bnan\b", visible(page).lower())


def test_references_that_were_changed_are_said_to_be():
    controller = trained(references=False)
    controller.set_references(dict.fromkeys(TOKENS, 1.0))
    page = written(controller)
    first = np.array([controller.history[f"loss[{name}]"][0] for name in TOKENS]) - 1.0
    assert "References, or the plausible mixes, were changed" in page
    assert f"at the first update it was {text(first.max())} behind" in headline(page)
    assert "References, or the plausible mixes, were changed" not in written(trained())


def test_before_the_first_update_there_is_nothing_to_report(tmp_path):
    with pytest.raises(InvalidInputError, match=r"nothing to report.*Call update first"):
        save(trained(n_updates=0), tmp_path / "mixture.html")
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_exists_is_kept(tmp_path):
    path, controller = tmp_path / "mixture.html", trained()
    path.write_text("mine")
    with pytest.raises(InvalidInputError):
        save(controller, path)
    assert path.read_text() == "mine"
    assert save(controller, path, title="ours", force=True) == path
    assert path.read_text(encoding="utf-8") == written(controller, "ours")


def test_hostile_names_are_never_markup():
    tokens = {name: 1e9 / (k + 1) for k, name in enumerate(NAMES)}
    for missing in ((), NAMES[:6]):
        page = written(trained(tokens, 3, budget=1e10, missing=missing), NAMES[0], {NAMES[0]: NAMES[1]}, unit=NAMES[1])
        read = check_page(page)
        for never in NEVER:
            assert never not in page.replace("</title>", "", 1)
        assert "<script>alert(1)</script>" in read.text
        assert len(page) < 1_000_000
        page.encode("utf-8")


@pytest.mark.parametrize("at", [lambda k: 500.0 * (k + 1), lambda k: 0.0, lambda k: -float(k), lambda k: 1e12 + k])
@pytest.mark.parametrize("n_updates", [1, 2, 9])
def test_updates_may_be_at_any_time(at, n_updates):
    page = written(trained(n_updates=n_updates, at=at))
    check_page(page)
    assert not re.search(r"\bnan\b", visible(page).lower())


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({}, "every mix"),
        ({"radius": 0.25}, "every mix within 0.25 bits"),
        ({"radius": 0.0}, "every mix within 0 bits"),
        ({"mix": {"Bible": (0.0, 0.4), "Go code": (0.1, 0.5)}}, "'Go code' from 0.1 to 0.5"),
        ({"mix": KLBall(np.full(5, 0.2), 0.3)}, "every mix within 0.3 bits"),
        ({"sharpness": np.inf}, "∞"),
    ],
    ids=["all", "ball", "point", "bounds", "a set", "sharp"],
)
def test_the_set_of_mixes_is_said_in_words(settings, words):
    page = written(trained(budget=None, **settings))
    facts = dict(check_page(page).tables[-1])
    assert words in f"{facts['plausible mixes']} {facts['sharpness']}"
    assert facts["updates"] == "12"
    assert {"step size", "counterpoise", "torch", "numpy"} <= facts.keys()


def test_a_run_that_goes_on_with_a_larger_budget_begins_where_it_began():
    controller = trained(budget=1e8)
    longer = trained(n_updates=0)
    longer.load_state_dict(controller.state_dict())
    first = controller.probabilities
    longer.update(np.full(5, 9.0))
    for one in (controller, longer):
        np.testing.assert_allclose(MixtureRun(one, "").shares[0], one.tokens / one.tokens.sum())
    np.testing.assert_allclose(MixtureRun(longer, "").shares[-2], first)


def test_a_run_read_from_a_checkpoint_has_the_same_page():
    controller = trained()
    again = trained(n_updates=0)
    again.load_state_dict(controller.state_dict())
    assert written(again) == written(controller)
