"""Arrays from files that nobody vouches for: what they hold, or an error that says why not."""

import contextlib
import io
import os
import struct
import tracemalloc
import zipfile

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from latensor.array_files import ArrayArchive, is_archive, read_npy, write_arrays
from latensor.exceptions import InvalidInputError

DTYPES = st.one_of(
    hnp.boolean_dtypes(),
    hnp.integer_dtypes(endianness="?"),
    hnp.floating_dtypes(endianness="?"),
    hnp.complex_number_dtypes(endianness="?"),
    hnp.unicode_string_dtypes(endianness="?", min_len=1),
    hnp.byte_string_dtypes(min_len=1),
)
ARRAYS = hnp.arrays(DTYPES, hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4))


def npy(array):
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


def with_header(text, version=(1, 0), values=b"\0" * 64, length=None):
    raw = text.encode("latin1")
    form = "<H" if version == (1, 0) else "<I"
    size = struct.pack(form, len(raw) if length is None else length)
    return b"\x93NUMPY" + bytes(version) + size + raw + values


def same(one, other):
    assert (one.dtype, one.shape) == (other.dtype, other.shape)
    assert one.tobytes() == other.tobytes()


@settings(max_examples=150, deadline=None)
@given(ARRAYS, st.booleans())
def test_arrays_come_back_bit_for_bit(tmp_path_factory, array, fortran):
    array = np.asfortranarray(array) if fortran else array
    folder = tmp_path_factory.mktemp("arrays")
    np.save(folder / "a.npy", array)
    same(read_npy(folder / "a.npy"), array)
    with open(folder / "ours.npz", "wb") as stream:
        write_arrays(stream, {"a": array, "b": array})
    with np.load(folder / "ours.npz", allow_pickle=False) as theirs:
        same(theirs["a"], array)
    np.savez(folder / "theirs.npz", a=array)
    np.savez_compressed(folder / "packed.npz", a=array)
    for name in ("ours", "theirs", "packed"):
        with ArrayArchive(folder / f"{name}.npz") as archive:
            same(archive["a"], array)


def test_equal_arrays_make_equal_bytes():
    streams = [io.BytesIO(), io.BytesIO()]
    for stream in streams:
        write_arrays(stream, {"a": np.arange(3), "b": np.eye(2)})
    assert streams[0].getvalue() == streams[1].getvalue()


DESCRIBED = "{'descr': %s, 'fortran_order': %s, 'shape': %s, }"
BAD_HEADERS = {
    "empty": b"",
    "text": b"hello, this is no array",
    "magic only": b"\x93NUMPY",
    "half magic": b"\x93NU",
    "version": with_header(DESCRIBED % ("'<f8'", False, "(2,)"), version=(9, 0)),
    "cut header": with_header("{'descr'", length=5000),
    "long header": with_header("x" * 20_000, version=(2, 0)),
    "declared header": with_header("", version=(2, 0), length=2**32 - 1),
    "no literal": with_header("__import__('os').system('true')"),
    "unbalanced": with_header("(" * 9000),
    "nested": with_header("(" * 90 + ")" * 90),
    "signs": with_header("-" * 9000 + "1"),
    "token": with_header("{'descr': '''"),
    "null": with_header("{'descr': \0}"),
    "no dict": with_header("[1, 2]"),
    "other keys": with_header("{'descr': '<f8', 'shape': (2,)}"),
    "unhashable": with_header("{[]: 1}"),
    "objects": with_header(DESCRIBED % ("'|O'", False, "(2,)")),
    "records": with_header(DESCRIBED % ("[('a', '<f8'), ('b', '|O')]", False, "(2,)")),
    "two fields": with_header(DESCRIBED % ("'<f8,<f8'", False, "(2,)")),
    "subarray": with_header(DESCRIBED % ("'(2,2)f8'", False, "(2,)")),
    "void": with_header(DESCRIBED % ("'|V8'", False, "(2,)")),
    "no type": with_header(DESCRIBED % ("'<q99'", False, "(2,)")),
    "number as type": with_header(DESCRIBED % ("8", False, "(2,)")),
    "no bytes": with_header(DESCRIBED % ("'<U0'", False, "(99999999999,)")),
    "huge": with_header(
        DESCRIBED % ("'<f8'", False, "(10**18,)".replace("10**18", "1" + "0" * 18))
    ),
    "huge product": with_header(DESCRIBED % ("'<f8'", False, "(4294967296, 4294967296, 4)")),
    "huge and empty": with_header(DESCRIBED % ("'<f8'", False, "(0, 9223372036854775807, 9)")),
    "negative": with_header(DESCRIBED % ("'<f8'", False, "(-1,)")),
    "list of sizes": with_header(DESCRIBED % ("'<f8'", False, "[2]")),
    "size in words": with_header(DESCRIBED % ("'<f8'", False, "('2',)")),
    "truth as size": with_header(DESCRIBED % ("'<f8'", False, "(True,)")),
    "many modes": with_header(DESCRIBED % ("'<f8'", False, "(" + "1," * 70 + ")")),
    "order": with_header(DESCRIBED % ("'<f8'", "'F'", "(2,)")),
    "cut values": with_header(DESCRIBED % ("'<f8'", False, "(9,)")),
    "no characters": with_header(DESCRIBED % ("'<U4'", False, "(4,)"), values=b"\xff" * 64),
}


