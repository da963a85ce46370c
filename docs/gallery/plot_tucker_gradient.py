"""
Tucker by gradient descent
==========================

The monograph's section 5.5 fits a Tucker form by gradient descent. With orthonormal factors the best core is known, and
what is left to descend is a function of the factors alone; QR steps keep them orthonormal.
"""

import numpy as np
from matplotlib.figure import Figure

import latensor as lt

rng = np.random.default_rng(0)
truth = lt.TuckerTensor(
    rng.standard_normal((3, 3, 3)), tuple(rng.standard_normal((12, 3)) for _ in range(3))
)
tensor = truth.to_dense()
factors = [np.linalg.qr(rng.standard_normal((12, 3)))[0] for _ in range(3)]
losses = []
for _ in range(150):
    for mode in range(3):
        others = [None if m == mode else factors[m] for m in range(3)]
        projected = lt.unfold(lt.multilinear(tensor, *others), mode)
        gradient = projected @ (projected.T @ factors[mode])
        step = 4.0 / np.linalg.norm(projected, 2) ** 2
        factors[mode] = np.linalg.qr(factors[mode] + step * gradient)[0]
    core = lt.multilinear(tensor, *factors)
    losses.append(1 - (lt.frobenius_norm(core) / lt.frobenius_norm(tensor)) ** 2)

# %%
# `lt.tucker` needs no step size.
direct = lt.tucker(tensor, 3, random_state=0)
figure = Figure(figsize=(6, 3.4), layout="constrained")
axis = figure.subplots()
axis.semilogy(np.maximum(losses, 1e-16), label="gradient descent")
axis.axhline(max(direct.residual**2, 1e-16), color="0.5", linestyle="--", label="lt.tucker")
axis.set_xlabel("step")
axis.set_ylabel("squared residual")
axis.legend()
