"""What a loss learns from a batch, at little cost: by numpy in memory, on a GPU by replaying what was captured once."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


class Arrays:
    """The buffers of a loss by their names, with ``batch_sums`` and ``batch_counts``: tensors, or arrays of numpy."""

    def __init__(self, arrays: Mapping[str, Any]) -> None:
        for name, array in arrays.items():
            setattr(self, name, array)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"there is no buffer {name!r}.")


Piece = Callable[[ModuleType, Arrays], None]
"""A part of a learning step: ``numpy`` or ``torch``, and the arrays of it, some of which it changes in place."""

_EAGER_CALLS = 2
"""Calls before a piece is captured: kernels are loaded by then, and settings have ceased to change."""


class StepMemory:
    """What a loss reuses from step to step; none of it is state, so a copy begins anew.

    The sums of a batch are always taken in the same place, and buffers stay where they are. So numpy can look at them
    without a call of torch, and the launches of a piece can be captured in a CUDA graph, which is replayed by one call.
    """

    def __init__(self) -> None:
        self._batch: _BatchSums | None = None
        self._views: dict[str, tuple[Tensor, int, NDArray[np.float64]]] = {}
        self._captured: dict[str, _Captured] = {}
        self._constants: dict[tuple[str, torch.device], Tensor] = {}
        self._pool: Any = None

    def __reduce__(self) -> tuple[type[StepMemory], tuple[()]]:
        return StepMemory, ()

    def prepare(self, n_contexts: int, device: torch.device) -> None:
        """Reserve the place of the sums."""
        self._batch = _BatchSums.zero(n_contexts, device)
        self.view("batch_sums", self._batch.sums)
        self.view("batch_counts", self._batch.counts)

    def batch_sums(self, losses: Tensor, contexts: Tensor, n_contexts: int) -> tuple[Tensor, Tensor]:
        """Return the sum of losses and the number of samples in each context, in double precision.

        They are overwritten by the next call.
        """
        if self._batch is None or self._batch.both.device != losses.device:
            self.prepare(n_contexts, losses.device)
        assert self._batch is not None
        self._batch.take(losses, contexts)
        return self._batch.sums, self._batch.counts

    def holds(self, sums: Tensor) -> bool:
        """Tell whether these sums are in the place that is reserved."""
        return self._batch is not None and sums is self._batch.sums

    def view(self, name: str, tensor: Tensor) -> NDArray[np.float64] | None:
        """Return an array in the memory of a tensor; None unless that is the host's."""
        if tensor.device.type != "cpu":
            return None
        known = self._views.get(name)
        # A tensor that is shared between processes keeps its identity, but not its memory.
        if known is None or known[0] is not tensor or known[1] != tensor.data_ptr():
            known = self._views[name] = (tensor, tensor.data_ptr(), tensor.detach().numpy())
        return known[2]

    def constant(self, name: str, values: Sequence[float] | NDArray[np.float64], device: torch.device) -> Tensor:
        """Return numbers that never change as a tensor; a copy from the host could not be captured."""
        if (name, device) not in self._constants:
            self._constants[name, device] = torch.tensor(np.array(values), dtype=torch.float64, device=device)
        return self._constants[name, device]

    def run(self, piece: Piece, buffers: Mapping[str, Tensor], changed: Sequence[str], settings: Hashable) -> None:
        """Run a piece on the sums that ``batch_sums`` returned and on these buffers.

        Parameters
        ----------
        piece : callable
            A method of the loss.
        buffers : mapping from name to Tensor
            Those of the loss, all on one device.
        changed : names
            The buffers that the piece changes.
        settings : hashable
            All else that the piece depends on: where they change, it is captured anew. None for a piece that cannot be
            captured.
        """
        assert self._batch is not None
        tensors = {"batch_sums": self._batch.sums, "batch_counts": self._batch.counts, **buffers}
        device = self._batch.both.device
        if device.type == "cpu":
            piece(np, Arrays({name: self.view(name, tensor) for name, tensor in tensors.items()}))
        elif device.type == "cuda" and settings is not None and not torch.cuda.is_current_stream_capturing():
            # Within a graph of the caller's own, our launches become part of that.
            captured = self._captured.setdefault(piece.__name__, _Captured())
            if self._pool is None:
                self._pool = torch.cuda.graph_pool_handle()
            places = tuple(tensor.data_ptr() for tensor in tensors.values())
            captured(lambda: piece(torch, Arrays(tensors)), (settings, places), self._pool, device)
        else:
            piece(torch, Arrays(tensors))
            return
        for name in changed:
            _mark_as_changed(buffers[name])


@dataclass(frozen=True)
class _BatchSums:
    """The sum of losses and the number of samples in each context, always in the same place."""

    both: Tensor
    sums: Tensor
    counts: Tensor
    one: Tensor

    @classmethod
    def zero(cls, n_contexts: int, device: torch.device) -> _BatchSums:
        both = torch.zeros(2, n_contexts, dtype=torch.float64, device=device)
        return cls(both, both[0], both[1], torch.ones((), dtype=torch.float64, device=device))

    def take(self, losses: Tensor, contexts: Tensor) -> None:
        self.both.zero_()
        self.sums.index_add_(0, contexts, losses.detach().to(torch.float64))
        self.counts.index_add_(0, contexts, self.one.expand(len(losses)))


class _Captured:
    """Launches that are captured at the third call that is like the ones before, and replayed from then on."""

    def __init__(self) -> None:
        self._key: Hashable = None
        self._calls = 0
        self._graph: torch.cuda.CUDAGraph | None = None

    def __call__(self, launch: Callable[[], None], key: Hashable, pool: Any, device: torch.device) -> None:
        if key != self._key:
            self._key, self._calls, self._graph = key, 0, None
        self._calls += 1
        if self._calls == _EAGER_CALLS + 1:
            self._graph = _graph_of(launch, pool, device)
        if self._graph is None:
            launch()
        else:
            self._graph.replay()


def _graph_of(launch: Callable[[], None], pool: Any, device: torch.device) -> torch.cuda.CUDAGraph | None:
    """Return the launches as a graph, none of them run yet; None where they cannot be captured."""
    # Not torch.cuda.graph, which waits for the device and gives all cached memory back.
    graph = torch.cuda.CUDAGraph()
    here, beside = torch.cuda.current_stream(device), torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    beside.wait_stream(here)
    try:
        with torch.cuda.stream(beside):
            # Other threads, such as those that pin the memory of the next batches, may do as they like.
            graph.capture_begin(pool=pool, capture_error_mode="thread_local")
            try:
                launch()
            finally:
                graph.capture_end()
    except RuntimeError:
        # A driver or a debugging tool that allows no capture: the same launches, one by one.
        return None
    here.wait_stream(beside)
    return graph


def _mark_as_changed(tensor: Tensor) -> None:
    """Let autograd notice a change that did not go through torch, as it would any other in place."""
    mark = getattr(torch.autograd.graph, "increment_version", None)
    if mark is not None and not tensor.is_inference():
        mark(tensor)
