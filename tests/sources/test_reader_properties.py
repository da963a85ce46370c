"""Whatever a file holds, only latensor's own errors leave its readers."""

import contextlib
import gzip
import json

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import latensor as lt
from latensor.exceptions import InvalidInputError
from latensor.moments.batch import Kind
from latensor.sources import read_alignment, read_column, shards
from latensor.sources.newick import parse_newick
from latensor.sources.vocabulary import read_vocabulary

QUICK = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
# What lines of the formats are made of, so that damage is not noticed at once.
PIECES = [
    b"\n",
    b"\r\n",
    b"\r",
    b" ",
    b"\t",
    b",",
    b";",
    b'"',
    b"{",
    b"}",
    b":",
    b"0",
    b"1",
    b"3",
    b"-1",
    b"1e9",
    b"99999999999999999999",
    b"nan",
    b"text",
    b"word",
    b'{"text": "a b"}',
    b'{"text": 3}',
    b'{"text": null}',
    b"text,year\n",
    b"2 1:1 0:2",
    b"3\n4\n2\n1 1 1\n",
    b">name\n",
    b"ACGT",
    b"\x00",
    b"\xff\xfe",
    b"\xef\xbb\xbf",
    b"\xe2\x80\xa8",
    b"\\ud800",
    b"#",
    b"%",
    b"(a:1,b:2);",
    b"\x1f\x8b",
]
CONTENT = st.one_of(
    st.binary(max_size=200),
    st.lists(st.sampled_from(PIECES), max_size=30).map(b"".join),
    st.text(max_size=80).map(lambda text: text.encode("utf-8", "replace")),
)


def everything(source):
    """All batches of a source; rows and columns must be what it says."""
    n = 0
    for batch in source:
        assert batch.shape[1] == source.n_features
        assert np.isfinite(batch.data).all()
        assert (batch.data > 0).all()
        n += batch.shape[0]
    assert source.n_documents in (None, n)


READERS = {
    "documents": lambda path: everything(lt.read_documents(path)),
    **{
        f"documents as {kind}": lambda path, kind=kind: everything(
            lt.read_documents(path, format=kind)
        )
        for kind in ("uci", "ldac", "text", "jsonl", "csv", "parquet")
    },
    "documents by number": lambda path: everything(
        lt.read_documents(path, format="csv", text_column=0)
    ),
    "column": lambda path: read_column(path, "text"),
    "column of csv": lambda path: read_column(path, "year", format="csv"),
    "column of jsonl": lambda path: read_column(path, "text", format="jsonl"),
    "vocabulary": read_vocabulary,
    "alignment": read_alignment,
    "tensor": lambda path: lt.read_tns(path),
    "model": lt.load,
    **{
        f"shards of {kind}": lambda path, kind=kind: [
            list(part)
            for part in shards(str(path), format=kind, text="text").heads(Kind.DOCUMENTS, 5)
        ]
        for kind in ("jsonl", "csv", "parquet")
    },
}


@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize("name", READERS)
def test_only_latensors_errors_leave(tmp_path, name, zipped):
    path = tmp_path / "file"

    @QUICK
    @given(CONTENT)
    def check(content):
        path.write_bytes(gzip.compress(content, 1) if zipped else content)
        with contextlib.suppress(InvalidInputError):
            READERS[name](path)

    check()


@QUICK
@given(st.text(alphabet="()abc:,;'[]0123456789.eE- \n\x00", max_size=60))
def test_trees(text):
    try:
        tree, names = parse_newick(text)
    except InvalidInputError:
        return
    assert len(tree) >= len(names) > 0


@QUICK
@given(st.data())
def test_a_cut_or_changed_file_is_refused_or_read_whole(tmp_path, data):
    """Damage to well-formed files: every prefix, and every byte that is another."""
    records = [{"text": f"word{i} word{i + 1}", "year": 1990 + i} for i in range(6)]
    whole = "\n".join(json.dumps(record) for record in records).encode()
    at = data.draw(st.integers(0, len(whole) - 1))
    changed = data.draw(st.sampled_from([b"", b"\x00", b'"', b"}", b"\xff", b"\n"]))
    path = tmp_path / "file.jsonl"
    path.write_bytes(whole[:at] + changed + whole[at + 1 :] if changed else whole[:at])
    try:
        years = read_column(path, "year")
    except InvalidInputError:
        return
    assert len(years) <= 7
