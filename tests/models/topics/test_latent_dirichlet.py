"""Latent Dirichlet allocation as users meet it."""

import itertools
import json
import pickle

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from sklearn.base import clone

import latensor as lt
from latensor.models.topics import model as topics_module
from latensor.models.topics.latent_dirichlet import DirichletModel
from latensor.moments.batch import Batch
from topic_examples import fraction_moment, population, topic_distance

K = 6


@pytest.fixture(scope="module")
def sample():
    return lt.datasets.make_topics(3000, 300, K, random_state=1)


@pytest.fixture(scope="module")
def model(sample):
    return lt.LatentDirichletAllocation(K, random_state=0).fit(sample.counts)


@pytest.mark.parametrize("seed", range(20))
def test_population_moments_give_topics_and_alpha_back(seed):
    rng = np.random.default_rng(seed)
    k, n_words = 3 + seed % 2, 8
    topics = rng.dirichlet(np.full(n_words, 0.5), k)
    alpha = rng.uniform(0.1, 2.0, k) * rng.choice([0.2, 1.0, 4.0])
    counts, weights = population(topics, fraction_moment(alpha, 3))
    # So many documents that the prior of the words does not show.
    fitted = lt.LatentDirichletAllocation(k, refine=0, random_state=seed).fit(
        counts, sample_weight=1e10 * weights
    )
    distances, order = topic_distance(fitted.components_, topics)
    assert distances.max() < 1e-8
    np.testing.assert_allclose(fitted.alpha_[order], alpha, rtol=1e-8)


@pytest.mark.parametrize("seed", range(3))
def test_refinement_reaches_em_from_the_truth(seed):
    sample = lt.datasets.make_topics(3000, 300, K, random_state=seed)
    new = lt.LatentDirichletAllocation
    moments = new(K, refine=0, random_state=0).fit(sample.counts)
    refined = new(K, random_state=0).fit(sample.counts)
    oracle = new(K, init=sample.topics, refine=20).fit(sample.counts)
    informed = new(K, random_state=0, document_topic_prior=1 / K).fit(sample.counts)
    before, after, best, with_true_prior = (
        topic_distance(model.components_, sample.topics)[0].mean()
        for model in (moments, refined, oracle, informed)
    )
    assert after < 0.9 * before
    assert after < 1.05 * best
    assert with_true_prior < 0.8 * before
    assert refined.alpha_.sum() == pytest.approx(1.0, rel=0.15)


# Short documents over few words: the steps of the refinement alone leave topics up to 28 times as
# far off as the moments, for they take the fractions of a document for known.
@pytest.mark.parametrize(
    ("n", "n_words", "k", "length", "alpha"),
    [
        (800, 30, 3, 20, 0.5),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in (
                (5_000, 30, 3, 50, [0.3, 0.4, 0.5]),
                (20_000, 30, 3, 50, [0.3, 0.4, 0.5]),
                (20_000, 30, 3, 20, 0.5),
                (20_000, 300, 3, 20, 0.5),
                (20_000, 300, 10, 20, 0.5),
                (5_000, 2000, 10, 20, 0.5),
                (800, 300, 10, 60, 0.5),
                (20_000, 30, 3, 60, 0.1),
            )
        ),
    ],
)
def test_refined_topics_are_as_near_as_those_of_the_moments(n, n_words, k, length, alpha):
    errors = np.zeros((3, 2))
    for seed in range(3):
        sample = lt.datasets.make_topics(
            n, n_words, k, length=length, alpha=alpha, random_state=seed
        )
        for j, given in enumerate(({"refine": 0}, {})):
            model = lt.LatentDirichletAllocation(k, random_state=0, **given).fit(sample.counts)
            errors[seed, j] = topic_distance(model.components_, sample.topics)[0].mean()
    moments, refined = errors.mean(axis=0)
    assert refined <= 1.1 * moments


def test_a_prior_that_is_given_is_kept():
    # 0.1 for every topic where alpha is .3 to .5: what the steps then do the likelihood undoes.
    sample = lt.datasets.make_topics(5000, 30, 3, length=50, alpha=[0.3, 0.4, 0.5], random_state=0)
    found, fixed = (
        lt.LatentDirichletAllocation(3, random_state=0, **given).fit(sample.counts)
        for given in ({}, {"document_topic_prior": 0.1})
    )
    assert (found.components_ != fixed.components_).any()
    assert topic_distance(fixed.components_, sample.topics)[0].mean() < 0.05


