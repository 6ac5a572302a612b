"""A variational autoencoder, trained a little."""

from __future__ import annotations

import pytest

from skdgn.vae import Audit, GaussianVAE, audit


@pytest.fixture(
    scope="package",
    params=[(0.1, "float32"), ([0.1, 0.2], "float64")],
    ids=["spherical", "diag"],
)
def vae(request: pytest.FixtureRequest) -> GaussianVAE:
    from tests.vae.decoders import N_EPOCHS, X, start, torch  # skips where PyTorch is missing

    noise, dtype = request.param
    decoder = start(1, getattr(torch, dtype))
    return GaussianVAE(decoder, noise, learning_rate=0.01, max_iter=N_EPOCHS, random_state=0).fit(X)


@pytest.fixture(scope="package")
def found(vae: GaussianVAE) -> Audit:
    from tests.vae.decoders import X

    return audit(vae.decoder_, vae.encoder_, X[:40], vae.noise_covariance_)
