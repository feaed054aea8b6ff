"""The package as a whole: what importing it does, and what it must not do."""

import importlib.metadata
import subprocess
import sys
from pathlib import Path

import pytest

import counterpoise

EXTRAS = ("torch", "dask", "cvxpy", "pandas", "polars", "matplotlib", "xgboost", "lightgbm", "mpmath", "clarabel")
FRAMEWORKS = ("transformers", "accelerate", "lightning", "pytorch_lightning", "skorch", "yaml")


def test_importing_the_package_imports_no_extra():
    code = f"import sys, counterpoise; print([name for name in {EXTRAS!r} if name in sys.modules])"
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert output.strip() == "[]"


def test_importing_the_package_imports_nothing_that_takes_long():
    code = "import sys, counterpoise; print([name for name in ('numpy', 'scipy', 'sklearn') if name in sys.modules])"
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert output.strip() == "[]"


def test_importing_what_is_for_networks_imports_no_framework_that_trains_them():
    pytest.importorskip("torch")
    code = f"import sys, counterpoise.torch; print([name for name in {FRAMEWORKS!r} if name in sys.modules])"
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert output.strip() == "[]"


def test_every_public_name_exists():
    assert all(hasattr(counterpoise, name) for name in counterpoise.__all__)
    assert {"KLBall", "confidence_radius", "minimize"} <= set(counterpoise.__all__)


def test_the_version_is_one():
    assert counterpoise.__version__ == importlib.metadata.version("counterpoise")


def test_the_package_is_typed():
    assert (Path(counterpoise.__file__).parent / "py.typed").exists()
