"""Studies that are run by hand, in small, so that none rots."""

import collections
import contextlib
import json
import re
import sys
import types
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import counterpoise as cpo
from counterpoise import cli
from tests.draws import fewer_draws

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def study(monkeypatch):
    """Import a study by name."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return __import__


def test_coverage_prints_its_tables(study, capsys, monkeypatch):
    fewer_draws(monkeypatch.setattr)
    assert study("coverage").main(["--toy"]) == 0
    out = capsys.readouterr().out
    for words in ("ties | 3 | 30", "percentile bootstrap", "peak, another peak", "Bonferroni", "one model for all"):
        assert words in out
    assert "nan" not in out


def test_the_truth_of_a_comparison_is_that_of_the_models_of_its_folds(study):
    coverage = study("coverage")
    missed = np.mean([coverage.compared_of("a rare context differs", run) for run in range(6)], axis=0)
    # Six runs rarely miss at all; a truth of other models would be missed by the interval of their difference.
    assert missed[:5].max() <= 2 / 6
    assert missed[7] >= 0.5


def test_coverage_says_which_studies_there_are(study, capsys):
    with pytest.raises(SystemExit):
        study("coverage").main(["magic"])
    assert "bounds, differences, power, compare" in capsys.readouterr().err


def test_watch_prints_its_tables(study, capsys):
    assert study("watch").main(["--toy"]) == 0
    out = capsys.readouterr().out
    for words in (
        "5 contexts: rim, at random, groups shared |",
        "quadrupled",
        "chi-squared, the day |",
        "| 100 | yes |",
    ):
        assert words in out
    assert "nan" not in out
    assert "above 5%" not in out


def test_rims_of_the_study_of_watches_are_rims(study):
    streams, rules = study("watch_streams"), study("watch_rules")
    for n_contexts in (2, 5, 20):
        sized = streams.Sized(n_contexts)
        for mix in sized.corners.values():
            assert sized.ball.divergence(mix) == pytest.approx(sized.ball.radius, rel=1e-6)
            assert mix.sum() == pytest.approx(1.0)
            # What the tests of the study bisect is what the library finds.
            counts = 100.0 * (0.5 * mix + 0.5 * np.eye(n_contexts)[0])
            own = rules.likeliest(counts, sized.ball.p_hat, sized.ball.radius)
            assert own == pytest.approx(sized.ball.likeliest(counts).distribution, abs=1e-7)


def test_guard_prints_its_tables(study, capsys, monkeypatch):
    fewer_draws(monkeypatch.setattr)
    study("guard").main(["--toy"])
    out = capsys.readouterr().out
    for words in ("| one rule | default set |", "| another rule | every mix |", "| 3 | 300 | 0 | - | linear |"):
        assert words in out
    assert "| 3 | 3000 | log_loss | 9 within contexts | yes | yes |" in out
    assert "nan" not in out


def test_where_contexts_are_alike_the_plain_learner_is_kept_whether_or_not_rows_depend(study):
    guard = study("guard")
    for one in (guard.Alike(3, 300), guard.Alike(3, 300, 30, within=True, told=True, whole=True)):
        kept = [one.kept(seed, 1.0, 500)[0] for seed in range(10)]
        assert sum(kept) <= 1, one


def test_the_cost_of_any_learner_is_printed_beside_its_gain(study, capsys, monkeypatch):
    fewer_draws(monkeypatch.setattr)
    any_learner = study("any_learner")
    any_learner.main(["--toy", "--learners", "logistic"])
    out = capsys.readouterr().out
    for words in ("3 problems, 1 tables each", "| logistic | one rule |", "| logistic | all |"):
        assert words in out
    assert "nan" not in out
    any_learner.main(["--toy", "--large", "--learners", "logistic", "--cv", "2"])
    assert "| logistic | 800 | 0.99 |" in capsys.readouterr().out


def test_rows_that_a_learner_is_fitted_to_are_counted(study):
    any_learner = study("any_learner")
    X, y, codes = any_learner.large_rows(300, 3, 2)
    cost = any_learner.cost_of(any_learner.LEARNERS["logistic"], X, y, codes, 1, radius=0.0, reference="pooled", cv=3)
    # Two thirds of the rows in each of three folds, and all of them at last.
    assert cost.rows == pytest.approx(3.0)
    assert cost.fits == 4
    assert cost.ratio > 0.0


def test_the_truth_of_a_rule_has_no_excess(study):
    guard = study("guard")
    rules = guard.PROBLEMS[0].rules(np.random.default_rng(0))

    class Rule:
        def decision_function(self, X):
            return X @ rules[0]

    excess = guard.true_excess(Rule(), rules, 200, np.random.default_rng(1))
    np.testing.assert_allclose(excess, 0.0, atol=1e-12)


def test_calibrated_radius_prints_its_tables(study, capsys):
    assert study("calibrated_radius").main(["--toy"]) == 0
    out = capsys.readouterr().out
    for words in (
        "of Agrawal's",
        "all but one rare | 1 |",
        "As a share of agrawal",
        "worst mix found",
        "| 2 | 20 | 0.9 |",
    ):
        assert words in out
    assert "nan" not in out


def test_calibrated_radius_says_which_studies_there_are(study, capsys):
    with pytest.raises(SystemExit):
        study("calibrated_radius").main(["magic"])
    assert "coverage, hunt and size" in capsys.readouterr().err


@pytest.mark.parametrize(("n_contexts", "n"), [(3, 12.0), (20, 100.0), (200, 300.0), (200, np.inf)])
def test_two_ways_to_the_calibrated_table_agree(study, monkeypatch, n_contexts, n):
    table = study("calibrated_table")
    misses = np.array([0.2, 0.1, 0.05, 0.01])
    monkeypatch.setattr(table, "MISSES", misses)
    if n_contexts < 20:
        found, again = table.quantiles_of_few(n_contexts, [n])[n], table.quantiles_hunted(n_contexts, int(n), 300)
        assert (again <= 1.02 * found).all()
        assert again == pytest.approx(found, rel=0.1)
        return
    kept = cpo.confidence_radius(np.ones(n_contexts), 0.95, "calibrated", draws=min(n, 1e12)) * min(n, 1e12) * np.log(2)
    assert kept == pytest.approx(table.quantiles_of_many(n_contexts, n)[2], rel=0.02)


def test_real_tables_prints_a_row_for_each_method(study, monkeypatch, capsys, tmp_path):
    real_tables = study("real_tables")
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.standard_normal((120, 2)), columns=["a", "b"])
    site = np.repeat(["north", "south"], 60)
    y = X["a"].to_numpy() + rng.standard_normal(120)
    model = cpo.RobustLinearRegression(reference="cross-fit")
    monkeypatch.setattr(real_tables, "STUDIES", {"small": lambda folder: real_tables.Study(X, y, site, model)})
    assert real_tables.main([str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert out.count("| small |") == 5
    assert "worst plausible mix on" in out
    assert real_tables.main([]) == 2


def test_sets_of_real_tables_are_sized_by_groups_where_there_are_any(study):
    real_tables = study("real_tables")
    model = real_tables.make_pipeline(real_tables.StandardScaler(), cpo.RobustLinearRegression(draws=7))
    small = real_tables.Study(pd.DataFrame({"a": [1.0, 2.0]}), np.zeros(2), np.array([0, 1]), model)
    assert real_tables.by_groups(small) is small
    sized = real_tables.by_groups(real_tables.replace(small, groups=np.array([0, 1])))
    assert sized.model[-1].draws == "groups"
    assert model[-1].draws == 7


def test_a_backtest_prints_a_row_for_each_method(study, capsys):
    backtest = study("stock_backtest")
    rng = np.random.default_rng(0)
    day = pd.date_range("2024-01-01", periods=200)
    rows = pd.DataFrame(
        {"day": day, "demand": rng.poisson(20.0, 200).astype(float), "surcharge": 0.0, "problem": "all"}
    )
    rows["context"] = np.where(rng.uniform(size=200) < 0.3, "rain", "dry")
    study_ = backtest.Study(rows, (0.4,), unit="day", rows_per_unit=1, window=84, salvage=0.0)
    lines = backtest.report(backtest.backtest(study_, 0.4, 4), "day")
    assert [line.split(" | ")[0] for line in lines[2:-2]] == [
        f"| {name}" for name in [*backtest.METHODS, "context known"]
    ]
    assert lines[-1].startswith("better than robust in worst excess")


def test_the_passes_of_a_fit_on_a_device_are_counted(study, capsys):
    pytest.importorskip("torch")
    gpu = study("gpu")
    gpu.main(["--toy"])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(gpu.TASKS)
    for line in lines:
        assert "certified True" in line
        (passes,) = re.findall(r"(\d+) passes", line)
        # Gradients and Hessians of references and of the robust fit, at one point each at least.
        assert int(passes) >= 4


def test_the_cost_of_a_step_is_printed_for_each_network(study, capsys):
    pytest.importorskip("torch")
    study("gpu_step").main(["--toy"])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(",")[0] for line in lines] == ["ResNet-18", *["small network"] * 3]
    assert all(float(line.rpartition("ratio ")[2]) > 0.0 for line in lines)


def test_the_cost_of_a_mixture_is_printed_for_each_way_to_sample(study, capsys):
    pytest.importorskip("torch")
    assert study("mixture_overhead").main(["--toy"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(":")[0] for line in lines[1:]] == ["plain", "weighted", "mixture", "held-out evaluation"]
    assert "ratio 1.000" in lines[1]
    assert float(re.search(r"ratio ([\d.]+)", lines[3])[1]) > 0.0


def test_texts_of_the_study_of_mixtures_are_clean_and_apart(study, tmp_path):
    texts, cleaning = study("mixture_texts"), study("mixture_cleaning")
    made = texts.make(tmp_path, toy=True)
    assert all(sorted(parts) == ["judged", "train", "watched"] for parts in made.values())
    again = texts.read(tmp_path)
    for name, parts in made.items():
        for part, tokens in parts.items():
            np.testing.assert_array_equal(tokens, again[name][part])
    assert max(share for parts in texts.overlap(made).values() for share in parts.values()) < 0.05
    # Two windows of a held-out part that occur in training text are found.
    copied = {"a": {"train": np.arange(99), "watched": np.arange(33), "judged": np.arange(200, 240)}}
    assert texts.overlap(copied) == {"a": {"watched": 1.0, "judged": 0.0}}
    page = ".TH LS 1\n.SH NAME\nls \\- list\n.PP\nSee \\fBdir\\fR(1).\n.TS\na;b\n.TE\n.BR cp (1)\n"
    assert cleaning.manual_page(page) == "NAME\n\nls - list\n\nSee dir(1).\ncp(1)"


def test_stacked_models_are_trained_as_alone(study):
    torch = pytest.importorskip("torch")
    models = study("mixture_models")
    shape = models.Shape(128, 1, 50, 16, torch.float32)
    together, alone = models.Ensemble(shape, [1, 2, 1]), models.Ensemble(shape, [2])
    windows = torch.randint(50, (3, 4, 17), generator=torch.Generator().manual_seed(0))
    for ensemble, some in ((together, windows), (alone, windows[1:2])):
        descent = models.Descent(ensemble, 4, 1e-2)
        for _ in range(4):
            ensemble.losses(some).mean((1, 2)).sum().backward()
            descent.step()
    found = together.losses(windows).detach()
    torch.testing.assert_close(alone.losses(windows[1:2])[0], found[1])
    assert float(found.mean()) < 3.7
    joined = models.Ensemble.joined(shape, [together.one(2), together.one(1)])
    torch.testing.assert_close(joined.losses(windows[[2, 1]]), found[[2, 1]])
    # A model does not see what it predicts.
    later = windows.clone()
    later[..., 9:] = 0
    torch.testing.assert_close(together.losses(later)[..., :8], found[..., :8])


def test_references_are_judged_as_methods_are_where_they_were_best(study):
    torch = pytest.importorskip("torch")
    training, models, rules = study("mixture_training"), study("mixture_models"), study("mixture_rules")
    rng = np.random.default_rng(0)
    texts = tuple(
        models.Texts({name: rng.integers(20, size=17 * 9).astype(np.uint16) for name in "ab"}, 16, "cpu")
        for _ in range(3)
    )
    shape = models.Shape(128, 1, 20, 16, torch.float32)
    plan = training.Plan(shape, steps=12, batch=4, every=1, rate=0.02)
    runs = [training.Run(name, 0, rules.Rule(one)) for name, one in zip("ab", np.eye(2), strict=True)]
    alone = training.Trained(plan, runs, texts, keeps_best=True)
    training.train([alone], "alone")
    for run in runs:
        watched = np.array(run.watched)[:, run.source]
        # Learnt by heart, held-out text is predicted worse in the end.
        assert 0 < watched.argmin() < 11
        again = training.Trained(plan, [run], texts, start=models.Ensemble.joined(plan.shape, [run.best]))
        np.testing.assert_allclose(again.held_out(again.watched)[0][run.source], watched.min(), rtol=1e-5)
        np.testing.assert_allclose(again.held_out(again.judged)[0], run.judged, rtol=1e-5)


def test_models_of_the_study_learn_by_the_weights_of_their_rule(study):
    torch = pytest.importorskip("torch")
    training, models, rules = study("mixture_training"), study("mixture_models"), study("mixture_rules")
    rng = np.random.default_rng(0)
    parts = {name: rng.integers(20, size=17 * 9).astype(np.uint16) for name in "abc"}
    shape = models.Shape(128, 1, 20, 16, torch.float32)
    plan = training.Plan(shape, steps=3, batch=8, every=9, rate=0.02)
    known = models.Ensemble(shape, [7])

    class FirstCounts(rules.Rule):
        def __init__(self):
            super().__init__([0.5, 0.5, 0.0])
            self.weights, self.heard = torch.tensor([2.0, 0.0, 0.0]), []

        def batch(self, losses, sources, references):
            self.heard.append((losses, sources, references))

    def trained(first, second, weighted=True):
        texts = models.Texts({"a": parts[first], "b": parts[second], "c": parts["c"]}, 16, "cpu")
        rule = FirstCounts()
        rule.weights = rule.weights if weighted else None
        group = training.Trained(plan, [training.Run("", 1, rule)], (texts,) * 3, references=known)
        for _ in range(3):
            group.step()
        return group.ensemble.one(0)["embedding"], rule, texts

    found, rule, texts = trained("a", "b")
    assert torch.equal(trained("a", "c")[0], found)
    assert not torch.equal(trained("c", "b")[0], found)
    assert not torch.equal(trained("a", "b", weighted=False)[0], found)
    _, sources, references = rule.heard[0]
    assert set(sources.tolist()) == {0, 1}
    # What the reference model loses on the same windows, in any order.
    every = known.losses(texts.windows[None].long())[0].detach()
    assert all((every - one).abs().amax(1).min() < 1e-5 for one in references)
    assert not torch.allclose(rule.heard[0][0], references)


def test_rules_of_mixtures_are_those_of_their_papers(study):
    torch = pytest.importorskip("torch")
    rules = study("mixture_rules")
    loading = rules.DynamicLoading(np.array([0.5, 0.3, 0.2]), np.array([2.0, 3.0, 1.0]))
    loading.round(np.array([2.5, 2.0, 2.0]), 1)
    expected = np.array([0.5 * np.exp(0.5), 0.3, 0.2 * np.exp(1.0)])
    np.testing.assert_allclose(loading.shares, expected / expected.sum())
    losses, sources = torch.tensor([[1.0, 3.0], [2.0, 2.0], [4.0, 0.0]]), torch.tensor([0, 0, 2])
    dro = rules.GroupDRO(3, "cpu")
    dro.batch(losses, sources, None)
    expected = np.exp(0.01 * np.array([2.0, 0.0, 2.0]))
    np.testing.assert_allclose(dro.mix, expected / expected.sum(), rtol=1e-6)
    doremi = rules.DoReMi(3, "cpu")
    doremi.batch(losses, sources, torch.tensor([[0.0, 4.0], [1.0, 1.0], [1.0, 1.0]]))
    expected = np.exp(np.array([(1 + 0 + 1 + 1) / 4, 0.0, 3 / 2]))
    mixed = 0.999 * expected / expected.sum() + 0.001 / 3
    np.testing.assert_allclose(doremi.mix, mixed, rtol=1e-6)
    doremi.batch(torch.zeros(3, 2), sources, torch.ones(3, 2))
    np.testing.assert_allclose(doremi.exported, (mixed + doremi.mix) / 2, rtol=1e-6)


def test_mixtures_print_a_row_for_each_method_and_are_drawn(study, capsys, tmp_path):
    pytest.importorskip("torch")
    place, results = [str(tmp_path), "--toy", "--out", str(tmp_path)], tmp_path / "results.json"
    with pytest.raises(SystemExit):
        study("mixtures").main([*place, "--sizes", "large"])
    assert "Finish that size first" in capsys.readouterr().err
    assert study("mixtures").main([*place, "--sizes", "tiny", "small"]) == 0
    first = json.loads(results.read_text())
    # Another part of the study counts from what the first one found, and adds to it.
    assert study("mixtures").main([*place, "--known", str(results), "--sizes", "small", "large", "--seeds", "2"]) == 0
    both = json.loads(results.read_text())
    assert both["runs"][: len(first["runs"])] == first["runs"]
    assert both["small"] == first["small"]
    found = collections.Counter((run["size"], run["method"]) for run in both["runs"])
    assert found["tiny", "DoReMi"] == found["large", "DoReMi"] == 1
    assert found["small", "DoReMi"] == found["small", "proportional"] == found["small", "ours, 4 epochs"] == 2
    out = capsys.readouterr().out
    for words in ("| proportional |", "| dynamic loading |", "| ours, 4 epochs |", "| DoReMi |", "what can be reached"):
        assert out.count(words) >= 3, words
    assert "nan" not in out
    assert study("mixture_tables").main([str(results)]) == 0
    assert capsys.readouterr().out in out
    assert study("mixture_figures").main([str(tmp_path / "results.json"), str(tmp_path)]) == 0
    for name in ("mixture-shares-tiny", "mixture-shares-small", "mixture-shares-large", "mixture-front"):
        assert "ours, 4 epochs" in (tmp_path / f"{name}.svg").read_text()


def test_results_of_a_study_are_kept(study, tmp_path):
    pytest.importorskip("torch")
    results, training, rules = study("mixture_results"), study("mixture_training"), study("mixture_rules")
    place = tmp_path / "new" / "results.json"

    class Exporting(rules.Rule):
        exported = property(lambda self: self.shares)

    def group(losses, shares, seed):
        run = training.Run("ours", seed, Exporting(shares), judged=np.array(losses))
        return types.SimpleNamespace(runs=[run, training.Run(results.SPARE, 0, rules.Rule(np.ones(2)))])

    one = results.Results(place, {"a": 5, "b": 7})
    for losses, seed in (([1.0, 2.0], 1), ([3.0, 4.0], 2), ([5.0, 6.0], 1)):
        one.add([group(losses, [0.25 * seed, 1.0 - 0.25 * seed], seed)], "small")
    found = json.loads(place.read_text())
    # A seed that is trained again is not counted twice.
    assert [(run["seed"], run["judged"]) for run in found["runs"]] == [(1, [5.0, 6.0]), (2, [3.0, 4.0])]
    np.testing.assert_allclose(one.exported("small", "ours", 2), [0.5, 0.5])
    for size, seed in (("large", 1), ("small", 3)):
        with pytest.raises(cpo.exceptions.InvalidInputError, match=rf"size {size} .* seed {seed}\. Finish that size"):
            one.exported(size, "ours", seed)
    with pytest.raises(cpo.exceptions.InvalidInputError, match=r"exists\. Add to it with --known"):
        results.Results(place, {"a": 5, "b": 7})
    with pytest.raises(cpo.exceptions.InvalidInputError, match="other texts"):
        results.Results(place, {"a": 5, "b": 8}, place)
    again = results.Results(place, {"a": 5, "b": 7}, place)
    assert again.content == found
    again.content["small"] = {"references": {}, "tokens": 80, "every": 2}
    for size, tokens in (("small", 80), ("large", 60)):
        again.check(size, {"tokens": tokens, "every": 2})
    with pytest.raises(cpo.exceptions.InvalidInputError, match="size small with other tokens, which"):
        again.check("small", {"tokens": 60, "every": 2})


def test_the_study_of_mixtures_counts_from_the_lower_losses_and_misleads_by_half_a_nat(study):
    torch = pytest.importorskip("torch")
    mixtures, models, training = study("mixtures"), study("mixture_models"), study("mixture_training")
    own, tuned = {"a": [2.0, 2.2], "b": [3.0, 2.8]}, {"a": [1.9, 2.5], "b": [3.1, 2.7], "c": [1.0, 1.1]}
    found = mixtures.references_of(own, tuned)
    assert found == {"watched": [1.9, 3.0, 1.0], "judged": [2.5, 2.8, 1.1]}
    parts = dict.fromkeys(("train", "watched", "judged"), np.arange(400, dtype=np.uint16) % 20)
    plan = training.Plan(models.Shape(64, 1, 20, 16, torch.float32), steps=50, batch=2, every=10)
    made = mixtures.Study(dict.fromkeys("abc", parts), plan, [1])
    known = np.array([1.0, 2.0, 3.0])
    for name, rule in made.misled(known).items():
        told = getattr(rule(1), "controller", rule(1)).references
        np.testing.assert_array_equal(told, [1.0, 1.5, 3.0], err_msg=name)
        (true,) = (rule for other, rule in made.online(known).items() if name.startswith(f"{other}, wrong"))
        np.testing.assert_array_equal(getattr(true(1), "controller", true(1)).references, known)
    # A copy takes a fifth of the steps, and is looked at often.
    (copies,) = made.tuned(models.Ensemble(plan.shape, [1]).one(0))
    assert (copies.plan.steps, copies.plan.every, copies.plan.rate) == (10, 1, plan.rate / 3)
    assert [run.source for run in copies.runs] == [0, 1, 2]


def test_the_study_of_mixtures_keeps_seeds_apart_and_judging_text_from_rules(study, tmp_path, monkeypatch):
    torch = pytest.importorskip("torch")
    mixtures, models, training = study("mixtures"), study("mixture_models"), study("mixture_training")
    parts = {part: np.full(400, k, dtype=np.uint16) for k, part in enumerate(("train", "watched", "judged"))}
    plan = training.Plan(models.Shape(64, 1, 20, 16, torch.float32), steps=10, batch=2, every=10)
    groups = []

    class Recorded(mixtures.Trained):
        def __init__(self, *arguments, references=None, start=None, **options):
            super().__init__(*arguments, references=references, start=start, **options)
            self.references, self.begins = references, None if start is None else start.gains[0, :, 0, 0].tolist()
            groups.append(self)

    def train(several, name):
        for group in several:
            for k, run in enumerate(group.runs):
                # By its first gain one knows a model.
                group.ensemble.gains.data[0, k] = run.seed + {"proportional": 10, "tempered .7": 20}.get(run.method, 0)
                run.watched, run.judged = [np.array([1.0, 2.0, 3.0])], np.array([4.0, 5.0, 6.0])
                run.mixes = [np.ones(3)]
                lost = torch.tensor([[1.0 + run.seed], [2.0], [3.0]])
                run.rule.batch(lost, torch.arange(3), torch.zeros(3, 1))
                for step in (1, 2):
                    run.rule.round(lost.double().numpy()[:, 0], step)

    monkeypatch.setattr(mixtures, "Trained", Recorded)
    monkeypatch.setattr(mixtures, "train", train)
    results = mixtures.Results(tmp_path / "results.json", dict.fromkeys("abc", 400))
    made = mixtures.Study(dict.fromkeys("abc", parts), plan, [1, 2])
    assert [texts.windows.unique().tolist() for texts in made.texts] == [[0], [1], [2]]
    mixtures.proxies(made, "small", results)
    large = len(groups)
    mixtures.large(made, results)
    assert results.content["small"]["references"] == {"watched": [1.0, 2.0, 3.0], "judged": [4.0, 5.0, 6.0]}
    given = {}
    for k, group in enumerate(groups):
        for run in group.runs:
            given.setdefault((k >= large, run.method), {})[run.seed] = run.rule
        if group.references is not None:
            begun = group.references.gains[0, :, 0, 0].tolist()
            assert begun == [10 + run.seed for run in group.runs]
        # Copies for one source are of the model by tempered shares.
        assert group.begins is None or set(group.begins) == {21.0}
    assert sum(group.references is not None for group in groups) == 1
    for is_large in (False, True):
        for rule in given[is_large, "dynamic loading"].values():
            assert rule.references.tolist() == [1.0, 2.0, 3.0]
        for rule in given[is_large, "ours, 4 epochs"].values():
            assert rule.controller.references.tolist() == [1.0, 2.0, 3.0]
        for name, proxy in (("DoReMi", mixtures.PROXY), ("ours, 4 epochs, exported", "ours, 4 epochs")):
            mixes = [given[is_large, name][seed].shares for seed in (1, 2)]
            for seed, mix in zip((1, 2), mixes, strict=True):
                np.testing.assert_allclose(mix, given[False, proxy][seed].exported, err_msg=name)
            assert not np.allclose(*mixes)


def test_shares_come_near_the_best_mix_of_scaling_laws(study, capsys):
    pytest.importorskip("torch")
    cvxpy = pytest.importorskip("cvxpy")
    laws = study("mixture_laws")
    world = laws.World.drawn(laws.Setting(n_sources=4), np.random.default_rng(5))
    mix = cvxpy.Variable(4, nonneg=True)
    seen = 1e-3 + world.transfer @ mix
    # With an exponent that cones know exactly.
    simple = laws.World(world.tokens, world.floor, world.scale, np.full(4, 0.5), world.transfer)
    excess = world.floor + cvxpy.multiply(world.scale, cvxpy.power(seen, -0.5)) - simple.references
    problem = cvxpy.Problem(cvxpy.Minimize(cvxpy.max(excess)), [cvxpy.sum(mix) == 1])
    problem.solve(solver="CLARABEL")
    assert simple.best() == pytest.approx(problem.value, rel=1e-6)
    best, found = laws.study(laws.Setting(), laws.rules([]), range(4))
    assert all((pairs[:, 0] > 0.0).all() for pairs in found.values())
    above = {name: pairs[:, 0].mean() for name, pairs in found.items()}
    assert above["ours"] < 0.1 * best.mean()
    assert above["ours"] < 0.3 * min(above["dynamic loading"], above["proportional"], above["uniform"])
    assert laws.main(["--toy"]) == 0
    assert capsys.readouterr().out.count("| the model forgets |") == 3


def test_random_mixes_of_the_study_are_spread_evenly_over_their_set(study):
    pytest.importorskip("torch")
    tables = study("mixture_tables")
    tokens = np.array([5.0, 3.0, 2.0])
    ball = cpo.KLBall(tokens / 10, 0.3)
    near = tables.random_mixes(tokens, 0.3)
    assert all(ball.contains(mix) for mix in near)
    # As even as mixes drawn from all, of which those outside are dropped.
    every = np.random.default_rng(0).dirichlet(np.ones(3), 10_000)
    every = every[[ball.contains(mix) for mix in every]]
    for power in (1, 2):
        np.testing.assert_allclose((near**power).mean(0), (every**power).mean(0), rtol=0.06)
    judged = tables.measures(tokens, np.zeros(3))
    losses = np.array([1.0, 2.0, 3.0])
    assert judged["worst source"](losses) == 3.0
    assert judged["mean by tokens"](losses) == pytest.approx(1.7)
    assert judged["95% of mixes within .3 bits"](losses) < judged["worst mix within .3 bits"](losses) < 3.0


def test_a_head_is_timed_beside_its_peers(study, capsys):
    pytest.importorskip("torch")
    assert study("gpu_head").main(["--toy"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [re.split(r"  +", line.strip())[0] for line in lines[1:]] == [
        "head, all it does",
        "head, ridge given",
        "its certified fit",
        "scikit-learn, CPU",
        "SGD, 2 epochs",
    ]
    assert "certified True" in lines[2]


def test_the_cost_of_a_path_is_printed_for_each_model(study, capsys):
    module = study("confidence_path")
    module.main(1, [(300, 3, 3)])
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()[1:]] == list(module.MODELS)


@pytest.mark.parametrize("model", ["logistic", "quantile"])
def test_the_cost_of_contexts_is_printed_for_each_number_of_them(study, capsys, model):
    options = ["--model", model, "--rows", "600", "--features", "3", "--contexts", "3", "6", "--repeats", "1"]
    assert study("many_contexts").main(options) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in lines[2:-1]] == [["3", "200"], ["6", "100"]]


def test_a_fit_out_of_core_is_that_in_memory(study, capsys, monkeypatch):
    out_of_core = study("out_of_core")

    def here(*command):
        """Run the command in this process, whose memory is nobody's."""
        if "fit" in command:
            monkeypatch.setattr(sys, "argv", ["counterpoise", *command[command.index("fit") :], "--folds", "2"])
            with pytest.raises(SystemExit, match=r"^0$"):
                cli.main()
        return 2e9, 1.0

    monkeypatch.setattr(out_of_core, "measured", here)
    out_of_core.main(["--gigabytes", "0.00001", "--features", "3", "--files", "2", "--memory", "0.0001"])
    out = capsys.readouterr().out
    assert "416 rows of 3 features" in out
    assert "read in chunks" in out
    assert float(re.findall(r"coefficients differ by (\S+)", out)[0]) < 1e-10


