"""Measures in natural units are those of scikit-learn, over all rows and in every context."""

from __future__ import annotations

import math

import numpy as np
import pytest
from sklearn import metrics
from sklearn.ensemble import RandomForestClassifier
from sklearn.svm import LinearSVC

import counterpoise as cpo
from counterpoise.judging import measures as measures_module
from counterpoise.judging.measures import MEASURES, Judged, Predicted, measured, measures_of, task_of

RNG = np.random.default_rng(3)
N = 400
CODES = RNG.integers(0, 3, N)
LABELS = np.array(["a", "b", "c"])
WEIGHT = RNG.uniform(0.5, 2.0, N)


def _classes(n_classes):
    p = RNG.dirichlet(np.ones(n_classes), N)
    classes = np.array(["no", "some", "yes"][:n_classes])
    y = classes[[RNG.choice(n_classes, p=row) for row in p]]
    return y, Predicted(p, classes)


def _table(task, y, predicted):
    return measured(Judged.of(y, predicted), CODES, LABELS, WEIGHT, MEASURES[task])


def _parts():
    yield 0, np.ones(N, dtype=bool)
    for c in range(3):
        yield c + 1, c == CODES


@pytest.mark.parametrize("n_classes", [2, 3])
def test_measures_of_classes_are_those_of_scikit_learn(n_classes):
    y, predicted = _classes(n_classes)
    table = _table("classification", y, predicted)
    assert table["context"].tolist() == ["all", "a", "b", "c"]
    for k, part in _parts():
        truth, p, w = y[part], predicted.values[part], WEIGHT[part]
        named = predicted.classes[p.argmax(axis=1)]
        assert table["n"][k] == part.sum()
        assert table["accuracy"][k] == pytest.approx(metrics.accuracy_score(truth, named, sample_weight=w))
        expected = metrics.log_loss(truth, p, sample_weight=w, labels=predicted.classes)
        assert table["log loss"][k] == pytest.approx(expected)
        if n_classes == 2:
            came = truth == "some"
            assert table["AUC"][k] == pytest.approx(metrics.roc_auc_score(came, p[:, 1], sample_weight=w))
            brier = metrics.brier_score_loss(came, p[:, 1], sample_weight=w)
            assert table["Brier score"][k] == pytest.approx(brier)
            assert table["calibration"][k] == pytest.approx(np.average(came - p[:, 1], weights=w))
        else:
            auc = metrics.roc_auc_score(truth, p, multi_class="ovr", average="weighted", sample_weight=w)
            assert table["AUC"][k] == pytest.approx(auc)


def test_measures_of_numbers_are_those_of_scikit_learn():
    y = RNG.normal(5.0, 2.0, N)
    predicted = Predicted(y + RNG.normal(0.3, 1.0, N))
    table = _table("regression", y, predicted)
    for k, part in _parts():
        given = (y[part], predicted.values[part])
        w = WEIGHT[part]
        assert table["RMSE"][k] == pytest.approx(metrics.root_mean_squared_error(*given, sample_weight=w))
        assert table["MAE"][k] == pytest.approx(metrics.mean_absolute_error(*given, sample_weight=w))
        assert table["R2"][k] == pytest.approx(metrics.r2_score(*given, sample_weight=w))
        assert table["bias"][k] == pytest.approx(np.average(given[0] - given[1], weights=w))


def test_measures_of_counts_and_quantiles_are_those_of_scikit_learn():
    mean = RNG.gamma(2.0, 2.0, N)
    y = RNG.poisson(mean).astype(float)
    table = _table("count", y, Predicted(mean))
    assert table["deviance"][0] == pytest.approx(metrics.mean_poisson_deviance(y, mean, sample_weight=WEIGHT))
    assert table["D2"][0] == pytest.approx(metrics.d2_tweedie_score(y, mean, power=1, sample_weight=WEIGHT))
    table = _table("quantile", y, Predicted(mean, quantile=0.8))
    expected = metrics.mean_pinball_loss(y, mean, alpha=0.8, sample_weight=WEIGHT)
    assert table["pinball loss"][0] == pytest.approx(expected)
    assert table["below"][0] == pytest.approx(np.average(y <= mean, weights=WEIGHT))


def test_a_class_the_model_does_not_know_is_wrong_and_has_no_auc():
    predicted = Predicted(np.array([[0.9, 0.1], [0.2, 0.8]]), np.array([0, 1]))
    rows = Judged.of([0, 7], predicted)
    table = measured(rows, np.array([0, 0]), np.array(["x"]), np.ones(2), MEASURES["classification"])
    assert table["accuracy"][0] == 0.5
    assert math.isnan(table["AUC"][0])
    assert table["log loss"][0] > 10.0


def test_contexts_without_rows_have_no_measure():
    table = measured(
        Judged.of([1.0], Predicted(np.array([1.0]))), np.array([0]), LABELS, np.ones(1), MEASURES["regression"]
    )
    assert table["n"].tolist() == [1, 1, 0, 0]
    assert np.isnan(table["RMSE"][2:]).all()


