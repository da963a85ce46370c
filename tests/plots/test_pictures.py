"""Figures are drawn from any library's arrays and appear whole or not at all."""

import numpy as np
import pytest

pytest.importorskip("matplotlib")

from latensor import InvalidInputError
from latensor.plots import images, save


def test_images_fraction_the_brightness_of_the_first(library):
    first = library.array(np.linspace(0, 10, 12).reshape(3, 4))
    beyond = library.array(np.full((3, 4, 3), 20.0))
    figure = images({"one": first, "two": beyond})
    shown = [axis.images[0].get_array() for axis in figure.axes if axis.images]
    assert [axis.get_title() for axis in figure.axes[:2]] == ["one", "two"]
    np.testing.assert_allclose(shown[0], np.linspace(0, 1, 12).reshape(3, 4))
    assert (np.asarray(shown[1]) == 1).all()


def test_bad_pictures_are_refused():
    with pytest.raises(InvalidInputError, match="pictures is empty"):
        images({})
    with pytest.raises(InvalidInputError, match=r"picture 'x' has shape \(2, 2, 7\)"):
        images({"x": np.ones((2, 2, 7))})


def test_a_failed_save_leaves_nothing_behind(tmp_path):
    figure = images({"constant": np.ones((2, 2))})
    with pytest.raises(ValueError, match=r"(?i)format"):
        save(figure, tmp_path / "picture.nothing")
    assert list(tmp_path.iterdir()) == []
    assert save(figure, tmp_path / "deep" / "picture.svg").exists()


def test_figures_without_matplotlib_name_the_extra(monkeypatch):
    import importlib
    import sys

    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.delitem(sys.modules, "latensor.plots")
    with pytest.raises(ImportError, match=r"latensor\[plots\]"):
        importlib.import_module("latensor.plots")
