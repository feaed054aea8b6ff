"""What goes into the last layer of a network: frozen features, on which linear heads are fitted."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from counterpoise.exceptions import InvalidInputError
from counterpoise.torch.evaluation import Batches

_AT_ONCE = 1024
"""Rows of a tensor that the network is shown together."""

_SOME = 2
"""Rows that are enough to see which layer gives the network's output."""

_COMPILED = "_orig_mod"
"""Where ``torch.compile`` keeps the model that it was given."""


@dataclass(frozen=True, eq=False)
class HeadRows:
    """Rows as the last layer of a network sees them.

    Attributes
    ----------
    features : Tensor of shape (n_samples, n_features)
        What goes into the layer.
    targets, contexts : Tensor of shape (n_samples,)
    outputs : Tensor of shape (n_samples, ...)
        Of the network, and so of the layer, up to their shape.
    layer : str
        Name of the layer, see :func:`last_layer`.
    """

    features: Tensor
    targets: Tensor
    contexts: Tensor
    outputs: Tensor
    layer: str


def uncompiled(model: nn.Module) -> nn.Module:
    """Return the model that ``torch.compile`` was given, or the model itself."""
    original = getattr(model, _COMPILED, model)
    return original if isinstance(original, nn.Module) else model


def linear_layers(model: nn.Module) -> dict[str, nn.Linear]:
    """Return the linear layers of a model by name, in the order in which they were registered.

    Names are those in the model that ``torch.compile`` was given, where it was.
    """
    found = {name: part for name, part in uncompiled(model).named_modules() if isinstance(part, nn.Linear)}
    if not found:
        raise InvalidInputError(
            f"{type(uncompiled(model)).__name__} has no linear layer (nn.Linear). Pass the features themselves, to "
            "fit_features."
        )
    return found


def last_layer(model: nn.Module, layer: str | nn.Linear | None = None) -> tuple[str, nn.Linear]:
    """Return the name of a linear layer in a model, and the layer: the last one, or the one that is asked for.

    Parameters
    ----------
    layer : str or Linear, optional
        The layer, or its name in ``model.named_modules()``. By default the linear layer that was registered last, which
        need not be the one that gives the network's output: only a batch shows that, see :func:`head_rows`.
    """
    linear = linear_layers(model)
    if layer is None:
        return list(linear.items())[-1]
    if isinstance(layer, str):
        name = layer if uncompiled(model) is model else layer.removeprefix(f"{_COMPILED}.")
        if name not in linear:
            raise InvalidInputError(f"there is no linear layer {layer!r}; there are {', '.join(map(repr, linear))}.")
        return name, linear[name]
    for name, module in linear.items():
        if module is layer:
            return name, module
    kind = type(uncompiled(model)).__name__
    raise InvalidInputError(f"layer is {layer!r:.60}, which is no linear layer of this {kind}.")


def put_layer(model: nn.Module, name: str, layer: nn.Linear) -> None:
    """Give a model another layer of this name, see :func:`last_layer`."""
    # A layer that was compiled alone goes with its wrapper, which would go on running the old one.
    parent, _, own = name.removesuffix(f".{_COMPILED}").rpartition(".")
    setattr(uncompiled(model).get_submodule(parent), own, layer)


def features(
    model: nn.Module,
    batches: Tensor | Iterable[Any],
    *,
    layer: str | nn.Linear | None = None,
    device: str | torch.device | None = None,
) -> Tensor:
    """Return what goes into the last linear layer of a network, a row per sample.

    The network is put into evaluation mode for it, and back afterwards; no gradients are kept. A compiled network is
    run as it was before ``torch.compile``.

    Parameters
    ----------
    model : Module
    batches : Tensor, or iterable of batches
        Inputs; or a ``DataLoader``, whose batches are inputs or begin with them. Rows are in the order in which the
        batches come: a loader that shuffles has another order each time.
    layer : str or Linear, optional
        The layer, or its name. By default the linear layer whose output is that of the network.
    device : optional
        Where inputs are sent, by default where the model's parameters are.

    Returns
    -------
    Tensor of shape (n_samples, n_features)
        On the device of the model.
    """
    parts = torch.split(batches, _AT_ONCE) if isinstance(batches, Tensor) else batches
    found = []
    with _listening(model, layer, device) as listener:
        for part in parts:
            rows = listener.rows_of(part if isinstance(part, Tensor) else part[0])
            if layer is None:
                rows.check_output()
            found.append(rows.inputs)
    if not found:
        raise InvalidInputError("there are no batches.")
    return torch.cat(found)


