import base64
import hashlib
import re

import numpy as np
import pytest

from counterpoise import RobustLinearRegression
from counterpoise.exceptions import InvalidInputError
from counterpoise.reports.explorer import Explorer, sweep
from counterpoise.reports.explorer.data import MOST_DRAWN, MOST_EMBEDDED, as_script
from counterpoise.reports.pages.words import clean
from tests.reports.explorer.examples import LABELS, boundary, data_in, hostile, noisy_lines, stock
from tests.reports.pages.hostile import NAMES
from tests.reports.pages.test_document import Read


@pytest.mark.parametrize("example", [boundary, stock, hostile])
def test_numbers_in_the_page_are_the_librarys(example):
    found = example()
    data = data_in(Explorer(found).html)
    assert data["radii"] == [*found.levels.radii[:-1].tolist(), None]
    assert data["shares"] == found.shares.tolist()
    assert data["low"] == found.intervals[:, :, 0].tolist()
    assert data["high"] == found.intervals[:, :, 1].tolist()
    for criterion, own in found.by_criterion.items():
        read = data["criteria"][criterion]
        assert read["weights"] == own.weights.tolist()
        assert read["values"] == own.values.tolist()
        for name in ("nominal", "prices", "worst", "objective", "gaps"):
            assert read[name] == getattr(own, name).tolist()
        assert read["worst_in"] == own.worst_contexts.tolist()


def test_the_same_sweep_makes_the_same_page():
    assert Explorer(boundary(), "a").html == Explorer(boundary(), "a").html


@pytest.mark.parametrize("example", [boundary, stock, hostile])
def test_the_page_is_one_well_formed_file_that_asks_for_nothing(example):
    page = Explorer(example(), "title", {"file": "sales.csv"}).html
    read = Read(page)
    assert len(read.named("script")) == 1
    for _, attributes in read.tags:
        assert not {"src", "action", "srcset"} & set(attributes)
        assert not [name for name in attributes if name.startswith("on")]
        assert (attributes.get("href") or "#content") == "#content"
    assert "sales.csv" in read.words["td"]
    policy = next(tag["content"] for tag in read.named("meta") if "http-equiv" in tag)
    program = re.search(r"<script>(.*)</script>", page, re.DOTALL)[1]
    digest = base64.b64encode(hashlib.sha256(program.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in policy


def test_hostile_names_stay_data():
    page = Explorer(hostile(), LABELS[0], {LABELS[1]: LABELS[2]}).html
    data = data_in(page)
    assert sorted(data["names"]) == sorted(clean(label, 80) or "(no name)" for label in LABELS)
    literal = page[page.index("const DATA") :].split("\n", 1)[0]
    assert literal.isascii()
    assert not set("<>&") & set(literal)
    assert page.count("<script") == 1


def test_any_value_survives_the_way_into_the_script():
    names = [str(name) for name in NAMES]
    assert data_in(as_script({"names": names}))["names"] == names


def test_every_level_is_in_the_tables():
    found = stock()
    read = Read(Explorer(found).html)
    rows = sum(tag == "tr" for tag, _ in read.tags)
    assert rows >= 2 * len(found.levels.radii)
    assert "needs JavaScript" in read.words["p"]
    assert "fair" in read.words["td"]
    assert "<" not in read.words["td"]
    details = next(tag for name, tag in read.tags if name == "details")
    assert "open" in details
    assert "hidden" in next(tag for name, tag in read.tags if tag.get("id") == "explorer")


def test_many_contexts_are_cut_and_the_page_stays_small():
    X, y, c = noisy_lines(100, rows=60, n_features=4)
    page = Explorer(sweep(RobustLinearRegression(), X, y, [f"a rather long name {k}" for k in c], cv=None)).html
    data = data_in(page)
    assert len(page.encode()) < 2_000_000
    assert len(data["names"]) == 100
    assert len(data["drawn"]) == MOST_DRAWN
    assert data["others"] == 100 - MOST_DRAWN
    assert f"The {MOST_DRAWN} contexts" in page
    weights = np.max(
        [np.max(data["criteria"][criterion]["weights"], axis=0) for criterion in ("excess", "risk")], axis=0
    )
    worst = {c for criterion in ("excess", "risk") for c in data["criteria"][criterion]["worst_in"]}
    assert worst <= set(data["drawn"])
    assert min(weights[k] for k in set(data["drawn"]) - worst) >= max(
        weights[k] for k in range(100) if k not in data["drawn"]
    )


def test_very_many_contexts_keep_the_page_small():
    X, y, c = noisy_lines(300, rows=20)
    found = sweep(RobustLinearRegression(), X, y, c, levels=5, cv=None)
    page = Explorer(found).html
    data = data_in(page)
    assert len(page.encode()) < 2_000_000
    assert len(data["names"]) == MOST_EMBEDDED
    for criterion, own in found.by_criterion.items():
        worst = [data["names"][k] for k in data["criteria"][criterion]["worst_in"]]
        assert worst == [str(found.contexts[k]) for k in own.worst_contexts]


def test_saving_never_replaces_without_being_told(tmp_path):
    explorer = Explorer(boundary())
    path = explorer.save(tmp_path / "page.html")
    assert path.read_text(encoding="utf-8") == explorer.html
    with pytest.raises(InvalidInputError, match="exists already"):
        explorer.save(path)
    assert explorer.save(path, force=True) == path
    assert [one.name for one in tmp_path.iterdir()] == ["page.html"]
