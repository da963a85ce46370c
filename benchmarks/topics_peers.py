"""One method on one corpus, alone in its process so that CPU seconds are its own.

    python -m benchmarks.topics_peers FOLDER

reads `counts.npz` and `task.json` from the folder and writes, for each setting asked for, the
topics, the Dirichlet parameters and the CPU seconds. Timed is `fit` alone, after a warm-up on a
tiny corpus: imports, compilation, and turning a matrix into lists of tokens are not.
"""

from __future__ import annotations

import json
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")
os.environ.setdefault("NUMBA_NUM_THREADS", "1")

import numpy as np  # noqa: E402
import scipy.sparse  # noqa: E402

ALPHA, BETA = 0.1, 0.05
Found = tuple[int, float, Any, Any]


@dataclass(frozen=True)
class Task:
    """What to fit: `settings` are numbers of iterations or passes, in ascending order."""

    n_components: int
    settings: tuple[int, ...]
    seed: int
    our_priors: bool


@dataclass(frozen=True)
class Method:
    """A program and the numbers of iterations that validation may choose from.

    `resumes`: one run passes through all settings, so that the smaller ones cost nothing.
    """

    title: str
    settings: tuple[int, ...]
    resumes: bool
    fit: Callable[[Any, Task], Iterator[Found]]
    has_priors: bool = True


def tokens(counts: Any) -> list[list[str]]:
    """Documents as lists of words, named by their column."""
    names = np.array([str(column) for column in range(counts.shape[1])], dtype=object)
    words = names[np.repeat(counts.indices, counts.data.astype(np.int64))]
    sizes = np.asarray(counts.sum(1)).ravel().astype(np.int64)
    return [part.tolist() for part in np.split(words, np.cumsum(sizes)[:-1])]


def placed(rows: Any, vocabulary: Any, n_features: int) -> Any:
    """Topics with columns in our order; words that a program never saw have probability zero."""
    topics = np.zeros((len(rows), n_features))
    topics[:, [int(word) for word in vocabulary]] = rows
    return topics


def fit_latensor(counts: Any, task: Task) -> Iterator[Found]:
    from latensor.models import LatentDirichletAllocation

    model = LatentDirichletAllocation(n_components=task.n_components, random_state=task.seed)
    began = time.process_time()
    model.fit(counts)
    seconds = time.process_time() - began
    yield 0, seconds, model.components_, model.alpha_


def fit_tomotopy(counts: Any, task: Task) -> Iterator[Found]:
    import tomotopy

    priors = {"alpha": ALPHA, "eta": BETA} if task.our_priors else {}
    model = tomotopy.LDAModel(k=task.n_components, seed=task.seed, **priors)
    if task.our_priors:
        model.optim_interval = 0
    for document in tokens(counts):
        model.add_doc(document)
    done, seconds = 0, 0.0
    for setting in task.settings:
        began = time.process_time()
        model.train(setting - done, workers=1)
        seconds += time.process_time() - began
        done = setting
        rows = [model.get_topic_word_dist(topic) for topic in range(model.k)]
        yield setting, seconds, placed(rows, model.used_vocabs, counts.shape[1]), model.alpha


def fit_topica(counts: Any, task: Task, sampler: str) -> Iterator[Found]:
    import topica

    priors: dict[str, Any] = {}
    if task.our_priors:
        priors = {"alpha_sum": ALPHA * task.n_components, "beta": BETA, "optimize_interval": 0}
    corpus = topica.Corpus.from_documents(tokens(counts))
    for setting in task.settings:
        model = topica.LDA(task.n_components, seed=task.seed, sampler=sampler, **priors)
        extra = {"num_samples": 1} if sampler == "cvb0" else {}
        began = time.process_time()
        model.fit(corpus, iters=setting, progress=False, keep_theta_draws=False, **extra)
        seconds = time.process_time() - began
        topics = placed(model.topic_word, model.vocabulary, counts.shape[1])
        yield setting, seconds, topics, model.alpha


def fit_topica_cvb0(counts: Any, task: Task) -> Iterator[Found]:
    return fit_topica(counts, task, "cvb0")


