"""Save a flow scheduler and make it again: the same schedule, the same tree, the same next step.

The file is a zip of NumPy arrays (the network with its tree) and one JSON text (cluster, jobs, which slot is what),
written whole or not at all. Goals are code, so the restorer passes them; their names and settings are compared.
"""

from __future__ import annotations

import io
import json
import zipfile
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from flowlex.formulations.sessions.network import NetworkSession
from flowlex.formulations.sessions.phased import PhasedSession
from flowlex.instances.base import InstanceError
from flowlex.instances.flow import FlowInstance, FlowJob, Machine, Queue
from flowlex.instances.flow_rules import Affinity, Gang, TaskSpread
from flowlex.instances.storage import write_atomically
from flowlex.models.base import ModelError
from flowlex.models.collector import collector_paused
from flowlex.models.flow.blocks import base_of
from flowlex.models.flow.goals import PRESETS, Goal
from flowlex.models.flow.goals.base import Spot
from flowlex.models.flow.layout import Layout
from flowlex.models.flow.live.all_but import _AllBut, _Tree
from flowlex.models.flow.live.apart import ApartNetwork
from flowlex.models.flow.live.beyond import TieRule
from flowlex.models.flow.live.clock import elapsed_s
from flowlex.models.flow.live.known import LiveJob, LiveTask
from flowlex.models.flow.live.network import LiveNetwork
from flowlex.models.flow.live.parts import GroupNode, JobBounds, JobNode, MachineNode, Owner, TaskNode
from flowlex.models.flow.live.scheduler import FlowScheduler
from flowlex.models.flow.live.state import LiveState
from flowlex.models.flow.live.whole import Whole

__all__ = ["load_scheduler", "save_scheduler"]

_RULES: dict[str, type[TieRule]] = {"gang": Gang, "spread": TaskSpread, "affinity": Affinity}
_FORMAT = "flowlex flow scheduler 5"


def save_scheduler(scheduler: FlowScheduler, path: str | Path) -> None:
    """Write the whole state to ``path``, atomically.

    Raises
    ------
    ModelError
        The scheduler runs on an engine without a tree to save.
    """
    state = scheduler.state
    if not isinstance(state.session, NetworkSession | PhasedSession):
        raise ModelError("only the state of the engine 'paths' can be saved; use engine='paths'")
    arrays: dict[str, Any] = dict(state.session.state())
    document = _of_scheduler(scheduler) | _of_network(state.network)
    arrays["document"] = np.frombuffer(json.dumps(document).encode(), np.uint8)
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)
    write_atomically(path, buffer.getvalue())


def _of_scheduler(scheduler: FlowScheduler) -> dict[str, Any]:
    """Cluster, jobs, and what the scheduler remembers."""
    state = scheduler.state
    return {
        "format": _FORMAT,
        "name": state.name,
        "goals": _described(scheduler.state.goals),
        "options": scheduler.options,
        "prepared": _described(state.rules.goals),
        "now_s": state.now_s,
        "steps": scheduler.steps,
        "events": scheduler._timed.events,
        "fresh": list(state.fresh),
        "why": scheduler._why,
        "machines": [m.model_dump(mode="json") for m in state.cluster.machines.values()],
        "queues": [queue.model_dump(mode="json") for queue in state.queues],
        "layout": state.cluster.layout.places,
        "jobs": [[j.job.model_dump(mode="json"), list(j.tasks), j.share, j.preempted] for j in state.jobs.values()],
        "tasks": {
            n: [t.priority, t.machine, t.started_s, dict(t.costs), t.apart, t.held] for n, t in state.tasks.items()
        },
        "rules": [[kind, rule.model_dump(mode="json")] for (kind, _), rule in state.beyond.rules.items()],
        "doubtful": list(state.beyond.doubtful),
        "barred": list(state.beyond.barred),
        "whole": None if scheduler._whole is None else scheduler._whole.to_dict(),
        "unsure": list(state._unsure),
        "gates": list(state._gates),
    }


def _of_network(network: ApartNetwork) -> dict[str, Any]:
    """Which slot of the session is what."""
    at = {spot: index for index, spot in enumerate(network.groups)}

    def target(value: str | Spot | None) -> Any:
        return at[value] if isinstance(value, Spot) else value

    return {
        "groups": [_of_group(group) for group in network.groups.values()],
        "trees": [
            [*_of_group(tree), list(tree.nodes.items()), list(tree.steps.items()), [at[spot] for spot in tree.holed]]
            for tree in network.trees.values()
        ],
        "entries": {
            at[spot]: list(group.entries.items())
            for tree in network.trees.values()
            for spot, group in tree.holed.items()
        },
        "machine_slots": {n: [m.node, m.slots, m.arcs] for n, m in network.machines.items()},
        "job_slots": {
            n: [
                j.node,
                j.share_arc,
                j.short_arc,
                list(j.bounds),
                j.gate,
                j.passes,
            ]
            for n, j in network.jobs.items()
        },
        "task_slots": {
            n: [
                t.node,
                t.wait_arc,
                t.wait_cost,
                target(t.target),
                t.machine,
                [[target(k), *v] for k, v in t.arcs.items()],
            ]
            for n, t in network.tasks.items()
        },
        "dirty": list(network._dirty),
    }


