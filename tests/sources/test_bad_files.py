"""Files and options that cannot be used: the file, the line and what to do."""

import gzip
import os

import pytest

from latensor.exceptions import InvalidInputError
from latensor.sources import read_documents

from .corpora import write

GZIPPED = gzip.compress(b"some words here\n" * 5000, mtime=0)

# Content, name of the file, options, what the message must say.
BAD = [
    ("", "a.txt", {}, "a.txt is empty"),
    (b"\xef\xbb\xbf", "a.txt", {"vocabulary": ["a"]}, "no documents"),
    (gzip.compress(b"", mtime=0), "a.txt", {}, "a.txt is empty"),
    ("\n", "a.txt", {}, "holds no words.*1 documents"),
    (", . !\n", "a.txt", {}, "holds no words"),
    (
        "a b c\n",
        "a.txt",
        {},
        "no words are left of 3 in 1 documents: give fewer stop words or [^;]*$",
    ),
    ("aa\naa\n", "a", {"max_df": 1}, "no words are left of 1 in 2 documents: raise max_df=1$"),
    (GZIPPED[:-40], "a.gz", {}, "a.gz is truncated"),
    (GZIPPED[:60] + b"\x17\x42\x99" + GZIPPED[63:], "a.gz", {}, "a.gz is (damaged|truncated)"),
    (GZIPPED[:-8] + b"\0" * 8, "a.gz", {}, "a.gz is damaged: CRC"),
    (b"BZh91AY", "a.bz2", {}, "compressed by bzip2"),
    (b"\xfd7zXZ\0", "a.xz", {}, "compressed by xz"),
    (b"PK\x03\x04", "a.zip", {}, "zip archive"),
    (b"a\0b", "a", {}, "not a text file"),
    ("hello".encode("utf-16"), "a", {}, "UTF-16"),
    (b"fine\nfine\nf\xfcr\n", "a", {}, r"line 3 of .*a is not UTF-8 text \(byte 0xfc\)"),
    (b"fine\n" * 99_999 + b"\x80\n", "a", {}, "line 100000 of .* is not UTF-8"),
    (b'{"text": "\xff"}\n', "a.jsonl", {}, "line 1 of .* is not UTF-8"),
    # UCI bag-of-words
    ("2\n3\n", "docword.a", {}, "ends within its header"),
    ("2\n", "a", {"format": "uci"}, "ends within its header"),
    ("two\n3\n1\n", "a", {"format": "uci"}, "line 1 .* should give the number of documents: 'two'"),
    ("2\n3.5\n1\n", "a", {"format": "uci"}, "line 2 .* should give the number of words"),
    ("2\n3\n-1\n", "a", {"format": "uci"}, "line 3 .* should give the number of entries"),
    ("0\n3\n0\n", "a", {}, "line 1 .* no documents"),
    ("3\n0\n0\n", "a", {}, "line 2 .* no words"),
    ("9999999999\n3\n0\n", "a", {}, "line 1 .* too many"),
    ("2000000000\n3\n1\n1 1 1\n", "a", {}, "2,000,000,000 documents, but only 1 entries"),
    ("2\n2000000000\n1\n1 1 1\n", "a", {}, "2,000,000,000 words, but only 1 entries"),
    ("2\n3\n2\n1 1 1\n1 2\n", "a", {}, "line 5 .* has 2 fields instead of .*: '1 2'"),
    ("2\n3\n2\n1 1 1\n1 2 3 4\n", "a", {}, "line 5 .* has 4 fields"),
    ("2\n3\n2\n1 1 1\n1 2\n3 2 1 1\n", "a", {}, "line 5 .* has 2 fields"),
    ("2\n3\n2\n1 1 1\n1 x 3\n", "a", {}, "line 5 .* has 'x' where a whole number"),
    ("2\n3\n2\n1 1 1\n1 2 1.5\n", "a", {}, "line 5 .* has '1.5' where a whole number"),
    ("2\n3\n2\n1 1 1\n1 2 0\n", "a", {}, "line 5 .* has the count 0: a count is at least 1"),
    ("2\n3\n2\n1 1 1\n1 2 -4\n", "a", {}, "line 5 .* has the count -4: a count"),
    ("2\n3\n2\n1 1 1\n1 2 16777216\n", "a", {}, "line 5 .* too large"),
    ("2\n3\n2\n1 1 1\n3 2 1\n", "a", {}, "line 5 .* names document 3, but .* 2 documents"),
    ("2\n3\n2\n1 1 1\n0 2 1\n", "a", {}, "line 5 .* names document 0: documents count from 1"),
    ("2\n3\n2\n1 1 1\n1 4 1\n", "a", {}, "line 5 .* names word 4, but .* 3 words"),
    ("2\n3\n2\n1 1 1\n1 0 1\n", "a", {}, "line 5 .* names word 0: words count from 1"),
    ("2\n3\n2\n1 1 1\n1 99999999999999999999999 1\n", "a", {}, "line 5 .* names word .* 3 words"),
    ("2\n3\n2\n1 1 1\n1 999999999999999 1\n", "a", {}, "line 5 .* names word 999999999999999, but"),
    ("2\n3\n2\n2 1 1\n1 2 1\n", "a", {}, "line 5 .* document 1 after a later one: sort"),
    ("2\n3\n2\n\n2 1 1\n\n1 2 1\n", "a", {}, "line 7 .* document 1 after a later one"),
    ("2\n3\n3\n1 1 1\n1 2 1\n", "a", {}, r"holds 2 entries, but .* \(line 3\) says 3"),
    ("2\n3\n1\n1 1 1\n1 2 1\n", "a", {}, "line 5 .* one more than the 1 entries"),
    ("2\n3\n0\n", "a", {"vocabulary": ["a", "b"]}, "holds 2 words, but .* 3 columns"),
    ("2\n3\n0\n", "a", {"stop_words": "english"}, "stop_words need a vocabulary"),
    ("2\n3\n0\n", "a", {"text_column": "text", "format": "uci"}, "text_column='text' has no"),
    ("2\n3\n0\n", "a", {"lowercase": False}, "lowercase have no meaning .* uci"),
    ("2\n3\n0\n", "a", {"token_pattern": "x"}, "token_pattern .* no meaning .* uci"),
    ("2\n1\n0\n", "a", {"stop_words": ["a"], "vocabulary": ["a"]}, "stop_words leave no word"),
    ("2\n1\n0\n", "a", {"min_df": 2}, "no words are left of 1"),
    # LDA-C
    ("0\n0\n", "a.ldac", {}, "holds no words: every document is empty"),
    ("\n\n", "a.ldac", {"vocabulary": ["a"]}, "holds no documents"),
    ("1 0:1\nx 0:1\n", "a.ldac", {}, "line 2 .* does not start with its number of words"),
    ("1 0:1\n-1\n", "a.ldac", {}, "line 2 .* does not start with its number"),
    ("1 0:1\n2 0:1\n", "a.ldac", {}, "line 2 .* announces 2 words, but holds 1"),
    ("1 0:1\n1 0:1 1:1\n", "a.ldac", {}, "line 2 .* announces 1 words, but holds 2"),
    ("1 0:1\n1 0\n", "a.ldac", {}, "line 2 .* has '0' instead of `word:count`"),
    ("1 0:1\n1 0:1:1\n", "a.ldac", {}, "line 2 .* has '0:1:1' instead"),
    ("1 0:1\n1 0:1.5\n", "a.ldac", {}, "line 2 .* has '0:1.5' instead"),
    ("1 0:1\n2 0:1 2:0\n", "a.ldac", {}, "line 2 .* has the count 0"),
    ("1 0:1\n\n2 0:1 -2:1\n", "a.ldac", {}, "line 3 .* names word -2: words count from 0"),
    ("1 0:1\n1 3000000000:1\n", "a.ldac", {}, "line 2 .* names word .* too large"),
    (
        "1 0:1\n1 2:1\n",
        "a.ldac",
        {"vocabulary": ["a", "b"]},
        "line 2 .* names word 2, but .* 2 words",
    ),
    ("1 0:1\n0\n1 0:99999999999\n", "a.ldac", {}, "line 3 .* too large to be one"),
    # JSON lines
    ('{"text": "a"}\n{"text": \n', "a", {}, "line 2 .* is not JSON .*one object per line"),
    ('{"text": "a"}\n[1]\n', "a", {}, "line 2 .* is a JSON list"),
    ("[\n{}\n]\n", "a.json", {}, "line 1 .* is not JSON"),
    (
        '{"text": "a"}\n\n{"body": "b", "id": 1}\n',
        "a",
        {},
        "line 3 .* no 'text'; it has 'body', 'id'",
    ),
    ('{"text": "a"}\n', "a", {"text_column": "body"}, "line 1 .* no 'body'; it has 'text'"),
    ('{"text": 3}\n', "a", {}, "line 1 .* no text but of type int"),
    ('{"text": "a"}\n', "a", {"text_column": 0}, "text_column=0 must be the name"),
    ("[" * 100_000 + "\n", "a.jsonl", {}, "line 1 .* is not JSON"),
    # CSV
    ("id,body\n1,a\n", "a.csv", {}, "no column 'text'; its first line names 'id', 'body'"),
    ("id,body\n1,a\n", "a.csv", {"text_column": "x"}, "no column 'x'; .* 'id', 'body'"),
    ("id,body\n1,a\n", "a.csv", {"text_column": 2}, "text_column=2 is out of range: .* 2 columns"),
    ("id,body\n1,a\n", "a.csv", {"text_column": -1}, "text_column=-1 must be"),
    ("id,body\n1,a\n", "a.csv", {"text_column": 1.5}, "text_column=1.5 must be"),
    ("text,text\n1,a\n", "a.csv", {}, "several columns named 'text'"),
    ("id,text\n1,a\n2,b,c\n", "a.csv", {}, "line 3 .* has 3 fields where the first line has 2"),
    ("id,text\n1,a\n\n2\n", "a.csv", {}, "line 4 .* has 1 fields"),
    ('id,text\n1,"a\nb"\n2,"c\nd\n', "a.csv", {}, "line 4 .* begins a record that is not well"),
    ('id,text\n1,"a" b\n', "a.csv", {}, "line 2 .* begins a record that is not well formed"),
    ("\n\n", "a.csv", {}, "is blank"),
    ("id,text\r1,a\r", "a.csv", {}, "carriage returns alone: save it with line feeds"),
    ("some words\rothers\r", "a.txt", {}, "carriage returns alone"),
    ("id,te\rxt\n1,a\n", "a.csv", {"text_column": 1}, "line 1 .* not well formed"),
    ("id,text\n1,a\rb\n", "a.csv", {}, "line 2 .* not well formed .*carriage return"),
    ("text\n", "a.csv", {}, "holds no (documents|words)"),
    # Options
    ("aa\n", "a", {"text_column": "x", "format": "text"}, "text_column='x' has no meaning"),
    ("aa\n", "a", {"format": "xml"}, "format='xml' must be one of uci, ldac"),
    ("aa\n", "a", {"batch_size": 0}, "batch_size=0"),
    ("aa\n", "a", {"progress": 3}, "progress=3"),
    ("aa\n", "a", {"lowercase": 1}, "lowercase=1"),
    ("aa\n", "a", {"token_pattern": "("}, "is not a regular expression"),
    ("aa\n", "a", {"token_pattern": "(a)(b)"}, "has 2 groups"),
    ("aa\n", "a", {"token_pattern": None}, "token_pattern=None must be"),
    ("aa\n", "a", {"min_df": 0}, "min_df=0 must be a number of documents"),
    ("aa\n", "a", {"min_df": 1.5}, "min_df=1.5"),
    ("aa\n", "a", {"max_df": -0.1}, "max_df=-0.1"),
    ("aa\n", "a", {"max_df": True}, "max_df=True"),
    ("aa\n", "a", {"min_df": "2"}, "min_df='2'"),
    ("aa\n", "a", {"min_df": float("nan")}, "min_df=nan"),
    ("aa\n", "a", {"min_df": 2, "max_df": 1}, "max_df=1 .* is below min_df=2"),
    ("aa\n", "a", {"min_df": 2}, "no words are left of 1 in 1 documents: lower min_df=2"),
    ("aa\n", "a", {"max_features": 0}, "max_features=0"),
    ("aa\n", "a", {"stop_words": "german"}, "stop_words='german' is not known"),
    ("aa\n", "a", {"stop_words": [1]}, "stop_words holds 1"),
    ("aa\n", "a", {"stop_words": 5}, "stop_words holds 5"),
    ("aa\n", "a", {"stop_words": ["aa"]}, "no words are left"),
    ("aa\n", "a", {"stop_words": ["aa"], "vocabulary": ["aa"]}, "stop_words leave no word"),
    ("aa\n", "a", {"vocabulary": []}, "vocabulary is empty"),
    ("aa\n", "a", {"vocabulary": ["a", "a"]}, "vocabulary holds 'a' twice"),
    ("aa\n", "a", {"vocabulary": {"a": 0}}, "vocabulary is a dict"),
]


