"""
A Gaussian mixture with nonlinear components
============================================

scikit-learn's :class:`~sklearn.mixture.GaussianMixture` is a special case of
:class:`~skdgn.DGNMixture`: without hidden units its networks are Gaussians, and its fit starts from
the solution of that class.  Here both are fitted to the same table: four measurements of cell
nuclei, one of which is approximately the square of another.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.mixture import GaussianMixture
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

from skdgn import DensityDisplay, DGNEnsemble, DGNMixture, PiecewiseAffineDGN

table = load_breast_cancer(as_frame=True).frame
columns = ["mean radius", "mean area", "mean concavity", "mean smoothness"]
X, held_out = train_test_split(table[columns].to_numpy(), test_size=0.3, random_state=0)
scaler = StandardScaler().fit(X)
X, held_out = scaler.transform(X), scaler.transform(held_out)

# %%
# Both models are fitted with one to eight components, and compared by BIC and by held-out samples.
# A network of four units has more parameters than a Gaussian, but fewer networks are needed.

NUMBERS = (1, 2, 3, 4, 6, 8)
models = {
    "GaussianMixture": [GaussianMixture(k, random_state=0).fit(X) for k in NUMBERS],
    "DGNMixture": [DGNMixture(n_networks=k, random_state=0).fit(X) for k in NUMBERS],
}
bics = {name: [model.bic(X) for model in fitted] for name, fitted in models.items()}
scores = {name: [model.score(held_out) for model in fitted] for name, fitted in models.items()}
print(f"{'components':26s}" + "".join(f"{k:8d}" for k in NUMBERS))
for name in models:
    print(f"{name + ', BIC':26s}" + "".join(f"{bic:8.0f}" for bic in bics[name]))
    print(f"{name + ', held out':26s}" + "".join(f"{score:8.2f}" for score in scores[name]))

fig, (left, right) = plt.subplots(1, 2, figsize=(10, 3.8), layout="constrained")
for name in models:
    left.plot(NUMBERS, bics[name], marker="o", label=name)
    right.plot(NUMBERS, scores[name], marker="o", label=name)
left.set(xlabel="components", ylabel="BIC, the lower the better")
right.set(xlabel="components", ylabel="held-out log density (nats)")
left.legend()

# %%
# The densities of radius and area are drawn for the numbers of components with the lowest BIC, with
# the other two features integrated out.  The Gaussian mixture approximates the nonlinear relation
# by straight pieces that stick out; the network follows it.
#
# To draw both with the same display, the Gaussian mixture is converted to an exact density: an
# average of networks that map every latent point to the mean of their Gaussian.


def exact_density(mixture):
    gaussians = [
        PiecewiseAffineDGN.from_network([np.zeros((4, 1))], [mean], covariance, activation="relu")
        for mean, covariance in zip(mixture.means_, mixture.covariances_, strict=True)
    ]
    return DGNEnsemble.from_estimators(gaussians, mixture.weights_)


def lowest_bic(name):
    return models[name][int(np.argmin(bics[name]))]


gaussian_mixture = exact_density(lowest_bic("GaussianMixture"))
difference = gaussian_mixture.score_samples(X) - lowest_bic("GaussianMixture").score_samples(X)
print(f"the Gaussian mixture as an exact density: off by at most {np.abs(difference).max():.0e}")

fig, axes = plt.subplots(1, 2, figsize=(10, 4.2), layout="constrained", sharey=True)
for name, model, ax in (
    ("GaussianMixture", gaussian_mixture, axes[0]),
    ("DGNMixture", lowest_bic("DGNMixture"), axes[1]),
):
    DensityDisplay.from_estimator(
        model,
        X,
        features=[0, 1],
        window=[(-2.2, 4.2), (-1.7, 5.0)],
        ax=ax,
        vmin=-9.0,
        vmax=3.0,
        data_kwargs={"s": 5, "linewidth": 0.2},
    )
    ax.set(title=f"{name}, {len(model.weights_)} components", xlabel=columns[0], ylabel=columns[1])

plt.show()
