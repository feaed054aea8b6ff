"""Signals that stop a program, and when they have to wait."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_STOPS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]


@contextmanager
def undisturbed() -> Iterator[None]:
    """Let Ctrl-C, and what else may stop a command, wait for what must not be left halfway and does not take long."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[tuple[Any, ...]] = []
    before: dict[int, Any] = {}
    try:
        for number in _STOPS:
            handler = signal.getsignal(number)
            # What is ignored, or ends the process without asking Python, is left to do so.
            if callable(handler):
                before[number] = handler
                signal.signal(number, lambda *given: came.append(given))
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if came:
            before[came[0][0]](*came[0])
