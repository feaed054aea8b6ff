"""What every estimator shares: its switches, its words, and what it tells about contexts once fitted."""

from __future__ import annotations

import inspect
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, ClassVar, TextIO, TypedDict, TypeVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from counterpoise.contexts import Contexts, encode, shown, tidy
from counterpoise.core.problem import Adjust, Reference
from counterpoise.core.references import Optimism
from counterpoise.core.robustness import (
    REFERENCES,
    Criterial,
    Criterion,
    DrawCount,
    Mixes,
    Robustness,
    check_parameters,
)
from counterpoise.core.solvers import Progress
from counterpoise.exceptions import InvalidInputError, OneContextWarning, SmallContextWarning
from counterpoise.memberships import Memberships
from counterpoise.sets import ContextSet, RadiusMethod, radius_of
from counterpoise.validation import check_aligned, checked_row_weights, on_host

Array = NDArray[np.float64]


def check_switches(estimator: Any) -> None:
    """Refuse parameters that cannot be meant, by name and before anything is done with them."""
    check_parameters(estimator.get_params(deep=False), estimator.references)


@contextmanager
def explaining_text() -> Iterator[None]:
    """Say what to do about text among the features."""
    try:
        yield
    except ValueError as error:
        if isinstance(error, InvalidInputError) or "could not convert string" not in str(error):
            raise
        raise InvalidInputError(
            f"X must be numbers ({error}). Encode categories, e.g. with OneHotEncoder; drop the column from X if it "
            "holds the contexts."
        ) from error


@contextmanager
def speaking_as(estimator: Any) -> Iterator[None]:
    """Put the estimator's name in front of what is wrong with its input."""
    try:
        yield
    except InvalidInputError as error:
        raise type(error)(f"{type(estimator).__name__}: {error}") from error


def contexts_or_one(estimator: Any, contexts: Any, n_rows: int, stacklevel: int = 3) -> Any:
    """Return the contexts, or one for all rows and a warning that says so."""
    if contexts is not None:
        contexts = on_host(contexts)
        of_floats = isinstance(contexts, list) and all(isinstance(label, float) for label in contexts)
        if of_floats or (hasattr(contexts, "__array__") and not hasattr(contexts, "tocsr")):
            numbers = np.asarray(contexts)
            if numbers.ndim == 1 and numbers.dtype.kind == "f":
                refuse_measurements(np.unique(numbers), len(numbers))
        return contexts
    warnings.warn(
        f"{type(estimator).__name__}.fit got no contexts, so all rows are one context and the fit is plain empirical "
        "risk minimisation. Pass contexts=, one label per row; in a pipeline STEP__contexts=, or contexts= with "
        "sklearn.set_config(enable_metadata_routing=True).",
        OneContextWarning,
        stacklevel=stacklevel,
    )
    return np.zeros(n_rows, dtype=np.intp)


def refuse_measurements(labels: NDArray[Any], n_rows: int) -> None:
    """Refuse numbers of which no two are the same."""
    if labels.dtype.kind == "f" and 1 < len(labels) == n_rows:
        raise InvalidInputError(
            "contexts are as many different numbers as there are rows. If they are weights, pass sample_weight=; "
            "if they are measurements, bin them."
        )


def warn_of_small_contexts(
    estimator: Any, contexts: Contexts, optimism: Optimism, mixes: ContextSet, used: str, in_memory: bool
) -> None:
    """Warn that in-sample references are mostly optimism, with what says so and what was done about it.

    Parameters
    ----------
    optimism : Optimism
    mixes : ContextSet
        In which it was compared.
    used : str
        The kind of reference that is used.
    in_memory : bool
        Whether rows can be held out.
    """
    excess, noise = optimism.worst(mixes)
    worst = np.argsort(-optimism.noise, kind="stable")[:3]
    listed = ", ".join(f"{shown(contexts.labels[c]):.40} ({contexts.counts[c]})" for c in worst)
    more = f" and {len(contexts.labels) - 3} more" if len(contexts.labels) > 3 else ""
    remedy = "Use reference='cross-fit', raise alpha" if in_memory else "Raise alpha"
    done = (
        "So reference='cross-fit' is used; to keep in-sample references, pass reference='in-sample'"
        if used == "cross-fit"
        else f"{remedy}, or pool small contexts (counterpoise.pool_rare)"
    )
    warnings.warn(
        f"{type(estimator).__name__}: in-sample references are mostly optimism. In the worst plausible mix, a model of "
        f"each context's own gains {excess:.2g} over one model for all, on the rows it was fitted to; noise alone "
        f"would gain about {noise:.2g} (parameters / (2 rows); the most in {listed}{more}). {done}.",
        SmallContextWarning,
        stacklevel=5,
    )