def test_topics_are_probabilities_in_falling_order(sample, model):
    assert model.components_.shape == (K, 300)
    assert (model.components_ >= 0).all()
    np.testing.assert_allclose(model.components_.sum(axis=1), 1, rtol=1e-5)
    assert (np.diff(model.alpha_) <= 0).all()
    assert model.n_iter_ >= 1
    assert model.history_[-1] <= model.history_[0]
    assert model.n_components_ == K
    assert model.n_documents_ == 3000


def test_two_runs_and_any_number_of_threads_give_the_same_topics(sample, model):
    for n_jobs in (1, 2, 3):
        again = clone(model).set_params(n_jobs=n_jobs).fit(sample.counts)
        assert np.array_equal(again.components_, model.components_)
        assert np.array_equal(again.alpha_, model.alpha_)
        assert np.array_equal(again.transform(sample.counts), model.transform(sample.counts))


def test_the_order_of_documents_does_not_matter(sample, model):
    shuffled = sample.counts[np.random.default_rng(0).permutation(3000)]
    again = clone(model).fit(shuffled)
    assert topic_distance(again.components_, model.components_)[0].max() < 1e-3


def test_batches_and_files_give_the_topics_of_the_matrix(sample, model, tmp_path, monkeypatch):
    batches = [sample.counts[:1000], sample.counts[1000:1700], sample.counts[1700:]]
    from_list = clone(model).fit(batches)
    assert topic_distance(from_list.components_, model.components_)[0].max() < 1e-3
    path = tmp_path / "documents.txt.gz"
    lt.datasets.write_bag_of_words(path, lt.sources.as_source(sample.counts))
    source = lt.sources.read_documents(path)
    from_file = clone(model).fit(source)
    assert topic_distance(from_file.components_, model.components_)[0].max() < 1e-3
    # As if the file did not fit into memory.
    from latensor.sources import documents

    monkeypatch.setattr(documents, "IN_MEMORY", 1000)
    copied = clone(model).fit(source)
    assert "passes over the documents" in copied.status_
    truth = [topic_distance(m.components_, sample.topics)[0].mean() for m in (model, copied)]
    assert truth[1] < 1.1 * truth[0]


def test_mixtures_of_topics_are_found_again(sample, model):
    mixtures = model.transform(sample.counts)
    assert mixtures.shape == (3000, K)
    np.testing.assert_allclose(mixtures.sum(axis=1), 1, rtol=1e-5)
    order = topic_distance(model.components_, sample.topics)[1]
    assert np.abs(mixtures[:, order] - sample.mixtures).sum(axis=1).mean() < 0.25
    assert np.array_equal(model.transform(sample.counts[5:9]), mixtures[5:9])
    empty = model.transform(scipy.sparse.csr_array((1, 300)))
    np.testing.assert_allclose(empty[0], model.alpha_ / model.alpha_.sum(), rtol=1e-5)


def test_perplexity_is_that_of_the_truth_and_below_the_unigram(sample, model):
    held = lt.datasets.make_topics(500, 300, K, random_state=1)
    truth = clone(model).set_params(init=sample.topics, refine=0)
    truth.fit(sample.counts)
    test = sample.counts[:500]
    assert model.perplexity(test) < 1.02 * truth.perplexity(test)
    assert model.score(test) == pytest.approx(-np.log(model.perplexity(test)))
    unigram = np.asarray(held.counts.sum(axis=0)).ravel()
    fraction = unigram / unigram.sum()
    entropy = np.exp(-(fraction * np.log(fraction, where=fraction > 0, out=np.zeros(300))).sum())
    assert model.perplexity(test) < 0.9 * entropy


