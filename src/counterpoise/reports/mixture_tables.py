"""Tables of a run of a mixture controller: shares, losses, and how the model does under other mixes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from counterpoise.contexts import objects
from counterpoise.reports.mixture_run import MixtureRun
from counterpoise.reports.mixture_words import NOTHING, share_text
from counterpoise.reports.pages.document import table
from counterpoise.reports.pages.scales import fixed, number
from counterpoise.reports.pages.words import Html
from counterpoise.table import Table

Array = NDArray[np.float64]

EXPONENTS = (0.7, 0.3)
"""Powers of tokens by which multilingual models are often sampled: 1 is proportional, 0 uniform."""


def share_table(run: MixtureRun) -> Html:
    """Return every source's share in the mixes that one might train on."""
    order, budget = run.order, run.controller.budget
    cells: dict[str, NDArray[Any]] = {
        "source": objects([run.names[k] for k in order]),
        "tokens": run.controller.tokens[order],
    }
    if len(order) > 1:
        cells |= {name: mix[order] for name, mix in _choices(run).items()}
        cells["allowed"] = objects([_range(*run.allowed[k]) for k in order])
    if budget is not None:
        cells["epochs"] = (run.mean * budget / run.controller.tokens)[order]
    return table(
        Table(cells),
        left=["source"],
        formats={"tokens": number, "epochs": _epochs, **dict.fromkeys(_choices(run), share_text)},
        headings={"mean of the run": "mean", "epochs": "epochs"},
        caption="Shares" if len(order) > 1 else "Tokens",
    )


def loss_table(run: MixtureRun) -> Html:
    """Return every source's losses, from what they count, and how they moved."""
    order, control = run.order, run.controller
    cells: dict[str, NDArray[Any]] = {"source": objects([run.names[k] for k in order]), "loss": control.losses[order]}
    if run.has_references:
        cells |= {"reference": control.references[order], "excess": control.excess[order]}
    if run.n_updates > 1:
        cells |= {"first": run.first[order], "change": (control.excess - run.first)[order]}
    numbers = [name for name in cells if name != "source"]
    if len(order) > 1:
        cells["worst"] = run.worst.distribution[order]
    headings = {
        "loss": "held-out loss",
        "reference": "can be reached",
        "first": f"first {run.what}",
        "worst": "share in the worst mix",
    }
    return table(
        Table(cells),
        left=["source"],
        formats={**dict.fromkeys(numbers, run.loss_text), "worst": share_text},
        headings=headings,
        caption=f"Held-out losses, {run.unit}",
    )


def mix_table(run: MixtureRun) -> Html:
    """Return how the model does if the mix at use is one of these."""
    control = run.controller
    choices = {**_choices(run), "worst plausible": run.worst.distribution}
    mixes = list(choices.values())
    cells: dict[str, NDArray[Any]] = {
        "mix": objects(list(choices)),
        "now": np.array([float(mix @ run.scores) for mix in mixes]),
    }
    if run.n_updates > 1 and not np.isnan(run.excess[0]).any():
        then = [float(mix @ run.excess[0]) for mix in mixes[:-1]]
        # The worst mix was another one then.
        cells["first"] = np.array([*then, run.worst_at(0)])
    # A worst mix lies on the edge of the set, where rounding would decide.
    if not control.mixes.is_simplex:
        plausible = [control.mixes.contains(mix) for mix in mixes[:-1]]
        cells["plausible"] = objects([*("yes" if one else "no" for one in plausible), "yes"])
    if control.budget is not None:
        cells["epochs"] = objects([*(_most_epochs(run, mix) for mix in mixes[:-1]), None])
    return table(
        Table(cells),
        left=["mix"],
        formats=dict.fromkeys(("now", "first"), run.loss_text),
        headings={
            "now": f"mean {run.what}",
            "first": "at the first update",
            "plausible": "plausible at use",
            "epochs": "most epochs if trained on it",
        },
        caption=f"The present model under other mixes at use, {run.unit}",
    )


def _choices(run: MixtureRun) -> dict[str, Array]:
    """Return the mixes that one might train on, by name."""
    return {
        "mean of the run": run.mean,
        "last": run.shares[-1],
        "proportional": run.proportional,
        **{f"tempered, {power:g}": run.tempered(power) for power in EXPONENTS},
        "uniform": np.full(len(run.names), 1.0 / len(run.names)),
    }


def _most_epochs(run: MixtureRun, mix: Array) -> str:
    """Return how often the source would be read that is read most, if the budget were spent on a mix."""
    assert run.controller.budget is not None
    epochs = mix * run.controller.budget / run.controller.tokens
    most = int(epochs.argmax())
    is_one_of_several = epochs.min() < epochs[most] * (1.0 - 1e-9)
    return _epochs(float(epochs[most])) + f" ({run.names[most]:.40})" * bool(is_one_of_several)


def _epochs(epochs: float) -> str:
    return fixed(epochs, 2) if 0.01 <= epochs < 100.0 else number(epochs)


def _range(low: float, high: float) -> str:
    if low < NOTHING:
        return "any" if high >= 1.0 else f"up to\u00a0{share_text(high)}"
    ends = [share_text(end) for end in (low, high)]
    return ends[0] if ends[0] == ends[1] else f"{ends[0]} to\u00a0{ends[1]}"