def share_parameters(cls: type, source: type) -> None:
    """Let the documentation of a class list the parameters and attributes of the one it extends."""
    _, heading, shared = inspect.cleandoc(source.__doc__ or "").partition("Parameters\n----------\n")
    if not cls.__name__.startswith("_"):
        own = inspect.cleandoc(cls.__doc__ or "")
        cls.__doc__ = own + ("\n" if heading in own else f"\n\n{heading}") + shared


class ProgressLine:
    """A live line with iteration, objective and gap; on a terminal it is rewritten in place."""

    def __init__(self, title: str, stream: TextIO | None = None) -> None:
        self.title = title
        self.stream = stream or sys.stderr
        self.width = 0

    def __call__(self, progress: Progress) -> None:
        """Show where a solver is."""
        certificate = progress.certificate
        line = (
            f"{self.title}: iteration {progress.n_iter}, objective {certificate.upper:.6g}, gap {certificate.gap:.2g} "
            f"({certificate.relative_gap:.1g} of its scale)"
        )
        if self.stream.isatty():
            self.stream.write("\r" + line.ljust(self.width))
            self.width = len(line)
        else:
            self.stream.write(line + "\n")
        self.stream.flush()

    def close(self) -> None:
        """End the line."""
        if self.width:
            self.stream.write("\n")
            self.stream.flush()


