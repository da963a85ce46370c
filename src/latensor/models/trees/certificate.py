"""How far a latent tree can be trusted: support, saturation, conditioning of its edges."""

from __future__ import annotations

from dataclasses import dataclass

from latensor.diagnostics.findings import (
    BAD,
    CAUTION,
    GOOD,
    UNKNOWN,
    Findings,
    Statement,
    present,
)
from latensor.value_files import storable

# Support from which on an edge counts as found: of those, 95 to 99 in 100 were right where it
# was measured.
_SUPPORTED = 0.95
# A joint table whose smallest singular value is below this many standard errors has none.
_ERRORS = 2.0


@storable
@dataclass(frozen=True)
class TreeCertificate(Findings):
    """How far a latent tree can be trusted; `print` it for plain words.

    Attributes
    ----------
    method : str, how tree and parameters were found
    n_leaves, n_hidden : int
    n_samples : float
    n_inner_edges : int, edges that part at least two leaves from at least two others
    n_supported : int, of these, those with a support of at least .95; -1 where not measured
    weakest_support : float, NaN where not measured
    saturated : float, the fraction of pairs of leaves whose distance is lost in noise
    smallest_singular : float, of all edges' joint tables in standardized form (correlations)
    zero_edges : int, inner edges of length zero
    """

    method: str
    n_leaves: int
    n_hidden: int
    n_samples: float
    n_inner_edges: int
    n_supported: int
    weakest_support: float
    saturated: float
    smallest_singular: float
    zero_edges: int

    @property
    def headline(self) -> str:
        """What the certificate is about, in a few words."""
        return (
            f"a tree over {self.n_leaves} leaves with {self.n_hidden} hidden nodes, {self.method}"
        )

    @property
    def statements(self) -> tuple[Statement, ...]:
        """The findings, each with its topic, how good it is, and a sentence."""
        return present(_support(self), _saturation(self), _edges(self), _zero(self))


def _support(found: TreeCertificate) -> Statement | None:
    if not found.n_inner_edges:
        text = "so few leaves have one tree only."
        if found.n_leaves > 3:
            text = "no inner edge is told from zero: all leaves hang on one node."
        return Statement("Support", GOOD, text)
    if found.n_supported < 0:
        return Statement("Support", UNKNOWN, "the support of inner edges was not measured.")
    text = (
        f"{found.n_supported} of {found.n_inner_edges} inner edges have a bootstrap support of at "
        f"least {_SUPPORTED:g}; the weakest has {found.weakest_support:.2g}."
    )
    if found.n_supported == found.n_inner_edges:
        return Statement("Support", GOOD, text)
    if 2 * found.n_supported >= found.n_inner_edges:
        return Statement("Support", CAUTION, text + " The others may be arranged differently.")
    return Statement("Support", BAD, text + " Most of the tree is not determined.")


def _saturation(found: TreeCertificate) -> Statement:
    text = f"{100 * found.saturated:.3g} % of the pairs of leaves are too far apart to measure."
    if found.saturated < 0.5:
        return Statement("Distances", GOOD, text)
    return Statement("Distances", CAUTION, text + " Lengths deep in the tree are uncertain.")


def _edges(found: TreeCertificate) -> Statement:
    text = (
        "the weakest edge has a smallest singular value (correlation) of "
        f"{found.smallest_singular:.2g}"
    )
    noise = _ERRORS / max(found.n_samples, 1.0) ** 0.5
    if found.smallest_singular > noise:
        return Statement("Parameters", GOOD, text + ": every edge carries information.")
    return Statement(
        "Parameters",
        CAUTION,
        text + f", within the noise of {found.n_samples:,.0f} samples: its table is uncertain.",
    )


def _zero(found: TreeCertificate) -> Statement | None:
    if not found.zero_edges:
        return None
    return Statement(
        "Zero edges",
        CAUTION,
        f"{found.zero_edges} inner edges have length zero: a node of higher degree explains the "
        "distances as well.",
    )
