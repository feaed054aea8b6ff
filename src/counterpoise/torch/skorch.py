"""Losses for a mix of contexts as the criterion of a skorch net (extra ``skorch``)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from counterpoise.exceptions import InvalidInputError
from counterpoise.torch.baselines import ERMLoss
from counterpoise.torch.evaluation import RowLoss, per_sample
from counterpoise.torch.rounds import Rounds, check_every, check_loss
from counterpoise.validation import on_host

try:
    from skorch import NeuralNetClassifier, NeuralNetRegressor
    from skorch.callbacks import Callback
    from skorch.dataset import unpack_data
    from skorch.helper import SliceDict
    from skorch.utils import to_tensor
except ImportError as error:
    raise ImportError("counterpoise.torch.skorch needs skorch. Run: pip install 'counterpoise[skorch]'") from error

__all__ = ["ContextNet", "ContextNetClassifier", "ContextNetRegressor", "HeldOutCallback"]


def _softmax(scores: Tensor) -> Tensor:
    return torch.softmax(scores, -1)


class ContextNet:
    """Lets a ``skorch.NeuralNet`` have any :class:`~counterpoise.torch.ContextLoss` as its criterion.

    To be named before the net among the bases of a class, as :class:`ContextNetClassifier` and
    :class:`ContextNetRegressor` do. Contexts are integers from 0 on and come in one of two ways: ``fit(X, y,
    contexts=c)``, which scikit-learn's searches split with the rows; or in X itself, as the key ``"contexts"`` of a
    dict, which the module does not get to see. Predictions need none.

    ``criterion__counts`` may be left out: then contexts are counted in the rows that are fitted.
    """

    row_loss: RowLoss
    criterion_: nn.Module

    def fit(self, X: Any, y: Any = None, contexts: Any = None, **fit_params: Any) -> Any:
        """Fit the net to rows and their contexts."""
        X = _with_contexts(X, contexts)
        self._counts = _counts(X)
        return super().fit(X, y, **fit_params)  # type: ignore[misc]

    def partial_fit(self, X: Any, y: Any = None, classes: Any = None, contexts: Any = None, **fit_params: Any) -> Any:
        """Go on with training."""
        X = _with_contexts(X, contexts)
        if getattr(self, "_counts", None) is None:
            self._counts = _counts(X)
        return super().partial_fit(X, y, classes=classes, **fit_params)  # type: ignore[misc]

    def get_params_for(self, prefix: str) -> dict[str, Any]:
        """Return the parameters of a part of the net; the criterion's with the counts of contexts."""
        found: dict[str, Any] = super().get_params_for(prefix)  # type: ignore[misc]
        counts = getattr(self, "_counts", None)
        given = isinstance(self.criterion, nn.Module)  # type: ignore[attr-defined]
        if prefix == "criterion" and counts is not None and not given:
            return {"counts": counts, **found}
        return found

    def infer(self, x: Any, **fit_params: Any) -> Any:
        """Return the module's output for a batch, without its contexts."""
        if isinstance(x, Mapping) and "contexts" in x:
            x = {key: value for key, value in x.items() if key != "contexts"}
            if len(x) == 1:
                # The only input, whatever the module calls it.
                (x,) = x.values()
        return super().infer(x, **fit_params)  # type: ignore[misc]

    def get_loss(self, y_pred: Any, y_true: Any, X: Any = None, training: bool = False) -> Tensor:
        """Return the criterion for the loss of every row of a batch and the rows' contexts."""
        value: Tensor = self.criterion_(*self.rows_of(y_pred, y_true, X))
        return value

    def rows_of(self, y_pred: Any, y_true: Any, X: Any) -> tuple[Tensor, Tensor]:
        """Return the loss and the context of every row of a batch."""
        if not (isinstance(X, Mapping) and "contexts" in X):
            raise InvalidInputError(
                "contexts are missing. Pass fit(X, y, contexts=...), or X as {'x': ..., 'contexts': ...}."
            )
        device = self.device  # type: ignore[attr-defined]
        return self.row_loss(y_pred, to_tensor(y_true, device=device)), to_tensor(X["contexts"], device=device)


class ContextNetClassifier(ContextNet, NeuralNetClassifier):  # type: ignore[misc]
    """A ``skorch.NeuralNetClassifier`` whose criterion is a loss over contexts.

    Parameters
    ----------
    module : torch module (class or instance)
        Returns scores of the classes (logits), of which ``predict_proba`` takes the softmax.
    criterion : ContextLoss (class or instance)
        Its parameters as ``criterion__radius`` and so on.
    row_loss : callable
        Predictions and targets in, one loss per sample out.
    *args, **kwargs
        As in ``skorch.NeuralNetClassifier``.
    """

    def __init__(
        self,
        module: Any,
        *args: Any,
        criterion: Any = ERMLoss,
        row_loss: RowLoss = per_sample,
        predict_nonlinearity: Any = _softmax,
        **kwargs: Any,
    ) -> None:
        super().__init__(module, *args, criterion=criterion, predict_nonlinearity=predict_nonlinearity, **kwargs)
        self.row_loss = row_loss


