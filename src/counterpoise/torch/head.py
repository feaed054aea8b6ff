"""The last layer of a network, fitted anew on frozen features: a convex problem, solved with a certificate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Self, get_args

import torch
from torch import Tensor, nn

from counterpoise.contexts import encode
from counterpoise.core.robustness import Criterion, DrawCount, Mixes, Robustness
from counterpoise.exceptions import InvalidInputError
from counterpoise.sets import RadiusMethod
from counterpoise.torch.evaluation import Batches
from counterpoise.torch.features import head_rows, last_layer, linear_layers, put_layer, uncompiled
from counterpoise.torch.head_judge import HeadJudge, Weights
from counterpoise.torch.head_references import head_references
from counterpoise.torch.layers import Outputs, Scaling, linear_like
from counterpoise.torch.ridge_heads import Task, checked_alphas, checked_features
from counterpoise.validation import on_host


class RobustHead:
    """A linear head on the frozen features of a network, for an uncertain mix of contexts.

    The last layer of a trained network is fitted anew, to rows that the network was not trained on: these it cannot
    have learnt by heart. Given the features the problem is convex, and it is solved by
    :class:`counterpoise.RobustLogisticRegression` or :class:`counterpoise.RobustLinearRegression`, with a certificate.
    Features are standardised for it, which is folded back into the layer.

    The strength of the ridge is chosen by held-out losses: for each strength, heads are fitted without a fold of the
    rows, under the least favourable mix of a fit to all rows, and the strength whose excess risk is least in the
    worst plausible mix is kept. By the same losses the head is compared with the network's own last layer and with a
    plain refit, and takes their place only where it is better by more than the standard error.

    Parameters
    ----------
    confidence, radius, criterion, mix, draws
        What the head is robust against, see :class:`counterpoise.RobustLogisticRegression`. Without ``mix`` the set is
        centred on the shares of contexts among the rows of ``fit``, and sized by their number; to centre it on the
        training data, pass ``mix=cpo.Mix(counts={...})``.
    weights : {"robust", "inverse-frequency", "erm"}
        How contexts count in the fit: by the least favourable mix; all alike, which is deep feature reweighting
        (Kirichenko and others 2022); or as in the rows, which is a plain refit.
    alpha : float, optional
        ``alpha / 2 * |coef|^2`` is added to the mean loss, on standardised features. By default it is chosen.
    alphas : sequence of float, optional
        The strengths to choose from.
    reference : {"in-sample", "heads", "auto", "cross-fit", "shrunk"} or mapping from context to risk
        What risks are compared with in the fit. Its own risks are in sample, too low where a context has few rows; so
        are in-sample references, by about as much, and the difference is fair. ``"heads"`` are the held-out references
        of :func:`counterpoise.torch.head_references`; the others are those of the estimators. Whatever is chosen here,
        held-out risks are compared with held-out references.
    folds, seed : int
        Of held-out losses; rows are dealt to folds by context.
    guard : bool
        Whether the network's own layer or a plain refit is kept where the head is not better by more than its error.
    task : {"classification", "regression"}, optional
        By default what the type of the targets says: whole numbers are classes.
    tol : float
        Of the certificate.

    Attributes
    ----------
    estimator_ : RobustLogisticRegression or RobustLinearRegression
        The head that was asked for, on standardised features. ``cpo.confidence_path(head.estimator_, **head.data_)``
        and ``cpo.Report(head.estimator_, **head.data_)`` are its path and its report.
    certificate_ : Certificate
    contexts_ : ndarray of shape (n_contexts,)
        Labels. What follows is in their order.
    context_weights_, reference_risks_ : ndarray of shape (n_contexts,)
        Of the estimator.
    references_ : References
        Held-out estimates of the least risks, with standard errors; see :func:`counterpoise.torch.head_references`.
    alpha_ : float
    alphas_ : Table
        A row per strength: ``alpha``; ``worst_case``, the held-out score in the worst plausible mix; ``mean_risk``,
        held out too; ``change``, by how much the score is higher than the least in the worst mix of the latter; and
        ``error``, its standard error.
    chosen_ : {"network", "erm", "inverse-frequency", "robust"}
        The layer that is kept.
    candidates_ : Table or None
        The held-out comparison behind it, see :class:`counterpoise.inference.choice.Choice`; None without a guard.
    linear : Linear
        The layer that is kept, for raw features, in the precision and on the device of the network.
    features_ : Tensor of shape (n_samples, n_features)
        What the estimator was fitted to.
    data_ : dict
        The same as ``X``, with ``y`` and ``contexts``.
    """

    linear: nn.Linear
    layer_: str | None

    def __init__(
        self,
        *,
        confidence: float = 0.99,
        radius: RadiusMethod | float = "types",
        criterion: Criterion = "excess",
        mix: Mixes | None = None,
        draws: DrawCount = None,
        weights: Weights = "robust",
        alpha: float | None = None,
        alphas: Sequence[float] | None = None,
        reference: Any = "in-sample",
        folds: int = 5,
        seed: int = 0,
        guard: bool = True,
        task: Task | None = None,
        tol: float = 1e-6,
    ) -> None:
        self.confidence, self.radius, self.criterion, self.mix, self.draws = confidence, radius, criterion, mix, draws
        self.weights, self.alpha, self.alphas = weights, alpha, alphas
        self.reference, self.folds, self.seed = reference, folds, seed
        self.guard, self.task, self.tol = guard, task, tol

    def fit(
        self,
        model: nn.Module,
        batches: Batches,
        *,
        layer: str | nn.Linear | None = None,
        device: str | torch.device | None = None,
    ) -> Self:
        """Fit the last layer of a trained network anew. The network is not changed until :meth:`put_back`.

        Parameters
        ----------
        model : Module
            Trained.
        batches : iterable of (inputs, targets, contexts)
            A ``DataLoader`` or a list, of rows that the network was not trained on. Contexts are whole numbers.
        layer : str or Linear, optional
            By default the linear layer whose output is that of the network. A layer whose output is another is refused.
        device : optional
            Where batches are sent, by default where the model's parameters are.
        """
        rows = head_rows(model, batches, layer, device)
        _, own = last_layer(model, rows.layer)
        self.fit_features(rows.features, rows.targets, rows.contexts, layer=own)
        self.layer_ = rows.layer
        return self

    def fit_features(self, features: Any, targets: Any, contexts: Any, *, layer: nn.Linear | None = None) -> Self:
        """Fit a head to features.

        Parameters
        ----------
        features : array or Tensor of shape (n_samples, n_features)
            Tensors on a GPU are fitted there.
        targets : array or Tensor of shape (n_samples,)
            Classes from 0 on, or numbers.
        contexts : labels of shape (n_samples,)
        layer : Linear, optional
            The network's own last layer: the head gets as many outputs, and is compared with it.
        """
        self._check()
        Z = checked_features(features)
        if layer is not None and layer.in_features != Z.shape[1]:
            raise InvalidInputError(f"the layer takes {layer.in_features} features; there are {Z.shape[1]}.")
        encoded = encode(on_host(contexts), len(Z))
        outputs = Outputs.of(targets, self.task, len(Z), layer)
        network = None if layer is None else outputs.losses(_outputs(layer, Z))
        self.references_ = head_references(
            Z,
            torch.as_tensor(outputs.values),
            encoded.codes,
            len(encoded.labels),
            own_losses=network,
            folds=self.folds,
            seed=self.seed,
            alphas=self.alphas,
            task=outputs.task,
        )
        scaling = Scaling.of(Z)
        judge = HeadJudge.of(self, scaling.applied(Z), outputs, encoded)
        asked = judge.best(self.weights)
        self.estimator_, self.alpha_, self.alphas_ = judge.certified(asked), asked.alpha, asked.table
        self.contexts_, self.context_weights_ = encoded.labels, self.estimator_.context_weights_
        self.certificate_, self.reference_risks_ = self.estimator_.certificate_, self.estimator_.reference_risks_
        self.features_, self.data_, self.layer_ = judge.X, judge.data, None
        self.chosen_, self.candidates_ = str(self.weights), None
        kept = asked
        if self.guard:
            plain = asked if self.weights == "erm" else judge.best("erm")
            heads = {"erm": plain, str(self.weights): asked}
            losses = {} if network is None else {"network": network}
            choice = judge.choose(losses | {name: head.losses for name, head in heads.items()})
            self.chosen_, self.candidates_ = choice.chosen, replace(choice.candidates, note=choice.words)
            kept = heads.get(self.chosen_, asked)
        if layer is not None and self.chosen_ == "network":
            self.linear = linear_like(layer, layer.weight, layer.bias, Z)
            return self
        model = self.estimator_ if kept is asked else judge.certified(kept)
        classes = getattr(model, "classes_", None)
        weight, bias = outputs.spread_out(model.coef_, model.intercept_, classes, judge.X)
        self.linear = linear_like(layer, *scaling.folded(weight, bias), Z)
        return self

    def put_back(self, model: nn.Module, *, layer: str | nn.Linear | None = None) -> nn.Module:
        """Give a network the layer that was kept, in place of its last one, and return the network.

        The layer is replaced, not overwritten: whatever shares its parameters keeps them.

        Parameters
        ----------
        model : Module
        layer : str or Linear, optional
            The layer to replace, or its name. By default the one that ``fit`` has found. A head that was fitted to
            features takes the place of the linear layer that was registered last, if no other has its shape.
        """
        if not hasattr(self, "linear"):
            raise InvalidInputError("there is no head yet. Call fit first.")
        name, old = self._replaced(model, self.layer_ if layer is None else layer)
        new = linear_like(old, self.linear.weight, self.linear.bias, old.weight)
        if not _same_shape(old, new):
            raise InvalidInputError(
                f"the head has {new.in_features} features and {new.out_features} outputs, layer {name!r} has "
                f"{old.in_features} and {old.out_features}. Name another with layer=."
            )
        if old is uncompiled(model):
            raise InvalidInputError("the model is the layer itself. Use head.linear in its place.")
        put_layer(model, name, new.train(old.training))
        return model

    def _replaced(self, model: nn.Module, layer: str | nn.Linear | None) -> tuple[str, nn.Linear]:
        """Return the layer that the head takes the place of."""
        # Without a batch it is not known which layer gives the network's output.
        fitting = [name for name, one in linear_layers(model).items() if _same_shape(one, self.linear)]
        if layer is None and len(fitting) > 1:
            raise InvalidInputError(
                f"layers {', '.join(map(repr, fitting))} all have the shape of the head, which was fitted to features. "
                "Name the one that gives the network's output with layer=."
            )
        return last_layer(model, layer)

    @property
    def robustness(self) -> Robustness:
        """What the head is robust against."""
        return Robustness(self.confidence, self.radius, self.draws, self.criterion, mix=self.mix)

    def _check(self) -> None:
        for name, known in {"weights": Weights, "criterion": Criterion}.items():
            if getattr(self, name) not in get_args(known):
                raise InvalidInputError(
                    f"{name} is {getattr(self, name)!r:.60}; choose {', '.join(map(repr, get_args(known)))}."
                )
        if self.draws == "groups":
            raise InvalidInputError("draws is 'groups'; pass a number, such as effective_draws(contexts, groups).")
        checked_alphas(self.alphas if self.alpha is None else [self.alpha])


def _same_shape(one: nn.Linear, other: nn.Linear) -> bool:
    return (one.in_features, one.out_features) == (other.in_features, other.out_features)


@torch.no_grad()
def _outputs(layer: nn.Linear, Z: Tensor) -> Tensor:
    weight = layer.weight.to(Z)
    return nn.functional.linear(Z, weight, None if layer.bias is None else layer.bias.to(Z))
