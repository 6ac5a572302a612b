"""
Prediction intervals for multimodal targets
===========================================

In this inverse problem, one x has up to three values of y.  A central interval covers all of them,
and the gaps between them, where y never lies.  The smallest set with the same probability has an
interval around each value.
"""

import matplotlib.pyplot as plt
import numpy as np

from skdgn import DGNRegressor, PiecewiseAffineDGN

rng = np.random.default_rng(0)
y = rng.uniform(0.0, 1.0, 1600)
X = (y + 0.3 * np.sin(2.0 * np.pi * y) + 0.04 * rng.normal(size=y.size))[:, None]
train, test = slice(0, 800), slice(800, None)

network = PiecewiseAffineDGN(hidden_layer_sizes=(16,), tol=1e-3, random_state=0)
regressor = DGNRegressor(network).fit(X[train], y[train])

# %%
# Both kinds of intervals have the nominal coverage on new samples, but the sets of highest density
# are much smaller.

central = regressor.predict_interval(X[test], 0.9)
sets = regressor.predict_interval(X[test], 0.9, kind="highest_density")
in_central = (central[:, 0] <= y[test]) & (y[test] <= central[:, 1])
in_set = ((sets[..., 0] <= y[test, None]) & (y[test, None] <= sets[..., 1])).any(axis=1)
print(f"central 90 % intervals: {in_central.mean():.1%} of new samples, mean length", end=" ")
print(f"{np.diff(central).mean():.3f}")
print(f"sets of highest density: {in_set.mean():.1%} of new samples, mean length", end=" ")
print(f"{np.nansum(np.diff(sets), axis=(1, 2)).mean():.3f}")

# %%
# The figure shows both kinds for every x.

grid = np.linspace(-0.05, 1.05, 111)[:, None]
low, high = regressor.predict_interval(grid, 0.9).T
pieces = regressor.predict_interval(grid, 0.9, kind="highest_density")
mean = regressor.predict(grid)
mode = regressor.set_params(prediction="mode").predict(grid)

figure, (left, right) = plt.subplots(
    1, 2, figsize=(11, 4.2), layout="constrained", sharex=True, sharey=True
)
for ax in (left, right):
    ax.plot(X[test], y[test], ".", color="0.6", markersize=2, zorder=0)
    ax.set(xlabel="x", ylim=(-0.2, 1.2))
left.fill_between(grid[:, 0], low, high, color="tab:blue", alpha=0.3, linewidth=0.0)
left.plot(grid, mean, color="tab:blue", label="mean")
left.set(ylabel="y", title="central 90 % interval, and mean")
step = grid[1, 0] - grid[0, 0]
for x, intervals in zip(grid[:, 0], pieces, strict=True):
    for begin, end in intervals[~np.isnan(intervals[:, 0])]:
        right.bar(x, end - begin, step, begin, color="tab:orange", alpha=0.5, linewidth=0.0)
right.plot(grid, mode, ".", color="tab:red", markersize=3, label="mode")
right.set(title="90 % set of highest density, and mode")
left.legend(loc="upper left")
right.legend(loc="upper left")
figure.savefig("intervals.png", dpi=120)
print("saved intervals.png")
