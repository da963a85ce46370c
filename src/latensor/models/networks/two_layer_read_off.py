"""A network's hidden units from moments of its outputs with score functions (monograph 4.5).

With unit directions b_j and standard Gaussian z, the moment of order m of
y = sum_j a_j f(s_j b_j'z + beta_j) is sum_j a_j c_m(s_j, beta_j) b_j^(x)m, where c_m is the Hermite
coefficient of f(s t + beta): orders 2 and 3 give the directions, orders 1 to 3 scales and biases.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy

from latensor.arrays import Array
from latensor.decomposition.decompose import decompose
from latensor.models.networks.activations import ACTIVATIONS
from latensor.models.networks.two_layer_family import NetworkState
from latensor.moments.sums import Grouped

# Scales and biases, in units of the scale, that are tried for every hidden unit.
_SCALES = (0.3, 0.6, 1.0, 1.7, 3.0, 6.0)
_BIASES = np.linspace(-2.5, 2.5, 21)
# A moment counts as seen above so many standard deviations of what noise alone would give.
DEVIATIONS = 3.0
# Logarithms of chances below this are too small for the tables of the normal distribution.
_FAR = -600.0
# No moment is fitted closer than this fraction of its largest entry: others would be forgotten.
_LEAST_NOISE = 1e-3


@dataclass(frozen=True)
class Replicates:
    """A moment of all samples, and of groups of them, whose noise is independent."""

    whole: Any
    parts: tuple[Any, ...]

    @classmethod
    def of(cls, grouped: Grouped) -> Replicates:
        """From sums in groups; those without a sample are left out."""
        groups = [g for g in grouped.groups if g.sums is not None]
        whole = groups[0]
        for group in groups[1:]:
            whole = whole.merge(group)
        return cls(whole.finalize(), tuple(group.finalize() for group in groups))

    def projected(self, basis: Array) -> Replicates:
        """In the coordinates of a basis (r, m), every mode but the outputs."""
        parts = tuple(_projected(part, basis) for part in self.parts)
        return Replicates(_projected(self.whole, basis), parts)

    def gram(self) -> Array:
        """(r, r) A A' of the unfolded signal: products of different groups have no noise on top."""
        flat = [part.reshape(len(part), -1) for part in self.parts]
        count, total = len(flat), np.sum(flat, axis=0)
        if count == 1:
            return np.asarray(total @ total.T)
        products = total @ total.T - sum(part @ part.T for part in flat)
        return np.asarray(products / (count * (count - 1)))

    def _squares(self) -> tuple[float, float]:
        """Squared norms: of the mean, times the number of groups; of what they differ by from it.

        The second is divided by its degrees of freedom, in units of those of the first.
        """
        mean, count = np.mean(self.parts, axis=0), len(self.parts)
        rest = sum(float(((part - mean) ** 2).sum()) for part in self.parts)
        return count * float((mean**2).sum()), rest / max(count - 1, 1)

    @property
    def noise(self) -> float:
        """The standard deviation of an entry of `whole`."""
        return math.sqrt(self._squares()[1] / (self.whole.size * len(self.parts)))

    @property
    def deviations(self) -> float:
        """How far the moment is from zero, as a z-score.

        Of pure noise the squares of the mean and around it have a ratio of Fisher's F:
        coordinates of score functions of one order that are orthonormal in symmetric tensors have
        one variance. Outputs may be copies of each other, and count as one.
        """
        signal, noise = self._squares()
        if len(self.parts) == 1 or signal <= 1e-20 * len(self.parts):
            return 0.0
        if noise <= 1e-24 * signal:
            return math.inf
        order, r, count = self.whole.ndim - 1, len(self.whole), len(self.parts)
        free = math.comb(r + order - 1, order)
        log_chance = float(scipy.stats.f.logsf(signal / noise, free, free * (count - 1)))
        # Far out, log P(Z > z) is -z^2 / 2.
        if log_chance < _FAR:
            return math.sqrt(-2 * max(log_chance, -1e6))
        return float(scipy.stats.norm.isf(math.exp(log_chance)))


def _projected(moment: Array, basis: Array) -> Array:
    if moment.ndim == 3:
        return np.einsum("abq,ai,bj->ijq", moment, basis, basis, optimize=True)
    return np.einsum("abcq,ai,bj,ck->ijkq", moment, basis, basis, basis, optimize=True)


