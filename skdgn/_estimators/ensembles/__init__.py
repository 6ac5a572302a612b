"""Averages of densities."""

from skdgn._estimators.ensembles.ensemble import DGNEnsemble

__all__ = ["DGNEnsemble"]
