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

TRUTH, ROWS, SAMPLES = 0.1, 80, 60


def bootstrap(rows, rng, resamples=200):
    """Return the 95% percentile interval of the largest mean of several contexts."""
    drawn = rng.integers(0, ROWS, (resamples, *rows.shape))
    return np.quantile(np.take_along_axis(rows[None], drawn, axis=2).mean(axis=2).max(axis=1), [0.025, 0.975])


def judged(n_contexts, seed):
    """Return both intervals and both estimates of one sample."""
    rng = np.random.default_rng(seed)
    context = np.repeat(np.arange(n_contexts), ROWS)
    own = rng.exponential(size=len(context))  # held-out losses of each context's own model
    shared = own + TRUTH + 0.6 * rng.standard_normal(len(context))  # and of one model for all
    found = cpo.metrics.excess_bounds(shared, own, context)
    resampled = bootstrap((shared - own).reshape(n_contexts, ROWS), rng)
    return [(*resampled, found.by_context["excess"].max()), (found.lower, found.upper, found.estimate)]


METHODS = {"percentile bootstrap": "#c44601", "excess_bounds": "#0b6e4f"}
results = np.array([judged(8, seed) for seed in range(SAMPLES)])

fig, axes = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained", sharey=True)
for k, (ax, (name, colour)) in enumerate(zip(axes, METHODS.items(), strict=True)):
    low, high, estimate = results[:, k].T
    missed = (low > TRUTH) | (high < TRUTH)
    ax.vlines(np.arange(SAMPLES), low, high, color=np.where(missed, colour, "#9aa5a0"))
    ax.plot(estimate, ".", color=colour, markersize=4)
    ax.axhline(TRUTH, color="black", linewidth=1)
    ax.set(title=f"{name}: {np.mean(~missed):.0%} cover", xlabel="sample")
    ax.spines[["top", "right"]].set_visible(False)
axes[0].set_ylabel("largest excess risk of any context")

# %%
# Dots are estimates: the largest mean on the left, which is too high by a constant, and the corrected one on the right.

for k, name in enumerate(METHODS):
    print(f"{name}: on average {results[:, k, 2].mean():.3f}, where {TRUTH} is true")

# %%
# The more contexts, the worse for the bootstrap.

counts = [1, 2, 4, 8, 16, 32]
covered = {name: [] for name in METHODS}
for n_contexts in counts:
    some = np.array([judged(n_contexts, seed) for seed in range(100)])
    for k, name in enumerate(METHODS):
        covered[name].append(np.mean((some[:, k, 0] <= TRUTH) & (some[:, k, 1] >= TRUTH)))

fig, ax = plt.subplots(figsize=(5.5, 3.2), layout="constrained")
for name, colour in METHODS.items():
    ax.plot(counts, covered[name], "o-", color=colour, label=name)
ax.axhline(0.95, color="black", linewidth=1, linestyle="--")
ax.set(xscale="log", xlabel="contexts that tie", ylabel="intervals that cover", ylim=(0, 1.04))
ax.set_xticks(counts, [str(n) for n in counts])
ax.minorticks_off()
ax.legend(frameon=False)
ax.spines[["top", "right"]].set_visible(False)
