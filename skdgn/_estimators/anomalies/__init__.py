"""Samples unlike the others: thresholds, p-values, fits without them."""

from skdgn._estimators.anomalies.outliers import DGNOutlierDetector

__all__ = ["DGNOutlierDetector"]
