"""A history shows how the residual fell, on the scale that suits it."""

from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("matplotlib")

import latensor as lt
from latensor.plots import residual_history

from .layout import no_global_state, overlapping


def found(history, residual=None):
    residual = history[-1] if residual is None and len(history) else residual
    status = SimpleNamespace(name="MAX_ITER")
    return SimpleNamespace(history=np.array(history), residual=residual, status=status)


@pytest.mark.parametrize("history, scale", [
    ([0.5, 0.4, 0.39], "linear"),
    ([0.5, 0.05, 1e-9], "log"),
    ([0.3], "linear"),
    ([0.0, 0.0], "linear"),
    (list(np.geomspace(1, 1e-12, 200)), "log"),
])  # fmt: skip
def test_the_scale_suits_the_range(history, scale):
    figure = residual_history(found(history))
    axis = figure.axes[0]
    assert axis.get_yscale() == scale
    np.testing.assert_array_equal(axis.lines[0].get_xdata(), np.arange(1, len(history) + 1))
    np.testing.assert_array_equal(axis.lines[0].get_ydata(), history)
    assert axis.get_title().endswith("max iter")
    assert overlapping(figure) == []
    assert no_global_state()


def test_small_gains_are_not_blown_up():
    low, high = residual_history(found([0.50001, 0.5])).axes[0].get_ylim()
    assert high - low > 0.04


def test_several_are_drawn_together_and_named():
    figure = residual_history({"one": found([0.5, 0.4]), "two": found([0.6, 0.3])})
    texts = [text.get_text() for text in figure.axes[0].get_legend().get_texts()]
    assert texts == ["one: 0.4", "two: 0.3"]


def test_a_decomposition_has_a_history():
    tensor = np.random.default_rng(0).standard_normal((4, 5, 6))
    decomposition = lt.decompose(tensor, 2, random_state=0)
    line = residual_history(decomposition).axes[0].lines[0]
    np.testing.assert_array_equal(line.get_ydata(), decomposition.history)


def test_an_answer_without_iterations_is_a_point():
    line = residual_history(found([], residual=0.2)).axes[0].lines[0]
    np.testing.assert_array_equal(line.get_ydata(), [0.2])


def test_bad_input_is_explained():
    with pytest.raises(lt.InvalidInputError, match="ndarray without a history"):
        residual_history(np.ones(3))
    with pytest.raises(lt.InvalidInputError, match="empty mapping"):
        residual_history({})
