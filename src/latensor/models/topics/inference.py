"""What users ask a fitted topic model: words, perplexity, coherence, files."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from latensor.arrays import check_positive_int, generator
from latensor.arrays.randomness import RandomState
from latensor.arrays.threads import thread_count
from latensor.diagnostics.coherence import coherence
from latensor.estimation.document_input import BATCH_ROWS, read_counts, read_texts
from latensor.estimation.topic_files import load_topics, restore_state, saved_state
from latensor.exceptions import InvalidInputError
from latensor.models.topics.exploration import TopicExploration
from latensor.models.topics.refinement import Completion
from latensor.sources import DocumentSource, MatrixSource
from latensor.sources.passes import over
from latensor.sources.texts import is_folder, is_texts, refuse_unreadable_texts


class TopicInference(TopicExploration, ClassNamePrefixFeaturesOutMixin, TransformerMixin):  # type: ignore[misc]
    """What can be read off topics once they are found; a model adds mixtures and completion."""

    components_: Any
    n_features_in_: int
    _check_stream: Callable[[object], None]
    random_state: RandomState
    n_jobs: int | None
    # What the weights of the topics are called, without the underscore.
    _weight_name: ClassVar[str]

    def transform(self, X: object) -> Any:
        """Fractions of the topics in documents (n, k), rows sum to one.

        The expected fractions given the words, where a document has one topic its probabilities; a
        document without words has those of the model's weights.

        Parameters
        ----------
        X : (n, V) counts as an array, frame or SciPy sparse matrix, or a source of documents
        """
        check_is_fitted(self)
        n_threads = thread_count(self.n_jobs)
        answers = over(self._read_batches(X), lambda batch: self._mixtures(batch, n_threads))
        return np.concatenate(answers)

    def sample(
        self, n_samples: int = 1, length: int = 100, random_state: RandomState = None
    ) -> tuple[Any, Any]:
        """Documents (n, V) drawn from the model, as CSR counts, and what topics they are on.

        The latter are fractions (n, k), or (n,) where a document has one topic.

        Parameters
        ----------
        n_samples : int
        length : int, words of a document
        random_state : seed; default that of the model
        """
        check_is_fitted(self)
        check_positive_int(n_samples, "n_samples")
        check_positive_int(length, "length")
        rng = generator(self.random_state if random_state is None else random_state)
        fractions, drawn = self._drawn_mixtures(n_samples, rng)
        topics = self.components_ / self.components_.sum(axis=1, keepdims=True, dtype=np.float64)
        rows = [
            scipy.sparse.csr_array(rng.multinomial(length, chances / chances.sum())[None])
            for chances in (fraction @ topics for fraction in fractions)
        ]
        return scipy.sparse.vstack(rows, format="csr").astype(np.float64), drawn

    def _mixtures(self, batch: Any, n_threads: int) -> Any:
        """Fractions of the topics in a batch of counts."""
        raise NotImplementedError

    def _completion(self, batch: Any, seed: int, n_threads: int) -> Completion:
        """The score of half the words of documents, given the others."""
        raise NotImplementedError

    def _drawn_mixtures(self, n_samples: int, rng: np.random.Generator) -> tuple[Any, Any]:
        """Fractions (n, k) of documents, and what users are told of them."""
        raise NotImplementedError

    @property
    def _n_features_out(self) -> int:
        return int(self.components_.shape[0])

    def top_words(self, n_words: int = 10, vocabulary: object = None) -> list[list[Any]]:
        """The most probable words of every topic, best first.

        Parameters
        ----------
        n_words : int
        vocabulary : words in the order of the columns; default those the model was fitted with,
            else the numbers of the columns
        """
        check_is_fitted(self)
        n_words = min(check_positive_int(n_words, "n_words"), self.n_features_in_)
        words = self._vocabulary(vocabulary)
        order = np.argsort(-self.components_, axis=1, kind="stable")[:, :n_words]
        return [[words[j] for j in row] for row in order]

    def perplexity(self, X: object, random_state: RandomState = 0) -> float:
        """Perplexity of documents by completion: lower is better.

        Half of the words of every document are used to find its mixture, the other half is
        scored; which half is drawn by `random_state`. Comparable between models of any kind,
        unlike a bound that only one method defines.

        Parameters
        ----------
        X : (n, V) counts as an array, frame or SciPy sparse matrix, or a source of documents
        random_state : seed of the halves
        """
        check_is_fitted(self)
        seed = int(generator(random_state).integers(2**31))
        n_threads = thread_count(self.n_jobs)
        parts = over(self._read_batches(X), lambda batch: self._completion(batch, seed, n_threads))
        total = sum(float(np.sum(part.log_likelihood)) for part in parts)
        words = sum(float(np.sum(part.n_tokens)) for part in parts)
        if not words:
            raise InvalidInputError("no document of X holds a word: there is nothing to score")
        return float(np.exp(-total / words))

    def score(self, X: object, y: object = None) -> float:
        """The average log-likelihood of a word by document completion: higher is better."""
        return -float(np.log(self.perplexity(X)))

    def coherence(self, X: object, measure: str = "npmi", n_words: int = 10) -> Any:
        """Whether the top words of each topic occur in the same documents (k,).

        Parameters
        ----------
        X : documents to count in, as for `fit`
        measure : "npmi" (-1 to 1), "c_v" (0 to 1) or "u_mass" (0 at most)
        n_words : int, top words of a topic
        """
        check_is_fitted(self)
        order = np.argsort(-self.components_, axis=1, kind="stable")
        order = order[:, : check_positive_int(n_words, "n_words")]
        return coherence(order, self._read_batches(X), measure)

    def _read_batches(self, documents: object) -> Any:
        """Documents of any kind as CSR batches, checked against the words of the model."""
        if is_texts(documents) or is_folder(documents):
            return read_texts(self, documents, reset=False)
        if isinstance(documents, DocumentSource):
            if documents.n_features != self.n_features_in_:
                raise InvalidInputError(
                    f"the documents have {documents.n_features} words, but the model "
                    f"{self.n_features_in_}: read them with the vocabulary of the model"
                )
            return documents
        refuse_unreadable_texts(documents)
        counts, _ = read_counts(self, documents, reset=False)
        return MatrixSource(counts, BATCH_ROWS)

    def _vocabulary(self, vocabulary: object = None) -> list[Any]:
        if vocabulary is None:
            known = getattr(self, "vocabulary_", None)
            if known is None:
                known = getattr(self, "feature_names_in_", None)
            return list(range(self.n_features_in_)) if known is None else list(known)
        words: list[Any] = list(vocabulary)  # type: ignore[call-overload]
        if len(words) != self.n_features_in_:
            raise InvalidInputError(
                f"vocabulary has {len(words)} words, but the topics have {self.n_features_in_}: "
                "give one word a column"
            )
        return words

    def get_topics(self) -> Any:
        """Topics (k, V), rows are probabilities: the name that gensim gives them."""
        check_is_fitted(self)
        return self.components_.copy()

    def pyldavis_inputs(self, X: object) -> dict[str, Any]:
        """The arguments of `pyLDAvis.prepare` for this model and these documents.

        Documents without words are left out, which pyLDAvis cannot draw.

        Parameters
        ----------
        X : documents as for `fit`
        """
        check_is_fitted(self)

        def answers(batch: Any) -> tuple[Any, Any, Any]:
            length = np.asarray(batch.sum(axis=1)).ravel()
            totals = np.asarray(batch.sum(axis=0), dtype=np.float64).ravel()
            return length[length > 0], totals, self.transform(batch)[length > 0]

        lengths, totals, mixtures = zip(*over(self._read_batches(X), answers), strict=True)
        return {
            "topic_term_dists": self.components_.astype(np.float64),
            "doc_topic_dists": np.concatenate(mixtures).astype(np.float64),
            "doc_lengths": np.concatenate(lengths).astype(np.int64),
            "vocab": [str(word) for word in self._vocabulary()],
            "term_frequency": np.sum(totals, axis=0),
        }

    def _saved_state(self) -> dict[str, Any]:
        return saved_state(self)

    def _restore_state(self, state: dict[str, Any]) -> None:
        restore_state(self, state)
        self._dtype = self.components_.dtype
        self._is_loaded = "_stream" not in state
        if "_stream" in state:
            self._check_stream(state["_stream"])
            self._stream = state["_stream"]

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """A model that `save` has written.

        Parameters
        ----------
        path : file to read
        """
        found: Self = load_topics(cls, path)
        return found
