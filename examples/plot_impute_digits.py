"""
Imputing half of the pixels of digits
=====================================

The model is fitted to handwritten digits from which half of the pixels were removed at random: it
is never trained on a complete digit.  New digits with other missing values are then completed by
the conditional mean, and by draws.
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning
from sklearn.impute import KNNImputer, SimpleImputer

from skdgn import PiecewiseAffineDGN

rng = np.random.default_rng(0)
images = load_digits().data / 16.0
images = images[rng.permutation(len(images))]
incomplete = np.where(rng.random(images.shape) < 0.5, np.nan, images)
train, test = incomplete[:1200], incomplete[1200:]
truth = images[1200:]

# %%
# The curve of one latent dimension runs through the ten digits; the correlated noise explains the
# remaining variation.

model = PiecewiseAffineDGN(
    hidden_layer_sizes=(16,),
    covariance_type="full",
    reg_covar=1e-2,
    init_params="pca",
    max_iter=15,
    random_state=0,
)
with warnings.catch_warnings():
    # Fifteen iterations are enough for a picture.
    warnings.simplefilter("ignore", ConvergenceWarning)
    model.fit(train)
means = model.impute(test)
draws = model.impute(test[:12], method="sample", random_state=0)

holes = np.isnan(test)
imputers = {
    "skdgn": means,
    "KNNImputer (10)": KNNImputer(n_neighbors=10).fit(train).transform(test),
    "SimpleImputer": SimpleImputer(keep_empty_features=True).fit(train).transform(test),
}
for name, imputed in imputers.items():
    error = np.mean((imputed - truth)[holes] ** 2) / truth.var()
    print(f"{name:16s} error relative to the variance of a pixel {error:.3f}")

# %%
# The figure shows the digits before and after imputation.

figure, panels = plt.subplots(4, 12, figsize=(12, 4.4), layout="constrained")
colors = plt.get_cmap("gray_r").with_extremes(bad="tab:orange")
titles = ("missing values", "mean", "draw", "truth")
for row, (title, table) in enumerate(zip(titles, (test, means, draws, truth), strict=True)):
    for panel, image in zip(panels[row], table, strict=False):
        panel.imshow(image.reshape(8, 8), cmap=colors, vmin=0.0, vmax=1.0)
        panel.set(xticks=[], yticks=[])
    panels[row, 0].set_ylabel(title)
figure.savefig("impute_digits.png", dpi=120)
print("saved impute_digits.png")
