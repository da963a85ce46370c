"""Values in files: what went in comes out bit for bit; damage is only ever one kind of error."""

import contextlib
import json
import math
import struct
import tracemalloc
import zipfile
from collections import OrderedDict
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from typing import Any, NamedTuple

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import latensor as lt
from latensor import value_files
from latensor.array_files import write_arrays
from latensor.exceptions import InvalidInputError
from latensor.value_files import FORMAT_VERSION, decode, encode, read_value, storable, write_value


@storable
class Colour(Enum):
    RED = "red"
    BLUE = "blue"


@storable
@dataclass(frozen=True, eq=False)
class Node:
    values: Any
    parts: tuple = ()
    hidden: int = field(default=0, init=False)


@storable
class Pair(NamedTuple):
    left: Any
    right: Any = None


class Unknown:
    pass


def same(one, other):
    """Equal in type, and in all bits."""
    assert type(one) is type(other)
    if isinstance(one, np.ndarray):
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
        if one.dtype == object:
            return all(same(a, b) for a, b in zip(one.ravel(), other.ravel(), strict=True))
        return one.tobytes() == other.tobytes()
    if scipy.sparse.issparse(one):
        assert one.shape == other.shape
        names = ("data", "indices", "indptr")
        return all(same(getattr(one, name), getattr(other, name)) for name in names)
    if isinstance(one, dict):
        return same(list(one.items()), list(other.items()))
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(same(a, b) for a, b in zip(one, other, strict=True))
    if isinstance(one, Node):
        return same([one.values, one.parts], [other.values, other.parts])
    if isinstance(one, float):
        return struct.pack("d", one) == struct.pack("d", other) or (one != one and other != other)
    if isinstance(one, complex):
        return same([one.real, one.imag], [other.real, other.imag])
    if isinstance(one, np.generic):
        return one.dtype == other.dtype and one.tobytes() == other.tobytes()
    return one == other


NUMBERS = hnp.scalar_dtypes().filter(lambda dtype: dtype.kind in "biufc")
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(-(2**200), 2**200),
    st.floats(),
    st.complex_numbers(),
    st.text(),
    st.binary(max_size=20),
    st.sampled_from(Colour),
)
ARRAYS = hnp.arrays(NUMBERS, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3))
NUMPY = NUMBERS.flatmap(lambda dtype: hnp.arrays(dtype, ())).map(lambda array: array[()])
SPARSE = st.builds(
    lambda dense, cls: cls(dense),
    hnp.arrays(np.float64, (3, 4), elements=st.sampled_from([0.0, 1.0, -2.5])),
    st.sampled_from([scipy.sparse.csr_array, scipy.sparse.csr_matrix]),
)
KEYS = st.one_of(st.text(), st.integers(), st.tuples(st.integers(), st.text()))


def objects(items):
    found = np.empty(len(items), dtype=object)
    for i, item in enumerate(items):
        found[i] = item
    return found


TREES = st.recursive(
    st.one_of(SCALARS, ARRAYS, NUMPY, SPARSE),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(KEYS, inner, max_size=3),
        st.lists(inner, max_size=3).map(objects),
        st.builds(Node, inner, st.lists(inner, max_size=2).map(tuple)),
        st.builds(Pair, inner, inner),
    ),
    max_leaves=8,
)


@settings(max_examples=300, deadline=None)
@given(TREES)
def test_what_goes_in_comes_out(value):
    arrays = {}
    text = json.dumps(encode(value, arrays), allow_nan=False)
    assert same(decode(json.loads(text), arrays), value)


@settings(max_examples=40, deadline=None)
@given(TREES)
def test_files_keep_values(tmp_path_factory, value):
    path = tmp_path_factory.mktemp("values") / "x.npz"
    assert write_value(path, value, "some kind") == path
    first = path.read_bytes()
    stored = read_value(path)
    assert stored[0] == "some kind"
    assert stored[2:] == (FORMAT_VERSION, lt.__version__)
    assert same(stored.value, value)
    write_value(path, value, "some kind")
    assert path.read_bytes() == first


