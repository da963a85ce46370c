"""The number of components that the data speak for: `n_components="auto"` and `selection_`."""

import json
from dataclasses import replace

import numpy as np
import pytest

import latensor as lt
from latensor.datasets.mixtures import make_multi_view, make_spherical_mixture
from latensor.estimation.selection import Evaluation, Selection, reproduction, select
from latensor.exceptions import InvalidInputError

N = 200
NOISE = np.random.default_rng(0).standard_normal(N)

MODELS = {
    "spherical": lambda **p: lt.SphericalGaussianMixture("auto", random_state=0, **p),
    "diagonal": lambda **p: lt.DiagonalGaussianMixture("auto", random_state=0, **p),
    "product": lambda **p: lt.ProductMixture("auto", random_state=0, **p),
    "full": lambda **p: lt.GaussianMixture("auto", random_state=0, **p),
}


def halves(best, reproduced, most=1000):
    """Two halves whose likelihood grows up to `best` components."""

    def evaluate(k, division):
        if k > most:
            return None
        scores = -np.abs(np.minimum(k, best) - best) - 1e-4 * k * (1 + NOISE)
        ratios = np.full(k, 0.1 if k == 1 or k in reproduced else 0.9)
        return Evaluation(scores, np.ones(N), np.ones(N), ratios)

    return evaluate


@pytest.mark.parametrize(
    "best, reproduced, most, limit, expected",
    [
        (1, (), 99, 64, 1),
        (6, (2, 6), 99, 64, 6),
        (6, (3, 5), 99, 64, 5),
        (20, range(2, 20), 99, 64, 19),
        (6, (), 99, 64, 1),
        (50, (8, 9), 99, 12, 9),
        (9, (4,), 5, 64, 4),
    ],
)
def test_the_largest_reproduced_number_that_predicts_best(best, reproduced, most, limit, expected):
    found = select(halves(best, reproduced, most), limit)
    assert found.n_components == found.choices["medium"] == expected
    assert found.choices["small"] <= expected
    assert expected <= found.choices["large"] <= limit
    assert found.limit_reached == (limit == 12)
    assert found.n_fits == 2 * sum(row.n_divisions for row in found.table)
    assert found.candidates == tuple(sorted(found.candidates))
    assert min(row.behind for row in found.table) == 0
    json.dumps(found.to_dict())
    assert str(found).startswith(f"{expected} components")


@pytest.mark.parametrize(
    "lost, expected, n_divisions",
    [
        # Components that are lost at k = 6 by the first, second and third division; 2 is safe.
        ((0, 0, 6), 6, 2),
        ((0, 1, 0), 6, 3),
        ((2, 0, 0), 6, 3),
        ((0, 1, 1), 2, 3),
        ((1, 1, 0), 2, 2),
        # More than a pair is no accident.
        ((3, 0, 0), 2, 1),
        # A division that cannot be fitted confirms nothing.
        ((0, None, 0), 2, 1),
    ],
)
def test_two_of_three_divisions_decide(lost, expected, n_divisions):
    plain = halves(6, (2, 6))

    def evaluate(k, division):
        if k != 6:
            return plain(k, division)
        if lost[division] is None:
            return None
        found = plain(k, division)
        found.ratios[: lost[division]] = 0.9
        return found

    found = select(evaluate, 64)
    assert found.n_components == expected
    row = next(row for row in found.table if row.n_components == 6)
    assert row.n_divisions == n_divisions
    assert found.in_halves == expected
    assert row.is_reproduced == (expected == 6) or None in lost


def test_halves_that_cannot_be_fitted_are_one_component():
    found = select(halves(9, (4,), 0), 64)
    assert found.n_components == 1
    assert "cannot be fitted" in found.reason


def test_reproduction_compares_partners_with_the_nearest_other_component():
    eye = np.repeat(np.eye(3), 20, axis=0)
    np.testing.assert_allclose(reproduction(eye, eye[:, [2, 0, 1]]), 0, atol=1e-12)
    # A component split at random in both halves is nearer to its other half than to its partner.
    rng = np.random.default_rng(0)
    split = []
    for _ in range(2):
        coin = rng.random(60) < 0.5
        split.append(
            np.column_stack([eye[:, 0], eye[:, 1:].sum(1) * coin, eye[:, 1:].sum(1) * ~coin])
        )
    ratios = reproduction(*split)
    assert ratios[0] < 1e-12
    assert (ratios[1:] > 0.25).all()


