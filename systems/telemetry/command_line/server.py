"""``flowlex telemetry serve`` and ``migrate``."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import socket
import sys
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from flowlex.cli.options import with_options
from flowlex.systems.telemetry.command_line.telemetry_options import (
    DEFAULT_DATABASE,
    LOOPBACK,
    Database,
    explained,
    log_to_stderr,
)


class Listening(NamedTuple):
    """Address and options with which a service listens."""

    host: str
    auth: bool
    tls_cert: Path | None
    tls_key: Path | None
    requests_per_s: float | None
    per_address: int
    access_log: bool


def listening(
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    auth: Annotated[bool, typer.Option(help="Require tokens; --no-auth works on loopback only.")] = True,
    tls_cert: Annotated[Path | None, typer.Option(help="Certificate chain (PEM): serve https.")] = None,
    tls_key: Annotated[Path | None, typer.Option(help="Its private key (PEM).")] = None,
    plain_http: Annotated[
        bool,
        typer.Option("--plain-http", help="Allow other hosts without TLS; others can then read the tokens."),
    ] = False,
    requests_per_s: Annotated[float, typer.Option(help="Requests a second of a token; 0: no limit.", min=0)] = 500.0,
    per_address: Annotated[
        int, typer.Option("--connections-per-address", min=1, help="Open connections per client address.")
    ] = 256,
    access_log: Annotated[bool, typer.Option(help="Log every request.")] = False,
) -> Listening:
    """Return the listening options; refuse, before any work, those that would expose tokens."""
    log_to_stderr()
    with explained():
        if not auth and host not in LOOPBACK:
            raise ValueError(f"--no-auth is for loopback only; drop it, or do not listen on {host}")
        if (tls_cert is None) != (tls_key is None):
            raise ValueError("--tls-cert and --tls-key go together; give both")
        for path in filter(None, (tls_cert, tls_key)):
            if not path.is_file():
                raise ValueError(f"{path} is no file; --tls-cert and --tls-key name PEM files")
        if host not in LOOPBACK and tls_cert is None and not plain_http:
            raise ValueError(
                f"on {host} tokens would travel in clear; give --tls-cert and --tls-key, or --plain-http "
                "behind a proxy that encrypts"
            )
    return Listening(host, auth, tls_cert, tls_key, requests_per_s or None, per_address, access_log)


@with_options(at=listening)
def serve(
    database: Database = DEFAULT_DATABASE,
    port: Annotated[int, typer.Option(help="Port; 0 takes a free one.", min=0, max=65_535)] = 8750,
    tokens: Annotated[Path, typer.Option(help="Where the first start writes an admin and a reader token.")] = Path(
        "flowlex-telemetry-tokens.json"
    ),
    retention_days: Annotated[float, typer.Option(help="Days that histories are kept; 0: forever.", min=0)] = 7.0,
    alive_s: Annotated[float, typer.Option(help="Seconds without heartbeat until a node is gone.", min=0.1)] = 30.0,
    *,
    at: Listening,
) -> None:
    """Serve until interrupted; all routes are listed at /docs."""
    from flowlex.systems.telemetry.rest_app import create_app
    from flowlex.systems.telemetry.service_context import Settings
    from flowlex.systems.telemetry.store import Store

    with explained(), contextlib.closing(Store(database)) as store:
        if at.auth:
            first_tokens(store, tokens)
        settings = Settings(
            require_token=at.auth,
            alive_s=alive_s,
            retention_s=retention_days * 86_400 if retention_days else None,
            requests_per_s=at.requests_per_s,
        )
        listen(create_app(store, settings), at, port, store.database.place)


def listen(app: Any, at: Listening, port: int, place: str) -> None:
    """Serve an application until interrupted."""
    import uvicorn

    from flowlex.systems.telemetry.connection_limits import ConnectionLimits, Connections

    config = uvicorn.Config(
        app,
        host=at.host,
        port=port,
        http=Connections(ConnectionLimits(per_address=at.per_address)).protocol,
        ws="none",
        log_config=None,
        server_header=False,
        timeout_graceful_shutdown=10,
        timeout_keep_alive=15,  # so that nodes that write every few seconds keep their connection
        limit_concurrency=2_000,
        access_log=at.access_log,
        ssl_certfile=at.tls_cert,
        ssl_keyfile=at.tls_key,
    )
    config.load()
    # A large read occupies its thread; switching after 0.5 ms instead of 5 keeps small reads fast.
    sys.setswitchinterval(0.0005)
    # A full garbage collection blocks answers for 100 ms: exclude the imported modules, and run it rarely.
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, max(20, gc.get_threshold()[2]))  # an application may collect on request only
    with contextlib.closing(config.bind_socket()) as listener:
        # Accepted sockets inherit this option; without it, which asyncio does not set, answers wait 40 ms for an ACK.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        listener.listen(config.backlog)  # readers of the line below may connect at once; uvicorn listens later
        shown = f"[{at.host}]" if ":" in at.host else at.host
        scheme = "https" if config.is_ssl else "http"
        typer.echo(f"Serving {scheme}://{shown}:{listener.getsockname()[1]} (data in {place})")
        sys.stdout.flush()
        uvicorn.Server(config).run(sockets=[listener])


def first_tokens(store: Any, path: Path, *, agents: str = "flowlex telemetry token create") -> None:
    """Create tokens for an admin and a reader at the first start; ``agents``: the command that creates others."""
    from flowlex.systems.telemetry.tokens_and_rights import Role, new_token

    if store.registry.tokens():
        return
    # Created before the secrets exist, readable by the owner only, never overwriting a file.
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError as error:
        raise ValueError(f"{path} is there but the database has no tokens; move it away or name another") from error
    with os.fdopen(handle, "w") as stream:
        roles = (Role.ADMIN, Role.READER)
        json.dump({role.value: new_token(store, role, label="first start") for role in roles}, stream, indent=1)
    typer.echo(f"Tokens written to {path}; agents get theirs from `{agents}`")


def migrate(database: Database = DEFAULT_DATABASE) -> None:
    """Make a database, or bring an older one's schema up to date; stop the service first."""
    from flowlex.systems.telemetry.database import SCHEMA
    from flowlex.systems.telemetry.store import Store

    log_to_stderr()
    with explained(), contextlib.closing(Store(database)) as store:
        typer.echo(f"{store.database.place}: schema {store.database.migrated_from or 'none'} before, {SCHEMA} now")
