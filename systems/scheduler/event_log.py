"""Events of clusters, of transfers and of nodes with GPUs, and logs of the first two as JSON lines in order.

A log of a cluster may start with a ``cluster`` event that holds a flow-scheduling instance; a log of transfers starts
with ``network``. A ``step`` event asks the scheduler to decide; the replay divides a log without ``step`` into steps.
Nodes and jobs report the others to the rounds of GPU assignment.
"""

from __future__ import annotations

import codecs
import gzip
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, cast

from pydantic import Field, TypeAdapter, ValidationError, model_validator

from flowlex.instances import gpu
from flowlex.instances.file_storage import write_atomically
from flowlex.instances.flow import Count, FlowInstance, FlowJob, Machine, Queue, Slots
from flowlex.instances.group_rules import Affinity, Gang, TaskSpread
from flowlex.instances.input_errors import InstanceError, first_fault
from flowlex.instances.instance_base import Name, NonNegative, Part, Positive, require_unique
from flowlex.instances.jit import JitInstance, Job
from flowlex.instances.jit import Machine as Port


class Timed(Part):
    """An event at a time."""

    at_s: NonNegative = 0.0


class Network(Timed):
    """The initial machines and time grid (see `flowlex.instances.jit.JitInstance`)."""

    event: Literal["network"] = "network"
    machines: Annotated[tuple[Port, ...], Field(min_length=2)]
    slot_s: Positive = 0.1
    unit_mb: Positive = 1.25

    @model_validator(mode="after")
    def _check(self) -> Network:
        require_unique((m.name for m in self.machines), "machines")
        return self


class Arrive(Timed):
    """A job is submitted with its DAG; its ``arrival_s`` is ignored."""

    event: Literal["arrive"] = "arrive"
    job: Job


class Withdraw(Timed):
    """A job is given up."""

    event: Literal["withdraw"] = "withdraw"
    job: Name


class Sent(Timed):
    """The remaining size of a transfer, if it differs from the plan."""

    event: Literal["sent"] = "sent"
    transfer: Name
    left_mb: NonNegative


class Cluster(Timed):
    """The initial cluster."""

    event: Literal["cluster"] = "cluster"
    instance: FlowInstance


class _Ties(Timed):
    """An event with gang, spread and affinity rules, as in an instance."""

    gangs: tuple[Gang, ...] = ()
    spreads: tuple[TaskSpread, ...] = ()
    affinities: tuple[Affinity, ...] = ()

    @property
    def rules(self) -> tuple[Gang | TaskSpread | Affinity, ...]:
        """All rules."""
        return (*self.gangs, *self.spreads, *self.affinities)


class Submit(_Ties):
    """A job arrives with rules over its tasks and tasks already present; job and rules are accepted together."""

    event: Literal["submit"] = "submit"
    job: FlowJob


class Tie(_Ties):
    """Rules over present jobs and tasks are added, all or none."""

    event: Literal["tie"] = "tie"

    @model_validator(mode="after")
    def _some(self) -> Tie:
        if not self.rules:
            raise ValueError("tie gives no rules; state gangs, spreads or affinities")
        return self


class Untie(Timed):
    """A rule is removed."""

    event: Literal["untie"] = "untie"
    kind: Literal["gang", "spread", "affinity"]
    name: Name


class Finish(Timed):
    """A running task has ended."""

    event: Literal["finish"] = "finish"
    task: Name


class Cancel(Timed):
    """A task, running or not, or a whole job, is withdrawn."""

    event: Literal["cancel"] = "cancel"
    task: Name | None = None
    job: Name | None = None


class AddMachine(Timed):
    """A machine joins or returns."""

    event: Literal["add_machine"] = "add_machine"
    machine: Machine


class RemoveMachine(Timed):
    """A machine leaves or fails; what runs there stops."""

    event: Literal["remove_machine"] = "remove_machine"
    machine: Name


class SetSlots(Timed):
    """The number of slots of a machine changes."""

    event: Literal["set_slots"] = "set_slots"
    machine: Name
    slots: Slots


class SetPriority(Timed):
    """A job becomes more (smaller number) or less important."""

    event: Literal["set_priority"] = "set_priority"
    job: Name
    priority: Annotated[int, Field(strict=True, ge=0, le=1000)]


class SetCost(Timed):
    """A task's cost on one machine is set; null returns it to the cost model."""

    event: Literal["set_cost"] = "set_cost"
    task: Name
    machine: Name
    cost: float | None


class UpdateShares(Timed):
    """A job's share of the cluster changes; values not given stay."""

    event: Literal["update_shares"] = "update_shares"
    job: Name
    weight: Annotated[int, Field(strict=True, ge=1, le=10**6)] | None = None
    min_tasks: Count | None = None
    max_tasks: Count | None = None


class SetPreemption(Timed):
    """A job's preemption cost or its limit of preemptions per hour changes; values not given stay."""

    event: Literal["set_preemption"] = "set_preemption"
    job: Name
    cost: NonNegative | None = None
    per_hour: Count | None = None


