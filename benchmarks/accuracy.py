"""Errors of the log density, near and far from the rows a network draws.

    python benchmarks/accuracy.py

Up to three latent dimensions, against products of closed forms in 60 digits: networks act on each
coordinate of a turned latent space separately, so that their density is a product of densities with
one latent dimension, which are sums of error functions.  None of that is known to the package; but
all cells are boxes (tests have cells of every shape).  With four dimensions, against the product of
two exact densities with two, whose cells are not.

Rows are drawn from the network and moved away, by so many deviations of the noise.  Printed is the
largest error of log p(x), divided by its absolute value where that exceeds 1; with four dimensions
the error itself, its mean and largest value, beside the standard error that is reported.

At last, random networks of up to four hidden layers and 64 units, with weights from 1e-6 to 1e6,
noise from 1e-8 to 1e4, covariances of condition 1e12, missing values, up to 1e4 deviations away
(`tests/reference/fuzz.py`): the largest errors by what multiplies rounding errors, the ratio of
signal and noise.
Needs mpmath.
"""

from __future__ import annotations

import itertools
import sys
from dataclasses import dataclass
from pathlib import Path

import mpmath
import numpy as np
import scipy.linalg
from scipy.stats import special_ortho_group

from skdgn import PiecewiseAffineDGN

sys.path.insert(0, str(Path(__file__).parents[1]))  # the references are with the tests
from tests.reference.fuzz import draw_case

N_UNITS, N_FEATURES = 5, 2  # of each latent coordinate
SLOPE = 0.1
DEVIATION = 0.1
N_ROWS = 40
DISTANCES = (0.0, 3.0, 10.0, 100.0, 1000.0, 1e6)

# Random networks: of independent latent dimensions, and with two that are not, which take longer.
N_LINES, N_PLANES = 80, 16
N_LINE_ROWS, N_PLANE_ROWS = 4, 2

mpmath.mp.dps = 60


@dataclass(frozen=True)
class Line:
    """A network 1-5-2."""

    weights: np.ndarray  # (5,)
    biases: np.ndarray  # (5,)
    output: np.ndarray  # (2, 5)
    offset: np.ndarray  # (2,)

    @classmethod
    def random(cls, rng: np.random.Generator) -> Line:
        weights = rng.normal(size=N_UNITS)
        return cls(
            weights,
            -weights * rng.normal(size=N_UNITS),
            rng.normal(size=(N_FEATURES, N_UNITS)),
            rng.normal(size=N_FEATURES),
        )

    def log_density(self, row: np.ndarray) -> mpmath.mpf:
        """Sum over the intervals between kinks, each an exponential times error functions."""
        weights, biases = map(mpmath.mpf, self.weights), map(mpmath.mpf, self.biases)
        units = list(zip(weights, biases, strict=True))
        kinks = sorted(-b / w for w, b in units)
        ends = [-mpmath.inf, *kinks, mpmath.inf]
        variance = mpmath.mpf(DEVIATION**2)
        total = mpmath.mpf(0)
        for lower, upper in itertools.pairwise(ends):
            inside = (max(lower, upper - 2) + min(upper, lower + 2)) / 2
            sides = [1 if w * inside + b > 0 else mpmath.mpf(SLOPE) for w, b in units]
            precision, pull, square = mpmath.mpf(1), mpmath.mpf(0), mpmath.mpf(0)
            for d in range(N_FEATURES):
                factors = [mpmath.mpf(self.output[d, u]) * side for u, side in enumerate(sides)]
                slope = sum(f * w for f, (w, _) in zip(factors, units, strict=True))
                offset = sum(f * b for f, (_, b) in zip(factors, units, strict=True))
                residual = mpmath.mpf(row[d]) - offset - mpmath.mpf(self.offset[d])
                precision += slope**2 / variance
                pull += slope * residual / variance
                square += residual**2 / variance
            center, root = pull / precision, mpmath.sqrt(precision / 2)
            a, b = (lower - center) * root, (upper - center) * root
            # In the tail in which no digits cancel.
            mass = mpmath.erfc(a) - mpmath.erfc(b) if a > 0 else mpmath.erfc(-b) - mpmath.erfc(-a)
            peak = mpmath.exp(-(square - pull**2 / precision) / 2) / mpmath.sqrt(precision)
            total += peak * mass / 2
        return mpmath.log(total) - N_FEATURES * mpmath.log(2 * mpmath.pi * variance) / 2


def stack(blocks: list[np.ndarray]) -> np.ndarray:
    """Put matrices on the diagonal of a larger one."""
    return np.asarray(scipy.linalg.block_diag(*blocks))


