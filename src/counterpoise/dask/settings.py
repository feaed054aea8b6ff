"""How fits to dask collections are run; what is fitted is said by the estimators."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from counterpoise.exceptions import InvalidInputError


@dataclass(frozen=True)
class Settings:
    """See :func:`settings`."""

    client: Any = None
    checkpoint: Path | None = None
    patience: float = 300.0


_DEFAULT = Settings()
_CURRENT: ContextVar[Settings] = ContextVar("counterpoise_dask", default=_DEFAULT)


def current() -> Settings:
    """Return the settings in force."""
    return _CURRENT.get()


@contextmanager
def settings(
    *, client: Any = None, checkpoint: str | PathLike[str] | None = None, patience: float = 300.0
) -> Iterator[None]:
    """Say how the fits inside are run.

    Parameters
    ----------
    client : distributed.Client, optional
        Else the one that was made last. Without any, partitions are worked on one after the other, here.
    checkpoint : path, optional
        A file that keeps the answer of every pass over the data. A fit that was cut short and is begun again with the
        same file, on the same data, goes on where it ended; once it is done the file is removed.
    patience : float
        Seconds to wait for a worker while there is none.

    Examples
    --------
    >>> with settings(checkpoint="model.checkpoint"):                  # doctest: +SKIP
    ...     model.fit(X, y, contexts=hospital)
    """
    if not patience > 0:
        raise InvalidInputError(f"patience is {patience!r}; pass a positive number of seconds.")
    token = _CURRENT.set(Settings(client, None if checkpoint is None else Path(checkpoint), float(patience)))
    try:
        yield
    finally:
        _CURRENT.reset(token)
