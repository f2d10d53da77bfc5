"""The flow-scheduling instance and its generators."""

import pytest
from pydantic import ValidationError

from flowlex.instances.flow import FlowInstance
from flowlex.instances.generators import generate


def test_sizes_of_the_generators():
    testbed = generate("flow-testbed").summary()
    assert (testbed["machines"], testbed["racks"], testbed["slots"], testbed["labels"]) == (20, 2, 480, "gpu")
    scale = generate("flow-scale", machines=100, tasks=2000)
    sizes = [len(job.tasks) for job in scale.jobs]
    assert sum(sizes) == 2000
    assert max(sizes) > 20 and sum(size == 1 for size in sizes) > len(sizes) / 3  # a heavy tail


MACHINE = {"name": "m"}
TASK = {"name": "t"}
JOB = {"name": "j", "tasks": [TASK]}
KINDS = ("required", "forbidden")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"machines": [MACHINE, MACHINE]}, "two machines are named 'm'"),
        ({"jobs": [JOB, JOB]}, "two jobs are named 'j'"),
        ({"jobs": [{"name": "j", "tasks": [TASK, TASK]}]}, "two tasks are named 't'"),
        ({"jobs": [{"name": "j", "tasks": []}]}, "at least 1 item"),
        ({"jobs": [{"name": "j", "tasks": [{"name": "t", "running": {"machine": "x"}}]}]}, "runs on machine 'x'"),
        ({"jobs": [{"name": "j", "tasks": [{"name": "t", "costs": {"x": 1}}]}]}, "cost for machine 'x'"),
        ({"machines": [{"name": "m", "slots": -1}]}, "greater than or equal to 0"),
        ({"machines": [{"name": "m", "labels": ["rack:x"]}]}, "'rack:' and 'machine:' are reserved"),
        ({"jobs": [{**JOB, "min_tasks": 3, "max_tasks": 2}]}, "min_tasks 3 exceeds max_tasks 2"),
        ({"machines": [{"name": "m", "slots": 0}], "running": {"machine": "m"}}, "has 0 slots but runs 1 tasks"),
        ({"data": [{"size_mb": 1, "machines": ["x"]}]}, "has data on machine 'x', which does not exist"),
        ({"constraints": [{"kind": kind, "resources": ["g"]} for kind in KINDS]}, "requires 'g' and forbids it too"),
        ({"constraints": [{"kind": "avoided", "resources": ["g"], "utility": float("nan")}]}, "finite"),
    ],
)
def test_bad_instances(changes, message):
    """Fields of the instance, and of its only task."""
    whole = {name: changes[name] for name in ("machines", "jobs") if name in changes}
    task = {**TASK, **{name: value for name, value in changes.items() if name not in whole}}
    document = {"machines": [MACHINE], "jobs": [{"name": "j", "tasks": [task]}], **whole}
    with pytest.raises(ValidationError, match=message):
        FlowInstance.model_validate(document)
