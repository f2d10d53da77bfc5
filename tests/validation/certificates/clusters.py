"""Small clusters with all features: racks, labels, data, rules, running tasks, explicit costs, shares."""

from typing import Any

import numpy as np

from flowlex.instances.flow import Block, Constraint, FlowInstance, FlowJob, FlowTask, Machine, Queue, RunningOn
from flowlex.models.flow.goals import Continuity, DataLocality, FairShares, LoadSpread, Placement, Priority, RandomCosts

__all__ = ["GOALS", "queued", "random_cluster"]

TAGS = ("gpu", "ssd", "rack:r0", "rack:r1", "machine:m0", "machine:m2")
_RULES = {"j0": (Constraint(kind="avoided", resources=("ssd",), utility=0.5),)}
#: Options by name: every goal, both solution methods, strict order of goals.
GOALS: dict[str, dict[str, Any]] = {
    "quincy": {"preset": "quincy"},
    "borg": {"preset": "borg"},
    "borg by phases": {"preset": "borg", "order": "phases"},
    "random": {"preset": "random"},
    "none": {"preset": "none"},
    "shares and decimals": {
        "goals": (FairShares(), Placement(weight=3), DataLocality(0.6, 0.9, most=2), Continuity(0.5, 0.25)),
    },
    "weighted shares": {"goals": (FairShares("weighted"), Priority(), Placement(rules=_RULES), LoadSpread(2))},
    "caps, weighted priority": {
        "goals": (FairShares("caps"), Priority(mode="weighted"), Placement(), LoadSpread(), RandomCosts(7, weight=2)),
        "wait_cost": 7.5,
    },
    "strict goals": {"preset": "quincy", "lexicographic": True},
    "all in strict order": {
        "goals": (
            FairShares("weighted"),
            RandomCosts(3),
            Priority(),
            DataLocality(1, 3, 0.4),
            Placement(),
            Continuity(),
        ),
        "lexicographic": True,
    },
    "demands in strict order": {
        "goals": (LoadSpread(), Priority({"cpu": 2}, "weighted", limits={"cpu": 4.0}), DataLocality()),
        "lexicographic": True,
        "wait_cost": 3,
    },
}


def random_cluster(seed: int, *, size: int = 12) -> FlowInstance:
    """A cluster of at most 5 machines and ``size`` tasks; the same seed gives the same one."""
    rng = np.random.default_rng(seed)
    machines = tuple(
        Machine(
            name=f"m{k}",
            slots=int(rng.integers(0, 4)),
            rack=f"r{int(rng.integers(0, 3))}",
            labels=tuple(label for label in ("gpu", "ssd") if rng.random() < 0.4),
        )
        for k in range(int(rng.integers(1, 6)))
    )
    room = {machine.name: machine.slots for machine in machines}
    jobs, left = [], int(rng.integers(1, size + 1))
    while left:
        count = int(rng.integers(1, left + 1))
        tasks = tuple(_task(rng, f"t{left - k}", machines, room) for k in range(count))
        least = int(rng.integers(0, 3))
        jobs.append(
            FlowJob(
                name=f"j{len(jobs)}",
                tasks=tasks,
                priority=int(rng.integers(0, 3)),
                weight=int(rng.integers(1, 6)),
                min_tasks=least,
                max_tasks=least + int(rng.integers(0, 4)) if rng.random() < 0.4 else None,
                different_machines=str(rng.choice(["red", "blue"])) if rng.random() < 0.4 else None,
            )
        )
        left -= count
    return FlowInstance(name=f"cluster-{seed}", machines=machines, jobs=tuple(jobs))


def queued(instance: FlowInstance) -> FlowInstance:
    """Return the cluster with every job in one of two queues, one of which has a child queue."""
    queues = (Queue(name="a", min_tasks=2), Queue(name="b", weight=2), Queue(name="c", parent="b", max_tasks=2))
    jobs = (j.model_copy(update={"queue": "abc"[k % 3]}) for k, j in enumerate(instance.jobs))
    return FlowInstance.model_validate(instance.model_copy(update={"jobs": tuple(jobs), "queues": queues}).model_dump())


def _task(rng: np.random.Generator, name: str, machines: tuple[Machine, ...], room: dict[str, int]) -> FlowTask:
    names = [machine.name for machine in machines]
    running = None
    free = [machine for machine in names if room[machine]]
    if free and rng.random() < 0.4:
        machine = str(rng.choice(free))
        room[machine] -= 1
        running = RunningOn(machine=machine, elapsed_s=round(float(rng.uniform(0, 4000)), 2))
    data = tuple(
        Block(size_mb=int(rng.choice([1, 2, 3, 30])), machines=tuple({str(m): None for m in rng.choice(names, 2)}))
        for _ in range(int(rng.integers(0, 4)))
    )
    constraints = []
    for _ in range(int(rng.integers(0, 3))):
        kind = str(rng.choice(["required", "forbidden", "preferred", "avoided"], p=[0.1, 0.2, 0.4, 0.3]))
        tags = tuple({str(tag): None for tag in rng.choice(TAGS, int(rng.integers(1, 3)))})
        utility = int(rng.integers(1, 6)) if rng.random() < 0.8 else 2.5
        constraints.append(Constraint(kind=kind, resources=tags, utility=utility))  # type: ignore[arg-type]
    costs = {str(rng.choice(names)): int(rng.integers(-5, 60)) for _ in range(int(rng.random() < 0.3))}
    if any(c.kind == "required" for c in constraints) and any(c.kind == "forbidden" for c in constraints):
        constraints = constraints[:1]
    demands = {"cpu": float(rng.integers(0, 5))} if rng.random() < 0.5 else {}
    return FlowTask(name=name, running=running, data=data, constraints=tuple(constraints), costs=costs, demands=demands)
