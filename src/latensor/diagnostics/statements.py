"""A certificate in words: each statement with its number, and what to do about it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from latensor.decomposition.result import Status
from latensor.diagnostics.findings import BAD, CAUTION, GOOD, UNKNOWN, Said, finding

if TYPE_CHECKING:
    from latensor.diagnostics.certificate import Certificate

SUMMARIES = {
    "stable": "The data determine these components.",
    "uncertain": "Usable, with the reservations marked [!] above.",
    "unstable": "Do not interpret these components before what is marked [!!] is resolved.",
}
# Fraction of the energy left over above which the reader is told that the components are little of
# it.
_UNEXPLAINED = 0.5
# The ratio of eigenvalues up to which FOOBI's null space is told from the rest: of 96 tensors (d 10
# and 12, k 20 to 35, noise of 0 to .5) all 36 below had every component, of the 60 above 12.
_DETECTED = 0.3


def closing(certificate: Certificate) -> str:
    """What the verdict means, and what it does not judge."""
    text = f" {SUMMARIES[certificate.verdict]}"
    if certificate.explained is not None:
        fraction = _percent(certificate.explained)
        text += f"\nThey explain {fraction} of the energy, which the verdict does not judge."
    return text


def headline(certificate: Certificate) -> str:
    """What the certificate is about."""
    shape = " x ".join(str(d) for d in certificate.shape)
    return f"{_count(certificate.rank)} of a {shape} tensor"


def _count(rank: int) -> str:
    return "one component" if rank == 1 else f"{rank} components"


def _percent(value: float) -> str:
    return f"{100 * value:.3g} %"


def fit(residual: float | None, observed: int | None, advice: str, is_zero: bool = False) -> Said:
    """How much of the data the model explains, and what to do where that is little."""
    if is_zero and not residual:
        return BAD, "the data are zero: there is nothing to find in them."
    if residual is None:
        return UNKNOWN, "not known. Give the tensor, or the result of lt.decompose."
    explained = f"{100 * (1 - residual**2):.6g}" if residual < 1 else "0"
    text = f"the model leaves {residual:.3g} of the norm ({explained} % of the energy explained)."
    if observed is not None:
        text = f"{text[:-1]} of the {observed:,} observed entries."
    if residual >= 1:
        return BAD, f"{text} That is no better than zero: fit it again."
    if residual**2 > _UNEXPLAINED:
        return CAUTION, (
            f"{text} Most of the tensor is not explained: what was found may be real, but it is a "
            f"small part of it. {advice}"
        )
    return GOOD, text


def convergence(status: Status | None) -> Said | None:
    """How the fit ended."""
    if status is None:
        return None
    if status is Status.CONVERGED:
        return GOOD, "the fit converged."
    if status is Status.UNCONFIRMED:
        return CAUTION, "different starts led to different fits, of which this is the best."
    where = "when it reached `target`" if status is Status.TARGET_REACHED else "before it converged"
    return CAUTION, (
        f"the fit ended {where}: what was found may still move, by more than the errors below "
        "say. Pass it as `init` to go on."
    )


@finding("Fit")
def _fit(certificate: Certificate) -> Said:
    advice = "Raise the rank, or see what lt.select_rank finds."
    return fit(certificate.residual, certificate.observed, advice, not any(certificate.weights))


@finding("Convergence")
def _convergence(certificate: Certificate) -> Said | None:
    return convergence(certificate.status)


@finding("Missing entries")
def _held_out(certificate: Certificate) -> Said | None:
    observed, error = certificate.observed, certificate.held_out_error
    if observed is None or certificate.sufficient is None:
        return None
    if observed == math.prod(certificate.shape):
        return None
    few = certificate.sufficient > observed
    count = (
        f"{observed:,} entries were observed, where {certificate.sufficient:,} are usually enough"
    )
    if certificate.status is Status.UNCONFIRMED:
        text = "not confirmed where nothing was observed"
        if error is not None:
            text += f": entries left out of the fit are missed by {error:.2g} of their norm"
        advice = f" {count}." if few else " Try another rank or a ridge."
        return BAD, f"{text}.{advice}"
    if error is None:
        text = "no entries were left out to check the fit by."
        return (CAUTION if few else UNKNOWN), text
    text = f"expect an error of {error:.2g} of their norm, as at entries left out of the fit."
    # The error was measured, so that few entries are no reservation about it.
    return GOOD, f"{text} {count}." if few else text


@finding("Rank-one detector")
def _detector(certificate: Certificate) -> Said | None:
    ratio = certificate.eigenvalue_ratio
    if ratio is None:
        return None
    count = _count(certificate.rank)
    text = f"the rank-one detector has {count} at a ratio of eigenvalues of {ratio:.2g}"
    if ratio <= _DETECTED:
        return GOOD, f"{text}: they stand apart from the rest."
    return CAUTION, (
        f"{text} (1 where nothing tells them from noise): some may be missing. Compare with "
        "algorithm='subspace_power', or with \"auto\"."
    )


@finding("Unique")
def _uniqueness(certificate: Certificate) -> Said:
    found = certificate.uniqueness
    total = " + ".join(str(k.lower) for k in found.k_ranks)
    numbers = f"k-ranks {total} = {found.total}, {found.required} needed by Kruskal's condition"
    if found.shown and found.robust is False:
        return CAUTION, (
            f"yes for these numbers ({found.condition}; {numbers}), but not for all components "
            "within the error bars: two of them may be too alike to tell apart. Compare runs with "
            "lt.match, or lower the rank."
        )
    if found.shown:
        why = found.condition if "Kruskal" not in found.condition else numbers
        if "grouped" in found.condition or "compounds" in found.condition:
            why = f"{numbers}; shown by {found.condition}"
        return GOOD, f"no other set of components gives this tensor ({why})."
    return CAUTION, (
        f"not shown ({found.condition}; {numbers}): other components may fit equally well. Compare "
        "runs from several seeds with lt.match, lower the rank, or add data in a further mode."
    )


@finding("Stability")
def _stability(certificate: Certificate) -> Said:
    kappa, errors = certificate.condition, certificate.errors
    if not math.isfinite(kappa.value):
        return BAD, (
            "the components are not determined: they can be changed together without changing the "
            f"tensor (condition number infinite: {kappa.method}). Lower the rank."
        )
    text = f"errors of the tensor are magnified up to {kappa.value:.3g} times (condition number"
    text += ")." if kappa.exact else ", a lower bound)."
    if errors is None:
        level = GOOD if kappa.value < 100 else CAUTION if kappa.value < 1e4 else BAD
        level = CAUTION if level == GOOD and not kappa.exact else level
        advice = "" if level == GOOD else " Collinear components: lower the rank or add data."
        return level, text + advice
    worst = max(range(certificate.rank), key=lambda j: errors.components[j])
    expected = errors.components[worst]
    # A component fitted to pure noise has an expected error of about 0.58 of its size.
    level = GOOD if expected < 0.1 else CAUTION if expected < 0.5 else BAD
    text += (
        f" If what is left over is noise, component {worst} is known least well, to about "
        f"{_percent(expected)} of its size, the median one to "
        f"{_percent(sorted(errors.components)[certificate.rank // 2])}."
    )
    if level == CAUTION:
        text += " Read its details with care."
    elif level == BAD:
        text += " It is mostly noise: lower the rank or add data."
    return level, text


@finding("Number of components")
def _consistency(certificate: Certificate) -> Said | None:
    value = certificate.core_consistency
    if value is None:
        return None
    shown = f"{value:.1f} %" if value > -100 else "far below 0 %"
    text = f"core consistency {shown} (100 is perfect, below 50 a sign of too many)."
    if value >= 80:
        return GOOD, text
    limit = certificate.consistency_under_noise
    if limit is not None and value >= limit:
        return GOOD, f"{text[:-2]}; noise alone may bring it down to {limit:.0f} here)."
    level = CAUTION if value >= 50 else BAD
    return level, f"{text} Try fewer; lt.select_rank compares ranks."


@finding("Cancellation")
def _cancellation(certificate: Certificate) -> Said:
    cosine, pair, inflation = (
        certificate.congruence,
        certificate.congruence_pair,
        certificate.inflation,
    )
    text = f"the squared weights add up to {inflation:.3g} times the squared norm of the model"
    if pair is not None:
        text += f"; components {pair[0]} and {pair[1]} are the most opposed (cosine {cosine:.3f})"
    if cosine < -0.85 or inflation > 100:
        return BAD, (
            f"{text}. They cancel each other, and neither means anything alone: lower the rank, "
            "or fit with ridge or nonnegative=True."
        )
    if cosine < -0.5 or inflation > 10:
        return CAUTION, f"{text}. Interpret these together, or fit with ridge or nonnegative=True."
    return GOOD, f"none: {text}."


@finding("Order")
def _order(certificate: Certificate) -> Said | None:
    gap, pair, errors = certificate.gap, certificate.gap_pair, certificate.errors
    if gap is None or pair is None:
        return None
    text = (
        f"the closest weights are those of components {pair[0]} and {pair[1]}, "
        f"{_percent(gap)} of the largest weight apart"
    )
    spread = 0.0
    if errors is not None:
        spread = math.hypot(errors.weights[pair[0]], errors.weights[pair[1]])
    if gap * max(certificate.weights) <= 2 * spread or gap <= 1e-10:
        return GOOD, (
            f"{text}, less than can be told: another sample may list them the other way round. "
            "Compare by lt.match, not by position."
        )
    return GOOD, f"{text}."


@finding("Guarantee")
def _theorem(certificate: Certificate) -> Said | None:
    bounds = certificate.bounds
    if bounds is None:
        return None
    source = "estimated from the residual" if bounds.estimated else "as given"
    kind = "whitened" if bounds.whitened else "orthogonal"
    text = (
        f"for {kind} tensors with an error of spectral norm {bounds.noise:.3g} ({source}), vectors "
        f"are off by at most {max(bounds.vectors):.3g} and weights by at most {bounds.values:.3g}. "
        f"The theorem asks that error x dimension / smallest weight = {bounds.ratio:.3g} be below "
        "a constant that it leaves open."
    )
    if not bounds.informative:
        text += " The bound exceeds the vectors themselves: it guarantees nothing here."
    return (GOOD if bounds.informative else UNKNOWN), text


# In the order in which a reader wants them.
FINDINGS = (
    _fit,
    _convergence,
    _held_out,
    _detector,
    _uniqueness,
    _stability,
    _consistency,
    _cancellation,
    _order,
    _theorem,
)
