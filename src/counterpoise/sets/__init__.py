"""Sets of context distributions, and how large they must be."""

from counterpoise.sets._base import Constraint, ContextSet, WorstCase
from counterpoise.sets.kl import KLBall
from counterpoise.sets.radius import RadiusMethod, confidence_radius, implied_confidence

__all__ = ["Constraint", "ContextSet", "KLBall", "RadiusMethod", "WorstCase", "confidence_radius", "implied_confidence"]
