"""Tasks that exclude machines or racks: few arcs, released again, and the optimum of an assignment without groups."""

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment

from flowlex import FlowScheduler, FlowScheduling
from flowlex.instances.flow import Constraint, FlowInstance, FlowJob, FlowTask, Machine
from flowlex.models.flow.goals import Continuity, Placement
from flowlex.systems.scheduler.live.snapshot import load_scheduler, save_scheduler

GOALS = (Placement(), Continuity(base=2, rate=0))


def machine(k: int, racks: int, slots: int = 1) -> Machine:
    return Machine(name=f"m{k}", slots=slots, rack=f"r{k % racks}", labels=("gpu",) if k % 2 else ())


def job(name: str, *kinds: tuple[str, tuple[str, ...]]) -> FlowJob:
    said = tuple(Constraint(kind=kind, resources=resources, utility=3) for kind, resources in kinds)
    return FlowJob(name=name, tasks=(FlowTask(name=name, constraints=said),))


def oracle(instance: FlowInstance) -> tuple[int, int]:
    """Return the most running tasks and their least cost, by an assignment of tasks to slots."""
    slots = [m for m in instance.machines for _ in range(m.slots)]
    tasks = list(instance.tasks)
    far = 10**6
    cost = np.full((len(tasks), len(slots)), far)
    for t, task in enumerate(tasks):
        for s, m in enumerate(slots):
            hit = [c for c in task.constraints if m.tags & set(c.resources)]
            if any(c.kind == "forbidden" for c in hit):
                continue
            if any(c.kind == "required" and c not in hit for c in task.constraints):
                continue
            cost[t, s] = 3 * sum(c.kind == "avoided" for c in hit) - 3 * sum(c.kind == "preferred" for c in hit)
            cost[t, s] -= 2 * (task.running is not None and task.running.machine == m.name)
    rows, columns = linear_sum_assignment(cost)
    paid = [cost[r, c] for r, c in zip(rows, columns, strict=True) if cost[r, c] < far]
    return len(paid), int(sum(paid))


def step(live: FlowScheduler) -> None:
    instance = live.instance()
    static = FlowScheduling(instance, goals=GOALS).solve("network")
    delta = live.step(live.state.now_s)
    assert delta.certificate is not None and delta.certificate.claim == "optimal"
    assert live.score() == static.score
    score = live.score()
    assert (len(live.placements()), score.cost) == oracle(instance) == (len(static.machine_of), score.cost)
    for placed in (live.placements(), static.machine_of):
        tags = {m.name: m.tags for m in instance.machines}
        for task in instance.tasks:
            if task.name in placed:
                lies = [c.kind for c in task.constraints if tags[placed[task.name]] & set(c.resources)]
                assert "forbidden" not in lies


@pytest.mark.parametrize(
    ("machines", "racks"),
    [(4, 2), (12, 1), *(pytest.param(*sizes, marks=pytest.mark.slow) for sizes in ((40, 1), (70, 35)))],
)
def test_random_lives_equal_an_assignment(machines: int, racks: int, tmp_path) -> None:
    rng = np.random.default_rng(machines)
    cluster = FlowInstance(name="blocks", machines=tuple(machine(k, racks) for k in range(machines)))
    live = FlowScheduler(cluster, GOALS)
    count = machines
    for turn in range(12):
        for _ in range(int(rng.integers(1, machines))):
            names = list(live.state.cluster.machines)
            tags = [*(f"machine:{m}" for m in names), *(f"rack:r{k}" for k in range(racks)), "machine:none"]
            count, kind = count + 1, int(rng.integers(0, 10))
            if kind <= 5:
                banned = tuple(str(tag) for tag in rng.choice(tags, min(len(tags), int(rng.integers(1, 4))), False))
                more = [(str(rng.choice(["required", "avoided", "preferred"])), ("gpu", "machine:m1"))]
                live.submit(job(f"t{count}", ("forbidden", banned), *(more if rng.random() < 0.4 else [])))
            elif kind == 6 and live.state.tasks:
                live.cancel(task=str(rng.choice(list(live.state.tasks))))
            elif kind == 7 or len(names) < 2:
                live.add_machine(machine(count, racks, int(rng.integers(0, 3))))
            elif kind == 8:
                live.remove_machine(str(rng.choice(names)))
            else:
                live.relabel(str(rng.choice(names)), rack=f"r{rng.integers(racks)}", labels=("gpu",))
        if turn % 3 == 1:
            save_scheduler(live, tmp_path / "state.npz")
            live = load_scheduler(tmp_path / "state.npz", GOALS)
        step(live)
    for name in list(live.state.jobs):
        live.cancel(job=name)
    live.step(live.state.now_s)
    assert not live.state.network.trees
    assert all(not spot.lacks for spot in live.state.network.groups)


def test_leaving_one_machine_out_takes_few_arcs_that_are_freed() -> None:
    cluster = FlowInstance(name="large", machines=tuple(machine(k, 25, 3) for k in range(1000)))
    live = FlowScheduler(cluster, (Placement(),))
    live.submit(job("plain"))
    live.step(0.0)
    before = sum(owner is not None for owner in live.state.network.owners)
    for k in range(50):
        live.submit(job(f"t{k}", ("forbidden", (f"machine:m{k}",))))
    assert len(live.step(1.0).placed) == 50
    assert live.state.session.arc_count < 8000  # an arc each would make 50 000
    for k in range(50):
        live.cancel(job=f"t{k}")
    live.step(2.0)
    assert sum(owner is not None for owner in live.state.network.owners) == before
    static = FlowScheduling(
        FlowInstance(
            name="large",
            machines=cluster.machines,
            jobs=tuple(job(f"t{k}", ("forbidden", (f"machine:m{k}", "rack:r3"))) for k in range(50)),
        ),
        goals=(Placement(),),
    )
    assert static.solution_method.schedule.network.arc_count < 12_000
    solution = static.solve("network")
    assert len(solution.machine_of) == 50 and solution.certificate.claim == "optimal"
