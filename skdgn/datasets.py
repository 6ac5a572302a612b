"""Small synthetic data sets around one-dimensional manifolds."""

from __future__ import annotations

from typing import Any

import numpy as np

from skdgn._runtime import Floats, check_integer, check_nonnegative, random_source


def make_noisy_circle(
    n_samples: int = 1000, noise: float = 0.05, random_state: Any = None
) -> Floats:
    """Draw points uniformly on the unit circle and add Gaussian noise.

    Parameters
    ----------
    n_samples : int, default=1000
        Number of samples.
    noise : float, default=0.05
        Standard deviation of the noise.
    random_state : int, RandomState, Generator or None, default=None
        Seed of the draws.  Pass an int for reproducible results.

    Returns
    -------
    X : ndarray of shape (n_samples, 2)
        The samples.

    Examples
    --------
    >>> from skdgn.datasets import make_noisy_circle
    >>> make_noisy_circle(1000, noise=0.05, random_state=0).shape
    (1000, 2)
    """
    _check(n_samples, noise)
    generator = random_source(random_state)
    angle = generator.uniform(0.0, 2.0 * np.pi, n_samples)
    points = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    return points + noise * generator.standard_normal(points.shape)


def make_spiral(n_samples: int = 1000, noise: float = 0.05, random_state: Any = None) -> Floats:
    """Draw points on a spiral of three half-turns from the origin to radius 2 and add noise.

    The radius is uniform, and the angle proportional to it.

    Parameters
    ----------
    n_samples : int, default=1000
        Number of samples.
    noise : float, default=0.05
        Standard deviation of the noise.
    random_state : int, RandomState, Generator or None, default=None
        Seed of the draws.  Pass an int for reproducible results.

    Returns
    -------
    X : ndarray of shape (n_samples, 2)
        The samples.

    Examples
    --------
    >>> from skdgn.datasets import make_spiral
    >>> make_spiral(800, random_state=0).shape
    (800, 2)
    """
    _check(n_samples, noise)
    generator = random_source(random_state)
    t = generator.uniform(0.0, 1.0, n_samples)
    angle = 3.0 * np.pi * t
    points = 2.0 * t[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    return points + noise * generator.standard_normal(points.shape)


def make_wave(n_samples: int = 1000, noise: float = 0.1, random_state: Any = None) -> Floats:
    """Draw points on the curve (t, cos(1.4 t)) and add Gaussian noise.

    The parameter t is standard normal.

    Parameters
    ----------
    n_samples : int, default=1000
        Number of samples.
    noise : float, default=0.1
        Standard deviation of the noise.
    random_state : int, RandomState, Generator or None, default=None
        Seed of the draws.  Pass an int for reproducible results.

    Returns
    -------
    X : ndarray of shape (n_samples, 2)
        The samples.

    Examples
    --------
    >>> from skdgn.datasets import make_wave
    >>> make_wave(500, random_state=0).shape
    (500, 2)
    """
    _check(n_samples, noise)
    generator = random_source(random_state)
    t = generator.standard_normal(n_samples)
    points = np.stack([t, np.cos(1.4 * t)], axis=1)
    return points + noise * generator.standard_normal(points.shape)


def _check(n_samples: int, noise: float) -> None:
    check_integer(n_samples, "n_samples")
    check_nonnegative(noise, "noise")
