"""``flowlex serve``: schedulers as services on a database, one leader and any number of followers."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flowlex.cli.options import typed, with_options
from flowlex.instances.gpu_policy import GpuPolicy
from flowlex.systems.telemetry.command_line.server import Listening, first_tokens, listen, listening
from flowlex.systems.telemetry.command_line.telemetry_options import explained

if TYPE_CHECKING:
    from flowlex.systems.scheduler.database import SchedulerDatabase, Settings


app: typer.Typer = typer.Typer(name="serve", help="Run a scheduler as a service.", no_args_is_help=True)

Database = Annotated[
    str,
    typer.Option(
        help="SQLAlchemy URL (SQLite or PostgreSQL) of log, snapshots and tokens; the first options stay in force.",
        envvar="FLOWLEX_SCHEDULER_DATABASE",
        show_envvar=True,
    ),
]
Follow = Annotated[
    bool, typer.Option("--follow", help="Follow the leader, answer queries, and take over when it is silent.")
]
Tokens = Annotated[Path, typer.Option(help="Where the first start writes an admin and a reader token.")]
_DATABASE = "sqlite:///flowlex-scheduler.db"
_TOKENS = Path("flowlex-scheduler-tokens.json")


def paced(
    every_ms: Annotated[
        float, typer.Option("--every-ms", min=0, help="Decide so long after the last decision once events have come.")
    ] = 100.0,
    idle_ms: Annotated[
        float | None,
        typer.Option("--idle-ms", min=1, help="Decide so long after the last decision without events too."),
    ] = None,
    on_request: Annotated[bool, typer.Option("--on-request", help="Decide only when /v1/step is asked.")] = False,
    snapshot_every: Annotated[
        int, typer.Option("--snapshot-every", min=1, help="Records in the log before a snapshot.")
    ] = 1000,
    lease_s: Annotated[
        float, typer.Option("--lease-s", min=0.5, help="Seconds of silence after which a follower takes over.")
    ] = 2.0,
    max_events: Annotated[
        int,
        typer.Option("--max-events-per-step", min=1, help="Events between two decisions; more of them wait for one."),
    ] = 2000,
) -> Any:
    """Return the `Pace` of a replica."""
    from flowlex.systems.scheduler.replica import Pace

    every_s, idle_s = None if on_request else every_ms / 1000, None if idle_ms is None else idle_ms / 1000
    return Pace(every_s, idle_s, max_events, snapshot_every, lease_s)


@app.command()
@with_options(pace=paced, at=listening)
def scheduler(
    context: typer.Context,
    database: Database = _DATABASE,
    cluster: Annotated[
        Path | None, typer.Option(help="First start: a flow-scheduling instance to begin with; else no machines.")
    ] = None,
    goals: Annotated[
        str, typer.Option(help="Cost model; `flowlex options flow-scheduling preset` lists them.")
    ] = "borg",
    cost_limit: Annotated[int, typer.Option(min=1, help="Largest cost of one arc.")] = 10**6,
    scale: Annotated[int | None, typer.Option(min=1, help="Costs are integer multiples of 1/SCALE.")] = None,
    lexicographic: Annotated[bool, typer.Option("--lexicographic", help="Goals in strict order.")] = False,
    step_limit_s: Annotated[
        float | None, typer.Option(min=0.001, help="Seconds of a full solve, where rules or capacities need one.")
    ] = None,
    follow: Follow = False,
    tokens: Tokens = _TOKENS,
    port: Annotated[int, typer.Option(help="Port; 0 takes a free one.", min=0, max=65_535)] = 8760,
    *,
    pace: Any,
    at: Listening,
) -> None:
    """Serve the live flow scheduler: events in, proven decisions out; nothing acknowledged is lost.

    An event is answered when it is committed. /docs lists the routes; tokens are made by `flowlex telemetry token
    create --database URL`.
    """
    from flowlex.instances.files import read_instance
    from flowlex.instances.flow import FlowInstance

    with explained():
        options: dict[str, Any] = {"goals": goals, "cost_limit": cost_limit, "scale": scale}
        options |= {"lexicographic": lexicographic, "step_limit_s": step_limit_s, "cluster": None}
        if cluster is not None:
            instance = read_instance(cluster)
            if not isinstance(instance, FlowInstance):
                raise ValueError(f"{cluster}: --cluster is a flow-scheduling instance, this is {instance.kind!r}")
            options["cluster"] = instance.model_dump(mode="json")
        given = {name for name in options if typed(context, name)}
        _serve("scheduler", options, given, database, follow, tokens, pace, at, port)


@app.command()
@with_options(pace=paced, at=listening)
def gpu(
    context: typer.Context,
    database: Database = _DATABASE,
    policy: Annotated[GpuPolicy, typer.Option(help="Fairness and preemption.")] = GpuPolicy.FSP,
    disk_mb_per_s: Annotated[
        float, typer.Option(min=1e-6, help="A node's disk, until transfers are reported.")
    ] = 500.0,
    rack_mb_per_s: Annotated[
        float, typer.Option(min=1e-6, help="Within a rack, until transfers are reported.")
    ] = 125.0,
    between_racks_mb_per_s: Annotated[
        float, typer.Option(min=1e-6, help="Between racks, until transfers are reported.")
    ] = 125.0,
    most_jobs: Annotated[int | None, typer.Option(min=1, help="Jobs in a round at a time; others queue.")] = None,
    follow: Follow = False,
    tokens: Tokens = _TOKENS,
    port: Annotated[int, typer.Option(help="Port; 0 takes a free one.", min=0, max=65_535)] = 8770,
    *,
    pace: Any,
    at: Listening,
) -> None:
    """Serve rounds of GPU assignment: nodes report GPUs, jobs submit tasks, a round answers placements and reasons.

    Bandwidths are estimated from the transfers that are reported.
    """
    with explained():
        options: dict[str, Any] = {"policy": policy.value, "most_jobs": most_jobs, "disk_mb_per_s": disk_mb_per_s}
        options |= {"rack_mb_per_s": rack_mb_per_s, "between_racks_mb_per_s": between_racks_mb_per_s}
        given = {name for name in options if typed(context, name)}
        _serve("gpu", options, given, database, follow, tokens, pace, at, port)


@app.command("import-state")
def import_state(
    folder: Annotated[Path, typer.Argument(help="The --state folder of an earlier version, whose service is stopped.")],
    database: Database = _DATABASE,
) -> None:
    """Read the state folder of an earlier version (snapshot and log) into a new database."""
    from flowlex.systems.scheduler.database import SchedulerDatabase
    from flowlex.systems.scheduler.old_folder import read_folder

    with explained():
        settings, state, records = read_folder(folder)
        with contextlib.closing(SchedulerDatabase(database)) as opened:
            if opened.begun() is not None:
                raise ValueError(f"{opened.place} belongs to a service already; name a new database")
            opened.begin_with(settings, state)
            typer.echo(f"{folder}: state and {records} records are in {opened.place}; tokens are to be made again")


def _serve(
    kind: str,
    options: dict[str, Any],
    given: set[str],
    url: str,
    follow: bool,
    tokens: Path,
    pace: Any,
    at: Listening,
    port: int,
) -> None:
    from sqlalchemy.exc import OperationalError

    from flowlex.instances.instance_base import InstanceError
    from flowlex.models.model_base import ModelError
    from flowlex.systems.scheduler.database import SchedulerDatabase
    from flowlex.systems.scheduler.live.garbage_collection import collect_on_request
    from flowlex.systems.scheduler.replica import Replica
    from flowlex.systems.scheduler.rest_app import create_app
    from flowlex.systems.telemetry.database import EmptyDatabaseError
    from flowlex.systems.telemetry.service_context import Settings

    try:
        opened = SchedulerDatabase(url, create=not follow)
    except EmptyDatabaseError as error:
        said = "--follow: nothing has been served from this database yet; start the leader first"
        raise ValueError(said) from error
    with contextlib.closing(opened) as database:
        settled = _begun(database, kind, options, given, follow=follow)
        if not follow:
            _refuse_two(database, pace.lease_s)
            try:
                database.release(-1)  # changes nothing, as no leader has this term
            except OperationalError as error:
                if "readonly" in str(error.orig) or "read-only" in str(error.orig):  # a lock may end
                    raise
            if at.auth:
                agents = "flowlex telemetry token create --database URL"
                first_tokens(database, tokens, agents=agents)
        address = f"{'https' if at.tls_cert else 'http'}://{at.host}:{port}" if port else ""
        try:
            replica = Replica(database, settled, pace, address)
        except (InstanceError, ModelError) as error:
            raise ValueError(str(error)) from error
        collect_on_request()  # the replica collects between decisions
        settings = Settings(require_token=at.auth, requests_per_s=at.requests_per_s)
        listen(create_app(replica, settings), at, port, database.place)


def _begun(
    database: SchedulerDatabase, kind: str, options: dict[str, Any], given: set[str], *, follow: bool
) -> Settings:
    """The options of the first start, which may be this one."""
    if follow and database.begun() is None:
        raise ValueError("--follow: nothing has been served from this database yet; start the leader first")
    if "cluster" in given and database.begun() is not None:
        raise ValueError(f"--cluster: {database.place} has a cluster already; send events, or name another database")
    return database.settled(kind, options, given - {"cluster"})


def _refuse_two(database: SchedulerDatabase, lease_s: float) -> None:
    """Refuse to start beside a leader that is there, unless as a follower."""
    first = database.lease()
    until = time.monotonic() + lease_s
    while first.holder is not None and time.monotonic() < until:
        time.sleep(0.1)
        now = database.lease()
        if now[:2] != first[:2]:
            who = (now.holder or {}).get("url") or "another process"
            raise ValueError(f"{database.place} is led by {who}; add --follow, or name another database")
