"""
One network, or several
=======================

One network with one latent dimension draws one curve through the samples.  That is what a wave
needs; but clusters are no curve, and a closed curve has no ends.  A mixture gives each network a
part of the samples, with noise of its own.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_blobs, make_moons

from skdgn import DensityDisplay, DGNMixture, PiecewiseAffineDGN
from skdgn.datasets import make_noisy_circle

# %%
# Two moons, three clusters of different shapes, and a circle, 400 samples each; 800 more of each
# are held out to judge by.


def make_clusters(n_samples, random_state):
    shapes = {(-4, 0): (0.7, 0.7), (0, 4): (2.0, 0.5), (4, -1): (0.4, 1.5)}
    X, labels = make_blobs(
        n_samples, centers=np.zeros((3, 2)), cluster_std=1.0, random_state=random_state
    )
    return np.array(list(shapes))[labels] + np.array(list(shapes.values()))[labels] * X


TABLES = {
    "two moons": (lambda n, seed: make_moons(n, noise=0.05, random_state=seed)[0], 4),
    "three clusters": (make_clusters, 3),
    "a closed curve": (lambda n, seed: make_noisy_circle(n, noise=0.08, random_state=seed), 4),
}

# %%
# One network has to join what does not belong together: its curve runs from one moon to the other,
# and from cluster to cluster, and makes samples on its way that are not there.  The circle is cut
# where the two ends of the curve meet, in the tails of the latent distribution.  All networks of a
# mixture have ends as well, but others take over there.

mixtures = {}
fig, axes = plt.subplots(2, 3, figsize=(10, 6.4), layout="constrained")
print(f"{'held-out log density (nats)':28s}{'one network':>13s}{'mixture':>9s}")
for (name, (make, n_networks)), column in zip(TABLES.items(), axes.T, strict=True):
    X, held_out = make(400, 0), make(800, 1)
    one = PiecewiseAffineDGN(tol=1e-3, random_state=0).fit(X)
    mixtures[name] = mixture = DGNMixture(n_networks=n_networks, random_state=0).fit(X)
    print(f"{name:28s}{one.score(held_out):13.2f}{mixture.score(held_out):9.2f}")
    margin = 0.25 * (X.max(axis=0) - X.min(axis=0))
    window = list(zip(X.min(axis=0) - margin, X.max(axis=0) + margin, strict=True))
    for model, title, ax in (
        (one, "one network", column[0]),
        (mixture, f"{n_networks} networks", column[1]),
    ):
        DensityDisplay.from_estimator(
            model, X, window=window, ax=ax, colorbar=False, data_kwargs={"s": 4, "linewidth": 0.2}
        )
        ax.set(title=f"{name}, {title}", xlabel="", ylabel="", xticks=[], yticks=[])

# %%
# The networks of the mixture are clusters, too: :meth:`~skdgn.DGNMixture.predict` tells which one a
# sample belongs to, and :meth:`~skdgn.DGNMixture.predict_proba` how surely.

fig, axes = plt.subplots(1, 3, figsize=(10, 3.4), layout="constrained")
for (name, (make, _)), ax in zip(TABLES.items(), axes, strict=True):
    X = make(400, 0)
    ax.scatter(*X.T, c=mixtures[name].predict(X), cmap="tab10", vmin=0, vmax=9, s=6)
    ax.set(title=name, xticks=[], yticks=[])

plt.show()
