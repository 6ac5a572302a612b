"""
Auditing a variational autoencoder
==================================

A variational autoencoder (VAE) is trained on a lower bound (ELBO) of its likelihood, and usually
also evaluated by it.  If its decoder is piecewise affine, no bounds or samples are needed: this
example computes the exact likelihood of a trained VAE, and how much of it the encoder loses for
each sample, and why.
"""

import matplotlib.pyplot as plt
import numpy as np

try:
    import torch
    from torch import nn
except ImportError:
    raise SystemExit('This example needs PyTorch: pip install "skdgn[torch]".') from None

from skdgn.datasets import make_noisy_circle
from skdgn.vae import GaussianVAE, audit

torch.set_num_threads(1)
torch.manual_seed(0)

# %%
# We train an ordinary VAE. The audit accepts any decoder made of ``Linear`` and ``ReLU`` or
# ``LeakyReLU`` layers, and any encoder that returns means and log variances, so the VAE could also
# come from elsewhere.

X = make_noisy_circle(1000, noise=0.05, random_state=0)
decoder = nn.Sequential(
    nn.Linear(1, 8), nn.LeakyReLU(0.1), nn.Linear(8, 8), nn.LeakyReLU(0.1), nn.Linear(8, 2)
)
vae = GaussianVAE(decoder, 0.1, learning_rate=0.005, max_iter=400, random_state=0).fit(X)

# %%
# The divergence KL(q || posterior) is the difference between the likelihood and the lower bound.
# It has two parts: the part that the best Gaussian would avoid (amortization: the encoder has not
# found it), and the part that no Gaussian avoids (the posterior is not Gaussian).

rows = X[:400]
found = audit(vae.decoder_, vae.encoder_, rows, vae.noise_covariance_)
print(found.summary())

# %%
# All of these are exact: the likelihood, the bound and the divergence are computed independently,
# and add up.  The VAE's own estimate of its bound, by draws from the encoder, agrees with the exact
# bound.

estimate, errors = vae.monte_carlo_elbo(rows, n_draws=1000, random_state=0)
error = np.sqrt(np.sum(errors**2)) / len(rows)
deviation = (estimate.mean() - found.elbo.mean()) / error
print(f"largest |log p - ELBO - KL|   {found.identity_error:.1e}")
print(f"exact ELBO                    {found.elbo.mean():.5f}")
print(f"Monte-Carlo ELBO              {estimate.mean():.5f} +- {error:.5f}")
print(f"difference                    {deviation:+.1f} standard errors")
assert found.identity_error < 1e-8
assert abs(deviation) < 3.0

# %%
# The figure shows which samples are affected.  On the left, samples far below the line are those
# whose bound says little about their likelihood.  On the right is the sample for which Gaussians
# are worst: it lies where the ends of the curve meet, so two values of z explain it, and the
# encoder has to choose one of them.

figure, (left, middle, right) = plt.subplots(1, 3, figsize=(14, 4.2), layout="constrained")
found.plot((left, middle))
worst = found.family_gap.argmax()
posterior = vae.to_estimator().posterior(rows[[worst]])
z = np.linspace(-3.5, 3.5, 2001)
right.plot(z, np.exp(posterior.log_density(z[:, None])[0]), color="black", label="exact posterior")
means, covariances = vae.encode(rows[[worst]])
gaussians = {"q, from the encoder": (means, covariances)}
gaussians["best Gaussian"] = posterior.best_gaussian("kl", means, covariances)
for (name, (means, covariances)), color in zip(
    gaussians.items(), ("tab:orange", "tab:purple"), strict=True
):
    variance = covariances[0, 0, 0]
    density = np.exp(-0.5 * (z - means[0, 0]) ** 2 / variance) / np.sqrt(2.0 * np.pi * variance)
    divergence = posterior.kl_from(means, covariances)[0]
    right.plot(z, density, "--", color=color, label=f"{name}: KL {divergence:.2f}")
x = ", ".join(f"{value:.2f}" for value in rows[worst])
right.set(xlabel="z", ylabel="density", title=f"the sample ({x})")
right.legend(loc="upper center")
right.set_ylim(top=1.35 * right.get_ylim()[1])
figure.savefig("audit.png", dpi=120)
print("saved audit.png")
