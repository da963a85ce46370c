"""FROSTT files: what is written is read back exactly, what is wrong is named with its line."""

import gzip

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from latensor.exceptions import InvalidInputError
from latensor.tensors import _kernels, tns
from latensor.tensors.sparse import SparseTensor
from latensor.tensors.tns import read_tns, write_tns


def assert_same(one, other):
    assert one.shape == other.shape
    np.testing.assert_array_equal(one.coordinates, other.coordinates)
    np.testing.assert_array_equal(one.values, other.values)


@pytest.fixture(params=["slow", "fast"])
def pace(request, monkeypatch):
    """Read every file line by line, and again by the kernel in blocks of a few lines."""
    if request.param == "fast":
        monkeypatch.setattr(tns, "_KERNEL_BYTES", 1)
        monkeypatch.setattr(tns, "_BLOCK_BYTES", 64)
    return request.param


def write(folder, text, name="some.tns"):
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


GOOD = {
    "one-based": ("1 1 2.5\n2 3 -1\n", None, None, [[2.5, 0, 0], [0, 0, -1]]),
    "zero-based": ("0 1 2.5\n2 0 -1\n", None, None, [[0, 2.5], [0, 0], [-1, 0]]),
    "told one": ("1 1 2\n", None, 1, [[2]]),
    "told zero": ("1 1 2\n", None, 0, [[0, 0], [0, 2]]),
    "told shape": ("1 2 2\n", (2, 3), None, [[0, 2, 0], [0, 0, 0]]),
    "vector": ("3 7\n1 1e-2\n", None, None, [0.01, 0, 7]),
    "duplicates": ("1 1\n1 2\n2 3\n", None, None, [3, 3]),
    "comments": ("# head\n\n1 2 # tail\n   # middle\n \t \n2 3\n#", None, None, [2, 3]),
    "spaces": ("  1\t1   4  \r\n2 2 5\r\n", None, None, [[4, 0], [0, 5]]),
    "no last line end": ("1 1\n2 5", None, None, [1, 5]),
    "spellings": ("+1 1E2\n2.0 +.5\n3e0 -5.\n4 00.250\n", None, None, [100, 0.5, -5, 0.25]),
    "header": ("# latensor shape=4 index_base=1\n1 5\n", None, None, [5, 0, 0, 0]),
    "header zero": ("# latensor shape=4 index_base=0\n1 5\n", None, None, [0, 5, 0, 0]),
    "header overruled": ("# latensor shape=4 index_base=0\n1 5\n", (2,), 1, [5, 0]),
    "only header": ("# latensor shape=2,2 index_base=1\n", None, None, [[0, 0], [0, 0]]),
    "nothing, shape told": ("", (3,), None, [0, 0, 0]),
}


@pytest.mark.parametrize("name", GOOD)
@pytest.mark.parametrize("compressed", [False, True])
def test_good_files(name, compressed, tmp_path, pace):
    text, shape, base, expected = GOOD[name]
    content = gzip.compress(text.encode()) if compressed else text
    tensor = read_tns(write(tmp_path, content), shape, base)
    assert tensor.dtype == np.float64
    np.testing.assert_array_equal(tensor.to_dense(), expected)


