"""Columns beside the text: dates and groups of documents, in every kind of table."""

import gzip
import json
from datetime import date

import numpy as np
import pytest

import latensor as lt
from latensor.exceptions import InvalidInputError
from latensor.sources import read_column

ROWS = [(1999, "a", "war and peace"), (2001, "", "peace, peace"), (2003, "b", "")]


def written(folder, kind):
    path = folder / f"table.{kind}"
    if kind == "csv":
        lines = ["year,party,text", *(f'{y},{p},"{t}"' for y, p, t in ROWS)]
        path.write_text("\n".join(lines))
    elif kind == "jsonl":
        records = [{"year": y, "party": p or None, "text": t} for y, p, t in ROWS]
        path.write_text("\n\n".join(map(json.dumps, records)))
    elif kind == "jsonl.gz":
        path.write_bytes(gzip.compress(written(folder, "jsonl").read_bytes()))
    else:
        pyarrow = pytest.importorskip("pyarrow")
        parquet = pytest.importorskip("pyarrow.parquet")
        years, parties, texts = zip(*ROWS, strict=True)
        columns = {"year": years, "party": [p or None for p in parties], "text": texts}
        columns["day"] = [date(y, 5, 1) for y in years]
        parquet.write_table(pyarrow.table({k: list(v) for k, v in columns.items()}), path)
    return path


@pytest.mark.parametrize("kind", ["csv", "jsonl", "jsonl.gz", "parquet"])
def test_a_value_for_every_document(tmp_path, kind):
    path = written(tmp_path, kind)
    assert read_column(path, "year") == ["1999", "2001", "2003"]
    assert read_column(path, "party") == ["a", "", "b"]
    documents = lt.read_documents(path)
    counts = np.concatenate([batch.toarray() for batch in documents])
    assert documents.vocabulary == ["and", "peace", "war"]
    np.testing.assert_array_equal(counts, [[1, 1, 1], [0, 2, 0], [0, 0, 0]])
    assert documents.excerpts([1]) == {1: "peace, peace"}


def test_dates_of_parquet_are_written_out(tmp_path):
    assert read_column(written(tmp_path, "parquet"), "day")[0] == "1999-05-01"


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
def test_a_column_that_is_not_there_is_named(tmp_path, kind):
    with pytest.raises(InvalidInputError, match=r"'month'.*'year'.*with column"):
        read_column(written(tmp_path, kind), "month")


def test_numbers_are_no_texts(tmp_path):
    for kind in ("jsonl", "parquet"):
        with pytest.raises(InvalidInputError, match="'year' that is no text but of type int"):
            list(lt.read_documents(written(tmp_path, kind), text_column="year"))


def test_what_has_no_columns_is_refused(tmp_path):
    path = tmp_path / "docword.txt"
    path.write_text("1\n1\n1\n1 1 1\n")
    with pytest.raises(InvalidInputError, match="read as uci, which has no columns"):
        read_column(path, "year")
    with pytest.raises(InvalidInputError, match="cannot be read as Parquet"):
        read_column(path, "year", format="parquet")
