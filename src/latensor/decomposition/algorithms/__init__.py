"""The algorithms a caller may choose by name, one file each."""
