"""The least risk that a network can have in each context, estimated on samples held out."""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Literal, overload

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.utils.data import DataLoader, Dataset, Subset, TensorDataset

from counterpoise.contexts import Contexts, encode
from counterpoise.exceptions import InvalidInputError
from counterpoise.files import check_output, whole
from counterpoise.torch.baselines import ERMLoss
from counterpoise.torch.evaluation import RowLoss, per_sample, row_losses
from counterpoise.torch.features import has_features, head_rows
from counterpoise.torch.head_references import References, head_references, stands_out
from counterpoise.torch.sampling import held_out_rows
from counterpoise.torch.training import fit

Array = NDArray[np.float64]


@overload
def reference_risks(
    model: nn.Module,
    dataset: Dataset[Any],
    contexts: Any,
    *,
    epochs: int = ...,
    batch_size: int = ...,
    optimizer: Callable[[Iterator[nn.Parameter]], torch.optim.Optimizer] = ...,
    row_loss: RowLoss = ...,
    held_out: float = ...,
    seed: int = ...,
    cache: str | Path | None = ...,
    device: str | torch.device | None = ...,
    return_errors: Literal[False] = ...,
) -> Array: ...


@overload
def reference_risks(
    model: nn.Module,
    dataset: Dataset[Any],
    contexts: Any,
    *,
    epochs: int = ...,
    batch_size: int = ...,
    optimizer: Callable[[Iterator[nn.Parameter]], torch.optim.Optimizer] = ...,
    row_loss: RowLoss = ...,
    held_out: float = ...,
    seed: int = ...,
    cache: str | Path | None = ...,
    device: str | torch.device | None = ...,
    return_errors: Literal[True],
) -> References: ...


def reference_risks(
    model: nn.Module,
    dataset: Dataset[Any],
    contexts: Any,
    *,
    epochs: int = 5,
    batch_size: int = 256,
    optimizer: Callable[[Iterator[nn.Parameter]], torch.optim.Optimizer] = torch.optim.Adam,
    row_loss: RowLoss = per_sample,
    held_out: float = 0.2,
    seed: int = 0,
    cache: str | Path | None = None,
    device: str | torch.device | None = None,
    return_errors: bool = False,
) -> Array | References:
    """Estimate what a network of this kind can reach in each context.

    One network is trained on all contexts; then, for each context, a copy of it on the context's own samples, for as
    many epochs again, and linear heads on its features, see :func:`head_references`. The reference is the lower of the
    two risks on samples held out. It costs about two trainings in all, whatever the number of contexts, and a context
    with few samples is not flattered by a network that has learnt them by heart.

    The lower of two noisy risks is too low on average, and so is that of a copy after its best epoch. So a copy is
    taken only where it is better than the head by more than the standard error of the paired difference.

    Parameters
    ----------
    model : Module
        As it is before training; it is copied.
    dataset : Dataset of (input, target)
    contexts : labels of shape (n_samples,)
        Risks are in the order of the sorted labels; 0, 1, 2 ... are in the order of the loss.
    optimizer : callable
        Parameters in, an optimiser out.
    held_out : float
        Share of each context's samples that judge.
    cache : path, optional
        Where the risks are kept; they are read from there if contexts, model and settings are the same.
    return_errors : bool
        Whether standard errors are returned too.

    Returns
    -------
    ndarray of shape (n_contexts,), or References
    """
    encoded = encode(contexts, len(dataset))  # type: ignore[arg-type]
    if not 0.0 < held_out < 1.0:
        raise InvalidInputError(f"held_out = {held_out!r}; pass a share between 0 and 1.")
    small = np.flatnonzero(encoded.counts < 2)
    if small.size:
        raise InvalidInputError(f"{encoded.describe(int(small[0]))} has one sample, and one has to be held out.")
    path = None if cache is None else Path(cache)
    if path is not None:
        check_output(path, force=True)
    settings = f"heads {epochs} {batch_size} {held_out} {seed} {_named(optimizer)} {_named(row_loss)}"
    key = "" if path is None else _key(model, dataset, encoded, settings)
    found = None if path is None else _kept(path).get(key)
    if found is None:
        judges = held_out_rows(encoded, held_out, seed)
        place = torch.device(device) if device is not None else next(model.parameters()).device
        batches = partial(_batches, dataset, encoded, batch_size, seed)
        pooled = copy.deepcopy(model)
        train = partial(fit, epochs=epochs, row_loss=row_loss, device=place, guard=False)
        train(pooled, ERMLoss(encoded.counts), batches(~judges, True), optimizer(pooled.parameters()))
        best = _before_tuning(pooled, batches(judges, False), len(encoded.labels), row_loss, place, seed)
        losses, codes = best.losses.copy(), encoded.codes[judges]
        for c in range(len(encoded.labels)):
            own = encoded.codes == c
            tuned = copy.deepcopy(pooled)
            train(
                tuned,
                ERMLoss(encoded.counts),
                batches(own & ~judges, True),
                optimizer(tuned.parameters()),
                held_out=batches(own & judges, False),
            )
            theirs = _losses(tuned, batches(own & judges, False), row_loss, place)
            if stands_out(best.losses[codes == c] - theirs):
                losses[codes == c] = theirs
        found = References.of(losses, codes, len(encoded.labels))
        if path is not None:
            _keep(path, key, found)
    return found if return_errors else found.risks


