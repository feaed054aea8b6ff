"""Parameters in the words of a boosting library: whose they are, whether there are such, and constraints by name."""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

import numpy as np

from counterpoise.exceptions import InvalidInputError

_OWNED = {
    "n_estimators": "n_estimators num_boost_round num_iterations num_iteration n_iter num_tree num_trees num_round "
    "num_rounds nrounds max_iter",
    "learning_rate": "learning_rate eta shrinkage_rate",
    "n_jobs": "n_jobs nthread nthreads num_thread num_threads",
    "random_state": "random_state seed random_seed",
    "patience": "early_stopping_round early_stopping_rounds early_stopping n_iter_no_change",
    "callbacks": "callbacks callback",
}
"""Parameters of the estimators, and what the libraries call them."""

_SETTLED = "objective objective_type app application loss num_class num_classes quantile_alpha"
"""What follows from the estimator's class, its loss and the targets."""

_CATEGORIES = "categorical_feature categorical_features cat_feature categorical_column cat_column"
"""What LightGBM calls columns of categories, which data frames tell here."""

_MONOTONE = ("monotone_constraints", "monotone_constraint", "monotonic_cst", "mc")


def refuse_owned(params: Mapping[str, Any]) -> None:
    """Refuse what the estimators have a parameter for, or what follows from them."""
    for name in params:
        own = [ours for ours, theirs in _OWNED.items() if name in theirs.split()]
        if own:
            raise InvalidInputError(f"params holds {name!r}, which is a parameter here. Pass {own[0]}= instead.")
        if name in _CATEGORIES.split():
            raise InvalidInputError(
                f"params holds {name!r}; columns of categories are found by their type. Make them categories of a data "
                "frame, e.g. X.astype({'colour': 'category'}) in pandas."
            )
        if name in _SETTLED.split():
            raise InvalidInputError(
                f"params holds {name!r}, but classifiers have the log loss, and regressors the loss that loss= names: "
                "'squared_error', 'poisson' or 'quantile'. Drop it, or use ContextRobust with the library's own "
                "estimator for another loss."
            )


def refuse_unknown(library: str, params: Mapping[str, Any], unused: Iterable[str], known: Iterable[str]) -> None:
    """Name the first parameter that a library does not use, with the known one that is spelt most alike."""
    for name in unused:
        near = get_close_matches(name, sorted(set(known)), n=1)
        remedy = f"Did you mean {near[0]!r}?" if near and near[0] != name else "Check its spelling, or drop it."
        raise InvalidInputError(
            f"params holds {name!r} = {params.get(name)!r:.40}, which {library} does not use. {remedy}"
        )


def refuse_unknown_to_xgboost(xgb: Any, params: Mapping[str, Any], settled: Mapping[str, Any], width: int) -> None:
    """Let XGBoost itself say which parameters it does not use, before it boosts anything.

    It has no list of names: what is used depends on the objective, the booster and the updater.
    """
    matrix = xgb.DMatrix(np.zeros((2, width)), np.array([0.0, 1.0]))
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            # At a lower verbosity it would keep quiet.
            booster = xgb.Booster({**settled, **params, "verbosity": 1}, [matrix])
            settings = json.loads(booster.save_config())
        except (xgb.core.XGBoostError, ValueError, TypeError) as error:
            raise InvalidInputError(f"XGBoost refuses params: {str(error).strip().splitlines()[0]}") from error
    lists = [found for one in said if (found := re.search(r"Parameters: \{(.*)\} are not used", str(one.message)))]
    unused = [name for found in lists for name in re.findall(r'"([^"]+)"', found.group(1))]
    refuse_unknown("XGBoost", params, unused, _keys(settings))


def _keys(settings: Mapping[str, Any]) -> Iterator[str]:
    for name, value in settings.items():
        if isinstance(value, Mapping):
            yield from _keys(value)
        else:
            yield name


def refuse_unknown_to_lightgbm(lgb: Any, params: Mapping[str, Any]) -> None:
    """Check names against LightGBM's own table of parameters and their aliases."""
    # What its own training loop resolves aliases by, but not public: a version without it is trusted with any name.
    table = getattr(getattr(lgb.basic, "_ConfigAliases", None), "_get_all_param_aliases", None)
    if table is None:
        return
    aliases = table()
    known = {name for names in aliases.values() for name in names} | set(aliases)
    refuse_unknown("LightGBM", params, [name for name in params if name not in known], known)


def with_positions(params: Mapping[str, Any], names: Sequence[str] | None, width: int) -> dict[str, Any]:
    """Return parameters in which constraints name columns by their position, which both libraries understand.

    Parameters
    ----------
    names : sequence of str, optional
        Of the columns, where they have any.
    width : int
        Number of columns.
    """
    found = dict(params)
    for name in _MONOTONE:
        if isinstance(found.get(name), Mapping):
            signs = [0] * width
            for column, sign in found[name].items():
                signs[_position(column, names, width, name)] = int(sign)
            found[name] = signs
        if isinstance(found.get(name), (list, tuple, np.ndarray)):
            if len(found[name]) != width:
                raise InvalidInputError(
                    f"params holds {name} of length {len(found[name])} for {width} columns. Pass one sign per column, "
                    "or a mapping from column to sign."
                )
            found[name] = tuple(int(sign) for sign in found[name])
    groups = found.get("interaction_constraints")
    if isinstance(groups, (list, tuple)):
        found["interaction_constraints"] = [
            [_position(column, names, width, "interaction_constraints") for column in group] for group in groups
        ]
    return found


def _position(column: Any, names: Sequence[str] | None, width: int, parameter: str) -> int:
    if names is not None and column in names:
        return list(names).index(column)
    if isinstance(column, (int, np.integer)) and not isinstance(column, bool) and 0 <= column < width:
        return int(column)
    listed = f"The columns are {', '.join(map(str, names[:5]))}" if names is not None else f"There are {width} columns"
    raise InvalidInputError(f"params holds {parameter} of a column {column!r} that X does not have. {listed}.")
