"""A fitted model on later rows: every number by hand, what is new, what has changed, and what is refused."""

import json
import math

import numpy as np
import pandas as pd
import pytest
from sklearn.dummy import DummyRegressor
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.metrics import log_loss, roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

import counterpoise as cpo
from counterpoise.exceptions import InvalidInputError
from counterpoise.judging.mix_now import UNSEEN

pytestmark = [
    pytest.mark.usefixtures("few_draws"),
    pytest.mark.filterwarnings("ignore::counterpoise.exceptions.SmallContextWarning"),
]

N = 240
RNG = np.random.default_rng(3)
X = RNG.standard_normal((N, 3))
C = np.array(["a", "b", "c"])[RNG.choice(3, N, p=[0.5, 0.3, 0.2])]
SLOPE = X[:, 0] + np.where(C == "b", 1.0, -0.5) * X[:, 1]
ILL = np.where(SLOPE + RNG.logistic(size=N) > 0.0, "yes", "no")
COST = 10.0 + 3.0 * SLOPE + RNG.standard_normal(N)
COUNT = RNG.poisson(np.exp(0.3 * SLOPE)).astype(float)
PAST, LATER = slice(0, 120), slice(120, N)

ROBUST = {
    "logistic": (cpo.RobustLogisticRegression, ILL),
    "linear": (cpo.RobustLinearRegression, COST),
    "quantile": (cpo.RobustQuantileRegressor, COST),
    "huber": (cpo.RobustHuberRegressor, COST),
    "count": (cpo.RobustPoissonRegressor, COUNT),
}


def fitted(kind="logistic", rows=PAST, **switches):
    estimator, target = ROBUST[kind]
    switches = {"reference": "in-sample", "radius": 0.1, "alpha": 0.0, **switches}
    return estimator(**switches).fit(X[rows], target[rows], contexts=C[rows])


def later(model, y=ILL, contexts=C, **options):
    own = None if contexts is None else contexts[LATER]
    return cpo.evaluate(model, X[LATER], y[LATER], own, **options)


def row(table, context, method="model"):
    return next(one for one in table.rows() if one["context"] == context and one["method"] == method)


# --- measures --------------------------------------------------------------------------------------------------------


def test_measures_of_classes_are_those_of_hand():
    model = fitted()
    found = later(model)
    p = model.predict_proba(X[LATER])[:, 1]
    y = ILL[LATER] == "yes"
    for context in ("all", "a", "b", "c"):
        mine = np.ones(N - 120, dtype=bool) if context == "all" else C[LATER] == context
        own = row(found.measures, context)
        assert own["n"] == mine.sum()
        assert own["accuracy"] == pytest.approx(np.mean((p[mine] > 0.5) == y[mine]))
        assert own["AUC"] == pytest.approx(roc_auc_score(y[mine], p[mine]))
        assert own["log loss"] == pytest.approx(log_loss(y[mine], p[mine]))
        assert own["Brier score"] == pytest.approx(np.mean((y - p)[mine] ** 2))
        assert own["calibration"] == pytest.approx(np.mean((y - p)[mine]))
        assert row(found.leading, context)["value"] == pytest.approx(own["accuracy"])


def test_measures_of_numbers_are_those_of_hand():
    model = fitted("linear")
    found = later(model, COST)
    residual = COST[LATER] - model.predict(X[LATER])
    mine = C[LATER] == "b"
    own = row(found.measures, "b")
    assert own["RMSE"] == pytest.approx(np.sqrt(np.mean(residual[mine] ** 2)))
    assert own["MAE"] == pytest.approx(np.mean(np.abs(residual[mine])))
    assert own["bias"] == pytest.approx(np.mean(residual[mine]))
    spread = np.sum((COST[LATER][mine] - COST[LATER][mine].mean()) ** 2)
    assert own["R2"] == pytest.approx(1.0 - np.sum(residual[mine] ** 2) / spread)


def test_intervals_hold_the_value_and_cover_it_where_rows_are_many():
    found = later(fitted("linear"), COST).leading
    assert (found["low"] < found["value"]).all()
    assert (found["value"] < found["high"]).all()


