"""The least risk possible in each context: one fit per context, all of them side by side."""

from counterpoise.core.references.cross_fit import CrossFit, folds_within
from counterpoise.core.references.optimism import Optimism, measure_optimism, most_optimism
from counterpoise.core.references.reweighted import ReweightedCrossFit
from counterpoise.core.references.rows import ContextRows
from counterpoise.core.references.specialists import Specialists, fit_specialists, reference_risks

__all__ = [
    "ContextRows",
    "CrossFit",
    "Optimism",
    "ReweightedCrossFit",
    "Specialists",
    "fit_specialists",
    "folds_within",
    "measure_optimism",
    "most_optimism",
    "reference_risks",
]
