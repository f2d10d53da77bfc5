"""``flowlex telemetry register``, ``list``, ``show``...: commands for users of a service."""

from __future__ import annotations

import contextlib
import json
import time
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from flowlex.cli.console_output import console, rows_table
from flowlex.cli.options import with_options
from flowlex.systems.telemetry.command_line.telemetry_options import client_for, pairs

if TYPE_CHECKING:
    from flowlex.systems.telemetry.request_documents import Readings


@with_options(client=client_for("admin"))
def register(
    name: Annotated[str, typer.Argument(help="Data name.")],
    command: Annotated[list[str], typer.Argument(help="Program of the agents' folder, and its arguments.")],
    kind: Annotated[Literal["collector", "processor"], typer.Option()] = "collector",
    interval_s: Annotated[float, typer.Option(help="Seconds between runs.")] = 10.0,
    timeout_s: Annotated[float, typer.Option(help="Seconds a run may take.")] = 5.0,
    node: Annotated[list[str] | None, typer.Option(help="Only on this node; repeatable.")] = None,
    label: Annotated[list[str] | None, typer.Option(help="Only on nodes with KEY=VALUE; repeatable.")] = None,
    replicas: Annotated[int | None, typer.Option(help="Number of these nodes to run on.")] = None,
    unit: Annotated[str, typer.Option(help="Unit of the value.")] = "",
    input_: Annotated[list[str] | None, typer.Option("--input", help="Data a processor reads; repeatable.")] = None,
    window_s: Annotated[float, typer.Option(help="History a processor reads, seconds.")] = 0.0,
    scope: Annotated[
        Literal["node", "all"], typer.Option(help="Whose data a processor reads: its node's, or all nodes'.")
    ] = "node",
    update: Annotated[bool, typer.Option(help="Replace the registration of that name.")] = False,
    *,
    client: Any,
) -> None:
    """Register a collector or processor; put -- before arguments that start with a dash."""
    from pydantic import ValidationError

    from flowlex.instances.input_errors import first_fault
    from flowlex.systems.telemetry.request_documents import Registration

    try:
        registration = Registration(
            name=name,
            program=command[0],
            arguments=command[1:],
            kind=kind,
            interval_s=interval_s,
            timeout_s=timeout_s,
            nodes=node or [],
            labels=pairs(label),
            replicas=replicas,
            unit=unit,
            inputs=input_ or [],
            window_s=window_s,
            scope=scope,
        )
    except ValidationError as error:
        raise ValueError(": ".join(filter(None, first_fault(error)))) from error
    answer = (client.update if update else client.add)(registration)
    typer.echo(f"{'Updated' if update else 'Registered'} {name}")
    for doubt in answer.doubts:
        typer.echo(f"Warning: {doubt}", err=True)


@with_options(client=client_for("admin"))
def unregister(name: Annotated[str, typer.Argument(help="Data name.")], client: Any) -> None:
    """Remove a registration; agents stop it, its data stay."""
    client.remove(name)
    typer.echo(f"Removed {name}")


@with_options(client=client_for("admin"))
def remove(
    node: Annotated[str, typer.Argument(help="Node whose data go.")],
    name: Annotated[str | None, typer.Option(help="Only this data name; else the node with all its data.")] = None,
    *,
    client: Any,
) -> None:
    """Delete a series, or a node with all its series and their histories."""
    gone = client.remove_node(node) if name is None else client.remove_series(name, node)
    typer.echo(f"Removed {gone['series']} series and {gone['samples']} samples of {node}")


@with_options(client=client_for("reader"))
def list_(client: Any) -> None:
    """List the registrations and the nodes with their last heartbeat."""
    rows = []
    for r in client.registrations():
        where = ", ".join([*r.nodes, *(f"{key}={value}" for key, value in r.labels.items())]) or "all"
        where += f", {r.replicas} of them" if r.replicas else ""
        command = " ".join([r.program, *r.arguments])
        rows.append((r.name, r.kind, command, f"{r.interval_s:g} s", where, len(r.on), "; ".join(r.doubts)))
    columns = ("name", "kind", "command", "every", "nodes", "runs on", "but")
    console().print(rows_table("Registrations", columns, rows))
    nodes = [
        (a.node, "yes" if a.alive else "no", f"{a.age_s:.1f} s ago", ", ".join(a.running), a.buffered)
        for a in client.agents()
    ]
    console().print(rows_table("Nodes", ("node", "alive", "last heartbeat", "running", "waiting samples"), nodes))


@with_options(client=client_for("reader"))
def show(
    name: Annotated[list[str] | None, typer.Option(help="Only this data name; repeatable.")] = None,
    node: Annotated[list[str] | None, typer.Option(help="Only this node; repeatable.")] = None,
    max_age: Annotated[float | None, typer.Option(help="Mark older values as stale, seconds.")] = None,
    every_s: Annotated[float, typer.Option(help="Seconds between refreshes.", min=0.1)] = 2.0,
    once: Annotated[bool, typer.Option(help="Print one table and end.")] = False,
    *,
    client: Any,
) -> None:
    """Show last values with their age, live until interrupted."""
    from rich.live import Live

    from flowlex.systems.telemetry.http_client import Unreachable

    def table() -> Any:
        return _table(client.read(name or [], node or [], max_age))

    if once:
        console().print(table())
        return
    with contextlib.suppress(KeyboardInterrupt), Live(table(), auto_refresh=False) as live:
        while True:
            time.sleep(every_s)
            try:
                live.update(table(), refresh=True)
            except Unreachable as error:
                live.update(f"{error}; trying again", refresh=True)


def _table(page: Readings) -> Any:
    rows = []
    for r in page.readings:
        value = r.value if isinstance(r.value, str) else json.dumps(r.value)
        run = "ok" if r.last_exit_code == 0 else f"code {r.last_exit_code}: {r.last_error[:60]}"
        ahead = f", clock {r.ahead_s:.0f} s ahead" if r.ahead_s > 1 else ""
        rows.append((r.name, r.node, value[:60], r.unit, f"{r.age_s:.1f} s{' stale' if r.stale else ''}{ahead}", run))
    for n in page.no_value:
        rows.append((n.name, n.node, "never succeeded", "", "", f"code {n.last_exit_code}: {n.last_error[:60]}"))
    return rows_table("Last values", ("name", "node", "value", "unit", "age", "last run"), rows)
