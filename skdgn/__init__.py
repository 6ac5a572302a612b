"""Deep generative networks with an exact density, for scikit-learn users."""

from importlib import import_module
from types import ModuleType

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
_SUBMODULES = ("datasets", "layers", "vae")


def __getattr__(name: str) -> ModuleType:
    """Import submodules when they are first asked for, as scikit-learn does."""
    if name in _SUBMODULES:
        return import_module(f"skdgn.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_SUBMODULES])
