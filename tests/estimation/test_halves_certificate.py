"""What two halves of the data said about a number of components, in the certificate of the fit."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import latensor as lt
from latensor.estimation.selection import Selection, Tried, with_halves

RNG = np.random.default_rng(0)
CLUSTERS = np.vstack([RNG.normal(size=(40, 4)) + shift for shift in (0.0, 6.0)])


def test_observed_stability_counts_more_than_inferred_stability(tmp_path):
    # Ten rows per feature are asked for to infer it, and there are fewer.
    rng = np.random.default_rng(1)
    few = np.vstack([rng.normal(size=(75, 4)), rng.normal(size=(32, 4)) + 6.0])
    given = lt.GaussianMixture(2, random_state=0).fit(few)
    assert given.certificate_.verdict == "uncertain"
    assert given.certificate_.in_halves == 0
    model = lt.GaussianMixture("auto", random_state=0).fit(few)
    certificate = model.certificate_
    assert (model.n_components_, certificate.in_halves, certificate.verdict) == (2, 2, "stable")
    assert "each half of the data finds all 2 by itself" in str(certificate)
    assert "rows per feature" in str(certificate)
    again = lt.load(model.save(tmp_path / "model.latensor")).certificate_
    assert (again.in_halves, again.verdict) == (2, "stable")


def test_one_component_has_nothing_to_be_found_again():
    model = lt.GaussianMixture("auto", random_state=0).fit(CLUSTERS[:40])
    assert model.n_components_ == 1
    assert model.certificate_.in_halves == 0


def test_what_speaks_against_the_answer_still_does():
    certificate = lt.GaussianMixture("auto", random_state=0).fit(CLUSTERS).certificate_
    assert certificate.verdict == "stable"
    other = replace(certificate, ahead=1.0, moved=0.2)
    assert other.verdict == "uncertain"
    # By the measure of the halves it is no other answer; without halves it is one.
    same = replace(other, is_same=True, in_halves=2)
    assert same.verdict == "stable"
    assert "still the same components" in str(same)
    assert replace(same, in_halves=0).verdict == "uncertain"
    assert replace(same, is_same=False).verdict == "uncertain"
    assert replace(certificate, rows_per_feature=2.0).verdict == "unstable"


@pytest.mark.parametrize(("found", "small", "expected"), [(2, 2, 2), (1, 2, 0), (2, 1, 0)], ids=str)
def test_all_components_and_their_parameters_must_be_found(found, small, expected):
    tried = Tried(2, -1.0, 0.1, found, 0.1, 0.0)
    selection = Selection(2, "", {"small": small, "medium": 2, "large": 2}, table=(tried,))
    assert selection.in_halves == expected
    assert Selection.of_one("").in_halves == 0


@pytest.mark.parametrize(
    ("behind", "found", "expected"), [(0.15, 2, 2), (0.05, 2, 0), (0.15, 1, 2)], ids=str
)
def test_a_larger_number_that_predicts_better_leaves_the_answer_uncertain(behind, found, expected):
    one = Tried(1, -1.0 - behind, 0.1, 1, 0.1, 0.0, behind, 0.1)
    selection = Selection(1, "", table=(one, Tried(2, -1.0, 0.1, found, 0.1, 0.0)))
    assert selection.larger == expected
    certificate = lt.GaussianHMM(1).fit(CLUSTERS[:40]).certificate_
    assert certificate.verdict == "stable"
    told = with_halves(certificate, selection)
    assert told.verdict == ("uncertain" if expected else "stable")
    assert ("2 predict what is held out better" in str(told)) == bool(expected)
    assert Selection.of_one("").larger == 0
    # Beside more than one it must have been found again.
    two = Tried(2, -1.0 - behind, 0.1, 2, 0.1, 0.0, behind, 0.1)
    more = Selection(2, "", table=(two, Tried(3, -1.0, 0.1, found + 1, 0.1, 0.0)))
    assert more.larger == (3 if expected and found == 2 else 0)


def test_a_rare_state_leaves_one_state_uncertain():
    # The other one has 1.5 % of the rows: its likelihood is 1.9 standard errors better.
    made = lt.datasets.make_hmm(20_000, 8, 2, stay=0.8, random_state=7107)
    model = lt.CategoricalHMM("auto", random_state=7107).fit(made.X)
    assert (model.n_components_, model.certificate_.verdict) != (1, "stable")


def test_sources_that_kurtosis_alone_would_not_show():
    # Skewed, with the fourth cumulant of a Gaussian: found in both halves by what they are.
    rng = np.random.default_rng(0)
    skewed = np.where(rng.random(8000) < 0.2113249, 1.9318517, -0.5176381)
    sources = np.stack([skewed, rng.laplace(size=8000), rng.uniform(-1, 1, 8000)], axis=1)
    model = lt.ICA("auto", random_state=0).fit(sources @ rng.normal(size=(3, 3)))
    certificate = model.certificate_
    assert model.n_components_ == certificate.in_halves == 3
    if certificate.unidentifiable:
        assert "did not find them" in str(certificate)
    assert certificate.verdict == "stable", str(certificate)
    gaussian = lt.ICA("auto", random_state=0).fit(rng.normal(size=(4000, 3)))
    assert gaussian.certificate_.in_halves == -1
    assert gaussian.certificate_.verdict == "unstable"


def test_certificates_of_other_kinds_stay_as_they_are():
    certificate = lt.PCA(2).fit(CLUSTERS).certificate_
    selection = Selection(2, "", {"small": 2}, table=(Tried(2, 0.0, 0.0, 2, 0.0, 0.0),))
    assert with_halves(certificate, selection) is certificate


@pytest.mark.parametrize("later", ["partial_fit", "merge"])
def test_halves_say_nothing_about_data_that_came_later(later):
    rng = np.random.default_rng(2)
    mixed = rng.laplace(size=(3000, 3)) @ rng.normal(size=(3, 3))
    model = lt.ICA("auto", random_state=0).fit(mixed)
    assert model.certificate_.in_halves == 3
    more = rng.normal(size=(20_000, 3))
    if later == "merge":
        model.merge(model.spawn().partial_fit(more))
    else:
        model.partial_fit(more)
    assert model.n_components_ == model.selection_.n_components == 3
    assert model.certificate_.in_halves == 0
    assert "each half" not in str(model.certificate_)