@pytest.mark.parametrize("content, name, options, message", BAD)
def test_bad_files_and_options(content, name, options, message, tmp_path):
    path = write(tmp_path, content, name)
    with pytest.raises(InvalidInputError, match=f"(?s){message}"):
        for _ in read_documents(path, **options):
            pass
    assert os.listdir(tmp_path) == [name]


@pytest.mark.parametrize(
    "content, message",
    [
        ("a\nb\na\n", "line 3 of .*words.txt holds 'a', which line 1 holds already"),
        ("a\n\nb\n", "line 2 of .*words.txt is blank, but words follow"),
        ("\n\n", "words.txt holds no words"),
        ("", "words.txt holds no words"),
        (b"a\n\xff\n", "line 2 of .*words.txt is not UTF-8"),
    ],
)
def test_bad_vocabulary_files(content, message, tmp_path):
    words = write(tmp_path, content, "words.txt")
    path = write(tmp_path, "aa bb\n")
    with pytest.raises(InvalidInputError, match=message):
        read_documents(path, vocabulary=words)
    with pytest.raises(InvalidInputError, match=r"none.txt cannot be read: No such file"):
        read_documents(path, vocabulary=tmp_path / "none.txt")


def test_what_is_no_file(tmp_path):
    with pytest.raises(InvalidInputError, match=r"none.txt cannot be read: No such file"):
        read_documents(tmp_path / "none.txt")
    with pytest.raises(InvalidInputError, match="is a folder without text files"):
        read_documents(tmp_path)
    with pytest.raises(InvalidInputError, match="path must name a file"):
        read_documents(3)
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "pipe")
        with pytest.raises(InvalidInputError, match="not a regular file"):
            read_documents(tmp_path / "pipe")


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root reads everything")
def test_a_file_that_must_not_be_read(tmp_path):
    path = write(tmp_path, "aa")
    path.chmod(0)
    with pytest.raises(InvalidInputError, match="cannot be read: Permission denied"):
        read_documents(path)


