"""``--share``, ``--mix-from`` and ``--set`` in every command that has a set of mixes."""

import json

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from counterpoise import Mix
from counterpoise.cli import app
from counterpoise.exceptions import InvalidInputError
from counterpoise.judging import comparison
from counterpoise.stock import planning
from counterpoise.tables.tabular import model_folder
from tests.reports.explorer.examples import data_in

pytestmark = pytest.mark.usefixtures("few_draws")

MODEL = ("--target", "units", "--only", "warm")
STOCK = ("--demand", "units", "--cost", "4", "--price", "10")
SEASONS = {"winter": 60, "spring": 90, "summer": 50, "a=b c": 40}


def called(*arguments):
    result = CliRunner().invoke(app, [str(one) for one in arguments], catch_exceptions=False)
    return result.exit_code, result.stdout, result.stderr


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    rng = np.random.default_rng(0)
    season = np.repeat(list(SEASONS), list(SEASONS.values()))
    n = len(season)
    warm = rng.normal(size=n)
    frame = pd.DataFrame({"season": season, "zone": rng.choice([1, 2], n), "warm": warm.round(3)})
    tilt = frame["season"].map({"winter": -2.0, "spring": 1.0, "summer": 2.0, "a=b c": 0.0})
    frame["units"] = (20.0 + tilt * (1.0 + warm) + rng.normal(size=n)).round(3)
    path = tmp_path_factory.mktemp("sales") / "sales.csv"
    frame.sample(frac=1.0, random_state=0).to_csv(path, index=False)
    return path


@pytest.fixture(scope="module")
def census(tmp_path_factory):
    path = tmp_path_factory.mktemp("census") / "census.csv"
    path.write_text("season,count\nwinter,300\nspring,300\nsummer,300\na=b c,100\n")
    return path


def stopped(monkeypatch, command):
    """Let a command stop where its model is ready, and return what it was ready with."""
    seen = {}

    def compare(*data, estimator, **options):
        seen.update(estimator[-1].get_params())
        raise InvalidInputError("seen enough")

    def report(model, *data, **options):
        seen.update(model[-1].get_params())
        raise InvalidInputError("seen enough")

    def plan(*data, **options):
        seen.update(options)
        raise InvalidInputError("seen enough")

    place = {"compare": (comparison, "compare", compare), "fit": (model_folder, "Report", report)}
    monkeypatch.setattr(*place.get(command, (planning, "plan_stock", plan)))
    return seen


def arguments(command, file, tmp_path):
    about = STOCK if command == "stock" else MODEL
    out = () if command == "compare" else ("-o", tmp_path / ("model" if command == "fit" else "page.html"))
    return (command, file, *about, *out)


COMMANDS = ["fit", "compare", "stock"]


@pytest.mark.parametrize("command", COMMANDS)
def test_all_options_make_one_mix(command, file, census, tmp_path, monkeypatch):
    seen = stopped(monkeypatch, command)
    more = ("--share", "winter=0.2..0.4", "--share", "a=b c=..0.2", "--mix-from", census, "--set", "tv")
    called(*arguments(command, file, tmp_path), "--context", "season", *more)
    counts = {"winter": 300.0, "spring": 300.0, "summer": 300.0, "a=b c": 100.0}
    bounds = {"winter": (0.2, 0.4), "a=b c": (0.0, 0.2)}
    assert seen["mix"] == Mix(bounds=bounds, counts=counts, ball="tv", source="census.csv")


@pytest.mark.parametrize("command", COMMANDS)
def test_nothing_said_is_no_mix(command, file, tmp_path, monkeypatch):
    seen = stopped(monkeypatch, command)
    called(*arguments(command, file, tmp_path), "--context", "season", "--set", "kl")
    assert seen["mix"] is None


