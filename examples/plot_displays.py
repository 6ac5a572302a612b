"""
The model in pictures
=====================

The displays of ``skdgn`` show the parts of a deep generative network with piecewise-affine
activations: cells of latent space, straight pieces of a curve or flat facets of a surface, noise,
density, and posterior.  The user guide explains the same pictures in more detail.
"""

import matplotlib.pyplot as plt
import numpy as np
from mpl_toolkits.mplot3d.art3d import Poly3DCollection

from skdgn import (
    DensityDisplay,
    LatentPartitionDisplay,
    LikelihoodCurveDisplay,
    PiecewiseAffineDGN,
    PosteriorDisplay,
)
from skdgn.datasets import make_wave

# %%
# A network with one latent dimension, fitted to samples along a wave.  The likelihood never
# decreases, wherever the fit starts; the default start is already close to the end.  Held-out
# samples show whether more units are better.

X, X_new = make_wave(300, noise=0.15, random_state=0), make_wave(300, noise=0.15, random_state=1)
fits = {
    f"{n_units} hidden units, {start} start": PiecewiseAffineDGN(
        hidden_layer_sizes=(n_units,), init_params=start, tol=1e-3, random_state=0
    ).fit(X)
    for n_units, start in ((2, "random"), (6, "random"), (6, "auto"))
}
LikelihoodCurveDisplay.from_estimator(fits, X_new)
plt.title("fits, iteration by iteration")
model = fits["6 hidden units, auto start"]

# %%
# **Cells.**  A hidden unit changes its behavior at one point of the latent line, its boundary.
# Between two boundaries the network is an affine function, so it draws a curve with one straight
# piece for each cell.  Colors are prior masses: the probabilities that a sample comes from each
# cell.

figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
cells = LatentPartitionDisplay.from_estimator(model, ax=left, cmap="viridis")
left.set_title("cells of the latent line, and the prior")
right.scatter(*X.T, s=6, color="0.8")
for ends, color in zip(cells.corners, cells.cells_.to_rgba(cells.values), strict=True):
    right.plot(*model.inverse_transform(ends).T, color=color, linewidth=4, solid_capstyle="butt")
right.set(title="what the network makes of them", xlabel="feature 0", ylabel="feature 1")
limits = right.get_xlim(), right.get_ylim()

# %%
# **Density.**  For samples that come from one cell, the latent variable is a Gaussian truncated at
# the boundaries of the cell; an affine map is applied to it, and Gaussian noise is added.  Their
# density is a Gaussian times the mass of another Gaussian between the boundaries: two factors in
# closed form.  The density of the model is the sum over all cells.

axes = [np.linspace(*limit, 150) for limit in limits]
grid = np.stack(np.meshgrid(*axes), axis=-1).reshape(-1, 2)
density = np.exp(model.score_samples(grid))
share = model.predict_proba(grid)
heaviest = np.argsort(model.weights_)[-2:]
figure, panels = plt.subplots(1, 3, figsize=(13, 4), layout="constrained", sharey=True)
for panel, part, title in (
    (panels[0], share[:, heaviest[0]], "from one cell"),
    (panels[1], share[:, heaviest[1]], "from another"),
    (panels[2], share.sum(axis=1), f"from all {model.n_regions_} of them: the density"),
):
    values = (density * part).reshape(150, 150)
    image = panel.pcolormesh(*axes, values, vmin=0.0, vmax=density.max(), shading="gouraud")
    panel.set(title=title, xlabel="feature 0")
panels[0].set_ylabel("feature 1")
figure.colorbar(image, ax=panels, label="density")
steps = np.prod([axis[1] - axis[0] for axis in axes])
print(f"sum over the pixels of the last picture: {density.sum() * steps:.3f}")

# %%
# The display draws the density of any two features, or of one; all others are integrated out.

figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
DensityDisplay.from_estimator(model, X, ax=left)
left.set_title("exact log density of both features, and the samples")
DensityDisplay.from_estimator(model, X, features=1, ax=right)
right.set_title("exact density of one, and a histogram of the samples")

# %%
# **Posterior.**  The posterior describes which latent points explain a sample.  In every cell it is
# a piece of a Gaussian, and the pieces meet at the boundaries.  If a value is missing, it may have
# several modes.

figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4), layout="constrained", sharex=True)
window = (-3.0, 3.0)
PosteriorDisplay.from_estimator(model, [[0.6, 0.8]], window=window, ax=left)
left.set_title("posterior of the sample (0.6, 0.8)")
PosteriorDisplay.from_estimator(model, [[np.nan, 0.5]], window=window, ax=right)
right.set_title("posterior of the sample (missing, 0.5)")

# %%
# **Two latent dimensions.**  With two latent dimensions, cells are polygons, many of them
# unbounded, and the network maps the latent plane to a surface with one flat facet for each cell.
# The weights of this network were chosen by hand: two units whose boundaries are far away pass the
# latent variables on, and five others fold the surface into a roof.

angles = np.array([0.2, 0.9, 1.5, 2.1, 2.8])
folds = np.stack([np.cos(angles), np.sin(angles)], axis=1)
falls = [-0.5, -0.3, -0.4, -0.3, -0.4]
roof = PiecewiseAffineDGN.from_network(
    coefs=[
        np.concatenate([np.eye(2), folds]),
        [[1, 0] + 5 * [0], [0, 1] + 5 * [0], [0, 0, *falls]],
    ],
    intercepts=[[9.0, 9.0, 0.5, -0.5, 0.5, 0.7, -0.6], [-9.0, -9.0, 0.0]],
    noise_covariance=0.03,
    activation="abs",
)
figure = plt.figure(figsize=(11, 4.6), layout="constrained")
left, right = figure.add_subplot(121), figure.add_subplot(122, projection="3d")
window = (-2.5, 2.5)
cells = LatentPartitionDisplay.from_estimator(roof, window=window, cmap="viridis", ax=left)
left.set_title("cells of the latent plane")
facets = [roof.inverse_transform(corners) for corners in cells.corners]
colors = cells.cells_.to_rgba(cells.values)
right.add_collection3d(Poly3DCollection(facets, facecolor=colors, edgecolor="white", linewidth=0.5))
right.set(xlim=window, ylim=window, zlim=(-5.5, -0.5), title="their images: facets of a sheet")
right.set(xlabel="feature 0", ylabel="feature 1", zlabel="feature 2")

# %%
# Density and posterior are as exact as before.  Integrals over polygons are harder than those over
# intervals, but none of them is sampled.  The second feature of the sample is missing: two latent
# points, on either side of the ridge, explain the other two features.  The mean lies between them,
# and does not explain the sample.

row = np.array([[0.3, np.nan, -2.0]])
figure, panels = plt.subplots(1, 3, figsize=(15, 4.2), layout="constrained")
DensityDisplay.from_estimator(roof, row, features=(0, 2), ax=panels[0], data_kwargs={"s": 40})
panels[0].set_title("log density of two features, and a sample")
LatentPartitionDisplay.from_estimator(roof, row, window=window, ax=panels[1])
panels[1].set_title("the cells that explain the sample")
PosteriorDisplay.from_estimator(roof, row, window=window, ax=panels[2])
panels[2].set_title("its posterior")

# sphinx_gallery_thumbnail_number = 6
