"""EM against a variational autoencoder: same decoder, same start, both to convergence.

    python benchmarks/vae.py                      everything: an hour or so on a busy machine
    python benchmarks/vae.py --only circle        one case (or several), by how its name begins
    python benchmarks/vae.py --runs 1             fewer random starts
    python benchmarks/vae.py --noise 0.1          noise at the start, over the variance

The VAE is judged by the exact likelihood of its decoder, evaluated now and then; that time does
not count. Its column is the best of these evaluations, not the last. Decoders start from
PyTorch's random weights, with a fifth of the rows' variance as noise (digits: all of it): with
more, VAEs on the circle stop using their latent variable (a negative log-likelihood of 2.149, a KL
of zero), with less, EM may end in a poor maximum.

Prints "not run" where PyTorch is not installed. Digits are MNIST's, class 4, if the environment
variable SKDGN_DATA names a folder that has it, and scikit-learn's otherwise.
"""

from __future__ import annotations

import argparse
import gzip
import os
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from quality import circle_curve, log_density_around, wave_curve
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning

from skdgn import PiecewiseAffineDGN
from skdgn.datasets import make_noisy_circle, make_wave
from skdgn.vae import GaussianVAE

Floats = NDArray[np.float64]

N_RUNS = 3
NEGATIVE_SLOPE = 0.1
# Learning rate, and the epochs of 1,000 rows over which the lower bound must stand still: a small
# step needs many of them for the same distance.
LEARNING_RATES = {5e-3: 200, 1e-3: 400, 1e-4: 1000}
MAX_EPOCHS = 15_000
N_EVALUATIONS = 8  # of the exact likelihood in a stretch


@dataclass(frozen=True)
class Case:
    """A table and a decoder, and what counts as convergence on it."""

    rows: Floats
    hidden: tuple[int, ...]
    share_of_noise: float  # of the variance of the rows, at the start
    vae_tolerance: float  # nats from one stretch of epochs to the next
    em_tolerance: float  # nats from one iteration to the next
    most_iterations: int  # of EM
    truth: float | None  # mean log density of the rows under the density they came from
    paper: tuple[float, ...]  # negative log-likelihoods that the paper's code ended at


def digits_of_class_4() -> Floats:
    """Return images of the digit four, values from 0 to 1."""
    folder = Path(os.environ.get("SKDGN_DATA", "no folder")) / "mnist"
    if folder.is_dir():
        with gzip.open(folder / "train-images-idx3-ubyte.gz") as file:
            images = np.frombuffer(file.read(), np.uint8, offset=16).reshape(-1, 784)
        with gzip.open(folder / "train-labels-idx1-ubyte.gz") as file:
            labels = np.frombuffer(file.read(), np.uint8, offset=8)
        return images[labels == 4][:1000] / 255.0
    digits = load_digits()
    return digits.data[digits.target == 4] / 16.0


def cases() -> dict[str, Callable[[], Case]]:
    """Return what there is to compare on, by name."""
    circle, wave = make_noisy_circle(random_state=0), make_wave(random_state=0)
    circle_truth = float(log_density_around(circle_curve(), 0.05, circle).mean())
    wave_truth = float(log_density_around(wave_curve(), 0.1, wave).mean())
    plane = (0.2, 1e-2, 1e-6, 3000)
    # Residuals of hundreds of pixels add up: with a fifth, EM ends in worse maxima.
    pixels = (1.0, 1.0, 1e-3, 600)
    return {
        "circle (8,)": lambda: Case(circle, (8,), *plane, circle_truth, (0.89, 0.98)),
        "circle (8, 8)": lambda: Case(circle, (8, 8), *plane, circle_truth, (0.36,)),
        "wave (8, 8)": lambda: Case(wave, (8, 8), *plane, wave_truth, (1.49,)),
        "digits (8, 16)": lambda: Case(digits_of_class_4(), (8, 16), *pixels, None, ()),
    }


def random_decoder(sizes: tuple[int, ...], seed: int) -> Any:
    """Return linear layers of these sizes with PyTorch's random weights, leaky ReLUs between."""
    import torch

    torch.manual_seed(seed)
    layers: list[Any] = []
    for fan_in, fan_out in pairwise(sizes):
        layers += [torch.nn.Linear(fan_in, fan_out), torch.nn.LeakyReLU(NEGATIVE_SLOPE)]
    return torch.nn.Sequential(*layers[:-1])


