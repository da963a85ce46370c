"""What every decomposition returns, and why it ended."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cached_property
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from latensor.arrays import Array, is_array
from latensor.decomposition.mode_labels import ModeLabels
from latensor.presentation import Presented
from latensor.tensors.cp import CPTensor
from latensor.tensors.sparse import SparseTensor
from latensor.tensors.tucker import TuckerTensor
from latensor.value_files import DECOMPOSITION, storable, write_value

if TYPE_CHECKING:
    from latensor.diagnostics.certificate import Certificate
    from latensor.diagnostics.rank import RankSelection


@storable
class Status(Enum):
    """Why an algorithm ended; the text says what to try next.

    CONVERGED is said of a least-squares fit where a Gauss-Newton step of all factors at once,
    without damping and within the bounds of nonnegative factors, promises so little that 50 such
    steps would lower the squared residual by less than 50 `tol` of it; of fits without such a
    model (Tucker, PARAFAC2, other constraints, the alternating symmetric fit) where the decreases
    of the sweeps, continued geometrically, sum up to less; of the power method and of joint
    diagonalization where their own iterations came to rest. It is never said where components
    grow and cancel each other, and the residual has an infimum but no minimum.
    """

    CONVERGED = "converged: further steps no longer lower the residual by more than `tol`"
    TARGET_REACHED = (
        "the residual reached `target`; raise no limit, lower `target` for a closer fit"
    )
    MAX_ITER = (
        "stopped at `max_iter`, or where steps got slow, with something left to gain: raise "
        "`max_iter` or pass this result as `init`; where components grow and cancel each other no "
        "best fit exists: lower the rank, or give a `ridge` or `nonnegative`"
    )
    STOPPED = "stopped by the callback; pass this result as `init` to continue"
    UNCONFIRMED = (
        "different ways led to different answers, of which this is the best: try another rank, or "
        "give more entries"
    )

    def __str__(self) -> str:
        return self.value


# Entries of the largest data that a result keeps for its certificate: 32 MB in double precision.
_KEPT = 1 << 22


@storable
@dataclass(frozen=True, eq=False)
class Origin:
    """What a certificate needs beside the result.

    Attributes
    ----------
    tensor : the data, or None where they are too large to be kept
    mask : the mask, or None where there is none or it is too large
    masked : bool, whether the fit was to some of the entries only
    """

    tensor: Any
    mask: Any
    masked: bool


def origin_of(tensor: Any, mask: Any) -> Origin:
    """The data and mask of a fit, by reference, up to four million entries each."""
    return Origin(tensor if _is_small(tensor) else None, mask if _is_small(mask) else None,
                  mask is not None)  # fmt: skip


def _is_small(tensor: Any) -> bool:
    held: Any = getattr(tensor, "array", tensor)
    if hasattr(held, "coordinates"):
        return int(held.nnz if hasattr(held, "nnz") else held.entries.size) <= _KEPT
    if isinstance(held, CPTensor | TuckerTensor):
        return True
    return is_array(held) and prod(held.shape) <= _KEPT


class FittedTensor(Presented):
    """What every decomposition offers: its tensor unpacked, its fit, a file, words and a picture.

    Subclasses are dataclasses with the attributes below, and are `storable`.

    Attributes
    ----------
    tensor : what was fitted
    residual : float, Frobenius norm of what is left relative to that of the data
    """

    tensor: Any
    residual: float

    @property
    def fit(self) -> float:
        """One minus the residual, as the Tensor Toolbox counts it."""
        return 1.0 - self.residual

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write it into a file that `lt.load` reads, without pickle; the mask too, not the data.

        Arrays of any library come back as NumPy arrays.

        Parameters
        ----------
        path : file to write; an interrupted run leaves the old one or none
        """
        return write_value(path, self._stored(), DECOMPOSITION)

    def _stored(self) -> Any:
        """What of it goes into a file."""
        return self

    def __iter__(self) -> Iterator[Any]:
        return iter(self.tensor)

    def __len__(self) -> int:
        return len(self.tensor)

    def __getitem__(self, index: int) -> Any:
        return self.tensor[index]


