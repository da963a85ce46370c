"""Descriptions of pages for the tests, small and large, tame and hostile."""

import itertools

import numpy as np

from latensor.report import (
    CountChoice,
    CountEvidence,
    ExampleDocument,
    RefinementHistory,
    Reproduction,
    Spectrum,
    Statement,
    Topic,
    TopicPage,
    TopicWord,
    Trend,
    hellinger_distances,
    probable_words,
    relevant_words,
)
from latensor.report.reading import ranked_words

SYLLABLES = ("ba", "ke", "li", "mo", "nu", "ra", "se", "ti", "vo", "zu")
VOCABULARY = ["".join(pair) for pair in itertools.product(SYLLABLES, repeat=3)]


def planted_topics(count, n_words=400, seed=0):
    rng = np.random.default_rng(seed)
    return rng.dirichlet(np.full(n_words, 0.05), count), rng.dirichlet(np.full(count, 2.0))


def trend(kind, count, labels, name="column"):
    """Fractions that move, one of them unknown."""
    rng = np.random.default_rng(3)
    table = rng.dirichlet(np.ones(count), len(labels))
    table[1] = np.nan
    documents = rng.integers(5, 50, len(labels))
    return Trend(kind, name, labels, table, 0.1 * table, documents)


def full_page(count=12, **changes):
    """A page with every part, of topics drawn at random."""
    topics, fractions = planted_topics(count)
    words = VOCABULARY[: topics.shape[1]]
    probable = probable_words(topics, fractions, words)
    typical = relevant_words(topics, fractions, words)
    ranked = ranked_words(topics, fractions, words)
    levels = ("good", "caution", "bad")
    parts = {
        "title": "Planted corpus",
        "n_documents": 1234,
        "n_tokens": 98765,
        "n_words": 400,
        "n_empty_documents": 2,
        "n_short_documents": 5,
        "topics": [
            Topic(
                number=i,
                fraction=fractions[i],
                words=probable[i],
                typical_words=typical[i],
                ranked_words=ranked[i],
                documents=[
                    ExampleDocument(f"line {10 * i + j}", 0.9 - 0.1 * j, "some text " * 30)
                    for j in range(3)
                ],
                coherence=0.3 - 0.5 * ((7 * i) % count) / count,
                split_half_distance=0.1 + (11 * i) % count / count,
                trust=levels[(5 * i) % 3],
                trust_note="Both halves of the corpus give it.",
            )
            for i in range(count)
        ],
        "distances": hellinger_distances(topics),
        "spectrum": Spectrum([2.0 / (i + 1) for i in range(3 * count)], count, 0.1),
        "refinement": RefinementHistory([0, 1, 2, 3], [1500.0, 1300.0, 1250.0, 1260.0], 2),
        "choice": CountChoice(
            [CountEvidence(2 * count, 1400.0, 0.2), CountEvidence(count, 1250.0)],
            count,
            "It has the lowest held-out perplexity.",
        ),
        "certificate": [
            Statement("good", "The directions stand clear of the noise.", "ratio", 8.7),
            Statement("caution", "Some topics differ between the halves."),
        ],
        "reproduction": Reproduction(
            "latensor topics corpus.txt --out report.html",
            "import latensor as lt\nmodel = lt.LatentDirichletAllocation(12)",
            0,
            {"latensor": "0.1.0"},
            {"moments": 0.5, "refinement": 1.25},
            {"smallest document frequency": "3"},
        ),
        "trends": [
            trend("time", count, [f"{year}" for year in range(2010, 2022)]),
            trend("group", count, [f"party {i}" for i in range(5)]),
        ],
    }
    return TopicPage(**(parts | changes))


def hostile_page(text):
    """A page that says the same text wherever a text can stand."""
    words = [TopicWord(text, 0.5, 2.0), TopicWord("tame", 0.25, 1.0)]
    documents = [ExampleDocument(text, 0.5, text)]
    topics = [
        Topic(i, 0.5, words, words, documents, text, 0.1, 0.2, "good", text, words)
        for i in range(3)
    ]
    return TopicPage(
        text,
        1,
        1,
        1,
        topics,
        distances=1.0 - np.eye(3),
        spectrum=Spectrum([1.0], 1),
        refinement=RefinementHistory([0.0], [1.0]),
        choice=CountChoice([CountEvidence(1, 1.0)], 1, text),
        certificate=[Statement("bad", text, text, 1.0)],
        reproduction=Reproduction(text, text, 1, {text: text}, {text: 1.0}, {text: text}),
        created=text,
        trends=[trend(kind, 3, [text, "b", "c"], text) for kind in ("time", "group")],
    )
