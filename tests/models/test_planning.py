"""Sample sizes: errors fall as they should, and the n that is told is enough."""

from __future__ import annotations

import numpy as np
import pytest

import latensor as lt
from latensor import datasets


@pytest.fixture(scope="module")
def model():
    drawn = datasets.make_spherical_mixture(2000, 4, 2, random_state=0)
    rows = drawn.samples if hasattr(drawn, "samples") else drawn[0]
    return lt.SphericalGaussianMixture(2, random_state=0).fit(np.asarray(rows))


@pytest.fixture(scope="module")
def planned(model):
    return lt.plan(model, (200, 800, 3200), 0.02, random_state=0)


def test_errors_fall_like_the_root_of_n(planned):
    assert list(planned.n_samples) == [200, 800, 3200]
    for name in ("means_", "weights_"):
        assert planned.errors[name].shape == (3, 3)
        assert -0.9 < planned.rates[name] < -0.2
    assert (np.diff(planned.moment_rate) < 0).all()


def test_the_size_that_is_told_is_enough(model, planned):
    needed = planned.required["means_"]
    again = lt.plan(model, (max(needed // 4, 50), needed), n_repeats=4, random_state=1)
    assert np.median(again.errors["means_"][-1]) == pytest.approx(0.02, rel=0.6)
    assert again.required == {}
    assert "means_" in str(planned)


def test_it_can_be_drawn(planned):
    pytest.importorskip("matplotlib")
    from latensor.plots import sample_sizes

    axis = sample_sizes(planned).axes[0]
    assert axis.get_xscale() == axis.get_yscale() == "log"


@pytest.mark.parametrize(
    ("options", "message"),
    [({"n_samples": (100,)}, "two or more"), ({"n_samples": (0, 5)}, "n_samples=0"),
     ({"target": 0.0}, "target=0"), ({"n_repeats": 0}, "n_repeats=0")],
)  # fmt: skip
def test_bad_input_is_refused(model, options, message):
    with pytest.raises(lt.InvalidInputError, match=message):
        lt.plan(model, **options)


def test_models_that_cannot_tell_are_refused():
    with pytest.raises(lt.InvalidInputError, match="cannot draw samples"):
        lt.plan(lt.PCA(2))
    with pytest.raises(ValueError, match="fit it first"):
        lt.plan(lt.SphericalGaussianMixture(2))
