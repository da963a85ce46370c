"""`rank="auto"` takes what select_rank proposes, and refuses noise."""

import numpy as np
import pytest

import latensor as lt


def planted(noise=0.1):
    rng = np.random.default_rng(0)
    exact = lt.CPTensor(None, tuple(rng.standard_normal((d, 2)) for d in (18, 18, 18))).to_dense()
    return exact + noise * exact.std() * rng.standard_normal(exact.shape)


def test_the_rank_is_that_of_select_rank():
    tensor = planted()
    found = lt.decompose(tensor, "auto", random_state=0)
    chosen = lt.select_rank(tensor, random_state=0)
    assert found.rank == found.selection.rank == chosen.rank == 2
    assert str(found.selection) == str(chosen)
    np.testing.assert_allclose(found.weights, lt.decompose(tensor, 2, random_state=0).weights)
    assert lt.decompose(tensor, 2, random_state=0).selection is None


@pytest.mark.slow
def test_masked_and_constrained():
    tensor = planted()[:12, :11, :10]
    mask = np.random.default_rng(1).random(tensor.shape) < 0.7
    found = lt.decompose(
        np.where(mask, tensor, np.nan), "auto", mask=mask, random_state=0,
        constraints={0: lt.constraints.Smooth(1e-3)},
    )  # fmt: skip
    assert found.rank == 2


def test_nothing_and_other_words_are_refused():
    with pytest.raises(
        lt.NotIdentifiableError, match="rank='auto' found no component: All entries"
    ):
        lt.decompose(np.zeros((3, 4, 5)), "auto", random_state=0)
    with pytest.raises(lt.InvalidInputError, match="rank='many'"):
        lt.decompose(np.ones((3, 4, 5)), "many")
