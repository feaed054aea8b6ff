"""In what shares to train on several sources of text: shares that follow held-out losses."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from counterpoise.contexts import shown
from counterpoise.core.robustness import Mixes, Robustness
from counterpoise.exceptions import CounterpoiseWarning, InvalidInputError
from counterpoise.files import check_output, whole
from counterpoise.sets import RadiusMethod, ShareBounds
from counterpoise.table import Table
from counterpoise.torch.budget import within_budget
from counterpoise.torch.held_out import largest_of_late, scores_of, tempered_step
from counterpoise.torch.losses import plausible_mixes, positive_number, summed
from counterpoise.torch.mix_files import SUFFIXES, mix_text
from counterpoise.torch.mixture_state import ROUND, STATE, checked_state, plain_numbers
from counterpoise.torch.source_numbers import names_of, source_numbers, source_shares

Array = NDArray[np.float64]

_RATE = 30.0
"""How far a whole step goes where nothing is forgotten, per excess in units of the mean loss."""

_FAR_AHEAD = 0.25
"""How far a loss may be below its reference, in units of the mean loss, before that is said: too far for chance."""

_STARVED = 0.01
"""The part of its first share that a source has left when it is said that losses, not excess, took the rest."""

_PARTS = (8, 64)
"""Parts of a step within a curved set, at least and at most, each pulled back into it: by one whole step shares would
rest elsewhere."""

_PART = 0.3
"""How far a part goes, in logarithms, where these are enough."""


class MixtureController:
    r"""The shares in which a language model is trained on its sources, moved by the sources' held-out losses.

    Contexts are sources of text, and counts are tokens. Every so many steps the model is judged on held-out text of
    each source, and one call moves the shares::

        controller = MixtureController({"web": 9e9, "code": 2e9, "papers": 3e8}, budget=8e9, reference_losses=own)
        controller.update({"web": 3.21, "code": 1.92, "papers": 2.80})
        controller.shares  # of the tokens to come
        controller.export("mix.json")  # the mean over the run, to train a larger model with

    A source counts by its excess: its loss above what can be reached in it, ``reference_losses``. Shares take small
    steps, and come to rest at

    .. math:: \arg\max_p \; \sum_c p_c \, s\,(L_c - L^*_c) / \bar L - \sum_c p_c \log p_c

    over the allowed shares, with the mean held-out loss :math:`\bar L` (the largest of late); where every mix is
    allowed that is :math:`p_c \propto \exp(s\,(L_c - L^*_c) / \bar L)`. So shares stop short of the worst mix, but not
    always by much: a source that stays a tenth of the mean loss behind all others, whatever its share, is given 400
    times the share of each. A ``budget``, floors or less ``sharpness`` prevent that; ``sharpness=inf`` forgets nothing,
    and shares then move towards the worst mix itself. They begin with those of the tokens, as plain training has them,
    or with the allowed mix that is nearest to these. Within a ball they come to rest within some thousandths of what is
    said here (hundredths, without references).

    Text is finite. With a ``budget`` no source is read more than ``max_epochs`` times: its share is at most
    ``max_epochs * tokens / budget``.

    Parameters
    ----------
    tokens : mapping from source to number
        Tokens to train on.
    mix : mapping, Mix or ContextSet, optional
        What is known about the mix at use, as for :class:`RobustLoss`: bounds of shares by source (floors and caps), a
        :class:`counterpoise.Mix`, or a set of mixes. By default every mix is possible.
    confidence, radius, draws
        The size of the set around the shares of the tokens, as for :class:`RobustLoss`: ``radius=0.5`` are all mixes
        within half a bit. Shares are then kept in it.
    budget : float, optional
        Tokens that the model will be trained on. Where this run only finds the mix for a longer one, those of that one.
    max_epochs : float, optional
        How often a source may be read within the budget: 4 times by default.
    reference_losses : mapping from source to number, or sequence in the order of ``tokens``, optional
        The least loss that can be had in each source, on the same held-out text: see :func:`proxy_losses` and
        :func:`extrapolated_losses`. A mapping may leave out sources without held-out text. Without references, excess
        is loss itself, which favours sources that are hard to predict for every model; a warning tells of a source that
        loses its share by that.
    initial_shares : mapping from source to share, or sequence in the order of ``tokens``, optional
        The shares to begin with, such as those that a smaller model was left with: see :func:`read_mix`.
    step_size : float
        The share of the way, in logarithms, that one update goes: with 0.1 about twenty updates get there.
    sharpness : float
        :math:`s`: a source whose excess is higher by a sixtieth of the mean loss counts e times as much where it is 60.
        Smaller numbers give up some of the worst source for the mean over sources, and suit references that are
        doubtful; ``inf`` gives up the mean.

    Attributes
    ----------
    sources : tuple
    tokens : ndarray of shape (n_sources,)
    mixes : ContextSet
        The mixes that are plausible at use, over which the worst case is judged.
    allowed : ContextSet
        Those of them that the budget allows to sample by.
    probabilities : ndarray of shape (n_sources,)
        The shares of the tokens to come, by which they are sampled.
    first_probabilities : ndarray of shape (n_sources,)
        Those before the first update.
    """

    def __init__(
        self,
        tokens: Mapping[Any, float],
        *,
        mix: Mixes | None = None,
        confidence: float = 1.0,
        radius: RadiusMethod | float = "types",
        draws: float | None = None,
        budget: float | None = None,
        max_epochs: float | None = None,
        reference_losses: Any = None,
        initial_shares: Any = None,
        step_size: float = 0.1,
        sharpness: float = 60.0,
    ) -> None:
        if not (isinstance(tokens, Mapping) and tokens):
            raise InvalidInputError(f"tokens are {tokens!r:.60}; pass a mapping from each source to its tokens.")
        self.sources = tuple(tokens)
        names_of(self.sources)
        self.tokens = np.array([positive_number(count, f"tokens of {shown(name)}") for name, count in tokens.items()])
        self.mixes, unseen = plausible_mixes(self.tokens, confidence, radius, draws, mix, self.sources)
        if unseen or len(self.mixes.p_hat) != len(self.tokens):
            raise InvalidInputError("mix knows sources that have no tokens to train on. Leave them out.")
        self.budget = None if budget is None else positive_number(budget, "budget")
        self.max_epochs: float = 4.0 if max_epochs is None else positive_number(max_epochs, "max_epochs")
        if budget is None and max_epochs is not None:
            raise InvalidInputError(
                f"max_epochs = {max_epochs:g} needs a budget: pass the tokens to train on as budget=."
            )
        self.allowed = self.mixes
        if self.budget is not None:
            self.allowed = within_budget(self.mixes, self.tokens, self.budget, self.max_epochs, self._names)
        self.step_size: float = positive_number(step_size, "step_size")
        if self.step_size > 1.0:
            raise InvalidInputError(f"step_size = {step_size!r:.60}; pass a share of the way, 1 at most.")
        self.sharpness: float = positive_number(sharpness, "sharpness", may_be_infinite=True)
        _check_draws(confidence, radius, draws, mix)
        self.set_references(np.zeros(len(self.tokens)) if reference_losses is None else reference_losses)
        begin = self.tokens
        if initial_shares is not None:
            begin = source_shares(initial_shares, "initial_shares", self._names)
        self.probabilities: Array = self.allowed.likeliest(begin).distribution
        self.first_probabilities = self.probabilities
        self.share_sums = np.zeros(len(self.tokens))
        self.unit = np.zeros(1)
        self.losses: Array = np.full(len(self.tokens), math.nan)
        self.held_out_tokens = np.zeros(len(self.tokens))
        self._rounds: list[dict[str, Any]] = []
        self._followed: int | None = None
        self._has_doubted = False
        self._may_starve = reference_losses is None

    def __repr__(self) -> str:
        now = ", ".join(f"{shown(name)} {share:.3f}" for name, share in self.shares.items())
        return f"MixtureController({now}; {len(self._rounds)} updates)"

    # --- what it says --------------------------------------------------------------------------------------------

    @property
    def shares(self) -> dict[Any, float]:
        """The share of each source in the tokens to come."""
        return dict(zip(self.sources, self.probabilities.tolist(), strict=True))

    @property
    def _names(self) -> tuple[str, ...]:
        return tuple(map(shown, self.sources))

    @property
    def average(self) -> dict[Any, float]:
        """The mean of the shares that tokens were drawn by until the last update, if updates are evenly spaced."""
        return dict(zip(self.sources, self._mean.tolist(), strict=True))

    @property
    def _mean(self) -> Array:
        return self.share_sums / len(self._rounds) if self._rounds else self.probabilities

    @property
    def excess(self) -> Array:
        """The held-out losses of the last update less the references; NaN for sources without held-out text."""
        return self.losses - self.references

    @property
    def worst_excess(self) -> float:
        """The held-out excess of the last update in the worst mix that is plausible at use; NaN before it."""
        scores = self._scores()
        return math.nan if scores is None else float(self.mixes.worst_case(scores).value)

    @property
    def n_updates(self) -> int:
        """Updates so far."""
        return len(self._rounds)

    @property
    def history(self) -> Table:
        """A column each of ``at``, ``worst_excess``, and ``loss[c]`` and ``share[c]`` of every source, by updates.

        Shares are those that the update found, for the tokens after it.
        """
        columns: dict[str, Any] = {name: np.array([one[name] for one in self._rounds]) for name in ROUND[:2]}
        for what in ("loss", "share"):
            for k, name in enumerate(self.sources):
                columns[f"{what}[{shown(name)}]"] = np.array([one[what][k] for one in self._rounds], dtype=np.float64)
        return Table(columns)

    # --- what it learns ------------------------------------------------------------------------------------------

    def update(self, losses: Any, tokens: Any = None, *, at: float | None = None) -> None:
        """Take the held-out loss of each source, and move the shares by one step.

        With several processes (an initialised ``torch.distributed``) each passes the losses of its own part of the
        held-out text, or of all of it, and all come to the same shares.

        Parameters
        ----------
        losses : mapping from source to number, or sequence in the order of ``sources``
            Mean losses per token. A source that is not named counts as the others on average.
        tokens : as losses, optional
            Held-out tokens that each is the mean of; by default as many of every source. A source with 0 counts as one
            that is not named.
        at : float, optional
            When this is, for the report: steps or tokens trained on. By default the number of the update.
        """
        named = set(map(shown, losses)) if isinstance(losses, Mapping) else set(self._names)
        if isinstance(tokens, Mapping) and (lacking := named - set(map(shown, tokens))):
            raise InvalidInputError(f"tokens: {min(lacking)} is missing, which has a loss. Pass its held-out tokens.")
        default = {name: float(name in named) for name in self._names}
        found = source_numbers(losses, "losses", self._names, missing=math.nan)
        weights = source_numbers(default if tokens is None else tokens, "tokens", self._names, missing=0.0)
        when = float(self.n_updates + 1) if at is None else _time(at)
        found, weights = _over_processes(np.where(weights == 0.0, 0.0, found) * weights, weights)
        # Asked after the sums, so that all processes refuse what one has found.
        if not (np.isfinite(weights).all() and (weights >= 0.0).all()):
            raise InvalidInputError("held-out tokens must be numbers, 0 or more, one for each source.")
        seen = weights > 0.0
        if not seen.any():
            raise InvalidInputError("no source has a held-out loss. Pass the loss of one source at least.")
        if (bad := seen & ~np.isfinite(found)).any():
            raise InvalidInputError(
                f"the held-out loss of {self._names[int(bad.argmax())]} is not finite: training diverged, or the loss "
                "is missing. Lower the learning rate, or leave the source out of losses."
            )
        self.check_references(seen)
        mean = float(found[seen] @ weights[seen] / weights.sum())
        self._doubt_references(found, seen, mean)
        if self._followed is not None and self._followed < self.n_updates:
            self._followed = None
            warnings.warn(
                "no stream was told of the last update, so that what is exported is not what was trained on. Call "
                "stream.follow(controller) after every update, with the controller itself.",
                CounterpoiseWarning,
                stacklevel=2,
            )
        before = {name: getattr(self, name) for name in STATE}
        try:
            self.losses, self.held_out_tokens = found, weights
            self.share_sums = self.share_sums + self.probabilities
            scores = scores_of(self.excess, weights, ())
            if not self.allowed.is_point:
                self.unit = largest_of_late(self.unit, mean)
                self.probabilities = self._moved(scores)
            worst = float(self.mixes.worst_case(scores).value)
        except BaseException:
            vars(self).update(before)
            raise
        self._rounds.append(
            {"at": when, "worst_excess": worst, "loss": plain_numbers(found), "share": self.probabilities.tolist()}
        )
        self._warn_of_starved()

    def _moved(self, scores: Array) -> Array:
        rate = self.step_size * (_RATE if math.isinf(self.sharpness) else self.sharpness)
        unit, parts = float(self.unit[0]), 1
        if not (isinstance(self.allowed, ShareBounds) or self.allowed.is_simplex):
            parts = math.ceil(np.clip(rate * np.ptp(scores) / max(unit, 1e-300) / _PART, *_PARTS))
        mix = self.probabilities
        for _ in range(parts):
            moved = tempered_step(mix, scores, unit, rate / parts, self.sharpness)
            mix = self.allowed.likeliest(moved).distribution
        return mix

    def followed(self) -> None:
        """Hear that a stream draws by these shares from here on: see :meth:`MixtureStream.follow`."""
        self._followed = self.n_updates

    def set_references(self, reference_losses: Any) -> None:
        """Count excess from other losses from here on; a mapping may leave out sources without held-out text."""
        found = source_numbers(reference_losses, "reference_losses", self._names, missing=math.nan)
        named = set(map(shown, reference_losses)) if isinstance(reference_losses, Mapping) else set(self._names)
        given = np.array([name in named for name in self._names])
        if not (given.any() and np.isfinite(found[given]).all()):
            raise InvalidInputError("reference_losses are missing or not finite. Pass numbers by source.")
        self.references: Array = found
        self._may_starve = False

    def check_references(self, seen: NDArray[np.bool_]) -> None:
        """Raise unless each source that has held-out text has a reference."""
        if (lacking := seen & np.isnan(self.references)).any():
            raise InvalidInputError(
                f"{self._names[int(lacking.argmax())]} has held-out text and no reference. Pass its reference loss, or "
                "leave its held-out text out."
            )

    def _doubt_references(self, losses: Array, seen: NDArray[np.bool_], mean: float) -> None:
        """Warn, once, of a source that is much better than what is said to be the least that can be reached."""
        ahead = np.where(seen, self.references - losses, -math.inf)
        k = int(ahead.argmax())
        if not self._has_doubted and ahead[k] > _FAR_AHEAD * abs(mean):
            self._has_doubted = True
            warnings.warn(
                f"the held-out loss of {self._names[k]} is {losses[k]:.4g}, far below its reference of "
                f"{self.references[k]:.4g}, so that the source gets next to no share. Are both in nats per token, on "
                "the same text? If so, estimate the reference again.",
                CounterpoiseWarning,
                stacklevel=3,
            )

    def _warn_of_starved(self) -> None:
        """Warn, once, of a source that has lost its share where losses themselves are compared."""
        starved = self.probabilities < _STARVED * self.first_probabilities
        # A checkpoint may have brought references.
        if self._may_starve and not self.references.any() and starved.any():
            self._may_starve, k = False, int(starved.argmax())
            warnings.warn(
                f"the share of {self._names[k]} has fallen from {self.first_probabilities[k]:.2g} to "
                f"{self.probabilities[k]:.2g}. No reference losses were given, so sources that are easy to predict for "
                "every model get next to nothing. Pass reference_losses= (see proxy_losses), or a mix with floors; "
                "zeros for references say that losses are meant.",
                CounterpoiseWarning,
                stacklevel=3,
            )

    def _scores(self) -> Array | None:
        if not self.held_out_tokens.any():
            return None
        return scores_of(self.excess, self.held_out_tokens, ())

    # --- what is kept ----------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Return all that a checkpoint needs to go on to the last bit: plain numbers, which JSON keeps exactly."""
        return {
            "sources": list(self._names),
            **{name: plain_numbers(getattr(self, name)) for name in STATE},
            "rounds": [dict(one) for one in self._rounds],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a checkpoint; where the budget was another, shares are pulled into what is allowed now.

        References are those of the state: set others after it.
        """
        arrays, rounds = checked_state(state, self._names, {name: getattr(self, name).shape for name in STATE})
        if not self.allowed.contains(arrays["probabilities"]):
            arrays["probabilities"] = self.allowed.likeliest(arrays["probabilities"]).distribution
        if self.references.any() and not np.allclose(self.references, arrays["references"], 1e-6, equal_nan=True):
            warnings.warn(
                "the state has other reference losses than the controller was made with, and excess is counted from "
                "those of the state. To have others, call set_references after that: in a Trainer, in on_train_begin "
                "of a callback that is listed after the one of the mixture.",
                CounterpoiseWarning,
                stacklevel=2,
            )
        vars(self).update(arrays)
        self._rounds, self._followed = rounds, None

    def export(self, path: str | PathLike[str], *, last: bool = False, force: bool = False) -> Path:
        """Write the mean of the shares over the run, or the last ones, for another training: JSON, or YAML by its name.

        The budget is written, too, for which the mix is allowed. (Where a run was resumed with another budget, the mean
        is pulled into what that allows.) A longer training that reads it has caps of its own:
        ``MixtureController(tokens, budget=..., initial_shares=read_mix(path))`` has the nearest mix that these allow.

        Parameters
        ----------
        path : path
            Its ending decides: ``.json``, ``.yaml`` or ``.yml``.
        last : bool
            Whether the last shares are written instead of the mean.
        force : bool
            Whether a file that exists may be replaced.
        """
        place = Path(path)
        if place.suffix not in SUFFIXES:
            raise InvalidInputError(f"{place.name} ends in {place.suffix!r}; choose .json, .yaml or .yml.")
        check_output(place, force)
        if not self._rounds:
            warnings.warn(
                "the controller has had no update: the mix is the one that it began with.",
                CounterpoiseWarning,
                stacklevel=2,
            )
        chosen = self.probabilities if last else self._mean
        if not self.allowed.contains(chosen):
            chosen = self.allowed.likeliest(chosen).distribution
        parts: dict[str, Any] = {"mix": chosen, "tokens": self.tokens, "held_out_loss": self.losses}
        parts["reference_loss"] = self.references
        content: dict[str, Any] = {
            part: dict(zip(self._names, plain_numbers(values), strict=True)) for part, values in parts.items()
        }
        content |= {"updates": len(self._rounds), "budget": self.budget}
        content["max_epochs"] = None if self.budget is None else self.max_epochs
        whole(place, lambda part: part.write_text(mix_text(content, place.suffix), encoding="utf-8"))
        return place


def _check_draws(confidence: float, radius: RadiusMethod | float, draws: float | None, mix: Mixes | None) -> None:
    """Raise where draws size nothing, and warn where every token would be taken for one."""
    follows_draws = Robustness(confidence, radius, draws, mix=mix).counts_draws and confidence < 1.0
    if draws is not None and not follows_draws:
        raise InvalidInputError(
            f"draws = {draws:g} sizes no set here: it does so by a confidence below 1, which is {confidence:g}, "
            "unless a radius in bits or a mix gives the size. Pass confidence=, or leave draws out."
        )
    if follows_draws and draws is None:
        warnings.warn(
            f"confidence = {confidence:g} takes every token for a draw of the mix at use, which leaves shares no "
            "room. Pass draws=, how many independent draws the tokens are worth, or radius= in bits.",
            CounterpoiseWarning,
            stacklevel=3,
        )


def _time(at: Any) -> float:
    try:
        when = float(at)
    except (TypeError, ValueError):
        when = math.nan
    if not math.isfinite(when):
        raise InvalidInputError(f"at = {at!r:.40}; pass a number of steps or tokens.")
    return when


def _over_processes(sums: Array, counts: Array) -> tuple[Array, Array]:
    """Return means and counts over all processes that train one model; the mean of nothing is NaN."""
    both = summed(np.stack([sums, counts]))
    with np.errstate(invalid="ignore"):
        return np.divide(both[0], both[1], out=np.full(len(sums), math.nan), where=both[1] > 0.0), both[1]
