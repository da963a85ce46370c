"""`tensor_pca`: one direction, buried in noise, of a tensor (monograph 6.2 and beyond).

The spiked tensor is T = tau v^(x)p + sigma N, N of independent standard normal entries. A spike
below about sigma sqrt(d) cannot be told from noise, and from there to about sigma d^(p/4) no fast
method is known that finds it.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cached_property
from math import comb, prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from latensor.arrays import Array, RandomState, generator, is_complex, like, to_host
from latensor.arrays.checks import refuse_nonfinite
from latensor.arrays.guests import with_guests
from latensor.arrays.threads import one_blas_thread
from latensor.decomposition.setup import ONE_THREAD, as_tensor
from latensor.exceptions import InvalidInputError
from latensor.presentation import Presented
from latensor.tensors.algebra import symmetrize
from latensor.tensors.dense import DenseTensor
from latensor.value_files import DECOMPOSITION, storable, write_value

if TYPE_CHECKING:
    from latensor.diagnostics.robust_certificate import SpikeCertificate

_MAX_ITER, _CHANGE = 500, 1e-10
# Random starts beside the spectral ones, and the levels of the homotopy.
_RANDOM = 5
_LEVELS = 2.0 ** -np.arange(12.0)
# By how much 99 of 100 draws of pure noise stay below their limit plus this over the dimension (the
# sum of the dimensions, where the modes have vectors of their own). Simulated: what one percent
# exceeds is 4.6, 3.4, 2.0, 2.8, 1.2, 1.8 over d for order 3 and d = 3, 5, 8, 12, 20, 40, at most
# 3.3 for order 4, and less without symmetry.
_EDGE = 5.0


@storable
@dataclass(frozen=True, eq=False)
class TensorPCA(Presented):
    """The strongest direction of a noisy tensor, and whether there is one.

    Attributes
    ----------
    vectors : one (d,) unit vector per mode; one object for all modes where symmetric
    strength : float, T(u, ..., u) at these vectors, the estimate of tau
    noise : float, standard deviation of an entry of the noise
    signal_to_noise : float, strength over noise
    computational_limit : float, d^(p/4), d the geometric mean of the dimensions: from about three
        quarters of it on a spike is found
    statistical_limit : float, sqrt(d): a spike below it cannot be told from noise by any method
    noise_level : float, the signal-to-noise ratio that pure noise stays below in 99 of 100 draws
    detected : bool, whether `signal_to_noise` exceeds `noise_level`
    """

    vectors: tuple[Array, ...]
    strength: float
    noise: float
    signal_to_noise: float
    computational_limit: float
    statistical_limit: float
    noise_level: float

    @cached_property
    def certificate(self) -> SpikeCertificate:
        """Whether the direction is more than noise, worked out when it is first read."""
        from latensor.diagnostics.robust_certificate import certify_spike

        return certify_spike(self)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write it into a file that `lt.load` reads, without pickle.

        Parameters
        ----------
        path : file to write; an interrupted run leaves the old one or none
        """
        return write_value(path, self, DECOMPOSITION)

    @property
    def detected(self) -> bool:
        """Whether pure noise gives such a direction in less than one of a hundred draws."""
        return self.signal_to_noise > self.noise_level

    @property
    def vector(self) -> Array:
        """The vector that all modes share."""
        if any(one is not self.vectors[0] for one in self.vectors):
            raise InvalidInputError("the modes have vectors of their own: read `vectors`")
        return self.vectors[0]

    def __repr__(self) -> str:
        return (
            f"TensorPCA(signal to noise {self.signal_to_noise:.3g}, limits "
            f"{self.statistical_limit:.3g} and {self.computational_limit:.3g}, "
            f"{'detected' if self.detected else 'not detected'})"
        )


