"""Linear models that are robust against the mix of contexts, as scikit-learn estimators."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self, Unpack

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.special import expit, log_expit, log_softmax, softmax
from sklearn.base import ClassifierMixin, RegressorMixin, clone, is_classifier
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from counterpoise.contexts import Contexts, encode, places_among, plain, shown, sorted_codes
from counterpoise.core.fit import LinearFit, fit_problem, found_references, settled_reference
from counterpoise.core.influence import context_influence
from counterpoise.core.objective import ReferenceRisks
from counterpoise.core.problem import Adjust, LinearProblem, Reference, ReferenceKind
from counterpoise.core.robustness import Robustness
from counterpoise.estimators._base import (
    Array,
    LinearParameters,
    MixParameters,
    ProgressLine,
    RobustEstimator,
    ScoredOnHost,
    check_switches,
    contexts_or_one,
    explaining_text,
    refuse_measurements,
    share_parameters,
    speaking_as,
    warn_of_small_contexts,
    with_parameters_of,
)
from counterpoise.estimators.homes import home_of, one_class
from counterpoise.estimators.learners import least_probability
from counterpoise.exceptions import InvalidInputError
from counterpoise.losses import Huber, Logistic, Loss, Multinomial, Pinball, Poisson, Squared
from counterpoise.rows import MemoryRows
from counterpoise.sets import ContextSet
from counterpoise.validation import on_host, refuse_masked, unwrapped

if TYPE_CHECKING:
    from sklearn.linear_model import (
        HuberRegressor,
        LinearRegression,
        LogisticRegression,
        PoissonRegressor,
        QuantileRegressor,
    )

_FLOATS = (np.float64, np.float32)

_OF_NO_LOSS = frozenset(("contexts", "sample_weight"))
"""Columns that no loss has to do with."""

_DECIDED_LATER = frozenset(
    ("alpha", "confidence", "radius", "draws", "mix", "criterion", "reference", "adjust", "tol", "max_iter", "verbose")
) | {"device"}
"""Parameters that what rows answer does not depend on."""


@dataclass(frozen=True, eq=False)
class Scoring:
    """What risks are measured against.

    Attributes
    ----------
    references : ReferenceRisks
        The least risk of each context.
    kind : {"in-sample", "cross-fit", "shrunk", "null", "pooled", "given"}
        Where they come from.
    adjustments : ndarray of shape (n_contexts,)
        What is added to each score.
    scored : ReferenceRisks
        What is taken off the risks in the score: references, or zeros, less the adjustments.
    bracket : ndarray of shape (n_contexts, 2), optional
        An interval of the least possible risk.
    """

    references: ReferenceRisks
    kind: ReferenceKind
    adjustments: Array
    scored: ReferenceRisks
    bracket: Array | None = None


@dataclass(frozen=True, eq=False)
class ContextGradients:
    """How the risk of each context changes with the coefficients of a model.

    Attributes
    ----------
    contexts : ndarray of shape (n_contexts,)
        Labels, in order.
    counts : ndarray of shape (n_contexts,)
        Their rows.
    coef : ndarray of shape (n_contexts, *coef_.shape)
        Derivatives in the coefficients, ridge included. Where one is negative, the context would gain by a larger
        coefficient.
    coef_error : ndarray of the shape of ``coef``
        Standard errors of these means over rows; NaN for a context of one row.
    intercept, intercept_error : ndarray of shape (n_contexts, n_outputs)
    """

    contexts: NDArray[Any]
    counts: NDArray[np.intp]
    coef: Array
    coef_error: Array
    intercept: Array
    intercept_error: Array


@dataclass(frozen=True, eq=False)
class RowReader:
    """How a linear estimator reads rows; see :class:`counterpoise.estimators.homes.Reader`."""

    model: Any
    names: tuple[Any, ...] | None = None

    @property
    def alpha(self) -> float:
        return self.model.alpha

    @property
    def fit_intercept(self) -> bool:
        return self.model.fit_intercept

    @property
    def device(self) -> str | None:
        return self.model.device

    @property
    def classifies(self) -> bool:
        return is_classifier(self.model)

    @property
    def meaning(self) -> str:
        own = {name: value for name, value in self.model.get_params(deep=False).items() if name not in _DECIDED_LATER}
        return f"{type(self.model).__name__} {dict(sorted(own.items()))!r}"

    def travelling(self, names: tuple[Any, ...]) -> RowReader:
        return RowReader(clone(self.model), names)

    def rows(self, columns: Mapping[str, Any]) -> tuple[Any, Any]:
        found = tuple(getattr(columns["X"], "columns", self.names or ()))
        if self.names is not None and found != self.names:
            strange = ", ".join(str(name) for name in found if name not in self.names)[:200]
            missing = ", ".join(str(name) for name in self.names if name not in found)[:200]
            said = "; ".join(
                f"{word} {names}" for word, names in (("not expected:", strange), ("missing:", missing)) if names
            )
            raise InvalidInputError(f"its columns are not those of X ({said or 'they are in another order'}).")
        return self.model._validated(**{name: columns[name] for name in columns if name not in _OF_NO_LOSS})

    def encoded(self, columns: Mapping[str, Any]) -> tuple[Any, Array]:
        with explaining_text():
            return self.model._checked(**{name: columns[name] for name in columns if name not in _OF_NO_LOSS})

    def target(self, y: Any, classes: Any) -> Array:
        if classes is None:
            return self.model._loss().checked_target(y)
        return np.searchsorted(classes, y).astype(np.float64)

    def learn(self, like: Any, classes: Any) -> None:
        # Width and names are kept as scikit-learn keeps them.
        validate_data(self.model, like, dtype=_FLOATS, ensure_min_features=0)
        if classes is not None:
            self.model.classes_ = classes

    def contexts(self, contexts: Any, n_rows: int) -> Any:
        return contexts_or_one(self.model, contexts, n_rows, stacklevel=6)

    def loss(self) -> Loss:
        return self.model._loss()

    def placed(self, rows: MemoryRows) -> MemoryRows:
        return self.model._placed(rows)


class RobustLinearModel(RobustEstimator):
    """What the linear estimators have in common.

    Parameters
    ----------
    confidence : float, default=0.99
        Level of the confidence set of context mixes; 1 is every mix.
    radius : {"types", "agrawal", "calibrated", "chi2", "anytime"} or float, default="types"
        How the size of the set follows from the confidence, or the size itself in bits. 0 is empirical risk
        minimisation.
    draws : float or "groups", optional
        Independent draws of a context in the data, where rows are not independent (patients visit a hospital in
        turn, but one storm is many rows of rain). ``"groups"`` estimates them from ``groups``, which ``fit`` takes
        then: labels such as days, in the order of time where they have an order; see
        :func:`counterpoise.effective_draws`.
    criterion : {"excess", "risk"}, default="excess"
        What the worst case is taken of: risk above the least possible in each context, or risk itself.
    mix : mapping, Mix or ContextSet, optional
        What is known about the mix: bounds of shares by context, such as ``{"winter": (0.1, 0.3)}``, within the
        confidence set of the data; a :class:`counterpoise.Mix`, to say more; or the set of mixes itself, such as
        ``Chi2Ball(p_hat, radius)``, over the contexts in the order of their labels, which takes the place of
        ``confidence``, ``radius`` and ``draws``.
    alpha : float, default=1e-4
        ``alpha / 2 * |coef|^2`` is added to every context's mean loss; the intercept is not penalised.
    fit_intercept : bool, default=True
    reference : {"auto", "in-sample", "cross-fit", "shrunk", "null", "pooled"} or mapping from context to risk, \
