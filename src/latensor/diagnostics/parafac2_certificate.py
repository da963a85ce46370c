"""How firmly the data determine the components of a PARAFAC2 decomposition."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from latensor.arrays import to_host
from latensor.decomposition.result import Status
from latensor.diagnostics.findings import (
    BAD,
    CAUTION,
    GOOD,
    UNKNOWN,
    Findings,
    Said,
    counted,
    finding,
)
from latensor.diagnostics.statements import SUMMARIES, convergence, fit

if TYPE_CHECKING:
    from latensor.decomposition.parafac2 import Parafac2Decomposition


@dataclass(frozen=True)
class Parafac2Certificate(Findings):
    """What can be said about a PARAFAC2 decomposition; `print` it for plain words.

    Attributes
    ----------
    n_slices, n_columns, rank : the sizes
    residual : float, relative Frobenius norm of what is left over (with a mask: of the observed
        entries)
    observed : int or None, the number of observed entries where there is a mask
    noise : float or None, standard deviation of an entry if what is left over is white noise;
        None where no entry is left to tell it by
    errors : (rank,) floats or None, expected angle, in radians, by which each component's vector
        over the columns or over the slices is off, the larger of both
    strength : float or None, norm of the model over the largest that a fit of this rank is expected
        to find in the noise alone
    n_starts, n_agreed : starts that were tried, and those that led to these components
    status : Status, how the fit ended
    """

    n_slices: int
    n_columns: int
    rank: int
    residual: float
    observed: int | None
    noise: float | None
    errors: tuple[float, ...] | None
    strength: float | None
    n_starts: int
    n_agreed: int
    status: Status
    # Stable components may explain little.
    _apart: ClassVar[frozenset[str]] = frozenset({"Fit"})

    @property
    def headline(self) -> str:
        """What the certificate is about, in a few words."""
        data = f"{counted(self.n_slices, 'slice')} with {counted(self.n_columns, 'column')}"
        return f"{counted(self.rank, 'component')} of {data}"

    @property
    def closing(self) -> str:
        """What the verdict means."""
        return f" {SUMMARIES[self.verdict]}"

    @finding("Fit")
    def _fit(self) -> Said:
        return fit(self.residual, self.observed, "Raise the rank.", self.strength == 0.0)

    @finding("Convergence")
    def _convergence(self) -> Said | None:
        return convergence(self.status)

    @finding("Starts")
    def _starts(self) -> Said | None:
        if self.n_starts < 2:
            return None
        text = f"{self.n_agreed} of {self.n_starts} starts led to these components."
        if self.n_agreed > 1:
            return GOOD, text
        return CAUTION, f"{text} Another seed may find others: raise n_starts, or lower the rank."

    @finding("Stability")
    def _stability(self) -> Said:
        if self.strength == 0.0:
            return BAD, "there are no components: the slices are zero."
        if self.errors is None or self.strength is None:
            return UNKNOWN, "not known: the model has as many parameters as there are entries."
        if self.strength <= 1.0:
            return BAD, (
                "if what is left over is white noise, noise alone would be fitted as well: the "
                f"model has {self.strength:.2g} of the norm to expect there. Lower the rank, or "
                "add data."
            )
        worst = max(range(self.rank), key=lambda r: self.errors[r])  # type: ignore[index]
        error = self.errors[worst]
        if not math.isfinite(error):
            return BAD, (
                "the components are not determined: they can be changed together without changing "
                "the slices. Lower the rank, or add slices."
            )
        # The bars of `lt.certify`: a direction of pure noise is off by more than half a radian.
        level = GOOD if error < 0.1 else CAUTION if error < 0.5 else BAD
        known = f"{error:.2g} radians" if error < 1 else "more than a radian"
        text = (
            f"if what is left over is white noise, component {worst} is known least well, to about "
            f"{known} in its slices or columns."
        )
        return level, text if level == GOOD else f"{text} Lower the rank, or add data."


def certify_parafac2(found: Parafac2Decomposition) -> Parafac2Certificate:
    """How far the components can be trusted, to first order in the noise.

    Slice i is P_i M_i with M_i = B diag(a_i) C'. Noise outside of the span of P_i moves P_i alone;
    within it the data are M_i up to a rotation, so that a, B and C are those of R x R matrices
    once C is written in a basis of its span, and noise outside of that span adds to C alone.
    Fitted to noise, a model has a norm below sigma (sqrt(K R^2) + sqrt(sum R (I_i - R)) +
    sqrt(R (J - R))), by Chevet's inequality.
    """
    tensor = found.tensor
    weights, factors = to_host(tensor.weights), [to_host(f) for f in tensor.factors]
    slices, middle, columns = (np.asarray(f, dtype=np.float64) for f in factors)
    rank, n_columns = middle.shape[0], len(columns)
    heights = [len(p) for p in tensor.projections]
    largest = float(np.abs(weights).max(initial=0.0))
    entries = sum(heights) * n_columns
    seen = entries if found.n_observed is None else found.n_observed
    rotations = rank * (rank - 1) // 2
    free = sum(rank * (h - rank) for h in heights) + len(heights) * (rank + rotations)
    free += (n_columns + rank) * rank - 2 * rank - rotations
    noise, errors, strength = None, None, None
    if largest == 0.0:
        strength = 0.0
    elif seen > free and found.residual < 1.0:
        scaled = slices * (weights / largest)
        parts = np.einsum("pr,kr,jr->kpj", middle, scaled, columns)
        norm = float(np.linalg.norm(parts))
        fraction = seen / entries
        # The squares of fit and residual add up; observed evenly, the fit has its fraction there.
        left = norm * math.sqrt(fraction) * found.residual / math.sqrt(1.0 - found.residual**2)
        deviation = left / math.sqrt(seen - free)
        spread = deviation / math.sqrt(fraction)
        errors = tuple(spread * e for e in _angles(scaled, middle, columns).tolist())
        reach = math.sqrt(len(heights)) * rank + math.sqrt(rank * max(n_columns - rank, 0))
        reach += math.sqrt(sum(rank * (h - rank) for h in heights))
        strength = norm / (spread * reach) if spread else math.inf
        noise = deviation * largest
    return Parafac2Certificate(
        n_slices=len(heights),
        n_columns=n_columns,
        rank=rank,
        residual=float(found.residual),
        observed=found.n_observed,
        noise=noise,
        errors=errors,
        strength=strength,
        n_starts=found.n_starts,
        n_agreed=found.n_agreed,
        status=found.status,
    )


def _angles(slices: Any, middle: Any, columns: Any) -> Any:
    """(rank,) angles of the vectors over slices and columns, larger of both, for unit noise."""
    rank, n_slices = middle.shape[0], len(slices)
    lengths = np.linalg.norm(middle, axis=0) * np.linalg.norm(columns, axis=0)
    if not np.all(lengths > 0) or not np.all(np.linalg.norm(slices, axis=0) > 0):
        return np.full(rank, np.inf)
    loads = slices * lengths
    middle = middle / np.linalg.norm(middle, axis=0)
    columns = columns / np.linalg.norm(columns, axis=0)
    basis = np.linalg.qr(columns, mode="r")
    basis = basis / np.linalg.norm(basis, axis=0)
    inside = len(basis)
    own, shared = zip(*(_tangents(a, middle, basis) for a in loads), strict=True)
    # The slice's own parameters are eliminated: what is left is about B and C.
    inverses = [np.linalg.pinv(j.T @ j, rcond=1e-12, hermitian=True) for j in own]
    ways = [h @ j.T @ s for h, j, s in zip(inverses, own, shared, strict=True)]
    information = sum(s.T @ s - (s.T @ j) @ w for s, j, w in zip(shared, own, ways, strict=True))
    values, vectors = np.linalg.eigh(information)
    gauge = 2 * rank + rank * (rank - 1) // 2
    kept = values[gauge:]
    if not len(kept) or kept[0] <= len(values) * np.finfo(float).eps * 10 * values[-1]:
        if rank > 1:
            return np.full(rank, np.inf)
        kept = kept[:0]
    root = vectors[:, len(values) - len(kept) :] / np.sqrt(kept)
    outside = np.linalg.pinv(
        np.einsum("kr,pr,ps,ks->rs", loads, middle, middle, loads), hermitian=True
    )
    found = np.zeros(rank)
    for r in range(rank):
        rows = root[rank * rank + r :: rank][:inside]
        rows = rows - np.outer(basis[:, r], basis[:, r] @ rows)
        of_columns = float(np.sum(rows**2)) + max(len(columns) - inside, 0) * outside[r, r]
        unit = loads[:, r] / np.linalg.norm(loads[:, r])
        alone = np.array([h[r, r] for h in inverses])
        moved = np.stack([w[r] for w in ways]) @ root
        moved = moved - np.outer(unit, unit @ moved)
        of_slices = float(np.sum(moved**2)) + float(alone @ (1 - unit**2))
        of_slices /= float(loads[:, r] @ loads[:, r])
        found[r] = math.sqrt(max(of_columns, of_slices if n_slices > 1 else 0.0))
    return found


def _tangents(loads: Any, middle: Any, basis: Any) -> tuple[Any, Any]:
    """Derivatives of one slice by its own parameters (a_i, rotation), and by B and the basis."""
    rank, inside = middle.shape[0], len(basis)
    model = (middle * loads) @ basis.T
    own = [np.outer(middle[:, r], basis[:, r]) for r in range(rank)]
    for p in range(rank):
        for q in range(p):
            turned = np.zeros_like(model)
            turned[p], turned[q] = model[q], -model[p]
            own.append(turned)
    eye = np.eye(max(rank, inside))
    shared = [loads[r] * np.outer(eye[p, :rank], basis[:, r])
              for p in range(rank) for r in range(rank)]  # fmt: skip
    shared += [loads[r] * np.outer(middle[:, r], eye[q, :inside])
               for q in range(inside) for r in range(rank)]  # fmt: skip
    return (
        np.stack([each.ravel() for each in own], axis=1),
        np.stack([each.ravel() for each in shared], axis=1),
    )
