"""Categories as numbers: what is made of them is what is made of the words."""

import numpy as np
import pyarrow as pa
import pytest

from counterpoise.tables.tabular.columns import Columns
from counterpoise.tables.tabular.encoding import coded
from counterpoise.tables.tabular.task import pipeline

RNG = np.random.default_rng(0)
N = 2_000


def column(words, with_gaps):
    chosen = [words[k] for k in np.minimum(RNG.geometric(0.03, N) - 1, len(words) - 1)]
    return [None if with_gaps and k % 7 == 0 else word for k, word in enumerate(chosen)]


@pytest.mark.parametrize("with_gaps", [False, True])
def test_numbers_in_place_of_words_are_encoded_alike(with_gaps):
    """Few words, more than are told apart, some that occur once, and those that the fitted rows lack."""
    X = pa.table(
        {
            "size": RNG.standard_normal(N),
            "few": pa.array(column(["b", "Ä", "a"], with_gaps), pa.large_string()),
            "many": pa.array(column([f"w{k}" for k in range(80)], with_gaps), pa.large_string()),
        }
    )
    encode = pipeline(Columns(("size",), ("few", "many")), "regression")[:-1]
    numbers = coded(X, ("few", "many"))
    assert all(pa.types.is_integer(numbers[name].type) for name in ("few", "many"))
    fitted = np.arange(0, N, 2)
    made = [encode.fit(one.take(fitted)).transform(one) for one in (X, numbers)]
    assert made[0].shape[1] > 50
    np.testing.assert_array_equal(*made)
