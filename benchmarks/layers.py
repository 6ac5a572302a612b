"""Layers of every kind: large decoders, and what learned ones are worth.

    SKDGN_DATA=<folder with mnist/> python benchmarks/layers.py [large trained circle fours]

``large``: for decoders of 28 x 28 images with two latent dimensions and random weights, how many
regions they have and how long it takes to list them, to compute the log density and the posterior
of 500 images, and to audit a Gaussian for each of 20 of them; processor seconds, and the most
memory that was used by then.  Where regions are too many to be listed ("met"), they are those of
the patches of latent space that matter for the images.
``trained``: the same of a convolutional decoder with 16 and 8 channels that was trained for some
epochs (with PyTorch), whose noise and posteriors are those of a real one, and of its own encoder.
``circle``: the noisy circle, the mean log-likelihood that fits end at, by activation, for as nearly
the same number of identifiable parameters as there is.  ``fours``: images of the digit four at
14 x 14, a convolutional decoder against dense ones, by BIC.
Images are MNIST's, or scikit-learn's digits, enlarged, where these are not at hand.
"""

from __future__ import annotations

import gzip
import itertools
import os
import resource
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning

from skdgn import PiecewiseAffineDGN
from skdgn.datasets import make_noisy_circle
from skdgn.layers import (
    ConvTranspose2d,
    Dense,
    LeakyReLU,
    MaxOut,
    PReLU,
    ReLU,
    Reshape,
)

N_IMAGES, N_AUDITED = 500, 20
N_TRAINING, N_EPOCHS = 6000, 12
SEEDS = range(100, 110)  # none that anything was tuned on


def load_images(digit: int | None = None) -> np.ndarray:
    """Return images (n, 28, 28) from 0 to 1, of one digit or of all."""
    folder = Path(os.environ.get("SKDGN_DATA", "no folder")) / "mnist"
    if folder.is_dir():
        with gzip.open(folder / "train-images-idx3-ubyte.gz") as file:
            images = np.frombuffer(file.read(), np.uint8, offset=16).reshape(-1, 28, 28) / 255.0
        with gzip.open(folder / "train-labels-idx1-ubyte.gz") as file:
            labels = np.frombuffer(file.read(), np.uint8, offset=8)
    else:
        print("MNIST is not at hand (SKDGN_DATA): scikit-learn's digits, enlarged")
        digits = load_digits()
        images = np.kron(digits.images / 16.0, np.ones((1, 4, 4)))[:, 2:-2, 2:-2]
        labels = digits.target
    return images if digit is None else images[labels == digit]


def draw(layers: list, n_components: int, seed: int = 0) -> list:
    """Give layers random weights of the size that keeps values as they are."""
    rng, shape, filled = np.random.default_rng(seed), (n_components,), []
    for layer in layers:
        if isinstance(layer, Dense):
            n_inputs = int(np.prod(shape))
            coef = rng.normal(size=(layer.n_units, n_inputs)) * np.sqrt(2.0 / n_inputs)
            layer = Dense(layer.n_units, coef, 0.3 * rng.normal(size=layer.n_units))
        elif isinstance(layer, ConvTranspose2d):
            size = (shape[0], layer.n_channels, *layer.kernel_size)
            coef = rng.normal(size=size) * np.sqrt(2.0 / (4 * shape[0]))
            layer = ConvTranspose2d(
                layer.n_channels,
                layer.kernel_size,
                stride=layer.stride,
                padding=layer.padding,
                coef=coef,
                intercept=0.3 * rng.normal(size=layer.n_channels),
            )
        filled.append(layer)
        shape = layer.output_shape(shape)
    return filled


def convolutional(first: int, second: int) -> list:
    """From 7 x 7 by 14 x 14 to 28 x 28, with so many channels."""
    return [
        Dense(49 * first),
        ReLU(),
        Reshape((first, 7, 7)),
        ConvTranspose2d(second, 4, stride=2, padding=1),
        ReLU(),
        ConvTranspose2d(1, 4, stride=2, padding=1),
    ]


def dense(*widths: int) -> list:
    hidden = [layer for width in widths for layer in (Dense(width), ReLU())]
    return [*hidden, Dense(784)]


def measure_large() -> None:
    images = load_images()[:N_IMAGES].reshape(-1, 784)
    decoders = {
        "convolutional, 2 and 1 channels": convolutional(2, 1),
        "convolutional, 16 and 8 channels": convolutional(16, 8),
        "dense 2-200-200-784": dense(200, 200),
        "dense 2-256-256-784": dense(256, 256),
    }
    print_header(images)
    for name, layers in decoders.items():
        report(
            name,
            images,
            lambda layers=layers: PiecewiseAffineDGN.from_network(
                layers=draw(layers, 2), noise_covariance=0.1
            ),
        )


