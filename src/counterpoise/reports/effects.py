"""What the coefficients of a linear model do, who pulls at them, and what a badly served context would rather have."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import t as student_t
from sklearn.pipeline import Pipeline

from counterpoise.contexts import encode, objects, plain, shown
from counterpoise.estimators.learners import fit_routed, fit_weighted, innermost
from counterpoise.estimators.linear import ContextGradients, RobustLinearModel
from counterpoise.exceptions import InvalidInputError
from counterpoise.judging.measures import task_of
from counterpoise.judging.trials import variant
from counterpoise.memberships import Memberships
from counterpoise.reports.features import Feature, features_of, spread_of
from counterpoise.reports.methods import COLOURS
from counterpoise.reports.pages.document import table
from counterpoise.reports.pages.rows import DotRow, dot_chart
from counterpoise.reports.pages.scales import number
from counterpoise.reports.pages.words import Html
from counterpoise.table import Table
from counterpoise.validation import unwrapped

Array = NDArray[np.float64]

LISTED = 15
"""Coefficients that are shown, the largest."""

_DRAWN = 10
_NAMED = 2
_WISHES = 3
_BLOCKS = 20
_LEVEL = 0.95
_VARIES = 0.1
_HARDLY = 0.2
_MOST_CELLS = 500_000


@dataclass(frozen=True)
class Wish:
    """A coefficient that a context would have otherwise.

    Attributes
    ----------
    feature : Feature
    output : str
        The class it is about, where there are more than two.
    model, own : float
        The coefficient of the robust model and of the context's own one, per step of the feature.
    reach : float
        How far the latter may be off by chance, at 95% for all coefficients together.
    """

    feature: Feature
    output: str
    model: float
    own: float
    reach: float

    @property
    def words(self) -> str:
        """The wish, as the end of a sentence."""
        if abs(self.own) < _HARDLY * abs(self.model):
            kind = "hardly any effect"
        elif self.own * self.model < 0:
            kind = "the opposite effect"
        else:
            kind = "a larger effect" if abs(self.own) > abs(self.model) else "a smaller effect"
        instead = f"{number(self.own, 2)} instead of {number(self.model, 2)}{self.feature.per_step}"
        return f"{kind} of {_of(self.feature.name, self.output)} ({instead})"


@dataclass(frozen=True, eq=False)
class Effects:
    """Coefficients of the robust model beside those of the plain one, and the contexts that pull at them.

    Attributes
    ----------
    rows : Table
        A row per coefficient, the largest first: ``feature``, ``output`` (a class, where there are more than two),
        ``robust`` and ``erm`` per standard deviation of the feature, ``step`` (a round number of the feature's own
        units) with ``robust_step`` and ``erm_step``, and the contexts that would gain most by a larger (``up``) or a
        smaller (``down``) coefficient, in words.
    n_coefficients : int
        Of which the rows are the largest.
    meaning : str
        What a coefficient is added to.
    context : label or None
        The context whose wishes are listed, with its number of rows ``n``.
    wishes : tuple of Wish
        Its own coefficients that differ from those of the model by more than chance allows (95%, all of them
        together), the most important first.
    turns : tuple of str
        Where it has no model of its own: what it would gain by, from the gradient of its risk.
    """

    rows: Table
    n_coefficients: int
    meaning: str
    context: Any = None
    n: int = 0
    wishes: tuple[Wish, ...] = ()
    turns: tuple[str, ...] = field(default=())
    has_own_model: bool = False

    @classmethod
    def of(
        cls,
        fitted: Any,
        X: Any,
        y: Any,
        contexts: Any,
        *,
        badly_served: Any = None,
        groups: Any = None,
        erm: Any = None,
        log_target: bool = False,
    ) -> Effects | None:
        """Look into a fitted model; None where it is not linear, or its features cannot be told.

        Parameters
        ----------
        fitted : estimator
            A robust linear model, or a pipeline that ends in one.
        X, y, contexts, groups
            The rows of the fit, or a sample of them.
        badly_served : label, optional
            The context whose wishes are asked for.
        erm : estimator, optional
            The plain model, where it is fitted already.
        log_target : bool
            Whether y is the logarithm of the target.
        """
        own = innermost(fitted)
        if not isinstance(own, RobustLinearModel) or isinstance(contexts, Memberships):
            return None
        columns = fitted[:-1].transform(X) if isinstance(fitted, Pipeline) and len(fitted.steps) > 1 else X
        features = features_of(fitted, X, columns)
        if features is None:
            return None
        names = {shown(plain(one)): one for one in own.contexts_}
        if erm is None:
            erm = fit_routed(variant(own, "erm", own.contexts_), columns, y, contexts=contexts)
        gradients = own.context_gradients(columns, y, contexts)
        spread = np.array([one.spread for one in features])
        step = np.array([one.slope * one.step for one in features])
        robust, plain_ = np.atleast_2d(own.coef_), np.atleast_2d(innermost(erm).coef_)
        outputs = _outputs(own)
        if plain_.shape != robust.shape:
            plain_ = np.full(robust.shape, np.nan)
        order = _largest(np.maximum(np.abs(robust), np.nan_to_num(np.abs(plain_))) * spread)
        pulls = [_pulls(gradients, at, len(outputs)) for at in order]
        rows = {
            "feature": objects([features[j].name for _, j in order]),
            "output": objects([outputs[k] for k, _ in order]),
            "robust": np.array([robust[k, j] * spread[j] for k, j in order]),
            "erm": np.array([plain_[k, j] * spread[j] for k, j in order]),
            "step": objects([features[j].per_step for _, j in order]),
            "robust_step": np.array([robust[k, j] * step[j] for k, j in order]),
            "erm_step": np.array([plain_[k, j] * step[j] for k, j in order]),
            "up": objects([up for up, _ in pulls]),
            "down": objects([down for _, down in pulls]),
        }
        found: dict[str, Any] = {}
        if badly_served is not None and shown(plain(badly_served)) in names:
            found = _wishes(own, features, columns, y, contexts, groups, badly_served, gradients)
        return cls(Table(rows), robust.size, _meaning(own, log_target), **found)

    @property
    def chart(self) -> Html:
        """The largest coefficients per standard deviation, robust beside plain."""
        rows = list(self.rows.rows())[:_DRAWN]
        return dot_chart(
            [DotRow(_named(row), {name: row[name] for name in ("robust", "erm")}) for row in rows],
            colours={name: COLOURS[name] for name in ("robust", "erm")},
            title="What one standard deviation more of a feature does",
            x_label=f"added to the {self.meaning}",
            alt="; ".join(f"{_named(row)}: robust {number(row['robust'])}, erm {number(row['erm'])}" for row in rows),
        )

    @property
    def html(self) -> Html:
        """The table of coefficients."""
        rows = self.rows
        both = zip(rows["robust_step"], rows["step"], strict=True)
        cells = {
            "feature": objects([_named(row) for row in rows.rows()]),
            "robust": rows["robust"],
            "erm": rows["erm"],
            "robust, in its own unit": objects([f"{number(value)}{per}" for value, per in both]),
            "larger for": rows["up"],
            "smaller for": rows["down"],
        }
        left_out = self.n_coefficients - rows.n_rows
        note = f"and {left_out} smaller ones" if left_out else ""
        return table(
            Table(cells, note),
            left=["feature", "larger for", "smaller for"],
            formats=dict.fromkeys(("robust", "erm"), number),
            caption=f"Coefficients per standard deviation, added to the {self.meaning}, and which contexts would gain "
            "by a larger or a smaller one",
        )

    @property
    def why(self) -> str:
        """What the context would have otherwise, in a sentence or two that call it "it"."""
        if self.context is None:
            return ""
        if self.wishes:
            return f"Its own model finds {_listed([wish.words for wish in self.wishes])}."
        told = (
            "No coefficient of its own model can be told apart from that of the robust one."
            if self.has_own_model
            else "It has no model of its own with the same coefficients."
        )
        return f"{told} It would gain most by {_listed(list(self.turns))}." if self.turns else told


def _outputs(own: RobustLinearModel) -> list[str]:
    """Return the name of each row of coefficients."""
    classes = getattr(own, "classes_", None)
    return [""] if classes is None or len(classes) == 2 else [shown(plain(one)) for one in classes]


def _meaning(own: RobustLinearModel, log_target: bool) -> str:
    task = task_of(own)
    if task == "classification":
        classes: Any = getattr(own, "classes_", ())
        return f"log-odds of {shown(plain(classes[1]))}" if len(classes) == 2 else "score of a class (log scale)"
    if log_target:
        return "logarithm of the prediction"
    words = {"count": "logarithm of the expected count", "quantile": "predicted quantile"}
    return words.get(task, "prediction")


def _named(row: dict[str, Any]) -> str:
    return _of(row["feature"], row["output"])


def _of(feature: str, output: str) -> str:
    """Return what a coefficient is of, where there are several classes with its class."""
    return f"{feature} for class {output}" if output else feature


def _largest(sizes: Array) -> list[tuple[int, int]]:
    order = np.argsort(-sizes, axis=None, kind="stable")[:LISTED]
    return [(int(k), int(j)) for k, j in zip(*divmod(order, sizes.shape[1]), strict=True)]


def _pulls(gradients: ContextGradients, at: tuple[int, int], n_outputs: int) -> tuple[str, str]:
    """Return who would gain by a larger and by a smaller coefficient, by more than noise."""
    shape = (len(gradients.contexts), n_outputs, -1)
    own, error = (one.reshape(shape)[:, at[0], at[1]] for one in (gradients.coef, gradients.coef_error))
    with np.errstate(invalid="ignore"):
        clear = np.abs(own) > _multiple(len(own), gradients.counts - 1.0) * error
    sides = []
    for sign in (-1.0, 1.0):
        order = [c for c in np.argsort(-sign * own, kind="stable") if clear[c] and sign * own[c] > 0]
        more = f" and {len(order) - _NAMED} more" if len(order) > _NAMED else ""
        sides.append(", ".join(shown(plain(gradients.contexts[c])) for c in order[:_NAMED]) + more)
    return sides[0], sides[1]


def _listed(parts: list[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def _wishes(
    own: RobustLinearModel,
    features: list[Feature],
    columns: Any,
    y: Any,
    contexts: Any,
    groups: Any,
    label: Any,
    gradients: ContextGradients,
) -> dict[str, Any]:
    """Return what a context would have otherwise, as the attributes of :class:`Effects`."""
    from sklearn.utils import _safe_indexing

    encoded = encode(contexts)
    c = next(k for k, one in enumerate(encoded.labels) if plain(one) == plain(label))
    rows = np.flatnonzero(encoded.codes == c)
    found: dict[str, Any] = {"context": plain(label), "n": len(rows)}
    target = np.asarray(unwrapped(y))
    outputs, size = _outputs(own), len(features)

    def alone(at: NDArray[np.intp]) -> Array:
        model = fit_weighted(variant(own, "erm", [0]), _safe_indexing(columns, at), target[at], np.ones(len(at)))
        return np.atleast_2d(innermost(model).coef_)

    spread, within = (spread_of(one) for one in (columns, _safe_indexing(columns, rows)))
    # A feature that hardly varies in a context has no effect there to speak of.
    varies = within > _VARIES * spread
    if len(rows) > _BLOCKS:
        # Many rows tell more than anyone would ask: some of them will do, so that nobody waits.
        few = max(_MOST_CELLS // (size * len(outputs)), _BLOCKS + 1)
        own_rows = rows if len(rows) <= few else np.random.default_rng(0).choice(rows, few, replace=False)
        units = own_rows if groups is None else encode(groups).codes[own_rows]
        fitted = _jackknife(alone, own_rows, units, (len(outputs), size))
        if fitted is not None:
            found |= {"has_own_model": True, "wishes": _clear_wishes(own, *fitted, varies * within, features, outputs)}
    return found | {"turns": _turns(gradients, c, np.where(varies, spread, np.inf), features, outputs)}


def _clear_wishes(
    own: RobustLinearModel, coef: Array, reach: Array, spread: Array, features: list[Feature], outputs: list[str]
) -> tuple[Wish, ...]:
    """Return the coefficients of a context's own model that are not those of the robust one, by what they do to it."""
    robust = np.atleast_2d(own.coef_)
    far = np.where(np.abs(coef - robust) > reach, np.abs(coef - robust) * spread, 0.0)
    wishes = []
    for k, j in _largest(far)[:_WISHES]:
        if far[k, j] > 0:
            step = features[j].slope * features[j].step
            numbers = (float(step * one[k, j]) for one in (robust, coef, np.copysign(reach, step)))
            wishes.append(Wish(features[j], outputs[k], *numbers))
    return tuple(wishes)


