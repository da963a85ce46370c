"""`tucker`: a tensor as a small core with one factor per mode, and how well that fits."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from latensor.arrays import Array, Namespace, RandomState, generator, like, resolve
from latensor.decomposition.gradients import with_tucker_gradient
from latensor.decomposition.optimize.iteration import Callback, Monitor
from latensor.decomposition.result import DECOMPOSITION, Status
from latensor.decomposition.setup import as_tensor
from latensor.decomposition.tucker.arguments import Method, check_method, read_init, read_ranks
from latensor.decomposition.tucker.compression import orthonormal_form
from latensor.decomposition.tucker.nonnegative import nonnegative_fit
from latensor.decomposition.tucker.orthogonal import (
    Subspaces,
    Truncation,
    all_orthogonal,
    expanded,
    rescaled,
)
from latensor.decomposition.tucker.orthogonal_fit import OrthogonalFit
from latensor.tensors.contractible import Contractible
from latensor.tensors.dense import DenseTensor
from latensor.tensors.tucker import TuckerTensor
from latensor.value_files import storable, write_value

storable(TuckerTensor)
_TOL, _MAX_ITER = 1e-4, 100
_NONNEGATIVE_TOL, _NONNEGATIVE_MAX_ITER = 1e-6, 500


@storable
@dataclass(frozen=True, eq=False)
class TuckerDecomposition:
    """A Tucker tensor fitted to data, and how well it fits.

    Unpacks like the pair it stands for: `core, factors = decomposition`.

    Attributes
    ----------
    tensor : TuckerTensor
    residual : float, Frobenius norm of what is left relative to that of the data
    n_iter : int, sweeps over the modes; 0 for the methods that do not iterate
    status : Status
    history : (n_iter,) float array, the residual after every sweep
    """

    tensor: TuckerTensor
    residual: float
    n_iter: int
    status: Status
    history: Any

    @property
    def core(self) -> Array:
        """The core, one mode per factor."""
        return self.tensor.core

    @property
    def factors(self) -> tuple[Array | None, ...]:
        """One (dimension, rank) matrix per mode; None where the mode is not compressed."""
        return self.tensor.factors

    @property
    def ranks(self) -> tuple[int, ...]:
        """The dimensions of the core."""
        return self.tensor.ranks

    @property
    def shape(self) -> tuple[int, ...]:
        """The dimensions of the tensor."""
        return self.tensor.shape

    @property
    def fit(self) -> float:
        """One minus the residual, as the Tensor Toolbox counts it."""
        return 1.0 - self.residual

    def to_dense(self) -> Array:
        """The fitted tensor with all its entries."""
        return self.tensor.to_dense()

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write all of it into a file that `lt.load` reads, without pickle.

        Arrays of any library come back as NumPy arrays.

        Parameters
        ----------
        path : file to write; an interrupted run leaves the old one or none
        """
        return write_value(path, self, DECOMPOSITION)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.tensor)

    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> Any:
        return self.tensor[index]

    def __repr__(self) -> str:
        shape, core = (" x ".join(map(str, sizes)) for sizes in (self.shape, self.ranks))
        return (
            f"TuckerDecomposition({shape}, core {core}, residual {self.residual:.4g}, "
            f"{self.n_iter} iterations, {self.status.name})"
        )


