"""The command in processes of its own, as a shell would run it."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import counterpoise
from tests.cli.test_other_commands import QUICK
from tests.tables.tabular.examples import patients, save

SOURCE = Path(counterpoise.__file__).parents[1]

ILL = ("--target", "ill", "--context", "hospital", "--only", "age", "--only", "weight")
MODEL = (*ILL, *QUICK)
SALES = ("--demand", "days", "--cost", "2", "--price", "5", "--context", "hospital")


def table(folder):
    """Write the table that commands read, and return its place."""
    return save(patients(), folder / "patients.csv")


def commands(file, out):
    """Return what a user may call, and the file or folder that each leaves."""
    return {
        "fit": (("fit", file, *MODEL, "--force", "--out", out / "model"), out / "model"),
        "compare": (("compare", file, *MODEL), None),
        "stock": (("stock", file, *SALES, "--force", "--out", out / "stock.html"), out / "stock.html"),
        "explore": (("explore", file, *SALES, "--force", "--out", out / "page.html"), out / "page.html"),
    }


def environment(home, *paths, **more):
    """Return the variables of a process whose home is elsewhere; ``paths`` hold modules that it should find first."""
    path = os.pathsep.join(map(str, (*paths, SOURCE)))
    own = {"HOME": str(home), "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "XDG_CACHE_HOME": "", **more}
    return {**os.environ, **own}


COMMAND = (sys.executable, "-c", "from counterpoise.cli import main; main()")


def start(arguments, home, **variables):
    """Begin a command."""
    return subprocess.Popen(
        [*COMMAND, *map(str, arguments)],
        cwd=home,
        env=environment(home, **variables),
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=heeding,
    )


def heeding():
    """Heed signals, whatever the tests themselves were started to ignore (nohup, a job in the background)."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def listing(folder):
    """Return what is in a folder, at any depth."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))
