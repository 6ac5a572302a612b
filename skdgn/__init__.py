"""Deep generative networks with an exact density, for scikit-learn users."""

from skdgn._estimators import (
    DGNEnsemble,
    DGNImputer,
    DGNMixture,
    DGNOutlierDetector,
    PiecewiseAffineDGN,
)
from skdgn._posterior import Posterior
from skdgn._runtime import __version__
from skdgn.displays import (
    DensityDisplay,
    LatentPartitionDisplay,
    LikelihoodCurveDisplay,
    PosteriorDisplay,
    SizePathDisplay,
)

__all__ = [
    "DGNEnsemble",
    "DGNImputer",
    "DGNMixture",
    "DGNOutlierDetector",
    "DensityDisplay",
    "LatentPartitionDisplay",
    "LikelihoodCurveDisplay",
    "PiecewiseAffineDGN",
    "Posterior",
    "PosteriorDisplay",
    "SizePathDisplay",
    "__version__",
]
