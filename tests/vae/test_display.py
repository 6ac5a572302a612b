"""The picture of an audit."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib import pyplot as plt

from skdgn.vae import Audit


def test_picture_shows_what_was_found(found: Audit) -> None:
    display = found.plot()
    points = display.axes_[0].collections[0].get_offsets()
    np.testing.assert_array_equal(points, np.stack([found.log_likelihood, found.elbo], axis=1))
    tops = [area.get_paths()[0].vertices[:, 1].max() for area in display.axes_[1].collections]
    assert tops == pytest.approx([found.family_gap.max(), found.kl.max()])
    again = found.plot(display.axes_)
    assert again.figure_ is display.figure_
    with pytest.raises(ValueError, match="axes must hold two matplotlib Axes, got"):
        found.plot(display.axes_[0])
    plt.close(display.figure_)
