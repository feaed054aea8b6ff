"""
Two hospitals, one model
========================

A model is fitted to the patients of two hospitals, one of which supplied nine tenths of them. How well it will do
depends on the mix of patients to come, which nobody knows. Here is what plain averaging does, what the robust model
does, and what the certificate says.
"""

# %%
# The data
# --------
#
# A first measurement means the same in both hospitals; a second one has opposite meanings. The larger hospital is
# also the harder one to predict, which is no model's fault.

import matplotlib.pyplot as plt
import numpy as np

import counterpoise as cpo
from counterpoise.reports.methods import COLOURS

rng = np.random.default_rng(0)
n = 2000
hospital = rng.choice(["north", "south"], size=n, p=[0.9, 0.1])
X = rng.standard_normal((n, 2))
logit = 1.5 * X[:, 0] + np.where(hospital == "north", 0.6, -2.0) * X[:, 1]
ill = rng.random(n) < 1.0 / (1.0 + np.exp(-logit))

# %%
# Two fits
# --------
#
# A radius of zero trusts the shares that were seen: empirical risk minimisation (ERM). The robust model takes into
# account that the mix may have been another. A study of 2,000 patients who came in 40 groups is 40 draws of a
# hospital, not 2,000; ``draws`` says so.

switches = {"confidence": 0.99, "radius": "agrawal", "draws": 40}
robust = cpo.RobustLogisticRegression(**switches).fit(X, ill, contexts=hospital)
erm = cpo.RobustLogisticRegression(radius=0).fit(X, ill, contexts=hospital)

for name, model in {"ERM": erm, "robust": robust}.items():
    excess = ", ".join(f"{c} {e:.3f}" for c, e in zip(model.contexts_, model.excess_risks_, strict=True))
    print(f"{name:<8} coefficients {model.coef_.round(2)}, excess risk: {excess}")

# %%
# Excess risk is what a hospital loses against a model of its own. The robust model gives up a little in the north for
# a larger gain in the south.

fig, ax = plt.subplots(figsize=(6, 3.2), layout="constrained")
place = np.arange(2)
for k, (name, model) in enumerate({"erm": erm, "robust": robust}.items()):
    ax.bar(place + 0.36 * k - 0.18, model.excess_risks_, 0.34, color=COLOURS[name], label=name)
ax.set_xticks(place, [f"{c} ({k} patients)" for c, k in zip(robust.contexts_, robust.context_counts_, strict=True)])
ax.set_ylabel("excess risk, nats")
ax.legend(frameon=False)
ax.spines[["top", "right"]].set_visible(False)

# %%
# What it guards against
# ----------------------
#
# The weights are the least favourable mix that the data leave plausible. The model is the best possible one for
# exactly this mix.

for c, seen, guarded in zip(robust.contexts_, robust.context_counts_ / n, robust.context_weights_, strict=True):
    print(f"{c}: {seen:.0%} of the patients seen, {guarded:.0%} of those guarded against")
print(f"size of the set: {robust.radius_:.3f} bits")

# %%
# The certificate
# ---------------
#
# No coefficients at all have a worst-case excess risk below ``lower``; these have ``upper``. It is a proof about the
# fit to these rows, not about rows to come.

certificate = robust.certificate_
print(f"{certificate.lower:.9f} <= optimum <= {certificate.upper:.9f}, gap {certificate.gap:.0e}")

# %%
# To predict, nobody has to know the hospital.

print(robust.predict_proba(X[:3]).round(3))
