"""Methods for the robust problem, one file each."""

from counterpoise.solvers._base import Progress, Solution, Solver, Status
from counterpoise.solvers.golden_section import GoldenSection
from counterpoise.solvers.gradient_descent import GradientDescent
from counterpoise.solvers.group_dro import GroupDRO
from counterpoise.solvers.interior_point import InteriorPoint
from counterpoise.solvers.model_newton import ModelNewton
from counterpoise.solvers.newton import Newton
from counterpoise.solvers.newton_cg import NewtonCG
from counterpoise.solvers.polyhedral import PolyhedralInteriorPoint
from counterpoise.solvers.scalar import ScalarSearch
from counterpoise.solvers.truncated_newton import TruncatedNewton
from counterpoise.solvers.two_time_scale import TwoTimeScale

__all__ = [
    "GoldenSection",
    "GradientDescent",
    "GroupDRO",
    "InteriorPoint",
    "ModelNewton",
    "Newton",
    "NewtonCG",
    "PolyhedralInteriorPoint",
    "Progress",
    "ScalarSearch",
    "Solution",
    "Solver",
    "Status",
    "TruncatedNewton",
    "TwoTimeScale",
]
