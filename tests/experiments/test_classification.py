"""Classification: exact errors against simulation, least errors, and who is ahead."""

from typing import ClassVar

import numpy as np
import pytest

from counterpoise.experiments._base import generator
from counterpoise.experiments.classification import Classification, Population

RULES = {
    "steep": np.array([1.0, -0.3, 0.2]),
    "misled": np.array([0.2, 1.0, 1.0]),
    "flat": np.array([0.7, -0.9, -3.0]),
    "one feature": np.array([1.0, 0.0, -0.4]),
}


class Exact(Classification):
    """Without the steps of online group DRO."""

    methods: ClassVar[tuple[str, ...]] = ("robust", "erm", "minimax-risk")


@pytest.fixture(scope="module")
def population():
    return Population()


@pytest.fixture(scope="module")
def table():
    study = Exact()
    rows = [row for k in range(15) for row in study.run(k, seed=0)]
    return {
        (method, metric): np.array([row.value for row in rows if (row.method, row.metric) == (method, metric)])
        for method in study.methods
        for metric in ("worst", "nominal")
    }


def simulated(context, n, rng):
    """Draw from the paper's description, apart from the code under test."""
    x1 = rng.uniform(-5.0, 5.0, n) + (context - 1.0)
    y = rng.random(n) < 1.0 / (1.0 + np.exp(-x1))
    x2 = rng.normal(x1 + 8.0 * (context - 1.0) + np.where(y, -2.0, 2.0), 2.0)
    return x1, x2, y


@pytest.mark.parametrize("context", range(3))
def test_errors_are_the_frequencies_of_a_million_draws(population, context):
    x1, x2, y = simulated(context, 1_000_000, np.random.default_rng(10 + context))
    for name, rule in RULES.items():
        wrong = ((rule[0] * x1 + rule[1] * x2 + rule[2] > 0) != y).mean()
        error = np.sqrt(wrong * (1.0 - wrong) / 1_000_000)
        # The step of a rule that ignores x2 falls between two nodes of the quadrature.
        room = 1e-3 if rule[1] == 0 else 1e-6
        assert abs(population.error(rule, context) - wrong) < 3.0 * error + room, name


def test_least_errors_are_those_of_the_text(population):
    assert 100.0 * population.least_errors == pytest.approx([6.93, 6.99, 6.93], abs=0.005)


def test_no_rule_beats_the_least_error(population):
    rng = np.random.default_rng(0)
    for c in range(3):
        found = [population.error(rule, c) for rule in rng.normal(size=(300, 3)) * [1.0, 1.0, 5.0]]
        assert min(found) >= population.least_errors[c] - 1e-9


def test_the_second_feature_halves_the_least_error(population):
    # The paper says that it gives no information; alone, the first one leaves 13.7%.
    alone = min(population.error(np.array([1.0, 0.0, shift]), 1) for shift in np.linspace(-0.5, 0.5, 21))
    assert 100.0 * alone == pytest.approx(13.7, abs=0.1)
    assert population.least_errors[1] < 0.52 * alone


def test_the_opposite_rule_is_wrong_where_the_rule_is_right(population):
    for rule in (RULES["steep"], RULES["misled"]):
        assert population.error(rule, 0) + population.error(-rule, 0) == pytest.approx(1.0, abs=1e-12)
        assert population.error(7.0 * rule, 0) == pytest.approx(population.error(rule, 0), abs=1e-12)


def test_the_outer_contexts_mirror_each_other(population):
    rule = np.array([0.9, -0.5, 1.3])
    mirrored = rule * [1.0, 1.0, -1.0]
    assert population.error(rule, 0) == pytest.approx(population.error(mirrored, 2), abs=1e-12)
    assert population.least_errors[0] == pytest.approx(population.least_errors[2], abs=1e-7)


@pytest.mark.parametrize("context", range(3))
def test_draws_follow_the_description(population, context):
    n = 200_000
    drawn = population.draw(np.full(n, context), np.random.default_rng(context))
    x1, x2, y = simulated(context, n, np.random.default_rng(20 + context))
    for ours, own in ((drawn.X[:, 0], x1), (drawn.X[:, 1], x2), (drawn.y, y)):
        assert abs(ours.mean() - own.mean()) < 5.0 * own.std() * np.sqrt(2.0 / n)
        assert ours.std() == pytest.approx(own.std(), rel=0.02)
    left = drawn.X[:, 1] - drawn.X[:, 0] - 8.0 * (context - 1.0)
    assert left[drawn.y == 0].mean() == pytest.approx(2.0, abs=0.05)
    assert left[drawn.y == 1].var() == pytest.approx(4.0, rel=0.02)


