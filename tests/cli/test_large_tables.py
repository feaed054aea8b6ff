"""Tables above the memory that may be used, and folders: what is chosen, what is said, what is written."""

import gzip
import json
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from counterpoise.cli import app
from counterpoise.cli._options import checked_memory
from counterpoise.exceptions import InvalidInputError
from counterpoise.tables.reading import memory, read_table
from tests.tables.tabular.examples import patients, save

pytestmark = pytest.mark.usefixtures("few_draws")

ASKED = ["--target", "ill", "--context", "hospital", "--drop", "days", "--drop", "cost", "--folds", "2"]


def run(*arguments):
    return CliRunner().invoke(app, [str(one) for one in arguments])


@pytest.fixture
def folder(tmp_path):
    parts = tmp_path / "visits"
    parts.mkdir()
    for k in range(3):
        save(patients(200, seed=k), parts / f"part-{k}.parquet")
    return parts


@pytest.fixture
def few_levels(monkeypatch):
    monkeypatch.setattr("counterpoise.reports.report.confidence_path", _short_path)
    monkeypatch.setattr("counterpoise.tables.tabular.survey.Budget.report_rows", lambda self, width: 150)


def _short_path(*args, **options):
    from counterpoise.judging.confidence import confidence_path

    return confidence_path(*args, **{**options, "levels": 3})


def test_a_folder_is_fitted_in_memory_where_it_fits(folder, tmp_path, few_levels):
    done = run("fit", folder, *ASKED, "--out", tmp_path / "model")
    assert done.exit_code == 0, done.output
    assert "in chunks" not in done.output
    metrics = json.loads((tmp_path / "model" / "metrics.json").read_text())
    assert metrics["settings"]["file"].startswith("visits (600 rows, fingerprint ")
    assert metrics["settings"]["reference"] == "cross-fit"
    assert "sample" not in metrics


def test_a_table_above_the_memory_is_read_in_chunks_and_it_is_said(folder, tmp_path, few_levels):
    done = run("fit", folder, *ASKED, "--memory", "100kB", "--out", tmp_path / "large")
    assert done.exit_code == 0, done.output
    assert "visits takes about 184 kB of memory to fit and 100 kB may be used: it is read in chunks" in done.output
    assert "the model is of all 600 rows, read in chunks" in done.output
    assert "150 of them, drawn at random" in done.output
    assert "the least risk of each context is in sample" in done.output
    metrics = json.loads((tmp_path / "large" / "metrics.json").read_text())
    assert metrics["sample"] == {"rows": 150, "of": 600}
    assert metrics["settings"]["reference"] == "in-sample"
    assert "passes over the rows on disk" in metrics["settings"]["read"]
    page = (tmp_path / "large" / "report.html").read_text()
    assert "of a random sample of 150 of 600 rows" in page
    assert "fitted to all 600 rows" in page
    done = run("fit", folder, *ASKED, "--reference", "in-sample", "--out", tmp_path / "small")
    predicted = []
    for name in ("large", "small"):
        assert run("predict", tmp_path / name, folder, "-o", tmp_path / f"{name}.parquet").exit_code == 0
        predicted.append(read_table(tmp_path / f"{name}.parquet").numbers("probability[yes]"))
    np.testing.assert_allclose(*predicted, atol=1e-4)


def test_a_compressed_file_is_read_in_chunks_by_what_it_unpacks_to(tmp_path, few_levels):
    rows = "".join(f"{'ny'[k % 2]},{'ab'[k % 3 % 2]},{k % 7}\n" for k in range(42)) * 500
    file = tmp_path / "t.csv.gz"
    file.write_bytes(gzip.compress(("ill,hospital,age\n" + rows).encode()))
    assert 5 * 6 * file.stat().st_size < 100_000
    done = run("fit", file, "--target", "ill", "--context", "hospital", "--memory", "100kB", "--out", tmp_path / "m")
    assert done.exit_code == 0, done.output
    assert "t.csv.gz takes about 3.78 MB of memory to fit and 100 kB may be used: it is read in chunks" in done.output


