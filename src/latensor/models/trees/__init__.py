"""Latent trees: structure and conditional distributions from the leaves.

`estimator` is what users meet, `model` what is folded. Sums over sites (`sums`) give affinities
(`affinity`), these a topology (`structure`, by `joining` and `collapse`), joint tables the
distributions along its edges (`read_off`); EM (`family`, or `gaussian`) refines them and may move
subtrees (`likelihood_moves`).
"""
