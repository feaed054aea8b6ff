"""Linear estimators and stock levels: fits on odd tables, and a second opinion on every certificate."""

import numpy as np
from hypothesis import strategies as st

import counterpoise as cpo
from tests.fuzz import data
from tests.fuzz.verdicts import outcome
from tests.referees.certificates import Judged, check_certificate, row_losses, worst_mean

ESTIMATORS = {
    "RobustLogisticRegression": ("logistic", cpo.RobustLogisticRegression, {}),
    "RobustLinearRegression": ("squared", cpo.RobustLinearRegression, {}),
    "RobustHuberRegressor": ("huber", cpo.RobustHuberRegressor, {"delta": [1.35, 0.01, 1e-12, 1e12]}),
    "RobustPoissonRegressor": ("poisson", cpo.RobustPoissonRegressor, {}),
    "RobustQuantileRegressor": ("pinball", cpo.RobustQuantileRegressor, {"quantile": [0.5, 0.9, 1e-9, 0.999]}),
    "RobustNewsvendorRegressor": (
        "newsvendor",
        cpo.RobustNewsvendorRegressor,
        {
            "price": [10.0, 1.0, 1e12, 1e-12],
            "cost": [4.0, 0.1, 1e-13, 1e300],
            "salvage": [0.0, 1.0],
            "shortage": [0.0, 2.0],
            "max_stock": [None, 5.0, 1e-3],
            "integer": [False, True],
        },
    ),
}

_ALPHAS = [1e-4, 1e-4, 1.0, 1e-2, 1e-10, 0.0, 1e-300, 1e10, 1e300, 5e-324]

_SWITCHES = {
    "radius": data.often(data.switch_radius, data.wrong_radius),
    "confidence": data.often(data.confidences, data.wrong_confidence),
    "criterion": st.sampled_from([*["excess", "risk"] * 20, "profit"]),
    "alpha": data.often(st.sampled_from(_ALPHAS), st.sampled_from([-1.0, float("nan"), "x", None])),
    "reference": st.sampled_from([*["in-sample"] * 60, "cross-fit", "shrunk", "odd", {0: 0.1, 1: 0.2}]),
    "adjust": st.sampled_from([*[None] * 30, 1.0, 1.0, "standard-error", "standard-error", "odd"]),
    "tol": st.sampled_from([*[1e-6] * 30, 1e-3, 1e-3, 1e-9, 1e-9, 0.0, -1.0]),
    "fit_intercept": st.sampled_from([True, True, False]),
    "draws": st.sampled_from([*[None] * 30, 3.0, 3.0, 1e-300, 1e300, 0.0]),
    "max_iter": st.sampled_from([*[100] * 30, 1, 3, 0]),
}


def case(name):
    """Return the strategy of an estimator's inputs."""
    own = {key: st.sampled_from(values) for key, values in ESTIMATORS[name][2].items()}
    return st.tuples(data.recipes, st.fixed_dictionaries(_SWITCHES), st.fixed_dictionaries(own))


def check(name, drawn):
    """Fit, and judge; return whether there was a result."""
    recipe, common, own = drawn
    kind, estimator, _ = ESTIMATORS[name]
    rows = data.table(recipe, kind)

    def run():
        model = estimator(**common, **own).fit(rows.X, rows.y, rows.contexts, rows.weight)
        answers = [model.predict(rows.X), model.row_losses(rows.X, rows.y)]
        if kind == "logistic":
            answers += [model.predict_proba(rows.X), model.predict_log_proba(rows.X)]
        return model, answers

    found = outcome(run)
    if found is None:
        return False
    (model, answers), warned = found
    _check_answers(kind, answers, len(rows.values))
    _check_fit(kind, model, rows, own, warned)
    return True


def _check_answers(kind, answers, n):
    assert len(answers[0]) == n
    assert kind == "logistic" or np.isfinite(answers[0]).all(), "a prediction is not finite"
    assert not np.isnan(answers[1]).any(), "a loss is NaN"
    if kind == "logistic":
        assert np.isfinite(answers[2]).all(), "a probability is not finite"
        assert np.allclose(answers[2].sum(axis=1), 1.0)
        assert not np.isnan(answers[3]).any()


def _check_fit(kind, model, rows, own, warned):
    certificate, certified = model.certificate_, "NotCertifiedWarning" not in warned
    for name in ("coef_", "intercept_", "context_weights_", "context_risks_", "reference_risks_", "excess_risks_"):
        assert np.isfinite(getattr(model, name)).all(), f"{name} is not finite"
    assert not np.isnan([certificate.lower, certificate.upper, certificate.scale]).any(), "the certificate is NaN"
    assert certificate.lower <= certificate.upper
    assert certificate.scale > 0.0
    if certified:
        assert certificate.relative_gap <= model.get_params()["tol"], "no warning, and no certificate"
    p = model.context_weights_
    assert (p >= 0.0).all()
    assert abs(p.sum() - 1.0) < 1e-9
    kept = rows.row_weight > 0
    codes = np.unique(rows.codes[kept], return_inverse=True)[1]
    counts = np.bincount(codes, rows.row_weight[kept])
    assert len(p) == len(counts)
    p_hat = counts / counts.sum()
    if 0.0 < model.radius_ < np.inf:
        with np.errstate(divide="ignore"):
            divergence = float(p_hat[p_hat > 0] @ np.log2(p_hat[p_hat > 0] / p[p_hat > 0]))
        assert divergence <= model.radius_ + 1e-6 * (1.0 + model.radius_), "the weights are outside the set"
    if kind != "newsvendor":
        check_certificate(_judged(kind, model, rows, own, kept, codes), model, certified, rows.recipe["seed"])