def head_rows(
    model: nn.Module,
    batches: Batches,
    layer: str | nn.Linear | None = None,
    device: str | torch.device | None = None,
) -> HeadRows:
    """Return features, outputs, targets and contexts of batches of (inputs, targets, contexts), in one pass over them.

    Raises
    ------
    InvalidInputError
        If the output of the layer is not that of the network: then no head could take its place.
    """
    found: list[tuple[Tensor, Tensor, Tensor, Tensor]] = []
    with _listening(model, layer, device) as listener:
        for batch in batches:
            if isinstance(batch, Tensor) or len(batch) != 3:
                raise InvalidInputError("each batch must be (inputs, targets, contexts).")
            rows = listener.rows_of(batch[0])
            rows.check_output()
            targets, contexts = (part.to(listener.place) for part in batch[1:])
            # A network that squeezes its output returns a number for a batch of one row.
            outputs = rows.network if rows.network.ndim else rows.network[None]
            found.append((rows.inputs, targets, contexts, outputs))
    if not found:
        raise InvalidInputError("there are no batches.")
    inputs, targets, contexts, outputs = (torch.cat(parts) for parts in zip(*found, strict=True))
    return HeadRows(inputs, targets, contexts, outputs, listener.name)


def has_features(model: nn.Module, inputs: Any, layer: str | nn.Linear | None = None) -> bool:
    """Tell whether a head can take the place of a network's last linear layer.

    That layer must be called once for a batch, be given one row per sample, and give the output of the network.

    Parameters
    ----------
    model : Module
    inputs : Tensor of shape (n_samples, ...)
        A batch. All of its rows are looked at: few may hide what a network does to the layer's output.
    layer : str or Linear, optional
        The layer, or its name. By default the linear layer whose output is that of the network.
    """
    if not isinstance(inputs, Tensor) or not len(inputs):
        return False
    try:
        with _listening(model, layer, None) as listener:
            listener.rows_of(inputs).check_output()
    except InvalidInputError:
        return False
    return True


@dataclass(frozen=True, eq=False)
class _LayerRows:
    """What a layer is given for a batch, what it gives, and what the network does.

    Attributes
    ----------
    name : str
    inputs, outputs : Tensor
        Of the layer.
    network : Any
        A tensor, unless the network returns something else.
    """

    name: str
    inputs: Tensor
    outputs: Tensor
    network: Any

    @property
    def is_output(self) -> bool:
        """Whether the network returns what the layer gives; a single output may have another shape."""
        given, returned = self.outputs, self.network
        if not isinstance(returned, Tensor) or returned.numel() != given.numel():
            return False
        if returned.shape != given.shape and given.shape[1] != 1:
            return False
        # Both are the same numbers, not the same formula: no rounding lies between them.
        same = given.reshape(returned.shape).to(returned)
        return torch.allclose(same, returned, rtol=0.0, atol=0.0, equal_nan=True)

    def check_output(self) -> None:
        """Raise unless the network returns what the layer gives."""
        if not self.is_output:
            raise InvalidInputError(
                f"the output of layer {self.name!r} is not that of the network, so that no head can take its place. "
                "Name the layer whose output it is with layer=; where there is none, pass features to fit_features."
            )


