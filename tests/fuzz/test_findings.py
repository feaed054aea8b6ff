"""What fuzzing found, one input each: mended, and kept so."""

import io

import numpy as np
import pyarrow as pa
import pytest

import counterpoise as cpo
from counterpoise.exceptions import InvalidInputError, NotCertifiedWarning
from counterpoise.metrics import by_context
from counterpoise.reading import read_table
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
    model = cpo.RobustLogisticRegression(radius=5e-324, alpha=1e-300, score="risk")
    model.fit(rng.normal(size=(10, 3)), np.arange(10) % 3, contexts=np.arange(10) % 4)
    assert np.isfinite(model.coef_).all()
