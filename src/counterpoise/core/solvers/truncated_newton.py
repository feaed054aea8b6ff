"""Many features: the interior-point method with its linear systems solved only as well as a step can use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from counterpoise.core.solvers.newton_cg import NewtonCG


@dataclass(frozen=True)
class TruncatedNewton(NewtonCG):
    """Tens of products with the Hessian in each step instead of hundreds."""

    # The more is left, the further a step strays from its path.
    left: ClassVar[float] = 1e-3
    left_alone: ClassVar[float] = 0.03