@storable
@dataclass(frozen=True, eq=False)
class Decomposition(FittedTensor):
    """A CP tensor fitted to data, and how well it fits.

    Unpacks like the pair it stands for: `weights, factors = decomposition`.

    Attributes
    ----------
    tensor : CPTensor with unit columns, components by decreasing weight, and in every factor the
        largest entry of a column positive; the weights carry length and sign. A component that the
        fit has no use for has weight zero, and its columns may be zero. Where all modes share one
        factor and their number is odd, the vectors carry the sign and no weight is negative
    residual : float, Frobenius norm of what is left relative to that of the data (with a mask:
        of the observed entries)
    n_iter : int, recorded iterations
    status : Status
    history : (n_iter,) float array, the residual after every iteration (with a ridge: of residual
        and penalty together, which is what falls)
    origin : Origin or None, the data that the certificate is computed from. Up to four million
        entries they are kept by reference, as they are when the certificate is first read; pickles
        hold the mask and a certificate that has been read, but not the data
    selection : RankSelection or None, why this rank, where `rank="auto"` was asked for
    sparse : SparseTensor or None, the sparse component, where `sparsity` was given; the residual is
        then of what both leave over, and the history has one entry per turn of the two
    mode_labels : one ModeLabels (`name`, `values`) per mode, where the data were a pandas DataFrame
        or an xarray DataArray; figures show them
    method : str, the algorithm that found the components, of those that "auto" chooses among
    held_out_error : float or None, where entries were missing: the norm of what a fit to all
        observed entries but a few missed at these, relative to theirs. It is what to expect where
        nothing was observed; None where too few entries were observed to leave any out
    eigenvalue_ratio : float or None, of `Foobi`: the k-th smallest eigenvalue of its rank-one
        detector over the next one. Zero to rounding where the tensor is a sum of k components,
        near 1 where noise or too many components hide them

    Examples
    --------
    >>> import latensor as lt
    >>> import numpy as np
    >>> found = lt.decompose(np.ones((3, 4, 5)), 1, random_state=0)
    >>> weights, factors = found
    >>> found.rank, found.status.name, round(float(weights[0]), 6)
    (1, 'CONVERGED', 7.745967)
    """

    tensor: CPTensor
    residual: float
    n_iter: int
    status: Status
    history: Any
    origin: Origin | None = field(default=None, repr=False)
    selection: RankSelection | None = field(default=None, repr=False)
    sparse: SparseTensor | None = field(default=None, repr=False)
    mode_labels: tuple[ModeLabels, ...] | None = field(default=None, repr=False)
    method: str = field(default="", repr=False)
    held_out_error: float | None = field(default=None, repr=False)
    eigenvalue_ratio: float | None = field(default=None, repr=False)

    @cached_property
    def certificate(self) -> Certificate:
        """How far the components can be trusted: `lt.certify` of this result and its data.

        Computed when it is first read. Where the data are not kept (see `origin`) it lacks the
        core consistency; `lt.certify(result, tensor)` has it.
        """
        # The one look upward: results offer what the diagnostics say about them.
        from latensor.diagnostics.certificate import certify

        return certify(self, None if self.origin is None else self.origin.tensor)

    def __getstate__(self) -> dict[str, Any]:
        state = dict(self.__dict__)
        if self.origin is not None:
            state["origin"] = replace(self.origin, tensor=None)
        return state

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

    def _stored(self) -> Any:
        origin = None if self.origin is None else replace(self.origin, tensor=None)
        return replace(self, origin=origin)

    def __repr__(self) -> str:
        shape = " x ".join(str(d) for d in self.tensor.shape)
        held_out = "" if self.held_out_error is None else f"held out {self.held_out_error:.4g}, "
        return (
            f"Decomposition({shape}, rank {self.rank}, residual {self.residual:.4g}, {held_out}"
            f"{self.n_iter} iterations, {self.status.name})"
        )
