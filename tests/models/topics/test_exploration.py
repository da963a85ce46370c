"""Finding topics, following them over time and groups, joining them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.cluster.hierarchy import fcluster
from scipy.sparse import csr_array

import latensor as lt
from latensor.diagnostics.coherence import coherence
from latensor.models.topics.intervals import FractionSums, binned, grouped

SAMPLE = lt.datasets.make_topics(600, 40, 4, alpha0=0.4, random_state=0)


@pytest.fixture(scope="module")
def model() -> Any:
    return lt.LatentDirichletAllocation(4, random_state=0).fit(SAMPLE.counts)


def test_groups_hold_what_their_documents_hold(model: Any) -> None:
    groups = np.where(np.arange(600) % 3 == 0, "a", "b")
    found = model.topics_by_group(SAMPLE.counts, groups)
    assert found.labels == ["a", "b"]
    assert found.n_documents.tolist() == [200, 400]
    mixtures = model.transform(SAMPLE.counts)
    lengths = np.asarray(SAMPLE.counts.sum(axis=1)).ravel()
    for row, label in enumerate(found.labels):
        chosen = groups == label
        expected = lengths[chosen] @ mixtures[chosen] / lengths[chosen].sum()
        np.testing.assert_allclose(found.fractions[row], expected, rtol=1e-5)
    np.testing.assert_allclose(found.fractions.sum(axis=1), 1, rtol=1e-5)
    assert found.to_frame().shape == (2, 4)


def test_errors_are_those_of_drawing_documents_again(model: Any) -> None:
    groups = np.zeros(600, dtype=int)
    found = model.topics_by_group(SAMPLE.counts, groups)
    mixtures = model.transform(SAMPLE.counts).astype(float)
    lengths = np.asarray(SAMPLE.counts.sum(axis=1)).ravel()
    rng = np.random.default_rng(0)
    drawn = []
    for _ in range(400):
        rows = rng.integers(600, size=600)
        drawn.append(lengths[rows] @ mixtures[rows] / lengths[rows].sum())
    # A standard deviation of 400 draws is known to 1 / sqrt(800).
    np.testing.assert_allclose(found.errors[0], np.std(drawn, axis=0), rtol=5 / np.sqrt(800))


def test_time_is_cut_into_equal_intervals(model: Any) -> None:
    times = np.arange(600) / 60.0
    found = model.topics_over_time(SAMPLE.counts, times, n_bins=5)
    assert found.n_documents.tolist() == [120] * 5
    np.testing.assert_allclose(found.labels, np.linspace(0, times[-1], 6)[:-1])
    dates = np.datetime64("2026-01-01") + np.arange(600)
    by_date = model.topics_over_time(SAMPLE.counts, dates, n_bins=5)
    np.testing.assert_allclose(by_date.fractions, found.fractions)
    assert by_date.labels[0].year == 2026
    as_text = model.topics_over_time(SAMPLE.counts, dates.astype(str).tolist(), n_bins=5)
    np.testing.assert_array_equal(as_text.fractions, by_date.fractions)


@pytest.mark.parametrize(
    ("first", "last", "labels"),
    [
        ("2024-02-28", "2024-03-02", ["2024-02-28", "2024-02-29", "2024-03-01", "2024-03-02"]),
        # The 13th was a Monday.
        (
            "2024-05-14",
            "2024-06-12",
            [f"2024-{day}" for day in ["05-13", "05-20", "05-27", "06-03", "06-10"]],
        ),
        ("2023-10-05", "2024-11-30", ["2023-10", ..., "2024-11"]),
        ("2019-02-01", "2023-12-31", ["2019-01", "2019-04", ..., "2023-10"]),
        ("1999-06-01", "2012-01-01", ["1999", "2000", ..., "2012"]),
        ("1801-01-01", "2012-01-01", ["1800", "1810", ..., "2010"]),
    ],
)
def test_the_calendar_gives_intervals(first: str, last: str, labels: list[Any]) -> None:
    dates = np.array([first, last, first], dtype="datetime64[D]")
    found = binned(dates, "calendar")
    if ... in labels:
        gap = labels.index(...)
        after = len(labels) - gap - 1
        assert found.labels[:gap] == labels[:gap]
        assert found.labels[-after:] == labels[-after:]
    else:
        assert found.labels == labels
    assert len(found.labels) <= 24
    assert found.numbers.tolist() == [0, len(found.labels) - 1, 0]


def test_documents_that_belong_nowhere_are_left_out(model: Any) -> None:
    known = np.arange(600) % 2 == 0
    sums = FractionSums(grouped(np.zeros(600, int), known), 4)
    sums.add(model.transform(SAMPLE.counts), np.asarray(SAMPLE.counts.sum(axis=1)).ravel())
    half = model.topics_by_group(SAMPLE.counts[::2], np.zeros(300, int))
    np.testing.assert_allclose(sums.finish().fractions, half.fractions, rtol=1e-5)
    np.testing.assert_allclose(sums.finish().errors, half.errors, rtol=1e-4)


def test_intervals_without_documents_are_not_known(model: Any) -> None:
    times = np.r_[np.zeros(300), np.full(300, 10.0)]
    found = model.topics_over_time(SAMPLE.counts, times, n_bins=4)
    assert found.n_documents.tolist() == [300, 0, 0, 300]
    assert np.isnan(found.fractions[1:3]).all()
    assert np.isnan(found.errors[1:3]).all()


def test_words_find_their_topics() -> None:
    texts = ["cat dog cat pet", "tensor moment tensor topic"] * 30
    model = lt.LatentDirichletAllocation(2, random_state=0).fit(texts)
    topic, chance = model.find("cat")[0]
    assert chance > 0.9
    assert "cat" in model.top_words(4)[topic]
    assert model.find("pet dog cat cat")[0][0] == topic
    assert len(model.find("cat", 1)) == 1
    with pytest.raises(lt.InvalidInputError, match="holds no word"):
        model.find("zebra zebra")


def test_joined_topics_are_mixtures_of_their_topics(model: Any, tmp_path: Any) -> None:
    before = model.components_.copy()
    merged = model.merge_topics([[0, 2]])
    np.testing.assert_array_equal(model.components_, before)
    assert merged.n_components_ == 3
    assert np.all(np.diff(merged.alpha_) <= 0)
    np.testing.assert_allclose(merged.alpha_.sum(), model.alpha_.sum())
    np.testing.assert_allclose(merged.components_.sum(axis=1), 1, rtol=1e-5)
    place = int(np.argmin(np.abs(merged.alpha_ - model.alpha_[[0, 2]].sum())))
    fraction = model.alpha_[[0, 2]] / model.alpha_[[0, 2]].sum()
    np.testing.assert_allclose(merged.components_[place], fraction @ before[[0, 2]], rtol=1e-5)
    assert merged.transform(SAMPLE.counts[:3]).shape == (3, 3)
    merged.save(tmp_path / "merged.npz")
    np.testing.assert_array_equal(lt.load(tmp_path / "merged.npz").alpha_, merged.alpha_)
    assert "joined" in merged.status_


def test_a_hierarchy_can_be_cut_and_joined(model: Any) -> None:
    tree = model.hierarchy()
    assert tree.shape == (3, 4)
    labels = fcluster(tree, 2, "maxclust")
    groups = [np.flatnonzero(labels == label).tolist() for label in (1, 2)]
    assert model.merge_topics(groups).n_components_ == 2


def test_c_v_tells_topics_from_chance(model: Any) -> None:
    found = model.coherence(SAMPLE.counts, "c_v", n_words=5)
    assert found.shape == (4,)
    assert ((found > 0) & (found <= 1 + 1e-12)).all()
    # Two words that are always together, and never without each other.
    counts = np.array([[1, 1, 0, 0], [0, 0, 1, 1]] * 20)
    together = coherence([[0, 1]], [csr_array(counts)], "c_v")
    np.testing.assert_allclose(together, 1, atol=1e-6)


def test_one_moment_is_one_interval(model: Any) -> None:
    found = model.topics_over_time(SAMPLE.counts, np.full(600, 3))
    assert found.labels == [3]
    assert found.n_documents.tolist() == [600]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda m: m.topics_by_group(SAMPLE.counts, [1, 2]), "600 documents"),
        (lambda m: m.topics_over_time(SAMPLE.counts, ["soon"] * 600), "dates"),
        (lambda m: m.topics_over_time(SAMPLE.counts, [np.nan] * 600), "NaN"),
        (lambda m: m.topics_by_group(SAMPLE.counts, np.ones((600, 2))), "one value per document"),
        (lambda m: m.merge_topics([[0, 9]]), "0 to 3"),
        (lambda m: m.merge_topics([[0, 1], [1]]), "at most once"),
        (lambda m: m.merge_topics([[]]), "empty"),
        (lambda m: m.merge_topics([0, 1]), r"as \[\[0, 3\]"),
        (lambda m: m.topics_by_group(SAMPLE.counts, [None, "a"] * 300), r"groups\[0\] is None"),
        (lambda m: m.topics_by_group(SAMPLE.counts, [1.0, np.nan] * 300), r"groups\[1\] is nan"),
        (lambda m: m.topics_by_group(SAMPLE.counts, [1, "a"] * 300), "one kind"),
        (lambda m: m.find(5), "query=5"),
        (lambda m: m.top_words(-1), "n_words=-1"),
        (lambda m: m.top_words(0), "n_words=0"),
        (lambda m: m.coherence(SAMPLE.counts, n_words=-3), "n_words=-3"),
    ],
)
def test_bad_input(model: Any, call: Any, words: str) -> None:
    with pytest.raises(lt.InvalidInputError, match=words):
        call(model)
