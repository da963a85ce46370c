"""`robust_pca`: a matrix or tensor of low rank and the few entries that do not belong to it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from latensor.arrays import is_complex, like, machine_epsilon, to_host
from latensor.arrays.checks import refuse_nonfinite
from latensor.arrays.guests import with_guests
from latensor.arrays.threads import one_blas_thread
from latensor.decomposition.result import Status
from latensor.decomposition.robust.entries import Entries
from latensor.decomposition.robust.low_rank import Fit, parameters
from latensor.decomposition.robust.search import fit_any, fit_given
from latensor.decomposition.setup import ONE_THREAD, as_tensor, truth_values, warn_of_zero
from latensor.exceptions import ConvergenceWarning, InvalidInputError, warn_caller
from latensor.presentation import Presented
from latensor.tensors.cp import CPTensor
from latensor.tensors.dense import DenseTensor
from latensor.tensors.sparse import SparseTensor
from latensor.tensors.tucker import TuckerTensor
from latensor.value_files import DECOMPOSITION, storable, write_value

if TYPE_CHECKING:
    from latensor.diagnostics.robust_certificate import RobustCertificate


@storable
@dataclass(frozen=True, eq=False)
class RobustDecomposition(Presented):
    """A low-rank tensor, gross errors and noise that add up to the data.

    Attributes
    ----------
    low_rank : for a matrix a CPTensor whose weights are the singular values and whose two factors
        have orthonormal columns; for a tensor a TuckerTensor with orthonormal factors
    sparse : SparseTensor, the gross errors: zero elsewhere and where nothing was observed
    noise : float, standard deviation of what is left of the other entries, estimated by the median
        of its magnitude; zero for exact data, up to rounding
    residual : float, Frobenius norm of what both parts leave relative to that of the data, over
        observed entries
    n_iter : int, steps of all stages
    status : Status; CONVERGED where most entries are met to rounding, or where two ways led to the
        same answer and its directions stand clear of the noise; UNCONFIRMED elsewhere
    n_observed : int or None, the number of observed entries where there was a mask
    """

    low_rank: CPTensor | TuckerTensor
    sparse: SparseTensor
    noise: float
    residual: float
    n_iter: int
    status: Status
    n_observed: int | None = None

    @cached_property
    def certificate(self) -> RobustCertificate:
        """How far both parts can be trusted, worked out when it is first read."""
        from latensor.diagnostics.robust_certificate import certify_robust

        return certify_robust(self)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write it into a file that `lt.load` reads, without pickle.

        Parameters
        ----------
        path : file to write; an interrupted run leaves the old one or none
        """
        return write_value(path, self, DECOMPOSITION)

    @property
    def rank(self) -> int | tuple[int, ...]:
        """The rank of a matrix, the Tucker ranks of a tensor."""
        return self.low_rank.rank if isinstance(self.low_rank, CPTensor) else self.low_rank.ranks

    def __repr__(self) -> str:
        shape = " x ".join(str(d) for d in self.low_rank.shape)
        return (
            f"RobustDecomposition({shape}, rank {self.rank}, {self.sparse.nnz} gross errors, "
            f"noise {self.noise:.2g}, {self.status.name})"
        )


