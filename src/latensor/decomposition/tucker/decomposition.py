"""`tucker`: a tensor as a small core with one factor per mode, and how well that fits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from latensor.arrays import Array, Namespace, RandomState, generator, like, resolve, to_host
from latensor.arrays.guests import with_guests
from latensor.decomposition.gradients import with_tucker_gradient
from latensor.decomposition.mode_labels import ModeLabels, mode_labels_of, with_mode_labels
from latensor.decomposition.optimize.iteration import Callback, Monitor
from latensor.decomposition.result import FittedTensor, Status
from latensor.decomposition.setup import as_tensor, warn_of_zero
from latensor.decomposition.tucker.arguments import (
    Method,
    check_method,
    read_fixed,
    read_init,
    read_mask,
    read_ranks,
)
from latensor.decomposition.tucker.compression import orthonormal_form
from latensor.decomposition.tucker.fixed import FixedFactors
from latensor.decomposition.tucker.nonnegative import nonnegative_fit
from latensor.decomposition.tucker.observed import ObservedTensor
from latensor.decomposition.tucker.orthogonal import (
    Subspaces,
    Truncation,
    all_orthogonal,
    exact_loss,
    expanded,
    rescaled,
)
from latensor.decomposition.tucker.orthogonal_fit import OrthogonalFit
from latensor.tensors.contractible import Contractible
from latensor.tensors.dense import DenseTensor
from latensor.tensors.tucker import TuckerTensor
from latensor.value_files import storable

if TYPE_CHECKING:
    from latensor.diagnostics.tucker_certificate import TuckerCertificate

_TOL, _MAX_ITER = 1e-4, 100
_NONNEGATIVE_TOL, _NONNEGATIVE_MAX_ITER = 1e-6, 500
_MASKED_TOL, _MASKED_MAX_ITER = 1e-8, 1000


@storable
@dataclass(frozen=True, eq=False)
class TuckerDecomposition(FittedTensor):
    """A Tucker tensor fitted to data, and how well it fits.

    Unpacks like the pair it stands for: `core, factors = decomposition`.

    Attributes
    ----------
    tensor : TuckerTensor
    residual : float, Frobenius norm of what is left relative to that of the data (with a mask:
        of the observed entries)
    n_iter : int, sweeps over the modes; 0 for the methods that do not iterate
    status : Status
    history : (n_iter,) float array, the residual after every sweep
    n_observed : int or None, the number of observed entries where there was a mask
    mode_labels : as those of a `Decomposition`
    """

    tensor: TuckerTensor
    residual: float
    n_iter: int
    status: Status
    history: Any
    n_observed: int | None = field(default=None, repr=False)
    mode_labels: tuple[ModeLabels, ...] | None = field(default=None, repr=False)

    @cached_property
    def certificate(self) -> TuckerCertificate:
        """How far the spaces can be trusted, worked out when it is first read."""
        from latensor.diagnostics.tucker_certificate import certify_tucker

        return certify_tucker(self)

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

    def to_dense(self) -> Array:
        """The fitted tensor with all its entries."""
        return self.tensor.to_dense()

    def __repr__(self) -> str:
        shape, core = (" x ".join(map(str, sizes)) for sizes in (self.shape, self.ranks))
        return (
            f"TuckerDecomposition({shape}, core {core}, residual {self.residual:.4g}, "
            f"{self.n_iter} iterations, {self.status.name})"
        )


@with_guests
@with_mode_labels(mode_labels_of)
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
    fixed_modes: Sequence[int] = (),
    mask: object = None,
    random_state: RandomState = None,
    callback: Callback | None = None,
) -> TuckerDecomposition:
    """A tensor as a small core, multiplied by a matrix in every mode (monograph 3.2, eq. 3.10).

    T ~ S(A', B', C') with a core S of the size `ranks`. The factors A, B, C are orthonormal, so
    that the core is S = T(conj A, conj B, conj C) and the squared error |T|^2 - |S|^2.

    Parameters
    ----------
    tensor : array of any library, or sparse, factored or implicit tensor, of any order; labels go
        into the result as those of `lt.decompose` do
    ranks : how much of every mode to keep
        an int for all modes, or one int per mode;
        a float in (0, 1): as little as holds this fraction of the squared norm of the tensor, so
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
    tol : float, iterate until a sweep lowers the squared residual by less than this fraction
        (default 1e-4; nonnegative: 1e-6; with a mask: 1e-8). Small tensors, of up to 2^15 entries,
        are first followed to 1e-10 from several starts where the first converges slowly
    max_iter : int, sweeps (default 100; nonnegative: 500; with a mask: 1000)
    init : TuckerTensor, TuckerDecomposition or pair (core, factors) to start from; never changed.
        Without `nonnegative` only the span of its factors counts, and a list of them is enough
    fixed_modes : modes whose factors stay exactly as in `init`; the others are fitted beside them
    mask : array of truth values, True where an entry was observed; the others are not fitted, and
        may be NaN. For dense arrays, with ranks as integers
    random_state : int, Generator or None; used by "auto" and "randomized", by nonnegative starts,
        and for tensors that are not dense
    callback : called after every sweep with a state that has `iteration`, `residual` and
        `tensor`; may return True to stop

    Returns
    -------
    TuckerDecomposition. The core is all-orthogonal: its slices along a mode are orthogonal to each
    other and stand in decreasing norm (but for "hosvd", where each factor has the order of the
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
    iterates = check_method(method, nonnegative, rule, init, tol, max_iter, callback, data, mask)
    fixed = read_fixed(fixed_modes, init, rule)
    given = None if init is None else read_init(init, data, rule, nonnegative)
    xp, rng = resolve(tensor=data.reference)[0], generator(random_state)
    observed = None
    if mask is not None:
        assert isinstance(data, DenseTensor)
        observed = read_mask(mask, data, rule)
    if observed is not None and isinstance(data, DenseTensor):
        data = DenseTensor(xp.where(observed, data.array, xp.zeros_like(data.array)))
    exact = None if nonnegative else orthonormal_form(xp, data, rule.ranks)
    source, energy, scale = rescaled(xp, data if exact is None else DenseTensor(exact.core))
    warn_of_zero(energy)
    if energy == 0.0:
        return _finish(_zero(xp, data, rule), 0.0, Status.CONVERGED, Monitor(0.0))
    if nonnegative:
        monitor = Monitor(energy, None, max_iter or _NONNEGATIVE_MAX_ITER, callback)
        limit = _NONNEGATIVE_TOL if tol is None else tol
        fitted = nonnegative_fit(xp, source, rule, rng, given, limit, monitor, scale, fixed)
        return _finish(*fitted, monitor)
    frame = None
    if fixed and given is not None:
        frame = FixedFactors.of(given.factors, fixed, exact)
        given = replace(
            given, factors=tuple(None if m in fixed else f for m, f in enumerate(given.factors))
        )
        rule = rule.without(fixed)

    def assemble(state: Subspaces) -> Any:
        whole = state if exact is None else expanded(exact, state, fixed)
        core, factors = all_orthogonal(xp, whole, rule.modes, rotate=method != "hosvd")
        if frame is not None:
            core, factors = frame.restore(xp, core, factors)
        return TuckerTensor(core * scale, factors)

    seen = source if frame is None else frame.project(source)
    fit = OrthogonalFit(xp, seen, rule, energy, rng)
    start = None if given is None else fit.start_from(given.factors, exact)
    if observed is not None:
        assert isinstance(source, DenseTensor)
        monitor = Monitor(energy, None, max_iter or _MASKED_MAX_ITER, callback)
        problem = ObservedTensor(xp, source.array, observed, rule, frame)
        limit = _MASKED_TOL if tol is None else tol
        completed, status = problem.fit(start, limit, monitor, assemble)
        residual = monitor.relative(completed.loss)
        seen_entries = int(np.count_nonzero(to_host(observed)))
        return _finish(assemble(completed.found), residual, status, monitor, seen_entries)
    monitor = Monitor(energy, None, max_iter or _MAX_ITER, callback)
    found = fit.start(method) if start is None else start
    status = Status.CONVERGED
    if iterates:
        if start is None:
            found = fit.search(found)
        found, status = fit.iterate(found, _TOL if tol is None else tol, monitor, assemble)
    if frame is not None:  # the fit has seen the tensor projected on the given factors only
        form, loss = assemble(found), found.loss
        if exact is None or scale == 1.0:
            whole = source if exact is None else data
            loss = exact_loss(xp, whole, form.core / scale, form.factors, loss, energy)
        return _finish(form, monitor.relative(loss), status, monitor)
    return _finish(assemble(found), fit.residual(found), status, monitor)


def _finish(
    form: TuckerTensor,
    residual: float,
    status: Status,
    monitor: Monitor,
    n_observed: int | None = None,
) -> TuckerDecomposition:
    history = np.array(monitor.history)
    return TuckerDecomposition(form, residual, len(history), status, history, n_observed)


def _zero(xp: Namespace, data: Contractible, rule: Truncation) -> TuckerTensor:
    """A zero tensor: a zero core, and the first unit vectors of every mode."""
    kept = {m: rule.ranks.get(m, 1) for m in rule.modes}
    shape = tuple(kept.get(m, d) for m, d in enumerate(data.shape))
    factors = tuple(
        like(np.eye(d, kept[m]), data.reference) if m in kept else None
        for m, d in enumerate(data.shape)
    )
    return TuckerTensor(like(np.zeros(shape), data.reference), factors)