@pytest.mark.parametrize(
    "value",
    [
        np.str_("a\0"), np.str_(""), np.bytes_(b"x\0"), np.str_("\ud800"), "\ud800", -0.0,
        np.array(["a", "bc"]), np.array([b"x"]), np.array(3.0), np.zeros((0, 5)), np.float16(1.5),
        np.arange(4, dtype=">i8"), np.asfortranarray(np.eye(3))[:, :2], {1: {(): []}}, {"a": [()]},
        np.longdouble(1) / 3, [], 10**5000, {None: 1, True: 2, 2.5: 3, Colour.RED: 4},
        objects([np.zeros(2), np.zeros((3, 1)), "word"]), objects([1, 2, 3, 4]).reshape(2, 2),
    ],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_odd_values(tmp_path, value):
    path = write_value(tmp_path / "x.npz", [value, value], "k")
    assert same(read_value(path).value, [value, value])


def test_an_array_that_comes_twice_is_stored_once_and_stays_one(tmp_path):
    factor = np.arange(6.0)
    arrays = {}
    encode([factor, (factor,), factor.copy()], arrays)
    assert len(arrays) == 2
    found = read_value(write_value(tmp_path / "x", [factor, (factor,)], "k")).value
    assert found[0] is found[1][0]


def test_arrays_of_other_libraries_come_back_as_numpy(tmp_path, library):
    value = library.array([[1.5, 2.0], [3.0, -4.0]])
    found = read_value(write_value(tmp_path / "x", {"a": value}, "k")).value["a"]
    assert type(found) is np.ndarray
    np.testing.assert_array_equal(found, library.host(value))


def cyclic():
    value: list = []
    value.append(value)
    return value


class Number(IntEnum):
    ONE = 1


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ({"a": [1, Unknown()]}, r"value\['a'\]\[1\] is a Unknown"),
        (Node(lambda: 1), r"value.values is a function"),
        (Number.ONE, "is a Number"),
        (OrderedDict(), "is a OrderedDict"),
        ({1, 2}, "is a set"),
        (np.ma.masked_array([1.0], [True]), "masked array"),
        (np.zeros(2, "M8[s]"), "datetime64"),
        (np.zeros(2, "f8,i4"), "cannot be stored"),
        (np.datetime64(0, "s"), "cannot be stored"),
        (scipy.sparse.csc_array(np.eye(2)), "give it as CSR"),
        (cyclic(), "holds itself"),
        (np.random.default_rng(0), "is a Generator"),
    ],
)
def test_what_cannot_be_stored_is_named(tmp_path, value, reason):
    with pytest.raises(InvalidInputError, match=reason):
        write_value(tmp_path / "x", value, "k")
    assert list(tmp_path.iterdir()) == []


def test_names_of_types_are_taken_once():
    with pytest.raises(TypeError, match="no dataclass"):
        storable(Unknown)

    @dataclass
    class Colour:
        pass

    with pytest.raises(TypeError, match="registered already"):
        storable(Colour)
    storable(name="Color")(Colour)
    assert encode(Colour(), {}) == {"type": ["Color", {}]}
    del value_files._types["Color"]


def write_header(path, header, **arrays):
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    with open(path, "wb") as stream:
        write_arrays(stream, {"header": np.frombuffer(raw, np.uint8), **arrays})
    return path


def header(value, **changes):
    return {
        "format": "latensor", "format_version": FORMAT_VERSION, "latensor_version": "9.9",
        "kind": "k", "value": value, **changes,
    }  # fmt: skip


def test_a_newer_format_names_who_wrote_it(tmp_path):
    path = write_header(tmp_path / "x", header(1, format_version=FORMAT_VERSION + 1))
    with pytest.raises(
        InvalidInputError, match=r"x' was written by latensor 9\.9 in file format 3"
    ):
        read_value(path)


DEEP = 1
for _ in range(500):
    DEEP = [DEEP]
BAD = {
    "no json": b"{",
    "no text": b"\xff\xfe",
    "deep json": b"[" * 100_000,
    "long number": b"1" * 10_000,
    "list": [],
    "null": None,
    "no value": {"format": "latensor", "format_version": 2, "latensor_version": "1", "kind": "k"},
    "other format": header(1, format="other"),
    "version in words": header(1, format_version="2"),
    "true as version": header(1, format_version=True),
    "version zero": header(1, format_version=0),
    "kind": header(1, kind=3),
    "deep": header(DEEP),
    "unknown tag": header({"eval": "1"}),
    "two tags": header({"tuple": [], "list": []}),
    "no tag": header({}),
    "array": header({"array": "a9"}),
    "array by number": header({"array": 3}),
    "array by list": header({"array": []}),
    "header as array": header({"array": "header"}),
    "unknown type": header({"type": ["Unknown", {}]}),
    "builtin type": header({"type": ["object", {}]}),
    "type by path": header({"type": ["os.system", {}]}),
    "type of no name": header({"type": [[], {}]}),
    "enum as type": header({"type": ["Colour", {"value": "red"}]}),
    "type as enum": header({"enum": ["Node", "values"]}),
    "member": header({"enum": ["Colour", "GREEN"]}),
    "fields": header({"type": ["Node", {"other": 1}]}),
    "dunder": header({"type": ["Node", {"values": 1, "__class__": 1}]}),
    "hidden field": header({"type": ["Node", {"values": 1, "hidden": 1}]}),
    "missing field": header({"type": ["Node", {}]}),
    "field list": header({"type": ["Node", [1]]}),
    "dict of lists": header({"dict": [[[1], 2]]}),
    "dict twice": header({"dict": [["a", 2], ["a", 3]]}),
    "dict of three": header({"dict": [[1, 2, 3]]}),
    "float": header({"float": "1.5"}),
    "int": header({"int": "zz"}),
    "bytes": header({"bytes": "xyz"}),
    "complex": header({"complex": ["1", 2]}),
    "scalar": header({"scalar": ["<f8", "00"]}),
    "scalar object": header({"scalar": ["|O", "00" * 8]}),
    "scalar of no type": header({"scalar": ["<f8,<f8", "00" * 16]}),
    "objects": header({"objects": [[2], [1, 2, 3]]}),
    "many objects": header({"objects": [[10**15], []]}),
    "csr": header({"csr": ["array", [2, 2], 1, 2, 3]}),
    "csr form": header({"csr": ["list", [0, 0], 1, 2, {"tuple": [0]}]}),
    "csr rows": header({"csr": ["array", [10**12, 2], *[{"array": f"a{i}"} for i in range(3)]]}),
    "csr columns": header({"csr": ["array", [2, 2], *[{"array": f"a{i}"} for i in range(3)]]}),
}


