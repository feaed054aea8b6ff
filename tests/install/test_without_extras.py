"""A plain install: everything that needs no extra works, and what needs one says which."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.install.test_declared import CORE, EXTRAS, modules
from tests.safety.processes import environment

# Importing any of them fails as if it were not installed.
BLOCK = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {names!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Missing())
"""


def without_extras(code, folder):
    """Run code where no extra can be imported."""
    block = BLOCK.format(names=sorted(modules(EXTRAS.keys() - CORE.keys())))
    command = [sys.executable, "-W", "error", "-c", f"{block}\n{code}"]
    return subprocess.run(command, cwd=folder, env=environment(folder), capture_output=True, text=True, check=False)


def test_the_core_needs_no_extra(tmp_path):
    core = Path(__file__).with_name("core.py")
    done = without_extras(f"import runpy; runpy.run_path({str(core)!r}, run_name='__main__')", tmp_path)
    assert done.returncode == 0, done.stderr


NEEDS = {
    "experiments": "from counterpoise.cli import app; app(['reproduce', '--panel', '1a'])",
    "boosting": "import counterpoise as cpo; "
    "cpo.RobustLGBMClassifier().fit([[0.0], [1.0]] * 9, [0, 1] * 9, contexts=[0, 1, 1] * 6)",
    "torch": "import counterpoise.torch",
    "dask": "import counterpoise.dask",
    "plot": "import numpy, counterpoise.reports.plots as plots; plots.plot_contexts({'context': numpy.array([0]), "
    "'excess': numpy.array([0.1])})",
}


@pytest.mark.parametrize("extra", NEEDS)
def test_what_needs_an_extra_says_which(tmp_path, extra):
    done = without_extras(NEEDS[extra], tmp_path)
    assert done.returncode != 0
    assert f"counterpoise[{extra}]" in done.stderr


@pytest.mark.parametrize("extra", ["lightning", "skorch"])
def test_a_framework_that_is_missing_is_named(tmp_path, extra):
    pytest.importorskip("torch")
    code = BLOCK.format(names=sorted(modules({extra}))) + f"import counterpoise.torch, counterpoise.torch.{extra}"
    command = [sys.executable, "-W", "error", "-c", code]
    done = subprocess.run(command, cwd=tmp_path, env=environment(tmp_path), capture_output=True, text=True, check=False)
    assert f"counterpoise.torch.{extra} needs" in done.stderr
    assert f"pip install 'counterpoise[{extra}]'" in done.stderr


@pytest.mark.parametrize("name", ["linear", "stock", "settings"])
def test_no_part_of_the_cluster_names_a_package_instead_of_its_extra(tmp_path, name):
    done = without_extras(f"import counterpoise.dask.{name}", tmp_path)
    assert "ImportError: counterpoise.dask needs dask. Run: pip install 'counterpoise[dask]'" in done.stderr
