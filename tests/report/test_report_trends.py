"""Topics over time and by group, words by relevance and in context, tables to take along."""

import csv
import io
import re
from urllib.parse import unquote

import numpy as np
import pytest

from latensor.exceptions import InvalidInputError
from latensor.report import Trend, relevant_words, topic_report
from latensor.report.context import Highlighter
from latensor.report.csv_link import csv_text, topic_rows
from latensor.report.markup import fragment
from latensor.report.reading import ranked_words

from .pages import VOCABULARY, full_page, planted_topics, trend

HOSTILE = "<img src=x onerror=alert(1)>\u202e'\"&"


def test_a_page_has_a_figure_for_every_topic_over_time_and_by_group():
    page = topic_report(full_page(12))
    for anchor in ("over-time", "by-group"):
        section = page.split(f'<section id="{anchor}"')[1].split("</section>")[0]
        assert section.count("<svg") == 12
        # What differs most comes first; the rest waits until it is asked for.
        assert section.index("The other 4 topics") > section.index("<svg")
        assert "NaN" not in section
        assert ">nan" not in section
    assert "over-time" not in topic_report(full_page(12, trends=[]))


def test_those_that_differ_most_come_first():
    moving = trend("time", 3, ["a", "b", "c"])
    table = np.array([[0.5, 0.2, 0.3], [0.5, 0.4, 0.1], [0.5, 0.2, 0.3]])
    moving = Trend("time", "year", moving.labels, table, 0 * table, [3, 3, 3])
    page = topic_report(full_page(3, trends=[moving]))
    section = page.split('<section id="over-time"')[1]
    assert re.findall(r'href="#topic-(\d)"', section)[:3] == ["1", "2", "0"]


def test_many_groups_are_drawn_by_size_and_listed_whole():
    labels = [f"group {i:02d}" for i in range(40)]
    page = topic_report(full_page(3, trends=[trend("group", 3, labels)]))
    section = page.split('<section id="by-group"')[1].split("</section>")[0]
    assert "The 12 groups with the most documents are drawn." in section
    assert len(set(re.findall(r"group \d\d", section.split("<table")[1]))) == 40


def test_hostile_names_stay_text():
    page = topic_report(full_page(3, trends=[trend("group", 3, [HOSTILE, "b", "c"], HOSTILE)]))
    assert "<img" not in page
    assert "\u202e" not in page
    (address,) = re.findall(r'href="(data:text/csv[^"]*)" download="group.csv"', page)
    rows = list(csv.reader(io.StringIO(unquote(address.split(",", 1)[1]))))
    assert rows[1][0] == HOSTILE.replace("\u202e", "")
    assert len(rows) == 4


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kind": "space"}, "must be 'time' or 'group'"),
        ({"labels": ["a"]}, "and 1 labels need"),
        ({"fractions": np.zeros((2, 4))}, "differ in length"),
        ({"fractions": np.full((2, 3), -1.0)}, "at least 0"),
        ({"n_documents": [1]}, "differ in length"),
    ],
)
def test_parts_that_do_not_fit_are_refused(change, message):
    parts = {
        "kind": "time",
        "name": "year",
        "labels": ["a", "b"],
        "fractions": np.full((2, 3), 0.2),
        "errors": np.zeros((2, 3)),
        "n_documents": [1, 2],
    }
    with pytest.raises(InvalidInputError, match=message):
        Trend(**(parts | change))


def test_a_trend_of_other_topics_is_refused():
    with pytest.raises(InvalidInputError, match="4 columns for 3 topics"):
        full_page(3, trends=[trend("time", 4, ["a", "b"])])


def test_ranked_words_hold_the_best_at_every_relevance():
    topics, fractions = planted_topics(4)
    words = VOCABULARY[: topics.shape[1]]
    pools = ranked_words(topics, fractions, words, 7)
    for tenths in range(11):
        weight = tenths / 10
        best = relevant_words(topics, fractions, words, 7, weight)
        for pool, expected in zip(pools, best, strict=True):
            score = [weight * np.log(w.probability) + (1 - weight) * np.log(w.lift) for w in pool]
            order = np.argsort(-np.array(score), kind="stable")[:7]
            assert {pool[i].text for i in order} == {w.text for w in expected}


def marked(words, text, length=400):
    return str(fragment(Highlighter(words).excerpt(text, length)))


def test_words_of_the_topic_are_marked_where_most_of_them_stand():
    assert marked(["cat", "dog"], "A Cat, a dogma & a dog") == (
        "A <mark>Cat</mark>, a dogma &amp; a <mark>dog</mark>"
    )
    text = "cat " + "nothing here " * 60 + "the cat met the dog in Rome " + "and so on " * 60
    found = marked(["cat", "dog", "rome"], text, 200)
    assert found.startswith("… ")
    assert found.endswith(" …")
    assert all(f"<mark>{word}</mark>" in found for word in ("cat", "dog", "Rome"))
    assert len(re.sub("<.*?>", "", found)) <= 206


@pytest.mark.parametrize(
    ("words", "text", "expected"),
    [
        ([], "plain", "plain"),
        (["", " "], "plain", "plain"),
        (["c++", "a.b"], "c++ is a.b, not aXb", "<mark>c++</mark> is <mark>a.b</mark>, not aXb"),
        (["data", "data base"], "a data base", "a <mark>data base</mark>"),
        (["<b>"], "x <b> y", "x <mark>&lt;b&gt;</mark> y"),
        # A letter that grows when lowered shifts places: nothing is marked wrongly.
        (["cat"], "\u0130 cat", "\u0130 cat"),
        (["w"], "w" * 900, "w" * 400 + " …"),
    ],
)
def test_odd_words_and_texts(words, text, expected):
    assert marked(words, text) == expected


def test_tables_are_whole_and_run_nothing():
    rows = list(csv.reader(io.StringIO(csv_text(topic_rows(full_page(3))))))
    assert rows[0] == ["topic", "fraction", "rank", "word", "probability", "lift"]
    assert len(rows) == 1 + 3 * 10
    assert csv_text([["=1+1", "-0.5", "-x", '"', "a,b", 3]]) == ('\'=1+1,-0.5,\'-x,"""","a,b",3\n')
