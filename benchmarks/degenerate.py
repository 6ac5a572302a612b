"""Networks whose boundaries are nearly equal and nearly meet in one point.

    python benchmarks/degenerate.py [networks for two dimensions] [for three]

10,000 and 2,000 networks by default, half of them with two hidden layers: two to six units whose
boundaries pass within d of one point, two of them with weights that differ by d, d from 1e-14 to
0.1.  EM drives units together, so that fits meet such networks.  Printed is for how many of them
the prior masses of the regions do not sum to 1 within 1e-11, and the largest error of the sum.
"""

from __future__ import annotations

import sys

import numpy as np

from skdgn import PiecewiseAffineDGN

ACCURACY = 1e-11
ACTIVATIONS = ("relu", "leaky_relu", "abs")
SLOPE = 0.1
N_FEATURES = 3


def activate(values: np.ndarray, activation: str) -> np.ndarray:
    """Apply an activation by name."""
    slope = {"relu": 0.0, "leaky_relu": SLOPE, "abs": -1.0}[activation]
    return np.where(values > 0.0, values, slope * values)


def nearly_concurrent(n_components: int, n_layers: int, seed: int) -> PiecewiseAffineDGN:
    """Draw a network whose boundaries nearly meet in one point."""
    rng = np.random.default_rng([n_components, n_layers, seed])
    activation = ACTIVATIONS[seed % len(ACTIVATIONS)]
    distance = 10.0 ** rng.uniform(-14.0, -1.0)
    image = rng.normal(size=n_components)
    coefs, intercepts = [], []
    for width in rng.integers(2, (7, 5)[:n_layers]):
        coef = rng.normal(size=(width, len(image)))
        coef[1] = coef[0] + distance * rng.normal(size=len(image))
        coefs.append(coef)
        intercepts.append(-coef @ image + distance * rng.normal(size=width))
        image = activate(coef @ image + intercepts[-1], activation)
    coefs.append(rng.normal(size=(N_FEATURES, len(image))))
    intercepts.append(rng.normal(size=N_FEATURES))
    return PiecewiseAffineDGN.from_network(
        coefs, intercepts, 0.1, activation=activation, negative_slope=SLOPE
    )


def count(n_components: int, n_layers: int, n_networks: int) -> tuple[int, float]:
    """Count the networks whose masses do not sum to 1; the largest error of a sum."""
    errors = np.empty(n_networks)
    for seed in range(n_networks):
        model = nearly_concurrent(n_components, n_layers, seed)
        errors[seed] = abs(model.weights_.sum() - 1.0)
    return int(np.count_nonzero(~(errors <= ACCURACY))), float(errors.max())


if __name__ == "__main__":
    numbers = [int(number) for number in sys.argv[1:]] or [10_000, 2_000]
    print("latent dimensions  hidden layers  networks  wrong  largest error")
    for n_components, n_networks in zip((2, 3), numbers, strict=False):
        for n_layers in (1, 2):
            n_wrong, largest = count(n_components, n_layers, n_networks // 2)
            print(
                f"{n_components:17}{n_layers:15}{n_networks // 2:10}{n_wrong:7}{largest:15.1e}",
                flush=True,
            )
