"""What every decomposition returns, and why it ended."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any

from latensor.arrays import Array
from latensor.tensors.cp import CPTensor


class Status(Enum):
    """Why an algorithm ended; the text says what to try next."""

    CONVERGED = "converged: further steps no longer lower the residual by more than `tol`"
    TARGET_REACHED = (
        "the residual reached `target`; raise no limit, lower `target` for a closer fit"
    )
    MAX_ITER = (
        "stopped at `max_iter` before meeting `tol`: raise `max_iter`, pass this result as `init`, "
        "or use algorithm='auto', which escapes slow regions"
    )
    STOPPED = "stopped by the callback; pass this result as `init` to continue"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, eq=False)
class Decomposition:
    """A CP tensor fitted to data, and how well it fits.

    Unpacks like the pair it stands for: `weights, factors = decomposition`.

    Attributes
    ----------
    tensor : CPTensor with unit columns, components by falling weight, and in every factor the
        largest entry of a column positive; the weights carry length and sign
    residual : float, Frobenius norm of what is left relative to that of the data (with a mask:
        of the observed entries)
    n_iter : int, recorded iterations
    status : Status
    history : (n_iter,) float array, the residual after every iteration (with a ridge: of residual
        and penalty together, which is what falls)
    """

    tensor: CPTensor
    residual: float
    n_iter: int
    status: Status
    history: Any

    @property
    def weights(self) -> Array:
        """(rank,) weights of the components."""
        return self.tensor.weights

    @property
    def factors(self) -> tuple[Array, ...]:
        """One (dimension, rank) matrix per mode."""
        return self.tensor.factors

    @property
    def rank(self) -> int:
        """The number of components."""
        return self.tensor.rank

    @property
    def fit(self) -> float:
        """One minus the residual, as the Tensor Toolbox counts it."""
        return 1.0 - self.residual

    def __iter__(self) -> Iterator[Any]:
        return iter(self.tensor)

    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> Any:
        return self.tensor[index]

    def __repr__(self) -> str:
        shape = " x ".join(str(d) for d in self.tensor.shape)
        return (
            f"Decomposition({shape}, rank {self.rank}, residual {self.residual:.4g}, "
            f"{self.n_iter} iterations, {self.status.name})"
        )