@pytest.mark.parametrize("case", BAD_HEADERS)
def test_bad_headers_are_refused_without_memory(tmp_path, case):
    path = tmp_path / "bad.npy"
    path.write_bytes(BAD_HEADERS[case])
    with zipfile.ZipFile(tmp_path / "bad.npz", "w") as archive:
        archive.writestr("a.npy", BAD_HEADERS[case])
    tracemalloc.start()
    try:
        with pytest.raises(InvalidInputError, match=r"bad.npy"):
            read_npy(path)
        with (
            ArrayArchive(tmp_path / "bad.npz") as archive,
            pytest.raises(InvalidInputError, match=r"array a of .*bad.npz"),
        ):
            archive["a"]
        assert tracemalloc.get_traced_memory()[1] < 10e6
    finally:
        tracemalloc.stop()


def test_declared_sizes_of_packed_members_are_not_believed(tmp_path):
    path = tmp_path / "a.npz"
    header = with_header(DESCRIBED % ("'<f8'", False, "(100000000000,)"), values=b"")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.npy", header + b"\0" * 800)
    content = path.read_bytes()
    size = struct.pack("<I", len(header) + 800)
    path.write_bytes(content.replace(size, b"\xfe\xff\xff\xff"))
    with ArrayArchive(path) as archive, pytest.raises(InvalidInputError, match="declares"):
        archive["a"]


def test_members_of_our_own_files_are_neither_packed_nor_shared(tmp_path):
    np.savez_compressed(tmp_path / "packed.npz", a=np.zeros(10_000))
    with pytest.raises(InvalidInputError, match="compressed"):
        ArrayArchive(tmp_path / "packed.npz", stored_only=True)
    with zipfile.ZipFile(tmp_path / "twice.npz", "w") as archive:
        archive.writestr("a.npy", npy(np.zeros(3)))
        with pytest.warns(UserWarning, match="Duplicate name"):
            archive.writestr("a.npy", npy(np.zeros(3)))
    with pytest.raises(InvalidInputError, match="one name"):
        ArrayArchive(tmp_path / "twice.npz")
    # Two entries of the directory that point to the same bytes: a small file that claims much.
    with zipfile.ZipFile(tmp_path / "shared.npz", "w") as archive:
        archive.writestr("a.npy", npy(np.zeros(1000)))
        again = archive.getinfo("a.npy")
        for name in ("b.npy", "c.npy"):
            shared = zipfile.ZipInfo(name)
            for field in ("header_offset", "file_size", "compress_size", "CRC"):
                setattr(shared, field, getattr(again, field))
            archive.filelist.append(shared)
            archive.NameToInfo[name] = shared
        archive._didModify = True
    with pytest.raises(InvalidInputError, match="more than its"):
        ArrayArchive(tmp_path / "shared.npz", stored_only=True)


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_damaged_bytes_give_an_error_or_the_arrays(tmp_path_factory, data):
    arrays = {"a": np.arange(12.0).reshape(3, 4), "b": np.array(["x", "yz"])}
    stream = io.BytesIO()
    write_arrays(stream, arrays)
    content = bytearray(stream.getvalue())
    kind = data.draw(st.sampled_from(["cut", "flip", "overwrite"]))
    place = data.draw(st.integers(0, len(content) - 1))
    if kind == "cut":
        content = content[:place]
    elif kind == "flip":
        content[place] ^= 1 << data.draw(st.integers(0, 7))
    else:
        content[place : place + 8] = data.draw(st.binary(min_size=8, max_size=8))
    path = tmp_path_factory.mktemp("fuzz") / "x.npz"
    path.write_bytes(content)
    try:
        with ArrayArchive(path, stored_only=True) as archive:
            found = {name: archive[name] for name in archive.names}
    except InvalidInputError:
        return
    for name in set(found) & set(arrays):
        same(found[name], arrays[name])


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 140), st.binary(min_size=1, max_size=6))
def test_damaged_npy_files_give_an_error_or_numbers(tmp_path_factory, place, noise):
    content = bytearray(npy(np.arange(6.0).reshape(2, 3)))
    content[place : place + len(noise)] = noise
    path = tmp_path_factory.mktemp("fuzz") / "x.npy"
    path.write_bytes(content)
    with contextlib.suppress(InvalidInputError):
        assert read_npy(path).nbytes <= len(content)


def test_only_regular_files_are_read(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for name in ("pipe", "."):
        for read in (read_npy, ArrayArchive, is_archive):
            with pytest.raises(InvalidInputError, match="expected a file"):
                read(tmp_path / name)
    with pytest.raises(FileNotFoundError):
        read_npy(tmp_path / "none.npy")
    np.save(tmp_path / "a.npy", np.zeros(2))
    with pytest.raises(InvalidInputError, match=r"single array: name it \.npy"):
        ArrayArchive(tmp_path / "a.npy")
