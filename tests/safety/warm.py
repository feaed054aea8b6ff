"""Run commands in children of one process that has imported everything, and press Ctrl-C in them.

Read from standard input, one line each: a list of arguments; when to press: seconds after the start, the beginning of
the name of a file whose appearance is the moment, or null; code that the child runs first; and the number of the
signal. Answered by one line: exit code, seconds, and what was printed and said.
"""

import importlib
import json
import os
import signal
import sys
import time
import traceback
from functools import partial
from pathlib import Path

from counterpoise import cli
from tests.draws import fewer_draws

for name in (
    "core.path",
    "judging.comparison",
    "reports.explorer",
    "reports.report",
    "reports.stock",
    "stock.planning",
    "tables.reading",
    "tables.tabular.fitting",
    "tables.tabular.model_folder",
    "tables.tabular.saved",
    "experiments.reproduce",
):
    importlib.import_module(f"counterpoise.{name}")
for name in ("matplotlib.figure", "pyarrow.parquet", "pyarrow.csv", "rich.console", "rich.progress"):
    importlib.import_module(name)

# A path of few levels and intervals of few draws: what is tested is when they end, not what they find.
fewer_draws()
report = sys.modules["counterpoise.reports.report"]
report.confidence_path = partial(
    lambda path, *given, **named: path(*given, **{**named, "levels": 3}), report.confidence_path
)


def child(arguments, said, before):
    """Be the command."""
    code, begun = 1, False
    try:
        try:
            sys.stderr = sys.stdout = said.open("w", encoding="utf-8")
            # Whatever the tests themselves were started to ignore.
            signal.signal(signal.SIGINT, signal.default_int_handler)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.signal(signal.SIGHUP, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
            exec(before, {})
            sys.argv = ["counterpoise", *arguments]
            begun = True
            cli.main()
        finally:
            # What is pressed after the end of the command is not for it.
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    except BaseException as error:
        late = isinstance(error, KeyboardInterrupt) and isinstance(error.__context__, SystemExit)
        end = error.__context__ if late else error
        if isinstance(end, SystemExit):
            code = end.code or 0
        else:
            # Before the command has begun, nothing of it can speak.
            code = 99 if begun or not isinstance(error, KeyboardInterrupt) else 130
        if code == 99:
            traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def trial(arguments, press, before, number, said):
    """Start a child, press when it is time, and wait for it."""
    begun = time.perf_counter()
    pid = os.fork()
    if pid == 0:
        child(arguments, said, before)
    pressed = press is None
    while True:
        ended, status = os.waitpid(pid, os.WNOHANG)
        passed = time.perf_counter() - begun
        if ended:
            return os.waitstatus_to_exitcode(status), passed, said.read_text(encoding="utf-8")
        if passed > 60.0:
            os.kill(pid, signal.SIGKILL)
        if not pressed and (passed >= press if isinstance(press, float) else any_begins(press)):
            os.kill(pid, number)
            pressed = True
        time.sleep(0.0002 if isinstance(press, str) else 0.001)


def any_begins(place):
    """Tell whether there is a file whose name begins so."""
    folder, _, beginning = place.rpartition("/")
    try:
        return any(name.startswith(beginning) for name in os.listdir(folder))
    except OSError:
        return False


if __name__ == "__main__":
    # A child may be pressed before it is ready.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    for line in sys.stdin:
        print(json.dumps(trial(*json.loads(line), Path("said.txt").absolute())), flush=True)
