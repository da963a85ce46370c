"""Many power iterations at once, towards the leading rank-one terms of a (deflated) tensor."""

from __future__ import annotations

from typing import Any

import numpy as np

from latensor.arrays import Array, like, machine_epsilon, to_host
from latensor.decomposition.algorithms.deflation import Deflated
from latensor.decomposition.subspace.mode_directions import SMALL

# A value may fall by so many roundings of itself before a step counts as downhill.
_SLACK = 100
_STEP_AWAY = 0.3


def ascend_symmetric(
    deflated: Deflated,
    points: Array,
    max_iter: int,
    tol: float,
    negligible: float,
    shift: float | None,
) -> tuple[Array, Any, Any]:
    """Shifted power iteration on |R(u, ..., u)| from every column of `points`, monotone.

    u <- s R(I, u, ..., u) + alpha u, normalized, with s the sign of R(u, ..., u). alpha is zero
    until a step would lower the value; it then grows until none does, and shrinks after.

    Parameters
    ----------
    deflated : Deflated, symmetric
    points : (d, L) unit columns
    max_iter : int
    tol : float, relative length of R(I, u, ..., u) - value u that counts as converged
    negligible : float, value below which nothing is left but rounding
    shift : float, alpha in every step, or None

    Returns
    -------
    points (d, L), host values (L,) with their signs, and which starts converged (L,)
    """
    xp, odd = deflated.xp, deflated.order % 2 == 1
    slack = _SLACK * machine_epsilon(points)
    count = int(points.shape[1])
    ends, values, done = points, np.zeros(count), np.zeros(count, dtype=bool)
    # Only starts that still move are carried on. The batch is halved rather than cut to them,
    # since libraries that compile do so anew for every shape.
    batch = np.arange(count)
    here, image = points, deflated.image(points)
    value = _values(xp, here, image)
    shifts = np.full(count, 0.0 if shift is None else float(shift))
    for iteration in range(max_iter + 1):
        residual = np.sqrt(_squares(xp, image, here, value))
        stays = residual <= tol * np.abs(value) + 1e-2 * negligible
        ended = bool(stays.all()) or iteration == max_iter
        half = batch.size // 2
        if ended or (half and np.count_nonzero(~stays) <= half):
            ends = _placed(xp, ends, batch, here)
            values[batch], done[batch] = value, stays
            if ended:
                break
            kept = np.sort(np.argsort(stays, kind="stable")[:half])
            index = like(kept, points)
            here, image = xp.take(here, index, axis=1), xp.take(image, index, axis=1)
            batch, value, shifts = batch[kept], value[kept], shifts[kept]
            residual = residual[kept]
        signs = np.where(value < 0, -1.0, 1.0)
        turn = like(signs, points)[None, :]
        if odd:  # R(-u, -u, -u) = -R(u, u, u): the sign goes to the vector
            here, value = here * turn, np.abs(value)
        step = (image if odd else image * turn) + here * like(shifts, points)[None, :]
        ahead = step / _safe(xp, xp.linalg.vector_norm(step, axis=0))[None, :]
        ahead_image = deflated.image(ahead)
        ahead_value = _values(xp, ahead, ahead_image)
        gain = ahead_value - value if odd else signs * ahead_value - np.abs(value)
        accepted = np.full(batch.size, True)
        if shift is None:
            accepted = gain >= -slack * np.abs(value) - negligible
            lengths = np.sqrt(residual**2 + value**2)
            # A shift of the order times the norm of the tensor makes every step go uphill.
            shifts = np.where(accepted, 0.5 * shifts, np.maximum(2.0 * shifts, lengths))
        chosen = like(accepted, points)[None, :]
        here, image = xp.where(chosen, ahead, here), xp.where(chosen, ahead_image, image)
        value = np.where(accepted, ahead_value, value)
    return ends, values, done


