"""A last training on all samples, those that were held out included, for as long as held-out samples found best."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from counterpoise.torch.averaging import RunningAverage
from counterpoise.torch.baselines import FixedWeights
from counterpoise.torch.evaluation import Batches
from counterpoise.torch.loop import Progress, Start, TrainingRun
from counterpoise.torch.rounds import DivergedError


@dataclass(frozen=True, eq=False)
class Refit:
    """A training from the same start, on all samples, with the weights that another training has found.

    No samples are left to choose a round by, and the parameters after the last step have its noise. So a running
    average of the parameters is kept: over about an epoch, or the one that was asked for.

    Attributes
    ----------
    run : TrainingRun
        On all samples, with fixed weights and nobody to judge it.
    start : Start
    """

    run: TrainingRun
    start: Start

    @classmethod
    def before(cls, run: TrainingRun, batches: Batches, checkpoint: Path | None) -> Refit:
        """Remember where a training begins.

        Parameters
        ----------
        batches : iterable of (inputs, targets, contexts)
            Of all samples.
        """
        loss = FixedWeights(run.loss.counts, sampling=run.loss.sampling, averaging=run.loss.averaging)
        decay = last_epoch_decay(batches) if run.average is None else run.average.decay
        average = RunningAverage(run.model, decay)
        again = replace(
            run, loss=loss.to(run.device), batches=batches, held_out=None, patience=None, judge=None, average=average
        )
        return cls(again, Start.of(again, Progress(), checkpoint, "refit"))

    def train(self, kept: Progress) -> int | None:
        """Train for as many epochs as the best round had, and return their number.

        Contexts count with the mean of their weights up to that round. Where training diverges, which the other did
        not, everything is put back, and None returned.

        Parameters
        ----------
        kept : Progress
            The training whose parameters the model has now.
        """
        best = kept.best_round
        epochs = max(1, round(kept.rounds[best]["epoch"]))
        before = copy.deepcopy({name: part.state_dict() for name, part in self.run.parts.items() if name != "loss"})
        state = self.start.begin(self.run)
        loss = self.run.loss
        assert isinstance(loss, FixedWeights)
        loss.set_weights(np.mean(kept.weights[: best + 1], axis=0))
        try:
            replace(self.run, epochs=epochs).train(state, self.start.path)
        except DivergedError:
            for name, part in before.items():
                self.run.parts[name].load_state_dict(part)
            return None
        return epochs


def last_epoch_decay(batches: Batches) -> float:
    """Return the decay of a running average that looks back over about one epoch; over 100 steps if none is known."""
    try:
        return 1.0 - 1.0 / len(batches)  # type: ignore[arg-type]
    except (TypeError, ZeroDivisionError):
        return 0.99
