"""Four latent dimensions and more: how far off estimates are, and how long they take.

Each part is run by a flag; without any, all of them.  Processor time of one thread.
"""

from __future__ import annotations

import argparse
import itertools
import math
import os
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from scipy.linalg import block_diag
from scipy.stats import special_ortho_group
from sklearn.base import clone
from threadpoolctl import threadpool_limits

from skdgn import PiecewiseAffineDGN
from skdgn._fit.statistics import expect
from skdgn._network import Activation, Network
from skdgn._noise import Noise
from skdgn._posterior import Explorer, Model
from skdgn._runtime import Workers

TOLERANCE = 0.01


def random_network(widths: tuple[int, ...], seed: int) -> Network:
    """Draw a ReLU network."""
    rng = np.random.default_rng(seed)
    coefs = [rng.normal(size=(b, a)) / np.sqrt(a) for a, b in itertools.pairwise(widths)]
    intercepts = [0.5 * rng.normal(size=width) for width in widths[1:]]
    return Network.from_arrays(coefs, intercepts, Activation.from_name("relu", 0.0))


def draw(network: Network, deviation: float, n_rows: int, seed: int, far: float) -> np.ndarray:
    """Draw rows from the model; some deviations away from there, if asked."""
    rng = np.random.default_rng([seed, 1])
    rows = network.forward(rng.normal(size=(n_rows, network.n_components)))
    directions = rng.normal(size=rows.shape)
    noise = deviation * directions
    if far > 0.0:
        noise = deviation * far * directions / np.linalg.norm(directions, axis=1, keepdims=True)
    return rows + noise


def long_run(network: Network, variance: float, row: np.ndarray, n_draws: int, seed: int):
    """Log density of a row by plain importance sampling, and its standard error.

    Proposals are Student distributions (10 degrees of freedom) about many maxima, and the prior: a
    tenth of the draws.  Nothing is shared with the package but the network.
    """
    rng = np.random.default_rng([seed, 2])
    n_components = network.n_components
    maxima = find_maxima(network, variance, row, rng)
    centers = np.array([point for point, _ in maxima])
    factors = np.array([factor for _, factor in maxima])
    freedom, n_kinds = 10.0, len(maxima)
    inverses = np.linalg.inv(factors)
    logs = -np.log(np.abs(np.linalg.det(factors))) + math.lgamma(0.5 * (freedom + n_components))
    logs += -math.lgamma(0.5 * freedom) - 0.5 * n_components * math.log(freedom * math.pi)
    log_constant = -0.5 * len(row) * math.log(2.0 * math.pi * variance)
    sums, squares, n_done, shift = 0.0, 0.0, 0, None
    while n_done < n_draws:
        n_part = min(50_000, n_draws - n_done)
        kinds = rng.integers(0, n_kinds, n_part)
        normal = rng.normal(size=(n_part, n_components))
        normal *= np.sqrt(freedom / rng.chisquare(freedom, n_part))[:, None]
        points = centers[kinds] + np.einsum("nst,nt->ns", factors[kinds], normal)
        is_prior = rng.random(n_part) < 0.1
        points[is_prior] = rng.normal(size=(is_prior.sum(), n_components))
        log_prior = -0.5 * np.square(points).sum(axis=1) - 0.5 * n_components * math.log(
            2.0 * math.pi
        )
        mixture = 0.1 * np.exp(log_prior)
        for center, inverse, own in zip(centers, inverses, logs, strict=True):
            square = np.square((points - center) @ inverse.T).sum(axis=1)
            exponent = own - 0.5 * (freedom + n_components) * np.log1p(square / freedom)
            mixture += 0.9 / n_kinds * np.exp(exponent)
        residuals = row - network.forward(points)
        log_joint = log_constant - 0.5 * np.square(residuals).sum(axis=1) / variance + log_prior
        log_weights = log_joint - np.log(mixture)
        shift = log_weights.max() if shift is None else shift
        weights = np.exp(log_weights - shift)
        sums, squares = sums + weights.sum(), squares + np.square(weights).sum()
        n_done += n_part
    error = math.sqrt(max(squares / sums**2 - 1.0 / n_done, 0.0))
    return shift + math.log(sums / n_done), error


def find_maxima(network: Network, variance: float, row: np.ndarray, rng: np.random.Generator):
    """Climb from the best of many draws, and list different maxima with factors around them."""
    draws = rng.normal(size=(20_000, network.n_components))
    heights = -0.5 * np.square(row - network.forward(draws)).sum(axis=1) / variance
    starts = draws[np.argsort(-heights)[:40]]
    found: list[tuple[float, np.ndarray, np.ndarray]] = []
    for z in starts:
        damping, value = 1e-2, -math.inf
        for _ in range(40):
            maps = network.maps(network.patterns(z[None]))[-1]
            slopes = maps.slopes[0]
            curvature = slopes.T @ slopes / variance + np.eye(len(z))
            residual = row - network.forward(z[None])[0]
            value = -0.5 * residual @ residual / variance - 0.5 * z @ z
            gradient = slopes.T @ residual / variance - z
            step = np.linalg.solve(curvature + damping * np.diag(np.diag(curvature)), gradient)
            there = row - network.forward((z + step)[None])[0]
            if -0.5 * there @ there / variance - 0.5 * (z + step) @ (z + step) > value:
                z, damping = z + step, 0.2 * damping
            else:
                damping *= 8.0
        found.append((value, z, np.linalg.cholesky(np.linalg.inv(curvature))))
    found.sort(key=lambda trial: -trial[0])
    chosen: list[tuple[np.ndarray, np.ndarray]] = []
    for value, point, factor in found:
        if value < found[0][0] - 25.0 or len(chosen) == 12:
            break
        if all(
            np.square(np.linalg.solve(other, point - center)).sum() > 0.25
            for center, other in chosen
        ):
            chosen.append((point, 1.3 * factor))
    return chosen