def run_em(case: Case, decoder: Any, noise: float) -> tuple[float, str]:
    """Fit from the start given; return the mean log-likelihood, and how it went."""
    model = PiecewiseAffineDGN.from_torch(decoder, noise)
    model.set_params(warm_start=True, tol=case.em_tolerance, max_iter=case.most_iterations)
    started, first = time.perf_counter(), model.score(case.rows)
    with warnings.catch_warnings():
        # Whether it converged is printed.
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(case.rows)
    seconds = time.perf_counter() - started
    steps = np.diff([first, *model.lower_bounds_])
    how = "" if model.converged_ else ", still creeping"
    return model.lower_bound_, (
        f"{model.n_iter_} iterations, {seconds:.0f} s, {np.count_nonzero(steps < 0.0)} increases "
        f"of the negative log-likelihood{how}"
    )


def run_vae(
    case: Case, decoder: Any, noise: float, learning_rate: float, seed: int
) -> tuple[float, str]:
    """Train from the start given; return the best mean log-likelihood, and how it went."""
    stretch = LEARNING_RATES[learning_rate]
    scores: list[float] = []

    def evaluate(vae: GaussianVAE) -> None:
        if vae.n_iter_ % (stretch // N_EVALUATIONS) == 0:
            scores.append(vae.to_estimator().score(case.rows))

    vae = GaussianVAE(
        decoder,
        noise,
        learning_rate=learning_rate,
        max_iter=MAX_EPOCHS,
        tol=case.vae_tolerance,
        n_iter_no_change=stretch,
        callback=evaluate,
        random_state=seed,
    ).fit(case.rows)
    model = vae.to_estimator()
    divergence = model.posterior(case.rows).kl_from(*vae.encode(case.rows)).mean()
    scores.append(model.score(case.rows))
    how = "" if vae.converged_ else ", not converged"
    return max(scores), (
        f"{vae.n_iter_} epochs, {vae.history_[-1].seconds:.0f} s, last {-scores[-1]:.3f}, "
        f"KL of q {divergence:.3f}{how}"
    )


def compare(name: str, case: Case, n_runs: int, share: float | None) -> list[list[float]]:
    """Print every run; return the mean log-likelihoods of EM and of each VAE."""
    share = case.share_of_noise if share is None else share
    noise = share * float(case.rows.var(axis=0).mean())
    truth = "" if case.truth is None else f", truth {-case.truth:.3f}"
    print(f"\n{name}: {case.rows.shape[0]} rows of {case.rows.shape[1]} features{truth}")
    table = []
    for seed in range(n_runs):
        decoder = random_decoder((1, *case.hidden, case.rows.shape[1]), seed)
        score, how = run_em(case, decoder, noise)
        scores = [score]
        print(f"  start {seed}: EM          {-score:9.3f}   {how}", flush=True)
        for learning_rate in LEARNING_RATES:
            score, how = run_vae(case, decoder, noise, learning_rate, seed)
            scores.append(score)
            print(f"           VAE {learning_rate:6.4f}  {-score:9.3f}   {how}", flush=True)
        table.append(scores)
    if case.paper:
        worst = -min(scores[0] for scores in table)
        figures = " and ".join(f"{figure:.2f}" for figure in case.paper)
        print(
            f"  the paper's code ended at {figures}; the worst of these runs of EM at {worst:.3f}"
        )
    return table


def main() -> None:
    """Run everything that was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", default=["circle", "wave", "digits"])
    parser.add_argument("--runs", type=int, default=N_RUNS)
    parser.add_argument("--noise", type=float)
    arguments = parser.parse_args()
    if find_spec("torch") is None:
        print('not run: PyTorch is not installed (pip install "skdgn[torch]")')
        return
    import torch

    torch.set_num_threads(1)
    print("exact negative log-likelihood per row, in nats: the lower the better")
    tables = {
        name: compare(name, make(), arguments.runs, arguments.noise)
        for name, make in cases().items()
        if name.startswith(tuple(arguments.only))
    }
    print(f"\nmean over {arguments.runs} starts" + " " * 11 + "EM", end="")
    print("".join(f"  VAE {rate:6.4f}  (EM ahead)" for rate in LEARNING_RATES))
    for name, table in tables.items():
        scores = np.array(table)
        print(f"{name:20s} {-scores[:, 0].mean():12.3f}", end="")
        for vae in scores[:, 1:].T:
            ahead = f"({np.count_nonzero(scores[:, 0] > vae)} of {len(vae)})"
            print(f"{-vae.mean():12.3f}{ahead:>12s}", end="")
        print()


if __name__ == "__main__":
    main()
