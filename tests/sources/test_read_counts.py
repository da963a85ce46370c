"""Files of counts: UCI bag-of-words and LDA-C, written by hand and at random."""

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

from latensor.sources import read_documents
from latensor.sources.digits import whole_number, whole_numbers

from .corpora import assert_well_formed, dense, write

COUNTS = np.array([[0, 2, 0, 1], [0, 0, 0, 0], [3, 0, 0, 0], [1, 1, 1, 70000], [0, 0, 0, 0]])
WORDS = ["the", "cat", "of", "mat"]


def as_uci(counts):
    rows, columns = np.nonzero(counts)
    head = f"{counts.shape[0]}\n{counts.shape[1]}\n{len(rows)}\n"
    return head + "".join(
        f"{i + 1} {j + 1} {counts[i, j]}\n" for i, j in zip(rows, columns, strict=True)
    )


def as_ldac(counts):
    lines = []
    for row in counts:
        words = np.flatnonzero(row)
        lines.append(" ".join([str(len(words)), *(f"{j}:{row[j]}" for j in words)]))
    return "\n".join(lines) + "\n"


WAYS = {"docword.a.txt": as_uci, "a.ldac": as_ldac}


@pytest.mark.parametrize("name", WAYS)
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("compress", [False, True])
@pytest.mark.parametrize("batch_size", [1, 2, 4096])
@pytest.mark.parametrize("words", [None, WORDS])
def test_both_formats(name, newline, compress, batch_size, words, tmp_path):
    # A name that says nothing: the content does.
    path = write(tmp_path, WAYS[name](COUNTS), "counts", compress, newline)
    source = read_documents(path, batch_size=batch_size, vocabulary=words)
    assert (source.n_features, source.vocabulary) == (4, words)
    assert_well_formed(source, batch_size)
    np.testing.assert_array_equal(dense(source), COUNTS)
    assert not hasattr(source, "excerpts")


@pytest.mark.parametrize(
    "content",
    [
        "2\n3\n3\n1 1 1\n1 3 2\n2 2 4",
        "\n2\n\n3\n3\n\n1 1 1\n\n1 3 2\n2 2 4\n\n",
        "2\t\n 3\n3\n1\t1\t1\n1\t3\t2\n2\t2\t4\n",
        " 2\n3\n3\n1  1 1 \n 1 3 2\n2 2 4\n",
        "2\n3\n3\n1 3 2\n1 1 1\n2 2 4\n",
        "2\n3\n4\n1 3 1\n1 1 1\n1 3 1\n2 2 4\n",
        "2\n3\n3\n1 1 1.0\n1 3 2e0\n2 2 +4\n",
        "2\n3\n3\n1 1 1\n1 3 2\n00000000002 02 000000000004\n",
    ],
)
def test_ways_to_write_bags_of_words(content, tmp_path):
    source = read_documents(write(tmp_path, content), format="uci")
    assert dense(source).tolist() == [[1, 0, 2], [0, 4, 0]]
    assert_well_formed(source, 4096)


@pytest.mark.parametrize(
    "content",
    [
        "2 0:1 2:2\n1 1:4",
        "\n2 0:1 2:2\n\n1 1:4\n\n",
        "2 0:1 2:2 \n1 1:4 \n",
        " 2  0:1\t2:2\n1 1:4\n",
        "2 2:2 0:1\n1 1:4\n",
        "3 2:1 0:1 2:1\n1 1:4\n",
        "2 0:1.0 2:2e0\n1 1:+4\n",
    ],
)
def test_ways_to_write_ldac(content, tmp_path):
    source = read_documents(write(tmp_path, content), format="ldac")
    assert dense(source).tolist() == [[1, 0, 2], [0, 4, 0]]
    assert_well_formed(source, 4096)


def test_a_vocabulary_may_name_words_that_ldac_never_uses(tmp_path):
    source = read_documents(write(tmp_path, "1 0:3\n", "a.ldac"), vocabulary=["a", "b", "c"])
    assert source.n_documents is None
    assert dense(source).tolist() == [[3, 0, 0]]
    assert source.n_documents == 1


def test_documents_only_at_the_ends_of_many(tmp_path):
    source = read_documents(write(tmp_path, "10000\n2\n2\n1 1 1\n10000 2 7\n"), batch_size=300)
    assert_well_formed(source, 300)
    counts = scipy.sparse.vstack(list(source)).tocoo()
    assert counts.row.tolist() == [0, 9999]
    assert counts.data.tolist() == [1, 7]


