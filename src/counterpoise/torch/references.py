"""The least risk that a network can have in each context, estimated on samples held out."""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, Subset, TensorDataset

from counterpoise.contexts import Contexts, encode
from counterpoise.exceptions import InvalidInputError
from counterpoise.files import check_output, whole
from counterpoise.torch.evaluation import RowLoss, context_risks, per_sample
from counterpoise.torch.losses import ERMLoss
from counterpoise.torch.ridge_heads import (
    HeadTarget,
    Task,
    checked_alphas,
    checked_features,
    dealt_folds,
    held_out_losses,
    left_out,
    ridge_heads,
    scales,
)
from counterpoise.torch.training import fit
from counterpoise.validation import on_host

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class References:
    """Estimates of the least risk that a network can have in each context.

    Attributes
    ----------
    risks : ndarray of shape (n_contexts,)
        On rows that were not fitted; NaN for contexts without rows.
    standard_errors : ndarray of shape (n_contexts,)
        Of these means over rows.
    """

    risks: Array
    standard_errors: Array


def head_references(
    features: Any,
    targets: Any,
    contexts: Any,
    n_contexts: int | None = None,
    *,
    own_losses: Any = None,
    folds: int = 5,
    seed: int = 0,
    alphas: Sequence[float] | None = None,
    task: Task | None = None,
) -> References:
    """Estimate the least risk of each context by linear heads on frozen features, on rows these have not seen.

    Heads are fitted without a fold of the rows and judged on it: one for all contexts, and for each context one of its
    own, which a ridge shrinks towards the one for all. How strong the ridges are, and which head is taken, is decided
    for every fold by the rows of the context in the *other* folds, so that the least of several noisy estimates is not
    reported as if it were one; a head of the context's own is taken only where it is better there by more than the
    standard error of the paired difference. The risk that is returned is thus what this procedure reaches on rows it
    has not seen. It does not lie below the least possible risk systematically, whatever the number of rows; it lies
    above it by what fitting so few rows costs.

    Parameters
    ----------
    features : array or Tensor of shape (n_samples, n_features)
        What goes into the last layer, of rows that the network was not trained on; see
        :func:`counterpoise.torch.features`. Tensors on a GPU are fitted there.
    targets : array or Tensor of shape (n_samples,)
        Classes (whole numbers) or numbers (floats).
    contexts : integers of shape (n_samples,)
        From 0 on.
    n_contexts : int, optional
        By default the largest context and one.
    own_losses : array or Tensor of shape (n_samples,), optional
        Losses of the network itself on these rows, as another head for all contexts.
    folds : int
    seed : int
        Rows are dealt to folds at random, by contexts and targets.
    alphas : sequence of float, optional
        Ridges to try, on standardised features.
    task : {"classification", "regression"}, optional
        By default what the type of the targets says.
    """
    # Here, not above: those who take a loss for a loop of their own need not wait for what references import.
    from counterpoise.core.references.rows import ContextRows

    Z = checked_features(features)
    mean, scale = scales(Z)
    X = (Z - mean) * scale
    target = HeadTarget.of(targets, task, X)
    codes = _checked_codes(contexts, len(X), n_contexts)
    n_contexts = int(codes.max()) + 1 if n_contexts is None else n_contexts
    strengths = checked_alphas(alphas)
    if len(X) < 2:
        raise InvalidInputError("references hold rows out, and there is one row.")
    network = None if own_losses is None else np.asarray(on_host(own_losses), dtype=np.float64)
    if network is not None and network.shape != (len(X),):
        raise InvalidInputError(f"own_losses have shape {network.shape} for {len(X)} rows.")
    dealt = dealt_folds(codes, target, folds, seed)
    pooled, shared = _pooled_heads(X, target, codes, dealt, strengths)
    own = _own_heads(X, target, codes, dealt, strengths, shared)
    found = _chosen(codes, dealt, pooled, own, network)
    rows = ContextRows(codes, np.ones(len(codes)), n_contexts)
    with np.errstate(invalid="ignore", divide="ignore"):
        absent = rows.counts == 0.0
        risks, errors = rows.means(found), rows.standard_errors(found)
    return References(np.where(absent, np.nan, risks), np.where(absent, np.nan, errors))


def _checked_codes(contexts: Any, n_rows: int, n_contexts: int | None) -> NDArray[np.intp]:
    codes = np.asarray(on_host(contexts))
    if codes.shape != (n_rows,) or not np.issubdtype(codes.dtype, np.integer):
        raise InvalidInputError(
            f"contexts are {codes.dtype} of shape {codes.shape}; pass a whole number for each of {n_rows} rows."
        )
    if codes.min() < 0 or (n_contexts is not None and codes.max() >= n_contexts):
        most = "" if n_contexts is None else f" to {n_contexts - 1}"
        raise InvalidInputError(f"contexts run from {codes.min()} to {codes.max()}; they are numbered from 0{most}.")
    return codes.astype(np.intp)


