"""``flowlex replay``: run an event log through the live flow scheduler, or let the pods of a trace come and go."""

from __future__ import annotations

import gzip
import inspect
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flowlex.cli.console_output import complain, console, facts_table, note, refuse_existing
from flowlex.cli.options import ForceOption, SettingsOption, parse_settings, typed

if TYPE_CHECKING:
    from flowlex.instances.instance_base import Instance, Part
    from flowlex.instances.pods import PodInstance
    from flowlex.models.flow.goals import Goal
    from flowlex.systems.scheduler.event_log import EventLog
    from flowlex.systems.scheduler.live.scheduler import FlowScheduler


#: Options of the command that apply to a log of transfers.
_KNOWN = ("log", "settings", "write_log", "force")


def replay(
    context: typer.Context,
    log: Annotated[
        Path,
        typer.Argument(
            help="Event log (JSON lines), a flow-scheduling, jit-bandwidth or pod-placement instance, or a folder of "
            "Google's trace."
        ),
    ],
    goals: Annotated[
        str, typer.Option("--goals", help="Cost model; `flowlex options flow-scheduling preset` lists them.")
    ] = "borg",
    batch: Annotated[int | None, typer.Option("--batch", min=1, help="Step after this many events.")] = None,
    steps: Annotated[int, typer.Option("--steps", min=0, help="For an instance: steps of made-up events.")] = 50,
    events: Annotated[int, typer.Option("--events", min=1, help="For an instance: events per step.")] = 100,
    seed: Annotated[int, typer.Option("--seed", min=0, help="For an instance: seed of the events.")] = 0,
    until: Annotated[float | None, typer.Option("--until", help="For a trace: stop after this many seconds.")] = None,
    cost_limit: Annotated[int, typer.Option("--cost-limit", min=1, help="Largest cost of one arc.")] = 10**6,
    scale: Annotated[
        int | None, typer.Option("--scale", min=1, help="Costs are multiples of 1/SCALE; derived by default.")
    ] = None,
    lexicographic: Annotated[
        bool, typer.Option("--lexicographic", help="Goals in strict order instead of their weighted sum.")
    ] = False,
    restore: Annotated[
        Path | None, typer.Option("--restore", help="Go on from a saved state, with its options and the same goals.")
    ] = None,
    save: Annotated[Path | None, typer.Option("--save", help="Save the scheduler's state at the end.")] = None,
    write_log: Annotated[Path | None, typer.Option("--write-log", help="Write the events as a log.")] = None,
    certify: Annotated[bool, typer.Option(help="Prove every step's optimum in exact integers.")] = True,
    step_limit_s: Annotated[
        float | None,
        typer.Option("--step-limit-s", min=0.001, help="Seconds of a full solve, for rules and capacities."),
    ] = None,
    settings: SettingsOption = None,
    policy: Annotated[str | None, typer.Option("--policy", help="For pods: first-fit, best-fit, fgd, ..")] = None,
    moves: Annotated[int | None, typer.Option("--moves", min=0, help="For pods: moves per arrival at most.")] = None,
    force: ForceOption = False,
) -> None:
    """Replay what happened to a cluster, or to a network of transfers, and show how long every decision took."""
    from flowlex.instances.files import read_instance
    from flowlex.instances.pods import PodInstance
    from flowlex.models.flow.goals import preset
    from flowlex.systems.scheduler import event_log as ev
    from flowlex.systems.scheduler.event_log import Network

    refuse_existing(force, None if save == restore else save, write_log)
    instance = read_instance(log) if log.is_file() and _is_document(log) else None
    if isinstance(instance, PodInstance):
        _replay_pods(instance, str(log), policy or "fgd", moves or 0, seed)
        return
    if policy is not None or moves is not None:
        raise typer.BadParameter("--policy and --moves are for pod-placement instances; leave them out")
    chosen: tuple[Goal, ...] | None = preset(goals)
    if restore is not None and not typed(context, "goals"):
        chosen = None  # those of the state
    options: dict[str, Any] = {"cost_limit": cost_limit, "lexicographic": lexicographic}
    if scale is not None:
        options["scale"] = scale
    if step_limit_s is not None:
        options["solver"] = {"time_limit_s": step_limit_s}
    scheduler = None if restore is None else _restored(restore, chosen, options, certify=certify)
    stream = _events(log, instance, steps=steps, events=events, seed=seed, until=until)
    first = next(iter(stream), None)
    if isinstance(stream, ev.EventLog) and first is None and stream.damage is not None:
        complain(f"{stream.damage}")
        if ".run.jsonl" in log.name:
            events_of_it = log.name.replace(".run.jsonl", ".events.jsonl")
            note(f"This is the record of a simulated run; replay {events_of_it}, which lies beside it.")
        raise typer.Exit(1)
    if settings and not isinstance(first, Network):
        raise typer.BadParameter("is for logs of transfers; goals of flow scheduling have --goals", param_hint="--set")
    if write_log is not None:
        stream = list(stream)
        ev.write_event_log(stream, write_log)
        note(f"Log: {write_log}")
    if isinstance(first, Network):
        _replay_transfers(context, stream, parse_settings(settings))
    else:
        title = f"Replay of {log} ({'goals of the state' if chosen is None else goals})"
        given = {"scheduler": scheduler, **(options if scheduler is None else {})}
        _replay_flow(title, stream, chosen or (), save, batch=batch, certify=certify, **given)
    _end_if_damaged(stream)


