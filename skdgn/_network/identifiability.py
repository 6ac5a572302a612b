"""How many parameters of a network its generator tells apart.

Dense layers with activations whose kink is at zero have a formula.  For others, it is the rank of
the derivatives of the regions' maps by all parameters, less the directions in which latent space is
merely rotated.
"""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING

import numpy as np
from scipy import sparse

from skdgn._network.maps import Codes
from skdgn._runtime import Floats, Integers

if TYPE_CHECKING:
    from skdgn._network.network import Network

# Singular values below this share of the largest count as zero.
_SMALLEST_SHARE = 1e-9
# Regions whose maps are looked at: as many as these numbers allow, and derivatives of so many
# features are at hand at once.
_MOST_REGIONS = 400
_MOST_DERIVATIVES = 1 << 28
_DERIVATIVES_AT_A_TIME = 1 << 22
# Equations are added up in so many random sums for every parameter, each in a few of them: that
# leaves the rank as it is.
_SUMS = 4
_SUMS_OF_EACH = 4


def count_by_formula(network: Network) -> int:
    """Count the weights of dense layers, less those that rescaling and rotating leave open."""
    n_weights = sum(layer.n_parameters for layer in network.layers)
    # Rotations of the dimensions that the first layer does not look at leave it as it is.
    n_unseen = max(0, network.n_components - network.layers[0].n_outputs)
    n_rotations = math.comb(network.n_components, 2) - math.comb(n_unseen, 2)
    return n_weights - sum(network.hidden_layer_sizes) - n_rotations


def count_by_rank(network: Network, patterns: Codes) -> int:
    """Count the directions in which parameters move the maps of regions with these patterns.

    A dense output layer moves every feature in the directions of its inputs; of the other
    parameters, those count that move features in further ones.
    """
    generator = np.random.default_rng(0)
    view = _View(network, _choose(network, patterns, generator))
    moved, turned = view.sketch(generator)
    alone = _rank(moved)
    n_open = alone + _rank(turned) - _rank(np.concatenate([moved, turned]))
    return view.n_output_directions + alone - n_open


def _choose(network: Network, patterns: Codes, generator: np.random.Generator) -> Codes:
    n_parameters = sum(layer.n_parameters for layer in network.layers)
    n_equations = network.n_features * (network.n_components + 1)  # of a region
    n_regions = max(_MOST_DERIVATIVES // (n_parameters * n_equations), 2)
    n_regions = min(n_regions, _MOST_REGIONS)
    if len(patterns) <= n_regions:
        return patterns
    return patterns[np.sort(generator.choice(len(patterns), n_regions, replace=False))]


class _View:
    """How parameters and rotations move the maps of chosen regions."""

    def __init__(self, network: Network, patterns: Codes) -> None:
        self.network, self.n_regions = network, len(patterns)
        self.maps, self.codes = network.maps(patterns), network.split_patterns(patterns)
        self.output = self.maps[-1].homogeneous(self.n_regions)[:, :-1]
        self.places = [*network.learned]
        # Directions (m, k) that the output layer has already, the same for every feature.
        self.taken = np.zeros((self.n_regions * (network.n_components + 1), 0))
        if network.ends_dense:
            place = self.places.pop()
            inputs = self.maps[place].homogeneous(self.n_regions)
            inputs = inputs.transpose(0, 2, 1).reshape(-1, inputs.shape[1])
            self.taken = _basis(inputs)

    @property
    def n_output_directions(self) -> int:
        """Number of directions in which a dense output layer moves the features."""
        return self.network.n_features * self.taken.shape[1]

    def sketch(self, generator: np.random.Generator) -> tuple[Floats, Floats]:
        """Return random sums of what parameters (P, k), and rotations, move beyond the output's.

        Each in units of all that it moves.
        """
        n_features, n_equations = self.network.n_features, len(self.taken)
        n_parameters = sum(self.network.layers[place].n_parameters for place in self.places)
        n_rotations = math.comb(self.network.n_components, 2)
        n_rows = n_parameters + n_rotations
        n_sums = max(1, _SUMS * n_rows)
        sums, squares = np.zeros((n_rows, n_sums)), np.zeros(n_rows)
        step = max(1, _DERIVATIVES_AT_A_TIME // max(n_rows * n_equations, 1))
        for begin in range(0, n_features if n_rows else 0, step):
            features = np.arange(begin, min(begin + step, n_features))
            rows = np.concatenate([self._derivatives(features), self._rotations(features)])
            rows = rows.transpose(0, 2, 1, 3).reshape(n_rows, len(features), n_equations)
            squares += np.einsum("pfe,pfe->p", rows, rows)
            rows = rows - (rows @ self.taken) @ self.taken.T
            sums += rows.reshape(n_rows, -1) @ _draw_sums(rows[0].size, n_sums, generator)
        sums /= np.sqrt(np.where(squares > 0.0, squares, 1.0))[:, None]
        return sums[:n_parameters], sums[n_parameters:]

    def _derivatives(self, features: Integers) -> Floats:
        """How every parameter moves the maps to these features: (P, R, f, S + 1)."""
        layers, behind = self.network.layers, np.eye(self.network.n_features)[features]
        # No parameter at all, if there is none but the output layer's.
        parts = [np.empty((0, self.n_regions, len(features), self.network.n_components + 1))]
        for place in reversed(range(len(layers))):
            if place in self.places:
                core = layers[place].core
                upstream = self.maps[place].first(core.n_inputs).homogeneous(self.n_regions)
                own = behind[..., : core.n_outputs]
                own = np.broadcast_to(own, (self.n_regions, *own.shape[-2:]))
                parts.append(core.derivatives(own, upstream, self.codes[place]))
            behind = layers[place].transpose(behind, self.codes[place])
        return np.concatenate(parts)

    def _rotations(self, features: Integers) -> Floats:
        """How rotations of latent space do."""
        output, turned = self.output[:, features], []
        for first, second in itertools.combinations(range(self.network.n_components), 2):
            rotation = np.zeros_like(output)
            rotation[:, :, first] = output[:, :, second]
            rotation[:, :, second] = -output[:, :, first]
            turned.append(rotation)
        return np.array(turned).reshape(len(turned), *output.shape)


def _draw_sums(n_equations: int, n_sums: int, generator: np.random.Generator) -> sparse.csr_array:
    """Draw which equations are added up, and the factors they get."""
    shape = (n_equations, _SUMS_OF_EACH)
    factors, columns = generator.standard_normal(shape), generator.integers(0, n_sums, shape)
    starts = np.arange(0, factors.size + 1, _SUMS_OF_EACH)
    return sparse.csr_array((factors.ravel(), columns.ravel(), starts), shape=(n_equations, n_sums))


def _basis(columns: Floats) -> Floats:
    """Return an orthonormal basis of the span of columns, each measured by its own size."""
    sizes = np.linalg.norm(columns, axis=0)
    columns = columns[:, sizes > 0] / sizes[sizes > 0]
    left, values, _ = np.linalg.svd(columns, full_matrices=False)
    return left[:, values > _SMALLEST_SHARE * values.max(initial=0.0)]


def _rank(rows: Floats) -> int:
    """Rank of rows that were measured by their own size."""
    values = np.linalg.svd(rows, compute_uv=False)
    return int(np.sum(values > _SMALLEST_SHARE))
