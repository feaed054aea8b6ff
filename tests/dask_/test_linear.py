"""Linear models of dask collections without a cluster are those of the same rows in memory."""

import warnings

import numpy as np
import pytest

pytest.importorskip("dask")
pytest.importorskip("dask.dataframe")

import pandas as pd
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

import counterpoise as cpo
from counterpoise.exceptions import OneContextWarning, SmallContextWarning
from tests.dask_.parts import (
    CURVED,
    MODELS,
    assert_same_fit,
    chunked,
    framed,
    model,
    rows,
    sizes_of,
)

pytestmark = pytest.mark.filterwarnings("ignore::counterpoise.exceptions.SmallContextWarning")

PROPERTY = settings(max_examples=3, deadline=None, derandomize=True)
every_model = pytest.mark.parametrize("name", MODELS)


def tolerances(name):
    # Where all classes have an intercept, one direction is free, and rounding decides there.
    return {"tol": 1e-7, "coef_tol": 1e-6} if name == "multinomial" else {"tol": 1e-10}


def known_references(name, X, columns, **options):
    """Fit in memory with given references, so that they are the same to the last bit."""
    if name not in CURVED:
        return model(name, **options).fit(X, **columns)
    first = model(name, **options | {"criterion": "excess"}).fit(X, **columns)
    return model(name, **options, reference=first.reference_risks_).fit(X, **columns)


def same_model(like):
    """Return the model again, not fitted."""
    return type(like)(**like.get_params())


# --- partitions ---------------------------------------------------------------------------------------------


@every_model
@PROPERTY
@given(
    st.integers(1, 3),
    st.integers(1, 3),
    st.integers(1, 6),
    st.integers(0, 2**32 - 1),
    st.sampled_from([{}, {"radius": 0.0}, {"confidence": 1.0}, {"alpha": 0.3, "fit_intercept": False}]),
)
def test_any_partitioning_gives_the_fit_in_memory(name, n_contexts, n_features, n_parts, seed, options):
    X, columns = rows(name, n_contexts, n_features, seed % 1000)
    like = known_references(name, X, columns, **options)
    sizes = sizes_of(len(X), n_parts, seed)
    found = same_model(like).fit(chunked(X, sizes), **{key: chunked(value, sizes) for key, value in columns.items()})
    assert_same_fit(found, like, **tolerances(name))


@pytest.mark.parametrize("name", CURVED)
@pytest.mark.parametrize("options", [{}, {"confidence": 1.0}, {"criterion": "risk"}], ids=str)
def test_references_that_are_solved_for_agree_to_their_tolerance(name, options):
    X, columns = rows(name, size=(30, 40))
    like = model(name, tol=1e-8, **options).fit(X, **columns)
    sizes = sizes_of(len(X), 4)
    found = same_model(like).fit(chunked(X, sizes), **{key: chunked(value, sizes) for key, value in columns.items()})
    assert_same_fit(found, like, tol=1e-8, coef_tol=1e-6)
    assert found.certificate_.lower <= like.certificate_.upper
    assert like.certificate_.lower <= found.certificate_.upper


def test_a_number_adjusts_as_in_memory():
    X, columns = rows("squared", size=(30, 40))
    like = model("squared", tol=1e-8, adjust=0.5).fit(X, **columns)
    sizes = sizes_of(len(X), 3)
    found = same_model(like).fit(chunked(X, sizes), **{key: chunked(value, sizes) for key, value in columns.items()})
    assert_same_fit(found, like, tol=1e-8, coef_tol=1e-6)
    np.testing.assert_allclose(found.adjustments_, 0.5 / np.sqrt(np.bincount(columns["contexts"])))


@pytest.mark.parametrize("name", ["squared", "pinball"])
@pytest.mark.parametrize("kind", ["one row each", "a context in one partition", "mostly empty"])
def test_partitions_may_be_as_odd_as_they_like(name, kind):
    X, columns = rows(name, 2, 1, size=(2, 3))
    order = np.argsort(columns["contexts"], kind="stable") if kind == "a context in one partition" else slice(None)
    X, columns = X[order], {key: value[order] for key, value in columns.items()}
    sizes = {
        "one row each": [1] * len(X),
        "a context in one partition": np.bincount(columns["contexts"]).tolist(),
        "mostly empty": [0, 0, 5, 0, len(X) - 6, 1, 0],
    }[kind]
    like = model(name).fit(X, **columns)
    found = model(name).fit(chunked(X, sizes), **{key: chunked(value, sizes) for key, value in columns.items()})
    assert_same_fit(found, like)


