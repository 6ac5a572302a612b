"""The trainer of variational autoencoders."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.base import clone

from skdgn import PiecewiseAffineDGN
from skdgn.vae import GaussianVAE, audit, make_decoder, trainer
from tests.vae.decoders import N_EPOCHS, X, nn, start, torch


def test_training_improves_the_exact_lower_bound() -> None:
    bounds: list[float] = []

    def watch(vae: GaussianVAE) -> None:
        bounds.append(vae.to_estimator().elbo(X, *vae.encode(X)).mean())

    GaussianVAE(
        start(), 0.1, learning_rate=0.01, max_iter=N_EPOCHS, random_state=0, callback=watch
    ).fit(X)
    assert len(bounds) == N_EPOCHS + 1
    assert bounds[-1] > bounds[0] + 1.0


def test_fit_leaves_the_starting_decoder_alone() -> None:
    decoder = start()
    before = [weights.detach().clone() for weights in decoder.parameters()]
    vae = GaussianVAE(decoder, 0.1, max_iter=1, random_state=0).fit(X)
    for old, same, new in zip(before, decoder.parameters(), vae.decoder_.parameters(), strict=True):
        assert torch.equal(old, same)
        assert not torch.equal(old, new)


def test_training_starts_from_the_estimator() -> None:
    model = PiecewiseAffineDGN.from_torch(start(), [0.1, 0.2])
    scores: list[float] = []

    def watch(vae: GaussianVAE) -> bool:
        scores.append(vae.to_estimator().score(X))
        return True

    GaussianVAE(make_decoder(model, "float64"), model.noise_covariance_, callback=watch).fit(X)
    assert scores == [pytest.approx(model.score(X), abs=1e-12)]


def test_same_seed_same_training() -> None:
    def bounds(seed: int) -> list[float]:
        vae = GaussianVAE(start(), 0.1, max_iter=2, random_state=seed).fit(X)
        return [epoch.elbo for epoch in vae.history_]

    torch.manual_seed(5)
    first = bounds(1)
    undisturbed = torch.rand(1)
    assert bounds(1) == first
    assert bounds(2) != first
    # Training draws from a generator of its own (`start` seeds PyTorch's with 0).
    torch.manual_seed(0)
    start()
    assert torch.equal(undisturbed, torch.rand(1))


def test_training_stops_when_the_bound_stands_still() -> None:
    vae = GaussianVAE(start(), 0.1, tol=1e6, n_iter_no_change=2, random_state=0).fit(X)
    assert (vae.n_iter_, len(vae.history_), vae.converged_) == (4, 4, True)


def test_a_callback_can_stop_training() -> None:
    vae = GaussianVAE(start(), 0.1, callback=lambda vae: vae.n_iter_ == 2, random_state=0).fit(X)
    assert (vae.n_iter_, vae.converged_) == (2, False)


def test_time_of_callbacks_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0

    def watch(vae: GaussianVAE) -> None:
        nonlocal now
        now += 1000.0

    def clock() -> float:
        nonlocal now
        now += 1.0  # from one look at the clock to the next
        return now

    monkeypatch.setattr(trainer.time, "perf_counter", clock)
    vae = GaussianVAE(start(), 0.1, max_iter=2, callback=watch, random_state=0).fit(X)
    assert [epoch.seconds for epoch in vae.history_] == [1.0, 2.0]


def test_a_training_that_explodes_says_what_to_try() -> None:
    with pytest.raises(FloatingPointError, match=r"Try a learning_rate below 1e\+30"):
        GaussianVAE(start(), 0.1, learning_rate=1e30, random_state=0).fit(X)


def test_a_clone_can_be_trained_again(vae: GaussianVAE) -> None:
    copy = clone(vae).set_params(max_iter=1)
    assert copy.fit(X).history_[0].elbo == vae.history_[0].elbo


def test_exact_bound_agrees_with_the_trainers_own_draws(vae: GaussianVAE) -> None:
    exact = vae.to_estimator().elbo(X, *vae.encode(X))
    estimate, errors = vae.monte_carlo_elbo(X, n_draws=2000, random_state=0)
    standard_error = np.sqrt(np.sum(errors**2)) / len(X)
    assert abs(estimate.mean() - exact.mean()) < 3.0 * standard_error
    # Row by row, three of a thousand may be farther off.
    assert np.mean(np.abs(estimate - exact) < 3.0 * errors) > 0.98


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"decoder": nn.Linear(1, 2)}, "decoder must be a torch.nn.Sequential"),
        ({"noise_covariance": np.eye(2)}, r"noise_covariance .* shape \(2,\), got shape \(2, 2\)"),
        ({"noise_covariance": 0.0}, "noise_covariance must be positive, got .* 0.0"),
        ({"encoder_layer_sizes": (8, 0)}, "encoder_layer_sizes must hold positive .* got 0"),
        ({"learning_rate": 0.0}, "'learning_rate' parameter .* Got 0.0"),
        ({"batch_size": 0}, "'batch_size' parameter .* Got 0"),
        ({"callback": 3}, "'callback' parameter .* Got 3"),
    ],
)
def test_bad_parameters_are_named(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        GaussianVAE(**{"decoder": start(), **parameters}).fit(X)


def test_bad_rows_are_named(vae: GaussianVAE) -> None:
    with pytest.raises(ValueError, match="X must have 2 columns, the decoder's outputs, got 1"):
        GaussianVAE(start()).fit(X[:, :1])
    with pytest.raises(ValueError, match="X contains NaN"):
        GaussianVAE(start()).fit(np.full((5, 2), np.nan))
    with pytest.raises(ValueError, match="n_draws must be an integer of at least 2, got 1"):
        vae.monte_carlo_elbo(X, n_draws=1)


def test_a_convolutional_decoder_is_trained_and_audited() -> None:
    rng = np.random.default_rng(0)
    images = rng.normal(size=(60, 1)) * np.linspace(-1.0, 1.0, 16) + 0.1 * rng.normal(size=(60, 16))
    start = convolutional_with_linear()
    before = [value.clone() for value in start.state_dict().values()]
    vae = GaussianVAE(start, 0.5, max_iter=5, learning_rate=0.02, random_state=0).fit(images)
    assert all(
        torch.equal(one, other)
        for one, other in zip(before, start.state_dict().values(), strict=True)
    )
    assert start.training
    assert not vae.decoder_.training
    assert not torch.equal(vae.decoder_[1].running_mean, start[1].running_mean)
    assert vae.history_[-1].elbo > vae.history_[0].elbo
    bounds, errors = vae.monte_carlo_elbo(images, n_draws=400, random_state=0)
    exact = vae.to_estimator().elbo(images, *vae.encode(images))
    assert np.all(np.abs(bounds - exact) < 6.0 * errors + 1e-3)
    found = audit(vae.decoder_, vae.encoder_, images[:10], vae.noise_covariance_)
    np.testing.assert_allclose(found.log_likelihood, found.elbo + found.kl, atol=1e-6)
    assert np.all(found.family_gap >= -1e-6)


def convolutional_with_linear() -> Any:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(2, 8),
        nn.BatchNorm1d(8),
        nn.LeakyReLU(0.1),
        nn.Dropout(0.05),
        nn.Unflatten(1, (2, 2, 2)),
        nn.ConvTranspose2d(2, 1, 2, stride=2),
    )


def test_normalization_in_eval_mode_keeps_its_statistics() -> None:
    images = np.random.default_rng(0).normal(size=(30, 16))
    start = convolutional_with_linear().eval()
    vae = GaussianVAE(start, max_iter=1, random_state=0).fit(images)
    assert torch.equal(vae.decoder_[1].running_mean, start[1].running_mean)


def test_a_decoder_may_begin_without_weights() -> None:
    torch.manual_seed(0)
    decoder = nn.Sequential(nn.Unflatten(1, (2, 1)), nn.ConvTranspose1d(2, 1, 4))

    def encoder(samples: Any) -> tuple[Any, Any]:
        return torch.zeros(len(samples), 2), torch.zeros(len(samples), 2)

    found = audit(decoder, encoder, np.zeros((2, 4)), 0.5)
    np.testing.assert_allclose(found.log_likelihood, found.elbo + found.kl, atol=1e-8)