def escape(deflated: Deflated, vector: Array, value: float, others: Array) -> Array | None:
    """Where to go on from an eigenvector that is no local maximum; None if it is one.

    On the sphere, |R(u, ..., u)| has a maximum at an eigenvector u with value w only if the
    largest eigenvalue m of s R(I, I, u, ..., u) orthogonal to u has (p - 1) m < |w|, with p the
    order and s the sign of w (monograph 3.4, second-derivative test). Otherwise the value grows
    along the eigenvector of m, on both sides of which a new start is returned.

    Parameters
    ----------
    deflated : Deflated, symmetric
    vector : (d,) unit eigenvector
    value : float, R(u, ..., u)
    others : (d, L) points whose span stands for the whole space where d is large

    Returns
    -------
    (d, 2) unit columns, or None
    """
    dimension = int(vector.shape[0])
    basis = None
    if dimension > SMALL:
        basis = like(np.linalg.qr(to_host(others).astype(np.float64))[0], vector)
    matrix = np.asarray(to_host(deflated.hessian(vector, basis)), dtype=np.float64)
    host = np.asarray(to_host(vector), dtype=np.float64)
    inside = host if basis is None else np.asarray(to_host(basis), dtype=np.float64).T @ host
    projector = np.eye(inside.size) - np.outer(inside, inside) / max(float(inside @ inside), 1e-300)
    matrix = projector @ (np.sign(value) * (matrix + matrix.T) / 2) @ projector
    eigenvalues, eigenvectors = np.linalg.eigh(matrix)
    if (deflated.order - 1) * eigenvalues[-1] <= abs(value) * (1 + 1e-6):
        return None
    direction = projector @ eigenvectors[:, -1]
    if basis is not None:
        direction = np.asarray(to_host(basis), dtype=np.float64) @ direction
    starts = np.stack([host + _STEP_AWAY * direction, host - _STEP_AWAY * direction], axis=1)
    return like(starts / np.linalg.norm(starts, axis=0), vector)


def sweep_asymmetric(
    deflated: Deflated,
    points: tuple[Array, ...],
    max_iter: int,
    tol: float,
    negligible: float,
) -> tuple[tuple[Array, ...], Any, Any]:
    """Rank-one alternating least squares from every column: a <- R(I, b, c), normalized, and so on.

    Every update is the best one for its mode, so that the value |R(a, b, c)| never falls.

    Returns
    -------
    points, host values (L,) that are not negative, and which starts converged (L,)
    """
    xp = deflated.xp
    current = list(points)
    values = np.zeros(points[0].shape[1])
    done = np.zeros(values.size, dtype=bool)
    for _ in range(max_iter):
        run = deflated.tensor.sweep(current)
        change = np.zeros(values.size)
        for mode in range(deflated.order):
            image = deflated.subtract(run.mttkrp(mode), tuple(current), mode)
            lengths = xp.linalg.vector_norm(image, axis=0)
            unit = image / xp.astype(_safe(xp, lengths), image.dtype)[None, :]
            moved = np.linalg.norm(to_host(unit - current[mode]), axis=0)
            change = np.maximum(change, moved)
            current[mode] = unit
            run.replace(mode, unit)
        values = np.asarray(to_host(lengths), dtype=np.float64)
        done = (change <= 10 * tol) | (values <= negligible)
        if done.all():
            break
    return tuple(current), values, done


def _values(xp: Any, points: Array, images: Array) -> Any:
    """R(u, ..., u) for every column, on the host in double precision."""
    product = to_host(xp.sum(points * images, axis=0))
    return np.array(product, dtype=np.float64)


def _squares(xp: Any, images: Array, points: Array, values: Any) -> Any:
    """The squared length of image minus value times point, per column."""
    rest = images - points * like(values, points)[None, :]
    return np.array(to_host(xp.sum(rest * rest, axis=0)), dtype=np.float64)


def _safe(xp: Any, lengths: Array) -> Array:
    return xp.where(lengths > 0, lengths, xp.ones_like(lengths))


def _placed(xp: Any, matrix: Array, columns: Any, values: Array) -> Array:
    """A matrix with some of its columns replaced; works where arrays cannot be written to."""
    width = int(matrix.shape[1])
    if len(columns) == width:
        return values
    order = np.arange(width)
    order[columns] = width + np.arange(len(columns))
    return xp.take(xp.concat([matrix, values], axis=1), like(order, matrix), axis=1)
