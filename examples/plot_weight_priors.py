"""
Priors on the weights for few samples
=====================================

With few samples a network overfits their noise.  A prior on the weights regularizes it: Gaussian
(ridge), Laplace (exact zeros) or uniform (a bound on every weight).  The fit then maximizes the
likelihood times the prior, and this product never decreases.  The prior and its scale are chosen by
new samples.
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np
from sklearn.exceptions import ConvergenceWarning

from skdgn import PiecewiseAffineDGN

# %%
# Forty samples lie on a wave in two of five features; the other three features are pure noise.


def draw(n_rows, seed):
    rng = np.random.default_rng(seed)
    t = rng.normal(size=n_rows)
    signal = np.column_stack([t, np.cos(1.4 * t), np.zeros((n_rows, 3))])
    return signal + 0.15 * rng.normal(size=signal.shape)


N_REPEATS = 3
X_test = draw(3000, 1000)
SCALES = {
    "gaussian": (0.1, 0.2, 0.3, 0.5, 1.0, 3.0),
    "laplace": (0.05, 0.1, 0.2, 0.5, 1.0, 3.0),
    "uniform": (0.3, 0.4, 0.5, 0.7, 1.0, 3.0),
}


def fit(X, prior, scale):
    model = PiecewiseAffineDGN(
        hidden_layer_sizes=(12,),
        weight_prior=prior,
        prior_scale=scale,
        covariance_type="spherical",
        tol=1e-3,
        random_state=0,
    )
    with warnings.catch_warnings():
        # Without a prior, forty samples leave directions in which EM drifts on.
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.fit(X)


# %%
# Every prior is fitted at several scales, to three draws of the samples.  ``prior_scale`` is the
# standard deviation of the Gaussian, the scale of the Laplace prior, and the bound of the uniform
# one.  The noise is spherical: a prior on the weights does not regularize the noise, and with a
# variance for each feature, one of them would vanish with forty samples.

training = [draw(40, seed) for seed in range(N_REPEATS)]
free = [fit(X, None, 1.0) for X in training]
free_score = np.mean([model.score(X_test) for model in free])
scores, examples = {}, {}
for prior, scales in SCALES.items():
    for scale in scales:
        models = [fit(X, prior, scale) for X in training]
        scores[prior, scale] = np.mean([model.score(X_test) for model in models])
        examples[prior, scale] = models[0]
best = {
    prior: max(scales, key=lambda scale, prior=prior: scores[prior, scale])
    for prior, scales in SCALES.items()
}

print("prior      scale  log p, training  new samples  zero weights  at the bound  largest weight")
chosen = {"none": free[0]} | {p: examples[p, scale] for p, scale in best.items()}
for prior, model in chosen.items():
    weights = np.concatenate([coef.ravel() for coef in model.coefs_])
    bound = np.count_nonzero(np.isclose(np.abs(weights), model.prior_scale, rtol=1e-12))
    score = free_score if prior == "none" else scores[prior, model.prior_scale]
    print(
        f"{prior:9s} {'' if prior == 'none' else model.prior_scale:>6}"
        f"  {model.score(training[0]):15.3f}  {score:11.3f}"
        f"  {np.count_nonzero(weights == 0.0):3d} of {weights.size:2d}"
        f"     {bound if prior == 'uniform' else 0:12d}  {np.abs(weights).max():14.3f}"
    )

# %%
# The figure shows the output weights of the best fits, with a row for each feature: the last three
# should be zero.  The Laplace prior comes closest: it keeps two of twelve hidden units.  Here the
# best scale was chosen by new samples; ``GridSearchCV`` does the same with held-out samples.

figure = plt.figure(figsize=(14, 6.6), layout="constrained")
upper, lower = figure.subfigures(2, 1, height_ratios=[1.25, 1.0])
curves, densities = upper.subplots(1, 2, width_ratios=[1.0, 1.6])
colors = {"gaussian": "tab:blue", "laplace": "tab:orange", "uniform": "tab:green"}
for prior, scales in SCALES.items():
    values = [scores[prior, scale] for scale in scales]
    curves.plot(scales, values, "o-", color=colors[prior], label=prior)
curves.axhline(free_score, color="black", linestyle="--", label="none")
curves.set(xscale="log", xlabel="prior_scale", title="mean log density of new samples")
curves.legend()

latent = np.linspace(-3.0, 3.0, 601)[:, None]
for prior, model in chosen.items():
    curve = model.inverse_transform(latent)
    densities.plot(curve[:, 0], curve[:, 1], color=colors.get(prior, "black"), label=prior)
densities.plot(training[0][:, 0], training[0][:, 1], ".", color="tab:red", label="40 samples")
densities.plot(X_test[:800, 0], X_test[:800, 1], ".", color="0.85", markersize=3, zorder=0)
densities.set(xlim=(-3.2, 3.2), ylim=(-1.8, 1.8), title="curves of the first two features")
densities.legend(loc="lower center", ncols=3)

for panel, (prior, model) in zip(lower.subplots(1, 4), chosen.items(), strict=True):
    weights = model.coefs_[1]
    shown = np.where(weights == 0.0, np.nan, weights)
    limit = np.abs(weights).max()
    image = panel.imshow(shown, cmap="RdBu", vmin=-limit, vmax=limit, aspect="auto")
    panel.set_facecolor("0.75")
    lower.colorbar(image, ax=panel)
    panel.set(title=f"{prior}: output weights", xlabel="hidden unit", ylabel="feature")
    panel.set_xticks(range(0, 12, 2))
lower.suptitle("gray: exactly zero", y=0.02, va="bottom", fontsize=9)
figure.savefig("weight_priors.png", dpi=110)
print("saved weight_priors.png")
