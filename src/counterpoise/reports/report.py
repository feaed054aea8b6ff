"""A model as a page: what the worst plausible mix gains, what the average pays, and how that is known."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from counterpoise.contexts import encode, plain, shown
from counterpoise.core.objective import Certificate
from counterpoise.core.robustness import Mixes
from counterpoise.estimators.learners import fit_routed, innermost, step_name
from counterpoise.exceptions import InvalidInputError
from counterpoise.inference.intervals import ENDS, interval_in
from counterpoise.judging.comparison import Comparison, compare
from counterpoise.judging.confidence import ConfidencePath, confidence_path
from counterpoise.judging.measures import Judged, task_of
from counterpoise.judging.verdict import SHUFFLED, change_in_words, worst_served
from counterpoise.reports.at_a_glance import Glance
from counterpoise.reports.calibration import Calibration
from counterpoise.reports.effects import Effects
from counterpoise.reports.methods import COLOURS, MODELS, WORDS
from counterpoise.reports.pages.document import page, save, table, versions
from counterpoise.reports.pages.lines import NAMED, Line, Mark, line_chart, lines_of
from counterpoise.reports.pages.rows import Bar, DotRow, bar_chart, dot_chart
from counterpoise.reports.pages.scales import number
from counterpoise.reports.pages.templates import prose
from counterpoise.reports.pages.words import Html
from counterpoise.reports.residuals import Residuals
from counterpoise.reports.shares import Shares
from counterpoise.sets import RADIUS_TICKS, ContextSet, along_radii
from counterpoise.table import Table, jsonable, plain_rows

Array = NDArray[np.float64]

BEST = "best"
"""To be chosen by held-out rows."""

_LISTED = ("confidence", "radius", "draws", "criterion", "alpha", "reference", "adjust", "quantile", "delta")


@dataclass(frozen=True, eq=False, repr=False)
class Report:
    """What a robust model does in each context, beside its baselines, as one HTML file.

    Parameters
    ----------
    model : estimator
        A robust estimator or a pipeline that ends in one. It is fitted to the data unless it is fitted already.
    X, y : the data
    contexts : labels of shape (n_samples,), or a table of several columns, which are crossed
    mix : mapping, Mix or ContextSet, optional
        What is known about the mix of contexts: the parameter of a model that is not fitted yet.
    title : str
    settings : mapping, optional
        What the model was made from and with, listed at the end.
    notes : sequence of str
        What the reader should know first.
    cv, time, cuts, gap, groups, context_known, log_target, n_jobs, progress
        Of the comparison with the baselines, see :func:`counterpoise.compare`; a model with ``draws="groups"`` is
        fitted with the groups. With times, methods are also judged on later rows, by which one of them is kept.
    risk : str
        What a risk is the mean of, in words.
    levels : int
        Of the confidence path.
    n_rows : int, optional
        How many rows the model was fitted to, where X, y and contexts are a sample of them. Baselines and path are of
        the sample, with a set of the size of the model's.
    keeps : str
        The method whose model the reader will use; ``"best"`` is the one that held-out rows speak for, see
        :attr:`counterpoise.judging.comparison.Comparison.choice`. By default the model is what the report is about.
    plain : estimator, optional
        The plain model, where it is fitted to the same rows already.

    Notes
    -----
    A model that is fitted already is reported on with the rows it was fitted to. How it does on others is what
    :func:`counterpoise.evaluate` says.
    """

    model: Any
    X: Any
    y: Any
    contexts: Any
    _: KW_ONLY
    mix: Mixes | None = None
    title: str = ""
    settings: Mapping[str, Any] | None = None
    notes: tuple[str, ...] = ()
    cv: Any = 5
    groups: Any = None
    n_jobs: int | None = None
    risk: str = ""
    levels: int = 30
    n_rows: int | None = None
    keeps: str = "robust"
    time: Any = None
    cuts: int = 4
    gap: Any = None
    context_known: bool | str | None = None
    log_target: bool = False
    progress: Callable[[float], None] | None = None
    plain: Any = None

    @cached_property
    def fitted(self) -> Any:
        """The model, fitted."""
        if self._is_fitted:
            return self.model
        labels = {"contexts": self.contexts}
        if innermost(self.model).get_params().get("draws") == "groups":
            labels["groups"] = self.groups
        return fit_routed(clone(self._asked), self.X, self.y, **labels)

    @cached_property
    def _is_fitted(self) -> bool:
        """Whether the model is fitted already; if so, it must have been to these rows."""
        own = innermost(self.model)
        if not hasattr(own, "get_params") or "radius" not in own.get_params():
            raise InvalidInputError(
                f"a report is about a robust model, got {self.model!r:.60}. Wrap it: ContextRobust(model)."
            )
        try:
            check_is_fitted(self.model)
        except NotFittedError:
            return False
        if self.mix is not None:
            raise InvalidInputError("the model is fitted already, to a mix of its own. Pass mix= to it before it is.")
        if self.n_rows is None:
            _check_same_rows(own, self.contexts)
        return True

    @cached_property
    def _asked(self) -> Any:
        """The model with the mix that was given, if any."""
        if self.mix is None:
            return self.model
        return clone(self.model).set_params(**{f"{step_name(self.model)}mix": self.mix})

    @cached_property
    def _judged(self) -> Any:
        """What is compared and followed: the model, or where there is but a sample one like it."""
        _ = self._is_fitted
        prefix = step_name(self.model)
        if self.n_rows is None:
            if innermost(self._asked).get_params().get("draws") != "groups":
                return self._asked
            draws = self._own.draws_
            return clone(self._asked).set_params(**{f"{prefix}draws": None if math.isnan(draws) else draws})
        # A sample is a smaller table: its own set would be larger, and its in-sample minima too good to be true.
        like: dict[str, Any] = {"draws": None, "reference": "cross-fit"}
        mix = getattr(self._own, "mix", None)
        if not isinstance(mix, ContextSet) and not math.isnan(self._own.radius_):
            like["radius"] = self._own.radius_
        adjust = innermost(self._asked).get_params().get("adjust")
        if isinstance(adjust, (int, float)):
            # Over the root of the rows, of which a sample has fewer.
            like["adjust"] = float(adjust) * math.sqrt(len(self.y) / self.n_rows)
        return clone(self._asked).set_params(**{f"{prefix}{name}": value for name, value in like.items()})

    @cached_property
    def comparison(self) -> Comparison:
        """The model beside its baselines, on held-out rows."""
        return compare(
            self.X,
            self.y,
            self.contexts,
            estimator=self._judged,
            cv=self.cv,
            time=self.time,
            cuts=self.cuts,
            gap=self.gap,
            groups=self.groups,
            context_known=self.context_known,
            log_target=self.log_target,
            n_jobs=self.n_jobs,
            progress=self.progress,
        )

    @property
    def judged(self) -> Comparison:
        """The comparison that decides: on later rows where there are times, else on rows held out at random."""
        return self.comparison.decisive

    @property
    def headline(self) -> str:
        """What the context that is served worst gains and all rows pay, in natural units."""
        return self.comparison.headline

    @cached_property
    def glance(self) -> Glance:
        """Every context in natural units, method beside method."""
        return Glance.of(self.comparison, self.shares, self.kept, self.fitted)

    @cached_property
    def calibration(self) -> Calibration | None:
        """Predicted probabilities beside what came, by context; None where there are none."""
        rows = self._predictions
        certain = rows.predicted.classes is None or rows.predicted.certain
        return None if certain else Calibration.of(rows, self.judged.held_out, self.judged.validation)

    @cached_property
    def residuals(self) -> Residuals | None:
        """What came minus what was predicted, by context; None for classes."""
        rows = self._predictions
        if rows.predicted.classes is not None or rows.predicted.are_losses:
            return None
        quantile = rows.predicted.quantile if task_of(self.fitted) == "quantile" else None
        return Residuals.of(rows, self.judged.held_out, self.judged.validation, quantile)

    @property
    def _predictions(self) -> Judged:
        """The rows judged, with what the robust model predicts of them."""
        return Judged.of(self.judged.y, self.judged.outcomes["robust"].predicted)

    @cached_property
    def effects(self) -> Effects | None:
        """What coefficients do, and which contexts pull at them; None where the model is not linear."""
        asked = {"badly_served": self._worst_served, "groups": self.groups, "erm": self.plain}
        return Effects.of(self.fitted, self.X, self.y, self.contexts, log_target=self.log_target, **asked)

    @property
    def _worst_served(self) -> Any:
        """The context with the largest excess risk under the robust model, of those large enough to name."""
        rows = self.judged.by_context.where(method="robust")
        names = {"context": "context", "units": "units", "excess": "excess", "low": "excess_low"}
        return worst_served(Table({name: rows[own] for name, own in names.items()}))[0]

    @property
    def why(self) -> str:
        """Why the context that the robust model serves worst is: its level, and the effects it would have otherwise."""
        worst = self._worst_served
        level = "" if self.residuals is None else self.residuals.level(worst)
        level = level if self.calibration is None else self.calibration.level(worst)
        effects = "" if self.effects is None else self.effects.why
        own = self.judged.by_context.where(method="robust")
        excess = dict(zip(map(plain, own["context"].tolist()), own["excess"].tolist(), strict=True))
        if (not level and not effects) or not excess[plain(worst)] > 0.0:
            return ""
        n = next(row["n"] for row in self.judged.brackets.rows() if row["context"] == plain(worst))
        rows = f"{n:,} {'row' if n == 1 else 'rows'}"
        words = f"With the robust model {shown(worst)} ({rows}) loses most by sharing one model."
        return " ".join(one for one in (words, level, effects) if one)

    @property
    def kept(self) -> str:
        """The method whose model is kept."""
        return self.comparison.chosen if self.keeps == BEST else self.keeps

    @property
    def advice(self) -> str:
        """Which model is kept, or would better be, and why."""
        kept, chosen = MODELS[self.kept], MODELS[self.comparison.chosen]
        candidates = self.judged.choice.candidates
        if self.kept != self.comparison.chosen and not np.isnan(candidates["worst_case"]).any():
            *some, last = candidates["candidate"].tolist()
            of = f", of {', '.join(some)} and {last}"
            return f"{kept[:1].upper()}{kept[1:]} is kept, as asked; {self.judged.validation} speak for {chosen}{of}."
        asked = "" if self.keeps == BEST else ", as asked"
        return f"{kept.capitalize()} is kept{asked}: {self.judged.why_kept(MODELS)}."

    @property
    def _headroom(self) -> dict[str, Any]:
        found = self.judged.headroom
        numbers = {name: getattr(found, name) for name in ("p_value", "estimate", "lower", "upper", "negligible")}
        return {"verdict": found.verdict, **{name: jsonable(value) for name, value in numbers.items()}}

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
        held_out = {name: self.judged.by_context.where(method=name) for name in ("robust", "erm")}
        ours, brackets = held_out["robust"], self.judged.brackets
        order = np.argsort(-ours["excess"], kind="stable")
        own = self._own
        at = self._places(ours["context"])
        shares = np.asarray(own.context_counts_, dtype=np.float64) / np.sum(own.context_counts_)
        columns = {
            "context": ours["context"],
            "n": ours["n"],
            "share": shares[at],
            "weight": own.context_weights_[at],
            **{f"risk{end}": ours[f"risk{end}"] for end in ENDS},
            "least": brackets["held_out"],
            "least_in_sample": np.where(brackets["differ"], brackets["in_sample"], np.nan),
            **{f"excess{end}": ours[f"excess{end}"] for end in ENDS},
            "erm_excess": held_out["erm"]["excess"],
            "too_small": brackets["too_small"],
        }
        return Table({name: column[order] for name, column in columns.items()})

    def _places(self, labels: NDArray[Any]) -> NDArray[np.intp]:
        """Return where contexts are among those of the model."""
        place = {plain(label): k for k, label in enumerate(self._own.contexts_)}
        strange = [label for label in labels if plain(label) not in place]
        if strange:
            raise InvalidInputError(
                f"the model was not fitted to context {shown(strange[0]):.60}. Fit it to these data."
            )
        return np.array([place[plain(label)] for label in labels], dtype=np.intp)

    @cached_property
    def shares(self) -> Shares:
        """Every share in the data, in the set and in the least favourable mix."""
        return Shares.of_model(self._own)

    @cached_property
    def verdict(self) -> str:
        """What the worst plausible mix gains and what the average pays, in one sentence."""
        summary = self.judged.summary
        ours, plain_ = (next(row for row in summary.rows() if row["method"] == name) for name in ("robust", "erm"))
        _, low, high = interval_in(ours, "mix_excess_change")
        change = "" if math.isnan(low) else f" (a change between {_signed(low)} and {_signed(high)})"
        pays, fewer, more = interval_in(ours, "nominal_risk_change")
        noise = "" if fewer > 0 or more < 0 or math.isnan(fewer) else " (within the noise)"
        return (
            f"The robust model {change_in_words(low, high)} the excess risk in the worst plausible mix of contexts: "
            f"from {number(plain_['mix_excess'])} to {number(ours['mix_excess'])}{change}; the average risk changes by "
            f"{_signed(pays)}, from {number(plain_['nominal_risk'], 4)}{noise}."
        )

    @cached_property
    def html(self) -> str:
        """The page."""
        return page(
            "reports/report.html",
            self.title or "A model for an uncertain mix of contexts",
            self._facts,
            subtitle=self._subtitle,
            report=self,
            glance=self.glance,
            scored=self._scored,
            proof=self._proof,
            shares=self.shares,
            contexts_chart=self._contexts_chart(),
            contexts_table=self._contexts_table(),
            baselines_chart=self._baselines_chart(),
            baselines_table=self._baselines_table(),
            shuffled_table=self._baselines_table(self.comparison) if self.comparison.forward is not None else "",
            path_chart=self._path_chart(),
            weights_chart=self._weights_chart(),
        )

    @property
    def _subtitle(self) -> str:
        """What was judged, and how."""
        own, n = self._own, len(self.y) if self.n_rows is None else self.n_rows
        folds = f", {self.cv} folds" if isinstance(self.cv, int) and self.judged.forward is None else ""
        of = "" if self.judged.validation.endswith("rows") else "rows of "
        judged = f"{len(self.judged.rows):,} {of}{self.judged.validation}"
        if self.comparison.forward is None and self.judged.validation == SHUFFLED:
            judged = f"{judged} of a cross-validation{folds}"
        else:
            judged = f"{judged} after {self.cuts} cuts in time"
        width = getattr(self.fitted, "n_features_in_", None)
        features = "" if width is None else f", {width:,} {'feature' if width == 1 else 'features'}"
        model = type(own).__name__
        return f"{n:,} rows in {len(own.contexts_):,} contexts{features}, {model}. Judged by {judged}."

    def save(self, path: str | Path, force: bool = False) -> Path:
        """Write the page; a file that exists is replaced only with ``force``."""
        return save(path, lambda: self.html, force)

    def _repr_html_(self) -> str:
        return f'<p class="verdict">{prose(self.headline)}</p>{self.glance.html}<p>{prose(self.advice)}</p>'

    @cached_property
    def metrics(self) -> dict[str, Any]:
        """The numbers of the report, as what JSON can hold."""
        sample = {} if self.n_rows is None else {"sample": {"rows": len(self.y), "of": self.n_rows}}
        proof = self._proof
        return {
            "headline": self.headline,
            "verdict": self.verdict,
            "kept": self.kept,
            "candidates": plain_rows(self.judged.choice.candidates),
            "headroom": self._headroom,
            **sample,
            "contexts": plain_rows(self.by_context),
            "methods": plain_rows(self.judged.summary),
            **self._natural,
            "radius_bits": jsonable(self._own.radius_) if self.shares.unit == "bits" else None,
            "mixes": self.shares.json,
            "certificate": proof
            and {"lower": jsonable(proof.lower), "upper": jsonable(proof.upper), "scope": proof.scope},
            "settings": {name: str(value) for name, value in self._facts.items()},
        }

    @property
    def _natural(self) -> dict[str, Any]:
        """What JSON holds in natural units, and about later rows."""
        effects, drift = self.effects, self.comparison.drift
        found: dict[str, Any] = {
            "measure": self.judged.measure.name,
            "validation": self.judged.validation,
            "measures": plain_rows(self.judged.measures),
            "changes": plain_rows(self.judged.changes),
            "why": self.why,
        }
        if self.calibration is not None:
            found["calibration"] = plain_rows(self.calibration.summary)
        if self.residuals is not None:
            found["residuals"] = plain_rows(self.residuals.summary)
        if effects is not None:
            found["effects"] = plain_rows(effects.rows)
        if self.comparison.forward is not None:
            found["agreement"] = self.comparison.agreement
            found["shuffled"] = {
                "methods": plain_rows(self.comparison.summary),
                "measures": plain_rows(self.comparison.measures),
                "changes": plain_rows(self.comparison.changes),
            }
        if drift is not None:
            found["drift"] = plain_rows(drift.table)
        if self.judged.known_contexts is not None:
            found["known_contexts"] = plain_rows(self.judged.known_contexts)
        return found

    def _contexts_chart(self) -> Html:
        rows = self.by_context
        return bar_chart(
            [
                Bar(row["context"], row["excess"], row["excess_low"], row["excess_high"], COLOURS["robust"])
                for row in rows.rows()
            ],
            title="Excess risk of the robust model in each context",
            x_label=f"excess risk{self._of}, held-out rows",
            alt=f"{rows.n_rows} bars, from {number(rows['excess'][0])} down to {number(rows['excess'][-1])}.",
        )

    def _contexts_table(self) -> Html:
        rows = self.by_context
        cells = {
            "context": rows["context"],
            "rows" if self.n_rows is None else "sampled rows": rows["n"],
            "share": rows["share"],
            "weight": rows["weight"],
            "excess": _with_interval(rows, "excess"),
            "of erm": rows["erm_excess"],
            "risk": _with_interval(rows, "risk"),
            "least risk": _bracket(rows),
        }
        return table(
            Table(cells),
            left=["context"],
            formats={"context": shown, "share": "{:.1%}".format, "weight": "{:.1%}".format},
            caption=f"Risks{self._of} {self.judged.where}",
        )

    def _baselines_chart(self) -> Html:
        summary = self.judged.summary
        columns = {
            "mix_excess": "worst plausible mix",
            "worst_excess": "worst context",
            "nominal_risk_change": "average change",
        }
        return dot_chart(
            [
                DotRow(words, {WORDS[row["method"]]: row[name] for row in summary.rows()})
                for name, words in columns.items()
            ],
            colours={WORDS[name]: COLOURS[name] for name in summary["method"].tolist()},
            title="What each method costs in the worst plausible mix, in the worst context, and on average",
            x_label=f"risk{self._of}, held-out rows",
            alt="; ".join(
                f"{WORDS[row['method']]}: {number(row['mix_excess'])}, {number(row['worst_excess'])} and "
                f"{number(row['nominal_risk_change'])}"
                for row in summary.rows()
            ),
        )

    def _baselines_table(self, comparison: Comparison | None = None) -> Html:
        comparison = comparison or self.judged
        summary = comparison.summary
        cells = {
            "method": summary["method"],
            "worst plausible mix": _with_interval(summary, "mix_excess"),
            "its change": _with_interval(summary, "mix_excess_change"),
            "worst context": _with_interval(summary, "worst_excess"),
            "in": summary["worst_context"],
            "average risk": summary["nominal_risk"],
            "change of average": _with_interval(summary, "nominal_risk_change"),
        }
        return table(
            Table(cells),
            left=["method", "in"],
            formats={"method": WORDS.__getitem__, "in": shown},
            caption=f"Excess risk{self._of} {comparison.where}, with {comparison.level} intervals; changes are "
            "against erm",
        )

    def _path_chart(self) -> Html:
        path = self.path
        place = along_radii(path["radius"])
        counts = np.asarray(self._own.context_counts_, dtype=np.float64)[self._places(path.contexts)]
        largest, average = path["worst_excess"], path.excess_risks @ (counts / counts.sum())
        worst = np.einsum("lc,lc->l", path.context_weights, path.excess_risks)
        return line_chart(
            [
                Line("largest", place, largest, COLOURS["minimax-risk"]),
                Line("average", place, average, COLOURS["erm"]),
                Line("worst mix", place, worst, COLOURS["robust"], dashed=True),
            ],
            title="Excess risk as the set of plausible mixes grows",
            x_label=f"size of the set ({self.shares.unit})",
            y_label=f"excess risk{self._of}, in sample",
            marks=[self._chosen],
            x_ticks=RADIUS_TICKS,
            alt=f"The largest excess goes from {number(largest[0])} to {number(largest[-1])}, the average from "
            f"{number(average[0])} to {number(average[-1])}.",
        )

    def _weights_chart(self) -> Html:
        path = self.path
        prominent = np.argsort(-path.context_weights.max(axis=0), kind="stable")
        return line_chart(
            lines_of(path.contexts.tolist(), along_radii(path["radius"]), path.context_weights, prominent[:NAMED]),
            title="The least favourable mix as the set grows",
            x_label=f"size of the set ({self.shares.unit})",
            y_label="weight of each context",
            marks=[self._chosen],
            x_ticks=RADIUS_TICKS,
            alt="One line per context, from its share in the data to its weight when any mix is possible.",
        )

    @property
    def _chosen(self) -> Mark:
        own = self._own
        words = (
            f"{100 * own.confidence:g}%"
            if isinstance(own.radius, str)
            else f"{own.radius_:.3g}{' bits' if self.shares.unit == 'bits' else ''}"
        )
        return Mark(float(along_radii(own.radius_)), f"chosen: {words}", COLOURS["robust"])

    @property
    def _of(self) -> str:
        return f" ({self.risk})" if self.risk else ""

    @cached_property
    def _own(self) -> Any:
        """The robust estimator at the end of the fitted model."""
        return innermost(self.fitted)

    @property
    def _proof(self) -> Certificate | None:
        return getattr(self._own, "certificate_", None)

    @property
    def _scored(self) -> str:
        """What the fit takes the worst case of."""
        adjusted = np.any(getattr(self._own, "adjustments_", 0.0) != 0.0)
        return f"{'adjusted ' if adjusted else ''}{self._own.criterion}"

    @property
    def _facts(self) -> dict[str, Any]:
        given = {name: value for name, value in self._own.get_params().items() if name in _LISTED and value is not None}
        return {
            **(self.settings or {}),
            "model": type(self._own).__name__,
            "contexts": len(self._own.contexts_),
            **{name: value if isinstance(value, (str, float, int)) else "given" for name, value in given.items()},
            **({} if self._own.get_params().get("mix") is None else {"mixes": self.shares.where}),
            **versions("numpy", "scipy", "scikit-learn", "pyarrow"),
        }


def _check_same_rows(own: Any, contexts: Any) -> None:
    """Refuse rows that are not those a model was fitted to, as far as their contexts tell."""
    counts = np.asarray(own.context_counts_)
    fitted = {plain(label): count for label, count in zip(own.contexts_.tolist(), counts.tolist(), strict=True)}
    encoded = encode(contexts, may_overlap=True)
    given = {plain(label): count for label, count in zip(encoded.labels.tolist(), encoded.counts.tolist(), strict=True)}
    # The sum of weights does not tell how many rows there were.
    weighted = counts.dtype.kind == "f"
    differs = [
        label
        for label in (*given, *fitted)
        if label not in given or label not in fitted or (not weighted and given[label] != fitted[label])
    ]
    if not differs:
        return
    first = differs[0]
    raise InvalidInputError(
        f"the model is fitted already, and not to these rows: context {shown(first):.60} has {given.get(first, 0):,} "
        f"rows here and {fitted.get(first, 0):,} in the fit. For how it does on other rows, use "
        "counterpoise.evaluate(model, X, y, contexts); for a report about these rows, pass a model that is not fitted."
    )


def _signed(value: float) -> str:
    return f"{'+' if value > 0 else ''}{number(value)}"


def _bracket(rows: Table) -> NDArray[Any]:
    """Return the least risk, from its lower to its higher end where these differ by more than noise."""
    cells = [
        number(high, 4) if math.isnan(low) else f"{number(low)} to {number(high)}"
        for low, high in zip(rows["least_in_sample"], rows["least"], strict=True)
    ]
    return np.array(cells, dtype=object)


def _with_interval(rows: Table, name: str) -> NDArray[Any]:
    """Return values with their intervals below them."""
    cells = np.empty(rows.n_rows, dtype=object)
    for k, (value, low, high) in enumerate(interval_in(row, name) for row in rows.rows()):
        interval = "" if math.isnan(low) else f"<br> [{number(low)}, {number(high)}]"
        cells[k] = Html(f"{number(value)}{interval}")
    return cells
