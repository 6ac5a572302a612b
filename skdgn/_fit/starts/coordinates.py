"""Latent coordinates found on the data, before any network: where a fit may start.

Each function takes samples (n, d), centered and of unit variance, the number of latent dimensions
and a generator, and returns scores (n, s) whose order along each column is all that counts:
`gaussianize` turns them into coordinates that look like draws from N(0, I).  No start suits all
data: a closed curve defeats Isomap, a folded sheet defeats principal components.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import scipy.linalg
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra
from scipy.special import ndtri

from skdgn._runtime import Floats, Integers

Indices = Integers
FindScores = Callable[[Floats, int, np.random.Generator], Floats]

# Enough to carry the graph around a noisy curve, too few to jump between its arms.
N_NEIGHBORS = 10

# Shortest paths are the expensive part of Isomap, and a hundred landmarks are enough.
N_LANDMARKS = 100

# Waves in a random curve: fewer make it a loop, many a tangle.
N_WAVES = 6

# Principal components with a smaller share of the first one's variance are rounding errors.
_NO_VARIANCE = 1e-12
_ICA_STEPS = 50
# Dimensions that may bend where linear ones are beside them.
_SHEET_DIMENSIONS = 2

# Points drawn on a random curve, or surface, to look for the nearest.
N_POINTS = 500


def find_coordinates(
    samples: Floats, n_components: int, method: str, generator: np.random.Generator
) -> Floats:
    """Find scores by a method of `METHODS` and make them Gaussian.

    Parameters
    ----------
    samples : ndarray of shape (n, d)
        Centered, of unit variance (constant columns may be zero).
    n_components : int
        Number of latent dimensions; may exceed the number of features.
    method : {"tree", "isomap", "pca", "independent", "sheet", "random"}
        The tree orders samples along a line; asked for more dimensions, Isomap stands in for it.
    generator : numpy.random.Generator

    Returns
    -------
    coordinates : ndarray of shape (n, s)

    Examples
    --------
    >>> import numpy as np
    >>> from skdgn._fit.starts.coordinates import find_coordinates
    >>> samples = np.array([[-1.2], [0.3], [1.6], [-0.7]])
    >>> abs(find_coordinates(samples, 1, "tree", np.random.default_rng(0)).ravel())
    array([1.15, 0.32, 1.15, 0.32])
    """
    if method == "tree" and n_components > 1:
        method = "isomap"
    return gaussianize(METHODS[method](samples, n_components, generator), generator)


def gaussianize(scores: Floats, generator: np.random.Generator) -> Floats:
    """Decorrelate scores (n, s), then replace each by the normal quantile of its rank.

    Ties are broken at random: where the samples say nothing about z, its posterior is the prior.
    """
    rotated = scores
    if scores.shape[1] > 1:
        centered = scores - scores.mean(axis=0)
        rotated = centered @ np.linalg.eigh(centered.T @ centered)[1][:, ::-1]
    n_samples = len(scores)
    shuffled = generator.permutation(n_samples)
    order = shuffled[np.argsort(rotated[shuffled], axis=0, kind="stable")]
    coordinates = np.empty_like(rotated)
    quantiles = ndtri((np.arange(n_samples) + 0.5) / n_samples)
    np.put_along_axis(coordinates, order, quantiles[:, None], axis=0)
    return coordinates


def tree_scores(samples: Floats, n_components: int, generator: np.random.Generator) -> Floats:
    """Order samples by a walk along their Euclidean minimum spanning tree.

    The walk starts at one end of the tree's longest path and goes to the other, visiting on its way
    each branch it passes, the shorter first.  So a sample beside the curve keeps its place, and a
    second arm, or a separate cluster, gets a stretch of its own.
    """
    distances = _distances(samples)
    neighbors: list[list[int]] = [[] for _ in samples]
    for parent, child in zip(*_spanning_tree(distances), strict=True):
        neighbors[parent].append(int(child))
        neighbors[child].append(int(parent))

    order, parents, depths = _root_tree(neighbors, distances, root=0)
    order, parents, depths = _root_tree(neighbors, distances, root=int(depths.argmax()))
    reaches = depths.copy()  # how far from the root one gets beyond each vertex
    for vertex in reversed(order):
        reaches[parents[vertex]] = max(reaches[parents[vertex]], reaches[vertex])

    scores = np.empty((len(samples), 1))
    waiting = [order[0]]
    for place in range(len(samples)):
        vertex = waiting.pop()
        scores[vertex] = place
        onward = [neighbor for neighbor in neighbors[vertex] if neighbor != parents[vertex]]
        waiting += sorted(onward, key=reaches.__getitem__, reverse=True)
    return scores


def isomap_scores(samples: Floats, n_components: int, generator: np.random.Generator) -> Floats:
    """Scale distances along the neighborhood graph down to ``n_components`` dimensions.

    Notes
    -----
    Landmark version: classical scaling of the squared distances ``F`` between the landmarks, and
    for every sample the affine function of its squared distances ``f`` to the landmarks that
    reproduces it, ``-(f - mean F) V / (2 sqrt(lambda))`` (de Silva and Tenenbaum, *Sparse
    multidimensional scaling using landmark points*, 2004).
    """
    n_samples = len(samples)
    distances = _distances(samples)
    landmarks = generator.choice(n_samples, size=min(N_LANDMARKS, n_samples), replace=False)
    squares = dijkstra(_neighborhood_graph(distances), directed=False, indices=landmarks).T ** 2
    means = squares[landmarks].mean(axis=0)
    centered = squares[landmarks] - means
    gram = -0.5 * (centered - centered.mean(axis=1, keepdims=True))
    values, vectors = np.linalg.eigh(0.5 * (gram + gram.T))
    values, vectors = values[::-1][:n_components], vectors[:, ::-1][:, :n_components]
    real = values > 1e-9 * max(values[0], 1e-300)  # graph distances need not be Euclidean
    scores = -0.5 * (squares - means) @ (vectors[:, real] / np.sqrt(values[real]))
    return _pad(scores, n_components)


def principal_scores(samples: Floats, n_components: int, generator: np.random.Generator) -> Floats:
    """Project on the principal axes."""
    axes, _ = principal_axes(samples, n_components)
    return _pad((samples - samples.mean(axis=0)) @ axes, n_components)


def independent_scores(
    samples: Floats, n_components: int, generator: np.random.Generator
) -> Floats:
    """Turn the principal components to where they are least alike a Gaussian, each on its own.

    Bends along one latent variable that others do not take part in are found there (FastICA:
    Hyvarinen, *Fast and robust fixed-point algorithms for independent component analysis*, 1999).
    """
    axes, variances = principal_axes(samples, n_components)
    kept = variances > _NO_VARIANCE * max(variances[0], 1e-300)
    white = (samples - samples.mean(axis=0)) @ (axes[:, kept] / np.sqrt(variances[kept]))
    n_kept = white.shape[1]
    turn = np.linalg.qr(generator.standard_normal((n_kept, n_kept)))[0]
    for _ in range(_ICA_STEPS):
        values = np.tanh(white @ turn.T)
        new = values.T @ white / len(white) - np.mean(1.0 - values**2, axis=0)[:, None] * turn
        left, _, right = np.linalg.svd(new)
        turn = left @ right
    # Of different sizes: `gaussianize` must not turn them back.
    return _pad(white @ turn.T * np.arange(n_kept, 0, -1.0), n_components)


def sheet_scores(samples: Floats, n_components: int, generator: np.random.Generator) -> Floats:
    """Find a sheet by Isomap, and principal components of what it leaves.

    The sheet is the mean of the samples that are near each other on it.
    """
    if n_components <= _SHEET_DIMENSIONS:
        return isomap_scores(samples, n_components, generator)
    sheet = isomap_scores(samples, _SHEET_DIMENSIONS, generator)
    sheet /= np.maximum(sheet.std(axis=0), 1e-300)
    n_neighbors = min(2 * N_NEIGHBORS, len(samples) - 1)
    nearest = np.argpartition(_distances(sheet), n_neighbors, axis=1)[:, : n_neighbors + 1]
    rest = samples - samples[nearest].mean(axis=1)
    others = principal_scores(rest, n_components - _SHEET_DIMENSIONS, generator)
    # Smaller than the sheet: `gaussianize` must not mix them with it.
    others /= 10.0 * np.maximum(others.std(axis=0)[:1].max(initial=0.0), 1e-300)
    sheet = sheet * np.array([2.0, 1.0])
    others -= sheet @ np.linalg.lstsq(sheet, others, rcond=None)[0]
    return np.hstack([sheet, others])


def random_scores(samples: Floats, n_components: int, generator: np.random.Generator) -> Floats:
    """Draw a random smooth curve (or surface) through the data and take the nearest point on it."""
    latent = generator.standard_normal((N_POINTS, n_components))
    frequencies = 1.5 * generator.standard_normal((n_components, N_WAVES))
    waves = np.sin(latent @ frequencies + generator.uniform(0.0, 2.0 * np.pi, N_WAVES))
    # Random combinations of samples have the covariance of the samples.
    points = waves @ generator.standard_normal((N_WAVES, len(samples))) @ samples
    points -= points.mean(axis=0)
    deviations = points.std(axis=0)
    points *= samples.std(axis=0) / np.where(deviations > 0.0, deviations, 1.0)
    return latent[_distances(samples, points).argmin(axis=1)]


METHODS: dict[str, FindScores] = {
    "tree": tree_scores,
    "isomap": isomap_scores,
    "pca": principal_scores,
    "independent": independent_scores,
    "sheet": sheet_scores,
    "random": random_scores,
}


def principal_axes(samples: Floats, n_axes: int) -> tuple[Floats, Floats]:
    """Return the first principal axes (d, k) and variances (k,), ``k = min(n_axes, d)``."""
    n_samples, n_features = samples.shape
    centered = samples - samples.mean(axis=0)
    n_axes = min(n_axes, n_features)
    if n_axes <= n_samples < n_features:
        # Products of the samples with each other are fewer.
        _, sizes, directions = scipy.linalg.svd(centered, full_matrices=False)
        return directions[:n_axes].T, sizes[:n_axes] ** 2 / n_samples
    variances, axes = scipy.linalg.eigh(
        centered.T @ centered / n_samples, subset_by_index=(n_features - n_axes, n_features - 1)
    )
    return axes[:, ::-1], np.maximum(variances[::-1], 0.0)


def _spanning_tree(distances: Floats) -> tuple[Indices, Indices]:
    """Find the minimum spanning tree of points with these mutual distances (n, n).

    Prim's algorithm on the full matrix: exact, n vectorized steps, indifferent to separate clusters
    and to duplicates (zero lengths, which sparse graphs may take for missing edges).

    Returns
    -------
    parents, children : ndarray of shape (n - 1,)
        Point 0 is the root; every point is a child before it is a parent.
    """
    n_points = len(distances)
    lengths = distances[0].copy()  # from each point outside the tree to the nearest inside
    nearest = np.zeros(n_points, dtype=np.intp)
    children = np.zeros(n_points - 1, dtype=np.intp)
    outside = np.ones(n_points, dtype=bool)
    newest = 0
    for step in range(n_points - 1):
        outside[newest] = False
        lengths[newest] = np.inf
        closer = outside & (distances[newest] < lengths)
        lengths[closer] = distances[newest, closer]
        nearest[closer] = newest
        newest = int(lengths.argmin())
        children[step] = newest
    return nearest[children], children


def _root_tree(
    neighbors: list[list[int]], lengths: Floats, root: int
) -> tuple[list[int], list[int], Floats]:
    """Hang a tree up by a vertex.

    Returns the vertices with parents before children, the parent of each (the root is its own), and
    the distances from the root along the tree, (n,).
    """
    order = [root]
    parents = [root] * len(neighbors)
    depths = np.zeros(len(neighbors))
    for vertex in order:  # grows while it is read
        for child in neighbors[vertex]:
            if child != parents[vertex]:
                order.append(child)
                parents[child] = vertex
                depths[child] = depths[vertex] + lengths[vertex, child]
    return order, parents, depths


def _neighborhood_graph(distances: Floats) -> csr_array:
    """Join each sample to its nearest neighbors, and clusters by the edges of the spanning tree."""
    n_samples = len(distances)
    n_neighbors = min(N_NEIGHBORS, n_samples - 1)
    nearest = np.argpartition(distances, n_neighbors, axis=1)[:, : n_neighbors + 1]
    parents, children = _spanning_tree(distances)
    heads = np.concatenate([np.repeat(np.arange(n_samples), n_neighbors + 1), parents])
    tails = np.concatenate([nearest.ravel(), children])
    # Converted to a sparse array, an edge listed twice would count twice its length.
    edges = np.unique(heads * n_samples + tails)
    # Shortest paths need indices of 32 bits, says SciPy 1.11.
    heads, tails = np.stack(np.divmod(edges, n_samples)).astype(np.int32)
    return csr_array((distances[heads, tails], (heads, tails)), shape=(n_samples, n_samples))


def _distances(samples: Floats, others: Floats | None = None) -> Floats:
    """Return Euclidean distances (n, m) by one matrix product.

    Cancellation leaves a rounding error of 1e-8 between coinciding samples: of no matter for a
    start.
    """
    others = samples if others is None else others
    squares = -2.0 * samples @ others.T
    squares += np.einsum("nd,nd->n", samples, samples)[:, None]
    squares += np.einsum("md,md->m", others, others)
    return np.sqrt(np.maximum(squares, 0.0, out=squares), out=squares)


def _pad(scores: Floats, n_columns: int) -> Floats:
    """Append zero columns: `gaussianize` makes pure chance of them."""
    return np.pad(scores, ((0, 0), (0, n_columns - scores.shape[1])))