@dataclass(eq=False)
class _Calls:
    """The calls of a layer while a network looks at a batch."""

    inputs: list[Tensor] = field(default_factory=list)
    outputs: list[Tensor] = field(default_factory=list)

    def record(self, module: nn.Module, given: tuple[Any, ...], named: dict[str, Any], output: Tensor) -> None:
        """Keep what the layer is given and gives, as it is now: what comes next may work in place."""
        self.inputs.append((given[0] if given else named["input"]).clone())
        self.outputs.append(output.clone())

    def rows(self, name: str, n_rows: int, network: Any) -> _LayerRows:
        """Return them, if the layer is called once, with a row per sample."""
        if len(self.inputs) != 1:
            raise InvalidInputError(
                f"layer {name!r} is called {len(self.inputs)} times for a batch; features are the inputs of a "
                "layer that is called once. Name another with layer=."
            )
        (inputs,) = self.inputs
        if inputs.ndim != 2 or len(inputs) != n_rows:
            raise InvalidInputError(
                f"layer {name!r} is given a tensor of shape {tuple(inputs.shape)} for a batch of {n_rows}; "
                "features are one row per sample. Name another with layer=."
            )
        return _LayerRows(name, inputs, self.outputs[0], network)


@dataclass(eq=False)
class _Listener:
    """Shows batches to a network and listens to one of its linear layers.

    Attributes
    ----------
    model : Module
        In evaluation mode, not compiled.
    place : device
    name : str
        The layer; empty until the first batch where it is to be found by its output.
    """

    model: nn.Module
    place: torch.device
    layer: nn.Linear | None
    name: str = ""

    def rows_of(self, inputs: Tensor) -> _LayerRows:
        """Return what the layer is given and gives for a batch."""
        inputs = inputs.to(self.place)
        if self.layer is None:
            self.name, self.layer = self._output_layer(inputs[:_SOME])
        network, (calls,) = self._calls(inputs, [self.layer])
        return calls.rows(self.name, len(inputs), network)

    def _output_layer(self, inputs: Tensor) -> tuple[str, nn.Linear]:
        """Return the layer that gives the network's output, or the one that was registered last."""
        linear = linear_layers(self.model)
        network, calls = self._calls(inputs, list(linear.values()))
        last = list(linear.items())[-1]
        for (name, layer), heard in zip(reversed(linear.items()), reversed(calls), strict=True):
            try:
                if heard.rows(name, len(inputs), network).is_output:
                    return name, layer
            except InvalidInputError:
                continue
        return last

    def _calls(self, inputs: Tensor, layers: list[nn.Linear]) -> tuple[Any, list[_Calls]]:
        calls = [_Calls() for _ in layers]
        handles = [
            layer.register_forward_hook(one.record, with_kwargs=True) for layer, one in zip(layers, calls, strict=True)
        ]
        try:
            return self.model(inputs), calls
        finally:
            for handle in handles:
                handle.remove()


@contextmanager
def _listening(
    model: nn.Module, layer: str | nn.Linear | None, device: str | torch.device | None
) -> Iterator[_Listener]:
    """Listen to a layer of a network in evaluation mode, without gradients and without compiled code."""
    original = uncompiled(model)
    linear_layers(original)
    name, module = ("", None) if layer is None else last_layer(model, layer)
    place = torch.device(device) if device is not None else next(original.parameters()).device
    modes = {part: part.training for part in original.modules()}
    original.eval()
    try:
        with torch.no_grad(), _eager():
            yield _Listener(original, place, module, name)
    finally:
        for part, mode in modes.items():
            part.training = mode


def _eager() -> Any:
    """Run compiled parts of a network as they were before: compiled code does not call hooks that are added later."""
    # Importing the compiler takes seconds; where nobody has, nothing is compiled. Before torch 2.6 there is no switch.
    known = "torch._dynamo" in sys.modules and hasattr(torch.compiler, "set_stance")
    return torch.compiler.set_stance("force_eager") if known else nullcontext()
