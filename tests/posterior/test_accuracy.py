"""Digits lost: against high precision, over signal-to-noise ratios from 1 to 1e12."""

from __future__ import annotations

import numpy as np
import pytest

from skdgn import PiecewiseAffineDGN
from tests.reference.exact_density import ExactNetwork
from tests.reference.fuzz import NEGATIVE_SLOPES, draw_case

# The problem multiplies rounding errors by the SNR; a sum of some of them is allowed.
ROUNDING = 30.0 * np.finfo(float).eps

pytestmark = pytest.mark.no_cover


# S, hidden units, activation: regions of rank 1 or less, of lower rank than S, and of full rank.
ARCHITECTURES = [
    (1, 3, "relu"),
    (2, 1, "relu"),
    (2, 3, "relu"),
    (2, 3, "leaky_relu"),
    (3, 1, "relu"),
    (3, 2, "relu"),
    (3, 2, "leaky_relu"),
]


@pytest.mark.parametrize(("n_components", "n_units", "activation"), ARCHITECTURES)
def test_no_more_digits_are_lost_than_the_snr_has(
    n_components: int, n_units: int, activation: str
) -> None:
    """Log density, and the posterior mean in deviations of the posterior; near and far samples.

    One of them is complete, by turns.
    """
    slope = NEGATIVE_SLOPES[activation]
    arguments = {"negative_slope": slope} if activation == "leaky_relu" else {}
    for exponent in (0, 4, 8, 12):
        rng = np.random.default_rng([n_components, n_units])
        coefs = [rng.normal(size=(n_units, n_components)), rng.normal(size=(3, n_units))]
        intercepts = [rng.normal(size=n_units), rng.normal(size=3)]
        deviation = 10.0**-exponent
        model = PiecewiseAffineDGN.from_network(
            coefs, intercepts, deviation**2, activation=activation, **arguments
        )
        rows = model.inverse_transform(rng.normal(size=(2, n_components)))
        rows += deviation * rng.normal(size=rows.shape)
        rows[1] += 10.0 * deviation * rng.normal(size=3)
        rows[exponent // 4 % 2, 0] = np.nan
        exact_network = ExactNetwork.build(coefs, intercepts, slope, deviation**2)
        allowed = ROUNDING * max(1.0, exact_network.snr())
        posterior = model.posterior(rows)
        for n, log_density in enumerate(model.score_samples(rows)):
            exact = exact_network.evaluate(rows[n])
            scale = max(1.0, abs(float(exact.log_density)))
            assert abs(float(log_density - exact.log_density)) <= allowed * scale
            # (Far away, the residual's rounding errors are multiplied by its length.)
            assert exact.deviations(posterior.mean[n]) <= allowed * (1.0 if n == 0 else 10.0)


@pytest.mark.parametrize("n_components", [1, 2, 3])
def test_random_models_far_and_near(n_components: int) -> None:
    """The subset of `benchmarks/accuracy.py` that is done soon."""
    for planes, n_cases in ((False, 12 if n_components < 3 else 6), (n_components > 1, 1)):
        for seed in range(n_cases):
            rng = np.random.default_rng([n_components, int(planes), seed])
            case = draw_case(rng, n_components, 2, planes)
            assert case.largest_error() <= ROUNDING * case.difficulty, seed
