"""A model as a page: what the worst plausible mix gains, what the average pays, and how that is known."""

from __future__ import annotations

import math
import platform
from collections.abc import Mapping
from functools import cached_property, partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from counterpoise.comparison import Comparison, compare
from counterpoise.confidence import ConfidencePath, confidence_path
from counterpoise.contexts import plain, shown
from counterpoise.exceptions import InvalidInputError
from counterpoise.files import check_output, whole
from counterpoise.judging.verdict import change_in_words
from counterpoise.learners import fit_routed, innermost, step_name
from counterpoise.methods import COLOURS, WORDS
from counterpoise.pages.charts import Bar, DotRow, Line, Mark, bar_chart, dot_chart, line_chart, number
from counterpoise.pages.document import Html, document, facts, figure, notice, section, table, verdict
from counterpoise.sets import RADIUS_TICKS, along_radii
from counterpoise.tables import Table, jsonable, plain_rows

Array = NDArray[np.float64]

_PACKAGES = ("counterpoise", "numpy", "scipy", "scikit-learn", "pyarrow")
_NAMED = 8


class Report:
    """What a robust model does in each context, beside its baselines, as one HTML file.

    Parameters
    ----------
    model : estimator
        A robust estimator or a pipeline that ends in one. It is fitted to the data unless it is fitted already.
    X, y : the data
    contexts : labels of shape (n_samples,), or a table of several columns, which are crossed
    title : str
    settings : mapping, optional
        What the model was made from and with, listed at the end.
    notes : sequence of str
        What the reader should know first.
    cv, groups, n_jobs
        Of the comparison with the baselines, see :func:`counterpoise.compare`.
    risk : str
        What a risk is the mean of, in words.
    levels : int
        Of the confidence path.
    n_rows : int, optional
        How many rows the model was fitted to, where X, y and contexts are a sample of them. Baselines and path are of
        the sample, with a set of the size of the model's.
    """

    def __init__(
        self,
        model: Any,
        X: Any,
        y: Any,
        contexts: Any,
        *,
        title: str = "",
        settings: Mapping[str, Any] | None = None,
        notes: tuple[str, ...] = (),
        cv: Any = 5,
        groups: Any = None,
        n_jobs: int | None = None,
        risk: str = "",
        levels: int = 30,
        n_rows: int | None = None,
    ) -> None:
        self.model = model
        self.X, self.y, self.contexts = X, y, contexts
        self.title = title
        self.settings = dict(settings or {})
        self.notes = notes
        self.cv, self.groups, self.n_jobs = cv, groups, n_jobs
        self.risk = risk
        self.levels = levels
        self.n_rows = n_rows

    @cached_property
    def fitted(self) -> Any:
        """The model, fitted."""
        own = innermost(self.model)
        if not hasattr(own, "get_params") or "radius" not in own.get_params():
            raise InvalidInputError(
                f"a report is about a robust model, got {self.model!r:.60}. Wrap it: ContextRobust(model)."
            )
        try:
            check_is_fitted(self.model)
        except NotFittedError:
            return fit_routed(clone(self.model), self.X, self.y, contexts=self.contexts)
        return self.model

    @cached_property
    def _judged(self) -> Any:
        """What is compared and followed: the model, or where there is but a sample one like it."""
        if self.n_rows is None:
            return self.model
        # A sample is a smaller table: its own set would be larger, and its in-sample minima too good to be true.
        like: dict[str, Any] = {"radius": innermost(self.fitted).radius_, "draws": None, "reference": "cross-fit"}
        adjust = innermost(self.model).get_params().get("adjust")
        if isinstance(adjust, (int, float)):
            # Over the root of the rows, of which a sample has fewer.
            like["adjust"] = float(adjust) * math.sqrt(len(self.y) / self.n_rows)
        prefix = step_name(self.model)
        return clone(self.model).set_params(**{f"{prefix}{name}": value for name, value in like.items()})

    @cached_property
    def comparison(self) -> Comparison:
        """The model beside its baselines, on held-out rows."""
        return compare(
            self.X,
            self.y,
            self.contexts,
            estimator=self._judged,
            cv=self.cv,
            groups=self.groups,
            n_jobs=self.n_jobs,
        )

    @cached_property
    def path(self) -> ConfidencePath:
        """All levels from empirical risk minimisation to minimax regret."""
        return confidence_path(self._judged, self.X, self.y, contexts=self.contexts, levels=self.levels)

    @cached_property
    def by_context(self) -> Table:
        """A row per context, those with the largest held-out excess risk first.

        Share in the data and weight in the least favourable mix are those of the fit; ``risk``, ``least`` and
        ``excess`` are on held-out rows, with intervals that hold for all contexts together, and ``erm_excess`` is that
        of empirical risk minimisation. ``least_in_sample`` is the other end of what is known of the least risk, and
        ``too_small`` tells where the two are too far apart to judge the context.
        """
        held_out = {name: self.comparison.by_context.where(method=name) for name in ("robust", "erm")}
        ours, brackets = held_out["robust"], self.comparison.brackets
        order = np.argsort(-ours["excess"], kind="stable")
        own = innermost(self.fitted)
        at = self._places(ours["context"])
        shares = np.asarray(own.context_counts_, dtype=np.float64) / np.sum(own.context_counts_)
        columns = {
            "context": ours["context"],
            "n": ours["n"],
            "share": shares[at],
            "weight": own.context_weights_[at],
            "risk": ours["risk"],
            "risk_low": ours["risk_low"],
            "risk_high": ours["risk_high"],
            "least": brackets["held_out"],
            "least_in_sample": np.where(brackets["differ"], brackets["in_sample"], np.nan),
            "excess": ours["excess"],
            "excess_low": ours["excess_low"],
            "excess_high": ours["excess_high"],
            "erm_excess": held_out["erm"]["excess"],
            "too_small": brackets["too_small"],
        }
        return Table({name: column[order] for name, column in columns.items()})

    def _places(self, labels: NDArray[Any]) -> NDArray[np.intp]:
        """Return where contexts are among those of the model."""
        place = {plain(label): k for k, label in enumerate(innermost(self.fitted).contexts_)}
        strange = [label for label in labels if plain(label) not in place]
        if strange:
            raise InvalidInputError(
                f"the model was not fitted to context {shown(strange[0]):.60}. Fit it to these data."
            )
        return np.array([place[plain(label)] for label in labels], dtype=np.intp)

    @property
    def _sampled(self) -> str:
        """What the held-out rows are a sample of, if they are."""
        return "" if self.n_rows is None else f" of a random sample of {len(self.y):,} of {self.n_rows:,} rows"

    @cached_property
    def verdict(self) -> str:
        """What the worst plausible mix gains and what the average pays, in one sentence."""
        summary = self.comparison.summary
        ours, plain_ = (next(row for row in summary.rows() if row["method"] == name) for name in ("robust", "erm"))
        low, high = (ours[f"mix_excess_change{end}"] for end in ("_low", "_high"))
        pays, fewer, more = (ours[f"nominal_risk_change{end}"] for end in ("", "_low", "_high"))
        noise = "" if fewer > 0 or more < 0 or math.isnan(fewer) else " (within the noise)"
        return (
            f"The robust model {change_in_words(low, high)} the excess risk in the worst plausible mix of contexts: "
            f"from {number(plain_['mix_excess'])} to {number(ours['mix_excess'])}"
            f"{_interval_in_words(ours, 'mix_excess_change')}; the average risk changes by {_signed(pays)}, from "
            f"{number(plain_['nominal_risk'], 4)}{noise}."
        )

    @cached_property
    def html(self) -> str:
        """The page."""
        own = innermost(self.fitted)
        blocks: list[str] = [
            verdict(self.verdict),
            self._rest_of_verdict(),
            *(notice(f"{note[:1].upper()}{note[1:]}") for note in self.notes),
        ]
        blocks += [
            section("Context by context", self._contexts_chart(), self._contexts_table()),
            section("Beside the baselines", self._baselines_chart(), self._baselines_table()),
            section("As confidence grows", self._path_chart(), self._weights_chart()),
            section("Certificate", *self._certificate(own)),
            section("How to read this", *self._explained()),
            section("Settings", facts(self._facts(own))),
        ]
        return document(self.title or "A model for an uncertain mix of contexts", *blocks)

    def save(self, path: str | Path, force: bool = False) -> Path:
        """Write the page; a file that exists is replaced only with ``force``."""
        path = Path(path)
        check_output(path, force)
        html = self.html
        whole(path, partial(Path.write_text, data=html, encoding="utf-8"))
        return path

    def _repr_html_(self) -> str:
        return f"{verdict(self.verdict)}{self._contexts_table()}{self._baselines_table()}"

    @cached_property
    def metrics(self) -> dict[str, Any]:
        """The numbers of the report, as what JSON can hold."""
        own = innermost(self.fitted)
        sample = {} if self.n_rows is None else {"sample": {"rows": len(self.y), "of": self.n_rows}}
        return {
            "verdict": self.verdict,
            **sample,
            "contexts": plain_rows(self.by_context),
            "methods": plain_rows(self.comparison.summary),
            "radius_bits": jsonable(own.radius_),
            "certificate": None
            if (proof := getattr(own, "certificate_", None)) is None
            else {"lower": jsonable(proof.lower), "upper": jsonable(proof.upper), "scope": proof.scope},
            "settings": {name: str(value) for name, value in self._facts(own).items()},
        }

    def _rest_of_verdict(self) -> str:
        return f"On held-out rows of a cross-validation{self._sampled}. {self.comparison.remarks}"

    def _contexts_chart(self) -> Html:
        rows = self.by_context
        bars = [
            Bar(row["context"], row["excess"], row["excess_low"], row["excess_high"], COLOURS["robust"])
            for row in rows.rows()
        ]
        chart = bar_chart(
            bars,
            title="Excess risk of the robust model in each context",
            x_label=f"excess risk{self._of}, held-out rows",
            alt=f"{rows.n_rows} bars, from {number(rows['excess'][0])} down to {number(rows['excess'][-1])}.",
        )
        level = f"{100 * self.comparison.confidence:g}%"
        return figure(
            chart,
            "Above the better of two competitors there, the context's own model and the plain one for all. The "
            f"{level} intervals hold for all contexts together.",
        )

    def _contexts_table(self) -> Html:
        rows = self.by_context
        cells = {
            "context": rows["context"],
            "rows" if self.n_rows is None else "sampled rows": rows["n"],
            "share": _percent(rows["share"]),
            "weight": _percent(rows["weight"]),
            "excess": _with_interval(rows, "excess"),
            "of ERM": rows["erm_excess"],
            "risk": _with_interval(rows, "risk"),
            "least risk": _bracket(rows),
        }
        left = ["context"]
        return table(Table(cells), left=left, formats={"context": shown}, caption=f"Risks{self._of} on held-out rows")

    def _baselines_chart(self) -> Html:
        summary = self.comparison.summary
        rows = [
            DotRow(words, {WORDS[row["method"]]: row[name] for row in summary.rows()})
            for name, words in (
                ("mix_excess", "worst plausible mix"),
                ("worst_excess", "worst context"),
                ("nominal_risk_change", "average change"),
            )
        ]
        chart = dot_chart(
            rows,
            colours={WORDS[name]: COLOURS[name] for name in summary["method"].tolist()},
            title="What each method costs in the worst plausible mix, in the worst context, and on average",
            x_label=f"risk{self._of}, held-out rows",
            alt="; ".join(
                f"{WORDS[row['method']]}: {number(row['mix_excess'])}, {number(row['worst_excess'])} and "
                f"{number(row['nominal_risk_change'])}"
                for row in summary.rows()
            ),
        )
        return figure(
            chart,
            "Further to the left is better. The first two are excess risk, the last is a change against ERM.",
        )

    def _baselines_table(self) -> Html:
        summary = self.comparison.summary
        cells = {
            "method": np.array([WORDS[name] for name in summary["method"].tolist()]),
            "worst plausible mix": _with_interval(summary, "mix_excess"),
            "its change": _with_interval(summary, "mix_excess_change"),
            "worst context": _with_interval(summary, "worst_excess"),
            "in": summary["worst_context"],
            "average risk": summary["nominal_risk"],
            "change of average": _with_interval(summary, "nominal_risk_change"),
        }
        level = f"{100 * self.comparison.confidence:g}% intervals"
        return table(
            Table(cells),
            left=["method", "in"],
            formats={"in": shown},
            caption=f"Excess risk{self._of} on held-out rows, with {level}; changes are against ERM",
        )

    def _path_chart(self) -> Html:
        path = self.path
        place = along_radii(path["radius"]).tolist()
        counts = np.asarray(innermost(self.fitted).context_counts_, dtype=np.float64)
        shares = counts[self._places(path.contexts)]
        average = path.excess_risks @ (shares / shares.sum())
        worst = np.einsum("lc,lc->l", path.context_weights, path.excess_risks)
        chart = line_chart(
            [
                Line("largest", place, path["worst_excess"].tolist(), COLOURS["minimax-risk"]),
                Line("average", place, average.tolist(), COLOURS["erm"]),
                Line("worst mix", place, worst.tolist(), COLOURS["robust"], dashed=True),
            ],
            title="Excess risk as the set of plausible mixes grows",
            x_label="size of the set (bits)",
            y_label=f"excess risk{self._of}, in sample",
            marks=[self._chosen],
            x_ticks=RADIUS_TICKS,
            alt=f"The largest excess goes from {number(path['worst_excess'][0])} to "
            f"{number(path['worst_excess'][-1])}, the average from {number(average[0])} to {number(average[-1])}.",
        )
        return figure(chart, "Left: the mix of the data is taken for certain. Right: any mix is possible.")

    def _weights_chart(self) -> Html:
        path = self.path
        place = along_radii(path["radius"]).tolist()
        prominent = set(np.argsort(-path.context_weights.max(axis=0), kind="stable")[:_NAMED].tolist())
        many = len(path.contexts) > _NAMED + 2
        lines = [
            Line(label, place, path.context_weights[:, c].tolist(), faint=many and c not in prominent)
            for c, label in enumerate(path.contexts.tolist())
        ]
        chart = line_chart(
            lines,
            title="The least favourable mix as the set grows",
            x_label="size of the set (bits)",
            y_label="weight of each context",
            marks=[self._chosen],
            x_ticks=RADIUS_TICKS,
            alt="One line per context, from its share in the data to its weight when any mix is possible.",
        )
        scored = {"excess": "excess risk"}.get(criterion := self._scored(innermost(self.fitted)), criterion)
        return figure(chart, f"The model is optimal for this mix, and for no other is its {scored} larger.")

    @property
    def _chosen(self) -> Mark:
        own = innermost(self.fitted)
        words = f"{100 * own.confidence:g}%" if isinstance(own.radius, str) else f"{own.radius_:.3g} bits"
        return Mark(float(along_radii(own.radius_)), f"chosen: {words}", COLOURS["robust"])

    @property
    def _of(self) -> str:
        return f" ({self.risk})" if self.risk else ""

    def _certificate(self, own: Any) -> list[str]:
        proof = getattr(own, "certificate_", None)
        if proof is None:
            return ["Nothing is proven about a model of this kind; it is judged by the rows held out."]
        scope = "" if proof.scope == "global" else " This is an estimate around the solution, not a theorem."
        return [
            f"The worst-case {self._scored(own)} of these coefficients over the set is {number(proof.upper, 6)}; no "
            f"coefficients have less than {number(proof.lower, 6)}. The gap is {number(proof.gap, 2)}.{scope}",
            f"The set holds every mix within {number(own.radius_, 4)} bits of the shares in the data. The certificate "
            "is about optimisation; the size of the set is about sampling.",
        ]

    def _scored(self, own: Any) -> str:
        """What the fit takes the worst case of."""
        adjusted = np.any(getattr(own, "adjustments_", 0.0) != 0.0)
        return f"{'adjusted ' if adjusted else ''}{own.criterion}"

    def _explained(self) -> list[str]:
        radius = self.comparison.radius
        size = "" if math.isinf(radius) else f" within {number(radius)} bits of the shares in the data"
        return [
            f"Risk is the mean loss{self._of}. Excess risk is the risk above that of the better of two competitors on "
            "held-out rows, a model trained on the context alone and the plain one trained on all: what a context "
            "loses because one model serves all. Contexts that are hard for every model do not count against it.",
            "The worst plausible mix is the one with the largest excess risk among those the model was made for: every "
            f"mix{size}. The worst context is its limit when any mix is possible. Both are corrected for being the "
            "largest of several noisy numbers, which would otherwise be too large, and a change is claimed only where "
            "its interval excludes zero.",
            "The least possible risk of a context lies between that of its own model on the rows it was fitted to, "
            "which is too low, and the lowest on held-out rows, which is too high. Where the two are further apart "
            "than noise makes them, both are shown.",
            "The share is how often a context was seen. The weight is its part in the least favourable mix among those "
            "that the data leave plausible; the robust model is the one that does best there.",
            "Average is empirical risk minimisation (ERM), equal weights are inverse-frequency weights, worst case is "
            "minimax risk over all mixes, least regret is minimax excess risk over all mixes.",
            "Bars and tables judge models on rows they were not fitted to. The curves show the fits, in sample.",
            *self._explained_sample(),
        ]

    def _explained_sample(self) -> list[str]:
        if self.n_rows is None:
            return []
        return [
            f"The model was fitted to all {self.n_rows:,} rows; shares, weights and the certificate are its own. Bars, "
            f"baselines and curves are made with {len(self.y):,} of the rows, drawn at random, and with a set of the "
            "same size in bits: models of all rows would be a little better, and differ less from each other by chance."
        ]

    def _facts(self, own: Any) -> dict[str, Any]:
        made = {name: found for name in _PACKAGES if (found := _version(name))}
        parameters = {
            name: value
            for name, value in own.get_params().items()
            if name
            in ("confidence", "radius", "draws", "criterion", "alpha", "reference", "adjust", "quantile", "delta")
            and value is not None
        }
        written = {
            name: value if isinstance(value, (str, float, int)) else "given" for name, value in parameters.items()
        }
        model = {"model": type(own).__name__, "contexts": len(own.contexts_)}
        return {**self.settings, **model, **written, "Python": platform.python_version(), **made}


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


