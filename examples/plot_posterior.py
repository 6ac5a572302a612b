"""
A posterior with several modes
==============================

Where the generator folds, different latent points explain the same sample.  The posterior is then
far from Gaussian.  Here its density, mean, mode and independent draws are computed exactly, and so
is the loss of a Gaussian approximation, as in a variational autoencoder.
"""

import matplotlib.pyplot as plt
import numpy as np

from skdgn import PiecewiseAffineDGN

# %%
# The generator folds the plane twice, ``x = (|z_1|, |z_2 + z_1 / 2|)``, with some noise; four
# latent points explain the sample.

model = PiecewiseAffineDGN.from_network(
    coefs=[[[1.0, 0.0], [0.5, 1.0]], [[1.0, 0.0], [0.0, 1.0]]],
    intercepts=[[0.0, 0.0], [0.0, 0.0]],
    noise_covariance=[0.15, 0.15],
    activation="abs",
)
row = np.array([[1.0, 0.6]])
posterior = model.posterior(row)
mode, draws = posterior.mode()[0], posterior.sample(1500, random_state=0)[:, 0]

# %%
# The best Gaussian q, in the sense of variational inference, lies between the modes or at one of
# them; its divergence is the loss of the Gaussian family.

means, covariances = posterior.best_gaussian("kl")
by_moments = posterior.kl_from(*posterior.best_gaussian("moments"))[0]
print(f"log p(x)                          {model.score_samples(row)[0]:.4f}")
print(f"best lower bound of a Gaussian q  {model.elbo(row, means, covariances)[0]:.4f}")
print(f"KL of the best Gaussian           {posterior.kl_from(means, covariances)[0]:.4f}")
print(f"KL of the moments' Gaussian       {by_moments:.4f}")

# %%
# The figure shows the density on a grid, with the boundaries of the four regions; the mean, which
# does not explain the sample; the mode; draws; and the contours of the best Gaussian at one and two
# standard deviations.

axis = np.linspace(-2.6, 2.6, 261)
grid = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
density = np.exp(posterior.log_density(grid)[0]).reshape(axis.size, axis.size)

figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4.6), layout="constrained")
left.pcolormesh(axis, axis, density, cmap="magma")
right.scatter(*draws.T, s=3, color="tab:blue", alpha=0.5, label="1,500 draws")
angles = np.linspace(0.0, 2.0 * np.pi, 200)
circle = np.stack([np.cos(angles), np.sin(angles)])
factor = np.linalg.cholesky(covariances[0])
for radius in (1.0, 2.0):
    ellipse = means[0][:, None] + radius * factor @ circle
    label = "best Gaussian" if radius == 1.0 else None
    right.plot(*ellipse, color="tab:green", label=label)
for panel, color in ((left, "white"), (right, "0.6")):
    panel.axvline(0.0, color=color, linewidth=0.6)
    panel.plot(axis, -0.5 * axis, color=color, linewidth=0.6)
    panel.plot(*posterior.mean[0], "o", color="tab:cyan", label="mean")
    panel.plot(*mode, "*", color="tab:red", markersize=12, label="mode")
    panel.set(xlim=(-2.6, 2.6), ylim=(-2.6, 2.6), xlabel="$z_1$", aspect="equal")
left.set(ylabel="$z_2$", title="exact posterior density")
right.set_title("exact draws, and the best Gaussian")
right.legend(loc="upper right")
figure.savefig("posterior.png", dpi=120)
print("saved posterior.png")
