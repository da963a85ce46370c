"""`python -m latensor`, where the script is not on the path."""

from latensor.cli import __main__ as __main__
