"""Values of changes, each compared with a round that is changed and solved again."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowlex.instances import generate
from flowlex.instances.gpu import GpuInstance
from flowlex.models import ModelError
from flowlex.models.gpu.methods import value_of_one_more_gpu as values
from flowlex.models.gpu.model import GpuAssignment, Policy
from tests.models.gpu.cases import random_round, ways

OPTIONS = [
    {"policy": policy, "waiting": waiting, "network": network}
    for policy, waiting in (("FSP", "least"), ("FS", "least"), ("FSU", "least"), ("FSP", "priced"), ("FS", "priced"))
    for network in ("compact", "paper")
]


def figures(instance: Any, options: Any) -> tuple[Any, Any, int]:
    """Objective, transfer and running tasks of a certified answer."""
    solution = GpuAssignment(instance, **options).solve("network")
    assert solution.status == "optimal"
    place = solution.placement
    waiting = 0 if options["policy"] == "FSU" else int((solution.gpu < 0).sum())
    objective = place.exact_transfer_s + waiting * place.costs.waiting_s
    return objective, place.exact_transfer_s, int(place.running_by_job.sum())


def agree(value: values.Value, before: Any, after: Any) -> bool:
    """Check that the value is the difference of the objectives."""
    told = value.objective_s, value.transfer_s, value.running
    return told == tuple(new - old for new, old in zip(after, before, strict=True))


def instance_of(seed: int) -> GpuInstance:
    if seed % 2:
        return random_round(seed)
    instance = generate("gpu-random", seed=seed)
    assert isinstance(instance, GpuInstance)
    return instance


@settings(max_examples=12, deadline=None)
@given(st.integers(0, 2**31), st.sampled_from(OPTIONS), st.integers(0, 100), st.sampled_from([None, 8.0, 40.0]))
def test_a_gpu_is_worth_what_an_instance_with_one_more_saves(
    seed: int, options: Any, pick: int, memory_gb: float | None
) -> None:
    instance = instance_of(seed)
    node = instance.nodes[pick % len(instance.nodes)]
    largest = max(gpu.memory_gb for gpu in (node.gpus or tuple(instance.gpus)))
    document = instance.model_dump(mode="json")
    document["nodes"][pick % len(instance.nodes)]["gpus"].append({"name": "new", "memory_gb": memory_gb or largest})
    grown = GpuInstance.model_validate(document)
    value = GpuAssignment(instance, **options).value_of("gpu", node.name, memory_gb=memory_gb)
    assert agree(value, figures(instance, options), figures(grown, options))
    assert value.running >= 0 or options["waiting"] == "priced"


@settings(max_examples=12, deadline=None)
@given(st.integers(0, 2**31), st.sampled_from(OPTIONS), st.integers(0, 100))
def test_a_task_is_worth_what_an_instance_without_it_saves(seed: int, options: Any, pick: int) -> None:
    instance = instance_of(seed)
    task = list(instance.tasks)[pick % len(list(instance.tasks))]
    document = instance.model_dump(mode="json")
    for job in document["jobs"]:
        job["tasks"] = [t for t in job["tasks"] if t["name"] != task.name]
    document["jobs"] = [job for job in document["jobs"] if job["tasks"]]
    after = figures(GpuInstance.model_validate(document), options) if document["jobs"] else (0, 0, 0)
    value = GpuAssignment(instance, **options).value_of("task", task.name)
    assert agree(value, figures(instance, options), after)


@settings(max_examples=12, deadline=None)
@given(st.integers(0, 2**31), st.sampled_from(["FSP", "FS"]), st.sampled_from(["compact", "paper"]), st.integers(0, 9))
def test_a_share_is_worth_what_all_ways_with_one_more_save(seed: int, policy: str, network: Any, pick: int) -> None:
    instance = random_round(seed)
    model = GpuAssignment(instance, policy=Policy(policy), network=network)
    job, now = pick % len(instance.jobs), model.solve("network")
    count, shares = now.placement.running_by_job.tolist(), now.round.shares
    assert shares is not None
    root = model.round.shares
    assert root is not None
    found = [
        transfer
        for n, transfer, _, _ in ways(instance, stop=policy == "FSP")
        if n[job] == count[job] + 1
        and sum(n) == sum(count)
        and all(a - 1 <= k <= b for i, (k, a, b) in enumerate(zip(n, root.least, root.most, strict=True)) if i != job)
    ]
    name = instance.jobs[job].name
    if not found:
        with pytest.raises(ModelError, match=r"run already|no round with as many tasks lets job"):
            model.value_of("share", name)
        return
    value = model.value_of("share", name)
    assert value.running == 0
    assert value.objective_s == value.transfer_s == min(found) - now.placement.exact_transfer_s


@pytest.mark.parametrize(
    ("what", "name", "options", "says"),
    [
        ("gpu", "node9", {}, "there is no node 'node9'; did you mean 'node"),
        ("task", "task99", {}, "there is no task 'task99'; did you mean 'task"),
        ("share", "job1", {"policy": "FSU"}, "policy FSU knows no shares"),
        ("share", "job9", {}, "there is no job 'job9'; did you mean 'job"),
        ("rack", "r", {}, "there is no value of 'rack'; one of gpu, share, task"),
    ],
)
def test_what_there_is_not_has_no_value(what: Any, name: str, options: Any, says: str) -> None:
    with pytest.raises(ModelError, match=says):
        GpuAssignment(generate("gpu-figure1"), **options).value_of(what, name)


def test_memory_of_a_gpu_is_positive_and_of_a_gpu() -> None:
    model = GpuAssignment(generate("gpu-figure1"))
    name = model.instance.nodes[0].name
    with pytest.raises(ModelError, match="memory_gb must be a positive number, got -1"):
        model.value_of("gpu", name, memory_gb=-1.0)
    with pytest.raises(ModelError, match="memory_gb is of a GPU; a task takes none"):
        model.value_of("task", "task11", memory_gb=8.0)
