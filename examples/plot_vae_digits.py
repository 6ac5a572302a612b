"""
EM against a variational autoencoder: the digit four
====================================================

Images of the digit four have hundreds of pixels; a generator with one latent variable and hidden
layers of 8 and 16 units describes them by a curve.  EM and a variational autoencoder (VAE) learn it
from the same random weights, and are compared by the exact likelihood.

The images are MNIST's, from the folder given by the environment variable ``SKDGN_DATA`` or from
OpenML, or scikit-learn's small digits if neither is available.  Training is shortened to a minute;
``benchmarks/vae.py`` trains every VAE until its lower bound converges.
"""

import gzip
import os
import socket
import time
import warnings
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import fetch_openml, load_digits
from sklearn.exceptions import ConvergenceWarning

try:
    import torch
    from torch import nn
except ImportError:
    raise SystemExit('This example needs PyTorch: pip install "skdgn[torch]".') from None

from skdgn import PiecewiseAffineDGN
from skdgn.vae import GaussianVAE

torch.set_num_threads(1)
LEARNING_RATES = {0.005: "tab:blue", 0.001: "tab:orange", 0.0001: "tab:green"}
N_ROWS, N_ITERATIONS, N_EPOCHS, N_RUNS = 500, 50, 150, 2


def load_fours():
    """Return images of the digit four as samples, values from 0 to 1."""
    folder = Path(os.environ.get("SKDGN_DATA", "no folder")) / "mnist"
    if folder.is_dir():
        with gzip.open(folder / "train-images-idx3-ubyte.gz") as file:
            images = np.frombuffer(file.read(), np.uint8, offset=16).reshape(-1, 784)
        with gzip.open(folder / "train-labels-idx1-ubyte.gz") as file:
            labels = np.frombuffer(file.read(), np.uint8, offset=8)
        return images[labels == 4][:N_ROWS] / 255.0
    try:
        socket.setdefaulttimeout(10.0)
        images, labels = fetch_openml(
            "mnist_784", version=1, as_frame=False, return_X_y=True, n_retries=1
        )
        return images[labels == "4"][:N_ROWS] / 255.0
    except OSError as error:  # no network, no such host, no answer
        print(f"MNIST cannot be had ({error}): scikit-learn's digits instead")
        digits = load_digits()
        return digits.data[digits.target == 4] / 16.0


X = load_fours()
side = int(np.sqrt(X.shape[1]))
noise = X.var(axis=0).mean()  # at the start
print(f"{len(X)} images of {side} x {side} pixels")

# %%
# The noise has one variance for all pixels, because some of them are always white.


def run_em(model):
    """Return the fitted model, and curves: iteration, seconds, negative log-likelihood."""
    model.set_params(max_iter=N_ITERATIONS, tol=0.0)
    started = time.perf_counter()
    with warnings.catch_warnings():
        # The number of iterations is given.
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(X)
    steps = np.arange(1, model.n_iter_ + 1)
    seconds = steps * (time.perf_counter() - started) / model.n_iter_
    assert np.all(np.diff(model.lower_bounds_) >= 0.0)  # it never decreases
    return model, np.array([steps, seconds, -model.lower_bounds_])


def run_vae(decoder, learning_rate, seed):
    """Return the trained model, and curves: epoch, seconds, negative log-likelihood."""
    notes = []

    def evaluate(vae):
        if vae.n_iter_ > 0 and vae.n_iter_ % 10 == 0:
            score = vae.to_estimator().score(X)
            notes.append((vae.n_iter_, vae.history_[-1].seconds, -score))

    vae = GaussianVAE(
        decoder,
        noise,
        learning_rate=learning_rate,
        max_iter=N_EPOCHS,
        callback=evaluate,
        random_state=seed,
    )
    return vae.fit(X).to_estimator(), np.array(notes).T


# %%
# There are two random starts, and for EM also its default start.

models, table = {}, {}
figure = plt.figure(figsize=(11, 8.0), layout="constrained")
top, bottom = figure.subfigures(2, 1, height_ratios=(1.0, 1.35))
by_epoch, by_time = top.subplots(1, 2, sharey=True)
for seed in range(N_RUNS):
    torch.manual_seed(seed)
    decoder = nn.Sequential(
        nn.Linear(1, 8),
        nn.LeakyReLU(0.1),
        nn.Linear(8, 16),
        nn.LeakyReLU(0.1),
        nn.Linear(16, X.shape[1]),
    )
    start = PiecewiseAffineDGN.from_torch(decoder, noise).set_params(warm_start=True)
    runs = {"EM": ("black", *run_em(start))}
    for rate, color in LEARNING_RATES.items():
        runs[f"VAE, learning rate {rate}"] = (color, *run_vae(decoder, rate, seed))
    for name, (color, model, (steps, seconds, curve)) in runs.items():
        by_epoch.plot(steps, curve, color=color, label=name if seed == 0 else None)
        by_time.plot(seconds, curve, color=color)
        models.setdefault(name, model)
        table.setdefault(name, []).append(curve[-1])

model = PiecewiseAffineDGN(hidden_layer_sizes=(8, 16), covariance_type="spherical", random_state=0)
models["EM, own start"], (steps, _, curve) = run_em(model)
by_epoch.plot(steps, curve, "--", color="0.5", label="EM, its own start")
table["EM, its own start"] = [curve[-1]]

print("exact negative log-likelihood at the end, by start")
for name, ends in table.items():
    print(f"  {name:26s}" + "  ".join(f"{end:.1f}" for end in ends))

# %%
# The figure shows the curves, and the images that the models of the first start generate from
# twelve values of z, quantiles of the prior from one end to the other.
#
# A high likelihood does not imply realistic samples.  From random weights, EM soon explains all
# images by a short piece of the line.  Not using the rest of the prior costs only a nat or two, of
# hundreds, so EM stays there, and most values of z, which correspond to no image, do not generate a
# digit.  The default start of EM first spreads the images over the whole prior: the likelihood is
# higher, and every value of z generates a four.

lowest = min(min(ends) for ends in table.values())
by_epoch.set(xlabel="epochs, iterations of EM", ylabel="exact negative log-likelihood")
by_epoch.set_ylim(lowest - 20.0, lowest + 400.0)
by_time.set(xlabel="seconds", xscale="log")
top.legend(loc="outside lower center", ncols=5)
latent = np.quantile(np.random.default_rng(0).standard_normal(10_000), np.linspace(0.02, 0.98, 12))
rows = {"samples": X[:12]}
rows |= {name: model.inverse_transform(latent[:, None]) for name, model in models.items()}
panels = bottom.subplots(len(rows), 12)
for line, (name, images) in zip(panels, rows.items(), strict=True):
    for panel, image in zip(line, images, strict=True):
        panel.imshow(image.reshape(side, side), cmap="gray_r", vmin=0.0, vmax=1.0)
        panel.set(xticks=[], yticks=[])
    line[0].set_ylabel(
        name.replace("VAE, learning rate", "VAE"), rotation=0, ha="right", va="center"
    )
figure.savefig("vae_digits.png", dpi=120)
print("saved vae_digits.png")