@with_guests
def robust_pca(
    tensor: object, rank: int | Sequence[int] | None = None, *, mask: object = None
) -> RobustDecomposition:
    """Separate low rank from gross errors: X = L + S + noise, L of low rank and S sparse.

    With a rank, residuals above a threshold that falls count as errors while L follows the others,
    by imputation or scaled gradient descent. Errors of one sign have a mean, which a start of one
    rank more takes up. Without a rank, principal component pursuit, min |L|_* + lambda |S|_1 with
    lambda = 1 / sqrt(max(n, m)) (for tensors the nuclear norms of all unfoldings), shows the rank,
    and the fit of that rank removes what its shrinkage costs; under noise the rank is the number of
    singular values that noise alone does not give.

    Parameters
    ----------
    tensor : real array of any library, order 2 or more; the errors must leave the low-rank part
        most of the entries, and each row, column or slice of them
    rank : int for a matrix; for a tensor the Tucker ranks, one int for all modes or one per mode.
        Ranks above the true ones are lowered where a lower one fits exactly
    mask : array of truth values, True where an entry was observed; what stands elsewhere is not
        read

    Returns
    -------
    RobustDecomposition

    Raises
    ------
    InvalidInputError, for a rank that the shape cannot have, a mask that hides a whole slice or
    leaves fewer entries than twice the free parameters.

    Warns
    -----
    ConvergenceWarning, where two ways led to different answers, or a direction that meets the
    entries of a few slices only cannot be told from their errors. UserWarning, where all is zero.

    Examples
    --------
    >>> import numpy as np, latensor as lt
    >>> rng = np.random.default_rng(0)
    >>> low = rng.standard_normal((60, 2)) @ rng.standard_normal((2, 50))
    >>> data = low + np.where(rng.random(low.shape) < 0.1, 10.0, 0.0)
    >>> found = lt.robust_pca(data, 2)
    >>> bool(np.allclose(found.low_rank.to_dense(), low)), found.status.name
    (True, 'CONVERGED')
    """
    data = as_tensor(tensor)
    if not isinstance(data, DenseTensor):
        if not hasattr(data, "to_dense"):
            raise InvalidInputError(
                f"tensor is a {type(data).__name__}, whose entries cannot be formed: give an array"
            )
        data = DenseTensor(data.to_dense())
    if len(data.shape) < 2:
        raise InvalidInputError(
            f"tensor has shape {tuple(data.shape)}: robust_pca needs a matrix or a tensor"
        )
    if is_complex(data.reference):
        raise InvalidInputError("tensor is complex, but robust_pca needs real entries")
    observed = _read_mask(mask, tuple(data.shape))
    ranks = None if rank is None else _read_ranks(rank, tuple(data.shape))
    if ranks is not None:
        _refuse_too_few(observed, ranks, tuple(data.shape))
    host = np.asarray(to_host(data.array))
    if observed is not None:
        host = np.where(observed, host, 0)
    refuse_nonfinite(host, "tensor")
    largest = float(np.abs(host).max())
    warn_of_zero(largest)
    if largest == 0.0:
        seen = None if observed is None else int(observed.sum())
        return replace(_zero(data.reference, tuple(data.shape), ranks), n_observed=seen)
    exponent = int(np.frexp(largest)[1])
    values = np.ldexp(host.astype(np.float64), -exponent)
    entries = Entries(values, observed, machine_epsilon(data.reference) > 1e-10)
    with one_blas_thread(host.size <= ONE_THREAD):
        found = fit_any(entries) if ranks is None else fit_given(entries, ranks)
    if found.status is not Status.CONVERGED:
        warn_caller(f"robust_pca: {found.status}", ConvergenceWarning)
    return _result(entries, found.fit, found.status, found.n_iter, exponent, data.reference)


def _read_mask(mask: Any, shape: tuple[int, ...]) -> Any:
    if mask is None:
        return None
    observed = truth_values(mask, shape).astype(bool)
    for mode in range(len(shape)):
        others = tuple(k for k in range(len(shape)) if k != mode)
        hidden = np.flatnonzero(~observed.any(axis=others))
        if len(hidden):
            raise InvalidInputError(
                f"mask hides all of slice {int(hidden[0])} of mode {mode} ({len(hidden)} hidden "
                "slices there): nothing can be said about it; remove the slice"
            )
    return None if observed.all() else observed


