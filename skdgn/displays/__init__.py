"""Displays of fitted models, as in scikit-learn; they need matplotlib (``skdgn[plot]``)."""

from skdgn.displays.density import DensityDisplay
from skdgn.displays.likelihood import LikelihoodCurveDisplay
from skdgn.displays.outliers import OutlierDisplay
from skdgn.displays.partition import LatentPartitionDisplay
from skdgn.displays.posterior import PosteriorDisplay
from skdgn.displays.size_path import SizePathDisplay

__all__ = [
    "DensityDisplay",
    "LatentPartitionDisplay",
    "LikelihoodCurveDisplay",
    "OutlierDisplay",
    "PosteriorDisplay",
    "SizePathDisplay",
]
