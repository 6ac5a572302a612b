"""Latent coordinates found on the data, before any network: where a fit may start.

Each function takes rows (n, d), centred and of unit variance, the number of latent dimensions and a
generator, and returns scores (n, s) whose order along each column is all that counts:
`gaussianize` turns them into coordinates that look like draws from N(0, I).  No start suits all
data: a closed curve defeats Isomap, a folded sheet defeats principal components.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import scipy.linalg
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra
from scipy.special import ndtri

Floats = NDArray[np.float64]
Indices = NDArray[np.intp]
FindScores = Callable[[Floats, int, np.random.Generator], Floats]

# Enough to carry the graph around a noisy curve, too few to jump between its arms.
N_NEIGHBORS = 10

# Shortest paths are the expensive part of Isomap; a hundred landmarks leave scores almost unchanged.
N_LANDMARKS = 100

# A random start orders this many rows at random: with more, the curve through them is a tangle.
N_ANCHORS = 6


def find_coordinates(
    rows: Floats, n_components: int, method: str, generator: np.random.Generator
) -> Floats:
    """Find scores by a method of `METHODS` and make them Gaussian.

    Parameters
    ----------
    rows : ndarray of shape (n, d)
        Centred, of unit variance (constant columns may be zero).
    n_components : int
        Number of latent dimensions; may exceed the number of features.
    method : {"tree", "isomap", "pca", "random"}
        The tree orders rows along a line; asked for more dimensions, Isomap stands in for it.
    generator : numpy.random.Generator

    Returns
    -------
    coordinates : ndarray of shape (n, s)

    Examples
    --------
    >>> import numpy as np
    >>> from skdgn._coordinates import find_coordinates
    >>> rows = np.array([[-1.2], [0.3], [1.6], [-0.7]])
    >>> abs(find_coordinates(rows, 1, "tree", np.random.default_rng(0)).ravel())
    array([1.15, 0.32, 1.15, 0.32])
    """
    if method == "tree" and n_components > 1:
        method = "isomap"
    return gaussianize(METHODS[method](rows, n_components, generator), generator)


def gaussianize(scores: Floats, generator: np.random.Generator) -> Floats:
    """Decorrelate scores (n, s), then replace each by the normal quantile of its rank.

    Ties are broken at random: where the rows say nothing about z, its posterior is the prior.
    """
    rotated = scores
    if scores.shape[1] > 1:
        centered = scores - scores.mean(axis=0)
        rotated = centered @ np.linalg.eigh(centered.T @ centered)[1][:, ::-1]
    n_rows = len(scores)
    shuffled = generator.permutation(n_rows)
    order = shuffled[np.argsort(rotated[shuffled], axis=0, kind="stable")]
    coordinates = np.empty_like(rotated)
    quantiles = ndtri((np.arange(n_rows) + 0.5) / n_rows)
    np.put_along_axis(coordinates, order, quantiles[:, None], axis=0)
    return coordinates


def tree_scores(rows: Floats, n_components: int, generator: np.random.Generator) -> Floats:
    """Place rows along the longest path of their Euclidean minimum spanning tree.

    A row beside the path counts where its branch leaves the path.

    Notes
    -----
    With ``a`` and ``b`` the ends of the longest path, a vertex ``v`` hangs on the path at distance
    ``(d(a, v) - d(b, v) + d(a, b)) / 2`` from ``a``.  Counting the branch too, ``d(a, v)``, would
    shift rows along the curve by their distance from it.
    """
    tree = _spanning_tree(_distances(rows))
    one_end = int(tree.distances_from(0).argmax())
    from_one_end = tree.distances_from(one_end)
    from_other_end = tree.distances_from(int(from_one_end.argmax()))
    return (from_one_end - from_other_end)[:, None]


def isomap_scores(rows: Floats, n_components: int, generator: np.random.Generator) -> Floats:
    """Scale distances along the neighbourhood graph down to ``n_components`` dimensions.

    Notes
    -----
    Landmark version: classical scaling of the squared distances ``F`` between the landmarks, and
    for every row the affine function of its squared distances ``f`` to the landmarks that
    reproduces it, ``-(f - mean F) V / (2 sqrt(lambda))`` (de Silva and Tenenbaum, *Sparse
    multidimensional scaling using landmark points*, 2004).
    """
    n_rows = len(rows)
    distances = _distances(rows)
    landmarks = generator.choice(n_rows, size=min(N_LANDMARKS, n_rows), replace=False)
    squares = dijkstra(_neighborhood_graph(distances), directed=False, indices=landmarks).T ** 2
    means = squares[landmarks].mean(axis=0)
    centered = squares[landmarks] - means
    gram = -0.5 * (centered - centered.mean(axis=1, keepdims=True))
    values, vectors = np.linalg.eigh(0.5 * (gram + gram.T))
    values, vectors = values[::-1][:n_components], vectors[:, ::-1][:, :n_components]
    real = values > 1e-9 * max(values[0], 1e-300)  # graph distances need not be Euclidean
    scores = -0.5 * (squares - means) @ (vectors[:, real] / np.sqrt(values[real]))
    return _pad(scores, n_components)


def principal_scores(rows: Floats, n_components: int, generator: np.random.Generator) -> Floats:
    """Project on the principal axes."""
    axes, _ = principal_axes(rows, n_components)
    return _pad((rows - rows.mean(axis=0)) @ axes, n_components)


def random_scores(rows: Floats, n_components: int, generator: np.random.Generator) -> Floats:
    """Give a few random rows random places in latent space, and each other row its nearest's."""
    anchors = rows[generator.choice(len(rows), size=min(N_ANCHORS, len(rows)), replace=False)]
    nearest = _distances(rows, anchors).argmin(axis=1)
    return generator.standard_normal((len(anchors), n_components))[nearest]


