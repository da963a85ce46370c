"""Files of text against scikit-learn's CountVectorizer: the same words and counts."""

import csv
import io
import json
import tempfile

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.feature_extraction.text import CountVectorizer

from latensor.exceptions import InvalidInputError
from latensor.sources import DocumentSource, TemporaryCopy, read_documents
from latensor.sources.separated_values import _records
from latensor.sources.stop_words import ENGLISH
from latensor.sources.tokens import Tokenizer

from .corpora import TEXTS, assert_well_formed, dense, stacked, write


def as_lines(texts):
    return "\n".join(texts) + "\n"


def as_json_lines(texts, ascii_only=False):
    return "".join(
        json.dumps({"id": i, "text": text}, ensure_ascii=ascii_only) + "\n"
        for i, text in enumerate(texts)
    )


def as_csv(texts, delimiter=","):
    target = io.StringIO()
    writer = csv.writer(target, delimiter=delimiter, lineterminator="\n")
    writer.writerow(["id", "text", "label"])
    writer.writerows([i, text, "a b"] for i, text in enumerate(texts))
    return target.getvalue()


WAYS = {"corpus.txt": as_lines, "corpus.jsonl": as_json_lines, "corpus.csv": as_csv}


def assert_same_as_peer(source, texts, **options):
    peer = CountVectorizer(**options)
    expected = peer.fit_transform(texts)
    assert source.vocabulary == peer.get_feature_names_out().tolist()
    assert source.n_features == expected.shape[1]
    np.testing.assert_array_equal(dense(source), expected.toarray())


@pytest.mark.parametrize("name", WAYS)
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("compress", [False, True])
@pytest.mark.parametrize("batch_size", [1, 4, 4096])
def test_every_format_counts_the_same(name, newline, compress, batch_size, tmp_path):
    path = write(tmp_path, WAYS[name](TEXTS), name + ".gz" * compress, compress, newline)
    source = read_documents(path, batch_size=batch_size)
    assert isinstance(source, DocumentSource)
    assert_well_formed(source, batch_size)
    assert source.n_documents == len(TEXTS)
    assert_same_as_peer(source, TEXTS)


