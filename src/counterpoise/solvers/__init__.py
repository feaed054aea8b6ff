"""Methods for the robust problem, one file each."""

from counterpoise.solvers._base import Progress, Solution, Solver, Status
from counterpoise.solvers.interior_point import InteriorPoint
from counterpoise.solvers.newton import Newton

__all__ = ["InteriorPoint", "Newton", "Progress", "Solution", "Solver", "Status"]
