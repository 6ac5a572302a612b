"""
Curves and factors
==================

Most of the variation in a wide table is linear, and some of it is nonlinear.  A mixture of networks
with ``covariance_type="factor"`` models both: each network has a curve, and linear factors that the
features share.  Here it is fitted to handwritten digits of 64 pixels.  The density is exact with
eleven latent dimensions for each network, and no full covariance matrix is estimated.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.mixture import GaussianMixture

from skdgn import DGNMixture, PiecewiseAffineDGN

rng = np.random.default_rng(0)
digits = load_digits()
images = (digits.data + rng.uniform(size=digits.data.shape)) / 16.0
images = images[rng.permutation(len(images))]
train, test = images[:1300], images[1300:]

network = PiecewiseAffineDGN(hidden_layer_sizes=(3,), covariance_type="factor", n_factors=10)
model = DGNMixture(network, n_networks=10, refine=False, tol=1e-2, random_state=0).fit(train)
print(f"held-out log-likelihood {model.score(test):.1f} nats")
gaussians = GaussianMixture(10, reg_covar=1e-3, random_state=0).fit(train)
print(f"ten full Gaussians      {gaussians.score(test):.1f} nats")


def show(panels, table):
    """Draw images, one in each panel; missing pixels are orange."""
    colors = plt.get_cmap("gray_r").with_extremes(bad="tab:orange")
    for panel, image in zip(panels, table, strict=True):
        panel.imshow(image.reshape(8, 8), cmap=colors, vmin=0.0, vmax=1.0)
        panel.set(xticks=[], yticks=[])


# %%
# The figure shows samples, and images whose missing lower halves are completed by the conditional
# mean and by draws.

incomplete = test[:10].copy()
incomplete[:, 32:] = np.nan
tables = {
    "samples": model.sample(10, random_state=0)[0],
    "half gone": incomplete,
    "mean": model.impute(incomplete),
    "draw": model.impute(incomplete, method="sample", random_state=0),
    "truth": test[:10],
}
figure, panels = plt.subplots(len(tables), 10, figsize=(10, 5.4), layout="constrained")
for row, (title, table) in zip(panels, tables.items(), strict=True):
    show(row, table)
    row[0].set_ylabel(title)
figure.savefig("factors_digits.png", dpi=120)

# %%
# The next figure shows what the curve and the factors have learned: along the curve of the network
# with the most samples, from one end to the other, and along its three leading factors, two
# standard deviations to either side of the middle of the curve.

own = model.networks_[int(model.weights_.argmax())]
steps = np.linspace(-2.0, 2.0, 9)
middle = own.inverse_transform([[0.0]])
rows = {"curve": own.inverse_transform(steps[:, None])}
for number, loadings in enumerate(own.noise_factors_.T[:3], start=1):
    rows[f"factor {number}"] = middle + steps[:, None] * loadings
figure, panels = plt.subplots(len(rows), len(steps), figsize=(9, 4.4), layout="constrained")
for row, (title, table) in zip(panels, rows.items(), strict=True):
    show(row, table)
    row[0].set_ylabel(title)
figure.savefig("factors_learned.png", dpi=120)

# %%
# Finally, the fraction of the variance of its samples that each explains is printed.

members = train[model.predict(train) == model.weights_.argmax()]
curve = own.inverse_transform(own.transform(members))
factors = own.transform_factors(members) @ own.noise_factors_.T
total = members.var(axis=0).sum()
print(f"share of variance: curve {curve.var(axis=0).sum() / total:.2f}", end=", ")
print(f"factors {factors.var(axis=0).sum() / total:.2f}", end=", ")
print(f"single pixels {np.square(members - curve - factors).mean(axis=0).sum() / total:.2f}")
print("saved factors_digits.png and factors_learned.png")