@with_tucker_gradient
def tucker(
    tensor: object,
    ranks: int | float | Sequence[int | float] | None = None,
    *,
    error: float | None = None,
    method: Method = "auto",
    modes: Sequence[int] | None = None,
    nonnegative: bool = False,
    tol: float | None = None,
    max_iter: int | None = None,
    init: object = None,
    random_state: RandomState = None,
    callback: Callback | None = None,
) -> TuckerDecomposition:
    """A tensor as a small core, multiplied by a matrix in every mode (monograph 3.2, eq. 3.10).

    T ~ S(A', B', C') with a core S of the size `ranks`. The factors A, B, C are orthonormal, so
    that the core is S = T(conj A, conj B, conj C) and the squared error |T|^2 - |S|^2.

    Parameters
    ----------
    tensor : array of any library, or sparse, factored or implicit tensor, of any order
    ranks : how much of every mode to keep
        an int for all modes, or one int per mode;
        a float in (0, 1): as little as holds this share of the squared norm of the tensor, so
        that 0.99 has a relative error of at most 0.1;
        a float in a sequence, for its own mode: cutting that mode costs at most the rest of the
        squared norm.
    error : float in (0, 1), the largest relative error |T - T~| / |T|, in place of `ranks`: the
        cuts of the modes share its square, and the result keeps the promise
    method : {"auto", "sequential", "hosvd", "hooi", "randomized"}
        "sequential" cuts one mode after the other, each in what the others have left
        (ST-HOSVD), and is within sqrt(order) of the best error. "hosvd" takes the singular
        vectors of the unfoldings of the whole tensor. "hooi" goes on from the sequential result by
        orthogonal iteration, whose error falls with every sweep. "randomized" sees the tensor
        through random directions and a few corrections, without any Gram matrix of it. "auto" is
        orthogonal iteration from the cheaper of these two starts where the ranks are given, else
        "sequential".
    modes : the modes to compress, default all; `ranks` then has one entry for each of these, and
        the other modes have None for a factor
    nonnegative : bool, keep every entry of core and factors at or above zero; the factors then
        have unit columns in place of orthonormal ones, and `ranks` must be integers
    tol : float, iterate until a sweep lowers the squared residual by less than this share
        (default 1e-4; nonnegative: 1e-6)
    max_iter : int, sweeps (default 100; nonnegative: 500)
    init : TuckerTensor, TuckerDecomposition or pair (core, factors) to start from; never changed.
        Without `nonnegative` only the span of its factors counts
    random_state : int, Generator or None; used by "auto" and "randomized", by nonnegative starts,
        and for tensors that are not dense
    callback : called after every sweep with a state that has `iteration`, `residual` and
        `tensor`; may return True to stop

    Returns
    -------
    TuckerDecomposition. The core is all-orthogonal: its slices along a mode are orthogonal to each
    other and stand by falling norm (but for "hosvd", where each factor has the order of the
    singular values of its own unfolding). The largest entry of every column is positive.

    Examples
    --------
    >>> import numpy as np, latensor as lt
    >>> tensor = np.arange(24.0).reshape(2, 3, 4)
    >>> found = lt.tucker(tensor, 2)
    >>> found.ranks, bool(np.allclose(found.to_dense(), tensor))
    ((2, 2, 2), True)
    """
    data = as_tensor(tensor)
    rule = read_ranks(ranks, error, modes, data.shape)
    iterates = check_method(method, nonnegative, rule, init, tol, max_iter, callback, data)
    given = None if init is None else read_init(init, data, rule, nonnegative)
    xp, rng = resolve(tensor=data.reference)[0], generator(random_state)
    exact = None if nonnegative else orthonormal_form(xp, data, rule.ranks)
    source, energy, scale = rescaled(xp, data if exact is None else DenseTensor(exact.core))
    if energy == 0.0:
        return _finish(_zero(xp, data, rule), 0.0, Status.CONVERGED, Monitor(0.0))
    if nonnegative:
        monitor = Monitor(energy, None, max_iter or _NONNEGATIVE_MAX_ITER, callback)
        limit = _NONNEGATIVE_TOL if tol is None else tol
        fitted = nonnegative_fit(xp, source, rule, rng, given, limit, monitor, scale)
        return _finish(*fitted, monitor)
    fit = OrthogonalFit(xp, source, rule, energy, rng)
    monitor = Monitor(energy, None, max_iter or _MAX_ITER, callback)

    def assemble(state: Subspaces) -> Any:
        whole = state if exact is None else expanded(exact, state)
        core, factors = all_orthogonal(xp, whole, rule.modes, rotate=method != "hosvd")
        return TuckerTensor(core * scale, factors)

    found = fit.start(method) if given is None else fit.start_from(given.factors, exact)
    status = Status.CONVERGED
    if iterates:
        found, status = fit.iterate(found, _TOL if tol is None else tol, monitor, assemble)
    return _finish(assemble(found), fit.residual(found), status, monitor)


def _finish(
    form: TuckerTensor, residual: float, status: Status, monitor: Monitor
) -> TuckerDecomposition:
    history = np.array(monitor.history)
    return TuckerDecomposition(form, residual, len(history), status, history)


def _zero(xp: Namespace, data: Contractible, rule: Truncation) -> TuckerTensor:
    """A zero tensor: a zero core, and the first unit vectors of every mode."""
    kept = {m: rule.ranks.get(m, 1) for m in rule.modes}
    shape = tuple(kept.get(m, d) for m, d in enumerate(data.shape))
    factors = tuple(
        like(np.eye(d, kept[m]), data.reference) if m in kept else None
        for m, d in enumerate(data.shape)
    )
    return TuckerTensor(like(np.zeros(shape), data.reference), factors)