def _read_ranks(rank: Any, shape: tuple[int, ...]) -> tuple[int, ...]:
    """One rank for a matrix, one per mode for a tensor."""
    order = len(shape)
    given = list(rank) if isinstance(rank, list | tuple | np.ndarray) else [rank] * order
    if len(given) != order:
        raise InvalidInputError(
            f"rank={rank!r} has {len(given)} entries for a tensor of order {order}: give one per "
            "mode, or a single number"
        )
    for mode, one in enumerate(given):
        if isinstance(one, bool | np.bool_) or not isinstance(one, int | np.integer) or one < 1:
            raise InvalidInputError(f"rank={rank!r} must be a positive integer, or one per mode")
        limit = min(shape[mode], prod(shape) // shape[mode])
        if one > limit:
            raise InvalidInputError(
                f"rank={rank!r} is above {limit}, the largest rank of the unfolding of shape "
                f"{shape} along mode {mode}: lower it"
            )
    ranks = tuple(int(one) for one in given)
    if order == 2 and ranks[0] != ranks[1]:
        raise InvalidInputError(f"rank={rank!r} must be the same for rows and columns of a matrix")
    if any(r > prod(ranks) // r for r in ranks):
        raise InvalidInputError(
            f"rank={rank!r} asks for more in one mode than the product of the others: no Tucker "
            "tensor has such ranks"
        )
    return ranks


def _refuse_too_few(observed: Any, ranks: tuple[int, ...], shape: tuple[int, ...]) -> None:
    needed = 2 * parameters(ranks, shape)
    count = prod(shape) if observed is None else int(observed.sum())
    if observed is not None and count < needed:
        raise InvalidInputError(
            f"mask leaves {count} observed entries for the {needed // 2} free parameters of rank "
            f"{ranks if len(ranks) > 2 else ranks[0]}: gross errors can be told from at least "
            f"{needed}; give more entries or a lower rank"
        )


def _result(
    entries: Entries, fit: Fit, status: Status, n_iter: int, exponent: int, reference: Any
) -> RobustDecomposition:
    rest = entries.residual(fit.dense())
    norm = float(np.linalg.norm(entries.values))
    gross = np.abs(rest) > fit.assessment.threshold
    residual = float(np.linalg.norm(rest[~gross])) / norm
    dtype = np.asarray(to_host(reference)).dtype
    limit = np.finfo(dtype)
    with np.errstate(over="ignore", under="ignore"):
        errors = np.ldexp(rest[gross], exponent)
        core = np.ldexp(fit.core, exponent)
    if max(np.abs(errors).max(initial=0.0), np.abs(core).max()) > limit.max:
        raise InvalidInputError(
            f"tensor has entries up to {np.abs(entries.values).max():.2g} * 2^{exponent}, so that "
            f"its singular values leave the range of {dtype}: divide the tensor first"
        )
    rows = np.argwhere(gross)
    sparse = SparseTensor(rows, errors.astype(dtype), entries.values.shape)
    low_rank: CPTensor | TuckerTensor
    if core.ndim == 2:
        turn, values, other = np.linalg.svd(core)
        left, right = fit.factors[0] @ turn, fit.factors[1] @ other.T
        # The largest entry of every left vector is positive, as everywhere.
        places = np.argmax(np.abs(left), axis=0)
        signs = np.where(left[places, np.arange(len(values))] < 0, -1.0, 1.0)
        factors = (like(left * signs, reference), like(right * signs, reference))
        low_rank = CPTensor(like(values, reference), factors)
    else:
        low_rank = TuckerTensor(
            like(core, reference), tuple(like(u, reference) for u in fit.factors)
        )
    noise = 0.0 if fit.assessment.exact else float(np.ldexp(fit.assessment.noise, exponent))
    seen = None if entries.observed is None else int(entries.observed.sum())
    return RobustDecomposition(low_rank, sparse, noise, residual, n_iter, status, seen)


def _zero(
    reference: Any, shape: tuple[int, ...], ranks: tuple[int, ...] | None
) -> RobustDecomposition:
    """Nothing in both parts, with unit vectors for directions."""
    ranks = ranks or (1,) * len(shape)
    factors = tuple(like(np.eye(d, r), reference) for d, r in zip(shape, ranks, strict=True))
    low_rank: CPTensor | TuckerTensor
    if len(shape) == 2:
        low_rank = CPTensor(like(np.zeros(ranks[0]), reference), factors)
    else:
        low_rank = TuckerTensor(like(np.zeros(ranks), reference), factors)
    dtype = np.asarray(to_host(reference)).dtype
    empty = SparseTensor(np.zeros((0, len(shape)), np.int64), np.zeros(0, dtype), shape)
    return RobustDecomposition(low_rank, empty, 0.0, 0.0, 0, Status.CONVERGED)
