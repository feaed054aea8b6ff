"""What fuzzing found, one input each: mended, and kept so."""

import io

import numpy as np
import pyarrow as pa
import pytest

import counterpoise as cpo
from counterpoise.exceptions import InvalidInputError, NotCertifiedWarning
from counterpoise.metrics import by_context
from counterpoise.tables.reading import open_table, read_table
from tests.fuzz import linear, rest, sets
from tests.fuzz.rest import Oracle
from tests.referees.worst_case import worst_case


@pytest.mark.parametrize(
    "action",
    [
        lambda: cpo.confidence_radius([10**400, 1]),
        lambda: cpo.confidence_radius([1, 2], 10**400),
        lambda: cpo.confidence_radius([1, 2], draws=10**400),
        lambda: cpo.KLBall([0.5, 0.5], 10**400),
        lambda: cpo.KLBall([10**400, 0.5], 1.0),
        lambda: cpo.KLBall([0.5, 0.5], 1.0).worst_case([10**400, 1]),
        lambda: cpo.minimize(lambda t: t**2, 10**400, counts=[1]),
        lambda: cpo.RobustLinearRegression().fit([[1.0], [2.0]], [1.0, 2.0], [0, 1], sample_weight=[10**400, 1]),
    ],
)
def test_numbers_too_large_for_a_float_are_refused(action):
    with pytest.raises(InvalidInputError):
        action()


def test_counts_that_add_up_to_infinity_are_refused():
    with pytest.raises(InvalidInputError, match="add up"):
        cpo.confidence_radius([1.7e308, 1.7e308])


def test_a_narrow_radius_is_a_number():
    rng = np.random.default_rng(0)
    X, contexts = rng.normal(size=(80, 1)), np.repeat([0, 1], 40)
    wide = cpo.RobustLinearRegression(radius=0.5).fit(X, X[:, 0], contexts)
    narrow = cpo.RobustLinearRegression(radius=np.float32(0.5)).fit(X, X[:, 0], contexts)
    assert narrow.radius_ == wide.radius_


@pytest.mark.parametrize(
    ("p_hat", "radius", "scores"),
    [
        ([1.0, 5e-324], 0.5, [1.0, 5e-324]),
        ([0.5, 5e-284, 0.5], 0.5, [0.0, 1.0, 0.0]),
        ([0.2857142857142857, 0.7142857142857143], 5e-324, [5e-324, 0.0]),
        ([1.0, 1e-17], 1e300, [0.0, 1.0]),
        ([0.25, 0.1, 0.3, 0.35, 7e-250], 3.08, [-5.4, -5.5e204, 1e-17, 5e-324, 0.07]),
        ([1.0692706382673456e-148, 1.0], 1000.0, [1e-08, 5e-324]),
    ],
)
def test_extreme_sets_have_a_member_that_is_worst(p_hat, radius, scores):
    ball = cpo.KLBall(p_hat, radius)
    for worst in (ball.worst_case(scores), ball.worst_case([scores]).distribution[0]):
        assert ball.contains(getattr(worst, "distribution", worst))
    expected = max(scores) if radius > 1e5 else float(worst_case(ball.p_hat, radius, scores)[0])
    assert ball.worst_case(scores).value == pytest.approx(expected, rel=1e-9)


def test_infinite_scores_are_refused_at_radius_zero():
    with pytest.raises(InvalidInputError, match="finite"):
        cpo.KLBall([0.5, 0.5], 0.0).worst_case([-np.inf, np.inf])


def test_no_bound_is_not_a_number():
    with pytest.warns(NotCertifiedWarning):
        solution = cpo.minimize(
            lambda t: np.array([t.sum() + 0.006]),
            [1e8, 1e8],
            counts=[24],
            bounds=[(0.0, 1e-300)] * 2,
            reference_risks=0.0,
        )
    assert not np.isnan(solution.certificate.lower)


def test_a_kkt_residual_that_overflows_ends_a_solver_not_the_program():
    y = np.array([1e200, -2e200, 3e200, 1e200, 5e200, -1e200])
    with pytest.raises(InvalidInputError, match="finite"):
        cpo.RobustLinearRegression(reference=[0.0, 0.0], radius=0.5).fit(np.arange(6.0)[:, None], y, [0, 0, 0, 1, 1, 1])


def test_amounts_too_large_to_add_up_are_named_by_their_row():
    with pytest.raises(InvalidInputError, match="row 1: a cost of 1e\\+300"):
        cpo.RobustNewsvendor(10.0).fit([1.0, 1e300], [3.0, 1e8], contexts=[0, 1])


