"""What the rest of the package asks of a layer.

A network is a sequence of layers.  Some are affine; others have *cuts*, affine functions of their
inputs whose zeros divide latent space into the regions on which they are affine.  On which side of
its cuts a layer is, its *codes* say: small integers, which together are the *pattern* of a region.

- To evaluate the generator: `forward`, and `codes` at a point.
- To find the regions: `cuts` and `read_sides`, `magnitudes`, then `apply` to the pieces.
- To bound the generator over boxes, whose regions nobody looked for: `enclose`; to know which
  units bend on a box: `restrict`.
- To learn, with patterns held fixed: `parameters`, in which the output of an affine layer is
  linear; `push` says how a change of them moves the outputs, `pull` is its transpose,
  `derivatives` says how each of them moves the features, and `transpose` carries what is asked of
  the outputs back to the inputs.

Shapes: ``r`` regions, ``u`` outputs of the layer, ``i`` inputs, ``s`` latent dimensions, ``d``
features, ``p`` parameters.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from skdgn._network.enclosures import Enclosures
from skdgn._network.maps import AffineMaps, Codes
from skdgn._runtime import Bools, Floats, Integers


class Restriction(NamedTuple):
    """What a layer with cuts does on one box."""

    codes: Codes  # (1, c); those of outputs that bend are of no use
    bent: Integers  # outputs that bend somewhere on the box
    needed: Integers  # the inputs that these depend on
    layer: Layer  # from the inputs needed to the outputs that bend


class Layer(ABC):
    """A continuous piecewise-affine map; affine, and without parameters, unless it says more."""

    @property
    @abstractmethod
    def n_inputs(self) -> int:
        """Number of inputs."""

    @property
    @abstractmethod
    def n_outputs(self) -> int:
        """Number of outputs."""

    @abstractmethod
    def forward(self, values: Floats) -> Floats:
        """Evaluate at inputs (n, i); returns (n, u)."""

    @abstractmethod
    def apply(self, maps: AffineMaps, codes: Codes) -> AffineMaps:
        """Compose with the maps that lead to the layer, in regions with these codes (r, c)."""

    @abstractmethod
    def transpose(self, downstream: Floats, codes: Codes) -> Floats:
        """Multiply maps (r, d, u) behind the layer by its linear part: (r, d, i)."""

    # Cuts.

    @property
    def n_codes(self) -> int:
        """Number of entries of a pattern that belong to the layer."""
        return 0

    def codes(self, values: Floats) -> Codes:
        """Return the codes at inputs (n, i): (n, c)."""
        return np.empty((len(values), 0), dtype=np.uint8)

    @property
    def contests(self) -> NDArray[np.intp] | None:
        """Groups of inputs (c, m) whose largest is looked for, for layers that do so.

        Their codes say which member it is; they have no other cuts than where two are equal.
        """
        return None

    def cuts(self, maps: AffineMaps) -> AffineMaps:
        """Return the functions whose zeros cut a region, given the maps that lead to the layer."""
        raise NotImplementedError("asked of layers with cuts only")

    def read_sides(self, positive: Bools) -> Codes:
        """Turn the sides of all cuts, (r, number of cuts), into codes (r, c)."""
        raise NotImplementedError("asked of layers with cuts only")

    def magnitudes(self, maps: AffineMaps) -> AffineMaps:
        """Sum the absolute values of the terms that `apply` adds: its rounding errors.

        A unit that is constant on a region comes out of `apply` as rounding noise, not as zero;
        only beside these sums can noise be told from a small weight.
        """
        raise NotImplementedError("asked of layers with cuts only")

    @property
    def max_slope(self) -> float:
        """By how much the layer can enlarge an input, for layers with cuts."""
        raise NotImplementedError("asked of layers with cuts only")

    @property
    def max_offset(self) -> float:
        """By how much the layer can move an input beyond that, for layers with cuts."""
        return 0.0

    def enclose(self, inputs: Enclosures) -> Enclosures:
        """Enclose the outputs over boxes, given enclosures of the inputs.

        As affine layers do it; those with cuts have to do better.
        """
        nothing = np.zeros(inputs.radii.shape)
        radii = self.magnitudes(AffineMaps(inputs.radii[:, :, None], nothing)).slopes[:, :, 0]
        maps = self.apply(inputs.maps, self.codes(nothing))
        return Enclosures(maps, radii, inputs.n_cuts)

    def restrict(self, inputs: Enclosures) -> Restriction:
        """Tell which outputs bend on a box, given an enclosure of the inputs."""
        raise NotImplementedError("asked of layers with cuts only")

    # Parameters.

    @property
    def core(self) -> Layer:
        """The layer that learns, without what is passed on beside it.

        Its inputs and outputs are the first ones.  It is this that is asked to push and pull.
        """
        return self

    @property
    def n_parameters(self) -> int:
        """Number of parameters."""
        return 0

    @property
    def parameters(self) -> Floats:
        """The parameters (p,)."""
        return np.empty(0)

    @property
    def is_weight(self) -> Bools:
        """Which parameters (p,) multiply something; the others are added to it."""
        return np.ones(self.n_parameters, dtype=bool)

    def with_parameters(self, parameters: Floats) -> Self:
        """Return the layer with other parameters (p,)."""
        return self

    def push(self, change: Floats, upstream: Floats, codes: Codes) -> Floats:
        """Return how the outputs (r, u, s + 1) change with the parameters (p,).

        ``upstream`` are the maps that lead to the layer, homogeneous: (r, i + 1, s + 1).
        """
        raise NotImplementedError("asked of layers with parameters only")

    def derivatives(self, downstream: Floats, upstream: Floats, codes: Codes) -> Floats:
        """Return how each parameter moves the maps to the features: (p, r, d, s + 1).

        ``downstream`` are the maps from the outputs to the features, (r, d, u).
        """
        raise NotImplementedError("asked of layers with parameters only")

    def pull_squares(self, squares: Floats, moments: Floats, codes: Codes) -> Floats:
        """Return the scale (p,) of the squares that `push` and `pull` sum, for preconditioning.

        Given squared slopes behind the outputs (r, u) and second moments of the inputs (r, i + 1),
        as if parameters that are shared were not.
        """
        raise NotImplementedError("asked of layers with parameters only")

    def pull(self, forces: Floats, upstream: Floats, codes: Codes) -> Floats:
        """Return the transpose of `push`: forces (r, u, s + 1) felt by the parameters, (p,)."""
        raise NotImplementedError("asked of layers with parameters only")