def test_weights_count_as_repeated_rows():
    model, weight = fitted(), 1.0 + (np.arange(120) % 3 == 0)
    again = np.repeat(np.arange(120), weight.astype(int))
    weighted = later(model, sample_weight=weight).measures
    repeated = cpo.evaluate(model, X[LATER][again], ILL[LATER][again], C[LATER][again]).measures
    for name in ("accuracy", "AUC", "log loss", "Brier score", "calibration"):
        np.testing.assert_allclose(weighted[name], repeated[name])


@pytest.mark.parametrize("kind", ROBUST)
def test_on_the_rows_of_the_fit_nothing_has_changed(kind):
    model = fitted(kind)
    found = cpo.evaluate(model, X[PAST], ROBUST[kind][1][PAST], C[PAST])
    np.testing.assert_allclose(found.risks["now"], model.context_risks_, rtol=1e-6)
    np.testing.assert_allclose(found.risks["excess"], model.excess_risks_, rtol=1e-4, atol=1e-7)
    np.testing.assert_allclose(found.mix.shares["now"], found.mix.shares["then"])
    assert found.mix.inside
    assert found.mix.divergence == pytest.approx(0.0, abs=1e-12)
    assert found.drift.table["change"][0] == pytest.approx(0.0, abs=1e-6)
    # The worst plausible mix is what the fit made small.
    assert found.mix_excess == pytest.approx(model.certificate_.upper, rel=1e-3, abs=1e-6)


def test_models_of_any_kind_are_judged_without_what_only_robust_ones_know():
    plain = make_pipeline(StandardScaler(), LogisticRegression()).fit(X[PAST], ILL[PAST])
    found = later(plain)
    assert found.measures["context"].tolist() == ["all", "a", "b", "c"]
    assert found.mix is found.drift is found.risks is found.changes is None
    assert found.unseen.n_rows == 0
    assert math.isnan(found.mix_excess)
    certain = later(LinearSVC().fit(X[PAST], ILL[PAST]))
    assert list(certain.measures) == ["method", "context", "n", "accuracy"]
    assert later(DummyRegressor().fit(X[PAST], COST[PAST]), COST).task == "regression"


def test_a_pipeline_and_a_meta_estimator_know_their_fit():
    inner = cpo.RobustLogisticRegression(radius=0.1, reference="in-sample")
    piped = make_pipeline(StandardScaler(), inner).fit(X[PAST], ILL[PAST], robustlogisticregression__contexts=C[PAST])
    assert later(piped).mix.inside is not None
    meta = cpo.ContextRobust(LogisticRegression(), radius=0.1, max_iter=3, cv=2).fit(X[PAST], ILL[PAST], C[PAST])
    found = later(meta)
    assert found.drift.table["method"].tolist() == ["model"]
    assert found.mix.shares.n_rows == 3


# --- baselines -------------------------------------------------------------------------------------------------------


def test_changes_are_against_the_plain_model():
    model, erm = fitted("linear"), LinearRegression().fit(X[PAST], COST[PAST])
    found = later(model, COST, baselines={"erm": erm})
    assert found.methods == ["model", "erm"]
    own = row(found.changes, "a")
    assert own["before"] == pytest.approx(row(found.measures, "a", "erm")["RMSE"])
    assert own["after"] == pytest.approx(row(found.measures, "a")["RMSE"])
    assert own["change_low"] <= own["change"] <= own["change_high"]
    assert "Against the plain model: RMSE" in found.verdict


def test_the_same_model_beside_itself_changes_nothing():
    model = fitted("linear")
    own = later(model, COST, baselines={"erm": model.__class__(**model.get_params()).fit(X[PAST], COST[PAST], C[PAST])})
    np.testing.assert_allclose(own.changes["change"], 0.0, atol=1e-6)
    assert set(own.changes["size"]) == {"no practical difference"}


def test_baselines_of_other_classes_are_refused():
    other = LogisticRegression().fit(X[PAST], np.arange(120) % 3)
    with pytest.raises(InvalidInputError, match="other classes"):
        later(fitted(), baselines={"other": other})


# --- contexts --------------------------------------------------------------------------------------------------------


