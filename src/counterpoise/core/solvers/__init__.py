"""Methods for the robust problem, one file each."""

from counterpoise.core.solvers._base import Progress, Solution, Solver, Status
from counterpoise.core.solvers.golden_section import GoldenSection
from counterpoise.core.solvers.gradient_descent import GradientDescent
from counterpoise.core.solvers.group_dro import GroupDRO
from counterpoise.core.solvers.interior_point import InteriorPoint
from counterpoise.core.solvers.model_newton import ModelNewton
from counterpoise.core.solvers.newton import Newton
from counterpoise.core.solvers.newton_cg import NewtonCG
from counterpoise.core.solvers.polyhedral import PolyhedralInteriorPoint
from counterpoise.core.solvers.scalar import ScalarSearch
from counterpoise.core.solvers.truncated_newton import TruncatedNewton
from counterpoise.core.solvers.two_time_scale import TwoTimeScale

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
