"""A run's log as events of a flow-scheduling cluster, which ``flowlex replay`` takes."""

from __future__ import annotations

from collections.abc import Iterator

from flowlex.instances import events as ev
from flowlex.instances.base import Instance, Part
from flowlex.instances.cluster import ClusterNode, ClusterWorkload, Place
from flowlex.instances.flow import Block, FlowInstance, FlowJob, FlowTask, Machine
from flowlex.simulation.log import RunLog

__all__ = ["replay_events"]


def replay_events(workload: Instance, log: RunLog) -> Iterator[Part]:
    """What happened, as it would reach a live scheduler.

    Places become machines with as many slots as they have of their scarcest resource; tasks are submitted when they can
    start and end when they ended here, so that another scheduler decides on the same course of events. What one place
    alone cannot tell (several resources, output of other tasks) is left out.
    """
    assert isinstance(workload, ClusterWorkload)
    machines = {place.name: _machine(node, place) for node in workload.nodes for place in node.places}
    places = {node.name: [place.name for place in node.places] for node in workload.nodes}
    tasks = {task.name: task for task in workload.tasks}
    priority = {job.name: job.priority for job in workload.jobs}
    yield ev.Cluster(instance=FlowInstance(name=workload.name, machines=tuple(machines.values())))
    known: set[str] = set()
    for number, record in enumerate(log.of("ready", "end", "stop", "down", "up", "round")):
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
                tasks=(FlowTask(name=name, data=blocks),),
                priority=priority[record["job"]],
            )
            yield ev.Submit(at_s=at_s, job=job)
        elif event == "end":
            known.remove(record["task"])
            yield ev.Finish(at_s=at_s, task=record["task"])
        elif event == "stop" and record["why"] in ("failed", "data lost", "given up"):
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


def _machine(node: ClusterNode, place: Place) -> Machine:
    return Machine(name=place.name, slots=min(place.capacity.values()), rack=node.rack, labels=node.labels)
