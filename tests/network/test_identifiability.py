"""The number of identifiable parameters is the rank of the derivatives of the density."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pytest

from skdgn._network import ACTIVATIONS, Codes, Network
from skdgn._noise.gaussian import Noise
from skdgn._posterior.model import Model
from skdgn._runtime.types import Floats
from skdgn._runtime.workers import Workers
from tests.networks import make_network
from tests.portions import portions

# From the latent space to the features: bottlenecks in either layer, more latent dimensions than
# units, no layer.  Random ones follow.
ARCHITECTURES: list[Sequence[int]] = [
    (1, 3),
    (2, 3),
    (3, 2),
    (2, 4),
    (2, 1, 2),
    (2, 3, 2),
    (3, 1, 3),
    (3, 2, 3),
    (2, 1, 1, 2),
    (2, 2, 1, 2),
    (3, 2, 1, 3),
    (2, 3, 1, 2, 3),
]
N_NETWORKS, PORTION = 40, 10
N_SAMPLES = 150
VARIANCE = 0.01

# Singular values of matrices with columns of length 1 that are not rounding, whose largest is
# 2e-10; the smallest others are 1e-8 for the density, and larger for the generator.
CUT = 2e-9
SMALLEST_OF_GENERATOR = 1e-4


def draw_network(seed: int) -> Network:
    """Draw a network whose generator depends on all weights, but for the scales of units.

    A dead unit's weights move nothing, and a later layer of ReLU units may hide earlier kinks.
    """
    if seed < len(ARCHITECTURES):
        widths = ARCHITECTURES[seed]
    else:
        sizes = np.random.default_rng([seed, 1])
        widths = [*sizes.integers(1, 4, size=2 + seed % 3), sizes.integers(2, 5)]
    rng = np.random.default_rng(seed)
    latent = rng.normal(size=(200, widths[0]))
    while True:
        network = make_network(
            [rng.normal(size=(n_out, n_in)) for n_in, n_out in itertools.pairwise(widths)],
            [0.5 * rng.normal(size=width) for width in widths[1:]],
            ACTIVATIONS[seed % len(ACTIVATIONS)],
        )
        patterns, counts = np.unique(network.patterns(latent), axis=0, return_counts=True)
        changes = derivatives_of_maps(network, patterns[counts > 5])
        values = singular_values(changes.reshape(len(changes), -1).T)
        if values[len(changes) - sum(widths[1:-1]) - 1] > SMALLEST_OF_GENERATOR:
            return network


def maps_of(network: Network, patterns: Codes) -> Floats:
    """Affine maps of the regions of these patterns, offsets last: (R, D, S + 1)."""
    maps = network.maps(patterns)[-1]
    return np.concatenate([maps.slopes, maps.offsets[:, :, None]], axis=2)


def derivatives_of_maps(network: Network, patterns: Codes) -> Floats:
    """Derivatives of the regions' maps by every weight: (P, R, D, S + 1)."""
    arrays, n_layers = [*network.coefs, *network.intercepts], len(network.coefs)
    here = maps_of(network, patterns)
    derivatives = []
    for k, array in enumerate(arrays):
        for entry in np.ndindex(array.shape):
            moved = array.copy()
            moved[entry] += 1.0  # maps are linear in each weight: no step is too large
            changed = [*arrays[:k], moved, *arrays[k + 1 :]]
            there = Network.from_arrays(changed[:n_layers], changed[n_layers:], network.activations)
            derivatives.append(maps_of(there, patterns) - here)
    return np.array(derivatives)