def test_a_class_may_be_absent_from_a_partition():
    X, columns = rows("multinomial")
    order = np.argsort(columns["y"], kind="stable")
    X, columns = X[order], {key: value[order] for key, value in columns.items()}
    columns["y"] = np.array(["no", "perhaps so", "yes"])[columns["y"]]
    sizes = np.unique(columns["y"], return_counts=True)[1].tolist()
    like = known_references("multinomial", X, columns)
    found = same_model(like).fit(chunked(X, sizes), **{key: chunked(value, sizes) for key, value in columns.items()})
    assert_same_fit(found, like, **tolerances("multinomial"))


@pytest.mark.filterwarnings("error:The number of unique classes")
def test_many_classes_in_a_small_partition_are_no_reason_to_warn():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(200, 1)), np.arange(200) % 22
    found = model("multinomial", alpha=1.0, reference=[0.0], radius=0.0).fit(
        chunked(X, [25] * 8), chunked(y, [25] * 8), contexts=chunked(np.zeros(200, int), [25] * 8)
    )
    assert found.classes_.tolist() == list(range(22))


# --- weights ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["logistic", "squared", "pinball", "newsvendor"])
@pytest.mark.parametrize("whole", [True, False], ids=["whole", "real"])
def test_rows_without_weight_count_for_nothing(name, whole):
    X, columns = rows(name, size=(15, 25))
    weight = np.random.default_rng(0).integers(0, 3, len(X)) * (1.0 if whole else 0.7)
    weight[:12] = 0.0
    columns["sample_weight"] = weight
    sizes = [12, 30, 0, len(X) - 42]
    like = known_references(name, X, columns)
    found = same_model(like).fit(chunked(X, sizes), **{key: chunked(value, sizes) for key, value in columns.items()})
    assert_same_fit(found, like)


def test_rows_of_weight_one_or_nothing_are_counted():
    X, columns = rows("squared", size=(15, 25))
    columns["sample_weight"] = (np.arange(len(X)) % 3 > 0).astype(float)
    sizes = [30, len(X) - 30]
    found = model("squared").fit(chunked(X, sizes), **{key: chunked(value, sizes) for key, value in columns.items()})
    assert found.context_counts_.dtype.kind == "i"
    assert_same_fit(found, model("squared").fit(X, **columns))


# --- kinds of rows ------------------------------------------------------------------------------------------


@every_model
@pytest.mark.parametrize("kind", ["float32", "sparse"])
def test_other_kinds_of_features_are_fitted_as_in_memory(name, kind):
    X, columns = rows(name)
    X = X.astype(np.float32) if kind == "float32" else sparse.csr_array(np.where(np.abs(X) > 0.6, X, 0.0))
    like = known_references(name, X, columns)
    sizes = sizes_of(X.shape[0], 3)
    found = same_model(like).fit(chunked(X, sizes), **{key: chunked(value, sizes) for key, value in columns.items()})
    # Products of float32 are rounded as the rows lie, so they differ by their rounding.
    loose = {"tol": 1e-6, "coef_tol": 1e-5} if kind == "float32" else tolerances(name)
    assert_same_fit(found, like, **loose)


def test_columns_are_split_over_chunks_as_well():
    X, columns = rows("squared", n_features=3)
    sizes = sizes_of(len(X), 3)
    found = model("squared").fit(
        chunked(X, sizes).rechunk({1: 1}), **{key: chunked(value, [len(X)]) for key, value in columns.items()}
    )
    assert_same_fit(found, model("squared").fit(X, **columns))


@pytest.mark.parametrize("given_as", ["frame", "array", "unknown chunks", "sparse of unknown size"])
def test_other_arguments_may_be_in_memory(given_as):
    X, columns = rows("squared")
    frame, sizes = pd.DataFrame(X, columns=["a", "b"]), sizes_of(len(X), 4)
    passed = {
        "frame": framed(frame, sizes),
        "array": chunked(X, sizes),
        "unknown chunks": framed(frame, sizes).values,
        "sparse of unknown size": framed(frame, sizes).values.map_blocks(
            sparse.csr_array, dtype=float, meta=sparse.csr_array((0, 0))
        ),
    }[given_as]
    like = model("squared").fit(frame if given_as == "frame" else X, **columns)
    columns["contexts"] = columns["contexts"].tolist()
    assert_same_fit(model("squared").fit(passed, **columns), like)


