"""Linear heads judged by rows that they have not seen: which ridge, and whether to keep a simpler head."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from counterpoise.contexts import Contexts
from counterpoise.exceptions import SmallContextWarning
from counterpoise.sets import ContextSet, KLBall
from counterpoise.table import Table
from counterpoise.torch.layers import Outputs
from counterpoise.torch.ridge_heads import (
    HeadTarget,
    checked_alphas,
    dealt_folds,
    held_out_losses,
    left_out,
    ridge_heads,
)

if TYPE_CHECKING:
    from counterpoise.inference.choice import Choice
    from counterpoise.torch.head import RobustHead

Array = NDArray[np.float64]
Weights = Literal["robust", "inverse-frequency", "erm"]


@dataclass(frozen=True, eq=False)
class JudgedHead:
    """A kind of head, with the ridge that held-out losses speak for.

    Attributes
    ----------
    weights : {"robust", "inverse-frequency", "erm"}
    alpha : float
    table : Table
        See ``RobustHead.alphas_``.
    losses : ndarray of shape (n_samples,)
        Held out.
    estimator : RobustLinearModel or None
        Its certified fit, where that is known already.
    """

    weights: Weights
    alpha: float
    table: Table
    losses: Array
    estimator: Any


@dataclass(frozen=True, eq=False)
class HeadJudge:
    """Rows, by which heads are fitted and judged.

    Attributes
    ----------
    asked : RobustHead
    X : Tensor of shape (n_samples, n_features)
    target : HeadTarget
    folds : ndarray of shape (n_samples,)
    mixes : ContextSet
        The plausible ones.
    unseen : ndarray of shape (n_unseen,)
        Scores of contexts without rows.
    """

    asked: RobustHead
    X: Tensor
    outputs: Outputs
    target: HeadTarget
    contexts: Contexts
    folds: NDArray[np.intp]
    mixes: ContextSet
    unseen: Array

    @classmethod
    def of(cls, asked: RobustHead, X: Tensor, outputs: Outputs, contexts: Contexts) -> HeadJudge:
        """Deal the rows to folds, and size the set of mixes."""
        target, robustness = outputs.target(X), asked.robustness
        mixes = robustness.mixes_of(contexts, contexts.counts.astype(np.float64))
        unseen = np.asarray(robustness.unseen(contexts.labels).risks, dtype=np.float64)
        folds = dealt_folds(contexts.codes, asked.folds, asked.seed)
        return cls(asked, X, outputs, target, contexts, folds, mixes, unseen)

    @property
    def data(self) -> dict[str, Any]:
        """What an estimator is fitted to."""
        X = self.X if self.X.is_cuda else self.X.numpy()
        return {"X": X, "y": self.outputs.values, "contexts": self.contexts.labels[self.contexts.codes]}

    @property
    def references(self) -> Array:
        """What held-out risks are counted from."""
        risks = self.asked.references_.risks
        return risks if self.asked.criterion == "excess" else np.zeros_like(risks)

    def certified(self, head: JudgedHead) -> Any:
        """Return the certified fit of a head."""
        return self.fitted(head.weights, head.alpha) if head.estimator is None else head.estimator

    def fitted(self, weights: Weights, alpha: float) -> Any:
        """Return the certified fit of a kind of head."""
        # Here, not above: those who take a loss for a loop of their own need not wait for what estimators import.
        from counterpoise.estimators.linear import RobustLinearRegression, RobustLogisticRegression

        asked, reference, n = self.asked, self.asked.reference, len(self.contexts.labels)
        switches: Mapping[str, Any] = {
            "robust": {name: getattr(asked, name) for name in ("confidence", "radius", "mix", "draws")},
            "erm": {"radius": 0.0},
            "inverse-frequency": {"mix": KLBall(np.full(n, 1.0 / n), 0.0)},
        }[weights]
        if isinstance(reference, str) and reference == "heads":
            reference = dict(zip(self.contexts.labels.tolist(), asked.references_.risks.tolist(), strict=True))
        kind = RobustLogisticRegression if self.outputs.task == "classification" else RobustLinearRegression
        model = kind(alpha=alpha, criterion=asked.criterion, reference=reference, tol=asked.tol, **switches)
        with warnings.catch_warnings():
            # Heads are judged on held-out rows, whatever their references.
            warnings.simplefilter("ignore", SmallContextWarning)
            return model.fit(**self.data)

    def best(self, weights: Weights) -> JudgedHead:
        """Choose the ridge of a kind of head by its held-out score in the worst plausible mix."""
        alphas = checked_alphas(self.asked.alphas if self.asked.alpha is None else [self.asked.alpha])
        counts = self.contexts.counts.astype(np.float64)
        if weights != "robust":
            mix = counts if weights == "erm" else np.ones_like(counts)
            alpha, table, losses = self._least(alphas, self._held_out(mix, alphas))
            return JudgedHead(weights, alpha, table, losses, None)
        # The least favourable mix hardly depends on the ridge, so that one fit serves the choice.
        middle = sorted(alphas)[len(alphas) // 2]
        pilot = self.fitted(weights, middle)
        alpha, table, losses = self._least(alphas, self._held_out(pilot.context_weights_, alphas))
        if alpha == middle:
            return JudgedHead(weights, alpha, table, losses, pilot)
        found = self.fitted(weights, alpha)
        return JudgedHead(weights, alpha, table, self._held_out(found.context_weights_, [alpha])[:, 0], found)

    def _held_out(self, mix: Array, alphas: Sequence[float]) -> Array:
        weight = left_out(self.folds, int(self.folds.max()) + 1, self.contexts.codes, mix)
        return held_out_losses(ridge_heads(self.X, self.target, weight, alphas).outputs, self.target, self.folds)

    def _least(self, alphas: Sequence[float], losses: Array) -> tuple[float, Table, Array]:
        """Return the ridge with the least score in its worst mix, how all compare, and its losses."""
        codes, counts = self.contexts.codes, self.contexts.counts

        def means(values: Array) -> Array:
            return np.asarray(np.bincount(codes, values) / counts)

        scores = [np.append(means(column) - self.references, self.unseen) for column in losses.T]
        worst = [self.mixes.worst_case(score) for score in scores]
        best = int(np.argmin([float(one.value) for one in worst]))
        p = worst[best].distribution[: len(counts)]
        further = losses - losses[:, [best]]
        change = np.array([p @ means(column) for column in further.T])
        spread = [means(np.square(column - means(column)[codes])) for column in further.T]
        error = np.sqrt([np.sum(p**2 * one / np.maximum(counts - 1, 1)) for one in spread])
        table = Table.of(
            "",
            alpha=np.array(alphas),
            worst_case=np.array([float(one.value) for one in worst]),
            mean_risk=losses.mean(axis=0),
            change=change,
            error=error,
        )
        return alphas[best], table, losses[:, best]

    def choose(self, losses: Mapping[str, Array]) -> Choice:
        """Keep the first candidate, unless another is better in the worst plausible mix by more than its error."""
        from counterpoise.inference.choice import choose
        from counterpoise.inference.excess import HeldOut

        rows = HeldOut(
            self.contexts,
            None,
            np.ones(len(self.X)),
            mix=self.mixes,
            n_unseen=self.mixes.p_hat.size - len(self.references),
        )
        return choose(rows, losses, {"reference": self.references[self.contexts.codes]})
