"""The UCI bag-of-words writer: exact text, read back whole, atomic, and what is refused."""

import gzip
import os

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

from latensor.datasets import PlantedDocuments, write_bag_of_words
from latensor.exceptions import InvalidInputError
from latensor.sources import read_documents


class Batches:
    """A source made of given batches; `after` is called once they are all given."""

    def __init__(self, batches, n_features, after=None):
        self.batches, self.n_features, self.after = batches, n_features, after

    def __iter__(self):
        yield from self.batches
        if self.after is not None:
            self.after(self)


def test_the_text_is_exactly_the_format(tmp_path):
    counts = np.zeros((3, 12))
    counts[0, 0], counts[0, 11], counts[2, 9] = 1, 10, 100
    path = write_bag_of_words(tmp_path / "docword.txt", counts)
    assert path.read_bytes() == b"3\n12\n3\n1 1 1\n1 12 10\n3 10 100\n"


@pytest.mark.parametrize("name", ["docword.txt", "docword.txt.gz"])
def test_a_source_comes_back_from_the_file(tmp_path, name):
    source = PlantedDocuments(230, 120, 4, length=8, batch_size=50, random_state=0)
    path = write_bag_of_words(tmp_path / name, source)
    opener = gzip.open if name.endswith(".gz") else open
    with opener(path, "rt") as stream:
        n, v, entries = (int(next(stream)) for _ in range(3))
        table = np.loadtxt(stream, dtype=int, ndmin=2)
    whole = scipy.sparse.vstack(list(source))
    assert (n, v, entries) == (230, 120, whole.nnz)
    assert len(table) == entries
    found = scipy.sparse.coo_array((table[:, 2], (table[:, 0] - 1, table[:, 1] - 1)), whole.shape)
    assert (scipy.sparse.csr_array(found) != whole).nnz == 0
    read = scipy.sparse.vstack(list(read_documents(path)))
    assert read.shape == whole.shape
    assert (read != whole).nnz == 0


def test_the_same_documents_make_the_same_compressed_bytes(tmp_path):
    counts = np.arange(12).reshape(3, 4)
    one = write_bag_of_words(tmp_path / "one.gz", counts).read_bytes()
    assert one == write_bag_of_words(tmp_path / "two.gz", counts).read_bytes()


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.lists(st.integers(0, 10**6), min_size=3, max_size=3), min_size=1, max_size=12),
    st.integers(1, 12),
)
def test_any_counts_in_any_batches_give_one_text(tmp_path_factory, rows, cut):
    folder = tmp_path_factory.mktemp("counts")
    counts = np.array(rows)
    parts = Batches([counts[:cut], counts[cut:]], 3)
    whole = write_bag_of_words(folder / "whole", counts).read_text()
    assert write_bag_of_words(folder / "parts", parts).read_text() == whole
    lines = [f"{i + 1} {j + 1} {counts[i, j]}" for i, j in zip(*np.nonzero(counts), strict=True)]
    assert whole == "\n".join([str(len(rows)), "3", str(len(lines)), *lines, ""])


def test_duplicates_are_summed_and_zeros_left_out_without_touching_the_matrix(tmp_path):
    data = np.array([1.0, 2.0, 0.0])
    counts = scipy.sparse.csr_array((data, np.array([1, 1, 0]), np.array([0, 2, 3])), shape=(2, 2))
    path = write_bag_of_words(tmp_path / "docword.txt", counts)
    assert path.read_text() == "2\n2\n1\n1 2 3\n"
    assert np.array_equal(counts.data, [1, 2, 0])


def interrupt(source):
    raise KeyboardInterrupt


def shrink(source):
    source.batches = source.batches[:-1]


@pytest.mark.parametrize(
    ("after", "error"), [(interrupt, KeyboardInterrupt), (shrink, InvalidInputError)]
)
def test_what_fails_leaves_the_old_file_and_nothing_else(tmp_path, after, error):
    path = tmp_path / "docword.txt"
    path.write_text("old")
    passes = []

    def second_time(source):
        passes.append(1)
        if after is shrink or len(passes) == 2:
            after(source)

    source = Batches([np.eye(3), np.eye(3)], 3, second_time)
    with pytest.raises(error):
        write_bag_of_words(path, source)
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["docword.txt"]


def test_the_file_is_as_readable_as_any_other(tmp_path):
    plain = tmp_path / "plain"
    plain.touch()
    path = write_bag_of_words(tmp_path / "docword.txt", np.eye(2))
    assert path.stat().st_mode == plain.stat().st_mode


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (np.array([[0.5, 1.0]]), "holds 0.5"),
        (np.array([[-1.0, 1.0]]), "holds -1"),
        (np.array([[np.nan, 1.0]]), "holds nan"),
        (Batches([np.eye(2), np.eye(3)], 2), "3 columns"),
        (iter([np.eye(2)]), "anew every time"),
        ([np.eye(2)], "n_features"),
    ],
)
def test_bad_sources_are_named(tmp_path, source, message):
    with pytest.raises(InvalidInputError, match=message):
        write_bag_of_words(tmp_path / "docword.txt", source)
    assert os.listdir(tmp_path) == []


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(InvalidInputError, match="does not exist"):
        write_bag_of_words(tmp_path / "nowhere" / "docword.txt", np.eye(2))
