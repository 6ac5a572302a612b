"""Which regions a network has."""

from skdgn._partition.enumeration import Partition, TooManyRegionsError, build_partition

__all__ = [
    "Partition",
    "TooManyRegionsError",
    "build_partition",
]
