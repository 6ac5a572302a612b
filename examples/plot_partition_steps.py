"""
The partition of latent space, step by step
===========================================

A network with piecewise-affine activations is affine on each cell of a partition of its latent
space.  Here that partition is built as ``skdgn`` builds it, one hidden unit after the other; then
as the paper [1]_ does it, by walking from cell to neighbouring cell; and one cell is cut into
simplices, the paper's way to integrate a Gaussian over it.

.. [1] R. Balestriero, S. Paris, R. G. Baraniuk, *Analytical Probability Distributions and
   EM-Learning for Deep Generative Networks*, 2020.
"""

from fractions import Fraction

import matplotlib.pyplot as plt
import numpy as np
from scipy.spatial import ConvexHull

from skdgn import PiecewiseAffineDGN
from skdgn._cells.generators import find_generators, triangulate
from skdgn._cells.simplices import integrate

# %%
# A random network with two latent dimensions and hidden layers of 5 and 4 units.  Without its last
# units it is a network too, with a coarser partition; so every step of the construction can be
# looked at as a network of its own.

rng = np.random.default_rng(200)
coefs = [rng.normal(size=(5, 2)), rng.normal(size=(4, 5))]
intercepts = [0.8 * rng.normal(size=5), 0.8 * rng.normal(size=4)]


def network_with(n_units):
    """The network with its first hidden units only; what comes behind them does not matter."""
    widths = [w for w in (min(n_units, 5), n_units - 5) if w > 0]
    layers, biases, fan_in = [], [], 2
    for layer, width in enumerate(widths):
        layers.append(coefs[layer][:width, :fan_in])
        biases.append(intercepts[layer][:width])
        fan_in = width
    return PiecewiseAffineDGN.from_network(
        [*layers, np.ones((2, fan_in))], [*biases, np.zeros(2)], 0.01, activation="relu"
    )


steps = [network_with(n_units) for n_units in range(10)]
whole = steps[-1]
for n_units, model in enumerate(steps):
    print(f"{n_units} units: {model.n_regions_:3d} cells, prior masses add up to", end=" ")
    print(f"{model.weights_.sum():.15f}")

# %%
# A unit of the first layer changes sides along a straight line.  A unit of the second layer sees
# the first layer's output: its line bends at every boundary that is there already.  Each new unit
# splits the cells that it crosses and leaves the others alone, so that no cell is met twice and
# none is missed.
#
# To draw a cell, the window is clipped by the cell's edges, ``normals @ z >= offsets``.  Every unit
# tints the side on which it is active.

WINDOW = 3.2 * np.array([[-1.0, -1.0], [1.0, -1.0], [1.0, 1.0], [-1.0, 1.0]])
TINTS = 0.12 * np.eye(3)[np.arange(9) % 3] + 0.03


def clip(corners, normal, offset):
    """The part of a convex polygon where ``normal @ z >= offset``."""
    kept, heights = [], corners @ normal - offset
    for i, here in enumerate(heights):
        there = heights[i - 1]
        if here * there < 0.0:
            kept.append(corners[i] + (corners[i - 1] - corners[i]) * here / (here - there))
        if here >= 0.0:
            kept.append(corners[i])
    return np.array(kept).reshape(-1, 2)


def visible_part(cells, cell):
    """The polygon of a cell, as far as the window shows it."""
    start, normals, offsets = cells.facets()
    polygon = WINDOW
    for edge in range(start[cell], start[cell + 1]):
        polygon = clip(polygon, normals[edge], offsets[edge])
    return polygon


def draw_cells(panel, model, colors):
    for cell, color in enumerate(colors):
        polygon = visible_part(model.partition_.cells, cell)
        panel.fill(*polygon.T, facecolor=color, edgecolor="0.35", linewidth=0.5)
    panel.set(xlim=(-3.2, 3.2), ylim=(-3.2, 3.2), xticks=[], yticks=[], aspect="equal")


