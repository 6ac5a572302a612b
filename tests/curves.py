"""Curves to find, and the activations to do it with."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from skdgn._network import Activation

Floats = NDArray[np.float64]


RELU = Activation.from_name("relu", 0.0)


LEAKY_RELU = Activation.from_name("leaky_relu", 0.1)


ABS = Activation.from_name("abs", 0.0)


ACTIVATIONS = {"relu": RELU, "leaky_relu": LEAKY_RELU, "abs": ABS}


# Deviation of the noise around the test curves.
NOISE = 0.05


def circle(seed: int, n_rows: int = 1000) -> Floats:
    generator = np.random.default_rng(seed)
    angle = generator.uniform(0.0, 2.0 * np.pi, n_rows)
    points = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    return points + NOISE * generator.standard_normal(points.shape)


def spiral(seed: int, n_rows: int = 1000) -> Floats:
    generator = np.random.default_rng(seed)
    t = generator.uniform(0.0, 1.0, n_rows)
    points = 2.0 * t[:, None] * np.stack([np.cos(3 * np.pi * t), np.sin(3 * np.pi * t)], axis=1)
    return points + NOISE * generator.standard_normal(points.shape)


def standardize(rows: Floats) -> Floats:
    return (rows - rows.mean(axis=0)) / rows.std(axis=0)
