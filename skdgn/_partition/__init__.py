"""Which regions a network has."""

from skdgn._partition.boxes import LatentBoxes, enclose_outputs, join_boxes
from skdgn._partition.composed_maps import ComposedMaps, JoinedMaps, LazyMaps, gather, gather_maps
from skdgn._partition.enumeration import Partition, TooManyRegionsError, build_partition
from skdgn._partition.exploration import explored_partition
from skdgn._partition.foresight import refuse_hopeless
from skdgn._partition.index import Keys, add_codes, add_regions, find_similar, scramble

__all__ = [
    "ComposedMaps",
    "JoinedMaps",
    "Keys",
    "LatentBoxes",
    "LazyMaps",
    "Partition",
    "TooManyRegionsError",
    "add_codes",
    "add_regions",
    "build_partition",
    "enclose_outputs",
    "explored_partition",
    "find_similar",
    "gather",
    "gather_maps",
    "join_boxes",
    "refuse_hopeless",
    "scramble",
]
