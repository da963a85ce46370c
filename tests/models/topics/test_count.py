"""The number of topics that documents speak for."""

import json

import numpy as np
import pytest

import latensor as lt

MODELS = [lt.LatentDirichletAllocation, lt.SingleTopic]


@pytest.mark.parametrize("k", [1, 2, 5])
@pytest.mark.parametrize("seed", range(2))
def test_planted_numbers_are_found(k, seed):
    counts = lt.datasets.make_topics(2500, 200, k, random_state=seed).counts
    model = lt.LatentDirichletAllocation("auto", random_state=0).fit(counts)
    selection = model.selection_
    assert model.n_components_ == selection.n_components == len(selection.ratios) == k
    assert model.components_.shape == (k, 200)
    assert len(selection.candidates) == len(selection.perplexities) == len(selection.errors)
    assert selection.choices["small"] <= k <= selection.choices["large"]
    chosen = next(row for row in selection.table if row.n_components == k)
    assert chosen.is_reproduced
    assert (4 * selection.ratios < 1).all()
    json.dumps(selection.to_dict())
    assert f"{k} of {k} found in both halves" in str(selection)


def test_documents_of_one_topic_each():
    counts = lt.datasets.make_single_topic(1500, 120, 4, length=30, random_state=2).counts
    assert lt.SingleTopic("auto", random_state=0).fit(counts).n_components_ == 4


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("refine", [0, "auto"])
@pytest.mark.parametrize(
    "counts",
    [
        np.ones((50, 5), int),
        np.ones((200, 5), int),
        np.eye(5, dtype=int)[np.arange(200) % 5],
        np.eye(6, dtype=int)[np.arange(300) % 6] + np.eye(6, dtype=int)[np.arange(300) % 5],
        np.random.default_rng(0).poisson(1, (300, 30)),
        np.eye(3, dtype=int),
    ],
    ids=["few", "equal", "one word", "two words", "noise", "three"],
)
def test_one_topic_is_an_answer(model, refine, counts):
    found = model("auto", refine=refine, random_state=0).fit(counts)
    assert found.n_components_ == 1
    assert found.selection_.reason
    assert (found.components_ > 0).all()
    np.testing.assert_allclose(found.components_.sum(axis=1), 1, rtol=1e-6)


def test_weights_choose_the_documents():
    # Documents of a fifth topic that count nothing are not there.
    counts = lt.datasets.make_topics(2000, 150, 5, alpha0=0.05, random_state=1)
    on_last = counts.mixtures.argmax(axis=1) == 4
    weights = np.where(on_last | (counts.mixtures[:, 4] > 0.02), 0.0, 1.0)
    found = lt.LatentDirichletAllocation("auto", random_state=0)
    found.fit(counts.counts, sample_weight=weights)
    assert found.n_components_ == 4


@pytest.mark.parametrize("seed", range(3))
def test_documents_given_several_times_are_not_found_again_in_the_other_half(seed):
    rng = np.random.default_rng(seed)
    words = rng.dirichlet(np.full(150, 0.3))
    once = rng.multinomial(60, words, 40)
    model = lt.LatentDirichletAllocation("auto", random_state=seed, n_jobs=1)
    assert model.fit(np.repeat(once, 20, axis=0)).n_components_ == 1


@pytest.mark.parametrize("cls", MODELS)
def test_documents_of_one_word_have_one_topic_and_no_certificate(cls):
    rng = np.random.default_rng(0)
    counts = np.zeros((500, 30))
    counts[np.arange(500), rng.integers(0, 30, 500)] = 1
    model = cls("auto", random_state=0, n_jobs=1).fit(counts)
    assert model.n_components_ == 1
    with pytest.raises(AttributeError, match="tell nothing of each other"):
        _ = model.certificate_