class Relabel(Timed):
    """The labels or the rack of a machine change; values not given stay."""

    event: Literal["relabel"] = "relabel"
    machine: Name
    labels: tuple[Name, ...] | None = None
    rack: Name | None = None


class SetQueues(Timed):
    """The queues are replaced; the new ones must include every queue that a job is in."""

    event: Literal["set_queues"] = "set_queues"
    queues: tuple[Queue, ...]


class SetGoals(Timed):
    """The cost model changes, by name: a preset of flow scheduling."""

    event: Literal["set_goals"] = "set_goals"
    goals: Name


class Step(Timed):
    """Decide now."""

    event: Literal["step"] = "step"


class NodeReport(Part):
    """A node with its GPUs; a task on a GPU that is gone or now too small waits again."""

    event: Literal["node"] = "node"
    node: gpu.Node


class NodeGone(Part):
    """A node has left or failed; its tasks wait again."""

    event: Literal["node_gone"] = "node_gone"
    node: Name


class JobPart(Part):
    """A job's part of the network: its tasks, their needs, and the locations of their data.

    A later part of the same job replaces its waiting tasks; running tasks stay.
    """

    event: Literal["job"] = "job"
    job: gpu.Job


class Withdrawn(Part):
    """A job is withdrawn with all its tasks."""

    event: Literal["withdrawn"] = "withdrawn"
    job: Name


class TaskEnd(Part):
    """A running task has ended; one that failed waits again."""

    event: Literal["task_end"] = "task_end"
    task: Name
    failed: bool = False


class Transfer(Part):
    """A task transferred data: from its node's disk (source equals target), within a rack, or between racks."""

    event: Literal["transfer"] = "transfer"
    source: Name
    target: Name
    size_mb: Positive
    seconds: Positive


_OfTasks = Submit | Finish | Cancel | SetPriority | SetCost | UpdateShares | SetPreemption | Tie | Untie
_OfClusters = Cluster | AddMachine | RemoveMachine | SetSlots | Relabel | SetQueues | SetGoals | Step
_OfTransfers = Network | Arrive | Withdraw | Sent
Event = Annotated[_OfTasks | _OfClusters | _OfTransfers, Field(discriminator="event")]
EVENT: TypeAdapter[Any] = TypeAdapter(Event)
#: What is in logs, but is not sent to a service.
NOT_SENT = (Cluster, Step, Network, Arrive, Withdraw, Sent)
GpuEvent = Annotated[NodeReport | NodeGone | JobPart | Withdrawn | TaskEnd | Transfer, Field(discriminator="event")]
GPU_EVENT: TypeAdapter[NodeReport | NodeGone | JobPart | Withdrawn | TaskEnd | Transfer] = TypeAdapter(GpuEvent)


def node_of(event: Part, where: Mapping[str, str]) -> str:
    """Return the machine or node that reports an event, given those of tasks; empty if it is none's."""
    match event:
        case Finish() | TaskEnd():
            return where.get(event.task, "")
        case AddMachine():
            return event.machine.name
        case RemoveMachine() | SetSlots():
            return event.machine
        case NodeReport():
            return event.node.name
        case NodeGone():
            return event.node
        case Transfer():
            return event.target
    return ""


class EventLog:
    """An event log in a file (plain or gzip); iteration reads one line at a time.

    Iteration ends at the end of the file or at the first damaged line; ``damage`` then holds the error.
    """

    def __init__(self, path: str | Path) -> None:
        self.path: Path = Path(path)
        self.damage: InstanceError | None = None

    def __iter__(self) -> Iterator[Any]:
        self.damage, count = None, 0
        try:
            with self.path.open("rb") as plain:
                stream = gzip.GzipFile(fileobj=plain) if plain.peek(2)[:2] == b"\x1f\x8b" else plain
                for number, line in enumerate(cast("Iterable[bytes]", stream), 1):
                    text = line.removeprefix(codecs.BOM_UTF8) if number == 1 else line
                    if text.strip():
                        yield EVENT.validate_json(text)
                        count += 1
        except ValidationError as error:
            place, what = first_fault(error)
            reason = f"{what}{f' ({place})' if place else ''}; {count} events before it are kept"
            self.damage = InstanceError(reason, place=f"line {number}", path=self.path)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            reason = f"damaged gzip data ({error}); {count} events before it are kept"
            self.damage = InstanceError(reason, path=self.path)
        except OSError as error:
            raise InstanceError(f"cannot be read: {error.strerror or error}", path=self.path) from error


def write_event_log(events: Iterable[Part], path: str | Path) -> None:
    """Write a log; the same events give the same bytes. A name that ends in ``.gz`` is compressed."""
    text = "".join(event.model_dump_json(exclude_defaults=False) + "\n" for event in events)
    write_atomically(path, text.encode())


def events_of(instance: JitInstance) -> Iterator[Network | Arrive]:
    """Yield an instance as an event log: its network, then its jobs in order of arrival."""
    yield Network(machines=instance.machines, slot_s=instance.slot_s, unit_mb=instance.unit_mb)
    for job in sorted(instance.jobs, key=lambda j: j.arrival_s):
        yield Arrive(at_s=job.arrival_s, job=job)
