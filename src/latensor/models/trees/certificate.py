"""How far a latent tree can be trusted: support, saturation, conditioning of its edges."""

from __future__ import annotations

from dataclasses import dataclass

from latensor.diagnostics.findings import (
    BAD,
    CAUTION,
    GOOD,
    UNKNOWN,
    Findings,
    Said,
    counted,
    finding,
)
from latensor.value_files import storable

# Support from which on an edge counts as found: of those, 95 to 99 in 100 were right where it
# was measured.
SUPPORTED = 0.95
# ... and that the one inner edge of four leaves needs, which is the best of three: of 400 stars of
# four leaves 22 reach .95 and 4 reach .99; with five leaves none reaches .95 with both edges.
_SUPPORTED_ALONE = 0.99
# Models with a larger root mean square error of approximation are called poor (Browne and Cudeck
# 1993). Of 48 planted trees (also with t4 and exponential leaves) none of 500 rows or more reaches
# it unless all leaves have one heavy tail; of 8 pairs of crossing factors all do.
_POOR = 0.1
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
    misfit : float, root mean square error of approximation of the correlations of Gaussian leaves;
        NaN where it is not known
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
    misfit: float = float("nan")

    @property
    def headline(self) -> str:
        """What the certificate is about, in a few words."""
        hidden = counted(self.n_hidden, "hidden node")
        return (
            f"a tree over {counted(self.n_leaves, 'leaf', 'leaves')} with {hidden}, {self.method}"
        )

    @finding("Support")
    def _support(self) -> Said | None:
        if not self.n_inner_edges:
            text = "so few leaves have one tree only."
            if self.n_leaves > 3:
                text = "no inner edge is told from zero: all leaves hang on one node."
            return GOOD, text
        if self.n_supported < 0:
            return UNKNOWN, "the support of inner edges was not measured."
        text = (
            f"{self.n_supported} of {self.n_inner_edges} inner edges have a bootstrap support of "
            f"at least {SUPPORTED:g}; the weakest has {self.weakest_support:.2g}."
        )
        if self.n_inner_edges == 1 and SUPPORTED <= self.weakest_support < _SUPPORTED_ALONE:
            return CAUTION, (
                text + " Noise reaches that where all leaves hang on one node: the only inner edge "
                f"needs {_SUPPORTED_ALONE:g}."
            )
        if self.n_supported == self.n_inner_edges:
            return GOOD, text
        if 2 * self.n_supported >= self.n_inner_edges:
            return CAUTION, text + " The others may be arranged differently."
        return BAD, text + " Most of the tree is not determined."

    @finding("Distances")
    def _saturation(self) -> Said:
        text = f"{100 * self.saturated:.3g} % of the pairs of leaves are too far apart to measure."
        if self.n_leaves <= 3 and self.saturated > 0:
            return CAUTION, text + " Every edge of so few leaves needs all of them."
        if self.saturated < 0.5:
            return GOOD, text
        return CAUTION, text + " Lengths deep in the tree are uncertain."

    @finding("Parameters")
    def _edges(self) -> Said:
        text = (
            "the weakest edge has a smallest singular value (correlation) of "
            f"{self.smallest_singular:.2g}"
        )
        noise = _ERRORS / max(self.n_samples, 1.0) ** 0.5
        if self.smallest_singular > noise:
            return GOOD, text + ": every edge carries information."
        return (
            CAUTION,
            text + f", within the noise of {self.n_samples:,.0f} samples: its table is uncertain.",
        )

    @finding("Fit")
    def _fit(self) -> Said | None:
        if not self.misfit > _POOR:
            return None
        return CAUTION, (
            f"the correlations of the leaves are not those of a tree (root mean square error of "
            f"approximation {self.misfit:.2g}): support says how often this tree would be found "
            "again, not that there is one."
        )

    @finding("Zero edges")
    def _zero(self) -> Said | None:
        if not self.zero_edges:
            return None
        return CAUTION, (
            f"{self.zero_edges} inner edges have length zero: a node of higher degree explains the "
            "distances as well."
        )
