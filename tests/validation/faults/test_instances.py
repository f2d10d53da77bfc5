"""Faults in `flowlex.instances`, which models read: each is refused, since certificates read the fields again.

A wrong price in `ExactCosts` was "optimal, proven exactly" as long as the certificate read its prices there.
"""

import json
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
import pytest

from flowlex import generate, model_for
from flowlex.instances.allocation import AllocationInstance
from flowlex.instances.flow import FlowInstance, FlowJob, FlowTask, Machine
from flowlex.instances.gpu_policy import GpuPolicy
from flowlex.instances.group_rules import Gang, TaskSpread
from flowlex.instances.instance_base import Instance
from flowlex.instances.jit import JitInstance
from flowlex.instances.pods import Pod, PodInstance, PodNode
from flowlex.models.model_base import UNPROVEN
from flowlex.validation.certificates import CertificateError
from tests.models.gpu.test_changes import hand
from tests.validation.faults.seeding import array, field, seed

COSTS = "flowlex.instances.gpu_units:ExactCosts.read"
ARRAYS = "flowlex.instances.gpu:GpuInstance.arrays"


def rates(*factors: Fraction | int) -> Callable[..., Any]:
    def changed(costs: Any, *_: Any) -> Any:
        each = tuple(rate * Fraction(factor) for rate, factor in zip(costs.rates, factors, strict=True))
        unit = costs.unit_s / np.prod([Fraction(factor).denominator for factor in factors])
        return replace(costs, rates=each, unit_s=unit)

    return changed


def swapped(values: Any) -> None:
    values[[0, -1]] = values[[-1, 0]]


#: What `read` or `arrays` returns, changed.
GPU: dict[str, tuple[str, Callable[..., Any]]] = {
    "waiting ten times too cheap": (COSTS, lambda c, *_: replace(c, waiting_s=c.waiting_s / 10, unit_s=c.unit_s / 10)),
    "waiting is free": (COSTS, lambda c, *_: replace(c, waiting_s=Fraction(0))),
    "a rack three times too near": (COSTS, rates(1, Fraction(1, 3), 1)),
    "disks twice as slow": (COSTS, rates(2, 1, 1)),
    "distant racks as near as the rack": (COSTS, lambda c, *_: replace(c, rates=(*c.rates[:2], c.rates[1]))),
    "sizes in another unit": (COSTS, lambda c, *_: replace(c, per_mb=c.per_mb * 2, unit_s=c.unit_s / 2)),
    "costs in another unit": (COSTS, lambda c, *_: replace(c, unit_s=c.unit_s * 7)),
    "stops cost more": (COSTS, lambda c, *_: replace(c, stop_s=tuple(2 * each for each in c.stop_s))),
    "stops cost nothing": (COSTS, lambda c, *_: replace(c, stop_s=tuple(0 * each for each in c.stop_s))),
    "shards half as large": (ARRAYS, field("shard_size_mb", array(lambda v: np.multiply(v, 0.5, out=v)))),
    "shards of another task": (ARRAYS, field("shard_task", array(swapped))),
    "replicas on another node": (ARRAYS, field("replica_node", array(swapped))),
    "racks swapped": (ARRAYS, field("node_rack", array(swapped))),
    "all in one rack": (ARRAYS, field("node_rack", array(lambda v: v.fill(0)))),
    "GPUs of another node": (ARRAYS, field("gpu_node", array(swapped))),
    "memory of another GPU": (ARRAYS, field("gpu_memory", array(lambda v: v.fill(v.max())))),
    "tasks need no memory": (ARRAYS, field("task_memory", array(lambda v: v.fill(0.1)))),
    "tasks of another job": (ARRAYS, field("task_job", array(swapped))),
    "tasks run elsewhere": (ARRAYS, field("task_running_gpu", array(lambda v: v.fill(-1)))),
    "tasks run longer": (ARRAYS, field("task_elapsed", array(lambda v: np.multiply(v, -1, out=v)))),
}


