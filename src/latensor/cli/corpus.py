"""Documents for `latensor topics`: read with sensible defaults, and what was left out, in words."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from latensor.cli.intervals import column_of, read_intervals
from latensor.cli.refusal import Refusal
from latensor.cli.topic_progress import TopicMeter
from latensor.cli.wording import Wording
from latensor.sources import TemporaryCopy, read_documents
from latensor.sources.vocabulary import read_vocabulary
from latensor.sources.words import SelectedWords, WordChoice, word_frequencies

WORDING = Wording(
    {
        r"n_components\b": "--topics",
        r"min_df\b": "--min-df",
        r"max_df\b": "--max-df",
        r"max_features\b": "--max-features",
        r"stop_words\b": "--stop-words",
        r"text_column\b": "--text-column",
        r"token_pattern\b": "--token-pattern",
        r"random_state\b": "--seed",
        r"n_jobs\b": "--jobs",
        r"engine(?==)": "--engine",
        r"checkpoint(?==)": "--checkpoint",
        r"paths(?==)": "FILE",
        r"refine\b(?= ?=)": "--refine",
        r"vocabulary(?==| holds| has|\[)": "--vocab",
    }
)


@dataclass(frozen=True)
class Reading:
    """How to read a file: what the user asked for, None where nothing was said.

    Attributes
    ----------
    file : Path
    format, text_column, token_pattern : as for `read_documents`
    vocabulary : Path of a file of words
    min_df, max_df : int or fraction
    stop_words : "english", "none" or the path of a file
    max_features : int
    date, group : names of the columns that say when a document is from and what it belongs to
    """

    file: Path
    format: str | None = None
    text_column: str | None = None
    token_pattern: str | None = None
    vocabulary: Path | None = None
    min_df: float | None = None
    max_df: float | None = None
    stop_words: str | None = None
    max_features: int | None = None
    date: str | None = None
    group: str | None = None


@dataclass(frozen=True, eq=False)
class Corpus:
    """Documents that were read, counted and kept for more passes.

    Attributes
    ----------
    documents : source of counts, of the words that were kept
    texts : source with `excerpts`, or None where the file holds counts
    settings : the choices that were made, as arguments of `read_documents`
    remarks : what was read and what was left out, a sentence each
    advice : str, what the user may want to do, or nothing
    intervals : of time and groups, by kind and name of the column
    """

    documents: Any
    texts: Any
    settings: dict[str, Any]
    remarks: list[str] = field(default_factory=list)
    advice: str = ""
    intervals: dict[tuple[str, str], Any] = field(default_factory=dict)


@contextmanager
def opened_corpus(reading: Reading, meter: TopicMeter) -> Iterator[Corpus]:
    """Read a file and choose its words; temporary files are gone when the block ends."""
    intervals, missing = read_intervals(reading)
    with WORDING.errors():
        words = None if reading.vocabulary is None else read_vocabulary(reading.vocabulary)
        plain = open_source(reading, words, meter)
        is_text = hasattr(plain, "excerpts")
        # Words that nobody has chosen are for the most part grammar, and slips of the pen.
        choosing = is_text and words is None
        # A text whose words were counted is kept already; everything else is read only once.
        keeping: Any = nullcontext(plain) if choosing else TemporaryCopy(plain)
    with keeping as kept_file:
        with WORDING.errors():
            counted = word_frequencies(kept_file)
            if is_text and counted[2] == 1:
                raise Refusal(
                    f"{reading.file} holds one document, and topics are what documents differ in: "
                    "give a document per line, or a folder with a file for each"
                )
            has_words = not is_text and plain.vocabulary is not None
            settings = _settings(reading, choosing, has_words, counted[2])
            choice = WordChoice(**{**settings, "stop_words": stop_words_of(settings["stop_words"])})
            allowed = np.broadcast_to(choice.keep(plain.vocabulary), counted[0].shape)
            kept = choice.within(*counted, allowed)
        names = plain.vocabulary or [str(column) for column in range(plain.n_features)]
        documents = SelectedWords(kept_file, kept, [names[j] for j in kept.tolist()])
        remarks = _remarks(settings, counted, kept, allowed, reading)
        remarks[1:1] = missing
        advice = _advice(reading, documents.vocabulary)
        yield Corpus(documents, plain if is_text else None, settings, remarks, advice, intervals)


def open_source(reading: Reading, words: list[str] | None, meter: TopicMeter) -> Any:
    """The documents of a file, counted by given words or by all of its own."""
    column = column_of(reading, reading.text_column)
    more: dict[str, Any] = {"format": reading.format, "text_column": column}
    if reading.token_pattern is not None:
        more["token_pattern"] = reading.token_pattern
    found = read_documents(reading.file, vocabulary=words, progress=meter.reading, **more)
    if words is not None and hasattr(found, "excerpts") and any(w != w.lower() for w in words):
        # Words with capitals can only be found in texts that keep them.
        more["lowercase"] = False
        found = read_documents(reading.file, vocabulary=words, progress=meter.reading, **more)
    return found


def _settings(
    reading: Reading, choosing: bool, has_words: bool, n_documents: int
) -> dict[str, Any]:
    """Which words to keep, as arguments of `read_documents`: as asked, else what suits text.

    Counts whose words have names lose function words as texts do; a list that the user gave for
    texts is taken as it is.
    """
    suits = WordChoice.of_text(n_documents) if choosing else WordChoice()
    stop_words = reading.stop_words or ("english" if choosing or has_words else "none")
    return {
        "min_df": suits.min_df if reading.min_df is None else reading.min_df,
        "max_df": suits.max_df if reading.max_df is None else reading.max_df,
        "stop_words": None if stop_words == "none" else stop_words,
        "max_features": reading.max_features,
    }


def stop_words_of(stop_words: str | None) -> str | list[str] | None:
    """Stop words by name, or from a file with one per line."""
    if stop_words is None or stop_words in ("english", "none"):
        return None if stop_words == "none" else stop_words
    try:
        words = Path(stop_words).read_text(encoding="utf-8").split()
    except UnicodeDecodeError:
        raise Refusal(f"--stop-words={stop_words} is not UTF-8 text") from None
    except OSError as error:
        raise Refusal(
            f"--stop-words={stop_words}: {error.strerror}; give english, none, or a file of words"
        ) from None
    return sorted({form for word in words for form in (word, word.lower())})


def _advice(reading: Reading, words: list[str] | None) -> str:
    """What to do about function words that nobody has spoken of."""
    if words is None or reading.stop_words is not None:
        return ""
    found = [words[j] for j in np.flatnonzero(~WordChoice(stop_words="english").keep(words))]
    if not found:
        return ""
    shown = ", ".join(found[:3]) + (", ..." if len(found) > 3 else "")
    return f"Function words are among the words ({shown}): --stop-words english leaves them out"


def _remarks(
    settings: dict[str, Any],
    counted: tuple[Any, Any, int],
    kept: Any,
    allowed: Any,
    reading: Reading,
) -> list[str]:
    frequencies, totals, n_documents = counted
    low, high = (
        value if isinstance(value, int) else value * n_documents
        for value in (settings["min_df"], settings["max_df"])
    )
    rare = int((allowed & (frequencies < low) & (frequencies > 0)).sum())
    frequent = int((allowed & (frequencies > high)).sum())
    few = f"fewer than {low:,.0f} documents" if low != 2 else "only one document"
    stopped = int((~allowed).sum())
    bounded = len(frequencies) - stopped - rare - frequent - len(kept)
    dropped = {
        "stop words": stopped,
        f"words in {few}": rare,
        f"words in more than {high:,.0f} documents": frequent,
        "less frequent words": bounded if settings["max_features"] else 0,
    }
    n_tokens = float(totals.sum())
    remarks = [
        f"{reading.file}: {n_documents:,} documents, {n_tokens:,.0f} words, {len(totals):,} "
        "different ones"
    ]
    parts = [f"{number:,} {what}" for what, number in dropped.items() if number]
    if parts:
        fraction = totals[kept].sum() / max(n_tokens, 1.0)
        left = f"{len(kept):,} words stay, {100 * fraction:.0f} % of all"
        remarks.append(f"Left out: {', '.join(parts)}; {left}")
    unseen = int((frequencies[kept] == 0).sum())
    if unseen:
        remarks.append(f"{unseen:,} words of the vocabulary stand in no document")
    return remarks
