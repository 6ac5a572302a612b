"""Deep generative networks with an exact density, for scikit-learn users."""

from skdgn._posterior import Posterior
from skdgn._versions import __version__
from skdgn.displays import (
    DensityDisplay,
    LatentPartitionDisplay,
    LikelihoodCurveDisplay,
    PosteriorDisplay,
)
from skdgn.ensemble import DGNEnsemble
from skdgn.estimator import PiecewiseAffineDGN
from skdgn.imputer import DGNImputer
from skdgn.mixture import DGNMixture
from skdgn.outliers import DGNOutlierDetector

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
    "__version__",
]
