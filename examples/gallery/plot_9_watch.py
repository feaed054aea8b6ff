"""
A year of daily looks
=====================

A model of demand at four sites is in use for a year. In July one of the sites grows beyond anything the model was made
for. A watch finds that; a daily test at 5% has cried wolf since January.
"""

# %%
# The shares of the sites move between weekdays and weekends all year. That is within the set of mixes that the model
# was made for, so it is no reason for an alarm. From July on, the harbour has twice its share.

import matplotlib.pyplot as plt
import numpy as np
from scipy import stats

import counterpoise as cpo

SITES = np.array(["city", "coast", "hills", "harbour"])
WEEKDAY, WEEKEND = np.array([0.45, 0.25, 0.2, 0.1]), np.array([0.4, 0.31, 0.2, 0.09])
LATE = np.array([0.4, 0.22, 0.18, 0.2])
RED, GREEN, GREY = "#c44601", "#0b6e4f", "#9aa5a0"
COLOURS = ["#4c9f70", "#0b6e4f", "#e0a030", RED]

rng = np.random.default_rng(7)
fit = rng.choice(SITES, 3000, p=(5 * WEEKDAY + 2 * WEEKEND) / 7)
counts = np.array([np.count_nonzero(fit == site) for site in SITES])
mixes = cpo.KLBall(counts / counts.sum(), cpo.confidence_radius(counts, 0.99))
print(f"The set reaches {mixes.radius:.4f} bits; weekends are {mixes.divergence(WEEKEND):.4f} bits away, ", end="")
print(f"the mix from July on {mixes.divergence(LATE):.4f}.")

# %%
# Forty rows a day. The watch looks every day, and so does a chi-squared test of the day's rows against those of the
# fit.

DAYS = np.arange(np.datetime64("2024-01-01"), np.datetime64("2025-01-01"))
CHANGE = int(np.flatnonzero(np.datetime64("2024-07-01") == DAYS)[0])


def year(change, rng):
    """Return the sites of the rows of every day; the mix changes on one of them."""
    usual = [WEEKDAY if np.is_busday(day) else WEEKEND for day in DAYS]
    return [rng.choice(SITES, 40, p=LATE if k >= change else usual[k]) for k in range(len(DAYS))]


watch = cpo.Watch(mixes, contexts=SITES)
evidence, found, p_values, shares = [], None, [], []
for day, rows in zip(DAYS, year(CHANGE, rng), strict=True):
    watch.update(rows, time=day)
    evidence.append(watch.e_value)
    found = day if watch.alarm and found is None else found
    now = np.array([np.count_nonzero(rows == site) for site in SITES])
    shares.append(now / now.sum())
    p_values.append(stats.chisquare(now, now.sum() * mixes.p_hat).pvalue)

print(f"Alarm on {found}; the change seems to have come on {watch.since}.")
print(f"The daily test: {np.sum(np.array(p_values[:CHANGE]) < 0.05)} alarms before July, the first on", end=" ")
print(DAYS[np.flatnonzero(np.array(p_values) < 0.05)[0]])

# %%
# Weekly shares with the range that each has in the set as a band, and the evidence on a logarithmic scale. It stays
# below 1 while nothing happens, then rises in a straight line.

fig, (above, below) = plt.subplots(2, 1, figsize=(9, 6), layout="constrained", sharex=True)
weeks = np.array(shares)[:364].reshape(52, 7, -1).mean(axis=1)
for k, (site, colour) in enumerate(zip(SITES, COLOURS, strict=True)):
    above.axhspan(*mixes.interval(k), color=colour, alpha=0.15, linewidth=0)
    above.plot(DAYS[3:364:7], weeks[:, k], color=colour, label=site)
above.set(ylabel="share of rows", ylim=(0, 0.6))
above.legend(frameon=False, ncols=4, loc="upper left")
below.semilogy(DAYS, evidence, color=GREEN)
below.axhline(watch.threshold, color="black", linewidth=1, linestyle="--")
below.annotate("alarm", (DAYS[2], watch.threshold * 1.3))
below.plot(
    DAYS[np.array(p_values) < 0.05], np.full(np.sum(np.array(p_values) < 0.05), 0.02), "|", color=RED, markersize=9
)
below.annotate("alarms of the daily test", (DAYS[2], 0.04), color=RED)
below.set(ylabel="evidence", ylim=(0.01, 1e6))
for ax in (above, below):
    ax.axvline(DAYS[CHANGE], color=GREY, linewidth=1)
    ax.spines[["top", "right"]].set_visible(False)

# %%
# The watch is allowed one false alarm in twenty such years, however often one looks. Ten years without change:

alarms = []
for k in range(10):
    calm = cpo.Watch(mixes, contexts=SITES)
    for rows in year(len(DAYS), np.random.default_rng(k)):
        calm.update(rows)
    alarms.append(calm.alarm)
print(f"{sum(alarms)} of {len(alarms)} years without change have an alarm.")

# %%
# What to do about it:

print(watch.advice.sentence)