def derivatives_of_density(model: Model, samples: Floats, by_maps: Floats) -> Floats:
    """Derivatives of the log density of samples by all parameters, by Fisher's identity: (n, P).

    They are what the posterior expects of the derivatives of log p(x, z); those of the maps of
    all regions are given.
    """
    network, patterns, noise = model.network, model.partition.patterns, model.noise
    posterior = model.posterior(samples, Workers())
    visits = posterior._visits
    weights = visits.responsibilities[:, None]
    slopes, offsets = np.split(maps_of(network, patterns)[visits.regions], [-1], axis=2)
    residuals = samples[posterior._samples] - np.squeeze(
        slopes @ visits.means[:, :, None] + offsets, 2
    )
    # What the posterior expects on a region of (x - g(z)) (z, 1)', and of (x - g(z)) (x - g(z))'.
    cross = np.concatenate(
        [
            residuals[:, :, None] * visits.means[:, None, :] - slopes @ visits.covariances,
            residuals[:, :, None],
        ],
        axis=2,
    )
    squares = residuals[:, :, None] * residuals[:, None, :]
    squares += slopes @ visits.covariances @ slopes.transpose(0, 2, 1)

    precision = np.linalg.inv(noise.color(noise.color(np.eye(network.n_features)).T))
    changes = by_maps[:, visits.regions]
    by_weights = np.einsum("pvdi,de,vei->vp", changes, precision, cross, optimize=True)
    by_entries = precision @ squares @ precision - precision
    by_noise = {
        "spherical": np.trace(by_entries, axis1=1, axis2=2)[:, None],
        "diag": np.diagonal(by_entries, axis1=1, axis2=2),
        "full": by_entries[:, *np.tril_indices(len(precision))],
        "factor": np.concatenate(
            [
                np.diagonal(by_entries, axis1=1, axis2=2),
                (by_entries @ noise.loadings).reshape(len(by_entries), -1),
            ],
            axis=1,
        ),
    }[noise.covariance_type]
    per_visit = weights * np.concatenate([by_weights, by_noise], axis=1)
    return np.add.reduceat(per_visit, visits.start[:-1], axis=0)


def singular_values(derivatives: Floats) -> Floats:
    """Singular values after scaling columns to length 1; as many as there are columns."""
    lengths = np.linalg.norm(derivatives, axis=0)
    values = np.linalg.svd(derivatives / np.maximum(lengths, 1e-300), compute_uv=False)
    return np.pad(values, (0, derivatives.shape[1] - len(values)))


def build(network: Network, covariance_type: str) -> Model:
    n_features = network.n_features
    variances = VARIANCE * np.linspace(0.5, 2.0, n_features)
    covariance = {
        "spherical": np.array(VARIANCE),
        "diag": variances,
        "full": np.diag(variances) + 0.3 * VARIANCE,
        "factor": (np.sqrt(VARIANCE) * np.cos(np.arange(2 * n_features)).reshape(-1, 2), variances),
    }[covariance_type]
    return Model.build(network, Noise.from_covariance(covariance, n_features))


def draw_samples(network: Network, seed: int) -> Floats:
    rng = np.random.default_rng(seed)
    samples = network.forward(rng.normal(size=(N_SAMPLES, network.n_components)))
    return samples + 0.3 * rng.normal(size=samples.shape)


@pytest.mark.no_cover
@pytest.mark.parametrize("first", portions(N_NETWORKS, PORTION))
def test_as_many_parameters_are_counted_as_the_density_tells_apart(first: int) -> None:
    for seed in range(first, first + PORTION):
        network = draw_network(seed)
        samples = draw_samples(network, seed)
        by_maps = derivatives_of_maps(network, build(network, "spherical").partition.patterns)
        for covariance_type in ("spherical", "diag", "full", "factor"):
            model = build(network, covariance_type)
            values = singular_values(derivatives_of_density(model, samples, by_maps))
            assert model.n_parameters == np.sum(values > CUT), (seed, covariance_type)


def test_derivatives_are_those_of_the_density() -> None:
    """The reference itself, by central differences in each weight."""
    network = draw_network(ARCHITECTURES.index((2, 2, 1, 2)))
    samples = draw_samples(network, 0)[:10]
    model = build(network, "diag")
    by_maps = derivatives_of_maps(network, model.partition.patterns)
    derivatives = derivatives_of_density(model, samples, by_maps)
    arrays, step, column = [*network.coefs, *network.intercepts], 1e-5, 0
    for k, array in enumerate(arrays):
        for entry in np.ndindex(array.shape):
            ends = []
            for sign in (1.0, -1.0):
                moved = array.copy()
                moved[entry] += sign * step
                changed = [*arrays[:k], moved, *arrays[k + 1 :]]
                there = Network.from_arrays(changed[:3], changed[3:], network.activations)
                ends.append(build(there, "diag").log_density(samples, Workers()))
            slope = (ends[0] - ends[1]) / (2.0 * step)
            np.testing.assert_allclose(derivatives[:, column], slope, rtol=1e-5, atol=1e-5)
            column += 1
