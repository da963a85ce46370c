"""Batches from a temporary file: the same ones, the source read once, nothing left behind."""

import errno
import gc
import os
import tempfile
import threading
import warnings

import numpy as np
import pytest
import scipy.sparse

from latensor.exceptions import InvalidInputError
from latensor.sources import BatchSource, MatrixSource, TemporaryCopy


class Counting:
    """A source that knows how often it was read to which batch."""

    def __init__(self, source):
        self.source = source
        self.n_features = source.n_features
        self.vocabulary = ["w"] * source.n_features
        self.n_documents = None
        self.given = []

    def __iter__(self):
        self.given.append(0)
        for batch in self.source:
            self.given[-1] += 1
            yield batch


def random_source(dtype=np.float32, largest=9, batch_size=7, seed=0):
    rng = np.random.default_rng(seed)
    counts = rng.integers(1, largest + 1, (50, 30)) * (rng.random((50, 30)) < 0.2)
    counts[3] = 0
    return Counting(MatrixSource(counts.astype(dtype), batch_size))


def assert_same(some, others):
    some, others = list(some), list(others)
    assert len(some) == len(others)
    for one, other in zip(some, others, strict=True):
        assert isinstance(other, scipy.sparse.csr_array)
        assert one.shape == other.shape
        for name in ("data", "indices", "indptr"):
            assert getattr(one, name).dtype == getattr(other, name).dtype
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("largest", [3, 65535, 65536, 2**23])
def test_every_pass_is_the_same_and_the_source_is_read_once(dtype, largest):
    source = random_source(dtype, largest)
    with TemporaryCopy(source) as copied:
        assert (copied.n_features, copied.n_documents, len(copied.vocabulary)) == (30, None, 30)
        for _ in range(3):
            assert_same(source.source, copied)
        assert source.given == [8]
        assert copied.n_documents == 50
        assert copied.is_complete


def test_a_documentless_word_and_empty_batches():
    empty = scipy.sparse.csr_array((4, 3), dtype=np.float32)
    source = BatchSource([empty, np.array([[1, 0, 2]]), empty])
    with TemporaryCopy(source) as copied:
        for _ in range(3):
            assert_same(source, copied)


def test_a_first_pass_that_was_broken_off_is_redone():
    source = random_source()
    with TemporaryCopy(source) as copied:
        for number, _ in enumerate(copied):
            if number == 2:
                break
        assert not copied.is_complete
        assert_same(source.source, copied)
        assert_same(source.source, copied)
        assert source.given == [3, 8]


def test_two_passes_at_once():
    source = random_source()
    with TemporaryCopy(source) as copied:
        for one, other, true in zip(copied, copied, source.source, strict=True):
            assert_same([true, true], [one, other])
        first, second = iter(copied), iter(copied)
        next(first)
        assert_same(source.source, second)
        assert len(list(first)) == 7


def test_two_threads_read_at_once():
    source = random_source(batch_size=2)
    with TemporaryCopy(source) as copied:
        expected = list(copied)
        results = [[], []]

        def read(found):
            for _ in range(20):
                found[:] = copied

        threads = [threading.Thread(target=read, args=(found,)) for found in results]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for found in results:
            assert_same(expected, found)


def test_changed_batches_do_not_change_the_file():
    source = random_source(np.float64)
    expected = [batch.copy() for batch in source.source]
    with TemporaryCopy(source) as copied:
        for _ in range(2):
            for batch in copied:
                batch.data[:] = 77
        assert_same(expected, copied)


def open_files(folder):
    """The files in a folder that this process holds open, those without a name too."""
    found = []
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{descriptor}")
        except OSError:
            continue
        if target.startswith(str(folder)):
            found.append(target)
    return found


needs_proc = pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="no /proc here")


@needs_proc
@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError, GeneratorExit])
@pytest.mark.parametrize("complete", [False, True])
def test_nothing_is_left_after_an_error(error, complete, tmp_path):
    def fail():
        with TemporaryCopy(random_source(), tmp_path) as copied:
            if complete:
                list(copied)
            for number, _ in enumerate(copied):
                if number == 2:
                    assert len(open_files(tmp_path)) == 1
                    raise error

    with pytest.raises(error):
        fail()
    gc.collect()
    assert open_files(tmp_path) == []
    assert list(tmp_path.iterdir()) == []


@needs_proc
def test_an_interrupted_source_leaves_nothing(tmp_path):
    class Interrupted(Counting):
        def __iter__(self):
            yield next(iter(self.source))
            raise KeyboardInterrupt

    copied = TemporaryCopy(Interrupted(random_source().source), tmp_path)
    with pytest.raises(KeyboardInterrupt):
        list(copied)
    assert open_files(tmp_path) == []
    assert list(tmp_path.iterdir()) == []


@needs_proc
def test_a_forgotten_spool_closes_its_file(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        copied = TemporaryCopy(random_source(), tmp_path)
        list(copied)
        assert len(open_files(tmp_path)) == 1
        del copied
        gc.collect()
    assert open_files(tmp_path) == []


def test_a_closed_spool_is_refused():
    copied = TemporaryCopy(random_source())
    list(copied)
    unfinished = iter(copied)
    next(unfinished)
    copied.close()
    copied.close()
    with pytest.raises(InvalidInputError, match="closed"):
        list(copied)
    with pytest.raises(InvalidInputError, match="closed during a pass"):
        next(unfinished)


def test_a_full_disk_is_explained(tmp_path, monkeypatch):
    class Full:
        def __init__(self, file):
            self._file = file
            self._left = 500

        def write(self, data):
            self._left -= data.nbytes
            if self._left < 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return self._file.write(data)

        def __getattr__(self, name):
            return getattr(self._file, name)

    real = tempfile.TemporaryFile
    monkeypatch.setattr(tempfile, "TemporaryFile", lambda **kw: Full(real(**kw)))
    with TemporaryCopy(random_source(), tmp_path) as copied:
        with pytest.raises(OSError, match=r"No space left on device.*TMPDIR") as caught:
            list(copied)
        assert caught.value.errno == errno.ENOSPC
        assert caught.value.filename == str(tmp_path)
        monkeypatch.undo()
        assert sum(batch.shape[0] for batch in copied) == 50


def test_bad_arguments(tmp_path):
    with pytest.raises(InvalidInputError, match="not a folder"):
        TemporaryCopy(random_source(), tmp_path / "missing")
    with pytest.raises(InvalidInputError, match=r"source is a ndarray.*as_source"):
        TemporaryCopy(np.ones((2, 2)))
