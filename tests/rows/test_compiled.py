"""Compiled looks: the same numbers as numpy's, to rounding, and nothing lost where they are missing."""

import importlib.util
import subprocess
import sys
import threading
from pathlib import Path
from types import ModuleType

import mpmath
import numpy as np
import pytest
from scipy import sparse

import counterpoise as cpo
from counterpoise.contexts import encode
from counterpoise.core.problem import LinearProblem
from counterpoise.core.references.optimism import measure_optimism
from counterpoise.losses import Logistic, Squared
from counterpoise.rows import MemoryRows, compiled
from counterpoise.rows.layouts import Coefficients, Grouped, Padded
from counterpoise.rows.memory import MemoryPart
from tests.problems import make
from tests.safety.processes import environment

is_there = pytest.mark.skipif(compiled.library() is None, reason="installed without a C compiler")


def looked_at(X, y, weight, sizes, theta, with_intercept):
    """Return what the compiled look says of groups that follow each other."""
    ends = np.cumsum(sizes)
    pieces = np.arange(len(sizes)), ends - sizes, ends, ends - sizes
    return compiled.look(compiled.look_of("logistic"), X, theta, with_intercept, pieces, y, weight)


@is_there
def test_losses_and_slopes_are_accurate_to_the_last_digits():
    steps = np.concatenate([np.linspace(-40.0, 40.0, 1601), 10.0 ** np.arange(-300.0, 3.0, 7.0), [707.9, 708.1, 745.0]])
    z = np.concatenate([steps, -steps, [0.0, np.log(np.sqrt(2.0) - 1.0)]])
    y = np.tile([0.0, 1.0], len(z))
    z = np.repeat(z, 2)
    sizes = np.ones(len(z), dtype=np.intp)
    predictions, slopes, others = looked_at(z[:, None], y, np.ones(len(z)), sizes, np.array([[1.0, 0.0]]), True)
    np.testing.assert_array_equal(predictions, z)
    with mpmath.workdps(40):
        signed = [(1 - 2 * label) * mpmath.mpf(float(at)) for label, at in zip(y, z, strict=True)]
        value = np.array([float(mpmath.log1p(mpmath.exp(m))) for m in signed])
        size = np.array([float(1 / (1 + mpmath.exp(-m))) for m in signed])
    np.testing.assert_allclose(others[:, 0], value, rtol=4.5e-16, atol=1e-307)
    np.testing.assert_allclose(others[:, 1], size, rtol=4.5e-16, atol=1e-307)
    np.testing.assert_array_equal(slopes[:, 1], (1.0 - 2.0 * y) * others[:, 1])


@is_there
def test_what_is_not_finite_stays_so():
    X, y = np.array([[np.inf], [-np.inf], [np.nan], [np.inf]]), np.array([0.0, 0.0, 1.0, 1.0])
    sizes = np.ones(4, dtype=np.intp)
    _, _, others = looked_at(X, y, np.ones(4), sizes, np.ones((1, 1)), False)
    with np.errstate(invalid="ignore"):
        value, slope = Logistic().value_and_gradient(y, X[:, 0])
    np.testing.assert_array_equal(others[:, 0], value)
    np.testing.assert_array_equal(others[:, 1], np.abs(slope))


@is_there
@pytest.mark.parametrize("with_intercept", [True, False])
@pytest.mark.parametrize("d", [0, 1, 3, 7, 8, 9, 16, 31, 32, 33, 75, 300])
def test_sums_are_those_of_separate_products(d, with_intercept):
    rng, sizes = np.random.default_rng(d), np.array([1, 2, 3, 4, 5, 63, 64, 65, 130, 257])
    n = sizes.sum()
    X, y, weight = rng.standard_normal((n, d)), rng.integers(0, 2, n).astype(float), rng.random(n)
    own = rng.standard_normal((len(sizes), d + with_intercept))
    for theta in (own, own[:1]):
        predictions, sums, others = looked_at(X, y, weight, sizes, theta, with_intercept)
        wide = np.column_stack([X, np.ones(n)]) if with_intercept else X
        z = np.einsum("nd,nd->n", wide, np.repeat(np.broadcast_to(theta, own.shape), sizes, axis=0))
        value, slope = Logistic().value_and_gradient(y, z)
        starts = np.cumsum(sizes) - sizes
        np.testing.assert_allclose(predictions, z, rtol=1e-13, atol=1e-13)
        expected = np.add.reduceat((weight * slope)[:, None] * wide, starts, axis=0)
        np.testing.assert_allclose(sums, expected, rtol=1e-12, atol=1e-12)
        expected = np.add.reduceat(weight[:, None] * np.column_stack([value, np.abs(slope)]), starts, axis=0)
        np.testing.assert_allclose(others, expected, rtol=1e-13)


