"""Answers of small models, for which all kernels run; printed as JSON when run as a script."""

from __future__ import annotations

import json
import sys
import warnings

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from skdgn import PiecewiseAffineDGN
from tests.missing_values import model_of, noise_of, with_missing
from tests.networks import random_network

N_FEATURES = 3
# Two hidden layers in one dimension: more regions cost little there.
HIDDEN_LAYER_SIZES = {1: (4, 3), 2: (4,), 3: (3,), 4: (2,)}
# What takes longest to compile is first.
KINDS = {3: ("spherical",), 2: ("diag", "full"), 4: ("diag",), 1: ("full", "diag")}


def ask(n_components: int, kind: str) -> dict[str, np.ndarray]:
    """Ask a known network everything, about complete samples and others, near and far."""
    network = random_network(
        n_components,
        HIDDEN_LAYER_SIZES[n_components],
        n_features=N_FEATURES,
        activation="leaky_relu",
        seed=1,
    )
    model = model_of(network, noise_of(kind, N_FEATURES))
    complete = model.sample(3, random_state=0)[0]
    complete[2] *= 20.0
    incomplete = with_missing(complete, 0.4, seed=2)
    incomplete[0] = np.nan
    rows = np.concatenate([complete, incomplete])
    posterior = model.posterior(rows)
    answers = {
        "score_samples": model.score_samples(rows),
        "mean": posterior.mean,
        "covariance": posterior.covariance,
        "responsibilities": posterior.responsibilities,
        "mode": posterior.mode(),
        "limit": posterior.mode(zero_noise=True),
        "imputed": model.impute(rows),
        "conditional_cdf": model.conditional_cdf(complete, given=[0]),
        "elbo": model.elbo(complete, posterior.mean[:3], posterior.covariance[:3]),
    }
    if (n_components, kind) == (1, "diag"):
        # Boxes near and far, and one with nothing inside; others take no kernel of their own.
        lower = np.stack([complete[0] - 0.5, complete[2], complete[0]])
        answers["log_probability"] = np.exp(
            model.log_probability(lower, [*lower[:2] + 1.0, lower[2]])
        )
        bounds = {"lower": np.where(np.isnan(incomplete), 0.5, np.nan), "upper": [2.0, 9e9, np.nan]}
        answers |= {
            "imputed_between": model.impute(incomplete, **bounds),
            "draws_between": model.impute(incomplete, "sample", 2, 0, **bounds),
        }
    if n_components < 4:
        # With more dimensions, moments are estimates, and rounding may turn the frames of draws;
        # with three, it does so far out.
        near = [0, 1, 2] if n_components < 3 else [0, 1]
        known = model.posterior(np.concatenate([complete[near], incomplete[near]]))
        answers |= {
            "draws": known.sample(3, random_state=0),
            "imputed_draws": model.impute(incomplete[near], "sample", n_draws=2, random_state=0),
        }
        # A maximum is found to the root of the rounding error; its value, to the error.
        best = posterior.kl_from(*posterior.best_gaussian())
        answers["best_kl"] = best
    return answers


def fit(n_components: int, covariance_type: str) -> dict[str, np.ndarray]:
    """Fit a few samples, complete and not."""
    rows = np.random.default_rng(0).normal(size=(12, N_FEATURES)) ** 2
    shares = [0.0, 0.3]
    if n_components > 3:  # many points for every sample: as few as can be, some of them complete
        rows, shares = rows[:4], [0.3]
    answers = {}
    for share in shares:
        model = PiecewiseAffineDGN(
            n_components,
            hidden_layer_sizes=(2,),
            covariance_type=covariance_type,
            init_params="pca",
            max_iter=2,
            random_state=0,
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # nor is it meant to
            model.fit(with_missing(rows, share))
        answers[f"lower_bounds_{share}"] = np.asarray(model.lower_bounds_)
    return answers


def answer(n_components: int) -> dict[str, np.ndarray]:
    """Return all answers for a number of dimensions, by kind of noise and what was asked."""
    return {
        f"{kind}: {name}": values
        for kind in KINDS[n_components]
        for name, values in (ask(n_components, kind) | fit(n_components, kind)).items()
    }


def main() -> None:
    """Print the answers for the number of dimensions on the command line."""
    answers = answer(int(sys.argv[1]))
    json.dump({name: values.tolist() for name, values in answers.items()}, sys.stdout)


if __name__ == "__main__":
    main()
