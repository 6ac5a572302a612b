"""Log-likelihoods of VAEs with many latent dimensions: importance sampling beside IWAE's bound.

    SKDGN_DATA=<folder with mnist/> python benchmarks/iwae.py [--dimensions 4 8 10] [--images 40]

Variational autoencoders are trained on MNIST (scikit-learn's digits where it is not at hand), with
one hidden layer in the decoder.  The log-likelihood of test images is then estimated twice: by
`score_samples`, whose proposals are the Gaussians of regions, and by IWAE's bound (Burda, Grosse
and Salakhutdinov, 2016), whose proposal is the trained encoder, with 5,000 draws and with as many
as take the same time.  In expectation both are below the log-likelihood: the higher one is tighter.
Seconds are the processor's, of one thread.  Prints "not run" where PyTorch is not installed.
"""

from __future__ import annotations

import argparse
import time
from importlib.util import find_spec

import numpy as np
from layers import load_images
from numpy.typing import NDArray
from scipy.special import logsumexp
from threadpoolctl import threadpool_limits

from skdgn.vae import GaussianVAE

Floats = NDArray[np.float64]

N_TRAIN = 5000
N_UNITS = 64
N_EPOCHS = 30
N_DRAWS = 5000
# Draws at a time, of one image.
N_AT_A_TIME = 5000


def train_vae(images: Floats, n_components: int, seed: int) -> GaussianVAE:
    """Train a VAE for some epochs, not to convergence."""
    import torch

    torch.manual_seed(seed)
    start = torch.nn.Sequential(
        torch.nn.Linear(n_components, N_UNITS),
        torch.nn.LeakyReLU(0.1),
        torch.nn.Linear(N_UNITS, images.shape[1]),
    )
    vae = GaussianVAE(
        start, 0.05, encoder_layer_sizes=(128, 128), max_iter=N_EPOCHS, random_state=seed
    )
    return vae.fit(images)


def bound_by_draws(vae: GaussianVAE, images: Floats, n_draws: int, seed: int) -> Floats:
    """Return IWAE's bound of each image: the log of the mean weight of draws from the encoder."""
    import torch

    generator = np.random.default_rng(seed)
    means, covariances = vae.encode(images)
    deviations = np.sqrt(np.diagonal(covariances, axis1=1, axis2=2))
    variance = vae.noise_covariance_
    log_constant = -0.5 * images.shape[1] * np.log(2.0 * np.pi * variance)
    bounds = np.empty(len(images))
    for number, image in enumerate(images):
        log_weights = []
        for begin in range(0, n_draws, N_AT_A_TIME):
            shape = min(N_AT_A_TIME, n_draws - begin), means.shape[1]
            errors = generator.standard_normal(shape)
            latent = means[number] + deviations[number] * errors
            with torch.no_grad():
                outputs = vae.decoder_(torch.tensor(latent, dtype=torch.float32)).numpy()
            squares = np.square(image - outputs.astype(np.float64)).sum(axis=1)
            log_joint = log_constant - 0.5 * squares / variance - 0.5 * (latent**2).sum(axis=1)
            log_proposal = -0.5 * (errors**2).sum(axis=1) - np.log(deviations[number]).sum()
            log_weights.append(log_joint - log_proposal)
        bounds[number] = logsumexp(np.concatenate(log_weights)) - np.log(n_draws)
    return bounds


def compare(n_components: int, n_images: int, seed: int) -> None:
    """Train a VAE, and print its log-likelihood as both estimate it."""
    images = load_images()
    order = np.random.default_rng(seed).permutation(len(images))
    images = images[order].reshape(len(images), -1)
    n_train = min(N_TRAIN, len(images) - n_images)
    vae = train_vae(images[:n_train], n_components, seed)
    test = images[n_train : n_train + n_images]
    model = vae.to_estimator()
    model.score_samples(test[:2])  # kernels are compiled, or loaded, before anything is timed
    began = time.process_time()
    ours = model.score_samples(test)
    seconds = time.process_time() - began
    error = model.posterior(test).log_density_error
    print(
        f"S = {n_components}, {n_images} images: score_samples {ours.mean():.3f}, standard error "
        f"of an image {error.mean():.3f}, {seconds:.1f} s",
        flush=True,
    )
    n_draws, spent = N_DRAWS, 0.0
    for _ in range(2):
        began = time.process_time()
        theirs = bound_by_draws(vae, test, n_draws, seed)
        spent = time.process_time() - began
        higher = np.count_nonzero(ours > theirs)
        print(
            f"    IWAE, {n_draws} draws {theirs.mean():.3f} in {spent:.1f} s; score_samples is "
            f"higher by {np.mean(ours - theirs):.3f} nats (at most {np.max(ours - theirs):.3f}), "
            f"on {higher} of {n_images} images",
            flush=True,
        )
        n_draws = max(2, round(n_draws * seconds / spent))


def main() -> None:
    """Read the options, and compare."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dimensions", type=int, nargs="+", default=[4, 8, 10])
    parser.add_argument("--images", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    if find_spec("torch") is None:
        print("not run: PyTorch is not installed")
        return
    import torch

    torch.set_num_threads(1)
    with threadpool_limits(1):
        for n_components in arguments.dimensions:
            compare(n_components, arguments.images, arguments.seed)


if __name__ == "__main__":
    main()