JIT_ARRAYS = "flowlex.instances.jit:JitInstance.arrays"
JIT: dict[str, tuple[str, Callable[..., Any]]] = {
    "ports send twice as much": (JIT_ARRAYS, field("out_units", array(lambda v: np.multiply(v, 2, out=v)))),
    "ports receive twice as much": (JIT_ARRAYS, field("in_units", array(lambda v: np.multiply(v, 2, out=v)))),
    "transfers half as large": (JIT_ARRAYS, field("size_units", array(lambda v: np.floor_divide(v + 1, 2, out=v)))),
    "senders swapped": (JIT_ARRAYS, field("sender", array(swapped))),
    "receivers all one machine": (JIT_ARRAYS, field("receiver", array(lambda v: v.fill(0)))),
    "names in another order": ("flowlex.instances.jit:JitInstance.transfer_names", lambda names, *_: names[::-1]),
    "sizes rounded down": ("flowlex.instances.grid_rounding:whole_above", lambda units, *_: np.maximum(units - 1, 1)),
    "ports rounded up": ("flowlex.instances.grid_rounding:whole_below", lambda units, *_: units + 1),
}
PODS: dict[str, tuple[str, Callable[..., Any]]] = {
    "every node has every label": ("flowlex.instances.pods:fits_wishes", lambda *_: True),
    "no node has what GPU pods ask for": (
        "flowlex.instances.pods:fits_wishes",
        lambda fits, pod, _: fits and not pod.gpu_memory_gb,
    ),
    "running pods may stop": ("flowlex.instances.pods:PodInstance.must_run", lambda *_: frozenset()),
    "no pod wants a GPU": ("flowlex.instances.pods:Pod.wants_gpu", lambda *_: False),
}
FLOW: dict[str, tuple[str, Callable[..., Any]]] = {
    "all racks are one": (
        "flowlex.models.flow.task_rules:domain_tags",
        lambda tags, *_: dict.fromkeys(tags, next(iter(tags.values()), "")),
    ),
    "rules miss their last task": ("flowlex.models.flow.task_rules:members_of", lambda tasks, *_: tasks[:-1]),
    "spreads allow one more": ("flowlex.instances.group_rules:TaskSpread.limit", lambda most, *_: most and most + 1),
    "no machine has a capacity": ("flowlex.instances.flow:FlowInstance.resources", lambda *_: ()),
}
ALLOCATION_ARRAYS = "flowlex.instances.allocation:AllocationInstance.arrays"
ALLOCATION: dict[str, tuple[str, Callable[..., Any]]] = {
    "twice as many GPUs": (ALLOCATION_ARRAYS, field("count", array(lambda v: np.multiply(v, 2, out=v)))),
    "jobs use one GPU": (ALLOCATION_ARRAYS, field("scale", array(lambda v: v.fill(1)))),
    "equal weights": (ALLOCATION_ARRAYS, field("weight", array(lambda v: v.fill(1)))),
    "speeds of another type": (
        ALLOCATION_ARRAYS,
        field("speed", array(lambda v: np.copyto(v, v[:, ::-1].copy()))),
    ),
}


#: Solutions without a fault, which all faults are compared with.
_TRUE: dict[tuple[str, str, str], Any] = {}


def judged(
    instances: list[tuple[Instance, dict[str, Any]]],
    fault: Callable[[pytest.MonkeyPatch], None],
    engine: str = "network",
) -> set[str]:
    """What becomes of each solve under a fault: refused, lowered, stopped or harmless; anything else fails."""
    found = set()
    for instance, options in instances:
        key = instance.fingerprint, engine, json.dumps(options, sort_keys=True)
        true = _TRUE[key] = _TRUE.get(key) or model_for(instance, **options).solve(engine)
        with pytest.MonkeyPatch.context() as patch:
            fault(patch)
            fresh = type(instance).model_validate(instance.model_dump())
            try:
                solution = model_for(fresh, **options).solve(engine)
            except CertificateError:
                found.add("refused")
                continue
            except Exception:  # the fault breaks an assumption, and no answer is returned
                found.add("stopped")
                continue
        weaker = true.status == "optimal" and solution.status == "feasible"
        within = weaker and (solution.bound is None or solution.bound <= true.objective <= solution.objective)
        if UNPROVEN in solution.message or within:
            found.add("lowered")
            continue
        assert (solution.status, solution.objective) == (true.status, true.objective), "a wrong answer passed"
        found.add("harmless")
    return found


@cache
def rounds() -> list[tuple[Instance, dict[str, Any]]]:
    """Rounds in which every fault matters somewhere: mixed memory, running tasks, prices of stops and of waiting."""
    every: list[tuple[Instance, dict[str, Any]]] = [
        (generate("gpu-testbed"), {}),
        (hand(3, 1, running=True), {"stop_price": 0.5}),  # job a loses a task to job b
        (generate("gpu-figure1"), {"policy": "FS"}),
    ]
    for number in range(1, 7):
        every.append((generate("gpu-random", seed=number), {"stop_price": 0.25}))
        every.append((generate("gpu-random", seed=number), {"policy": "FS", "waiting": "priced"}))
        every.append((generate("gpu-random", seed=number), {"policy": "FSU"}))
    return every