METHODS: dict[str, FindScores] = {
    "tree": tree_scores,
    "isomap": isomap_scores,
    "pca": principal_scores,
    "random": random_scores,
}


def principal_axes(rows: Floats, n_axes: int) -> tuple[Floats, Floats]:
    """Return the first principal axes (d, k) and variances (k,), ``k = min(n_axes, d)``."""
    n_rows, n_features = rows.shape
    centered = rows - rows.mean(axis=0)
    n_axes = min(n_axes, n_features)
    variances, axes = scipy.linalg.eigh(
        centered.T @ centered / n_rows, subset_by_index=(n_features - n_axes, n_features - 1)
    )
    return axes[:, ::-1], np.maximum(variances[::-1], 0.0)


class _SpanningTree(NamedTuple):
    """A rooted tree: vertices with parents before children, and their distance from the root."""

    order: list[int]
    parents: list[int]
    depths: list[float]

    def distances_from(self, vertex: int) -> Floats:
        """Return the distance along the tree from this vertex to every other, (n,)."""
        root, depth = self.order[0], self.depths[vertex]
        # Paths to the vertex and to another part at the last common one on the way from the root.
        forks = [0.0] * len(self.order)
        while vertex != root:
            forks[vertex] = self.depths[vertex]
            vertex = self.parents[vertex]
        for other in self.order[1:]:
            forks[other] = forks[other] or forks[self.parents[other]]
        return depth + np.array(self.depths) - 2.0 * np.array(forks)


def _spanning_tree(distances: Floats) -> _SpanningTree:
    """Find the minimum spanning tree of points with these mutual distances (n, n).

    Prim's algorithm on the full matrix: exact, n vectorised steps, indifferent to separate clusters
    and to duplicates (zero lengths, which sparse graphs may take for missing edges).
    """
    n_points = len(distances)
    lengths = distances[0].copy()  # from each vertex outside the tree to the nearest inside
    parents = np.zeros(n_points, dtype=np.intp)
    order, depths = [0], [0.0] * n_points
    lengths[0] = np.inf
    outside = np.ones(n_points, dtype=bool)
    outside[0] = False
    for _ in range(n_points - 1):
        newest = int(lengths.argmin())
        order.append(newest)
        depths[newest] = depths[parents[newest]] + float(lengths[newest])
        outside[newest] = False
        lengths[newest] = np.inf
        closer = outside & (distances[newest] < lengths)
        lengths[closer] = distances[newest, closer]
        parents[closer] = newest
    return _SpanningTree(order, parents.tolist(), depths)


def _neighborhood_graph(distances: Floats) -> csr_array:
    """Join each row to its nearest neighbours, and clusters by the edges of the spanning tree."""
    n_rows = len(distances)
    n_neighbors = min(N_NEIGHBORS, n_rows - 1)
    nearest = np.argpartition(distances, n_neighbors, axis=1)[:, : n_neighbors + 1]
    tree = _spanning_tree(distances)
    children = np.array(tree.order[1:], dtype=np.intp)
    heads = np.concatenate([np.repeat(np.arange(n_rows), n_neighbors + 1), children])
    tails = np.concatenate([nearest.ravel(), np.array(tree.parents, dtype=np.intp)[children]])
    # Converted to a sparse array, an edge listed twice would count twice its length.
    edges = np.unique(heads * n_rows + tails)
    heads, tails = np.divmod(edges, n_rows)
    return csr_array((distances[heads, tails], (heads, tails)), shape=(n_rows, n_rows))


def _distances(rows: Floats, others: Floats | None = None) -> Floats:
    """Return Euclidean distances (n, m) by one matrix product.

    Cancellation leaves a rounding error of 1e-8 between coinciding rows: of no matter for a start.
    """
    others = rows if others is None else others
    squares = -2.0 * rows @ others.T
    squares += np.einsum("nd,nd->n", rows, rows)[:, None]
    squares += np.einsum("md,md->m", others, others)
    return np.sqrt(np.maximum(squares, 0.0, out=squares), out=squares)


def _pad(scores: Floats, n_columns: int) -> Floats:
    """Append zero columns: `gaussianize` makes pure chance of them."""
    return np.pad(scores, ((0, 0), (0, n_columns - scores.shape[1])))
