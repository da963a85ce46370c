"""Texts that are at hand: a list of strings, or a folder with a document in every file."""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from latensor.exceptions import InvalidInputError
from latensor.sources.stream import Progress
from latensor.sources.text import Texts, TextSource
from latensor.sources.tokens import TOKEN_PATTERN, Tokenizer
from latensor.sources.words import WordChoice

_CHUNK = 1024
_BATCH = 4096
_ENDINGS = (".txt", ".text", ".md", ".rst")


class _Place:
    """What texts are called, and who is told how many have been read."""

    def __init__(self, name: str, size: int, progress: Progress | None = None) -> None:
        self.name, self._size, self._progress = name, size, progress

    def report(self, bytes_read: int, documents: int) -> None:
        """Tell how far a pass has come."""
        if self._progress is not None:
            self._progress(bytes_read, self._size, documents)


class TextList:
    """Strings as documents.

    Parameters
    ----------
    texts : list, tuple, Series or array of str
    name : str, what error messages call them
    """

    def __init__(self, texts: Any, name: str = "X") -> None:
        self._texts: list[str] = []
        for number, text in enumerate(texts):
            if not isinstance(text, str):
                raise InvalidInputError(
                    f"{name}[{number}] is a {type(text).__name__}, beside strings: give a text for "
                    "every document, '' where there is none"
                )
            # Half a character could never be written out again.
            plain = text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")
            self._texts.append(plain)
        self.file = _Place(name, len(self._texts))

    def __len__(self) -> int:
        return len(self._texts)

    def __iter__(self) -> Iterator[Texts]:
        """All documents."""
        for start in range(0, len(self._texts), _CHUNK):
            yield Texts(self._texts[start : start + _CHUNK], start + _CHUNK)


class FolderReader:
    """The text files of a folder and its folders as documents, in the order of their names.

    Parameters
    ----------
    folder : path
    progress : called with (bytes read, bytes in all, documents), or None

    Attributes
    ----------
    names : list of str, the paths of the files within the folder
    """

    def __init__(self, folder: str | os.PathLike[str], progress: Progress | None = None) -> None:
        self._folder = Path(folder)
        files = [path for path in self._folder.rglob("*") if path.is_file()]
        hidden = [any(part.startswith(".") for part in path.relative_to(self._folder).parts)
                  for path in files]  # fmt: skip
        chosen = [
            path
            for path, is_hidden in zip(files, hidden, strict=True)
            if not is_hidden and path.name.lower().removesuffix(".gz").endswith(_ENDINGS)
        ]
        if not chosen:
            raise InvalidInputError(
                f"{self._folder} is a folder without text files: each document is a file that ends "
                f"with {', '.join(_ENDINGS)}, plain or .gz; it holds {len(files):,} others"
            )
        self._paths = sorted(chosen, key=lambda path: path.relative_to(self._folder).as_posix())
        self.names = [path.relative_to(self._folder).as_posix() for path in self._paths]
        size = sum(path.stat().st_size for path in self._paths)
        self.file = _Place(str(self._folder), size, progress)

    def __len__(self) -> int:
        return len(self._paths)

    def __iter__(self) -> Iterator[Texts]:
        """All documents."""
        bytes_read = 0
        for start in range(0, len(self._paths), _CHUNK):
            chunk = []
            for path in self._paths[start : start + _CHUNK]:
                chunk.append(_text_of(path))
                bytes_read += path.stat().st_size
            yield Texts(chunk, bytes_read)


def _text_of(path: Path) -> str:
    try:
        content = path.read_bytes()
        if content[:2] == b"\x1f\x8b":
            content = gzip.decompress(content)
    except (OSError, EOFError, zlib.error) as error:
        raise InvalidInputError(f"{path} cannot be read: {error}") from error
    if b"\0" in content[:4096]:
        raise InvalidInputError(f"{path} is not a text file: it holds zero bytes")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidInputError(
            f"{path} is not UTF-8 text (byte {error.start:,}): save it as UTF-8"
        ) from None


def is_texts(documents: object) -> bool:
    """Whether documents are strings: a list, tuple, Series or array of them."""
    if isinstance(documents, str | bytes):
        return False
    if isinstance(documents, list | tuple):
        return bool(documents) and isinstance(documents[0], str)
    dtype = getattr(documents, "dtype", None)
    if dtype is None or getattr(documents, "ndim", 0) != 1 or not len(documents):  # type: ignore[arg-type]
        return False
    kind = getattr(dtype, "kind", "O")
    return kind in "UT" or (kind == "O" and isinstance(next(iter(documents)), str))  # type: ignore[call-overload]


def is_folder(documents: object) -> bool:
    """Whether documents are the path of a folder."""
    return isinstance(documents, str | os.PathLike) and os.path.isdir(documents)


def refuse_unreadable_texts(documents: object, name: str = "X") -> None:
    """Refuse what holds texts in a form that would be taken for counts, saying what to give."""
    if isinstance(documents, str | os.PathLike):
        raise InvalidInputError(
            f"{name} is {str(documents)[:80]!r}, and no folder of that name exists: give a list of "
            "texts; for the documents in a file, give read_documents(path)"
        )
    for column in getattr(documents, "columns", ()):
        if is_texts(documents[column]):  # type: ignore[index]
            raise InvalidInputError(
                f"{name} is a frame whose column {column!r} holds texts: give {name}[{column!r}]"
            )
    if not isinstance(documents, list | tuple):
        return
    if not documents:
        raise InvalidInputError(f"{name} is an empty list: no documents")
    first = documents[0]
    if isinstance(first, bytes):
        raise InvalidInputError(f"{name}[0] is bytes: decode every text, as by .decode('utf-8')")
    if isinstance(first, list | tuple) and any(isinstance(word, str) for word in first):
        raise InvalidInputError(f"{name}[0] is a list of words: give texts, as ' '.join(words)")


def as_text_source(
    texts: Any, vocabulary: Sequence[str] | None = None, name: str = "X"
) -> TextSource:
    """Strings, or the text files of a folder, as a source of word counts.

    Their own words are chosen as suits running text (`WordChoice.of_text`): no function words of
    English, none that half of the documents hold, none that only few do.

    Parameters
    ----------
    texts : list, tuple, Series or array of str, or the path of a folder
    vocabulary : the words to count, or None for those of the texts
    name : str, what error messages call them
    """
    reader = FolderReader(texts) if is_folder(texts) else TextList(texts, name)
    known = None if vocabulary is None else [str(word) for word in vocabulary]
    choice = WordChoice.of_text(len(reader)) if known is None else WordChoice()
    capitals = known is not None and any(word != word.lower() for word in known)
    tokenizer = Tokenizer(TOKEN_PATTERN, lowercase=not capitals)
    return TextSource(reader, tokenizer, known, choice, _BATCH)