def test_streams_merge_exactly(sample, monkeypatch):
    monkeypatch.setattr(DirichletModel, "pilot_size", 1000)
    monkeypatch.setattr(DirichletModel, "stream_size", 500)
    new = lambda: lt.LatentDirichletAllocation(K, random_state=0)  # noqa: E731
    parts = [sample.counts[i : i + 500] for i in range(0, 3000, 500)]
    whole = new()
    for part in parts:
        whole.partial_fit(part)
    first = new()
    for part in parts[:3]:
        first.partial_fit(part)
    second = first.spawn()
    for part in parts[3:]:
        second.partial_fit(part)
    turned = pickle.loads(pickle.dumps(second)).merge(first)
    merged = first.merge(second)
    np.testing.assert_allclose(merged.components_, turned.components_, atol=1e-10)
    np.testing.assert_allclose(merged.alpha_, turned.alpha_, rtol=1e-8)
    # Workers keep other documents than one stream would: the correction differs by their noise.
    assert topic_distance(merged.components_, whole.components_)[0].max() < 0.01
    sums = [model._stream.sums["words"].finalize().triples for model in (merged, whole)]
    np.testing.assert_allclose(*sums, atol=1e-6 * np.abs(sums[0]).max())
    assert merged.n_documents_ == 3000
    assert "one pass over a stream" in merged.status_
    moments = lt.LatentDirichletAllocation(K, refine=0, random_state=0).fit(sample.counts)
    assert (
        topic_distance(whole.components_, sample.topics)[0].mean()
        < topic_distance(moments.components_, sample.topics)[0].mean()
    )
    assert merged.certificate_.verdict in ("stable", "uncertain")
    other = lt.LatentDirichletAllocation(K, random_state=1)
    for part in parts[:3]:
        other.partial_fit(part)
    with pytest.raises(lt.InvalidInputError, match=r"different (coordinates|subspaces)"):
        whole.merge(other)


@pytest.mark.parametrize("refine", [0, "auto"])
def test_a_short_stream_is_a_fit(sample, refine):
    new = lambda: lt.LatentDirichletAllocation(K, random_state=0, refine=refine)  # noqa: E731
    stream = new()
    for i in range(0, 3000, 700):
        stream.partial_fit(sample.counts[i : i + 700])
    fitted = new().fit(sample.counts)
    np.testing.assert_allclose(stream.components_, fitted.components_, atol=1e-6)
    late = new().partial_fit(sample.counts[:100])
    late.merge(new().partial_fit(sample.counts[100:]))
    np.testing.assert_allclose(late.components_, fitted.components_, atol=1e-6)


def test_looking_changes_nothing_and_a_fit_goes_on(sample, monkeypatch):
    monkeypatch.setattr(DirichletModel, "pilot_size", 1000)
    monkeypatch.setattr(DirichletModel, "stream_size", 500)
    parts = [sample.counts[i : i + 500] for i in range(0, 3000, 500)]
    looked, blind = (lt.LatentDirichletAllocation(K, random_state=0) for _ in range(2))
    for part in parts:
        looked.partial_fit(part)
        assert looked.components_.shape == (K, 300)
        assert looked.certificate_.n_documents == looked.n_documents_
        blind.partial_fit(part)
    assert np.array_equal(looked.components_, blind.components_)
    half = lt.LatentDirichletAllocation(K, random_state=0).fit(sample.counts[:1500])
    before = half.components_.copy()
    for part in parts[3:]:
        half.partial_fit(part)
    error = [topic_distance(c, sample.topics)[0].mean() for c in (before, half.components_)]
    assert error[1] < 0.9 * error[0]
    assert half.n_documents_ == 3000


def test_a_weight_is_the_same_as_repeating_the_document(sample):
    counts = sample.counts[:600]
    weights = np.random.default_rng(0).integers(0, 3, 600)
    repeated = counts[np.repeat(np.arange(600), weights)]
    for refine in (0, 3):
        model = lt.LatentDirichletAllocation(4, random_state=0, refine=refine)
        weighted = clone(model).fit(counts, sample_weight=weights)
        plain = clone(model).fit(repeated)
        np.testing.assert_allclose(weighted.components_, plain.components_, atol=1e-6)


def test_many_topics_go_by_power_steps(sample, monkeypatch):
    monkeypatch.setattr(topics_module, "_MANY", 3)
    powers = lt.LatentDirichletAllocation(K, random_state=0, refine=0).fit(sample.counts)
    assert topic_distance(powers.components_, sample.topics)[0].mean() < 0.2
    assert np.median(powers.certificate_.split_half) < 0.2