@pytest.mark.parametrize(
    ("given", "bounds"),
    [
        ("winter=0.2", (0.2, 0.2)),
        ("winter=..0.3", (0.0, 0.3)),
        ("winter=0.2..", (0.2, 1.0)),
        ("winter=20%..30%", (0.2, 0.3)),
        (" Winter = 0.2 .. 0.3 ", (0.2, 0.3)),
    ],
)
def test_bounds_as_people_write_them(given, bounds, file, tmp_path, monkeypatch):
    seen = stopped(monkeypatch, "compare")
    called(*arguments("compare", file, tmp_path), "--context", "season", "--share", given)
    assert seen["mix"].bounds == {"winter": pytest.approx(bounds)}


@pytest.mark.parametrize("name", ["zone 1", "1", "1.0", "Zone 1"])
def test_numbers_are_named_with_and_without_their_column(name, file, tmp_path, monkeypatch):
    seen = stopped(monkeypatch, "compare")
    called(*arguments("compare", file, tmp_path), "--context", "zone", "--share", f"{name}=0.4..0.6")
    assert list(seen["mix"].bounds) == ["zone 1"]


@pytest.mark.parametrize("name", ["winter x zone 2", "winter x 2", "Winter x 2.0"])
def test_crossed_contexts_are_named_as_the_report_does(name, file, tmp_path, monkeypatch):
    seen = stopped(monkeypatch, "compare")
    both = ("--context", "season", "--context", "zone")
    called(*arguments("compare", file, tmp_path), *both, "--share", f"{name}=0.05..0.2")
    assert list(seen["mix"].bounds) == [("winter", "zone 2")]


def test_rows_of_a_census_are_counted_whatever_its_format(file, tmp_path, monkeypatch):
    seen = stopped(monkeypatch, "compare")
    frame = pd.DataFrame({"zone": [1, 2, 2, 2], "population": [9, 9, 9, 9]})
    for name, write in (("units.csv", frame.to_csv), ("units.parquet", frame.to_parquet)):
        write(tmp_path / name, index=False)
        _, _, said = called(*arguments("compare", file, tmp_path), "--context", "zone", "--mix-from", tmp_path / name)
        assert seen["mix"].counts == {"zone 1": 1.0, "zone 2": 3.0}
        assert "4 rows, each counted as a draw" in said


def test_the_set_is_said_in_one_sentence(file, census, tmp_path, monkeypatch):
    stopped(monkeypatch, "compare")

    def said(*more):
        return called(*arguments("compare", file, tmp_path), "--context", "season", *more)[2]

    assert "of the shares in the data and with a share of 'winter' from 0.2 to 0.4\n" in said(
        "--share", "winter=0.2..0.4"
    )
    alone = said("--share", "winter=0.2..0.4", "--confidence", "1")
    assert "note: the set of mixes holds every mix with a share of 'winter' from 0.2 to 0.4\n" in alone
    assert "shares in census.csv; census.csv is worth 1,000 draws by its column count\n" in said("--mix-from", census)
    assert "(total variation) of the shares in the data\n" in said("--set", "tv")
    assert "within 0.1 bits" in said("--share", "winter=0.2..0.4", "--radius", "0.1")


WRONG = {
    "a share without a sign": (("--share", "winter 0.1"), "write a context and its share, such as winter=0.1..0.3"),
    "a share that is no number": (("--share", "winter=cold"), "'cold' is no number"),
    "a share below zero": (("--share", "winter=-0.1..0.2"), "a share lies between 0 and 1, and '-0.1' does not"),
    "a share that is not a number": (("--share", "winter=nan..0.2"), "a share lies between 0 and 1, and 'nan' does"),
    "a share past one": (("--share", "winter=30"), "Write 30% as 0.3."),
    "ends that are swapped": (("--share", "winter=0.3..0.2"), "the low end is above the high end"),
    "a context twice": (("--share", "winter=0.3", "--share", "winter=..0.4"), "names 'winter' twice"),
    "no such context": (
        ("--share", "wintr=0.2"),
        "there is no context 'wintr' (there are a=b c, spring, summer, winter)",
    ),
    "its nearest name": (("--share", "wintr=0.2"), "Did you mean 'winter'?"),
    "bounds past one": (("--share", "winter=0.6..", "--share", "spring=0.5.."), "the lowest shares sum to 1.1, past 1"),
    "bounds below one": (
        ("--share", "winter=..0.1", "--share", "spring=..0.1", "--share", "summer=..0.1", "--share", "a=b c=..0.1"),
        "the highest shares sum to 0.4, below 1",
    ),
    "bounds outside the set": (("--share", "winter=0.9.."), "but the set that follows from the data allows 0."),
    "bounds outside the set together": (
        ("--radius", "0.02", "--share", "winter=..0.2", "--share", "spring=..0.31", "--share", "summer=..0.17"),
        "--confidence 1 goes by the bounds alone",
    ),
    "another set": (("--set", "ball"), "choose kl, chi2 or tv"),
    "draws of another table": (("--draws", "20", "--mix-from", "CENSUS"), "the other table sizes the set"),
    "no census": (("--mix-from", "nowhere.csv"), "there is no file nowhere.csv"),
}


