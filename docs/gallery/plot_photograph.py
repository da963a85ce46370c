"""
Compress a photograph
=====================

A photograph is a tensor of rows, columns and colours. Tucker keeps few directions of rows and columns.
"""

from sklearn.datasets import load_sample_image

import latensor as lt

photograph = load_sample_image("china.jpg")[::3, ::3].astype(float)
pictures = {"original": photograph}
for rank in (10, 40):
    found = lt.tucker(photograph, rank, modes=(0, 1), random_state=0)
    numbers = found.core.size + sum(f.size for f in found.factors if f is not None)
    pictures[f"rank {rank}: {100 * numbers / photograph.size:.0f} % of the numbers"] = (
        found.to_dense()
    )
figure = lt.plots.images(pictures)
