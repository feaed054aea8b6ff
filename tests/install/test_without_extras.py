"""A plain install: everything that needs no extra works, and what needs one says which."""

import json
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


# One process for all pieces of code: what each says and ends with, on its last line.
EACH = """
import contextlib, io, json, traceback

def tried(code):
    with contextlib.redirect_stderr(io.StringIO()) as said, contextlib.redirect_stdout(io.StringIO()):
        try:
            exec(code, {{"__name__": "__main__"}})
            ended = 0
        except SystemExit as end:
            ended = end.code
        except BaseException:
            traceback.print_exc()
            ended = 1
    return ended, said.getvalue()

print(json.dumps({{name: tried(code) for name, code in {pieces!r}.items()}}))
"""


def each_without(names, pieces, folder):
    """Run pieces of code where some modules cannot be imported; return exit code and words of each."""
    command = [sys.executable, "-W", "error", "-c", BLOCK.format(names=sorted(names)) + EACH.format(pieces=pieces)]
    done = subprocess.run(command, cwd=folder, env=environment(folder), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


NEEDS = {
    "experiments": "from counterpoise.cli import app; app(['reproduce', '--panel', '1a'])",
    "boosting": "import counterpoise as cpo; "
    "cpo.RobustLGBMClassifier().fit([[0.0], [1.0]] * 9, [0, 1] * 9, contexts=[0, 1, 1] * 6)",
    "torch": "import counterpoise.torch",
    "dask": "import counterpoise.dask",
    "plot": "import numpy, counterpoise.reports.plots as plots; plots.plot_contexts({'context': numpy.array([0]), "
    "'excess': numpy.array([0.1])})",
}
OF_THE_CLUSTER = ("linear", "stock", "settings")
FRAMEWORKS = ("lightning", "skorch", "transformers")


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """Return what becomes of code where no extra can be imported."""
    core = Path(__file__).with_name("core.py")
    pieces = {"core": core.read_text(encoding="utf-8"), **NEEDS}
    pieces |= {name: f"import counterpoise.dask.{name}" for name in OF_THE_CLUSTER}
    return each_without(modules(EXTRAS.keys() - CORE.keys()), pieces, tmp_path_factory.mktemp("plain"))


def test_the_core_needs_no_extra(plain):
    ended, said = plain["core"]
    assert ended == 0, said


@pytest.mark.parametrize("extra", NEEDS)
def test_what_needs_an_extra_says_which(plain, extra):
    ended, said = plain[extra]
    assert ended != 0
    assert f"counterpoise[{extra}]" in said


@pytest.mark.parametrize("name", OF_THE_CLUSTER)
def test_no_part_of_the_cluster_names_a_package_instead_of_its_extra(plain, name):
    assert "ImportError: counterpoise.dask needs dask. Run: pip install 'counterpoise[dask]'" in plain[name][1]


def test_a_framework_that_is_missing_is_named(tmp_path):
    pytest.importorskip("torch")
    pieces = {extra: f"import counterpoise.torch, counterpoise.torch.{extra}" for extra in FRAMEWORKS}
    for extra, (_, said) in each_without(modules(FRAMEWORKS), pieces, tmp_path).items():
        assert f"counterpoise.torch.{extra} needs" in said
        assert f"pip install 'counterpoise[{extra}]'" in said