@pytest.mark.parametrize("mistake", WRONG)
@pytest.mark.parametrize("command", ["fit", "compare", "stock", "explore"])
def test_a_mistake_is_one_line_and_nothing_is_written(mistake, command, file, census, tmp_path):
    given, expected = WRONG[mistake]
    given = [census if one == "CENSUS" else one for one in given]
    code, printed, said = called(*arguments(command, file, tmp_path), "--context", "season", *given)
    errors = [line for line in said.splitlines() if not line.startswith("note: ")]
    assert (code, printed, len(errors)) == (2, "", 1), said
    assert errors[0].startswith("Error: ")
    assert expected in errors[0]
    assert not list(tmp_path.iterdir())


CENSUSES = {
    "empty": ("", "is empty"),
    "without rows": ("season,count\n", "no rows"),
    "without the column": ("seasons,count\nwinter,3\n", "no column 'season'"),
    "with two columns of counts": ("season,count,n\nwinter,3,4\n", "either may hold the counts"),
    "with a negative count": ("season,count\nwinter,-3\n", "-3"),
    "with shares": ("season,count\nwinter,0.5\nspring,0.5\n", "shares belong into --share"),
    "with strange contexts": (
        "season,n\nwinter,3\nspring,4\nsummer,5\na=b c,2\nwintr,9\n",
        "counts wintr, of which the data have no rows, so nothing can be learnt about it. Did you mean 'winter'?",
    ),
    "without some contexts": (
        "season,n\nwinter,30\nspring,40\n",
        "does not count a=b c (40 rows in the data), summer (50 rows in the data)",
    ),
}


@pytest.mark.parametrize("kind", CENSUSES)
def test_a_census_that_says_too_little_is_refused(kind, file, tmp_path):
    text, expected = CENSUSES[kind]
    (tmp_path / "census.csv").write_text(text)
    code, _, said = called(
        *arguments("compare", file, tmp_path), "--context", "season", "--mix-from", tmp_path / "census.csv"
    )
    assert code == 2
    assert expected in said
    assert len([line for line in said.splitlines() if not line.startswith("note: ")]) == 1


@pytest.mark.filterwarnings("ignore:a chi-square ball under-covers")
@pytest.mark.parametrize(("ball", "most"), [("kl", "the set allows it up to"), ("chi2", "it is 0 in every mix")])
def test_a_context_that_a_census_lacks_can_be_stated(ball, most, file, tmp_path, monkeypatch):
    stopped(monkeypatch, "compare")
    (tmp_path / "census.csv").write_text("season,n\nwinter,300\nspring,400\nsummer,200\n")
    told = ("--mix-from", tmp_path / "census.csv", "--share", "a=b c=..0.05", "--set", ball)
    _, _, said = called(*arguments("compare", file, tmp_path), "--context", "season", *told)
    assert f"a=b c is not counted in census.csv; {most}" in said


def test_pooled_contexts_are_counted_together_and_not_bounded_alone(file, census, tmp_path, monkeypatch):
    seen = stopped(monkeypatch, "compare")
    pooled = (*arguments("compare", file, tmp_path), "--context", "season", "--pool-below", "55")
    called(*pooled, "--mix-from", census)
    assert seen["mix"].counts == {"winter": 300.0, "spring": 300.0, "summer + a=b c": 400.0}
    code, _, said = called(*pooled, "--share", "summer=0.2")
    assert code == 2
    assert "'summer' was pooled into 'summer + a=b c'" in said


