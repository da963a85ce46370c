"""Documents in files: which format it is, and the source that reads it."""

from __future__ import annotations

import json
import os
import re

from latensor.arrays import check_positive_int
from latensor.exceptions import InvalidInputError
from latensor.sources.bag_of_words import BagOfWordsSource
from latensor.sources.json_lines import JsonLinesReader
from latensor.sources.ldac import LdacSource
from latensor.sources.lines import LineReader
from latensor.sources.separated_values import SeparatedValuesReader
from latensor.sources.source import DocumentSource
from latensor.sources.stream import Progress, TextFile
from latensor.sources.text import TextReader, TextSource
from latensor.sources.texts import FolderReader
from latensor.sources.tokens import TOKEN_PATTERN, Tokenizer
from latensor.sources.vocabulary import as_vocabulary
from latensor.sources.words import WordChoice, select

_FORMATS = ("uci", "ldac", "text", "jsonl", "csv", "parquet")
_SUFFIXES = {
    ".ldac": "ldac",
    ".json": "jsonl",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".csv": "csv",
    ".tsv": "csv",
    ".parquet": "parquet",
    ".pq": "parquet",
}
_TABLES = ("jsonl", "csv", "parquet")
_LDAC_LINE = re.compile(rb"\d+(?:[ \t]+\d+:\d+)*[ \t]*")
_SNIFFED_LINES = 50


def read_documents(
    path: str | os.PathLike[str],
    *,
    format: str | None = None,
    text_column: str | int | None = None,
    vocabulary: object = None,
    lowercase: bool = True,
    token_pattern: str = TOKEN_PATTERN,
    min_df: float = 1,
    max_df: float = 1.0,
    stop_words: object = None,
    max_features: int | None = None,
    batch_size: int = 4096,
    progress: Progress | None = None,
) -> DocumentSource:
    """The documents of a file, or of a folder, as a source of word counts, in constant memory.

    The file is plain or compressed by gzip. Of a folder, and the folders in it, every text file
    (.txt, .text, .md, .rst) is a document. Texts are counted as by scikit-learn's
    CountVectorizer with the same options, columns in the order of the sorted words.

    Parameters
    ----------
    path : regular file or folder; it is read on every pass and must not change
    format : None tells it from the content and, where that leaves a doubt, from the name. One of
        "uci" (bag-of-words: D, W and the number of entries in the first lines, then
        `document word count`, counted from 1), "ldac" (`n word:count ...`, words counted from 0),
        "text" (one document per line), "jsonl" (one JSON object per line), "csv" (fields separated
        by comma, tab, semicolon or bar), "parquet" (needs pyarrow)
    text_column : the member or the column that holds the text, "text" by default; for a CSV file
        without header line, the number of the column, counted from 0
    vocabulary : list of words, or the path of a file with one word per line: the names of the
        columns of uci and ldac files; the words to count in texts. None: ldac and uci columns
        have no names, and texts are counted by the words they hold
    lowercase, token_pattern : how texts become words (the default: two or more word characters)
    min_df, max_df : the least and the largest number of documents that a word may stand in; an
        int counts documents, a float is a fraction of all. Words of a given vocabulary that no
        document holds stay unless `min_df` is above 1.
    stop_words : list of words to leave out, "english" for function words of English, or None
    max_features : int, keep only that many words, the most frequent ones, or None
    batch_size : int, documents of a batch
    progress : called with (bytes read, bytes in all, documents read) during every pass over the
        file, or None

    Returns
    -------
    DocumentSource. Sources of text, JSON lines, CSV and Parquet also have
    `excerpts(document_numbers)`, the texts of some documents by number.

    Raises
    ------
    InvalidInputError, for a file that cannot be read or is not well formed, with the line.

    Examples
    --------
    >>> import latensor as lt
    >>> import os, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "documents.txt")
    ...     with open(path, "w") as stream:
    ...         print("a cat and a dog", "cats and dogs", sep=chr(10), file=stream)
    ...     print(lt.read_documents(path).vocabulary)
    ['and', 'cat', 'cats', 'dog', 'dogs']
    """
    if progress is not None and not callable(progress):
        raise InvalidInputError(f"progress={progress!r} must be a function of three numbers")
    if format is not None and format not in _FORMATS:
        raise InvalidInputError(f"format={format!r} must be one of {', '.join(_FORMATS)}, or None")
    check_positive_int(batch_size, "batch_size")
    tokenizer = Tokenizer(token_pattern, lowercase)
    choice = WordChoice(min_df, max_df, max_features, stop_words)
    words = as_vocabulary(vocabulary)
    if isinstance(path, str | os.PathLike) and os.path.isdir(path):
        if format not in (None, "text") or text_column is not None:
            raise InvalidInputError(
                f"{os.fsdecode(path)} is a folder, in which every text file is a document: format "
                "and text_column have no meaning for it"
            )
        return TextSource(FolderReader(path, progress), tokenizer, words, choice, batch_size)
    file = TextFile(path, progress)
    kind = format or _detected(file, text_column)
    if text_column is not None and kind not in _TABLES:
        raise InvalidInputError(
            f"text_column={text_column!r} has no meaning for {file.name}, which is read as {kind}: "
            "only jsonl, csv and parquet have columns of text"
        )
    if kind in ("uci", "ldac"):
        if (token_pattern, lowercase) != (TOKEN_PATTERN, True):
            raise InvalidInputError(
                f"token_pattern and lowercase have no meaning for {file.name}, which is read as "
                f"{kind}: it holds numbers of words, no text"
            )
        counts = BagOfWordsSource if kind == "uci" else LdacSource
        return select(counts(file, words, batch_size), choice)
    reader = LineReader(file) if kind == "text" else _table_reader(file, kind, text_column)
    return TextSource(reader, tokenizer, words, choice, batch_size)


