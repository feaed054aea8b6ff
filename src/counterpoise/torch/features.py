"""What goes into the last layer of a network: frozen features, on which linear heads are fitted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from counterpoise.exceptions import InvalidInputError
from counterpoise.torch.evaluation import Batches

_AT_ONCE = 1024
"""Rows of a tensor that the network is shown together."""


@dataclass(frozen=True, eq=False)
class HeadRows:
    """Rows as the last layer of a network sees them.

    Attributes
    ----------
    features : Tensor of shape (n_samples, n_features)
        What goes into the layer.
    targets, contexts : Tensor of shape (n_samples,)
    """

    features: Tensor
    targets: Tensor
    contexts: Tensor


def last_layer(model: nn.Module, layer: str | nn.Linear | None = None) -> tuple[str, nn.Linear]:
    """Return the name of a linear layer in a model, and the layer: the last one, or the one that is asked for.

    Parameters
    ----------
    layer : str or Linear, optional
        The layer, or its name in ``model.named_modules()``. By default the linear layer that was registered last.
    """
    linear = {name: module for name, module in model.named_modules() if isinstance(module, nn.Linear)}
    if not linear:
        raise InvalidInputError(
            f"{type(model).__name__} has no linear layer (nn.Linear). Pass the features themselves, to fit_features."
        )
    if layer is None:
        return list(linear.items())[-1]
    if isinstance(layer, str):
        if layer not in linear:
            raise InvalidInputError(f"there is no linear layer {layer!r}; there are {', '.join(map(repr, linear))}.")
        return layer, linear[layer]
    for name, module in linear.items():
        if module is layer:
            return name, module
    raise InvalidInputError(f"layer is {layer!r:.60}, which is no linear layer of this {type(model).__name__}.")


def features(
    model: nn.Module,
    batches: Tensor | Iterable[Any],
    *,
    layer: str | nn.Linear | None = None,
    device: str | torch.device | None = None,
) -> Tensor:
    """Return what goes into the last linear layer of a network, a row per sample.

    The network is put into evaluation mode for it, and back afterwards; no gradients are kept.

    Parameters
    ----------
    model : Module
    batches : Tensor, or iterable of batches
        Inputs; or a ``DataLoader``, whose batches are inputs or begin with them. Rows are in the order in which the
        batches come: a loader that shuffles has another order each time.
    layer : str or Linear, optional
        The layer, or its name. By default the linear layer that was registered last.
    device : optional
        Where inputs are sent, by default where the model's parameters are.

    Returns
    -------
    Tensor of shape (n_samples, n_features)
        On the device of the model.
    """
    parts = torch.split(batches, _AT_ONCE) if isinstance(batches, Tensor) else batches
    found = []
    with _listening(model, layer) as heard:
        place = _place(model, device)
        for part in parts:
            inputs = part if isinstance(part, Tensor) else part[0]
            found.append(heard.during(model, inputs.to(place)))
    if not found:
        raise InvalidInputError("there are no batches.")
    return torch.cat(found)


def head_rows(
    model: nn.Module,
    batches: Batches,
    layer: str | nn.Linear | None = None,
    device: str | torch.device | None = None,
) -> HeadRows:
    """Return features, targets and contexts of batches of (inputs, targets, contexts), in one pass over them."""
    found: list[tuple[Tensor, Tensor, Tensor]] = []
    with _listening(model, layer) as heard:
        place = _place(model, device)
        for batch in batches:
            if isinstance(batch, Tensor) or len(batch) != 3:
                raise InvalidInputError("each batch must be (inputs, targets, contexts).")
            inputs, targets, contexts = (part.to(place) for part in batch)
            found.append((heard.during(model, inputs), targets, contexts))
    if not found:
        raise InvalidInputError("there are no batches.")
    return HeadRows(*(torch.cat(parts) for parts in zip(*found, strict=True)))


def has_features(model: nn.Module, inputs: Tensor) -> bool:
    """Tell whether a network has a last linear layer that is given a row per sample."""
    try:
        features(model, inputs[:2], device=inputs.device)
    except InvalidInputError:
        return False
    return True


@dataclass(eq=False)
class _Heard:
    """What a layer is given while a network looks at a batch."""

    name: str
    inputs: list[Tensor] = field(default_factory=list)

    def hear(self, module: nn.Module, given: tuple[Any, ...]) -> None:
        """Keep what the layer is given."""
        self.inputs.append(given[0])

    def during(self, model: nn.Module, inputs: Tensor) -> Tensor:
        """Return what the layer is given for a batch."""
        self.inputs.clear()
        model(inputs)
        if len(self.inputs) != 1:
            raise InvalidInputError(
                f"layer {self.name!r} is called {len(self.inputs)} times for a batch; features are the inputs of a "
                "layer that is called once. Name another with layer=."
            )
        (rows,) = self.inputs
        if rows.ndim != 2 or len(rows) != len(inputs):
            raise InvalidInputError(
                f"layer {self.name!r} is given a tensor of shape {tuple(rows.shape)} for a batch of {len(inputs)}; "
                "features are one row per sample. Name another with layer=."
            )
        return rows.detach()


@contextmanager
def _listening(model: nn.Module, layer: str | nn.Linear | None) -> Iterator[_Heard]:
    """Listen to a layer of a network in evaluation mode, without gradients."""
    name, module = last_layer(model, layer)
    heard = _Heard(name)
    modes = {part: part.training for part in model.modules()}
    handle = module.register_forward_pre_hook(heard.hear)
    model.eval()
    try:
        with torch.no_grad():
            yield heard
    finally:
        handle.remove()
        for part, mode in modes.items():
            part.training = mode


def _place(model: nn.Module, device: str | torch.device | None) -> torch.device:
    return torch.device(device) if device is not None else next(model.parameters()).device
