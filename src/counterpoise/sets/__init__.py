"""Sets of context distributions, and how large they must be."""

from counterpoise.sets._base import Ball, Constraints, ContextSet, WorstCase, radius_of
from counterpoise.sets.chi2 import Chi2Ball
from counterpoise.sets.covering import BallKind, covering_radius
from counterpoise.sets.kl import KLBall
from counterpoise.sets.ladder import RADIUS_TICKS, along_radii, radius_ladder
from counterpoise.sets.radius import RadiusMethod, confidence_radius, implied_confidence

__all__ = [
    "RADIUS_TICKS",
    "Ball",
    "BallKind",
    "Chi2Ball",
    "Constraints",
    "ContextSet",
    "KLBall",
    "RadiusMethod",
    "WorstCase",
    "along_radii",
    "confidence_radius",
    "covering_radius",
    "implied_confidence",
    "radius_ladder",
    "radius_of",
]
