"""What a model was made for and what it promises, as far as it can be checked once it is in use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from counterpoise.contexts import encode, objects, plain, shown
from counterpoise.estimators.learners import innermost
from counterpoise.exceptions import InvalidInputError
from counterpoise.judging.at_fit import AtFit
from counterpoise.sets import ContextSet, KLBall, confidence_radius
from counterpoise.tables.tabular.card import digest, numbers_json, plain_json
from counterpoise.watch.risks import Losses
from counterpoise.watch.written_sets import set_json

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Promise:
    """What can be checked of a model.

    Attributes
    ----------
    contexts : ndarray of shape (n_contexts,)
    mixes : ContextSet
        The set that it was made for.
    shares : ndarray of shape (n_contexts,)
        Of the rows of the fit; the centre of the set, where there are none.
    worth : float
        How many independent draws of a context a row counts as, at most 1.
    risks, errors, n : ndarray of shape (n_contexts,)
        Mean losses, their standard errors, and how many draws they rest on. NaN where they are not known; infinite
        draws where a risk is stated instead of estimated.
    excess : ndarray of shape (n_contexts,) or None
        By how much the model's risk is above the least possible one.
    influence : ndarray of shape (n_contexts, n_contexts) or None
        What moving weight between contexts would do to the risks.
    fingerprint : str
        Tells one model from another: of its contexts, its set and its own risks.
    name : str
        What is watched, in words.
    notes : tuple of str
        What else there is to say.
    renames : bool
        Whether the fit calls contexts by names of its own.
    fitted : object or None
        That renames labels as the fit called them, where it does and is there.
    """

    contexts: NDArray[Any]
    mixes: ContextSet
    shares: Array
    worth: float
    risks: Array
    errors: Array
    n: Array
    excess: Array | None
    influence: Array | None
    fingerprint: str
    name: str
    notes: tuple[str, ...] = ()
    renames: bool = False
    fitted: Any = None

    @classmethod
    def of(
        cls, model: Any, contexts: Any = None, promised: Mapping[Any, float] | None = None, held_out: Any = None
    ) -> Promise:
        """Ask a model, the folder of one, or a set."""
        if isinstance(model, (str, PathLike)):
            from counterpoise.tables.tabular.table_model import load

            model = load(model)
        found = _of_set(model, contexts) if isinstance(model, ContextSet) else _of_model(model, contexts)
        if promised is not None and held_out is not None:
            raise InvalidInputError("pass promised or held_out, not both: either says how large risks may be.")
        if promised is not None:
            return found._stated(promised)
        return found if held_out is None else found._held_out(held_out)

    def positions(self, labels: NDArray[Any]) -> NDArray[np.intp]:
        """Return the place of each label among the contexts, -1 where it is not there."""
        if self.renames and self.fitted is None:
            raise InvalidInputError(
                "the model calls contexts by names of its own, such as store 4, and only it knows them. Pass it when "
                "the watch is read: Watch.load(path, model)."
            )
        named = labels if self.fitted is None else self.fitted.as_fitted(labels)
        places = {plain(label): k for k, label in enumerate(self.contexts.tolist())}
        return np.array([places.get(plain(label), -1) for label in named.tolist()], dtype=np.intp)

    def _at(self, label: Any) -> int:
        place = int(self.positions(objects([label]))[0])
        if place < 0:
            known = ", ".join(f"{shown(one):.40}" for one in self.contexts.tolist()[:8])
            raise InvalidInputError(f"promised names {label!r:.60}, which is no context of the model: {known}.")
        return place

    def with_risks(self, risks: Array, errors: Array, n: Array) -> Promise:
        """Return the same with another promise of risks."""
        return replace(self, risks=risks, errors=errors, n=n)

    def _stated(self, promised: Mapping[Any, float]) -> Promise:
        """Take risks that are stated, by label."""
        if not isinstance(promised, Mapping):
            raise InvalidInputError(f"promised is {promised!r:.60}; pass a mapping from contexts to mean losses.")
        risks = np.full(len(self.contexts), np.nan)
        for label, risk in promised.items():
            value = float(risk) if isinstance(risk, (int, float, np.number)) else np.nan
            if not value > 0.0:
                raise InvalidInputError(f"promised[{label!r:.60}] is {risk}; a mean loss is a positive number.")
            risks[self._at(label)] = value
        return self.with_risks(risks, np.zeros(len(risks)), np.where(np.isnan(risks), np.nan, np.inf))

    def _held_out(self, held_out: Any) -> Promise:
        """Take the means of losses on rows held out."""
        if not isinstance(held_out, tuple) or len(held_out) not in (2, 3):
            raise InvalidInputError(
                f"held_out is {held_out!r:.60}; pass (contexts, losses) or (contexts, losses, groups) of held-out rows."
            )
        labels, losses, groups = (*held_out, None)[:3]
        values = checked_losses(losses)
        rows = encode(labels, len(values))
        codes = self.positions(rows.labels)[rows.codes]
        known = (codes >= 0) & ~np.isnan(values)
        together = None if groups is None else encode(groups, len(values), role="groups").codes[known]
        units = Losses.of(codes[known], values[known], together)
        n_contexts = len(self.contexts)
        total = units.sums(n_contexts, 0)
        n = np.bincount(units.codes, minlength=n_contexts).astype(np.float64)
        with np.errstate(invalid="ignore", divide="ignore"):
            # A ratio of two sums over units, and its error; units of unequal sizes are worth fewer draws (Kish).
            means = units.sums(n_contexts) / total
            residuals = units.sizes * (units.values - means[units.codes])
            errors = np.sqrt(np.bincount(units.codes, residuals**2, n_contexts) * n / (n - 1.0)) / total
            draws = total**2 / np.bincount(units.codes, units.sizes**2, n_contexts)
            return self.with_risks(means, np.where(n > 1, errors, np.nan), np.nan_to_num(draws))


def checked_losses(losses: ArrayLike) -> Array:
    """Return losses, or say what is wrong with them."""
    try:
        values = np.asarray(losses, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidInputError(f"losses must be numbers, got {losses!r:.60}.") from error
    if values.ndim != 1:
        raise InvalidInputError(f"losses must hold one number per row, got shape {values.shape}.")
    # Squares of larger ones could not be added up.
    bad = np.flatnonzero(~(np.isnan(values) | ((values < 1e150) & (values >= 0.0))))
    if bad.size:
        raise InvalidInputError(
            f"losses[{bad[0]}] = {values[bad[0]]}; a loss is below 1e150 and not negative, since evidence rests on "
            "that. Of counts, pass half the Poisson deviance, y log(y / f) - y + f, with promised= or held_out= in "
            "that unit."
        )
    return values


def _of_set(mixes: ContextSet, contexts: Any) -> Promise:
    n = len(mixes.p_hat)
    given = mixes.labels if contexts is None else contexts
    labels = objects([plain(one) for one in (range(n) if given is None else given)])
    if len(labels) != n or len(set(labels.tolist())) != n:
        raise InvalidInputError(
            f"contexts has {len(labels)} labels, some perhaps twice; the set is about {n} contexts."
        )
    nothing = np.full(n, np.nan)
    fingerprint = _fingerprint(labels, mixes, mixes.p_hat, nothing)
    return Promise(
        labels, mixes, mixes.p_hat, 1.0, nothing, nothing, nothing, None, None, fingerprint, "a set of mixes"
    )


def _of_model(model: Any, contexts: Any) -> Promise:
    if contexts is not None:
        raise InvalidInputError("contexts= names the contexts of a set; a model knows its own. Leave it out.")
    if isinstance(model, type) or not hasattr(innermost(model), "fit"):
        raise InvalidInputError(f"{model!r:.60} cannot be watched. Pass a fitted model, its folder, or a set of mixes.")
    own = innermost(model)
    check_is_fitted(own)
    method = getattr(model, "method", None)
    name = method if isinstance(method, str) and hasattr(model, "baselines") else "model"
    fit = AtFit.of({name: model, **getattr(model, "baselines", {})}, name)
    if fit is None:
        raise InvalidInputError(
            f"{type(own).__name__} knows nothing of contexts, or of a single one. Pass a model that was fitted with "
            "contexts=, or a set of mixes such as counterpoise.KLBall."
        )
    notes = []
    mixes, labels = fit.mixes, objects([*fit.labels.tolist(), *fit.others])
    extra = len(fit.others)
    draws = float(getattr(own, "draws_", np.nan))
    n_rows = float(fit.counts.sum())
    worth = min(1.0, draws / n_rows) if draws > 0.0 else 1.0
    if mixes is None:
        mixes = KLBall(
            fit.shares, confidence_radius(fit.counts, 0.99, "calibrated", draws=worth * n_rows), around="the data"
        )
        notes.append(
            "The model was made for the mix of its rows alone; it is watched against the mixes that these rows leave "
            "plausible, at a confidence of 99%."
        )
    risks, errors, seen = _risks(own, fit, worth)
    excess = getattr(own, "excess_risks_", None)
    influence = getattr(own, "context_influence_", None)
    shares, risks = np.append(fit.shares, np.zeros(extra)), _padded(risks, extra)
    return Promise(
        labels,
        mixes,
        shares,
        worth,
        risks,
        _padded(errors, extra),
        _padded(seen, extra),
        None if excess is None else _padded(np.asarray(excess, dtype=np.float64), extra),
        None if influence is None or extra else np.asarray(influence, dtype=np.float64),
        _fingerprint(labels, mixes, shares, risks),
        f"a model of {n_rows:,.0f} rows in {len(fit.labels)} contexts",
        tuple(notes),
        hasattr(own, "as_fitted"),
        own if hasattr(own, "as_fitted") else None,
    )


def _risks(own: Any, fit: AtFit, worth: float) -> tuple[Array, Array, Array]:
    """Return mean losses as they were measured, on rows held out where that is known."""
    nothing, draws = np.full(len(fit.counts), np.nan), np.maximum(worth * fit.counts, 1.0)
    if hasattr(own, "promised_risks_"):
        if own.promised_risks_ is None:
            return nothing, nothing, nothing
        errors = nothing if own.promised_errors_ is None else own.promised_errors_
        return np.asarray(own.promised_risks_), np.asarray(errors), draws
    risks = getattr(own, "context_risks_", None)
    if risks is None:
        return nothing, nothing, nothing
    risks = np.asarray(risks, dtype=np.float64)
    if hasattr(own, "coef_"):
        # Rows that a model was fitted to flatter it: by twice the parameters for each draw, Akaike's correction, the
        # more so in a context that the fit gave more weight than it has rows.
        n_parameters = np.size(own.coef_) + np.size(getattr(own, "intercept_", ()))
        weights = np.asarray(getattr(own, "context_weights_", fit.shares), dtype=np.float64)
        risks = risks * (1.0 + 2.0 * n_parameters * np.maximum(weights / fit.shares, 1.0) / draws.sum())
    # A risk of nothing, or below, promises nothing that a loss could break.
    return np.where(risks > 0.0, risks, np.nan), nothing, draws


def _padded(values: Array, extra: int) -> Array:
    return np.append(values, np.full(extra, np.nan))


def _fingerprint(contexts: NDArray[Any], mixes: ContextSet, shares: Array, risks: Array) -> str:
    said = {
        "contexts": [plain_json(label) for label in contexts.tolist()],
        "mixes": set_json(mixes),
        "shares": numbers_json(shares.round(12)),
        "risks": numbers_json([float(f"{one:.9g}") for one in risks.tolist()]),
    }
    return digest(said)[:16]
