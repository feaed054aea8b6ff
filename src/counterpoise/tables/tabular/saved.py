"""Models on disk: a folder that can be read again without running what is in it."""

from __future__ import annotations

import hashlib
import json
import warnings
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from counterpoise.exceptions import InvalidInputError
from counterpoise.tables.tabular.columns import Columns
from counterpoise.tables.tabular.task import MODELS

if TYPE_CHECKING:
    from sklearn.pipeline import Pipeline

    from counterpoise.tables.reading import DataFile

MODEL, CARD = "model.skops", "model.json"
FILES = (MODEL, CARD, "report.html", "metrics.json")
"""What the folder of a model holds."""

_FORMAT = 1

TRUSTED = frozenset(
    {
        "counterpoise.core.objective.Certificate",
        "counterpoise.sets.mix.Mix",
        "numpy.dtype",
        "numpy.float64",
        "numpy.int64",
        "numpy.ndarray",
        "sklearn.compose._column_transformer.ColumnTransformer",
        "sklearn.impute._base.MissingIndicator",
        "sklearn.impute._base.SimpleImputer",
        "sklearn.pipeline.Pipeline",
        "sklearn.preprocessing._data.StandardScaler",
        "sklearn.preprocessing._encoders.OneHotEncoder",
        *(f"builtins.{name}" for name in ("dict", "list", "slice", "str", "tuple")),
        *(f"counterpoise.estimators.linear.{name}" for name in MODELS.values()),
    }
)
"""All that a model of ours is made of; skops itself trusts much more than this."""

_LOADERS = frozenset(
    f"{name}Node" for name in ("DType", "Dict", "Json", "List", "NdArray", "Object", "Slice", "Tuple", "Type")
)
"""Ways by which skops makes them. Others would call what the file names."""


@dataclass(frozen=True, eq=False)
class SavedModel:
    """A fitted pipeline and what it needs to know about files.

    Attributes
    ----------
    pipeline : Pipeline
    columns : Columns
    target, task : str
    pooled : mapping or None
        Which contexts were pooled for the fit, see :attr:`counterpoise.tables.pooling.Pool.described`.
    """

    pipeline: Pipeline
    columns: Columns
    target: str
    task: str
    pooled: Mapping[str, Any] | None = None

    @property
    def is_whole(self) -> bool:
        """Whether the pipeline is one of ours, fitted to these columns for this task."""
        steps = getattr(self.pipeline, "named_steps", {})
        model, encode = steps.get("model"), steps.get("encode")
        kinds = {name: list(names) for name, _, names in getattr(encode, "transformers_", ())}
        return (
            type(model).__name__ == MODELS.get(self.task)
            and hasattr(model, "coef_")
            and kinds.get("numbers") == list(self.columns.numbers)
            and kinds.get("categories") == list(self.columns.categories)
            and all(isinstance(name, str) for name in (*self.columns.features, self.target))
        )

    def write(self, folder: Path) -> None:
        """Write the model into a folder."""
        import skops.io

        from counterpoise import __version__

        skops.io.dump(self.pipeline, folder / MODEL)
        card = {
            "format": _FORMAT,
            "counterpoise": __version__,
            "target": self.target,
            "task": self.task,
            "columns": asdict(self.columns),
            "pooled": self.pooled,
            "sha256": _digest(folder / MODEL),
        }
        (folder / CARD).write_text(json.dumps(card, indent=1, ensure_ascii=False), encoding="utf-8")

    def predictions(self, data: DataFile) -> dict[str, NDArray[Any]]:
        """Return the columns that a model adds to a file: predictions, and probabilities where there are classes."""
        X = self.columns.of(data)
        with warnings.catch_warnings():
            # Categories that fit has not seen are counted by the caller.
            warnings.filterwarnings("ignore", message="Found unknown categories")
            if self.task != "classification":
                return {"prediction": np.asarray(self.pipeline.predict(X))}
            probabilities, classes = self.pipeline.predict_proba(X), self.pipeline.classes_
        return {
            "prediction": classes[probabilities.argmax(axis=1)],
            **{f"probability[{name}]": probabilities[:, k] for k, name in enumerate(classes.tolist())},
        }

    def unknown(self, data: DataFile) -> dict[str, int]:
        """Return, for each column of categories, in how many rows a file has one that fit has not seen."""
        encoder = self.pipeline.named_steps["encode"].named_transformers_.get("categories")
        if not self.columns.categories or encoder is None or isinstance(encoder, str):
            return {}
        counted = {}
        for name, known in zip(self.columns.categories, encoder.categories_, strict=True):
            values = data.texts(name).to_pylist()
            seen = {None if one != one else one for one in known.tolist()}
            strange = sum(value not in seen for value in values)
            if strange:
                counted[name] = strange
        return counted


