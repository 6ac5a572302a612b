"""
Choosing the size of a network by AIC and BIC
=============================================

The likelihood is exact, so the criteria of classical statistics apply: AIC and BIC weigh it against
the number of identifiable parameters.  Here samples are drawn from a known network with four hidden
units, to see which width the criteria choose, and how many samples they require.
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np
from sklearn.exceptions import ConvergenceWarning

from skdgn import PiecewiseAffineDGN

# %%
# The true network is a curve in three dimensions with four bends, and noise with a standard
# deviation of 0.4.

TRUE_WIDTH = 4
BENDS = [1.2, 0.4, -0.3, -1.0]
WEIGHTS = np.array([[1.5, -1.2, 0.5, 0.6], [-1.0, 1.2, 1.0, 0.7], [0.6, 0.4, -0.5, -1.5]])


def network(activation, output):
    return PiecewiseAffineDGN.from_network(
        coefs=[[[1.0]] * 4, output],
        intercepts=[BENDS, [0.0, 0.0, 0.0]],
        noise_covariance=[0.16, 0.16, 0.16],
        activation=activation,
    )


truth = network("abs", WEIGHTS)
print(f"the true network: {truth.n_regions_} regions, {truth.n_parameters_:.0f} parameters")


def fit(X, width, activation):
    model = PiecewiseAffineDGN(
        hidden_layer_sizes=(width,) if width else (),
        activation=activation,
        tol=1e-3,
        random_state=0,
    )
    with warnings.catch_warnings():
        # Criteria compare maxima; one that is nearly reached will do.
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.fit(X)


# %%
# For several numbers of samples, networks of every width are fitted to three draws of the samples.
# ``n_parameters_`` counts only identifiable parameters: a unit can be scaled if the next layer is
# scaled back, so each hidden unit has one weight less than its matrices suggest.

WIDTHS = (0, 1, 2, 3, 4, 5, 6, 8)
ROWS = (30, 100, 300, 1000)
N_REPEATS = 3
X_test, _ = truth.sample(5000, random_state=1000)
best_score = truth.score(X_test)

criteria = {name: np.empty((len(ROWS), N_REPEATS, len(WIDTHS))) for name in ("AIC", "BIC", "test")}
for i, n_rows in enumerate(ROWS):
    for repeat in range(N_REPEATS):
        X, _ = truth.sample(n_rows, random_state=10 * repeat + i)
        for j, width in enumerate(WIDTHS):
            model = fit(X, width, "abs")
            criteria["AIC"][i, repeat, j] = model.aic(X)
            criteria["BIC"][i, repeat, j] = model.bic(X)
            criteria["test"][i, repeat, j] = best_score - model.score(X_test)

# %%
# The loss of a choice is the difference between the mean log density of new samples under the true
# network and under the chosen one.

print("samples  width by AIC  width by BIC  loss in nats: AIC    BIC  best width")
for i, n_rows in enumerate(ROWS):
    chosen = {name: criteria[name][i].argmin(axis=1) for name in ("AIC", "BIC", "test")}
    losses = {
        name: np.mean(criteria["test"][i, np.arange(N_REPEATS), chosen[name]]) for name in chosen
    }
    widths = {name: ", ".join(str(WIDTHS[j]) for j in chosen[name]) for name in chosen}
    print(
        f"{n_rows:7d}  {widths['AIC']:>12s}  {widths['BIC']:>12s}"
        f"  {losses['AIC']:18.3f}  {losses['BIC']:5.3f}  {losses['test']:10.3f}"
    )

# %%
# The absolute value is symmetric.  A leaky ReLU is not: if its sign is reversed, it has a different
# slope on the left, which the other units must compensate.  To reverse a unit, EM would have to
# pass through networks with a lower likelihood, which it never does.  A fit with exactly the true
# width may therefore miss the true network, whereas one more unit gives it room.  BIC then chooses
# the additional unit: it compares the maxima that were found, which may not be the global ones.

leaky_truth = network("leaky_relu", 2.0 * WEIGHTS)
X, _ = leaky_truth.sample(1000, random_state=0)
print(f"leaky ReLU, 1000 samples: true network, mean log density {leaky_truth.score(X):.3f}")
for width in (3, 4, 5, 6):
    model = fit(X, width, "leaky_relu")
    print(f"  width {width}: mean log density {model.score(X):.3f}, BIC {model.bic(X):.0f}")

# %%
# The more samples there are, the more reliable the choice; the curves below are averages over the
# draws.  BIC penalizes a unit more heavily than AIC, and rises more steeply beyond the true width.
# Thirty samples are too few for either: a network with 22 parameters can follow them nearly
# everywhere, and the likelihood of the training samples is no longer informative. (A prior on the
# weights helps in this case.)

figure, panels = plt.subplots(1, 4, figsize=(15, 3.8), layout="constrained")
X, regions = truth.sample(600, random_state=0)
panels[0].scatter(X[:, 0], X[:, 1], c=regions, s=5, cmap="viridis")
curve = truth.inverse_transform(np.linspace(-3.0, 3.0, 601)[:, None])
panels[0].plot(curve[:, 0], curve[:, 1], color="black")
panels[0].set_title("two of three features, and the true curve")
titles = {
    "AIC": "AIC per sample, above its minimum",
    "BIC": "BIC per sample, above its minimum",
    "test": "loss on new samples",
}
for panel, (name, values) in zip(panels[1:], criteria.items(), strict=True):
    for i, n_rows in enumerate(ROWS):
        mean = values[i].mean(axis=0) / (1 if name == "test" else n_rows)
        mean = mean if name == "test" else mean - mean.min()
        color = plt.colormaps["viridis"](0.9 - 0.28 * i)
        panel.plot(range(len(WIDTHS)), mean, "o-", color=color, label=f"{n_rows} samples")
        panel.plot(mean.argmin(), mean.min(), "o", color=color, markersize=11, fillstyle="none")
    panel.axvline(WIDTHS.index(TRUE_WIDTH), color="0.7", linestyle=":")
    panel.set_xticks(range(len(WIDTHS)), WIDTHS)
    panel.set(xlabel="hidden units", title=titles[name])
    panel.set_yscale("symlog", linthresh=0.1)
    panel.set_ylim(bottom=-0.02)
    panel.set_yticks([0.0, 0.05, 0.1, 1.0], ["0", "0.05", "0.1", "1"])
panels[1].legend()
figure.savefig("model_choice.png", dpi=110)
print("saved model_choice.png")