@pytest.mark.parametrize("name", ["X", "y", "sample_weight"])
def test_boosting_names_what_its_narrow_floats_cannot_hold(name):
    rng = np.random.default_rng(0)
    rows = {"X": rng.normal(size=(20, 1)), "y": rng.normal(size=20), "sample_weight": np.ones(20)}
    rows[name] = np.abs(rows[name]) * 1e100
    with pytest.raises(InvalidInputError, match=f"{name} is as large as"):
        cpo.RobustXGBRegressor(n_estimators=2).fit(contexts=np.repeat([0, 1], 10), **rows)


def test_losses_too_large_to_square_are_refused_and_weights_only_count_relatively():
    contexts, y = np.repeat([0, 1], 3), np.arange(6.0)
    with pytest.raises(InvalidInputError, match="loss of row 0"):
        by_context(Oracle(np.full(6, 1e160)), y[:, None], y, contexts, loss="absolute_error")
    plain = by_context(Oracle(y + 1.0), y[:, None], y, contexts, loss="absolute_error")
    heavy = by_context(Oracle(y + 1.0), y[:, None], y, contexts, loss="absolute_error", sample_weight=np.full(6, 1e300))
    assert heavy["risk"] == pytest.approx(plain["risk"])


@pytest.mark.parametrize("seconds", [2**62, 2**40, -(2**40)])
def test_a_date_beyond_the_calendar_is_refused(tmp_path, seconds):
    table = pa.table({"c": pa.array([seconds, 1], pa.timestamp("s"))})
    buffer = io.BytesIO()
    with pa.ipc.new_stream(buffer, table.schema) as stream:
        stream.write_table(table)
    path = tmp_path / "dates.arrow"
    path.write_bytes(buffer.getvalue())
    with pytest.raises(InvalidInputError):
        read_table(path).labels("c")


@pytest.mark.filterwarnings("ignore::counterpoise.exceptions.CounterpoiseWarning")
def test_the_smallest_radius_is_no_division_by_zero():
    rng = np.random.default_rng(17)
    model = cpo.RobustLogisticRegression(radius=5e-324, alpha=1e-300, criterion="risk")
    model.fit(rng.normal(size=(10, 3)), np.arange(10) % 3, contexts=np.arange(10) % 4)
    assert np.isfinite(model.coef_).all()


def fit_of(name, switches, **recipe):
    """Judge one fit of the fuzzer's own."""
    common = {"confidence": 0.99, "draws": None, "reference": "in-sample", "criterion": "excess", "fit_intercept": True}
    common |= {"tol": 1e-6, "max_iter": 100, "radius": 0.05, "alpha": 1e-4}
    plain = {"weights": "none", "form": "plain", "features": "plain", "contexts": "random", "target": 0, "d": 1}
    own = {key: switches.pop(key) for key in ("quantile", "delta") if key in switches}
    return linear.check(name, ({**plain, **recipe}, {**common, **switches}, own))


def test_a_shift_common_to_all_classes_costs_no_digits():
    switches = {"radius": "agrawal", "alpha": 1.0}
    assert fit_of("RobustLogisticRegression", switches, n=9, n_contexts=3, seed=1746690, target=1, weights="uneven")


def test_an_extreme_quantile_is_judged_by_the_slope_of_its_other_side():
    switches = {"quantile": 1e-9, "alpha": 0.0, "fit_intercept": False, "tol": 0.0}
    assert fit_of("RobustQuantileRegressor", switches, n=9, n_contexts=1, seed=1222, target=2, form="sparse")


def test_columns_far_from_zero_are_certified_in_no_time():
    switches = {"radius": "types"}
    table = {"n": 26, "d": 2, "n_contexts": 2, "seed": 2**32 - 2, "target": 3, "features": "far from zero"}
    assert fit_of("RobustLogisticRegression", switches, **table)


def test_parabolas_too_large_for_floats_end_a_path_not_the_program():
    recipe = {"n": 29, "form": "plain", "target": 7, "features": "far from zero", "contexts": "random"}
    recipe |= {"weights": "none", "seed": 972, "n_contexts": 5, "d": 4}
    rest.check_path((recipe, "RobustPoissonRegressor", "excess", [1e-6, 1e300], 3))


