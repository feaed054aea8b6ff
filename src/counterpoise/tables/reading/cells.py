"""The cells of a column: as numbers, as labels, or as what they look like."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from counterpoise.exceptions import InvalidInputError

_NUMBER = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$"
_DECIMAL_COMMA = r"^[+-]?\d*,\d+([eE][+-]?\d+)?$"
_THOUSANDS = r"^[+-]?[1-9]\d{0,2}(,\d{3})+$"
_SIGNS = "$€£¥"
_GROUPED = rf"{_NUMBER}|^[+-]?[{_SIGNS}]?\s?([1-9]\d{{0,2}}(,\d{{3}})+|\d+)(\.\d+)?\s?[{_SIGNS}]?$"
_NEARLY = 0.95
"""Share of the cells that are numbers from which a column is one of numbers, with stray cells in it."""
_MOST_STRAYS = 10
"""Different stray cells at the most: more of them are codes of some kind."""
_VARIED = 10
"""Different numbers for each different stray cell; 0 beside a, b and c is a code too."""
_LOOK = 1 << 16
"""Cells in which different ones are looked for at a time."""
_NO_NUMBER = ("na", "n/a", "nan", "-nan", "null", "none", "#n/a", "<na>")
# NA may be North America, and None an answer; these are nobody's label.
_NO_LABEL = ("nan", "null", "#n/a", "<na>")


def plain_types(column: Any) -> Any:
    """Return a column without what Arrow wraps around its values: dictionaries, views, extensions."""
    import pyarrow as pa
    import pyarrow.types as is_

    if isinstance(column.type, pa.BaseExtensionType):
        column = pa.chunked_array([chunk.storage for chunk in column.chunks], column.type.storage_type)
    if is_.is_dictionary(column.type):
        # Not by a cast of the column, which Arrow has not for all types that a dictionary may have.
        chunks = [plain_types(pa.chunked_array([one.dictionary])).take(one.indices) for one in column.chunks]
        return pa.chunked_array([one for chunk in chunks for one in chunk.chunks], chunks[0].type if chunks else None)
    if is_.is_string_view(column.type) or is_.is_string(column.type):
        column = column.cast(pa.large_string())
    # Arrow can do little with half floats.
    return column.cast(pa.float32()) if is_.is_float16(column.type) else column


def kind(column: Any) -> str:
    """Return what a column of plain types holds: text, numbers, or in a word what else."""
    import pyarrow.types as is_

    tests = {
        "text": (is_.is_large_string,),
        "numbers": (is_.is_integer, is_.is_floating, is_.is_decimal, is_.is_null),
        "true and false": (is_.is_boolean,),
        "dates": (is_.is_date, is_.is_timestamp),
        "times": (is_.is_time, is_.is_duration, is_.is_interval),
    }
    return next((word for word, asked in tests.items() if any(test(column.type) for test in asked)), str(column.type))


def numbers(column: Any, comma: bool, grouped: bool = False) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Return a column of text or numbers as floats, and where there is nothing; a cell that is no number is NaN.

    Parameters
    ----------
    comma : bool
        Whether decimals are written with a comma.
    grouped : bool
        Whether numbers are written like $1,234.50.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    if kind(column) == "text":
        values, column = _parsed(column, comma, grouped)
    else:
        values = column.cast(pa.float64(), safe=False)
    missing = pc.is_null(column, nan_is_null=True).to_numpy()
    # A copy: what Arrow shares may not be written to.
    return np.array(values.to_numpy(), dtype=np.float64), missing


def _parsed(text: Any, comma: bool, grouped: bool) -> tuple[Any, Any]:
    """Return numbers, null where a cell is none, and the text, null where there is nothing."""
    import pyarrow as pa
    import pyarrow.compute as pc

    text = _without(text, ())
    try:
        values = text.cast(pa.float64())
        if not pc.any(pc.is_nan(values)).as_py():
            return values, text
    except pa.ArrowInvalid:
        pass
    text = _without(text, _NO_NUMBER)
    pointed = _with_points(text, comma, grouped)
    return _where(pc.match_substring_regex(pointed, _NUMBER), pointed).cast(pa.float64()), text


def trimmed(text: Any) -> Any:
    """Return text without blanks around it, null where nothing else is there."""
    return _without(text, ())


def _without(text: Any, marks: tuple[str, ...]) -> Any:
    """Return trimmed text that is null where it is blank, or a mark of a missing value."""
    import pyarrow as pa
    import pyarrow.compute as pc

    text = pc.utf8_trim_whitespace(text)
    shown = pc.not_equal(text, "")
    if marks:
        absent = pc.is_in(pc.utf8_lower(text), value_set=pa.array(marks, text.type))
        shown = pc.and_(shown, pc.invert(absent))
    return text if pc.all(shown, skip_nulls=True).as_py() else _where(shown, text)


def _where(shown: Any, text: Any) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    return pc.if_else(shown, text, pa.scalar(None, text.type))


def _with_points(text: Any, comma: bool, grouped: bool = False) -> Any:
    """Return text with points for decimal commas, or without currencies and commas, if that is what they are."""
    import pyarrow.compute as pc

    if grouped:
        bare = pc.replace_substring_regex(text, rf"[,\s{_SIGNS}]", "")
        return pc.if_else(pc.match_substring_regex(text, _GROUPED), bare, text)
    return pc.replace_substring(text, ",", ".") if comma else text


def first_grouped(text: Any) -> int:
    """Return the place of the first cell with a currency or a comma, -1 where there is none."""
    import pyarrow.compute as pc

    return int(pc.index(pc.match_substring_regex(text, f"[,{_SIGNS}]"), True).as_py())


class _Commas:
    """What the commas in a column of numbers are, which all cells have to agree about."""

    def __init__(self) -> None:
        self.none, self.points = True, False
        self.decimal, self.thousands, self.repeated = True, True, False

    def look(self, text: Any) -> None:
        import pyarrow.compute as pc

        commas = text.filter(pc.match_substring(text, ","))
        self.none &= len(commas) == 0
        self.repeated |= bool(pc.any(pc.match_substring_regex(commas, r",\d{3}[,.]")).as_py())
        self.points |= bool(pc.any(pc.match_substring(text, ".")).as_py())
        self.decimal &= bool(pc.all(pc.match_substring_regex(commas, _DECIMAL_COMMA)).as_py())
        self.thousands &= bool(pc.all(pc.match_substring_regex(commas, _THOUSANDS)).as_py())

    @property
    def are_decimal(self) -> bool:
        # 1,200 alone may be twelve hundred; 12,5 beside it settles the matter.
        return not self.none and not self.points and self.decimal and not self.thousands


def advice(cell: Any) -> str:
    """Return what to write instead of a cell that is not a number."""
    text = str(cell).strip()
    bare = re.sub(r"[\s$€£¥%']|[A-Z]{3}", "", text)
    if re.match(r"^\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}", text):
        return "That is a date; name a column of numbers."
    if re.match(_THOUSANDS, bare):
        whole, decimal = bare.replace(",", ""), bare.replace(",", ".", 1)
        return f"Write {whole} without separators, or {decimal} if that is meant."
    if re.match(_DECIMAL_COMMA, bare):
        return f"Write it with a decimal point: {bare.replace(',', '.')}."
    if bare != text and re.match(_NUMBER, bare):
        return f"Write the bare number: {bare}."
    return "Correct these cells, or remove their rows."


def coded_labels(column: Any, strip: bool) -> tuple[list[Any], NDArray[np.intp], NDArray[np.bool_]]:
    """Return the different values of a column, for every cell which of them it holds, and where there is none."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.types as is_

    present = column
    if kind(column) == "text":
        present = _without(column, _NO_LABEL)
        column = present if strip else column
    elif is_.is_timestamp(column.type) and column.type.unit == "ns":
        # Python's own dates know no nanoseconds.
        column = column.cast(pa.timestamp("us", column.type.tz), safe=False)
    missing = pc.is_null(present, nan_is_null=True).to_numpy()
    # Through the distinct values, so that a million rows share the few objects they name.
    encoded = column.dictionary_encode().unify_dictionaries()
    try:
        distinct: list[Any] = encoded.chunk(0).dictionary.to_pylist() if encoded.num_chunks else []
    except (OverflowError, ValueError) as error:
        raise InvalidInputError(f"a date is none of the years 1 to 9999 ({error}). Correct it, or drop it.") from error
    nothing = len(distinct)
    codes = [chunk.indices.fill_null(nothing).to_numpy(zero_copy_only=False) for chunk in encoded.chunks]
    return [*distinct, None], np.concatenate([np.empty(0, dtype=np.intp), *codes]), missing


