"""
Chemometrics: which substances are in the mixtures
==================================================

Mixtures of three fluorescent substances: the decomposition finds amounts and spectra, the certificate says whether they
are determined.
"""

import numpy as np

import latensor as lt


def peaks(x, centres, widths):
    return np.exp(-0.5 * ((x[:, None] - centres) / widths) ** 2)


emission, excitation = np.linspace(250, 450, 101), np.linspace(240, 300, 61)
amounts = np.array([[1, 0, 0], [0, 1, 0], [0, 0, 1], [0.6, 0.4, 0.5], [0.3, 0.3, 0.4]])
truth = lt.CPTensor(
    None,
    [
        amounts,
        peaks(emission, [355, 305, 285], [25, 18, 15]),
        peaks(excitation, [277, 274, 258], [14, 12, 10]),
    ],
)
tensor = truth.to_dense() + 0.02 * np.random.default_rng(0).standard_normal(truth.shape)
found = lt.decompose(tensor, "auto", nonnegative=True, random_state=0)
print(found.selection)
figure = lt.plots.components(
    found, labels=[None, emission, excitation], names=["mixture", "emission", "excitation"]
)
