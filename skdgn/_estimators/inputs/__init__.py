"""What users pass, checked before any work."""

from skdgn._estimators.inputs.checks import (
    check_continuation,
    check_integers,
    check_observed,
    check_prior_scale,
    check_sizes,
    check_spreads,
    index_of_feature,
)
from skdgn._estimators.inputs.validation import (
    check_weights,
    validate_samples,
    validate_samples_and_targets,
)

__all__ = [
    "check_continuation",
    "check_integers",
    "check_observed",
    "check_prior_scale",
    "check_sizes",
    "check_spreads",
    "check_weights",
    "index_of_feature",
    "validate_samples",
    "validate_samples_and_targets",
]
