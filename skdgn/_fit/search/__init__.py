"""Moves of units, splits and merges of networks where EM stands still."""

from skdgn._fit.search.local_fits import LocalFits, Replacement, Sizes, replace_networks
from skdgn._fit.search.mixture_search import Search

__all__ = ["LocalFits", "Replacement", "Search", "Sizes", "replace_networks"]
