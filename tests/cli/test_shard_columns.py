"""`latensor topics --date --group` on many files: the fractions are those of all documents."""

import csv
import gzip
import importlib.util
import json
import re

import numpy as np
import pytest
from click.testing import CliRunner

import latensor as lt
from cli.dated_documents import records, table
from latensor.cli import main

needs_dask = pytest.mark.skipif(importlib.util.find_spec("dask") is None, reason="needs Dask")
needs_arrow = pytest.mark.skipif(
    importlib.util.find_spec("pyarrow") is None, reason="needs pyarrow"
)
# The years of the last file only are later than 2013, and lawyers write in all of them.
PARTS = np.array_split(np.arange(len(records())), 3)


def write_csv(path, rows):
    with open(path, "w", newline="") as stream:
        writer = csv.DictWriter(stream, rows[0])
        writer.writeheader()
        writer.writerows(rows)


def write_json(path, rows):
    with gzip.open(path, "wt") as stream:
        stream.writelines(json.dumps(row) + "\n" for row in rows)


def write_parquet(path, rows):
    import pyarrow
    import pyarrow.parquet

    columns = {name: [row[name] for row in rows] for name in rows[0]}
    pyarrow.parquet.write_table(pyarrow.table(columns), path)


WRITERS = {"csv": write_csv, "jsonl.gz": write_json, "parquet": write_parquet}


def written(folder, suffix):
    rows = records()
    for number, part in enumerate(PARTS):
        WRITERS[suffix](folder / f"{number}.{suffix}", [rows[i] for i in part])
    return folder / f"*.{suffix}"


def run(*arguments):
    return CliRunner().invoke(main, ["topics", *map(str, arguments), "--topics", "3"])


@pytest.mark.parametrize(
    "suffix, engine",
    [
        ("csv", None),
        ("jsonl.gz", "local"),
        pytest.param("parquet", "local", marks=needs_arrow),
        pytest.param("jsonl.gz", "dask", marks=needs_dask),
    ],
)
def test_time_and_groups_of_many_files(tmp_path, suffix, engine):
    files, out, saved = written(tmp_path, suffix), tmp_path / "r.html", tmp_path / "m.npz"
    more = () if engine is None else ("--engine", engine)
    options = ("--date", "day", "--group", "party", "--out", out, "--save", saved)
    result = run(files, *options, *more)
    assert result.exit_code == 0, result.output
    assert "1 documents have no day" in result.output
    rows = [row for row in records() if row["party"]]
    model, texts = lt.load(saved), [row["text"] for row in rows]
    days, parties = [row["day"] for row in rows], [row["party"] for row in rows]
    for kind, expected in (
        ("time", model.topics_over_time(texts, days, "calendar")),
        ("group", model.topics_by_group(texts, parties)),
    ):
        found = table(out.read_text(), kind)[1:]
        assert [row[0] for row in found] == list(map(str, expected.labels))
        assert [int(row[1]) for row in found] == expected.n_documents.tolist()
        fractions = np.array([row[2:] for row in found], dtype=float)
        np.testing.assert_allclose(fractions, expected.fractions, rtol=2e-4, atol=2e-6)


def test_numbers_and_groups_stay_as_they_are_written(tmp_path):
    for part in range(2):
        rows = [
            {"at": f"{i + 100 * part}.5", "post": f"00{i % 2}", "text": f"{w} {w} {w}"}
            for i, w in enumerate(["sea ship", "law court", "tea cup"] * 10)
        ]
        write_csv(tmp_path / f"{part}.csv", rows)
    out = tmp_path / "r.html"
    result = run(tmp_path / "*.csv", "--date", "at", "--group", "post", "--out", out)
    assert result.exit_code == 0, result.output
    assert [row[0] for row in table(out.read_text(), "group")[1:]] == ["000", "001"]
    assert [row[0] for row in table(out.read_text(), "time")[1:3]] == ["0.5", "13.4"]


REFUSED = {
    "no such column": (["*.csv", "--date", "month"], "has no column 'month'.*--date"),
    "no such member": (["*.jsonl.gz", "--group", "month"], "has no 'month'.*--group"),
    "no table": (["*.txt", "--date", "year"], "--date=year needs tables"),
    "no dates": (["*.csv", "--date", "party"], "--date=party holds 'lawyers', which is no date"),
    "names of documents": (["*.csv", "--group", "id"], "more than 200 different values in 240"),
    "empty": (["*.csv", "--group", "blank"], "--group=blank is empty in all 240 documents"),
    "a table": (["*.csv", "--group", "party", "--out", "t.csv"], "must end with .html"),
    "no report": (["*.csv", "--group", "party", "--out", None], "give --out report.html"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_is_refused_before_the_fit(tmp_path, name, monkeypatch):
    monkeypatch.setattr(lt.LatentDirichletAllocation, "fit", lambda *a, **k: pytest.fail("fitted"))
    rows = [row | {"blank": ""} for row in records()]
    for number, part in enumerate(PARTS):
        write_csv(tmp_path / f"{number}.csv", [rows[i] for i in part])
        write_json(tmp_path / f"{number}.jsonl.gz", [rows[i] for i in part])
        (tmp_path / f"{number}.txt").write_text("a text\n")
    (file, *more), message = REFUSED[name]
    if "--out" not in more:
        more += ["--out", tmp_path / "report.html"]
    elif more[-1] is None:
        more = more[:-2]
    result = run(tmp_path / file, *more)
    assert result.exit_code == 2, result.output
    assert re.search(message, " ".join(result.output.split())), result.output
    assert len(result.output.strip().splitlines()) <= 5