def test_passes_on_a_cluster_are_counted_for_each_model(study, capsys, monkeypatch):
    cluster = study("cluster")

    @contextlib.contextmanager
    def threads(n, memory=0):
        options = {"n_workers": 1, "threads_per_worker": 1, "processes": False, "dashboard_address": None}
        with cluster.LocalCluster(**options) as made, cluster.Client(made) as client:
            yield client

    monkeypatch.setattr(cluster, "workers", threads)
    monkeypatch.setattr(cluster, "FEATURES", 3)
    monkeypatch.setattr(cluster, "CONTEXTS", 2)
    monkeypatch.setattr(cluster, "MODELS", dict(list(cluster.MODELS.items())[1:3]))
    cluster.main(["--only", "passes", "--scale", "0.002"])
    found = re.findall(r"(Robust\w+) +\d+ passes", capsys.readouterr().out)
    assert found == ["RobustLinearRegression", "RobustPoissonRegressor"]


def test_rows_are_drawn_as_described(study):
    rows = study("rows")
    X, y, contexts = rows.logistic_rows(500, 4, 7)
    assert X.shape == (500, 4)
    assert set(y) == {0, 1}
    assert set(contexts) == set(range(7))
    assert all(np.array_equal(a, b) for a, b in zip((X, y, contexts), rows.logistic_rows(500, 4, 7), strict=True))
    z, rng = np.full(20_000, 1.0), np.random.default_rng(0)
    means = {kind: rows.targets(kind, z, rng).mean() for kind in ("logistic", "poisson", "squared")}
    assert means == pytest.approx({"logistic": 1 / (1 + np.exp(-1)), "poisson": np.exp(0.5), "squared": 1.0}, abs=0.05)
