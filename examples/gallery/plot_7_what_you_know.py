"""
What do you know about the mix?
===============================

With three contexts every mix is a point of a triangle. A corner is a mix of one context alone, and the closer a point
is to a corner, the larger the share of that context. What you know about the mix is a set of such points.
"""

# %%
# A hundred days were seen: 50 in summer, 35 in spring or autumn ("mild") and 15 in winter. Each ``Mix`` below is what
# one would pass as ``mix=`` to an estimator. Sizes that follow from counts have a confidence of 95% and
# ``radius="agrawal"``.

import matplotlib.pyplot as plt
import numpy as np

import counterpoise as cpo

SEASONS, DAYS = ["summer", "mild", "winter"], np.array([50, 35, 15])
CORNERS = np.array([[0.0, 0.0], [1.0, 0.0], [0.5, np.sqrt(0.75)]])
GREEN, RED, GREY = "#0b6e4f", "#c44601", "#9aa5a0"


def plausible(mix, draws=None, counts=DAYS):
    """Return the set that a statement stands for."""
    return mix.over(SEASONS, counts, confidence=0.95, radius="agrawal", draws=draws)


def outline(mixes):
    """Return the boundary of a set in the plane: its farthest member in every direction, in order."""
    angles = np.linspace(0.0, 2.0 * np.pi, 1441)
    directions = np.stack([np.cos(angles), np.sin(angles)])
    return mixes.worst_case((CORNERS @ directions).T).distribution @ CORNERS


DATA = cpo.Mix()
CENSUS = {"summer": 24, "mild": 32, "winter": 64}
SHARES = dict(zip(SEASONS, DAYS / DAYS.sum(), strict=True))
CAPS = {season: (0.0, min(share / 0.6, 1.0)) for season, share in SHARES.items()}
WARM = {"summer": "warm", "mild": "warm", "winter": "cold"}

PANELS = [  # what is known, as it is written, the set, whether it begins with what the data say
    ("Only the data", "100 draws", plausible(DATA), False),
    ("Rows that come in groups", "worth 25 draws", plausible(DATA, draws=25), True),
    ("Bounds of a share", "winter 10 to 30%", plausible(cpo.Mix(bounds={"winter": (0.1, 0.3)})), True),
    ("A share that is fixed", "winter 25%", plausible(cpo.Mix(bounds={"winter": 0.25})), True),
    (
        "A limit on a sum",
        "mild + winter at most 55%",
        plausible(cpo.Mix(limits=[({"mild": 1, "winter": 1}, 0.55)])),
        True,
    ),
    ("A census", "120 days elsewhere", plausible(cpo.Mix(counts=CENSUS)), True),
    ("Part of the mix may move", "12%, in total variation", plausible(cpo.Mix(ball="tv", radius=0.12)), False),
    ("The worst 60% of contexts", "a cap: CVaR", plausible(cpo.Mix(bounds=CAPS, ball=None)), False),
    ("Nested contexts", "warm = summer + mild", plausible(cpo.Mix(parents=WARM)), True),
    ("A context without data", "no day of winter was seen", plausible(DATA, counts=np.array([59, 41, 0])), False),
    ("Nothing at all", "every mix", cpo.KLBall(DAYS / 100, np.inf), False),
    ("The mix itself", "one point: ERM", cpo.KLBall(DAYS / 100, 0.0), False),
]

plain = outline(plausible(DATA))
fig, axes = plt.subplots(4, 3, figsize=(9, 11), layout="constrained")
for ax, (title, words, mixes, compared) in zip(axes.flat, PANELS, strict=True):
    for share in (0.25, 0.5, 0.75):  # lines along which one share is constant
        for k in range(3):
            ends = share * CORNERS[k] + (1.0 - share) * np.delete(CORNERS, k, axis=0)
            ax.plot(*ends.T, color="#e3e8e5", linewidth=0.8)
    ax.plot(*CORNERS[[0, 1, 2, 0]].T, color=GREY, linewidth=1.0)
    if compared:
        ax.plot(*plain.T, color=GREY, linestyle=(0, (3, 2)), linewidth=1.2)
    boundary = outline(mixes)
    if mixes.is_point:
        ax.plot(*boundary[0], "o", color=GREEN, alpha=0.4, markersize=12)
    ax.fill(*boundary.T, facecolor=GREEN, alpha=0.25)
    ax.plot(*boundary.T, color=GREEN, linewidth=2.0, solid_capstyle="round")
    seen = np.array([59, 41, 0]) / 100 if title == "A context without data" else DAYS / 100
    ax.plot(*(seen @ CORNERS), "o", color="black", markersize=4.5)
    if title == "A census":
        ax.plot(*(np.array(list(CENSUS.values())) / 120 @ CORNERS), "D", color=RED, markersize=5)
    for season, corner, where in zip(SEASONS, CORNERS, ("top", "top", "bottom"), strict=True):
        ax.annotate(
            season,
            corner,
            (0, -4 if where == "top" else 4),
            textcoords="offset points",
            ha="center",
            va=where,
            color="#5c6661",
            fontsize=9,
        )
    ax.set_title(f"{title}\n", fontsize=11, fontweight="bold")
    ax.text(0.5, 1.0, words, transform=ax.transAxes, ha="center", va="bottom", fontsize=9.5, color="#5c6661")
    ax.set(aspect="equal", xlim=(-0.12, 1.12), ylim=(-0.1, 0.99))
    ax.axis("off")

# %%
# A dot marks the shares of the data, a diamond those of the census; the dashed line is the first set, for comparison.
#
# - **Sizes that follow from counts** (only the data, groups, a census, nested contexts, a context without data) hold
#   the mix from which these counts were drawn with 95% confidence.
# - **What is stated** (bounds, a fixed share, a limit, a part that moves, a cap) is taken on your word. Where it is
#   true, it cuts away mixes that cannot occur, and the coverage of the set it cuts into survives.
# - The cap is the set behind the conditional value at risk: its worst case is the mean over the worst 60% of the mix.
# - With nested contexts the share of a parent, here that of winter against the two warm seasons, is known better than
#   those of the contexts in it. That flattens the top of the set.
#
# The outlines are drawn by asking each set for its farthest member in every direction. A robust fit asks for nothing
# else.
