"""The benchmarks of speed, in small: tables of ratios, proofs that are verified, shapes, and the profile of a fit."""

import csv
import re
import warnings
from pathlib import Path

import numpy as np
import pytest

import counterpoise as cpo
from tests.draws import fewer_draws

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def study(monkeypatch):
    """Import a study by name."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return __import__


@pytest.mark.parametrize("name", ["family", "many-contexts", "sparse", "compare", "any-learner", "path", "passes"])
def test_speed_keeps_a_table_of_ratios_and_of_proofs(study, capsys, tmp_path, monkeypatch, name):
    fewer_draws(monkeypatch.setattr)
    speed = study("speed")
    with warnings.catch_warnings():
        code = speed.main(["--only", name, "--repeats", "1", "--toy", "--out", str(tmp_path)])
    with (tmp_path / "speed.csv").open(newline="") as file:
        lines = list(csv.DictReader(file))
    assert lines
    assert all(float(line["ratio"]) > 0 for line in lines)
    assert not [line["note"] for line in lines if line["target"] == "to end"]
    assert not [line["note"] for line in lines if line["work"].startswith("certificate") and line["met"] != "True"]
    missed = [line for line in lines if line["met"] != "True"]
    assert code == bool(missed)
    assert capsys.readouterr().out.count("MISSED") == len(missed)


def test_threads_are_those_of_the_process_and_of_its_line(study, capsys, tmp_path):
    options = ["--only", "family", "--shapes", "small", "--threads", "2", "--repeats", "1", "--toy"]
    study("speed").main([*options, "--out", str(tmp_path)])
    with (tmp_path / "speed.csv").open(newline="") as file:
        assert [line["threads"] for line in csv.DictReader(file)] == ["2"] * 3


def test_a_study_that_fails_is_missed_and_does_not_stop_the_others(study, capsys, tmp_path, monkeypatch):
    speed = study("speed")

    def broken(asked):
        yield from ()
        raise OSError("no such peer")

    monkeypatch.setitem(speed.STUDIES, "conic", broken)
    assert speed.main(["--only", "conic", "growth", "--toy", "--repeats", "1", "--out", str(tmp_path)]) == 1
    out = capsys.readouterr().out
    assert "OSError: no such peer" in out
    assert "exponent of growth" in out


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("lower", lambda certificate: certificate.upper + 1e-3, "lower is above a value that is attained"),
        ("upper", lambda certificate: certificate.lower - 1e-3, "upper is below the objective"),
    ],
)
def test_a_certificate_that_claims_too_much_is_found_out(study, name, value, words):
    X, y, contexts = study("shapes").Shape("far", 1500, 3, 3, spread=1.0).rows()
    fits = study("certified").Fits("logistic", X, y, contexts)
    model = fits.keep(cpo.RobustLogisticRegression().fit(X, y, contexts=contexts))
    assert fits.verified("as it is").met
    object.__setattr__(model.certificate_, name, value(model.certificate_))
    line = fits.verified("tampered with")
    assert not line.met
    assert line.note == words


def test_a_reference_that_can_be_beaten_is_found_out(study):
    X, y, contexts = study("shapes").Shape("far", 1500, 3, 3, spread=1.0).rows()
    fits = study("certified").Fits("logistic", X, y, contexts)
    model = fits.keep(cpo.RobustLogisticRegression().fit(X, y, contexts=contexts))
    # The excess, and with it the certificate, falls by as much; what is wrong is the reference alone.
    model.reference_risks_ = model.reference_risks_ + 0.01
    for name in ("lower", "upper"):
        object.__setattr__(model.certificate_, name, getattr(model.certificate_, name) - 0.01)
    assert fits.verified("lifted").note == "a reference is above a risk that is attained"


def test_shapes_are_drawn_as_described(study):
    shapes = study("shapes")
    for shape in (one.toy() for one in shapes.FAMILY):
        X, y, contexts = shape.rows()
        assert X.shape == (shape.n, shape.d)
        assert np.array_equal(np.bincount(contexts), shape.sizes())
        assert all(np.array_equal(a, b) for a, b in zip((X, y, contexts), shape.rows(), strict=True))
    sizes = {shape.name: shape.sizes() for shape in shapes.FAMILY}
    assert all(sizes[shape.name].sum() == shape.n for shape in shapes.FAMILY)
    assert np.ptp(sizes["noise"]) <= 1
    assert sizes["unequal"].max() > 1000 * sizes["unequal"].min()


def test_the_profile_of_a_fit_counts_what_it_reads(study, capsys):
    profile_fit = study("profile_fit")
    profile_fit.main(["--shape", "table", "--toy"])
    out = capsys.readouterr().out
    for words in profile_fit.READS:
        units = float(re.search(rf"{re.escape(words)}.*?([\d.]+) +[\d.]+$", out, re.MULTILINE)[1])
        assert 1.0 <= units <= 1000.0
    assert "times its floor" in out


def test_the_profile_names_a_function_that_is_gone(study):
    profile_fit = study("profile_fit")
    gone = profile_fit.Entry("copies", "counterpoise.rows.memory", "MemoryRows.nowhere")
    with pytest.raises(LookupError, match=r"MemoryRows.nowhere no longer exists"), profile_fit.Meter().watching([gone]):
        pass


def test_the_profile_charges_work_inside_other_work_once(study):
    profile_fit = study("profile_fit")
    ticks = iter(range(100))
    meter = profile_fit.Meter(lambda: float(next(ticks)))
    inner = meter.metered(profile_fit.Entry("inner", "", "", lambda arguments, result: 5.0), lambda: None)
    outer = meter.metered(profile_fit.Entry("outer", "", ""), lambda: (inner(), inner()))
    outer()
    # The clock ticks whenever it is looked at: before and after each of the three.
    assert dict(meter.seconds) == {"outer": 3.0, "inner": 2.0}
    assert dict(meter.calls) == {"inner": 2, "outer": 1}
    assert meter.entries["inner"] == 10.0
