"""Fits as users see them: attributes, progress, warnings, callbacks."""

from skdgn._estimators.fits.attributes import (
    NOT_ITERATED,
    attributes_of_model,
    network_from_plain,
    plain_network,
    unchanged_by_failure,
)
from skdgn._estimators.fits.complaints import Complaint, collect_complaints, complain
from skdgn._estimators.fits.delegation import DelegatingMixin
from skdgn._estimators.fits.fitting import FittedByEM

__all__ = [
    "NOT_ITERATED",
    "Complaint",
    "DelegatingMixin",
    "FittedByEM",
    "attributes_of_model",
    "collect_complaints",
    "complain",
    "network_from_plain",
    "plain_network",
    "unchanged_by_failure",
]
