"""The command line: thin, and written over the public API only."""

from __future__ import annotations

from typing import Any

import click

import latensor
from latensor.cli.decompose import decompose
from latensor.cli.demo import demo
from latensor.cli.fit import fit
from latensor.cli.topics import topics

# What a shell reports for a program that Ctrl-C has ended.
_INTERRUPTED = 130


class _Commands(click.Group):
    """Commands that end quietly when they are interrupted."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            click.echo("Interrupted.", err=True)
            ctx.exit(_INTERRUPTED)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(latensor.__version__, prog_name="latensor")
def main() -> None:
    """Latent variable models from moment tensors, and decompositions of any tensor.

    Start with: latensor demo
    """


main.add_command(decompose)
main.add_command(demo)
main.add_command(fit)
main.add_command(topics)

__all__ = ["main"]