def test_reports_and_json_show_every_share(file, census, tmp_path):
    out = tmp_path / "model"
    told = ("--context", "season", "--share", "winter=0.2..0.3", "--mix-from", census, "--set", "tv", "--folds", "2")
    code, printed, said = called("fit", file, *MODEL, *told, "--json", "-o", out)
    assert code == 0, said
    metrics = json.loads(printed)
    assert {key: metrics[key] for key in metrics if key != "folder"} == json.loads((out / "metrics.json").read_text())
    mixes = metrics["mixes"]
    assert (mixes["kind"], mixes["unit"]) == ("tv", "total variation")
    assert "taken on the user's word" in mixes["rests_on"]
    assert "census.csv (4 rows, 1,000 counted in column count" in metrics["settings"]["mix from"]
    by_context = {row["context"]: row for row in mixes["shares"]}
    assert by_context["winter"]["share"] == 0.25
    assert by_context["winter"]["centre"] == pytest.approx(0.3)
    assert 0.2 <= by_context["winter"]["low"] <= by_context["winter"]["worst"] <= by_context["winter"]["high"] <= 0.3
    page = (out / "report.html").read_text(encoding="utf-8")
    for words in (
        "The mix of contexts",
        "in census.csv",
        "in the worst mix",
        "coverage is claimed only for what follows",
    ):
        assert words in page


def test_compare_prints_the_shares_as_json(file):
    told = ("--context", "season", "--share", "winter=..0.2", "--set", "tv", "--folds", "2", "--confidence", "0.9")
    code, printed, said = called("compare", file, *MODEL, *told, "--json")
    assert code == 0, said
    result = json.loads(printed)
    assert result["radius_bits"] is None
    assert result["mixes"]["radius"] > 0.0
    winter = next(row for row in result["mixes"]["shares"] if row["context"] == "winter")
    assert winter["high"] == pytest.approx(0.2)
    assert winter["worst"] <= 0.2 + 1e-9


def test_stock_shows_what_is_allowed(file, tmp_path):
    out = tmp_path / "page.html"
    told = ("--context", "season", "--share", "winter=0.2..0.3")
    code, printed, said = called("stock", file, *STOCK, *told, "-o", out)
    assert code == 0, said
    assert "allowed" in printed
    assert "taken on the user" in out.read_text(encoding="utf-8")
    plan = json.loads(called("stock", file, *STOCK, *told, "-o", out, "--force", "--json")[1])
    winter = next(row for row in plan["reasons"] if row["context"] == "winter")
    assert 0.2 <= winter["share_low"] <= winter["weight"] + 1e-9
    assert winter["share_high"] == pytest.approx(0.3)
    assert "with a share of 'winter'" in plan["certificates"][0]["mixes"]["holds"]


def test_stock_of_several_products_bounds_each(file, tmp_path):
    told = ("--context", "season", "--share", "winter=0.2..0.3", "--product", "zone", "--json")
    code, printed, said = called("stock", file, *STOCK, *told, "-o", tmp_path / "page.html")
    assert code == 0, said
    plan = json.loads(printed)
    assert [row["share_high"] for row in plan["reasons"] if row["context"] == "winter"] == pytest.approx([0.3, 0.3])
    assert any("every product has a set of mixes of its own" in note for note in plan["notes"])


@pytest.mark.parametrize("about", [MODEL, STOCK])
def test_explore_writes_a_page_with_bounds(about, file, census, tmp_path, few_levels):
    out = tmp_path / "page.html"
    told = ("--context", "season", "--share", "winter=0.2..0.35", "--mix-from", census)
    code, _, said = called("explore", file, *about, *told, "-o", out)
    assert code == 0, said
    data = data_in(out.read_text(encoding="utf-8"))
    winter = data["names"].index("winter")
    assert data["source"] == "census.csv"
    assert all(row[winter] >= 0.2 - 1e-9 for row in data["low"][1:])
    assert len(data["bounds"]) == 4
