"""Models fitted without the rows that judge them."""

import numpy as np
import pytest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import counterpoise as cpo
from counterpoise.estimators.learners import splits_by
from counterpoise.inference.excess import HeldOut
from counterpoise.judging.trials import BASELINES, Field, Judge

RNG = np.random.default_rng(3)
N = 240
CODES = np.minimum(RNG.integers(0, 4, N), 2)
X = RNG.standard_normal((N, 2)) * [1.0, 30.0]
LINE = X[:, 0] * np.where(CODES == 0, 1.0, -0.5)
# The last context has no row of the last class.
Y = np.where((CODES < 2) & (RNG.random(N) < 0.3), 2, (RNG.logistic(size=N) < LINE).astype(int))


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("of_the_past", [False, True])
def test_methods_that_share_the_rows_of_a_split_are_those_of_separate_fits(overlap, of_the_past, monkeypatch):
    members = np.column_stack([CODES >= 0, CODES == 1, CODES == 2])
    contexts = cpo.Memberships(members, ["a", "b", "c"]) if overlap else CODES
    held_out = HeldOut.of(N, contexts, None, RNG.uniform(0.5, 2.0, N))
    rows = np.arange(N) if held_out.contexts.rows is None else held_out.contexts.rows
    model = cpo.RobustLogisticRegression(reference="cross-fit", radius=0.1, tol=1e-10)
    field = Field(
        base=make_pipeline(StandardScaler(), model),
        methods=tuple(BASELINES),
        X=X[rows],
        y=Y[rows],
        held_out=held_out,
        judge=Judge(None, 1e-3),
    )

    def tried():
        found = field.tried(splits_by(rows % 2), not overlap, of_the_past=of_the_past)
        return [one for one in (*found.methods.values(), found.own, found.as_feature) if one is not None]

    shared = tried()
    monkeypatch.setattr("counterpoise.estimators.same_rows.SameRows.serves", lambda model: False)
    # A risk within 1e-10 of its minimum leaves predictions off by about the root of that.
    for one, other in zip(shared, tried(), strict=True):
        np.testing.assert_allclose(one.losses, other.losses, rtol=1e-4)
        np.testing.assert_allclose(one.predicted.values, other.predicted.values, rtol=1e-4)
