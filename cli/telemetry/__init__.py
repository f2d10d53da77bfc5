"""``flowlex telemetry``: serve the node information service, run an agent, register, show.

Needs the extra ``telemetry``. The parent command adds ``app`` as a sub-command only when it is called, so that the
extra stays optional.
"""

from __future__ import annotations

from importlib.util import find_spec

import typer

from flowlex.cli.telemetry.asking import list_, register, remove, show, unregister
from flowlex.cli.telemetry.demo import demo
from flowlex.cli.telemetry.nodes import agent
from flowlex.cli.telemetry.serving import migrate, serve
from flowlex.cli.telemetry.tokens import token_app

__all__ = ["app"]

# Commands import the extra when they run; without it the parent command says at once how to install it.
for _module in ("alembic", "fastapi", "httpx", "prometheus_client", "psutil", "sqlalchemy", "uvicorn"):
    if find_spec(_module) is None:
        raise ModuleNotFoundError(f"No module named {_module!r}", name=_module)

app: typer.Typer = typer.Typer(name="telemetry", help="The node information service.", no_args_is_help=True)
app.add_typer(token_app)
for _command in (serve, migrate, agent, register, unregister, show, remove, demo):
    app.command()(_command)
app.command("list")(list_)
