"""What travels to other processes: functions once, rows in files by their place."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from skdgn._fit.scaling import Scaling
from skdgn._runtime.transport import Parcel, PortableFunction


@pytest.fixture
def on_disk(tmp_path) -> np.memmap:
    """100 kB, behind a header of another length than a page."""
    rows = np.memmap(tmp_path / "rows", np.float32, "w+", offset=100, shape=(2500, 10))
    rows[:] = np.random.default_rng(0).normal(size=rows.shape)
    return rows


def test_rows_in_a_file_travel_by_name(on_disk):
    scaling = Scaling.of(on_disk, np.ones(2500), "diag")
    # As validation returns them: an array whose base is the file.
    rows = np.asarray(on_disk)[500:]
    parcel = Parcel(rows[7:1000], scaling.apply(rows)[300:])
    pickled = pickle.dumps(parcel)
    assert len(pickled) < 2000
    here, scaled = pickle.loads(pickled).contents
    np.testing.assert_array_equal(here, rows[7:1000])
    np.testing.assert_array_equal(scaled, scaling.apply(rows)[300:])
    assert not here.flags.writeable


def test_rows_that_are_not_in_a_file_as_they_are_travel_themselves(on_disk, tmp_path):
    copied = np.memmap(tmp_path / "rows", np.float32, "c", offset=100, shape=(2500, 10))
    copied[:] += 1.0
    for rows in (np.array(on_disk), on_disk[:, :4], on_disk.T, copied, on_disk[:0]):
        pickled = pickle.dumps(Parcel(rows))
        assert len(pickled) > rows.nbytes
        np.testing.assert_array_equal(pickle.loads(pickled).contents[0], rows)
    for replace in ((tmp_path / "rows").unlink, (tmp_path / "rows").touch):
        replace()
        delivered = pickle.loads(pickle.dumps(Parcel(on_disk)))
        np.testing.assert_array_equal(delivered.contents[0], on_disk)
        # On its way to a third process, too.
        np.testing.assert_array_equal(pickle.loads(pickle.dumps(delivered)).contents[0], on_disk)


@pytest.mark.parametrize("change", ["deleted", "rewritten"])
def test_another_file_of_the_same_name_is_refused(on_disk, tmp_path, change):
    pickled = pickle.dumps(Parcel(on_disk))
    (tmp_path / "rows").unlink()
    if change == "rewritten":
        (tmp_path / "rows").write_bytes(bytes(200_000))
    with pytest.raises(FileNotFoundError, match=r"must be in a file that every worker can read"):
        _ = pickle.loads(pickled).contents


def test_a_function_is_pickled_once_and_read_once():
    n_pickled = 0

    class Counted:
        def __reduce__(self):
            nonlocal n_pickled
            n_pickled += 1
            return float, (2.0,)

    factor = Counted()
    function = PortableFunction(lambda rows: factor * rows.sum())
    first, second = (pickle.loads(pickle.dumps((function, n))) for n in range(2))
    assert n_pickled == 1
    assert first[0] is second[0]
    assert first[0](Parcel(np.ones(3))) == 6.0
