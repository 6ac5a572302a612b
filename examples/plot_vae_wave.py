"""
EM against a variational autoencoder: samples of a wave
=======================================================

A curve that is not closed is an easier task than the circle for a variational autoencoder (VAE):
one latent point explains each sample, and a Gaussian q(z | x) is nearly correct.  EM still requires
fewer passes over the samples and less time for a better fit, as the exact likelihood and the
generated samples show.

Here training is shortened to a minute; ``benchmarks/vae.py`` trains every VAE until its lower bound
converges.
"""

import time
import warnings

import matplotlib.pyplot as plt
import numpy as np
from sklearn.exceptions import ConvergenceWarning

try:
    import torch
    from torch import nn
except ImportError:
    raise SystemExit('This example needs PyTorch: pip install "skdgn[torch]".') from None

from skdgn import PiecewiseAffineDGN
from skdgn.datasets import make_wave
from skdgn.vae import GaussianVAE

torch.set_num_threads(1)
LEARNING_RATES = {0.005: "tab:blue", 0.001: "tab:orange", 0.0001: "tab:green"}
N_EPOCHS, N_RUNS = 150, 3
X = make_wave(1000, noise=0.1, random_state=0)
noise = 0.2 * X.var(axis=0).mean()  # at the start

# %%
# EM and the VAEs start from the same random weights.  The exact likelihood of the decoder of a VAE
# and the exact divergence of its encoder are recorded with the clock stopped.


def run_em(decoder):
    """Return the fitted model, and curves: iteration, seconds, negative log-likelihood."""
    model = PiecewiseAffineDGN.from_torch(decoder, noise)
    model.set_params(warm_start=True, max_iter=N_EPOCHS, tol=0.0)
    started = time.perf_counter()
    with warnings.catch_warnings():
        # The number of iterations is given.
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(X)
    steps = np.arange(1, model.n_iter_ + 1)
    seconds = steps * (time.perf_counter() - started) / model.n_iter_
    assert np.all(np.diff(model.lower_bounds_) >= 0.0)  # it never decreases
    return model, (steps, seconds, -model.lower_bounds_)


def run_vae(decoder, learning_rate, seed):
    """Return the trained model, and curves: the same by epoch, and the divergence."""
    notes = []

    def evaluate(vae):
        if vae.n_iter_ > 0 and vae.n_iter_ % 10 == 0:
            model, rows = vae.to_estimator(), X[:200]
            divergence = model.posterior(rows).kl_from(*vae.encode(rows)).mean()
            notes.append((vae.n_iter_, vae.history_[-1].seconds, -model.score(X), divergence))

    vae = GaussianVAE(
        decoder,
        noise,
        learning_rate=learning_rate,
        max_iter=N_EPOCHS,
        callback=evaluate,
        random_state=seed,
    )
    return vae.fit(X).to_estimator(), np.array(notes).T


# %%
# Three random starts.

models, table = {}, {}
figure = plt.figure(figsize=(11, 7.2), layout="constrained")
top, bottom = figure.subfigures(2, 1, height_ratios=(1.1, 1.0))
by_epoch, by_time, divergences = top.subplots(1, 3)
for seed in range(N_RUNS):
    torch.manual_seed(seed)
    decoder = nn.Sequential(
        nn.Linear(1, 8), nn.LeakyReLU(0.1), nn.Linear(8, 8), nn.LeakyReLU(0.1), nn.Linear(8, 2)
    )
    if seed == 0:
        run_em(decoder)  # compiles: the clock starts later
    runs = {"EM": ("black", *run_em(decoder))}
    for rate, color in LEARNING_RATES.items():
        runs[f"VAE, learning rate {rate}"] = (color, *run_vae(decoder, rate, seed))
    for name, (color, model, (steps, seconds, curve, *divergence)) in runs.items():
        by_epoch.plot(steps, curve, color=color, label=name if seed == 0 else None)
        by_time.plot(seconds, curve, color=color)
        if divergence:
            divergences.plot(steps, divergence[0], color=color)
        models.setdefault(name, model)
        table.setdefault(name, []).append(curve[-1])

print("exact negative log-likelihood at the end, by start")
for name, ends in table.items():
    print(f"  {name:26s}" + "  ".join(f"{end:.3f}" for end in ends))

# %%
# The figure shows the curves, and samples from the models of the first start.

by_epoch.set(xlabel="epochs, iterations of EM", ylabel="exact negative log-likelihood")
by_time.set(xlabel="seconds", xscale="log")
divergences.set(xlabel="epochs", ylabel="exact KL(q || posterior)", yscale="log")
for panel in (by_epoch, by_time):
    panel.set_ylim(0.6, 4.0)
top.legend(loc="outside lower center", ncols=4)
samples = {"samples": X} | {
    name: model.sample(1000, random_state=0)[0] for name, model in models.items()
}
colors = ["0.5", "black", *LEARNING_RATES.values()]
panels = bottom.subplots(1, len(samples), sharex=True, sharey=True)
for panel, color, (name, points) in zip(panels, colors, samples.items(), strict=True):
    panel.scatter(*points.T, s=2, color=color)
    panel.set_title(name.replace("VAE, ", "VAE,\n"), fontsize="medium")
panels[0].set(xlim=(-4.0, 4.0), ylim=(-2.2, 2.2))
figure.savefig("vae_wave.png", dpi=120)
print("saved vae_wave.png")
