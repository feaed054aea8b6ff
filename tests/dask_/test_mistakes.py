"""What is wrong with collections is said, with the partition where there is one."""

import numpy as np
import pytest

pytest.importorskip("dask")
pytest.importorskip("dask.dataframe")

import dask.dataframe as dd
import pandas as pd

from counterpoise.dask import settings
from counterpoise.exceptions import CounterpoiseError, EmptyContextError, InvalidInputError
from tests.dask_.parts import chunked, framed, model, pieces, rows

SIZES = [10, 10, 10, 10]


def good(name="squared"):
    X, columns = rows(name, size=(8, 14))
    return X[:40].copy(), {key: value[:40].copy() for key, value in columns.items()}


def fit(name, X, columns, sizes=SIZES, **options):
    return model(name, **options).fit(
        chunked(X, sizes), **{key: chunked(value, sizes) for key, value in columns.items()}
    )


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_feature_that_is_no_number_is_named_with_its_place(value):
    X, columns = good()
    X[33, 1] = value
    with pytest.raises(InvalidInputError, match=f"partition 3: X is {value} in row 3, column 1"):
        fit("squared", X, columns)


@pytest.mark.parametrize(
    ("name", "column", "value"),
    [
        ("squared", "y", np.nan),
        ("squared", "y", np.inf),
        ("poisson", "y", -1.0),
        ("squared", "sample_weight", -1.0),
        ("squared", "sample_weight", np.nan),
        ("squared", "contexts", np.nan),
        ("newsvendor", "costs", np.nan),
        ("newsvendor", "y", -2.0),
    ],
)
def test_a_poisoned_column_is_named_with_its_partition(name, column, value):
    X, columns = good(name)
    columns["sample_weight"] = np.ones(40)
    columns[column] = columns[column].astype(float)
    columns[column][27] = value
    with pytest.raises(InvalidInputError, match="partition 2: "):
        fit(name, X, columns)


def parts_of(parts, meta):
    return dd.from_map(lambda k: parts[k], list(range(len(parts))), meta=meta)


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda part: part.assign(a="text"), "partition 3: "),
        (lambda part: part.rename(columns={"b": "c"}), r"partition 3: .*not expected: c; missing: b"),
        (lambda part: part[["b", "a"]], "partition 3: .*another order"),
        (lambda part: part[["a"]], "partition 3: .*missing: b"),
    ],
    ids=["text", "another name", "another order", "one less"],
)
def test_a_partition_of_another_kind_is_named(spoil, said):
    X, columns = good()
    frame = pd.DataFrame(X, columns=["a", "b"])
    parts = pieces(frame, SIZES)
    parts[3] = spoil(parts[3])
    with pytest.raises(InvalidInputError, match=said):
        model("squared").fit(parts_of(parts, frame.iloc[:0]), **columns)


def test_chunks_of_other_widths_are_named():
    X, columns = good()
    wide = chunked(X, SIZES).map_blocks(
        lambda block, block_info: block if block_info[0]["chunk-location"][0] != 2 else block[:, :1],
        dtype=float,
        meta=np.zeros((0, 2)),
    )
    with pytest.raises(InvalidInputError, match="partition 2 of X has 1 columns, and partition 0 has 2"):
        model("squared").fit(wide, **{key: chunked(value, SIZES) for key, value in columns.items()})


@pytest.mark.parametrize("column", ["y", "contexts", "sample_weight"])
@pytest.mark.parametrize("sizes", [[10, 9, 11, 10], [10, 0, 20, 10]], ids=["shorter", "empty"])
def test_partitions_of_other_lengths_are_named(column, sizes):
    X, columns = good()
    columns["sample_weight"] = np.ones(40)
    given = {key: framed(value, SIZES) for key, value in columns.items()}
    given[column] = framed(columns[column], sizes)
    with pytest.raises(InvalidInputError, match="partition 1: "):
        model("squared").fit(framed(pd.DataFrame(X), SIZES), **given)


def test_features_that_are_empty_beside_targets_are_named():
    X, columns = good()
    given = {key: framed(value, SIZES) for key, value in columns.items()}
    with pytest.raises(InvalidInputError, match=r"partition 1: .*length"):
        model("squared").fit(framed(pd.DataFrame(X), [10, 0, 20, 10]), **given)


