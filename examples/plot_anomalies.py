"""
Anomalies: samples with a low density
=====================================

Anomalies are samples in places where the density of normal samples is low.  Here the density is
exact, however low it is, so that even distant outliers are ranked.  This example first draws a
threshold in two dimensions, and then compares with scikit-learn's detectors on three of its tables.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_breast_cancer, load_digits, load_wine
from sklearn.decomposition import PCA
from sklearn.ensemble import IsolationForest
from sklearn.metrics import RocCurveDisplay, roc_auc_score
from sklearn.model_selection import train_test_split
from sklearn.neighbors import LocalOutlierFactor
from sklearn.preprocessing import StandardScaler

from skdgn import DGNOutlierDetector, PiecewiseAffineDGN
from skdgn.datasets import make_spiral

# %%
# Normal samples lie along a spiral; the contamination is five percent.  ``score_samples`` is the
# log density, and ``decision_function`` its difference from the threshold.

X = make_spiral(600, noise=0.08, random_state=0)
rng = np.random.default_rng(0)
outliers = rng.uniform(-2.4, 2.4, size=(60, 2))
spiral = DGNOutlierDetector(
    PiecewiseAffineDGN(hidden_layer_sizes=(16, 16), tol=1e-3, random_state=0), contamination=0.05
).fit(X)
far = np.array([[3.0, 0.0], [1e2, 0.0], [1e4, 0.0], [1e6, 0.0]])
found = np.count_nonzero(spiral.predict(outliers) == -1)
print(f"spiral: {found} of 60 random points are outside")
print("log densities far out:", *(f"{value:.4g}" for value in spiral.score_samples(far)))

# %%
# In each of the three tables, some classes are normal: half of their samples train a detector,
# which has to distinguish the other half from the remaining classes.  Labels are not used before
# the evaluation: the width of our network is chosen by BIC on the training samples.  For all
# detectors, digits are reduced to the first ten principal components of all samples.


def normal_and_abnormal(name):
    if name == "breast cancer":
        data = load_breast_cancer()
        rows = np.log1p(data.data)
        return rows[data.target == 1], rows[data.target == 0]
    if name == "wine":
        data = load_wine()
        return data.data[data.target != 2], data.data[data.target == 2]
    data = load_digits()
    rows = PCA(10, random_state=0).fit_transform(data.data[data.target <= 4])
    labels = data.target[data.target <= 4]
    return rows[labels != 3], rows[labels == 3]


def density(width, random_state):
    return PiecewiseAffineDGN(
        hidden_layer_sizes=(width,) if width else (), tol=1e-3, random_state=random_state
    )


def ours(rows, seed):
    width = min((0, 4, 8, 16), key=lambda width: density(width, seed).fit(rows).bic(rows))
    return DGNOutlierDetector(density(width, seed)), width


curves, table = {}, {}
for name in ("breast cancer", "wine", "digits: 3 among 0 to 4"):
    normal, abnormal = normal_and_abnormal(name)
    for seed in range(3):
        train, rest = train_test_split(normal, test_size=0.5, random_state=seed)
        scaler = StandardScaler().fit(train)
        rows = scaler.transform(train)
        test = scaler.transform(np.concatenate([rest, abnormal]))
        is_normal = np.arange(len(test)) < len(rest)
        detector, width = ours(rows, seed)
        detectors = {
            "DGNOutlierDetector": detector,
            "IsolationForest": IsolationForest(random_state=seed),
            "LocalOutlierFactor": LocalOutlierFactor(novelty=True),
        }
        for label, candidate in detectors.items():
            scores = candidate.fit(rows).score_samples(test)
            table.setdefault((name, label), []).append(roc_auc_score(is_normal, scores))
            if seed == 0:
                curves[name, label] = is_normal, scores
        table.setdefault((name, "width"), []).append(width)

names = list(dict.fromkeys(name for name, _ in table))
labels = ["DGNOutlierDetector", "IsolationForest", "LocalOutlierFactor"]
print(f"{'ROC AUC, mean of 3 splits':26s}", *(f"{label:>19s}" for label in labels), " widths")
for name in names:
    means = (f"{np.mean(table[name, label]):19.3f}" for label in labels)
    print(f"{name:26s}", *means, "", *table[name, "width"])

# %%
# Three tables are not a benchmark (``benchmarks/outliers.py`` has seventeen, and no detector is the
# best on all of them).  The advantage of a density is that its scores can be interpreted: they say
# how improbable a sample is.

axis = np.linspace(-3.0, 3.0, 221)
grid = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
decision = spiral.decision_function(grid).reshape(axis.size, axis.size)
figure, panels = plt.subplots(1, 4, figsize=(16, 4.0), layout="constrained")
image = panels[0].pcolormesh(axis, axis, np.maximum(decision + spiral.offset_, -40.0), cmap="magma")
panels[0].contour(axis, axis, decision, levels=[0.0], colors="white", linewidths=1.0)
panels[0].plot(*X.T, ".", color="tab:cyan", markersize=1.5)
inside = spiral.predict(outliers) == 1
panels[0].plot(*outliers[~inside].T, "x", color="tab:red", label="outside")
panels[0].plot(*outliers[inside].T, "o", color="tab:green", label="inside")
panels[0].legend(loc="lower left")
panels[0].set(aspect="equal", title="log density, and the threshold (white)")
figure.colorbar(image, ax=panels[0], shrink=0.8)
for panel, name in zip(panels[1:], names, strict=True):
    for label in labels:
        RocCurveDisplay.from_predictions(*curves[name, label], name=label, ax=panel)
    panel.set(title=name, xlabel="abnormal samples passed", ylabel="normal samples passed")
figure.savefig("anomalies.png", dpi=110)
print("saved anomalies.png")
