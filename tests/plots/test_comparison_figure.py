"""Two decompositions are laid over each other, whatever their order and signs."""

import numpy as np
import pytest

pytest.importorskip("matplotlib")

import latensor as lt
from latensor.plots import comparison

from .layout import no_global_state, overlapping, panels


def tensor(shape, rank, seed=0):
    rng = np.random.default_rng(seed)
    factors = [rng.standard_normal((d, rank)) for d in shape]
    units = [f / np.linalg.norm(f, axis=0) for f in factors]
    return lt.CPTensor(np.arange(rank, 0, -1.0), units)


def test_a_permutation_with_signs_is_the_same():
    cp = tensor((4, 5, 6), 3)
    order, signs = [2, 0, 1], np.array([1.0, -1.0, 1.0])
    other = lt.CPTensor(
        cp.weights[order],
        [cp.factors[0][:, order] * signs, cp.factors[1][:, order] * signs, cp.factors[2][:, order]],
    )
    figure = comparison(cp, other, titles=("first", "second"))
    assert len(panels(figure)) == 9
    for axis in panels(figure):
        heights = np.array([bar.get_height() for bar in axis.patches]).reshape(2, -1)
        np.testing.assert_allclose(heights[0], heights[1], atol=1e-12)
        assert axis.get_title(loc="right") == "cosine 1"
    assert figure.get_suptitle() == "score 1 over 3 matched pairs"
    assert [t.get_text() for t in figure.legends[0].get_texts()] == ["first", "second"]
    assert overlapping(figure) == []
    assert no_global_state()


def test_components_without_partner_are_listed():
    figure = comparison(tensor((4, 30, 6), 2), tensor((4, 30, 6), 4, seed=1))
    assert "without a partner in b" in figure.get_suptitle()
    assert len(panels(figure)) == 6
    assert overlapping(figure) == []


def test_near_agreement_is_not_rounded_to_one():
    a = (None, [np.eye(2)[:, :1], np.ones((3, 1))])
    b = (None, [np.array([[1.0], [1e-3]]), np.ones((3, 1))])
    assert comparison(a, b).axes[0].get_title(loc="right") == "cosine 0.9999"


def test_of_many_pairs_the_heaviest_and_the_worst_are_drawn():
    cp = tensor((30, 30, 30), 20)
    noisy = [f.copy() for f in cp.factors]
    noisy[0][:, 19] = np.random.default_rng(5).standard_normal(30)
    figure = comparison(cp, lt.CPTensor(cp.weights, noisy), modes=(0, 2))
    names = [axis.get_ylabel().split("\n")[0] for axis in figure.axes if axis.get_ylabel()]
    assert len(names) == 12
    assert names[0] == "0 and 0"
    assert names[6] == "19 and 19"
    assert "6 heaviest and 6 least alike" in figure.get_suptitle()


def test_what_cannot_be_compared_is_explained():
    with pytest.raises(lt.InvalidInputError, match="they differ in mode 2"):
        comparison(tensor((4, 5, 6), 2), tensor((4, 5, 7), 2))
    waves = lt.CPTensor(None, [np.exp(1j * np.arange(6.0)).reshape(6, 1)] * 3)
    with pytest.raises(lt.InvalidInputError, match="a is complex"):
        comparison(waves, waves)