@pytest.mark.parametrize(
    "algorithm", [lt.decomposition.PowerMethod(), lt.decomposition.JointDiagonalization()]
)
def test_any_algorithm_for_symmetric_tensors_can_be_given(sample, algorithm):
    found = lt.LatentDirichletAllocation(K, algorithm=algorithm, refine=0, random_state=0)
    found.fit(sample.counts)
    assert topic_distance(found.components_, sample.topics)[0].mean() < 0.2


def test_certificate_knows_the_error_and_says_so(sample):
    moments = lt.LatentDirichletAllocation(K, refine=0, random_state=0).fit(sample.counts)
    certificate = moments.certificate_
    errors, order = topic_distance(moments.components_, sample.topics)
    ratio = certificate.split_half[order] / errors
    assert 0.5 < np.median(ratio) < 2.0
    assert certificate.verdict == "stable"
    assert "Verdict: stable" in str(certificate)
    assert certificate.eigenvalue_ratio > 4
    few = lt.LatentDirichletAllocation(12, refine=0, random_state=0).fit(sample.counts[:150])
    assert few.certificate_.verdict != "stable"


@pytest.mark.parametrize("refine", [0, "auto"])
def test_intervals_cover_the_truth(refine):
    planted = lt.datasets.make_topics(2000, 50, 4, random_state=1)
    fitted = lt.LatentDirichletAllocation(4, refine=refine, random_state=0).fit(planted.counts)
    ends = fitted.intervals(planted.counts, n_resamples=100, n_groups=20)["components"]
    assert ends.low.shape == ends.high.shape == (4, 50)
    _, order = topic_distance(fitted.components_, planted.topics)
    frequent = planted.topics > 2e-3
    covered = (ends.low[order] <= planted.topics) & (planted.topics <= ends.high[order])
    assert 0.85 < covered[frequent].mean() <= 1.0


def test_documents_drawn_for_intervals_are_like_those_given():
    planted = lt.datasets.make_topics(2000, 50, 4, random_state=1)
    fitted = lt.LatentDirichletAllocation(4, random_state=0).fit(planted.counts)
    answer, frame = fitted._found()
    keys = np.arange(2000, dtype=np.uint64)
    like = Batch((planted.counts.astype(np.float32),), np.ones(2000), keys)
    drawn = fitted._model().drawn_like(frame, answer.state, like, np.random.default_rng(0))
    assert drawn.rows.dtype == np.float32
    assert (drawn.rows.sum(axis=1) == like.rows.sum(axis=1)).all()
    frequency = [np.asarray(each.rows.sum(axis=0)).ravel() for each in (drawn, like)]
    assert np.corrcoef(*frequency)[0, 1] > 0.99


def test_words_coherence_and_exports(sample, model):
    vocabulary = [f"word{j}" for j in range(300)]
    tops = model.top_words(4, vocabulary)
    best = np.argmax(model.components_, axis=1)
    assert [words[0] for words in tops] == [f"word{j}" for j in best]
    assert model.top_words(2)[0][0] == best[0]
    npmi, mass = model.coherence(sample.counts), model.coherence(sample.counts, "u_mass")
    assert npmi.shape == (K,)
    assert (npmi > 0).all()
    assert (mass < 0).all()
    inputs = model.pyldavis_inputs(sample.counts)
    assert inputs["doc_topic_dists"].shape == (3000, K)
    assert len(inputs["vocab"]) == 300
    np.testing.assert_allclose(inputs["topic_term_dists"].sum(axis=1), 1, rtol=1e-5)
    assert np.array_equal(model.get_topics(), model.components_)
    counts, fractions = model.sample(5, length=50, random_state=0)
    assert counts.sum(axis=1).tolist() == [50] * 5
    assert fractions.shape == (5, K)


def test_frames_and_their_names(sample):
    frame = pd.DataFrame(
        sample.counts[:200].toarray(), columns=[f"w{j}" for j in range(300)]
    ).astype(int)
    model = lt.LatentDirichletAllocation(3, random_state=0).fit(frame)
    assert model.vocabulary_[:2] == ["w0", "w1"]
    assert model.top_words(1)[0][0].startswith("w")
    assert model.set_output(transform="pandas").transform(frame).columns[0].startswith("latent")