def _of_group(group: GroupNode) -> list[Any]:
    spot, held = group.spot, {m: list(h) for m, h in group.held.items()}
    tags = sorted(spot.has), sorted(spot.lacks), spot.once
    return [*tags, group.node, group.arcs, held, list(group.loose), sorted(group.spare)]


def load_scheduler(path: str | Path, goals: Iterable[Goal] | None = None, *, certify: bool = True) -> FlowScheduler:
    """Make the scheduler that was saved; ``goals`` must be those it was saved with (None: a cost model by name).

    Raises
    ------
    InstanceError
        The file cannot be read, is damaged, or was saved with other goals.
    """
    try:
        with np.load(Path(path), allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        document = json.loads(arrays.pop("document").tobytes())
        if document["format"] != _FORMAT:
            raise InstanceError(f"format {document['format']!r} is not {_FORMAT!r}", path=path)
        chosen = _goals(document["goals"], None if goals is None else tuple(goals), path)
        with collector_paused():
            return _rebuild(document, arrays, chosen, certify)
    except OSError as error:
        raise InstanceError(f"cannot be read: {error.strerror or error}", path=path) from error
    except (
        zipfile.BadZipFile,
        zlib.error,
        KeyError,
        ValueError,
        TypeError,
        IndexError,
        EOFError,
        AttributeError,
    ) as error:
        if isinstance(error, InstanceError):
            raise
        raise InstanceError(f"damaged state file ({type(error).__name__}: {error})", path=path) from error


def _goals(saved: list[str], given: tuple[Goal, ...] | None, path: str | Path) -> tuple[Goal, ...]:
    """The goals that a state was saved with."""
    found = next((goals for goals in PRESETS.values() if _described(goals) == saved), None)
    chosen = found if given is None else given
    if chosen is None or _described(chosen) != saved:
        raise InstanceError(f"it was saved with the goals {', '.join(saved) or 'none'}; pass the same", path=path)
    return chosen


def _described(goals: Iterable[Goal]) -> list[str]:
    return [repr(goal) for goal in goals]


def _rebuild(document: dict[str, Any], arrays: dict[str, Any], goals: tuple[Goal, ...], certify: bool) -> FlowScheduler:
    queues = tuple(Queue.model_validate(queue) for queue in document["queues"])
    empty = FlowInstance(name=document["name"], machines=(), queues=queues)
    scheduler = FlowScheduler(empty, goals, certify=certify, **document["options"])
    state = scheduler.state
    session: NetworkSession | PhasedSession
    if isinstance(state.session, PhasedSession):
        session = PhasedSession.restore(arrays, state.session.divisors)
    else:
        session = NetworkSession.restore(arrays)
    state.session = session
    scheduler.steps, scheduler._why = document["steps"], document["why"]
    scheduler._timed.events = document["events"]
    state.now_s = document["now_s"]
    if _described(state.rules.goals) != document["prepared"]:
        raise InstanceError("a goal depended on the jobs of its first instance; give it its parameters explicitly")
    state.cluster.layout = Layout({name: (rack, a, b) for name, (rack, a, b) in document["layout"].items()})
    _fill_machines(state, document)
    state.network = network = ApartNetwork(session, state.cluster)
    network._owner = [None] * session.arc_count
    _fill_network(network, document)
    _fill_jobs(state, document)
    state.beyond.tie(_RULES[kind].model_validate(rule) for kind, rule in document["rules"])
    state.beyond.barred = dict.fromkeys(document["barred"])
    state.beyond.doubtful = dict.fromkeys(document["doubtful"])
    scheduler._whole = None if document["whole"] is None else Whole.of_dict(document["whole"])
    state.claim_anew()
    state._unsure, state._gates = dict.fromkeys(document["unsure"]), dict.fromkeys(document["gates"])
    state.fresh = dict.fromkeys(document["fresh"])
    return scheduler


def _fill_machines(state: LiveState, document: dict[str, Any]) -> None:
    for machine in document["machines"]:
        made = Machine.model_validate(machine)
        state.cluster.add(made)
        state.beyond.put_machine(made)
        state.slots += made.slots


def _fill_jobs(state: LiveState, document: dict[str, Any]) -> None:
    for job_document, tasks, share, preempted in document["jobs"]:
        job = FlowJob.model_validate(job_document)
        state.jobs[job.name] = made_job = LiveJob(job, dict.fromkeys(tasks), (share[0], share[1]), preempted)
        cost, limited = job.preempt_cost, job.preemptions_per_hour is not None
        if limited:
            state.limits[job.name] = None
        if preempted:
            state._spent[job.name] = None
        if job.different_machines:
            state._apart.setdefault(job.different_machines, {}).update(dict.fromkeys(tasks))
        by_name = {task.name: task for task in job.tasks}
        for name in tasks:
            priority, at, started, costs, apart, held = document["tasks"][name]
            age = elapsed_s(started, state.now_s)
            live = LiveTask(by_name[name], job.name, priority, at, age, costs, apart, cost, limited, held, started)
            made_job.held += held
            state.network.tasks[name].held = held
            state.tasks[name] = live
            live.moving = state.rules.moving(live, state.cluster)
            state._mention(name, live)
            if at is not None:
                state.running += 1
                state._on.setdefault(at, {})[name] = None
                state.clock.start(name, started)


def _fill_network(network: ApartNetwork, document: dict[str, Any]) -> None:
    for name, (node, slots, arcs) in document["machine_slots"].items():
        network.machines[name] = MachineNode(node, slots, [(a, b, c) for a, b, c in arcs])
    spots = _fill_groups(network, document)

    def target(value: Any) -> str | Spot | None:
        return spots[value] if isinstance(value, int) else value

    for name, (node, share, short, bounds, gate, passes) in document["job_slots"].items():
        network.jobs[name] = JobNode(node, JobBounds(*bounds), share, short, gate and (gate[0], gate[1]), passes)
    for name, (node, wait_arc, wait_cost, at, machine, arcs) in document["task_slots"].items():
        made: dict[str | Spot, tuple[int, int]] = {}
        for key, slot, cost in arcs:
            found = target(key)
            assert found is not None
            made[found] = (slot, cost)
            if isinstance(found, Spot):
                network.groups[found].users += 1
            _own(network, slot, name)
        network.tasks[name] = TaskNode(node, "", wait_arc, wait_cost, made, target(at), machine)
        _own(network, wait_arc, name)
    for job_document, tasks, *_ in document["jobs"]:
        for name in tasks:
            network.tasks[name].job = job_document["name"]
    for spot in network.groups:
        network.note_unused(spot)
    network._dirty = dict.fromkeys(document["dirty"])


def _fill_groups(network: ApartNetwork, document: dict[str, Any]) -> list[Spot]:
    """Make groups and trees of blocks; returns the spots in the order of their numbers."""
    spots = [Spot(frozenset(has), frozenset(lacks), once) for has, lacks, once, *_ in document["groups"]]
    for *given, nodes, steps, holed in document["trees"]:
        tree = _Tree(Spot(frozenset(given[0]), frozenset(given[1])), -1)
        network.trees[tree.spot] = tree
        tree.nodes, tree.steps = ({tuple(path): number for path, number in pairs} for pairs in (nodes, steps))
        for name in given[4]:
            tree.blocks.add(name, network.cluster.layout.path(name))
        _fill_group(network, tree, given)
        for number in holed:
            tree.holed[spots[number]] = _AllBut(spots[number], document["groups"][number][3], tree=tree)
    for number, (spot, given) in enumerate(zip(spots, document["groups"], strict=True)):
        base = base_of(spot)
        group = network.groups[spot] = GroupNode(spot, given[3]) if base is None else network.trees[base].holed[spot]
        if isinstance(group, _AllBut):
            network.fill_entries(group, {tuple(path): slot for path, slot in document["entries"][str(number)]})
            continue
        if spot.once:
            network.apart.setdefault(spot.once, {})[spot] = None
        _fill_group(network, group, given)
        for machine in group.arcs:
            network.machines[machine].groups[spot] = None
            if spot.once:
                network._reach.setdefault((spot.once, machine), {})[spot] = None
    return spots


def _fill_group(network: ApartNetwork, group: GroupNode, given: list[Any]) -> None:
    """Books and arcs to machines."""
    group.arcs, held, loose, spare = given[4:8]
    group.held = {machine: dict.fromkeys(tasks) for machine, tasks in held.items()}
    group.loose, group.spare = dict.fromkeys(loose), set(spare)
    if loose or spare:
        network._stirred[group] = None
    for machine, slot in group.arcs.items():
        _own(network, slot, (group, machine))


def _own(network: LiveNetwork, slot: int, owner: Owner) -> None:
    network._owner[slot] = owner
