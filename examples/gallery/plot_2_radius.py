"""
How large should the set be?
============================

The set of plausible mixes follows from a confidence level. Four radii promise the same level and differ in size,
here drawn against the number of draws and against the number of contexts.
"""

# %%
# Four radii
# ----------
#
# ``"types"`` is the paper's, by the method of types; ``"agrawal"`` is a sharper bound with the same guarantee;
# ``"calibrated"`` is computed instead of bounded, as large as the worst mix needs, and covers at every mix too;
# ``"chi2"`` is right in the limit of many draws, and too small where they are few. The dots are simulated: the 99%
# quantile of the divergence itself for contexts that are equally likely. A radius below them does not cover.

import warnings

import matplotlib.pyplot as plt
import numpy as np

from counterpoise import KLBall, confidence_radius
from counterpoise.exceptions import CoverageWarning

COLOURS = {"types": "#0b6e4f", "agrawal": "#4c9f70", "calibrated": "#c44601", "chi2": "#93c47d"}
LABELS = {"types": "types (the paper)", "agrawal": "agrawal", "calibrated": "calibrated", "chi2": "chi2 (a limit)"}
CONFIDENCE = 0.99


def radius(n_contexts, draws, method):
    """Return the radius in bits; that chi2 is too small for few draws is what the picture shows."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CoverageWarning)
        return confidence_radius(np.ones(n_contexts), CONFIDENCE, method, draws=draws)


def quantile(n_contexts, draws, rng, runs=20_000):
    """Return the simulated quantile of the divergence in bits, for contexts that are equally likely."""
    shares = rng.multinomial(draws, np.full(n_contexts, 1.0 / n_contexts), size=runs) / draws
    terms = shares * np.log2(np.where(shares > 0, shares * n_contexts, 1.0))
    return np.quantile(terms.sum(axis=1), CONFIDENCE)


rng = np.random.default_rng(0)
fig, (left, right) = plt.subplots(1, 2, figsize=(9, 3.8), layout="constrained", sharey=True)

draws = np.geomspace(20, 20_000, 40)
contexts = np.unique(np.geomspace(2, 200, 30).astype(int))
for method, colour in COLOURS.items():
    left.plot(draws, [radius(10, n, method) for n in draws], color=colour, label=LABELS[method])
    right.plot(contexts, [radius(c, 1000, method) for c in contexts], color=colour)
some_draws, some_contexts = [20, 100, 500, 2500, 12_500], [2, 5, 20, 60, 200]
left.plot(some_draws, [quantile(10, n, rng) for n in some_draws], "k.", label="simulated 99% quantile")
right.plot(some_contexts, [quantile(c, 1000, rng) for c in some_contexts], "k.")

left.set(xscale="log", yscale="log", xlabel="draws, with 10 contexts", ylabel="radius, bits")
right.set(xscale="log", xlabel="contexts, with 1,000 draws")
left.legend(frameon=False)
for ax in (left, right):
    ax.grid(alpha=0.3)
    ax.spines[["top", "right"]].set_visible(False)

# %%
# What a radius means
# -------------------
#
# A number of bits says little by itself. What it means for a context is an interval for its share, here for a context
# that was seen in 5 of 100 draws.

counts = np.array([95, 5])
for method in COLOURS:
    ball = KLBall(counts / 100, confidence_radius(counts, CONFIDENCE, method))
    low, high = ball.interval(1)
    print(f"{method:<10} {ball.radius:.3f} bits: between {low:.1%} and {high:.1%} of what is to come")

# %%
# The level hardly matters to the paper's radius, since most of it pays for the number of possible counts; to the
# others it does.

fig, ax = plt.subplots(figsize=(5.5, 3.4), layout="constrained")
levels = np.concatenate([np.linspace(0.0, 0.9, 19), 1.0 - np.geomspace(0.1, 1e-4, 20)])
for method, colour in COLOURS.items():
    bits = [confidence_radius(np.full(10, 40), level, method) for level in levels]
    ax.plot(-np.log10(1.0 - levels), bits, color=colour, label=LABELS[method])
ax.set_xticks([0, 1, 2, 3, 4], ["0", "0.9", "0.99", "0.999", "0.9999"])
ax.set(xlabel="confidence, with 10 contexts and 400 draws", ylabel="radius, bits", ylim=(0, None))
ax.legend(frameon=False)
ax.spines[["top", "right"]].set_visible(False)
