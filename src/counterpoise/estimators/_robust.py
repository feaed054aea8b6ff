"""What every robust estimator is given about the set of mixes, and what it tells about contexts once fitted."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, ClassVar, TypedDict, TypeVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from counterpoise.contexts import Contexts, encode
from counterpoise.core.problem import Adjust, Reference
from counterpoise.core.robustness import Criterial, Criterion, Robustness
from counterpoise.estimators._base import Array, contexts_or_one
from counterpoise.sets import ContextSet, RadiusMethod
from counterpoise.sets.size import radius_of
from counterpoise.validation import check_aligned

Init = TypeVar("Init", bound=Callable[..., None])


class MixParameters(TypedDict, total=False):
    """The parameters of every estimator: those of :class:`RobustEstimator`."""

    confidence: float
    radius: RadiusMethod | float
    draws: float | None
    criterion: Criterion
    mix: ContextSet | None


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


def with_parameters_of(parent: type) -> Callable[[Init], Init]:
    """Name the parameters of a parent in the signature of an ``__init__`` that passes them on as ``**shared``.

    scikit-learn reads parameters and their defaults from the signature, where it has no use for ``**``.
    """

    def named(init: Init) -> Init:
        own = [one for one in inspect.signature(init).parameters.values() if one.kind is not one.VAR_KEYWORD]
        _, *shared = inspect.signature(parent.__init__).parameters.values()  # type: ignore[misc]
        vars(init)["__signature__"] = inspect.Signature([*own, *shared])
        return init

    return named


class RobustEstimator(Criterial, BaseEstimator):  # type: ignore[misc]
    """A scikit-learn estimator for an uncertain mix of contexts.

    Parameters
    ----------
    confidence : float, default=0.99
        Level of the confidence set of context mixes; 1 is every mix.
    radius : {"types", "agrawal", "chi2"} or float, default="types"
        How the size of the set follows from the confidence, or the size itself in bits.
    draws : float, optional
        Independent draws of a context in the data, where rows are not independent.
    criterion : {"excess", "risk"}, default="excess"
        What the worst case is taken of: risk above the least possible in each context, or risk itself.
    mix : ContextSet, optional
        The set of mixes itself, such as ``Chi2Ball(p_hat, radius)``, over the contexts in the order of their labels. It
        takes the place of ``confidence``, ``radius`` and ``draws``.

    Attributes
    ----------
    contexts_ : ndarray of shape (n_contexts,)
        Labels; tuples where contexts are crossed. What follows is in their order.
    context_counts_ : ndarray of shape (n_contexts,)
        Rows, or the sum of their weights.
    context_weights_ : ndarray of shape (n_contexts,)
        The mix of contexts under which the decision was made.
    context_risks_, reference_risks_, excess_risks_ : ndarray of shape (n_contexts,)
        Risk, the least possible, and the difference.
    radius_ : float
        Of the set, in bits; NaN for a set that has none.
    """

    # The context is metadata: requested by the class, so that no instance has to ask for it.
    __metadata_request__fit: ClassVar = {"contexts": True}

    def __init__(
        self,
        *,
        confidence: float = 0.99,
        radius: RadiusMethod | float = "types",
        draws: float | None = None,
        criterion: Criterion = "excess",
        mix: ContextSet | None = None,
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

    def _encode(self, contexts: Any, X: Any, n_rows: int) -> Contexts:
        """Return the context of each row of X; to be called by ``fit``, since a warning names its caller."""
        check_aligned(X, contexts)
        return encode(contexts_or_one(self, contexts, n_rows, stacklevel=4), n_rows)

    def _keep_contexts(
        self, contexts: Contexts, counts: Array, mixes: ContextSet, *, weights: Array, risks: Array, references: Array
    ) -> None:
        """Store what was found about contexts.

        Parameters
        ----------
        counts : ndarray of shape (n_contexts,)
            Rows, or the sum of their weights.
        mixes : ContextSet
        weights, risks, references : ndarray of shape (n_contexts,)
            The mix under which the decision was made, the risks of the decision, and the least risks.
        """
        whole = np.array_equal(counts, contexts.counts)
        self.contexts_: NDArray[Any] = contexts.labels
        self.context_counts_: NDArray[Any] = contexts.counts if whole else counts
        self.context_weights_ = weights
        self.context_risks_ = risks
        self.reference_risks_ = references
        self.excess_risks_ = risks - references
        self.radius_ = radius_of(mixes)
