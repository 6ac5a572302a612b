"""Deep generative networks with an exact density, for scikit-learn users."""

from skdgn._estimators import (
    DGNClassifier,
    DGNEnsemble,
    DGNImputer,
    DGNMixture,
    DGNOutlierDetector,
    DGNRegressor,
    PiecewiseAffineDGN,
    TransformedDensity,
)
from skdgn._posterior import Posterior
from skdgn._runtime import __version__
from skdgn.displays import (
    DensityDisplay,
    LatentPartitionDisplay,
    LikelihoodCurveDisplay,
    OutlierDisplay,
    PosteriorDisplay,
    SizePathDisplay,
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
    "OutlierDisplay",
    "PiecewiseAffineDGN",
    "Posterior",
    "PosteriorDisplay",
    "SizePathDisplay",
    "TransformedDensity",
    "__version__",
]
