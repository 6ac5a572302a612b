"""
The noisy circle
================

A network with a one-dimensional latent space is fitted to points around a circle.  Its density is
exact: no encoder, no sampling, no learning rate.  Run it from a clone with ``make demo``.
"""

import matplotlib.pyplot as plt
import numpy as np

from skdgn import PiecewiseAffineDGN
from skdgn.datasets import make_noisy_circle

X = make_noisy_circle(1000, noise=0.05, random_state=0)
X_test = make_noisy_circle(4000, noise=0.05, random_state=1)
model = PiecewiseAffineDGN(hidden_layer_sizes=(12,), random_state=0).fit(X)

print(f"regions of latent space            {model.n_regions_}")
print(f"EM iterations                      {model.n_iter_}")
print(f"mean log density, training samples {model.lower_bound_:.3f}")
print(f"mean log density, new samples      {model.score(X_test):.3f}")

# %%
# The generator draws a curve with one straight piece per region of latent space.  The density on
# the grid is this curve, blurred by the noise, and it is exact even far away.

latent = np.linspace(-3.5, 3.5, 1401)[:, None]
curve = model.inverse_transform(latent)
corners = model.inverse_transform(np.sort(model.partition_.cells.lower[1:])[:, None])
axis = np.linspace(-1.6, 1.6, 201)
grid = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
log_density = model.score_samples(grid).reshape(axis.size, axis.size)

# %%
# The posterior describes which latent points explain a sample: there may be one, two, or many.
# Here the second feature of the second sample is missing, and the third sample is the center of the
# circle.

rows = np.array([[0.6, 0.8], [0.6, np.nan], [0.0, 0.0]])
labels = ("x = (0.6, 0.8)", "x = (0.6, missing)", "x = (0, 0)")
colors = ("tab:blue", "tab:orange", "tab:green")
posterior_densities = np.exp(model.posterior(rows).log_density(latent))

# %%
# Finally, all results are plotted.  The color along the curve is the latent variable.

figure, (left, middle, right) = plt.subplots(1, 3, figsize=(13, 4.4), layout="constrained")
left.scatter(*X.T, s=4, color="0.7")
left.scatter(*curve.T, s=4, c=latent[:, 0])
left.plot(*corners.T, "o", color="black", markersize=3)
left.set_title("1,000 samples, the generator's curve, its corners")

levels = [-400, -200, -100, -50, -20, -10, -5, -2, -1, 0, 1, 2]
filled = middle.contourf(axis, axis, log_density, levels, cmap="magma", norm="symlog", extend="min")
figure.colorbar(filled, ax=middle, ticks=levels, shrink=0.9)
middle.set_title("exact log density")

for row, label, color, density in zip(rows, labels, colors, posterior_densities, strict=True):
    right.fill_between(latent[:, 0], density, color=color, alpha=0.25)
    right.plot(latent[:, 0], density, color=color, linewidth=1.2, label=label)
    if np.isnan(row[1]):
        left.axvline(row[0], color=color, linewidth=1.5, linestyle="--")
    else:
        left.plot(*row, marker="*", color=color, markersize=14, markeredgecolor="white")
right.scatter(latent[:, 0], np.full(latent.size, 1e-2), c=latent[:, 0], s=30, marker="s", zorder=3)
right.set_xlabel("z, in the colors of the curve on the left")
right.set_yscale("log")
right.set_ylim(1e-2, 200)
right.set_title("exact posterior density p(z | x)")
right.legend(loc="upper right")

for panel in (left, middle):
    panel.set_aspect("equal")
    panel.set_xlim(-1.6, 1.6)
    panel.set_ylim(-1.6, 1.6)

figure.savefig("demo.png", dpi=120)
print("saved demo.png")
