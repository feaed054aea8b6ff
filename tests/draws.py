"""Intervals from fewer draws, which are the same code in less time."""

from counterpoise.inference import differences, intervals

N_DRAWS, MIX_DRAWS = 400, 100


def fewer_draws(setattr=setattr):
    """Draw a tenth of the errors of means."""
    setattr(intervals, "N_DRAWS", N_DRAWS)
    for module in (intervals, differences):
        setattr(module, "MIX_DRAWS", MIX_DRAWS)
