"""
Regression with multimodal targets
==================================

In this inverse problem, one x has up to three values of y. A regression predicts their mean, where
y never lies. Here a density of (x, y) is fitted, and ``conditional_score_samples`` computes the
exact log p(y | x): no matter how many modes it has, it integrates to one.
"""

import matplotlib.pyplot as plt
import numpy as np

from skdgn import PiecewiseAffineDGN

rng = np.random.default_rng(0)
y = rng.uniform(0.0, 1.0, 1200)
x = y + 0.3 * np.sin(2.0 * np.pi * y) + 0.04 * rng.normal(size=y.size)
train, test = np.stack([x, y], axis=1)[:800], np.stack([x, y], axis=1)[800:]

model = PiecewiseAffineDGN(hidden_layer_sizes=(16,), random_state=0, tol=1e-3).fit(train)

# %%
# A Gaussian around the regression line is the same model without a hidden layer.

linear = PiecewiseAffineDGN(hidden_layer_sizes=(), random_state=0).fit(train)
for name, estimator in (("network", model), ("linear", linear)):
    score = estimator.conditional_score_samples(test, given=[0]).mean()
    print(f"{name:8s} mean log p(y | x) on new samples {score:6.3f}")

# %%
# To check the calibration, the conditional distribution function is evaluated at the true y, here
# with draws of y given x.  Its values must be uniformly distributed.

unknown = np.stack([test[:, 0], np.full(len(test), np.nan)], axis=1)
draws = model.impute(unknown, method="sample", n_draws=200, random_state=0)[:, :, 1]
ranks = (draws < test[:, 1]).mean(axis=0)
for level in (0.5, 0.8, 0.95):
    covered = np.mean(np.abs(ranks - 0.5) < 0.5 * level)
    print(f"central {level:.0%} intervals contain {covered:.1%} of the new y")

# %%
# The figure shows the conditional density for every x, and at one x.

axis = np.linspace(-0.2, 1.2, 141)
across, up = np.meshgrid(axis, axis)
grid = np.stack([across, up], axis=-1).reshape(-1, 2)
density = np.exp(model.conditional_score_samples(grid, given=[0])).reshape(across.shape)
line = np.stack([np.full(axis.size, 0.5), axis], axis=1)

figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
image = left.pcolormesh(across, up, density, cmap="magma", vmax=12.0)
left.plot(*test.T, ".", color="tab:cyan", markersize=2)
left.axvline(0.5, color="white", linewidth=0.8)
left.set(xlabel="x", ylabel="y", title="p(y | x), exact; dots: new samples")
figure.colorbar(image, ax=left)
for name, estimator in (("network", model), ("linear", linear)):
    right.plot(axis, np.exp(estimator.conditional_score_samples(line, given=[0])), label=name)
right.set(xlabel="y", title="p(y | x = 0.5)")
right.legend()
figure.savefig("conditional_regression.png", dpi=120)
print("saved conditional_regression.png")
