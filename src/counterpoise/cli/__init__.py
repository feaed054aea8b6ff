"""The command: each part of it parses, calls one function, and says what it wrote and where."""

import sys
from io import TextIOWrapper

# The order of the parts is that in which --help lists them.
from counterpoise.cli import fit, predict, evaluate, watch, compare, explore, stock, reproduce  # isort: skip
from counterpoise.cli._base import app, say
from counterpoise.cli._stopping import STOPS, terminable, told

__all__ = ["app", "compare", "evaluate", "explore", "fit", "main", "predict", "reproduce", "stock", "watch"]


def main() -> None:
    """Run the command."""
    # A letter that the output's encoding lacks, as Windows' own does where it goes to a file, is no reason to fail.
    if isinstance(sys.stdout, TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        with terminable():
            app()
    except STOPS as stop:
        # Before a command had begun, or after its end.
        word, code = told(stop)
        say(word)
        raise SystemExit(code) from None
