"""A small loss that takes held-out losses, and data, for the tests of training frameworks."""

import numpy as np
import torch

from counterpoise.torch import ContextLoss
from counterpoise.torch.losses import context_sums


class HeldOutStandIn(ContextLoss):
    """Moves its mix half-way towards the worst context of every round."""

    def __init__(self, counts, strength=0.5, **options):
        super().__init__(counts, **options)
        self.strength = strength
        self._keep("mix", np.full(self.n_contexts, 1.0 / self.n_contexts))
        self._keep("worst", np.zeros(1))
        self.rounds = []

    @property
    def context_weights(self):
        return self.mix

    @property
    def worst_excess(self):
        return self.worst.item()

    @torch.no_grad()
    def update(self, losses, contexts):
        assert losses.ndim == 1
        assert not losses.requires_grad
        sums, counts = context_sums(losses, contexts, self.n_contexts)
        risks = sums / counts
        self.mix.lerp_((risks == risks.max()).double(), self.strength)
        self.worst.copy_(risks.max().reshape(1))
        self.rounds.append({"worst": self.worst_excess, "rows": len(losses)})


def rows(n=64, seed=0):
    """Return inputs, classes and contexts; the last context's classes are turned round."""
    rng = np.random.default_rng(seed)
    contexts = rng.choice(3, n, p=[0.6, 0.3, 0.1])
    contexts[:3] = [0, 1, 2]
    X = rng.normal(size=(n, 4)).astype(np.float32)
    y = ((X[:, 0] > 0) ^ (contexts == 2)).astype(np.int64)
    return X, y, contexts.astype(np.int64)