def test_rare_contexts_are_pooled_in_chunks_as_in_memory(tmp_path, few_levels):
    columns = patients(600)
    columns["hospital"] = np.array([f"h{k}" for k in range(5)])[np.arange(600) * 7919 % 97 // 20]
    columns["hospital"][:9] = [f"tiny {k % 3}" for k in range(9)]
    columns["day"] = np.arange(600) // 4
    file = save(columns, tmp_path / "t.parquet")
    for name, more in (("rows", ["--drop", "day"]), ("groups", ["--group", "day"])):
        found = []
        for memory_ in ("50kB", "1GB"):
            out = tmp_path / f"{name} {memory_}"
            asked = [*ASKED, *more, "--pool-below", "30", "--reference", "in-sample", "--memory", memory_]
            done = run("fit", file, *asked, "--out", out)
            assert done.exit_code == 0, done.output
            assert ("it is read in chunks" in done.output) == (memory_ == "50kB")
            metrics = json.loads((out / "metrics.json").read_text())
            assert f"note: {metrics['settings']['pooled']}\n" in done.output
            assert metrics["settings"]["pooled"] in (out / "report.html").read_text()
            card = json.loads((out / "model.json").read_text())
            found.append((metrics["settings"]["pooled"], metrics["settings"]["contexts"], card["pooled"]))
        assert found[0] == found[1]
        assert f"fewer than 30 {name}" in found[0][0]


def test_the_machine_decides_where_nothing_is_said(folder, tmp_path, few_levels, monkeypatch):
    monkeypatch.setattr(memory, "memory_budget", lambda: 5e4)
    done = run("fit", folder, *ASKED, "--out", tmp_path / "model", "--quiet")
    assert done.exit_code == 0, done.output
    assert json.loads((tmp_path / "model" / "metrics.json").read_text())["sample"]["of"] == 600


@pytest.mark.parametrize(
    "asked", [("--reference", "cross-fit"), ("--reference", "shrunk"), ("--adjust", "standard-error")]
)
def test_holding_out_is_refused_above_the_memory_before_rows_are_read(folder, tmp_path, monkeypatch, asked):
    monkeypatch.setattr("counterpoise.tables.tabular.large.Survey", None)
    done = run("fit", folder, *ASKED, "--memory", "100kB", *asked, "--out", tmp_path / "model")
    assert done.exit_code == 2
    assert f"{' '.join(asked)} needs all rows in memory" in done.output
    assert not (tmp_path / "model").exists()


def test_a_number_adjusts_rows_in_chunks_too(folder, tmp_path, few_levels):
    done = run("fit", folder, *ASKED, "--memory", "100kB", "--adjust", "0.5", "--out", tmp_path / "model", "--quiet")
    assert done.exit_code == 0, done.output
    assert json.loads((tmp_path / "model" / "metrics.json").read_text())["settings"]["adjust"] == "0.5"


def test_only_the_columns_that_are_used_count(folder, tmp_path, few_levels):
    asked = ["--target", "ill", "--context", "hospital", "--only", "age", "--folds", "2"]
    done = run("fit", folder, *asked, "--memory", "150kB", "--out", tmp_path / "model")
    assert done.exit_code == 0, done.output
    assert "in chunks" not in done.output


SIZES = {
    "500MB": 5e8,
    "2GB": 2e9,
    "1.5GiB": 1.5 * 2**30,
    "123456": 123456,
    "64 kB": 64e3,
    "1tb": 1e12,
    "10k": 1e4,
    "7B": 7,
}


@pytest.mark.parametrize("text", SIZES)
def test_sizes_are_written_as_people_do(text):
    assert checked_memory(text) == SIZES[text]


@pytest.mark.parametrize("text", ["", "lots", "-1GB", "0", "2GBit", "1 2", "5ib", "1e9"])
def test_sizes_that_are_none_are_refused(text):
    with pytest.raises(InvalidInputError, match="pass a size such as 500MB"):
        checked_memory(text)


def test_compare_and_stock_take_a_folder(folder, tmp_path):
    assert run("compare", folder, *ASKED).exit_code == 0
    sales = tmp_path / "sales"
    sales.mkdir()
    for k in range(2):
        (sales / f"{k}.csv").write_text("units,weather\n" + "3,sun\n5,rain\n4,sun\n6,rain\n" * 5)
    asked = ["--demand", "units", "--cost", "1", "--price", "3", "--context", "weather"]
    done = run("stock", sales, *asked, "-o", tmp_path / "stock.html")
    assert done.exit_code == 0, done.output


_PEAK = """
import sys
import sklearn.compose, sklearn.impute, pyarrow.parquet
import counterpoise.cli, counterpoise.reports.report
from counterpoise.tables.reading import open_table
from counterpoise.tables.tabular.large import pose_large
def peak():
    # What getrusage tells begins with the peak of the process that started this one.
    lines = open("/proc/self/status").read().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
before = peak()
fitted = pose_large(open_table(sys.argv[1]), "y", ["site"], 4e7, reference="in-sample").fit()
print(peak() - before, fitted.n_fitted)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="peak memory is counted in other units elsewhere")
def test_memory_stays_within_what_may_be_used(tmp_path):
    rng = np.random.default_rng(0)
    n, d = 200_000, 6
    X, site = rng.normal(size=(n, d)), rng.choice(["a", "b", "c"], n)
    columns = {f"x{j}": X[:, j] for j in range(d)}
    table = pa.table({**columns, "site": site, "y": X[:, 0] + np.where(site == "a", 1.0, -1.0) * X[:, 1]})
    for k in range(8):
        pq.write_table(table, tmp_path / f"{k}.parquet", use_dictionary=["site"], compression="none")
    done = subprocess.run([sys.executable, "-c", _PEAK, str(tmp_path)], capture_output=True, text=True, check=True)
    peak, n_fitted = map(int, done.stdout.split())
    assert n_fitted == 8 * n
    # Kilobytes. The rows alone are 90 MB as floats; a fit in memory takes several times that.
    assert peak < 80_000