def test_a_corpus_without_entries(tmp_path):
    source = read_documents(write(tmp_path, "3\n2\n0\n"))
    assert dense(source).tolist() == [[0, 0]] * 3


@pytest.mark.parametrize("name", WAYS)
@pytest.mark.parametrize("kept", [("cat", "mat"), ("cat",)])
def test_words_are_chosen_in_files_of_counts_too(name, kept, tmp_path):
    path = write(tmp_path, WAYS[name](COUNTS))
    options = {"min_df": 2, "max_features": len(kept)} if len(kept) == 1 else {"min_df": 2}
    source = read_documents(path, vocabulary=WORDS, stop_words="english", batch_size=2, **options)
    columns = [3] if len(kept) == 1 else [1, 3]
    assert source.vocabulary == [WORDS[j] for j in columns]
    assert_well_formed(source, 2)
    np.testing.assert_array_equal(dense(source), COUNTS[:, columns])
    source = read_documents(path, max_df=1)
    assert source.vocabulary is None
    np.testing.assert_array_equal(dense(source), COUNTS[:, [2]])
    source = read_documents(path, vocabulary=WORDS, stop_words=["the"])
    np.testing.assert_array_equal(dense(source), COUNTS[:, 1:])


@settings(max_examples=20, deadline=None)
@given(
    st.sampled_from(sorted(WAYS)),
    st.integers(1, 3000),
    st.integers(1, 400),
    st.integers(1, 700),
    st.integers(0, 2**31),
)
def test_random_corpora(name, n_documents, n_features, batch_size, seed):
    import pathlib
    import tempfile

    rng = np.random.default_rng(seed)
    counts = np.zeros((n_documents, n_features), int)
    cells = rng.integers(0, counts.size, min(4 * n_documents, 3000))
    counts.flat[cells] = rng.integers(1, 10 ** rng.integers(1, 7, len(cells)))
    with tempfile.TemporaryDirectory() as folder:
        path = write(pathlib.Path(folder), WAYS[name](counts))
        source = read_documents(
            path, vocabulary=[f"w{j}" for j in range(n_features)], batch_size=batch_size
        )
        assert_well_formed(source, batch_size)
        np.testing.assert_array_equal(dense(source), counts)


@pytest.mark.parametrize("name", WAYS)
def test_files_of_many_blocks(name, tmp_path):
    rng = np.random.default_rng(1)
    counts = rng.integers(0, 3, (900, 300)) * rng.integers(1, 1000, (900, 300))
    path = write(tmp_path, WAYS[name](counts), compress=True)
    told = []
    source = read_documents(path, progress=lambda *numbers: told.append(numbers))
    told.clear()
    np.testing.assert_array_equal(dense(source), counts)
    assert len(told) > 3
    assert told == sorted(told)
    assert told[-1] == (path.stat().st_size, path.stat().st_size, 900)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(0, 10**16 - 1).map(str), min_size=1, max_size=40), st.data())
def test_numbers_are_read_as_python_reads_them(words, data):
    words = [("0" * data.draw(st.integers(0, 16 - len(word)))) + word for word in words]
    marks = data.draw(st.text(" :\n", min_size=len(words), max_size=len(words)))
    text = "".join(word + mark for word, mark in zip(words, marks, strict=True)).encode()
    values, after = whole_numbers(text)
    assert values.tolist() == [int(word) for word in words]
    assert after.tobytes().decode() == marks


@pytest.mark.parametrize(
    "text", [b"", b" \n", b"12", b"1  2\n", b" 1\n", b"1-2\n", b"1.5\n", b"x\n", b"9" * 17 + b"\n"]
)
def test_what_the_fast_reader_leaves(text):
    assert whole_numbers(text) is None


@pytest.mark.parametrize(
    "word, number",
    [
        (b"12", 12),
        (b"-3", -3),
        (b"2.0", 2),
        (b"1e3", 1000),
        (b"2.5", None),
        (b"nan", None),
        (b"inf", None),
        (b"1_0", None),
        (b"x", None),
        (b"9" * 40, int("9" * 40)),
    ],
)
def test_single_numbers(word, number):
    assert whole_number(word) == number