def measure_trained() -> None:
    import torch

    from skdgn.vae import GaussianVAE

    images = load_images().reshape(-1, 784)
    decoder = torch.nn.Sequential(
        torch.nn.Linear(2, 784),
        torch.nn.ReLU(),
        torch.nn.Unflatten(1, (16, 7, 7)),
        torch.nn.ConvTranspose2d(16, 8, 4, stride=2, padding=1),
        torch.nn.ReLU(),
        torch.nn.ConvTranspose2d(8, 1, 4, stride=2, padding=1),
    )
    vae = GaussianVAE(
        decoder,
        0.05,
        encoder_layer_sizes=(128, 128),
        learning_rate=2e-3,
        max_iter=N_EPOCHS,
        random_state=0,
    ).fit(images[: min(N_TRAINING, len(images) - N_IMAGES)])
    images = images[-N_IMAGES:]
    print(f"noise variance {vae.noise_covariance_:.4f}")
    print_header(images)
    report("convolutional, 16 and 8 channels", images, vae.to_estimator, vae.encode)


def print_header(images: np.ndarray) -> None:
    """Compile or load kernels, before anything is timed, and print what the columns are."""
    for n_hidden in (3, 300):
        layers = draw(dense(n_hidden, n_hidden), 2)
        model = PiecewiseAffineDGN.from_network(layers=layers, noise_covariance=0.1)
        work(model, images[:2])
    print(
        f"{'':34}{'regions':>15}{'list':>8}{'density':>9}{'post.':>8}{'audit':>8}{'all':>8}{'GB':>7}"
    )


def report(
    name: str,
    images: np.ndarray,
    build: Callable[[], PiecewiseAffineDGN],
    encode: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]] | None = None,
) -> None:
    """Build a model, ask it everything, and print how long it took."""
    began = time.process_time()
    model = build()
    seconds = time.process_time() - began
    n_met, *times = work(model, images, encode)
    n_regions = f"{model.n_regions_}" if hasattr(model, "n_regions_") else f"{n_met} met"
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    times = [seconds, *times, seconds + sum(times)]
    print(f"{name:34}{n_regions:>15}", end="")
    print("".join(f"{value:8.1f}" for value in times), f"{used:6.1f}", flush=True)


def work(
    model: PiecewiseAffineDGN,
    images: np.ndarray,
    encode: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]] | None = None,
) -> tuple[int, float, float, float]:
    """Ask a model everything: the number of regions, seconds of densities, posteriors, audits."""
    times = [time.process_time()]
    model.score_samples(images)
    times.append(time.process_time())
    posterior = model.posterior(images)
    gaussians = posterior.mean, posterior.covariance
    times.append(time.process_time())
    n_regions = posterior._n_regions
    del posterior
    some = images[:N_AUDITED]
    means, covariances = encode(some) if encode else (own[:N_AUDITED] for own in gaussians)
    model.elbo(some, means, covariances)
    model.variational_gap(some, means, covariances)
    times.append(time.process_time())
    density, moments, audit = (after - before for before, after in itertools.pairwise(times))
    return n_regions, density, moments, audit


def measure_circle() -> None:
    hidden = {
        "leaky ReLU, 16 units": [Dense(16), LeakyReLU(0.1)],
        "leaky ReLU, 17 units": [Dense(17), LeakyReLU(0.1)],
        "PReLU, 16 units": [Dense(16), PReLU()],
        "max-out, 16 pairs": [Dense(32), MaxOut(2)],
    }
    print(f"{'':22}{'parameters':>11}   mean log-likelihood of {len(SEEDS)} circles, mean")
    for name, layers in hidden.items():
        ends = []
        for seed in SEEDS:
            samples = make_noisy_circle(1000, random_state=seed)
            model = PiecewiseAffineDGN(hidden_layers=layers, tol=1e-6, random_state=seed)
            model.fit(samples)
            ends.append(model.score(samples))
        print(f"{name:22}{model.n_parameters_:11}  ", end="")
        print(*(f"{end:.3f}" for end in ends), f"  {np.mean(ends):.3f}", flush=True)


def measure_fours() -> None:
    images = load_images(4)[:1000]
    rows = images.reshape(-1, 14, 2, 14, 2).mean(axis=(2, 4)).reshape(len(images), -1)
    decoders = {f"dense, {width} units": [Dense(width), LeakyReLU(0.1)] for width in (16, 32, 64)}
    # Images are combinations of few, which are drawn by two kernels.
    decoders["convolutional"] = [
        Dense(24),
        LeakyReLU(0.1),
        Dense(10),
        Dense(98),
        Reshape((2, 7, 7)),
        ConvTranspose2d(1, 6, stride=2, padding=2),
    ]
    print(f"{'':20}{'parameters':>11}{'log-likelihood':>16}{'BIC':>12}{'seconds':>9}")
    for name, layers in decoders.items():
        began = time.process_time()
        model = PiecewiseAffineDGN(
            hidden_layers=layers, covariance_type="spherical", max_iter=60, random_state=0
        ).fit(rows)
        seconds = time.process_time() - began
        print(f"{name:20}{model.n_parameters_:11}{model.score(rows):16.2f}", end="")
        print(f"{model.bic(rows):12.0f}{seconds:9.1f}", flush=True)


if __name__ == "__main__":
    warnings.simplefilter("ignore", ConvergenceWarning)
    parts = {
        "large": measure_large,
        "trained": measure_trained,
        "circle": measure_circle,
        "fours": measure_fours,
    }
    for part in sys.argv[1:] or parts:
        print(f"\n{part}")
        parts[part]()
