"""
How much to order
=================

Bread is bought in the morning, and what the weather will be is not known then. Ninety days have been seen, most of
them fair.
"""

from textwrap import fill

import matplotlib.pyplot as plt
import numpy as np

import counterpoise as cpo
from counterpoise.reports.plots import plot_levels, plot_stock

rng = np.random.default_rng(5)
weather = rng.choice(["fair", "rain", "storm"], size=90, p=[0.75, 0.17, 0.08])
usual = np.select([weather == "fair", weather == "rain"], [60.0, 38.0], 15.0)
demand = np.maximum(np.round(usual + 6.0 * rng.standard_normal(90)), 0.0)

plan = cpo.plan_stock(
    demand,
    cost=7.0,
    price=12.0,
    contexts=weather,
    radius="agrawal",
    integer=True,
    currency="EUR",
    period="day",
)
print(fill(plan.summary, 100))

# %%
# What other rules would order, and what each costs on average and in the worst weather:

print(plan.choices)

# %%
# The reasons: the best order of each weather, the weight that the weather has in the least favourable mix, and what
# the order loses there.

print(plan.reasons)

# %%
# On the left the excess cost of every order in every weather, on the right the order as the set of plausible mixes
# grows.

product = plan.plans[0]
fig, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
plot_stock(product, left)
plot_levels(product.path(), right)
