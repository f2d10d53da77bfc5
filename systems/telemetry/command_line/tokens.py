"""``flowlex telemetry token``: make, list, revoke and exchange tokens."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from flowlex.cli.options import with_options
from flowlex.systems.telemetry.command_line.telemetry_options import (
    DEFAULT_SERVER,
    Authority,
    Roles,
    Server,
    client_for,
    explained,
    stored,
)

token_app: typer.Typer = typer.Typer(
    name="token", help="Make, list and revoke tokens (in the database).", no_args_is_help=True
)


@token_app.command("create")
@with_options(store=stored)
def token_create(
    role: Annotated[Roles, typer.Option(help="What it may do.")],
    node: Annotated[str | None, typer.Option(help="The node that an agent's token is for.")] = None,
    any_node: Annotated[
        bool, typer.Option("--any-node", help="An agent's token for every node; its holder can write for any node.")
    ] = False,
    days: Annotated[float | None, typer.Option(help="Days until it ends; never if not given.", min=0)] = None,
    label: Annotated[str, typer.Option(help="Text that `token list` shows.")] = "",
    *,
    store: Any,
) -> None:
    """Make a token and print it, once."""
    from flowlex.systems.telemetry.tokens_and_rights import Role, new_token

    lasts_s = None if days is None else days * 86_400
    typer.echo(new_token(store, Role(role), node=node, any_node=any_node, label=label[:100], lasts_s=lasts_s))


@token_app.command("list")
@with_options(store=stored)
def token_list(store: Any) -> None:
    """List tokens by the first digits of their digest: role, node, end, label."""
    for row in store.registry.tokens():
        node = row.node or ("any node" if row.role == "agent" else "-")
        days = None if row.expires is None else (row.expires - time.time()) / 86_400
        left = "never ends" if days is None else f"{days:.1f} days left" if days > 0 else "has ended"
        typer.echo(f"{row.digest[:12]}  {row.role:<6}  {node}  {left}  {row.label}")


@token_app.command("revoke")
@with_options(store=stored)
def token_revoke(
    digest: Annotated[str, typer.Argument(help="First digits of the digest, at least 8.")], store: Any
) -> None:
    """Revoke a token; servers refuse it within two seconds."""
    if len(digest) < 8:
        raise ValueError("give at least 8 digits of the digest; `token list` shows 12")
    if not store.registry.remove_token(digest):
        raise ValueError(f"no token's digest starts with {digest}")
    typer.echo("Revoked")


@token_app.command("rotate")
def token_rotate(
    token_file: Annotated[Path, typer.Option(help="File with one token; its successor is written there.")],
    server: Server = DEFAULT_SERVER,
    ca_file: Authority = None,
) -> None:
    """Replace the token in a file by a new one of the service; the old one stays valid for ten minutes."""
    from flowlex.systems.telemetry.http_client import replace_token

    with explained():
        if token_file.read_text().lstrip().startswith("{"):
            raise ValueError(f"{token_file} holds several tokens; put the one to exchange in a file of its own")
        with client_for("agent")(server, token_file, ca_file) as client:
            replace_token(token_file, client.rotate().token)
        typer.echo(f"{token_file} holds the successor")