@with_guests
def tensor_pca(
    tensor: object, *, symmetric: bool = True, random_state: RandomState = 0
) -> TensorPCA:
    """The direction v of a spike tau v^(x)p in a tensor of noise, and whether it is more than that.

    Candidates come from the partial trace, the trace vector, the unfolding, a homotopy (the power
    iteration on an objective that is smoothed less and less) and random vectors; each is refined by
    power iteration over the average of all modes, and the largest T(u, ..., u) wins.

    Parameters
    ----------
    tensor : real array of any library, order 3 or more; all dimensions equal where `symmetric`.
        The noise need not be symmetric: then every mode adds to what is seen of the spike
    symmetric : bool, whether all modes share the vector; False for tau a (x) b (x) c
    random_state : int, Generator or None, for the random candidates

    Returns
    -------
    TensorPCA

    Examples
    --------
    >>> import numpy as np, latensor as lt
    >>> rng = np.random.default_rng(0)
    >>> v = np.ones(50) / np.sqrt(50)
    >>> noise = rng.standard_normal((50, 50, 50))
    >>> found = lt.tensor_pca(25 * lt.outer(v, v, v) + noise)
    >>> bool(abs(found.vector @ v) > 0.95), found.detected, lt.tensor_pca(noise).detected
    (True, True, False)
    """
    data = as_tensor(tensor)
    if not isinstance(data, DenseTensor):
        if not hasattr(data, "to_dense"):
            raise InvalidInputError(
                f"tensor is a {type(data).__name__}, whose entries cannot be formed: give an array"
            )
        data = DenseTensor(data.to_dense())
    shape = tuple(int(d) for d in data.shape)
    if len(shape) < 3:
        raise InvalidInputError(
            f"tensor has order {len(shape)} (shape {shape}), but tensor_pca needs order 3 or more: "
            "use lt.truncated_svd for a matrix"
        )
    if is_complex(data.reference):
        raise InvalidInputError("tensor is complex, but tensor_pca needs real entries")
    if symmetric and len(set(shape)) > 1:
        raise InvalidInputError(
            f"tensor has shape {shape}: modes that share a vector have one dimension; give "
            "symmetric=False"
        )
    host = np.asarray(to_host(data.array))
    refuse_nonfinite(host, "tensor")
    largest = float(np.abs(host).max())
    if largest == 0.0:
        raise InvalidInputError("tensor is zero: there is no direction to find")
    exponent = int(np.frexp(largest)[1])
    values = np.ldexp(host.astype(np.float64), -exponent)
    rng = generator(random_state)
    with one_blas_thread(values.size <= ONE_THREAD):
        vectors, value, noise = (_symmetric if symmetric else _asymmetric)(values, rng)
    order, dimension = len(shape), float(np.exp(np.mean(np.log(shape))))
    width = shape[0] if symmetric else sum(shape)
    level = ground_state_energy(order) + _EDGE / width
    arrays = tuple({id(v): like(v, data.reference) for v in vectors}[id(v)] for v in vectors)
    if symmetric:
        arrays = (arrays[0],) * order
    return TensorPCA(
        arrays,
        float(np.ldexp(value, exponent)),
        float(np.ldexp(noise, exponent)),
        value / noise if noise > 0 else float("inf"),
        dimension ** (order / 4),
        float(np.sqrt(dimension)),
        level * float(np.sqrt(width)),
    )


def ground_state_energy(order: int) -> float:
    """The limit of max_u N(u, ..., u) / sqrt(d) over unit vectors, N of standard normal entries.

    The zero of the complexity of the spherical p-spin model (Auffinger, Ben Arous and Cerny 2013);
    1.657 for order 3.
    """
    edge = 2.0 * np.sqrt((order - 1) / order)

    def complexity(energy: float) -> float:
        root = np.sqrt(max(energy**2 - edge**2, 0.0))
        rate = energy / edge**2 * root - np.log(energy + root) + np.log(edge)
        return float(0.5 * np.log(order - 1) - (order - 2) / (4.0 * (order - 1)) * energy**2 - rate)

    low, high = float(edge), float(edge) + float(np.sqrt(2.0 * np.log(order)))
    while high - low > 1e-12:
        middle = (low + high) / 2
        low, high = (middle, high) if complexity(middle) > 0 else (low, middle)
    return low


def _symmetric(values: Any, rng: np.random.Generator) -> tuple[tuple[Any, ...], float, float]:
    order, dimension = values.ndim, values.shape[0]
    tensor = np.ascontiguousarray(symmetrize(values))
    unfolding = tensor.reshape(dimension, -1)
    starts = np.stack([*_spectral_starts(tensor), *_units(rng, _RANDOM, dimension)], axis=1)
    points = starts / np.linalg.norm(starts, axis=0)
    points = np.concatenate([points, _homotopy(tensor, points)], axis=1)
    for _ in range(_MAX_ITER):
        images = _images(unfolding, points, order)
        weights = np.einsum("ij,ij->j", images, points)
        lengths = np.linalg.norm(images, axis=0)
        # At even order a negative spike is followed with its sign.
        signs = np.where((weights < 0) & (order % 2 == 0), -1.0, 1.0)
        moved = signs * images / np.where(lengths > 0, lengths, 1.0)
        change = float(np.abs(moved - points).max())
        points = moved
        if change < _CHANGE:
            break
    weights = np.einsum("ij,ij->j", _images(unfolding, points, order), points)
    best = int(np.argmax(np.abs(weights)))
    vector, value = points[:, best], float(weights[best])
    if order % 2 == 0:
        vector = vector * (1.0 if vector[np.argmax(np.abs(vector))] > 0 else -1.0)
    elif value < 0:
        vector, value = -vector, -value
    # Noise of variance sigma^2 in all entries has sigma^2 in each direction of Sym^p.
    left = max(float(np.vdot(tensor, tensor)) - value**2, 0.0)
    freedom = max(comb(dimension + order - 1, order) - dimension, 1)
    return (vector,) * order, abs(value), _noise(left, freedom, values)


def _noise(left: float, freedom: int, values: Any) -> float:
    """The standard deviation of the noise; zero where only rounding is left."""
    rounding = 1e-14 * float(np.vdot(values, values))
    return float(np.sqrt(left / freedom)) if left > rounding else 0.0


def _units(rng: np.random.Generator, count: int, dimension: int) -> list[Any]:
    return list(rng.standard_normal((count, dimension)))