def inputs_of_units(Z):
    """What each of the nine units receives, (n, 9): it changes sides where this is zero."""
    first = Z @ coefs[0].T + intercepts[0]
    return np.hstack([first, np.maximum(first, 0.0) @ coefs[1].T + intercepts[1]])


axis = np.linspace(-3.2, 3.2, 401)
grid = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
received = inputs_of_units(grid).reshape(axis.size, axis.size, 9)

figure, panels = plt.subplots(2, 5, figsize=(13, 5.7), layout="constrained")
for n_units, (panel, model) in enumerate(zip(panels.flat, steps, strict=True)):
    patterns = model.partition_.patterns
    draw_cells(panel, model, 1.0 - patterns @ TINTS[:n_units])
    cells = f"{model.n_regions_} cell" + "s" * (model.n_regions_ > 1)
    title = f"layer {1 + n_units // 6}, unit {n_units if n_units < 6 else n_units - 5}: {cells}"
    panel.set_title(title if n_units else f"latent space: {cells}", fontsize=10)
    if n_units:
        newest = received[:, :, n_units - 1]
        panel.contour(axis, axis, newest, levels=[0.0], colors="tab:red", linewidths=1.6)
figure.savefig("partition_steps.png", dpi=120)
print("saved partition_steps.png")

# %%
# The paper finds the same cells in another order.  It starts in the cell of some latent point,
# looks for the edges of that cell, crosses each of them, and repeats this in every cell that it has
# not seen before.  Crossing an edge changes the side of one unit, hence the pattern's name for the
# cell behind it is known.  The test suite compares both ways.

partition = whole.partition_
start_cell = int(partition.locate(inputs_of_units(np.zeros((1, 2))) > 0.0)[0])


def neighbours(cell):
    """The cells behind the edges of a cell that the window shows."""
    polygon = visible_part(partition.cells, cell)
    middles = 0.5 * (polygon + np.roll(polygon, -1, axis=0))
    behind = middles + 1e-6 * (middles - polygon.mean(axis=0))
    behind = behind[np.abs(behind).max(axis=1) < 3.2]
    return set(partition.locate(inputs_of_units(behind) > 0.0)) - {cell}


found = np.full(len(partition), -1)
waiting, step = {start_cell}, 0
while waiting:
    found[list(waiting)] = step
    waiting = {cell for known in waiting for cell in neighbours(known) if found[cell] < 0}
    step += 1
seen = np.count_nonzero(found >= 0)
print(f"the walk needs {step - 1} steps for the {seen} cells (of {len(partition)}) in the window")

# %%
# Now one cell is cut into simplices, here triangles.  Corners are found in exact arithmetic, as
# generators of a cone with one dimension more: those of height zero are directions to infinity.


def cut(cell):
    """Corners, directions to infinity, and the triangles between them, by their indices."""
    start, normals, offsets = partition.cells.facets()
    edges = slice(start[cell], start[cell + 1])
    rows = np.column_stack([normals[edges], -offsets[edges]])
    inequalities = [[Fraction(0), Fraction(0), Fraction(1)]]
    inequalities += [[Fraction(x) for x in row] for row in rows.tolist()]
    cone = find_generators(inequalities)
    heights = np.array([float(Fraction(ray[2], max(map(abs, ray)))) for ray in cone.rays])
    rays = [[float(Fraction(x, max(map(abs, ray)))) for x in ray[:2]] for ray in cone.rays]
    points = np.array(rays) / np.where(heights > 0.0, heights, 1.0)[:, None]
    simplices = triangulate(frozenset(range(len(points))), cone.walls)
    return points, heights > 0.0, [sorted(simplex) for simplex in simplices]


def masses(cell):
    """Prior mass of a cell by the fast route, by simplices, and of its corners' hull."""
    start, normals, offsets = partition.cells.facets()
    edges = slice(start[cell], start[cell + 1])
    by_simplices = integrate(normals[edges], offsets[edges], np.zeros(2), np.eye(2)).mass
    points, finite, _ = cut(cell)
    hull = 0.0
    if np.count_nonzero(finite) > 2:
        lines = ConvexHull(points[finite]).equations
        hull = integrate(-lines[:, :2], lines[:, 2], np.zeros(2), np.eye(2)).mass
    return whole.weights_[cell], by_simplices, hull


