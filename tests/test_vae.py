"""The trainer of variational autoencoders, and the audit of one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from matplotlib import pyplot as plt
from sklearn.base import clone

from skdgn import PiecewiseAffineDGN
from skdgn.datasets import make_noisy_circle
from skdgn.vae import Audit, GaussianVAE, audit, make_decoder, trainer
from skdgn.vae.auditing import _encode

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
nn = torch.nn
# More threads get in each other's way with networks this small.
torch.set_num_threads(1)

X = make_noisy_circle(200, random_state=0)
IDENTITY_ERROR = 1e-8
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


@pytest.fixture(
    scope="module",
    params=[(0.1, torch.float32), ([0.1, 0.2], torch.float64)],
    ids=["spherical", "diag"],
)
def vae(request: pytest.FixtureRequest) -> GaussianVAE:
    noise, dtype = request.param
    decoder = start(1, dtype)
    return GaussianVAE(decoder, noise, learning_rate=0.01, max_iter=N_EPOCHS, random_state=0).fit(X)


@pytest.fixture(scope="module")
def found(vae: GaussianVAE) -> Audit:
    return audit(vae.decoder_, vae.encoder_, X[:40], vae.noise_covariance_)


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
    means, covariances = _encode(lambda rows: (rows, matrices), table, decoder, "log_variance")
    np.testing.assert_array_equal(covariances, matrices)
    means, covariances = _encode(lambda rows: (rows, rows), table, decoder, "log_variance")
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


def test_picture_shows_what_was_found(found: Audit) -> None:
    display = found.plot()
    points = display.axes_[0].collections[0].get_offsets()
    np.testing.assert_array_equal(points, np.stack([found.log_likelihood, found.elbo], axis=1))
    tops = [area.get_paths()[0].vertices[:, 1].max() for area in display.axes_[1].collections]
    assert tops == pytest.approx([found.family_gap.max(), found.kl.max()])
    again = found.plot(display.axes_)
    assert again.figure_ is display.figure_
    with pytest.raises(ValueError, match="axes must hold two matplotlib Axes, got"):
        found.plot(display.axes_[0])
    plt.close(display.figure_)


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
