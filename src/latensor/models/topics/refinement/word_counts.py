"""How much of its own expected count a word is judged without."""

from __future__ import annotations


def left_out_fraction(n_tokens: float, n_counts: int) -> float:
    """The part of its own fraction that a word's count is judged without, min(1, 2/3 V k / tokens).

    Where a count holds hardly a token, all of it, as in collapsed variational Bayes; where it
    holds many, little. Validation documents of AP (0.5 tokens a count) lose 5 % without, those of
    BBC (3 tokens) gain 1 %, and those of Reuters (0.6 tokens) are best at 0.7 to 1.

    Parameters
    ----------
    n_tokens : float
    n_counts : int, V k
    """
    return min(1.0, n_counts / max(1.5 * n_tokens, 1.0))
