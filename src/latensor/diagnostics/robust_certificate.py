"""How firmly the data determine what `robust_pca` and `tensor_pca` find in them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from latensor.arrays import to_host
from latensor.decomposition.result import Status
from latensor.diagnostics.findings import BAD, CAUTION, GOOD, Findings, Said, counted, finding
from latensor.diagnostics.statements import fit
from latensor.diagnostics.tucker_certificate import weakest_angle
from latensor.tensors.cp import CPTensor

if TYPE_CHECKING:
    from latensor.decomposition.robust import RobustDecomposition
    from latensor.decomposition.tensor_pca import TensorPCA

# Fraction of the computational limit from which on a spike was found in all draws.
_REACHED = 0.75


@dataclass(frozen=True)
class RobustCertificate(Findings):
    """What can be said about a low-rank part and gross errors; `print` it for plain words.

    Attributes
    ----------
    shape, ranks : of the data and of the low-rank part
    residual : float, relative Frobenius norm of what both parts leave
    observed : int, the number of observed entries
    gross : int, the number of gross errors among them
    densest : float or None, the largest fraction of a slice that gross errors take; None with a
        mask
    noise : float, standard deviation of what is left
    angles : one float per mode, expected angle, in radians, between the weakest direction that was
        kept and the space that the data without noise have
    status : Status, how the fit ended
    """

    shape: tuple[int, ...]
    ranks: tuple[int, ...]
    residual: float
    observed: int
    gross: int
    densest: float | None
    noise: float
    angles: tuple[float, ...]
    status: Status
    # Stable spaces may explain little.
    _apart: ClassVar[frozenset[str]] = frozenset({"Fit"})

    @property
    def headline(self) -> str:
        """What the certificate is about, in a few words."""
        shape = " x ".join(map(str, self.shape))
        ranks = str(self.ranks[0]) if len(self.shape) == 2 else " x ".join(map(str, self.ranks))
        return f"rank {ranks} and {counted(self.gross, 'gross error')} in data of {shape}"

    @finding("Fit")
    def _fit(self) -> Said:
        observed = None if self.observed == math.prod(self.shape) else self.observed
        return fit(
            self.residual, observed, "Raise the rank.", not any(map(math.isfinite, self.angles))
        )

    @finding("Separation")
    def _separation(self) -> Said:
        if self.status is Status.CONVERGED:
            return GOOD, "entries are met to rounding, or two ways led to the same two parts."
        return CAUTION, (
            "not confirmed: two ways led to different parts, or a direction that meets the entries "
            "of a few slices only cannot be told from their errors. Try another rank, or add data."
        )

    @finding("Gross errors")
    def _errors(self) -> Said:
        text = (
            f"{self.gross:,} of {self.observed:,} entries ({_percent(self.gross, self.observed)})"
        )
        if self.densest is None or not self.gross:
            return GOOD, f"{text} do not belong to the low-rank part."
        text += (
            f", at most {100 * self.densest:.3g} % of one slice, do not belong to the low-rank part"
        )
        if self.densest > 0.5:
            return CAUTION, (
                f"{text}. Most of a slice says nothing about that part: read it there with care."
            )
        return GOOD, f"{text}."

    @finding("Stability")
    def _stability(self) -> Said:
        mode = max(range(len(self.shape)), key=lambda m: self.angles[m])
        worst = self.angles[mode]
        # The bars of `lt.certify`: a direction of pure noise is off by more than half a radian.
        level = GOOD if worst < 0.1 else CAUTION if worst < 0.5 else BAD
        if worst == 0.0:
            return GOOD, "no noise is left that could turn the directions."
        known = f"{worst:.2g} radians" if worst < 1 else "more than a radian"
        text = (
            f"if what is left over is white noise, the weakest direction kept in mode {mode} is "
            f"known to about {known}, and those of the other modes no worse."
        )
        return level, text if level == GOOD else f"{text} Lower the rank, or add data."


def certify_robust(found: RobustDecomposition) -> RobustCertificate:
    """How far both parts can be trusted, to first order in the noise of the entries left."""
    low, shape = found.low_rank, tuple(found.low_rank.shape)
    core = np.diag(to_host(low.weights)) if isinstance(low, CPTensor) else to_host(low.core)
    epsilon = float(np.finfo(core.dtype).eps)
    core = core.astype(np.float64)
    observed = math.prod(shape) if found.n_observed is None else found.n_observed
    largest = float(np.abs(core).max(initial=0.0))
    angles = (math.inf,) * len(shape)
    if largest > 0.0:
        # Entries that are missing or grossly wrong say nothing: the others carry the noise of all.
        clean = max(observed - found.sparse.nnz, 1) / math.prod(shape)
        noise = found.noise / largest / math.sqrt(clean)
        angles = tuple(
            weakest_angle(core / largest, mode, d, noise, epsilon) for mode, d in enumerate(shape)
        )
    densest = None
    if found.n_observed is None:
        places = np.asarray(to_host(found.sparse.coordinates))
        counts = (np.bincount(places[:, m], minlength=d).max() * d for m, d in enumerate(shape))
        densest = float(max(counts)) / math.prod(shape)
    return RobustCertificate(
        shape,
        tuple(core.shape),
        float(found.residual),
        observed,
        int(found.sparse.nnz),
        densest,
        float(found.noise),
        angles,
        found.status,
    )


@dataclass(frozen=True)
class SpikeCertificate(Findings):
    """Whether the strongest direction of a tensor is more than noise; `print` it for plain words.

    Attributes
    ----------
    shape : of the tensor
    signal_to_noise, noise_level, computational_limit : as those of `TensorPCA`
    """

    shape: tuple[int, ...]
    signal_to_noise: float
    noise_level: float
    computational_limit: float

    @property
    def headline(self) -> str:
        """What the certificate is about, in a few words."""
        return f"one direction of a {' x '.join(map(str, self.shape))} tensor"

    @finding("Detection")
    def _detection(self) -> Said:
        text = (
            f"the signal-to-noise ratio is {self.signal_to_noise:.3g}, and pure noise stays below "
            f"{self.noise_level:.3g} in 99 of 100 draws"
        )
        if self.signal_to_noise > self.noise_level:
            return GOOD, f"{text}: the direction is more than noise."
        return BAD, f"{text}: the direction may be noise."

    @finding("Search")
    def _search(self) -> Said:
        text = f"d^(p/4) = {self.computational_limit:.3g}"
        if self.signal_to_noise >= _REACHED * self.computational_limit:
            return GOOD, f"the ratio is near or above {text}, from where a spike is found."
        return CAUTION, (
            f"the ratio is below three quarters of {text}, where no method is known that finds "
            "every spike: a stronger direction may have been missed."
        )


def certify_spike(found: TensorPCA) -> SpikeCertificate:
    """Whether a direction stands clear of what noise gives, and of what can be searched."""
    return SpikeCertificate(
        tuple(len(vector) for vector in found.vectors),
        found.signal_to_noise,
        found.noise_level,
        found.computational_limit,
    )


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / max(whole, 1):.3g} %"
