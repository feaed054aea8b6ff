"""What the README and the examples say is what happens."""

import re
import runpy
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_the_readme_runs(capsys):
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) >= 2
    names: dict[str, object] = {}
    for block in blocks:
        exec(block, names)
    assert 22.5 < names["solution"].theta[0] < 23.5
    assert names["tighter"] < names["radius"] / 2
    assert "Certificate(lower=" in capsys.readouterr().out


def test_the_quickstart_runs(capsys):
    runpy.run_path(str(ROOT / "examples" / "quickstart.py"), run_name="__main__")
    out = capsys.readouterr().out
    assert "minimax regret" in out
    assert "Proof:" in out
