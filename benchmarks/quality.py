"""Held-out mean log-likelihood with the defaults, beside mixtures, kernels and the truth.

    python benchmarks/quality.py                    everything
    python benchmarks/quality.py --only spiral      one part (or several)

Rivals choose their size on the held-out rows; ours never sees them.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp, ndtr, ndtri
from sklearn.datasets import load_digits, make_s_curve
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture
from sklearn.neighbors import KernelDensity

from skdgn import PiecewiseAffineDGN
from skdgn._fit import network_fit as _fitting
from skdgn.datasets import make_noisy_circle, make_spiral, make_wave

Floats = NDArray[np.float64]

N_COMPONENTS = (1, *range(2, 31, 2))
BANDWIDTHS = np.geomspace(0.02, 0.6, 12)
N_POINTS = 4000  # of the midpoint rule along a true curve

# Candidates for the S-curve; the least BIC on the training rows wins.
S_CURVE_WIDTHS = ((12,), (16,), (24,), (8, 8), (12, 12))


@dataclass
class Clock:
    """Seconds spent on fits and, of these, on starting values."""

    total: float = 0.0
    starting: float = 0.0

    @property
    def ratio(self) -> float:
        """Finding coordinates and fitting networks to them, over all iterations of EM."""
        return self.starting / (self.total - self.starting)


@dataclass
class Scores:
    """One value per seed."""

    ours: list[float] = field(default_factory=list)
    mixture: list[float] = field(default_factory=list)
    kernels: list[float] = field(default_factory=list)
    truth: list[float] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    clock: Clock = field(default_factory=Clock)


@contextmanager
def timed(clock: Clock) -> Iterator[None]:
    """Time a fit, and the starting values within it."""
    original = _fitting.starting_network

    def starting_network(*arguments: Any) -> Any:
        started = time.perf_counter()
        try:
            return original(*arguments)
        finally:
            clock.starting += time.perf_counter() - started

    _fitting.starting_network = starting_network
    started = time.perf_counter()
    try:
        yield
    finally:
        clock.total += time.perf_counter() - started
        _fitting.starting_network = original


def fit(clock: Clock, rows: Floats, seed: int, **parameters: Any) -> PiecewiseAffineDGN:
    """Fit with the defaults except where named."""
    model = PiecewiseAffineDGN(random_state=seed, **parameters)
    with warnings.catch_warnings(), timed(clock):
        # Some fits still creep upwards after max_iter iterations: the default is what counts.
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.fit(rows)


def best_mixture(train: Floats, test: Floats, covariance_type: str = "full") -> float:
    """Score of the mixture whose number of components suits the test rows best."""
    with warnings.catch_warnings():
        # A rival that has not converged may still be the best one.
        warnings.simplefilter("ignore", ConvergenceWarning)
        return max(
            GaussianMixture(n, covariance_type=covariance_type, random_state=0)
            .fit(train)
            .score(test)
            for n in N_COMPONENTS
        )


def best_kernels(train: Floats, test: Floats) -> float:
    """Score of the Gaussian kernels whose bandwidth suits the test rows best."""
    return max(
        float(np.mean(KernelDensity(bandwidth=width).fit(train).score_samples(test)))
        for width in BANDWIDTHS
    )


def log_density_around(curve: Floats, deviation: float, rows: Floats) -> Floats:
    """Log density of a uniform point of the curve plus noise; the curve as a list of points."""
    logs = [
        logsumexp(-0.5 * np.sum((curve - row) ** 2, axis=1) / deviation**2) - np.log(len(curve))
        for row in rows
    ]
    return np.array(logs) - rows.shape[1] * np.log(deviation * np.sqrt(2.0 * np.pi))


def midpoints() -> Floats:
    """Return points of (0, 1)."""
    return (np.arange(N_POINTS) + 0.5) / N_POINTS


def circle_curve() -> Floats:
    angle = 2.0 * np.pi * midpoints()
    return np.stack([np.cos(angle), np.sin(angle)], axis=1)


def spiral_curve() -> Floats:
    t = midpoints()
    return 2.0 * t[:, None] * np.stack([np.cos(3 * np.pi * t), np.sin(3 * np.pi * t)], axis=1)


def wave_curve() -> Floats:
    t = ndtri(midpoints())
    return np.stack([t, np.cos(1.4 * t)], axis=1)


@dataclass(frozen=True)
class Curve:
    """A curve with noise around it: 1,000 rows to fit, 4,000 to judge."""

    make: Callable[..., Floats]
    points: Floats
    deviation: float
    seeds: int

    @cached_property
    def rows(self) -> list[tuple[Floats, Floats]]:
        """Training and test rows by seed."""
        draws = [
            self.make(5000, noise=self.deviation, random_state=seed) for seed in range(self.seeds)
        ]
        return [(rows[:1000], rows[1000:]) for rows in draws]

    @cached_property
    def rivals(self) -> tuple[list[float], list[float], list[float]]:
        """Scores of mixtures, kernels and the truth by seed."""
        return (
            [best_mixture(train, test) for train, test in self.rows],
            [best_kernels(train, test) for train, test in self.rows],
            [
                float(np.mean(log_density_around(self.points, self.deviation, test)))
                for _, test in self.rows
            ],
        )

    def run(self, hidden_layer_sizes: tuple[int, ...]) -> Scores:
        """Fit and compare."""
        clock = Clock()
        ours = [
            fit(clock, train, seed, hidden_layer_sizes=hidden_layer_sizes).score(test)
            for seed, (train, test) in enumerate(self.rows)
        ]
        return Scores(ours, *self.rivals, clock=clock)


def s_curve_truth(rows: Floats, deviation: float) -> Floats:
    """Log density of the noisy S-curve: a curve in the first and last column, times a stretch."""
    t = 3.0 * np.pi * (midpoints() - 0.5)
    curve = np.stack([np.sin(t), np.sign(t) * (np.cos(t) - 1.0)], axis=1)
    height = rows[:, 1]
    stretch = (ndtr(height / deviation) - ndtr((height - 2.0) / deviation)) / 2.0
    return log_density_around(curve, deviation, rows[:, [0, 2]]) + np.log(stretch)


def run_s_curve(seeds: int) -> Scores:
    """Widths chosen by BIC on the training rows."""
    scores = Scores()
    for seed in range(seeds):
        rows, _ = make_s_curve(2000, noise=0.05, random_state=seed)
        scale = rows[:1000].std(axis=0)
        standardized = (rows - rows[:1000].mean(axis=0)) / scale
        train, test = standardized[:1000], standardized[1000:]
        models = [
            fit(scores.clock, train, seed, n_components=2, hidden_layer_sizes=widths)
            for widths in S_CURVE_WIDTHS
        ]
        chosen = min(models, key=lambda model: model.bic(train))
        scores.notes.append(str(chosen.hidden_layer_sizes))
        scores.ours.append(chosen.score(test))
        scores.mixture.append(best_mixture(train, test))
        scores.kernels.append(best_kernels(train, test))
        scores.truth.append(float(np.mean(s_curve_truth(rows[1000:], 0.05)) + np.log(scale).sum()))
    return scores


def run_digits(seeds: int, **parameters: Any) -> Scores:
    """1,300 digits to fit, 497 to judge; the rival is spherical too.

    Some pixels are constant: a full covariance would make of them whatever its regularization says.
    """
    scores = Scores()
    digits = load_digits().data / 16.0
    for seed in range(seeds):
        order = np.random.default_rng(seed).permutation(len(digits))
        train, test = digits[order[:1300]], digits[order[1300:]]
        model = fit(scores.clock, train, seed, covariance_type="spherical", **parameters)
        scores.ours.append(model.score(test))
        scores.mixture.append(best_mixture(train, test, "spherical"))
        scores.kernels.append(best_kernels(train, test))
    return scores


def report(name: str, scores: Scores, target: str, met: bool) -> None:
    """Print one line of the table."""
    values = [np.median(scores.ours), np.min(scores.ours), np.median(scores.mixture)]
    values.append(np.median(scores.kernels))
    cells = [f"{value:9.4f}" for value in values]
    cells.append(f"{np.median(scores.truth):9.4f}" if scores.truth else " " * 9)
    n_fits = len(scores.ours) * (len(S_CURVE_WIDTHS) if scores.notes else 1)
    cells.append(f"{scores.clock.total / n_fits:6.1f} s {scores.clock.ratio:5.2f}")
    print(f"{name:22s}{' '.join(cells)}  {target:44s} {'met' if met else 'NOT MET'}", flush=True)
    if scores.notes:
        print(f"{'':22s}chosen by BIC: {', '.join(scores.notes)}")


def circle(seeds: int) -> None:
    curve = Curve(make_noisy_circle, circle_curve(), 0.05, seeds)
    wide = curve.run((32,))
    met = np.median(wide.ours) >= -0.30 and min(wide.ours) >= -0.31
    report("circle (32,)", wide, "median >= -0.30, worst >= -0.31", bool(met))
    deep = curve.run((8, 8))
    report("circle (8, 8)", deep, "median >= -0.33", bool(np.median(deep.ours) >= -0.33))


def spiral(seeds: int) -> None:
    scores = Curve(make_spiral, spiral_curve(), 0.05, seeds).run((16, 16))
    lead = float(np.median(np.subtract(scores.ours, scores.mixture)))
    report("spiral (16, 16)", scores, f"mixture + 0.03 (lead: {lead:.4f})", lead >= 0.03)


def wave(seeds: int) -> None:
    curve = Curve(make_wave, wave_curve(), 0.1, seeds)
    for widths in ((16,), (32,)):
        scores = curve.run(widths)
        gap = float(np.max(np.subtract(scores.truth, scores.ours)))
        report(f"wave {widths}", scores, f"truth - 0.05 (worst gap: {gap:.4f})", gap <= 0.05)


def s_curve(seeds: int) -> None:
    scores = run_s_curve(seeds)
    lead = float(np.median(np.subtract(scores.ours, scores.mixture)))
    report("S-curve, S = 2", scores, f"above the mixture (lead: {lead:.4f})", lead > 0)


def digits(seeds: int) -> None:
    for n_components, limit in ((1, 15.0), (2, 17.0)):
        scores = run_digits(seeds, n_components=n_components, hidden_layer_sizes=(8, 16))
        met = min(scores.ours) > limit
        report(f"digits (8, 16), S = {n_components}", scores, f"all > {limit:.0f}", met)


PARTS: dict[str, Callable[[int], None]] = {
    "circle": circle,
    "spiral": spiral,
    "wave": wave,
    "s_curve": s_curve,
    "digits": digits,
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the parts asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=PARTS, help="parts to run")
    parser.add_argument("--seeds", type=int, default=5, help="seeds 0 to this, exclusive")
    options = parser.parse_args(arguments)
    parts = options.only or list(PARTS)
    for n_components in (1, 2):  # compiled kernels are loaded before the clock runs
        rows = make_noisy_circle(50, random_state=0)
        fit(Clock(), rows, 0, n_components=n_components, hidden_layer_sizes=(4,), max_iter=1)
    print("held-out mean log-likelihood; medians over the seeds; start: its time over that of EM")
    columns = "".join(f"{name:>10s}" for name in ("ours", "worst", "mixture", "kernels", "truth"))
    print(f"{'':21s}{columns} {'fit':>8s} {'start':>5s}  target")
    for part in parts:
        PARTS[part](options.seeds)


if __name__ == "__main__":
    main()
