"""Losses of language models on held-out text of several sources."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from counterpoise.contexts import shown
from counterpoise.exceptions import InvalidInputError
from counterpoise.torch.losses import rank_and_world

BatchLoss = Callable[[nn.Module, Any], tuple[Tensor, Tensor]]
"""A model and a batch in, the sum of the losses of its tokens and their number out."""

_IGNORED = -100
"""The label of a token that does not count."""


def next_token_loss(model: nn.Module, batch: Any) -> tuple[Tensor, Tensor]:
    """Return the sum of the log losses of the next tokens in a batch, in nats, and how many there are.

    Parameters
    ----------
    model : Module
        Logits out, or an object with ``logits``.
    batch : Tensor of token numbers of shape (batch, length), or mapping
        A mapping has ``input_ids``, and may have ``labels``, where -100 does not count, and ``attention_mask``.
    """
    losses, count = _token_losses(model, batch)
    return losses.sum(), count.sum()


def _token_losses(model: nn.Module, batch: Any) -> tuple[Tensor, Tensor]:
    """Return the log loss of each next token, of shape (batch, length - 1), and which of them count: others are 0."""
    words = batch
    if isinstance(batch, Mapping):
        words = batch.get("input_ids") if batch.get("labels") is None else batch["labels"]
    if not (isinstance(words, Tensor) and words.ndim == 2):
        what = f"of shape {tuple(words.shape)}" if isinstance(words, Tensor) else f"{words!r:.60}"
        raise InvalidInputError(
            f"a batch holds token numbers {what}; pass tensors of shape (batch, length), or mappings that have them as "
            "input_ids. A DataLoader makes batches of samples; with lists of numbers it needs a collate_fn, such as "
            "transformers.default_data_collator."
        )
    if isinstance(batch, Mapping):
        inputs = {name: _indices(value) for name, value in batch.items() if name != "labels"}
        output, labels = model(**inputs), words.long()
        if batch.get("labels") is None and (mask := batch.get("attention_mask")) is not None:
            labels = labels.masked_fill(mask == 0, _IGNORED)
    else:
        output, labels = model(_indices(batch)), words.long()
    logits = getattr(output, "logits", output)
    if not (isinstance(logits, Tensor) and logits.ndim == 3):
        what = f"shape {tuple(logits.shape)}" if isinstance(logits, Tensor) else type(logits).__name__
        raise InvalidInputError(
            f"the model returns {what}, not logits of shape (batch, length, vocabulary). Pass batch_loss=, a function "
            "of model and batch that returns the sum of the losses of the tokens and their number."
        )
    targets = labels[:, 1:]
    losses = nn.functional.cross_entropy(
        logits[:, :-1].flatten(0, 1).float(), targets.flatten(), reduction="none", ignore_index=_IGNORED
    )
    return losses.view_as(targets), targets != _IGNORED


def _indices(value: Any) -> Any:
    """Return token numbers that embeddings take; files often have smaller integers."""
    is_small = isinstance(value, Tensor) and value.dtype in (torch.uint8, torch.uint16, torch.int16, torch.uint32)
    return value.long() if is_small else value


@torch.no_grad()
def source_losses(
    model: nn.Module,
    held_out: Mapping[Any, Iterable[Any]],
    *,
    batch_loss: BatchLoss = next_token_loss,
    device: str | torch.device | None = None,
) -> tuple[dict[Any, float], dict[Any, float]]:
    """Return the mean held-out loss per token of each source, and its tokens.

    With several processes (an initialised ``torch.distributed``) each looks at its share of the batches:
    :meth:`MixtureController.update` takes what all of them found together.

    Parameters
    ----------
    held_out : mapping from source to batches
        Lists or loaders; they are read anew each time.
    batch_loss : callable
        A model and a batch in, the sum of the losses of its tokens and their number out.
    device : device, optional
        Where batches are moved to: that of the model by default.
    """
    check_held_out(held_out)
    return judged_losses(model, held_out, batch_loss, placed(model, device), *rank_and_world())


@torch.no_grad()
def sample_losses(
    model: nn.Module, batches: Iterable[Any], *, device: str | torch.device | None = None
) -> NDArray[np.float64]:
    """Return the mean loss per token of each sample, in order: what intervals for text not seen are made of.

    Of several processes, each judges the batches that it passes.

    Parameters
    ----------
    model : Module
        Logits out, or an object with ``logits``.
    batches : iterable
        As for :func:`next_token_loss`.
    device : device, optional
        Where batches are moved to: that of the model by default.
    """
    place, found = placed(model, device), []
    with _judging(model) as judged:
        for batch in batches:
            losses, count = _token_losses(judged, to_device(batch, place))
            found.append((losses.double().sum(1) / count.sum(1)).cpu().numpy())
    means = np.concatenate([np.zeros(0), *found])
    if not len(means):
        raise InvalidInputError("there are no batches to judge. Pass a list of batches or a DataLoader.")
    if len(none := np.flatnonzero(np.isnan(means))):
        raise InvalidInputError(
            f"no token of sample {none[0]:,} has a loss that is a number: it has a single token, or all its labels are "
            f"{_IGNORED}, or the model has diverged. Leave it out."
        )
    return means


@contextmanager
def _judging(model: nn.Module) -> Iterator[nn.Module]:
    """Have a model without other processes and without dropout; every part of it is as before afterwards."""
    model = unwrapped(model)
    modes = {part: part.training for part in model.modules()}
    model.eval()
    try:
        yield model
    finally:
        for part, was_training in modes.items():
            part.training = was_training


def judged_losses(
    model: nn.Module,
    held_out: Mapping[Any, Iterable[Any]],
    batch_loss: BatchLoss,
    place: torch.device,
    rank: int = 0,
    world: int = 1,
) -> tuple[dict[Any, float], dict[Any, float]]:
    """Return the mean loss of each source and its tokens, by the batches of one process."""
    losses, tokens = {}, {}
    with _judging(model) as judged:
        for name, batches in held_out.items():
            sums, count, k = 0.0, 0.0, -1
            for k, batch in enumerate(batches):
                if k % world != rank:
                    continue
                try:
                    pair = batch_loss(judged, to_device(batch, place))
                except InvalidInputError as error:
                    raise InvalidInputError(f"held-out text of {shown(name)}: {error}") from error
                except IndexError as error:
                    raise InvalidInputError(
                        f"held-out text of {shown(name)}: {error}. Are there tokens that the model does not know, or "
                        "samples longer than it reads?"
                    ) from error
                if not (isinstance(pair, tuple | list) and len(pair) == 2):
                    raise InvalidInputError(
                        f"batch_loss returns {pair!r:.40}; have it return the sum of the losses of the tokens, and "
                        "their number."
                    )
                sums += float(pair[0])
                count += float(pair[1])
            if k < 0:
                raise InvalidInputError(
                    f"there is no held-out text of {shown(name)}. Pass a list of batches or a DataLoader, not a "
                    "generator, which is empty the second time."
                )
            if world == 1 and not count:
                raise InvalidInputError(
                    f"no token counts in the held-out text of {shown(name)}: all labels are {_IGNORED}, or samples "
                    "have a single token. Pass longer ones, or leave the source out."
                )
            losses[name], tokens[name] = sums / count if count else math.nan, count
    return losses, tokens


def check_held_out(held_out: Any) -> None:
    """Raise unless there are batches of each source that can be read again and again."""
    if not (isinstance(held_out, Mapping) and held_out):
        raise InvalidInputError(f"held_out is {held_out!r:.60}; pass a mapping from each source to its batches.")
    for name, batches in held_out.items():
        if isinstance(batches, Tensor) and batches.ndim < 3:
            raise InvalidInputError(
                f"held_out has a single tensor for {shown(name)}, of shape {tuple(batches.shape)}. If it is a batch, "
                "pass it in a list."
            )
        if isinstance(batches, list | tuple) and not batches:
            raise InvalidInputError(f"held_out has no batches of {shown(name)}. Pass some, or leave the source out.")
        is_list = isinstance(batches, Iterable) and not isinstance(batches, Mapping | str | Iterator)
        # A DataLoader of an iterable dataset has no length.
        with suppress(TypeError):
            is_list = is_list and len(batches) > 0
        if not is_list:
            raise InvalidInputError(
                f"held_out has {batches!r:.60} for {shown(name)}. Pass a list of batches or a DataLoader, not a "
                "generator, which is empty the second time."
            )


def placed(model: nn.Module, device: str | torch.device | None) -> torch.device:
    """Return where batches of a model go: to a device that was asked for, or to that of its parameters."""
    if device is not None:
        return torch.device(device)
    return next((parameter.device for parameter in model.parameters()), torch.device("cpu"))


def unwrapped(model: nn.Module) -> nn.Module:
    """Return a model that does not talk to other processes in every batch: these may have fewer, or other ones."""
    return model.module if isinstance(model, nn.parallel.DistributedDataParallel) else model


def to_device(batch: Any, device: torch.device) -> Any:
    """Return a batch on a device."""
    if isinstance(batch, Mapping):
        return {name: to_device(value, device) for name, value in batch.items()}
    if isinstance(batch, list | tuple):
        return [to_device(value, device) for value in batch]
    return batch.to(device) if isinstance(batch, Tensor) else batch
