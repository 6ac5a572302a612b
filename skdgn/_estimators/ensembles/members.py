"""Which models an ensemble is an average of, where nobody says."""

from __future__ import annotations

import itertools

import numpy as np

from skdgn._estimators.mixture import DGNMixture
from skdgn._estimators.network import PiecewiseAffineDGN
from skdgn._estimators.transformed import TransformedDensity

# Hidden units of a network, 0 if it is straight, noise of the large mixtures and whether all their
# networks share it; samples for each of their networks, and most of these.
_LARGE = (
    (4, "diag", False, 20, 64),
    (4, "full", False, 40, 32),
    (0, "full", True, 8, 64),
)
# What is done to the columns first.  As many as have no common divisor with the number of kinds:
# each kind gets each of them in turn.
_TRANSFORMERS = (None, "power", "normal_scores")


def default_members(
    n_members: int, total_weight: float = np.inf
) -> list[DGNMixture | TransformedDensity]:
    """Return what is fitted to samples of this weight where no estimator was given.

    A mixture that finds its sizes and large ones take turns.  Large ones follow their samples
    closely, each of them others; alone they overfit, and on average they do not.  So do columns as
    they are, by powers and by normal scores: where one is of no use, others are.  The last member
    is one Gaussian, for samples that are far from what all others have seen.
    """
    kinds = [DGNMixture()]
    for n_units, covariance_type, is_tied, n_samples, most in _LARGE:
        network = PiecewiseAffineDGN(
            1, hidden_layer_sizes=(n_units,) if n_units else (), covariance_type=covariance_type
        )
        n_networks = int(min(most, max(1, total_weight // n_samples)))
        kinds.append(DGNMixture(network, n_networks, tied_noise=is_tied))
    turns = zip(itertools.cycle(kinds), itertools.cycle(_TRANSFORMERS), strict=True)
    members = [
        kind if transformer is None else TransformedDensity(kind, transformer)
        for kind, transformer in itertools.islice(turns, n_members)
    ]
    if n_members > 1:
        gaussian = PiecewiseAffineDGN(1, hidden_layer_sizes=(), covariance_type="full")
        members[-1] = DGNMixture(gaussian, 1)
    return members
