"""
Densities and posteriors of random networks
===========================================

These networks have random weights, as in the first figures of the paper [1]_: one latent dimension,
hidden layers of 4 and 16 leaky-ReLU units, two features, and noise with a standard deviation of
0.1.  The density of the samples and the posterior of the latent variable are exact; both are more
complex than one might expect from a standard normal variable and a small network. (These four of
sixty seeds have curves that come close to themselves.)

.. [1] R. Balestriero, S. Paris, R. G. Baraniuk, *Analytical Probability Distributions and
   EM-Learning for Deep Generative Networks*, 2020.
"""

import matplotlib.pyplot as plt
import numpy as np

from skdgn import PiecewiseAffineDGN

SEEDS = (1, 11, 41, 49)
NOISE = 0.1
ROWS = {"at random": "black", "widest": "tab:orange"}


def random_network(seed):
    """A network 1-4-16-2 with weights scaled by the width of the layer before."""
    rng = np.random.default_rng(seed)
    coefs, intercepts, fan_in = [], [], 1
    for fan_out in (4, 16, 2):
        coefs.append(rng.normal(scale=1.4 / np.sqrt(fan_in), size=(fan_out, fan_in)))
        intercepts.append(rng.normal(scale=0.7, size=fan_out))
        fan_in = fan_out
    return PiecewiseAffineDGN.from_network(
        coefs, intercepts, NOISE**2, activation="leaky_relu", negative_slope=0.01
    )


models = {seed: random_network(seed) for seed in SEEDS}

# %%
# For each network two samples are shown: one drawn at random (black), and the one of 1,500 draws
# with the widest posterior (orange).  The posterior describes which latent points explain a sample.
# If the curve passes the sample twice, the posterior has two modes, and its mean may lie where its
# density is low.  The kinks of the density are at the boundaries of the regions.

LATENT = np.linspace(-3.5, 3.5, 3001)
figure, panels = plt.subplots(len(SEEDS), 3, figsize=(12, 3.1 * len(SEEDS)), layout="constrained")
print("seed  regions  integral of p(x)   sample    log p(x)  posterior: mean  deviation    mode")
for (left, middle, right), (seed, model) in zip(panels, models.items(), strict=True):
    drawn, _ = model.sample(1500, random_state=seed)
    widest = np.argmax(model.posterior(drawn).covariance[:, 0, 0])
    rows = drawn[[0, widest]]
    posterior = model.posterior(rows)

    # The density on a grid that holds nearly all of it.
    curve = model.inverse_transform(LATENT[:, None])
    low, high = drawn.min(axis=0) - 0.3, drawn.max(axis=0) + 0.3
    across, up = (np.linspace(low[d], high[d], 220) for d in range(2))
    grid = np.stack(np.meshgrid(across, up), axis=-1).reshape(-1, 2)
    log_density = model.score_samples(grid).reshape(up.size, across.size)
    spacing = (across[1] - across[0]) * (up[1] - up[0])
    for i, (name, log_p) in enumerate(zip(ROWS, model.score_samples(rows), strict=True)):
        integral = f"{seed:4d}  {model.n_regions_:7d}  {np.exp(log_density).sum() * spacing:16.4f}"
        print(
            f"{integral if i == 0 else '':31s}   {name:8s}  {log_p:8.3f}"
            f"  {posterior.mean[i, 0]:15.3f}  {posterior.covariance[i, 0, 0] ** 0.5:9.3f}"
            f"  {posterior.mode()[i, 0]:6.3f}"
        )

    left.plot(*drawn.T, ".", color="tab:blue", markersize=2, alpha=0.5)
    left.plot(*curve.T, color="tab:red", linewidth=1.2)
    left.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]), ylabel=f"seed {seed}")
    image = middle.pcolormesh(across, up, log_density, vmin=-8.0, cmap="magma")
    figure.colorbar(image, ax=middle)

    densities = np.exp(posterior.log_density(LATENT[:, None]))
    _, normals, offsets = model.partition_.cells.facets()
    for border in np.unique(np.round(offsets * normals[:, 0], 9)):
        right.axvline(border, color="0.85", linewidth=0.6, zorder=0)
    for i, (name, color) in enumerate(ROWS.items()):
        left.plot(*rows[i], "o", color=color, markeredgecolor="white", markersize=8)
        # Each on its own scale: a wide posterior would be lost beside a narrow one.
        density = densities[i] / densities[i].max()
        right.fill_between(LATENT, density, color=color, alpha=0.2)
        right.plot(LATENT, density, color=color, label=name)
        right.axvline(posterior.mean[i, 0], color=color, linestyle="--", linewidth=1.0)
    right.set(xlim=(-3.5, 3.5), ylim=(0.0, None), yticks=[])
panels[0, 0].set_title("draws, curve, two samples")
panels[0, 1].set_title("exact log density")
panels[0, 2].set_title("their exact posteriors; dashed: means")
panels[0, 2].legend()
panels[-1, 2].set_xlabel("z")
figure.savefig("random_networks.png", dpi=110)
print("saved random_networks.png")
