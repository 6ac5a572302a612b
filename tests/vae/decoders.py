"""Small decoders to train and to audit."""

from __future__ import annotations

from typing import Any

import pytest

from skdgn.datasets import make_noisy_circle

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
nn = torch.nn
# More threads get in each other's way with networks this small.
torch.set_num_threads(1)

X = make_noisy_circle(200, random_state=0)
N_EPOCHS = 12


def start(n_components: int = 1, dtype: Any = torch.float32) -> Any:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(n_components, 4),
        nn.LeakyReLU(0.1),
        nn.Linear(4, 3),
        nn.LeakyReLU(0.1),
        nn.Linear(3, 2),
    ).to(dtype)