def _signed(value: float) -> str:
    return f"{'+' if value > 0 else ''}{number(value)}"


def _interval_in_words(row: dict[str, Any], name: str) -> str:
    low, high = row[f"{name}_low"], row[f"{name}_high"]
    return "" if math.isnan(low) else f" (a change between {_signed(low)} and {_signed(high)})"


def _bracket(rows: Table) -> NDArray[Any]:
    """Return the least risk, from its lower to its higher end where these differ by more than noise."""
    cells = [
        number(high, 4) if math.isnan(low) else f"{number(low)} to {number(high)}"
        for low, high in zip(rows["least_in_sample"], rows["least"], strict=True)
    ]
    return np.array(cells, dtype=object)


def _percent(values: Array) -> NDArray[Any]:
    return np.array([f"{value:.1%}" for value in values.tolist()], dtype=object)


def _with_interval(rows: Table, name: str) -> NDArray[Any]:
    """Return values with their intervals below them."""
    cells = np.empty(rows.n_rows, dtype=object)
    for k, (value, low, high) in enumerate(zip(rows[name], rows[f"{name}_low"], rows[f"{name}_high"], strict=True)):
        interval = "" if math.isnan(low) else f"<br> [{number(low)}, {number(high)}]"
        cells[k] = Html(f"{number(value)}{interval}")
    return cells
