"""The page as text: what it says, what it leaves out, and that nothing escapes into its markup."""

import base64
import hashlib
import re
from dataclasses import replace
from html.parser import HTMLParser
from importlib import resources

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from latensor.exceptions import InvalidInputError
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
    topic_report,
)
from latensor.report.markup import Markup, clean, element, fragment, shorten
from latensor.report.wording import class_in_words, number, percent, seconds, times

from .pages import full_page, hostile_page

EMPTY_ELEMENTS = {"meta", "link", "input"}


class Reader(HTMLParser):
    """Reads a page back: elements, attributes and text, and whether all elements are closed."""

    def __init__(self, page):
        super().__init__()
        self.elements, self.open, self.text = [], [], []
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        assert len({name for name, _ in attrs}) == len(attrs)
        if tag not in EMPTY_ELEMENTS:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if not {"script", "style"} & set(self.open):
            self.text.append(data)

    def named(self, tag):
        return [attributes for name, attributes in self.elements if name == tag]

    def ids(self):
        return [attributes["id"] for _, attributes in self.elements if "id" in attributes]


def small_page(word="word", **changes):
    parts = {"title": "T", "n_documents": 3, "n_tokens": 30, "n_words": 9}
    parts["topics"] = [Topic(0, 1.0, [TopicWord(word, 0.5)])]
    return TopicPage(**(parts | changes))


@pytest.mark.parametrize("count", [1, 2, 3, 12, 100])
def test_a_page_is_well_formed_and_links_lead_somewhere(count):
    reader = Reader(topic_report(full_page(count)))
    ids = reader.ids()
    assert len(set(ids)) == len(ids)
    targets = [a["href"][1:] for a in reader.named("a") if "download" not in a]
    assert set(targets) <= set(ids)
    labels = [a["aria-labelledby"] for _, a in reader.elements if "aria-labelledby" in a]
    assert set(labels) <= set(ids)
    assert {a["for"] for a in reader.named("label")} <= set(ids)
    assert len(reader.named("article")) == count
    assert [len(reader.named(tag)) for tag in ("main", "h1", "nav", "footer")] == [1, 1, 1, 1]


def test_the_page_says_what_it_was_told():
    text = "".join(Reader(topic_report(full_page(12))).text)
    for expected in (
        "Planted corpus",
        "12 topics found in 1,234 documents.",
        "2 documents without a word of the vocabulary were dropped.",
        "5 documents have fewer than three words.",
        "98,765",
        "Verdict: uncertain.",
        "Of 12 topics: 4 stable, 4 uncertain, 4 unstable.",
        "The directions stand clear of the noise.",
        "ratio 8.7",
        "12 topics chosen. It has the lowest held-out perplexity.",
        "goes from 1,500 to 1,250 in 2 passes",
        "latensor topics corpus.txt --out report.html",
        "Time: 1.8 s",
        "line 110",
        "Nearest: ",
    ):
        assert expected in text


@pytest.mark.parametrize(
    "levels, trust, verdict, expected",
    [
        (
            ["good"],
            "good",
            None,
            "Verdict: stable. Nothing found that speaks against these topics.",
        ),
        (["good"], "bad", None, "Verdict: stable. Sound as a whole; single topics are marked."),
        (["good", "bad", "caution"], "good", None, "Verdict: unstable."),
        (["good", "unknown"], None, None, "Verdict: stable."),
        (["unknown"], None, None, "Not known: A finding."),
        (["bad"], None, "caution", "Verdict: uncertain."),
        ([], "caution", None, "Of 1 topic: 1 uncertain."),
        ([], None, None, "found in 3 documents."),
    ],
)
def test_the_verdict_is_the_worst_of_the_certificate(levels, trust, verdict, expected):
    topics = [Topic(0, 1.0, [TopicWord("w", 0.5)], trust=trust)]
    certificate = [Statement(level, "A finding.") for level in levels]
    page = small_page(topics=topics, certificate=certificate, verdict=verdict)
    text = "".join(Reader(topic_report(page)).text)
    assert expected in text
    assert ("Verdict" in text) == bool(set(levels) - {"unknown"} or verdict)


def test_it_is_small_for_a_hundred_topics():
    assert len(topic_report(full_page(100)).encode()) < 1_000_000


