"""Maxima over groups of units: pooling, max-out."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from skdgn._network.enclosures import Enclosures
from skdgn._network.layer import Layer, Restriction
from skdgn._network.maps import AffineMaps, Codes
from skdgn._runtime import Floats


@dataclass(frozen=True)
class MaximumLayer(Layer):
    """The largest of every group of inputs; of equal ones, the first.

    Groups may overlap.  One with fewer members than others names its first member again.
    """

    groups: NDArray[np.intp]  # (u, m): inputs
    n_units: int  # of the layer before

    @property
    def n_inputs(self) -> int:
        """Number of units of the layer before."""
        return self.n_units

    @property
    def n_outputs(self) -> int:
        """Number of groups."""
        return len(self.groups)

    @property
    def n_codes(self) -> int:
        """One per group: which of its members is the largest."""
        return len(self.groups)

    @property
    def contests(self) -> NDArray[np.intp]:
        """Groups of inputs, (u, m), whose largest is looked for."""
        return self.groups

    def codes(self, values: Floats) -> Codes:
        """Return the codes at inputs (n, i)."""
        return values[:, self.groups].argmax(axis=2).astype(np.uint8)

    def forward(self, values: Floats) -> Floats:
        """Evaluate at inputs (n, i)."""
        return values[:, self.groups].max(axis=2)

    def _winners(self, codes: Codes) -> NDArray[np.intp]:
        return self.groups[np.arange(len(self.groups)), codes]

    def apply(self, maps: AffineMaps, codes: Codes) -> AffineMaps:
        """Compose with the maps that lead to the layer."""
        winners = self._winners(codes)
        regions = np.arange(len(maps.offsets))[:, None] if len(maps.offsets) != 1 else 0
        return AffineMaps(maps.slopes[regions, winners], maps.offsets[regions, winners])

    def enclose(self, inputs: Enclosures) -> Enclosures:
        """Enclose the outputs over boxes: by how much others may be ahead of who is likely to win.

        That is who has the largest value at the center of a box.
        """
        winners = self._winners(self.codes(inputs.maps.offsets))
        won, radii, lead = self._lead(inputs, winners)
        maps = AffineMaps(won.slopes, won.offsets + 0.5 * lead)
        n_cuts = inputs.n_cuts + np.count_nonzero(lead, axis=1)
        return Enclosures(maps, radii + 0.5 * lead, n_cuts)

    def _lead(
        self, inputs: Enclosures, winners: NDArray[np.intp]
    ) -> tuple[AffineMaps, Floats, Floats]:
        """Maps and radii of likely winners (n, u), and by how much others may be ahead of them."""
        slopes, offsets, radii = inputs.maps.slopes, inputs.maps.offsets, inputs.radii
        boxes = np.arange(len(offsets))[:, None]
        won = AffineMaps(slopes[boxes, winners], offsets[boxes, winners])
        lead = np.zeros(winners.shape)
        for members in self.groups.T:
            ahead = offsets[:, members] - won.offsets
            ahead += np.abs(slopes[:, members] - won.slopes).sum(axis=2)
            ahead += radii[:, members] + radii[boxes, winners]
            lead = np.maximum(lead, np.where(members == winners, 0.0, ahead))
        return won, radii[boxes, winners], lead

    def restrict(self, inputs: Enclosures) -> Restriction:
        """Tell in which groups more than one member may win on a box."""
        codes = self.codes(inputs.maps.offsets)
        _, _, lead = self._lead(inputs, self._winners(codes))
        bent = np.flatnonzero(lead[0])
        needed, places = np.unique(self.groups[bent], return_inverse=True)
        groups = places.reshape(len(bent), self.groups.shape[1])
        return Restriction(codes, bent, needed, MaximumLayer(groups, len(needed)))

    def transpose(self, downstream: Floats, codes: Codes) -> Floats:
        """Multiply maps (r, d, u) behind the layer by its linear part."""
        winners = self._winners(codes)
        n_regions, n_features = len(winners), downstream.shape[-2]
        downstream = np.broadcast_to(downstream, (n_regions, n_features, len(self.groups)))
        result = np.zeros((n_regions, self.n_units, n_features))
        regions = np.broadcast_to(np.arange(n_regions)[:, None], winners.shape)
        np.add.at(result, (regions, winners), downstream.transpose(0, 2, 1))
        return result.transpose(0, 2, 1)

    @property
    def max_slope(self) -> float:
        """One: a maximum is one of the inputs."""
        return 1.0