@pytest.mark.parametrize("case", BAD)
def test_headers_of_others_are_refused(tmp_path, case):
    parts = {"a0": np.ones(2), "a1": np.array([0, 7]), "a2": np.array([0, 1, 2])}
    path = write_header(tmp_path / "x", BAD[case], **parts)
    tracemalloc.start()
    try:
        with pytest.raises(InvalidInputError, match="x' is not a saved thing"):
            read_value(path, "thing")
        assert tracemalloc.get_traced_memory()[1] < 20e6
    finally:
        tracemalloc.stop()


def test_fields_that_came_later_have_their_defaults(tmp_path):
    path = write_header(tmp_path / "x", header({"type": ["Node", {"values": 3}]}))
    assert read_value(path).value.parts == ()


def test_other_files_are_refused(tmp_path):
    (tmp_path / "text").write_text("no archive")
    (tmp_path / "empty").write_bytes(b"")
    np.savez(tmp_path / "other.npz", a=np.zeros(3))
    np.savez(tmp_path / "words.npz", header=np.array(["x"]))
    np.savez(tmp_path / "objects.npz", header=np.array([{}]), allow_pickle=True)
    with zipfile.ZipFile(tmp_path / "zip", "w") as archive:
        archive.writestr("header.npy", "no array")
    for path in tmp_path.iterdir():
        with pytest.raises(InvalidInputError, match="is not a saved value"):
            read_value(path)
    with pytest.raises(InvalidInputError, match="does not exist"):
        read_value(tmp_path / "none")
    with pytest.raises(InvalidInputError, match="must name a file, not be a int"):
        read_value(3)


VALUE = {"a": np.arange(5.0), "b": [1, 2.5, "x", None, (True,)], "c": Node(Colour.RED)}


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_damage_gives_an_error_or_the_value(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("fuzz")
    content = bytearray(write_value(folder / "x", VALUE, "k").read_bytes())
    place = data.draw(st.integers(0, len(content) - 1))
    kind = data.draw(st.sampled_from(["cut", "flip", "zero", "overwrite", "repeat"]))
    if kind == "cut":
        content = content[:place]
    elif kind == "flip":
        content[place] ^= 1 << data.draw(st.integers(0, 7))
    elif kind == "zero":
        content[place : place + 16] = bytes(len(content[place : place + 16]))
    elif kind == "overwrite":
        content[place : place + 4] = data.draw(st.binary(min_size=4, max_size=4))
    else:
        content = content + content[place:]
    (folder / "y").write_bytes(content)
    try:
        found = read_value(folder / "y")
    except InvalidInputError:
        return
    assert same(found.value, VALUE)


JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text()),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(
            st.sampled_from([*value_files._READERS, "x"]), inner, min_size=1, max_size=1
        ),
        st.tuples(st.sampled_from(["Node", "Pair", "Colour", "array", "<f8"]), inner).map(list),
    ),
    max_leaves=12,
)


@settings(max_examples=500, deadline=None)
@given(JSON)
def test_any_tree_is_a_value_or_refused(tree):
    with contextlib.suppress(InvalidInputError):
        decode(tree, {"a0": np.zeros(2)})


def test_the_file_opens_in_numpy(tmp_path):
    write_value(tmp_path / "x.npz", VALUE, "k")
    with np.load(tmp_path / "x.npz", allow_pickle=False) as stored:
        text = json.loads(stored["header"].tobytes())
        assert {n: text[n] for n in ("format", "format_version", "kind")} == {
            "format": "latensor", "format_version": FORMAT_VERSION, "kind": "k",
        }  # fmt: skip
        assert np.array_equal(stored["a0"], VALUE["a"])


def test_no_name_asks_for_compression(tmp_path):
    assert math.isnan(read_value(write_value(tmp_path / "x.npz.gz", math.nan, "k")).value)