def test_excerpts_and_words_are_cut():
    documents = [ExampleDocument("a", 0.5, "x" * 10**6)]
    topic = Topic(0, 1.0, [TopicWord("y" * 10**6, 0.5)], documents=documents)
    assert len(topic_report(small_page(topics=[topic]))) < 100_000


def test_the_same_description_gives_the_same_page():
    assert topic_report(full_page(12)) == topic_report(full_page(12))


def test_order_of_the_topics_does_not_matter_but_for_the_map():
    page = full_page(9)
    turned = replace(page, topics=page.topics[::-1], distances=page.distances[::-1, ::-1])

    def articles(text):
        return re.findall("<article.*?</article>", text, re.DOTALL)

    assert articles(topic_report(page)) == articles(topic_report(turned))


OPTIONAL = {
    "distances": (None, "map"),
    "certificate": ((), "certificate"),
    "reproduction": (None, "reproduce"),
}


@pytest.mark.parametrize("field", OPTIONAL)
def test_a_part_that_is_not_known_is_left_out(field):
    value, section = OPTIONAL[field]
    with_it, without = (
        Reader(topic_report(full_page(5, **changes))) for changes in ({}, {field: value})
    )
    assert section in with_it.ids()
    assert section not in without.ids()
    assert {"href": f"#{section}"} not in without.named("a")


@pytest.mark.parametrize("kept", [None, "spectrum", "refinement", "choice"])
def test_charts_stand_alone(kept):
    changes = {name: None for name in ("spectrum", "refinement", "choice") if name != kept}
    reader = Reader(topic_report(full_page(5, **changes)))
    charts = [a for a in reader.named("svg") if a["class"] == "chart"]
    assert len(charts) == (kept is not None)
    assert ("evidence" in reader.ids()) == (kept is not None)


def test_the_least_page():
    reader = Reader(topic_report(small_page(n_documents=0, n_tokens=0, n_words=0)))
    text = "".join(reader.text)
    assert "1 topic found in 0 documents." in text
    assert "Verdict" not in text
    assert not {"map", "certificate", "evidence", "reproduce", "find"} & set(reader.ids())


def test_an_empty_reproduction_is_left_out():
    assert "reproduce" not in Reader(topic_report(small_page(reproduction=Reproduction()))).ids()


