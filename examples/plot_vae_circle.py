"""
EM against a variational autoencoder: the noisy circle
======================================================

A variational autoencoder (VAE) has the same generator and the same noise, but learns them from a
lower bound of the likelihood, by stochastic gradient steps.  The density of its decoder can still
be computed exactly.  Both are therefore compared by the likelihood, which they aim to maximize:
with the same decoder, the same initial random weights, and the same samples.

Here training is shortened to a minute; ``benchmarks/vae.py`` trains every VAE until its lower bound
converges.
"""

import time
import warnings
from itertools import pairwise

import matplotlib.pyplot as plt
import numpy as np
from sklearn.exceptions import ConvergenceWarning

try:
    import torch
except ImportError:
    raise SystemExit('This example needs PyTorch: pip install "skdgn[torch]".') from None

from skdgn import PiecewiseAffineDGN
from skdgn.datasets import make_noisy_circle
from skdgn.vae import GaussianVAE

torch.set_num_threads(1)
LEARNING_RATES = {0.005: "tab:blue", 0.001: "tab:orange", 0.0001: "tab:green"}
N_EPOCHS, N_RUNS = 120, 2
X = make_noisy_circle(1000, noise=0.05, random_state=0)


def random_decoder(hidden, seed):
    """Return linear layers with PyTorch's random weights, leaky ReLUs between them."""
    torch.manual_seed(seed)
    layers = []
    for fan_in, fan_out in pairwise((1, *hidden, 2)):
        layers += [torch.nn.Linear(fan_in, fan_out), torch.nn.LeakyReLU(0.1)]
    return torch.nn.Sequential(*layers[:-1])


# %%
# EM continues from an estimator with the weights of the decoder: ``warm_start=True``.  A VAE is
# given the decoder itself.  After every tenth epoch, with the clock stopped, the exact likelihood
# of its decoder is recorded, and the exact divergence of the encoder's q(z | x) from the posterior.


def run_em(model):
    """Return negative log-likelihoods by iteration, and the seconds."""
    model.set_params(max_iter=N_EPOCHS, tol=0.0)
    started = time.perf_counter()
    with warnings.catch_warnings():
        # The number of iterations is given.
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(X)
    seconds = np.linspace(0.0, time.perf_counter() - started, model.n_iter_ + 1)
    assert np.all(np.diff(model.lower_bounds_) >= 0.0)  # it never decreases
    return -model.lower_bounds_, seconds[1:]


def start_of_em(decoder, noise):
    """Return an estimator that goes on from the decoder's weights."""
    return PiecewiseAffineDGN.from_torch(decoder, noise).set_params(warm_start=True)


def run_vae(decoder, noise, learning_rate, seed):
    """Return epoch, seconds, negative log-likelihood and divergence, by evaluation."""
    notes = []

    def evaluate(vae):
        if vae.n_iter_ % 10 == 0:
            seconds = vae.history_[-1].seconds if vae.history_ else 0.0
            model, rows = vae.to_estimator(), X[:200]
            divergence = model.posterior(rows).kl_from(*vae.encode(rows)).mean()
            notes.append((vae.n_iter_, seconds, -model.score(X), divergence))

    GaussianVAE(
        decoder,
        noise,
        learning_rate=learning_rate,
        max_iter=N_EPOCHS,
        callback=evaluate,
        random_state=seed,
    ).fit(X)
    return np.array(notes).T


# %%
# The initial noise is a fifth of the variance of the samples.  With more noise, a VAE soon ignores
# its latent variable, and its density remains a spherical Gaussian, for which 2.15 is the best
# possible value; EM is not affected.

variance = X.var(axis=0).mean()
decoder = random_decoder((8, 8), seed=0)
run_em(start_of_em(decoder, variance))  # compiles: the clock starts later
print("negative log-likelihood from a start with half the variance as noise")
print(f"  EM          {run_em(start_of_em(decoder, 0.5 * variance))[0][-1]:.3f}")
print(f"  VAE 0.0050  {run_vae(decoder, 0.5 * variance, 0.005, seed=0)[2, -1]:.3f}")

# %%
# The figure compares both.  EM is also shown from its default start, which ``fit`` uses without a
# decoder.

figure, panels = plt.subplots(2, 3, figsize=(11, 6.4), layout="constrained")
for (by_epoch, by_time, divergences), hidden in zip(panels, [(8,), (8, 8)], strict=True):
    print(f"hidden {hidden}, negative log-likelihood at the end")
    ends = {"EM": []} | {rate: [] for rate in LEARNING_RATES}
    for run in range(N_RUNS):
        decoder, noise = random_decoder(hidden, run), 0.2 * variance
        curve, seconds = run_em(start_of_em(decoder, noise))
        ends["EM"].append(curve[-1])
        by_epoch.plot(curve, color="black", label="EM" if run == 0 else None)
        by_time.plot(seconds, curve, color="black")
        for rate, color in LEARNING_RATES.items():
            epochs, seconds, curve, divergence = run_vae(decoder, noise, rate, run)
            ends[rate].append(curve[-1])
            label = f"VAE, learning rate {rate}" if run == 0 else None
            by_epoch.plot(epochs, curve, color=color, label=label)
            by_time.plot(seconds[1:], curve[1:], color=color)
            divergences.plot(epochs, divergence, color=color)
    curve, _ = run_em(PiecewiseAffineDGN(hidden_layer_sizes=hidden, random_state=0))
    by_epoch.plot(curve, "--", color="0.5", label="EM, its own start")
    print("  EM          " + "  ".join(f"{end:.3f}" for end in ends["EM"]), end="")
    print(f"; from its own start {curve[-1]:.3f}")
    for rate in LEARNING_RATES:
        print(f"  VAE {rate:.4f}  " + "  ".join(f"{end:.3f}" for end in ends[rate]))
    by_epoch.set(xlabel="epochs, iterations of EM", ylabel="exact negative log-likelihood")
    by_epoch.set_title(f"hidden layers {hidden}", loc="left")
    by_time.set(xlabel="seconds", xscale="log")
    divergences.set(xlabel="epochs", ylabel="exact KL(q || posterior)", yscale="log")
    for panel in (by_epoch, by_time):
        panel.set_ylim(0.0, 3.4)
figure.legend(*panels[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=5)
figure.savefig("vae_circle.png", dpi=120)
print("saved vae_circle.png")
