"""The angles that a Tucker certificate predicts are those that repeated noise shows."""

import numpy as np
import pytest

import latensor as lt

SHAPE, RANKS = (12, 15, 18), (3, 2, 2)


def planted(seed):
    rng = np.random.default_rng(seed)
    spaces = [np.linalg.qr(rng.normal(size=(d, r)))[0] for d, r in zip(SHAPE, RANKS, strict=True)]
    return np.einsum("abc,ia,jb,kc", rng.normal(size=RANKS), *spaces), spaces


@pytest.mark.parametrize("share", [1.0, 0.6])
@pytest.mark.parametrize("noise", [1e-3, 2e-2])
def test_the_predicted_angles_are_those_of_repeated_samples(noise, share):
    signal, spaces = planted(0)
    rng = np.random.default_rng(1)
    predicted, found = [], []
    for _ in range(12):
        mask = None if share == 1.0 else rng.random(SHAPE) < share
        fit = lt.tucker(signal + noise * rng.normal(size=SHAPE), RANKS, mask=mask, random_state=0)
        predicted.append(fit.certificate.angles)
        angles = []
        for mode, space in enumerate(spaces):
            unfolded = np.moveaxis(fit.core, mode, 0).reshape(RANKS[mode], -1)
            weakest = fit.factors[mode] @ np.linalg.svd(unfolded)[0][:, -1]
            angles.append(np.linalg.norm(weakest - space @ (space.T @ weakest)))
        found.append(angles)
    assert fit.certificate.observed == (None if mask is None else mask.sum())
    assert abs(fit.certificate.noise / noise - 1) < 0.06
    ratio = np.mean(predicted, axis=0) / np.sqrt(np.mean(np.square(found), axis=0))
    # Twelve repetitions of some ten degrees of freedom tell a mean square to about a seventh.
    assert np.all((ratio > 0.75) & (ratio < 1.33)), ratio


def test_noise_is_called_unstable_and_an_exact_fit_stable():
    rng = np.random.default_rng(2)
    for shape, ranks in ((SHAPE, RANKS), ((12, 12, 12), 6), ((40, 30), 4), ((9, 9, 9, 9), 2)):
        noise = lt.tucker(rng.normal(size=shape), ranks, random_state=0).certificate
        assert noise.verdict == "unstable"
        assert noise.strength < 1
    exact = lt.tucker(planted(3)[0], RANKS).certificate
    assert exact.verdict == "stable"
    assert max(exact.angles) < 1e-6


def test_what_the_data_cannot_tell_is_said_to_be_unknown():
    whole = lt.tucker(np.random.default_rng(4).normal(size=(3, 4, 5)), (3, 4, 5)).certificate
    assert whole.noise is None
    assert "not known" in str(whole)


def test_directions_without_any_weight_are_not_determined():
    with pytest.warns(UserWarning, match="no signal"):
        zero = lt.tucker(np.zeros((3, 4, 5)), 2).certificate
    assert zero.verdict == "unstable"
    assert "the data are zero" in str(zero)
    # Exact, but of lower ranks than the core has: the last direction of each mode is rounding.
    signal = np.einsum("ia,ja,ka", *(np.random.default_rng(5).random((d, 2)) for d in SHAPE))
    assert lt.tucker(signal, 2, random_state=0).certificate.verdict == "stable"
    assert lt.tucker(signal, 3, random_state=0).certificate.verdict == "unstable"


def test_nonnegative_factors_are_not_called_unique():
    signal = np.einsum("ia,ja,ka", *(np.random.default_rng(5).random((d, 2)) for d in SHAPE))
    found = lt.tucker(signal, 2, nonnegative=True, random_state=0).certificate
    assert not found.orthogonal
    assert found.verdict == "uncertain"
    assert found.to_dict()["orthogonal"] is False


@pytest.mark.parametrize("scale", [1e-150, 1e150])
def test_the_scale_of_the_data_does_not_count(scale):
    data = planted(6)[0] + 0.01 * np.random.default_rng(7).normal(size=SHAPE)
    near, far = (lt.tucker(x, RANKS, random_state=0).certificate for x in (data, scale * data))
    np.testing.assert_allclose(far.angles, near.angles, rtol=1e-6)


def test_uncompressed_modes_have_no_angle():
    data = planted(8)[0] + 0.01 * np.random.default_rng(9).normal(size=SHAPE)
    assert lt.tucker(data, (3, 2), modes=(0, 2)).certificate.angles[1] == 0.0