HOSTILE = [
    "<script>alert(1)</script>",
    "</script><script>alert(1)</script>",
    "</style></title><img src=x onerror=alert(1)>",
    '" onmouseover="alert(1)" x=\'',
    "' autofocus onfocus='alert(1)",
    "<!-- <![CDATA[ ]]> -->",
    "&lt;b&gt; &amp; &#60;",
    "مرحبا שלום",
    "\u202egnp.exe\u202c",
    "👩‍👩‍👧‍👦🏳️‍🌈",
    "e\u0301\u0300\u0302" * 20,
    "nul\x00 bell\x07 lone\ud800 end\uffff",
    "x" * 5000,
    "javascript:alert(1)",
    "{{ 7 * 7 }} ${7*7} %s %(x)s {0}",
    " ",
    "",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_no_text_becomes_markup(text):
    tame, hostile = Reader(topic_report(hostile_page("tame"))), topic_report(hostile_page(text))
    reader = Reader(hostile)
    # Empty command and snippet have no box; everything else stands exactly where it stood.
    if text.strip():
        # A word that is longer than an excerpt is not marked in it.
        kept, expected = (
            [(tag, set(a)) for tag, a in each.elements if tag != "mark"] for each in (reader, tame)
        )
        assert kept == expected
        assert shorten(text, 60) in " ".join(reader.text)
    assert not any(name.startswith("on") for _, a in reader.elements for name in a)
    hostile.encode("utf-8")
    assert not set("\u202e\x00\x07\ud800") & set(hostile)


@settings(max_examples=100, deadline=None)
@given(st.text())
def test_text_goes_in_and_comes_out(text):
    reader = Reader(element("p", text, title=text))
    assert "".join(reader.text) == clean(text)
    assert reader.named("p")[0]["title"] == clean(text)
    clean(text).encode("utf-8")


def test_markup_is_taken_as_it_is_and_nothing_else():
    inner = element("b", "x < y")
    assert element("p", inner, None, 3, [inner, "&"]) == (
        "<p><b>x &lt; y</b>3<b>x &lt; y</b>&amp;</p>"
    )
    assert fragment(Markup("<i>")) == "<i>"
    assert element("input", type="radio", checked=True, hidden=False, name=None) == (
        '<input type="radio" checked>'
    )
    assert element("rect", x=1.0, y=-0.001, data_place=2.345) == (
        '<rect x="1" y="0" data-place="2.35"></rect>'
    )


def test_policy_names_exactly_this_style_and_this_script():
    page = topic_report(full_page(3))
    policy = next(a for a in Reader(page).named("meta") if "http-equiv" in a)["content"]
    for tag in ("style", "script"):
        (text,) = re.findall(f"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy


def test_nothing_is_loaded_and_no_style_attribute_is_used():
    reader = Reader(topic_report(full_page(12)))
    for tag, attributes in reader.elements:
        assert "style" not in attributes
        assert "src" not in attributes
        assert not tag.startswith(("img", "iframe", "object", "embed"))
        if "href" in attributes:
            kept = {"link": "data:image/svg", "a": "#"}[tag]
            kept = "data:text/csv" if "download" in attributes else kept
            assert attributes["href"].startswith(kept)
    for name in ("page.css", "page.js"):
        source = (resources.files("latensor.report") / name).read_text(encoding="utf-8")
        assert not re.search(r"url\(|@import|fetch\(|https?://(?!www\.w3\.org/2000/svg)", source)
        assert f"</{'style' if name.endswith('css') else 'script'}" not in source


def luminance(colour):
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return float(np.dot([0.2126, 0.7152, 0.0722], linear))


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize(
    "front, back",
    [
        *((front, back) for front in ("text", "quiet", "accent") for back in ("ground", "card")),
        *((level, f"{level}-soft") for level in ("good", "caution", "bad")),
        *(("card", level) for level in ("good", "caution", "bad")),
        *(("text", f"{level}-soft") for level in ("good", "caution", "bad")),
        ("accent", "caution-soft"),
        ("on-accent", "accent"),
        ("text", "accent-soft"),
        ("bad", "ground"),
    ],
)
def test_text_has_contrast_in_both_schemes(scheme, front, back):
    css = (resources.files("latensor.report") / "page.css").read_text(encoding="utf-8")
    block = re.findall(r":root \{(.*?)\}", css, re.DOTALL)[scheme]
    colours = dict(re.findall(r"--([\w-]+): (#\w{6});", block))
    light, dark = sorted((luminance(colours[front]), luminance(colours[back])), reverse=True)
    assert (light + 0.05) / (dark + 0.05) >= 4.5


@pytest.mark.parametrize(
    "value, expected",
    [
        (percent(0.0), "0\N{NO-BREAK SPACE}%"),
        (percent(1e-6), "<0.01\N{NO-BREAK SPACE}%"),
        (percent(0.0005), "0.05\N{NO-BREAK SPACE}%"),
        (percent(0.0314), "3.1\N{NO-BREAK SPACE}%"),
        (percent(0.0996), "10\N{NO-BREAK SPACE}%"),
        (percent(1.0), "100\N{NO-BREAK SPACE}%"),
        (number(1234.5), "1,234"),
        (number(0.12345), "0.123"),
        (number(-2.0), "−2"),
        (number(1e-9), "1.00e−09"),
        (number(0.0), "0"),
        (number(float("inf")), "∞"),
        (number(float("nan")), "unknown"),
        (times(12.3), "×12"),
        (times(1.44), "×1.4"),
        (seconds(0.0001), "<1 ms"),
        (seconds(0.055), "55 ms"),
        (seconds(3.21), "3.2 s"),
        (seconds(200.0), "3 min 20 s"),
        (class_in_words("Parafac2Decomposition"), "PARAFAC2 Decomposition"),
        (class_in_words("SphericalGaussianMixture"), "Spherical Gaussian Mixture"),
        (class_in_words("CategoricalHMM"), "Categorical HMM"),
        (class_in_words("CPRegressor"), "CP Regressor"),
        (class_in_words("MixtureOfRegressions"), "Mixture of Regressions"),
        (class_in_words("NoisyOrNetwork"), "Noisy-Or Network"),
        (class_in_words("MultiViewMixture"), "Multi-View Mixture"),
        (class_in_words("TwoLayerClassifier"), "Two-Layer Classifier"),
        (class_in_words("MixedMembershipBlockModel"), "Mixed-Membership Block Model"),
        (shorten("a  b\n c", 10), "a b c"),
        (shorten("abcdefghij", 5), "abcd…"),
    ],
)
def test_wording(value, expected):
    assert value == expected


WORDS = [TopicWord("w", 0.5)]
BAD = [
    (lambda: TopicWord("w", 1.5), "probability of 'w' is 1.5"),
    (lambda: TopicWord("w", float("nan")), "probability of 'w' is nan"),
    (lambda: TopicWord(3, 0.5), "TopicWord.text must be text, not int"),
    (lambda: TopicWord("w", 0.5, -1.0), "lift of 'w' is -1.0"),
    (lambda: ExampleDocument("d", "x"), "fraction of document 'd' is 'x'"),
    (lambda: ExampleDocument(1, 0.5), "name must be text"),
    (lambda: Topic(-1, 0.5, WORDS), "number of a topic is -1"),
    (lambda: Topic(1.5, 0.5, WORDS), "number of a topic is 1.5"),
    (lambda: Topic(True, 0.5, WORDS), "number of a topic is True"),
    (lambda: Topic(4, 0.5, []), "words of topic 4 are empty"),
    (lambda: Topic(4, 2.0, WORDS), "fraction of topic 4 is 2.0"),
    (lambda: Topic(4, 0.5, WORDS, coherence=-3.0), "coherence of topic 4 is -3.0"),
    (lambda: Topic(4, 0.5, WORDS, split_half_distance=-3.0), "split_half_distance of topic 4"),
    (lambda: Topic(4, 0.5, WORDS, trust="maybe"), "trust of topic 4 is 'maybe'.*\"caution\""),
    (lambda: Spectrum([], 1), "values of the spectrum are empty"),
    (lambda: Spectrum([1.0, np.nan], 1), "eigenvalue 2 of the spectrum is nan"),
    (lambda: Spectrum([1.0], 0), "chosen of the spectrum is 0"),
    (lambda: RefinementHistory([0, 1], [3.0]), "2 passes and 1 perplexities"),
    (lambda: RefinementHistory([1, 0], [3.0, 2.0]), r"passes\[1\]=0 follows 1"),
    (lambda: RefinementHistory([0, 1], [3.0, 2.0], 5), "kept=5 is none of the passes"),
    (lambda: CountEvidence(0, 1.0), "n_topics of the evidence is 0"),
    (lambda: CountChoice([], 1), "rows of a choice are empty"),
    (lambda: CountChoice([CountEvidence(2, 1.0)] * 2, 2), "repeat a number of topics"),
    (lambda: Statement("fine", "x"), "level of the statement 'x' is 'fine'"),
    (lambda: Reproduction(seconds={"a": -1.0}), "seconds of stage 'a' is -1.0"),
    (lambda: small_page(topics=[]), "topics are empty"),
    (lambda: small_page(topics=[Topic(1, 0.5, WORDS)] * 2), r"repeat: \[1, 1\]"),
    (lambda: small_page(n_tokens=-1), "n_tokens is -1"),
    (lambda: small_page(verdict="fine"), "verdict is 'fine'"),
    (lambda: small_page(title=None), "title must be text"),
    (lambda: small_page(distances=np.zeros((2, 2))), r"shape \(2, 2\), and 1 topics"),
    (lambda: small_page(distances=[["x"]]), "matrix of numbers"),
    (lambda: full_page(2, distances=[[0, 1], [2, 0]]), "symmetric"),
    (lambda: full_page(2, distances=[[0, -1], [-1, 0]]), "at least 0"),
    (lambda: full_page(2, distances=[[0, np.inf], [np.inf, 0]]), "finite"),
]


@pytest.mark.parametrize("make, message", BAD, ids=[message for _, message in BAD])
def test_what_cannot_be_shown_is_refused(make, message):
    with pytest.raises(InvalidInputError, match=message):
        make()


def test_numpy_numbers_are_welcome_and_distances_are_not_touched():
    distances = np.array([[0.0, 0.5], [0.5, 0.0]])
    distances.flags.writeable = False
    topics = [
        Topic(np.int64(i), np.float32(0.5), [TopicWord("w", np.float32(0.25))]) for i in range(2)
    ]
    page = small_page(topics=topics, distances=distances, n_documents=np.int32(7))
    assert 'id="topic-1"' in topic_report(page)
    assert page.distances is not distances
    np.testing.assert_array_equal(distances, [[0.0, 0.5], [0.5, 0.0]])