OPTIONS = [
    {"min_df": 2},
    {"min_df": 0.3},
    {"max_df": 2},
    {"max_df": 1},
    {"max_df": 0.25},
    {"min_df": 2, "max_df": 0.4},
    {"min_df": np.int64(2), "max_df": np.float64(0.5)},
    {"stop_words": ["the", "cat"]},
    {"stop_words": ["the"], "min_df": 2},
    {"lowercase": False},
    {"token_pattern": r"\b\w+\b"},
    {"token_pattern": r"\w{2,}"},
    {"token_pattern": r"[a-z]+"},
    {"token_pattern": r"(?u)\b(\w)\w+\b"},
    {"token_pattern": r"\S+", "lowercase": False},
    {"max_features": 2},
    {"vocabulary": ["mat", "unseen", "cat", "the"]},
    {"vocabulary": ["x", "cat", "東京"]},
    {"vocabulary": ["Größe", "größe"], "lowercase": False},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_options_mean_the_same(options, tmp_path):
    source = read_documents(write(tmp_path, as_lines(TEXTS)), **options)
    assert_same_as_peer(source, TEXTS, **options)
    assert_well_formed(source, 4096)


def test_most_frequent_words_ties_in_the_order_of_the_columns(tmp_path):
    path = write(tmp_path, "bb cc dd aa\nbb bb\n")
    assert read_documents(path, max_features=2).vocabulary == ["aa", "bb"]
    assert read_documents(path, max_features=9).vocabulary == ["aa", "bb", "cc", "dd"]


texts_of_any_kind = st.lists(
    st.text(
        st.one_of(
            st.sampled_from("ab cd_-'’ΣσÉé\t\u00a0\u2028\x1c\u0300٣"),
            st.characters(exclude_categories=("Cs",), exclude_characters="\n\r\0"),
        ),
        max_size=30,
    ),
    min_size=1,
    max_size=12,
)


@settings(max_examples=60, deadline=None)
@given(texts_of_any_kind, st.booleans())
def test_words_are_those_of_the_regular_expression(texts, lowercase):
    tokenizer = Tokenizer(lowercase=lowercase)
    analyze = CountVectorizer(lowercase=lowercase).build_analyzer()
    for text, found in zip(texts, tokenizer.words(texts), strict=True):
        assert [word for word in found if tokenizer.is_word(word)] == analyze(text)


@settings(max_examples=25, deadline=None)
@given(st.sampled_from(sorted(WAYS)), texts_of_any_kind.map(lambda t: [*t, "ok"]))
def test_any_text_survives_every_format(name, texts):
    import pathlib

    with tempfile.TemporaryDirectory() as folder:
        # A leading mark of the byte order belongs to the file, not to its text.
        texts = ["first", *texts]
        source = read_documents(write(pathlib.Path(folder), WAYS[name](texts), name))
        assert_same_as_peer(source, texts)
        assert source.excerpts(range(len(texts))) == dict(enumerate(texts))


def test_texts_with_line_ends_quotes_and_escapes(tmp_path):
    texts = [
        'two\nlines "quoted", comma',
        "back\\slash\r\nline",
        "tab\there; semi",
        '"',
        "é\ud800x",
    ]
    path = write(tmp_path, as_json_lines(texts, ascii_only=True), "odd.jsonl")
    source = read_documents(path)
    texts[-1] = "é?x"
    assert_same_as_peer(source, texts)
    texts[1], texts[-1] = "back\\slash\nline", "plain"
    for delimiter in ",\t;|":
        path = write(tmp_path, as_csv(texts, delimiter), "odd.csv")
        assert_same_as_peer(read_documents(path), texts)


def test_text_longer_than_a_block_or_a_csv_field(tmp_path, monkeypatch):
    # What holds for the whole process is not ours to change, not even for a while.
    monkeypatch.setattr(csv, "field_size_limit", None)
    rng = np.random.default_rng(0)
    words = np.array([f"word{i}" for i in range(500)])
    texts = [" ".join(rng.choice(words, n)) for n in (5, 100_000, 1, 90_000, 3)]
    texts.append("\n".join(["a line", '"quoted",'] * 20_000))
    for name, spell in WAYS.items():
        given = texts[:-1] if name.endswith(".txt") else texts
        assert_same_as_peer(read_documents(write(tmp_path, spell(given), name)), given)


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.text('a",;\n', max_size=8), max_size=6).map(lambda parts: ",".join(parts) + "\n")
)
def test_records_are_those_of_the_csv_module(text):
    def parsed(reader):
        try:
            return list(reader)
        except csv.Error:
            return None

    lines = text.splitlines(keepends=True)
    ours = parsed(record for _, record in _records(lines, ","))
    assert ours == parsed(csv.reader(lines, strict=True))
    if ours is not None:
        assert sum(n for n, _ in _records(lines, ",")) == len(lines)


def test_one_line_without_an_end_and_a_byte_order_mark(tmp_path):
    source = read_documents(write(tmp_path, b"\xef\xbb\xbfhello world"))
    assert source.vocabulary == ["hello", "world"]
    assert dense(source).tolist() == [[1, 1]]
    source = read_documents(write(tmp_path, b"\xef\xbb\xbftext,n\r\nhello,1", "a.csv"))
    assert source.vocabulary == ["hello"]
    assert source.n_documents == 1


def test_blank_lines_are_documents_of_text_only(tmp_path):
    assert read_documents(write(tmp_path, "\n\naa bb\n\n")).n_documents == 4
    path = write(tmp_path, '\n{"text": "aa"}\n  \n{"text": "bb"}\n\n', "a.jsonl")
    assert read_documents(path).n_documents == 2
    path = write(tmp_path, "\ntext\naa\n\nbb\n\n", "a.csv")
    assert read_documents(path).n_documents == 2


