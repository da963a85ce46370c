"""Matrices that share one factor while another one evolves: the form of PARAFAC2."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from latensor.arrays import Array, Namespace, describe, is_complex, like, matmul, resolve, to_host
from latensor.arrays.guests import holds_guests
from latensor.exceptions import InvalidInputError
from latensor.value_files import storable


@storable
@holds_guests
@dataclass(frozen=True, eq=False, repr=False)
class Parafac2Tensor:
    """Slices X_i = P_i B diag(w * a_i) C' with orthonormal P_i, which may differ in rows.

    The factor of the rows, B_i = P_i B, changes from slice to slice, but its cross product
    B_i' B_i = B' B does not: that makes the components unique (Harshman 1972; Kiers, ten Berge
    and Bro 1999).

    Parameters
    ----------
    weights : (rank,) array, or None for ones
    factors : three matrices A (n_slices, rank) with the rows a_i, B (rank, rank), C (columns, rank)
    projections : one (rows_i, rank) matrix P_i per slice, with orthonormal columns

    Unpacks like TensorLy's triple: `weights, (A, B, C), projections = tensor`.

    Examples
    --------
    >>> import latensor as lt
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> slices = [rng.random((n, 4)) for n in (5, 6, 7)]
    >>> tensor = lt.parafac2(slices, 2, random_state=0).tensor
    >>> [part.shape for part in tensor.slices()]
    [(5, 4), (6, 4), (7, 4)]
    """

    weights: Array
    factors: tuple[Array, Array, Array]
    projections: tuple[Array, ...]

    def __post_init__(self) -> None:
        if not isinstance(self.factors, list | tuple) or len(self.factors) != 3:
            raise InvalidInputError("factors must be three matrices A, B, C")
        if not isinstance(self.projections, list | tuple) or not self.projections:
            raise InvalidInputError("projections must be a sequence of one matrix per slice")
        named = {f"factors[{m}]": factor for m, factor in enumerate(self.factors)}
        named |= {f"projections[{i}]": matrix for i, matrix in enumerate(self.projections)}
        for name, matrix in named.items():
            if matrix is None:
                raise InvalidInputError(f"{name} is None: a matrix is needed")
        xp, arrays = resolve(weights=self.weights, **named)
        if is_complex(arrays["factors[0]"]):
            raise InvalidInputError("factors are complex: PARAFAC2 is defined here for real slices")
        for name in named:
            if arrays[name].ndim != 2 or 0 in arrays[name].shape:
                raise InvalidInputError(
                    f"{name} must be a matrix with rows and columns, got {describe(arrays[name])}"
                )
        first, second, third = (arrays[f"factors[{m}]"] for m in range(3))
        rank = int(first.shape[1])
        projections = tuple(arrays[f"projections[{i}]"] for i in range(len(self.projections)))
        expected = {"factors[0]": (len(projections), rank), "factors[1]": (rank, rank)}
        expected["factors[2]"] = (int(third.shape[0]), rank)
        expected |= {
            f"projections[{i}]": (int(p.shape[0]), rank) for i, p in enumerate(projections)
        }
        for name, shape in expected.items():
            if tuple(arrays[name].shape) != shape:
                raise InvalidInputError(
                    f"{name} must have shape {shape} beside {len(projections)} projections and "
                    f"{rank} columns of factors[0], got {describe(arrays[name])}"
                )
        weights = arrays["weights"]
        if weights is None:
            weights = xp.ones_like(first[0, :])
        if tuple(weights.shape) != (rank,):
            raise InvalidInputError(f"weights must have shape ({rank},), got {describe(weights)}")
        object.__setattr__(self, "weights", weights)
        object.__setattr__(self, "factors", (first, second, third))
        object.__setattr__(self, "projections", projections)

    def __iter__(self) -> Iterator[Any]:
        return iter((self.weights, self.factors, self.projections))

    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> Any:
        return (self.weights, self.factors, self.projections)[index]

    def __repr__(self) -> str:
        rows = sorted({rows for rows, _ in self.shapes})
        height = str(rows[0]) if len(rows) == 1 else f"{rows[0]}-{rows[-1]}"
        kind = describe(self.weights).split(", shape")[0]
        return (
            f"Parafac2Tensor({len(self.projections)} slices of {height} x {self.shapes[0][1]}, "
            f"rank {self.rank}, {kind})"
        )

    @property
    def rank(self) -> int:
        """The number of components."""
        return int(self.weights.shape[0])

    @property
    def shapes(self) -> tuple[tuple[int, int], ...]:
        """Rows and columns of every slice."""
        columns = int(self.factors[2].shape[0])
        return tuple((int(p.shape[0]), columns) for p in self.projections)

    @property
    def reference(self) -> Array:
        """The weights: their library, device and dtype are the tensor's."""
        return self.weights

    @property
    def _namespace(self) -> Namespace:
        return resolve(weights=self.weights)[0]

    def evolving_factors(self) -> tuple[Array, ...]:
        """The factor B_i = P_i B (rows_i, rank) of the rows of every slice."""
        xp = self._namespace
        return tuple(matmul(xp, projection, self.factors[1]) for projection in self.projections)

    def slices(self) -> list[Array]:
        """The slices X_i = B_i diag(w * a_i) C', with all their entries."""
        xp = self._namespace
        loadings, _, columns = self.factors
        turned = xp.permute_dims(columns, (1, 0))
        return [
            matmul(xp, factor * (self.weights * loadings[i, :])[None, :], turned)
            for i, factor in enumerate(self.evolving_factors())
        ]

    def to_dense(self) -> Array:
        """The (n_slices, rows, columns) array of the slices, where all have equally many rows."""
        if len({rows for rows, _ in self.shapes}) > 1:
            raise InvalidInputError(
                f"the slices have {sorted({rows for rows, _ in self.shapes})} rows and make no "
                "array: use slices()"
            )
        return self._namespace.stack(self.slices())

    def canonical(self) -> Parafac2Tensor:
        """The same slices in the one form that two runs can compare.

        Columns of unit length and positive weights in decreasing order. B is the symmetric square
        root of the cross product B_i' B_i; the largest entry of
        every column of C is positive, and slices and components are turned so that A is positive
        where signs allow it.
        """
        import numpy as np

        loadings, middle, columns = (np.asarray(to_host(f), dtype=np.float64) for f in self.factors)
        scale = np.asarray(to_host(self.weights), dtype=np.float64)
        parts = []
        for factor in (loadings, middle, columns):
            lengths = np.linalg.norm(factor, axis=0)
            safe = np.where(lengths > 0, lengths, 1.0)
            scale = scale * lengths
            parts.append(factor / safe)
        loadings, middle, columns = parts
        order = np.argsort(-np.abs(scale), kind="stable")
        scale = scale[order]
        loadings, middle, columns = (part[:, order] for part in parts)
        sign = np.where(scale < 0, -1.0, 1.0)
        rows = np.abs(columns).argmax(axis=0)
        turn = np.where(columns[rows, np.arange(len(scale))] < 0, -1.0, 1.0)
        columns, loadings = columns * turn, loadings * sign * turn
        flips, signs = _signs(loadings * np.abs(scale))
        loadings, middle = loadings * flips[:, None] * signs, middle * signs
        # Any rotation Q of B into the projections leaves the slices alone: B = Q S with S >= 0.
        left, values, right = np.linalg.svd(middle)
        rotation, root = left @ right, (right.T * values) @ right
        projections = tuple(
            like(np.asarray(to_host(p), dtype=np.float64) @ rotation * flip, self.weights)
            for p, flip in zip(self.projections, flips, strict=True)
        )
        factors = tuple(like(f, self.weights) for f in (loadings, root, columns))
        return Parafac2Tensor(like(np.abs(scale), self.weights), factors, projections)

    def to_tensorly(self) -> Any:
        """The same slices as `tensorly.parafac2_tensor.Parafac2Tensor` (imports TensorLy)."""
        from tensorly.parafac2_tensor import Parafac2Tensor as TensorlyParafac2Tensor

        return TensorlyParafac2Tensor((self.weights, list(self.factors), list(self.projections)))


def _signs(loadings: Any) -> tuple[Any, Any]:
    """Signs of slices and of components that make the (n_slices, rank) loadings most positive."""
    import numpy as np

    components = np.where(loadings.sum(axis=0) < 0, -1.0, 1.0)
    slices = np.ones(loadings.shape[0])
    for _ in range(loadings.shape[0] + loadings.shape[1]):
        before = (slices * (loadings @ components)).sum()
        slices = np.where(loadings @ components < 0, -1.0, 1.0)
        components = np.where(slices @ loadings < 0, -1.0, 1.0)
        if (slices * (loadings @ components)).sum() <= before:
            break
    return slices, components
