"""Learners of any kind, paths, comparisons and metrics."""

import numpy as np
from hypothesis import strategies as st
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.linear_model import Ridge
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsRegressor
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

import counterpoise as cpo
from counterpoise import metrics
from counterpoise.contexts import encode
from tests.fuzz import data
from tests.fuzz.linear import ESTIMATORS
from tests.fuzz.verdicts import outcome

LEARNERS = {
    "tree": ("logistic", lambda: DecisionTreeClassifier(max_depth=2, random_state=0)),
    "bayes": ("logistic", GaussianNB),
    "prior": ("logistic", lambda: DummyClassifier(strategy="prior")),
    "ridge": ("squared", Ridge),
    "mean": ("squared", DummyRegressor),
    "tree of numbers": ("squared", lambda: DecisionTreeRegressor(max_depth=2, random_state=0)),
    "takes no weights": ("squared", KNeighborsRegressor),
}
_SCORES = [*["excess", "risk"] * 6, "odd"]
_radius = data.often(data.switch_radius, data.wrong_radius)

any_learner_case = st.tuples(
    data.recipes,
    st.sampled_from(sorted(LEARNERS)),
    st.fixed_dictionaries(
        {
            "radius": _radius,
            "criterion": st.sampled_from(_SCORES),
            "cv": st.sampled_from([2, 2, 3, 1, 100]),
            "max_iter": st.sampled_from([3, 3, 1, 0]),
            "reference": st.sampled_from(["cross-fit", "cross-fit", "in-sample", "shrunk", {0: 0.1}]),
            "adjust": st.sampled_from([None, None, None, 1.0, "standard-error"]),
        }
    ),
)


def check_any_learner(drawn):
    """Risks, weights and bounds are numbers."""
    recipe, name, switches = drawn
    kind, learner = LEARNERS[name]
    rows = data.table(recipe, kind)

    def run():
        model = cpo.ContextRobust(learner(), **switches).fit(rows.X, rows.y, rows.contexts, rows.weight)
        return model, model.predict(rows.X)

    return _check_game(outcome(run, foreign=True))


def _check_game(found):
    if found is None:
        return False
    model, predicted = found[0]
    assert len(predicted) > 0
    for name in ("context_weights_", "context_risks_", "reference_risks_", "excess_risks_"):
        # Boosting in a set of one distribution holds no rows out, and then knows no risks.
        known = len(model.history_) > 0 or name == "context_weights_"
        assert np.isfinite(getattr(model, name)).all() or not known, f"{name} is not finite"
    assert abs(model.context_weights_.sum() - 1.0) < 1e-9
    if hasattr(model, "certificate_"):
        assert model.certificate_.lower <= model.certificate_.upper
    return True


BOOSTERS = {
    "RobustXGBClassifier": "logistic",
    "RobustXGBRegressor": "squared",
    "RobustLGBMClassifier": "logistic",
    "RobustLGBMRegressor": "squared",
}
booster_case = st.tuples(data.recipes, st.sampled_from(sorted(BOOSTERS)), _radius, st.sampled_from(_SCORES))


def check_booster(drawn):
    """The same for boosting."""
    recipe, name, radius, criterion = drawn
    rows = data.table(recipe, BOOSTERS[name])

    def run():
        estimator = getattr(cpo, name)(radius=radius, criterion=criterion, n_estimators=3, n_jobs=1, random_state=0)
        model = estimator.fit(rows.X, rows.y, contexts=rows.contexts, sample_weight=rows.weight)
        return model, model.predict(rows.X)

    return _check_game(outcome(run))


path_case = st.tuples(
    data.recipes,
    st.sampled_from(sorted(ESTIMATORS)),
    st.sampled_from(["excess", "risk"]),
    data.often(st.one_of(st.none(), st.lists(data.radii, min_size=1, max_size=3)), st.just("odd")),
    st.sampled_from([*[3, 2] * 10, 1, 0, -1]),
)


def check_path(drawn):
    """Every level has numbers, and bounds in order."""
    recipe, name, criterion, radii, levels = drawn
    kind, estimator, own = ESTIMATORS[name]
    rows = data.table(recipe, kind)
    model = estimator(criterion=criterion, **{key: values[0] for key, values in own.items()})

    def run():
        return cpo.confidence_path(
            model, rows.X, rows.y, rows.contexts, radii=radii, levels=levels, sample_weight=rows.weight
        )

    found = outcome(run)
    if found is None:
        return False
    path = found[0]
    for column in ("nominal_risk", "worst_risk", "objective"):
        assert np.isfinite(path[column]).all(), f"{column} is not finite"
    assert not np.isnan(path["gap"]).any()
    assert np.isfinite(path.context_weights).all()
    assert (np.diff(path["radius"][np.isfinite(path["radius"])]) >= 0.0).all()
    return True


