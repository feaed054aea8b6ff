"""Losses of a target and a prediction, one file each."""

from counterpoise.losses._base import Hinged, Loss
from counterpoise.losses.hinges import Hinges
from counterpoise.losses.huber import Huber
from counterpoise.losses.logistic import Logistic
from counterpoise.losses.multinomial import Multinomial
from counterpoise.losses.newsvendor import Newsvendor
from counterpoise.losses.pinball import Pinball
from counterpoise.losses.poisson import Poisson
from counterpoise.losses.squared import Squared

__all__ = [
    "Hinged",
    "Hinges",
    "Huber",
    "Logistic",
    "Loss",
    "Multinomial",
    "Newsvendor",
    "Pinball",
    "Poisson",
    "Squared",
]
