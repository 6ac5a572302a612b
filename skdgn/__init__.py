"""Deep generative networks with an exact density, for scikit-learn users."""

from skdgn._estimators import (
    DGNClassifier,
    DGNEnsemble,
    DGNImputer,
    DGNMixture,
    DGNOutlierDetector,
    DGNRegressor,
    PiecewiseAffineDGN,
)
from skdgn._posterior import Posterior
from skdgn._runtime import __version__
from skdgn.displays import (
    DensityDisplay,
    LatentPartitionDisplay,
    LikelihoodCurveDisplay,
    PosteriorDisplay,
)

__all__ = [
    "DGNClassifier",
    "DGNEnsemble",
    "DGNImputer",
    "DGNMixture",
    "DGNOutlierDetector",
    "DGNRegressor",
    "DensityDisplay",
    "LatentPartitionDisplay",
    "LikelihoodCurveDisplay",
    "PiecewiseAffineDGN",
    "Posterior",
    "PosteriorDisplay",
    "__version__",
]