class ContextNetRegressor(ContextNet, NeuralNetRegressor):  # type: ignore[misc]
    """A ``skorch.NeuralNetRegressor`` whose criterion is a loss over contexts.

    Parameters
    ----------
    module : torch module (class or instance)
    criterion : ContextLoss (class or instance)
        Its parameters as ``criterion__radius`` and so on.
    row_loss : callable
        Predictions and targets in, one loss per sample out.
    *args, **kwargs
        As in ``skorch.NeuralNetRegressor``.
    """

    def __init__(
        self, module: Any, *args: Any, criterion: Any = ERMLoss, row_loss: RowLoss = per_sample, **kwargs: Any
    ) -> None:
        super().__init__(module, *args, criterion=criterion, **kwargs)
        self.row_loss = row_loss


class HeldOutCallback(Callback):  # type: ignore[misc]
    """Gives held-out losses to a criterion that is :class:`~counterpoise.torch.HeldOutWeights`, as often as asked.

    Other losses need no callback. ``worst_excess`` of the last round is a column of the net's history, for
    ``EarlyStopping`` and others to use; put this callback before those.

    Parameters
    ----------
    held_out : skorch dataset, optional
        Rows that are not trained on, with contexts: ``skorch.dataset.Dataset({"x": X, "contexts": c}, y)``. By default
        the net's own validation rows, from its ``train_split``.
    every : float or int
        A float is a share of an epoch (0.25: four rounds in each), an int a number of training batches.
    restore_best : bool
        Whether training ends with the parameters of the round with the least worst case, of which a copy is kept.

    Attributes
    ----------
    rounds_ : Rounds
        How many there were, and the best of them.
    """

    def __init__(self, held_out: Any = None, every: float = 0.25, restore_best: bool = True) -> None:
        self.held_out, self.every, self.restore_best = held_out, every, restore_best

    def initialize(self) -> HeldOutCallback:
        """Forget the rounds of an earlier training."""
        self.rounds_ = Rounds(check_every(self.every))
        return self

    def on_epoch_begin(self, net: Any, dataset_train: Any = None, dataset_valid: Any = None, **kwargs: Any) -> None:
        """Learn how long an epoch is and which rows are held out."""
        check_loss(net.criterion_, "criterion")
        rows = dataset_valid if self.held_out is None else self.held_out
        if rows is None:
            raise InvalidInputError(
                "no rows are held out. Give the net a train_split, or pass held_out to the callback."
            )
        try:
            self.per_epoch_ = float(len(net.get_iterator(dataset_train, training=True)))
        except TypeError:
            self.per_epoch_ = float("inf")
        self.rows_ = rows

    def on_batch_end(self, net: Any, batch: Any = None, training: bool = False, **kwargs: Any) -> None:
        """Make a round where one is due."""
        if not (training and self.rounds_.is_due(self.per_epoch_)):
            return
        losses, codes = [], []
        for held_out in net.get_iterator(self.rows_, training=False):
            X, y = unpack_data(held_out)
            found = net.rows_of(net.evaluation_step(held_out, training=False), y, X)
            losses.append(found[0])
            codes.append(found[1])
        if self.rounds_.take(net.criterion_, losses, codes) and self.restore_best:
            self.rounds_.remember(net.module_)

    def on_epoch_end(self, net: Any, **kwargs: Any) -> None:
        """Write down the worst case of the last round."""
        if self.rounds_.n_rounds:
            net.history.record("worst_excess", float(net.criterion_.worst_excess))
        # Rows are not part of what is learnt, and would be pickled with the net.
        self.rows_ = None

    def on_train_end(self, net: Any, **kwargs: Any) -> None:
        """Put the parameters of the best round back."""
        if self.restore_best:
            self.rounds_.restore(net.module_)


def _with_contexts(X: Any, contexts: Any) -> Any:
    if contexts is None:
        return X
    codes = np.asarray(on_host(contexts))
    if not np.issubdtype(codes.dtype, np.integer):
        raise InvalidInputError(
            f"contexts are of type {codes.dtype}; number them from 0 on: np.unique(contexts, return_inverse=True)."
        )
    given = dict(X) if isinstance(X, Mapping) else {"x": X}
    return SliceDict(**given, contexts=codes.astype(np.int64))


def _counts(X: Any) -> Any:
    """Return how many rows each context has; None where X does not say."""
    if not (isinstance(X, Mapping) and "contexts" in X):
        return None
    return np.bincount(torch.as_tensor(X["contexts"]).cpu().numpy()).astype(np.float64)