def test_contexts_that_the_fit_did_not_have_are_a_row_of_their_own():
    new = C.copy()
    new[120:140], new[140:150] = "d", "e"
    model = fitted()
    found = later(model, contexts=new)
    assert row(found.measures, UNSEEN)["n"] == 30
    assert found.unseen["context"].tolist() == ["d", "e"]
    assert found.unseen["n"].tolist() == [20, 10]
    np.testing.assert_allclose(found.unseen["share"], [20 / 120, 10 / 120])
    right = model.predict(X[120:140]) == ILL[120:140]
    assert found.unseen["accuracy"][0] == pytest.approx(right.mean())
    assert found.mix.inside is False
    assert found.mix.unseen_share == pytest.approx(0.25)
    assert found.mix.shares["now"].sum() == pytest.approx(1.0)
    assert "25.0% of rows (30) are of 2 contexts that the fit did not have: d, e." in found.verdict


def test_rows_of_nothing_but_new_contexts_are_judged():
    found = later(fitted(), contexts=np.full(N, "d"))
    assert found.measures["context"].tolist() == ["all", UNSEEN]
    assert found.drift.new_share == 1.0
    assert "nothing tells drift from being new" in found.verdict


def test_without_contexts_all_rows_are_judged_together():
    found, with_them = later(fitted(), contexts=None), later(fitted())
    assert found.measures["context"].tolist() == ["all"]
    assert found.measures["accuracy"][0] == with_them.measures["accuracy"][0]
    assert found.mix is found.drift is None
    assert "context" not in found.verdict


def test_the_order_of_rows_does_not_matter():
    mixed = np.random.default_rng(0).permutation(120)
    model = fitted()
    one, other = later(model), cpo.evaluate(model, X[LATER][mixed], ILL[LATER][mixed], C[LATER][mixed])
    for name in ("accuracy", "log loss"):
        np.testing.assert_allclose(one.measures[name], other.measures[name])
    np.testing.assert_allclose(one.leading["low"], other.leading["low"], rtol=1e-6)


# --- what has changed ------------------------------------------------------------------------------------------------


def test_another_mix_of_the_same_rows_is_called_a_change_of_the_mix():
    model = fitted("linear")
    worse = "b" if model.context_risks_[1] > model.context_risks_[0] else "a"
    again = np.concatenate([np.arange(120), np.repeat(np.flatnonzero(C[PAST] == worse), 3)])
    found = cpo.evaluate(model, X[again], COST[again], C[again]).drift.table
    shares = np.array([np.mean(C[again] == c) - np.mean(C[PAST] == c) for c in "abc"])
    assert found["mix"][0] == pytest.approx(shares @ model.context_risks_, rel=1e-4)
    assert found["within"][0] == pytest.approx(0.0, abs=1e-6)
    assert found["new"][0] == pytest.approx(0.0, abs=1e-9)


def test_other_targets_of_the_same_rows_are_called_drift():
    model = fitted("linear")
    off = COST + 5.0
    found = cpo.evaluate(model, X[PAST], off[PAST], C[PAST]).drift.table
    assert found["mix"][0] == pytest.approx(0.0, abs=1e-9)
    assert found["within"][0] == pytest.approx(found["change"][0])
    assert found["within"][0] > 4.0 * found["within_error"][0]


def test_parts_of_a_change_add_up():
    new = C.copy()
    new[120:140] = "d"
    found = later(fitted("linear"), COST, contexts=new).drift.table
    np.testing.assert_allclose(found["mix"] + found["within"] + found["new"], found["change"])
    np.testing.assert_allclose(found["after"] - found["before"], found["change"])


def test_predictions_that_are_off_are_said_to_be():
    assert (
        "Predictions are too low by 4.9" in cpo.evaluate(fitted("linear"), X[PAST], COST[PAST] + 5.0, C[PAST]).verdict
    )
    everybody = later(fitted(), np.where(np.arange(N) % 10 == 0, "no", "yes"))
    assert "Probabilities of yes are too low" in everybody.verdict


# --- targets ---------------------------------------------------------------------------------------------------------


def test_rows_without_a_target_are_left_out_and_said():
    y = ILL.astype(object)
    y[120:130] = None
    y[130] = np.nan
    model = fitted()
    found = later(model, y)
    whole = cpo.evaluate(model, X[131:], ILL[131:], C[131:])
    assert found.n_rows == 109
    assert found.notes == ("11 of 120 rows have no target and are left out",)
    np.testing.assert_allclose(found.measures["log loss"], whole.measures["log loss"])
    np.testing.assert_allclose(found.risks["now"], whole.risks["now"])