bounded = np.array([cut(cell)[1].all() for cell in range(len(partition))])


def smallest_triangle(cell):
    """How well a cut can be seen: area of the smallest triangle, corners at infinity 3 away."""
    points, finite, simplices = cut(cell)
    if len(points) < 5 or np.abs(points[finite]).max() > 3.0:
        return 0.0
    drawn = np.where(finite[:, None], points, 3.0 * points)
    return min(abs(np.linalg.det(drawn[simplex[1:]] - drawn[simplex[0]])) for simplex in simplices)


visible = np.array([smallest_triangle(cell) for cell in range(len(partition))])
closed, opened = (int(np.argmax(np.where(kind, visible, -1.0))) for kind in (bounded, ~bounded))
print("prior mass            fast route  by simplices  convex hull of the corners")
for name, cell in (("bounded cell", closed), ("unbounded cell", opened)):
    print("{:20s}  {:.8f}  {:.8f}    {:.8f}".format(name, *masses(cell)))
print(f"unbounded cells: {np.count_nonzero(~bounded)} of {len(partition)}, with", end=" ")
print(f"{whole.weights_[~bounded].sum():.1%} of the prior mass")

# %%
# The paper takes cells for bounded and triangulates their corners.  Many are unbounded, and more
# than the hull of their corners: what lies outside would be lost.  With corners at infinity
# (arrows) the same construction covers them.  It remains slow, and absolute in its accuracy; the
# fast route needs no corner at all and is compared with this one in the tests.

figure, (left, middle, right) = plt.subplots(1, 3, figsize=(13, 4.3), layout="constrained")
colors = plt.colormaps["viridis"](found / found.max())
draw_cells(left, whole, colors)
left.plot(0.0, 0.0, "o", color="white", markeredgecolor="black")
bar = figure.colorbar(
    plt.cm.ScalarMappable(plt.Normalize(0, found.max()), "viridis"), ax=left, shrink=0.85
)
bar.set_label("edges crossed")
left.set_title("the paper's walk, from the cell with the dot")
for panel, cell, title in (
    (middle, closed, "a bounded cell: {} triangles"),
    (right, opened, "an unbounded cell: {} triangles, arrows to infinity"),
):
    draw_cells(panel, whole, np.ones((len(partition), 3)))
    points, finite, simplices = cut(cell)
    for color, simplex in zip(plt.colormaps["Set2"].colors * 2, simplices, strict=False):
        corners = points[[i for i in simplex if finite[i]]]
        far = 100.0 * points[[i for i in simplex if not finite[i]]]
        # A corner at infinity is drawn far away from each finite one, in its direction.
        outline = np.concatenate([corners, *(corners + direction for direction in far)])
        if len(outline) > 2:
            outline = outline[ConvexHull(outline).vertices]
        panel.fill(*outline.T, facecolor=color, edgecolor="black", alpha=0.9)
    start, normals, offsets = partition.cells.facets()
    edges = slice(start[cell], start[cell + 1])
    for direction in points[~finite]:
        # The edge without end on this side, and the corner on it.
        edge = np.argmin(np.abs(normals[edges] @ direction)) + start[cell]
        corner = points[finite][np.argmin(np.abs(points[finite] @ normals[edge] - offsets[edge]))]
        tip = corner + 0.9 * direction / np.linalg.norm(direction)
        panel.annotate("", tip, corner, arrowprops={"arrowstyle": "-|>", "linewidth": 2.0})
    panel.plot(*points[finite].T, "o", color="black", markersize=4)
    panel.set_title(title.format(len(simplices)))
figure.savefig("partition_simplices.png", dpi=120)
print("saved partition_simplices.png")
