"""Draw the picture of the README: models of past cars, judged on later ones, at every year to stop at.

Usage: python examples/cars_picture.py docs/_static/cars.svg (extras ``demo`` and ``plot``)
"""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from vega_datasets import data

import counterpoise as cpo
from counterpoise.reports.methods import COLOURS

LINES = {"erm": ("plain model", "o", 6), "robust": ("robust model", "s", -13)}
"""Their labels, their markers, and how far from its line a label stands."""


def errors(cars: pd.DataFrame, last: int) -> dict[str, pd.Series]:
    """Return the RMSE in every origin of cars made after a year, of models fitted to the cars until then."""
    specs, seconds = cars[["Cylinders", "Displacement", "Horsepower", "Weight_in_lbs"]], cars["Acceleration"]
    year = cars["Year"].str[:4].astype(int)
    past = year <= last
    found = {}
    # The mix of origins was seen once a year.
    for name, options in {"erm": {"radius": 0}, "robust": {"draws": year[past].nunique()}}.items():
        model = cpo.RobustLinearRegression(**options, reference="cross-fit")
        model.fit(specs[past], seconds[past], contexts=cars["Origin"][past])
        squares = (seconds - model.predict(specs))[~past] ** 2
        found[name] = squares.groupby(cars["Origin"]).mean() ** 0.5
    return found


def drawn(years: range = range(1973, 1981)) -> Figure:
    """Return a panel per origin, with a line per model."""
    cars = pd.read_json(data.cars.filepath).dropna(subset=["Horsepower"])
    by_year = {year: errors(cars, year) for year in years}
    shares = cars["Origin"].value_counts(normalize=True).sort_index()
    figure = Figure(figsize=(7.6, 3.0), layout="constrained")
    for k, (axes, (origin, share)) in enumerate(zip(figure.subplots(1, 3, sharey=True), shares.items(), strict=True)):
        lines = {name: np.array([by_year[year][name][origin] for year in years]) for name in LINES}
        axes.fill_between(list(years), lines["robust"], lines["erm"], color=COLOURS["robust"], alpha=0.12, linewidth=0)
        for name, (label, marker, offset) in LINES.items():
            axes.plot(list(years), lines[name], color=COLOURS[name], marker=marker, markersize=3.5, linewidth=1.6)
            if k == 0:
                at = (years[0], lines[name][0])
                axes.annotate(label, at, (0, offset), textcoords="offset points", color=COLOURS[name], fontsize=8.5)
        axes.set_title(f"{origin}\n{share:.0%} of the cars", fontsize=9.5)
        axes.set_xticks([1973, 1976, 1979])
        axes.tick_params(labelsize=8.5)
        axes.spines[["top", "right"]].set_visible(False)
        axes.set_ylim(0, 3.1)
    figure.supylabel("error on later cars\n(RMSE, seconds)", fontsize=9)
    figure.supxlabel("fitted to cars made up to this year", fontsize=9)
    return figure


if __name__ == "__main__":
    # The same bytes at every run, so that a new picture means new numbers.
    with mpl.rc_context({"svg.hashsalt": "counterpoise", "font.family": "DejaVu Sans"}):
        drawn().savefig(Path(sys.argv[1]), metadata={"Date": None})
