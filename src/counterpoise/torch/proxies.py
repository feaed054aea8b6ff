"""What can be reached in each source of text: by models that are trained on it alone, or by a scaling law."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from numbers import Real
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy import optimize
from torch import distributed, nn
from torch.utils.data import DataLoader

from counterpoise.contexts import shown
from counterpoise.exceptions import InvalidInputError
from counterpoise.torch.losses import are_several, rank_and_world, summed
from counterpoise.torch.source_numbers import whole_number
from counterpoise.torch.streams import MixtureStream
from counterpoise.torch.text import (
    BatchLoss,
    check_held_out,
    judged_losses,
    next_token_loss,
    placed,
    to_device,
    unwrapped,
)

Array = NDArray[np.float64]

Optimizers = Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]
"""Parameters in, an optimiser out."""

_LOOKS = 8
"""How often a proxy is judged while it is trained."""


def proxy_losses(
    model: nn.Module,
    sources: Mapping[Any, Any],
    held_out: Mapping[Any, Iterable[Any]],
    *,
    steps: int,
    batch_size: int = 32,
    optimizer: Optimizers = torch.optim.AdamW,
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
        Batches that each copy is trained on. With few, sources that are learnt slowly seem to be served already: as
        many as the run to come has for a model that was not trained, a fifth of them for one that was.
    batch_size : int
    optimizer : callable
        Parameters in, an optimiser out.
    batch_loss, device
        As for :func:`source_losses`.
    collate_fn : callable, optional
        As for ``DataLoader``. Samples of a Hugging Face dataset need ``transformers.default_data_collator``, or the
        dataset ``with_format("torch")``.
    seed : int
        Of the order of samples, and of dropout.
    """
    proxies = _Proxies(sources, held_out, steps, batch_size, optimizer, batch_loss, collate_fn, seed, device)
    rank, world = rank_and_world()
    found = np.zeros(len(sources))
    with _patient_group() as group:
        for k, name in enumerate(sources):
            if k % world == rank:
                found[k] = proxies.trained(model, name)[0]
        losses = dict(zip(sources, summed(found, group).tolist(), strict=True))
    for name, loss in losses.items():
        _check_loss(name, loss)
    return losses


def proxy_models(
    model: nn.Module,
    sources: Mapping[Any, Any],
    held_out: Mapping[Any, Iterable[Any]],
    *,
    steps: int,
    batch_size: int = 32,
    optimizer: Optimizers = torch.optim.AdamW,
    batch_loss: BatchLoss = next_token_loss,
    collate_fn: Callable[[list[Any]], Any] | None = None,
    seed: int = 0,
    device: str | torch.device | None = None,
) -> dict[Any, nn.Module]:
    """Return the copies that :func:`proxy_losses` judges, each as it was at the look with the least held-out loss.

    They are the competitors by which :func:`counterpoise.metrics.excess_bounds` says how far a model is behind.
    Parameters are those of :func:`proxy_losses`; with several processes each trains all copies.
    """
    proxies = _Proxies(sources, held_out, steps, batch_size, optimizer, batch_loss, collate_fn, seed, device)
    models = {}
    for name in sources:
        loss, parameters = proxies.trained(model, name, keeps=True)
        _check_loss(name, loss)
        models[name] = copy.deepcopy(unwrapped(model))
        models[name].load_state_dict(parameters)
    return models


@contextmanager
def _patient_group() -> Iterator[Any]:
    """Have a group of all processes in which some may wait while others train copies; None for a single process."""
    if not are_several():
        yield None
        return
    group = distributed.new_group(timeout=timedelta(days=1))
    try:
        yield group
    finally:
        distributed.destroy_process_group(group)


@dataclass(frozen=True)
class _Proxies:
    """How copies of a model are trained on one source each."""

    sources: Mapping[Any, Any]
    held_out: Mapping[Any, Iterable[Any]]
    steps: int
    batch_size: int
    optimizer: Optimizers
    batch_loss: BatchLoss
    collate_fn: Callable[[list[Any]], Any] | None
    seed: int
    device: str | torch.device | None

    def __post_init__(self) -> None:
        if not (isinstance(self.sources, Mapping) and self.sources):
            raise InvalidInputError(
                f"sources are {type(self.sources).__name__}; pass a mapping from each to its samples, as MixtureStream "
                "takes it."
            )
        if not callable(self.optimizer):
            raise InvalidInputError(
                f"optimizer is of type {type(self.optimizer).__name__}. Pass what makes one of parameters: a class "
                "such as torch.optim.AdamW, or a function."
            )
        check_held_out(self.held_out)
        for name in ("steps", "batch_size"):
            whole_number(getattr(self, name), name)
        lacking = [shown(name) for name in self.sources if name not in self.held_out]
        if lacking:
            raise InvalidInputError(f"held_out has no batches of {lacking[0]}. Pass some for every source.")

    def trained(self, model: nn.Module, name: Any, keeps: bool = False) -> tuple[float, dict[str, Any]]:
        """Return the least held-out loss of a copy that is trained on a source, and its parameters there if asked."""
        place = placed(model, self.device)
        looks = {round(self.steps * (k + 1) / _LOOKS) for k in range(_LOOKS)}
        # Neither the other proxies nor what the caller draws next depend on it.
        with torch.random.fork_rng(range(torch.cuda.device_count())):
            torch.manual_seed(self.seed)
            own = copy.deepcopy(unwrapped(model)).to(place).train()
            if not any(parameter.requires_grad for parameter in own.parameters()):
                raise InvalidInputError("no parameter of the model is to be trained. Call model.requires_grad_(True).")
            descent = self.optimizer(own.parameters())
            stream = MixtureStream({name: self.sources[name]}, [1.0], seed=self.seed)
            least, best = self._judged(own, name, place), copy.deepcopy(own.state_dict()) if keeps else {}
            for k, batch in enumerate(DataLoader(stream, self.batch_size, collate_fn=self.collate_fn), start=1):
                total, number = self.batch_loss(own, to_device(batch, place))
                torch.autograd.backward(total / number)
                descent.step()
                descent.zero_grad()
                # A loss that is not a number is above every other.
                if k in looks and (loss := self._judged(own, name, place)) < least:
                    least, best = loss, copy.deepcopy(own.state_dict()) if keeps else {}
                if k == self.steps:
                    break
        return least, best

    @torch.no_grad()
    def _judged(self, own: nn.Module, name: Any, place: torch.device) -> float:
        return judged_losses(own, {name: self.held_out[name]}, self.batch_loss, place)[0][name]


def _check_loss(name: Any, loss: float) -> None:
    if not math.isfinite(loss):
        raise InvalidInputError(
            f"the held-out loss of {shown(name)} is {loss} before any training. Is the model whole?"
        )


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
    if not (isinstance(at, Real) and at > 0.0):
        raise InvalidInputError(f"at = {at!r:.60}; pass a positive number of tokens.")
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
