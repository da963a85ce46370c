"""
Communities whose members belong to several
===========================================

A network of four communities with mixed membership: found from the numbers of common neighbours of three nodes, and
drawn as the adjacency in the order of the communities.
"""

import latensor as lt

sample = lt.datasets.make_block_model(600, 4, random_state=0)
model = lt.MixedMembershipBlockModel(4, random_state=0).fit(sample.adjacency)
figure = model.plot(sample.adjacency)
