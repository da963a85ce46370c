"""What the columns of a factor must satisfy, or are charged for: `lt.decompose(constraints=...)`.

A constraint is a small value that knows its proximal step: the feasible column nearest to a given
one, or the best compromise of nearness and penalty.
"""

from latensor.decomposition.constraints.values import (
    Constraint,
    FewComponents,
    FewEntries,
    Monotone,
    Nonnegative,
    Simplex,
    Smooth,
    Sparse,
    Unimodal,
)

__all__ = [
    "Constraint",
    "FewComponents",
    "FewEntries",
    "Monotone",
    "Nonnegative",
    "Simplex",
    "Smooth",
    "Sparse",
    "Unimodal",
]