def test_columns_are_named():
    X, columns = rows("newsvendor")
    frame = pd.DataFrame(X, columns=["a", "b"]).assign(**columns, weight=np.arange(len(X)) % 4 + 0.5)
    like = model("newsvendor").fit(
        frame[["a", "b"]], frame["y"], costs=frame["costs"], contexts=frame["contexts"], sample_weight=frame["weight"]
    )
    table = framed(frame, sizes_of(len(X), 4))
    found = model("newsvendor").fit(table, "y", costs="costs", contexts="contexts", sample_weight="weight")
    assert found.feature_names_in_.tolist() == ["a", "b"]
    assert_same_fit(found, like)
    by_columns = model("newsvendor").fit(
        table[["a", "b"]], table["y"], costs=table["costs"], contexts=table["contexts"], sample_weight=table["weight"]
    )
    assert_same_fit(by_columns, like)


def test_nullable_types_and_categories_are_numbers_and_labels():
    X, columns = rows("logistic")
    frame = pd.DataFrame(X, columns=["a", "b"]).convert_dtypes()
    y = pd.Series(columns["y"] == 1).astype("boolean")
    contexts = pd.Series(np.array(["n", "s", "e"])[columns["contexts"]]).astype("category")
    sizes = sizes_of(len(X), 3)
    like = known_references("logistic", frame, {"y": y, "contexts": contexts})
    found = same_model(like).fit(framed(frame, sizes), framed(y, sizes), contexts=framed(contexts, sizes))
    assert_same_fit(found, like)


# --- switches -----------------------------------------------------------------------------------------------


def test_no_contexts_is_one_context_with_a_warning():
    X, columns = rows("squared")
    sizes = sizes_of(len(X), 3)
    with pytest.warns(OneContextWarning) as caught:
        found = model("squared").fit(chunked(X, sizes), chunked(columns["y"], sizes))
    assert caught[0].filename == __file__
    with pytest.warns(OneContextWarning):
        like = model("squared").fit(X, columns["y"])
    assert_same_fit(found, like)


def test_small_contexts_are_warned_of_as_in_memory():
    X, columns = rows("squared", size=(4, 6))
    sizes = sizes_of(len(X), 3)
    said = []
    for passed in (
        (X, columns),
        (chunked(X, sizes), {key: chunked(value, sizes) for key, value in columns.items()}),
    ):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model("squared").fit(passed[0], **passed[1])
        said.append([(str(one.message), one.filename) for one in caught if one.category is SmallContextWarning])
    # Rows elsewhere cannot be held out.
    said[0] = [(words.replace("Use reference='cross-fit', raise", "Raise"), where) for words, where in said[0]]
    assert said[0] == said[1]
    assert len(said[0]) == 1


def test_references_may_be_known_by_label():
    X, columns = rows("logistic")
    columns["contexts"] = np.array(["n", "s", "e"])[columns["contexts"]]
    reference = {"n": 0.1, "s": 0.2, "e": 0.3}
    sizes = sizes_of(len(X), 3)
    like = model("logistic", reference=reference).fit(X, **columns)
    found = model("logistic", reference=reference).fit(
        chunked(X, sizes), **{key: chunked(value, sizes) for key, value in columns.items()}
    )
    assert_same_fit(found, like)


@pytest.mark.parametrize("options", [{"alpha": 1e-4}, {"alpha": 0.0, "radius": 0.0}, {"alpha": 0.0}], ids=str)
def test_separable_rows_are_fitted_with_a_proof(options):
    X, columns = rows("logistic", size=(20, 30))
    columns["y"] = (X[:, 0] > 0).astype(int)
    sizes = sizes_of(len(X), 4)
    options = {"reference": "in-sample", **options}
    like = cpo.RobustLogisticRegression(**options).fit(X, **columns)
    found = cpo.RobustLogisticRegression(**options).fit(
        chunked(X, sizes), **{key: chunked(value, sizes) for key, value in columns.items()}
    )
    # Where risks have no minimum but 0, far out, only the proof can agree.
    for end in ("lower", "upper"):
        assert abs(getattr(found.certificate_, end) - getattr(like.certificate_, end)) < 1e-6
    assert (found.predict(X) == columns["y"]).all()


def test_a_model_is_fitted_again_on_other_collections():
    X, columns = rows("squared")
    sizes = sizes_of(len(X), 3)
    found = model("squared").fit(framed(pd.DataFrame(X, columns=["a", "b"]), sizes), **columns)
    found.fit(chunked(X, sizes), **columns)
    assert not hasattr(found, "feature_names_in_")
    assert_same_fit(found, model("squared").fit(X, **columns))
