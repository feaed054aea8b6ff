"""A robust network is kept only where it beats a plain one, trained in the same way, on held-out rows."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import distributed

from counterpoise.contexts import Contexts
from counterpoise.sets import KLBall
from counterpoise.torch.averaging import RunningAverage
from counterpoise.torch.baselines import ERMLoss
from counterpoise.torch.evaluation import Batches, row_losses
from counterpoise.torch.loop import Progress, Start, TrainingRun, set_epoch
from counterpoise.torch.losses import are_several
from counterpoise.torch.rounds import DivergedError

if TYPE_CHECKING:
    from counterpoise.inference.choice import Choice


@dataclass(frozen=True, eq=False)
class Guard:
    """The plain training that a robust one is compared with: ERM, from the same start and on the same batches.

    Attributes
    ----------
    asked : TrainingRun
    plain : TrainingRun
        The same with an ERM loss.
    held_out : iterable of batches
        Those that both are judged by.
    start : Start
        Of the plain training, with the same model, optimiser and scheduler.
    """

    asked: TrainingRun
    plain: TrainingRun
    held_out: Batches
    start: Start

    @classmethod
    def before(cls, run: TrainingRun, held_out: Batches, checkpoint: Path | None, in_the_mean: bool = False) -> Guard:
        """Remember where a training begins.

        Parameters
        ----------
        in_the_mean : bool
            Whether rounds of the plain training are judged by their mean risk: without references that tells more about
            a plain network than its worst context.
        """
        loss = ERMLoss(run.loss.counts, sampling=run.loss.sampled.tolist(), averaging=run.loss.averaging)
        average = None if run.average is None else RunningAverage(run.model, run.average.decay)
        plain = replace(run, loss=loss.to(run.device), average=average)
        return cls(run, plain, held_out, Start.of(plain, Progress(in_the_mean=in_the_mean), checkpoint, "plain"))

    def before_the_other(self, asked: Progress) -> tuple[Plain | None, Progress]:
        """Train the plain network first, then take everything back to where it was; return both."""
        start = copy.deepcopy(self.asked.packed(asked))
        state = self._train()
        plain = None if state is None else Plain(state, _Parameters.of(self.plain, state))
        return plain, self.asked.unpack(start)

    def choose(self, asked: Progress, trained: Plain | None = None) -> tuple[Choice, Progress]:
        """Train the plain network, leave the model with the parameters of the better one, and say which.

        Everything else (optimiser, scheduler, samplers and generators) is left as the training that was asked for left
        it.

        Parameters
        ----------
        trained : Plain, optional
            The plain network, where it was trained before.
        """
        run, name = self.asked, self.asked.loss.method
        trainers = [part for part in run.parts if part in ("optimizer", "scheduler")]
        after = copy.deepcopy({part: run.parts[part].state_dict() for part in trainers})
        chance = run.chance()
        candidates = {name: _Parameters.of(run, asked)}
        plain, kept = None, name
        try:
            plain = self._train() if trained is None else trained.state
            if plain is not None:
                parameters = _Parameters.of(run, plain) if trained is None else trained.parameters
                candidates = {ERMLoss.method: parameters, **candidates}
            choice = self._compare(candidates)
            kept = choice.chosen
        finally:
            candidates[kept].put_in_place()
            for part, state in after.items():
                run.parts[part].load_state_dict(state)
            run.set_chance(chance)
            set_epoch(run.batches, asked.epoch)
        return choice, asked if plain is None or kept == name else plain

    def _train(self) -> Progress | None:
        """Return the plain training; None if it diverged, which the other did not."""
        state = self.start.begin(self.plain)
        judge = KLBall(self.plain.loss.p_hat.cpu().numpy(), 0.0) if state.in_the_mean else self.plain.judge
        try:
            replace(self.plain, judge=judge).train(state, self.start.path)
        except DivergedError:
            return None
        return state

    def _compare(self, candidates: dict[str, _Parameters]) -> Choice:
        """Choose by the held-out losses of all rows, in the worst mix that the loss was made for."""
        # Here, not above: those who take a loss for a loop of their own need not wait for what inference imports.
        from counterpoise.inference.choice import choose
        from counterpoise.inference.excess import HeldOut

        run = self.asked
        places = {name: candidate.put_in_place for name, candidate in candidates.items()}
        losses, codes = row_losses(run.model, places, self.held_out, run.judged_by or run.row_loss, run.device)
        n_contexts, mixes = run.loss.n_contexts, run.loss.mixes
        references = np.zeros(n_contexts) if run.judged_from is None else run.judged_from
        # A context without held-out rows is given one, which is not enough for it to be judged.
        missing = np.setdiff1d(np.arange(n_contexts), codes)
        codes = np.r_[codes, missing]
        losses = {name: np.r_[values, references[missing]] for name, values in losses.items()}
        n_unseen = 0 if mixes is None else mixes.p_hat.size - n_contexts
        contexts = Contexts(np.arange(n_contexts), codes)
        rows = HeldOut(contexts, None, np.ones(len(codes)), mix=mixes, n_unseen=n_unseen)
        choice = choose(rows, losses, {"reference": references[codes]})
        return replace(choice, chosen=_agreed(choice.chosen, list(losses), run.device))


@dataclass(frozen=True, eq=False)
class Plain:
    """A plain training that is over.

    Attributes
    ----------
    state : Progress
    parameters : _Parameters
        Of its best round.
    """

    state: Progress
    parameters: _Parameters


@dataclass(frozen=True, eq=False)
class _Parameters:
    """What a training ended with: the network of its best epoch, and what was trained beside it."""

    run: TrainingRun
    model: dict[str, Any]
    beside: dict[str, Any]

    @classmethod
    def of(cls, run: TrainingRun, state: Progress) -> _Parameters:
        """Take them after training; where no epoch was judged, the model has those of the last."""
        model = copy.deepcopy(run.model.state_dict()) if state.best_model is None else state.best_model
        return cls(run, model, copy.deepcopy(run.beside.state_dict()))

    def put_in_place(self) -> None:
        """Give them to the model."""
        self.run.model.load_state_dict(self.model)
        self.run.beside.load_state_dict(self.beside)


def _agreed(chosen: str, names: list[str], device: torch.device) -> str:
    """Return what the first process chose: several that train one model must keep the same, whatever rows they saw."""
    if not are_several():
        return chosen
    number = torch.tensor(names.index(chosen), device=device)
    distributed.broadcast(number, 0)
    return names[int(number)]