def test_saved_models_answer_like_the_original(sample, model, tmp_path):
    path = model.save(tmp_path / "model.npz")
    loaded = lt.LatentDirichletAllocation.load(path)
    assert np.array_equal(loaded.transform(sample.counts[:20]), model.transform(sample.counts[:20]))
    assert loaded.certificate_.verdict == model.certificate_.verdict
    assert loaded.get_params()["n_components"] == K
    other = lt.SingleTopic(3, random_state=0).fit(sample.counts).save(tmp_path / "single.npz")
    with pytest.raises(lt.InvalidInputError, match="SingleTopic"):
        lt.LatentDirichletAllocation.load(other)
    for name, content in (("text.npz", b"no zip"), ("empty.npz", b"")):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(lt.InvalidInputError, match="not a saved topic model"):
            lt.LatentDirichletAllocation.load(tmp_path / name)
    with pytest.raises(lt.InvalidInputError, match="does not exist"):
        lt.LatentDirichletAllocation.load(tmp_path / "nothing.npz")
    with pytest.raises(lt.InvalidInputError, match=r"folder .* does not exist"):
        model.save(tmp_path / "no" / "model.npz")


def test_a_callback_hears_of_the_stages(sample):
    stages = []
    lt.LatentDirichletAllocation(
        3, random_state=0, callback=lambda stage, fraction: stages.append(stage)
    ).fit(sample.counts)
    assert [stage for stage, _ in itertools.groupby(stages)] == [
        "reading",
        "subspace",
        "moments",
        "decomposition",
        "refinement",
        "weights",
    ]


def test_precision_follows_the_counts(sample):
    counts = sample.counts[:500]
    wide = lt.LatentDirichletAllocation(3, random_state=0).fit(counts.astype(np.float64))
    narrow = lt.LatentDirichletAllocation(3, random_state=0).fit(counts.astype(np.float32))
    assert wide.components_.dtype == np.float64
    assert narrow.components_.dtype == np.float32
    whole = lt.LatentDirichletAllocation(3, random_state=0).fit(counts.astype(np.int64))
    assert np.array_equal(whole.components_, narrow.components_)
    assert topic_distance(wide.components_, narrow.components_)[0].max() < 1e-2


def test_empty_short_and_unseen(sample):
    counts = sample.counts[:400].toarray()
    counts[:50] = 0
    counts[50:60] = 0
    counts[50:60, 3] = 1
    counts[:, 7] = 0
    model = lt.LatentDirichletAllocation(3, random_state=0).fit(counts)
    assert model.n_empty_documents_ == 50
    assert model.certificate_.n_short == 10
    assert (model.components_[:, 7] > 0).all()
    assert model.components_[:, 7].max() < 1e-4
    assert np.isfinite(model.transform(counts)).all()


def _with(counts, place, value):
    changed = counts.astype(np.float64).tolil()
    changed[place] = value
    return changed.tocsr()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: _with(c, (2, 3), -1), "negative"),
        (lambda c: _with(c, (2, 3), 0.5), "not of TfidfVectorizer"),
        (lambda c: _with(c, (2, 3), np.nan), "NaN"),
        (lambda c: c * 0, "empty"),
        (lambda c: c.toarray()[0], "2D"),
        (lambda c: (row for row in [c]), "read only once"),
        (lambda c: "corpus.txt", "read_documents"),
    ],
)
def test_bad_documents_are_refused_with_the_reason(sample, change, message):
    with pytest.raises(ValueError, match=message):
        lt.LatentDirichletAllocation(3).fit(change(sample.counts[:50]))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"n_components": 0}, "n_components=0"),
        ({"n_components": "many"}, "n_components='many'"),
        ({"refine": -1}, "refine=-1"),
        ({"topic_word_prior": 0.0}, "topic_word_prior=0.0"),
        ({"n_jobs": 0}, "n_jobs=0"),
        ({"algorithm": "foo"}, "algorithm='foo'"),
        ({"alpha0": 0.0}, "alpha0=0.0"),
        ({"init": np.ones((3, 2))}, "init must be topics of shape"),
        ({"init": -np.ones((3, 300))}, "init must hold"),
    ],
)
def test_bad_settings_are_refused(sample, settings, message):
    with pytest.raises(lt.InvalidInputError, match=message):
        lt.LatentDirichletAllocation(**{"n_components": 3, **settings}).fit(sample.counts)