def test_other_numbers_of_partitions_and_rows_are_told():
    X, columns = good()
    y = columns["y"]
    with pytest.raises(InvalidInputError, match="X has 4 partitions and y has 2"):
        model("squared").fit(framed(pd.DataFrame(X), SIZES), framed(y, [20, 20]), contexts=columns["contexts"])
    with pytest.raises(InvalidInputError, match="X has 40 rows and y has 39"):
        model("squared").fit(chunked(X, SIZES), chunked(y[:39], [39]), contexts=columns["contexts"])
    with pytest.raises(InvalidInputError, match="there are 40 rows and contexts has 39"):
        model("squared").fit(chunked(X, SIZES), chunked(y, SIZES), contexts=columns["contexts"][:39])


def test_contexts_in_another_order_are_refused_as_in_memory():
    X, columns = good()
    frame, contexts = pd.DataFrame(X), pd.Series(columns["contexts"])
    shuffled = parts_of([part.iloc[::-1] for part in pieces(contexts, SIZES)], contexts.iloc[:0])
    with pytest.raises(InvalidInputError, match=r"partition 0: contexts has the same index as X in another order"):
        model("squared").fit(framed(frame, SIZES), framed(columns["y"], SIZES), contexts=shuffled)


def test_features_must_be_a_collection_if_others_are():
    X, columns = good()
    with pytest.raises(InvalidInputError, match="Pass X as a dask array"):
        model("squared").fit(X, chunked(columns["y"], SIZES), contexts=columns["contexts"])


@pytest.mark.parametrize("frame", [True, False])
def test_a_column_that_is_not_there_is_named(frame):
    X, columns = good()
    passed = framed(pd.DataFrame(X, columns=["a", "b"]), SIZES) if frame else chunked(X, SIZES)
    with pytest.raises(InvalidInputError, match="contexts is 'hospital', but X has no such column"):
        model("squared").fit(passed, columns["y"], contexts="hospital")


def test_one_class_and_no_rows_are_too_little():
    X, columns = good("logistic")
    columns["y"][:] = 1
    with pytest.raises(InvalidInputError, match="y holds one class, 1"):
        fit("logistic", X, columns)
    nothing = {key: value[:0] for key, value in columns.items()}
    for name in ("squared", "logistic"):
        with pytest.raises(InvalidInputError, match="every partition is empty"):
            fit(name, X[:0], nothing, [0, 0])


def test_a_context_without_weight_is_named():
    X, columns = good()
    columns["sample_weight"] = (columns["contexts"] != 1).astype(float)
    with pytest.raises(EmptyContextError, match="context 1"):
        fit("squared", X, columns)


def test_what_cannot_be_done_elsewhere_is_refused():
    X, columns = good()
    with pytest.raises(InvalidInputError, match="cross-fit"):
        fit("squared", X, columns, reference="cross-fit")
    with pytest.raises(
        InvalidInputError, match=r"reference is 'shrunk'; where rows are not in memory, choose .*in-sample"
    ):
        fit("squared", X, columns, reference="shrunk")
    for radius in ("types", 0.0):
        with pytest.raises(
            InvalidInputError, match=r"adjust is 'standard-error'; where rows .* pass a positive number"
        ):
            fit("squared", X, columns, adjust="standard-error", radius=radius)
    with pytest.raises(InvalidInputError, match="dask collections have none"):
        fit("squared", X, columns, device="cpu")
    with pytest.raises(InvalidInputError, match="alpha"):
        fit("squared", X, columns, alpha=-1.0)
    with pytest.raises(InvalidInputError, match="patience"), settings(patience=0.0):
        pass


@pytest.mark.parametrize("error", [OSError("the disk is gone"), TimeoutError("the store is slow")], ids=repr)
def test_a_partition_that_cannot_be_read_is_named(error):
    X, columns = good()

    def read(block, block_info):
        if block_info[0]["chunk-location"][0] == 1:
            raise error
        return block

    broken = chunked(X, SIZES).map_blocks(read, dtype=float, meta=np.zeros((0, 2)))
    with pytest.raises(CounterpoiseError, match=f"partition 1 cannot be computed: .*{error}"):
        model("squared").fit(broken, **{key: chunked(value, SIZES) for key, value in columns.items()})
