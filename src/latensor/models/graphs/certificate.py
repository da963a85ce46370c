"""How far communities can be trusted: which start, how many edges, what is disconnected."""

from __future__ import annotations

import math
from dataclasses import dataclass

from latensor.diagnostics.findings import (
    BAD,
    CAUTION,
    GOOD,
    Findings,
    Statement,
    present,
    shown_spectrum,
)
from latensor.value_files import storable

# The gain of log-likelihood over a network without communities, in units of n log k: 24 networks
# without any, of 50 to 2,000 nodes, reached 0.3 to 1.15.
_GAIN, _CHANCE = 2.0, 1.2


@storable
@dataclass(frozen=True)
class CommunityCertificate(Findings):
    """How far communities of a network can be trusted; `print` it for plain words.

    Attributes
    ----------
    method : str, the start that was kept: "tensor", "spectral", "random walk" or "corners"
    is_small : bool, whether the graph was too small or too sparse for third moments
    n_nodes, n_components : int
    mean_degree : float
    isolated : int, nodes without edges
    pieces : int, connected components with edges
    condition : float, of the star moments; NaN where they were not used
    spectrum : singular values of the weakest of them, as fractions of the largest
    unseen : str, why the star moments do not show so many communities; empty where they do
    gain : float, of log-likelihood over a network without communities, over n log k
    mixed : float, the fraction of nodes whose largest membership is below 0.8
    converged : bool
    """

    method: str
    is_small: bool
    n_nodes: int
    n_components: int
    mean_degree: float
    isolated: int
    pieces: int
    condition: float
    gain: float
    mixed: float
    converged: bool
    spectrum: tuple[float, ...] = ()
    unseen: str = ""

    @property
    def headline(self) -> str:
        """What the certificate is about, in a few words."""
        many = "communities" if self.n_components > 1 else "community"
        return f"{self.n_components} {many} of {self.n_nodes:,} nodes, from a {self.method} start"

    @property
    def statements(self) -> tuple[Statement, ...]:
        """The findings, each with its topic, how good it is, and a sentence."""
        return present(
            _size(self), _conditioning(self), _likelihood(self), _pieces(self), _steps(self)
        )


def _size(found: CommunityCertificate) -> Statement:
    text = (
        f"{found.n_nodes:,} nodes with {found.mean_degree:.3g} edges each on average; "
        f"{100 * found.mixed:.3g} % of them belong to several communities."
    )
    if not found.is_small:
        return Statement("Size", GOOD, text)
    return Statement(
        "Size",
        CAUTION,
        text + " Too few nodes or edges for third moments: memberships come from eigenvectors and "
        "the likelihood.",
    )


def _conditioning(found: CommunityCertificate) -> Statement | None:
    if found.unseen:
        return Statement("Moments", CAUTION, found.unseen + ".")
    if math.isnan(found.condition):
        return None
    text = f"second moments of stars have a condition number of {found.condition:.3g}."
    limit = max(found.n_nodes, 1) ** 0.5
    if found.condition < limit:
        return Statement("Moments", GOOD, text)
    return Statement(
        "Moments",
        CAUTION,
        text + f" Some communities are hard to tell apart (spectrum "
        f"{shown_spectrum(found.spectrum)} of the largest).",
    )


def _likelihood(found: CommunityCertificate) -> Statement | None:
    if found.n_components == 1:
        return None
    text = (
        f"communities raise the log-likelihood by {found.gain:.3g} times what naming the community "
        "of every node costs."
    )
    if found.gain > _GAIN:
        return Statement("Likelihood", GOOD, text)
    chance = " Networks without communities reach 0.5 to 1.1."
    if found.gain > _CHANCE:
        return Statement("Likelihood", CAUTION, text + chance)
    return Statement("Likelihood", BAD, text + chance + " There may be none.")


def _pieces(found: CommunityCertificate) -> Statement | None:
    if not found.isolated and found.pieces <= 1:
        return None
    text = f"the network has {found.pieces} connected components"
    if found.isolated:
        text += f" and {found.isolated} nodes without edges, which are kept with the average"
        text += " membership"
    return Statement("Connection", CAUTION, text + ": edges say nothing across them.")


def _steps(found: CommunityCertificate) -> Statement | None:
    if found.converged:
        return None
    return Statement("Refinement", CAUTION, "memberships still moved when the refinement ended.")
