"""Topics read off the word moments of documents (monograph 4.1, 4.2.3).

With topics mu_j, Dirichlet weights alpha and a = sum_j alpha_j, the word moments E1, E2, E3
combine into tensors with the topics as components:

    M2 = E2 - a/(a+1) E1 (x) E1                                   = sum_j w_j mu_j (x) mu_j
    M3 = E3 - a/(a+2) sym3(E2, E1) + 2 a^2/((a+1)(a+2)) E1^(x)3   = sum_j 2 w_j/(a+2) mu_j^(x)3

with w_j = alpha_j / (a (a+1)) and sym3 the three placements. For a -> 0 every document has one
topic and w_j is its fraction. Everything here is of the size of the core: the moments are given
along a basis Q of the words.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg
import scipy.special

from latensor.arrays.threads import one_blas_thread
from latensor.decomposition.algorithms.joint_diagonalization import Diagonalized, diagonalize
from latensor.exceptions import NotIdentifiableError
from latensor.models.topics.subspace import leading_eigenpairs
from latensor.moments.word_triples import WordTriples

# The concentration that the search starts from; text is little affected by its value.
_START = 1.0
# Two fractions that sum to one have three moments; two topics on a line and alpha are four numbers:
# from three topics on the moments tell the concentration.
IDENTIFIED_FROM = 3
# Steps go on while each lowers the off-diagonal fraction by a tenth: to rounding where the moments
# have exactly the form of the model, and hardly anywhere on real text.
_GAIN = 0.9
_ROUNDS = 30
# The found concentration replaces the first guess where it explains a third of what was left.
# Planted corpora fall by 2 to 1000 times at the truth, text (news, titles) by 1 to 1.2 times, and
# its lowest point is then far too high: topics get worse.
_WORTHWHILE = 0.7
# Sweeps of the joint diagonalization end when one gains less than this fraction: the rest is noise.
_SWEEP_TOLERANCE = 1e-3
_LARGEST = 1e3
# No topic is rarer than this part of an equal fraction, whatever the moments say.
_SMALLEST_FRACTION = 1e-3
# Where the second moment of the fractions is impossible: what text has, a few topics a document.
_FALLBACK = 0.5
# Topics nearer to dependence than this are inverted by singular values.
_SMALLEST_PIVOT = 1e-3


@dataclass(frozen=True)
class TopicMoments:
    """Topics as the moments give them, before they are made probabilities.

    Attributes
    ----------
    topics : (k, V), rows sum to one; sampling noise may leave negative entries
    weights : (k,) second-moment weights w_j
    concentration : float, the sum of the Dirichlet weights (0: one topic a document)
    off_diagonal : float, fraction of the whitened third moment that no topics explain
    spectrum : (r,) eigenvalues of M2 in the basis, in decreasing value
    eigenvalues : (k,) the whitened weights of the third moment
    implied_concentration : float, the one at which second and third moment agree best, also where
        it was not used
    lift : (r, k) directions in the basis that bring the third moment to diagonal form; None where
        the whole of it was not formed
    """

    topics: Any
    weights: Any
    concentration: float
    off_diagonal: float
    spectrum: Any
    eigenvalues: Any
    implied_concentration: float
    lift: Any = None


def topics_from_moments(
    moments: WordTriples,
    basis: Any,
    scale: Any,
    n_components: int,
    rng: np.random.Generator,
    *,
    concentration: float | None = None,
    algorithm: Any = None,
) -> TopicMoments:
    """Topics and concentration whose moments are the given ones (monograph 4.2.3).

    Parameters
    ----------
    moments : along `basis`, in scaled words
    basis, scale : (V, r) and (V,)
    n_components : int, k
    rng : draws the starts of the joint diagonalization
    concentration : float, or None to find the one that agrees with itself: the weights of the
        second and of the third moment, found at `a`, give a concentration again. Of one or two
        topics every concentration agrees, and 1 is taken
    algorithm : for the whitened core, as in `lt.decomposition`; None for joint diagonalization
    """
    with one_blas_thread():
        core = _Core(moments, basis, scale, algorithm)
        if concentration is None and n_components < IDENTIFIED_FROM:
            concentration = _START
        if concentration is None:
            return core.read_off(*_self_consistent(core, n_components, rng))
        return core.read_off(core.solve(n_components, concentration, rng, None), concentration)


def _self_consistent(
    core: _Core, n_components: int, rng: np.random.Generator
) -> tuple[_Solution, float]:
    """The concentration that the third moment gives back, by secant steps in its logarithm.

    Steps go on while they lower the off-diagonal fraction, and are taken back where they lowered it
    little: on text that no Dirichlet distribution made, the moments may point anywhere.
    """
    first = best = core.solve(n_components, _START, rng, None)
    points = [(np.log(_START), best.excess)]
    failures = 0
    for _ in range(_ROUNDS):
        step = _step(points)
        if not abs(step) > 1e-15 or failures == 2:
            break
        value = float(np.clip(points[-1][0] + step, -np.log(_LARGEST), np.log(_LARGEST)))
        trial = core.solve(n_components, float(np.exp(value)), rng, best.found.vectors)
        points.append((value, trial.excess))
        failures += trial.off_diagonal > _GAIN * best.off_diagonal
        if trial.off_diagonal < best.off_diagonal:
            best = trial
    worthwhile = best.off_diagonal <= _WORTHWHILE * first.off_diagonal
    return best if worthwhile else first, best.concentration


def _step(points: list[tuple[float, float]]) -> float:
    """The next change of the logarithm; the first one is a guess in the right direction."""
    here, excess = points[-1]
    if len(points) == 1:
        return float(np.clip(8 * excess, -1.5, 1.5))
    before, other = points[-2]
    if excess == other:
        return 0.0
    return float(np.clip(-excess * (here - before) / (excess - other), -2.0, 2.0))


class _Core:
    """The moments along the basis, from which every concentration is a small computation."""

    def __init__(self, moments: WordTriples, basis: Any, scale: Any, algorithm: Any) -> None:
        self.algorithm = algorithm
        self.mean, self.product, self.triples = moments.mean, moments.product, moments.triples
        self.basis, self.scale = basis, scale
        self.first, self.second = moments.along(basis)
        unscale = np.divide(1.0, scale, out=np.zeros_like(scale), where=scale > 0)
        # Sums over the words, unscaled: a topic is normalized by them before it is formed.
        self.mean_sum, self.product_sums = unscale @ self.mean, unscale @ self.product
        self.unscale = unscale

    def solve(self, n_components: int, a: float, rng: Any, rotation: Any) -> _Solution:
        fraction = a / (a + 1)
        m = self.first
        spectrum, vectors = leading_eigenpairs(self.second - fraction * np.outer(m, m))
        _check_rank(spectrum, n_components, self.basis.shape[0])
        whiten = vectors[:, :n_components] / np.sqrt(spectrum[:n_components])
        core = third_core(self.triples, m, self.second, whiten, a)
        found = self._decompose(core, rng, rotation)
        lift = whiten @ found.vectors
        sums = self.product_sums @ lift - fraction * self.mean_sum * (m @ lift)
        return _Solution(a, lift, sums, found, spectrum)

    def _decompose(self, core: Any, rng: np.random.Generator, rotation: Any) -> Diagonalized:
        if self.algorithm is None:
            return diagonalize(core, rng, start=rotation, tol=_SWEEP_TOLERANCE)
        # Sums in single precision are symmetric to their own rounding only.
        core = sum(core.transpose(order) for order in itertools.permutations(range(3))) / 6
        found = self.algorithm(core, core.shape[0], rng)
        vectors = np.asarray(found.tensor.factors[0], dtype=np.float64)
        weights = np.asarray(found.tensor.weights, dtype=np.float64)
        norms = np.linalg.norm(vectors, axis=0)
        norms = np.where(norms > 0, norms, 1.0)
        return Diagonalized(vectors / norms, weights * norms**3, found.residual**2, found.n_iter)

    def read_off(self, solution: _Solution, implied: float) -> TopicMoments:
        """The topics themselves, the largest first."""
        fraction = solution.concentration / (solution.concentration + 1)
        sums = np.where(solution.sums == 0, np.finfo(float).tiny, solution.sums)
        order = np.argsort(-np.abs(sums), kind="stable")
        lift, sums = solution.lift.T[order], sums[order]
        topics = lift @ self.product.T
        topics -= np.outer(fraction * (lift @ self.first), self.mean)
        topics *= self.unscale
        topics /= sums[:, None]
        return TopicMoments(
            topics,
            sums**2,
            solution.concentration,
            solution.found.off_diagonal,
            solution.spectrum,
            solution.found.weights[order] * np.sign(sums),
            implied,
            lift.T,
        )


def third_core(triples: Any, first: Any, second: Any, directions: Any, a: float) -> Any:
    """M3(A, A, A) for directions A (r, k), from E3, E1 and E2 along the basis."""
    core = np.tensordot(triples, directions, axes=(2, 0))
    core = np.tensordot(core, directions, axes=(1, 0))
    core = np.tensordot(core, directions, axes=(0, 0)).transpose(2, 1, 0)
    m, pairs = directions.T @ first, directions.T @ second @ directions
    mixed = pairs[:, :, None] * m
    mixed = mixed + mixed.transpose(0, 2, 1) + mixed.transpose(2, 1, 0)
    cube = m[:, None, None] * m[:, None] * m
    return core - a / (a + 2) * mixed + 2 * a * a / ((a + 1) * (a + 2)) * cube


@dataclass(frozen=True)
class _Solution:
    """Directions of the topics in the basis, at one concentration."""

    concentration: float
    lift: Any
    sums: Any
    found: Diagonalized
    spectrum: Any

    @property
    def off_diagonal(self) -> float:
        return self.found.off_diagonal

    @property
    def excess(self) -> float:
        """The logarithm of the concentration that the third moment implies over that assumed.

        The second moment agrees with every concentration; the whitened third moment has the
        weights lambda_j = 2 / ((a + 2) w_j^1/2), and at a wrong `a` these imply one that is
        nearer to the truth. Topics are averaged by their weights w_j.
        """
        weights = self.sums**2
        average = float(weights @ (self.found.weights * self.sums) / weights.sum())
        implied = 2 / average - 2 if average > 0 else 0.0
        return float(np.log(implied / self.concentration)) if implied > 0 else -1.0


def _check_rank(spectrum: Any, n_components: int, n_words: int) -> None:
    floor = n_words * np.finfo(np.float64).eps * float(np.abs(spectrum).max())
    usable = int(np.count_nonzero(spectrum > floor))
    if usable < n_components:
        raise NotIdentifiableError(
            f"n_components={n_components} exceeds the {usable} directions that the second moment "
            "of the words supports: lower n_components or give more documents"
        )


def repeated_misfit(found: TopicMoments, halves: Sequence[WordTriples], basis: Any) -> float:
    """How probable it is that the third moment contradicts the model as much by noise alone.

    What topics leave unexplained of the third moments of either half of the documents: the mean of
    both, squared, over half their difference, squared, is at most about F-distributed where it is
    noise, with as many degrees of freedom as the mean has left beside topics and as there are
    entries.

    Parameters
    ----------
    found : with `lift`
    halves : moments along `basis`
    """
    left = []
    for half in halves:
        with one_blas_thread():
            core = third_core(half.triples, *half.along(basis), found.lift, found.concentration)
        diagonal = np.arange(len(core))
        core[diagonal, diagonal, diagonal] = 0.0
        left.append(core)
    k = len(left[0])
    entries = k * (k + 1) * (k + 2) // 6 - k
    free = max(entries - k * (k - 1) // 2, 1)
    mean, noise = (float(((left[0] + sign * left[1]) ** 2).sum()) for sign in (1, -1))
    ratio = mean / free / max(noise / entries, np.finfo(float).tiny)
    return float(scipy.special.fdtrc(free, entries, ratio))


def as_probabilities(topics: Any, totals: Any) -> Any:
    """Topics (k, V) that are probabilities: negative entries cut off, the unigram where all are.

    Parameters
    ----------
    topics : (k, V) as the moments give them
    totals : (V,) occurrences of every word, the unigram
    """
    topics = np.maximum(topics, 0.0)
    sums = topics.sum(axis=1)
    topics /= np.where(sums > 0, sums, 1.0)[:, None]
    topics[~(sums > 0)] = totals / totals.sum()
    return topics


def dual_basis(topics: Any, basis: Any = None) -> Any:
    """Directions B (V, k) with B' topics' = I; in coordinates of a basis (V, r), if one is given.

    Parameters
    ----------
    topics : (k, V), linearly independent
    basis : (V, r) orthonormal columns, r >= k
    """
    inside = topics if basis is None else topics @ basis
    with one_blas_thread():
        # By the Gram matrix where that is accurate: many times faster than by singular values.
        try:
            factor = np.linalg.cholesky(inside @ inside.T)
        except np.linalg.LinAlgError:
            return np.linalg.pinv(inside)
        pivots = np.diag(factor)
        if pivots.min() < _SMALLEST_PIVOT * pivots.max():
            return np.linalg.pinv(inside)
        inverse = scipy.linalg.solve_triangular(factor, np.eye(len(factor)), lower=True)
        return inside.T @ (inverse.T @ inverse)


def fractions_of(first: Any) -> Any:
    """E[h] (k,) as fractions: none below a thousandth of an equal one, whatever the moments say."""
    fractions = np.maximum(first, _SMALLEST_FRACTION / len(first))
    return fractions / fractions.sum()


def concentration_from_fractions(first: Any, second: Any, known: float | None = None) -> Any:
    """Dirichlet parameters (k,) from the first two moments of the fractions.

    a = (1 - tr H2) / (tr H2 - |H1|^2) and alpha = a H1, for H1 = E[h] and H2 = E[h h'].

    Parameters
    ----------
    first, second : H1 (k,) and H2 (k, k)
    known : float, a where something better tells it
    """
    fractions = fractions_of(first)
    if known is not None:
        return known * fractions
    trace, squared = float(np.trace(second)), float(first @ first)
    spread = trace - squared
    if trace >= 1:
        # More than all of the fractions on one topic each: the topics are too poor to tell.
        return _FALLBACK * fractions
    concentration = (1 - trace) / spread if spread > 0 else _LARGEST
    return float(np.clip(concentration, 1 / _LARGEST, _LARGEST)) * fractions
