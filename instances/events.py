"""What happens to a cluster over time, as JSON lines: one event a line, applied in order.

A log may open with a ``cluster`` event holding a whole flow-scheduling instance. ``step`` asks the scheduler to
decide; a log without ``step`` is cut into steps by whoever replays it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter, ValidationError

from flowlex.instances.base import InstanceError, Name, NonNegative, Part
from flowlex.instances.files import read_bytes, write_atomically
from flowlex.instances.flow import Count, FlowInstance, FlowJob, Machine

__all__ = [
    "AddMachine",
    "Cancel",
    "Cluster",
    "Event",
    "EventLog",
    "Finish",
    "RemoveMachine",
    "SetCost",
    "SetPriority",
    "SetSlots",
    "Step",
    "Submit",
    "UpdateShares",
    "read_event_log",
    "write_event_log",
]


class _Timed(Part):
    at_s: NonNegative = 0.0


class Cluster(_Timed):
    """The cluster to begin with."""

    event: Literal["cluster"] = "cluster"
    instance: FlowInstance


class Submit(_Timed):
    """A job arrives."""

    event: Literal["submit"] = "submit"
    job: FlowJob


class Finish(_Timed):
    """A running task has ended."""

    event: Literal["finish"] = "finish"
    task: Name


class Cancel(_Timed):
    """A task, running or not, or a whole job, is withdrawn."""

    event: Literal["cancel"] = "cancel"
    task: Name | None = None
    job: Name | None = None


class AddMachine(_Timed):
    """A machine joins or returns."""

    event: Literal["add_machine"] = "add_machine"
    machine: Machine


class RemoveMachine(_Timed):
    """A machine leaves or fails; what runs there stops."""

    event: Literal["remove_machine"] = "remove_machine"
    machine: Name


class SetSlots(_Timed):
    """A machine runs more or fewer tasks from now on."""

    event: Literal["set_slots"] = "set_slots"
    machine: Name
    slots: Count


class SetPriority(_Timed):
    """A job becomes more (smaller number) or less important."""

    event: Literal["set_priority"] = "set_priority"
    job: Name
    priority: Annotated[int, Field(ge=0, le=1000)]


class SetCost(_Timed):
    """A task's cost on one machine is set, or with null left to the goals again."""

    event: Literal["set_cost"] = "set_cost"
    task: Name
    machine: Name
    cost: float | None


class UpdateShares(_Timed):
    """A job's claim to the cluster changes; what is not given stays."""

    event: Literal["update_shares"] = "update_shares"
    job: Name
    weight: Annotated[int, Field(ge=1, le=10**6)] | None = None
    min_tasks: Count | None = None
    max_tasks: Count | None = None


class Step(_Timed):
    """Decide now."""

    event: Literal["step"] = "step"


Event = Annotated[
    Cluster
    | Submit
    | Finish
    | Cancel
    | AddMachine
    | RemoveMachine
    | SetSlots
    | SetPriority
    | SetCost
    | UpdateShares
    | Step,
    Field(discriminator="event"),
]
_ADAPTER: TypeAdapter[Any] = TypeAdapter(Event)


@dataclass(frozen=True)
class EventLog:
    """Events in order, and what stopped the reading when a line is damaged (everything before it is kept)."""

    events: tuple[Any, ...]
    damage: InstanceError | None = None

    def require_whole(self) -> EventLog:
        """Return self, or raise the damage."""
        if self.damage is not None:
            raise self.damage
        return self


def read_event_log(path: str | Path) -> EventLog:
    """Read a log (plain or gzip) up to its end or its first damaged line.

    Raises
    ------
    InstanceError
        The file cannot be read at all.
    """
    data = read_bytes(path)
    events: list[Any] = []
    for number, line in enumerate(data.split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            events.append(_ADAPTER.validate_json(line))
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            place = ".".join(str(part) for part in first["loc"])
            reason = f"{first['msg']}{f' ({place})' if place else ''}; {len(events)} events before it are kept"
            return EventLog(tuple(events), InstanceError(reason, place=f"line {number}", path=path))
    return EventLog(tuple(events))


def write_event_log(events: Iterable[Part], path: str | Path) -> None:
    """Write a log; the same events give the same bytes. A name that ends in ``.gz`` is compressed."""
    text = "".join(event.model_dump_json(exclude_defaults=False) + "\n" for event in events)
    write_atomically(path, text.encode())
