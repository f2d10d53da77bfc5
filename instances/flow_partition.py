"""Cut the cluster of a flow-scheduling instance into parts that can be solved one by one, on machines of their own."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

from flowlex.instances.flow import FlowInstance, FlowJob, FlowTask
from flowlex.instances.input_errors import InstanceError


def cut(instance: FlowInstance, parts: int) -> list[FlowInstance]:
    """Cut a cluster by racks into parts of near equal numbers of slots, and give each task to one of them.

    Racks stay in the order of the instance, so that neighbours stay together. Tasks come by priority. A running task
    stays with its machine. Any other task goes to a part whose machines meet each of its requirements; of these to one
    with a free slot, where most of its data lies (then preferred machines and machines with a cost of its own), with
    most free slots, the first of equal ones. A limit of preemptions is split by running tasks, rounded so that the sum
    is the limit. Equal instances are cut into equal parts.

    Machines of other parts that tasks of a part name (for data or a cost) are listed there without slots: so costs stay
    what they are, and the parts together are the instance.

    Parameters
    ----------
    instance
        The cluster with its jobs, without capacities and rules over several tasks, which the parts could not keep.
    parts
        Number of parts, at most that of racks.

    Raises
    ------
    InstanceError
        There are fewer racks than parts, or capacities, gangs, spreads, affinities or changes.
    """
    racks: Counter[str] = Counter()
    for machine in instance.machines:
        racks[machine.rack] += machine.slots
    if not 1 <= parts <= len(racks):
        raise InstanceError(f"{instance.name}: expected 1 to {len(racks)} parts (one rack each), got {parts}")
    if why := uncuttable(instance):
        raise InstanceError(f"{instance.name}: {why} may join machines or tasks of several parts; solve it whole")
    whole, before, number = max(1, sum(racks.values())), 0, -1
    slots, part_of_rack = [0] * parts, dict[str, int]()
    for k, (rack, here) in enumerate(racks.items()):
        wanted = (2 * before + here) * parts // (2 * whole)  # by the middle of the rack
        number = max(min(wanted, number + 1, parts - 1), parts - len(racks) + k)  # no part is left without a rack
        part_of_rack[rack], before = number, before + here
        slots[number] += here
    part_of = {machine.name: part_of_rack[machine.rack] for machine in instance.machines}
    given = _given(instance, part_of, slots)
    return [_part(instance, k, parts, part_of, given) for k in range(parts)]


def uncuttable(instance: FlowInstance) -> str:
    """What of an instance no parts can keep; empty if there is nothing."""
    found = {
        "capacities": instance.resources,
        "gangs": instance.gangs,
        "spreads": instance.spreads,
        "affinities": instance.affinities,
        "changes": instance.changes,
    }
    return next((what for what, there in found.items() if there), "")


def _given(instance: FlowInstance, part_of: dict[str, int], slots: list[int]) -> dict[str, int]:
    """The part of each task by name."""
    holds: dict[str, set[int]] = defaultdict(set)  # parts with slots of each tag
    for machine in instance.machines:
        for tag in machine.tags if machine.slots else ():
            holds[tag].add(part_of[machine.name])
    free, given = slots.copy(), dict[str, int]()
    waiting = []
    for job in sorted(instance.jobs, key=lambda job: job.priority):
        for task in job.tasks:
            if task.running is None:
                waiting.append(task)
            else:
                given[task.name] = part_of[task.running.machine]
                free[given[task.name]] -= 1
    every = set(range(len(slots)))
    for task in waiting:
        fit = every
        for rule in task.constraints:
            if rule.kind == "required":
                fit = fit & set().union(*(holds.get(tag, ()) for tag in rule.resources))
        near: Counter[int] = Counter()
        for block in task.data:
            for k in {part_of[machine] for machine in block.machines}:
                near[k] += block.size_mb
        liked = Counter(part_of[machine] for machine in task.costs)
        for rule in task.constraints:
            if rule.kind == "preferred":
                liked.update(set().union(*(holds.get(tag, ()) for tag in rule.resources)))
        best = max(fit or every, key=lambda k: (free[k] > 0, near[k], liked[k], free[k], -k))
        given[task.name] = best
        free[best] -= 1
    return given


def _part(
    instance: FlowInstance, number: int, parts: int, part_of: dict[str, int], given: dict[str, int]
) -> FlowInstance:
    jobs = []
    for job in instance.jobs:
        tasks = tuple(task for task in job.tasks if given[task.name] == number)
        if tasks:
            jobs.append(_share_of(job, tasks, number, given))
    named = {name for job in jobs for task in job.tasks for name in _machines_of(task)}
    machines = (
        machine if part_of[machine.name] == number else machine.model_copy(update={"slots": 0})
        for machine in instance.machines
        if part_of[machine.name] == number or machine.name in named
    )
    return FlowInstance(
        name=f"{instance.name}, part {number + 1} of {parts}",
        machines=tuple(machines),
        jobs=tuple(jobs),
        queues=instance.queues,
    )


def _machines_of(task: FlowTask) -> Iterator[str]:
    yield from task.costs
    for block in task.data:
        yield from block.machines


def _share_of(job: FlowJob, tasks: tuple[FlowTask, ...], number: int, given: dict[str, int]) -> FlowJob:
    """The job with some of its tasks, and its share of the preemptions that it has left within the hour."""
    if job.preemptions_per_hour is None or len(tasks) == len(job.tasks):
        return job.model_copy(update={"tasks": tasks})
    left = max(0, job.preemptions_per_hour - sum(s < 3600 for s in job.preempted_s))
    running = [given[task.name] for task in job.tasks if task.running is not None]
    before, until = sum(k < number for k in running), sum(k <= number for k in running)
    mine = left * until // len(running) - left * before // len(running) if running else 0
    return job.model_copy(update={"tasks": tasks, "preemptions_per_hour": mine, "preempted_s": ()})
