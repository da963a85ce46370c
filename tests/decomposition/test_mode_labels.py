"""Labels of data frames and data arrays reach the result and its figures."""

import pickle
from types import SimpleNamespace

import numpy as np
import pytest

import latensor as lt
from latensor.decomposition.mode_labels import mode_labels_of


class LabelledArray:
    """What xarray's DataArray shows of itself: dims, coords, and its numbers as an array."""

    def __init__(self, values, dims, coords):
        self.values, self.dims, self.coords = values, dims, coords

    def __array__(self, dtype=None, copy=None):
        return np.asarray(self.values, dtype=dtype)


def labelled(rng):
    values = rng.random((3, 4, 5))
    coords = {"sample": np.array(["a", "b", "c"], dtype=object), "nm": np.linspace(250, 280, 4)}
    return LabelledArray(values, ("sample", "nm", "run"), coords)


def test_data_arrays(rng):
    data = labelled(rng)
    found = lt.decompose(data, 2, random_state=0)
    assert [mode.name for mode in found.mode_labels] == ["sample", "nm", "run"]
    assert list(found.mode_labels[0].values) == ["a", "b", "c"]
    np.testing.assert_array_equal(found.mode_labels[1].values, data.coords["nm"])
    assert found.mode_labels[2].values is None
    again = pickle.loads(pickle.dumps(found))
    assert list(again.mode_labels[0].values) == ["a", "b", "c"]
    assert lt.decompose(data.values, 2, random_state=0).mode_labels is None


@pytest.mark.parametrize(
    "options", [{"sparsity": 2}, {"constraints": {0: lt.constraints.Simplex()}}]
)
def test_other_fits_keep_them(rng, options):
    found = lt.decompose(labelled(rng), 1, random_state=0, **options)
    assert found.mode_labels[1].name == "nm"


def test_data_frames(rng):
    pandas = pytest.importorskip("pandas")
    index = pandas.MultiIndex.from_tuples([("x", 1), ("x", 2), ("y", 1)])
    frame = pandas.DataFrame(rng.random((3, 4)), index=index, columns=list("pqrs"))
    frame.columns.name = "word"
    found = lt.decompose(frame, 1, random_state=0).mode_labels
    assert list(found[0].values) == ["x, 1", "x, 2", "y, 1"]
    assert found[1].name == "word"
    assert list(found[1].values) == list("pqrs")
    plain = mode_labels_of(pandas.DataFrame(rng.random((3, 4))))
    assert [mode.values for mode in plain] == [None, None]
    assert mode_labels_of(SimpleNamespace(index=1)) is None


def test_xarray(rng, tmp_path):
    xarray = pytest.importorskip("xarray")
    days = np.arange("2024-02-27", "2024-03-03", dtype="datetime64[D]").astype("datetime64[ns]")
    data = xarray.DataArray(
        rng.random((5, 4, 3)),
        dims=("day", "nm", "sample"),
        coords={"day": days, "nm": np.linspace(250, 280, 4), "sample": list("abc")},
    )
    found = lt.decompose(data.transpose("sample", "day", "nm"), 2, random_state=0)
    assert [mode.name for mode in found.mode_labels] == ["sample", "day", "nm"]
    assert found.mode_labels[1].values[2] == "2024-02-29"
    found.save(tmp_path / "found.npz")
    again = lt.load(tmp_path / "found.npz")
    for mode, read in zip(found.mode_labels, again.mode_labels, strict=True):
        np.testing.assert_array_equal(mode.values, read.values)
    stacked = data.stack(place=("day", "sample"))
    assert lt.decompose(stacked, 1, random_state=0).mode_labels[1].values[1] == (
        "2024-02-27 00:00:00, b"
    )
    masked = lt.decompose(data, 1, mask=xarray.ones_like(data, dtype=bool), random_state=0)
    assert masked.mode_labels[2].name == "sample"


def test_dates_and_durations_are_stored(rng, tmp_path):
    hours = np.array(["2024-01-01T00", "2024-01-01T12", "2024-01-02T00"], dtype="datetime64[us]")
    coords = {"time": hours, "lag": np.array([1, 2], dtype="timedelta64[D]")}
    data = LabelledArray(rng.random((3, 2, 2)), ("time", "lag", "run"), coords)
    found = lt.decompose(data, 1, random_state=0)
    assert list(found.mode_labels[0].values) == ["2024-01-01", "2024-01-01T12:00", "2024-01-02"]
    assert list(found.mode_labels[1].values) == ["1 days", "2 days"]
    found.save(tmp_path / "found.npz")
    assert lt.load(tmp_path / "found.npz").mode_labels[0].values[1] == "2024-01-01T12:00"


