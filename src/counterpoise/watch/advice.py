"""What to do about what a watch has seen."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from counterpoise.contexts import shown
from counterpoise.inference.refit import most_gain, refit_gain
from counterpoise.sets import KLBall, ball_of, confidence_radius
from counterpoise.table import jsonable, written
from counterpoise.watch.promise import Promise

Array = NDArray[np.float64]
Action = Literal["nothing to do", "enlarge the set", "refit"]

_WORTH_IT = 0.1
"""Share of its excess that a refit must take off the model to be worth it."""


@dataclass(frozen=True, eq=False)
class Advice:
    """What to do, and why.

    Attributes
    ----------
    action : {"nothing to do", "enlarge the set", "refit"}
    sentence : str
    mix : ndarray of shape (n_contexts,)
        The mix of contexts since the change; since the beginning, where there is none.
    worst_mix : ndarray of shape (n_contexts,)
        The least favourable of the mixes that these rows leave plausible.
    excess, worst_excess, promised_excess : float
        Excess risk of the model in the first and in the second of them, and the largest in the set that it was made
        for. NaN where it is not known.
    gain : float
        What a refit for ``mix`` is estimated to lower the risk by; where nothing was kept to estimate it from, what it
        can gain at most. NaN where that is not known either.
    """

    action: Action
    sentence: str
    mix: Array
    worst_mix: Array
    excess: float
    worst_excess: float
    promised_excess: float
    gain: float

    @property
    def json(self) -> dict[str, Any]:
        """The same as what JSON can hold."""
        numbers = {name: getattr(self, name) for name in ("excess", "worst_excess", "promised_excess", "gain")}
        mixes = {"mix": self.mix.tolist(), "worst_mix": self.worst_mix.tolist()}
        return {
            "action": self.action,
            "sentence": self.sentence,
            **mixes,
            **{name: jsonable(one) for name, one in numbers.items()},
        }


@dataclass(frozen=True, eq=False)
class Seen:
    """What advice rests on.

    Attributes
    ----------
    draws : ndarray of shape (n_contexts,)
        Of each context since the change.
    mix_left, unseen, grown : bool
        What was found.
    unseen_share : float
    worst_context : label or None
        Where the risk has grown most, from ``promised`` to ``risk``.
    """

    draws: Array
    mix_left: bool
    unseen: bool
    grown: bool
    unseen_share: float
    worst_context: Any = None
    promised: float = math.nan
    risk: float = math.nan


def advised(promise: Promise, seen: Seen, confidence: float) -> Advice:
    """Say what to do."""
    n = float(seen.draws.sum())
    mix = seen.draws / n if n > 0.0 else promise.shares
    around = KLBall(mix, confidence_radius(seen.draws, confidence, "anytime") if n > 0.0 else math.inf)
    excess = None if promise.excess is None else np.nan_to_num(np.maximum(promise.excess, 0.0))
    now = worst = promised = gain = math.nan
    worst_mix, estimated = mix, promise.influence is not None
    if excess is not None:
        found = around.worst_case(excess)
        worst_mix, worst, now = found.distribution, float(found.value), float(mix @ excess)
        promised = float(promise.mixes.worst_case(excess).value)
        gain = refit_gain(promise.influence, excess, mix) if estimated else most_gain(excess, mix)
    action, sentence = _decided(promise, seen, mix, now, worst, promised, gain)
    return Advice(action, sentence, mix, worst_mix, now, worst, promised, gain)


def _decided(
    promise: Promise, seen: Seen, mix: Array, now: float, worst: float, promised: float, gain: float
) -> tuple[Action, str]:
    known = not math.isnan(now)
    bound = "" if promise.influence is not None else "at most "
    numbers = (
        f"the model's excess risk in the mix since then is {_n(now)}, up to {_n(worst)} in the mixes that these rows "
        f"leave plausible, where {_n(promised)} was promised; a refit for that mix would take {bound}{_n(gain)} off it"
        if known
        else ""
    )
    if seen.unseen:
        share = f"{100.0 * seen.unseen_share:.3g}% of rows are of contexts that the model never saw"
        return "refit", f"Refit with rows of the new contexts: {share}, and nothing is promised about them."
    if seen.grown:
        return "refit", (
            f"Refit: in {shown(seen.worst_context)} the mean loss is {_n(seen.risk)} where {_n(seen.promised)} was "
            "promised, so what was learnt there no longer holds."
        )
    if not seen.mix_left:
        return "nothing to do", "Nothing to do: nothing has changed that the model was not made for."
    if known and worst > promised and gain >= _WORTH_IT * max(now, 1e-300):
        return "refit", f"Refit: {numbers}."
    ball = ball_of(promise.mixes)
    radius = "" if ball is None else _needed(ball.divergence(mix), ball.measure, ball.radius)
    because = f": {numbers}" if known else ""
    return "enlarge the set", f"Enlarge the set of mixes{radius}{because}."


def _needed(divergence: float, unit: str, radius: float) -> str:
    if math.isinf(divergence):
        return ", which must allow for contexts without rows"
    return f" (the mix is {_n(divergence)}{unit} from its centre, and it reaches {_n(radius)})"


def _n(value: float) -> str:
    return written(value, digits=3)
