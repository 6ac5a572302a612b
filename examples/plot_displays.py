"""
The model in pictures
=====================

What a deep generative network with piecewise-affine activations is made of, drawn with the displays
of ``skdgn``: cells of latent space, straight pieces of a curve or flat facets of a sheet, noise,
density, posterior.  The user guide explains the same pictures in more words.
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
# decreases on the way, wherever the fit starts; the default start is close to the end already.  New
# samples tell whether more units are better.

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
# Between two boundaries the network is an affine function: it draws a curve with one straight
# piece for each cell.  Colors are prior masses: how often a sample comes from the cell.

figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
cells = LatentPartitionDisplay.from_estimator(model, ax=left, cmap="viridis")
left.set_title("cells of the latent line, and the prior")
right.scatter(*X.T, s=6, color="0.8")
for ends, color in zip(cells.corners, cells.cells_.to_rgba(cells.values), strict=True):
    right.plot(*model.inverse_transform(ends).T, color=color, linewidth=4, solid_capstyle="butt")
right.set(title="what the network makes of them", xlabel="feature 0", ylabel="feature 1")
limits = right.get_xlim(), right.get_ylim()

# %%
# **Density.**  Samples that come from one cell have a Gaussian latent variable, cut off at the
# cell's boundaries, sent through an affine map, plus Gaussian noise.  Their density is a Gaussian
# times the mass of another one between the boundaries: two factors in closed form.  All cells
# together add up to the density of the model, and nothing is left out.

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
# The displays draw it for any two features, or for one; all others are integrated out.

figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
DensityDisplay.from_estimator(model, X, ax=left)
left.set_title("exact log density of both features, and the samples")
DensityDisplay.from_estimator(model, X, features=1, ax=right)
right.set_title("exact density of one, and a histogram of the samples")

# %%
# **Posterior.**  Which latent points explain a sample?  In every cell a piece of a Gaussian does,
# and the pieces meet at the boundaries.  If a value is missing, several places may do.

figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4), layout="constrained", sharex=True)
window = (-3.0, 3.0)
PosteriorDisplay.from_estimator(model, [[0.6, 0.8]], window=window, ax=left)
left.set_title("posterior of the sample (0.6, 0.8)")
PosteriorDisplay.from_estimator(model, [[np.nan, 0.5]], window=window, ax=right)
right.set_title("posterior of the sample (missing, 0.5)")

# %%
# **Two latent dimensions.**  Cells are polygons now, many of them unbounded, and the network bends
# the latent plane into a sheet with one flat facet for each.  This network was made by hand: two
# units whose boundaries are far away hand the latent variables on, five others fold a roof.

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
# intervals, but none of them is sampled.  The second feature of the sample is missing: two places,
# on either side of the ridge, explain the other two.  The mean is between them, and explains
# nothing.

row = np.array([[0.3, np.nan, -2.0]])
figure, panels = plt.subplots(1, 3, figsize=(15, 4.2), layout="constrained")
DensityDisplay.from_estimator(roof, row, features=(0, 2), ax=panels[0], data_kwargs={"s": 40})
panels[0].set_title("log density of two features, and a sample")
LatentPartitionDisplay.from_estimator(roof, row, window=window, ax=panels[1])
panels[1].set_title("the cells that explain the sample")
PosteriorDisplay.from_estimator(roof, row, window=window, ax=panels[2])
panels[2].set_title("its posterior")

# sphinx_gallery_thumbnail_number = 6
