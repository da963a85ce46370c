"""Small files of documents for the tests, and what is in them."""

import gzip

import numpy as np
import scipy.sparse

TEXTS = [
    "The cat sat on the mat, the cat's mat.",
    "",
    "A dog and a cat: dog_1 & dog_2!",
    "Größe, naïve café; ΣΊΣΥΦΟΣ was ΟΔΥΣΣΕΥΣ",
    "x y z 42 7 1,000,000 don't we'll",
    "「東京」 and 東京タワー — “quoted”…tail\u00a0nbsp",
    "İstanbul ISTANBUL ıstanbul e\u0301clair",
    "  spaces\tand\ttabs   the end  ",
    "mat dog cat mat dog cat the the the",
]


def write(folder, content, name="corpus.txt", compress=False, newline="\n"):
    """`content` (text or bytes) in a file of the given name, perhaps compressed."""
    data = content if isinstance(content, bytes) else content.replace("\n", newline).encode()
    path = folder / name
    path.write_bytes(gzip.compress(data, mtime=0) if compress else data)
    return path


def stacked(source):
    """All documents of a source as one matrix."""
    return scipy.sparse.vstack(list(source), format="csr")


def dense(source):
    return stacked(source).toarray()


def assert_well_formed(source, batch_size):
    """Two passes give the same canonical batches, as many documents as the source says."""
    first, second = list(source), list(source)
    assert [batch.shape[0] for batch in first[:-1]] == [batch_size] * (len(first) - 1)
    assert 1 <= first[-1].shape[0] <= batch_size
    assert source.n_documents == sum(batch.shape[0] for batch in first)
    for one, other in zip(first, second, strict=True):
        assert isinstance(one, scipy.sparse.csr_array)
        assert one.shape[1] == source.n_features
        assert (one.dtype, one.indices.dtype) == (np.float32, np.int32)
        fresh = scipy.sparse.csr_array((one.data, one.indices, one.indptr), shape=one.shape)
        assert fresh.has_canonical_format
        assert (one.data > 0).all()
        for name in ("data", "indices", "indptr"):
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