@is_there
@pytest.mark.parametrize("with_intercept", [True, False])
@pytest.mark.parametrize("d", [1, 3, 7, 8, 9, 31, 32, 33, 75, 127])
def test_gram_matrices_are_those_of_numpy(d, with_intercept):
    rng, sizes = np.random.default_rng(d), np.array([1, 2, 3, 4, 5, 65, 130])
    n, starts = sizes.sum(), np.cumsum(sizes) - sizes
    X, weight = rng.standard_normal((n, d)), rng.standard_normal(n) * (rng.random(n) < 0.5)
    layout = Grouped(X, Coefficients(1, d, with_intercept), starts, sizes)
    found = layout.gram(weight)
    assert (found == found.swapaxes(1, 2)).all()
    np.testing.assert_allclose(found, layout.graded_gram(weight), rtol=1e-12, atol=1e-12)
    # A row that is not finite spoils its own group alone.
    before, others = layout.gram(np.ones(n)), np.arange(len(sizes)) != 4
    X[starts[4]] = np.inf
    after = layout.gram(np.ones(n))
    np.testing.assert_array_equal(after[others], before[others])
    assert not np.isfinite(after[4]).all()


@is_there
@pytest.mark.parametrize("with_intercept", [True, False])
@pytest.mark.parametrize("alpha", [1e-1, 1e-6])
@pytest.mark.parametrize("d", [0, 1, 4, 7, 16, 33, 127])
def test_few_rows_are_led_to_where_gradients_vanish(d, alpha, with_intercept):
    if d + with_intercept == 0:
        return
    # Groups of fewer rows than features and of more, and more of them than are worked on at once, but no multiple.
    rng, sizes = np.random.default_rng(d), np.array([1, 2, 3, 5, 8, 9, 16, 17, 30, 64, 100, 127, 40])
    n, starts = sizes.sum(), np.cumsum(sizes) - sizes
    X, weight = rng.standard_normal((n, d)), rng.random(n) * (rng.random(n) < 0.8)
    weight[starts[1] : starts[2]] = 0.0
    weight /= np.repeat(np.maximum(np.add.reduceat(weight, starts), 1e-300), sizes)
    y = rng.integers(0, 2, n).astype(float)
    # Rows of no weight are not even looked at.
    X[(weight == 0.0) & (np.arange(n) % 2 == 0)] = np.nan
    layout = Grouped(X, Coefficients(1, d, with_intercept), starts, sizes)
    theta = layout.minimiser(Logistic())(y, weight, rng.standard_normal((len(sizes), d + with_intercept)), alpha)
    alone = [layout.subset(np.arange(len(sizes)) == b) for b in range(len(sizes))]
    for b, (one, start) in enumerate(zip(alone, starts, strict=True)):
        own = slice(start, start + sizes[b])
        seen = weight[own] > 0.0
        part = Grouped.pooled(X[own][seen], layout.coefficients) if seen.any() else None
        gradient = alpha * theta[b] * layout.coefficients.penalised
        loss = 0.0
        if part is not None:
            looked = part.look(theta[b : b + 1], Logistic(), y[own][seen], weight[own][seen])
            gradient, loss = gradient + looked.gradients[0], looked.values[0]
        assert np.abs(gradient).max() < 1e-9 or loss < 1e-11
        again = one.minimiser(Logistic())(y[own], weight[own], np.zeros((1, len(theta[b]))), alpha)
        np.testing.assert_allclose(X[own][seen] @ (again[0] - theta[b])[:d], 0.0, atol=1e-5)