def read_column(
    path: str | os.PathLike[str], column: str | int, *, format: str | None = None
) -> list[str]:
    """Another column of a table of documents, such as dates or groups: a text per document.

    Parameters
    ----------
    path : file of JSON lines, CSV or Parquet, as for `read_documents`
    column : the JSON member or the column; for a CSV file without header line its number
    format : "jsonl", "csv" or "parquet"; None tells it from the content and the name

    Returns
    -------
    list of str, in the order of the documents; numbers and dates as they are written, and '' where
    there is nothing

    Examples
    --------
    >>> import latensor as lt
    >>> import os, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "speeches.csv")
    ...     with open(path, "w") as stream:
    ...         print("year,text", "1999,war and peace", "2001,peace", sep=chr(10), file=stream)
    ...     print(lt.sources.read_column(path, "year"))
    ['1999', '2001']
    """
    file = TextFile(path)
    kind = format or _detected(file, column)
    if kind not in _TABLES:
        raise InvalidInputError(
            f"{file.name} is read as {kind}, which has no columns: column={column!r} needs JSON "
            "lines, CSV or Parquet"
        )
    try:
        reader = _table_reader(file, kind, column, values=True)
        return [text for chunk in reader for text in chunk.texts]
    except InvalidInputError as error:
        raise InvalidInputError(str(error).replace("text_column", "column")) from None


def _table_reader(file: TextFile, kind: str, column: object, values: bool = False) -> TextReader:
    if kind == "jsonl":
        return JsonLinesReader(file, column, values)
    if kind == "parquet":
        from latensor.sources.parquet import ParquetReader

        return ParquetReader(file, column, values)
    return SeparatedValuesReader(file, column)


def _detected(file: TextFile, text_column: object) -> str:
    """The format of a file: what its first lines leave no doubt of, or else what its name says."""
    if os.path.splitext(file.name)[1].lower() in (".parquet", ".pq"):
        return "parquet"
    lines = [line.strip() for line in file.head().text.split(b"\n", _SNIFFED_LINES)]
    lines = [line for line in lines[:_SNIFFED_LINES] if line]
    if _is_bag_of_words(lines):
        return "uci"
    if lines and all(_LDAC_LINE.fullmatch(line) for line in lines) and b":" in b"".join(lines):
        return "ldac"
    if lines and _is_json_object(lines[0]):
        return "jsonl"
    base = os.path.basename(file.name).lower().removesuffix(".gz")
    suffix = os.path.splitext(base)[1]
    if suffix in _SUFFIXES:
        return _SUFFIXES[suffix]
    if base.startswith("docword."):
        return "uci"
    return "text" if text_column is None else "csv"


def _is_bag_of_words(lines: list[bytes]) -> bool:
    header = len(lines) >= 3 and all(line.isdigit() for line in lines[:3])
    return header and (len(lines) == 3 or len(lines[3].split()) == 3)


def _is_json_object(line: bytes) -> bool:
    if not line.startswith(b"{"):
        return False
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False