def fit_topica_sparse(counts: Any, task: Task) -> Iterator[Found]:
    return fit_topica(counts, task, "sparse")


def _sklearn(task: Task, **settings: Any) -> Any:
    from sklearn.decomposition import LatentDirichletAllocation

    if task.our_priors:
        settings |= {"doc_topic_prior": ALPHA, "topic_word_prior": BETA}
    return LatentDirichletAllocation(
        task.n_components, random_state=task.seed, n_jobs=1, **settings
    )


def _sklearn_found(model: Any) -> tuple[Any, Any]:
    topics = model.components_ / model.components_.sum(1, keepdims=True)
    return topics, np.full(len(topics), model.doc_topic_prior_)


def fit_sklearn_online(counts: Any, task: Task) -> Iterator[Found]:
    # One partial_fit over everything is one pass of fit, with the same minibatches and steps.
    model = _sklearn(task, learning_method="online", total_samples=counts.shape[0])
    seconds = 0.0
    for done in range(1, task.settings[-1] + 1):
        began = time.process_time()
        model.partial_fit(counts)
        seconds += time.process_time() - began
        if done in task.settings:
            yield (done, seconds, *_sklearn_found(model))


def fit_sklearn_batch(counts: Any, task: Task) -> Iterator[Found]:
    for setting in task.settings:
        model = _sklearn(task, learning_method="batch", max_iter=setting)
        began = time.process_time()
        model.fit(counts)
        seconds = time.process_time() - began
        yield (setting, seconds, *_sklearn_found(model))


def fit_gensim(counts: Any, task: Task) -> Iterator[Found]:
    from gensim.models import LdaModel

    corpus = [
        list(
            zip(
                counts.indices[start:stop].tolist(),
                counts.data[start:stop].astype(int).tolist(),
                strict=True,
            )
        )
        for start, stop in zip(counts.indptr[:-1], counts.indptr[1:], strict=True)
    ]
    names = {column: str(column) for column in range(counts.shape[1])}
    priors = {"alpha": np.full(task.n_components, ALPHA), "eta": BETA} if task.our_priors else {}
    for setting in task.settings:
        began = time.process_time()
        model = LdaModel(
            corpus,
            num_topics=task.n_components,
            id2word=names,
            passes=setting,
            random_state=task.seed,
            **priors,
        )
        seconds = time.process_time() - began
        yield setting, seconds, model.get_topics(), model.alpha


OURS = "latensor"
METHODS = {
    OURS: Method("latensor", (0,), True, fit_latensor, has_priors=False),
    "tomotopy": Method("tomotopy", (100, 200, 500, 1000), True, fit_tomotopy),
    "topica_cvb0": Method("topica CVB0", (20, 50, 100, 200), False, fit_topica_cvb0),
    "topica": Method("topica LDA", (200, 1000), False, fit_topica_sparse),
    "sklearn_online": Method("scikit-learn online", (1, 3, 10), True, fit_sklearn_online),
    "sklearn_batch": Method("scikit-learn batch", (10, 30), False, fit_sklearn_batch),
    "gensim": Method("gensim", (1, 10), False, fit_gensim),
}


def warm_up(method: Method, task: Task) -> None:
    """Let imports, compilation and first-call costs fall outside the measurement."""
    rng = np.random.default_rng(0)
    # Words enough for the ways that real corpora take: a smaller one has ways of its own.
    tiny = scipy.sparse.csr_array(rng.poisson(0.1, (200, 500)).astype(np.float64))
    for _ in method.fit(tiny, Task(3, method.settings[:1], 0, task.our_priors)):
        pass


def main(folder: Path) -> None:
    warnings.simplefilter("ignore")
    wanted = json.loads((folder / "task.json").read_text())
    method = METHODS[wanted.pop("method")]
    task = Task(**{**wanted, "settings": tuple(wanted["settings"])})
    counts = scipy.sparse.csr_array(scipy.sparse.load_npz(folder / "counts.npz"))
    warm_up(method, task)
    for setting, seconds, topics, alpha in method.fit(counts, task):
        np.savez(folder / f"found-{setting}.npz", seconds=seconds, topics=topics, alpha=alpha)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
