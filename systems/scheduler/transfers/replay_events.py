"""Replay an event log through `JitScheduler`, and record the decisions and times of all steps."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from flowlex.formulations.solver_outcome import Status
from flowlex.instances.instance_base import Part
from flowlex.models.model_base import ModelError
from flowlex.systems.scheduler import event_log as ev
from flowlex.systems.scheduler.step_latency import Replayed
from flowlex.systems.scheduler.transfers.scheduler import JitEventError, JitScheduler, JitStep


@dataclass
class JitReplay(Replayed):
    """Counts and times of a replay."""

    scheduler: JitScheduler
    planned: int = 0
    replanned: int = 0
    proven: int = 0
    # transfers that arrive after their due slot according to the last step that planned them: slots of lateness
    late: dict[str, int] = field(default_factory=dict)

    def summary(self) -> dict[str, Any]:
        """Totals and latencies."""
        return {
            "steps": self.steps,
            "steps_proven_optimal": self.proven,
            "events": self.events,
            "refused_events": len(self.refused),
            "transfers_planned": self.planned,
            "plans_changed": self.replanned,
            "transfers_late": len(self.late),
            "most_slots_late": max(self.late.values(), default=0),
            "background_transfers": len(self.scheduler.background),
            "sending_at_end": len(self.scheduler.sending),
            **self.latencies(),
        }


def replay_jit_events(
    events: Iterable[Part], *, on_step: Callable[[JitStep], None] | None = None, **options: Any
) -> JitReplay:
    """Feed a log to a scheduler.

    The log ``events`` starts with a ``network`` event. The scheduler plans at every ``step`` event and whenever a step
    is due (`JitScheduler.next_step_s`). ``options`` go to `JitScheduler`. Raises `ModelError` if the log does not start
    with a network or an option is invalid.
    """
    stream = iter(events)
    first = next(stream, None)
    if not isinstance(first, ev.Network):
        raise ModelError("a log of transfers begins with its `network` event, which states machines, slot and unit")
    scheduler = JitScheduler(first.machines, slot_s=first.slot_s, unit_mb=first.unit_mb, **options)
    report = JitReplay(scheduler, events=1)
    for number, event in enumerate(stream, 2):
        report.events += 1
        at_s = getattr(event, "at_s", 0.0)
        while (due := scheduler.next_step_s) is not None and due < at_s:
            _step(report, due, on_step)
        try:
            _apply(scheduler, event)
        except JitEventError as error:
            report.refused.append((number, str(error)))
            continue
        if isinstance(event, ev.Step):
            _step(report, at_s, on_step)
    while (due := scheduler.next_step_s) is not None:
        _step(report, due, on_step)
    return report


def _apply(scheduler: JitScheduler, event: Part) -> None:
    match event:
        case ev.Arrive():
            scheduler.submit(event.job, event.at_s)
        case ev.Withdraw():
            scheduler.withdraw(event.job, event.at_s)
        case ev.Sent():
            scheduler.report(event.transfer, event.left_mb, event.at_s)
        case ev.Step():
            if event.at_s < scheduler.now_s:
                raise JitEventError(f"time runs forwards: {event.at_s} s comes before {scheduler.now_s} s")
        case _:
            raise JitEventError(f"{getattr(event, 'event', event)!r} is no event of a network of transfers")


def _step(report: JitReplay, at_s: float, on_step: Callable[[JitStep], None] | None) -> None:
    step = report.scheduler.step(at_s)
    report.steps += 1
    report.planned += len(step.new)
    report.replanned += len(step.changed)
    report.proven += step.status is Status.OPTIMAL
    for name in report.scheduler.sending:
        report.late.pop(name, None)
    report.late |= step.late
    report.milliseconds.append(step.seconds * 1000)
    if on_step is not None:
        on_step(step)
