"""
Explaining why a sample is an outlier
=====================================

In a table of wines, one wine has a wrong value: other wines have this value, but not those that
are similar in all other features.  The score shows that the wine is an outlier, a p-value how
unusual it is, and the contributions of the features why.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_wine

from skdgn import DGNOutlierDetector, OutlierDisplay, PiecewiseAffineDGN

wine = load_wine(as_frame=True)
columns = ["alcohol", "malic_acid", "ash", "alcalinity_of_ash", "magnesium", "total_phenols"]
columns += ["flavanoids", "color_intensity", "hue", "proline"]
table = wine.data[columns]
rng = np.random.default_rng(0)
order = rng.permutation(len(table))
train, new = table.iloc[order[:140]], table.iloc[order[140:]].copy()

network = PiecewiseAffineDGN(2, hidden_layer_sizes=(4,), tol=1e-2)
detector = DGNOutlierDetector(network, random_state=0).fit(train)

# %%
# One of the new wines is given the flavanoids of another, a value that is ordinary on its own.

odd = new.iloc[[0]].copy()
before, after = odd["flavanoids"].iloc[0], train["flavanoids"].quantile(0.95)
odd["flavanoids"] = after
print(f"flavanoids {before:.2f} -> {after:.2f}; in training up to {train['flavanoids'].max():.2f}")
print(f"p-value before {detector.p_values(new.iloc[[0]])[0]:.3f}, after", end=" ")
print(f"{detector.p_values(odd)[0]:.3f}")

# Features have different units: contributions are compared in standard deviations of each.
contributions = detector.explain(odd, standardize=True)[0]
surprise = detector.explain(odd, method="leave_one_out", standardize=True)[0]
for place in np.argsort(-contributions)[:4]:
    print(f"{columns[place]:20s} contributes {contributions[place]:6.2f} nats,", end=" ")
    print(f"{surprise[place]:6.2f} given all others")
total = -detector.score_samples(odd)[0]
print(f"without that they add up to {detector.explain(odd).sum():.6f}: -log p(x) is {total:.6f}")

# %%
# The display shows each value and the density of its feature given all others.

display = OutlierDisplay.from_estimator(detector, odd.to_numpy()[0], n_panels=8)
display.figure_.savefig("why_odd.png", dpi=120)
print("saved why_odd.png")
plt.show()
