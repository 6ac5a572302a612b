"""
A convolutional VAE, audited exactly
====================================

A variational autoencoder with a convolutional decoder is trained in PyTorch on small images.  Its
decoder is piecewise affine, so the following can be computed exactly: the regions of latent space
on which it is affine, the likelihood of held-out images, the posterior of each image, and how far
the encoder is from it.

The images are MNIST's at 14 x 14, from the folder given by the environment variable ``SKDGN_DATA``,
or scikit-learn's digits if there is no such folder.
"""

import gzip
import os
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.patches import Ellipse
from sklearn.datasets import load_digits

try:
    import torch
    from torch import nn
except ImportError:
    raise SystemExit('This example needs PyTorch: pip install "skdgn[torch]".') from None

from skdgn import LatentPartitionDisplay
from skdgn.vae import GaussianVAE, audit

torch.set_num_threads(1)
N_TRAIN, N_TEST = 800, 12
AUDITED_EPOCHS = (1, 5, 12, 25)


def load_images():
    """Return images as samples of 14 x 14 values from 0 to 1, and their digits."""
    folder = Path(os.environ.get("SKDGN_DATA", "no folder")) / "mnist"
    if folder.is_dir():
        with gzip.open(folder / "train-images-idx3-ubyte.gz") as file:
            images = np.frombuffer(file.read(), np.uint8, offset=16).reshape(-1, 28, 28) / 255.0
        with gzip.open(folder / "train-labels-idx1-ubyte.gz") as file:
            labels = np.frombuffer(file.read(), np.uint8, offset=8)
        images = images[: 2 * N_TRAIN].reshape(-1, 14, 2, 14, 2).mean(axis=(2, 4))
        return images.reshape(-1, 196), labels[: 2 * N_TRAIN]
    digits = load_digits()
    images = np.kron(digits.images / 16.0, np.ones((1, 2, 2)))[:, 1:-1, 1:-1]
    return images.reshape(-1, 196), digits.target


images, labels = load_images()
n_train = min(N_TRAIN, len(images) - N_TEST)
train, test = images[:n_train], images[n_train : n_train + N_TEST]

# %%
# The decoder has two latent variables, a map of 4 x 4 with two channels, and two transposed
# convolutions.  The first layer has 32 units, the second 49, and each unit cuts latent space once.

torch.manual_seed(0)
decoder = nn.Sequential(
    nn.Linear(2, 32),
    nn.LeakyReLU(0.1),
    nn.Unflatten(1, (2, 4, 4)),
    nn.ConvTranspose2d(2, 1, 3, stride=2, padding=1),
    nn.LeakyReLU(0.1),
    nn.ConvTranspose2d(1, 1, 4, stride=2, padding=1),
)
found = {}


def watch(vae):
    """Audit the encoder after some epochs, on images it has not seen."""
    if vae.n_iter_ in AUDITED_EPOCHS:
        found[vae.n_iter_] = audit(vae.decoder_, vae.encoder_, test, vae.noise_covariance_)


vae = GaussianVAE(
    decoder,
    0.1,
    encoder_layer_sizes=(64, 64),
    learning_rate=3e-3,
    max_iter=AUDITED_EPOCHS[-1],
    callback=watch,
    random_state=0,
).fit(train)
model = vae.to_estimator()
print(f"{model.n_regions_} regions, {model.n_parameters_} identifiable parameters")

# %%
# The exact log-likelihood of held-out images is compared with the encoder's bound.  The divergence
# between them has two parts: the part that the best Gaussian would avoid (amortization), and the
# part that none avoids (family).

print(f"{'epoch':>5} {'log p(x)':>9} {'ELBO':>9} {'amortization':>13} {'family':>7}")
for epoch, result in found.items():
    print(
        f"{epoch:5} {result.log_likelihood.mean():9.2f} {result.elbo.mean():9.2f} "
        f"{result.amortization_gap.mean():13.2f} {result.family_gap.mean():7.3f}"
    )

figure, axes = plt.subplots(1, 2, figsize=(9, 3.5), layout="constrained")
epochs = list(found)
axes[0].plot(
    epochs, [result.log_likelihood.mean() for result in found.values()], "o-", label="exact"
)
axes[0].plot(epochs, [result.elbo.mean() for result in found.values()], "s--", label="ELBO")
axes[0].set(xlabel="epoch", ylabel="nats an image", xscale="log", title="test images")
axes[0].legend()
for name in ("amortization_gap", "family_gap"):
    gaps = [getattr(result, name).mean() for result in found.values()]
    axes[1].plot(epochs, gaps, "o-", label=name.replace("_", " "))
axes[1].set(xlabel="epoch", ylabel="nats an image", xscale="log", yscale="log", title="gaps")
axes[1].legend()

# %%
# The partition of latent space, and images from a grid of points in it.

figure, axes = plt.subplots(1, 2, figsize=(9, 4.5), layout="constrained")
LatentPartitionDisplay.from_estimator(model, ax=axes[0])
axes[0].set_title(f"{model.n_regions_} regions")
grid = np.linspace(-2.0, 2.0, 9)
points = np.stack(np.meshgrid(grid, -grid), axis=-1).reshape(-1, 2)
tiles = model.inverse_transform(points).reshape(9, 9, 14, 14)
axes[1].imshow(tiles.transpose(0, 2, 1, 3).reshape(126, 126), cmap="gray_r", vmin=0, vmax=1)
axes[1].set(xticks=[], yticks=[], title="decoded grid")

# %%
# The exact posterior of test images, with the encoder's ellipse (two standard deviations).

means, covariances = vae.encode(test)
gaps = found[epochs[-1]].kl
chosen = np.argsort(gaps)[[0, len(gaps) // 2, -1]]
figure, axes = plt.subplots(2, 3, figsize=(9, 5.5), layout="constrained", height_ratios=[1, 2])
for column, sample in enumerate(chosen):
    axes[0, column].imshow(test[sample].reshape(14, 14), cmap="gray_r")
    axes[0, column].set(xticks=[], yticks=[], title=f"KL {gaps[sample]:.2f}")
    posterior = model.posterior(test[[sample]])
    center, spread = posterior.mean[0], np.sqrt(np.diag(posterior.covariance[0]))
    # The window holds both: the posterior and the encoder's ellipse.
    variances = np.diag(covariances[sample])
    low = np.minimum(center - 4 * spread, means[sample] - 3 * np.sqrt(variances))
    high = np.maximum(center + 4 * spread, means[sample] + 3 * np.sqrt(variances))
    sides = [np.linspace(low[k], high[k], 120) for k in range(2)]
    window = np.stack(np.meshgrid(*sides), axis=-1).reshape(-1, 2)
    density = np.exp(posterior.log_density(window)[0]).reshape(120, 120)
    axes[1, column].pcolormesh(*sides, density, cmap="Blues", rasterized=True)
    width, height = 4.0 * np.sqrt(variances)
    axes[1, column].add_patch(Ellipse(means[sample], width, height, fill=False, color="tab:red"))
    axes[1, column].set(xlabel="z 1", ylabel="z 2" if column == 0 else "")
plt.show()
