"""Bounds of log densities, and networks whose regions are not listed.

    SKDGN_DATA=<folder with mnist/> python benchmarks/bounds.py [pairs many dense convolutional]

``pairs``: 504 pairs of a sample and a network with one, two and three latent dimensions, some of
the samples far away or with missing values: how often the bounds that are found without a list of
regions contain the exact log density, and how wide they are.  ``many``: the same for 504 pairs with
4, 5, 6 and 8 latent dimensions, networks side by side whose density is known (as in
many_dimensions.py), with noise deviations of 0.3 and 0.03 and 10 deviations away; and the widths
for networks 5-16-10 and 8-12-10.  ``dense``: a decoder 2-512-512-784,
``convolutional``: one of two transposed convolutions with 16 and 8 channels, both fitted to
principal components of MNIST for a few seconds; log densities of images (``--images``), seconds of
the processor, peak memory, widths of the bounds.  These two need PyTorch and the data.
"""

from __future__ import annotations

import argparse
import gzip
import itertools
import os
import resource
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from many_dimensions import KINDS, draw, exact_log_density, exact_pair, random_network

from skdgn import PiecewiseAffineDGN
from skdgn._network import Activation, Network
from skdgn._noise import Noise
from skdgn._posterior import Model, UnlistedModel
from skdgn._runtime import Workers

N_NETWORKS, N_SAMPLES = 14, 12
HIDDEN = {1: (40, 40), 2: (24, 16), 3: (12,)}
N_FEATURES = 5
N_TRAIN = 6000
N_STEPS = {"dense": 1000, "convolutional": 400}


def draw_case(n_components: int, seed: int) -> tuple[Network, Noise, np.ndarray]:
    """Draw a network, its noise, and samples: every fourth far away, or with missing values."""
    rng = np.random.default_rng([n_components, seed])
    widths = (n_components, *HIDDEN[n_components], N_FEATURES)
    coefs = [rng.normal(size=(b, a)) / np.sqrt(a) for a, b in itertools.pairwise(widths)]
    intercepts = [0.5 * rng.normal(size=width) for width in widths[1:]]
    name = ("relu", "leaky_relu", "abs")[seed % 3]
    network = Network.from_arrays(coefs, intercepts, Activation.from_name(name, 0.1))
    deviation = 10.0 ** rng.uniform(-1.5, 0.0)
    rows = network.forward(rng.normal(size=(N_SAMPLES, n_components)))
    rows += deviation * rng.normal(size=rows.shape)
    rows[::4] += 10.0 * deviation * rng.normal(size=rows[::4].shape)
    rows[1::4, :2] = np.nan
    return network, Noise.from_covariance(deviation**2, N_FEATURES), rows


def compare_pairs() -> None:
    """Print how often bounds contain the exact log density, and their widths."""
    for n_components in HIDDEN:
        contained, widths, started = [], [], time.process_time()
        for seed in range(N_NETWORKS):
            network, noise, rows = draw_case(n_components, seed)
            exact = Model.build(network, noise).log_density(rows, Workers(1))
            lower, upper = UnlistedModel(network, noise).log_density_bounds(rows, Workers(1))
            contained.append((lower <= exact) & (exact <= upper))
            widths.append(upper - lower)
        inside, width = np.concatenate(contained), np.concatenate(widths)
        print(
            f"S = {n_components}: {inside.sum()} of {inside.size} pairs contained, "
            f"width median {np.median(width):.1e}, largest {width.max():.1e}, "
            f"{time.process_time() - started:.0f} s",
            flush=True,
        )