compare_case = st.tuples(data.recipes, st.sampled_from(["logistic", "squared"]), st.sampled_from([2, 2, 3, 1, 50]))


def check_compare(drawn):
    """The table holds numbers, and the verdict is words."""
    recipe, kind, cv = drawn
    rows = data.table({**recipe, "n": recipe["n"] + 10}, kind)
    found = outcome(
        lambda: cpo.compare(rows.X, rows.y, rows.contexts, cv=cv, sample_weight=rows.weight),
        foreign=True,
    )
    if found is None:
        return False
    comparison = found[0]
    # Of contexts with one row each nothing can be said, which is NaN; of all others something.
    several = np.unique(encode(rows.contexts).codes, return_counts=True)[1].max() > 1
    assert (np.isfinite(comparison.summary["worst_excess"]) == several).all()
    assert np.isfinite(comparison.summary["nominal_risk"]).all()
    assert "nan" not in comparison.verdict.lower().split()
    assert len(repr(comparison)) > 0
    return True


evaluate_case = st.tuples(
    data.recipes,
    data.recipes,
    st.sampled_from(["robust", *sorted(LEARNERS)]),
    st.sampled_from(["as they are", "as they are", "none", "new", "some missing"]),
)


def check_evaluate(drawn):
    """Measures, shares and parts of the change are numbers, and the verdict is words."""
    first, second, name, targets = drawn
    kind, learner = LEARNERS.get(name, ("squared", None))
    # The fit is sound; what is judged need not be.
    plain = {"n": first["n"] + 8, "form": "plain", "features": "plain", "weights": "none", "target": 0}
    rows = data.table({**first, **plain}, kind)
    later = data.table({**second, "d": first["d"], "form": second["form"].replace("frame", "plain")}, kind)

    def run():
        if learner is None:
            model = cpo.RobustLinearRegression(radius=0.1).fit(rows.X, rows.y, rows.contexts)
        else:
            model = learner().fit(rows.X, rows.y)
        y = np.asarray(later.y)
        if targets != "as they are":
            y = y.astype(object)
            y[:: 1 if targets == "none" else 3] = None if targets != "new" else "new"
        return cpo.evaluate(model, later.X, y, later.contexts, sample_weight=later.weight)

    found = outcome(run, foreign=True)
    if found is None:
        return False
    evaluation = found[0]
    leading = evaluation.measures[evaluation.measure.name]
    assert np.isfinite(leading).all()
    for name in ("low", "high"):
        ends = evaluation.leading[name]
        assert (np.isnan(ends) | np.isfinite(ends)).all()
    if evaluation.mix is not None:
        assert abs(evaluation.mix.shares["now"].sum() - 1.0) < 1e-9
    if evaluation.drift is not None:
        parts = evaluation.drift.table
        whole = np.abs(parts["before"]) + np.abs(parts["after"])
        off = parts["mix"] + parts["within"] + parts["new"] - parts["change"]
        assert (np.abs(off) <= 1e-9 * (whole + np.abs(parts["mix"]) + np.abs(parts["within"]))).all()
    assert "nan" not in evaluation.verdict.lower().split()
    assert len(repr(evaluation)) > 0
    return True


class Oracle:
    """A model that predicts what it is told."""

    def __init__(self, answers):
        self.answers = answers

    def fit(self, X, y):
        return self

    def predict(self, X):
        return self.answers


metric_case = st.tuples(
    data.recipes,
    st.sampled_from([*["half_squared_error", "squared_error", "absolute_error", "zero_one"] * 8, "log_loss", "odd"]),
    data.often(st.lists(data.number, min_size=1, max_size=6), st.lists(data.any_number, min_size=1, max_size=6)),
    st.sampled_from([*[0.95, 0.5] * 16, 0.0, 1.0, float("nan")]),
    st.sampled_from([*[None] * 16, *[{0: 0.0, 1: 0.1}] * 8, {"x": 1.0}, {0: float("nan")}]),
)


def check_metrics(drawn):
    """Risks are the means of losses, and intervals hold them."""
    recipe, loss, answers, confidence, reference = drawn
    rows = data.table({**recipe, "form": "plain"}, "squared")
    model = Oracle(np.resize(np.array(answers), len(rows.y)))

    def run():
        table = metrics.by_context(
            model,
            rows.X,
            rows.y,
            rows.contexts,
            loss=loss,
            sample_weight=rows.weight,
            confidence=confidence,
            reference=reference,
        )
        return table, metrics.WorstContextScorer(loss)(model, rows.X, rows.y, rows.contexts)

    found = outcome(run)
    if found is None:
        return False
    table, worst = found[0]
    assert not np.isnan(table["risk"]).any(), "a risk is NaN"
    assert not np.isnan(worst)
    low, high = table["risk_low"], table["risk_high"]
    known = ~np.isnan(low)
    assert (low[known] <= table["risk"][known]).all()
    assert (table["risk"][known] <= high[known]).all()
    return True
