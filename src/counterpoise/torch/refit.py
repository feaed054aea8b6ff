"""A last training on all samples, those that were held out included, for as long as held-out samples found best."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, distributed

from counterpoise.torch.averaging import RunningAverage
from counterpoise.torch.baselines import FixedWeights
from counterpoise.torch.evaluation import Batches
from counterpoise.torch.held_out import HeldOutWeights
from counterpoise.torch.loop import Progress, Start, TrainingRun
from counterpoise.torch.losses import ContextLoss, are_several
from counterpoise.torch.rounds import DivergedError


@dataclass(frozen=True, eq=False)
class Refit:
    """A training from the same start, on all samples, for as many epochs as another one took to its best round.

    No samples are left to choose a round by, and the parameters after the last step have its noise. So a running
    average of the parameters is kept: over about an epoch, or the one that was asked for.

    Attributes
    ----------
    run : TrainingRun
        On all samples, with nobody to judge it.
    shares : ndarray of shape (n_contexts,) or None
        Of the contexts in all batches; None where they have to be counted.
    start : Start
        Of the training with the loss that was given.
    path : Path or None
        The checkpoint of this training.
    """

    run: TrainingRun
    shares: NDArray[np.float64] | None
    start: Start
    path: Path | None

    @classmethod
    def before(
        cls, run: TrainingRun, batches: Batches, shares: NDArray[np.float64] | None, checkpoint: Path | None
    ) -> Refit:
        """Remember where a training begins.

        Parameters
        ----------
        batches : iterable of (inputs, targets, contexts)
            Of all samples.
        """
        decay = last_epoch_decay(batches) if run.average is None else run.average.decay
        again = replace(
            run, batches=batches, held_out=None, patience=None, judge=None, average=RunningAverage(run.model, decay)
        )
        path = None if checkpoint is None else checkpoint.with_name(f"{checkpoint.stem}.refit{checkpoint.suffix}")
        start = Start.of(again, Progress(), checkpoint, "start")
        if path is not None and start.begins_now:
            # Left over from a run whose checkpoint was deleted: the same plan need not mean the same samples.
            path.unlink(missing_ok=True)
        return cls(again, shares, start, path)

    def train(self, kept: Progress, is_plain: bool) -> int | None:
        """Train for as many epochs as the best round had, rounded, and return their number.

        A loss that learns from training batches alone begins anew. Weights that followed held-out risks have none to
        follow: contexts count with their mean up to the best round. Where training diverges, which the other did not,
        the model and what trains it are put back, and None returned.

        Parameters
        ----------
        kept : Progress
            The training whose parameters the model has now.
        is_plain : bool
            Whether it is the plain training of a guard.
        """
        weights = np.mean(kept.weights[: kept.best_round + 1], axis=0)
        if not weights.sum() > 0.0:
            return None
        epochs = max(1, round(kept.rounds[kept.best_round]["epoch"]))
        before = copy.deepcopy({name: part.state_dict() for name, part in self.run.parts.items()})
        fixed = is_plain or isinstance(self.run.loss, HeldOutWeights)
        loss: ContextLoss = self.run.loss
        if fixed:
            loss = FixedWeights(loss.counts, weights, sampling=loss.sampling, averaging=loss.averaging)
        run = replace(self.run, loss=loss.to(self.run.device), epochs=epochs)
        try:
            run.train(self._begin(run, [float(epochs), float(fixed), *weights.tolist()], fixed), self.path)
        except BaseException as error:
            for name, part in before.items():
                self.run.parts[name].load_state_dict(part)
            if isinstance(error, DivergedError):
                return None
            raise
        return epochs

    def _begin(self, run: TrainingRun, plan: list[float], fixed: bool) -> Progress:
        """Go back to the start, or to where this very training was interrupted."""
        if self.path is not None and self.path.exists():
            kept = torch.load(self.path, map_location=run.device, weights_only=True)
            if kept["training"]["plan"] == plan:
                return run.unpack(kept)
        state = self.start.begin(run, but="loss" if fixed else "")
        if run.loss.sampling == "proportional":
            shares = _counted(run) if self.shares is None or len(self.shares) != run.loss.n_contexts else self.shares
            run.loss.sampled.copy_(torch.as_tensor(shares))
            # A look at the batches may draw, and training must not notice.
            state = self.start.begin(run, but="loss")
        return replace(state, plan=plan)


def _counted(run: TrainingRun) -> NDArray[np.float64]:
    """Return the shares of contexts in all batches: those that were held out may have had others."""
    counts = torch.zeros(run.loss.n_contexts, dtype=torch.float64, device=run.device)
    contexts: Tensor
    for _, _, contexts in run.batches:
        counts += torch.bincount(contexts.to(run.device), minlength=run.loss.n_contexts)
    if are_several():
        distributed.all_reduce(counts)
    # A context that is not there is never drawn, and its probability does not matter.
    return (counts.clamp(min=1e-12) / counts.sum()).cpu().numpy()


def last_epoch_decay(batches: Batches) -> float:
    """Return the decay of a running average that looks back over about one epoch; over 100 steps if none is known."""
    try:
        return 1.0 - 1.0 / len(batches)  # type: ignore[arg-type]
    except (TypeError, ZeroDivisionError):
        return 0.99
