"""Distances under one reversible rate matrix for the whole tree, where all pairs agree with it.

With P_ij = diag(p)^1/2 exp(-t_ij S) diag(p)^1/2 the standardized tables of all pairs share their
eigenvectors, and a pair has one parameter left, t_ij, where its log-determinant estimates a table
of k^2 - 1 entries. Rates of sites from a gamma distribution of shape a turn exp(-x) into
(1 + x / a)^-a.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from latensor.arrays import Array
from latensor.models.trees.affinity import Affinity, fitted_lengths
from latensor.models.trees.joining import balanced_interchange, spectral_neighbor_joining
from latensor.models.trees.sums import PairProbabilities

# Entries of the tables of all pairs up to which they are compared with a rate matrix: 64 MB.
_ENTRIES = 2**23
# Scoring ends where no distance moves by this fraction of its standard error.
_PRECISION = 0.1
_STEPS = 12
# Shapes of the gamma distribution that are compared, each half of the one before.
_SHAPES = (4.0, 2.0, 1.0, 0.5, 0.25)
_SHORTEST = 1e-4


@dataclass(frozen=True, eq=False)
class RateMatrix:
    """A reversible rate matrix diag(p)^-1/2 V diag(-rates) V' diag(p)^1/2.

    Attributes
    ----------
    frequencies : (k,) p
    vectors : (k, k) V, p^1/2 first
    rates : (k,), 0 first; of mean one
    shape : float, of the gamma distribution of rates over sites; infinite for equal rates
    used : (k,), the symbols that any leaf has
    """

    frequencies: Any
    vectors: Any
    rates: Any
    shape: float
    used: Any


@dataclass(frozen=True, eq=False)
class CommonRates:
    """A reversible rate matrix that all pairs of leaves share, and what distances under it need.

    Attributes
    ----------
    distances : (m,) of the pairs i < j, the maxima of their likelihoods
    information : (m,) expected, of all sites of a pair
    largest : (m,) distances at which the slowest eigenvalue is lost in noise
    scores : (m, d^2), derivatives of the distances by the entries of the tables
    deviance : float, mean over pairs, of their tables from those of the model
    shape : float, of the gamma distribution of rates over sites; infinite for equal rates
    matrix : RateMatrix, whose shape is the likeliest one, though distances may be of equal rates
    """

    distances: Any
    information: Any
    largest: Any
    scores: Any
    deviance: float
    shape: float
    matrix: RateMatrix

    def affinity(self, known: Affinity, pairs: PairProbabilities) -> Affinity:
        """The affinity of tables near those of the fit, by one step of scoring from its maxima."""
        n = len(known.values)
        i, j = np.triu_indices(n, 1)
        tables = pairs.tables[i, j].reshape(len(i), -1)
        step = np.einsum("me,me->m", self.scores, tables)
        distances, saturated, weights = np.zeros((n, n)), np.zeros((n, n), bool), np.zeros((n, n))
        found = np.clip(self.distances + step, _SHORTEST, self.largest)
        cut = found >= self.largest
        # Next to no weight: as little as a determinant in noise has.
        little = np.exp(-2 * known.order * self.largest)
        for matrix, values in (
            (distances, found),
            (saturated, cut),
            (weights, np.where(cut, little, 1.0) * self.information),
        ):
            matrix[i, j] = values
            matrix[j, i] = values
        return replace(
            known,
            # Joining needs determinants as they are, negative ones too; they are zero where a leaf
            # lacks a symbol.
            values=np.where(known.values == 0, np.exp(-known.order * distances), known.values),
            distances=distances,
            saturated=saturated,
            weights=weights,
            rates=self,
        )


def common_rates(pairs: PairProbabilities, known: Affinity) -> CommonRates | None:
    """The rate matrix of all pairs, or None where tables of their own describe them better.

    A rate matrix leaves a pair one parameter of k^2 - 1. It is taken where, on average over pairs,
    its deviance is below twice the k^2 - 2 parameters that it saves (Akaike's criterion): with
    enough sites only where it is true.

    Shapes of a gamma distribution of rates are compared by the deviance too. The best one is taken
    where equal rates give distances that are not additive: that leave, on their own tree, a mean
    square residual above their variance, and above the residual of the other's. Otherwise the
    distances of equal rates vary less.
    """
    if pairs.tables.size // 2 > _ENTRIES:
        return None
    frame = _Spectra.of(pairs)
    best = equal = frame.fitted(np.inf)
    # One parameter more for n / 2 disjoint pairs, by the same criterion.
    worth = 4 / len(pairs.tables)
    for shape in _SHAPES:
        found = frame.fitted(shape)
        if found.deviance >= best.deviance - worth:
            break
        best = found
    if best.deviance > 2 * (len(frame.used) ** 2 - 2):
        return None
    if best is equal:
        return equal
    residuals = [_residual(rates.affinity(known, pairs)) for rates in (equal, best)]
    if residuals[0] > max(1.0, residuals[1]):
        return best
    # The distances of equal rates vary less; a likelihood of whole sites has no such choice.
    return replace(equal, matrix=best.matrix)


def _residual(affinity: Affinity) -> float:
    """Mean square of what a tree leaves of the distances, in units of their variances."""
    tree = spectral_neighbor_joining(affinity.values)
    tree = balanced_interchange(tree, affinity.distances)
    tree = replace(tree, length=fitted_lengths(tree, affinity))
    i, j = np.triu_indices(tree.n_observed, 1)
    gaps = (affinity.distances - tree.distances()[: tree.n_observed, : tree.n_observed])[i, j]
    squares = affinity.weights[i, j] * gaps**2
    return float(squares[~affinity.saturated[i, j]].mean())


@dataclass(frozen=True, eq=False)
class _Spectra:
    """Tables of all pairs in the eigenvectors that they share.

    Attributes
    ----------
    tables : (m, k^2)
    totals : (m,), sites of each pair
    start : (m,), distances
    weights : (m,), large for near pairs
    values : (m, k - 1), of the tables along the eigenvectors other than the square root of p
    vectors : (k, k), the square root of p first
    products, constant : (k - 1, k^2), (k^2,), tables of the eigenvectors, and that of p
    used : symbols that any leaf has, k of them
    n_symbols : int
    """

    tables: Any
    totals: Any
    start: Any
    weights: Any
    values: Any
    vectors: Any
    products: Any
    constant: Any
    used: Any
    n_symbols: int

    @classmethod
    def of(cls, pairs: PairProbabilities) -> _Spectra:
        n = len(pairs.tables)
        i, j = np.triu_indices(n, 1)
        totals = pairs.totals[i, j]
        symbols = np.diag(pairs.totals) @ pairs.marginals
        used = np.flatnonzero(symbols > 0)
        tables = pairs.tables[i, j][:, used][:, :, used]
        frequencies, k = symbols[used] / symbols.sum(), len(used)
        root = np.sqrt(frequencies)
        standardized = (tables + tables.transpose(0, 2, 1)) / 2 / root[:, None] / root
        others = np.linalg.qr(np.column_stack([root, np.eye(k)[:, 1:]]))[0][:, 1:]
        # The mean of the other eigenvalues, which have rates of mean k / (k - 1).
        means = (np.trace(standardized, axis1=1, axis2=2) - 1) / (k - 1)
        least = 1 / np.sqrt(np.maximum(totals, 2.0))
        start = -np.log(np.clip(means, least, 1.0)) * (k - 1) / k
        # Near pairs are measured best: by the square of their eigenvalues.
        weights = totals * np.exp(-2 * start)
        mean = np.tensordot(weights, standardized, 1)
        vectors = others @ np.linalg.eigh(others.T @ mean @ others)[1]
        values = np.einsum("mac,ac->mc", standardized @ vectors, vectors)
        scaled = vectors * root[:, None]
        products = np.einsum("ac,bc->cab", scaled, scaled).reshape(k - 1, -1)
        constant = np.outer(frequencies, frequencies).ravel()
        flat, whole = tables.reshape(len(i), -1), np.column_stack([root, vectors])
        d = pairs.tables.shape[2]
        return cls(flat, totals, start, weights, values, whole, products, constant, used, d)

    def fitted(self, shape: float) -> CommonRates:
        """The likeliest distance of every pair, and rates, by scoring in turn."""
        size = np.sqrt(np.maximum(self.totals, 1.0))
        noise = 1 / np.maximum(size, np.sqrt(2))
        mean = self.weights @ self.values / self.weights.sum()
        rates = _normalized(_exponent(np.clip(mean, noise.min(), 1 - noise.min()), shape))
        at = np.maximum(self.start, _SHORTEST)
        for _ in range(_STEPS):
            largest = _exponent(noise, shape) / rates.min()
            at = np.minimum(at, largest)
            chances, slopes, by_rate = self._chances(at, rates, shape)
            information = (slopes**2 / chances).sum(axis=1)
            step = (self.tables * slopes / chances).sum(axis=1) / information
            moved = np.clip(at + np.clip(step, -at / 2, at), _SHORTEST, largest)
            change = (moved - at) * size * np.sqrt(information)
            at = moved
            if np.abs(change).max() < _PRECISION:
                break
            rates = self._next_rates(rates, chances, by_rate)
        chances, slopes, _ = self._chances(at, rates, shape)
        information = (slopes**2 / chances).sum(axis=1)
        with np.errstate(divide="ignore", invalid="ignore"):
            ratios = np.where(self.tables > 0, np.log(self.tables / chances), 0.0)
        deviance = 2 * float((self.totals * (self.tables * ratios).sum(axis=1)).mean())
        d = self.n_symbols
        scores = np.zeros((len(at), d, d))
        entries = (slopes / chances / information[:, None]).reshape(-1, *(len(self.used),) * 2)
        scores[:, self.used[:, None], self.used] = entries
        by_entry = scores.reshape(len(at), -1)
        frequencies = self.vectors[:, 0] ** 2
        all_rates = np.concatenate([[0.0], rates])
        matrix = RateMatrix(frequencies, self.vectors, all_rates, shape, self.used)
        information = information * self.totals
        return CommonRates(at, information, largest, by_entry, deviance, shape, matrix)

    def _next_rates(self, rates: Array, chances: Array, by_rate: Array) -> Array:
        """A step of scoring for the rates, the distances given."""
        residuals = self.totals[:, None] * self.tables / chances
        gradient = np.einsum("mc,mc->c", by_rate, residuals @ self.products.T)
        inverse = self.totals[:, None] / chances
        every = np.einsum("ce,de->ecd", self.products, self.products)
        pairs = np.tensordot(inverse, every, 1)
        gram = np.einsum("mc,mcd,md->cd", by_rate, pairs, by_rate)
        step = np.linalg.lstsq(gram, gradient, rcond=None)[0]
        return _normalized(rates + np.clip(step, -rates / 2, rates))

    def _chances(self, at: Array, rates: Array, shape: float) -> tuple[Array, Array, Array]:
        """Tables (m, k^2) of pairs at distances, their derivatives, and those of eigenvalues."""
        exponents = np.outer(at, rates)
        if np.isinf(shape):
            values = np.exp(-exponents)
            slopes = -values
        else:
            base = 1 + exponents / shape
            values = base**-shape
            slopes = -values / base
        # A table of a true rate matrix is positive: that of an estimated one may fall below zero.
        chances = np.maximum(self.constant + values @ self.products, np.finfo(float).eps)
        return chances, (slopes * rates) @ self.products, slopes * at[:, None]


def _normalized(rates: Array) -> Array:
    """Rates of mean one over all k eigenvalues, one of which is zero: as log-determinants have."""
    return np.asarray(rates * (len(rates) + 1) / rates.sum())


def _exponent(values: Array, shape: float) -> Array:
    """The x at which exp(-x), or (1 + x / shape)^-shape, has these values."""
    if np.isinf(shape):
        return np.asarray(-np.log(values))
    return np.asarray(shape * (values ** (-1 / shape) - 1))