@dataclass(frozen=True)
class Subspace:
    """Where the weights of the hidden units lie.

    Attributes
    ----------
    basis : (r, m), orthonormal
    spectrum : (r,) eigenvalues of the pooled second moments of the gradients, decreasing, as
        fractions of the largest
    n_seen : int, how many of them are above the noise, which is as often below zero as above
    """

    basis: Any
    spectrum: Any
    n_seen: int


def subspace(moments: list[Replicates], count: int) -> Subspace:
    """The leading directions (r, count) of moments of several orders, in units of their noise."""
    pooled = np.zeros((len(moments[0].whole),) * 2)
    for moment in moments:
        gram = moment.gram()
        values = np.linalg.eigvalsh(gram)
        scale = max(-float(values[0]), 1e-9 * float(np.abs(values).max()), 1e-300)
        pooled += gram / scale
    values, vectors = np.linalg.eigh(pooled)
    values, vectors = values[::-1], vectors[:, ::-1]
    edge = max(-float(values[-1]), 1e-9 * float(np.abs(values).max()))
    seen = int((values > edge).sum())
    largest = float(np.abs(values).max()) or 1.0
    return Subspace(np.ascontiguousarray(vectors[:, :count]), values / largest, seen)


def read_units(
    linear: Array,
    second: Replicates,
    third: Replicates,
    count: int,
    activation: str,
    noise: float,
    rng: np.random.Generator,
) -> NetworkState | None:
    """The network whose moments of orders 1 to 3 are closest to those given, in units of noise.

    Parameters
    ----------
    linear : (m, q), E[y z]
    second, third : Replicates of (m, m, q) and (m, m, m, q)
    count : int, hidden units, at most m
    activation : str
    noise : float, standard deviation of an entry of `linear`
    rng : draws starts of the decomposition

    Returns
    -------
    NetworkState in m coordinates with constant 0, or None where moments do not determine it
    """
    m, q = linear.shape
    level = [_level(linear, noise), _level(second.whole, second.noise)]
    level.append(_level(third.whole, third.noise))
    slices = [second.whole / level[1], third.whole.reshape(m, m, m * q) / level[2]]
    stacked = np.concatenate(slices, axis=2)
    if count == 1:
        _, vectors = np.linalg.eigh(np.einsum("abq,cbq->ac", stacked, stacked))
        directions = vectors[:, -1:]
    else:
        if not (third.deviations > DEVIATIONS or q > 1):
            return None
        found = decompose(stacked, count, random_state=rng)
        left, right = (np.asarray(f) for f in found.factors[:2])
        signs = np.sign((left * right).sum(axis=0))
        directions = left + right * np.where(signs == 0, 1.0, signs)
        directions = directions / np.maximum(np.linalg.norm(directions, axis=0), 1e-300)
    if not np.isfinite(directions).all() or np.linalg.matrix_rank(directions) < count:
        return None
    return _fitted(
        _placed(linear, second.whole, third.whole, directions, activation, level),
        (linear, second.whole, third.whole),
        activation,
        level,
    )


def _level(moment: Array, noise: float) -> float:
    return max(noise, _LEAST_NOISE * float(np.abs(moment).max()), 1e-300)


def _placed(
    linear: Array,
    second: Array,
    third: Array,
    directions: Array,
    activation: str,
    level: list[float],
) -> NetworkState:
    """Scales, biases and output weights of given directions, by the best of a grid."""
    m, k = directions.shape
    q = linear.shape[1]
    pairs = (directions[:, None] * directions[None]).reshape(-1, k)
    triples = (directions[:, None, None] * directions[None, :, None] * directions).reshape(-1, k)
    designs = ((directions, linear), (pairs, second), (triples, third))
    # (3, k, q): the weight of every unit in every moment, in units of noise.
    weights = np.stack(
        [
            np.linalg.lstsq(design, moment.reshape(-1, q), rcond=1e-8)[0] / one
            for (design, moment), one in zip(designs, level, strict=True)
        ]
    )
    kind = ACTIVATIONS[activation]
    scales = (1.0,) if kind.homogeneous else _SCALES
    grid = np.array([(s, s * b) for s in scales for b in _BIASES])
    known = kind.hermite(grid[:, 0], grid[:, 1], 3)[1:] / np.array(level)[:, None]
    sizes = np.maximum((known**2).sum(axis=0), 1e-300)
    hidden, bias = np.empty((k, m)), np.empty(k)
    output = np.empty((q, k))
    for j in range(k):
        best = -1.0
        for sign in (1.0, -1.0):
            turned = weights[:, j] * np.array([sign, 1.0, sign])[:, None]
            along = known.T @ turned
            explained = (along**2).sum(axis=1) / sizes
            place = int(np.argmax(explained))
            if explained[place] > best * (1 + 1e-9):
                best = float(explained[place])
                scale, bias[j] = grid[place]
                hidden[j] = sign * scale * directions[:, j]
                output[:, j] = along[place] / sizes[place]
    return NetworkState(hidden, bias, output, np.zeros(q))


