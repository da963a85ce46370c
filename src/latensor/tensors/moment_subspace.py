"""A moment tensor on subspaces that hold most of it, from few products with the samples.

The unfolding of a sample moment T of order p is noisy: its noise has the norm of a d x d^(p-1)
matrix. The cross moments M_ab = sum_i w_i x_i^(a) x_i^(b)' of two views have the same range, for
every model in which views meet through the components alone, and noise of a d x d matrix. So
directions are looked for in both, and the tensor decides between them by their energy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from latensor.arrays import Array, like, to_host

if TYPE_CHECKING:
    from latensor.tensors.moment import MomentTensor

# At most so many of the directions of a mode come from the tensor itself, the others from the cross
# moments.
_FROM_TENSOR = 25
_PROBES = 64


@dataclass(frozen=True)
class Projection:
    """A tensor on subspaces, and an estimate of what they leave out.

    Attributes
    ----------
    bases : per mode orthonormal columns (d, width) on the host
    core : T(U_1, ..., U_p), on the host
    outside : float, |T - P T|^2 with P the projection on the subspaces: the mean of
        |(T - P T)(., g, h)|^2 over 64 Gaussian g, h, always the same ones. It has no bias; its
        standard error is about 0.25 / sqrt(d) of it for noise, and 0.25 / sqrt(k) for k
        components that are not in the subspaces
    """

    bases: tuple[Any, ...]
    core: Any
    outside: float

    @property
    def squared_norm(self) -> float:
        """|T|^2: what is inside is exact."""
        return float(np.vdot(self.core, self.core).real) + self.outside


def projected(moment: MomentTensor, widths: Sequence[int]) -> Projection:
    """A moment tensor on its leading subspaces, in four passes over the samples."""
    from latensor.tensors.moment import Contraction, Product

    rng = np.random.default_rng(0)
    bases = leading_subspaces(moment, widths, rng)
    native = tuple(like(u, moment.reference) for u in bases)
    probes = [rng.standard_normal((d, _PROBES)) for d in moment.shape]
    core, seen = moment.answers(
        Contraction(native), Product(tuple(like(g, moment.reference) for g in probes), 0)
    )
    core, seen = _wide(core), _wide(seen)
    turned = [u.conj().T @ g for u, g in zip(bases, probes, strict=True)]
    inside = core[..., None]
    for mode in range(moment.order - 1, 0, -1):
        inside = (inside * turned[mode]).sum(axis=mode)
    rest = seen - bases[0] @ inside
    return Projection(bases, core, float(np.vdot(rest, rest).real) / _PROBES)


def leading_subspaces(
    moment: MomentTensor, widths: Sequence[int], rng: np.random.Generator
) -> tuple[Any, ...]:
    """Orthonormal directions (d, width) of every mode, in three passes over the samples.

    The first pass sees M_ab through Gaussian columns and T through Gaussian pairs of columns; the
    other two are a power step of M_ab.
    """
    from latensor.tensors.moment import CrossProducts, Product

    first_modes, order, shape = moment.views_of_modes, moment.order, moment.shape
    modes = sorted(set(first_modes))
    whole = {m: np.eye(shape[m]) for m in modes if widths[m] >= shape[m]}
    if len(whole) == len(modes) or order == 1:
        return tuple(whole[first_modes[m]] for m in range(order))
    own = {m: min(widths[m] // 2, _FROM_TENSOR) for m in modes}
    count = {m: widths[m] - own[m] for m in modes}
    partners = {m: _partners(m, first_modes) for m in modes}

    def drawn(mode: int, width: int) -> Array:
        return like(rng.standard_normal((shape[mode], width)), moment.reference)

    def crossed(columns: dict[int, tuple[Array, ...]], *more: Any) -> list[Array]:
        return moment.answers(*(CrossProducts(m, partners[m], columns[m]) for m in modes), *more)

    probes = tuple(drawn(m, max(own.values())) for m in range(order))
    columns = {m: tuple(drawn(o, count[m]) for o in partners[m]) for m in modes}
    found = crossed(columns, *(Product(probes, m) for m in modes))
    sketches = dict(zip(modes, found[len(modes) :], strict=True))
    bases = {m: _leading(seen, count[m]) for m, seen in zip(modes, found, strict=False)}
    # M_ba U_a for every pair, and M_ab times an orthonormal basis of that.
    turned = {m: like(u, moment.reference) for m, u in bases.items()}
    there = moment.answers(
        *(CrossProducts(o, (m,), (turned[m],)) for m in modes for o in partners[m])
    )
    images = iter(there)
    columns = {
        m: tuple(like(np.linalg.qr(_wide(next(images)))[0], moment.reference) for _ in partners[m])
        for m in modes
    }
    for m, seen in zip(modes, crossed(columns), strict=True):
        joined = np.hstack([_leading(seen, count[m]), _wide(sketches[m])[:, : own[m]]])
        bases[m] = whole.get(m, np.linalg.qr(joined)[0])
    return tuple(bases[first_modes[m]] for m in range(order))


def _partners(mode: int, first_modes: tuple[int, ...]) -> tuple[int, ...]:
    """The other modes to pair a mode with, one for each of their views."""
    found: dict[int, int] = {}
    for other, view in enumerate(first_modes):
        if other != mode:
            found.setdefault(view, other)
    return tuple(sorted(found.values()))


def _leading(seen: Array, count: int) -> Any:
    """Leading left singular vectors of blocks of `count` columns, each block counting the same."""
    columns = _wide(seen)
    blocks = np.split(columns, columns.shape[1] // count, axis=1)
    joined = np.hstack([b / max(float(np.linalg.norm(b)), np.finfo(float).tiny) for b in blocks])
    return np.linalg.svd(joined, full_matrices=False)[0][:, :count]


def _wide(array: Array) -> Any:
    host = to_host(array)
    return host.astype(np.complex128 if host.dtype.kind == "c" else np.float64, copy=False)