def _images(unfolding: Any, points: Any, order: int) -> Any:
    """T(I, u, ..., u) for all columns u, from the unfolding (d, d^(p-1)) of a symmetric tensor."""
    dimension, count = points.shape
    image = unfolding.reshape(-1, dimension) @ points
    for _ in range(order - 2):
        image = np.einsum("aij,ij->aj", image.reshape(-1, dimension, count), points)
    return image


def _traced(tensor: Any, times: int) -> Any:
    for _ in range(times):
        tensor = np.trace(tensor, axis1=tensor.ndim - 2, axis2=tensor.ndim - 1)
    return tensor


def _spectral_starts(tensor: Any) -> list[Any]:
    """Partial trace, trace vector (odd orders) and unfolding of a symmetric tensor."""
    order, dimension = tensor.ndim, tensor.shape[0]
    starts = []
    if order % 2:
        trace = _traced(tensor, (order - 1) // 2)
        third = _traced(tensor, (order - 3) // 2)
        starts.append(trace)
        # Slices weighted by their traces: noise adds up as in d entries, the spike as in one.
        matrix = np.tensordot(trace, third, axes=(0, 0))
    else:
        matrix = _traced(tensor, (order - 2) // 2)
    starts.append(_leading(matrix))
    unfolding = tensor.reshape(dimension, -1)
    starts.append(np.linalg.eigh(unfolding @ unfolding.T)[1][:, -1])
    if order == 4:
        square = tensor.reshape(dimension**2, dimension**2)
        if dimension <= 40:
            starts.append(_leading(_leading(square).reshape(dimension, dimension)))
    return starts


def _leading(matrix: Any) -> Any:
    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2)
    return vectors[:, np.argmax(np.abs(values))]


def _homotopy(tensor: Any, points: Any) -> Any:
    """End points of power iterations on E T(u + t z, ..., u + t z), z normal, t decreasing to zero.

    Up to the first order in t^2 its gradient is T(I, u, ..., u) + c t^2 tr(T)(I, u, ..., u) with
    c = (p - 1)(p - 2) / 2 and the partial trace tr(T) of order p - 2.
    """
    order, dimension = tensor.ndim, tensor.shape[0]
    unfolding = tensor.reshape(dimension, -1)
    traced = _traced(tensor, 1)
    factor = (order - 1) * (order - 2) / 2
    current = points
    for level in _LEVELS:
        smooth = (
            np.repeat(traced[:, None], points.shape[1], axis=1)
            if order == 3
            else _images(traced.reshape(dimension, -1), current, order - 2)
        )
        moved = _images(unfolding, current, order) + factor * level * smooth
        lengths = np.linalg.norm(moved, axis=0)
        current = moved / np.where(lengths > 0, lengths, 1.0)
    return current[:, :3]


def _asymmetric(values: Any, rng: np.random.Generator) -> tuple[tuple[Any, ...], float, float]:
    """The best rank-one term a (x) b (x) c by alternating power steps from several starts."""
    shape = values.shape
    starts: list[list[Any]] = []
    leading = [_left(values, mode) for mode in range(values.ndim)]
    starts.append(leading)
    for mode in range(values.ndim):
        rest = np.tensordot(leading[mode], values, axes=(0, mode))
        others = [_left(rest, k) for k in range(rest.ndim)]
        starts.append([*others[:mode], leading[mode], *others[mode:]])
    starts += [[x / np.linalg.norm(x) for x in map(rng.standard_normal, shape)] for _ in range(5)]
    best: list[Any] = []
    value = -1.0
    for start in starts:
        vectors, weight = _alternated(values, start)
        if weight > value:
            best, value = vectors, weight
    left = max(float(np.vdot(values, values)) - value**2, 0.0)
    freedom = max(prod(shape) - sum(shape), 1)
    signs = [1.0 if v[np.argmax(np.abs(v))] > 0 else -1.0 for v in best]
    vectors = [s * v for s, v in zip(signs, best, strict=True)]
    vectors[0] = vectors[0] * prod(signs)
    return tuple(vectors), value, _noise(left, freedom, values)


def _left(tensor: Any, mode: int) -> Any:
    """The leading left singular vector of an unfolding."""
    if tensor.ndim == 1:
        return tensor / max(float(np.linalg.norm(tensor)), 1e-300)
    matrix = np.moveaxis(tensor, mode, 0).reshape(tensor.shape[mode], -1)
    if matrix.shape[0] > matrix.shape[1]:
        return np.linalg.svd(matrix, full_matrices=False)[0][:, 0]
    return np.linalg.eigh(matrix @ matrix.T)[1][:, -1]


def _alternated(values: Any, vectors: list[Any]) -> tuple[list[Any], float]:
    vectors, before, weight = list(vectors), -1.0, 0.0
    for _ in range(_MAX_ITER):
        for mode in range(values.ndim):
            image = values
            for k in reversed(range(values.ndim)):
                if k != mode:
                    image = np.tensordot(image, vectors[k], axes=(k, 0))
            weight = float(np.linalg.norm(image))
            vectors[mode] = image / weight if weight > 0 else vectors[mode]
        if weight - before <= _CHANGE * weight:
            break
        before = weight
    return vectors, weight
