"""Words that single documents repeat in bursts, and what they must not do to the choice."""

from functools import partial

import numpy as np
import pytest
import scipy.sparse

import latensor as lt
from latensor.models.topics.bursts import word_caps
from latensor.moments.batch import Batch
from latensor.moments.documents import DocumentBatch, capped
from latensor.moments.sums import Mapped
from latensor.moments.word_totals import WordTotalSums


def batch_of(counts, weights=None, kind=Batch):
    rows = scipy.sparse.csr_array(np.asarray(counts, dtype=float))
    n = rows.shape[0]
    return kind((rows,), np.ones(n) if weights is None else weights, np.arange(n, dtype=np.uint64))


def documents_with_bursts(seed):
    """Eight planted topics, and sixteen documents that repeat words of a few hundreds of times."""
    planted = lt.datasets.make_topics(3000, 400, 8, random_state=seed)
    counts, rng = planted.counts.tolil(), np.random.default_rng(seed)
    words = rng.choice(400, 40, replace=False)
    for document in rng.choice(3000, 16, replace=False):
        for word in rng.choice(words, 5, replace=False):
            counts[document, word] += rng.integers(20, 400)
    return planted, counts.tocsr()


def test_a_cap_is_what_forty_documents_reach():
    counts = np.zeros((100, 4))
    counts[:39, 0], counts[39:60, 0] = 9, 3
    counts[:40, 1], counts[40:, 1] = 7, 2
    counts[:10, 2] = np.arange(2, 12)
    assert word_caps(batch_of(counts)).tolist() == [3, 7, 2, 0]
    # A document of weight three is three documents.
    weights = np.ones(100)
    weights[:2] = 3.0
    mean = weights.mean()
    expected = 9 if (39 + 4) / mean >= 40 else 3
    assert word_caps(batch_of(counts, weights))[0] == expected
    assert np.array_equal(
        word_caps(batch_of(counts, 5 * weights)), word_caps(batch_of(counts, weights))
    )


@pytest.mark.parametrize("kind", [Batch, DocumentBatch])
def test_sums_of_capped_counts_are_those_of_capped_documents(kind):
    counts = np.random.default_rng(0).poisson(2, (50, 6))
    caps = np.array([1.0, 2, 3, 1, 9, 0])
    batch = batch_of(counts, kind=kind)
    found = Mapped(WordTotalSums(6), partial(capped, caps=caps)).update(batch).inner.finalize()
    assert np.array_equal(found.totals, np.minimum(counts, caps).sum(axis=0))
    assert np.array_equal(batch.rows.toarray(), counts)
    again = capped(batch, caps)
    assert (capped(batch, caps) is again) == (kind is DocumentBatch)
    assert np.array_equal(capped(batch, 2 * caps).rows.toarray(), np.minimum(counts, 2 * caps))


@pytest.mark.slow
def test_bursts_need_not_hide_that_there_are_topics(tmp_path):
    # Of eleven such corpora (seeds 0 to 5 and 8 to 12) caps are used for two, where
    # one topic is found without and two with them; eight were planted.
    counts = documents_with_bursts(2)[1]
    model = lt.LatentDirichletAllocation("auto", random_state=0).fit(counts)
    assert model.n_components_ > 1
    assert "bursts" in model.selection_.reason
    assert model.selection_.caps.shape == (400,)
    again = lt.load(model.save(tmp_path / "model.latensor"))
    assert again.certificate_.verdict == model.certificate_.verdict


def test_planted_documents_have_no_bursts():
    counts = lt.datasets.make_topics(2000, 200, 3, lengths="lognormal", random_state=0).counts
    model = lt.LatentDirichletAllocation("auto", random_state=0).fit(counts)
    assert model.n_components_ == 3
    assert model.selection_.caps is None
    assert "bursts" not in model.selection_.reason
