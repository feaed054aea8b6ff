"""
The largest of several noisy numbers
====================================

The contexts of a robust model tie: its optimum makes their excess risks equal. The largest of several estimates is then
too large, and so is the usual bootstrap of it. ``excess_bounds`` allows for every context that might be the worst.
"""

# %%
# Sixty samples of eight contexts, 80 rows each, in which the true excess risk is 0.1 everywhere. The percentile
# bootstrap of the largest mean lies above the truth in nearly every one; the bounds do not.

import matplotlib.pyplot as plt
import numpy as np

import counterpoise as cpo

TRUTH, CONTEXTS, ROWS, SAMPLES = 0.1, 8, 80, 60
context = np.repeat(np.arange(CONTEXTS), ROWS)


def bootstrap(rows, rng, resamples=300):
    """Return the 95% percentile interval of the largest mean."""
    by_context = rows.reshape(CONTEXTS, ROWS)
    drawn = rng.integers(0, ROWS, (resamples, CONTEXTS, ROWS))
    means = np.take_along_axis(by_context[None], drawn, axis=2).mean(axis=2)
    return np.quantile(means.max(axis=1), [0.025, 0.975])


intervals = {"percentile bootstrap": [], "excess_bounds": []}
centres = {"percentile bootstrap": [], "excess_bounds": []}
for seed in range(SAMPLES):
    rng = np.random.default_rng(seed)
    own = rng.exponential(size=len(context))  # held-out losses of each context's own model
    shared = own + TRUTH + 0.6 * rng.standard_normal(len(context))  # and of one model for all
    found = cpo.metrics.excess_bounds(shared, own, context)
    intervals["excess_bounds"].append((found.lower, found.upper))
    centres["excess_bounds"].append(found.estimate)
    intervals["percentile bootstrap"].append(bootstrap(shared - own, rng))
    centres["percentile bootstrap"].append(found.by_context["excess"].max())

fig, axes = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained", sharey=True)
for ax, (name, ends), colour in zip(axes, intervals.items(), ("#c8553d", "#0b6e4f"), strict=True):
    low, high = np.array(ends).T
    missed = (low > TRUTH) | (high < TRUTH)
    ax.vlines(np.arange(SAMPLES), low, high, color=np.where(missed, colour, "#9aa5a0"))
    ax.plot(centres[name], ".", color=colour, markersize=4)
    ax.axhline(TRUTH, color="black", linewidth=1)
    ax.set(title=f"{name}: {np.mean(~missed):.0%} cover", xlabel="sample")
    ax.spines[["top", "right"]].set_visible(False)
axes[0].set_ylabel("largest excess risk of any context")

# %%
# Dots are estimates: the largest mean on the left, which is too high by a constant, and the corrected one on the right.

for name, values in centres.items():
    print(f"{name}: on average {np.mean(values):.3f}, where {TRUTH} is true")
