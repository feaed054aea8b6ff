"""One product's costs and demand where rows are not in memory: the same levels and proof, by passes."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from counterpoise.contexts import Contexts
from counterpoise.exceptions import NotCertifiedWarning
from counterpoise.fit import Robustness
from counterpoise.objective import ReferenceRisks, RobustObjective
from counterpoise.oracle import LinearOracle
from counterpoise.oracle.scalar_blocks import BlockScalarOracle
from counterpoise.problem import LinearProblem, Reference
from counterpoise.rows import BlockRows, Blocks
from counterpoise.solvers import ScalarSearch, Solution
from counterpoise.solvers.scalar import narrowed
from counterpoise.solvers.whole_units import best_whole
from counterpoise.stock.problem import Terms, refuse_bottomless, warn_if_unproven, whole_minima

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class BlockStock:
    """The cost of every level in every context; see :class:`counterpoise.stock.problem.StockProblem`."""

    problem: LinearProblem
    oracle: BlockScalarOracle
    references: ReferenceRisks
    context_levels: Array
    integer: bool = False

    @classmethod
    def from_blocks(
        cls, blocks: Blocks, loss: Any, contexts: Contexts, counts: Array, terms: Terms, reference: Reference
    ) -> BlockStock:
        """Find the best level of each context alone."""
        bounds = (np.zeros(1), np.array([terms.highest]))
        linear = LinearOracle(BlockRows(blocks, loss, len(counts), 0), 0.0, bounds)
        problem = LinearProblem(linear, contexts, counts)
        oracle = BlockScalarOracle.of(linear)
        least, levels = oracle.context_minima()
        refuse_bottomless(contexts, levels, terms)
        if terms.integer:
            least, levels = whole_minima(oracle, levels)
        in_sample = isinstance(reference, str) and reference == "in-sample"
        references = ReferenceRisks.exactly(least) if in_sample else problem.references(reference, 1e-12)
        return cls(problem, oracle, references, levels, terms.integer)

    def solve(self, robustness: Robustness, speaker: str = "stock") -> Solution:
        """Return the best level for a set of mixes, with its proof."""
        ball, scored = robustness.ball(self.problem.counts), robustness.scored(self.references)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NotCertifiedWarning)
            solution = ScalarSearch(tol=1e-12).solve(RobustObjective(narrowed(self.oracle, ball, scored), ball, scored))
        if self.integer:
            return best_whole(RobustObjective(self.oracle, ball, scored), solution)  # type: ignore[arg-type]
        return warn_if_unproven(solution, 1e-12, speaker)
