"""What is imported is declared, and the lowest versions that are tested are those that are promised."""

import ast
import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
MODULES = {"scikit-learn": "sklearn", "xgboost-cpu": "xgboost"}
# What an extra of a package brings along.
WITH = {"dask": {"distributed"}, "lightning": {"pytorch_lightning"}}


def required(lines):
    """Return the names and lower bounds of requirements, but those of the package itself."""
    found = (re.match(r"([\w-]+)(?:\[[^\]]*\])?(?:>=([\d.]+))?", line).groups() for line in lines)
    return {name: bound for name, bound in found if name != "counterpoise"}


CORE = required(PROJECT["dependencies"])
EXTRAS = required(line for lines in PROJECT["optional-dependencies"].values() for line in lines)
# Not needed by src, whatever extra they are in.
TESTS = {"pytest", "pytest-xdist", "hypothesis", "mpmath", "cvxpy", "clarabel", "selenium", "skops", "ruff", "mypy"}


def modules(names):
    """Return the top-level modules of some packages."""
    return {one for name in names for one in {MODULES.get(name, name.replace("-", "_")), *WITH.get(name, ())}}


def imported(tree, everywhere):
    """Yield the top-level modules that a file imports, at its top or anywhere."""
    for node in ast.walk(tree) if everywhere else tree.body:
        if isinstance(node, ast.Import):
            yield from (name.name.partition(".")[0] for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield node.module.partition(".")[0]


def third_party(path, everywhere=True):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return set(imported(tree, everywhere)) - set(sys.stdlib_module_names) - {"counterpoise"}


FILES = sorted((ROOT / "src").rglob("*.py"))


def test_every_import_is_declared():
    known = modules(CORE.keys() | (EXTRAS.keys() - TESTS))
    strange = {str(path.relative_to(ROOT)): third_party(path) - known for path in FILES}
    assert {path: names for path, names in strange.items() if names} == {}


def test_extras_are_imported_where_they_are_needed_only():
    """Modules that no extra names in their path import nothing but the core at their top."""
    extras = ("torch", "rows/device", "dask", "plots", "experiments", "boost", "_cluster")
    for path in FILES:
        if not any(word in str(path.relative_to(ROOT / "src")) for word in extras):
            assert third_party(path, everywhere=False) <= modules(CORE), path


def test_every_dependency_is_used():
    used = set().union(*map(third_party, FILES))
    assert modules(CORE) <= used


def test_the_lowest_versions_are_those_that_are_promised():
    lines = (ROOT / "constraints-lowest.txt").read_text(encoding="utf-8").splitlines()
    pinned = dict(line.split("==") for line in lines if not line.startswith("#"))
    # Nothing here uses it but typer.
    del pinned["click"]
    promised = EXTRAS | CORE
    for name, version in pinned.items():
        assert f"{version}.".startswith(f"{promised[name]}."), name
    # torch of that age is a gigabyte, and xgboost is xgboost-cpu elsewhere.
    assert CORE.keys() <= pinned.keys()
    tools = [required(PROJECT["optional-dependencies"][extra]).keys() for extra in ("dev", "docs")]
    assert EXTRAS.keys() - pinned.keys() - {"torch", "xgboost"} <= set().union(*tools)
