"""A page with a slider for confidence: every level is solved beforehand, and the page only shows them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any

from counterpoise.reports.explorer.page import written
from counterpoise.reports.explorer.sweep import Sweep, stock_sweep, sweep
from counterpoise.reports.pages.document import save

__all__ = ["Explorer", "Sweep", "stock_sweep", "sweep"]


@dataclass(frozen=True, eq=False, repr=False)
class Explorer:
    """A sweep as one file of HTML, which works offline and asks nothing of anywhere.

    Parameters
    ----------
    sweep : Sweep
        From :func:`sweep` or :func:`stock_sweep`.
    title : str
    settings : mapping, optional
        What the sweep was made from and with, listed at the end of the page.
    """

    sweep: Sweep
    title: str = ""
    settings: Mapping[str, Any] | None = None

    @cached_property
    def html(self) -> str:
        """The page."""
        return written(self.sweep, self.title, self.settings)

    def save(self, path: str | PathLike[str], force: bool = False) -> Path:
        """Write the page, and return where it is.

        Parameters
        ----------
        force : bool
            Whether a file that exists may be replaced.
        """
        return save(path, lambda: self.html, force)

    def __repr__(self) -> str:
        return f"Explorer({len(self.sweep.contexts)} contexts, {len(self.sweep.levels.radii)} levels)"
