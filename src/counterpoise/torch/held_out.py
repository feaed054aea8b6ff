"""Weights of contexts that follow held-out risks: for networks that can learn their samples by heart."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, distributed

from counterpoise.core.robustness import Mixes
from counterpoise.exceptions import InvalidInputError
from counterpoise.sets import ContextSet, KLBall, RadiusMethod, radius_of
from counterpoise.torch.losses import (
    ContextLoss,
    Sampling,
    are_several,
    check_shapes,
    context_sums,
    plausible_mixes,
    positive_number,
    references_of,
)

Array = NDArray[np.float64]

_FADING = 0.9
"""What a round leaves of the largest mean risk."""


class HeldOutWeights(ContextLoss):
    r"""The worst case over the plausible mixes of contexts, with weights that follow risks on held-out samples.

    A network that can learn its samples by heart has hardly any training risk left in a rare context, so weights that
    follow training risks turn away from exactly the contexts that need them. Held-out risks do not vanish. Two calls
    make a training loop robust::

        weights = HeldOutWeights(counts, reference_risks=least)
        weights(losses, contexts).backward()  # every batch, as with any other loss
        weights.update(held_out_losses, held_out_contexts)  # a few times an epoch, with the losses of all held-out rows

    The mix by which batches are weighted begins with equal shares, or with a member of the set on the way there, and
    moves by a small step with every update: by a share :math:`\eta` of the way to the least favourable member, so that
    it never leaves the set. Where the set is every mix, that member is a single context, and the step is

    .. math:: p_c \leftarrow p_c^{1 - \eta / s} \exp\left(\eta \, \frac{R_c - R^*_c}{\bar R}\right)

    scaled to sum one, with the held-out risks :math:`R_c`, the references :math:`R^*_c`, and the mean held-out risk
    :math:`\bar R` (the largest of late), by which steps do not depend on the unit of the loss. Small steps matter: one
    that jumps to the least favourable one leaves other contexts without weight, and the network without their samples.
    So does the power, by which the mix comes to rest at :math:`p_c \propto \exp(s (R_c - R^*_c) / \bar R)`: where a
    network cannot serve a context better however much it counts, or the excess of a few held-out samples is high by
    chance, the other contexts keep their share.

    Running means of the training risks are kept as well; :attr:`training_excess` far below :attr:`held_out_excess`
    shows that the network learns by heart.

    Everything that is learnt is in ``state_dict``: the mix, the last held-out risks, and the running training risks.

    Parameters
    ----------
    counts : sequence of float, of length n_contexts
        Training samples in each context.
    confidence, radius, draws, mix, labels
        The set of plausible mixes, as for :class:`RobustLoss`. By default it is every mix: the confidence set of many
        samples is small, and what a network loses in its worst context is not a question of how often that occurs.
    criterion : {"excess", "risk"}
        Whether the worst case is that of excess risk, or of risk itself.
    reference_risks : sequence of float, optional
        The least risk that can be had in each context, see :func:`counterpoise.torch.head_references`; best on the
        same held-out samples, so that their noise cancels. :func:`counterpoise.torch.fit` estimates them where none are
        given; in a loop of one's own, risk counts from zero without them.
    step_size : float
        :math:`\eta`.
    sharpness : float
        :math:`s`, where the set is every mix: how far the mix leaves equal shares for differences in excess risk.
        ``inf`` lets it go all the way to the least favourable mix; with less, what training minimises is a tempered
        worst case. Rounds and networks are judged by the worst case itself.
    sampling, averaging
        See :class:`ContextLoss`.
    """

    mixes: ContextSet
    references: Tensor
    mix: Tensor
    held_out_risks: Tensor
    held_out_counts: Tensor
    unit: Tensor

    def __init__(
        self,
        counts: Any,
        *,
        confidence: float = 1.0,
        radius: RadiusMethod | float = "types",
        draws: float | None = None,
        mix: Mixes | None = None,
        labels: Sequence[Any] | None = None,
        criterion: Literal["excess", "risk"] = "excess",
        reference_risks: Any = None,
        step_size: float = 0.1,
        sharpness: float = 1.0,
        sampling: Sampling = "proportional",
        averaging: float = 0.1,
    ) -> None:
        super().__init__(counts, sampling=sampling, averaging=averaging)
        given = self.counts.cpu().numpy()
        self.mixes, self.unseen_risks = plausible_mixes(given, confidence, radius, draws, mix, labels)
        self.radius = radius_of(self.mixes)
        if criterion not in ("excess", "risk"):
            raise InvalidInputError(f"criterion is {criterion!r}; choose 'excess' or 'risk'.")
        if criterion == "risk" and reference_risks is not None:
            raise InvalidInputError("reference_risks are given, and criterion is 'risk', which has none. Drop one.")
        self.criterion = criterion
        self.step_size: float = positive_number(step_size, "step_size")
        self.sharpness: float = math.inf if sharpness == math.inf else positive_number(sharpness, "sharpness")
        self._keep("references", references_of(reference_risks, len(given)))
        size = self.mixes.p_hat.size
        self._keep("mix", self.mixes.project(np.full(size, 1.0 / size)))
        self._keep("held_out_risks", np.full_like(given, math.nan))
        self._keep("held_out_counts", np.zeros_like(given))
        self._keep("unit", np.zeros(1))

    def extra_repr(self) -> str:
        """Say what a printed model should show."""
        size = f"radius={self.radius:.4g} bits" if isinstance(self.mixes, KLBall) else f"mixes {self.mixes.where}"
        return f"{super().extra_repr()}, {size}, step_size={self.step_size:g}, sharpness={self.sharpness:g}"

    @property
    def context_weights(self) -> Tensor:
        """The mix reached so far."""
        return self.mix[: self.n_contexts]

    @property
    def lacks_references(self) -> bool:
        """Whether excess risk is asked for, and nothing is known to count it from."""
        return self.criterion == "excess" and not bool(self.references.any())

    @property
    def held_out_excess(self) -> Tensor:
        """Held-out risks of the last update less the references; NaN for contexts without held-out samples."""
        return self.held_out_risks - self.references

    @property
    def training_excess(self) -> Tensor:
        """Running training risks less the references; far below the held-out excess, the network learns by heart."""
        return self.context_risks - self.references

    @property
    def worst_excess(self) -> float:
        """The held-out excess of the last update in the worst mix of the set; NaN before it, or of a NaN loss."""
        scores = self._scores()
        if scores is None or not np.isfinite(scores).all():
            return math.nan
        return float(self.mixes.worst_case(scores).value)

    def set_references(self, reference_risks: Any) -> None:
        """Take other references from here on."""
        self.references.copy_(torch.as_tensor(references_of(reference_risks, self.n_contexts)))

    @torch.no_grad()
    def update(self, losses: Tensor, contexts: Tensor) -> None:
        """Take the losses of all held-out samples, and move the mix by one step.

        With several processes (an initialised ``torch.distributed``), each passes its part of the held-out samples.

        Parameters
        ----------
        losses : Tensor of shape (n,)
            Not reduced; of any loss that matters, in which the references are stated too.
        contexts : integer Tensor of shape (n,)
            The context of each sample, from 0 on.
        """
        check_shapes(losses, contexts)
        both = context_sums(losses, contexts, self.n_contexts)
        # In evaluation mode too, which the network is in as it predicts these samples.
        if are_several():
            distributed.all_reduce(both)
        sums, counts = both
        self.update_risks(sums / torch.where(counts > 0, counts, math.nan), counts)

    @torch.no_grad()
    def update_risks(self, risks: Any, counts: Any) -> None:
        """Take the held-out risk and the number of held-out samples of each context, and move the mix by one step.

        Parameters
        ----------
        risks, counts : array or Tensor of shape (n_contexts,)
            The risk of a context without samples is NaN.
        """
        self.held_out_risks.copy_(torch.as_tensor(risks))
        self.held_out_counts.copy_(torch.as_tensor(counts))
        scores = self._scores()
        if scores is None or self.mixes.is_point:
            return
        seen = self.held_out_counts > 0
        mean = float(self.held_out_risks[seen] @ self.held_out_counts[seen] / self.held_out_counts.sum())
        if not (math.isfinite(mean) and np.isfinite(scores).all()):
            return
        self.unit.copy_(torch.as_tensor(largest_of_late(self.unit.cpu().numpy(), mean)))
        self.mix.copy_(torch.as_tensor(self._moved(self.mix.cpu().numpy(), scores)))

    def _moved(self, p: Array, scores: Array) -> Array:
        if not self.mixes.is_simplex:
            return p + min(self.step_size, 1.0) * (self.mixes.worst_case(scores).distribution - p)
        return tempered_step(p, scores, float(self.unit), self.step_size, self.sharpness)

    def _scores(self) -> Array | None:
        """Return the held-out excess; None before the first update."""
        counts = self.held_out_counts.cpu().numpy()
        return scores_of(self.held_out_excess.cpu().numpy(), counts, self.unseen_risks) if counts.any() else None


def largest_of_late(unit: Array, mean: float) -> Array:
    """Return the unit of excess risks after a round with this mean risk."""
    # Forgets a round that went wrong: where the mix comes to rest depends on it.
    return np.maximum(_FADING * unit, abs(mean))


def tempered_step(p: Array, scores: Array, unit: float, step_size: float, sharpness: float) -> Array:
    r"""Return the mix after one step towards :math:`p_c \propto \exp(s\,x_c / u)`, where it comes to rest.

    Parameters
    ----------
    p, scores : ndarray of shape (n_contexts,)
        The mix, and the excess :math:`x`.
    unit, step_size, sharpness : float
        :math:`u`, :math:`\eta` and :math:`s`.
    """
    rates = (scores - scores.max()) / max(unit, 1e-300)
    step = min(step_size, sharpness)
    # A weight that has shrunk to nothing, or that a bound keeps at 0, must be able to return.
    logs = (1.0 - step / sharpness) * np.log(np.maximum(p, 1e-300)) + step * np.maximum(rates, -100.0)
    grown = np.maximum(np.exp(logs - logs.max()), 1e-6)
    return np.asarray(grown / grown.sum())


def scores_of(excess: Array, counts: Array, unseen_risks: Sequence[float]) -> Array:
    """Return a score for every context that a set of mixes knows.

    Parameters
    ----------
    excess, counts : ndarray of shape (n_contexts,)
        On held-out rows; a context without any is as the others on average.
    unseen_risks : sequence of float
        Of contexts without samples, which follow.
    """
    seen = counts > 0
    average = excess[seen] @ counts[seen] / counts.sum()
    return np.concatenate([np.where(seen, excess, average), unseen_risks])
