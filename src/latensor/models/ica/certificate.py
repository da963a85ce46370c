"""How firmly samples determine unmixed sources, in numbers and in plain words."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from latensor.arrays import Array
from latensor.diagnostics.findings import (
    BAD,
    CAUTION,
    GOOD,
    Findings,
    Said,
    counted,
    finding,
    listed,
)
from latensor.diagnostics.sampled_subspace import level_of, subspace_angle
from latensor.estimation.model import Answer
from latensor.models.ica.read_off import Unmixing
from latensor.models.ica.refinement import DEPENDENT
from latensor.models.ica.rotation import gaussian_bound
from latensor.models.ica.signal_space import spectrum
from latensor.value_files import storable

_NOISE = {
    "none": "none is assumed",
    "isotropic": "of equal size in all sensors",
    "diagonal": "of a size of its own in every sensor",
    "unknown": "of unknown covariance; the fourth cumulant alone was used, which it does not enter",
}

# Noise in a source, in units of its variance, above which its kurtosis must show it too.
_LOW_SNR = 4.0


def gaussian_kurtosis(count: int) -> float:
    """Standard errors up to which the kurtosis of one of k sources may be that of a Gaussian.

    A rotation is chosen for large kurtoses, and finds some by chance: the more, the more sources.
    """
    return 3.3 + 1.2 * float(np.sqrt(count - 1))


@storable
@dataclass(frozen=True)
class ICACertificate(Findings):
    """What can be said about unmixed sources; `print` it for plain words.

    Attributes
    ----------
    n_components, n_features : int
    method : str, "moments" or "moments + refinement"
    noise : str, "none", "isotropic", "diagonal" or "unknown": the noise that was found or assumed
    noise_p_value : float, how often noise of this kind gives a covariance as far from it; NaN
        where nothing could refute it
    noise_levels : tuple of float, noise variance in every source of variance one; NaN if unknown
    kurtosis, kurtosis_errors : tuples of float, excess kurtosis of every source and its error
    unidentifiable : tuple of int, the sources that may be Gaussian: nothing tells such a source
        from noise, or from another of its kind
    off_diagonal : float, fraction of the fourth cumulant that the components leave unexplained
    interference : float, expected fraction of other sources in the amplitude of each (root mean
        square), from the information that the refinement measured; NaN without it
    energy_correlation : float, of the squares of two sources, root mean square over the pairs: near
        zero for independent ones; NaN where it was not measured
    condition : float, of the mixing matrix with columns of length one
    constant_features : tuple of int, sensors that do not vary
    angle : float, by which sampling turns the space of the sources, in radians; 0 where there are
        as many sources as sensors
    in_halves : int, the number of sources where each was found in both halves of the samples, and
        is not Gaussian in the one that did not find it; -1 where none was so, and 0 where that was
        not tried
    """

    n_components: int
    n_features: int
    method: str
    noise: str
    noise_p_value: float
    noise_levels: tuple[float, ...]
    kurtosis: tuple[float, ...]
    kurtosis_errors: tuple[float, ...]
    unidentifiable: tuple[int, ...]
    off_diagonal: float
    interference: float
    energy_correlation: float
    condition: float
    constant_features: tuple[int, ...] = ()
    angle: float = 0.0
    in_halves: int = 0

    @property
    def headline(self) -> str:
        """What the certificate is about, in a few words."""
        sources = counted(self.n_components, "source")
        return f"{sources} of {counted(self.n_features, 'sensor')}, by {self.method}"

    @finding("Halves")
    def _no_source(self) -> Said | None:
        if self.in_halves >= 0 or self.n_features == 1:
            return None
        return BAD, (
            "no source is other than Gaussian in the half of the samples that did not find it: any "
            "direction would be as good."
        )

    @finding("Identifiable")
    def _identifiable(self) -> Said:
        count = len(self.unidentifiable)
        if count and self.in_halves > 0:
            return GOOD, (
                f"by its kurtosis source {listed(self.unidentifiable)} may be Gaussian, but that "
                "is refuted in the half of the samples that did not find it, by kurtosis and "
                "skewness, or it repeats itself."
            )
        if count == 0:
            weakest = int(np.argmin(np.abs(self.kurtosis)))
            return GOOD, (
                f"no source may be Gaussian; source {weakest} is closest to one (excess kurtosis "
                f"{self.kurtosis[weakest]:.3g}, known to {self.kurtosis_errors[weakest]:.2g})."
            )
        named = listed(self.unidentifiable)
        if count == 1 and self.noise == "none":
            return (GOOD if self.n_components > 1 else CAUTION), (
                f"source {named} is Gaussian as far as these samples tell: it is what the others "
                "leave, which determines one such source and not two."
            )
        if count == 1:
            return CAUTION, (
                f"source {named} is Gaussian as far as these samples tell, and so is noise: "
                "nothing tells the two apart. Lower n_components by one, or give more samples."
            )
        return BAD, (
            f"sources {named} are Gaussian as far as these samples tell: they are not "
            f"identifiable, any rotation of these {count} fits as well. Lower n_components, or "
            "give more samples."
        )

    @finding("Signal space")
    def _space(self) -> Said | None:
        if self.angle == 0.0:
            return None
        text = (
            f"sampling turns the {self.n_components} directions of the sources by about "
            f"{np.degrees(self.angle):.2g} degrees among those of {self.n_features} sensors."
        )
        level = level_of(self.angle)
        if level != BAD:
            return level, text
        advice = " What follows varies as much: raise n_components, or give more samples."
        return BAD, text + advice

    @finding("Noise")
    def _noise(self) -> Said:
        text = _NOISE[self.noise]
        if self.noise in ("isotropic", "diagonal"):
            text += f", up to {max(self.noise_levels):.2g} of the variance of a source"
        if np.isnan(self.noise_p_value):
            if self.noise in ("isotropic", "diagonal"):
                text += "; too few sensors to check that"
            return GOOD, f"{text}."
        if self.noise_p_value > 1e-3:
            return GOOD, f"{text} (p-value {self.noise_p_value:.2g})."
        return CAUTION, (
            f"{text}, although the covariance refutes that (p-value {self.noise_p_value:.1g}): "
            "noise is of another kind, or samples depend on each other. Sources may be biased."
        )

    @finding("Independence")
    def _independence(self) -> Said | None:
        if not self.energy_correlation > DEPENDENT:
            return None
        return CAUTION, (
            f"the energies of two sources are correlated by {self.energy_correlation:.2g}: they "
            "are not independent, and noise cannot be told from what they do to each other."
        )

    @finding("Separation")
    def _error(self) -> Said | None:
        if np.isnan(self.interference):
            return None
        text = f"every source holds about {100 * self.interference:.2g} % of another's amplitude."
        if self.interference < 0.05:
            return GOOD, text
        level = CAUTION if self.interference < 0.2 else BAD
        return level, text + " More samples would separate them better."

    @finding("Sensors")
    def _conditioning(self) -> Said:
        text = f"the mixing matrix has condition number {self.condition:.3g}."
        if self.condition < 100:
            return GOOD, text
        return CAUTION, text + " Some sources look alike to all sensors: their noise grows."

    @finding("Constant sensors")
    def _constant(self) -> Said | None:
        if not self.constant_features:
            return None
        return CAUTION, (
            f"column {listed(self.constant_features)} does not vary: it says nothing about the "
            "sources. Leave it out."
        )


def certify(found: Unmixing, answer: Answer[Unmixing], order: Array) -> ICACertificate:
    """The certificate of sources in their fixed order.

    Parameters
    ----------
    found : Unmixing, ordered
    answer : with the evidence "moment" (FourthMoment), and where it was refined "information"
        (k,) in all samples and "energy_correlation"
    order : (k,), of the sources of the answer
    """
    evidence, count = answer.evidence, len(order)
    information = evidence.get("information")
    interference = float("nan")
    weak = np.abs(found.kurtosis) < gaussian_kurtosis(count) * found.kurtosis_error
    if information is None:
        gaussian = weak
    else:
        information = information[order]
        # Where the SNR of a source is low, what refinement takes for information may be noise.
        low_snr = np.diag(found.noise) > _LOW_SNR
        gaussian = (information < gaussian_bound(count)) | (low_snr & weak)
        first, second = np.triu_indices(count, 1)
        if len(first):
            pairs = np.maximum(information[first] + information[second], 1.0)
            interference = float(np.sqrt((1 / pairs).mean()))
    moment = evidence["moment"]
    unit = found.mixing / np.linalg.norm(found.mixing, axis=0)
    variances = spectrum(moment.covariance).values
    angle = 0.0
    if count < len(variances) and found.noise_kind in ("none", "isotropic"):
        # The leading directions of the covariance hold the sources.
        kept, rest = variances[:count], variances[count:]
        angle = subspace_angle(
            kept, float(rest[0]), float(rest.sum()), moment.weight, len(variances)
        )
    return ICACertificate(
        n_components=count,
        n_features=len(moment.mean),
        method="moments" if information is None else "moments + refinement",
        noise=found.noise_kind,
        noise_p_value=found.p_value,
        noise_levels=tuple(float(v) for v in np.diag(found.noise)),
        kurtosis=tuple(float(v) for v in found.kurtosis),
        kurtosis_errors=tuple(float(v) for v in found.kurtosis_error),
        unidentifiable=tuple(int(j) for j in np.flatnonzero(gaussian)),
        off_diagonal=found.off_diagonal,
        interference=interference,
        energy_correlation=evidence.get("energy_correlation", float("nan")),
        condition=float(np.linalg.cond(unit)),
        constant_features=tuple(int(i) for i in np.flatnonzero(np.diag(moment.covariance) <= 0)),
        angle=angle,
    )