@pytest.mark.parametrize("name", list(MODELS))
@pytest.mark.parametrize("k", [3, 1])
def test_planted_numbers_are_found(name, k):
    samples = make_spherical_mixture(1500, 8, k, separation=5, random_state=k).samples
    model = MODELS[name]().fit(samples)
    assert model.n_components_ == model.selection_.n_components == len(model.means_) == k
    assert isinstance(model.selection_, Selection)
    again = MODELS[name]().fit(samples)
    assert np.array_equal(again.means_, model.means_)
    assert not hasattr(MODELS[name]().set_params(n_components=k).fit(samples), "selection_")


def test_views_and_streams_and_files(tmp_path):
    planted = make_multi_view(1500, (5, 5, 5), 3, random_state=0)
    assert lt.MultiViewMixture("auto", random_state=0).fit(planted.views).n_components_ == 3
    samples = make_spherical_mixture(1500, 6, 3, separation=5, random_state=0).samples
    stream = lt.GaussianMixture("auto", random_state=0)
    stream.partial_fit(samples[:900]).partial_fit(samples[900:])
    assert stream.n_components_ == stream.selection_.n_components == 3
    stream.save(tmp_path / "model")
    assert lt.load(tmp_path / "model").selection_.choices == stream.selection_.choices
    # Once the coordinates are chosen, the number stays with them.
    many = make_spherical_mixture(20_100, 4, 2, separation=6, random_state=0).samples
    stream = lt.SphericalGaussianMixture("auto", refine=1, random_state=0).partial_fit(many)
    assert stream.partial_fit(many[:500]).n_components_ == 2
    assert stream.selection_.table


@pytest.mark.parametrize("missing", [0.0, 0.1])
def test_few_samples_and_equal_ones_are_one_component(missing):
    rng = np.random.default_rng(0)
    samples = rng.standard_normal((60, 2))
    samples[rng.random((60, 2)) < missing] = np.nan
    found = lt.GaussianMixture("auto", random_state=0).fit(samples)
    assert found.n_components_ == 1
    assert "too few" in found.selection_.reason
    if not missing:
        equal = lt.SphericalGaussianMixture("auto", random_state=0).fit(np.ones((500, 2)))
        assert equal.n_components_ == 1


def test_unobserved_entries_and_starting_values():
    planted = make_spherical_mixture(1500, 5, 3, separation=7, random_state=0)
    samples = planted.samples.copy()
    samples[np.random.default_rng(1).random(samples.shape) < 0.1] = np.nan
    found = lt.GaussianMixture("auto", covariance_type="diag", random_state=0).fit(samples)
    assert found.n_components_ == 3
    with pytest.raises(InvalidInputError, match=r"takes no starting values.*means_init"):
        lt.GaussianMixture("auto", means_init=planted.means).fit(planted.samples)


def agreeing(best, reproduced, agreed):
    """Two halves whose parameters agree for some numbers only."""
    evaluate = halves(best, reproduced)
    return lambda k, division: replace(evaluate(k, division), agrees=k in agreed)


@pytest.mark.parametrize(
    "best, reproduced, agreed, expected, small",
    [
        # More would predict better: what both halves say in every respect.
        (20, (4, 6, 8), (4, 6), 6, 6),
        (20, (4, 6, 8), (), 8, 1),
        # The likelihood singles the number out.
        (8, (4, 6, 8), (4,), 8, 4),
    ],
)
def test_parameters_must_agree_where_no_number_is_singled_out(
    best, reproduced, agreed, expected, small
):
    found = select(agreeing(best, reproduced, agreed), 64, also="and words agree")
    assert found.n_components == len(found.ratios) == expected
    assert found.choices == {"small": small, "medium": 8, "large": best}
    assert found.in_halves == (expected if expected == small else 0)
    assert ("and words agree; 8 are without that" in found.reason) == (expected == 6)