def test_robust_is_ahead_of_erm_in_the_worst_case_at_hardly_any_cost(table):
    assert np.all(table["robust", "worst"] < table["erm", "worst"])
    assert np.median(table["erm", "worst"]) > 1.15 * np.median(table["robust", "worst"])
    assert np.median(table["robust", "nominal"]) - np.median(table["erm", "nominal"]) < 0.5


@pytest.mark.parametrize(
    ("method", "worst", "nominal"), [("robust", 8.5, 5.6), ("erm", 11.4, 5.5), ("minimax-risk", 8.0, 6.5)]
)
def test_medians_are_near_those_of_fifty_runs(table, method, worst, nominal):
    for metric, expected in (("worst", worst), ("nominal", nominal)):
        values = table[method, metric]
        error = np.median(np.random.default_rng(0).choice(values, (2000, 15)), axis=1).std()
        assert abs(np.median(values) - expected) < 3.0 * error + 0.05


def test_exact_minimax_risk_costs_more_on_average_than_the_robust_method(table):
    assert np.median(table["minimax-risk", "nominal"]) > np.median(table["robust", "nominal"]) + 0.5


def test_judging_takes_the_worst_context_and_the_true_mix(population):
    rule = RULES["steep"]
    excess = 100.0 * (np.array([population.error(rule, c) for c in range(3)]) - population.least_errors)
    judged = Classification().evaluate(rule)
    assert judged["worst"] == pytest.approx(excess.max())
    assert judged["nominal"] == pytest.approx(0.8 * excess[0] + 0.1 * excess[1] + 0.1 * excess[2])


def test_group_dro_is_seeded_by_run_and_name_and_noisier_than_the_exact_answer():
    study = Classification(group_dro_steps=1500)
    data = study.sample(generator(0, study.name, 2))
    lines = [study.fit("group-dro", data, generator(0, study.name, 2, "group-dro")) for _ in range(2)]
    assert np.array_equal(*lines)
    other = study.fit("group-dro", data, generator(0, study.name, 3, "group-dro"))
    assert not np.allclose(lines[0], other, atol=1e-3)
    exact = study.fit("minimax-risk", data, generator(0, "unused"))

    def largest_risk(line):
        margin = (data.X @ line[:2] + line[2]) * (2 * data.y - 1)
        return max(np.logaddexp(0.0, -margin[data.contexts == c]).mean() for c in range(3))

    assert largest_risk(exact) < largest_risk(lines[0])
    assert largest_risk(exact) < largest_risk(other)


def test_more_steps_of_group_dro_come_nearer_the_minimax_risk():
    def distance(steps):
        study = Classification(group_dro_steps=steps)
        data = study.sample(generator(0, study.name, 4))
        exact = study.fit("minimax-risk", data, generator(0, "unused"))
        line = study.fit("group-dro", data, generator(0, study.name, 4, "group-dro"))
        return np.abs(line / np.linalg.norm(line) - exact / np.linalg.norm(exact)).max()

    assert distance(3000) < distance(20)


def test_the_picture_holds_the_first_run_and_the_line_of_every_method():
    study = Exact()
    data = study.sample(generator(3, study.name, 0))
    rows = study.picture(3)
    first = [row.value for row in rows if (row.method, row.metric) == ("context-1", "x2")]
    assert first == data.X[data.contexts == 0, 1].tolist()
    for method in study.methods:
        line = [row.value for row in rows if (row.method, row.metric) == (method, "line")]
        assert line == pytest.approx(study.fit(method, data, generator(0, "unused")))


def test_contexts_come_in_the_stated_mix():
    contexts = Classification(n_samples=100_000).sample(np.random.default_rng(0)).contexts
    assert np.bincount(contexts) / 100_000 == pytest.approx([0.8, 0.1, 0.1], abs=0.005)