default="auto"
        What the risk of each context is compared with; the least risk, or that of a given model. In-sample minima are
        exact for the data but too good for small contexts; cross-fitted ones are estimated on held-out rows.
        ``"shrunk"`` is for many small contexts: what a model of its own gains a context on held-out rows is moved
        towards what it gains all of them, the more, the fewer rows there are. ``"auto"`` is ``"in-sample"``, unless
        what contexts gain by models of their own is mostly what fitting noise would gain them, and the set is large
        enough for that to matter: then it is ``"cross-fit"``, with a warning, where rows are in memory.
        ``"null"`` is the best constant prediction for the mix of the data (zero without an intercept), so that excess
        is minus the explained variance or deviance (maximin effects, Meinshausen and Buehlmann 2015). ``"pooled"`` is
        the plain model: for sets that do not contain the mix of the data, since with it the plain model is the answer.
    adjust : {None, "standard-error"} or float, default=None
        Is added to the score of each context, so that one whose risk is known from few rows counts as worse served. A
        number ``A`` adds ``A / sqrt(n)`` for ``n`` rows, or their weight. ``"standard-error"`` adds one standard error
        of the risk of a model for all contexts on held-out rows; contexts with one row get the standard deviation
        within the others over ``sqrt(n)``. A set of one mix is not changed by it.
    tol : float, default=1e-6
        Largest gap between the proven bounds, relative to the risks above the least the loss allows.
    max_iter : int, default=100
    verbose : int, default=0
        1 shows a live line with iteration, objective and gap.
    device : str, optional
        Where rows are held and summed, such as ``"cuda"`` (extra ``torch``).
        Tensors on a GPU are fitted there without being asked.

    Attributes
    ----------
    coef_, intercept_ : ndarray
    contexts_ : ndarray of shape (n_contexts,)
        Labels; tuples where contexts are crossed. What follows is in their order.
    context_counts_ : ndarray of shape (n_contexts,)
        Rows, or the sum of their weights, which is what the size of the set follows from unless ``draws`` is given.
    context_weights_ : ndarray of shape (n_contexts,)
        The least favourable mix of contexts, under which the model is optimal. It sums to one together with
        ``unseen_weights_``.
    context_risks_, reference_risks_, excess_risks_ : ndarray of shape (n_contexts,)
        Risk with the ridge, the least possible, and the difference; none of them is adjusted.
    reference_ : {"in-sample", "cross-fit", "shrunk", "null", "pooled", "given"}
        Where the references come from.
    reference_bracket_ : ndarray of shape (n_contexts, 2), or None
        With ``reference="shrunk"``: between what is the least possible risk? From the in-sample minimum to the
        held-out risk of the context's own model or the pooled one, the lower of the two, both ends moved outwards by
        1.96 standard errors.
    adjustments_ : ndarray of shape (n_contexts,)
        What was added to the scores; zeros where ``adjust`` is None, or is ``"standard-error"`` with a radius of 0.
    context_influence_ : ndarray of shape (n_contexts, n_contexts), or None
        By how much the risk of a context (row) falls, to first order, when another (column) gets more weight:
        ``G H^-1 G'``, with the gradients ``G`` of the contexts' risks at the fitted coefficients and the Hessian ``H``
        of the risk under ``context_weights_``, both with the ridge. A model refitted for a mix ``q`` has a risk lower
        by about ``q' K q / 2`` in that mix; see :func:`counterpoise.inference.refit.refit_gain`. None for more than
        200 contexts; for quantiles and orders, whose risks bend only at their kinks; for too many coefficients for a
        square matrix of them; where ``H`` is singular to working precision (raise ``alpha``); and in models of a
        confidence path.
    radius_ : float
        In bits.
    unseen_contexts_, unseen_weights_ : ndarray of shape (n_unseen,)
        Contexts without rows whose risk ``mix`` gave, and their part in the mix; mostly none.
    draws_ : float
        The number of draws that the size of the set follows from; NaN where the size was given.
    certificate_ : Certificate
        Proven bounds of the optimum, adjustments included.
    n_iter_, n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Where X has names.
    classes_ : ndarray of shape (n_classes,)
        Of a classifier.
    """

    references = ("auto", "in-sample", "cross-fit", "shrunk", "null", "pooled")

    @with_parameters_of(RobustEstimator)
    def __init__(
        self,
        *,
        alpha: float = 1e-4,
        fit_intercept: bool = True,
        reference: Reference = "auto",
        adjust: Adjust = None,
        tol: float = 1e-6,
        max_iter: int = 100,
        verbose: int = 0,
        device: str | None = None,
        **shared: Unpack[MixParameters],
    ) -> None:
        super().__init__(**shared)
        self.alpha = alpha
        self.fit_intercept = fit_intercept
        self.reference = reference
        self.adjust = adjust
        self.tol = tol
        self.max_iter = max_iter
        self.verbose = verbose
        self.device = device

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Let every estimator's documentation list the parameters and attributes above."""
        super().__init_subclass__(**kwargs)
        share_parameters(cls, RobustLinearModel)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def fit(self, X: Any, y: Any, contexts: Any = None, sample_weight: Any = None, *, groups: Any = None) -> Self:
        """Fit the model.

        Parameters
        ----------
        X : array, sparse matrix or dataframe of shape (n_samples, n_features)
            A dask array or dataframe stays on its workers (extra ``dask``).
        y : array of shape (n_samples,)
        contexts : labels of shape (n_samples,), a table of several columns, which are crossed, or Memberships
            Where X is a dask dataframe, names of its columns will do; these are then no features.
        sample_weight : array of shape (n_samples,), optional
            A whole number is the same as repeating the row.
        groups : labels of shape (n_samples,), optional
            Rows that belong together, such as those of one day; for ``draws="groups"``, and of no effect without it.
        """
        problem = self.pose(X=X, y=y, contexts=contexts, sample_weight=sample_weight)
        with speaking_as(self):
            robustness = self.sized(X, contexts, groups, sample_weight)
        return self.fit_problem(problem, robustness)

    def pose(self, **columns: Any) -> LinearProblem:
        """Check the data, and return the problem they pose, wherever the rows are; see ``estimators.homes``.

        Parameters
        ----------
        **columns
            What ``fit`` takes of every row, by name.
        """
        with speaking_as(self), np.errstate(invalid="ignore"):
            check_switches(self)
            refuse_masked(**{name: values for name, values in columns.items() if name != "contexts"})
            problem = home_of(columns, self.device).pose(columns, RowReader(self))
            labels = problem.contexts.labels
            refuse_measurements(labels, int(problem.contexts.counts.sum()))
            return replace(problem, unseen=self.robustness.unseen(labels).risks)

    def fit_problem(
        self, problem: LinearProblem, robustness: Robustness | None = None, *, with_influence: bool = True
    ) -> Self:
        """Fit the model to a problem that is posed already.

        Parameters
        ----------
        robustness : Robustness, optional
            The model's own, with the draws as a number.
        with_influence : bool
            Whether ``context_influence_`` is found too, which takes a look at the rows.
        """
        robustness = robustness or self.robustness
        line = ProgressLine(type(self).__name__) if self.verbose else None
        with speaking_as(self):
            mixes = robustness.mixes_of(problem.contexts, problem.counts)
            scoring = self.scoring(problem, mixes)
            fit = fit_problem(
                problem,
                mixes,
                scoring.scored,
                tol=self.tol,
                max_iter=self.max_iter,
                callback=line,
                speaker=type(self).__name__,
                stacklevel=4,
            )
        if line is not None:
            line.close()
        influence = context_influence(problem, fit.solution) if with_influence else None
        problem.finish()
        return self.keep(fit, scoring, robustness, influence)

    def scoring(self, problem: LinearProblem, mixes: ContextSet) -> Scoring:
        """Return the least risk of each context, and what is taken off the risks in the score."""
        # With one mix a shift of the scores moves nothing, and is not worth holding rows out.
        idle = self.adjust == "standard-error" and mixes.is_point and problem.oracle.rows.at_hand
        adjustments = problem.adjustments(None if idle else self.adjust, self.tol)
        kind, optimism = settled_reference(problem, mixes, self.criterion, self.reference, self.tol)
        if optimism is not None:
            in_memory = problem.oracle.rows.knows_predictions
            warn_of_small_contexts(self, problem.contexts, optimism, mixes, kind, in_memory)
        references = found_references(problem, self.reference if kind == "given" else kind, self.tol)
        scored = self.robustness.scored(references).less(adjustments)
        bracket = problem.reference_bracket(self.tol) if kind == "shrunk" else None
        return Scoring(references, kind, adjustments, scored, bracket)

    def keep(
        self,
        fit: LinearFit,
        scoring: Scoring,
        robustness: Robustness | None = None,
        influence: Array | None = None,
    ) -> Self:
        """Store what a fit found."""
        solution = fit.solution
        self._keep_contexts(
            fit.contexts,
            fit.counts,
            fit.mixes,
            draws=(robustness or self.robustness).n_draws(fit.counts),
            weights=solution.p_worst,
            risks=solution.risks,
            references=scoring.references.upper,
        )
        self.reference_ = scoring.kind
        self.reference_bracket_ = scoring.bracket
        self.adjustments_ = scoring.adjustments
        self.context_influence_ = influence
        self.certificate_ = solution.certificate
        self.n_iter_ = max(solution.n_iter, 1)
        return self.keep_coefficients(fit.coef, fit.intercept)

    def keep_coefficients(self, coef: Array, intercept: Array) -> Self:
        """Store coefficients and intercepts, of shape (n_outputs, n_features) and (n_outputs,): enough to predict."""
        self.coef_, self.intercept_ = self._shaped(coef, intercept)
        return self

    def _placed(self, rows: MemoryRows) -> MemoryRows:
        """Return rows in the form that is solved."""
        return rows

    def _validated(self, X: Any, y: Any, **columns: Any) -> tuple[Any, Any]:
        """Check X and y as scikit-learn does, all rows or a part of them."""
        raise NotImplementedError

    def _checked(self, X: Any, y: Any, **columns: Any) -> tuple[Any, Array]:
        """Check X and y, and return y in the domain of the loss."""
        return self._validated(X, y, **columns)

    def _loss(self) -> Loss:
        raise NotImplementedError

    def _shaped(self, coef: Array, intercept: Array) -> tuple[Array, Any]:
        """Return coefficients and intercept in the shapes of scikit-learn."""
        raise NotImplementedError

    def _linear(self, X: Any) -> Array:
        """Return ``X coef' + intercept``."""
        check_is_fitted(self)
        X = self.features(X)
        with np.errstate(over="ignore", invalid="ignore"):
            z = self._finite(np.asarray(X @ self.coef_.T + self.intercept_))
        return z[:, 0] if z.ndim == 2 and z.shape[1] == 1 else z

    def features(self, X: Any) -> Any:
        """Return features as numbers, checked against those of the fit: an array or a sparse matrix by rows."""
        with speaking_as(self):
            refuse_masked(X=X)
        return validate_data(self, on_host(X), accept_sparse="csr", dtype=_FLOATS, reset=False)

    def _finite(self, predicted: Array) -> Array:
        """Refuse rows so far out that their prediction is not a float."""
        if not np.isfinite(predicted).all():
            row = int(np.argwhere(~np.isfinite(predicted))[0][0])
            with speaking_as(self):
                raise InvalidInputError(f"the prediction of row {row} is too large for a float. Check X there.")
        return predicted

    def row_losses(self, X: Any, y: Any) -> Array:
        """Return the loss of each row, of the kind the fit was about (without the ridge)."""
        z, loss = self._linear(X), self._loss()
        with speaking_as(self):
            return loss.value(loss.checked_target(unwrapped(on_host(y))), z)

    def lowest_losses(self, y: Any) -> Array:
        """Return the least that :meth:`row_losses` of each row could be, whatever the model."""
        loss = self._loss()
        with speaking_as(self):
            return loss.lowest(loss.checked_target(unwrapped(on_host(y))))

    def context_gradients(self, X: Any, y: Any, contexts: Any) -> ContextGradients:
        """Return the gradient of each context's risk at the fitted coefficients, and its standard error.

        At the solution the gradients cancel under the least favourable mix, ``context_weights_``: contexts whose
        gradients differ in sign pull a coefficient in opposite directions.

        Parameters
        ----------
        X, y, contexts
            Rows in memory, those of the fit or others.
        """
        z = self._linear(X)
        X = validate_data(self, on_host(X), accept_sparse="csr", dtype=_FLOATS, reset=False)
        with speaking_as(self):
            contexts = encode(contexts, len(z))
            slope = self._loss().gradient(self._target_codes(y), z).reshape(len(z), -1)
        coef, coef_error = _mean_products(contexts, slope, X)
        intercept, intercept_error = _mean_products(contexts, slope, np.ones((len(z), 1)))
        shape = (len(contexts.labels), *self.coef_.shape)
        return ContextGradients(
            contexts.labels,
            contexts.counts,
            coef.reshape(shape) + self.alpha * self.coef_,
            coef_error.reshape(shape),
            intercept[..., 0],
            intercept_error[..., 0],
        )

    def _target_codes(self, y: Any) -> Array:
        """Return targets as the loss takes them."""
        return self._loss().checked_target(unwrapped(on_host(y)))

    def _plain(self, model: Any, **fitted: Any) -> Any:
        """Return a scikit-learn model with the same answers."""
        model.coef_, model.intercept_ = self.coef_.copy(), np.copy(self.intercept_)
        for name in ("n_features_in_", "feature_names_in_", "classes_"):
            if hasattr(self, name):
                setattr(model, name, getattr(self, name))
        for name, value in fitted.items():
            setattr(model, name, value)
        return model