def build(coefs: list[np.ndarray], intercepts: list[np.ndarray]) -> PiecewiseAffineDGN:
    """Make an estimator with the common noise and activation."""
    return PiecewiseAffineDGN.from_network(
        coefs, intercepts, DEVIATION**2, activation="leaky_relu", negative_slope=SLOPE
    )


def far_rows(model: PiecewiseAffineDGN, rng: np.random.Generator) -> dict[float, np.ndarray]:
    """Rows of a model, and the same moved away in random directions."""
    drawn, _ = model.sample(N_ROWS, random_state=0)
    directions = rng.normal(size=drawn.shape)
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    return {distance: drawn + distance * DEVIATION * directions for distance in DISTANCES}


def largest_errors(n_components: int) -> tuple[int, list[float]]:
    """Number of regions, and the largest relative error at each distance."""
    rng = np.random.default_rng(n_components)
    lines = [Line.random(rng) for _ in range(n_components)]
    turn = np.eye(1) if n_components == 1 else special_ortho_group(n_components, rng).rvs()
    model = build(
        [stack([line.weights[:, None] for line in lines]) @ turn, stack([o.output for o in lines])],
        [np.concatenate([o.biases for o in lines]), np.concatenate([o.offset for o in lines])],
    )
    errors = []
    for rows in far_rows(model, rng).values():
        differences = []
        for row, found in zip(rows, model.score_samples(rows), strict=True):
            parts = row.reshape(n_components, N_FEATURES)
            exact = sum(line.log_density(part) for line, part in zip(lines, parts, strict=True))
            differences.append(float(abs(mpmath.mpf(found) - exact) / max(1, abs(exact))))
        errors.append(max(differences))
    return model.n_regions_, errors


def estimated_errors() -> None:
    """Print errors with four latent dimensions, and what they are said to be."""
    rng = np.random.default_rng(4)
    planes = [
        (
            [rng.normal(size=(6, 2)), rng.normal(size=(3, 6))],
            [rng.normal(size=6), rng.normal(size=3)],
        )
        for _ in range(2)
    ]
    turn = special_ortho_group(4, rng).rvs()
    first, last = (stack([coefs[layer] for coefs, _ in planes]) for layer in range(2))
    intercepts = [np.concatenate([v[layer] for _, v in planes]) for layer in range(2)]
    model = build([first @ turn, last], intercepts)
    parts = [build(*plane) for plane in planes]
    print(f"four latent dimensions, {model.n_regions_} regions: error of log p(x)")
    print("deviations       mean    largest   reported")
    for distance, rows in far_rows(model, rng).items():
        if distance > 1000.0:
            continue  # log densities of 1e11: their last digit is larger than the errors
        exact = parts[0].score_samples(rows[:, :3]) + parts[1].score_samples(rows[:, 3:])
        posterior = model.posterior(rows)
        errors = np.abs(model.score_samples(rows) - exact)
        reported = posterior.log_density_error.mean()
        print(f"{distance:10g}  {errors.mean():9.1e}  {errors.max():9.1e}  {reported:9.1e}")


def random_networks() -> None:
    """Print the largest errors of random networks by their SNR."""
    ends = (1e2, 1e4, 1e6, 1e8, 1e10, 1e12, np.inf)
    print("random networks: largest error of log p(x), relative; number of rows in brackets")
    print(
        "latent",
        *(f"{'SNR <' if end < np.inf else 'above'} {min(end, 1e12):<9.0e}" for end in ends),
    )
    for n_components in (1, 2, 3):
        worst, counts = np.zeros(len(ends)), np.zeros(len(ends), dtype=int)
        for planes, n_cases, n_rows in (
            (False, N_LINES, N_LINE_ROWS),
            (True, N_PLANES if n_components > 1 else 0, N_PLANE_ROWS),
        ):
            for seed in range(n_cases):
                rng = np.random.default_rng([n_components, int(planes), seed])
                case = draw_case(rng, n_components, n_rows, planes)
                group = int(np.searchsorted(ends, case.difficulty, side="right"))
                worst[group] = max(worst[group], case.largest_error())
                counts[group] += n_rows
        cells = (f"{error:.1e} ({count})" for error, count in zip(worst, counts, strict=True))
        print(f"{n_components:6d}", *(f"{cell:15s}" for cell in cells), flush=True)


def main() -> None:
    """Compare and print."""
    print("largest error of log p(x), relative, so many noise deviations away")
    print("latent  regions", *(f"{distance:>9g}" for distance in DISTANCES))
    for n_components in (1, 2, 3):
        n_regions, errors = largest_errors(n_components)
        print(f"{n_components:6d}  {n_regions:7d}", *(f"{e:9.1e}" for e in errors), flush=True)
    estimated_errors()
    random_networks()


if __name__ == "__main__":
    main()