def _fitted(
    start: NetworkState, moments: tuple[Array, Array, Array], activation: str, level: list[float]
) -> NetworkState:
    """Nonlinear least squares on all moments from a start; the start where that fails."""
    k, m = start.hidden.shape
    q = len(start.constant)
    kind = ACTIVATIONS[activation]

    def unpacked(vector: Array) -> tuple[Array, Array, Array]:
        hidden, bias, output = np.split(vector, [k * m, k * m + k])
        return hidden.reshape(k, m), bias, output.reshape(q, k)

    def powers(hidden: Array) -> tuple[Array, Array, Array]:
        pairs = np.einsum("ka,kb->kab", hidden, hidden)
        return hidden, pairs, np.einsum("kab,kc->kabc", pairs, hidden)

    def residuals(vector: Array) -> Array:
        hidden, bias, output = unpacked(vector)
        scale = np.linalg.norm(hidden, axis=1)
        means = kind.hermite(scale, bias, 3)
        parts = []
        for order, (power, moment) in enumerate(zip(powers(hidden), moments, strict=True), start=1):
            weights = output * (means[order] / scale**order)
            model = np.tensordot(power, weights, axes=(0, 1))
            parts.append(((model - moment) / level[order - 1]).ravel())
        return np.concatenate(parts)

    def jacobian(vector: Array) -> Array:
        hidden, bias, output = unpacked(vector)
        scale = np.linalg.norm(hidden, axis=1)
        c = kind.hermite(scale, bias, 5)
        identity = np.eye(m)
        found = []
        for order, power in enumerate(powers(hidden), start=1):
            height = c[order] / scale**order
            # d c_m / d beta = c_(m+1) / s and d c_m / d s = (c_(m+2) + m c_m) / s.
            by_bias = c[order + 1] / scale ** (order + 1)
            by_scale = c[order + 2] / scale ** (order + 1)
            turned = _derivative_of_power(hidden, identity, order)
            grown = power[..., None] * (by_scale / scale)[(slice(None), *([None] * (order + 1)))]
            grown = grown * hidden.reshape(k, *([1] * order), m)
            one = turned * height[(slice(None), *([None] * (order + 1)))] + grown
            size = m**order
            whole = np.zeros((size, q, k * m + k + q * k))
            flat = power.reshape(k, size)
            directions = np.einsum("ksi,qk->sqki", one.reshape(k, size, m), output)
            whole[..., : k * m] = directions.reshape(size, q, k * m)
            whole[..., k * m : k * m + k] = np.einsum("ks,qk->sqk", flat * by_bias[:, None], output)
            for o in range(q):
                begin = k * m + k + o * k
                whole[:, o, begin : begin + k] = (flat * height[:, None]).T
            found.append(whole.reshape(size * q, -1) / level[order - 1])
        return np.concatenate(found)

    vector = np.concatenate([start.hidden.ravel(), start.bias, start.output.ravel()])
    try:
        with np.errstate(all="ignore"):
            solved = scipy.optimize.least_squares(
                residuals, vector, jacobian, x_scale="jac", ftol=1e-15, xtol=1e-15, gtol=1e-15,
                max_nfev=100,
            )  # fmt: skip
    except ValueError:  # a step went where nothing is finite
        return start
    if not np.isfinite(solved.x).all() or solved.cost > 0.5 * float((residuals(vector) ** 2).sum()):
        return start
    hidden, bias, output = unpacked(solved.x)
    return NetworkState(hidden, bias, output, start.constant)


def _derivative_of_power(hidden: Array, identity: Array, order: int) -> Array:
    """(k, m, .., m, i), the derivative of hidden_j^(x)order by its entry i."""
    if order == 1:
        return np.broadcast_to(identity, (len(hidden), *identity.shape))
    if order == 2:
        one = np.einsum("ai,kb->kabi", identity, hidden)
        return np.asarray(one + one.transpose(0, 2, 1, 3))
    one = np.einsum("ai,kb,kc->kabci", identity, hidden, hidden)
    return np.asarray(one + one.transpose(0, 2, 1, 3, 4) + one.transpose(0, 3, 2, 1, 4))
