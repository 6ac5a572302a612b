"""
Multiple imputation
===================

This example fits a regression to a table with missing values.  Imputing means understates the
uncertainty, so that standard errors are too small; dropping incomplete samples wastes data.
Several completed tables, drawn from the exact conditional distribution of the missing values,
preserve the uncertainty: Rubin's rules pool the regressions on them.
"""

import matplotlib.pyplot as plt
import numpy as np

from skdgn import PiecewiseAffineDGN

TRUTH = np.array([1.0, 2.0, -1.0])
N_ROWS, N_DRAWS = 500, 20


def make_table(rng):
    """Two features on a bent curve, and an outcome that is linear in them."""
    angle = rng.normal(size=N_ROWS)
    first = angle + 0.3 * rng.normal(size=N_ROWS)
    second = 0.5 * angle**2 + 0.3 * rng.normal(size=N_ROWS)
    outcome = TRUTH @ [np.ones(N_ROWS), first, second] + 0.5 * rng.normal(size=N_ROWS)
    return np.stack([first, second, outcome], axis=1)


def regress(table):
    """Least squares: coefficients and their squared standard errors."""
    design = np.column_stack([np.ones(len(table)), table[:, :2]])
    gram = np.linalg.inv(design.T @ design)
    coefficients = gram @ design.T @ table[:, 2]
    residuals = table[:, 2] - design @ coefficients
    variance = residuals @ residuals / (len(table) - design.shape[1])
    return coefficients, variance * np.diagonal(gram)


def pool(tables):
    """Rubin's rules: variance within tables, plus (1 + 1/m) times that between them."""
    coefficients, squares = (np.array(parts) for parts in zip(*map(regress, tables), strict=True))
    between = coefficients.var(axis=0, ddof=1)
    return coefficients.mean(axis=0), squares.mean(axis=0) + (1.0 + 1.0 / len(tables)) * between


rng = np.random.default_rng(0)
table = make_table(rng)
incomplete = np.where(rng.random(table.shape) < 0.3, np.nan, table)
complete_rows = ~np.isnan(incomplete).any(axis=1)
print(f"{complete_rows.sum()} of {N_ROWS} samples are complete")

model = PiecewiseAffineDGN(hidden_layer_sizes=(16,), covariance_type="full", random_state=0)
model.fit(incomplete)
draws = model.impute(incomplete, method="sample", n_draws=N_DRAWS, random_state=0)

# %%
# Only the pooled estimate uses all samples and accounts for the uncertainty of the missing values.

estimates = {
    "no value removed": regress(table),
    "complete samples only": regress(incomplete[complete_rows]),
    "means filled in": regress(model.impute(incomplete)),
    f"{N_DRAWS} draws, pooled": pool(draws),
}
print(f"{'':22s}" + "".join(f"{name:>18s}" for name in ("constant", "first", "second")))
print(f"{'truth':22s}" + "".join(f"{value:18.3f}" for value in TRUTH))
for name, (coefficients, squares) in estimates.items():
    cells = (f"{c:.3f} ({e:.3f})" for c, e in zip(coefficients, np.sqrt(squares), strict=True))
    print(f"{name:22s}" + "".join(f"{cell:>18s}" for cell in cells))

figure, panels = plt.subplots(1, 3, figsize=(11, 3.2), layout="constrained", sharey=True)
for k, panel in enumerate(panels):
    panel.axvline(TRUTH[k], color="black", linewidth=0.8)
    for place, (coefficients, squares) in enumerate(estimates.values()):
        panel.errorbar(coefficients[k], -place, xerr=1.96 * np.sqrt(squares[k]), fmt="o", capsize=3)
    panel.set_title(("constant", "first", "second")[k])
panels[0].set_yticks([-place for place in range(len(estimates))], estimates)
figure.savefig("multiple_imputation.png", dpi=120)
print("saved multiple_imputation.png")