def _mean_products(contexts: Contexts, slopes: Array, X: Any) -> tuple[Array, Array]:
    """Return the mean of slope times feature in each context, for each output and feature, and its standard error."""
    n = np.maximum(contexts.counts, 1.0)
    at = (contexts.codes, np.arange(len(contexts.codes)))

    def mean(weights: Array, columns: Any) -> Array:
        one = sparse.csr_array((weights / n[contexts.codes], at), shape=(len(n), len(weights))) @ columns
        return np.asarray(one.toarray() if sparse.issparse(one) else one)

    squares = X.multiply(X) if sparse.issparse(X) else np.square(X)
    means = np.stack([mean(slope, X) for slope in slopes.T], axis=1)
    second = np.stack([mean(slope**2, squares) for slope in slopes.T], axis=1)
    degrees = np.where(n > 1, n - 1.0, np.nan)[:, None, None]
    return means, np.sqrt(np.maximum(second - means**2, 0.0) / degrees)


class RobustLogisticRegression(ScoredOnHost, ClassifierMixin, RobustLinearModel):  # type: ignore[misc]
    """Logistic regression, binary or multinomial, for an uncertain mix of contexts.

    The risk of a context is its mean cross-entropy, in nats.
    """

    def _validated(self, X: Any, y: Any, **columns: Any) -> tuple[Any, Any]:
        X, y = validate_data(self, X, y, accept_sparse="csr", dtype=_FLOATS)
        check_classification_targets(y)
        return X, y

    def _checked(self, X: Any, y: Any, **columns: Any) -> tuple[Any, Array]:
        X, y = self._validated(X, y)
        self.classes_, codes = sorted_codes(y)
        if len(self.classes_) < 2:
            only = self.classes_.tolist()[0]
            raise InvalidInputError(one_class(only))
        return X, codes.astype(np.float64)

    def _shaped(self, coef: Array, intercept: Array) -> tuple[Array, Array]:
        return coef, intercept

    def _loss(self) -> Loss:
        return Logistic() if len(self.classes_) == 2 else Multinomial(len(self.classes_))

    def row_losses(self, X: Any, y: Any) -> Array:
        """Return the loss of each row; that of a class which was not among those in fit is large."""
        z = self._linear(X)
        codes = places_among(self.classes_, np.asarray(unwrapped(on_host(y))))
        known = self._loss().value(np.maximum(codes, 0).astype(np.float64), z)
        return np.where(codes >= 0, known, -np.log(least_probability(len(codes))))

    def _target_codes(self, y: Any) -> Array:
        labels = np.asarray(unwrapped(on_host(y)))
        strange = np.flatnonzero(~np.isin(labels, self.classes_))
        if strange.size:
            first = int(strange[0])
            raise InvalidInputError(
                f"y in row {first} is {shown(plain(labels[first])):.60}, which was not among the classes of the fit. "
                "Leave such rows out."
            )
        return np.searchsorted(self.classes_, labels).astype(np.float64)

    def lowest_losses(self, y: Any) -> Array:
        """Return zeros: a class may be certain."""
        return np.zeros(len(unwrapped(on_host(y))))

    def decision_function(self, X: Any) -> Array:
        """Return the log-odds of the second class, or one linear score per class."""
        return self._linear(X)

    def predict_proba(self, X: Any) -> Array:
        """Return the probability of each class."""
        scores = self.decision_function(X)
        if scores.ndim == 2:
            return np.asarray(softmax(scores, axis=1))
        # Both from their own side: 1 - p would lose what is left of a small probability.
        return np.column_stack([expit(-scores), expit(scores)])

    def predict_log_proba(self, X: Any) -> Array:
        """Return the logarithm of each class's probability."""
        scores = self.decision_function(X)
        if scores.ndim == 2:
            return np.asarray(log_softmax(scores, axis=1))
        return np.column_stack([log_expit(-scores), log_expit(scores)])

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the most probable class."""
        scores = self.decision_function(X)
        return np.asarray(self.classes_[scores.argmax(axis=1) if scores.ndim == 2 else (scores > 0).astype(np.intp)])

    def to_sklearn(self) -> LogisticRegression:
        """Return a fitted :class:`sklearn.linear_model.LogisticRegression` with the same predictions."""
        from sklearn.linear_model import LogisticRegression

        check_is_fitted(self)
        return self._plain(LogisticRegression(fit_intercept=self.fit_intercept), n_iter_=np.array([self.n_iter_]))


class RobustRegressor(ScoredOnHost, RegressorMixin, RobustLinearModel):  # type: ignore[misc]
    """A linear model of a number."""

    def _validated(self, X: Any, y: Any, **columns: Any) -> tuple[Any, Any]:
        X, y = validate_data(self, X, y, accept_sparse="csr", dtype=_FLOATS, y_numeric=True)
        return X, y

    def _shaped(self, coef: Array, intercept: Array) -> tuple[Array, float]:
        return coef[0], float(intercept[0])

    def predict(self, X: Any) -> Array:
        """Return the prediction of each row."""
        return self._linear(X)


class RobustLinearRegression(RobustRegressor):
    """Least squares for an uncertain mix of contexts.

    The risk of a context is half its mean squared residual.
    """

    def _loss(self) -> Loss:
        return Squared()

    def to_sklearn(self) -> LinearRegression:
        """Return a fitted :class:`sklearn.linear_model.LinearRegression` with the same predictions."""
        from sklearn.linear_model import LinearRegression

        check_is_fitted(self)
        return self._plain(LinearRegression(fit_intercept=self.fit_intercept))


class RobustPoissonRegressor(RobustRegressor):
    """Poisson regression of counts, with a log link, for an uncertain mix of contexts.

    The risk of a context is its mean negative log-likelihood, without the factorial.
    """

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.positive_only = True
        return tags

    def _loss(self) -> Loss:
        return Poisson()

    def predict(self, X: Any) -> Array:
        """Return the expected count of each row."""
        with np.errstate(over="ignore"):
            return self._finite(np.exp(self._linear(X)))

    def to_sklearn(self) -> PoissonRegressor:
        """Return a fitted :class:`sklearn.linear_model.PoissonRegressor` with the same predictions."""
        from sklearn.linear_model import PoissonRegressor

        check_is_fitted(self)
        model = PoissonRegressor(alpha=self.alpha, fit_intercept=self.fit_intercept)
        # Its predictions need what only its own fit prepares; what to is of no matter.
        model.fit(np.zeros((2, self.n_features_in_)), np.ones(2))
        return self._plain(model, n_iter_=self.n_iter_)


class RobustHuberRegressor(RobustRegressor):
    """Regression that outliers pull at with bounded force, for an uncertain mix of contexts.

    The risk of a context is its mean Huber loss: half the squared residual up to ``delta``, linear beyond.

    Parameters
    ----------
    delta : float, default=1.35
        In the units of the target.
    """

    @with_parameters_of(RobustRegressor)
    def __init__(self, *, delta: float = 1.35, **shared: Unpack[LinearParameters]) -> None:
        super().__init__(**shared)
        self.delta = delta

    def _loss(self) -> Loss:
        return Huber(self.delta)

    def to_sklearn(self) -> HuberRegressor:
        """Return a fitted :class:`sklearn.linear_model.HuberRegressor` with the same predictions."""
        from sklearn.linear_model import HuberRegressor

        check_is_fitted(self)
        model = HuberRegressor(alpha=self.alpha, fit_intercept=self.fit_intercept)
        # Theirs estimates a scale and counts delta in it; ours is in the units of the target.
        return self._plain(model, scale_=self.delta / model.epsilon, n_iter_=self.n_iter_)


class RobustQuantileRegressor(RobustRegressor):
    """Regression of a quantile for an uncertain mix of contexts.

    The risk of a context is its mean pinball loss: ``quantile`` per unit predicted too low, ``1 - quantile`` per unit
    too high.

    Parameters
    ----------
    quantile : float, default=0.5
    """

    @with_parameters_of(RobustRegressor)
    def __init__(self, *, quantile: float = 0.5, **shared: Unpack[LinearParameters]) -> None:
        super().__init__(**shared)
        self.quantile = quantile

    def _loss(self) -> Loss:
        return Pinball(self.quantile)

    def to_sklearn(self) -> QuantileRegressor:
        """Return a fitted :class:`sklearn.linear_model.QuantileRegressor` with the same predictions."""
        from sklearn.linear_model import QuantileRegressor

        check_is_fitted(self)
        model = QuantileRegressor(quantile=self.quantile, fit_intercept=self.fit_intercept)
        return self._plain(model, n_iter_=self.n_iter_)
