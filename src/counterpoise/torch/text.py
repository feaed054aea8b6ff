"""Losses of language models on held-out text of several sources, and what a source's own model would reach."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy import optimize
from torch import Tensor, nn
from torch.utils.data import DataLoader

from counterpoise.contexts import shown
from counterpoise.exceptions import InvalidInputError
from counterpoise.torch.losses import rank_and_world, summed
from counterpoise.torch.streams import MixtureStream

Array = NDArray[np.float64]

BatchLoss = Callable[[nn.Module, Any], tuple[Tensor, Tensor]]
"""A model and a batch in, the sum of the losses of its tokens and their number out."""

_LOOKS = 8
"""How often a proxy is judged while it is trained."""

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
    words = batch
    if isinstance(batch, Mapping):
        words = batch.get("input_ids") if batch.get("labels") is None else batch["labels"]
    if not (isinstance(words, Tensor) and words.ndim == 2):
        what = f"shape {tuple(words.shape)}" if isinstance(words, Tensor) else f"{batch!r:.60}"
        raise InvalidInputError(
            f"a batch of token numbers is {what}; pass tensors of shape (batch, length), or mappings with input_ids."
        )
    if isinstance(batch, Mapping):
        inputs = {name: value for name, value in batch.items() if name != "labels"}
        output, labels = model(**inputs), words
        if batch.get("labels") is None and (mask := batch.get("attention_mask")) is not None:
            labels = labels.masked_fill(mask == 0, _IGNORED)
    else:
        output, labels = model(batch), words
    logits = getattr(output, "logits", output)
    if not (isinstance(logits, Tensor) and logits.ndim == 3):
        what = f"shape {tuple(logits.shape)}" if isinstance(logits, Tensor) else type(logits).__name__
        raise InvalidInputError(
            f"the model returns {what}, not logits of shape (batch, length, vocabulary). Pass batch_loss=, a function "
            "of model and batch that returns the sum of the losses of the tokens and their number."
        )
    targets = labels[:, 1:].flatten()
    losses = nn.functional.cross_entropy(
        logits[:, :-1].flatten(0, 1).float(), targets, reduction="sum", ignore_index=_IGNORED
    )
    return losses, (targets != _IGNORED).sum()


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
    place = torch.device(device) if device is not None else next(model.parameters()).device
    return _judged(model, held_out, batch_loss, place, *rank_and_world())


def _judged(
    model: nn.Module,
    held_out: Mapping[Any, Iterable[Any]],
    batch_loss: BatchLoss,
    place: torch.device,
    rank: int = 0,
    world: int = 1,
) -> tuple[dict[Any, float], dict[Any, float]]:
    model = _unwrapped(model)
    modes = {part: part.training for part in model.modules()}
    model.eval()
    losses, tokens = {}, {}
    try:
        for name, batches in held_out.items():
            sums, count, k = 0.0, 0.0, -1
            for k, batch in enumerate(batches):
                if k % world != rank:
                    continue
                try:
                    total, number = batch_loss(model, to_device(batch, place))
                except InvalidInputError as error:
                    raise InvalidInputError(f"held-out text of {shown(name)}: {error}") from error
                sums += float(total)
                count += float(number)
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
    finally:
        for part, was_training in modes.items():
            part.training = was_training
    return losses, tokens


def check_held_out(held_out: Any) -> None:
    """Raise unless there are batches of each source that can be read again and again."""
    if not (isinstance(held_out, Mapping) and held_out):
        raise InvalidInputError(f"held_out is {held_out!r:.60}; pass a mapping from each source to its batches.")
    for name, batches in held_out.items():
        is_list = isinstance(batches, Iterable) and not isinstance(batches, Mapping | str | Iterator)
        # A DataLoader of an iterable dataset has no length.
        with suppress(TypeError):
            is_list = is_list and len(batches) > 0
        if not is_list:
            raise InvalidInputError(
                f"held_out has {batches!r:.60} for {shown(name)}. Pass a list of batches or a DataLoader, not a "
                "generator, which is empty the second time."
            )


def _unwrapped(model: nn.Module) -> nn.Module:
    """Return a model that does not talk to other processes in every batch: these may have fewer, or other ones."""
    return model.module if isinstance(model, nn.parallel.DistributedDataParallel) else model


def to_device(batch: Any, device: torch.device) -> Any:
    """Return a batch on a device."""
    if isinstance(batch, Mapping):
        return {name: to_device(value, device) for name, value in batch.items()}
    if isinstance(batch, list | tuple):
        return [to_device(value, device) for value in batch]
    return batch.to(device) if isinstance(batch, Tensor) else batch


def proxy_losses(
    model: nn.Module,
    sources: Mapping[Any, Any],
    held_out: Mapping[Any, Iterable[Any]],
    *,
    steps: int,
    batch_size: int = 32,
    optimizer: Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer] = torch.optim.AdamW,
    batch_loss: BatchLoss = next_token_loss,
    collate_fn: Callable[[list[Any]], Any] | None = None,
    seed: int = 0,
    device: str | torch.device | None = None,
) -> dict[Any, float]:
    """Return what can be reached in each source: a copy is trained on each alone, and judged on held-out text.

    The loss is the least of nine looks, before and while it is trained, so that a source of little text is not counted
    from a copy that has learnt it by heart. With several processes each trains the copies of some of the sources.

    A source of little text is too little to learn a language from. What can be reached there is learnt from the others
    first: call this with a model that was trained on a mix of all sources as well as with one that was not trained, and
    take the lower loss of each source.

    Parameters
    ----------
    model : Module
        As it is before its copies are trained. One smaller than the model to come will do: what matters is how sources
        differ.
    sources : mapping from source to dataset
        As for :class:`MixtureStream`.
    held_out : mapping from source to batches
    steps : int
        Batches that each copy is trained on.
    optimizer : callable
        Parameters in, an optimiser out.
    batch_loss, device
        As for :func:`source_losses`.
    collate_fn : callable, optional
        As for ``DataLoader``.
    """
    if not callable(optimizer):
        raise InvalidInputError("optimizer is an optimiser; pass what makes one of parameters, such as a class.")
    check_held_out(held_out)
    if not (isinstance(steps, int) and steps >= 1):
        raise InvalidInputError(f"steps = {steps!r}; pass a whole number of batches, 1 or more.")
    lacking = [shown(name) for name in sources if name not in held_out]
    if lacking:
        raise InvalidInputError(f"held_out has no batches of {lacking[0]}. Pass some for every source.")
    place = torch.device(device) if device is not None else next(model.parameters()).device
    rank, world = rank_and_world()

    @torch.no_grad()
    def judged(own: nn.Module, name: Any) -> float:
        return _judged(own, {name: held_out[name]}, batch_loss, place)[0][name]

    def proxy(name: Any) -> float:
        own = copy.deepcopy(_unwrapped(model)).to(place).train()
        descent = optimizer(own.parameters())
        stream = MixtureStream({name: sources[name]}, [1.0], seed=seed)
        looks = {round(steps * (k + 1) / _LOOKS) for k in range(_LOOKS)}
        least = judged(own, name)
        for k, batch in enumerate(DataLoader(stream, batch_size, collate_fn=collate_fn), start=1):
            total, number = batch_loss(own, to_device(batch, place))
            torch.autograd.backward(total / number)
            descent.step()
            descent.zero_grad()
            if k in looks:
                # A loss that is not a number is above every other.
                least = min(least, judged(own, name))
            if k == steps:
                break
        return least

    found = np.zeros(len(sources))
    for k, name in enumerate(sources):
        if k % world == rank:
            # Neither the other proxies nor what the caller draws next depend on it.
            with torch.random.fork_rng(range(torch.cuda.device_count())):
                torch.manual_seed(seed)
                found[k] = proxy(name)
    losses = dict(zip(sources, summed(found).tolist(), strict=True))
    for name, loss in losses.items():
        if not math.isfinite(loss):
            raise InvalidInputError(
                f"the held-out loss of {shown(name)} is {loss} before any training. Is the model whole?"
            )
    return losses


def extrapolated_losses(
    tokens: Sequence[float], losses: Mapping[Any, ArrayLike], at: float = math.inf
) -> dict[Any, float]:
    r"""Return the loss that a source's own model would reach with more tokens, by a scaling law.

    :math:`L(D) = E + B D^{-\beta}` with :math:`E, B \ge 0` is fitted to the losses by least squares. Three numbers of
    tokens are the fewest it can be fitted to; they should span a factor of ten. Where losses do not fall with tokens,
    the least of them is returned.

    Parameters
    ----------
    tokens : sequence of float
        On which models of one source each were trained.
    losses : mapping from source to sequence of the same length
        Held-out losses of these models.
    at : float
        Tokens of the training to come; by default the loss that no number of tokens falls below.
    """
    try:
        sizes = np.asarray(tokens, dtype=np.float64)
    except (TypeError, ValueError):
        sizes = np.zeros(0)
    if sizes.ndim != 1 or len(np.unique(sizes)) < 3 or not (np.isfinite(sizes).all() and (sizes > 0).all()):
        raise InvalidInputError(f"tokens = {tokens!r:.80}; pass three different positive numbers or more.")
    if not at > 0.0:
        raise InvalidInputError(f"at = {at!r}; pass a positive number of tokens.")
    if not isinstance(losses, Mapping):
        raise InvalidInputError(f"losses are {losses!r:.60}; pass a mapping from each source to its losses.")
    scale = float(np.exp(np.log(sizes).mean()))
    found = {name: _law(sizes / scale, _curve(values, len(sizes), name), at / scale) for name, values in losses.items()}
    for name, loss in found.items():
        if loss == 0.0:
            raise InvalidInputError(
                f"losses of {shown(name)} fall without a sign of an end: by the fitted law to 0. Pass at=, the tokens "
                "of the training to come."
            )
    return found


def _curve(values: ArrayLike, size: int, name: Any) -> Array:
    try:
        curve = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        curve = np.zeros(0)
    if curve.shape != (size,) or not np.isfinite(curve).all():
        raise InvalidInputError(f"losses of {shown(name)} must be {size} finite numbers, one for each of tokens.")
    return curve


def _law(sizes: Array, curve: Array, at: float) -> float:
    """Return the fitted loss at a size: for each exponent the other two are a linear problem."""

    def fitted(exponent: float) -> tuple[Array, float]:
        columns = np.column_stack([np.ones_like(sizes), sizes**-exponent])
        return optimize.nnls(columns, curve)

    exponents = np.geomspace(0.01, 3.0, 60)
    best = int(np.argmin([fitted(one)[1] for one in exponents]))
    around = exponents[max(best - 1, 0)], exponents[min(best + 1, len(exponents) - 1)]
    exponent = optimize.minimize_scalar(lambda one: fitted(one)[1], bounds=around, options={"xatol": 1e-10}).x
    floor, factor = fitted(exponent)[0]
    if not factor:
        return float(curve.min())
    return float(floor + (0.0 if math.isinf(at) else factor * at**-exponent))
