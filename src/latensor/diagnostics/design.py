"""What certificates of models with targets share: samples, starts, collinear features."""

from __future__ import annotations

from collections.abc import Sequence

from latensor.diagnostics.findings import BAD, CAUTION, GOOD, Said, unvarying

# Samples for every weight, below which the weights are badly determined.
_FEW, _TOO_FEW = 10.0, 2.0


def samples_finding(per_weight: float, text: str) -> Said:
    """Whether there are samples enough for so many weights, which `text` says."""
    if per_weight >= _FEW:
        return GOOD, text
    level = CAUTION if per_weight >= _TOO_FEW else BAD
    return level, text + " Lower n_components or give more samples."


def starts_finding(n_agreed: int, n_starts: int, more: str = "") -> Said:
    """Whether a second start led to the optimum that was kept."""
    text = f"{n_agreed} of {n_starts} starts led to the optimum that was kept{more}."
    if n_agreed >= 2:
        return GOOD, text
    return CAUTION, text + " There may be a better one: raise n_init."


def unconverged(converged: bool) -> Said | None:
    """That a fit ended at its last step, where it did."""
    return None if converged else (CAUTION, "stopped before it converged: raise max_iter.")


def collinear_finding(
    rank: int, n_features: int, constant: Sequence[int], weights: str
) -> Said | None:
    """In how many directions X varies, where those are fewer than its features."""
    if rank == n_features:
        return None
    told = f" ({unvarying(constant)})" if constant else ""
    return CAUTION, (
        f"X varies in {rank} of {n_features} directions{told}: {weights} are those of least "
        "length, predictions are not affected."
    )
