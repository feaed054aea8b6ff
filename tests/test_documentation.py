"""What the README and the examples say is what happens."""

import re
import runpy
from pathlib import Path

import pytest

import counterpoise as cpo
from counterpoise import losses, solvers

ROOT = Path(__file__).parent.parent
PAGES = sorted((ROOT / "docs").rglob("*.md"))


def run_blocks(page):
    """Run the code of a page, block after block, and return the names it defines."""
    blocks = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    names: dict[str, object] = {}
    for block in blocks:
        exec(block, names)
    return names


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT / "docs")))
def test_the_pages_run(page):
    run_blocks(page)


def test_links_between_pages_lead_somewhere():
    for page in [ROOT / "README.md", *PAGES]:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_files_that_pages_include_are_there():
    for page in PAGES:
        for name in re.findall(r"```{literalinclude} (\S+)", page.read_text(encoding="utf-8")):
            assert (page.parent / name).is_file(), f"{page.name} includes {name}"


def test_the_reference_names_everything_public():
    page = (ROOT / "docs" / "api" / "index.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"^   ([\w.]+)$", page, re.MULTILINE))
    assert {*cpo.__all__, *losses.__all__, *solvers.__all__} - {"__version__"} <= listed


def test_the_readme_runs(capsys):
    names = run_blocks(ROOT / "README.md")
    assert 22.5 < names["solution"].theta[0] < 23.5
    assert names["tighter"] < names["radius"] / 2
    assert "Certificate(lower=" in capsys.readouterr().out


def test_the_quickstart_runs(capsys):
    runpy.run_path(str(ROOT / "examples" / "quickstart.py"), run_name="__main__")
    out = capsys.readouterr().out
    assert "minimax regret" in out
    assert "Proof:" in out