FIRST = "1 1 1\n# remark\n"
BAD = {
    "word for value": (FIRST + "1 2 three\n", "line 3 .* has the value 'three', not a number"),
    "word for index": (FIRST + "1 two 3\n", "line 3 .* has 'two' in column 2, not an index"),
    "fraction": (FIRST + "1.5 2 3\n", "line 3 .* has '1.5' in column 1, not a whole number"),
    "negative": (FIRST + "1 -2 3\n", "line 3 .* has index -2 in column 2: indices count from 0"),
    "too few": (FIRST + "1 2\n", "line 3 .* has 2 columns, but line 1 has 3: '1 2'"),
    "too many": (FIRST + "1 2 3 4\n", "line 3 .* has 4 columns, but line 1 has 3: '1 2 3 4'"),
    "too many, last odd": (FIRST + "1 2 3 x\n", "line 3 .* has 4 columns"),
    "nan": (FIRST + "1 2 nan\n", "line 3 .* value 'nan': values must be finite"),
    "infinite": (FIRST + "1 2 -inf\n", "line 3 .* value '-inf'"),
    "overflowing": (FIRST + "1 2 1e999\n", "line 3 .* value '1e999'"),
    "python spelling": (FIRST + "1_0 2 3\n", "line 3 .* has '1_0' in column 1, not an index"),
    "python value": (FIRST + "1 2 1_0\n", "line 3 .* value '1_0', not a number"),
    "hexadecimal": (FIRST + "1 0x2 3\n", "line 3 .* has '0x2' in column 2"),
    "commas": ("1,2,3\n", "line 1 .* has one column"),
    "one column": ("5\n", "line 1 .* has one column: an entry is its indices and its value"),
    "huge index": (FIRST + "99999999999999999999 2 3\n", "line 3 .* it is too large"),
    "infinite index": (FIRST + "inf 2 3\n", "line 3 .* has 'inf' in column 1, not an index"),
    "long line": (FIRST + "1 2 " + "x" * 500, r"line 3 .* value 'x{77}\.\.\.', not a number"),
    "binary": (FIRST.encode() + bytes(range(200, 256)), "line 3 .* has 1 columns"),
    "binary at once": (bytes(range(128, 256)) * 10, "line 1 .* has one column"),
    "empty": ("", "holds no entries: give the shape"),
    "only comments": ("# a\n# b\n", "holds no entries"),
    "truncated gzip": (gzip.compress(b"1 1 1\n" * 1000)[:-12], "is truncated"),
    "half a gzip head": (gzip.compress(b"1 1 1\n")[:5], "is truncated"),
    "damaged gzip": (gzip.compress(b"1 1\n" * 90)[:-8] + bytes(8), "is damaged: CRC check"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_files(name, tmp_path, pace):
    content, message = BAD[name]
    with pytest.raises(InvalidInputError, match=message):
        read_tns(write(tmp_path, content))


def test_index_below_the_told_base(tmp_path, pace):
    path = write(tmp_path, "1 1 1\n2 0 1\n")
    with pytest.raises(InvalidInputError, match=r"line 2 .* index 0 in column 2: indices count fr"):
        read_tns(path, index_base=1)


def test_index_beyond_the_told_shape(tmp_path, pace):
    path = write(tmp_path, "1 1 1\n2 3 1\n")
    with pytest.raises(InvalidInputError, match=r"line 2 .* index 3 in column 2: the shape is"):
        read_tns(path, shape=(2, 2))
    with pytest.raises(InvalidInputError, match="has 3 modes, but coordinates have 2"):
        read_tns(path, shape=(2, 2, 2))


def test_paths_and_arguments(tmp_path):
    with pytest.raises(FileNotFoundError):
        read_tns(tmp_path / "absent.tns")
    with pytest.raises(InvalidInputError, match="is a directory"):
        read_tns(tmp_path)
    with pytest.raises(InvalidInputError, match="index_base=2"):
        read_tns(write(tmp_path, "1 1\n"), index_base=2)
    with pytest.raises(InvalidInputError, match="shape=3 must be a sequence"):
        read_tns(write(tmp_path, "1 1\n"), shape=3)
    tensor = SparseTensor([[0]], [1.0])
    with pytest.raises(InvalidInputError, match="is a folder"):
        write_tns(tensor, tmp_path)
    with pytest.raises(InvalidInputError, match="index_base=None"):
        write_tns(tensor, tmp_path / "a.tns", index_base=None)
    with pytest.raises(InvalidInputError, match="tensor is complex"):
        write_tns(tensor * 1j, tmp_path / "a.tns")
    with pytest.raises(InvalidInputError, match="must be a SparseTensor, not ndarray"):
        write_tns(np.ones(3), tmp_path / "a.tns")
    with pytest.raises(InvalidInputError, match="does not exist"):
        write_tns(tensor, tmp_path / "absent" / "a.tns")
    assert [path.name for path in tmp_path.iterdir()] == ["some.tns"]


def test_a_file_without_lines_is_not_read_whole(tmp_path, monkeypatch):
    monkeypatch.setattr(tns, "_LONGEST_LINE", 100)
    monkeypatch.setattr(tns, "_BLOCK_BYTES", 64)
    with pytest.raises(InvalidInputError, match=r"more than 100 bytes: it is not a \.tns"):
        read_tns(write(tmp_path, b"7" * 1000))


@pytest.mark.parametrize("name", ["a.tns", "a.tns.gz"])
@pytest.mark.parametrize("index_base", [0, 1])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_round_trip_is_exact(name, index_base, dtype, tmp_path, pace):
    rng = np.random.default_rng(0)
    rows = rng.integers(1, 9, (200, 3))
    values = (rng.standard_normal(200) * 10.0 ** rng.integers(-30, 30, 200)).astype(dtype)
    tensor = SparseTensor(rows, values, (20, 9, 12))
    write_tns(tensor, tmp_path / name, index_base)
    assert [path.name for path in tmp_path.iterdir()] == [name]
    again = read_tns(tmp_path / name)
    assert_same(again.astype(dtype), tensor)
    assert_same(again, tensor.astype(np.float64))
    first = (tmp_path / name).read_bytes()
    write_tns(tensor, tmp_path / name, index_base)
    assert (tmp_path / name).read_bytes() == first


def test_zero_tensor_round_trip(tmp_path):
    write_tns(SparseTensor(np.zeros((0, 2)), [], (3, 4)), tmp_path / "zero.tns")
    assert_same(read_tns(tmp_path / "zero.tns"), SparseTensor(np.zeros((0, 2)), [], (3, 4)))


def test_large_file_goes_through_the_kernel(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    count = 40_000
    rows = np.stack([rng.integers(0, d, count) for d in (300, 40_000, 7)], axis=1)
    tensor = SparseTensor(rows, np.round(rng.standard_normal(count), 3), (300, 40_000, 7))
    write_tns(tensor, tmp_path / "large.tns")
    slow_lines = []
    read_line = tns._Reader._read_line
    monkeypatch.setattr(
        tns._Reader, "_read_line", lambda self, line: slow_lines.append(1) or read_line(self, line)
    )
    assert_same(read_tns(tmp_path / "large.tns"), tensor)
    assert len(slow_lines) < 10
    text = (tmp_path / "large.tns").read_bytes().splitlines(keepends=True)
    text[30_000] = b"1 2 oops 4\n"
    write(tmp_path, b"".join(text), "large.tns")
    with pytest.raises(InvalidInputError, match=r"line 30001 .* has 'oops' in column 3"):
        read_tns(tmp_path / "large.tns")


def test_lines_that_the_kernel_leaves_do_not_slow_it_down(tmp_path, monkeypatch):
    monkeypatch.setattr(tns, "_KERNEL_BYTES", 1)
    calls = []
    fast = tns._Reader._read_fast
    monkeypatch.setattr(tns._Reader, "_read_fast", lambda *a: calls.append(1) or fast(*a))
    # An index of more digits than the kernel reads, which float64 makes whole.
    text = "".join(f"{i}.0000000000000000000001 1\n" for i in range(1, 500))
    assert read_tns(write(tmp_path, text)).nnz == 499
    assert len(calls) < 20


def numbers_by_kernel(words):
    text = np.frombuffer("".join(f"1 {word}\n" for word in words).encode(), np.uint8)
    indices, values = np.empty((len(words), 1), np.int64), np.empty(len(words))
    hard = np.empty((len(words), 3), np.int64)
    powers = 10.0 ** np.arange(23)
    rows, noted, lines, end = _kernels.read_lines(text, powers, 0, indices, values, hard)
    assert (rows, lines, end) == (len(words), len(words), len(text))
    left = set(hard[:noted, 0].tolist())
    return {i: value for i, value in enumerate(values.tolist()) if i not in left}


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.floats(allow_nan=False, allow_infinity=False).map(repr),
            st.floats(1e-5, 1e5).map(repr),
            st.decimals(-(10**9), 10**9, places=7).map(str),
            st.integers(2**53, 2**58).map(str),  # halfway between two numbers, or nearly so
            st.integers(2**52, 2**53).map(lambda i: f"{i}.5"),
        ),
        min_size=1,
        max_size=50,
    )
)
def test_kernel_reads_the_nearest_number_or_leaves_it(words):
    for i, value in numbers_by_kernel(words).items():
        assert value.hex() == float(words[i]).hex(), words[i]


