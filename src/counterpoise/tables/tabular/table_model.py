"""A model that ``counterpoise fit`` wrote, in Python."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from counterpoise.exceptions import InvalidInputError
from counterpoise.tables.reading.data_file import no_rows
from counterpoise.tables.tabular import saved as files
from counterpoise.tables.tabular.frames import frame_data

if TYPE_CHECKING:
    from counterpoise.core.objective import Certificate
    from counterpoise.core.robustness import Robustness
    from counterpoise.log_targets import LogTarget
    from counterpoise.sets import Mix

Array = NDArray[np.float64]


def load(folder: str | PathLike[str]) -> TableModel:
    """Read a model that ``counterpoise fit`` wrote.

    The file is checked part by part, and nothing in it is run. Neither scikit-learn nor scipy is imported.

    Parameters
    ----------
    folder : path
        What ``--out`` named.

    Returns
    -------
    TableModel
        It predicts exactly what ``counterpoise predict`` does.

    Raises
    ------
    InvalidInputError
        Where there is no model, or a file was damaged or edited.
    """
    return TableModel(files.load(Path(folder)))


class TableModel:
    """A model of a table, which predicts exactly what ``counterpoise predict`` does.

    Made by :func:`counterpoise.load`. Tables may have more columns than the model needs, in any order. What is missing
    (None, NaN, NaT, NA or null) and what fit has not seen is treated as the command treats it, and what cannot be
    predicted is refused in the same words.

    Parameters
    ----------
    saved : SavedModel
    method : str, optional
        By default the one that was kept.

    Attributes
    ----------
    task : {"classification", "regression", "count", "quantile", "huber"}
    target : str
        The column that is predicted.
    method : str
        Whose model this is: robust, erm, ...
    baselines : mapping from method to TableModel
        All models that were kept, this one included; robust and erm are always among them.
    columns : Columns
    context : tuple of str
        The columns of the contexts.
    pooled : mapping or None
        Which contexts were pooled for the fit.
    quantile : float or None
        That is predicted, where the task is one.
    parameters : mapping
        Of the estimator.
    mix : Mix or None
        What was known about the mix.
    log : LogTarget or None
        The way back to the target, where its logarithm is modelled.
    classes_ : ndarray of shape (n_classes,)
        Of a classification.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        The columns that a table must have.
    n_features_in_ : int
    feature_names_ : ndarray of shape (n_features,)
        A name for each coefficient: ``age``, ``age (missing)``, ``blood=A``, ``blood (rare)``.
    coef_, intercept_ : ndarray
        Of features in the scale of the model, in the shapes of scikit-learn.
    contexts_, context_counts_ : ndarray of shape (n_contexts,)
        Labels, and the rows of each in fit.
    context_weights_, context_risks_, reference_risks_, excess_risks_ : ndarray of shape (n_contexts,)
        As the fitted estimator had them.
    held_out_risks_ : ndarray of shape (n_contexts,) or None
        The risk of each context on rows that the model was not fitted to, where it was kept.
    context_influence_ : ndarray of shape (n_contexts, n_contexts) or None
        As the fitted estimator had it, for at most 60 contexts.
    held_out_errors_ : ndarray of shape (n_contexts,) or None
        Their standard errors, in which rows of one group count together.
    promised_risks_, promised_errors_ : ndarray of shape (n_contexts,) or None
        The same in the loss by which the model is watched: that of the fit, in the unit of the target; half the
        Poisson deviance of counts.
    radius_, draws_ : float
    certificate_ : Certificate

    Examples
    --------
    >>> import counterpoise as cpo
    >>> model = cpo.load("model/")  # doctest: +SKIP
    >>> model.predict_proba(patients)  # doctest: +SKIP
    """

    def __init__(self, saved: files.SavedModel, method: str | None = None) -> None:
        self._saved = saved
        self.method = saved.method if method is None else method
        self.task, self.target, self.columns, self.pooled = saved.task, saved.target, saved.columns, saved.pooled
        self.context = saved.context

    def __repr__(self) -> str:
        return f"TableModel({self.target!r}, task={self.task!r}, method={self.method!r})"

    # --- predictions -------------------------------------------------------------------------------------------------

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the prediction of each row; the most probable class where there are classes.

        Parameters
        ----------
        X : DataFrame of pandas or polars, pyarrow.Table, or mapping from column to values
        """
        return self._predicted(X)["prediction"]

    def _predict_proba(self, X: Any) -> Array:
        """Return the probability of each class, in the order of ``classes_``.

        Parameters
        ----------
        X : DataFrame of pandas or polars, pyarrow.Table, or mapping from column to values
        """
        found = self._predicted(X)
        return np.column_stack([found[f"probability[{name}]"] for name in self.classes_.tolist()])

    @property
    def predict_proba(self) -> Any:
        """Return the probability of each class, in the order of ``classes_``; for classifications only."""
        self._check_classes("predict_proba")
        return self._predict_proba

    def _predicted(self, X: Any) -> dict[str, NDArray[Any]]:
        data = frame_data(X, self.columns.sources)
        if not data.n_rows and data.raw.num_columns:
            raise InvalidInputError(no_rows(data.path))
        return self._saved.predictions(data, self.method)

    def fit(self, X: Any, y: Any = None, **others: Any) -> NoReturn:
        """Refuse: a model that was read is not fitted again."""
        raise InvalidInputError(
            "a model from a folder is not fitted again. Run counterpoise fit, or use an estimator such as "
            "counterpoise.RobustLogisticRegression."
        )

    # --- what is judged ----------------------------------------------------------------------------------------------

    def as_fitted(self, labels: NDArray[Any]) -> NDArray[Any]:
        """Return labels of contexts as the fit called them; those that it did not have, as they are.

        A fit calls a number by its column too, such as store 4, and may have pooled rare contexts.

        Parameters
        ----------
        labels : ndarray of shape (n_labels,)
            Tuples where contexts are crossed.
        """
        named = np.empty(len(labels), dtype=object)
        for k, label in enumerate(labels.tolist()):
            place = self._saved.place(label)
            named[k] = label if place is None else self._saved.contexts[place]
        return named

    def class_texts(self, y: Any) -> NDArray[Any]:
        """Return targets as the command reads classes: text, None where there is none."""
        return np.array(frame_data({"y": y}, ["y"]).texts("y").to_pylist(), dtype=object)

    # --- what is known -----------------------------------------------------------------------------------------------

    @property
    def _own(self) -> files.SavedMethod:
        return self._saved.methods[self.method]

    @cached_property
    def baselines(self) -> Mapping[str, TableModel]:
        """All models that were kept, by method."""
        return {name: self if name == self.method else TableModel(self._saved, name) for name in self._saved.methods}

    @property
    def classes_(self) -> NDArray[Any]:
        """Of a classification, in order."""
        return np.array(self._check_classes("classes_"))

    def _check_classes(self, name: str) -> tuple[str, ...]:
        if self._saved.classes is None:
            raise AttributeError(f"{name} is of classifications; this model's task is {self.task}.")
        return self._saved.classes

    @property
    def quantile(self) -> float | None:
        """That is predicted, where the task is one."""
        return self.parameters["quantile"] if self.task == "quantile" else None

    @property
    def parameters(self) -> Mapping[str, Any]:
        """Of the estimator."""
        return self._own.parameters

    @property
    def mix(self) -> Mix | None:
        """What was known about the mix."""
        return self._own.mix

    @property
    def log(self) -> LogTarget | None:
        """The way back to the target, where its logarithm is modelled."""
        return self._own.log

    @property
    def robustness(self) -> Robustness:
        """What is scored, and how large the set is."""
        from counterpoise.core.robustness import Robustness

        given = self.parameters
        sized = {name: given[name] for name in ("confidence", "radius", "draws", "criterion") if name in given}
        return Robustness(**sized, mix=self.mix)

    @property
    def feature_names_in_(self) -> NDArray[Any]:
        """The columns that a table must have."""
        return np.array(self.columns.sources, dtype=object)

    @property
    def n_features_in_(self) -> int:
        """How many these are."""
        return len(self.columns.sources)

    @property
    def feature_names_(self) -> NDArray[Any]:
        """A name for each coefficient."""
        return np.array(self._saved.preprocessing.features, dtype=object)

    @property
    def coef_(self) -> Array:
        """Of features in the scale of the model."""
        return self._own.coef if self.task == "classification" else self._own.coef[0]

    @property
    def intercept_(self) -> Any:
        """In the shape of scikit-learn."""
        return self._own.intercept if self.task == "classification" else float(self._own.intercept[0])

    @property
    def contexts_(self) -> NDArray[Any]:
        """Labels; tuples where contexts are crossed."""
        labels = self._saved.contexts
        if all(isinstance(one, str) for one in labels):
            return np.array(labels)
        array = np.empty(len(labels), dtype=object)
        for k, label in enumerate(labels):
            array[k] = label
        return array

    @property
    def context_counts_(self) -> Array:
        """The rows of each context in fit."""
        return self._saved.context_counts

    @property
    def context_weights_(self) -> Array:
        """The least favourable mix of contexts."""
        return self._own.context_weights

    @property
    def context_risks_(self) -> Array:
        """The risk of each context in fit."""
        return self._own.context_risks

    @property
    def reference_risks_(self) -> Array:
        """The least possible risk of each context."""
        return self._own.reference_risks

    @property
    def excess_risks_(self) -> Array:
        """The difference of the two."""
        return self._own.excess_risks

    @property
    def held_out_risks_(self) -> Array | None:
        """The risk of each context on rows that the model was not fitted to."""
        return self._own.held_out_risks

    @property
    def context_influence_(self) -> Array | None:
        """By how much the risk of a context falls when another gets more weight."""
        return self._own.context_influence

    @property
    def held_out_errors_(self) -> Array | None:
        """The standard errors of these."""
        return self._own.held_out_errors

    @property
    def promised_risks_(self) -> Array | None:
        """The risk of each context on held-out rows, in the loss by which the model is watched."""
        return self._own.promised_risks if self._watched_otherwise else self._own.held_out_risks

    @property
    def promised_errors_(self) -> Array | None:
        """The standard errors of these."""
        return self._own.promised_errors if self._watched_otherwise else self._own.held_out_errors

    @property
    def _watched_otherwise(self) -> bool:
        """Whether the loss of the fit may be negative, or is of the logarithm of the target."""
        return self.task == "count" or self.log is not None

    @property
    def radius_(self) -> float:
        """The size of the set of mixes."""
        return self._own.radius

    @property
    def draws_(self) -> float:
        """The number of draws that the size of the set follows from."""
        return self._own.draws

    @property
    def certificate_(self) -> Certificate:
        """Proven bounds of the optimum."""
        from counterpoise.core.objective import Certificate

        return Certificate(**self._own.certificate)

    # --- scikit-learn ------------------------------------------------------------------------------------------------

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import ClassifierTags, RegressorTags, Tags, TargetTags

        classifies = self.task == "classification"
        return Tags(
            estimator_type="classifier" if classifies else "regressor",
            target_tags=TargetTags(required=True),
            classifier_tags=ClassifierTags() if classifies else None,
            regressor_tags=None if classifies else RegressorTags(),
        )