@pytest.mark.parametrize(
    "content, name, options",
    [
        ("title,body\nno,yes\n", "a.csv", {"text_column": "body"}),
        ("title;body\nno, no;yes\n", "a.txt", {"text_column": "body"}),
        ('title| body \n"no, no"|yes\n', "a.tsv", {"text_column": "body"}),
        ("body\nyes\n", "a.csv", {}),
        ("no\tyes\n", "a.tsv", {"text_column": 1}),
        ("no, nor; never\tyes\n", "a", {"text_column": 1}),
        ("no,yes\n", "a.txt", {"text_column": 1, "format": "csv"}),
        ('{"body": "yes", "text": "no"}\n', "a.txt", {"text_column": "body"}),
        ('{"text": "yes"}\n{"text": null}\n', "a.txt", {}),
        ('{"text": "yes"}\n', "a.csv", {}),
        ('{"text": "yes"}\n', "a.log", {"format": "jsonl"}),
        ("yes\n", "a.csv", {"format": "text"}),
        ("yes", "corpus", {}),
    ],
)
def test_which_column_of_which_format(content, name, options, tmp_path):
    assert read_documents(write(tmp_path, content, name), **options).vocabulary == ["yes"]


def test_compression_is_told_from_the_content(tmp_path):
    for name, compress in (("a.txt", True), ("a.txt.gz", False)):
        assert read_documents(write(tmp_path, "yes", name, compress)).vocabulary == ["yes"]


def test_english_stop_words(tmp_path):
    source = read_documents(
        write(tmp_path, "We don't think that the topic is about his computers"),
        stop_words="english",
    )
    assert source.vocabulary == ["computers", "think", "topic"]
    assert 150 <= len(ENGLISH) <= 210
    assert all(word == word.lower() and word.isalpha() for word in ENGLISH)


def test_given_vocabulary_from_a_file_and_further_choice(tmp_path):
    path = write(tmp_path, as_lines(TEXTS))
    words = write(tmp_path, "the\r\ncat\r\nunseen\r\ndog\r\n\r\n", "words.txt.gz", compress=True)
    source = read_documents(path, vocabulary=words)
    assert source.vocabulary == ["the", "cat", "unseen", "dog"]
    assert source.n_documents is None
    assert_well_formed(source, 4096)
    everything = dense(source)
    source = read_documents(path, vocabulary=words, stop_words=["the"])
    assert source.vocabulary == ["cat", "unseen", "dog"]
    np.testing.assert_array_equal(dense(source), everything[:, 1:])
    source = read_documents(path, vocabulary=str(words), min_df=2, max_features=2)
    assert source.vocabulary == ["the", "cat"]
    np.testing.assert_array_equal(dense(source), everything[:, :2])


def test_excerpts(tmp_path):
    source = read_documents(write(tmp_path, as_lines(TEXTS), newline="\r\n"))
    assert source.excerpts([]) == {}
    assert source.excerpts(np.array([6, 0, 6])) == {0: TEXTS[0], 6: TEXTS[6]}
    with pytest.raises(InvalidInputError, match=f"no document 9: .* holds {len(TEXTS)}"):
        source.excerpts([9])
    for bad in (-1, "0", 1.0):
        with pytest.raises(InvalidInputError, match="document_numbers holds"):
            source.excerpts([bad])


@pytest.mark.parametrize("compress", [False, True])
def test_progress_is_told(compress, tmp_path):
    path = write(tmp_path, "some words here\n" * 50_000, compress=compress)
    told = []
    read_documents(path, progress=lambda *numbers: told.append(numbers))
    size = path.stat().st_size
    assert len(told) > 2
    assert told == sorted(told)
    assert {total for _, total, _ in told} == {size}
    assert told[-1] == (size, size, 50_000)


def test_without_room_for_a_temporary_file_each_pass_tokenizes(tmp_path, monkeypatch):
    def refuse(**options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tempfile, "TemporaryFile", refuse)
    source = read_documents(write(tmp_path, as_lines(TEXTS)), min_df=2)
    assert_well_formed(source, 4096)
    assert_same_as_peer(source, TEXTS, min_df=2)


def test_text_through_a_spool(tmp_path):
    source = read_documents(write(tmp_path, as_lines(TEXTS)), batch_size=2)
    expected = stacked(source).toarray()
    with TemporaryCopy(source) as copied:
        assert copied.vocabulary == source.vocabulary
        for _ in range(2):
            np.testing.assert_array_equal(dense(copied), expected)
