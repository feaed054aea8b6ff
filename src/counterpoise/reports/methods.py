"""How methods are named and coloured, the same everywhere."""

from __future__ import annotations

COLOURS = {
    "robust": "#0b6e4f",
    "erm": "#c44601",
    "inverse-frequency": "#000000",
    "minimax-risk": "#5928ed",
    "minimax-regret": "#aa4499",
    "group-dro": "#8d5b4c",
    "robust-agrawal": "#4c9f70",
    "robust-chi2": "#93c47d",
    "interior-point": "#0b6e4f",
    "algorithm-1": "#555555",
}
"""A method keeps its colour in every figure.

The first five are at least 30 apart in CIELAB for every kind of colour vision, and can be read on white as text.
"""

WORDS = {name: name for name in ("robust", "erm", "inverse-frequency", "minimax-risk", "minimax-regret")}
"""A method in tables, legends and labels: by the name that Python and the command know it by."""

MODELS = {
    "robust": "the robust model",
    "erm": "the plain model",
    "inverse-frequency": "the model with inverse-frequency weights",
    "minimax-risk": "the minimax-risk model",
    "minimax-regret": "the minimax-regret model",
}
"""The model of a method in a sentence."""
