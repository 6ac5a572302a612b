"""
The zero-noise limit, and generative latent optimization
========================================================

As the noise vanishes, the exact posterior concentrates at the latent point whose image is nearest
to the sample.  Alternating between this point and the weights is generative latent optimization
(GLO) [1]_, which can therefore be seen as EM without noise [2]_. This example follows the posterior
to the limit, and compares the results of the two algorithms.

.. [1] P. Bojanowski, A. Joulin, D. Lopez-Paz, A. Szlam, *Optimizing the Latent Space of Generative
   Networks*, 2018.
.. [2] R. Balestriero, S. Paris, R. G. Baraniuk, *Analytical Probability Distributions and
   EM-Learning for Deep Generative Networks*, 2020.
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np
from scipy.optimize import least_squares, minimize_scalar
from sklearn.exceptions import ConvergenceWarning

from skdgn import PiecewiseAffineDGN
from skdgn.datasets import make_noisy_circle

X = make_noisy_circle(300, noise=0.1, random_state=0)
X_test = make_noisy_circle(2000, noise=0.1, random_state=1)

# %%
# We use a fitted curve, and the same curve with less and less noise.  ``mode(zero_noise=True)`` is
# the exact limit, which does not replace zero by a small number.

fitted = PiecewiseAffineDGN(
    hidden_layer_sizes=(8,), covariance_type="spherical", tol=1e-3, random_state=0
).fit(X)


def with_noise(coefs, intercepts, variance):
    return PiecewiseAffineDGN.from_network(coefs, intercepts, variance, activation="leaky_relu")


row = np.array([[0.05, 0.35]])
limit = fitted.posterior(row).mode(zero_noise=True)[0, 0]
nearest = fitted.inverse_transform([[limit]])
latent = np.linspace(-3.0, 3.0, 20001)
squares = ((row - fitted.inverse_transform(latent[:, None])) ** 2).sum(axis=1)
print(f"limit of the mode {limit:.4f}, nearest point of a fine grid {latent[squares.argmin()]:.4f}")

deviations = np.array([0.5, 0.2, 0.1, 0.05, 0.02, 0.01, 0.001])
narrowed = [with_noise(fitted.coefs_, fitted.intercepts_, s**2) for s in deviations]
print("noise deviation    mode    mean  deviation of the posterior")
for deviation, model in zip(deviations, narrowed, strict=True):
    posterior = model.posterior(row)
    print(
        f"{deviation:15.3f}  {posterior.mode()[0, 0]:6.3f}  {posterior.mean[0, 0]:6.3f}"
        f"  {posterior.covariance[0, 0, 0] ** 0.5:26.5f}"
    )

# %%
# The paper writes the limit as the minimum of ``|x - g(z)|^2 + |z|^2``.  But the second term comes
# from the prior, which does not change while the first is divided by a vanishing variance: it only
# decides between points at the same distance.  If there are several, the limit is not a single
# point either: the second network below folds the line, and each of the two points keeps half of
# the posterior.

penalized = latent[(squares + latent**2).argmin()]
print(f"with the penalty kept, the minimum would be at {penalized:.4f} instead of {limit:.4f}")

fold = with_noise([[[1.0], [-1.0]], [[1.0, 1.0], [0.3, -0.3]]], [[0.0, 0.0], [0.0, 0.0]], 1e-4)
two = fold.posterior([[1.0, 0.0]])
print(f"two equally near points: mean {two.mean[0, 0]:.4f}, shares {two.responsibilities[0]}")

# %%
# GLO finds the nearest point of each sample, fits the weights to these codes by least squares, and
# repeats this.  EM does the same with expectations instead of nearest points, and with learned
# noise.  Both start from the same network.


def unpack(parameters):
    coefs = [parameters[:8].reshape(8, 1), parameters[8:24].reshape(2, 8)]
    return coefs, [parameters[24:32], parameters[32:]]


def best_noise(coefs, intercepts):
    """GLO has no noise; to give it a likelihood, take the variance that is best for it."""
    found = minimize_scalar(
        lambda log_variance: -with_noise(coefs, intercepts, np.exp(log_variance)).score(X),
        bounds=(-12.0, 2.0),
        method="bounded",
    )
    return with_noise(coefs, intercepts, np.exp(found.x))


def distance(model, rows):
    """Mean squared distance to the curve: the loss of GLO."""
    codes = model.posterior(rows).mode(zero_noise=True)
    return ((rows - model.inverse_transform(codes)) ** 2).sum(axis=1).mean()


ROUNDS = 25
em = PiecewiseAffineDGN(
    hidden_layer_sizes=(8,),
    covariance_type="spherical",
    init_params="pca",
    max_iter=1,
    warm_start=True,
    random_state=3,
)
history = {"EM": [], "GLO": []}
with warnings.catch_warnings():
    warnings.simplefilter("ignore", ConvergenceWarning)  # one iteration at a time
    em.fit(X)
    start = [em.coefs_, em.intercepts_]
    for _ in range(ROUNDS):
        history["EM"].append((distance(em, X), em.score(X), em.score(X_test)))
        em.fit(X)

parameters = np.concatenate([values.ravel() for values in (*start[0], *start[1])])
for _ in range(ROUNDS):
    glo = best_noise(*unpack(parameters))
    history["GLO"].append((distance(glo, X), glo.score(X), glo.score(X_test)))
    codes = glo.posterior(X).mode(zero_noise=True)

    def residuals(parameters, codes=codes):
        return (X - with_noise(*unpack(parameters), 1.0).inverse_transform(codes)).ravel()

    parameters = least_squares(residuals, parameters, max_nfev=5).x

print("after 25 rounds: mean squared distance  log p(x), training  new samples")
for name, values in history.items():
    print("{:>15s}  {:22.5f}  {:18.3f}  {:11.3f}".format(name, *values[-1]))
codes = {"EM": em.transform(X)[:, 0], "GLO": glo.posterior(X).mode(zero_noise=True)[:, 0]}
for name, values in codes.items():
    print(f"codes of {name}: mean {values.mean():.2f}, deviation {values.std():.2f}")

# %%
# GLO comes closer to the samples, which is its only objective.  It does not consider how probable
# the codes are, nor how much of a sample is noise, and therefore learns a worse density.

figure, axes = plt.subplots(2, 3, figsize=(13.5, 7.6), layout="constrained")
axis = np.linspace(-2.5, 2.5, 4001)
for i, model in enumerate(narrowed[:5]):
    density = np.exp(model.posterior(row).log_density(axis[:, None])[0])
    color = plt.colormaps["viridis"](0.9 - 0.2 * i)
    axes[0, 0].plot(axis, density / density.max(), color=color, label=f"{deviations[i]:g}")
axes[0, 0].axvline(limit, color="tab:red", linestyle="--", label="limit")
axes[0, 0].legend(title="noise deviation")
axes[0, 0].set(xlabel="z", yticks=[], title="posterior of one sample, highest value 1")

curve = fitted.inverse_transform(np.linspace(-3.5, 3.5, 1001)[:, None])
axes[0, 1].plot(*X.T, ".", color="0.7", markersize=3)
axes[0, 1].plot(*curve.T, color="tab:blue")
axes[0, 1].plot(*np.concatenate([row, nearest]).T, color="tab:red", linewidth=1)
axes[0, 1].plot(*row[0], "o", color="tab:red")
axes[0, 1].set(aspect="equal", title="the sample, and its nearest point on the curve")

for model, color in ((em, "tab:blue"), (glo, "tab:orange")):
    name = "EM" if model is em else "GLO"
    ends = min(-3.0, codes[name].min()), max(3.0, codes[name].max())
    curve = model.inverse_transform(np.linspace(*ends, 4001)[:, None])
    axes[1, 2].plot(*curve.T, color=color, label=name)
    values = np.array(history[name])
    axes[1, 0].plot(values[:, 0], color=color, label=name)
    axes[1, 1].plot(values[:, 1], color=color, label=f"{name}, training")
    axes[1, 1].plot(values[:, 2], color=color, linestyle="--", label=f"{name}, new samples")
    axes[0, 2].hist(codes[name], bins=40, color=color, alpha=0.5, density=True, label=name)
axes[0, 2].plot(axis, np.exp(-0.5 * axis**2) / np.sqrt(2.0 * np.pi), color="black", label="prior")
axes[0, 2].set(title="codes of the samples", xlabel="z")
axes[1, 0].set(title="mean squared distance to the curve", xlabel="round", yscale="log")
axes[1, 1].set(title="exact mean log density", xlabel="round")
axes[1, 2].plot(*X.T, ".", color="0.7", markersize=3)
axes[1, 2].set(aspect="equal", title="curves at the end", xlim=(-1.7, 1.7), ylim=(-1.5, 1.5))
for panel in (axes[0, 2], *axes[1]):
    panel.legend()
figure.savefig("zero_noise.png", dpi=110)
print("saved zero_noise.png")