@is_there
def test_few_rows_without_an_end_are_told_from_the_others():
    X, y, starts = np.ones((40, 2)), np.tile([0.0, 1.0], 20), np.array([0, 20])
    X[3] = np.inf
    layout = Grouped(X, Coefficients(1, 2, True), starts, np.array([20, 20]))
    theta = layout.minimiser(Logistic())(y, np.full(40, 0.05), np.zeros((2, 3)), 1e-3)
    assert not np.isfinite(theta[0]).any()
    np.testing.assert_allclose(theta[1], 0.0, atol=1e-12)
    assert layout.minimiser(Squared()) is None


@is_there
@pytest.mark.parametrize("size", [1, 2, 9, 21, 64])
def test_inverses_are_those_of_numpy(size):
    X = np.random.default_rng(size).standard_normal((13, 2 * size, size))
    matrices = X.swapaxes(1, 2) @ X
    found = compiled.inverses(matrices)
    assert (found == found.swapaxes(1, 2)).all()
    np.testing.assert_allclose(found @ matrices, np.broadcast_to(np.eye(size), matrices.shape), atol=1e-10)
    matrices[4] = 0.0
    others = np.arange(13) != 4
    np.testing.assert_array_equal(compiled.inverses(matrices)[others], found[others])
    assert not np.isfinite(compiled.inverses(matrices)[4]).all()
    assert compiled.inverses(np.ones((2, 65, 65))) is None


@is_there
def test_rows_of_no_weight_that_fill_up_groups_change_nothing():
    rng = np.random.default_rng(0)
    X, theta = rng.standard_normal((3, 5, 2)), rng.standard_normal((3, 3))
    y, weight = rng.integers(0, 2, 15).astype(float), rng.random(15) * (np.arange(15) % 5 < 4)
    part = MemoryPart(Padded(X, Coefficients(1, 2, True)), y, weight, Logistic(), lambda: np.ones(3))
    looked, apart = part.at(theta), part.at(theta)
    vars(apart)["predictions"] = part.layout.product(theta)[:, 0]
    for name in ("gradients", "values", "sizes"):
        np.testing.assert_allclose(getattr(looked, name), getattr(apart, name), rtol=1e-13, atol=1e-15)


def test_features_in_another_order_or_precision_are_left_to_numpy(monkeypatch):
    monkeypatch.setattr(compiled, "look", None)
    X, y, codes = make(Logistic(), 4, 3, 0, (70, 300))
    theta = np.random.default_rng(0).standard_normal(4)
    codes = np.sort(codes)
    for features in (np.asfortranarray(X), X.astype(np.float32), sparse.csr_array(X)):
        looked = MemoryRows.of(features, y, encode(codes), Logistic()).whole.at(theta)
        value = Logistic().value(y, features @ theta[:3] + theta[3])
        np.testing.assert_allclose(looked.values, [value[codes == c].mean() for c in range(4)], rtol=1e-12)


@is_there
@pytest.mark.filterwarnings("ignore::counterpoise.exceptions.SmallContextWarning")
@pytest.mark.parametrize("sizes", [(400, 900), (3, 30)])
def test_fits_are_the_same_without_it(sizes, monkeypatch):
    X, y, codes = make(Logistic(), 6, 20, 0, sizes)
    model = cpo.RobustLogisticRegression(reference="in-sample", tol=1e-9)
    with_it = model.fit(X, y, contexts=codes)
    coefficients, certificate = with_it.coef_, with_it.certificate_
    monkeypatch.setattr(compiled, "look_of", lambda loss: None)
    monkeypatch.setattr(compiled, "grams_of", lambda width: None)
    monkeypatch.setattr(compiled, "inverses", lambda matrices: None)
    without = model.fit(X, y, contexts=codes)
    np.testing.assert_allclose(coefficients, without.coef_, rtol=1e-3, atol=1e-3)
    assert certificate.lower <= without.certificate_.upper
    assert without.certificate_.lower <= certificate.upper


