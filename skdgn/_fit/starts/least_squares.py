"""A network fitted to latent coordinates and samples by least squares: where EM may start.

Narrow deep networks fail at that from most random weights; the fit therefore grows several
candidates and goes on with those that do best.

Shapes: ``m`` pairs, ``s`` latent dimensions, ``u`` units of a layer, ``k`` targets, ``p`` hidden
weights and biases together.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
from scipy.linalg import lapack
from scipy.spatial import KDTree

from skdgn._fit.m_step import Damping
from skdgn._fit.starts.coordinates import principal_axes
from skdgn._fit.starts.tournament import hold_tournament
from skdgn._network import Activation, Architecture, Network
from skdgn._runtime import Floats, Integers

# Pairs of neighbors are averaged down to this many per latent dimension, and targets rotated to
# this many principal ones: enough to place kinks, and the cost no longer depends on the data.
MAX_PAIRS = 200
MAX_TARGETS = 8

# How often averages are mixed with their neighbors': each time takes out noise that a flexible
# network would fit, and that EM would not unlearn.
SMOOTHINGS = 2

# Fraction of the features' own variance. Keeps nearly parallel units from canceling each other
# with huge weights, and from following the noise; the shape of a curve does not notice.
RIDGE = 3e-3

# How many candidates enter a round, and how many steps each is given. A single hidden layer hardly
# goes astray: its kinks are spread over the data from the first, and EM moves those that did.
SHALLOW_ROUNDS = ((2, 4), (1, 10))
DEEP_ROUNDS = ((8, 3), (3, 5), (1, 10))

# A search whose residuals after a round are so many times those of another start goes no further.
HOPELESS = 4.0

# How many of the last fits are compared on all samples, and how many steps the best is given there.
MAX_FINALISTS = 4
LAST_STEPS = 2

# Multiplications, for a few tenths of a second. Wide networks exhaust them early, and need less:
# their random first layers span enough for the output layer to fit.
WORK = 1e9

# Relative to the diagonal of the Gauss-Newton matrix; the least keeps it definite.
FIRST_DAMPING = 1e-2
LEAST_DAMPING = 1e-5

# A step is shortened so often, and the search ends when none improves the fit by this share.
MAX_TRIALS = 6
TOLERANCE = 1e-4


def fit_to_coordinates(
    coordinates: Floats,
    samples: Floats,
    architecture: Architecture,
    generator: np.random.Generator,
    to_beat: float = np.inf,
) -> Network:
    """Fit a network with hidden layers to coordinates (n, s) and samples (n, d) by least squares.

    Notes
    -----
    For given hidden layers the best output layer is linear least squares, so only the hidden layers
    are searched, by Levenberg-Marquardt steps on what the output layer leaves unexplained (variable
    projection, Kaufman's form: `_step_system`).  The search ends early if its first round leaves a
    mean squared residual far above ``to_beat``.
    """
    pairs = Pairs(coordinates, samples)
    hidden = _search_hidden_layers(pairs, architecture, generator, to_beat)
    fit = _fit_output_layer(hidden, architecture.activations, pairs)
    return _balance((*fit.hidden, fit.output), architecture.activations)


class Pairs(NamedTuple):
    """Latent coordinates, and what a network should make of them."""

    latent: Floats  # (m, s)
    targets: Floats  # (m, k)


class _Fit(NamedTuple):
    """Hidden layers, the best output layer behind them, and what the next step needs."""

    hidden: tuple[Floats, ...]  # (u, fan_in + 1) per layer, the bias last
    output: Floats  # (k, u + 1)
    activations: tuple[Activation, ...]
    inputs: tuple[Floats, ...]  # (m, fan_in + 1) per hidden layer, ones last
    slopes: tuple[Floats, ...]  # (m, u) per hidden layer
    basis: Floats  # (m, u): spans the centered features, orthonormal but for the ridge
    residuals: Floats  # (m, k)
    loss: float


def _search_hidden_layers(
    pairs: Pairs,
    architecture: Architecture,
    generator: np.random.Generator,
    to_beat: float,
) -> tuple[Floats, ...]:
    """Grow candidates from random hidden layers, in rounds of fewer candidates and more steps."""
    widths, activations = architecture.hidden_layer_sizes, architecture.activations
    rounds = SHALLOW_ROUNDS if len(widths) == 1 else DEEP_ROUNDS
    averages = average_pairs(pairs)
    # Of the averages alone, whose residuals are smaller than those of samples: a cautious
    # comparison.
    hopeless = HOPELESS * to_beat * averages.targets.size
    if pairs.targets.shape[1] > MAX_TARGETS:
        # Squared error is blind to rotations, and neighbors' averages vary in few directions.
        axes, _ = principal_axes(averages.targets, MAX_TARGETS)
        pairs, averages = (Pairs(some.latent, some.targets @ axes) for some in (pairs, averages))

    candidates = [
        _fit_output_layer(
            _random_hidden_layers(averages.latent, widths, activations, generator),
            activations,
            averages,
        )
        for _ in range(rounds[0][0])
    ]
    n_parameters = sum(layer.size for layer in candidates[0].hidden)
    work_per_step = n_parameters**2 * (averages.targets.size + n_parameters / 3)
    finalists: list[_Fit] = []

    def affordable_rounds(steps_left: int) -> Iterator[tuple[int, int]]:
        for n_candidates, n_steps in rounds:
            n_affordable = max(1, steps_left // (2 * n_steps))
            n_candidates = min(n_candidates, n_affordable, len(candidates))
            n_steps = min(n_steps, steps_left // n_candidates)
            yield n_candidates, n_steps
            steps_left -= n_steps * n_candidates
            if min(fit.loss for fit in candidates) > hopeless:
                return

    def improve(fit: _Fit, n_steps: int) -> _Fit:
        finalists.append(_improve(_revive(fit, averages, generator), averages, n_steps))
        return finalists[-1]

    best = hold_tournament(
        candidates, affordable_rounds(int(WORK / work_per_step)), lambda fit: -fit.loss, improve
    )
    if best.loss > hopeless:
        return best.hidden
    # Averages hide what a steep unit does between them, most of all at the ends, where neighbors
    # lie far apart: the samples themselves have the last word, and a few steps.
    revived = [_revive(fit, averages, generator) for fit in finalists[-MAX_FINALISTS:]]
    judged = [_fit_output_layer(fit.hidden, activations, pairs) for fit in revived]
    best = min(judged, key=lambda fit: fit.loss)
    steps_left = int(WORK / (n_parameters**2 * (pairs.targets.size + n_parameters / 3)))
    return _improve(best, pairs, min(LAST_STEPS, steps_left)).hidden


def average_pairs(pairs: Pairs) -> Pairs:
    """Average pairs over neighbors: fewer of them, with less noise."""
    return _smooth(_average_neighbors(pairs))


def _average_neighbors(pairs: Pairs) -> Pairs:
    """Average pairs over groups of neighbors in latent space.

    Halves groups at the median of their widest coordinate: quantile bins in one dimension.
    """
    coordinates, samples = pairs
    n_groups = min(len(samples), MAX_PAIRS * coordinates.shape[1])
    groups: list[Integers] = []
    # In one dimension, sorted once and for all.
    waiting = [(np.argsort(coordinates[:, 0], kind="stable"), n_groups)]
    while waiting:
        members, n_parts = waiting.pop()
        if n_parts == 1:
            groups.append(members)
            continue
        if coordinates.shape[1] > 1:
            inside = coordinates[members]
            widest = int(np.ptp(inside, axis=0).argmax())
            members = members[np.argsort(inside[:, widest], kind="stable")]
        n_first = n_parts // 2
        cut = len(members) * n_first // n_parts
        waiting += [(members[:cut], n_first), (members[cut:], n_parts - n_first)]
    members = np.concatenate(groups)
    sizes = np.array([len(group) for group in groups])
    firsts = np.cumsum(sizes) - sizes
    return Pairs(
        np.add.reduceat(coordinates[members], firsts) / sizes[:, None],
        np.add.reduceat(samples[members], firsts) / sizes[:, None],
    )


def _smooth(pairs: Pairs) -> Pairs:
    """Mix each pair with its nearest neighbors in latent space, itself counting half.

    Coordinates are mixed like targets, so that what is linear stays so.
    """
    n_neighbors = min(2 * pairs.latent.shape[1], len(pairs.latent) - 1)
    if n_neighbors == 0:
        return pairs
    nearest = np.asarray(KDTree(pairs.latent).query(pairs.latent, n_neighbors + 1)[1])
    latent, targets = pairs
    for _ in range(SMOOTHINGS):
        latent, targets = (
            0.5 * (values + values[nearest[:, 1:]].mean(axis=1)) for values in (latent, targets)
        )
    return Pairs(latent, targets)


def _random_hidden_layers(
    latent: Floats,
    widths: Sequence[int],
    activations: Sequence[Activation],
    generator: np.random.Generator,
) -> tuple[Floats, ...]:
    """Draw hidden layers whose kinks lie where the data are.

    Each unit looks in a random direction and has its kink at a quantile of what it sees; the
    quantiles of a layer are spread evenly, so that few units are dead and no two are alike.
    """
    layers = []
    values = latent
    for width, activation in zip(widths, activations, strict=True):
        if values.shape[1] == 1:
            # There are only two directions: take turns, lest a stretch sees one kind only.
            directions = (-1.0) ** np.arange(width)[:, None]
            spots = (np.arange(width) + generator.uniform(size=width)) / width
            # A unit that looks left counts quantiles from the right.
            spots = np.where(directions[:, 0] > 0, spots, 1.0 - spots)
        else:
            directions = generator.standard_normal((width, values.shape[1]))
            directions /= _positive(values.std(axis=0))
            spots = (generator.permutation(width) + generator.uniform(size=width)) / width
        seen = np.sort(values @ directions.T, axis=0)
        ranks = np.minimum((spots * len(seen)).astype(np.intp), len(seen) - 1)
        kinks = seen[ranks, np.arange(width)]
        values = activation(values @ directions.T - kinks)
        scales = _positive(values.std(axis=0))
        values /= scales
        layers.append(np.column_stack([directions, -kinks]) / scales[:, None])
    return tuple(layers)


def _fit_output_layer(
    hidden: tuple[Floats, ...], activations: tuple[Activation, ...], pairs: Pairs
) -> _Fit:
    """Solve for the output layer by ridge regression on the last hidden layer."""
    inputs, slopes = [], []
    values = pairs.latent
    for layer, activation in zip(hidden, activations, strict=True):
        inputs.append(_append_ones(values))
        preactivations = inputs[-1] @ layer.T
        slopes.append(activation.slopes(preactivations > 0))
        values = slopes[-1] * preactivations
    n_pairs = len(values)
    value_means, target_means = values.sum(axis=0) / n_pairs, pairs.targets.sum(axis=0) / n_pairs
    centered, targets = values - value_means, pairs.targets - target_means
    # A ridge in units of each feature's spread does not depend on how the layers are scaled.
    spreads = np.sqrt(np.einsum("mu,mu->u", centered, centered))
    # The rounding errors of a constant feature are not a feature.
    spreads[spreads <= 1e-12 * np.abs(value_means) * n_pairs] = np.inf
    centered /= spreads
    gram = centered.T @ centered
    gram.flat[:: len(gram) + 1] += RIDGE
    # LAPACK itself: SciPy's checks would take longer than solving systems as small as these.
    factor, _ = lapack.dpotrf(gram, lower=1)
    basis = lapack.dtrtrs(factor, centered.T, lower=1)[0].T
    projections = basis.T @ targets
    coefs = lapack.dtrtrs(factor, projections, lower=1, trans=1)[0].T
    residuals = targets - centered @ coefs.T
    loss = float(np.vdot(residuals, residuals) + RIDGE * np.vdot(coefs, coefs))
    coefs /= spreads
    output = np.concatenate([coefs, (target_means - coefs @ value_means)[:, None]], axis=1)
    return _Fit(hidden, output, activations, tuple(inputs), tuple(slopes), basis, residuals, loss)


def _revive(fit: _Fit, pairs: Pairs, generator: np.random.Generator) -> _Fit:
    """Draw units anew that are zero on all pairs; the fit does not get worse by it.

    Nothing else would bring them back, and their idle weights would upset the balance of scales.
    """
    layers = [layer.copy() for layer in fit.hidden]
    for index, (inputs, slopes) in enumerate(zip(fit.inputs, fit.slopes, strict=True)):
        dead = ~slopes.any(axis=0)
        if not dead.any():
            continue
        layers[index][dead] = _random_hidden_layers(
            inputs[:, :-1], (int(dead.sum()),), (fit.activations[index],), generator
        )[0]
        if index + 1 < len(layers):
            layers[index + 1][:, :-1][:, dead] = 0.0
    return _fit_output_layer(tuple(layers), fit.activations, pairs)


def _improve(fit: _Fit, pairs: Pairs, n_steps: int) -> _Fit:
    """Take damped Gauss-Newton steps in the hidden layers."""
    damping = Damping(FIRST_DAMPING, 1.0 / 3.0, 8.0, LEAST_DAMPING, np.inf)
    for _ in range(n_steps):
        matrix, descent = _step_system(fit)
        scales = np.diagonal(matrix)
        largest = scales.max()
        if largest == 0.0:
            break  # no hidden weight changes anything: the targets are constant
        # What a weight that changes nothing is damped by: its row of the matrix is zero.
        scales = np.maximum(scales, 1e-6 * largest)
        attempt = partial(_attempt, fit, pairs, matrix, descent, scales)
        trial = damping.search(attempt, MAX_TRIALS)
        if trial is None:
            break
        gain = 1.0 - trial.loss / fit.loss
        fit = trial
        damping.relax()
        if gain < TOLERANCE:
            break
    return fit


def _attempt(
    fit: _Fit, pairs: Pairs, matrix: Floats, descent: Floats, scales: Floats, damping: float
) -> _Fit | None:
    """Take a damped step; None if it does not improve the fit."""
    damped = matrix.copy()
    damped.flat[:: len(damped) + 1] += damping * scales
    _, step, _ = lapack.dposv(damped, descent, lower=1)
    trial = _fit_output_layer(_add(fit.hidden, step), fit.activations, pairs)
    return trial if trial.loss < fit.loss else None


def _step_system(fit: _Fit) -> tuple[Floats, Floats]:
    """Return the Gauss-Newton matrix (p, p) and the descent direction (p,) of half the loss.

    Notes
    -----
    A change ``dT`` of layer l changes target k by ``downstream_kl dT inputs_l``.  The output layer
    takes up what lies in the span of the features, so only the rest of these derivatives counts
    (Kaufman, *A variable projection method for solving separable nonlinear least squares problems*,
    1975).

    Of a single hidden layer ``downstream_kl`` is one row of the output layer, so that the matrix
    is the product, entry by entry, of those of the output layer and of one target.
    """
    n_pairs, n_targets = fit.residuals.shape
    if len(fit.hidden) == 1:
        derivatives = fit.slopes[0][:, :, None] * fit.inputs[0][:, None, :]
        derivatives = _leave_out(fit, derivatives.reshape(n_pairs, -1))  # (m, p)
        output = np.repeat(fit.output[:, :-1], fit.inputs[0].shape[1], axis=1)  # (k, p)
        matrix = (output.T @ output) * (derivatives.T @ derivatives)
        return matrix, np.einsum("pk,kp->p", derivatives.T @ fit.residuals, output)
    blocks: list[Floats] = []
    downstream = fit.output[:, None, :-1]  # (k, m, u), or (k, 1, u) where pairs share it
    for layer in reversed(range(len(fit.hidden))):
        downstream = downstream * fit.slopes[layer]
        block = downstream[:, :, :, None] * fit.inputs[layer][:, None, :]
        blocks.insert(0, block.reshape(n_targets, n_pairs, -1))
        if layer > 0:
            downstream = downstream @ fit.hidden[layer][:, :-1]
    jacobian = _leave_out(fit, np.concatenate(blocks, axis=2))  # (k, m, p)
    jacobian = jacobian.reshape(n_targets * n_pairs, -1)
    return jacobian.T @ jacobian, jacobian.T @ fit.residuals.T.ravel()


def _leave_out(fit: _Fit, derivatives: Floats) -> Floats:
    """Subtract from derivatives (..., m, p) what the output layer takes up."""
    rest = derivatives - derivatives.sum(axis=-2, keepdims=True) / derivatives.shape[-2]
    rest -= fit.basis @ (fit.basis.T @ rest)
    return rest


def _add(hidden: tuple[Floats, ...], step: Floats) -> tuple[Floats, ...]:
    """Add a step (p,) to the layers."""
    sizes = [layer.size for layer in hidden]
    parts = np.split(step, np.cumsum(sizes)[:-1])
    return tuple(
        layer + part.reshape(layer.shape) for layer, part in zip(hidden, parts, strict=True)
    )


def _balance(layers: Sequence[Floats], activations: Sequence[Activation]) -> Network:
    """Rescale each hidden unit so that its weights have one size before and behind it.

    Positive factors pass through the activation, so the function stays the same.
    """
    layers = [layer.copy() for layer in layers]
    for _ in range(20):  # a unit's scale depends on its neighbors': sweep until settled
        for before, behind in itertools.pairwise(layers):
            sizes_before = np.linalg.norm(before, axis=1)
            sizes_behind = np.linalg.norm(behind[:, :-1], axis=0)
            idle = (sizes_before == 0.0) | (sizes_behind == 0.0)
            sizes_before[idle] = sizes_behind[idle] = 1.0
            factors = np.sqrt(sizes_behind / sizes_before)
            before *= factors[:, None]
            behind[:, :-1] /= factors
    coefs = tuple(np.ascontiguousarray(layer[:, :-1]) for layer in layers)
    return Network.dense(coefs, [layer[:, -1].copy() for layer in layers], activations)


def _append_ones(values: Floats) -> Floats:
    return np.concatenate([values, np.ones((len(values), 1))], axis=1)


def _positive(scales: Floats) -> Floats:
    """Replace zeros by ones: what does not vary needs no rescaling."""
    return np.where(scales > 0.0, scales, 1.0)
