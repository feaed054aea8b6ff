"""The command: each part of it parses, calls one function, and says what it wrote and where."""

# The order of the parts is that in which --help lists them.
from counterpoise.cli import fit, predict, compare, explore, stock, reproduce  # isort: skip
from counterpoise.cli._base import app, say

__all__ = ["app", "compare", "explore", "fit", "main", "predict", "reproduce", "stock"]


def main() -> None:
    """Run the command."""
    try:
        app()
    except KeyboardInterrupt:
        # Before a command had begun, or after its end.
        say("Interrupted.")
        raise SystemExit(130) from None