def test_what_cannot_be_identified_is_refused_with_the_largest_number(sample):
    with pytest.raises(lt.NotIdentifiableError, match="5 documents"):
        lt.LatentDirichletAllocation(6).fit(sample.counts[:5])
    with pytest.raises(lt.NotIdentifiableError, match=r"exceeds the [0-9]+ directions"):
        lt.LatentDirichletAllocation(6).fit(sample.counts[:, :4])


def test_documents_over_other_words_are_refused(sample, model):
    with pytest.raises(ValueError, match="features"):
        model.transform(sample.counts[:, :10])
    with pytest.raises(lt.InvalidInputError, match="vocabulary has 2 words"):
        model.top_words(3, ["a", "b"])
    with pytest.raises(lt.InvalidInputError, match="10 words, but the model 300"):
        model.transform(lt.sources.MatrixSource(sample.counts[:, :10]))


def test_certificate_is_plain_data(model):
    json.dumps([statement.text for statement in model.certificate_.statements])
    assert len(model.certificate_.topic_levels()) == K


def test_two_topics_need_the_concentration():
    topics, alpha = np.random.default_rng(0).dirichlet(np.full(6, 0.5), 2), np.array([0.3, 0.5])
    counts, weights = population(topics, fraction_moment(alpha, 3))
    options = {"refine": 0, "random_state": 0}
    with pytest.warns(UserWarning, match="give alpha0"):
        assumed = lt.LatentDirichletAllocation(2, **options).fit(counts, sample_weight=weights)
    assert assumed.alpha_.sum() == pytest.approx(1.0)
    known = lt.LatentDirichletAllocation(2, alpha0=0.8, **options)
    known.fit(counts, sample_weight=1e10 * weights)
    distances, order = topic_distance(known.components_, topics)
    assert distances.max() < 1e-8
    np.testing.assert_allclose(known.alpha_[order], alpha, rtol=1e-8)


@pytest.mark.parametrize("model", [lt.LatentDirichletAllocation, lt.SingleTopic])
@pytest.mark.parametrize("k", [1, 2])
@pytest.mark.parametrize("refine", [0, 1, "auto"])
def test_no_word_is_impossible(model, k, refine):
    counts = lt.datasets.make_single_topic(60, 20, 2, length=8, random_state=0).counts.toarray()
    counts[:, [3, 7]] = 0
    found = model(
        k, refine=refine, random_state=0, **({"alpha0": 1.0} if "Dir" in str(model) else {})
    )
    found.fit(counts)
    assert (found.components_[:, [3, 7]] > 0).all()
    unseen = np.zeros((1, 20), int)
    unseen[0, [3, 7]] = 1
    assert np.isfinite(found.score(unseen))


def test_weights_beyond_counting_are_refused(sample):
    for size in (1e100, 1e-100):
        with pytest.raises(lt.InvalidInputError, match="sample_weight is 1e"):
            lt.LatentDirichletAllocation(3).fit(sample.counts, sample_weight=np.full(3000, size))


def test_a_stream_without_words_says_so():
    stream = lt.SingleTopic(6).partial_fit(np.zeros((1, 3)))
    with pytest.raises(lt.InvalidInputError, match="empty"):
        stream.spawn()


@pytest.mark.parametrize("kind", [lt.LatentDirichletAllocation, lt.SingleTopic])
def test_a_resumable_file_goes_on_to_the_same_bits(sample, kind, tmp_path, monkeypatch):
    monkeypatch.setattr(topics_module.TopicsModel, "stream_size", 300)
    fitted = kind(3, random_state=0).fit(sample.counts[:1000])
    loaded = lt.load(fitted.save(tmp_path / "model.npz", resumable=True))
    for each in (fitted, loaded):
        each.partial_fit(sample.counts[1000:])
    assert np.array_equal(fitted.components_, loaded.components_)
    closed = lt.load(fitted.save(tmp_path / "closed.npz"))
    with pytest.raises(lt.InvalidInputError, match="resumable=True"):
        closed.partial_fit(sample.counts)
