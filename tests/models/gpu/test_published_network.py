"""The network of the GPU-assignment paper as printed, by hand and against an enumeration."""

import json
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowlex.instances.generators import generate
from flowlex.instances.gpu import Gpu, GpuInstance, Job, Node, Running, Shard, Task
from flowlex.models import ModelError
from flowlex.models.gpu.model import GpuAssignment
from flowlex.models.gpu.round_eligibility import Policy
from flowlex.models.gpu.solution import GpuSolution
from flowlex.models.gpu.transfer_costs import Penalties, TransferCosts
from flowlex.validation.certificates import verify


def published(instance: Any, policy: Policy = Policy.FSP, weight: float = 1.0) -> GpuSolution:
    """The proven answer, as its file states it too."""
    model = GpuAssignment(instance, policy=policy, network="published", penalties=Penalties(waiting=weight))
    solution = model.solve()
    assert verify(json.loads(json.dumps(solution.to_dict())), instance).claim == "optimal"
    return solution


def far(gpus: int, *tasks: int) -> GpuInstance:
    """Jobs of some tasks, each of which reads 100 s of data from another rack."""
    store, work = (
        Node(name="store", rack="r0", gpus=()),
        Node(name="n", rack="r1", gpus=[Gpu(name=f"g{k}", memory_gb=8) for k in range(gpus)]),
    )
    shard = Shard(size_mb=100, replicas=("store",))
    jobs = [
        Job(name=f"j{j}", tasks=[Task(name=f"j{j}.t{t}", memory_gb=8, shards=(shard,)) for t in range(many)])
        for j, many in enumerate(tasks)
    ]
    return GpuInstance(disk_mb_per_s=1, rack_mb_per_s=1, between_racks_mb_per_s=1, nodes=(store, work), jobs=jobs)


def test_a_spare_gpu_is_used_only_where_its_transfer_costs_less_than_waiting() -> None:
    """3 GPUs, two jobs of 3 tasks, 100 s for each transfer: A* = 1, and the third GPU is worth 2 alpha."""
    cheap = published(far(3, 3, 3), weight=0.05)  # alpha = 5 s
    assert cheap.placement.running_by_job.tolist() == [1, 1]
    assert (cheap.placement.exact_transfer_s, cheap.objective) == (200, 200 + 4 * 10)
    assert cheap.stages == {"flow": 6, "transfer": 240}
    assert set(filter(None, cheap.reasons())) == {"to wait costs 10 s, less than to run it"}
    expensive = published(far(3, 3, 3), weight=0.51)
    assert sorted(expensive.placement.running_by_job.tolist()) == [1, 2]
    ours = GpuAssignment(far(3, 3, 3), penalties=Penalties(waiting=0.05)).solve("network")
    assert sorted(np.asarray(ours.placement.running_by_job).tolist()) == [1, 2]


def test_every_job_keeps_its_base_share_and_no_more_if_that_is_all() -> None:
    for weight in (0.0, 0.05, 9.0):
        solution = published(far(4, 4, 2), weight=weight)
        assert solution.placement.running_by_job.tolist() == [2, 2]
        assert solution.job_frame()["fair_share"].tolist() == [2, 2]


def test_the_network_of_figure_4_has_the_papers_size() -> None:
    """An arc is a variable; S and E have no row."""
    program = GpuAssignment(generate("gpu-figure4"), network="published").problem
    assert (program.row_count + 2, program.column_count) == (23, 78)


def test_running_tasks() -> None:
    """One job holds both GPUs: with preemption its shorter task stops for the other job, without it none does."""
    node = Node(name="n", rack="r", gpus=[Gpu(name=f"g{k}", memory_gb=8) for k in range(2)])
    held = [Task(name=f"a{k}", memory_gb=8, running=Running(gpu=f"g{k}", elapsed_s=9.0 - k)) for k in range(2)]
    jobs = [Job(name="a", tasks=held), Job(name="b", tasks=[Task(name="b0", memory_gb=8)])]
    instance = GpuInstance(disk_mb_per_s=1, rack_mb_per_s=1, between_racks_mb_per_s=1, nodes=(node,), jobs=jobs)
    gpus = {policy: published(instance, policy).placement.gpu.tolist() for policy in Policy}
    assert gpus == {Policy.FSP: [0, -1, 1], Policy.FS: [0, 1, -1], Policy.FSU: [0, 1, -1]}


def test_rules_hold_beside_the_network() -> None:
    model = GpuAssignment(far(4, 4, 2), network="published")
    solution = model.with_constraint("few", model.variables["x"].sel(job="j0").sum() <= 1).solve()
    assert solution.placement.running_by_job.tolist() == [1, 2]
    assert solution.certificate is not None and solution.certificate.claim == "optimal"
    with pytest.raises(ModelError, match="published"):
        GpuAssignment(far(2, 1), network="published", waiting="priced")
    with pytest.raises(ModelError, match="published"):
        model.value_of("gpu", "n")


def least(instance: GpuInstance, weight: float) -> tuple[int, float]:
    """Most flow, then least cost, over all assignments of waiting tasks: every task goes to a GPU or waits."""
    view, costs = instance.arrays, TransferCosts.of(instance, Penalties(waiting=weight))
    seconds, tasks, gpus = costs.dense(), len(view.task_job), len(view.gpu_node)
    have = np.bincount(view.task_job)
    room = have - np.minimum(gpus // len(have), have)
    best = (-1, 0.0)
    for places in product(range(-1, gpus), repeat=tasks):
        used = [g for g in places if g >= 0]
        if len(set(used)) < len(used) or any(
            view.task_memory[t] > view.gpu_memory[g] for t, g in enumerate(places) if g >= 0
        ):
            continue
        waits = np.bincount(view.task_job[[t for t, g in enumerate(places) if g < 0]], minlength=len(have))
        sent = np.minimum(waits, room)  # what waits beyond the capacity of u_j is not sent at all
        cost = (
            sum(seconds[t, view.gpu_node[g]] for t, g in enumerate(places) if g >= 0) + 2 * costs.waiting * sent.sum()
        )
        best = max(best, (len(used) + int(sent.sum()), -cost))
    return best[0], -float(best[1] * costs.unit_s)


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from([0.0, 0.2, 0.6, 1.0]))
def test_the_optimum_is_that_of_enumeration(seed: int, weight: float) -> None:
    instance = generate("gpu-random", seed=seed, nodes=3, gpus_per_node=1, jobs=2, tasks=4, running=0)
    assert isinstance(instance, GpuInstance)
    found = published(instance, weight=weight).stages
    assert (found["flow"], float(found["transfer"])) == (
        least(instance, weight)[0],
        pytest.approx(least(instance, weight)[1]),
    )
