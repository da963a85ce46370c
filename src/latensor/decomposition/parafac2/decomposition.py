"""`parafac2`: slices of unequal height by components whose row factors evolve."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy

from latensor.arrays import Array, RandomState, generator, like, one_blas_thread, to_host
from latensor.arrays.guests import with_guests
from latensor.decomposition.mode_labels import ModeLabels, slice_labels_of, with_mode_labels
from latensor.decomposition.optimize.iteration import Callback, Monitor, StoppingRule, iterate
from latensor.decomposition.parafac2.arguments import (
    Request,
    check_nonnegative,
    check_rank,
    read_init,
    read_slices,
)
from latensor.decomposition.parafac2.masked import Imputed, ObservedSlices
from latensor.decomposition.parafac2.sweeps import (
    RESOLUTION,
    Factors,
    Fits,
    Slices,
    polar,
)
from latensor.decomposition.result import FittedTensor, Status
from latensor.decomposition.setup import check_limits
from latensor.exceptions import InvalidInputError
from latensor.tensors.parafac2 import Parafac2Tensor
from latensor.value_files import storable

if TYPE_CHECKING:
    from latensor.diagnostics.parafac2_certificate import Parafac2Certificate

_STARTS = 10
# Sweeps of all starts, then of the best of them; the best one goes on to the end.
_TRIALS = ((_STARTS, 60), (3, 100))
# A sweep that gains less counts as none; ten of them in a row end the fit: in the slow valleys of
# PARAFAC2 a rule that asks one sweep ends early.
_TOL, _MAX_ITER, _PATIENCE = 1e-9, 2000, 10
# Two fits are the same where the congruence of every pair of components exceeds this (Lorenzo-Seva
# and ten Berge 2006: 0.95 and more is called equal).
_SAME = 0.95


@storable
@dataclass(frozen=True, eq=False)
class Parafac2Decomposition(FittedTensor):
    """Slices fitted by PARAFAC2, and how well.

    Unpacks like TensorLy's triple: `weights, factors, projections = decomposition`.

    Attributes
    ----------
    tensor : Parafac2Tensor in canonical form
    residual : float, Frobenius norm of what is left relative to that of the slices (with a mask:
        of the observed entries)
    n_iter : int, recorded sweeps
    status : Status
    history : (n_iter,) float array, the residual after every sweep
    n_starts : int, how many starts were tried
    n_agreed : int, how many of them led to these components, the winner counted: where it is one
        of several, another seed may find others
    mode_labels : one ModeLabels (`name`, `values`) for slices, rows and columns, where the slices
        were a mapping or data frames; figures show them
    n_observed : int or None, the number of observed entries where there was a mask
    """

    tensor: Parafac2Tensor
    residual: float
    n_iter: int
    status: Status
    history: Any
    n_starts: int
    n_agreed: int
    mode_labels: tuple[ModeLabels, ...] | None = field(default=None, repr=False)
    n_observed: int | None = field(default=None, repr=False)

    @cached_property
    def certificate(self) -> Parafac2Certificate:
        """How far the components can be trusted, worked out when it is first read."""
        from latensor.diagnostics.parafac2_certificate import certify_parafac2

        return certify_parafac2(self)

    @property
    def weights(self) -> Array:
        """(rank,) weights of the components."""
        return self.tensor.weights

    @property
    def factors(self) -> tuple[Array, Array, Array]:
        """A (n_slices, rank), B (rank, rank) and C (columns, rank)."""
        return self.tensor.factors

    @property
    def projections(self) -> tuple[Array, ...]:
        """One (rows_i, rank) matrix with orthonormal columns per slice."""
        return self.tensor.projections

    @property
    def rank(self) -> int:
        """The number of components."""
        return self.tensor.rank

    def slices(self) -> list[Array]:
        """The fitted slices."""
        return self.tensor.slices()

    def __repr__(self) -> str:
        return (
            f"Parafac2Decomposition({len(self.projections)} slices, rank {self.rank}, residual "
            f"{self.residual:.4g}, {self.n_iter} iterations, {self.n_agreed} of {self.n_starts} "
            f"starts agree, {self.status.name})"
        )


@with_guests
@with_mode_labels(slice_labels_of)
def parafac2(
    slices: object,
    rank: int,
    *,
    nonnegative: Sequence[int] = (),
    mask: object = None,
    init: object = None,
    n_starts: int = _STARTS,
    tol: float = _TOL,
    max_iter: int = _MAX_ITER,
    random_state: RandomState = None,
    callback: Callback | None = None,
) -> Parafac2Decomposition:
    """Components of matrices that share their columns but not their rows (PARAFAC2).

    X_i ~ P_i B diag(w * a_i) C' with orthonormal P_i: profiles that shift or stretch from slice
    to slice, such as retention times, subjects with other time points, or documents of other
    lengths. Several starts are compared, since the problem has local optima.

    Parameters
    ----------
    slices : list of (rows_i, columns) arrays of one library or data frames, a mapping from names
        to such, or an (n_slices, rows, columns) tensor. Names go into the result's `mode_labels`
    rank : int, the number of components, at most the rows of the shortest slice
    nonnegative : modes without negative numbers: 0 for A (slices), 2 for C (columns)
    mask : truth values in the form and shapes of the slices, True where an entry was observed; the
        others are not fitted, and may be NaN
    init : Parafac2Tensor, Parafac2Decomposition or TensorLy's triple (weights, factors,
        projections) to start from, in place of several starts; never changed
    n_starts : int, how many starts are compared
    tol : float, iterate until ten sweeps in a row lower the squared residual by less than this
        fraction each
    max_iter : int, sweeps
    random_state : int, Generator or None
    callback : called after every sweep with a state that has `iteration`, `residual` and
        `tensor`; may return True to stop

    Returns
    -------
    Parafac2Decomposition. Components come by decreasing weight; see `Parafac2Tensor.canonical`.

    Examples
    --------
    >>> import numpy as np, latensor as lt
    >>> rng = np.random.default_rng(0)
    >>> amounts, spectra = rng.uniform(1, 2, (6, 2)), rng.standard_normal((5, 2))
    >>> profiles = [np.linalg.qr(rng.standard_normal((8 + i, 2)))[0] for i in range(6)]
    >>> slices = [(p * a) @ spectra.T for p, a in zip(profiles, amounts)]
    >>> found = lt.parafac2(slices, 2, random_state=0)
    >>> [x.shape for x in found.slices()][:3], bool(found.residual < 1e-6)
    ([(8, 5), (9, 5), (10, 5)], True)
    """
    request = read_slices(slices, mask)
    rank = check_rank(rank, request)
    modes = check_nonnegative(nonnegative)
    check_limits(tol, None, max_iter)
    if isinstance(n_starts, bool) or not isinstance(n_starts, int | np.integer) or n_starts < 1:
        raise InvalidInputError(f"n_starts={n_starts!r} must be an integer of at least 1")
    given = None if init is None else read_init(init, request, rank)
    energy = float(sum(np.vdot(x, x) for x in request.slices))
    monitor = Monitor(energy, None, max_iter, callback)
    rng = generator(random_state)
    if energy == 0.0:
        zero = _zero(request, rank)
        return Parafac2Decomposition(zero, 0.0, 0, Status.CONVERGED, np.zeros(0), 0, 0)
    fit = _Fit(request, rank, modes, tol, monitor, rng)
    with one_blas_thread():
        (tensor, residual), status, tried, agreed = fit.run(given, int(n_starts))
    history = np.array(monitor.history)
    seen = None if request.masks is None else sum(int(np.sum(m)) for m in request.masks)
    return Parafac2Decomposition(
        tensor, residual, len(history), status, history, tried, agreed, n_observed=seen
    )


@dataclass(frozen=True)
class _Fit:
    request: Request
    rank: int
    nonnegative: tuple[int, ...]
    tol: float
    monitor: Monitor
    rng: np.random.Generator

    def run(
        self, given: Factors | None, n_starts: int
    ) -> tuple[tuple[Parafac2Tensor, float], Status, int, int]:
        """The best fit with its residual, why it ended, how many starts there were and agreed."""
        masks = self.request.masks
        if masks is None:
            slices, lift = self._compressed()
            fits, losers = self._trials(slices, given, n_starts, lift)
            factors, status = self._converge(slices, fits, lift)
            fitted = self.finish(factors)
        else:
            observed = ObservedSlices.of(self.request.slices, masks, self.nonnegative)
            filled = observed.completed(self.rank)
            slices = Slices.of(list(filled), self.nonnegative)
            fits, losers = self._trials(slices, given, n_starts, lambda factors: factors)
            state, status = self._complete(observed, Imputed(fits.factors, filled, np.inf))
            fitted = self.finish(state.factors, state.filled)
            factors = fits.factors  # the trials saw the completed slices: compare with theirs
        agreed = 1 + sum(_same(factors, other) for other in losers)
        return fitted, status, 1 + len(losers), agreed

    def _compressed(self) -> tuple[Slices, Callable[[Factors], Factors]]:
        """The slices, in coordinates of the space that their rows span where that is smaller."""
        slices, columns = self.request.slices, self.request.slices[0].shape[1]
        if sum(x.shape[0] for x in slices) >= columns or 2 in self.nonnegative:
            return Slices.of(slices, self.nonnegative), lambda factors: factors
        basis = np.linalg.qr(np.concatenate(slices).T)[0]
        inner = Slices.of([x @ basis for x in slices], self.nonnegative)
        return inner, lambda factors: replace(factors, columns=basis @ factors.columns)

    def _trials(
        self,
        slices: Slices,
        given: Factors | None,
        n_starts: int,
        lift: Callable[[Factors], Factors],
    ) -> tuple[Fits, list[Factors]]:
        """The start that leads furthest, and where the others stood when they were left."""
        if given is not None:
            columns = slices.rows.shape[2]
            if columns != given.columns.shape[1]:  # in coordinates of the lift, a basis
                eye = Factors(given.loadings, given.middle, np.eye(columns)[None])
                basis = lift(eye).columns[0]
                given = replace(given, columns=basis.T @ given.columns)
            return Fits.begin(given), []
        fits = Fits.begin(self._starts(slices, n_starts))
        losers: list[Factors] = []
        rounds = [(_TRIALS[0][1], min(n_starts, _TRIALS[1][0])), (_TRIALS[1][1], 1)]
        for sweeps, survivors in rounds if n_starts > 1 else []:
            for _ in range(sweeps):
                fits = slices.step(fits)
            order = np.argsort(fits.losses, kind="stable")
            losers += [lift(fits.factors.take(slice(i, i + 1))) for i in order[survivors:]]
            fits = fits.take(order[:survivors])
        return fits, losers

    def _starts(self, slices: Slices, count: int) -> Factors:
        """C in the leading directions of all slices, turned at random; B = I; A near one."""
        rank, (n_slices, _, columns) = self.rank, slices.rows.shape
        stacked = slices.rows.reshape(-1, columns)
        right = np.linalg.svd(np.linalg.qr(stacked, mode="r"))[2]
        turns = np.linalg.qr(self.rng.standard_normal((count, rank, rank)))[0]
        width = min(rank, columns)
        directions = right[:width].T @ turns[:, :width]
        if 2 in self.nonnegative:
            directions = np.abs(directions)
        loadings = 1.0 + 0.1 * self.rng.random((count, n_slices, rank))
        middle = np.broadcast_to(np.eye(rank), (count, rank, rank))
        return Factors(loadings, middle, directions)

    def _converge(
        self, slices: Slices, fits: Fits, lift: Callable[[Factors], Factors]
    ) -> tuple[Factors, Status]:
        energy, monitor = slices.energy, self.monitor

        def assemble(state: Fits) -> Any:
            return self.finish(lift(state.factors))[0]

        floor = (100 * np.finfo(np.float64).eps) ** 2 * energy
        rule = StoppingRule(
            self.tol,
            monitor.budget or 1,
            _PATIENCE,
            RESOLUTION * energy,
            proof="extrapolation",
            persistent=True,
        )
        fits, status = iterate(slices.step, fits, rule, monitor, assemble)
        if fits.loss <= RESOLUTION * energy and monitor.ended is None:
            # Nothing that the Gram matrices tell is left: from here on the slices themselves count.
            exact = replace(slices, exact=True)
            rule = replace(rule, floor=floor)
            fits = replace(fits, losses=np.full(1, np.inf))
            fits, status = iterate(exact.step, fits, rule, monitor, assemble)
        return lift(fits.factors), status

    def _complete(self, observed: ObservedSlices, state: Imputed) -> tuple[Imputed, Status]:
        floor = (100 * np.finfo(np.float64).eps) ** 2 * self.monitor.squared_norm
        rule = StoppingRule(
            self.tol,
            self.monitor.budget or 1,
            _PATIENCE,
            floor,
            proof="extrapolation",
            persistent=True,
        )

        def assemble(state: Imputed) -> Any:
            return self.finish(state.factors, state.filled)[0]

        return iterate(observed.step, state, rule, self.monitor, assemble)

    def finish(self, factors: Factors, filled: Any = None) -> tuple[Parafac2Tensor, float]:
        """The tensor in the caller's library, and its residual recomputed entry by entry.

        `filled` are the completed slices where entries are missing.
        """
        loadings, middle, columns = (part[0] for part in factors)
        request = self.request
        projections = []
        for i, x in enumerate(request.slices):
            whole = x if filled is None else filled[i, : x.shape[0]]
            projections.append(polar(whole @ columns @ (middle * loadings[i]).T))
        tensor = Parafac2Tensor(None, (loadings, middle, columns), tuple(projections)).canonical()
        reference = request.reference
        scaled = Parafac2Tensor(
            like(tensor.weights * request.scale, reference),
            tuple(like(f, reference) for f in tensor.factors),
            tuple(like(p, reference) for p in tensor.projections),
        )
        # Of the numbers that are returned: in single precision large components that nearly cancel
        # lose digits that the fit had.
        rounded = Parafac2Tensor(
            _wide(scaled.weights) / request.scale,
            tuple(_wide(f) for f in scaled.factors),
            tuple(_wide(p) for p in scaled.projections),
        )
        loss = 0.0
        for i, (x, model) in enumerate(zip(request.slices, rounded.slices(), strict=True)):
            missed = x - model
            if request.masks is not None:
                missed = np.where(request.masks[i], missed, 0.0)
            loss += float(np.vdot(missed, missed))
        return scaled, self.monitor.relative(loss)


def _same(one: Factors, other: Factors) -> bool:
    """Whether two fits have the same components, up to order, sign and scale."""
    product = np.ones((one.middle.shape[-1],) * 2)
    for first, second in ((one.loadings, other.loadings), (one.columns, other.columns)):
        product = product * np.abs(_unit_columns(first[0]).T @ _unit_columns(second[0]))
    rows, columns = scipy.optimize.linear_sum_assignment(-product)
    return bool(product[rows, columns].min() > _SAME**2)


def _unit_columns(factor: Any) -> Any:
    lengths = np.linalg.norm(factor, axis=0)
    return factor / np.where(lengths > 0, lengths, 1.0)


def _wide(array: Array) -> Any:
    return np.asarray(to_host(array), dtype=np.float64)


def _zero(request: Request, rank: int) -> Parafac2Tensor:
    reference = request.reference
    columns = request.slices[0].shape[1]
    factors = (np.ones((len(request.slices), rank)), np.eye(rank), np.eye(columns, rank))
    return Parafac2Tensor(
        like(np.zeros(rank), reference),
        tuple(like(f, reference) for f in factors),
        tuple(like(np.eye(x.shape[0], rank), reference) for x in request.slices),
    )
