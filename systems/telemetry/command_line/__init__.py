"""``flowlex telemetry``: serve the node information service, run an agent, register, show.

Commands import the packages of the extra ``telemetry`` when they run, so that help works without them.
"""

from __future__ import annotations

import typer

from flowlex.systems.telemetry.command_line.agent import agent
from flowlex.systems.telemetry.command_line.server import migrate, serve
from flowlex.systems.telemetry.command_line.tokens import token_app
from flowlex.systems.telemetry.command_line.user_commands import list_, register, remove, show, unregister

app: typer.Typer = typer.Typer(name="telemetry", help="The node information service.", no_args_is_help=True)
app.add_typer(token_app)
for _command in (serve, migrate, agent, register, unregister, show, remove):
    app.command()(_command)
app.command("list")(list_)
