"""The scikit-learn classes, and what they share."""

from skdgn._estimators.anomalies import DGNOutlierDetector
from skdgn._estimators.classifier import DGNClassifier
from skdgn._estimators.documentation import DocumentedMixin
from skdgn._estimators.ensembles import DGNEnsemble
from skdgn._estimators.imputer import DGNImputer
from skdgn._estimators.inputs import check_integers, index_of_feature
from skdgn._estimators.methods import ExactDensity, SumOfDensities, check_density
from skdgn._estimators.mixture import DGNMixture
from skdgn._estimators.network import PiecewiseAffineDGN
from skdgn._estimators.regressor import DGNRegressor
from skdgn._estimators.sklearn_parts import Interval, fit_context
from skdgn._estimators.transformed import TransformedDensity

__all__ = [
    "DGNClassifier",
    "DGNEnsemble",
    "DGNImputer",
    "DGNMixture",
    "DGNOutlierDetector",
    "DGNRegressor",
    "DocumentedMixin",
    "ExactDensity",
    "Interval",
    "PiecewiseAffineDGN",
    "SumOfDensities",
    "TransformedDensity",
    "check_density",
    "check_integers",
    "fit_context",
    "index_of_feature",
]
