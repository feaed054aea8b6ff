"""A robust network is kept only where it beats a plain one, trained in the same way, on held-out rows."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import distributed

from counterpoise.contexts import Contexts
from counterpoise.inference.choice import Choice, choose
from counterpoise.inference.excess import HeldOut
from counterpoise.torch.evaluation import Batches, row_losses
from counterpoise.torch.loop import DivergedError, Progress, TrainingRun, set_epoch
from counterpoise.torch.losses import ERMLoss


@dataclass(frozen=True, eq=False)
class Guard:
    """The plain training that a robust one is compared with: ERM, from the same start and on the same batches.

    The same model, optimiser and scheduler are taken back to where they were and trained again. Copies would need a
    model that can be copied, and would miss what points at the original: a scheduler counts the steps of its optimiser
    by a wrapper that copying drops, and processes that share batches know one model only.

    Attributes
    ----------
    asked : TrainingRun
    plain : TrainingRun
        The same with an ERM loss.
    held_out : iterable of batches
        Those that both are judged by.
    start : dict or None
        All states before training; None where ``path`` holds them.
    path : Path, optional
        The checkpoint of the plain training. It is written before either training begins, so that a run that is resumed
        with another start still compares like with like.
    """

    asked: TrainingRun
    plain: TrainingRun
    held_out: Batches
    start: dict[str, Any] | None
    path: Path | None

    @classmethod
    def before(cls, run: TrainingRun, held_out: Batches, checkpoint: Path | None) -> Guard:
        """Remember where a training begins."""
        loss = ERMLoss(run.loss.counts, sampling=run.loss.sampled.tolist(), averaging=run.loss.averaging)
        plain = replace(run, loss=loss.to(run.device))
        if checkpoint is None:
            return cls(run, plain, held_out, copy.deepcopy(plain.packed(Progress())), None)
        path = checkpoint.with_name(f"{checkpoint.stem}.plain{checkpoint.suffix}")
        # A plain training without the other is left over from a run whose checkpoint was deleted.
        if not (checkpoint.exists() and path.exists()):
            plain.save(path, Progress())
        return cls(run, plain, held_out, None, path)

    def choose(self, asked: Progress) -> tuple[Choice, Progress]:
        """Train the plain network, leave the model with the parameters of the better one, and say which.

        Everything else (optimiser, scheduler, samplers and generators) is left as the training that was asked for left
        it.
        """
        run, name = self.asked, self.asked.loss.method
        names = ("optimizer", "scheduler", "beside")
        states = {part: found.state_dict() for part, found in run.parts.items() if part in names}
        after, chance = copy.deepcopy(states), run.chance()
        models = {name: _parameters(run, asked)}
        kept = name
        try:
            plain = self._train()
            if plain is not None:
                models = {ERMLoss.method: _parameters(run, plain), **models}
            choice = self._compare(models)
            kept = choice.chosen
        finally:
            run.model.load_state_dict(models[kept])
            for part, state in after.items():
                # Parameters beside the model's belong to the model that is kept.
                if part != "beside" or kept == name:
                    run.parts[part].load_state_dict(state)
            run.set_chance(chance)
            set_epoch(run.batches, asked.epoch)
        return choice, asked if plain is None or kept == name else plain

    def _train(self) -> Progress | None:
        """Return the plain training; None if it diverged, which the other did not."""
        if self.path is not None:
            state = self.plain.resumed(self.path)
        else:
            assert self.start is not None
            state = self.plain.unpack(self.start)
        try:
            self.plain.train(state, self.path)
        except DivergedError:
            return None
        return state

    def _compare(self, models: dict[str, dict[str, Any]]) -> Choice:
        """Choose by the held-out losses of all rows, in the worst mix that the loss was made for."""
        run = self.asked
        losses, codes = row_losses(run.model, models, self.held_out, run.row_loss, run.device)
        n_contexts, mixes = run.loss.n_contexts, run.loss.mixes
        references = np.zeros(n_contexts) if run.references is None else run.references
        # A context without held-out rows is given one, which is not enough for it to be judged.
        missing = np.setdiff1d(np.arange(n_contexts), codes)
        codes = np.r_[codes, missing]
        losses = {name: np.r_[values, references[missing]] for name, values in losses.items()}
        n_unseen = 0 if mixes is None else mixes.p_hat.size - n_contexts
        contexts = Contexts(np.arange(n_contexts), codes)
        rows = HeldOut(contexts, None, np.ones(len(codes)), mix=mixes, n_unseen=n_unseen)
        choice = choose(rows, losses, references[codes, None])
        return replace(choice, chosen=_agreed(choice.chosen, list(losses), run.device))


def _parameters(run: TrainingRun, state: Progress) -> dict[str, Any]:
    """Return the parameters of the best epoch; those that the model has where no epoch was judged."""
    return copy.deepcopy(run.model.state_dict()) if state.best_model is None else state.best_model


def _agreed(chosen: str, names: list[str], device: torch.device) -> str:
    """Return what the first process chose: several that train one model must keep the same, whatever rows they saw."""
    if not (distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1):
        return chosen
    number = torch.tensor(names.index(chosen), device=device)
    distributed.broadcast(number, 0)
    return names[int(number)]
