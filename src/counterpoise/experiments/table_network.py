"""A small network on a table: methods for networks on data whose contexts nobody planted.

Usage: python -m counterpoise.experiments.table_network FILE --target COLUMN --context COLUMN [--drop COLUMN ...]

It needs PyTorch (extra ``torch``). A target of words, or of two numbers, is classified, any other one predicted by
least squares on a standardised scale. Rows are split anew for every seed: half to learn from, a quarter held out, a
quarter to test. Excess is counted from the references of the seed: nobody knows what is possible at all. Methods are
those of :mod:`counterpoise.experiments.networks`.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.csv
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from counterpoise.contexts import encode
from counterpoise.exceptions import InvalidInputError
from counterpoise.experiments._base import Array, generator
from counterpoise.experiments.networks import Task, add_options, as_table, run_seeds
from counterpoise.torch import context_risks, zero_one

NAME = "table-network"


@dataclass(frozen=True, eq=False)
class Rows:
    """A table as numbers.

    Attributes
    ----------
    features : ndarray of shape (n, n_features)
        Numbers as they are, words as indicators.
    target : ndarray of shape (n,)
        Classes (whole numbers), or numbers.
    contexts : ndarray of shape (n,)
        From 0 on.
    labels : list of str
        Of the contexts.
    """

    features: Array
    target: NDArray[Any]
    contexts: NDArray[np.intp]
    labels: list[str]

    @property
    def is_classified(self) -> bool:
        """Whether the target is a class."""
        return np.issubdtype(self.target.dtype, np.integer)


def read(file: Path, target: str, context: str, drop: list[str], positive: bool = False) -> Rows:
    """Read a csv file; gaps in numbers are filled by the median, and those of words are a word.

    Parameters
    ----------
    positive : bool
        Classify whether the target is above zero.
    """
    table = pyarrow.csv.read_csv(file)
    missing = [name for name in (target, context, *drop) if name not in table.column_names]
    if missing:
        raise InvalidInputError(f"{file} has no column {missing[0]!r}; it has {', '.join(table.column_names)}.")
    columns = {name: table[name].to_numpy() for name in table.column_names}
    values = columns.pop(target)
    values = values > 0 if positive else values
    contexts = encode(columns.pop(context).astype(str))
    few = len(np.unique(values)) == 2
    y = np.unique(values, return_inverse=True)[1] if few or values.dtype == object else values.astype(np.float64)
    blocks = [_numbers(column) for name, column in columns.items() if name not in drop]
    return Rows(np.column_stack(blocks), y, contexts.codes, [str(label) for label in contexts.labels])


def _numbers(column: NDArray[Any]) -> Array:
    if column.dtype == object:
        words = column.astype(str)
        return (words[:, None] == np.unique(words)).astype(np.float64)
    numbers = column.astype(np.float64)
    return np.where(np.isnan(numbers), np.nanmedian(numbers), numbers)[:, None]


def network(n_features: int, n_outputs: int, seed: int) -> nn.Module:
    """Return two hidden layers of 64."""
    torch.manual_seed(seed)
    hidden = [nn.Linear(n_features, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU()]
    return nn.Sequential(*hidden, nn.Linear(64, n_outputs))


def metrics(model: nn.Module, least: Array, test: tuple[Tensor, Tensor, Tensor], shares: Array) -> dict[str, float]:
    """Return risks on test rows, and errors in percent or root mean squares in units of the target's deviation."""
    device = next(model.parameters()).device
    risks, _ = context_risks(model, [test], len(shares), device=device)
    if test[1].is_floating_point():
        errors = np.sqrt(2.0 * risks)
    else:
        errors = 100.0 * context_risks(model, [test], len(shares), zero_one, device)[0]
    return {
        **{f"error-{c + 1}": float(error) for c, error in enumerate(errors)},
        "worst-error": float(errors.max()),
        "mean-error": float(shares @ errors),
        "worst-excess-risk": float((risks - least).max()),
        "mean-risk": float(shares @ risks),
    }


def task(seed: int, rows: Rows, name: str) -> Task:
    """Split rows by context, and standardise them by those to learn from."""
    order = generator(seed, NAME).permutation(len(rows.target))
    # In the order of contexts every fourth row is taken, so that small contexts are in all parts.
    place = np.empty(len(order), dtype=np.intp)
    place[order[np.argsort(rows.contexts[order], kind="stable")]] = np.arange(len(order))
    part = place % 4
    learnt = part < 2
    mean, scale = rows.features[learnt].mean(0), rows.features[learnt].std(0)
    X = torch.as_tensor((rows.features - mean) / np.where(scale > 0, scale, 1.0)).float()
    if rows.is_classified:
        y, n_outputs = torch.as_tensor(rows.target), int(rows.target.max()) + 1
    else:
        centre, spread = rows.target[learnt].mean(), rows.target[learnt].std()
        y, n_outputs = torch.as_tensor((rows.target - centre) / spread).float(), 1
    c = torch.as_tensor(rows.contexts)
    train, held_out, test = ((X[at], y[at], c[at]) for at in (learnt, part == 2, part == 3))
    shares = np.bincount(rows.contexts) / len(rows.contexts)
    judge, by = partial(metrics, test=test, shares=shares), zero_one if rows.is_classified else None
    return Task(name, train, held_out, partial(network, X.shape[1], n_outputs, seed), judge, len(shares), by)


METRICS = {
    "worst-error": "worst-context error",
    "mean-error": "mean error",
    "worst-excess-risk": "worst excess risk",
    "mean-risk": "mean risk",
}


def main() -> None:
    """Run all seeds, and print medians."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, help="a csv file")
    parser.add_argument("--target", required=True)
    parser.add_argument("--context", required=True)
    parser.add_argument("--drop", nargs="*", default=[], help="columns that are no features")
    parser.add_argument("--positive", action="store_true", help="classify whether the target is above zero")
    add_options(parser, epochs=30)
    options = parser.parse_args()
    rows = read(options.file, options.target, options.context, options.drop, options.positive)
    counts = ", ".join(f"{label} {count}" for label, count in zip(rows.labels, np.bincount(rows.contexts), strict=True))
    print(f"\n{options.file.name}: {len(rows.target)} rows in {options.context} ({counts}), {options.seeds} seeds\n")
    results = run_seeds(partial(task, rows=rows, name=NAME), options)
    print(as_table(results, NAME, options.methods, METRICS))


if __name__ == "__main__":
    main()