def test_scores_too_large_to_fit_a_parabola_to_are_played_without_one():
    recipe = {"target": 4, "d": 3, "n": 11, "weights": "none", "seed": 3, "form": "strided", "features": "plain"}
    recipe |= {"n_contexts": 4, "contexts": "random"}
    switches = {"radius": 0.001, "criterion": "risk", "cv": 2, "max_iter": 3, "reference": "cross-fit"}
    assert rest.check_any_learner((recipe, "ridge", switches))


@pytest.mark.parametrize("case", ["concave", "quartic", "quadratic"])
def test_functions_that_overflow_are_minimised_or_refused(case):
    own = {
        "concave": {"scale": 1e300, "radius": 1e-6, "counts": [23, 28]},
        "quartic": {
            "bounds": (0.0, None),
            "counts": [4],
            "derivatives": 1,
            "start": 1e8,
            "radius": 1e-300,
            "seed": 499,
        },
        "quadratic": {
            "scale": 1e150,
            "counts": [17, 14, 11],
            "d": 2,
            "bounds": (-1.0, 1.0),
            "start": np.inf,
            "seed": 7445,
        },
    }
    plain = {"radius": 3.1, "tol": 1e-6, "d": 3, "derivatives": 0, "start": 0.0, "shape": case, "scale": 1.0}
    plain |= {
        "seed": {"concave": 0, "quartic": 499, "quadratic": 7445}[case],
        "reference": None,
        "convex": None,
        "confidence": 0.99,
        "bounds": None,
    }
    sets.check_minimize({**plain, **own[case]})


def test_weights_of_a_context_that_add_up_to_more_than_a_float():
    recipe = {"contexts": "random", "features": "plain", "d": 2, "weights": "huge", "n_contexts": 4, "seed": 6507}
    recipe |= {"n": 10, "form": "plain", "target": 0}
    switches = {"draws": None, "adjust": None, "max_iter": 100, "tol": 1e-6, "radius": "types", "fit_intercept": True}
    switches |= {"confidence": 0.097, "criterion": "excess", "reference": "in-sample", "alpha": 1e300}
    linear.check("RobustLogisticRegression", (recipe, switches, {}))


def test_of_contexts_of_one_row_each_nothing_is_said():
    recipe = {"seed": 2, "d": 2, "contexts": "one row each", "weights": "none", "target": 1, "features": "plain"}
    recipe |= {"n_contexts": 2, "form": "plain", "n": 2}
    assert rest.check_compare((recipe, "squared", 2))


def test_losses_next_to_nothing_are_judged_in_units_that_do_not_overflow():
    recipe = {"n_contexts": 3, "features": "plain", "n": 1, "target": 4, "seed": 1, "weights": "huge", "d": 4}
    recipe |= {"contexts": "random", "form": "plain"}
    rest.check_metrics((recipe, "half_squared_error", [0.0], 0.95, None))


def test_a_typed_file_without_columns_is_refused(tmp_path):
    path = tmp_path / "table.arrow"
    table = pa.table({"c": [1.0]}).select([])
    with pa.ipc.new_file(path, table.schema) as writer:
        writer.write_table(table)
    with pytest.raises(InvalidInputError, match=r"table\.arrow"):
        read_table(path)


def test_numbers_too_large_for_a_float_are_refused_by_losses_for_torch():
    torch_losses = pytest.importorskip("counterpoise.torch")
    for counts, radius in (([10**400, 1], 0.1), ([1, 1], 10**400)):
        with pytest.raises(InvalidInputError):
            torch_losses.RobustLoss(counts, radius=radius)
    assert torch_losses.RobustLoss([1, 1], radius=np.float32(0.5)).radius == 0.5


@pytest.mark.parametrize("kind", [pa.ipc.new_file, pa.ipc.new_stream], ids=["file", "stream"])
def test_places_beyond_the_end_of_a_file_are_not_read(tmp_path, kind):
    table, buffer = pa.table({"c": ["aa", "bb", "cc"], "y": [1.0, 2.0, 3.0]}), io.BytesIO()
    with kind(buffer, table.schema) as writer:
        writer.write_table(table)
    ends, astray = (np.array(values, np.int32).tobytes() for values in ([0, 2, 4, 6], [0, 2, 2**30, 2**30 + 2]))
    content = buffer.getvalue()
    assert ends in content
    path = tmp_path / "table.arrow"
    path.write_bytes(content.replace(ends, astray))
    with pytest.raises(InvalidInputError, match=r"table\.arrow"):
        read_table(path).labels("c")
    with pytest.raises(InvalidInputError, match=r"table\.arrow"):
        list(open_table(path).chunks(1e6))