def explore(network: Network, variance: float, tolerance: float = TOLERANCE, seed: int = 0):
    """Return what estimates posteriors, for any number of latent dimensions."""
    noise = Noise.from_covariance(variance, network.n_features)
    return Explorer.prepare(network, noise, tolerance, seed)


def side_by_side(networks: list[Network], seed: int) -> Network:
    """Several networks as one that takes different coordinates of a rotated z."""
    coefs = [block_diag(*layers) for layers in zip(*(own.coefs for own in networks), strict=True)]
    intercepts = [
        np.concatenate(layers) for layers in zip(*(own.intercepts for own in networks), strict=True)
    ]
    turn = special_ortho_group.rvs(coefs[0].shape[1], random_state=seed)
    return Network.from_arrays(
        [coefs[0] @ turn, *coefs[1:]], intercepts, networks[0].activations[0]
    )


def exact_pair(n_components: int, seed: int) -> tuple[Network, list[Network]]:
    """Draw a network of which the density is known: a product of exact ones."""
    sizes = {2: (2,), 3: (3,), 4: (2, 2), 5: (2, 3), 6: (3, 3), 8: (2, 3, 3)}[n_components]
    n_units, n_features = (8, 6, 5)[seed % 3], (5, 4)[seed % 2]
    parts = [
        random_network((size, n_units, n_features), 1000 * n_components + 10 * seed + place)
        for place, size in enumerate(sizes)
    ]
    return side_by_side(parts, seed), parts


def exact_log_density(parts: list[Network], variance: float, rows: np.ndarray) -> np.ndarray:
    """Sum the exact log densities of networks side by side."""
    total, begin = np.zeros(len(rows)), 0
    for part in parts:
        own = rows[:, begin : begin + part.n_features]
        noise = Noise.from_covariance(variance, part.n_features)
        total += Model.build(part, noise).log_density(np.ascontiguousarray(own), Workers())
        begin += part.n_features
    return total


KINDS = {
    "noise 0.3": (math.sqrt(0.1), 0.0),
    "noise 0.03": (0.03, 0.0),
    "10 deviations away": (math.sqrt(0.1), 10.0),
}


def describe(title: str, ratios: list[float], errors: list[float]) -> None:
    """Print how far off estimates are, in units of the errors reported."""
    inside, rms = np.mean(np.abs(ratios) < 3.0), np.sqrt(np.mean(np.square(ratios)))
    print(
        f"  {title}: {len(ratios)} pairs, within 3 errors {100 * inside:.1f} %, largest "
        f"{np.max(np.abs(ratios)):.1f}, root mean square {rms:.2f}, reported error "
        f"{np.mean(errors):.4f}",
        flush=True,
    )


def calibrate(n_components: int, n_networks: int, n_rows: int, first: int = 0) -> list[float]:
    """Errors in units of the reported ones, where the density is known exactly."""
    ratios: list[float] = []
    for kind, (deviation, far) in KINDS.items():
        own, errors = [], []
        for seed in range(first, first + n_networks):
            network, parts = exact_pair(n_components, seed)
            rows = draw(network, deviation, n_rows, seed, far)
            visits = explore(network, deviation**2).visit(rows)
            truth = exact_log_density(parts, deviation**2, rows)
            own.extend((visits.log_density - truth) / visits.log_density_error)
            errors.extend(visits.log_density_error)
        describe(f"S = {n_components}, {kind}", own, errors)
        ratios.extend(own)
    return ratios


def calibrate_by_draws(n_components: int, n_networks: int, n_draws: int) -> list[float]:
    """Errors of networks in general, compared with long runs of another method."""
    ratios: list[float] = []
    for kind, (deviation, far) in KINDS.items():
        own, errors = [], []
        for seed in range(n_networks):
            network = random_network((n_components, 16, 10), 100 * n_components + seed)
            (row,) = draw(network, deviation, 1, seed, far)
            visits = explore(network, deviation**2).visit(row[None])
            truth, doubt = long_run(network, deviation**2, row, n_draws, seed)
            own.append(
                (visits.log_density[0] - truth) / np.hypot(visits.log_density_error, doubt)[0]
            )
            errors.append(visits.log_density_error[0])
        describe(f"S = {n_components}, {kind}, {n_draws} draws", own, errors)
        ratios.extend(own)
    return ratios


