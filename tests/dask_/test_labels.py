"""Labels of contexts and classes are those of the rows in memory, in the same order, whatever partition they lie in."""

import datetime

import numpy as np
import pytest

pytest.importorskip("dask")
pytest.importorskip("dask.dataframe")

import dask.dataframe as dd
import pandas as pd

from counterpoise.exceptions import InvalidInputError
from tests.dask_.parts import assert_same_fit, chunked, framed, model, rows, sizes_of

pytestmark = pytest.mark.filterwarnings("ignore::counterpoise.exceptions.SmallContextWarning")

X, COLUMNS = rows("squared", size=(12, 20))
CODES, N = COLUMNS["contexts"], len(X)
HALF = np.arange(N) >= N // 2


def objects(values):
    out = np.empty(len(values), dtype=object)
    out[:] = values
    return pd.Series(out)


LABELS = {
    "text": pd.Series(np.array(["north", "s", "east"])[CODES]),
    "whole numbers": pd.Series(CODES * 10),
    "small whole numbers": pd.Series(CODES.astype(np.uint8)),
    "numbers": pd.Series(CODES * 1.5),
    "truths": pd.Series(CODES == 1),
    "dates": pd.Series(pd.Timestamp("2024-01-01") + pd.to_timedelta(CODES, "D")),
    "days": objects([datetime.date(2024, 1, 1 + int(code)) for code in CODES]),
    "categories": pd.Series(pd.Categorical.from_codes(CODES, ["n", "a", "z"], ordered=True)),
    "nullable": pd.Series(CODES).astype("Int64"),
    "strings": pd.Series(np.array(["n", "s", "e"])[CODES]).astype("string"),
    "large numbers": objects([2**63 + int(code) for code in CODES]),
    "of several kinds": objects([[2, "a", (1, 2)][code] for code in CODES]),
    "numbers here, text there": objects(
        [("z" if code else "b") if late else (5 if code else 1) for code, late in zip(CODES, ~HALF, strict=True)]
    ),
    "in no order": objects(
        [("z" if code else "b") if late else (1 if code else 5) for code, late in zip(CODES, HALF, strict=True)]
    ),
    "pairs": objects([(int(code), "a") for code in CODES]),
    "crossed": pd.DataFrame({"u": np.array(["x", "y"])[np.arange(N) // 7 % 2], "v": CODES}),
    "crossed, of several kinds": pd.DataFrame({"u": objects([[5, "q"][k] for k in np.arange(N) // 7 % 2]), "v": CODES}),
    "crossed dates": pd.DataFrame({"u": pd.Timestamp("2024-01-01") + pd.to_timedelta(CODES, "D"), "v": HALF}),
    "a table of one column": pd.DataFrame({"u": CODES}),
}


@pytest.mark.parametrize("kind", LABELS)
def test_labels_are_those_in_memory(kind):
    like = model("squared").fit(X, COLUMNS["y"], contexts=LABELS[kind])
    for seed in range(2):
        sizes = sizes_of(N, 4, seed)
        found = model("squared").fit(
            chunked(X, sizes), chunked(COLUMNS["y"], sizes), contexts=framed(LABELS[kind], sizes)
        )
        assert_same_fit(found, like)


@pytest.mark.parametrize("kind", ["of several kinds", "pairs", "text"])
def test_labels_may_be_a_list_in_memory(kind):
    like = model("squared").fit(X, COLUMNS["y"], contexts=LABELS[kind])
    sizes = sizes_of(N, 4)
    found = model("squared").fit(chunked(X, sizes), chunked(COLUMNS["y"], sizes), contexts=list(LABELS[kind]))
    assert_same_fit(found, like)


def test_tables_of_labels_may_be_arrays():
    table = np.column_stack([CODES, HALF])
    sizes = sizes_of(N, 4)
    like = model("squared").fit(X, COLUMNS["y"], contexts=table)
    found = model("squared").fit(chunked(X, sizes), chunked(COLUMNS["y"], sizes), contexts=chunked(table, sizes))
    assert_same_fit(found, like)


def test_whole_numbers_of_one_partition_are_the_floats_of_another():
    parts = [pd.Series(CODES[: N // 2]), pd.Series(CODES[N // 2 :].astype(float))]
    sizes = [N // 2, N - N // 2]
    labels = dd.from_map(lambda k: parts[k], [0, 1], meta=parts[1].iloc[:0])
    found = model("squared").fit(chunked(X, sizes), chunked(COLUMNS["y"], sizes), contexts=labels)
    assert_same_fit(found, model("squared").fit(X, COLUMNS["y"], contexts=pd.concat(parts)))


CLASSES = {
    "truths": pd.Series(CODES > 0),
    "text": pd.Series(np.array(["no", "yes indeed"])[(CODES > 0) * 1]),
    "numbers": pd.Series((CODES > 0) * 1.0),
    "small whole numbers": pd.Series((CODES > 0).astype(np.int8)),
    "categories": pd.Series(np.array(["no", "yes"])[(CODES > 0) * 1]).astype("category"),
    "nullable": pd.Series((CODES > 0) * 1).astype("Int64"),
    "nullable truths": pd.Series(CODES > 0).astype("boolean"),
    "strings": pd.Series(np.array(["no", "yes"])[(CODES > 0) * 1]).astype("string"),
}


@pytest.mark.parametrize("kind", CLASSES)
def test_classes_are_those_in_memory(kind):
    order = np.argsort(CODES, kind="stable")
    features, y, contexts = X[order], CLASSES[kind].iloc[order].reset_index(drop=True), np.arange(N) % 2
    sizes = [5, 0, *sizes_of(N - 5, 3)]
    like = model("logistic", reference=[0.0, 0.1]).fit(features, y, contexts=contexts)
    found = model("logistic", reference=[0.0, 0.1]).fit(
        chunked(features, sizes), framed(y, sizes), contexts=chunked(contexts, sizes)
    )
    assert_same_fit(found, like)


def test_measurements_are_no_contexts():
    sizes = sizes_of(N, 3)
    with pytest.raises(InvalidInputError, match="as many different numbers as there are rows"):
        model("squared").fit(
            chunked(X, sizes), chunked(COLUMNS["y"], sizes), contexts=chunked(np.arange(N) + 0.5, sizes)
        )


def test_lists_of_columns_are_told_from_lists_of_labels():
    frame = pd.DataFrame(X, columns=["a", "b"]).assign(u=CODES, v=HALF)
    sizes = sizes_of(N, 3)
    like = model("squared").fit(frame[["a", "b"]], COLUMNS["y"], contexts=frame[["u", "v"]])
    found = model("squared").fit(framed(frame, sizes), COLUMNS["y"], contexts=["u", "v"])
    assert_same_fit(found, like)
    # Labels that happen to be called like columns are labels.
    labels = np.array(["a", "b", "u"])[CODES].tolist()
    like = model("squared").fit(frame, COLUMNS["y"], contexts=labels)
    assert_same_fit(model("squared").fit(framed(frame, sizes), COLUMNS["y"], contexts=labels), like)
