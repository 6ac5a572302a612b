"""Sizes that are chosen by a criterion: a path of models."""

from skdgn._fit.sizes.size_choice import SizeSettings, fit_sizes
from skdgn._fit.sizes.size_path import CRITERIA

__all__ = ["CRITERIA", "SizeSettings", "fit_sizes"]
