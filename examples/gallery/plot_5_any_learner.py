"""
Any learner
===========

A forest knows nothing of contexts, but it takes weights of rows. ``ContextRobust`` finds the weights of contexts
under which it does best in the worst plausible mix, judged by rows held out, and ends with one forest.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.ensemble import RandomForestClassifier

import counterpoise as cpo
from counterpoise.metrics import by_context, reference_risks
from counterpoise.reports.methods import COLOURS

rng = np.random.default_rng(0)


def patients(n, shares):
    """Draw features, illness and device; the third feature is read the wrong way round by device B."""
    device = rng.choice(["A", "B"], size=n, p=shares)
    X = rng.standard_normal((n, 3))
    third = np.where(device == "A", X[:, 2], -X[:, 2])
    return X, X[:, 0] * X[:, 1] + 1.5 * third + 0.5 * rng.standard_normal(n) > 0, device


X, y, device = patients(1500, [0.85, 0.15])
X_new, y_new, device_new = patients(3000, [0.5, 0.5])

forest = RandomForestClassifier(40, min_samples_leaf=10, random_state=0)
robust = cpo.ContextRobust(forest, radius=0.2, cv=3).fit(X, y, contexts=device)
plain = forest.fit(X, y)

print(robust.history_)

# %%
# On new rows, against the risk that a forest for the device alone would have:

references = reference_risks(forest, X, y, device)
fig, ax = plt.subplots(figsize=(6, 3.2), layout="constrained")
for k, (name, model) in enumerate({"erm": plain, "robust": robust}.items()):
    table = by_context(model, X_new, y_new, device_new, reference=references, loss="log_loss")
    print(name)
    print(table)
    ax.bar(np.arange(2) + 0.36 * k - 0.18, table["excess"], 0.34, color=COLOURS[name], label=name)
ax.set_xticks([0, 1], ["device A", "device B"])
ax.set_ylabel("excess risk on new rows, nats")
ax.legend(frameon=False)
ax.spines[["top", "right"]].set_visible(False)

# %%
# The gap of the game is as good as the forest is at minimising its own risk: a diagnostic, not a proof.

for c, weight in zip(robust.contexts_, robust.context_weights_, strict=True):
    print(f"device {c}: weight {weight:.2f}")