def test_figures_show_them(rng):
    pytest.importorskip("matplotlib")
    found = lt.decompose(labelled(rng), 2, random_state=0)
    figure = lt.plots.components(found)
    assert [axis.get_xlabel() for axis in figure.axes[-3:]] == ["sample", "nm", "run"]
    other = lt.plots.components(found, names=["one", "two", "three"])
    assert [axis.get_xlabel() for axis in other.axes[-3:]] == ["one", "two", "three"]


def test_archives(rng, tmp_path):
    path = tmp_path / "spectra.npz"
    emission = np.linspace(250.0, 450.0, 6)
    tensor = rng.random((4, 6, 4))
    np.savez(path, tensor=tensor, emission=emission, run=np.arange(4), note=np.array("dark room"))
    with np.load(path) as archive:
        found = lt.decompose(archive, 2, random_state=0)
        alone = mode_labels_of(archive)
    assert found.residual == lt.decompose(tensor, 2, random_state=0).residual
    # Two modes have four indices: nothing says which of them are runs.
    assert [mode.name for mode in found.mode_labels] == [None, "emission", None]
    np.testing.assert_array_equal(found.mode_labels[1].values, emission)
    assert alone[0].values is None
    saved = tmp_path / "found.npz"
    found.save(saved)
    np.testing.assert_array_equal(lt.load(saved).mode_labels[1].values, emission)
    np.savez(path, first=tensor, second=tensor)
    with np.load(path) as archive, pytest.raises(lt.InvalidInputError, match=r"tensor\['first'\]"):
        lt.decompose(archive, 2)


def test_tucker_keeps_them(rng, tmp_path):
    pytest.importorskip("matplotlib")
    data = labelled(rng)
    found = lt.tucker(ranks=2, tensor=data)
    assert [mode.name for mode in found.mode_labels] == ["sample", "nm", "run"]
    assert list(lt.tucker(data, 2, nonnegative=True).mode_labels[0].values) == ["a", "b", "c"]
    found.save(tmp_path / "found.npz")
    assert list(lt.load(tmp_path / "found.npz").mode_labels[0].values) == ["a", "b", "c"]
    shown = {axis.get_xlabel() for axis in lt.plots.components(found).axes}
    assert {"sample", "nm", "run"} <= shown
    assert "sample" in str(found.summary())
    assert lt.tucker(data.values, 2).mode_labels is None
    assert lt.decompose(rank=1, tensor=data).mode_labels[1].name == "nm"


def test_slices_keep_them(rng, tmp_path):
    pytest.importorskip("matplotlib")
    pandas = pytest.importorskip("pandas")
    frames = {
        name: pandas.DataFrame(rng.random((rows, 4)), columns=list("pqrs"))
        for name, rows in (("mon", 5), ("tue", 6), ("wed", 7))
    }
    masks = {name: np.ones(frame.shape, dtype=bool) for name, frame in reversed(frames.items())}
    found = lt.parafac2(frames, 2, n_starts=1, max_iter=20, random_state=0)
    slices, rows, columns = found.mode_labels
    assert (list(slices.values), rows.values) == (["mon", "tue", "wed"], None)
    assert list(columns.values) == list("pqrs")
    same = lt.parafac2([f.to_numpy() for f in frames.values()], 2, n_starts=1, max_iter=20,
                       random_state=0)  # fmt: skip
    assert same.mode_labels is None
    np.testing.assert_array_equal(same.factors[2], found.factors[2])
    masked = lt.parafac2(frames, 2, mask=masks, n_starts=1, max_iter=20, random_state=0)
    np.testing.assert_array_equal(masked.factors[2], found.factors[2])
    found.save(tmp_path / "found.npz")
    assert list(lt.load(tmp_path / "found.npz").mode_labels[0].values) == ["mon", "tue", "wed"]
    assert "wed" in str(found.summary())
    assert found.plot().axes[-1].get_xlabel() == "column"
    frames["tue"] = frames["tue"][list("qprs")]
    with pytest.raises(lt.InvalidInputError, match=r"slices\[1\] calls its columns q, p, r, s"):
        lt.parafac2(frames, 2)
    with pytest.raises(lt.InvalidInputError, match="other names"):
        lt.parafac2({"mon": frames["mon"]}, 2, mask=masks)
