"""PyTorch modules for layers that PyTorch has none for.

Imported once PyTorch is known to be there; classes that stand in a file can be stored and copied.
"""

from __future__ import annotations

from typing import Any

import torch

from skdgn._network.blueprints.blueprint import PerAxis, Shape
from skdgn._runtime import Floats

_Base: Any = torch.nn.Module  # for type checkers, which need not know PyTorch


class Residual(_Base):
    """The inputs, added to what a branch makes of them."""

    def __init__(self, branch: Any) -> None:
        super().__init__()
        self.branch = branch

    def forward(self, values: Any) -> Any:
        """Evaluate at a batch."""
        return values + self.branch(values)


class Concatenate(_Base):
    """Several branches of the same inputs, their outputs behind each other."""

    def __init__(self, branches: list[Any]) -> None:
        super().__init__()
        self.branches = torch.nn.ModuleList(branches)

    def forward(self, values: Any) -> Any:
        """Evaluate at a batch."""
        return torch.cat([branch(values) for branch in self.branches], dim=1)


class MaxOut(_Base):
    """The largest of every few units, or channels, that follow each other."""

    def __init__(self, n_pieces: int) -> None:
        super().__init__()
        self.n_pieces = n_pieces

    def forward(self, values: Any) -> Any:
        """Evaluate at a batch."""
        return values.unflatten(1, (-1, self.n_pieces)).amax(dim=2)


class MaxUpsample(_Base):
    """Maxima over groups of inputs (u, m), which make outputs of this shape."""

    def __init__(self, scale_factor: PerAxis, groups: Any, shape: Shape) -> None:
        super().__init__()
        self.scale_factor, self.shape = scale_factor, shape
        self.register_buffer("groups", torch.from_numpy(groups))

    def forward(self, values: Any) -> Any:
        """Evaluate at a batch."""
        return values.flatten(1)[:, self.groups].amax(dim=2).unflatten(1, self.shape)


class PReLUPerUnit(_Base):
    """Leaky rectifiers with a slope for every unit of this shape (PyTorch's: for every channel)."""

    def __init__(self, slopes: Floats, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.weight = torch.nn.Parameter(torch.from_numpy(slopes.copy()))

    def forward(self, values: Any) -> Any:
        """Evaluate at a batch."""
        return torch.where(values > 0, values, self.weight.reshape(self.shape) * values)


class PiecewiseAffine(_Base):
    """A function of every unit that is affine between its kinks."""

    def __init__(self, kinks: Any, slopes: Any, value_at_zero: float) -> None:
        super().__init__()
        for name, values in (
            ("kinks", kinks),
            ("slopes", slopes),
            ("value_at_zero", value_at_zero),
        ):
            self.register_buffer(name, torch.tensor(values, dtype=torch.float64))

    def forward(self, values: Any) -> Any:
        """Evaluate at a batch."""
        # f(x) = f(0) + slope of the first piece x + jumps of the slope behind each kink
        jumps = self.slopes.diff()
        start = self.value_at_zero - torch.relu(-self.kinks) @ jumps
        bent = torch.relu(values[..., None] - self.kinks) @ jumps
        return start + self.slopes[0] * values + bent