def _jackknife(
    fit: Callable[[NDArray[np.intp]], Array], rows: NDArray[np.intp], units: NDArray[Any], shape: tuple[int, int]
) -> tuple[Array, Array] | None:
    """Return coefficients, and how far they reach by chance, by leaving out blocks of units; None where a fit fails."""
    _, unit = np.unique(units, return_inverse=True)
    n_units = int(unit.max()) + 1
    n_blocks = min(_BLOCKS, n_units)
    if n_blocks < 3:
        return None
    block = np.random.default_rng(0).permutation(np.arange(n_units) % n_blocks)[unit]
    try:
        whole = fit(rows)
        parts = [fit(rows[block != k]) for k in range(n_blocks)]
    except InvalidInputError:
        # One class only, or too few rows.
        return None
    if any(one.shape != shape for one in (whole, *parts)):
        return None
    stack = np.array(parts)
    error = np.sqrt((n_blocks - 1.0) / n_blocks * np.sum((stack - stack.mean(axis=0)) ** 2, axis=0))
    return whole, error * _multiple(whole.size, n_blocks - 1.0)


def _multiple(n: int, degrees: Any) -> Any:
    """Return the standard errors that none of so many numbers, all zero, is likely to exceed."""
    return student_t.ppf(1.0 - 0.5 * (1.0 - _LEVEL) / n, degrees)


def _turns(
    gradients: ContextGradients, c: int, spread: Array, features: list[Feature], outputs: list[str]
) -> tuple[str, ...]:
    """Return the coefficients a context would gain most by changing, from the slope of its risk."""
    shape = (len(outputs), len(features))
    own, error = (one[c].reshape(shape) for one in (gradients.coef, gradients.coef_error))
    with np.errstate(invalid="ignore"):
        clear = (np.abs(own) > _multiple(own.size, gradients.counts[c] - 1.0) * error) & np.isfinite(spread)
    # Along a standard deviation of the feature: the coefficient times it is what predictions feel.
    ranked = np.where(clear, np.abs(own) / np.where(spread > 0, spread, math.inf), 0.0)
    words = []
    for k, j in _largest(ranked)[:_WISHES]:
        if clear[k, j]:
            of = _of(features[j].name, outputs[k])
            words.append(f"a {'larger' if own[k, j] < 0 else 'smaller'} coefficient of {of}")
    return tuple(words)