def test_kernel_reads_usual_values_itself():
    rng = np.random.default_rng(0)
    usual = [repr(value) for value in rng.random(2000).tolist()]
    usual += [repr(value) for value in np.round(rng.standard_normal(2000) * 1e6, 4).tolist()]
    usual += [str(value) for value in rng.integers(-(10**9), 10**9, 2000).tolist()]
    assert len(numbers_by_kernel(usual)) == len(usual)


@pytest.mark.parametrize("name", ["a.tns", "a.tns.gz"])
@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
def test_interrupted_write_leaves_what_was_there(name, error, tmp_path, monkeypatch):
    path = write(tmp_path, "old", name)
    calls = []

    def fail(value):
        calls.append(value)
        if len(calls) == 3:
            raise error
        return "1"

    monkeypatch.setattr(tns, "_spelled", fail)
    with pytest.raises(error):
        write_tns(SparseTensor(np.arange(5)[:, None], np.ones(5)), path)
    assert path.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == [name]


def test_a_nul_byte_is_no_blank(tmp_path, pace):
    path = write(tmp_path, "1 1 1 5\n" * 3 + "1\x001 1 5\n")
    with pytest.raises(InvalidInputError, match="line 4"):
        read_tns(path)


def test_lone_carriage_returns_and_odd_bases_are_refused(tmp_path):
    path = tmp_path / "old.tns"
    path.write_bytes(b"1 1 1 2\r1 1 2 3\r")
    with pytest.raises(InvalidInputError, match=r"line 1 .* carriage return"):
        read_tns(path)
    tensor = SparseTensor([[1, 1]], [1.0], (5, 5))
    for base in (True, False, 1.0, "1"):
        with pytest.raises(InvalidInputError, match="index_base="):
            write_tns(tensor, tmp_path / "new.tns", index_base=base)
        with pytest.raises(InvalidInputError, match="index_base="):
            read_tns(path, index_base=base)
    assert not (tmp_path / "new.tns").exists()
