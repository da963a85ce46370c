"""
More components than dimensions
===============================

A fourth moment in ten dimensions with twenty-five components: more than twice as many as a matrix could hold.
"""

import numpy as np
from matplotlib.figure import Figure

import latensor as lt

rng = np.random.default_rng(0)
vectors = rng.standard_normal((10, 25))
vectors /= np.linalg.norm(vectors, axis=0)
tensor = lt.CPTensor(None, (vectors,) * 4).to_dense()
found = lt.decompose(tensor, 25, symmetric=True, random_state=0)
print(found.method, f"residual {found.residual:.1e}")

figure = Figure(figsize=(4.6, 4), layout="constrained")
axis = figure.subplots()
image = axis.imshow(np.abs(vectors.T @ found.factors[0]), cmap="Blues", vmin=0, vmax=1)
axis.set_xlabel("component found")
axis.set_ylabel("true component")
figure.colorbar(image, label="absolute cosine")
