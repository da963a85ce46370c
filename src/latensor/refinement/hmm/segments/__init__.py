"""Rows of a range worked on side by side: the kernels of long sequences."""
