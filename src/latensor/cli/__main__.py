"""`python -m latensor.cli`, where the script is not on the path."""

from latensor.cli import main

main(prog_name="latensor")
