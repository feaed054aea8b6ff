"""
What robustness costs: the path
===============================

All levels of robustness, from empirical risk minimisation to minimax regret, for the price of a few fits. The picture
shows what is paid on average and what is gained in the worst case.
"""

import matplotlib.pyplot as plt
import numpy as np

import counterpoise as cpo
from counterpoise.reports.plots import plot_path, plot_weights

rng = np.random.default_rng(1)
n = 3000
site = rng.choice(["east", "north", "south"], size=n, p=[0.75, 0.15, 0.10])
X = rng.standard_normal((n, 3))
slope = np.select([site == "east", site == "north"], [1.0, 0.3], -0.6)
y = 0.8 * X[:, 0] + slope * X[:, 1] + rng.standard_normal(n)

model = cpo.RobustLinearRegression(draws=300)
path = cpo.confidence_path(model, X, y, contexts=site)

fig, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
plot_path(path, left)
plot_weights(path, right)

# %%
# Every level is a fitted model, and every one has its certificate.

for k in range(0, len(path["radius"]), 12):
    fitted = path.models[k]
    print(
        f"{path['radius'][k]:8.4f} bits: worst excess {path['worst_excess'][k]:.4f}, "
        f"mean risk {path['nominal_risk'][k]:.4f}, coefficients {np.round(fitted.coef_, 2)}"
    )
