"""Certificates of masked fits: errors as they are, with the observed entries counted."""

import pickle

import numpy as np
import pytest

import latensor as lt
from latensor.diagnostics.components import components_of
from latensor.diagnostics.conditioning import sensitivity
from latensor.diagnostics.observed import observed_sensitivity


def planted(seed, fraction, *, shape=(15, 16, 17), rank=3, noise=0.1):
    rng = np.random.default_rng(seed)
    truth = lt.CPTensor(None, tuple(rng.standard_normal((d, rank)) for d in shape))
    exact = truth.to_dense()
    tensor = exact + noise * exact.std() * rng.standard_normal(shape)
    return truth, tensor, rng.random(shape) < fraction


def component_errors(truth, found):
    """Relative Frobenius error of each component of `found`."""

    def terms(cp):
        return [
            cp.weights[j] * np.einsum("i,j,k->ijk", *(f[:, j] for f in cp.factors))
            for j in range(cp.rank)
        ]

    wanted = terms(truth)
    return [
        min(np.linalg.norm(w - t) for w in wanted) / np.linalg.norm(t) for t in terms(found.tensor)
    ]


@pytest.mark.parametrize("fraction", [0.2, 0.5])
def test_stated_errors_are_the_true_ones(fraction):
    true, stated = [], []
    for seed in range(4):
        truth, tensor, mask = planted(seed, fraction)
        found = lt.decompose(np.where(mask, tensor, np.nan), 3, mask=mask, random_state=0)
        certificate = found.certificate
        assert certificate.observed == mask.sum()
        assert certificate.verdict == "stable"
        assert certificate.residual == pytest.approx(found.residual, rel=1e-6)
        true += component_errors(truth, found)
        stated += list(certificate.errors.components)
    # Twelve components of some 45 degrees of freedom each: their mean square is known to 6 %.
    ratio = np.sqrt(np.mean(np.square(true)) / np.mean(np.square(stated)))
    assert 0.85 < ratio < 1.15


def test_all_entries_observed_is_no_mask(rng):
    cp = lt.CPTensor(rng.uniform(1, 2, 2), tuple(rng.standard_normal((d, 2)) for d in (4, 5, 6)))
    components = components_of(cp, "cp")
    places = np.nonzero(np.ones(cp.shape))
    whole, masked = sensitivity(components), observed_sensitivity(components, places)
    assert masked.condition.value == pytest.approx(whole.condition.value, rel=1e-8)
    for name in ("components", "weights", "vectors"):
        np.testing.assert_allclose(getattr(masked, name), getattr(whole, name), rtol=1e-8)


def test_too_few_entries_are_not_called_stable():
    truth, tensor, mask = planted(0, 0.02, shape=(12, 12, 12))
    mask[:, 0, 0] = mask[0, :, 0] = mask[0, 0, :] = True
    found = lt.certify(truth, tensor, mask=mask)
    assert not np.isfinite(found.condition.value)
    assert found.verdict == "unstable"
    assert "observed entries" in str(found)


def test_sparse_data_and_masks():
    _, tensor, mask = planted(1, 0.3)
    sparse = lt.SparseTensor(np.argwhere(mask), tensor[mask], tensor.shape)
    seen = lt.SparseTensor(np.argwhere(mask), np.ones(mask.sum()), tensor.shape)
    found = lt.decompose(sparse, 3, mask=seen, random_state=0)
    dense = lt.certify(found.tensor, tensor, mask=mask)
    np.testing.assert_allclose(found.certificate.errors.components, dense.errors.components)
    # Without the values the residual of the result stands for them.
    alone = lt.certify(found)
    np.testing.assert_allclose(alone.errors.components, dense.errors.components, rtol=1e-2)


def test_certificate_of_a_result_is_that_of_certify():
    _, tensor, _ = planted(2, 1.0)
    found = lt.decompose(tensor, 3, random_state=0)
    assert found.certificate is found.certificate
    assert found.certificate.to_dict() == lt.certify(found, tensor).to_dict()
    assert found.certificate.core_consistency is not None
    symmetric = lt.symmetrize(tensor[:15, :15, :15])
    assert lt.decompose(symmetric, 2, symmetric=True, random_state=0).certificate.rank == 2


def test_pickles_hold_masks_but_no_data():
    _, tensor, mask = planted(3, 0.5)
    found = lt.decompose(tensor, 3, mask=mask, random_state=0)
    size = len(pickle.dumps(found))
    assert size < mask.size + 20_000 < tensor.nbytes
    again = pickle.loads(pickle.dumps(found))
    np.testing.assert_allclose(
        again.certificate.errors.components, found.certificate.errors.components, rtol=1e-2
    )
    kept = pickle.loads(pickle.dumps(found))
    assert kept.certificate.to_dict() == found.certificate.to_dict()


def test_large_data_are_not_kept(monkeypatch):
    monkeypatch.setattr("latensor.decomposition.result._KEPT", 1000)
    _, tensor, mask = planted(4, 0.5)
    whole = lt.decompose(tensor, 3, random_state=0)
    assert whole.origin.tensor is None
    assert whole.certificate.core_consistency is None
    assert whole.certificate.errors is not None
    masked = lt.decompose(tensor, 3, mask=mask, random_state=0)
    assert masked.origin.mask is None
    assert masked.certificate.errors is None
    assert lt.certify(masked, tensor, mask=mask).errors is not None


def test_a_poor_fit_of_stable_components_is_said_apart():
    truth, _, _ = planted(0, 1.0, shape=(40, 40, 40), rank=2)
    exact = truth.to_dense()
    noise = np.random.default_rng(1).standard_normal(exact.shape)
    tensor = exact / np.linalg.norm(exact) + 1.2 * noise / np.linalg.norm(noise)
    certificate = lt.decompose(tensor, 2, random_state=0).certificate
    assert certificate.explained < 0.5
    assert certificate.verdict in ("stable", "uncertain")
    assert "which the verdict does not judge" in str(certificate)
