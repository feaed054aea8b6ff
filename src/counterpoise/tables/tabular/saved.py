"""Models on disk: one readable file of numbers and names, which is checked part by part and runs nothing."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from counterpoise.exceptions import InvalidInputError
from counterpoise.log_targets import LogTarget
from counterpoise.tables.reading.memory import in_words, memory_budget
from counterpoise.tables.tabular.card import CardError, Part, digest, number_json, numbers_json, parsed, plain_json
from counterpoise.tables.tabular.columns import Columns
from counterpoise.tables.tabular.dates import PARTS, DateColumn
from counterpoise.tables.tabular.preprocessing import UNKNOWN, EncodedRows, Preprocessing
from counterpoise.tables.tabular.task import MODELS

if TYPE_CHECKING:
    from sklearn.pipeline import Pipeline

    from counterpoise.sets import Mix
    from counterpoise.tables.reading import DataFile

Array = NDArray[np.float64]

CARD = "model.json"
FILES = (CARD, "report.html", "metrics.json")
"""What the folder of a model holds."""

REPLACEABLE = (*FILES, "model.skops")
"""What a folder may hold that is replaced by another model; earlier versions wrote one file more."""

_FORMAT = 2

_SCOPES = ("global", "local")

_PARSED = 20.0
"""Times its size on disk that a file takes while it is read, about."""

_MOST_INFLUENCES = 60
"""Contexts up to which the influence of each on the others is kept: it grows with their square."""

PROMISE = ("held_out_errors", "promised_risks", "promised_errors")
"""What is kept of held-out rows besides the risks, where it is known."""

_BY_CONTEXT = ("context_weights", "context_risks", "reference_risks", "excess_risks")


@dataclass(frozen=True, eq=False)
class SavedMethod:
    """What the model of one method found.

    Attributes
    ----------
    coef : ndarray of shape (n_scores, n_features)
    intercept : ndarray of shape (n_scores,)
    context_weights, context_risks, reference_risks, excess_risks : ndarray of shape (n_contexts,)
        As a fitted estimator has them.
    radius, draws : float
    certificate : mapping
        The parameters of a :class:`counterpoise.Certificate`.
    parameters : mapping
        Of the estimator: numbers, words and None. A ``mix`` is given by its own parameters.
    held_out_risks : ndarray of shape (n_contexts,) or None
        The risk of each context on rows that the model was not fitted to, where it was measured.
    held_out_errors : ndarray of shape (n_contexts,) or None
        Their standard errors, in which rows of one group count together. NaN for a context of a single row or group.
    promised_risks, promised_errors : ndarray of shape (n_contexts,) or None
        The same in the loss by which a model is watched, where that is another one: see
        :func:`counterpoise.judging.at_fit.watch_losses`.
    log : LogTarget or None
        The way back to the target, where its logarithm is modelled.
    context_influence : ndarray of shape (n_contexts, n_contexts) or None
        As a fitted estimator has it, for at most 60 contexts.
    """

    coef: Array
    intercept: Array
    context_weights: Array
    context_risks: Array
    reference_risks: Array
    excess_risks: Array
    radius: float
    draws: float
    certificate: Mapping[str, Any]
    parameters: Mapping[str, Any]
    held_out_risks: Array | None = None
    log: LogTarget | None = None
    context_influence: Array | None = None
    held_out_errors: Array | None = None
    promised_risks: Array | None = None
    promised_errors: Array | None = None

    @classmethod
    def of(
        cls,
        model: Any,
        held_out_risks: Any = None,
        log: LogTarget | None = None,
        held_out: Mapping[str, Any] | None = None,
    ) -> SavedMethod:
        """Return what a fitted linear estimator found.

        Parameters
        ----------
        held_out : mapping, optional
            Any of ``held_out_errors``, ``promised_risks`` and ``promised_errors``.
        """
        more = {name: np.asarray(one, dtype=np.float64) for name, one in (held_out or {}).items() if one is not None}
        return cls(
            coef=np.atleast_2d(np.asarray(model.coef_, dtype=np.float64)),
            intercept=np.atleast_1d(np.asarray(model.intercept_, dtype=np.float64)),
            **{name: np.asarray(getattr(model, f"{name}_"), dtype=np.float64) for name in _BY_CONTEXT},
            radius=float(model.radius_),
            draws=float(model.draws_),
            certificate={one.name: getattr(model.certificate_, one.name) for one in fields(model.certificate_)},
            parameters={name: _parameter(name, one) for name, one in model.get_params(deep=False).items()},
            held_out_risks=None if held_out_risks is None else np.asarray(held_out_risks, dtype=np.float64),
            log=log,
            context_influence=_influence(model),
            **more,
        )

    @property
    def mix(self) -> Mix | None:
        """What was known about the mix."""
        from counterpoise.sets import Mix

        own = self.parameters.get("mix")
        return None if own is None else Mix(**own)

    @property
    def promise(self) -> dict[str, Array | None]:
        """What later rows are compared with, besides the risks on held-out rows."""
        return {name: getattr(self, name) for name in PROMISE}

    def as_json(self) -> dict[str, Any]:
        """Return it as a card holds it."""
        certificate = {
            name: one if isinstance(one, str) else number_json(one) for name, one in self.certificate.items()
        }
        held_out = None if self.held_out_risks is None else numbers_json(self.held_out_risks)
        return {
            "intercept": numbers_json(self.intercept),
            "coef": [numbers_json(one) for one in self.coef],
            **{name: numbers_json(getattr(self, name)) for name in _BY_CONTEXT},
            "radius": number_json(self.radius),
            "draws": number_json(self.draws),
            "certificate": certificate,
            "held_out_risks": held_out,
            **{name: numbers_json(one) for name, one in self.promise.items() if one is not None},
            "log": None if self.log is None else {"factor": number_json(self.log.factor)},
            "context_influence": (
                None if self.context_influence is None else [numbers_json(one) for one in self.context_influence]
            ),
            "parameters": {name: plain_json(one) for name, one in self.parameters.items()},
        }

    @classmethod
    def read(cls, part: Part, n_scores: int, n_features: int, n_contexts: int) -> SavedMethod:
        """Read it from a card."""
        certificate, held_out = part["certificate"], part["held_out_risks"]
        rows = part["coef"].list
        if len(rows) != n_scores:
            raise CardError(f"{part.where}.coef must hold {n_scores} lists, but it holds {len(rows)}")
        mix = part["parameters"]["mix"].python
        if mix is not None and not (isinstance(mix, dict) and all(isinstance(name, str) for name in mix)):
            part["parameters"]["mix"].refuse("null or the parameters of a mix")
        # Files of earlier versions lack these.
        promise: dict[str, Any] = {
            name: part[name].numbers(n_contexts) for name in PROMISE if not part.get(name).is_null
        }
        return cls(
            coef=np.array([one.numbers(n_features, finite=True) for one in rows]).reshape(n_scores, n_features),
            intercept=part["intercept"].numbers(n_scores, finite=True),
            **{name: part[name].numbers(n_contexts) for name in _BY_CONTEXT},
            radius=part["radius"].number,
            draws=part["draws"].number,
            certificate={
                "lower": certificate["lower"].number,
                "upper": certificate["upper"].number,
                "scope": certificate["scope"].one_of(_SCOPES),
                "scale": certificate["scale"].number,
            },
            parameters={name: one.python for name, one in part["parameters"].items.items()},
            held_out_risks=None if held_out.is_null else held_out.numbers(n_contexts),
            log=None if part["log"].is_null else LogTarget(part["log"]["factor"].finite),
            context_influence=_read_influence(part.items.get("context_influence"), n_contexts),
            **promise,
        )


def _influence(model: Any) -> Array | None:
    """Return the influence of contexts on one another that a fitted estimator has, unless it is too large to keep."""
    found = getattr(model, "context_influence_", None)
    return None if found is None or len(found) > _MOST_INFLUENCES else np.asarray(found, dtype=np.float64)


def _read_influence(part: Part | None, n_contexts: int) -> Array | None:
    """Read it from a card; earlier versions wrote none."""
    if part is None or part.is_null:
        return None
    rows = part.list
    if len(rows) != n_contexts:
        raise CardError(f"{part.where} must hold {n_contexts} lists, but it holds {len(rows)}")
    return np.array([one.numbers(n_contexts, finite=True) for one in rows])


def _parameter(name: str, value: Any) -> Any:
    """Return a parameter of an estimator by plain values."""
    if name == "mix" and value is not None:
        if isinstance(value, Mapping):
            return {"bounds": dict(value)}
        if type(value).__name__ != "Mix":
            raise InvalidInputError(f"a mix that is a {type(value).__name__} cannot be kept. Give it as a Mix.")
        return {one.name: getattr(value, one.name) for one in fields(value)}
    return dict(value) if isinstance(value, Mapping) else value


@dataclass(frozen=True, eq=False)
class SavedModel:
    """The models of a table by several methods, one of which predicts, and what they need to know about files.

    Attributes
    ----------
    columns : Columns
    preprocessing : Preprocessing
    target, task : str
    classes : tuple of str or None
        Of a classification.
    contexts : tuple
        Labels.
    context_counts : ndarray of shape (n_contexts,)
    method : str
        The one that predicts.
    methods : mapping from method to SavedMethod
    pooled : mapping or None
        Which contexts were pooled for the fit, see :attr:`counterpoise.tables.pooling.Pool.described`.
    context : tuple of str
        The columns whose combinations the contexts are.
    """

    columns: Columns
    preprocessing: Preprocessing
    target: str
    task: str
    classes: tuple[str, ...] | None
    contexts: tuple[Any, ...]
    context_counts: Array
    method: str
    methods: Mapping[str, SavedMethod]
    pooled: Mapping[str, Any] | None = field(default=None)
    context: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        models: Mapping[str, Pipeline],
        columns: Columns,
        target: str,
        task: str,
        *,
        method: str | None = None,
        pooled: Mapping[str, Any] | None = None,
        held_out_risks: Mapping[str, Any] | None = None,
        held_out: Mapping[str, Mapping[str, Any]] | None = None,
        logs: Mapping[str, LogTarget] | None = None,
        context: Sequence[str] = (),
    ) -> SavedModel:
        """Return what fitted pipelines of :func:`counterpoise.tables.tabular.task.pipeline` know.

        Parameters
        ----------
        models : mapping from method to Pipeline
            All of the same rows.
        method : str, optional
            The one that predicts; by default the first.
        held_out_risks : mapping from method to ndarray of shape (n_contexts,), optional
        held_out : mapping from method to mapping, optional
            What else is known of these: see :attr:`SavedMethod.promise`.
        logs : mapping from method to LogTarget, optional
            The ways back, where the logarithm of the target is modelled.
        context : sequence of str
            The columns of the contexts.
        """
        first = next(iter(models.values()))
        own = first.named_steps["model"]
        preprocessing = [Preprocessing.of(one.named_steps["encode"], columns) for one in models.values()]
        if any(one != preprocessing[0] for one in preprocessing):
            raise InvalidInputError("the models were fitted to different rows. Fit all of them to the same rows.")
        classes = getattr(own, "classes_", None)
        risks, back, promise = held_out_risks or {}, logs or {}, held_out or {}
        methods = {
            name: SavedMethod.of(one.named_steps["model"], risks.get(name), back.get(name), promise.get(name))
            for name, one in models.items()
        }
        return cls(
            columns,
            preprocessing[0],
            target,
            task,
            None if classes is None else tuple(map(str, classes.tolist())),
            tuple(own.contexts_.tolist()),
            np.asarray(own.context_counts_, dtype=np.float64),
            next(iter(models)) if method is None else method,
            methods,
            pooled,
            tuple(context),
        )

    # --- contexts ----------------------------------------------------------------------------------------------------

    @cached_property
    def _places(self) -> dict[str, int]:
        """Return where a context is, by its name in words; those of members of a pool are that of the pool."""
        places = {in_words_of(label): k for k, label in enumerate(self.contexts)}
        if self.pooled is not None and self.pooled.get("members"):
            pool = places.get(str(self.pooled["label"]))
            if pool is not None:
                places = {**{str(one["context"]): pool for one in self.pooled["members"]}, **places}
        return places

    def place(self, label: Any) -> int | None:
        """Return which context of the fit a label is of; None for one that the fit did not have.

        Parameters
        ----------
        label : object
            As a file or a data frame has it, a tuple where contexts are crossed. A fit calls a number by its column
            too, such as store 4, and may have pooled rare contexts.
        """
        # A column of whole numbers that once had a gap comes as floats.
        parts = [
            int(part) if isinstance(part, float) and part.is_integer() else part
            for part in (label if isinstance(label, tuple) else (label,))
        ]
        ways = [(str(part), f"{name} {part}") for part, name in zip(parts, self.context, strict=False)]
        if len(ways) != len(parts):
            ways = [(str(part),) for part in parts]  # type: ignore[misc]
        return next((self._places[key] for key in map(" x ".join, product(*ways)) if key in self._places), None)

    # --- predictions -------------------------------------------------------------------------------------------------

    def encoded(self, data: DataFile) -> EncodedRows:
        """Return the rows of a file as the preprocessing reads them."""
        X = self.columns.of(data)
        numbers = tuple(X[one.name].to_numpy() for one in self.preprocessing.numbers)
        codes = []
        for one in self.preprocessing.categories:
            own = one.codes(X[one.name])
            if (own == UNKNOWN).any():
                # In a file of text 007 alone is a number; a model that was fitted to words knows it as it is written.
                written = data.written_texts(one.name)
                own = own if written is None else np.where(own == UNKNOWN, one.codes(written), own)
            codes.append(own)
        return EncodedRows(data.n_rows, numbers, tuple(codes))

    def predictions(self, data: DataFile, method: str | None = None) -> dict[str, NDArray[Any]]:
        """Return the columns that a model adds to a file: predictions, and probabilities where there are classes."""
        return self.predictions_of(self.encoded(data), data, method)

    def predictions_of(self, rows: EncodedRows, data: DataFile, method: str | None = None) -> dict[str, NDArray[Any]]:
        """Do the same for rows that are encoded already."""
        own = self.methods[self.method if method is None else method]
        scores = self.preprocessing.scores(rows, own.coef, own.intercept)
        _check_finite(scores, data)
        if self.classes is None:
            with np.errstate(over="ignore"):
                values = np.exp(scores[0]) if self.task == "count" else scores[0]
                values = values if own.log is None else own.log.back(values)
            _check_finite(values[np.newaxis], data)
            return {"prediction": values}
        probabilities = _probabilities(scores)
        return {
            "prediction": np.array(self.classes)[probabilities.argmax(axis=0)],
            **{f"probability[{name}]": own for name, own in zip(self.classes, probabilities, strict=True)},
        }

    def unknown(self, data: DataFile) -> dict[str, int]:
        """Return, for each column of categories, in how many rows a file has one that fit has not seen."""
        return self.unknown_of(self.encoded(data))

    def unknown_of(self, rows: EncodedRows) -> dict[str, int]:
        """Do the same for rows that are encoded already."""
        counts = [int(np.count_nonzero(codes == UNKNOWN)) for codes in rows.codes]
        return {one.name: n for one, n in zip(self.preprocessing.categories, counts, strict=True) if n}

    # --- files -------------------------------------------------------------------------------------------------------

    def write(self, folder: Path) -> None:
        """Write the model into a folder."""
        from counterpoise import __version__

        card = {
            "format": _FORMAT,
            "counterpoise": __version__,
            "target": self.target,
            "task": self.task,
            "classes": None if self.classes is None else list(self.classes),
            "method": self.method,
            "columns": asdict(self.columns),
            "preprocessing": self.preprocessing.as_json(),
            "features": list(self.preprocessing.features),
            "contexts": [plain_json(one) for one in self.contexts],
            "context_counts": numbers_json(self.context_counts),
            "context": list(self.context),
            "pooled": self.pooled,
            "methods": {name: one.as_json() for name, one in self.methods.items()},
        }
        # As it will be read, in which tuples are lists and keys are text.
        card = json.loads(json.dumps(card, allow_nan=False))
        text = json.dumps({**card, "sha256": digest(card)}, indent=1, ensure_ascii=False, allow_nan=False)
        (folder / CARD).write_bytes(text.encode("utf-8", "surrogatepass"))

    @classmethod
    def read(cls, card: Part) -> SavedModel:
        """Read a card."""
        task = card["task"].one_of(tuple(MODELS))
        classes = None if card["classes"].is_null else card["classes"].texts
        if (classes is None) != (task != "classification") or (classes is not None and len(classes) < 2):
            card["classes"].refuse("two texts or more for a classification, and null for other tasks")
        columns = _columns(card["columns"])
        preprocessing = Preprocessing.read(card["preprocessing"], columns)
        contexts = tuple(one.python for one in card["contexts"].list)
        n_scores = 1 if classes is None or len(classes) == 2 else len(classes)
        shape = (n_scores, preprocessing.n_features, len(contexts))
        methods = {name: SavedMethod.read(one, *shape) for name, one in card["methods"].items.items()}
        pooled = card["pooled"]
        return cls(
            columns,
            preprocessing,
            card["target"].text,
            task,
            classes,
            contexts,
            card["context_counts"].numbers(len(contexts), finite=True),
            card["method"].one_of(tuple(methods)),
            methods,
            None if pooled.is_null else {name: one.value for name, one in pooled.items.items()},
            card["context"].texts,
        )


def _columns(part: Part) -> Columns:
    """Read columns from a card."""
    return Columns(
        part["numbers"].texts,
        part["categories"].texts,
        {name: one.text for name, one in part["left_out"].items.items()},
        tuple(_date_column(one) for one in part["dates"].list),
        part["coded"].texts,
    )


def _date_column(part: Part) -> DateColumn:
    day_first, zone = part["day_first"], part["zone"]
    if not isinstance(day_first.value, (bool, type(None))):
        day_first.refuse("true, false or null")
    return DateColumn(
        part["column"].text,
        tuple(one.one_of(PARTS) for one in part["parts"].list),
        day_first.value,
        None if zone.is_null else zone.text,
    )


def in_words_of(label: Any) -> str:
    """Return a context in words; the parts of a crossed one side by side."""
    return " x ".join(map(str, label)) if isinstance(label, tuple) else str(label)


def _check_finite(scores: Array, data: DataFile) -> None:
    """Refuse rows so far out that their prediction is not a float."""
    if not np.isfinite(scores).all():
        row = int(np.flatnonzero(~np.isfinite(scores).all(axis=0))[0])
        raise InvalidInputError(
            f"the prediction of {data.row_name(row)} of {data.path.name} is too large for a float. Check its numbers."
        )


def _probabilities(scores: Array) -> Array:
    """Return the probability of each class, of shape (n_classes, n_rows)."""
    if len(scores) == 1:
        # Both from their own side: 1 - p would lose what is left of a small probability.
        with np.errstate(over="ignore"):
            return 1.0 / (1.0 + np.exp(np.stack([scores[0], -scores[0]])))
    powers = np.exp(scores - scores.max(axis=0))
    # One class after the other: the order of a sum over an axis depends on the number of rows.
    total = np.zeros(scores.shape[1])
    for one in powers:
        total += one
    return np.asarray(powers / total)


def load(folder: Path) -> SavedModel:
    """Read a model; what is not as counterpoise wrote it is refused."""
    if not folder.exists():
        raise InvalidInputError(f"there is no folder {folder}. Fit a model first: counterpoise fit ... --out {folder}")
    path = folder / CARD
    if not path.is_file():
        raise InvalidInputError(f"{folder} holds no model ({CARD}). Name a folder that counterpoise fit wrote.")
    size = path.stat().st_size
    if _PARSED * size > memory_budget():
        raise InvalidInputError(f"{path} has {in_words(size)}, too much to be read as a model. Fit the model again.")
    try:
        card = parsed(path.read_bytes().decode("utf-8", "surrogatepass"))
    except (OSError, ValueError, RecursionError) as error:
        raise InvalidInputError(f"{path} cannot be read ({error!s:.200}). Fit the model again.") from error
    version = card.get("format")
    if version != _FORMAT:
        earlier = version == 1 and not isinstance(version, bool)
        raise InvalidInputError(
            f"{path} is of {'an earlier' if earlier else 'another'} version of counterpoise. Fit the model again."
        )
    try:
        said = card.pop("sha256", None)
        if said != digest(card):
            raise CardError("it was changed after it was written")
        return SavedModel.read(Part(card))
    except (ValueError, TypeError, RecursionError) as error:
        raise InvalidInputError(
            f"{path} is not as counterpoise wrote it: {error!s:.300}. Fit the model again."
        ) from error
