"""What travels: the bytes of one message, and that where partitions meet changes no bit."""

import itertools
import pickle

import numpy as np
import pytest
import scipy.sparse

import latensor as lt
from engines.partition_cases import Watching
from latensor.engines.tree import aligned_groups, joined, total
from latensor.models.topics.families import MixedTopicsFamily, TopicState
from latensor.moments.batch import Batch
from latensor.moments.row_sums import CovarianceSums, CrossCovarianceSums, ThirdPowerSums
from latensor.moments.word_core import WordCoreSums
from latensor.moments.word_power_sums import WordPowerSums
from latensor.moments.word_totals import WordTotalSums
from latensor.moments.word_triples import WordRows, WordTripleSums
from latensor.moments.words import WordPairSums
from latensor.refinement.family import Statistics


def batches(n_words, n_documents=64, count=1):
    rng = np.random.default_rng(0)
    for number in range(count):
        rows = scipy.sparse.random_array(
            (n_documents, n_words), density=20 / n_words, rng=rng, format="csr", dtype=np.float32
        )
        rows.data = np.ceil(rows.data * 3)
        keys = np.arange(n_documents, dtype=np.uint64) + np.uint64(number * n_documents)
        yield Batch((scipy.sparse.csr_array(rows),), np.ones(n_documents), keys)


def word_sums(n_words, rank, n_topics, n_rows):
    """Accumulators of a fit of topics, by the name of their row in the table."""
    rng = np.random.default_rng(1)
    wide = rng.standard_normal((n_words, rank)).astype(np.float32)
    narrow = rng.standard_normal((n_words, n_topics))
    frame = (np.ones(n_words), 100.0, True)
    rows = WordRows.drawn(rng.uniform(1, 100, n_words), n_rows, rng)
    state = TopicState(
        np.full((n_topics, n_words), 1 / n_words, dtype=np.float32),
        *(np.full(n_topics, 1 / n_topics) for _ in range(3)),
    )
    return {
        "totals": WordTotalSums(n_words),
        "pairs": WordPairSums(wide, *frame),
        "last subspace pass": WordCoreSums(wide, *frame),
        "triples": WordTripleSums(narrow, *frame, rows=rows),
        "powers": WordPowerSums(narrow, *frame, rows=rows),
        "core": WordCoreSums(narrow, *frame),
        "refinement": Statistics(MixedTopicsFamily(0.1, 0.01), state),
    }


def rows_of(n_features, count=1):
    rng = np.random.default_rng(2)
    for number in range(count):
        rows = rng.standard_normal((50, n_features))
        keys = np.arange(50, dtype=np.uint64) + np.uint64(50 * number)
        yield Batch((rows, rows[:, ::-1]), rng.uniform(0.5, 2, 50), keys)


def row_sums(n_features, rank):
    centre = np.full(n_features, 0.1)
    return {
        "covariance": CovarianceSums(centre),
        "cross-covariance": CrossCovarianceSums(centre, centre),
        "third powers": ThirdPowerSums(centre, np.eye(n_features)[:, :rank]),
    }


# Megabytes that a message needs, V = 50,000 words, k = 100 topics (subspace 130), d = 1,000.
NEEDED = {
    "totals": 0.81,
    "pairs": 26.5,
    "last subspace pass": 0.3,
    "triples": 2.8,
    "powers": 20.0,
    "core": 0.1,
    "refinement": 20.1,
    "covariance": 4.1,
    "third powers": 4.1,
}


@pytest.fixture(scope="module")
def sizes():
    found = {}
    [documents], [rows] = batches(50_000), rows_of(1000)
    for name, start in word_sums(50_000, 130, 100, 1500).items():
        found[name] = len(pickle.dumps(start.update(documents).message(), 5)) / 1e6
    for name, start in row_sums(1000, 40).items():
        found[name] = len(pickle.dumps(start.update(rows).message(), 5)) / 1e6
    return found


@pytest.mark.parametrize("name", NEEDED)
def test_messages_are_as_small_as_they_need_to_be(sizes, name):
    assert sizes[name] <= NEEDED[name]


CASES = {
    **{name: (start, batches, 40) for name, start in word_sums(40, 5, 3, 10).items()},
    **{name: (start, rows_of, 6) for name, start in row_sums(6, 3).items()},
}


@pytest.mark.parametrize("name", CASES)
def test_where_partitions_meet_changes_no_bit(name):
    """Some workers merge before they send, others send what they have."""
    start, units, size = CASES[name]
    count = 7
    leaves = [
        {(0, i): start.update(batch).message()} for i, batch in enumerate(units(size, count=count))
    ]

    def travelled(parts):
        received = [{at: start.received(m) for at, m in part.items()} for part in parts]
        return {at: v.message() for at, v in joined(received).items()}

    expected = None
    for group in (1, 2, 3, 4, 7):
        parts = [travelled(leaves[i : i + group]) for i in range(0, count, group)]
        nodes = {at: start.received(m) for part in parts for at, m in part.items()}
        found = pickle.dumps(total(joined([nodes]), count, start).message())
        expected = expected or found
        assert found == expected
    assert pickle.dumps(start.received(pickle.loads(found)).message()) == found


@pytest.mark.parametrize("n_groups", [1, 2, 3, 8, 50])
def test_workers_get_nearly_equal_runs_of_whole_subtrees(n_groups):
    for n_leaves in (1, 2, 7, 16, 40, 100, 400, 1001):
        groups = aligned_groups(n_leaves, n_groups)
        assert list(itertools.chain(*groups)) == list(range(n_leaves))
        assert len(groups) <= n_groups
        longest = max(map(len, groups))
        assert longest <= max(1.1 * n_leaves / n_groups, -(-n_leaves // n_groups))
        for group in groups:
            sent = joined({(0, leaf): Counting(1)} for leaf in group)
            assert len(sent) <= 2 * np.log2(n_leaves + 1)
    assert [len(group) for group in aligned_groups(40, 2)] == [20, 20]


class Counting:
    """A sum of ones."""

    def __init__(self, count):
        self.count = count

    def merge(self, other):
        return Counting(self.count + other.count)


def test_a_sample_is_sent_once():
    """Where the number of units is known, every worker sends its part of the sample alone."""
    from latensor.moments.unit_sample import Sample

    start = Sample.expecting(100, 0, 100 * 50)
    parts = [start.update(batch) for batch in itertools.islice(rows_of(4, 100), 100)]
    sent = [len(part.message()[0]) for part in parts]
    assert sum(sent) < 300


def test_progress_is_told_once_a_partition():
    rng = np.random.default_rng(0)
    parts = [[rng.standard_normal((50, 3))] for _ in range(4)]
    seen = Watching()
    lt.PCA(1).fit(lt.sources.partitions(parts), callback=seen)
    assert len(seen.partitions) == 4 * len(seen.passes)
    assert [fraction for _, fraction in seen.partitions[:4]] == [0.25, 0.5, 0.75, 1]
    told = []
    counts = [[scipy.sparse.csr_array(rng.poisson(1.0, (50, 20)) * 1.0)] for _ in range(2)]
    model = lt.LatentDirichletAllocation(2, random_state=0, refine=1)
    model.set_params(callback=lambda *arguments: told.append(arguments))
    model.fit(lt.sources.partitions(counts))
    assert ("reading", 0.5) in told
    assert ("refinement", 1.0) in told
