"""`certify`: how far a decomposition can be trusted, in numbers and in plain words."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from latensor.arrays import resolve, to_host
from latensor.arrays.guests import with_guests
from latensor.decomposition.optimize.masked import Observed, observe, sufficient_entries
from latensor.decomposition.result import Status
from latensor.decomposition.scale import rescaled
from latensor.diagnostics.components import Components, as_cp, components_of
from latensor.diagnostics.conditioning import ConditionNumber, Sensitivity, sensitivity
from latensor.diagnostics.consistency import (
    consistency_of,
    consistency_under_noise,
    degeneracy,
    matching_data,
    residual_of,
    residual_tensor,
    smallest_gap,
)
from latensor.diagnostics.findings import Findings, Statement, present
from latensor.diagnostics.observed import observed_sensitivity
from latensor.diagnostics.perturbation import (
    PerturbationBounds,
    orthogonal_bounds,
    whitened_bounds,
)
from latensor.diagnostics.statements import FINDINGS, closing, headline
from latensor.diagnostics.uniqueness import Uniqueness, uniqueness
from latensor.exceptions import InvalidInputError
from latensor.tensors.contractible import Contractible
from latensor.tensors.cp import CPTensor
from latensor.tensors.dense import DenseTensor
from latensor.tensors.norms import spectral_norm


@dataclass(frozen=True)
class ErrorBars:
    """Expected errors of the components, if what the model leaves over is white noise.

    To first order in the noise, for a least-squares fit of the right rank.

    Attributes
    ----------
    noise : float, standard deviation of an entry: residual norm over the root of the number of
        (observed) entries less the number of parameters
    components : (rank,) tuple, relative error of each component, in Frobenius norm
    weights : (rank,) tuple, standard error of each weight
    vectors : (rank,) tuple of (order,) tuples, error of each unit vector in radians
    worst : (rank,) tuple, relative error of each component if the residual were an error that
        hits it in the worst direction: condition number times residual over weight
    """

    noise: float
    components: tuple[float, ...]
    weights: tuple[float, ...]
    vectors: tuple[tuple[float, ...], ...]
    worst: tuple[float, ...]


@dataclass(frozen=True)
class Certificate(Findings):
    """What can be said about a decomposition; `print` it for plain words.

    Attributes
    ----------
    shape, rank : of the decomposition
    weights : (rank,) tuple, norms of the components
    residual : float or None, relative Frobenius norm of what the model leaves over (with a mask: of
        the observed entries)
    observed : int or None, the number of observed entries where there is a mask
    sufficient : int or None, how many of them suffice in practice where they are drawn evenly
    held_out_error : float or None, relative error at observed entries that were left out of a fit
    eigenvalue_ratio : float or None, at the gap of the rank-one detector, where `Foobi` was used
    uniqueness : Uniqueness, with the k-ranks
    condition : ConditionNumber of the decomposition
    core_consistency : float or None, in per cent; needs the tensor
    consistency_under_noise : float or None, what noise of the size of the residual alone would
        hardly ever bring it below
    gap : float or None, smallest difference of neighbouring weights over the largest weight
    gap_pair : the two components with that difference
    congruence : float, the most negative cosine between two components; -1 if they cancel
    congruence_pair : these two components
    inflation : float, sum of squared weights over squared norm of the model
    errors : ErrorBars or None, where residual or conditioning is not known
    bounds : PerturbationBounds or None; for symmetric tensors of order 3 only
    status : Status or None, how the fit ended; None for components that come without one
    """

    shape: tuple[int, ...]
    rank: int
    weights: tuple[float, ...]
    residual: float | None
    observed: int | None
    uniqueness: Uniqueness
    condition: ConditionNumber
    core_consistency: float | None
    gap: float | None
    gap_pair: tuple[int, int] | None
    congruence: float
    congruence_pair: tuple[int, int] | None
    inflation: float
    errors: ErrorBars | None
    bounds: PerturbationBounds | None
    status: Status | None = None
    sufficient: int | None = None
    held_out_error: float | None = None
    eigenvalue_ratio: float | None = None
    consistency_under_noise: float | None = None
    # Stable components may explain little.
    _apart: ClassVar[frozenset[str]] = frozenset({"Fit"})

    @property
    def headline(self) -> str:
        """What the certificate is about, in a few words."""
        return headline(self)

    @property
    def statements(self) -> tuple[Statement, ...]:
        """The findings, each with its topic, how good it is, and a sentence."""
        return present(*(each.of(self) for each in FINDINGS))

    @property
    def closing(self) -> str:
        """What the verdict means, and what it does not judge."""
        return closing(self)

    @property
    def explained(self) -> float | None:
        """The fraction of the squared norm of the (observed) data that the model explains.

        None where it is not known, or where the data are zero.
        """
        if self.residual is None or not (self.residual or any(self.weights)):
            return None
        return max(1.0 - self.residual**2, 0.0)

    def __repr__(self) -> str:
        return (
            f"Certificate(rank {self.rank}, {self.verdict}: unique {self.uniqueness.shown}, "
            f"condition number {self.condition})"
        )


@with_guests
def certify(
    decomposition: object,
    tensor: object = None,
    *,
    mask: object = None,
    noise: float | None = None,
    second_moment: object = None,
    second_moment_noise: float | None = None,
) -> Certificate:
    """How far a CP decomposition can be trusted (monograph 3.3, 3.5, 3.6).

    Says whether the decomposition is the only one (Kruskal and beyond), how much it magnifies
    errors (condition number), whether the data agree with its form (core consistency), whether
    weights are too close to order, whether components cancel each other, how large the errors of
    the components are, and, for orthogonal symmetric tensors of order 3, the bounds of the
    monograph's theorems.

    Parameters
    ----------
    decomposition : Decomposition, CPTensor or pair (weights, factors)
    tensor : the data; without it there is no core consistency, and the residual is the one that
        the Decomposition carries
    mask : array of truth values or SparseTensor, the observed entries; that of the Decomposition by
        default. Errors are then those of a fit to these entries only
    noise : float, spectral norm of the error in the data, max |E(u, v, w)| over unit vectors, for
        the theorems; estimated from the residual if not given and the data are
    second_moment : (d, d) array, what a symmetric tensor was whitened by, for the theorem on
        whitening
    second_moment_noise : float, spectral norm of its error; estimated from how well the
        components explain it if not given

    Returns
    -------
    Certificate

    Examples
    --------
    >>> import latensor as lt
    >>> import numpy as np
    >>> factors = [np.random.default_rng(0).random((d, 2)) for d in (5, 6, 7)]
    >>> tensor = lt.CPTensor(None, factors).to_dense()
    >>> lt.certify(lt.decompose(tensor, 2, random_state=0), tensor).verdict
    'stable'
    """
    cp = as_cp(decomposition, "decomposition")
    components = components_of(cp, "decomposition")
    _check_noise(noise, "noise")
    _check_noise(second_moment_noise, "second_moment_noise")
    data = None if tensor is None else matching_data(tensor, cp)
    origin = getattr(decomposition, "origin", None)
    if mask is None and origin is not None and origin.masked:
        mask = origin.mask
    seen, known = None, data is not None or isinstance(mask, Observed)
    if mask is not None:
        values = _shaped(data, cp.shape)
        seen = mask if isinstance(mask, Observed) else observe(values, mask, fitted=False)
    unit = 1.0
    if second_moment is None:  # which would have to go along
        seen, data, components, unit = _at_scale_one(seen, data, components)
        noise = None if noise is None else noise / unit
    cp = CPTensor(components.weights, components.factors)
    if seen is not None:
        left_over, residual = _observed_residuals(decomposition, components, seen, known)
        moved = observed_sensitivity(components, seen.coordinates)
        data = None  # core consistency and the theorems are for whole tensors
    else:
        left_over, residual = _residuals(decomposition, cp, components, data)
        moved = sensitivity(components)
        if origin is not None and origin.masked:
            left_over = None  # of a mask that was too large to be kept
    errors = _error_bars(components, moved, left_over, seen)
    off = None if errors is None else np.sqrt((np.array(errors.vectors) ** 2).sum(axis=0))
    noisy = None
    if data is not None and errors is not None:
        noisy = consistency_under_noise(components, errors.noise)
    gap = smallest_gap(components)
    congruence, pair, inflation = degeneracy(components)
    found = Certificate(
        shape=components.shape,
        rank=components.rank,
        weights=tuple(float(w) for w in components.magnitudes),
        residual=residual,
        observed=None if seen is None else len(seen.entries),
        uniqueness=uniqueness(components, off),
        condition=moved.condition,
        core_consistency=None if data is None else consistency_of(components, data),
        gap=None if gap is None else gap[0],
        gap_pair=None if gap is None else gap[1],
        congruence=congruence,
        congruence_pair=pair,
        inflation=inflation,
        errors=errors,
        bounds=_bounds(cp, components, data, noise, second_moment, second_moment_noise),
        status=getattr(decomposition, "status", None),
        sufficient=None if seen is None else sufficient_entries(components.shape, components.rank),
        held_out_error=getattr(decomposition, "held_out_error", None),
        eigenvalue_ratio=getattr(decomposition, "eigenvalue_ratio", None),
        consistency_under_noise=noisy,
    )
    return _restored(found, unit)


def _at_scale_one(
    seen: Observed | None, data: Contractible | None, components: Components
) -> tuple[Observed | None, Contractible | None, Components, float]:
    """Data and components over a power of two where squares of their entries leave the range."""
    unit = 1.0
    if seen is not None:
        entries: Any = seen
        entries, unit = rescaled(entries)
        seen = entries
    elif data is not None:
        data, unit = rescaled(data)
    else:
        unit = rescaled(DenseTensor(np.abs(components.weights)))[1]
    if unit == 1.0:
        return seen, data, components, unit
    return seen, data, replace(components, weights=components.weights / unit), unit


def _restored(found: Certificate, unit: float) -> Certificate:
    """A certificate of data over `unit` as one of the data themselves."""
    if unit == 1.0:
        return found
    errors, bounds = found.errors, found.bounds
    if errors is not None:
        weights = tuple(e * unit for e in errors.weights)
        errors = replace(errors, noise=errors.noise * unit, weights=weights)
    if bounds is not None:
        bounds = replace(bounds, noise=bounds.noise * unit, values=bounds.values * unit)
    weights = tuple(w * unit for w in found.weights)
    return replace(found, weights=weights, errors=errors, bounds=bounds)


def _shaped(data: Contractible | None, shape: tuple[int, ...]) -> Contractible:
    """The data, or zeros in their place where only the mask is known."""
    return DenseTensor(np.zeros(shape)) if data is None else data


def _check_noise(value: object, name: str) -> None:
    if value is None:
        return
    number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
    if not number or not 0 <= float(value) < math.inf:  # type: ignore[arg-type]
        raise InvalidInputError(f"{name}={value!r} must be a number of at least 0")


def _residuals(
    decomposition: object, cp: CPTensor, components: Components, data: Contractible | None
) -> tuple[float | None, float | None]:
    """Norm of what is left over, absolute and relative to the data."""
    if data is not None:
        left_over, scale = residual_of(cp, data)
        if scale == 0.0:
            return left_over, 0.0 if left_over == 0.0 else math.inf
        return left_over, left_over / scale
    relative = getattr(decomposition, "residual", None)
    if relative is None:
        return None, None
    relative = float(relative)
    if relative >= 1.0:
        return None, relative
    # A least-squares fit is orthogonal to its residual: |T|^2 = |model|^2 + |residual|^2.
    return components.norm * relative / math.sqrt(1.0 - relative**2), relative


def _observed_residuals(
    decomposition: object, components: Components, seen: Observed, known: bool
) -> tuple[float | None, float | None]:
    """The same over the observed entries; `known` says whether their values are."""
    fitted = np.broadcast_to(components.weights, (len(seen.entries), components.rank))
    for factor, index in zip(components.factors, seen.coordinates, strict=True):
        fitted = fitted * factor[index]
    model = fitted.sum(axis=1)
    if known:
        left_over, scale = np.linalg.norm(seen.entries - model), np.linalg.norm(seen.entries)
        if scale == 0.0:
            return float(left_over), 0.0 if left_over == 0.0 else math.inf
        return float(left_over), float(left_over / scale)
    relative = getattr(decomposition, "residual", None)
    if relative is None or float(relative) >= 1.0:
        return None, relative
    norm = float(np.linalg.norm(model))
    return norm * float(relative) / math.sqrt(1.0 - float(relative) ** 2), float(relative)


def _error_bars(
    components: Components, moved: Sensitivity, left_over: float | None, seen: Observed | None
) -> ErrorBars | None:
    if left_over is None or not np.all(np.isfinite(moved.components)):
        return None
    shape, rank, order = components.shape, components.rank, components.order
    if seen is not None:
        entries = len(seen.entries)
        parameters = rank * (sum(shape) - order + 1)
    elif components.symmetric:
        entries = math.comb(shape[0] + order - 1, order)
        parameters = rank * shape[0]
    else:
        entries = math.prod(shape)
        parameters = rank * (sum(shape) - order + 1)
    if entries <= parameters:
        return None
    noise = left_over / math.sqrt(entries - parameters)
    relative = noise * moved.components / components.magnitudes
    worst = moved.condition.value * left_over / components.magnitudes
    return ErrorBars(
        noise,
        tuple(float(e) for e in relative),
        tuple(float(noise * w) for w in moved.weights),
        tuple(tuple(float(noise * v) for v in row) for row in moved.vectors),
        tuple(float(w) for w in worst),
    )


def _bounds(
    cp: CPTensor,
    components: Components,
    data: Contractible | None,
    noise: float | None,
    second_moment: object,
    second_moment_noise: float | None,
) -> PerturbationBounds | None:
    matrix = None
    if second_moment is not None:
        _, arrays = resolve(second_moment=second_moment)
        matrix = to_host(arrays["second_moment"])
        if not components.symmetric or matrix.shape != components.shape[:2]:
            raise InvalidInputError(
                f"second_moment has shape {matrix.shape}, and goes with a symmetric decomposition "
                f"(one factor object shared by all modes) of dimension {components.shape[0]}"
            )
    elif second_moment_noise is not None:
        raise InvalidInputError("second_moment_noise needs second_moment")
    if not components.symmetric or components.order != 3 or (components.magnitudes == 0).any():
        return None
    if noise is None and data is None:
        return None
    estimated = noise is None
    if noise is None:
        assert data is not None
        noise = spectral_norm(residual_tensor(cp, data)).lower
    if matrix is not None:
        return whitened_bounds(components, matrix, float(noise), second_moment_noise, estimated)
    return orthogonal_bounds(components, float(noise), estimated)
