"""Replay an event log through the flow scheduler and record the time of every step."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import chain
from typing import Any

from flowlex.instances.flow import FlowInstance
from flowlex.instances.instance_base import Part
from flowlex.models.flow.goals import Goal
from flowlex.models.model_base import ModelError
from flowlex.systems.scheduler import event_log as ev
from flowlex.systems.scheduler.live.scheduler import Delta, EventError, FlowScheduler
from flowlex.systems.scheduler.step_latency import Replayed


@dataclass
class ReplayReport(Replayed):
    """Counts and times of a replay; the time of a step includes its events."""

    scheduler: FlowScheduler
    placed: int = 0
    moved: int = 0
    stopped: int = 0
    ended_waiting: int = 0

    def summary(self) -> dict[str, Any]:
        """Totals and latencies."""
        return {
            "steps": self.steps,
            "events": self.events,
            "placed": self.placed,
            "moved": self.moved,
            "stopped": self.stopped,
            "ended_while_waiting": self.ended_waiting,
            "refused_events": len(self.refused),
            "running_at_end": self.scheduler.state.running,
            "method": self.scheduler.method,
            "waiting_at_end": len(self.scheduler.state.tasks) - self.scheduler.state.running,
            **self.latencies(),
        }


def replay_events(
    events: Iterable[Part],  # a log; without a ``cluster`` event first, the cluster starts empty
    goals: Iterable[Goal],
    *,
    batch: int | None = None,  # step after this many events instead of at the log's ``step`` events
    on_step: Callable[[Delta], None] | None = None,
    scheduler: FlowScheduler | None = None,
    certify: bool = True,  # check every step in exact integers
    **options: Any,
) -> ReplayReport:
    """Feed a log to a scheduler.

    ``scheduler``: continue with this one (`load_scheduler`), for logs without a cluster; None: a new `FlowScheduler`
    with ``options``. Raises `ModelError` if a scheduler is given together with a cluster in the log or with options.
    If the log finishes a task that waits here (the scheduler of the log had placed it), the task is cancelled and
    counted.
    """
    stream = iter(events)
    first = next(stream, None)
    begun = isinstance(first, ev.Cluster)
    if scheduler is None:
        cluster = first.instance if isinstance(first, ev.Cluster) else FlowInstance(name="empty", machines=())
        scheduler = FlowScheduler(cluster, goals, certify=certify, **options)
    elif begun:
        raise ModelError("the log begins with a cluster, the restored scheduler has one; replay only what came later")
    elif options:
        raise ModelError(f"a restored scheduler keeps its own options; leave out {', '.join(options)}")
    scheduler.certify = certify
    report = ReplayReport(scheduler)
    rest = stream if first is None or begun else chain((first,), stream)
    _run(report, enumerate(rest, 2 if begun else 1), batch, on_step)
    return report


def _run(
    report: ReplayReport, events: Iterable[tuple[int, Part]], batch: int | None, on_step: Callable[[Delta], None] | None
) -> None:
    """Handle numbered events; step at the log's ``step`` events or after each batch."""
    pending, at = 0, report.scheduler.state.now_s
    for number, event in events:
        time_s = float(getattr(event, "at_s", at)) if "at_s" in event.model_fields_set else at
        if time_s < at:
            report.refused.append((number, f"time runs backwards, from {at:g} s to {time_s:g} s; sort the log"))
            continue
        at, said = time_s, isinstance(event, ev.Step)
        if not said:
            _feed(report, event, number)
            pending += 1
        if (said and batch is None) or (batch is not None and pending >= batch):
            _step(report, at, on_step)
            pending = 0
    if pending:
        _step(report, at, on_step)


def _feed(report: ReplayReport, event: Part, number: int) -> None:
    scheduler = report.scheduler
    try:
        task = scheduler.state.tasks.get(event.task) if isinstance(event, ev.Finish) else None
        if task is not None and task.machine is None:
            scheduler.cancel(task=task.task.name)
            report.ended_waiting += 1
        else:
            scheduler.handle(event)
        report.events += 1
    except EventError as error:
        report.refused.append((number, str(error)))


def _step(report: ReplayReport, at: float, on_step: Callable[[Delta], None] | None) -> None:
    delta = report.scheduler.step(at)
    report.steps += 1
    report.placed += len(delta.placed)
    report.moved += len(delta.moved)
    report.stopped += len(delta.stopped)
    report.milliseconds.append(1e3 * delta.seconds["total"])
    if on_step is not None:
        on_step(delta)
