"""
One network, or several
=======================

A network with one latent dimension draws one curve through the samples.  This suits a wave, but not
clusters or a closed curve, which has no ends.  In a mixture, each network fits a part of the
samples, with its own noise.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_blobs, make_moons

from skdgn import DensityDisplay, DGNMixture, PiecewiseAffineDGN
from skdgn.datasets import make_noisy_circle

# %%
# There are three tables of 400 samples each: two moons, three clusters of different shapes, and a
# circle.  For each, 800 more samples are held out for the comparison.


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
# A single network has to connect separate parts: its curve runs from one moon to the other, and
# from cluster to cluster, and generates samples between them where there are none.  The circle is
# cut where the two ends of the curve meet, in the tails of the latent distribution.  The curves of
# a mixture have ends as well, but there other networks take over.

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
# The networks of the mixture are also clusters: :meth:`~skdgn.DGNMixture.predict` returns the
# network that a sample belongs to, and :meth:`~skdgn.DGNMixture.predict_proba` the probabilities.

fig, axes = plt.subplots(1, 3, figsize=(10, 3.4), layout="constrained")
for (name, (make, _)), ax in zip(TABLES.items(), axes, strict=True):
    X = make(400, 0)
    ax.scatter(*X.T, c=mixtures[name].predict(X), cmap="tab10", vmin=0, vmax=9, s=6)
    ax.set(title=name, xticks=[], yticks=[])

plt.show()