def test_a_file_that_changes_between_passes(tmp_path):
    path = write(tmp_path, "1 0:1\n", "a.ldac")
    source = read_documents(path)
    list(source)
    write(tmp_path, "1 0:1\n1 0:2\n", "a.ldac")
    with pytest.raises(InvalidInputError, match="has changed since"):
        list(source)


def test_errors_in_later_blocks_know_their_line(tmp_path):
    good = [f"{i} 1 1" for i in range(1, 100_001)]
    for line, text, message in (
        (70_000, "70000 1", "has 2 fields"),
        (90_000, "90000 1 x", "has 'x'"),
        (99_000, "12 1 1", "after a later one"),
    ):
        lines = ["100000", "1", "100000", *good]
        lines[line + 2] = text
        path = write(tmp_path, "\n".join(lines), compress=True)
        with pytest.raises(InvalidInputError, match=f"line {line + 3} of .* {message}"):
            list(read_documents(path))


def test_a_line_without_end_is_refused(tmp_path, monkeypatch):
    from latensor.sources import stream

    monkeypatch.setattr(stream, "_LONGEST_LINE", 1 << 20)
    path = write(tmp_path, "word " * (1 << 19))
    with pytest.raises(InvalidInputError, match="a line of more than 1,048,576 bytes"):
        read_documents(path)
