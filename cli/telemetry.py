"""``flowlex telemetry``: serve the node information service, run an agent, register, show.

Needs the extra ``telemetry``. The parent command adds ``app`` as a sub-command only when it is called, so
that the extra stays optional.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

    from flowlex.telemetry.client import TelemetryClient
    from flowlex.telemetry.schemas import Reading

__all__ = ["app"]

# Commands import the extra when they run; without it the parent command says at once how to install it.
for _module in ("fastapi", "httpx", "sqlalchemy", "uvicorn"):
    if find_spec(_module) is None:
        raise ModuleNotFoundError(f"No module named {_module!r}", name=_module)

app: typer.Typer = typer.Typer(name="telemetry", help="The node information service.", no_args_is_help=True)
token_app: typer.Typer = typer.Typer(
    name="token", help="Make, list and revoke tokens (in the database).", no_args_is_help=True
)
app.add_typer(token_app)

_LOOPBACK = ("127.0.0.1", "::1", "localhost")
TOKEN_VARIABLE = "FLOWLEX_TELEMETRY_TOKEN"

Database = Annotated[
    str,
    typer.Option(
        help="SQLAlchemy URL. A URL with a password is better given by the variable: others see command lines.",
        envvar="FLOWLEX_TELEMETRY_DATABASE",
        show_envvar=True,
    ),
]
Server = Annotated[str, typer.Option(help="Address of the service.", envvar="FLOWLEX_TELEMETRY_URL")]
TokenFile = Annotated[
    Path | None,
    typer.Option(help=f"File with the token, or the JSON file that `serve` wrote; else ${TOKEN_VARIABLE}."),
]
DEFAULT_DATABASE = "sqlite:///flowlex-telemetry.db"
DEFAULT_SERVER = "http://127.0.0.1:8750"
Roles = Literal["admin", "agent", "reader"]


@contextlib.contextmanager
def _explained() -> Iterator[None]:
    """Turn the errors a person can mend into one line and exit code 1."""
    from flowlex.telemetry.agent import JournalInUse
    from flowlex.telemetry.client import Refused, Unreachable

    try:
        yield
    except (Refused, Unreachable, JournalInUse, ValueError, OSError) as error:
        typer.echo(f"Error: {error}", err=True)
        raise typer.Exit(1) from error


@app.command()
def serve(
    database: Database = DEFAULT_DATABASE,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port; 0 takes a free one.", min=0, max=65_535)] = 8750,
    tokens: Annotated[
        Path, typer.Option(help="Where the first start writes an admin, an agent and a reader token.")
    ] = Path("flowlex-telemetry-tokens.json"),
    auth: Annotated[bool, typer.Option(help="Demand tokens (without: on loopback only).")] = True,
    retention_days: Annotated[float, typer.Option(help="Keep histories so long; 0: for ever.", min=0)] = 7.0,
    alive_s: Annotated[float, typer.Option(help="A node without heartbeat for so long is gone.", min=0.1)] = 30.0,
    access_log: Annotated[bool, typer.Option(help="Log every request.")] = False,
) -> None:
    """Serve until interrupted; the OpenAPI page is at /docs."""
    import uvicorn

    from flowlex.telemetry.app import create_app
    from flowlex.telemetry.service import Settings
    from flowlex.telemetry.store import Store

    _log_to_stderr()
    with _explained():
        if not auth and host not in _LOOPBACK:
            raise ValueError(f"--no-auth is for loopback only; drop it, or do not listen on {host}")
        store = Store(database)
        if auth:
            _first_tokens(store, tokens)
        settings = Settings(
            require_token=auth, alive_s=alive_s, retention_s=retention_days * 86_400 if retention_days else None
        )
        config = uvicorn.Config(
            create_app(store, settings),
            host=host,
            port=port,
            log_config=None,
            access_log=access_log,
            server_header=False,
            timeout_graceful_shutdown=10,
        )
        # A large read keeps its thread busy; handing over after 0.5 ms instead of 5 keeps the small ones quick.
        sys.setswitchinterval(0.0005)
        with contextlib.closing(config.bind_socket()) as listener:
            # Accepted sockets inherit it; asyncio does not set it here, and answers would wait 40 ms for an ACK.
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            shown = f"[{host}]" if ":" in host else host
            typer.echo(f"Serving http://{shown}:{listener.getsockname()[1]} (data in {store.place})")
            sys.stdout.flush()
            uvicorn.Server(config).run(sockets=[listener])
        store.close()


def _first_tokens(store: Any, path: Path) -> None:
    from flowlex.telemetry.security import Role, new_token

    if store.tokens():
        return
    # Made before the secrets exist, readable by the owner only, never over another file.
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError as error:
        raise ValueError(f"{path} is there but the database has no tokens; move it away or name another") from error
    with os.fdopen(handle, "w") as stream:
        secrets = {role.value: new_token(store, role, label="first start") for role in Role}
        json.dump(secrets, stream, indent=1)
    typer.echo(f"Tokens written to {path}")


@app.command()
def agent(
    node: Annotated[str, typer.Option(help="Name of this node.")],
    server: Server = DEFAULT_SERVER,
    token_file: TokenFile = None,
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
    """Run what the service assigns to this node, until interrupted."""
    from flowlex.telemetry.agent import Agent, AgentSettings
    from flowlex.telemetry.runner import SHIPPED, allowed_programs

    _log_to_stderr()
    with _explained(), _client(server, token_file, "agent") as client:
        folders = [*(commands or []), *([SHIPPED] if shipped else [])]
        for folder in folders:
            if not folder.is_dir():
                raise ValueError(f"{folder} is no folder; --commands names a folder of executables")
        if not allowed_programs(folders):
            raise ValueError("no program is allowed; give --commands FOLDER or drop --no-shipped")
        settings = AgentSettings(
            folders=folders, labels=_pairs(label), environment=_pairs(environment), heartbeat_s=heartbeat_s
        )
        worker = Agent(node, client, journal or Path(f"flowlex-agent-{node}.db"), settings)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: worker.stop.set())
        worker.run()


@app.command()
def register(
    name: Annotated[str, typer.Argument(help="Data name.")],
    command: Annotated[list[str], typer.Argument(help="Program of the agents' folder, and its arguments.")],
    server: Server = DEFAULT_SERVER,
    token_file: TokenFile = None,
    kind: Annotated[Literal["collector", "processor"], typer.Option()] = "collector",
    interval_s: Annotated[float, typer.Option(help="Seconds between runs.")] = 10.0,
    timeout_s: Annotated[float, typer.Option(help="Seconds a run may take.")] = 5.0,
    node: Annotated[list[str] | None, typer.Option(help="Only on this node; repeatable.")] = None,
    label: Annotated[list[str] | None, typer.Option(help="Only on nodes with KEY=VALUE; repeatable.")] = None,
    replicas: Annotated[int | None, typer.Option(help="On so many of these nodes.")] = None,
    unit: Annotated[str, typer.Option(help="Unit of the value.")] = "",
    input_: Annotated[list[str] | None, typer.Option("--input", help="Data a processor reads; repeatable.")] = None,
    window_s: Annotated[float, typer.Option(help="History a processor reads, seconds.")] = 0.0,
    update: Annotated[bool, typer.Option(help="Replace the registration of that name.")] = False,
) -> None:
    """Register a collector or processor; put -- before arguments that start with a dash."""
    from pydantic import ValidationError

    from flowlex.telemetry.schemas import Registration

    with _explained(), _client(server, token_file, "admin") as client:
        try:
            registration = Registration(
                name=name,
                program=command[0],
                arguments=command[1:],
                kind=kind,
                interval_s=interval_s,
                timeout_s=timeout_s,
                nodes=node or [],
                labels=_pairs(label),
                replicas=replicas,
                unit=unit,
                inputs=input_ or [],
                window_s=window_s,
            )
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(str(step) for step in first["loc"])
            raise ValueError(f"{place}: {first['msg'].removeprefix('Value error, ')}".lstrip(": ")) from error
        (client.update if update else client.add)(registration)
        typer.echo(f"{'Updated' if update else 'Registered'} {name}")


@app.command()
def unregister(
    name: Annotated[str, typer.Argument(help="Data name.")],
    server: Server = DEFAULT_SERVER,
    token_file: TokenFile = None,
) -> None:
    """Remove a registration; agents stop it, its data stay."""
    with _explained(), _client(server, token_file, "admin") as client:
        client.remove(name)
        typer.echo(f"Removed {name}")


@app.command("list")
def list_(server: Server = DEFAULT_SERVER, token_file: TokenFile = None) -> None:
    """List the registrations and the nodes with their last heartbeat."""
    from rich.console import Console
    from rich.table import Table

    with _explained(), _client(server, token_file, "reader") as client:
        table = Table("name", "kind", "command", "every", "nodes", "replicas", title="Registrations")
        for r in client.registrations():
            where = ", ".join([*r.nodes, *(f"{key}={value}" for key, value in r.labels.items())]) or "all"
            command = " ".join([r.program, *r.arguments])
            table.add_row(
                *map(_plain, (r.name, r.kind, command, f"{r.interval_s:g} s", where, str(r.replicas or "all")))
            )
        nodes = Table("node", "alive", "last heartbeat", "running", "waiting samples", title="Nodes")
        for a in client.agents():
            alive, age = "yes" if a.alive else "no", f"{a.age_s:.1f} s ago"
            nodes.add_row(*map(_plain, (a.node, alive, age, ", ".join(a.running), str(a.buffered))))
        Console().print(table, nodes)


@app.command()
def show(
    server: Server = DEFAULT_SERVER,
    token_file: TokenFile = None,
    name: Annotated[list[str] | None, typer.Option(help="Only this data name; repeatable.")] = None,
    node: Annotated[list[str] | None, typer.Option(help="Only this node; repeatable.")] = None,
    max_age: Annotated[float | None, typer.Option(help="Mark older values as stale, seconds.")] = None,
    every_s: Annotated[float, typer.Option(help="Seconds between refreshes.", min=0.1)] = 2.0,
    once: Annotated[bool, typer.Option(help="Print one table and end.")] = False,
) -> None:
    """Show last values with their age, live until interrupted."""
    from rich.console import Console
    from rich.live import Live

    from flowlex.telemetry.client import Unreachable

    with _explained(), _client(server, token_file, "reader") as client:

        def table() -> Table:
            return _table(client.read(name or [], node or [], max_age).readings)

        if once:
            Console().print(table())
            return
        with contextlib.suppress(KeyboardInterrupt), Live(table(), auto_refresh=False) as live:
            while True:
                time.sleep(every_s)
                try:
                    live.update(table(), refresh=True)
                except Unreachable as error:
                    live.update(f"{error}; trying again", refresh=True)


@token_app.command("create")
def token_create(
    role: Annotated[Roles, typer.Option(help="What it may do.")],
    database: Database = DEFAULT_DATABASE,
    node: Annotated[str | None, typer.Option(help="Bind an agent's token to this node.")] = None,
    label: Annotated[str, typer.Option(help="To recognise it in the list.")] = "",
) -> None:
    """Make a token and print it, once."""
    from flowlex.telemetry.security import Role, new_token
    from flowlex.telemetry.store import Store

    with _explained(), contextlib.closing(Store(database)) as store:
        typer.echo(new_token(store, Role(role), node=node, label=label[:100]))


@token_app.command("list")
def token_list(database: Database = DEFAULT_DATABASE) -> None:
    """List tokens by the first digits of their digest."""
    from flowlex.telemetry.store import Store

    with _explained(), contextlib.closing(Store(database)) as store:
        for row in store.tokens():
            typer.echo(f"{row.digest[:12]}  {row.role:<6}  {row.node or '-'}  {row.label}")


@token_app.command("revoke")
def token_revoke(
    digest: Annotated[str, typer.Argument(help="First digits of the digest, at least 8.")],
    database: Database = DEFAULT_DATABASE,
) -> None:
    """Revoke a token; servers refuse it within two seconds."""
    from flowlex.telemetry.store import Store

    with _explained(), contextlib.closing(Store(database)) as store:
        if len(digest) < 8:
            raise ValueError("give at least 8 digits of the digest; `token list` shows 12")
        if not store.remove_token(digest):
            raise ValueError(f"no token's digest starts with {digest}")
        typer.echo("Revoked")


def _client(server: str, token_file: Path | None, role: Roles) -> TelemetryClient:
    from flowlex.telemetry.client import TelemetryClient

    return TelemetryClient(server, _token(token_file, role))


def _token(path: Path | None, role: Roles) -> str | None:
    """Read the token for a role: from the file (plain, or JSON by role), else from the environment."""
    if path is None:
        return os.environ.get(TOKEN_VARIABLE) or None
    text = path.read_text().strip()
    if not text.startswith("{"):
        return text
    secrets = json.loads(text)
    if role not in secrets:
        raise ValueError(f"{path} holds no token of role {role}")
    return str(secrets[role])


def _pairs(items: list[str] | None) -> dict[str, str]:
    pairs = {}
    for item in items or []:
        key, sign, value = item.partition("=")
        if not sign or not key:
            raise ValueError(f"{item!r} is not KEY=VALUE")
        pairs[key] = value
    return pairs


def _table(readings: list[Reading]) -> Table:
    from rich.table import Table

    table = Table("name", "node", "value", "unit", "age", "last run", title="Last values")
    for r in readings:
        value = r.value if isinstance(r.value, str) else json.dumps(r.value)
        run = "ok" if r.last_exit_code == 0 else f"code {r.last_exit_code}: {r.last_error[:60]}"
        age = f"{r.age_s:.1f} s" + (" stale" if r.stale else "")
        cells = map(_plain, (r.name, r.node, value[:60], r.unit, age, run))
        table.add_row(*cells, style="red" if r.stale or r.last_exit_code else None)
    return table


def _plain(text: str) -> Text:
    """A cell that carries neither markup nor control characters to the terminal."""
    from rich.text import Text

    return Text("".join(c if c.isprintable() else " " for c in text))


def _log_to_stderr() -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)
