"""Processes that train one model together."""

import time


def finish(processes, seconds):
    """Wait until all have ended, and end those that have not; raise unless all went well."""
    deadline = time.monotonic() + seconds
    try:
        said = [process.communicate(timeout=max(deadline - time.monotonic(), 0.1))[1] for process in processes]
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
                process.communicate()
    assert [process.returncode for process in processes] == [0] * len(processes), "\n".join(said)
