"""
How to read a certificate
=========================

The same question to two data sets. One determines its components, the other does not: the certificate tells them apart
without knowing the truth.
"""

import numpy as np

import latensor as lt

rng = np.random.default_rng(0)
apart = [rng.standard_normal((12, 3)) for _ in range(3)]
alike = [a.copy() for a in apart]
for factor in alike:
    factor[:, 2] = factor[:, 1] + 0.02 * rng.standard_normal(12)
results = []
for factors in (apart, alike):
    tensor = lt.CPTensor(None, factors).to_dense()
    noisy = tensor + 0.05 * tensor.std() * rng.standard_normal(tensor.shape)
    results.append(lt.decompose(noisy, 3, random_state=0))
    print(results[-1].certificate, "\n")

figure = results[0].plot()
