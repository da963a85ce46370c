"""Leading subspaces of the modes of a tensor: compression, cores, noise."""
