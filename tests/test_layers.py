"""What modules may know of each other, beyond the layers that import-linter checks."""

import ast
from pathlib import Path

import pytest

import counterpoise

ROOT = Path(counterpoise.__file__).parent
MODULES = {
    "counterpoise." + ".".join(path.relative_to(ROOT).with_suffix("").parts): path
    for path in sorted(ROOT.rglob("*.py"))
}
TREES = {name: ast.parse(path.read_text(encoding="utf-8")) for name, path in MODULES.items()}

SOLVERS_MAY_IMPORT = (
    "counterpoise.exceptions",
    "counterpoise.linalg",
    "counterpoise.sets",
    "counterpoise.core.objective",
    "counterpoise.core.oracle._base",
    "counterpoise.core.oracle.constant",
    "counterpoise.core.oracle.quadratic",
    "counterpoise.core.solvers",
)
"""No rows, no losses, no contexts: a solver never sees data."""


def imported(tree):
    """Yield the modules of the package that a module imports, and the names it takes from each."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("counterpoise"):
            yield node.module, [alias.name for alias in node.names]
        elif isinstance(node, ast.Import):
            yield from ((alias.name, []) for alias in node.names if alias.name.startswith("counterpoise"))


def is_private(name):
    """Tell whether a name is private; those of named tuples are not, though they look it."""
    return name.startswith("_") and not name.startswith("__") and name not in ("_fields", "_replace", "_asdict")


@pytest.mark.parametrize(
    "name", [name for name in MODULES if ".core.solvers" in name or name.endswith("core.objective")]
)
def test_a_solver_never_sees_data(name):
    for module, _ in imported(TREES[name]):
        assert module.startswith(SOLVERS_MAY_IMPORT), f"{name} imports {module}"


@pytest.mark.parametrize("name", MODULES)
def test_a_private_name_stays_in_its_module(name):
    tree = TREES[name]
    for module, names in imported(tree):
        for one in names:
            # A module whose name is private belongs to its package.
            of_package = f"{module}.{one}" in MODULES and name.rpartition(".")[0].startswith(module)
            assert not is_private(one) or of_package, f"{name} takes {one} from {module}"
    own = {node.name for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
    own |= {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)}
    own |= {node.target.id for node in ast.walk(tree) if isinstance(node, ast.AnnAssign) and hasattr(node.target, "id")}
    own |= {
        target.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        for target in node.targets
        if hasattr(target, "id")
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and is_private(node.attr) and node.attr not in own:
            # A class may use what its base class, of the same package, keeps for its subclasses.
            of_itself = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
            of_base = isinstance(node.value, ast.Call) and getattr(node.value.func, "id", "") == "super"
            assert of_itself or of_base, f"{name}, line {node.lineno}: {node.attr} belongs to another module"


@pytest.mark.parametrize("name", [name for name in MODULES if name != "counterpoise.__init__"])
def test_no_module_of_the_package_is_imported_by_a_string(name):
    for node in ast.walk(TREES[name]):
        if isinstance(node, ast.Call) and getattr(node.func, "id", getattr(node.func, "attr", "")) == "import_module":
            assert "counterpoise" not in ast.unparse(node), f"{name}, line {node.lineno}"
