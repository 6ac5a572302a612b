"""
The partition of latent space, step by step
===========================================

A network with piecewise-affine activations is affine on each cell of a partition of its latent
space.  This example constructs the partition as ``skdgn`` does, one hidden unit after the other,
and as the paper [1]_ does, by walking from cell to neighboring cell.  Then it cuts one cell into
simplices, the paper's method to integrate a Gaussian over it.

.. [1] R. Balestriero, S. Paris, R. G. Baraniuk, *Analytical Probability Distributions and
   EM-Learning for Deep Generative Networks*, 2020.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.spatial import ConvexHull

from skdgn import PiecewiseAffineDGN

# %%
# A random network with two latent dimensions and hidden layers of 5 and 4 units.  Without its last
# units it is still a network, with a coarser partition, so every step of the construction can be
# shown as a separate network.

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
# A unit of the first layer changes sides along a straight line.  The input of a unit of the second
# layer is the output of the first layer, so its line bends at every existing boundary.  Each new
# unit splits the cells that it crosses and does not change the others, so that no cell is visited
# twice and none is missed.
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
# finds the edges of this cell, crosses each of them, and repeats this in every cell that it has not
# visited before.  Crossing an edge changes the side of one unit, so the activation pattern of the
# cell beyond it is known.  The test suite compares both methods.

partition = whole.partition_
start_cell = int(partition.locate(inputs_of_units(np.zeros((1, 2))) > 0.0)[0])


def neighbors(cell):
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
    waiting = {cell for known in waiting for cell in neighbors(known) if found[cell] < 0}
    step += 1
seen = np.count_nonzero(found >= 0)
print(f"the walk needs {step - 1} steps for the {seen} cells (of {len(partition)}) in the window")

# %%
# Next, one cell is cut into simplices, here triangles.  Its corners are computed by
# ``partition_.vertices`` (with the extra ``cdd``): vertices, and for an unbounded cell rays, which
# are corners at infinity.


def cut(cell):
    """Corners, which of them are finite, and the triangles between them, by their indices."""
    vertices, rays = partition.vertices(cell)
    inside = vertices.mean(axis=0) + rays.sum(axis=0)
    points = np.concatenate([vertices, rays])
    finite = np.arange(len(points)) < len(vertices)
    # Around the cell, beginning with a vertex.
    directions = np.concatenate([vertices - inside, rays])
    order = np.argsort(np.arctan2(directions[:, 1], directions[:, 0]))
    order = np.roll(order, -np.argmax(finite[order]))
    triangles = [[0, i, i + 1] for i in range(1, len(points) - 1)]
    return points[order], finite[order], triangles


# Nodes and weights on the unit square, folded into a triangle at its corner (0, 0).
nodes, weights = np.polynomial.legendre.leggauss(40)
shares = np.stack(np.meshgrid(0.5 + 0.5 * nodes, 0.5 + 0.5 * nodes), axis=-1).reshape(-1, 2)
shares[:, 1] *= shares[:, 0]
weights = 0.25 * np.outer(weights, weights).ravel() * shares[:, 0]


def mass_of_hull(cell):
    """Prior mass of the convex hull of a cell's vertices, triangle by triangle."""
    points, finite, _ = cut(cell)
    apex, *others = points[finite]
    mass = 0.0
    for sides in np.stack([others[:-1], others[1:]], axis=1) - apex:
        edges = np.stack([sides[0], sides[1] - sides[0]])
        density = np.exp(-0.5 * ((apex + shares @ edges) ** 2).sum(axis=1)) / (2.0 * np.pi)
        mass += abs(np.linalg.det(edges)) * weights @ density
    return mass


bounded = np.array([cut(cell)[1].all() for cell in range(len(partition))])


def smallest_triangle(cell):
    """How well a cut can be seen: area of the smallest triangle, corners at infinity 3 away."""
    points, finite, triangles = cut(cell)
    if len(points) < (4 if finite.all() else 5) or np.abs(points[finite]).max() > 3.0:
        return 0.0
    drawn = np.where(finite[:, None], points, 3.0 * points)
    return min(abs(np.linalg.det(drawn[t[1:]] - drawn[t[0]])) for t in triangles)


visible = np.array([smallest_triangle(cell) for cell in range(len(partition))])
closed, opened = (int(np.argmax(np.where(kind, visible, -1.0))) for kind in (bounded, ~bounded))
print("prior mass            of the cell  of the convex hull of its vertices")
for name, cell in (("bounded cell", closed), ("unbounded cell", opened)):
    print(f"{name:20s}  {whole.weights_[cell]:.8f}   {mass_of_hull(cell):.8f}")
print(f"unbounded cells: {np.count_nonzero(~bounded)} of {len(partition)}, with", end=" ")
print(f"{whole.weights_[~bounded].sum():.1%} of the prior mass")

# %%
# The paper assumes bounded cells and triangulates their corners.  Many cells are unbounded, and
# larger than the convex hull of their vertices: the part outside would be lost.  With corners at
# infinity (arrows), the same construction covers them.  It remains slow, and only its absolute
# error is small; the faster method of ``skdgn`` does not use triangles, and is compared with this
# one in the tests.

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
    points, finite, triangles = cut(cell)
    for color, triangle in zip(plt.colormaps["Set2"].colors * 2, triangles, strict=False):
        corners = points[[i for i in triangle if finite[i]]]
        far = 100.0 * points[[i for i in triangle if not finite[i]]]
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
    panel.set_title(title.format(len(triangles)))
figure.savefig("partition_simplices.png", dpi=120)
print("saved partition_simplices.png")
