"""Shared parts of the telemetry commands: options, tokens, a client, and one-line errors."""

from __future__ import annotations

import contextlib
import json
import logging
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from flowlex.cli.console_output import note
from flowlex.cli.input_files import landing

LOOPBACK = ("127.0.0.1", "::1", "localhost")
TOKEN_VARIABLE = "FLOWLEX_TELEMETRY_TOKEN"

Database = Annotated[
    str,
    typer.Option(
        help="SQLAlchemy URL. Give a URL with a password by the variable, as others can see command lines.",
        envvar="FLOWLEX_TELEMETRY_DATABASE",
        show_envvar=True,
    ),
]
Server = Annotated[str, typer.Option(help="Address of the service.", envvar="FLOWLEX_TELEMETRY_URL")]
TokenFile = Annotated[
    Path | None,
    typer.Option(help=f"File with the token, or the JSON file that `serve` wrote; else ${TOKEN_VARIABLE}."),
]
Authority = Annotated[
    Path | None,
    typer.Option("--ca-file", help="CA certificates of the service (PEM).", envvar="FLOWLEX_TELEMETRY_CA"),
]
DEFAULT_DATABASE = "sqlite:///flowlex-telemetry.db"
DEFAULT_SERVER = "http://127.0.0.1:8750"
Roles = Literal["admin", "agent", "reader"]


@contextlib.contextmanager
def explained() -> Iterator[None]:
    """Turn errors that a user can fix into one line and exit code 1."""
    import sqlite3

    import sqlalchemy as sa

    from flowlex.systems.telemetry.agent_buffer import ForeignJournal
    from flowlex.systems.telemetry.http_client import Refused, Unreachable
    from flowlex.systems.telemetry.node_agent import JournalInUse

    try:
        yield
    except (Refused, Unreachable, JournalInUse, ForeignJournal, ValueError, OSError) as error:
        typer.echo(f"Error: {error}", err=True)
        raise typer.Exit(1) from error
    except sa.exc.DBAPIError as error:
        said = str(error.orig).strip().partition("\n")[0]
        if "readonly" in said or "read-only" in said:
            said += "; let this user write it and its folder"
        elif not isinstance(error.orig, sqlite3.Error):
            said += "; check that its server runs, and host, port, name and password in the URL"
        typer.echo(f"Error: the database cannot be used: {said}", err=True)
        raise typer.Exit(1) from None


def client_for(role: Roles) -> Callable[..., AbstractContextManager[Any]]:
    """Return a context manager that opens a client with the token for a role."""

    @contextlib.contextmanager
    def opened(
        server: Server = DEFAULT_SERVER, token_file: TokenFile = None, ca_file: Authority = None
    ) -> Iterator[Any]:
        from flowlex.systems.telemetry.http_client import TelemetryClient

        with explained(), TelemetryClient(server, token_of(token_file, role), ca_file=ca_file) as client:
            yield client

    return opened


@contextlib.contextmanager
def stored(database: Database = DEFAULT_DATABASE) -> Iterator[Any]:
    """Open an existing database."""
    from flowlex.systems.telemetry.store import Store

    with explained(), contextlib.closing(Store(database, create=False)) as store:
        yield store


def token_of(path: Path | None, role: Roles) -> str | None:
    """Read the token for a role: from the file (plain, or JSON by role), else from the environment."""
    if path is None:
        return os.environ.get(TOKEN_VARIABLE) or None
    text = path.read_text().strip()
    if not text.startswith("{"):
        return text
    secrets = json.loads(text)
    if role not in secrets:
        hint = "; make one with `flowlex telemetry token create --role agent --node NODE`" if role == "agent" else ""
        raise ValueError(f"{path} holds no token of role {role}{hint}")
    return str(secrets[role])


def pairs(items: list[str] | None) -> dict[str, str]:
    """Read KEY=VALUE options."""
    found = {}
    for item in items or []:
        key, sign, value = item.partition("=")
        if not sign or not key:
            raise ValueError(f"{item!r} is not KEY=VALUE")
        found[key] = value
    return found


def log_to_stderr() -> None:
    """Log to standard error, without every request."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)


def authority() -> Path | None:
    """Return the CA certificates for the service, from the environment."""
    path = os.environ.get("FLOWLEX_TELEMETRY_CA")
    return Path(path) if path else None


def snapshot(context: typer.Context, url: str, output: Path | None, *, max_age_s: float) -> Path:
    """Read the service and write ``live.json`` (into ``output``, else a temporary folder)."""
    from flowlex.instances.files import write_instance
    from flowlex.instances.instance_base import InstanceError
    from flowlex.systems.telemetry.instance_from_service import from_telemetry

    try:
        instance = from_telemetry(
            url, token=os.environ.get(TOKEN_VARIABLE) or None, max_age_s=max_age_s, ca_file=authority()
        )
    except InstanceError as error:
        raise typer.BadParameter(str(error), param_hint="--from-telemetry") from error
    path = landing(context, output, "live.json")
    write_instance(instance, path)
    note(instance.comment)
    return path