@pytest.mark.parametrize("name", GPU)
def test_a_fault_in_the_data_that_models_read_is_refused(name: str) -> None:
    target, change = GPU[name]
    found = judged(rounds(), lambda patch: seed(patch, target, change))
    assert found & {"refused", "lowered"}, found


@pytest.mark.parametrize("name", JIT)
def test_a_fault_in_the_data_of_transfers_is_refused(name: str) -> None:
    target, change = JIT[name]
    turned = generate("jit-figure4").model_dump()  # one machine sends what it received
    for job in turned["jobs"]:
        for transfer in job["transfers"]:
            transfer["sender"], transfer["receiver"] = transfer["receiver"], transfer["sender"]
    every = [(generate("jit-figure4"), {"share": 1.0}), (JitInstance.model_validate(turned), {"share": 1.0})]
    found = judged(every, lambda patch: seed(patch, target, change), "highs")
    assert found & {"refused", "lowered"}, found


@pytest.mark.parametrize("name", PODS)
def test_a_fault_in_the_data_of_pods_is_refused(name: str) -> None:
    """One node with cards for one of two GPU pods, one with a label, and a pod that runs and must go on."""
    nodes = (
        PodNode(name="cards", cpu_cores=4, memory_gb=8, cards=1, card_gb=8),
        PodNode(name="disk", cpu_cores=4, memory_gb=8, labels={"disk": "ssd"}),
        PodNode(name="busy", cpu_cores=2, memory_gb=8, labels={"busy": "yes"}),
    )
    pods = (
        *(Pod(name=f"gpu{k}", cpu_cores=1, memory_gb=1, gpu_memory_gb=6, priority=2) for k in range(2)),
        *(Pod(name=f"ssd{k}", cpu_cores=2, memory_gb=1, node_labels={"disk": "ssd"}, priority=1) for k in range(3)),
        Pod(name="runs", cpu_cores=2, memory_gb=1, priority=0, node="busy"),
        Pod(name="new", cpu_cores=2, memory_gb=1, priority=3, node_labels={"busy": "yes"}),
    )
    target, change = PODS[name]
    every: list[tuple[Instance, dict[str, Any]]] = [(PodInstance(name="small", nodes=nodes, pods=pods), {})]
    found = judged(every, lambda patch: seed(patch, target, change), "highs")
    assert found & {"refused", "lowered"}, found


@pytest.mark.parametrize("name", FLOW)
def test_a_fault_in_the_rules_of_tasks_is_refused(name: str) -> None:
    """A gang of two in one rack, a spread of two over racks; each of two machines has cores for two tasks."""
    machines = tuple(Machine(name=f"m{k}", slots=3, rack=f"r{k}", capacity={"cpu": 4.0}) for k in range(2))
    jobs = tuple(
        FlowJob(name=name, tasks=tuple(FlowTask(name=f"{name}{k}", demands={"cpu": 2.0}) for k in range(2)))
        for name in ("gang", "apart")
    )
    instance = FlowInstance(
        name="rules",
        machines=machines,
        jobs=jobs,
        gangs=(Gang(name="g", jobs=("gang",), within="rack"),),
        spreads=(TaskSpread(name="s", jobs=("apart",), most=1),),
    )
    target, change = FLOW[name]
    found = judged([(instance, {})], lambda patch: seed(patch, target, change), "highs")
    assert found & {"refused", "lowered"}, found


@pytest.mark.parametrize("name", ALLOCATION)
def test_a_fault_in_the_data_of_shares_is_refused(name: str) -> None:
    every: list[tuple[Instance, dict[str, Any]]] = []
    for gpus in (1, 4):
        document = generate("gavel-like", seed=1, jobs=3 + 3 * gpus, gpus=gpus).model_dump()
        for k, job in enumerate(document["jobs"]):
            job["weight"] = 1.0 + k
        every.append((AllocationInstance.model_validate(document), {"policy": "max_min"}))
    target, change = ALLOCATION[name]
    found = judged(every, lambda patch: seed(patch, target, change), "highs")
    assert found & {"refused", "lowered"}, found


@pytest.mark.parametrize(
    ("policy", "what"), [("FS", "preemptive"), ("FSP", "preemptive"), ("FS", "fair"), ("FSU", "fair")]
)
def test_a_policy_that_models_misread_is_refused(policy: str, what: str) -> None:
    chosen = GpuPolicy(policy)
    every = [(instance, {"policy": policy}) for instance, _ in rounds()[3::3]]
    found = judged(every, lambda patch: patch.setattr(chosen, what, not getattr(chosen, what)))
    assert found & {"refused", "lowered", "stopped"}, found
