"""The command: each part of it parses, calls one function, and says what it wrote and where."""

from counterpoise.cli import reproduce, stock
from counterpoise.cli._base import app

__all__ = ["app", "main", "reproduce", "stock"]


def main() -> None:
    """Run the command."""
    app()
