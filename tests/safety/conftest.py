"""Commands in processes that begin at once."""

import json
import os
import signal
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from counterpoise.cli import app
from tests.safety.processes import commands, environment, table


@pytest.fixture(scope="session")
def pressed(tmp_path_factory):
    """Return a function that runs a command, interrupts it, and returns exit code, seconds and words."""
    if not hasattr(os, "fork"):
        pytest.skip("runs commands in children by fork")
    home = tmp_path_factory.mktemp("home")
    variables = environment(home, os.getcwd(), MPLCONFIGDIR=str(home), COUNTERPOISE_CACHE=str(home))
    warm = subprocess.Popen(
        [sys.executable, "-m", "tests.safety.warm"],
        **{"cwd": home, "env": variables, "text": True, "stdin": subprocess.PIPE, "stdout": subprocess.PIPE},
    )

    def press(arguments, moment=None, before="", number=signal.SIGINT):
        warm.stdin.write(json.dumps([[str(one) for one in arguments], moment, before, int(number)]) + "\n")
        warm.stdin.flush()
        return json.loads(warm.stdout.readline())

    yield press
    warm.stdin.close()
    warm.wait()
    warm.stdout.close()


@pytest.fixture(scope="session")
def fitted(tmp_path_factory):
    """Return a table and the folder of a model."""
    folder = tmp_path_factory.mktemp("fitted")
    file = table(folder)
    result = CliRunner().invoke(app, [str(one) for one in commands(file, folder)["fit"][0]], catch_exceptions=False)
    assert result.exit_code == 0
    return file, folder / "model"