@is_there
@pytest.mark.parametrize("sizes", [(2, 6), (3, 30), (20, 200)])
def test_references_and_optimism_are_the_same_without_it(sizes, monkeypatch):
    X, y, codes = make(Logistic(), 60, 12, 0, sizes)

    def found():
        problem = LinearProblem.from_data(X, y, codes, Logistic(), alpha=1e-2)
        specialists = problem.specialists(1e-8)
        fit = problem.cross_fit(1e-8)
        return specialists.risks, fit.references, measure_optimism(problem.oracle, specialists, problem.counts)

    risks, references, optimism = found()
    for name in ("look_of", "grams_of", "minimiser_of", "inverses"):
        monkeypatch.setattr(compiled, name, lambda asked: None)
    others, other_references, without = found()
    assert (risks.lower <= others.upper + 1e-12).all()
    assert (others.lower <= risks.upper + 1e-12).all()
    np.testing.assert_allclose(risks.upper, others.upper, rtol=1e-7, atol=1e-10)
    np.testing.assert_allclose(references, other_references, rtol=1e-7, atol=1e-10)
    np.testing.assert_allclose(optimism.noise, without.noise, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(optimism.excess, without.excess, rtol=1e-5, atol=1e-7)


def test_it_can_be_turned_off_and_is_not_used_when_made_of_another_source(tmp_path, monkeypatch):
    code = "from counterpoise.rows import compiled; assert compiled.look_of('logistic') is None"
    asked = environment(tmp_path) | {"COUNTERPOISE_PURE_PYTHON": "1"}
    subprocess.run([sys.executable, "-c", code], env=asked, check=True)
    monkeypatch.setattr(compiled.zlib, "crc32", lambda source: 0)
    assert compiled.library.__wrapped__() is None


def test_an_installation_without_a_compiler_goes_on_without_it(tmp_path, monkeypatch, capsys):
    root = Path(__file__).parents[2]
    plugin = ModuleType("hatchling.builders.hooks.plugin.interface")
    plugin.BuildHookInterface = object
    monkeypatch.setitem(sys.modules, plugin.__name__, plugin)
    tags = ModuleType("packaging.tags")
    tags.platform_tags = list
    monkeypatch.setitem(sys.modules, tags.__name__, tags)
    spec = importlib.util.spec_from_file_location("hatch_build", root / "hatch_build.py")
    build = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(build)
    folder = (tmp_path / build.SOURCE).parent
    folder.mkdir(parents=True)
    (tmp_path / build.SOURCE).write_bytes((root / build.SOURCE).read_bytes())
    if compiled.library() is not None:
        assert build.compiled(tmp_path)
        assert [one.name for one in folder.glob("_*")] == ["_sums.library"]
    for compiler in ("no-such-compiler", "false", 'a "quote'):
        monkeypatch.setenv("CC", compiler)
        assert not build.compiled(tmp_path)
        assert "without its compiled part" in capsys.readouterr().err
        # What an older source was compiled to is gone as well.
        assert not list(folder.glob("_*"))


@is_there
def test_switches_and_losses_of_other_types_are_taken_as_without_it():
    X, y, codes = make(Logistic(), 3, 2, 0, (40, 60))
    flags = [cpo.RobustLogisticRegression(fit_intercept=flag, reference="in-sample") for flag in (True, np.True_)]
    one, other = (model.fit(X, y, contexts=codes).coef_ for model in flags)
    np.testing.assert_array_equal(one, other)

    class Doubled(Logistic):
        def value(self, target, prediction):
            return 2.0 * super().value(target, prediction)

        def value_and_gradient(self, target, prediction):
            return tuple(2.0 * part for part in super().value_and_gradient(target, prediction))

    plain, doubled = (
        MemoryRows.of(X, y, encode(codes), loss).at(np.ones(3)).values for loss in (Logistic(), Doubled())
    )
    np.testing.assert_allclose(doubled, 2.0 * plain, rtol=1e-12)


@is_there
def test_vectors_that_are_too_short_are_refused():
    layout, theta = Grouped.pooled(np.ones((20, 2)), Coefficients(1, 2, True)), np.ones((1, 3))
    with pytest.raises(IndexError):
        layout.gram(np.ones(15))
    with pytest.raises(IndexError):
        layout.look(theta, Logistic(), np.ones(15), np.ones(15))
    with pytest.raises(IndexError):
        layout.look(theta, Logistic(), np.ones(20), np.ones(15))


@is_there
def test_a_thread_with_a_small_stack_is_enough():
    layout = Grouped.pooled(np.ones((20, 127)), Coefficients(1, 127, True))
    before = threading.stack_size(128 * 1024)
    try:
        found = []
        thread = threading.Thread(target=lambda: found.append(layout.gram(np.ones(20))))
        thread.start()
        thread.join()
    finally:
        threading.stack_size(before)
    np.testing.assert_array_equal(found[0], np.full((1, 128, 128), 20.0))
