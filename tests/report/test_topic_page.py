"""`page_of`: what a report shows is what the model says."""

import itertools

import numpy as np
import pytest
import scipy.sparse

import latensor as lt
from latensor.exceptions import InvalidInputError
from latensor.report import Reproduction, topic_report
from latensor.report.topic_page import corpus_fractions, installed_versions, page_of
from latensor.sources import BatchSource, MatrixSource

K, WORDS = 4, 60


@pytest.fixture(scope="module")
def counts():
    sample = lt.datasets.make_topics(400, WORDS, K, random_state=0)
    matrix = scipy.sparse.lil_array(sample.counts)
    matrix[5] = 0  # without words
    matrix[9] = 0
    matrix[9, 3] = 1  # one word
    matrix[11] = matrix[10]  # a copy
    return scipy.sparse.csr_array(matrix)


@pytest.fixture(scope="module")
def source(counts):
    names = [f"word{j}" for j in range(WORDS)]
    # Batches of different sizes, so that numbers of documents run over batches.
    parts = np.cumsum([0, 150, 100, 90, 60])
    batches = [counts[a:b] for a, b in itertools.pairwise(parts)]
    return BatchSource(batches, vocabulary=names)


@pytest.fixture(scope="module")
def model(source):
    return lt.LatentDirichletAllocation(K, random_state=3).fit(source)


def test_the_page_says_what_the_model_says(model, source, counts):
    page = page_of(model, source, title="Planted", n_words=7)
    assert (page.title, page.n_words) == ("Planted", WORDS)
    assert (page.n_documents, page.n_empty_documents, page.n_short_documents) == (399, 1, 1)
    assert page.n_tokens == counts.sum()
    assert [topic.number for topic in page.topics] == list(range(K))
    assert [[w.text for w in t.words] for t in page.topics] == model.top_words(7)
    assert [t.trust for t in page.topics] == model.certificate_.topic_levels()
    np.testing.assert_allclose([t.coherence for t in page.topics], model.coherence(source))
    np.testing.assert_allclose(
        [t.split_half_distance for t in page.topics], model.certificate_.split_half
    )
    lengths = np.asarray(counts.sum(axis=1)).ravel()
    expected = lengths @ model.transform(counts) / lengths.sum()
    np.testing.assert_allclose([t.fraction for t in page.topics], expected, rtol=1e-5)
    assert [s.sentence for s in page.certificate] == [s.text for s in model.certificate_.statements]
    assert page.spectrum.chosen == K
    ratio = page.spectrum.values[K - 1] / page.spectrum.noise
    assert ratio == pytest.approx(model.certificate_.eigenvalue_ratio)
    assert page.distances.shape == (K, K)
    assert page.choice is None
    assert page.reproduction.seed == 3
    assert set(page.reproduction.seconds) == set(model.stage_seconds_)
    assert topic_report(page).startswith("<!doctype html>")


def test_lift_is_against_the_corpus(model, source):
    page = page_of(model, source, n_words=WORDS)
    fractions = np.array([t.fraction for t in page.topics])
    corpus = fractions @ model.components_
    word = page.topics[1].words[0]
    column = source.vocabulary.index(word.text)
    assert word.lift == pytest.approx(model.components_[1, column] / corpus[column], rel=1e-5)


def test_examples_have_the_largest_fractions(model, source, counts):
    page = page_of(model, source, n_examples=5)
    mixtures, lengths = model.transform(counts), np.asarray(counts.sum(axis=1)).ravel()
    for j, topic in enumerate(page.topics):
        assert len(topic.documents) == 5
        numbers = [int(d.name.removeprefix("document ")) for d in topic.documents]
        merits = mixtures[:, j] * lengths / (lengths + 5)
        assert merits[numbers[0]] == pytest.approx(merits.max())
        np.testing.assert_allclose(
            [d.fraction for d in topic.documents], mixtures[numbers, j], rtol=1e-5
        )
        assert 5 not in numbers
        assert 9 not in numbers
        assert not {10, 11} <= set(numbers)
        best = counts[[numbers[0]]].toarray()[0]
        assert topic.documents[0].excerpt.startswith(f"word{int(best.argmax())} ×{best.max():.0f}")
    assert all(t.documents == () for t in page_of(model, source, n_examples=0).topics)


def test_examples_do_not_depend_on_the_batches(model, source, counts):
    whole = corpus_fractions(model, MatrixSource(counts), 3)
    parts = corpus_fractions(model, source, 3)
    assert whole.leading == parts.leading
    assert whole.contents.keys() == parts.contents.keys()
    np.testing.assert_allclose(whole.fractions, parts.fractions)


@pytest.mark.parametrize(
    "names", [lambda n: f"line {n + 1}", [f"line {n + 1}" for n in range(400)]]
)
def test_texts_and_names_are_those_of_the_caller(model, source, names):
    asked = []

    def excerpts(numbers):
        asked.append(numbers)
        return {number: f"text\n of {number}" for number in numbers}

    page = page_of(model, source, excerpts=excerpts, names=names)
    assert len(asked) == 1
    assert asked[0] == sorted(set(asked[0]))
    for topic in page.topics:
        for document in topic.documents:
            number = int(document.name.removeprefix("line ")) - 1
            assert document.excerpt == f"text of {number}"


def test_a_choice_is_shown_with_its_evidence(model, source):
    class Selection:
        n_components, reason = K, "the lowest"
        candidates, perplexities = (2, 4, 8), (50.0, 40.0, 41.0)

    model.selection_ = Selection()
    try:
        page = page_of(model, source)
        assert [(r.n_topics, r.perplexity) for r in page.choice.rows] == [(2, 50), (4, 40), (8, 41)]
        assert (page.choice.chosen, page.choice.reason) == (K, "The lowest.")
        Selection.candidates = Selection.perplexities = ()
        page = page_of(model, source)
        assert page.choice is None
        assert page.reproduction.settings["number of topics"] == f"{K}: the lowest"
    finally:
        del model.selection_


def test_a_loaded_model_has_a_page_too(model, source, tmp_path):
    loaded = lt.LatentDirichletAllocation.load(model.save(tmp_path / "m.npz"))
    page, expected = page_of(loaded, source), page_of(model, source)
    assert page.topics == expected.topics
    assert page.certificate == expected.certificate


def test_moments_alone_have_no_refinement_to_show(counts):
    model = lt.LatentDirichletAllocation(K, refine=0, random_state=0).fit(counts)
    page = page_of(model, MatrixSource(counts))
    assert page.refinement is None
    assert [w.text for w in page.topics[0].words] == [str(w) for w in model.top_words()[0]]


def test_the_refinement_is_shown_pass_by_pass(model, source):
    history = model.history_
    model.history_ = np.array([90.0, 70.0, 65.0, 66.0])
    try:
        refinement = page_of(model, source).refinement
    finally:
        model.history_ = history
    assert (list(refinement.passes), refinement.kept) == ([0, 1, 2, 3], None)


def test_what_the_caller_says_about_reproduction_stays(model, source):
    given = Reproduction(command="do it", seconds={"reading": 1.5}, versions={"a": "1"}, seed=7)
    found = page_of(model, source, reproduction=given).reproduction
    assert (found.command, found.seed, found.versions) == ("do it", 7, {"a": "1"})
    assert next(iter(found.seconds)) == "reading"
    assert len(found.seconds) > 1
    assert {"Python", "latensor", "numpy"} <= set(installed_versions())


def test_a_negative_number_of_examples_is_refused(model, source):
    with pytest.raises(InvalidInputError, match="n_examples=-1"):
        page_of(model, source, n_examples=-1)
