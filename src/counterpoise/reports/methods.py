"""How methods are named and coloured, the same everywhere."""

from __future__ import annotations

COLOURS = {
    "robust": "#0b6e4f",
    "erm": "#c8553d",
    "minimax-risk": "#5b5ea6",
    "minimax-regret": "#2a9d8f",
    "inverse-frequency": "#b8860b",
    "group-dro": "#8d5b4c",
    "robust-agrawal": "#4c9f70",
    "robust-chi2": "#93c47d",
    "interior-point": "#0b6e4f",
    "algorithm-1": "#555555",
}
"""A method keeps its colour in every figure."""

WORDS = {
    "robust": "robust",
    "erm": "average (ERM)",
    "inverse-frequency": "equal weights",
    "minimax-risk": "worst case",
    "minimax-regret": "least regret",
}
"""A method in the words of someone who has not read the paper."""

MODELS = {
    "robust": "the robust model",
    "erm": "the plain model",
    "inverse-frequency": "the model with inverse-frequency weights",
    "minimax-risk": "the minimax-risk model",
    "minimax-regret": "the minimax-regret model",
}
"""The model of a method, of which one is kept."""
