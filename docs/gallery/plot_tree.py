"""
The tree behind sequences
=========================

Symbols at sixteen leaves; the tree that connects them, with the support of its edges.
"""

import latensor as lt

sample = lt.datasets.make_tree(1500, 16, random_state=0)
model = lt.LatentTree(random_state=0).fit(sample.X)
print("distance to the truth:", lt.robinson_foulds(model.tree_, sample.tree))
figure = model.plot()
