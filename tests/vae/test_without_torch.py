"""PyTorch is for those who ask for it."""

from __future__ import annotations

import sys

import pytest

from skdgn import PiecewiseAffineDGN
from skdgn.vae import GaussianVAE, audit, make_decoder


def test_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)  # import finds nothing
    model = PiecewiseAffineDGN.from_network([[[1.0]]], [[0.0]], 1.0, activation="relu")
    for call in (
        lambda: PiecewiseAffineDGN.from_torch(None, 1.0),
        lambda: GaussianVAE(None).fit([[0.0], [1.0]]),
        lambda: audit(None, lambda rows: (rows, rows), [[0.0]], 1.0),
        lambda: make_decoder(model),
    ):
        with pytest.raises(ImportError, match=r'pip install "skdgn\[torch\]"'):
            call()
