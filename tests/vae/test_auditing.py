"""The audit of a variational autoencoder."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from skdgn.vae import Audit, GaussianVAE, audit
from skdgn.vae.auditing import _encode
from tests.vae.decoders import X, nn, start, torch

IDENTITY_ERROR = 1e-8


def test_audit_adds_up(vae: GaussianVAE, found: Audit) -> None:
    assert found.identity_error < IDENTITY_ERROR
    np.testing.assert_allclose(found.log_likelihood, vae.to_estimator().score_samples(X[:40]))
    np.testing.assert_allclose(
        found.kl, vae.to_estimator().posterior(X[:40]).kl_from(*vae.encode(X[:40])), atol=1e-12
    )
    np.testing.assert_allclose(found.amortization_gap + found.family_gap, found.kl, atol=1e-12)
    assert found.amortization_gap.min() >= 0.0
    assert found.family_gap.min() >= 0.0
    assert found.kl.max() > 0.01


def test_encoders_may_answer_in_several_ways(vae: GaussianVAE, found: Audit) -> None:
    decoder, noise = vae.decoder_, vae.noise_covariance_

    def variances(rows: Any) -> tuple[Any, Any]:
        means, log_variances = vae.encoder_(rows)
        return means, log_variances.exp()

    def covariances(rows: Any) -> tuple[Any, Any]:
        return vae.encode(rows.numpy())  # arrays

    by_variances = audit(decoder, variances, X[:5], noise, encoder_scale="variance")
    by_covariances = audit(decoder, covariances, X[:5], noise)
    # The encoder's sums and exponentials are in the decoder's precision.
    rounding = 1e-5 if next(decoder.parameters()).dtype is torch.float32 else 1e-12
    np.testing.assert_allclose(by_variances.elbo, found.elbo[:5], rtol=rounding)
    np.testing.assert_allclose(by_covariances.elbo, found.elbo[:5], rtol=rounding)


def test_covariances_need_not_be_diagonal() -> None:
    decoder, table = start(2), X[:3]
    matrices = np.array([[[2.0, 1.0], [1.0, 3.0]]] * 3)
    means, covariances = _encode(
        lambda rows: (rows, matrices), table, decoder, table.shape[1], "log_variance"
    )
    np.testing.assert_array_equal(covariances, matrices)
    means, covariances = _encode(
        lambda rows: (rows, rows), table, decoder, table.shape[1], "log_variance"
    )
    np.testing.assert_allclose(means, table, rtol=1e-6)  # single precision
    for row, covariance in zip(means, covariances, strict=True):
        np.testing.assert_array_equal(covariance, np.diag(np.exp(row)))


class ExactEncoder(nn.Module):
    """The posterior of x = (z, z) + noise of variance 1, whatever `Dropout` does in training."""

    def __init__(self) -> None:
        super().__init__()
        self.third = nn.Linear(2, 1, bias=False, dtype=torch.float64)
        self.dropout = nn.Dropout(0.5)
        nn.init.constant_(self.third.weight, 1.0 / 3.0)

    def forward(self, rows: Any) -> tuple[Any, Any]:
        means = self.third(self.dropout(rows))
        return means, torch.full((len(rows), 1, 1), 1.0 / 3.0, dtype=rows.dtype)


def test_an_exact_encoder_has_no_gap() -> None:
    # Its precision is its own, not the decoder's; and it is put into evaluation mode.
    decoder = nn.Sequential(nn.Linear(1, 2))
    nn.init.ones_(decoder[0].weight)
    nn.init.zeros_(decoder[0].bias)
    encoder = ExactEncoder().train()
    found = audit(decoder, encoder, X[:10], 1.0)
    assert encoder.training
    assert found.kl.max() < 1e-12
    assert found.identity_error < IDENTITY_ERROR


def test_table_and_frame_hold_what_was_found(found: Audit) -> None:
    lines = found.summary().splitlines()
    assert [line[:19].strip() for line in lines[1:-1]] == [
        "log likelihood",
        "ELBO",
        "KL",
        "amortization gap",
        "Gaussian-family gap",
    ]
    numbers = [float(word) for word in lines[3][19:].split()]
    assert numbers[0] == pytest.approx(found.kl.mean(), abs=5e-4)
    assert numbers[-1] == pytest.approx(found.kl.max(), abs=5e-4)
    assert str(found) == found.summary()
    frame = found.to_frame()
    assert frame.shape == (40, 5)
    np.testing.assert_array_equal(frame["Gaussian-family gap"], found.family_gap)


def test_bad_encoders_are_named() -> None:
    decoder, rows = start(), X[:3]

    def fails(encoder: Any, message: str, **keywords: Any) -> None:
        with pytest.raises(ValueError, match=message):
            audit(decoder, encoder, rows, 0.1, **keywords)

    zeros = torch.zeros(3, 1)
    fails(3, "encoder must be callable, got 3")
    fails(lambda x: zeros, "encoder must return a pair.* got Tensor")
    fails(lambda x: (zeros[:2], zeros), r"means of shape \(3, 1\), got \(2, 1\)")
    fails(lambda x: (zeros, zeros[:2]), r"shape \(3, 1\) or \(3, 1, 1\), got \(2, 1\)")
    fails(lambda x: (zeros * np.nan, zeros), "encoder's means must be finite, got nan")
    fails(
        lambda x: (zeros, zeros),
        "positive, finite variances, got one of 0.0",
        encoder_scale="variance",
    )
    fails(
        lambda x: (zeros, zeros),
        "encoder_scale must be .* got 'deviation'",
        encoder_scale="deviation",
    )
    with pytest.raises(ValueError, match="X must have 2 columns, the decoder's outputs, got 1"):
        audit(decoder, lambda x: (zeros, zeros), rows[:, :1], 0.1)