def _restored(state: Path, goals: tuple[Goal, ...] | None, options: dict[str, Any], *, certify: bool) -> FlowScheduler:
    """Load the scheduler of a saved state with its own options; the command's options must be the defaults."""
    from flowlex.systems.scheduler.live.snapshot import load_scheduler

    if options != {"cost_limit": 10**6, "lexicographic": False}:
        kept = "cost limit, scale, order and step limit"
        raise typer.BadParameter(f"--restore takes {kept} from the state; leave them out")
    return load_scheduler(state, goals, certify=certify)


def _replay_flow(
    title: str, stream: EventLog | list[Any], goals: tuple[Goal, ...], save: Path | None, **options: Any
) -> None:
    """Replay the events with a live flow scheduler; show the results, and save its state."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from flowlex.systems.scheduler.live.replay_events import replay_events
    from flowlex.systems.scheduler.live.snapshot import save_scheduler

    out = console()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    started = time.perf_counter()
    with Progress(*columns, console=out, transient=True) as progress:
        bar = progress.add_task("events", total=len(stream) if isinstance(stream, list) else None)
        report = replay_events(progress.track(stream, task_id=bar), goals, **options)
    facts: dict[str, Any] = report.summary() | {"seconds in all": round(time.perf_counter() - started, 3)}
    out.print(facts_table(title, facts))
    _print_steps(report.histogram(), report.refused)
    if save is not None:
        save_scheduler(report.scheduler, save)
        note(f"State: {save}")


def _replay_transfers(context: typer.Context, events: Iterable[Part], settings: dict[str, Any]) -> None:
    """Replay a log of transfers with `JitScheduler`; show the results."""
    from flowlex.systems.scheduler.transfers.replay_events import replay_jit_events
    from flowlex.systems.scheduler.transfers.scheduler import JitScheduler

    for name in context.params:
        source = context.get_parameter_source(name)
        if name not in _KNOWN and source is not None and source.name == "COMMANDLINE":
            raise typer.BadParameter("is an option of flow scheduling; a log of transfers knows --set", param_hint=name)
    known = [p.name for p in inspect.signature(JitScheduler).parameters.values() if p.kind is p.KEYWORD_ONLY]
    known = [name for name in (*known, "time_limit_s") if name not in ("slot_s", "unit_mb")]
    if odd := [name for name in settings if name not in known]:
        raise typer.BadParameter(f"{odd[0]!r} is none of {', '.join(known)}", param_hint="--set")
    started = time.perf_counter()
    report = replay_jit_events(events, **{name: _value(text) for name, text in settings.items()})
    facts = report.summary() | {"seconds in all": round(time.perf_counter() - started, 3)}
    console().print(facts_table(f"Replay of {context.params['log']} (just in time)", facts))
    _print_steps(report.histogram(), report.refused)
    if report.late:
        worst = max(report.late, key=lambda name: report.late[name])
        note(f"latest against its due slot: {worst}, {report.late[worst]} slots")


def _value(text: Any) -> Any:
    """Convert text to a number or truth value if possible."""
    if text in ("true", "false"):
        return text == "true"
    try:
        return float(text)
    except (TypeError, ValueError):
        return text


def _print_steps(histogram: Sequence[tuple[float, float, int]], refused: Sequence[tuple[int, str]]) -> None:
    """Print a histogram of the steps, and the events that were refused."""
    most = max((count for *_, count in histogram), default=0)
    for low, high, count in histogram:
        bar = "#" * round(50 * count / most) if most else ""
        console().print(f"{low:10.2f} .. {high:10.2f} ms  {count:6d}  {bar}")
    for number, reason in refused[:10]:
        note(f"event {number} was refused: {reason}")
    if len(refused) > 10:
        note(f"... and {len(refused) - 10} more events were refused")


def _end_if_damaged(stream: EventLog | list[Any]) -> None:
    """Exit with the error that stopped the reading of a log, if any."""
    damage = None if isinstance(stream, list) else stream.damage
    if damage is not None:
        complain(f"{damage}")
        raise typer.Exit(1)


def _events(
    log: Path, instance: Instance | None, *, steps: int, events: int, seed: int, until: float | None
) -> EventLog | list[Any]:
    """Return the events of a log or a trace, or random ones for an instance."""
    from flowlex.instances.flow import FlowInstance
    from flowlex.instances.instance_base import InstanceError
    from flowlex.instances.jit import JitInstance
    from flowlex.systems.scheduler.event_log import EventLog, events_of
    from flowlex.systems.scheduler.random_events import event_stream
    from flowlex.systems.traces.google import google_trace_events

    if log.is_dir():
        return list(google_trace_events(log, until_s=until))
    if instance is None:
        return EventLog(log)
    if isinstance(instance, JitInstance):
        return list(events_of(instance))
    if not isinstance(instance, FlowInstance):
        reason = f"only flow-scheduling and jit-bandwidth instances can be replayed, this is {instance.kind!r}"
        raise InstanceError(reason, path=log)
    return list(event_stream(instance, seed=seed, steps=steps, events=events))


def _replay_pods(instance: PodInstance, name: str, policy: str, moves: int, seed: int) -> None:
    """Replay arrivals and departures of an instance's pods; show waiting times and the allocation of GPUs."""
    from flowlex.models.pods.online_arrivals import live_through

    started = time.perf_counter()
    life = live_through(instance, policy, moves=moves, seed=seed)
    facts = life.summary() | {"seconds in all": round(time.perf_counter() - started, 3)}
    console().print(facts_table(f"Replay of {name} ({policy}, {moves} moves per arrival)", facts))


def _is_document(log: Path) -> bool:
    """Return whether the file is one instance rather than lines of events."""
    with gzip.open(log) if log.suffix == ".gz" else log.open("rb") as stream:
        head = stream.read(4096)
    return b'"kind"' in head and b'"event"' not in head.split(b"\n", 1)[0]
