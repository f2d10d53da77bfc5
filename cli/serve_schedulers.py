"""``flowlex serve``: schedulers as services with a write-ahead log."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flowlex.cli.options import typed, with_options
from flowlex.cli.telemetry.server import Listening, first_tokens, listen, listening
from flowlex.cli.telemetry.telemetry_options import Authority, TokenFile, explained, token_of
from flowlex.instances.gpu_policy import GpuPolicy

if TYPE_CHECKING:
    from flowlex.service.decision_thread import Worker
    from flowlex.telemetry.http_client import TelemetryClient


app: typer.Typer = typer.Typer(name="serve", help="Run a scheduler as a service.", no_args_is_help=True)

State = Annotated[
    Path, typer.Option("--state", help="Folder for log, snapshots and tokens; its first options stay in force.")
]


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
    ] = 10_000,
    max_events: Annotated[
        int,
        typer.Option("--max-events-per-step", min=1, help="Events between two decisions; more of them wait for one."),
    ] = 2000,
) -> dict[str, Any]:
    """Return the timing options of `Worker`, and ``snapshot_every``."""
    every_s, idle_s = None if on_request else every_ms / 1000, None if idle_ms is None else idle_ms / 1000
    return {"every_s": every_s, "idle_s": idle_s, "snapshot_every": snapshot_every, "max_events": max_events}


@app.command()
@with_options(pace=paced, at=listening)
def scheduler(
    context: typer.Context,
    state: State,
    cluster: Annotated[
        Path | None, typer.Option(help="First start: a flow-scheduling instance to begin with; else no machines.")
    ] = None,
    goals: Annotated[str, typer.Option(help="quincy, borg, alsched, load_spread, random, none.")] = "borg",
    cost_limit: Annotated[int, typer.Option(min=1, help="Largest cost of one arc.")] = 10**6,
    scale: Annotated[int | None, typer.Option(min=1, help="Costs are integer multiples of 1/SCALE.")] = None,
    lexicographic: Annotated[bool, typer.Option("--lexicographic", help="Goals in strict order.")] = False,
    step_limit_s: Annotated[
        float | None, typer.Option(min=0.001, help="Seconds of a full solve, where rules or capacities need one.")
    ] = None,
    without_goal: Annotated[
        list[str] | None,
        typer.Option(help="Go on without a goal of another package whose code is gone, as module:name; repeatable."),
    ] = None,
    standby: Annotated[
        str | None, typer.Option(help="Follow the service at this address; POST /v1/promote lets this one take over.")
    ] = None,
    token_file: TokenFile = None,
    ca_file: Authority = None,
    port: Annotated[int, typer.Option(help="Port; 0 takes a free one.", min=0, max=65_535)] = 8760,
    *,
    pace: dict[str, Any],
    at: Listening,
) -> None:
    """Serve the live flow scheduler: events in, proven decisions out; nothing acknowledged is lost.

    An event is answered when it is on disk. /docs lists the routes; tokens are made by `flowlex telemetry token create
    --database sqlite:///STATE/tokens.db`.
    """
    from flowlex.service.scheduler_routes import cluster_router
    from flowlex.service.service_folder import cluster_loader, read_cluster
    from flowlex.telemetry.http_client import TelemetryClient

    with explained():
        first = not (state / "service.json").is_file()
        if standby is not None and cluster is not None:
            raise ValueError("--cluster: a standby has the cluster of the service that it follows; drop the option")
        if cluster is not None and not first:
            raise ValueError(f"--cluster: {state} has a cluster already; send events, or name another folder")
        options = {"goals": goals, "cost_limit": cost_limit, "scale": scale, "lexicographic": lexicographic}
        options["step_limit_s"] = step_limit_s
        options["cluster"] = None if cluster is None else read_cluster(cluster)
        loader = "scheduler", options, cluster_loader, cluster_router, "flowlex scheduler"
        token = token_of(token_file, "admin") if standby else None
        leader = TelemetryClient(standby, token, ca_file=ca_file) if standby else None
        _serve(context, state, loader, pace, at, port, tuple(without_goal or ()), leader)


@app.command()
@with_options(pace=paced, at=listening)
def gpu(
    context: typer.Context,
    state: State,
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
    port: Annotated[int, typer.Option(help="Port; 0 takes a free one.", min=0, max=65_535)] = 8770,
    *,
    pace: dict[str, Any],
    at: Listening,
) -> None:
    """Serve rounds of GPU assignment: nodes report GPUs, jobs submit tasks, a round answers placements and reasons.

    Bandwidths are estimated from the transfers that are reported.
    """
    from flowlex.service.scheduler_routes import gpu_router
    from flowlex.service.service_folder import gpu_loader

    with explained():
        options: dict[str, Any] = {"policy": policy.value, "most_jobs": most_jobs, "disk_mb_per_s": disk_mb_per_s}
        options |= {"rack_mb_per_s": rack_mb_per_s, "between_racks_mb_per_s": between_racks_mb_per_s}
        loader = "gpu", options, gpu_loader, gpu_router, "flowlex GPU rounds"
        _serve(context, state, loader, pace, at, port)


#: Kind of service, its options, loader of a state, routes, title.
_Loader = tuple[str, dict[str, Any], Callable[[dict[str, Any], tuple[str, ...]], Any], Any, str]


def _serve(
    context: typer.Context,
    state: Path,
    loader: _Loader,
    pace: dict[str, Any],
    at: Listening,
    port: int,
    without: tuple[str, ...] = (),
    leader: TelemetryClient | None = None,
) -> None:
    from flowlex.service.rest_app import create_app
    from flowlex.service.standby import Follower, standby_app
    from flowlex.telemetry.service_context import Settings

    given = {name for name in loader[1] if typed(context, name)} - {"cluster"}
    settings = Settings(require_token=at.auth, requests_per_s=at.requests_per_s)
    database = f"sqlite:///{state}/tokens.db"
    with contextlib.ExitStack() as stack:

        def start() -> Any:
            worker = _started(state, loader, given, pace, without)  # refuses before tokens are made
            return create_app(worker, stack.enter_context(_store(database)), loader[3], loader[4], settings)

        if leader is None:
            app = start()
            if at.auth:
                agents = f"flowlex telemetry token create --database {database}"
                first_tokens(app.state.service.store, state / "tokens.json", agents=agents)
        else:
            follower = Follower(state, leader)
            app = standby_app(follower, stack.enter_context(_store(database)), settings, start)
        listen(app, at, port, str(state))


def _store(database: str) -> contextlib.closing[Any]:
    from flowlex.telemetry.store import Store

    return contextlib.closing(Store(database))


def _started(
    state: Path, loader: _Loader, given: set[str], pace: dict[str, Any], without: tuple[str, ...]
) -> Worker[Any]:
    """Start the worker of a service on its folder."""
    from flowlex.instances.instance_base import InstanceError
    from flowlex.models.flow.garbage_collection import collect_on_request
    from flowlex.models.model_base import ModelError
    from flowlex.service.decision_thread import Worker
    from flowlex.service.prometheus_metrics import Metrics
    from flowlex.service.reader_process import ReaderProcess
    from flowlex.service.service_folder import settled
    from flowlex.service.state_snapshot_files import Snapshots
    from flowlex.service.verify_snapshot import start_read_back
    from flowlex.service.write_ahead_log import Journal, JournalError

    pace = dict(pace)
    snapshot_every = pace.pop("snapshot_every")
    kind, options, load = loader[:3]
    try:
        with contextlib.ExitStack() as undo:
            journal = Journal(state)
            undo.callback(journal.close)
            facts = settled(state, kind, options, given)
            worker = Worker(
                Snapshots(journal, load(facts["options"], without), snapshot_every, partial(start_read_back, state)),
                Metrics(),
                ReaderProcess(without),
                epoch_s=facts["epoch_s"],
                **pace,
            )
            undo.pop_all()  # the worker closes the journal
            collect_on_request()  # the worker collects between decisions
            return worker
    except (JournalError, InstanceError, ModelError) as error:
        raise ValueError(str(error)) from error