def test_joined_predictions_are_averages_over_the_models_that_saw_a_row_and_know_all_classes():
    one = Predicted(np.array([[0.4, 0.6]]), np.array(["a", "b"]))
    other = Predicted(np.array([[0.2, 0.8], [0.5, 0.5]]), np.array(["b", "c"]))
    joined = Predicted.joined([(np.array([0]), one), (np.array([0, 2]), other)], 3)
    assert joined.classes.tolist() == ["a", "b", "c"]
    np.testing.assert_allclose(joined.values[0], [0.2, 0.4, 0.4])
    assert np.isnan(joined.values[1]).all()
    np.testing.assert_allclose(joined.values[2], [0.0, 0.5, 0.5])


@pytest.mark.parametrize("measure", [one for task in MEASURES.values() for one in task if one.per_row is not None])
def test_a_change_of_the_mean_loss_is_the_change_of_the_measure(measure):
    if measure.name in ("accuracy", "log loss", "Brier score", "calibration"):
        y, one = _classes(2)
        other = _classes(2)[1]
    else:
        y, one, other = RNG.poisson(3.0, N).astype(float), *(Predicted(RNG.gamma(3.0, 1.0, N)) for _ in range(2))
    before, after = (Judged.of(y, predicted) for predicted in (one, other))
    mean_change = np.average(measure.per_row(after) - measure.per_row(before), weights=WEIGHT)
    changed = measure.of(after, WEIGHT) - measure.of(before, WEIGHT)
    assert measure.change(measure.of(before, WEIGHT), mean_change) == pytest.approx(changed)


def test_tasks_are_known_from_models():
    assert task_of(cpo.RobustLogisticRegression()) == "classification"
    assert task_of(cpo.RobustPoissonRegressor()) == "count"
    assert task_of(cpo.RobustQuantileRegressor()) == "quantile"
    assert task_of(cpo.RobustHuberRegressor()) == "huber"
    assert task_of(cpo.RobustLGBMRegressor(loss="poisson")) == "count"
    assert task_of(cpo.ContextRobust(RandomForestClassifier())) == "classification"


def test_a_classifier_without_probabilities_is_judged_by_accuracy_alone():
    X, y = RNG.normal(size=(60, 2)), RNG.integers(0, 2, 60)
    predicted = Predicted.of(LinearSVC().fit(X, y), X)
    assert [one.name for one in measures_of("classification", predicted)] == ["accuracy"]


def test_shares_are_written_in_percent_and_their_changes_in_points():
    accuracy, rmse = MEASURES["classification"][0], MEASURES["regression"][0]
    assert accuracy.text(0.8126) == "81.3%"
    assert accuracy.text(0.0126, "+") == "+1.3"
    assert rmse.text(12345.6) == "12,346"
    assert rmse.text(math.nan) == "–"


def test_a_change_is_written_as_finely_as_what_changes_is_read():
    accuracy, rmse = MEASURES["classification"][0], MEASURES["regression"][0]
    assert accuracy.change_text((0.0126, -0.001, 0.03), 0.8) == "+1.3 [-0.1, +3.0]"
    assert rmse.change_text((-7.54e-05, -0.000218, 6.84e-05), 0.736) == "-0.0001 [-0.0002, +0.0001]"
    assert rmse.change_text((-1e-9, math.nan, math.nan), 157.3) == "+0.0"
    assert rmse.change_text((-1234.5, -2000.0, -3.0), 1e6) == "-1,234.5 [-2,000.0, -3.0]"


@pytest.mark.parametrize("weight", [np.full(N, 3.0), WEIGHT], ids=["alike", "unequal"])
def test_the_area_of_tied_scores_is_that_of_scikit_learn(weight):
    score = RNG.integers(0, 6, N) / 5.0
    came = RNG.random(N) < 0.3 + 0.4 * score
    rows = Judged(came.astype(int), Predicted(np.column_stack([1.0 - score, score]), np.array(["no", "yes"])))
    found = measured(rows, CODES, LABELS, weight, MEASURES["classification"])["AUC"]
    for k, part in _parts():
        assert found[k] == pytest.approx(metrics.roc_auc_score(came[part], score[part], sample_weight=weight[part]))


@pytest.mark.parametrize("task", ["classification", "regression", "count"])
def test_rows_may_be_judged_slice_by_slice(task, monkeypatch):
    y, predicted = _classes(2) if task == "classification" else (RNG.poisson(4.0, N), Predicted(RNG.uniform(2, 6, N)))
    whole = _table(task, y, predicted)
    monkeypatch.setattr(measures_module, "SLICE", 37)
    sliced = _table(task, y, predicted)
    for name in whole:
        if name != "context":
            np.testing.assert_allclose(sliced[name], whole[name], err_msg=name)