def load(folder: Path) -> SavedModel:
    """Read a model, refusing whatever would have to be trusted."""
    import skops.io

    if not folder.exists():
        raise InvalidInputError(f"there is no folder {folder}. Fit a model first: counterpoise fit ... --out {folder}")
    if not (folder / CARD).is_file() or not (folder / MODEL).is_file():
        raise InvalidInputError(
            f"{folder} holds no model ({MODEL} and {CARD}). Name a folder that counterpoise fit wrote."
        )
    card = _card(folder / CARD)
    if card["sha256"] != _digest(folder / MODEL):
        raise InvalidInputError(
            f"{folder / MODEL} is not the file that {CARD} describes: it was changed. Fit it again."
        )
    try:
        _refuse_strange(folder / MODEL, _types_in(folder / MODEL))
        _refuse_strange(folder / MODEL, skops.io.get_untrusted_types(file=folder / MODEL))
        pipeline = skops.io.load(folder / MODEL, trusted=sorted(TRUSTED))
    except InvalidInputError:
        raise
    except Exception as error:
        # Whatever a damaged or foreign file makes skops raise, the user's next step is the same.
        raise InvalidInputError(
            f"{folder / MODEL} cannot be read ({type(error).__name__}: {error}). It may be damaged, or written by "
            "another version of scikit-learn. Fit it again."
        ) from error
    columns = card["columns"]
    sorted_columns = Columns(tuple(columns["numbers"]), tuple(columns["categories"]), dict(columns["left_out"]))
    saved = SavedModel(pipeline, sorted_columns, card["target"], card["task"], card.get("pooled"))
    if not saved.is_whole:
        raise InvalidInputError(f"{folder / MODEL} is not the model that {CARD} describes. Fit it again.")
    return saved


def _refuse_strange(path: Path, types: Iterable[str]) -> None:
    strange = sorted(set(types) - TRUSTED)
    if strange:
        raise InvalidInputError(
            f"{path} holds types that no model of counterpoise is made of: {', '.join(strange[:10]):.300}. Loading "
            "them could run code of whoever wrote the file, so it is refused."
        )


def _types_in(path: Path) -> set[str]:
    """Return the names of all types in a model, and of the ways to make them that ours do not need."""
    with zipfile.ZipFile(path) as archive:
        files = archive.infolist()
        # skops does not compress: what claims to hold more than the file itself is made to fill the memory.
        if sum(one.file_size for one in files) > path.stat().st_size:
            raise ValueError("it would expand to more than it is")
        strange = [one.filename for one in files if one.filename != "schema.json" and not one.filename.endswith(".npy")]
        if strange:
            raise ValueError(f"it holds a file {strange[0]:.100}")
        waiting, types = [json.loads(archive.read("schema.json"))], set()
    while waiting:
        one = waiting.pop()
        if isinstance(one, dict):
            if "__class__" in one or "__loader__" in one:
                types.add(f"{one.get('__module__')}.{one.get('__class__')}")
                types |= {str(one.get("__loader__"))} - _LOADERS
            waiting += one.values()
        elif isinstance(one, list):
            waiting += one
    return types


def _card(path: Path) -> dict[str, Any]:
    try:
        card = json.loads(path.read_text(encoding="utf-8"))
        columns = card["columns"]
        is_ours = (
            card["format"] == _FORMAT
            and all(isinstance(card[name], str) for name in ("sha256", "target", "task"))
            and isinstance(columns["numbers"] + columns["categories"], list)
            and isinstance(columns["left_out"], dict)
        )
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise InvalidInputError(f"{path} cannot be read ({error}). Fit the model again.") from error
    if not is_ours:
        raise InvalidInputError(f"{path} is of another version of counterpoise. Fit the model again.")
    return dict(card)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
