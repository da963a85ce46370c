"""Score functions of an input density: what turns moments with a response into derivatives."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from latensor.arrays import Array, is_array, is_numpy, like, resolve, to_host
from latensor.arrays.checks import refuse_nonfinite
from latensor.exceptions import InvalidInputError

# Numbers in the products of one block of rows: 32 MB.
_BLOCK_ENTRIES = 2**22


class Scores:
    """The score functions S_m(x) = (-1)^m grad^m p(x) / p(x) of a density p (monograph 4.6).

    For a response y with E[y | x] = f(x), E[y S_m(x)] = E[grad^m f(x)] (Stein's identity): the
    moment of a network with one hidden layer is sum_j lambda_j a_j^(x)m.

    Rows may be of NumPy, PyTorch or JAX; what comes back is of the same kind. A subclass gives
    `_projected`, and faster sums where it knows any.
    """

    @property
    def n_features(self) -> int | None:
        """The number d of features, None where any is taken."""
        raise NotImplementedError(f"{type(self).__name__} must say how many features it has")

    def _projected(self, rows: Array, order: int, basis: Array) -> Array:
        """S_m of rows (n, d) contracted with basis (d, r) in every mode: (n, r, .., r)."""
        raise NotImplementedError(f"{type(self).__name__} must give its score functions")

    def first(self, X: object) -> Array:
        """S_1 (n, d), the negative gradient of the log density."""
        return self._scores(X, 1)

    def second(self, X: object) -> Array:
        """S_2 (n, d, d)."""
        return self._scores(X, 2)

    def third(self, X: object) -> Array:
        """S_3 (n, d, d, d); n d^3 numbers: `contract` and `moment` need fewer."""
        return self._scores(X, 3)

    def contract(self, X: object, *vectors: object) -> Array:
        """S_2(u, .) of one vector or S_3(u, v, .) of two, each (n, d), without d^2 numbers per row.

        Parameters
        ----------
        X : (n, d)
        vectors : one or two of (d,)
        """
        given, rows = self._read(X)
        if len(vectors) not in (1, 2):
            raise InvalidInputError(f"give one or two vectors, not {len(vectors)}")
        known = [self._read_columns(v, rows, "a vector")[:, 0] for v in vectors]
        return _returned(self._contracted(rows, known), given)

    def moment(
        self,
        X: object,
        y: object,
        order: int,
        *,
        basis: object = None,
        sample_weight: object = None,
    ) -> Array:
        """The cross moment E[y S_m(x)] = E[grad^m f(x)], contracted with a basis in every mode.

        Parameters
        ----------
        X : (n, d)
        y : (n,), or (n, q) for q responses
        order : 1, 2 or 3
        basis : (d, r), the identity by default
        sample_weight : (n,) or None

        Returns
        -------
        (r, .., r) of y with one axis, else (r, .., r, q); rows are summed block by block
        """
        given, rows = self._read(X)
        if order not in (1, 2, 3):
            raise InvalidInputError(f"order={order!r} must be 1, 2 or 3")
        response = np.asarray(read_numbers(y, "y"), dtype=np.float64)
        if response.ndim not in (1, 2) or len(response) != len(rows):
            raise InvalidInputError(
                f"y has shape {response.shape}, but X {len(rows)} rows: give (n,) or (n, outputs)"
            )
        weights = (
            np.ones(len(rows)) if sample_weight is None else read_numbers(sample_weight, "weights")
        )
        if weights.shape != (len(rows),) or (weights < 0).any() or not weights.sum() > 0:
            raise InvalidInputError(
                f"sample_weight has shape {weights.shape}: give {len(rows)} numbers of at least 0"
            )
        columns = np.eye(rows.shape[1])
        if basis is not None:
            columns = self._read_columns(basis, rows, "basis")
        summed = self.summed(rows, _as_matrix(response) * weights[:, None], order, columns)
        found = summed / weights.sum()
        return _returned(found[..., 0] if response.ndim == 1 else found, given)

    def summed(self, rows: Array, response: Array, order: int, basis: Array) -> Array:
        """The sum over rows of S_m(basis, .., basis) y: (r, .., r, q) of host arrays.

        Parameters
        ----------
        rows : (n, d)
        response : (n, q)
        order : 1, 2 or 3
        basis : (d, r)
        """
        r = basis.shape[1]
        size = max(1, _BLOCK_ENTRIES // max(r**order, rows.shape[1]))
        total = np.zeros((r**order, response.shape[1]))
        for begin in range(0, len(rows), size):
            part = slice(begin, begin + size)
            found = self._projected(rows[part], order, basis)
            total += found.reshape(len(found), -1).T @ response[part]
        return total.reshape(*([r] * order), response.shape[1])

    # ------------------------------------------------------------------ inside
    def _contracted(self, rows: Array, vectors: list[Array]) -> Array:
        """S_(m + 1)(v_1, .., v_m, .) (n, d), by the projection on vectors and one unit vector."""
        d = rows.shape[1]
        columns = np.column_stack([*vectors, np.eye(d)])
        found = np.empty_like(rows)
        for i in range(d):
            chosen = columns[:, [*range(len(vectors)), len(vectors) + i]]
            place = tuple(range(len(vectors) + 1))
            found[:, i] = self._projected(rows, len(vectors) + 1, chosen)[(slice(None), *place)]
        return found

    def _scores(self, X: object, order: int) -> Array:
        given, rows = self._read(X)
        return _returned(self._projected(rows, order, np.eye(rows.shape[1])), given)

    def _read(self, X: object) -> tuple[Any, Any]:
        """Rows as the caller gave them, and on the host."""
        given = resolve(X=X)[1]["X"]
        if given.ndim != 2:
            raise InvalidInputError(f"X must be rows (n, d), got shape {tuple(given.shape)}")
        if self.n_features not in (None, given.shape[1]):
            raise InvalidInputError(
                f"X has {given.shape[1]} features, but the density has {self.n_features}"
            )
        refuse_nonfinite(given, "X")
        return given, np.asarray(to_host(given), dtype=np.float64)

    def _read_columns(self, columns: object, rows: Any, name: str) -> Any:
        found = _as_matrix(np.asarray(read_numbers(columns, name), dtype=np.float64))
        if found.shape[0] != rows.shape[1]:
            raise InvalidInputError(
                f"{name} has {found.shape[0]} entries, but X has {rows.shape[1]} features"
            )
        return found


def hermite(first: Array, precision: Array, order: int) -> Array:
    """Score functions of a Gaussian with first score a (n, r) and precision P (r, r).

    a, a (x) a - P, and a (x) a (x) a minus the three placements of a (x) P: Hermite polynomials.
    """
    if order == 1:
        return first
    pair = first[:, :, None] * first[:, None, :]
    if order == 2:
        return np.asarray(pair - precision)
    return np.asarray(pair[:, :, :, None] * first[:, None, None, :] - placed(first, precision))


def placed(vectors: Array, matrices: Array) -> Array:
    """The sum of the three placements (n, r, r, r) of a vector and a symmetric matrix."""
    product = (
        vectors[:, :, None, None]
        * np.broadcast_to(matrices, (len(vectors), *matrices.shape[-2:]))[:, None]
    )
    return np.asarray(product + product.transpose(0, 2, 1, 3) + product.transpose(0, 3, 2, 1))


def summed_hermite(first: Array, response: Array, order: int, precision: Array) -> Array:
    """The sum over rows of `hermite` times responses (n, q), without its n r^m numbers.

    Parameters
    ----------
    first : (n, r)
    response : (n, q)
    order : 1, 2 or 3
    precision : (r, r)
    """
    linear = first.T @ response
    if order == 1:
        return np.asarray(linear)
    r, q = linear.shape
    if order == 2:
        pairs = [(first * y[:, None]).T @ first - y.sum() * precision for y in response.T]
        return np.stack(pairs, axis=-1)
    found = np.empty((r, r, r, q))
    # Rows so few that their pairs stay in memory; a product of matrices each.
    size = max(1, _BLOCK_ENTRIES // (r * r))
    for k in range(q):
        cube = np.zeros((r, r * r))
        for begin in range(0, len(first), size):
            part = first[begin : begin + size]
            pairs = (part[:, :, None] * part[:, None, :]).reshape(len(part), r * r)
            cube += (part * response[begin : begin + size, k, None]).T @ pairs
        found[..., k] = cube.reshape(r, r, r) - placed(linear[None, :, k], precision)[0]
    return found


def _as_matrix(values: Any) -> Any:
    return values if values.ndim == 2 else values.reshape(len(values), math.prod(values.shape[1:]))


def read_numbers(values: object, name: str) -> Any:
    """Finite numbers of any library, on the host."""
    found = to_host(values) if is_array(values) else np.asarray(values)
    if found.dtype.kind not in "biuf":
        raise InvalidInputError(f"{name} must be numbers, got {found.dtype}")
    if not np.isfinite(found).all():
        raise InvalidInputError(f"{name} holds NaN or infinity: give finite numbers")
    return found


def _returned(values: Any, given: Array) -> Array:
    return values.astype(given.dtype, copy=False) if is_numpy(given) else like(values, given)
