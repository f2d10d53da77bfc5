"""``flowlex telemetry agent``: run what the service assigns to a node."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flowlex.systems.telemetry.command_line.telemetry_options import (
    DEFAULT_SERVER,
    Authority,
    Server,
    TokenFile,
    client_for,
    log_to_stderr,
    pairs,
)

if TYPE_CHECKING:
    from flowlex.systems.telemetry.http_client import TelemetryClient


def agent(
    node: Annotated[str, typer.Option(help="Name of this node.")],
    server: Server = DEFAULT_SERVER,
    token_file: TokenFile = None,
    ca_file: Authority = None,
    journal: Annotated[Path | None, typer.Option(help="Buffer on disk; default flowlex-agent-NODE.db.")] = None,
    commands: Annotated[
        list[Path] | None, typer.Option(help="Folder of allowed executables, before the shipped ones; repeatable.")
    ] = None,
    shipped: Annotated[bool, typer.Option(help="Allow the shipped collectors and processors.")] = True,
    label: Annotated[list[str] | None, typer.Option(help="Label of the node, KEY=VALUE; repeatable.")] = None,
    environment: Annotated[
        list[str] | None, typer.Option("--env", help="Variable for the commands, KEY=VALUE; repeatable.")
    ] = None,
    heartbeat_s: Annotated[float, typer.Option(help="Seconds between heartbeats.", min=0.1)] = 5.0,
) -> None:
    """Run what the service assigns to this node, until interrupted.

    A token with an end is exchanged before it ends, and its file is rewritten; the file must hold that token only.
    """
    from flowlex.systems.telemetry.command_runner import SHIPPED, allowed_programs
    from flowlex.systems.telemetry.node_agent import Agent, AgentSettings

    log_to_stderr()
    with client_for("agent")(server, token_file, ca_file) as client:
        folders = [*(commands or []), *([SHIPPED] if shipped else [])]
        for folder in folders:
            if not folder.is_dir():
                raise ValueError(f"{folder} is no folder; --commands names a folder of executables")
        if not allowed_programs(folders):
            raise ValueError("no program is allowed; give --commands FOLDER or drop --no-shipped")
        settings = AgentSettings(
            folders=folders,
            labels=pairs(label),
            environment=pairs(environment),
            heartbeat_s=heartbeat_s,
            token_file=token_file if token_file and not token_file.read_text().startswith("{") else None,
        )
        _check_token(client, node)
        worker = Agent(node, client, journal or Path(f"flowlex-agent-{node}.db"), settings)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: worker.stop.set())
        worker.run()


def _check_token(client: TelemetryClient, node: str) -> None:
    """Refuse a token with more rights than an agent needs; an unreachable service is not checked."""
    from flowlex.systems.telemetry.http_client import Refused, Unreachable

    try:
        holder = client.whoami()
    except (Refused, Unreachable):
        return  # the agent reports this and tries again
    if holder.role != "agent":
        raise ValueError(
            f"this is a token of role {holder.role}; an agent needs its own: "
            f"flowlex telemetry token create --role agent --node {node}"
        )
    if holder.node not in (None, node):
        raise ValueError(f"this token is for node {holder.node}, not for {node}")