def test_a_class_that_the_model_does_not_know_counts_as_wrong():
    y = ILL.astype(object)
    y[120:124] = "perhaps"
    found = later(fitted(), y)
    right = later(fitted()).measures["accuracy"][0] * 120 - np.sum(fitted().predict(X[120:124]) == ILL[120:124])
    assert found.measures["accuracy"][0] == pytest.approx(right / 120)
    assert "4 of 120 rows have a class that the model does not know; they count as wrong" in found.notes
    assert np.isfinite(found.risks["now"]).all()


@pytest.mark.parametrize("form", [list, pd.Series, lambda values: pd.Series(values).astype("category")])
def test_targets_and_contexts_come_in_any_form(form):
    plain = later(fitted())
    found = cpo.evaluate(fitted(), X[LATER], form(ILL[LATER]), form(C[LATER]))
    assert found.measures["accuracy"].tolist() == plain.measures["accuracy"].tolist()


WRONG = {
    "no class is known": ({"y": np.zeros(N)}, "no target is a class that the model knows"),
    "too few targets": ({"y": ILL[:-1]}, "y has shape"),
    "no targets": ({"y": np.full(N, None)}, "none of the 120 rows has a target"),
    "a context is missing": ({"contexts": np.where(np.arange(N) == 130, None, C.astype(object))}, "missing"),
    "weights": ({"sample_weight": np.full(120, -1.0)}, "sample_weight"),
    "level": ({"confidence": 2.0}, "confidence"),
    "baselines": ({"baselines": [1]}, "pass a mapping"),
    "a baseline that is none": ({"baselines": {"erm": 3}}, "erm is 3"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_cannot_be_judged_is_refused(case):
    given, why = WRONG[case]
    with pytest.raises(InvalidInputError, match=why):
        later(fitted(), **given)


def test_a_model_that_is_not_fitted_and_a_stock_level_are_refused():
    with pytest.raises(ValueError, match="not fitted"):
        later(cpo.RobustLogisticRegression())
    demand = np.arange(9.0)
    stock = cpo.RobustNewsvendor(price=3.0).fit(np.ones(9), demand, contexts=demand > 4)
    with pytest.raises(InvalidInputError, match="profit"):
        cpo.evaluate(stock, np.ones(9), demand)


def test_the_model_is_judged_as_it_is():
    model = fitted()
    before = model.coef_.copy()
    later(model)
    assert (model.coef_ == before).all()


# --- words -----------------------------------------------------------------------------------------------------------


def test_what_is_found_is_shown_in_units_and_as_json():
    found = later(fitted(), baselines={"erm": LogisticRegression().fit(X[PAST], ILL[PAST])})
    assert f"{100 * found.measures['accuracy'][0]:.1f}%" in repr(found)
    assert found.headline.startswith("On 120 rows accuracy of the model is ")
    assert "(" in found.headline
    assert found.verdict.split(".")[0] in repr(found)
    assert "<table>" in found._repr_html_()
    kept = json.loads(json.dumps(found.json, allow_nan=False))
    assert kept["measures"][0]["accuracy"] == found.measures["accuracy"][0]
    assert kept["mix"]["inside"] in (True, False)


def test_a_context_of_few_rows_is_not_called_the_worst():
    y = ILL.copy()
    small = C.copy()
    small[120:123] = "a"
    model = fitted()
    rare = np.where(np.arange(N) < 120, small, np.where(np.arange(N) < 123, "c", np.where(C == "c", "b", C)))
    y[120:123] = np.where(model.predict(X[120:123]) == "yes", "no", "yes")
    found = later(model, y, contexts=rare)
    assert row(found.measures, "c")["accuracy"] == 0.0
    assert found.worst["context"] != "c"


def test_a_baseline_that_does_better_is_named():
    knows = LinearRegression().fit(X[LATER], COST[LATER])
    erm = LinearRegression().fit(X[PAST], COST[PAST])
    found = later(fitted("linear"), COST, baselines={"erm": erm, "newer": knows})
    value = found.measure.text(row(found.leading, "all", "newer")["value"])
    judged = f"{value} (against the plain model: {row(found.changes, 'all', 'newer')['size']})"
    assert f"Over all rows the newer model has the best RMSE of the models judged: {judged}." in found.verdict
    assert later(fitted("linear"), COST, baselines={"erm": erm}).best == ""
