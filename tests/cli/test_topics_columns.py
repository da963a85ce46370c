"""`latensor topics --date --group`: how topics differ between times and groups of documents."""

import csv
import json
import re
import shlex
from html import unescape

import numpy as np
import pytest
from click.testing import CliRunner

import latensor as lt
from cli.dated_documents import N, records, table
from latensor.cli import main


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tables")
    rows = records()
    (folder / "t.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    with open(folder / "t.csv", "w", newline="") as stream:
        writer = csv.DictWriter(stream, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    with open(folder / "bare.csv", "w", newline="") as stream:
        csv.DictWriter(stream, rows[0]).writerows(rows)
    (folder / "t.txt").write_text("\n".join(r["text"] for r in rows))
    return folder


def run(*arguments):
    return CliRunner().invoke(main, ["topics", *map(str, arguments), "--topics", "3"])


@pytest.mark.parametrize("name", ["t.csv", "t.jsonl"])
def test_a_report_shows_time_and_groups(folder, tmp_path, name):
    out = tmp_path / "report.html"
    result = run(folder / name, "--date", "year", "--group", "party", "--out", out)
    assert result.exit_code == 0, result.output
    assert "1 documents have no year" in result.output
    page = out.read_text()
    over_time, by_group = table(page, "time"), table(page, "group")
    assert [row[0] for row in over_time[1:]] == [str(year) for year in range(2000, 2020)]
    assert sum(int(row[1]) for row in over_time[1:]) == N - 1
    assert [row[0] for row in by_group[1:]] == ["lawyers", "others"]
    # Every topic is one theme: one of them goes, and lawyers have one for themselves.
    fractions = np.array([row[2:] for row in over_time[1:]], dtype=float)
    early, late = fractions[:6].mean(axis=0), fractions[-6:].mean(axis=0)
    assert (early - late).max() > 0.2
    groups = np.array([row[2:] for row in by_group[1:]], dtype=float)
    assert (groups[0] - groups[1]).max() > 0.3
    np.testing.assert_allclose(fractions.sum(axis=1), 1, rtol=1e-4)


def test_the_report_says_how_to_do_it_again_in_python(folder, tmp_path):
    out = tmp_path / "report.html"
    assert run(folder / "t.csv", "--date", "day", "--out", out).exit_code == 0
    snippet = unescape(
        re.search(r"<pre[^>]*>(?:<code>)?(import latensor.*?)<", out.read_text(), re.S)[1]
    )
    assert "topics_over_time" in snippet
    command = unescape(re.search(r"latensor topics [^<]*", out.read_text())[0])
    words = shlex.split(command)
    assert words[words.index("--date") + 1] == "day"


def test_columns_by_number_where_there_is_no_header(folder, tmp_path):
    out = tmp_path / "report.html"
    result = run(folder / "bare.csv", "--text-column", 4, "--date", 1, "--out", out)
    assert result.exit_code == 0, result.output
    assert len(table(out.read_text(), "time")) == 21


def test_the_words_as_a_table(folder, tmp_path):
    out = tmp_path / "topics.csv"
    assert run(folder / "t.csv", "--words", 4, "--out", out).exit_code == 0
    rows = list(csv.reader(out.read_text().splitlines()))
    assert rows[0] == ["topic", "fraction", "rank", "word", "probability", "lift"]
    assert len(rows) == 1 + 3 * 4


REFUSED = {
    "no such column": (["t.csv", "--date", "month"], "has no column 'month'.*--date"),
    "no such member": (["t.jsonl", "--group", "month"], "has no 'month'.*--group"),
    "no table": (["t.txt", "--date", "year"], "'year'"),
    "no dates": (["t.csv", "--date", "party"], "--date=party holds 'lawyers', which is no date"),
    "names of documents": (
        ["t.csv", "--group", "id"],
        "has more than 200 different values in 240 documents",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_is_refused_before_the_fit(folder, tmp_path, name):
    (file, *more), message = REFUSED[name]
    out = tmp_path / "report.html"
    result = run(folder / file, *more, "--out", out)
    assert result.exit_code == 2
    assert re.search(message, " ".join(result.output.split())), result.output
    assert len(result.output.strip().splitlines()) <= 4
    assert not out.exists()


def test_a_folder_and_no_report(folder, tmp_path):
    texts = tmp_path / "texts"
    texts.mkdir()
    (texts / "a.txt").write_text("a text")
    result = run(texts, "--date", "year", "--out", tmp_path / "r.html")
    assert "not a folder" in result.output
    result = run(folder / "t.csv", "--date", "year")
    assert result.exit_code == 2
    assert "give --out report.html" in " ".join(result.output.split())


def test_dates_in_python_are_those_of_the_report(folder, tmp_path):
    documents = lt.read_documents(folder / "t.csv")
    model = lt.LatentDirichletAllocation(3, random_state=0).fit(documents)
    days = lt.sources.read_column(folder / "t.csv", "day")
    days[5] = days[4]
    found = model.topics_over_time(documents, days, "calendar")
    assert found.labels == [str(year) for year in range(2000, 2020)]