def _pooled_heads(
    X: Tensor, target: HeadTarget, codes: NDArray[np.intp], folds: NDArray[np.intp], alphas: tuple[float, ...]
) -> tuple[Array, Tensor]:
    """Return losses of rows under the head for all contexts that has not seen them, and all rows' outputs by fold.

    The ridge of the head without a fold is the one with the least loss on the other folds.
    """
    n_folds = int(folds.max()) + 1
    shares = np.bincount(codes).astype(np.float64)
    outputs = ridge_heads(X, target, left_out(folds, n_folds, codes, shares), alphas).outputs
    losses = held_out_losses(outputs, target, folds)
    sums = np.zeros((n_folds, len(alphas)))
    np.add.at(sums, folds, losses)
    best = (sums.sum(axis=0) - sums).argmin(axis=1)
    every = torch.arange(n_folds, device=X.device)
    return losses[np.arange(len(X)), best[folds]], outputs[:, every, torch.as_tensor(best, device=X.device)]


def _own_heads(
    X: Tensor,
    target: HeadTarget,
    codes: NDArray[np.intp],
    folds: NDArray[np.intp],
    alphas: tuple[float, ...],
    shared: Tensor,
) -> Array:
    """Return losses of rows under heads of their context that have not seen them, of shape (n_samples, n_alphas)."""
    losses = np.empty((len(X), len(alphas)))
    for c in np.unique(codes):
        mine = np.flatnonzero(codes == c)
        rows = torch.as_tensor(mine, device=X.device)
        part, weight = target.subset(rows), left_out(folds[mine], shared.shape[1], np.zeros_like(mine), np.ones(1))
        outputs = ridge_heads(X[rows], part, weight, alphas, shared[rows]).outputs
        losses[mine] = held_out_losses(outputs, part, folds[mine])
    return losses


def _chosen(
    codes: NDArray[np.intp], folds: NDArray[np.intp], pooled: Array, own: Array, network: Array | None
) -> Array:
    """Return the loss of every row under the head that its context's rows in the other folds are in favour of."""
    found = np.empty(len(codes))
    for c in np.unique(codes):
        for fold in np.unique(folds[codes == c]):
            judged = (codes == c) & (folds == fold)
            others = (codes == c) & (folds != fold)
            base = pooled
            # A context of one row has no others, and no network of its own either.
            deciding = others if others.any() else folds != fold
            if network is not None and network[deciding].mean() < pooled[deciding].mean():
                base = network
            found[judged] = base[judged]
            n = int(others.sum())
            if n < 2:
                continue
            gains = base[others][:, None] - own[others]
            best = int(gains.mean(axis=0).argmax())
            if gains[:, best].mean() > gains[:, best].std(ddof=1) / np.sqrt(n):
                found[judged] = own[judged, best]
    return found


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
) -> Array:
    """Estimate what a network of this kind can reach in each context.

    One network is trained on all contexts; then, for each context, a copy of it on the context's own samples, for as
    many epochs again. The reference is the least risk on samples held out that either has after any epoch. It costs
    about two trainings in all, whatever the number of contexts, and a context with few samples is not flattered by a
    network that has learnt them by heart.

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
    settings = f"{epochs} {batch_size} {held_out} {seed} {_named(optimizer)} {_named(row_loss)}"
    key = "" if path is None else _key(model, dataset, encoded, settings)
    if path is not None and (known := _kept(path).get(key)) is not None:
        return np.array(known)
    judges = _held_out_rows(encoded, held_out, seed)
    place = torch.device(device) if device is not None else next(model.parameters()).device
    batches = partial(_batches, dataset, encoded, batch_size, seed)
    pooled = copy.deepcopy(model)
    train = partial(fit, epochs=epochs, row_loss=row_loss, device=place, guard=False)
    train(pooled, ERMLoss(encoded.counts), batches(~judges, True), optimizer(pooled.parameters()))
    least, _ = context_risks(pooled, batches(judges, False), len(encoded.labels), row_loss, place)
    for c in range(len(encoded.labels)):
        own = encoded.codes == c
        tuned = copy.deepcopy(pooled)
        history = train(
            tuned,
            ERMLoss(encoded.counts),
            batches(own & ~judges, True),
            optimizer(tuned.parameters()),
            held_out=batches(own & judges, False),
        )
        least[c] = min(least[c], history.risks[c])
    if path is not None:
        kept = {**_kept(path), key: least.tolist()}
        whole(path, partial(Path.write_text, data=json.dumps(kept, indent=1), encoding="utf-8"))
    return least


def _held_out_rows(contexts: Contexts, share: float, seed: int) -> NDArray[np.bool_]:
    """Mark some rows of every context, at least one and not all."""
    rng = np.random.default_rng(seed)
    order = np.lexsort((rng.random(len(contexts.codes)), contexts.codes))
    rank = np.arange(len(order)) - np.repeat(contexts.starts[:-1], contexts.counts)
    taken = np.clip(np.round(share * contexts.counts), 1, contexts.counts - 1)
    marked = np.empty(len(order), dtype=bool)
    marked[order] = rank < np.repeat(taken, contexts.counts)
    return marked


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


def _kept(path: Path) -> dict[str, list[float]]:
    if not path.exists():
        return {}
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
        return {str(key): [float(risk) for risk in risks] for key, risks in kept.items()}
    except (ValueError, TypeError, AttributeError) as error:
        raise InvalidInputError(f"{path} holds no reference risks ({error}). Name another file.") from error
