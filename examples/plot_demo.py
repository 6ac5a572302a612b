"""
The noisy circle
================

Fit a network with a one-dimensional latent space to points around a circle and draw its exact
density: no encoder, no sampling, no learning rate.  Run it from a clone with ``make demo``.
"""

import matplotlib.pyplot as plt
import numpy as np

from skdgn import PiecewiseAffineDGN
from skdgn.datasets import make_noisy_circle

X = make_noisy_circle(1000, noise=0.05, random_state=0)
X_test = make_noisy_circle(4000, noise=0.05, random_state=1)
model = PiecewiseAffineDGN(hidden_layer_sizes=(32,), random_state=0).fit(X)

print(f"regions of latent space         {model.n_regions_}")
print(f"EM iterations                   {model.n_iter_}")
print(f"mean log density, training rows {model.lower_bound_:.3f}")
print(f"mean log density, test rows     {model.score(X_test):.3f}")

# %%
# The density on a grid, and the curve that the generator draws, one piece per region.

axis = np.linspace(-1.5, 1.5, 241)
grid = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
log_density = model.score_samples(grid).reshape(axis.size, axis.size)

figure, (left, middle, right) = plt.subplots(1, 3, figsize=(13, 4.2), layout="constrained")
left.scatter(*X.T, s=3, color="tab:blue", alpha=0.5)
left.set_title("1,000 rows around a circle")

latent = np.linspace(-4, 4, 2001)[:, None]
curve = model.inverse_transform(latent)
image = middle.pcolormesh(axis, axis, log_density, vmin=-12, vmax=2, cmap="magma")
middle.plot(*curve.T, color="white", linewidth=0.8)
middle.set_title("exact log density, and the generator's curve")
figure.colorbar(image, ax=middle, shrink=0.85)

drawn, regions = model.sample(1000, random_state=0)
right.scatter(*drawn.T, s=3, c=regions, cmap="twilight")
right.set_title(f"1,000 draws, coloured by region ({model.n_regions_} regions)")
for panel in (left, middle, right):
    panel.set_aspect("equal")
    panel.set_xlim(-1.5, 1.5)
    panel.set_ylim(-1.5, 1.5)

figure.savefig("demo.png", dpi=120)
print("saved demo.png")