def texts(column: Any, typed: Any) -> Any:
    """Return a column as trimmed text, null where there is nothing.

    Parameters
    ----------
    typed : ChunkedArray
        The same column with the type of its values, by which those that are not text are written.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    if kind(typed) == "true and false":
        words = pa.array(["False", "True"], pa.large_string())
        return pa.chunked_array([words.take(pc.cast(typed, pa.int8()).combine_chunks())])
    if kind(typed) == "numbers":
        values, missing = numbers(typed, comma=False)
        # Through the distinct values: there are few, or they would not be asked for as text.
        distinct, codes = np.unique(np.where(missing, 0.0, values), return_inverse=True)
        words = [str(int(one)) if one.is_integer() else repr(one) for one in distinct.tolist()]
        written = pa.array(words, pa.large_string()).take(pa.array(codes))
        return pa.chunked_array([pc.if_else(pa.array(missing), None, written)])
    return _without(column if kind(column) == "text" else column.cast(pa.large_string()), _NO_LABEL)


@dataclass(frozen=True)
class Written:
    """How the cells of a column of text are written.

    Attributes
    ----------
    type : pyarrow.DataType
        The type that suits all of them.
    comma : bool
        Whether decimals have a comma.
    grouped : bool
        Whether numbers are written like $1,234.50.
    nearly : bool
        Whether text is numbers but for a few stray cells.
    has_strays : bool
        Whether the same holds of a column that is known to be of numbers, however few different ones it has.
    """

    type: Any
    comma: bool = False
    grouped: bool = False
    nearly: bool = False
    has_strays: bool = False

    def read(self, text: Any) -> Any:
        """Return a column of text, or a part of it, as this type."""
        import pyarrow as pa

        if pa.types.is_null(self.type):
            return pa.chunked_array([pa.nulls(len(text))])
        if pa.types.is_large_string(self.type):
            return text
        return _with_points(_without(text, _NO_NUMBER), self.comma).cast(self.type)

    def read_feature(self, text: Any) -> Any:
        """Return the same, but numbers where the text is nearly that; stray cells are missing."""
        import pyarrow as pa
        import pyarrow.compute as pc

        if not self.nearly:
            return self.read(text)
        text = _with_points(_without(text, _NO_NUMBER), self.comma, self.grouped)
        return _where(pc.match_substring_regex(text, _NUMBER), text).cast(pa.float64())


def are_strays(n: int, words: Collection[str], n_known: int) -> bool:
    """Tell whether so many cells that are no numbers are strays in a column of numbers.

    Parameters
    ----------
    n : int
    words : collection of str
        What they hold.
    n_known : int
        Cells that hold anything.
    """
    return n <= max(1.0, (1.0 - _NEARLY) * n_known) and 2 * n < n_known and len(set(words)) <= _MOST_STRAYS


class _Strays:
    """The cells that are no numbers, by one way to write numbers.

    Attributes
    ----------
    n : int
    words : set of str
        What they hold; not all of it where that is too much.
    """

    def __init__(self, pattern: str) -> None:
        self._pattern, self.n, self.words = pattern, 0, set[str]()

    def among(self, cells: Any, written: Any) -> Any:
        """Return those among some cells, which may be written another way."""
        import pyarrow.compute as pc

        strays = cells.filter(pc.invert(pc.match_substring_regex(written, self._pattern)))
        self.n += len(strays)
        if len(self.words) <= _MOST_STRAYS:
            self.words |= set(pc.unique(strays).slice(0, _MOST_STRAYS + 1).to_pylist())
        return strays


class TypeSearch:
    """Finds the type that all cells of a column of text are written in, of which it may see some at a time.

    Parameters
    ----------
    comma : bool
        Whether decimals may be written with a comma.
    """

    def __init__(self, comma: bool) -> None:
        import pyarrow as pa

        self._may_be_decimal, self._commas = comma, _Commas()
        self._strays, self._pointed, self._grouped = _Strays(_NUMBER), _Strays(_NUMBER), _Strays(_GROUPED)
        self._n_known = 0
        self._signs: Counter[str] = Counter()
        self._different: set[str] = set()
        self._types = [pa.int64(), pa.float64(), pa.bool_(), pa.date32(), pa.timestamp("us")]

    def look(self, text: Any) -> None:
        """See some cells."""
        import pyarrow as pa
        import pyarrow.compute as pc

        known = _without(text, _NO_NUMBER).drop_null()
        if not len(known):
            return
        self._n_known += len(known)
        self._commas.look(known)
        if self._may_be_decimal:
            self._pointed.among(known, pc.replace_substring(known, ",", "."))
        # Arrow would also read 0x1A, and words such as inf.
        strays = self._strays.among(known, known)
        self._grouped.among(strays, strays)
        for sign in _SIGNS:
            self._signs[sign] += pc.sum(pc.match_substring(strays, sign)).as_py() or 0
        for k in range(0, len(known), _LOOK):
            if len(self._different) <= _MOST_STRAYS * (_VARIED + 1):
                self._different |= set(pc.unique(known[k : k + _LOOK]).to_pylist())
        for one in list(self._types):
            if pa.types.is_integer(one) or pa.types.is_floating(one):
                suits = not self._strays.n and _suits(known, one)
            else:
                suits = _suits(known, one)
            if not suits:
                self._types.remove(one)

    @property
    def found(self) -> Written:
        """What is known after all cells were seen; text where no other type suits."""
        import pyarrow as pa

        if not self._n_known:
            return Written(pa.null())
        comma = self._may_be_decimal and self._commas.are_decimal
        if self._types and not comma:
            return Written(self._types[0])
        if comma and not self._pointed.n:
            return Written(pa.float64(), comma)
        found = self._text(self._pointed if comma else self._strays, comma=comma)
        grouped = self._text(self._grouped, grouped=True)
        return grouped if self._are_grouped and grouped.nearly and not found.nearly else found

    def _text(self, strays: _Strays, **ways: bool) -> Written:
        import pyarrow as pa

        has_strays = are_strays(strays.n, strays.words, self._n_known)
        varied = len(self._different) >= (_VARIED + 1) * len(strays.words)
        return Written(pa.large_string(), nearly=has_strays and varied, has_strays=has_strays, **ways)

    @property
    def _are_grouped(self) -> bool:
        """Whether currencies and commas can be left out: one sign in nearly all cells, and commas between thousands."""
        n, signs = self._n_known - self._grouped.n, self._signs.total()
        one_sign = max(self._signs.values()) == signs and signs >= _NEARLY * n
        # Cells that commas part have none for decimals; elsewhere 1,234 may be one, but 1,234.50 is not.
        thousands = self._commas.none or self._commas.repeated or not self._may_be_decimal
        return n > 0 and thousands and (one_sign or not signs)


def _suits(text: Any, kind: Any) -> bool:
    import pyarrow as pa

    try:
        text.cast(kind)
    except pa.ArrowInvalid:
        return False
    return True


def spelling(text: Any, comma: bool) -> Written:
    """Return how a column of text is written, of which these are all cells."""
    search = TypeSearch(comma)
    search.look(text)
    return search.found
