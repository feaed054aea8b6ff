"""
A census of the patients to be served
=====================================

A model is trained on the patients of four wards and will serve another hospital, whose wards have other sizes. There
is a census of that hospital: so many patients in each ward. How far should one trust it?
"""

# %%
# Three models: plain, for the mix of the training data; reweighted, as if the census were exact; and robust, for the
# worst of the mixes that the census leaves plausible.

import matplotlib.pyplot as plt
import numpy as np

import counterpoise as cpo

WARDS = np.array(["emergency", "geriatrics", "maternity", "surgery"])
TRAINED, SERVED = np.array([0.55, 0.1, 0.15, 0.2]), np.array([0.2, 0.45, 0.05, 0.3])
EFFECTS = np.array([[1.5, 0.8, 0.0], [-0.5, 1.0, 1.5], [0.5, -1.5, 0.5], [1.2, 0.2, -1.2]])
COLOURS = {"plain": "#c44601", "reweighted": "#e0a458", "robust": "#0b6e4f"}


def patients(ward, rng):
    """Return the findings of patients, and who falls ill, by ward."""
    X = rng.standard_normal((len(ward), 3))
    return X, rng.random(len(ward)) < 1.0 / (1.0 + np.exp(-(X * EFFECTS[ward]).sum(axis=1)))


def model(mix=None, **size):
    """Return an estimator with a mix and a size of its own."""
    return cpo.RobustLogisticRegression(alpha=1e-3, mix=mix, **size)


rng = np.random.default_rng(8)
ward = rng.choice(4, size=3000, p=TRAINED)
X, y = patients(ward, rng)
new = np.repeat(np.arange(4), 5_000)
X_new, y_new = patients(new, rng)
truth = 1.0 / (1.0 + np.exp(-(X_new * EFFECTS[new]).sum(axis=1)))


def log_loss(probability):
    """Return the log-loss of each ward."""
    losses = -np.log(np.where(y_new, probability, 1.0 - probability))
    return np.array([losses[new == k].mean() for k in range(4)])


least = log_loss(truth)


def excess(fitted):
    """Return the excess risk of each ward, above the true probabilities."""
    return log_loss(fitted.predict_proba(X_new)[:, 1]) - least


# %%
# One census, of 40 patients. ``radius=0`` takes its shares for the truth; otherwise the set is as large as 40 draws
# make it.

drawn = rng.multinomial(40, SERVED)
census = dict(zip(WARDS.tolist(), drawn.tolist(), strict=True))
print(census)
fits = {
    "plain": model(radius=0.0),
    "reweighted": model(cpo.Mix(counts=census, radius=0.0)),
    "robust": model(cpo.Mix(counts=census), radius="agrawal", confidence=0.9),
}
for name, one in fits.items():
    found = excess(one.fit(X, y, contexts=WARDS[ward]))
    by_ward = ", ".join(f"{label} {value:.3f}" for label, value in zip(WARDS, found, strict=True))
    print(f"{name:<11} {SERVED @ found:.3f} in the hospital to be served ({by_ward})")

# %%
# One census proves little, so here are thirty of each size. Lines are means and bands hold nine in ten: on the left for
# the true mix of the hospital to be served, on the right for its worst ward.

SIZES, RUNS = [10, 40, 160, 640], 30


def judged(size, seed):
    """Return the excess in the hospital and in its worst ward, reweighted and robust, for one census."""
    drawn = np.random.default_rng([size, seed]).multinomial(size, SERVED)
    counts = dict(zip(WARDS.tolist(), drawn.tolist(), strict=True))
    found = []
    for one in (
        model(cpo.Mix(counts=counts, radius=0.0)),
        model(cpo.Mix(counts=counts), radius="agrawal", confidence=0.9),
    ):
        risks = excess(one.fit(X, y, contexts=WARDS[ward]))
        found.append((SERVED @ risks, risks.max()))
    return found


results = np.array([[judged(size, seed) for seed in range(RUNS)] for size in SIZES])
plain = excess(fits["plain"])

fig, axes = plt.subplots(1, 2, figsize=(9, 3.8), layout="constrained")
for k, (ax, title) in enumerate(zip(axes, ("in the hospital to be served", "in its worst ward"), strict=True)):
    ax.axhline((SERVED @ plain, plain.max())[k], color=COLOURS["plain"], linewidth=2, label="plain")
    for j, name in enumerate(("reweighted", "robust")):
        low, high = np.quantile(results[:, :, j, k], [0.05, 0.95], axis=1)
        ax.fill_between(SIZES, low, high, color=COLOURS[name], alpha=0.2, linewidth=0)
        ax.plot(SIZES, results[:, :, j, k].mean(axis=1), "o-", color=COLOURS[name], linewidth=2, label=name)
    ax.set(xscale="log", xlabel="patients in the census", title=title)
    ax.set_xticks(SIZES, [str(size) for size in SIZES])
    ax.minorticks_off()
    ax.spines[["top", "right"]].set_visible(False)
axes[0].set_ylabel("excess log-loss")
axes[0].legend(frameon=False)

# %%
# Any use of the census beats the plain model on average, even with ten patients. Whether to be robust around it depends
# on what is feared:
#
# - **On average** reweighting is better than robustness up to about 160 patients, and the two agree beyond. A robust
#   model is not made for the mean.
# - **With bad luck** (the upper edge of the bands) a census of ten patients makes the reweighted model worse than the
#   plain one; the robust model hardly moves.
# - **In the worst ward** the robust model is better at every size, by less and less as the census grows.
#
# It does not help if one model is enough for all wards, or if the census was taken where the model will not be used:
# the set is then a confident statement about the wrong population. And a census says how many patients there are in a
# ward, not what they are like; risks are still those of the training data.
