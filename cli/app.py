"""The command ``flowlex``; its commands are in `flowlex.cli.command_group`, each imported when it is called."""

from __future__ import annotations

from typing import Annotated

import typer

from flowlex.cli.command_group import FlowlexGroup
from flowlex.cli.versions import print_versions

app: typer.Typer = typer.Typer(
    name="flowlex",
    cls=FlowlexGroup,
    help="Cluster-scheduling problems as linear and integer programs: from an instance file to a proven optimum.",
    no_args_is_help=True,
    rich_markup_mode=None,  # plain help is a third faster and readable at any width
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            help="Print versions of flowlex, Python and solvers.",
            callback=print_versions,
            is_eager=True,
        ),
    ] = False,
) -> None:
    pass
