"""Losses for a training loop of one's own: per-sample losses and contexts in, the scalar to differentiate out."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from numbers import Real
from types import ModuleType
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor, distributed, nn

from counterpoise.core.robustness import Mixes, Robustness
from counterpoise.exceptions import InvalidInputError
from counterpoise.sets import ContextSet, KLBall, Mix, RadiusMethod, confidence_radius, radius_of
from counterpoise.torch.ball import Ball, InMemory, OnHost
from counterpoise.torch.step import Arrays, Piece, StepMemory
from counterpoise.validation import on_host

Sampling = Literal["proportional", "balanced"] | Sequence[float]
Update = Literal["closed-form", "ascent"]


class ContextLoss(nn.Module):
    r"""The mean loss of a batch in which every context counts with a weight.

    .. math:: \frac1B \sum_{i \in \text{batch}} \frac{p_{c_i}}{q_{c_i}} \ell_i

    with the weights :math:`p` of contexts and the probabilities :math:`q` with which a batch draws them. Its mean over
    batches is :math:`\sum_c p_c R_c`, whichever contexts a batch happens to hold. The weights carry no gradient, by
    Danskin's theorem.

    Running means of the risks are kept per context: sums of losses and counts, both of which fade by ``averaging``
    when a context occurs. Their ratio needs no correction for how it began, and a context that is absent keeps its own.

    Everything that is learnt is in ``state_dict``. No step waits for the device. In memory, what a batch teaches is
    computed by numpy; on a GPU the launches for it are captured in a CUDA graph at the third step and replayed from
    then on. Under ``torch.compile``, in a CUDA graph of one's own and with several processes they are launched one by
    one.

    With several processes (an initialised ``torch.distributed``), sums are reduced over all, so that weights are the
    same everywhere, and the scalar is scaled so that averaging the gradients, as ``DistributedDataParallel`` does,
    gives that of the whole batch.

    Parameters
    ----------
    counts : sequence of float, of length n_contexts
        Training samples in each context.
    sampling : {"proportional", "balanced"} or sequence of float
        How batches draw contexts: as in the data, all alike, or with these probabilities.
    averaging : float
        What a new batch takes away from the running risks, between 0 (never forget) and 1 (this batch alone).

    Attributes
    ----------
    method : str
        The name of the method in tables.
    mixes : ContextSet or None
        The mixes whose worst case the loss is made for; None is every mix.
    unseen_risks : sequence of float
        Of contexts that have no samples, and that the mixes know.
    """

    method: ClassVar[str] = "robust"
    mixes: ContextSet | None = None
    unseen_risks: Sequence[float] = ()
    counts: Tensor
    sampled: Tensor
    loss_sums: Tensor
    loss_counts: Tensor

    def __init__(
        self, counts: Sequence[float] | Any, *, sampling: Sampling = "proportional", averaging: float = 0.1
    ) -> None:
        super().__init__()
        self._memory = StepMemory()
        given = _positive(counts, "counts")
        if not (isinstance(averaging, (int, float)) and 0.0 <= averaging <= 1.0):
            raise InvalidInputError(f"averaging = {averaging!r}; pass a share from 0 to 1.")
        named = {"proportional": given, "balanced": np.ones_like(given)}
        if isinstance(sampling, str) and sampling not in named:
            raise InvalidInputError(f"sampling is {sampling!r}; choose 'proportional', 'balanced' or probabilities.")
        drawn = named[sampling] if isinstance(sampling, str) else _positive(sampling, "sampling")
        if len(drawn) != len(given):
            raise InvalidInputError(f"sampling has {len(drawn)} probabilities for {len(given)} contexts.")
        self.sampling, self.averaging = sampling, float(averaging)
        self._keep("counts", given)
        self._keep("sampled", drawn / drawn.sum())
        self._keep("loss_sums", np.zeros_like(given))
        self._keep("loss_counts", np.zeros_like(given))
        self._memory.prepare(len(given), self.counts.device)

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        """Move to another device, but stay in double precision: these few numbers are what weights are decided by."""
        exact = {name: buffer for name, buffer in self._buffers.items() if buffer is not None}
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        for name, buffer in exact.items():
            moved = self._buffers[name]
            assert moved is not None
            self._buffers[name] = buffer.to(moved.device)
        # What was captured belongs to the old device.
        self._memory = StepMemory()
        return self

    def extra_repr(self) -> str:
        """Say what a printed model should show."""
        return f"n_contexts={self.n_contexts}, averaging={self.averaging:g}"

    def _keep(self, name: str, values: np.ndarray[Any, Any]) -> None:
        buffer = torch.as_tensor(np.array(values), dtype=torch.float64)
        self.register_buffer(name, buffer)
        self._memory.view(name, buffer)

    @property
    def n_contexts(self) -> int:
        """Contexts."""
        return len(self.counts)

    @property
    def is_plain(self) -> bool:
        """Whether there is nothing to be robust against, so that the loss is a mean with fixed weights."""
        return self.n_contexts == 1 if self.mixes is None else self.mixes.is_point

    @property
    def _is_shared(self) -> bool:
        """Whether batches are parts of one that several processes hold; in evaluation each may be on its own."""
        return self.training and are_several()

    @property
    def p_hat(self) -> Tensor:
        """The share of each context in the data."""
        return self.counts / self.counts.sum()

    @property
    def context_risks(self) -> Tensor:
        """The running risks; NaN for a context that has not occurred yet."""
        return self.loss_sums / torch.where(self.loss_counts > 0, self.loss_counts, math.nan)

    @property
    def context_weights(self) -> Tensor:
        """The weights that the next batch will be given."""
        raise NotImplementedError

    def forward(self, losses: Tensor, contexts: Tensor) -> Tensor:
        """Return the scalar to differentiate; in training mode, learn from the batch for the next one.

        Parameters
        ----------
        losses : Tensor of shape (n,)
            Not reduced: ``F.cross_entropy(..., reduction="none")``.
        contexts : integer Tensor of shape (n,)
            The context of each sample, from 0 on.
        """
        check_shapes(losses, contexts)
        # The weights come from earlier batches alone, so that they do not lean on the noise of this one.
        exact = losses if losses.dtype == torch.float64 else losses.float()
        weights = (self.context_weights / self.sampled).index_select(0, contexts).to(exact.dtype).detach()
        if not self.training:
            return (weights * exact).mean()
        sums, counts = self._batch_sums(losses, contexts)
        if self._is_shared:
            # Processes may hold unequal parts of the batch.
            share = distributed.get_world_size() / counts.sum()
            value = (weights * exact).sum() * share.to(exact.dtype)
        else:
            value = (weights * exact).mean()
        self._learn(sums, counts)
        return value

    @torch.no_grad()
    def observe(self, losses: Tensor, contexts: Tensor) -> None:
        """Learn from a batch without weighing it."""
        check_shapes(losses, contexts)
        self._learn(*self._batch_sums(losses, contexts))

    @torch.no_grad()
    def _batch_sums(self, losses: Tensor, contexts: Tensor) -> tuple[Tensor, Tensor]:
        """Return the sum of losses and the number of samples in each context, over all processes."""
        shared = self._is_shared
        if not (shared or torch.compiler.is_compiling()) and type(losses) in (Tensor, nn.Parameter):
            return self._memory.batch_sums(losses, contexts, self.n_contexts)
        both = context_sums(losses, contexts, self.n_contexts)
        if shared:
            distributed.all_reduce(both)
        return both[0], both[1]

    @torch.no_grad()
    def _learn(self, sums: Tensor, counts: Tensor) -> None:
        """Take a batch into the running risks; a context whose losses are not finite is as if absent."""
        self._run(self._average, ("loss_sums", "loss_counts"), sums, counts)

    def _run(self, piece: Piece, changed: Sequence[str], sums: Tensor, counts: Tensor, capturable: bool = True) -> None:
        """Run a piece of what is learnt from a batch, in the way that costs least."""
        buffers = {name: buffer for name, buffer in self._buffers.items() if buffer is not None}
        # Sums in a place of their own come from torch.compile or several processes.
        if self._memory.holds(sums):
            self._memory.run(piece, buffers, changed, self._settings if capturable else None)
        else:
            piece(torch, Arrays({"batch_sums": sums, "batch_counts": counts, **buffers}))

    @property
    def _settings(self) -> tuple[Any, ...]:
        """What a piece depends on beside its arrays."""
        return (self.averaging,)

    def _average(self, xp: ModuleType, of: Arrays) -> None:
        finite = xp.isfinite(of.batch_sums)
        sums, counts = xp.where(finite, of.batch_sums, 0.0), xp.where(finite, of.batch_counts, 0.0)
        kept = 1.0 - self.averaging * xp.sign(counts)
        for running, new in ((of.loss_sums, sums), (of.loss_counts, counts)):
            running *= kept
            running += new


class RobustLoss(ContextLoss):
    """The worst case over the plausible mixes of contexts: of excess risk, where reference risks are given.

    Parameters
    ----------
    counts : sequence of float, of length n_contexts
        Training samples in each context.
    confidence : float
        Of the set of plausible mixes; 1 is every mix.
    radius : {"types", "agrawal", "calibrated", "chi2", "anytime"} or float
        How the size of the set follows from the confidence, or the size itself in bits.
    draws : float, optional
        Independent draws of a context in the data, where samples are not; see :func:`counterpoise.effective_draws`.
    mix : mapping, Mix or ContextSet, optional
        What is known about the mix, as in :class:`counterpoise.RobustLogisticRegression`: bounds of shares by context,
        a :class:`counterpoise.Mix`, or the set itself. Any set but a KL ball is asked on the host, so that every search
        for the mix waits for the device; ``refresh`` makes these rarer.
    labels : sequence of length n_contexts, optional
        The names that ``mix`` has for contexts; 0, 1, ... by default.
    reference_risks : sequence of float, optional
        The least risk that can be had in each context, see :func:`counterpoise.torch.reference_risks`. Without them the
        worst case is that of risk itself.
    update : {"closed-form", "ascent"}
        The least favourable mix for the running risks, found exactly at every step; or a mix that climbs towards it
        inside the set, by steps of its own size, which is the slower of the two time scales.
    step_size : float
        Of the ascent, at most .9: what a step takes from the weight of the context with the lowest score, where
        scores spread by 1 or more. With a step that does not shrink it ends near the least favourable mix where that is
        unique, and circles at a kink, where several are; the closed form with a falling learning rate does not.
    refresh : int
        Steps between two searches for the mix. It matters where a search is costly: for a set that is asked on the
        host, or with several processes, where it is a hundred small launches.
    sampling, averaging
        See :class:`ContextLoss`.
    """

    mixes: ContextSet
    references: Tensor
    mix: Tensor

    def __init__(
        self,
        counts: Any,
        *,
        confidence: float = 0.99,
        radius: RadiusMethod | float = "types",
        draws: float | None = None,
        mix: Mixes | None = None,
        labels: Sequence[Any] | None = None,
        reference_risks: Any = None,
        update: Update = "closed-form",
        step_size: float = 0.1,
        refresh: int = 1,
        sampling: Sampling = "proportional",
        averaging: float = 0.1,
    ) -> None:
        super().__init__(counts, sampling=sampling, averaging=averaging)
        given = self.counts.cpu().numpy()
        if not (isinstance(refresh, int) and not isinstance(refresh, bool) and refresh >= 1):
            raise InvalidInputError(f"refresh = {refresh!r}; pass a whole number of steps, 1 or more.")
        self.refresh, self._steps = refresh, 0
        if update not in ("closed-form", "ascent"):
            raise InvalidInputError(f"update is {update!r}; choose 'closed-form' or 'ascent'.")
        self.mixes, self.unseen_risks = plausible_mixes(given, confidence, radius, draws, mix, labels)
        self.radius = radius_of(self.mixes)
        self.update: Update = update
        self.step_size: float = positive_number(step_size, "step_size")
        self._keep("references", references_of(reference_risks, len(given)))
        self._keep("mix", self.mixes.p_hat)
        self._follows_data = mix is None
        self._ball_of: tuple[np.ndarray[Any, Any], InMemory] | None = None

    def extra_repr(self) -> str:
        """Say what a printed model should show."""
        size = f"radius={self.radius:.4g} bits" if isinstance(self.mixes, KLBall) else f"mixes {self.mixes.where}"
        return f"{super().extra_repr()}, {size}, update={self.update!r}"

    def get_extra_state(self) -> Tensor:
        """Return how many steps were taken, where that matters."""
        return torch.tensor(self._steps)

    def set_extra_state(self, state: Tensor) -> None:
        """Go on counting."""
        self._steps = int(state)

    @property
    def ball(self) -> Ball | OnHost:
        """The set of plausible mixes."""
        if not isinstance(self.mixes, KLBall):
            return OnHost(self.mixes)
        return Ball(self.p_hat if self._follows_data else self._constant("p_hat", self.mixes.p_hat), self.radius)

    def _in_memory(self, counts: np.ndarray[Any, Any]) -> InMemory:
        """Return the set of plausible mixes, for arrays."""
        if not self._follows_data:
            return InMemory(self.mixes)
        # A state that was loaded may bring other counts.
        if self._ball_of is None or not np.array_equal(self._ball_of[0], counts):
            self._ball_of = counts.copy(), InMemory(KLBall(counts / counts.sum(), self.radius))
        return self._ball_of[1]

    @property
    def scores(self) -> Tensor:
        """The running risks less the references; a context that has not occurred yet is as the others on average.

        Contexts without samples whose risk ``mix`` gave follow.
        """
        return self._scores(torch, Arrays(self._buffers))

    def _scores(self, xp: ModuleType, of: Arrays) -> Any:
        known, p_hat = of.loss_counts > 0, of.counts / of.counts.sum()
        scores = of.loss_sums / xp.where(known, of.loss_counts, 1.0) - of.references
        average = (p_hat * xp.where(known, scores, 0.0)).sum() / xp.clip((p_hat * known).sum(), 1e-300, None)
        scores = xp.where(known, scores, average)
        if not self.unseen_risks:
            return scores
        return xp.concatenate([scores, self.unseen_risks if xp is np else self._constant("unseen", self.unseen_risks)])

    def _constant(self, name: str, values: Any) -> Tensor:
        if torch.compiler.is_compiling():
            return self.counts.new_tensor(values)
        return self._memory.constant(name, values, self.counts.device)

    @property
    def context_weights(self) -> Tensor:
        """The mix reached so far: the least favourable one for the running risks, or on the way to it."""
        return self.mix[: self.n_contexts]

    @torch.no_grad()
    def _learn(self, sums: Tensor, counts: Tensor) -> None:
        super()._learn(sums, counts)
        if self.refresh > 1:
            # Not counted otherwise: a number that changes at every step would have the step compiled anew.
            self._steps += 1
            if self._steps % self.refresh:
                return
        self._run(self._search, ("mix",), sums, counts, capturable=isinstance(self.mixes, KLBall))

    @property
    def _settings(self) -> tuple[Any, ...]:
        return (*super()._settings, self.update, self.step_size, self.radius)

    def _search(self, xp: ModuleType, of: Arrays) -> None:
        ball, scores = self._in_memory(of.counts) if xp is np else self.ball, self._scores(xp, of)
        if self.update == "closed-form":
            of.mix[:] = ball.worst_case(scores)
        else:
            spread = xp.clip(scores.max() - scores.min(), 1.0, None)
            # Linear in the scores, so that what stays in place is the least favourable mix whatever the step; a weight
            # that has shrunk to nothing must be able to return.
            raised = of.mix * (1.0 + min(self.step_size, 0.9) * (scores - scores.max()) / spread)
            of.mix[:] = ball.pull_inside(xp.clip(raised, 1e-12, None))


def are_several() -> bool:
    """Tell whether several processes train one model."""
    return distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1


def rank_and_world() -> tuple[int, int]:
    """Return the number of this process, and of how many that train one model."""
    return (distributed.get_rank(), distributed.get_world_size()) if are_several() else (0, 1)


def summed(values: np.ndarray[Any, Any], group: Any = None) -> np.ndarray[Any, Any]:
    """Return the sum of arrays over all processes that train one model, the same on each.

    Parameters
    ----------
    values : ndarray
    group : ProcessGroup, optional
        Another group of all processes than the default one.
    """
    if not are_several():
        return values
    reduced = torch.as_tensor(values, device="cuda" if distributed.get_backend() == "nccl" else "cpu")
    distributed.all_reduce(reduced, group=group)
    return reduced.cpu().numpy()


def plausible_mixes(
    counts: np.ndarray[Any, Any],
    confidence: float,
    radius: RadiusMethod | float,
    draws: float | None,
    mix: Mixes | None,
    labels: Sequence[Any] | None,
) -> tuple[ContextSet, list[float]]:
    """Return the set that these describe, see :class:`RobustLoss`, and risks of contexts that only ``mix`` knows."""
    if not (mix is None or isinstance(mix, (ContextSet, Mix, Mapping))):
        raise InvalidInputError(f"mix is {mix!r:.60}; pass bounds by label, a Mix, or a set of mixes.")
    if labels is not None and len(labels) != len(counts):
        raise InvalidInputError(f"there are {len(labels)} labels for {len(counts)} contexts. Pass one for each.")
    robustness = Robustness(confidence, radius, draws, mix=mix)
    if isinstance(radius, str) and mix is None:
        radius = confidence_radius(counts, confidence, radius, draws=draws)
    # A narrow float cannot be compared with so large a number as below.
    bits: Any = float(radius) if isinstance(radius, np.floating) else radius
    # A whole number that no float can hold is none that is meant.
    number = isinstance(bits, Real) and not isinstance(bits, bool) and (bits <= 1e300 or bits == math.inf)
    if not (isinstance(radius, str) or (number and float(bits) >= 0.0)):
        raise InvalidInputError(f"radius = {radius!r}; pass 'types', 'agrawal' or 'chi2', or 0 bits or more.")
    names = range(len(counts)) if labels is None else labels
    mixes = KLBall(counts / counts.sum(), float(radius)) if mix is None else robustness.mixes(counts, labels)
    return mixes, robustness.unseen(names).risks.tolist()


def references_of(given: Any, n_contexts: int) -> np.ndarray[Any, Any]:
    """Return reference risks, one for each context; 0 where none are given."""
    references = np.zeros(n_contexts) if given is None else finite_numbers(given, "reference_risks")
    if references.shape != (n_contexts,):
        raise InvalidInputError(f"reference_risks are {len(references)} for {n_contexts} contexts. Pass one for each.")
    return references


@torch.no_grad()
def context_sums(losses: Tensor, contexts: Tensor, n_contexts: int) -> Tensor:
    """Return the sum of losses and the number of samples in each context, one above the other, in double precision."""
    rows = losses.detach().to(torch.float64)
    both = rows.new_zeros(2, n_contexts)
    both[0].index_add_(0, contexts, rows)
    both[1].index_add_(0, contexts, torch.ones_like(rows))
    return both


def check_shapes(losses: Tensor, contexts: Tensor) -> None:
    """Refuse losses and contexts that are not one of each per sample."""
    if losses.ndim != 1 or contexts.shape != losses.shape:
        raise InvalidInputError(
            f"losses have shape {tuple(losses.shape)} and contexts {tuple(contexts.shape)}; pass one of each per "
            "sample, losses not reduced (reduction='none')."
        )


def positive_number(value: Any, name: str, may_be_infinite: bool = False) -> float:
    """Return a value that must be a positive number, finite unless infinity is allowed."""
    number = isinstance(value, Real) and not isinstance(value, bool)
    if not (number and value > 0.0 and (value < math.inf or may_be_infinite)):
        raise InvalidInputError(f"{name} = {value!r:.60}; pass a positive number.")
    return float(value)


def finite_numbers(values: Any, name: str) -> np.ndarray[Any, Any]:
    """Return finite numbers, one for each context; raise unless they are."""
    values = on_host(values)
    try:
        array = np.array(values, dtype=np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidInputError(f"{name} must be numbers, one for each context, got {values!r:.60}.") from error
    if array.ndim != 1 or len(array) == 0 or not np.isfinite(array).all():
        raise InvalidInputError(f"{name} must be finite numbers, one for each context, got {values!r:.60}.")
    return array


def _positive(values: Any, name: str) -> np.ndarray[Any, Any]:
    array = finite_numbers(values, name)
    if not (array > 0).all():
        c = int(np.flatnonzero(array <= 0)[0])
        raise InvalidInputError(
            f"{name} of context {c} is {array[c]:g}; pass positive numbers, and leave out empty contexts."
        )
    return array