class ScoredOnHost:
    """An estimator whose ``score`` takes tensors too, wherever they are."""

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return accuracy, or the coefficient of determination."""
        return float(super().score(on_host(X), on_host(y), sample_weight))  # type: ignore[misc]


Init = TypeVar("Init", bound=Callable[..., None])


class MixParameters(TypedDict, total=False):
    """The parameters of every estimator: those of :class:`RobustEstimator`."""

    confidence: float
    radius: RadiusMethod | float
    draws: DrawCount
    criterion: Criterion
    mix: Mixes | None


class LinearParameters(MixParameters, total=False):
    """The parameters of every linear model."""

    alpha: float
    fit_intercept: bool
    reference: Reference
    adjust: Adjust
    tol: float
    max_iter: int
    verbose: int
    device: str | None


def with_parameters_of(parent: type, **defaults: Any) -> Callable[[Init], Init]:
    """Name the parameters of a parent in the signature of an ``__init__`` that passes them on as ``**shared``.

    scikit-learn reads parameters and their defaults from the signature, where it has no use for ``**``.

    Parameters
    ----------
    **defaults
        Those that are not the parent's.
    """

    def named(init: Init) -> Init:
        own = [one for one in inspect.signature(init).parameters.values() if one.kind is not one.VAR_KEYWORD]
        _, *shared = inspect.signature(parent.__init__).parameters.values()  # type: ignore[misc]
        shared = [one.replace(default=defaults.get(one.name, one.default)) for one in shared]
        vars(init)["__signature__"] = inspect.Signature([*own, *shared])
        return init

    return named


class RobustEstimator(Criterial, BaseEstimator):  # type: ignore[misc]
    """A scikit-learn estimator for an uncertain mix of contexts.

    Parameters
    ----------
    confidence : float, default=0.99
        Level of the confidence set of context mixes; 1 is every mix.
    radius : {"types", "agrawal", "calibrated", "chi2", "anytime"} or float, default="types"
        How the size of the set follows from the confidence, or the size itself in bits.
    draws : float or "groups", optional
        Independent draws of a context in the data, where rows are not independent. ``"groups"`` estimates them from
        ``groups``, which ``fit`` takes then; see :func:`counterpoise.effective_draws`.
    criterion : {"excess", "risk"}, default="excess"
        What the worst case is taken of: risk above the least possible in each context, or risk itself.
    mix : mapping, Mix or ContextSet, optional
        What is known about the mix: bounds of shares by context, such as ``{"winter": (0.1, 0.3)}``, within the
        confidence set of the data; a :class:`counterpoise.Mix`, to say more; or the set of mixes itself, such as
        ``Chi2Ball(p_hat, radius)``, over the contexts in the order of their labels, which takes the place of
        ``confidence``, ``radius`` and ``draws``.

    Attributes
    ----------
    contexts_ : ndarray of shape (n_contexts,)
        Labels; tuples where contexts are crossed. What follows is in their order.
    context_counts_ : ndarray of shape (n_contexts,)
        Rows, or the sum of their weights.
    context_weights_ : ndarray of shape (n_contexts,)
        The mix of contexts under which the decision was made. It sums to one together with ``unseen_weights_``.
    context_risks_, reference_risks_, excess_risks_ : ndarray of shape (n_contexts,)
        Risk, the least possible, and the difference.
    radius_ : float
        Of the set, in bits; NaN for a set that has none.
    unseen_contexts_, unseen_weights_ : ndarray of shape (n_unseen,)
        Contexts without rows whose risk ``mix`` gave, and their part in the mix; mostly none.
    draws_ : float
        The number of draws that the size of the set follows from; NaN where the size was given.
    """

    references: ClassVar[tuple[str, ...]] = REFERENCES
    """The kinds of references to choose from."""

    # Contexts and groups are metadata: requested by the class, so that no instance has to ask for them.
    __metadata_request__fit: ClassVar = {"contexts": True, "groups": True}

    def __init__(
        self,
        *,
        confidence: float = 0.99,
        radius: RadiusMethod | float = "types",
        draws: DrawCount = None,
        criterion: Criterion = "excess",
        mix: Mixes | None = None,
    ) -> None:
        self.confidence = confidence
        self.radius = radius
        self.draws = draws
        self.criterion = criterion
        self.mix = mix

    @property
    def robustness(self) -> Robustness:
        """What is scored, and how large the set is."""
        return Robustness(self.confidence, self.radius, self.draws, self.criterion, mix=self.mix)

    def sized(
        self, X: Any, contexts: Any, groups: Any, sample_weight: Any = None, encoded: Contexts | None = None
    ) -> Robustness:
        """Return what is scored and how large the set is, with the draws as a number.

        Parameters
        ----------
        X, contexts, groups, sample_weight
            What ``fit`` takes of every row.
        encoded : Contexts, optional
            The contexts, where they are encoded already.
        """
        robustness = self.robustness
        if isinstance(contexts, Memberships) and contexts.overlap:
            return robustness.stated()
        if robustness.draws != "groups" or not robustness.counts_draws:
            return robustness.sized(np.empty(0, dtype=np.intp), None)
        if any(hasattr(values, "__dask_graph__") for values in (X, contexts, groups, sample_weight)):
            raise InvalidInputError(
                "draws='groups' needs contexts and groups in memory, and these are on workers. Pass the number: "
                "draws=counterpoise.effective_draws(contexts, groups) of their rows, or of a part in which whole "
                "groups are."
            )
        if encoded is None:
            if contexts is None:
                return replace(robustness, draws=None)
            encoded = encode(on_host(contexts))
        weight = None if sample_weight is None else checked_row_weights(sample_weight, encoded)
        return robustness.sized(encoded.codes, on_host(groups), weight)

    def _encode(self, contexts: Any, X: Any, n_rows: int) -> Contexts:
        """Return the context of each row of X; to be called by ``fit``, since a warning names its caller."""
        check_aligned(X, contexts)
        return encode(contexts_or_one(self, contexts, n_rows, stacklevel=4), n_rows, may_overlap=True)

    def _keep_contexts(
        self,
        contexts: Contexts,
        counts: Array,
        mixes: ContextSet,
        *,
        draws: float,
        weights: Array,
        risks: Array,
        references: Array,
    ) -> None:
        """Store what was found about contexts.

        Parameters
        ----------
        counts : ndarray of shape (n_contexts,)
            Rows, or the sum of their weights.
        mixes : ContextSet
        draws : float
            That its size follows from.
        weights, risks, references : ndarray of shape (n_contexts,)
            The mix under which the decision was made, the risks of the decision, and the least risks. The first two
            may go on with contexts without rows.
        """
        n = len(contexts.labels)
        self.unseen_contexts_: NDArray[Any] = tidy(list(self.robustness.unseen(contexts.labels).labels))
        self.unseen_weights_ = weights[n:]
        weights, risks = weights[:n], risks[:n]
        whole = np.array_equal(counts, contexts.counts)
        self.contexts_: NDArray[Any] = contexts.labels
        self.context_counts_: NDArray[Any] = contexts.counts if whole else counts
        self.context_weights_ = weights
        self.context_risks_ = risks
        self.reference_risks_ = references
        self.excess_risks_ = risks - references
        self.radius_ = radius_of(mixes)
        self.draws_ = draws
