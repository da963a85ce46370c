"""Many topics: slices of the third moment, then symmetric power steps, never the whole core.

Beyond a hundred topics the core of r^3 numbers and the n r^3 operations that sum it are what a fit
would wait for. A few slices along random directions give joint diagonalization enough to find all
topics roughly; power steps V <- polar(M3(I, V, V)), all topics at once and each one pass over the
documents of n r^2 operations, then use the whole third moment.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from latensor.arrays.threads import one_blas_thread
from latensor.decomposition.algorithms.joint_diagonalization import diagonalize
from latensor.models.topics.read_off import TopicMoments
from latensor.models.topics.subspace import WordSubspace
from latensor.moments.word_power_sums import WordPowerMoments, WordPowerSums, WordSliceSums
from latensor.moments.word_triples import WordRows

# One pass over the documents.
Fold = Callable[[Any], Any]

# More slices cost Jacobi rotations, and five steps make good what few slices miss.
_SLICES = 16
_FEW_SLICES = 4
_MANY_TOPICS = 150
_STEPS = 5
_SWEEPS = 12


def power_sums(
    fold: Fold,
    subspace: WordSubspace,
    concentration: float,
    rng: np.random.Generator,
    rows: WordRows | None = None,
) -> WordPowerSums:
    """Moments along directions that are whitened and turned to the topics.

    Parameters
    ----------
    fold : makes a pass over the documents: one for the slices and one a step
    subspace : with as many directions as topics
    concentration : float, a of the correction
    rng : draws the directions of the slices
    rows : words whose sums travel besides; None for all
    """
    rank = subspace.basis.shape[1]
    whitened = subspace.basis / np.sqrt(subspace.spectrum[:rank])
    n_slices = min(rank, _SLICES if rank <= _MANY_TOPICS else _FEW_SLICES)
    directions = np.linalg.qr(rng.standard_normal((rank, n_slices)))[0]
    frame = (subspace.scale, subspace.cap, subspace.noisy)
    slices = fold(WordSliceSums(whitened, *frame, rows=rows, directions=directions))
    with one_blas_thread():
        found = diagonalize(
            _corrected_slices(slices.finalize(), whitened, directions, concentration),
            rng,
            max_iter=_SWEEPS,
            tol=1e-2,
        )
    basis = whitened @ found.vectors
    sums: WordPowerSums = fold(WordPowerSums(basis, *frame, rows=rows))
    for _ in range(_STEPS):
        basis = basis @ turned(sums.finalize(), basis, concentration)
        sums = fold(WordPowerSums(basis, *frame, rows=rows))
    return sums


def _corrected_slices(moments: Any, basis: Any, directions: Any, a: float) -> Any:
    """M3(Q, Q, Q d_j) from E3 along the same directions."""
    first, second = moments.along(basis)
    along, across = first @ directions, second @ directions
    mixed = first[:, None, None] * across[None]
    mixed = mixed + mixed.transpose(1, 0, 2) + second[:, :, None] * along
    cube = np.multiply.outer(np.outer(first, first), along)
    return moments.slices - a / (a + 2) * mixed + 2 * a * a / ((a + 1) * (a + 2)) * cube


def _core(moments: WordPowerMoments, basis: Any, a: float) -> tuple[Any, Any, Any]:
    """M1 (r,), M2 (r, r) and M3(q_i, q_j, q_j) (r, r) along the basis."""
    first, second = moments.along(basis)
    mixed = 2 * second * first + np.outer(first, np.diag(second))
    cube = np.outer(first, first**2)
    third = moments.powers - a / (a + 2) * mixed + 2 * a * a / ((a + 1) * (a + 2)) * cube
    return first, second - a / (a + 1) * np.outer(first, first), third


def turned(moments: WordPowerMoments, basis: Any, a: float) -> Any:
    """The change of basis (r, r) of one symmetric power step, whitened anew."""
    with one_blas_thread():
        _, second, third = _core(moments, basis, a)
        values, vectors = np.linalg.eigh(second)
        # One half of the documents may not support what the whole does: it is not amplified.
        root = vectors / np.sqrt(np.maximum(values, values[-1] * 1e-6)) @ vectors.T
        left, _, right = np.linalg.svd(root @ third)
        return root @ left @ right


def topics_from_powers(moments: WordPowerMoments, basis: Any, scale: Any, a: float) -> TopicMoments:
    """Topics after one more power step from the directions that the moments are taken along."""
    change = turned(moments, basis, a)
    with one_blas_thread():
        first, second, third = _core(moments, basis, a)
        fraction = a / (a + 1)
        unscale = np.divide(1.0, scale, out=np.zeros_like(scale), where=scale > 0)
        lifted = moments.product @ change - fraction * np.outer(moments.mean, first @ change)
        topics = lifted.T * unscale
        sums = topics.sum(axis=1)
        sums = np.where(sums == 0, np.finfo(float).tiny, sums)
        eigenvalues = np.diag(third)
        left = third - np.diag(eigenvalues)
        order = np.argsort(-np.abs(sums), kind="stable")
        spectrum = np.linalg.eigvalsh(second)[::-1]
    return TopicMoments(
        topics[order] / sums[order, None],
        sums[order] ** 2,
        a,
        float((left**2).sum() / (third**2).sum()),
        spectrum,
        (eigenvalues * np.sign(sums))[order],
        a,
    )
