"""Drawing topics, document lengths and words: what every planted corpus is made of."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import numpy as np
import scipy.sparse

from latensor.arrays import check_positive_int
from latensor.exceptions import InvalidInputError

Length: TypeAlias = Literal["constant", "poisson", "lognormal"]
LENGTHS: tuple[Length, ...] = ("constant", "poisson", "lognormal")

# The spread of the logarithm of a document's length, typical of news and postings.
_LOG_SPREAD = 0.8


def check_positive(value: object, name: str) -> float:
    """`value` as a positive, finite number."""
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise InvalidInputError(f"{name}={value!r} must be a positive number") from None
    if isinstance(value, bool | np.bool_) or not 0 < number < np.inf:
        raise InvalidInputError(f"{name}={value!r} must be a positive, finite number")
    return number


def check_proportions(alpha: object, alpha0: object, n_components: int) -> Any:
    """Parameters (k,) of the Dirichlet distribution that mixtures of topics are drawn from.

    Parameters
    ----------
    alpha : None for `alpha0` shared evenly, a number for every topic, or one number a topic
    alpha0 : the sum of the parameters where `alpha` is None
    """
    if alpha is None:
        return np.full(n_components, check_positive(alpha0, "alpha0") / n_components)
    try:
        values = np.asarray(alpha, dtype=np.float64)
    except (TypeError, ValueError):
        raise InvalidInputError(
            f"alpha={alpha!r} must be None, a number or one number for each of the topics"
        ) from None
    if values.ndim == 0:
        values = np.full(n_components, float(values))
    if values.shape != (n_components,):
        raise InvalidInputError(
            f"alpha has shape {values.shape}: give one number for each of the "
            f"n_components={n_components} topics, or a single one"
        )
    if not (np.isfinite(values).all() and (values > 0).all()):
        raise InvalidInputError(f"alpha={alpha!r} must hold positive, finite numbers")
    return values.copy()


def check_topics(topics: object) -> Any:
    """Given topics (k, V) as probabilities, rows scaled to sum to one."""
    try:
        values = np.array(topics, dtype=np.float64)
    except (TypeError, ValueError):
        raise InvalidInputError(
            "topics must be a matrix of probabilities, one topic a row"
        ) from None
    if values.ndim != 2 or 0 in values.shape:
        raise InvalidInputError(
            f"topics has shape {values.shape}: expected (n_components, n_features)"
        )
    sums = values.sum(1)
    if not np.isfinite(sums).all() or (values < 0).any() or (sums <= 0).any():
        raise InvalidInputError(
            "topics must hold finite numbers of at least 0 with a positive sum in each row"
        )
    return values / sums[:, None]


def check_length(length: object, lengths: object) -> tuple[float, Length]:
    """The mean number of words of a document and the distribution of that number."""
    if lengths not in LENGTHS:
        raise InvalidInputError(f"lengths={lengths!r} must be one of {', '.join(LENGTHS)}")
    return check_positive(length, "length"), lengths


def draw_topics(
    rng: np.random.Generator,
    n_components: int,
    n_features: int,
    word_exponent: float,
    concentration: float,
) -> Any:
    """Topics (k, V) around a common background of words with frequencies by Zipf's law.

    With the background q_v proportional to v^-s, s the `word_exponent`, a topic is drawn from
    the Dirichlet distribution with parameters c V q, c the `concentration`: its mean is the
    background, frequent words are much the same in all topics, and rare ones belong to few.
    """
    background = np.arange(1, n_features + 1, dtype=np.float64) ** -word_exponent
    background /= background.sum()
    topics = rng.standard_gamma(
        concentration * n_features * background, size=(n_components, n_features)
    )
    sums = topics.sum(1)
    # All numbers of a very sparse topic may underflow: such a topic is a single word.
    for empty in np.flatnonzero(sums == 0):
        topics[empty, rng.choice(n_features, p=background)] = 1.0
        sums[empty] = 1.0
    topics /= sums[:, None]
    return topics


def draw_lengths(rng: np.random.Generator, n_documents: int, mean: float, lengths: Length) -> Any:
    """Numbers of words (n,) with the given mean; documents without any word may occur."""
    if lengths == "constant":
        return np.full(n_documents, round(mean), dtype=np.int64)
    if lengths == "poisson":
        return rng.poisson(mean, n_documents)
    location = np.log(mean) - _LOG_SPREAD**2 / 2
    return np.rint(rng.lognormal(location, _LOG_SPREAD, n_documents)).astype(np.int64)


def cumulated(topics: Any) -> Any:
    """Distribution functions (k, V) of the topics, ending in exactly one."""
    edges = np.cumsum(topics, axis=1)
    return edges / edges[:, -1:]


def draw_counts(rng: np.random.Generator, edges: Any, topic_counts: Any, dtype: Any) -> Any:
    """Word counts of documents whose number of words from each topic is given.

    Parameters
    ----------
    edges : (k, V) distribution functions of the topics, see `cumulated`
    topic_counts : (n, k) whole numbers

    Returns
    -------
    csr_array (n, V), canonical, with 32-bit indices where they suffice
    """
    n_documents, n_features = topic_counts.shape[0], edges.shape[1]
    rows = np.arange(n_documents, dtype=np.int64) * n_features
    places = []
    for topic, counts in enumerate(topic_counts.T):
        # Words with probability zero have an interval of no length, which "right" steps over.
        words = np.searchsorted(edges[topic], rng.random(int(counts.sum())), side="right")
        places.append(np.repeat(rows, counts) + np.minimum(words, n_features - 1))
    place = np.concatenate(places) if places else np.empty(0, dtype=np.int64)
    place.sort()
    first = np.flatnonzero(np.diff(place, prepend=-1))
    counts = np.diff(first, append=place.size).astype(dtype)
    place = place[first]
    starts = np.searchsorted(place, np.append(rows, n_documents * n_features))
    small = max(n_features, place.size) <= np.iinfo(np.int32).max
    index = np.int32 if small else np.int64
    return scipy.sparse.csr_array(
        (counts, (place % n_features).astype(index), starts.astype(index)),
        shape=(n_documents, n_features),
    )


def check_shape(n_documents: object, n_features: object, n_components: object) -> tuple[int, ...]:
    """Three positive integers, under the names that every planted corpus uses."""
    return (
        check_positive_int(n_documents, "n_documents"),
        check_positive_int(n_features, "n_features"),
        check_positive_int(n_components, "n_components"),
    )
