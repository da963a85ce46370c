"""The coherence of a factor."""

from __future__ import annotations

import numpy as np
import pytest

import latensor as lt


def test_hand_computed():
    factor = np.array([[1.0, 1.0, 0.0], [0.0, 1.0, 2.0]])
    assert lt.coherence(factor) == pytest.approx(np.sqrt(0.5))
    assert lt.coherence(np.eye(3)) == 0.0
    assert lt.coherence(np.array([[1.0, -2.0], [1.0, -2.0]])) == pytest.approx(1.0)
    assert lt.coherence(np.array([[1.0, 1j], [1j, 1.0]])) == pytest.approx(0.0)


@pytest.mark.parametrize("scale", [1e-300, 1e300])
def test_columns_of_any_length(scale):
    factor = np.random.default_rng(0).standard_normal((6, 4))
    assert lt.coherence(factor * [scale, 1, 1 / scale, 1]) == pytest.approx(lt.coherence(factor))


@pytest.mark.parametrize("name", ["torch", "jax.numpy"])
def test_other_libraries(name):
    library = pytest.importorskip(name)
    factor = np.random.default_rng(0).standard_normal((6, 4)).astype(np.float32)
    assert lt.coherence(library.asarray(factor)) == pytest.approx(lt.coherence(factor), abs=1e-6)


@pytest.mark.parametrize(
    ("factor", "message"),
    [(np.ones((3, 1)), "1 column"), (np.ones(3), "matrix"), (np.eye(3)[:, :2] * [1, 0], "zeros"),
     (np.full((2, 2), np.nan), "NaN")],
)  # fmt: skip
def test_bad_input_is_refused(factor, message):
    with pytest.raises(lt.InvalidInputError, match=message):
        lt.coherence(factor)