def _before_tuning(
    network: nn.Module, batches: DataLoader[Any], n_contexts: int, row_loss: RowLoss, device: torch.device, seed: int
) -> References:
    """Return the risks of linear heads on a network's features, or of the network alone where heads have no place."""
    # Heads are fitted to this loss, and need rows of features.
    if row_loss is not per_sample or not has_features(network, next(iter(batches))[0]):
        codes = torch.cat([contexts for _, _, contexts in batches]).numpy().astype(np.intp)
        return References.of(_losses(network, batches, row_loss, device), codes, n_contexts)
    rows = head_rows(network, batches, device=device)
    losses = per_sample(rows.outputs, rows.targets).double()
    return head_references(rows.features, rows.targets, rows.contexts, n_contexts, own_losses=losses, seed=seed)


def _losses(network: nn.Module, batches: DataLoader[Any], row_loss: RowLoss, device: torch.device) -> Array:
    losses, _ = row_losses(network, {"network": lambda: None}, batches, row_loss, device)
    return losses["network"]


class _WithContext(Dataset[tuple[Any, Any, int]]):
    """A dataset whose samples bring their context along."""

    def __init__(self, dataset: Dataset[Any], contexts: NDArray[np.intp]) -> None:
        self.dataset, self.contexts = dataset, contexts

    def __len__(self) -> int:
        return len(self.contexts)

    def __getitem__(self, k: int) -> tuple[Any, Any, int]:
        x, y = self.dataset[k]
        return x, y, int(self.contexts[k])


def _batches(
    dataset: Dataset[Any], contexts: Contexts, size: int, seed: int, rows: NDArray[np.bool_], shuffle: bool
) -> DataLoader[Any]:
    chosen = Subset(_WithContext(dataset, contexts.codes), np.flatnonzero(rows).tolist())
    generator = torch.Generator().manual_seed(seed)
    return DataLoader(chosen, batch_size=size, shuffle=shuffle, generator=generator)


def _named(function: Any) -> str:
    """Return what tells a function from others of its name."""
    code = getattr(function, "__code__", None)
    body = "" if code is None else f"{code.co_code.hex()} {code.co_consts} {code.co_names}"
    return f"{getattr(function, '__module__', '')}.{getattr(function, '__qualname__', function)} {body}"


def _key(model: nn.Module, dataset: Dataset[Any], contexts: Contexts, settings: str) -> str:
    """Return what the risks depend on, in short: of data that are not tensors, some samples stand for all."""
    digest = hashlib.sha256(f"{model} {settings}".encode())
    digest.update(np.ascontiguousarray(contexts.codes).tobytes())
    tensors = [*model.state_dict().values()]
    if isinstance(dataset, TensorDataset):
        tensors += dataset.tensors
    else:
        some = np.linspace(0, len(contexts.codes) - 1, 64).astype(int)
        tensors += [torch.as_tensor(part) for k in some.tolist() for part in dataset[k]]
    for tensor in tensors:
        digest.update(tensor.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()[:24]


def _keep(path: Path, key: str, found: References) -> None:
    kept = {name: _pairs(references) for name, references in {**_kept(path), key: found}.items()}
    whole(path, partial(Path.write_text, data=json.dumps(kept, indent=1), encoding="utf-8"))


def _pairs(references: References) -> list[tuple[float, float]]:
    return list(zip(references.risks.tolist(), references.standard_errors.tolist(), strict=True))


def _kept(path: Path) -> dict[str, References]:
    if not path.exists():
        return {}
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
        found = {}
        for key, pairs in kept.items():
            # Files of earlier versions have no standard errors.
            both = [pair if isinstance(pair, list) else (pair, np.nan) for pair in pairs]
            risks, errors = zip(*both, strict=True)
            found[str(key)] = References(np.array([float(r) for r in risks]), np.array([float(e) for e in errors]))
        return found
    except (ValueError, TypeError, AttributeError) as error:
        raise InvalidInputError(f"{path} holds no reference risks ({error}). Name another file.") from error
