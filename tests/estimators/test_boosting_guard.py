"""What the boosters return where robustness buys nothing, and where it does."""

import numpy as np
import pandas as pd
import pytest

import counterpoise as cpo
from counterpoise.estimators.boosting_losses import LogLoss, NumberLoss
from counterpoise.estimators.boosting_rounds import Rows, Split, dealt
from counterpoise.exceptions import InvalidInputError
from counterpoise.sets import KLBall

pytest.importorskip("xgboost")
pytest.importorskip("lightgbm")

CLASSES = [cpo.RobustXGBClassifier, cpo.RobustXGBRegressor, cpo.RobustLGBMClassifier, cpo.RobustLGBMRegressor]
every_class = pytest.mark.parametrize("kind", CLASSES)
both_regressors = pytest.mark.parametrize("kind", CLASSES[1::2])
QUICK = {"n_estimators": 20, "learning_rate": 0.3, "n_jobs": 1, "confidence": 1.0, "cv": 2}


def data(kind, flipped, n=900, seed=0):
    """Return rows of three contexts, in the smallest of which the effect may have the opposite sign."""
    rng = np.random.default_rng(seed)
    codes = np.repeat([0, 1, 2], (n - n // 3 - n // 6, n // 3, n // 6))
    X = rng.normal(size=(n, 3))
    # What the context is can be seen, but not by a tree of one split.
    X[:, 2] += 2.0 * (codes == 2)
    f = 2.0 * X[:, 0] * np.where((codes == 2) & flipped, -1.0, 1.0)
    if "Classifier" in kind.__name__:
        return X, (f + rng.logistic(size=n) > 0).astype(int), codes
    return X, f + 0.5 * rng.normal(size=n), codes


def trees(kind, **options):
    return kind(**(QUICK | {"params": {"max_depth": 2}} | options))


def outputs(model, X):
    return model.predict_proba(X) if hasattr(model, "predict_proba") else model.predict(X)


@every_class
def test_where_contexts_are_alike_the_answer_is_the_plain_fit_to_all_rows(kind):
    X, y, codes = data(kind, flipped=False)
    model = trees(kind, patience=None).fit(X, y, codes)
    assert model.chosen_ in ("erm", "erm-stopped")
    plain = trees(kind, radius=0.0, n_estimators=model.best_iteration_).fit(X, y, codes)
    np.testing.assert_array_equal(outputs(model, X), outputs(plain, X))
    np.testing.assert_allclose(model.context_weights_, np.bincount(codes) / len(codes))
    assert not model.headroom_.something


@every_class
def test_planted_shift_keeps_the_robust_booster(kind):
    X, y, codes = data(kind, flipped=True, n=1800)
    model = trees(kind).fit(X, y, codes)
    assert model.headroom_.something
    assert model.chosen_ == "robust"
    assert model.candidates_["candidate"].tolist()[::2][0] == "erm"
    np.testing.assert_array_equal(outputs(model, X), outputs(trees(kind, guard=False).fit(X, y, codes), X))
    rows = {row["candidate"]: row for row in model.candidates_.rows()}
    assert rows["robust"]["change"] + rows["robust"]["error"] < 0.0


@every_class
def test_plain_booster_stopped_early_is_kept_where_the_number_of_rounds_is_all_that_matters(kind):
    rng = np.random.default_rng(0)
    X, codes = rng.normal(size=(400, 5)), np.arange(400) % 2
    y = rng.integers(0, 2, 400) if "Classifier" in kind.__name__ else rng.normal(size=400)
    deep = {"max_depth": 6} | ({} if "XGB" in kind.__name__ else {"min_data_in_leaf": 2})
    model = trees(kind, params=deep, criterion="risk").fit(X, y, codes)
    assert model.chosen_ == "erm-stopped"
    plain = trees(kind, params=deep, radius=0.0, n_estimators=model.best_iteration_).fit(X, y, codes)
    np.testing.assert_array_equal(outputs(model, X), outputs(plain, X))
    assert model.best_iteration_ < 20
    assert model.headroom_ is None


@both_regressors
def test_headroom_ends_the_search_and_says_so(kind, capsys):
    X, y, codes = data(kind, flipped=False)
    stopped = trees(kind, headroom="test", verbose=1).fit(X, y, codes)
    words = capsys.readouterr().err
    assert "No weights are looked for." in words
    assert "round" not in words
    assert stopped.chosen_ in ("erm", "erm-stopped")
    assert "robust" not in stopped.candidates_["candidate"]
    unguarded = trees(kind, headroom="test", guard=False).fit(X, y, codes)
    assert (unguarded.chosen_, unguarded.candidates_, unguarded.best_iteration_) == ("erm", None, 20)
    stopped = unguarded
    ball = KLBall(np.bincount(codes) / len(codes), np.inf)
    assert stopped.history_[-1] == pytest.approx(ball.worst_case(stopped.excess_risks_).value)
    played = trees(kind, headroom=None, verbose=1).fit(X, y, codes)
    assert played.candidates_ is not None
    assert played.headroom_.p_value == stopped.headroom_.p_value
    assert "is kept" in capsys.readouterr().err


@both_regressors
@pytest.mark.parametrize(
    "options", [{"criterion": "risk"}, {"reference": {0: 0.1, 1: 0.1, 2: 0.1}}, {"reference": "null"}], ids=str
)
def test_headroom_is_not_known_without_models_of_the_contexts_own(kind, options):
    X, y, codes = data(kind, flipped=False, n=300)
    model = trees(kind, n_estimators=4, **options).fit(X, y, codes)
    assert model.headroom_ is None
    assert model.candidates_["candidate"].tolist()[0] == "erm"


@every_class
def test_plain_fit_holds_no_rows_out_and_knows_no_risks(kind, monkeypatch):
    X, y, codes = data(kind, flipped=False, n=300)
    monkeypatch.setattr(Split, "in_turn", None)
    model = trees(kind, radius=0.0, confidence=0.9).fit(X, y, codes)
    assert (model.chosen_, model.best_iteration_, model.n_iter_) == ("erm", 20, 20)
    assert len(model.history_) == 0
    assert model.candidates_ is model.headroom_ is None
    for risks in (model.context_risks_, model.reference_risks_, model.excess_risks_):
        assert np.isnan(risks).all()
    one = trees(kind).fit(X, y, np.zeros(len(y), dtype=int))
    assert one.chosen_ == "erm"


@both_regressors
def test_plain_fit_may_stop_early(kind):
    X, y, codes = data(kind, flipped=False, n=300)
    model = trees(kind, radius=0.0, n_estimators=300, patience=3).fit(X, y, codes)
    assert model.chosen_ == "erm-stopped"
    assert model.best_iteration_ == model.history_.argmin() + 1 <= model.n_iter_ < 300
    assert np.isfinite(model.context_risks_).all()
    robust = trees(kind, n_estimators=300, patience=3, headroom=None).fit(X, y, codes)
    assert set(robust.candidates_["candidate"]) == {"erm-stopped", "robust"}
    assert robust.best_iteration_ < 300


@pytest.mark.parametrize("kind", CLASSES[::2])
def test_three_classes_are_guarded_like_two(kind):
    X, y, codes = data(kind, flipped=True, n=1500)
    labels = np.where(X[:, 1] > 1.0, "other", np.where(y == 1, "yes", "no"))
    model = trees(kind).fit(X, labels, codes)
    assert model.chosen_ == "robust"
    assert model.predict_proba(X).shape == (1500, 3)
    alike = trees(kind, headroom="test").fit(X, labels, np.arange(1500) % 3)
    plain = trees(kind, radius=0.0, n_estimators=alike.best_iteration_).fit(X, labels, codes)
    np.testing.assert_array_equal(alike.predict_proba(X), plain.predict_proba(X))


# --- references -----------------------------------------------------------------------------------------------


@every_class
@pytest.mark.parametrize("cv", [None, 2])
def test_references_are_risks_of_named_models_on_held_out_rows(kind, cv):
    X, y, codes = data(kind, flipped=True, n=300)
    options = {"cv": cv, "n_estimators": 5, "guard": False, "headroom": None}
    found = {name: trees(kind, reference=name, **options).fit(X, y, codes) for name in ("cross-fit", "pooled", "null")}
    assert (found["cross-fit"].reference_risks_ <= found["pooled"].reference_risks_).all()
    classes = "Classifier" in kind.__name__
    loss = LogLoss(2) if classes else NumberLoss.named("squared_error")
    rows = Rows(X, y.astype(float), np.ones(len(y)), codes)
    split = Split.of(rows, 0.2) if cv is None else Split.in_turn(rows, dealt(rows, cv), loss)
    constant = loss.constant(split.train.y, split.train.weight)
    losses = loss.rows(split.held.y, np.broadcast_to(constant, (len(split.held.y), *constant.shape)), 1e-9)
    expected = np.bincount(split.held.codes, losses) / np.bincount(split.held.codes)
    np.testing.assert_allclose(found["null"].reference_risks_, expected)
    # A constant explains nothing, so what trees gain on it is negative excess, at least where most rows are.
    assert found["null"].excess_risks_[0] < 0.0


# --- rows held out in turn ------------------------------------------------------------------------------------


@every_class
def test_every_row_is_judged_once_by_a_booster_that_has_not_seen_it(kind):
    rng = np.random.default_rng(0)
    X, codes = rng.normal(size=(200, 4)), np.arange(200) % 2
    y = rng.integers(0, 2, 200) if "Classifier" in kind.__name__ else rng.normal(size=200)
    deep = {"max_depth": 8} | ({} if "XGB" in kind.__name__ else {"min_data_in_leaf": 2})
    options = {"reference": "pooled", "n_estimators": 30, "guard": False, "params": deep}
    model = trees(kind, **options).fit(X, y, codes)
    memorised = trees(kind, radius=0.0, n_estimators=30, params=deep).fit(X, y, codes).row_losses(X, y)
    # Noise can only be memorised.
    assert memorised.mean() < 0.3 * model.reference_risks_.min()


@both_regressors
def test_folds_may_be_given_as_splits(kind):
    X, y, codes = data(kind, flipped=True, n=240)
    folds = dealt(Rows(X, y, np.ones(240), codes), 3)
    splits = [(np.flatnonzero(folds != k), np.flatnonzero(folds == k)) for k in range(3)]
    options = {"guard": False, "headroom": None}
    one, other = (trees(kind, cv=cv, **options).fit(X, y, codes) for cv in (3, splits))
    np.testing.assert_array_equal(one.context_risks_, other.context_risks_)
    np.testing.assert_array_equal(one.predict(X), other.predict(X))
    weight = np.where(np.arange(240) % 5 == 0, 0.0, 1.0)
    assert np.isfinite(trees(kind, cv=splits, **options).fit(X, y, codes, weight).context_risks_).all()
    with pytest.raises(InvalidInputError, match="in no test fold"):
        trees(kind, cv=splits[:2], **options).fit(X, y, codes)


@both_regressors
def test_game_over_folds_shares_the_weights_and_replays_them_on_all_rows(kind):
    X, y, codes = data(kind, flipped=True, n=300)
    model = trees(kind, guard=False, headroom=None, cv=3).fit(X, y, codes)
    assert model.history_.argmin() + 1 == model.best_iteration_ == len(model.context_weights_path_)
    assert model.context_weights_[2] > 2.0 * (codes == 2).mean()


@both_regressors
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cv": 1}, "cv = 1; pass two folds or more, or None"),
        ({"guard": "yes"}, "guard is 'yes'; pass True or False"),
        ({"headroom": "never"}, "headroom is 'never'; pass 'bound', 'test' or None"),
        ({"reference": "in-sample"}, "choose 'cross-fit', 'pooled', 'null'"),
    ],
    ids=str,
)
def test_switches_that_cannot_be_used_are_named(kind, options, message):
    X, y, codes = data(kind, flipped=False, n=60)
    with pytest.raises(InvalidInputError, match=message):
        trees(kind, **options).fit(X, y, codes)


@pytest.mark.parametrize(
    ("model", "params", "words"),
    [
        (cpo.RobustLGBMRegressor(loss="quantile", quantile=0.9), {"alpha": 0.1}, "'alpha', which follows from loss="),
        (cpo.RobustLGBMRegressor(), {"categorical_feature": [0]}, "categories of a data frame"),
        (cpo.RobustXGBRegressor(), {"booster": "gblinear"}, "robust linear model"),
    ],
    ids=["alpha", "categories", "no trees"],
)
def test_what_would_be_ignored_or_mean_something_else_is_refused(model, params, words):
    X = np.arange(40.0)[:, None]
    with pytest.raises(InvalidInputError, match=words):
        model.set_params(params=params).fit(X, X[:, 0], contexts=np.arange(40) % 2)


def test_categories_need_names():
    frame = pd.DataFrame({0: pd.Categorical(["a", "b"] * 20), 1: np.arange(40.0)})
    with pytest.raises(InvalidInputError, match="Name columns by text"):
        cpo.RobustLGBMRegressor().fit(frame, np.arange(40.0), contexts=np.arange(40) % 2)