def compare_many_dimensions(first_seed: int) -> None:
    """Print how often bounds contain the exact log density, by latent dimensions and noise."""
    for n_components, (kind, (deviation, far)) in itertools.product((4, 5, 6, 8), KINDS.items()):
        below, above, started = [], [], time.process_time()
        for seed in range(first_seed, first_seed + N_NETWORKS):
            network, parts = exact_pair(n_components, seed)
            rows = draw(network, deviation, N_SAMPLES // 4, seed, far)
            rows[1::4, :2] = np.nan
            exact = exact_log_density(parts, deviation**2, rows)
            lower, upper = bound(network, deviation**2, rows)
            below.append(exact - lower)
            above.append(upper - exact)
        describe(f"S = {n_components}, {kind}", below, above, time.process_time() - started)
    for widths in ((5, 16, 10), (8, 12, 10)):
        network, started = random_network(widths, first_seed), time.process_time()
        rows = draw(network, np.sqrt(0.1), N_SAMPLES, first_seed, 0.0)
        lower, upper = bound(network, 0.1, rows)
        width, seconds = upper - lower, (time.process_time() - started) / len(rows)
        print(
            f"{'-'.join(map(str, widths))}: width median {np.median(width):.2f}, largest "
            f"{width.max():.2f}, {seconds:.2f} s a sample"
        )


def bound(network: Network, variance: float, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Bound log densities."""
    noise = Noise.from_covariance(variance, network.n_features)
    return Model.build(network, noise).log_density_bounds(rows, Workers(1))


def describe(title: str, below: list[np.ndarray], above: list[np.ndarray], seconds: float) -> None:
    """Print how many pairs are contained, and how far bounds are away."""
    low, high = np.concatenate(below), np.concatenate(above)
    width = low + high
    print(
        f"{title}: {np.sum((low >= 0.0) & (high >= 0.0))} of {len(width)} pairs contained, width "
        f"median {np.median(width):.2f}, largest {width.max():.2f} (median below "
        f"{np.median(low):.2f}, above {np.median(high):.2f}), {seconds / len(width):.2f} s a pair",
        flush=True,
    )


def read_images(name: str) -> np.ndarray | None:
    """Read images of MNIST, if they are there."""
    path = Path(os.environ.get("SKDGN_DATA", "no folder"), "mnist", f"{name}-images-idx3-ubyte.gz")
    if not path.is_file():
        return None
    with gzip.open(path) as file:
        return np.frombuffer(file.read(), np.uint8, offset=16).reshape(-1, 784) / 255.0


def make_decoder(kind: str) -> Any:
    """Make a decoder without training."""
    from torch import nn

    if kind == "dense":
        return nn.Sequential(
            nn.Linear(2, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 784)
        )
    return nn.Sequential(
        nn.Linear(2, 16 * 49),
        nn.ReLU(),
        nn.Unflatten(1, (16, 7, 7)),
        nn.ConvTranspose2d(16, 8, 4, stride=2, padding=1),
        nn.ReLU(),
        nn.ConvTranspose2d(8, 1, 4, stride=2, padding=1),
        nn.Flatten(),
    )


def train(decoder: Any, images: np.ndarray, n_steps: int) -> float:
    """Fit a decoder to images, given two principal components; return the mean squared error."""
    import torch

    centered = images - images.mean(axis=0)
    _, _, axes = np.linalg.svd(centered[:1000], full_matrices=False)
    codes = centered @ axes[:2].T
    inputs = torch.tensor(codes / codes.std(axis=0), dtype=torch.float32)
    outputs = torch.tensor(images, dtype=torch.float32)
    optimizer = torch.optim.Adam(decoder.parameters(), 1e-3)
    loss = torch.zeros(1)
    for _ in range(n_steps):
        chosen = torch.randint(0, len(inputs), (128,))
        loss = (decoder(inputs[chosen]) - outputs[chosen]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return float(loss)


def measure_decoder(kind: str, n_images: int) -> None:
    """Print what log densities of images cost, without a list of regions."""
    try:
        import torch
    except ImportError:
        print(f"{kind}: PyTorch is not installed")
        return
    train_images, test_images = read_images("train"), read_images("t10k")
    if train_images is None or test_images is None:
        print(f"{kind}: not found, SKDGN_DATA must name the folder that holds mnist/")
        return
    torch.manual_seed(0)
    decoder = make_decoder(kind)
    variance = train(decoder, train_images[:N_TRAIN], N_STEPS[kind])
    started = time.process_time()
    model = PiecewiseAffineDGN.from_torch(decoder.eval(), variance)
    print(
        f"{kind}: noise variance {variance:.4f}, from_torch {time.process_time() - started:.1f} s"
    )
    images, started = test_images[:n_images], time.process_time()
    lower, upper = model.log_density_bounds(images)
    seconds, width = time.process_time() - started, upper - lower
    print(
        f"{kind}: bounds of {n_images} images {seconds:.0f} s, mean log density "
        f"{lower.mean():.2f}, width median {np.median(width):.1e}, largest {width.max():.1e}, "
        f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.1f} GB",
        flush=True,
    )
    started = time.process_time()
    posterior = model.posterior(images[:2])
    gap = model.elbo(images[:2], posterior.mean, posterior.covariance) - lower[:2]
    print(
        f"{kind}: posterior and evidence lower bound of 2 images "
        f"{time.process_time() - started:.0f} s, bound - log density {gap.round(3)}, peak memory "
        f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.1f} GB"
    )


def main() -> None:
    """Run the parts that were asked for."""
    parts = ["pairs", "many", "dense", "convolutional"]
    parser = argparse.ArgumentParser()
    parser.add_argument("parts", nargs="*", choices=[*parts, []], default=[])
    parser.add_argument("--images", type=int, default=100)
    parser.add_argument("--first-seed", type=int, default=0)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", UserWarning)  # a rest is printed as a width
    for part in arguments.parts or parts:
        if part == "pairs":
            compare_pairs()
        elif part == "many":
            compare_many_dimensions(arguments.first_seed)
        else:
            measure_decoder(part, arguments.images)


if __name__ == "__main__":
    main()