def show_calibration(arguments: argparse.Namespace) -> None:
    """Compare with what is known exactly, and with long runs."""
    print("Errors in units of those reported, densities known exactly:")
    ratios: list[float] = []
    for n_components in (2, 3, 4, 5, 6, 8):
        ratios += calibrate(n_components, arguments.networks, 10, arguments.first_seed)
    inside, largest = np.mean(np.abs(ratios) < 3.0), np.max(np.abs(ratios))
    print(f"  all {len(ratios)} pairs: within 3 errors {100 * inside:.1f} %, largest {largest:.1f}")


def show_long_runs(arguments: argparse.Namespace) -> None:
    """Compare with long runs."""
    print("Errors in units of those reported, by long runs:")
    for n_components in (4, 5, 6, 8):
        calibrate_by_draws(n_components, arguments.networks, arguments.draws)


def e_step(
    widths: tuple[int, ...], n_rows: int, seed: int, variance: float = 0.1
) -> tuple[float, float, int]:
    """Seconds of an E-step with statistics, mean error, and number of regions."""
    network = random_network(widths, seed)
    rows = draw(network, math.sqrt(variance), n_rows, seed, 0.0)
    explorer, weights = explore(network, variance), np.ones(n_rows)
    expect(explorer, rows[:4], weights[:4], Workers())  # compile
    began = time.process_time()
    statistics = expect(explorer, rows, weights, Workers())
    seconds = time.process_time() - began
    errors = explorer.visit(rows[:100]).log_density_error
    return seconds, float(errors.mean()), len(statistics.weights)


def show_speed(arguments: argparse.Namespace) -> None:
    """Time E-steps with statistics of 1,000 samples."""
    print("E-step with statistics, 1,000 samples, noise variance 0.1:")
    n_rows = arguments.rows
    for widths, target in (((5, 16, 10), "2 s"), ((8, 12, 10), "5 s"), ((10, 64, 20), "runs")):
        seconds, error, n_regions = e_step(widths, n_rows, arguments.first_seed)
        print(
            f"  {'-'.join(map(str, widths))}: {seconds * 1000 / n_rows:.2f} s "
            f"(target {target}), mean error {error:.4f}, {n_regions} regions met",
            flush=True,
        )


def show_growth(arguments: argparse.Namespace) -> None:
    """Time E-steps of ever wider networks."""
    print("Growth with the number of units, S = 5, 10 features, 100 samples:")
    for n_units in (16, 32, 64, 128, 256):
        seconds, error, n_regions = e_step((5, n_units, 10), 100, arguments.first_seed)
        print(
            f"  {n_units} units: {10 * seconds:.2f} ms a sample, mean error {error:.4f}, "
            f"{n_regions} regions met",
            flush=True,
        )


def show_wine(arguments: argparse.Namespace) -> None:
    """Fit red wine with two and five latent dimensions."""
    path = Path(os.environ.get("SKDGN_DATA", "")) / "uci" / "winequality-red.csv"
    if not path.exists():
        print(f"Red wine: no {path}, skipped.")
        return
    text = path.read_text().replace(";", ",").splitlines()[1:]
    table = np.array([[float(value) for value in line.split(",")] for line in text])[:, :11]
    seed = arguments.first_seed
    order = np.random.default_rng(seed).permutation(len(table))
    train, test = table[order[:1200]], table[order[1200:]]
    mean, deviation = train.mean(axis=0), train.std(axis=0)
    train, test = (train - mean) / deviation, (test - mean) / deviation
    print("Red wine, 11 columns, 8 units, spherical noise:")
    for n_components in (2, 5):
        model = PiecewiseAffineDGN(
            n_components, hidden_layer_sizes=(8,), covariance_type="spherical", random_state=seed
        )
        clone(model).set_params(max_iter=2, tol=1.0).fit(train[:50])  # compile
        began = time.process_time()
        model.fit(train)
        seconds = time.process_time() - began
        print(
            f"  S = {n_components}: {seconds:.0f} s, {model.n_iter_} iterations, converged "
            f"{model.converged_}, train {model.lower_bound_:.3f} +- "
            f"{model.lower_bound_error_:.4f}, held-out {model.score(test):.3f}",
            flush=True,
        )


PARTS: dict[str, Callable[[argparse.Namespace], None]] = {
    "calibration": show_calibration,
    "long-runs": show_long_runs,
    "speed": show_speed,
    "growth": show_growth,
    "wine": show_wine,
}


def main() -> None:
    """Run the parts asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in PARTS:
        parser.add_argument(f"--{name}", action="store_true")
    parser.add_argument("--networks", type=int, default=6)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--draws", type=int, default=10_000_000)
    parser.add_argument("--rows", type=int, default=1000)
    arguments = parser.parse_args()
    chosen = [name for name in PARTS if getattr(arguments, name.replace("-", "_"))] or list(PARTS)
    with threadpool_limits(limits=1):
        for name in chosen:
            PARTS[name](arguments)


if __name__ == "__main__":
    main()
