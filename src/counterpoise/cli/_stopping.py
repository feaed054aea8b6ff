"""A command that is told to end: by Ctrl-C, by the system, or by a terminal that is closed."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_ENDING = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]


class Terminated(SystemExit):
    """Another signal than Ctrl-C that ends a command, with the exit code that shells give to it.

    Typer takes Ctrl-C for its own outside of commands, and does not tell signals apart; a call of ``sys.exit`` it lets
    pass.
    """


@contextmanager
def terminable() -> Iterator[None]:
    """Let SIGTERM and SIGHUP, which would end Python at once, leave no temporary files and no processes behind."""
    before: dict[int, Any] = {}
    if threading.current_thread() is threading.main_thread():
        for name in ("SIGTERM", "SIGHUP"):
            number = getattr(signal, name, None)
            # One that is ignored, as under nohup, stays so.
            if number is not None and signal.getsignal(number) is signal.SIG_DFL:
                before[number] = signal.signal(number, _stop)
    try:
        yield
    finally:
        for number, handler in before.items():
            if signal.getsignal(number) is _stop:
                signal.signal(number, handler)


def too_late() -> None:
    """Let what would stop the command do nothing from here on: its result is in place, or about to be."""
    if threading.current_thread() is threading.main_thread() and _stop in map(signal.getsignal, _ENDING):
        for number in _ENDING:
            signal.signal(number, signal.SIG_IGN)


def _stop(number: int, frame: Any) -> None:
    raise Terminated(128 + number)


STOPS = (KeyboardInterrupt, Terminated)
"""What is raised where a command is told to end."""


def told(stop: KeyboardInterrupt | Terminated) -> tuple[str, Any]:
    """Return a word for what has stopped a command, and the exit code that shells give to it."""
    return ("Terminated.", stop.code) if isinstance(stop, Terminated) else ("Interrupted.", 130)