def _judged(kind, model, rows, own, kept, codes):
    y = np.asarray(rows.y)[kept]
    if kind == "logistic":
        y = np.searchsorted(model.classes_, y).astype(float)
        kind = "multinomial" if len(model.classes_) > 2 else kind
    return Judged(kind, rows.values[kept], y, codes, rows.row_weight[kept], own)


STOCK = {
    "price": data.often(st.sampled_from([10.0, 5.0, 12.0, 1e12]), st.sampled_from([1e-12, 1e300, 0.0, float("nan")])),
    "salvage": data.often(st.sampled_from([0.0, 1.0]), st.sampled_from([1e300, -1.0])),
    "shortage": data.often(st.sampled_from([0.0, 2.0]), st.just(1e300)),
    "max_stock": data.often(st.sampled_from([None, 5.0, 1e-3]), st.sampled_from([1e300, 0.0])),
    "integer": st.booleans(),
}
_COSTS = [4.0, 0.1, 9.99, 1e-13, 1e11, 1e300, 0.0, -1.0, float("nan")]


def stock_case():
    """Return the strategy of a stock level's inputs."""
    shared = ("radius", "confidence", "criterion", "reference", "draws")
    common = st.fixed_dictionaries({key: _SWITCHES[key] for key in shared})
    return st.tuples(
        data.recipes,
        common,
        st.fixed_dictionaries(STOCK),
        data.often(st.sampled_from(_COSTS[:4]), st.sampled_from(_COSTS)),
        st.booleans(),
    )


def _stock_rows(drawn):
    recipe, common, own, cost, per_row = drawn
    rows = data.table(recipe, "newsvendor")
    rng = np.random.default_rng(recipe["seed"])
    paid = np.full(len(rows.y), cost) * rng.uniform(0.5, 1.5, len(rows.y)) if per_row else cost
    return rows, common, own, paid


def check_stock(drawn):
    """Find a level, and judge it."""
    rows, common, own, cost = _stock_rows(drawn)
    found = outcome(lambda: cpo.RobustNewsvendor(**own, **common).fit(cost, rows.y, rows.contexts, rows.weight))
    if found is None:
        return False
    model, _ = found
    certificate = model.certificate_
    assert np.isfinite(model.stock_level_)
    assert 0.0 <= model.stock_level_ <= (own["max_stock"] or np.inf)
    assert np.isfinite(model.context_risks_).all()
    assert certificate.lower <= certificate.upper
    assert np.isfinite([certificate.lower, certificate.upper]).all()
    kept = rows.row_weight > 0
    codes = np.unique(rows.codes[kept], return_inverse=True)[1]
    counts = np.bincount(codes, rows.row_weight[kept])
    p_hat = counts / counts.sum()
    demand = np.asarray(rows.y, float)
    y = np.column_stack([np.broadcast_to(cost, demand.shape), demand])[kept].astype(np.longdouble)
    weight = rows.row_weight[kept].astype(np.longdouble)
    references = model.reference_risks_ if common["criterion"] == "excess" else np.zeros(len(p_hat))

    def objective(level):
        losses = row_losses("newsvendor", np.full(len(y), level, np.longdouble), y, own)
        size = np.abs(y[:, 0] * level) + own["price"] * np.minimum(level, y[:, 1]) + own["shortage"] * y[:, 1]
        # Slopes on both sides of a kink are known up to the rounding of the larger one.
        size = size + 1e-4 * (own["price"] + own["shortage"] + own["salvage"]) * level
        means, sizes = (
            np.array([(weight[codes == c] @ v[codes == c]) / weight[codes == c].sum() for c in range(len(counts))])
            for v in (losses, size)
        )
        return worst_mean(p_hat, model.radius_, means - references), float(sizes.max())

    value, size = objective(model.stock_level_)
    slack = 1e-11 * size + 1e-9 * certificate.scale + 1e-290
    assert not abs(value - certificate.upper) > slack + 1e-5 * certificate.scale, "upper is not the objective"
    for level in (0.0, *demand[:4], 0.5 * model.stock_level_, model.stock_level_ + 1.0):
        level = np.floor(level) if own["integer"] else level
        if 0.0 <= level <= (own["max_stock"] or np.inf):
            other, size = objective(level)
            assert not other < certificate.lower - (1e-11 * size + 1e-8 * certificate.scale), "lower is above a value"
    return True


def check_plan(drawn):
    """Plan, and look for numbers that are none."""
    rows, common, own, cost = _stock_rows(drawn)
    common = {key: value for key, value in common.items() if key != "reference"}
    found = outcome(lambda: str(cpo.plan_stock(rows.y, cost=cost, contexts=rows.contexts, min_rows=1, **own, **common)))
    if found is None:
        return False
    assert "nan" not in found[0].lower().split()
    return True
