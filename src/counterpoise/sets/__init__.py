"""Sets of context distributions, and how large they must be."""

from counterpoise.sets._base import Ball, ContextSet, WorstCase, ball_of, radius_of, share_intervals
from counterpoise.sets._geometry import Constraints, Geometry
from counterpoise.sets.chi2 import Chi2Ball
from counterpoise.sets.covering import BallKind, covering_radius
from counterpoise.sets.draws import Draws, count_draws, draws_in_groups, effective_draws
from counterpoise.sets.intersection import Intersection
from counterpoise.sets.kl import KLBall
from counterpoise.sets.ladder import RADIUS_TICKS, along_radii, radius_ladder
from counterpoise.sets.likeliest import Likeliest
from counterpoise.sets.mix import Mix
from counterpoise.sets.radius import RadiusMethod, confidence_radius, implied_confidence
from counterpoise.sets.shares import Marginal, ShareBounds, ShareLimits
from counterpoise.sets.total_variation import TotalVariationBall

__all__ = [
    "RADIUS_TICKS",
    "Ball",
    "BallKind",
    "Chi2Ball",
    "Constraints",
    "ContextSet",
    "Draws",
    "Geometry",
    "Intersection",
    "KLBall",
    "Likeliest",
    "Marginal",
    "Mix",
    "RadiusMethod",
    "ShareBounds",
    "ShareLimits",
    "TotalVariationBall",
    "WorstCase",
    "along_radii",
    "ball_of",
    "confidence_radius",
    "count_draws",
    "covering_radius",
    "draws_in_groups",
    "effective_draws",
    "implied_confidence",
    "radius_ladder",
    "radius_of",
    "share_intervals",
]
