"""Convert a run's log to events of a flow-scheduling cluster for ``flowlex replay``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set

from flowlex.instances.flow import Block, Constraint, FlowInstance, FlowJob, FlowTask, Machine
from flowlex.instances.instance_base import Instance, Part
from flowlex.systems.scheduler import event_log as ev
from flowlex.systems.simulation.cluster_workload import ClusterNode, ClusterTask, ClusterWorkload, Place
from flowlex.systems.simulation.event_log import RunLog


def replay_events(workload: Instance, log: RunLog) -> Iterator[Part]:
    """Yield the events of a run, as a live scheduler would receive them.

    Places become machines with as many slots as they have of their scarcest resource. Tasks are submitted when they can
    start and end when they ended here, so that another scheduler sees the same course of events. Different kinds of
    places (GPUs, cores) are distinguished by labels of machines and required constraints of tasks. Amounts of several
    resources and the output of other tasks are left out.
    """
    assert isinstance(workload, ClusterWorkload)
    kinds = {_kind(place.capacity): place.capacity.keys() for place in workload.places}
    machines = {place.name: _machine(node, place, len(kinds) > 1) for node in workload.nodes for place in node.places}
    places = {node.name: [place.name for place in node.places] for node in workload.nodes}
    tasks = {task.name: task for task in workload.tasks}
    priority = {job.name: job.priority for job in workload.jobs}
    yield ev.Cluster(instance=FlowInstance(name=workload.name, machines=tuple(machines.values())))
    known: set[str] = set()
    for number, record in enumerate(log.of("ready", "end", "stop", "withdraw", "down", "up", "round")):
        at_s, event = record["at_s"], record["event"]
        if event == "ready" and record["task"] not in known:
            name = record["task"]
            known.add(name)
            blocks = tuple(
                Block(size_mb=max(round(read.size_mb), 1), machines=tuple(p for n in read.replicas for p in places[n]))
                for read in tasks[name].reads
                if read.replicas
            )
            job = FlowJob(
                name=f"{record['job']}/{number}",
                tasks=(FlowTask(name=name, data=blocks, constraints=_required(tasks[name], kinds)),),
                priority=priority[record["job"]],
            )
            yield ev.Submit(at_s=at_s, job=job)
        elif event == "end":
            known.remove(record["task"])
            yield ev.Finish(at_s=at_s, task=record["task"])
        elif event == "withdraw" or (event == "stop" and record["why"] in ("failed", "data lost", "given up")):
            known.remove(record["task"])
            yield ev.Cancel(at_s=at_s, task=record["task"])
        elif event in ("down", "up"):
            for place in places[record["node"]]:
                if event == "down":
                    yield ev.RemoveMachine(at_s=at_s, machine=place)
                else:
                    yield ev.AddMachine(at_s=at_s, machine=machines[place])
        elif event == "round":
            yield ev.Step(at_s=at_s)


def _kind(amounts: Mapping[str, int]) -> str:
    """The kind of a place: the names of its resources."""
    return "has:" + "+".join(sorted(amounts))


def _required(task: ClusterTask, kinds: Mapping[str, Set[str]]) -> tuple[Constraint, ...]:
    """Require a place of a kind that has the task's resources; no constraint if there is only one kind."""
    fitting = tuple(kind for kind, names in kinds.items() if names >= task.demand.keys())
    return () if len(kinds) == 1 else (Constraint(kind="required", resources=fitting),)


def _machine(node: ClusterNode, place: Place, several: bool) -> Machine:
    labels = (*node.labels, _kind(place.capacity)) if several else node.labels
    return Machine(name=place.name, slots=min(place.capacity.values()), rack=node.rack, labels=labels)
