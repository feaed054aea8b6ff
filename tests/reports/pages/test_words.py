import pytest
from hypothesis import given
from hypothesis import strategies as st

from counterpoise.reports.pages.words import (
    ELLIPSIS,
    clean,
    escaped,
    fitted,
    fitted_apart,
    isolated,
    width_of,
    wrapped,
)
from tests.reports.pages.hostile import NAMES


@given(st.text(st.characters(), max_size=80), st.integers(1, 50))
def test_clean_words_are_one_short_line_that_can_be_written(words, most):
    cleaned = clean(words, most)
    cleaned.encode("utf-8")
    assert len(cleaned) <= most
    assert len(cleaned.splitlines()) <= 1
    assert not any(ord(character) < 32 for character in cleaned)


def test_clean_keeps_what_is_fine():
    assert clean("Škofja Loka 3 × 4 👩‍👩‍👧 שלום") == "Škofja Loka 3 × 4 👩‍👩‍👧 שלום"
    assert clean(("north", 3)) == "north x 3"


def test_clean_drops_what_reorders_and_replaces_halves():
    assert clean("a\u202eb\u2069c") == "abc"
    assert clean("a\ud800b") == "a\ufffdb"


def test_an_ellipsis_is_not_joined_to_what_was_cut():
    assert clean("ab\u200dcdef", 4) == f"ab{ELLIPSIS}"
    assert clean("ab cdef", 4) == f"ab{ELLIPSIS}"


@pytest.mark.parametrize("name", NAMES, ids=range(len(NAMES)))
@pytest.mark.parametrize("width", [5.0, 40.0, 200.0])
def test_fitted_words_fit(name, width):
    short = fitted(clean(name), width, 14)
    assert width_of(short, 14) <= max(width, width_of(ELLIPSIS, 14))


@given(st.text(max_size=200))
def test_wrapped_lines_fit_and_keep_the_words(words):
    cleaned = clean(words)
    lines = wrapped(cleaned, 150, 14, most=3)
    assert len(lines) <= 3
    assert all(width_of(line, 14) <= 150 for line in lines)
    if not any(line.endswith(ELLIPSIS) for line in lines):
        assert " ".join(lines) == cleaned


def test_names_that_begin_alike_are_told_apart():
    names = [
        "bigcode/the-stack-dedup/python",
        "bigcode/the-stack-dedup/go",
        "web",
        "a name as long as this, and longer",
    ]
    found = fitted_apart(names, 150, 15)
    assert found[:3] == ["…python", "…go", "web"]
    assert found[3] == fitted(names[3], 150, 15)
    # Nothing tells these apart, and one that fits stays as it is.
    assert fitted_apart(["x" * 90, "x" * 90, "y"], 100, 15) == [fitted("x" * 90, 100, 15)] * 2 + ["y"]
    many = fitted_apart([f"{'part/' * 20}{k} {'z' * k}" for k in range(90)], 150, 15)
    assert max(width_of(one, 15) for one in many) <= 150
    assert len(set(many)) == 90


def test_only_text_from_right_to_left_is_isolated():
    assert isolated("north") == "north"
    assert isolated("שלום (1)") == "\u2068שלום (1)\u2069"


def test_escaped_is_fit_for_attributes():
    assert escaped("<a href=\"x\" title='y'>&") == "&lt;a href=&quot;x&quot; title=&#x27;y&#x27;&gt;&amp;"
