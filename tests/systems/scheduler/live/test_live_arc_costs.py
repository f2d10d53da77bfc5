"""After any events the arcs of tasks have the costs that goals give for each place from scratch."""

import copy

import numpy as np
import pytest

from flowlex.instances.flow import Constraint
from flowlex.instances.generators.flow import flow_scale, heavy_tailed_job
from flowlex.models.flow.goals import Continuity, DataLocality, Placement
from flowlex.systems.scheduler.live.scheduler import FlowScheduler

WANTS = (
    (),
    (Constraint(kind="preferred", resources=("gpu",), utility=3),),
    (Constraint(kind="avoided", resources=("rack:r1",), utility=2),),
    (Constraint(kind="required", resources=("machine:m3", "rack:r0")),),
)


def wrong_arcs(scheduler):
    """Return the tasks whose arcs differ from the goals' costs of each place."""
    state = scheduler.state
    rules = copy.copy(state.rules)
    rules._locality = None
    wanted = {n: rules.staying(t, rules.moving(t, state.cluster), state.cluster) for n, t in state.tasks.items()}
    costs = state.network.costs
    present = {n: {to: costs[arc] for to, arc in t.arcs.items()} for n, t in state.network.tasks.items()}
    return {name for name in wanted if wanted[name] != present[name]}


@pytest.mark.parametrize("seed", range(12))
def test_arcs_are_what_the_goals_ask_for(seed):
    rng = np.random.default_rng(seed)
    instance = flow_scale(seed=seed, machines=16, tasks=30, machines_per_rack=4, slots=2, replicas=2 + seed % 2)
    locality = DataLocality(threshold=(0.1, 0.5)[seed % 2], most=(10, 3)[seed % 3 == 0], weight=1 + seed % 2)
    order = {"lexicographic": True} if seed % 4 == 3 else {"wait_cost": 20_000}
    scheduler = FlowScheduler(
        instance, (Placement(), locality, Continuity(base=10, rate=10)), cost_limit=10**6, scale=1, **order
    )
    gone, shortcuts = [], 0
    for step in range(30):
        for _ in range(4):
            state = scheduler.state
            there = list(state.cluster.machines)
            if rng.random() < 0.4 and len(there) > 6:
                gone.append(state.cluster.machines[there[int(rng.integers(len(there)))]])
                rack = gone[-1].rack
                named = [state.tasks[name] for name in state.costs.mentioning(gone[-1].name)]
                scheduler.remove_machine(gone[-1].name)
                shortcuts += sum(
                    state.costs.only_leaves(task, gone[-1].name, f"rack:{rack}", state.cluster) for task in named
                )
            elif rng.random() < 0.4 and gone:
                scheduler.add_machine(gone.pop(int(rng.integers(len(gone)))))
            elif rng.random() < 0.5:
                job = heavy_tailed_job(rng, f"n{step}-{_}", instance.machines, most=3)
                wants = WANTS[int(rng.integers(4))]
                tasks = tuple(task.model_copy(update={"constraints": wants}) for task in job.tasks)
                scheduler.submit(job.model_copy(update={"tasks": tasks}))
            elif state.tasks:
                scheduler.cancel(task=list(state.tasks)[int(rng.integers(len(state.tasks)))])
            assert not wrong_arcs(scheduler)
        scheduler.step(step * 40.0)
        assert not wrong_arcs(scheduler)
    assert shortcuts or seed % 3 == 0  # machines were removed without evaluating every place
