"""The study of published tables and problems, in small."""

import gzip
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def study(monkeypatch):
    """Import a module of the study by name."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return __import__


@pytest.fixture
def tables(tmp_path):
    """Write the four tables with a few made-up rows each; one of them compressed."""
    adult = "age, workclass, fnlwgt, education, education-num, marital-status, occupation, relationship, race, sex, "
    adult += "capital-gain, capital-loss, hours-per-week, native-country, classification\n"
    white = "39, Private, 1, Bachelors, 13, Single, Sales, Own-child, White, Male, 0, 0, 40, Peru, <=50K\n"
    black = "28, Private, 1, Bachelors, 13, Married, Sales, Wife, Black, Female, 0, 0, 40, Cuba, >50K\n"
    asian = "30, ?, 1, 11th, 7, Single, Sales, Husband, Asian-Pac-Islander, Male, 5, 0, 50, Peru, >50K.\n"
    (tmp_path / "adult.data").write_text(adult + white + black)
    (tmp_path / "adult.test").write_text(adult + asian)
    head = "id,sex,age,race,juv_fel_count,juv_misd_count,juv_other_count,priors_count,compas_screening_date,"
    head += "c_charge_degree,priors_count,two_year_recid\n"
    rows = "1,Male,30,Caucasian,0,1,0,2,2013-08-14,F,2,1\n2,Female,20,Hispanic,0,0,0,0,2014-01-02,M,0,0\n"
    with gzip.open(tmp_path / "compas.csv.gz", "wt") as file:
        file.write(head + rows)
    first = "A11 6 A34 A43 1169 A65 A75 4 A93 A101 4 A121 67 A143 A152 2 A173 1 A192 A201 1\n"
    second = "A12 48 A32 A43 5951 A61 A73 2 A92 A101 2 A121 22 A143 A152 1 A173 1 A191 A201 2\n"
    (tmp_path / "german.data").write_text("a head of other words\n" + first + second)
    names = "racepctblack,racePctWhite,racePctAsian,racePctHisp,medIncome,whitePerCap,blackPerCap,indianPerCap,"
    names += "AsianPerCap,OtherPerCap,HispPerCap,pctUrban,PolicCars,ViolentCrimesPerPop\n"
    (tmp_path / "communities.data").write_text(
        names
        + "8,?,?,Here,1,.1,.9,.1,.1,.2,0,0,0,0,0,0,1.0,?,.07\n"
        + "8,?,?,There,1,.1,.5,.1,.1,.6,0,0,0,0,0,0,0.5,.3,.08\n"
    )
    return tmp_path


@pytest.mark.parametrize(
    ("name", "groups", "y"),
    [
        ("adult", ["white, male", "non-white, female", "non-white, male"], [0, 1, 1]),
        ("compas", ["white, male", "non-white, female"], [1, 0]),
        ("german", ["older, male", "younger, female"], [1, 0]),
        ("communities", ["poorer, 85% white or more", "richer, less than 85% white"], [0, 1]),
    ],
)
def test_tables_are_read_with_their_groups_and_without_them_among_the_features(study, tables, name, groups, y):
    table = study("published_tables").TABLES[name](tables)
    assert table.groups.tolist() == groups
    assert table.y.tolist() == y
    assert table.X.shape == (len(y), len(table.features))
    assert np.isfinite(table.X).all()
    words = " ".join(table.features).lower()
    assert not any(word in words for word in ("race", "sex", "percap", "medincome", "personal", "policcars"))


def test_adult_may_have_six_groups(study, tables):
    table = study("published_tables").SIX_GROUPS(tables)
    assert table.groups.tolist() == ["white, male", "black, female", "other, male"]


def test_a_table_that_is_not_there_is_named(study, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"compas\.csv"):
        study("published_tables").compas(tmp_path)


def test_there_are_23_settings(study):
    families = study("published_cells").FAMILIES.values()
    assert sum(len(family.settings) + len(family.controls) for family in families) == 23


def test_a_split_gives_each_group_and_class_its_share(study):
    cells, table = study("published_cells"), study("published").toy_table(0)
    split = cells.split_of(table, 3, (0.6, 0.2))
    parts = (split.train, split.validation, split.test)
    assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(len(table.y)))
    for rows, share in zip(parts, (0.6, 0.2, 0.2), strict=True):
        for group in ("few", "many"):
            for value in (0, 1):
                stratum = (table.groups == group) & (table.y == value)
                assert abs(stratum[rows].sum() - share * stratum.sum()) <= 1.0
    assert not np.array_equal(split.test, cells.split_of(table, 4, (0.6, 0.2)).test)


def test_the_plain_learner_does_not_differ_from_itself(study):
    cells = study("published_cells")
    problem = cells.Problem(study("published").toy_table)
    units = [cells.judged(problem, "logistic", name, seed) for name in (cells.PLAIN, cells.OWN) for seed in (0, 1)]
    copies = [{**unit, "setting": "default"} for unit in units[:2]]
    (cell,) = cells.Study.of([*units, *copies]).cells()
    for one in (cell.excess, cell.worst_accuracy, cell.accuracy):
        assert (one.mean, one.t, one.significant) == (0.0, 0.0, False)
    (plain,) = cells.Study.of(units).plain()
    assert plain.excess >= 0.0


def test_wrapped_learners_are_judged_like_others(study):
    cells = study("published_cells")
    unit = cells.judged(cells.Problem(study("published").toy_table), "histogram boosting", "minimax regret", 0)
    assert len(unit["risks"]) == len(unit["accuracies"]) == 2
    assert unit["value"] in cells.FAMILIES["histogram boosting"].grid


@pytest.mark.parametrize("name", ["histogram boosting", "random forest"])
def test_a_wrapped_learner_that_is_kept_plain_is_the_plain_one(study, name):
    cells, table = study("published_cells"), study("published").toy_table(0)
    family = cells.FAMILIES[name]
    options = {"radius": 0.0, "max_iter": 1, "cv": 2}
    plain = cells.fitted(family, cells.PLAIN, family.grid[0], table.X, table.y, table.groups).model
    wrapped = cells.cpo.ContextRobust(family.plain(family.grid[0]), **options).fit(table.X, table.y, table.groups)
    assert np.array_equal(plain.predict_proba(table.X), wrapped.predict_proba(table.X))


def test_compare_may_choose_the_method(study, monkeypatch):
    cells = study("published_cells")
    monkeypatch.setitem(cells.FAMILIES, "logistic", replace(cells.FAMILIES["logistic"], grid=(1e-3,)))
    unit = cells.judged(cells.Problem(study("published").toy_table), "logistic", cells.COMPARE, 0)
    assert unit["chosen"] in ("robust", "erm", "inverse-frequency")


def test_differences_are_told_from_chance_by_their_splits(study):
    difference = study("published_cells").Difference.of
    assert difference(np.array([0.1, 0.11, 0.09, 0.1])).significant
    assert not difference(np.array([0.1, -0.11, 0.09, -0.1])).significant
    assert not difference(np.array([0.1])).significant


@pytest.mark.parametrize("excess", [False, True])
@pytest.mark.parametrize("squared", [False, True])
def test_nothing_is_below_the_proven_bound_and_our_answer_reaches_it(study, squared, excess):
    iterations = study("published_iterations")
    groups = iterations.Groups(iterations.preferences((150, 60, 40), 3, 0), squared=squared, alpha=1e-3)
    ours = iterations.solved(groups, excess=excess)
    value = (groups.risks(ours.theta) - ours.references).max()
    assert ours.lower <= value + 1e-12
    assert value == pytest.approx(ours.upper, rel=1e-6)
    assert ours.upper - ours.lower < 1e-4
    rng = np.random.default_rng(0)
    around = ours.theta + 0.3 * rng.standard_normal((200, 3))
    assert min((groups.risks(theta) - ours.references).max() for theta in around) >= ours.lower


def test_gradients_are_those_of_the_risks(study):
    iterations = study("published_iterations")
    theta, step = np.array([0.3, -0.2, 0.1]), 1e-6
    for squared in (False, True):
        groups = iterations.Groups(iterations.preferences((30, 20), 3, 0), squared=squared, alpha=0.1)
        slopes = [(groups.risks(theta + step * e) - groups.risks(theta - step * e)) / (2 * step) for e in np.eye(3)]
        np.testing.assert_allclose(groups.gradients(theta), np.transpose(slopes), rtol=1e-6, atol=1e-8)


def test_published_iterations_come_near_the_optimum(study):
    iterations = study("published_iterations")
    X = iterations.preferences((200, 100), 3, 1)
    problems = [
        (iterations.Groups(X), {"GR-DPO": iterations.GR_DPO}, False),
        (iterations.Groups(X, squared=True), {"GR-IPO": iterations.GR_IPO}, False),
        (iterations.Groups(X, alpha=1e-2), iterations.DESCENTS, True),
    ]
    for groups, methods, excess in problems:
        ours, *others = iterations.raced("small", groups, methods, excess=excess, n_rounds=600)
        for row in others:
            assert -1e-9 <= row["above"][-1] < 0.35 * (ours["start"] - ours["lower"])


def test_weights_of_sources_are_those_of_a_conic_solver(study):
    cvxpy = pytest.importorskip("cvxpy")
    sources = study("published_sources")
    rng = np.random.default_rng(0)
    for m in (2, 5, 10):
        root = rng.standard_normal((m, m + 2)) + 0.5
        gamma = root @ root.T
        q = cvxpy.Variable(m, nonneg=True)
        least = cvxpy.Problem(cvxpy.Minimize(cvxpy.quad_form(q, cvxpy.psd_wrap(gamma))), [cvxpy.sum(q) == 1]).solve()
        found = sources.simplex_minimum(gamma)
        assert found @ gamma @ found == pytest.approx(least, rel=1e-5, abs=1e-7)
        assert found.min() >= 0.0


def test_the_true_mean_earns_the_variance_it_explains(study):
    sources = study("published_sources")
    made = sources.Sources.drawn(1, 0)
    reward = made.worst_reward(lambda X: made.means(X, 0), 0)
    assert reward == pytest.approx(np.sum((made.common + made.own[0]) ** 2), rel=0.05)
    assert made.worst_reward(lambda X: np.zeros(len(X)), 0) == 0.0


def test_a_toy_run_writes_every_section_and_is_not_repeated(study, capsys, tmp_path):
    published = study("published")
    page = tmp_path / "page.md"
    names = ["versions", "tables-counts", "tables-chosen", "preferences", "excess", "sources", "planted"]
    page.write_text("".join(f"Words.\n<!-- published: {name} -->\nold\n<!-- end -->\n" for name in [*names, "other"]))
    options = ["--toy", "--out", str(tmp_path / "kept"), "--page", str(page)]
    assert published.main(options) == 0
    text = page.read_text()
    assert text.count("old\n") == 1
    assert text.count("Words.\n") == len(names) + 1
    assert "| toy | XGBoost |" in capsys.readouterr().out
    assert published.main(options) == 0
    assert "part a: 0 of 0 computed" in capsys.readouterr().err
    assert published.main([*options, "--render"]) == 0
    assert page.read_text() == text


def test_a_run_may_stop_early(study, capsys, tmp_path):
    assert study("published").main(["--toy", "--parts", "d", "--out", str(tmp_path), "--seconds", "-1"]) == 0
    assert "0 of 2 computed" in capsys.readouterr().err


@pytest.mark.parametrize("options", [["--parts", "z"], ["--parts", "a"], ["--toy", "--tables", "z"]])
def test_what_cannot_be_run_is_refused(study, capsys, options):
    with pytest.raises(SystemExit, match="2"):
        study("published").main(options)
    assert "--" in capsys.readouterr().err.splitlines()[-1]


def test_the_page_has_a_place_for_every_section(study):
    page = (BENCHMARKS.parent / "docs" / "published.md").read_text()
    marked = {found["name"] for found in study("published_page").MARKER.finditer(page)}
    sections = {"versions", "preferences", "excess", "sources", "planted"}
    sections |= {f"tables-{name}" for name in ("plain", "counts", "excess", "accuracy", "chosen")}
    assert marked == sections
