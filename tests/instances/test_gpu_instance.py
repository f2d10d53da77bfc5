"""The GPU-assignment schema: round trip, array view, and the message of every invalid input."""

import copy
import math

import numpy as np
import pytest
from pydantic import ValidationError

from flowlex.instances import InstanceError
from flowlex.instances.files import instance_from_document


def document():
    """Two racks, three nodes (one without GPUs), two jobs, one running task."""
    return {
        "kind": "gpu-assignment",
        "disk_mb_per_s": 200,
        "rack_mb_per_s": 125.0,
        "between_racks_mb_per_s": 31.25,
        "nodes": [
            {"name": "a", "rack": "r1", "gpus": [{"name": "a0", "memory_gb": 10}, {"name": "a1", "memory_gb": 8}]},
            {"name": "b", "rack": "r1", "gpus": []},
            {"name": "c", "rack": "r2", "gpus": [{"name": "c0", "memory_gb": 10}]},
        ],
        "jobs": [
            {
                "name": "J1",
                "tasks": [
                    {
                        "name": "t1",
                        "memory_gb": 9,
                        "shards": [
                            {"name": "A", "size_mb": 500, "replicas": ["b", "c"]},
                            {"name": "B", "size_mb": 60.5, "replicas": ["a"]},
                        ],
                        "running": {"gpu": "c0", "elapsed_s": 12},
                    },
                    {"name": "t2", "memory_gb": 1},
                ],
            },
            {"name": "J2", "tasks": [{"name": "t3", "memory_gb": 8, "shards": [{"size_mb": 7, "replicas": ["c"]}]}]},
        ],
    }


def test_arrays_hold_the_document():
    view = instance_from_document(document()).arrays
    assert view.node_rack.tolist() == [0, 0, 1]
    assert view.gpu_node.tolist() == [0, 0, 2]
    assert view.gpu_memory.tolist() == [10.0, 8.0, 10.0]
    assert view.task_job.tolist() == [0, 0, 1]
    assert view.task_memory.tolist() == [9.0, 1.0, 8.0]
    assert view.task_running_gpu.tolist() == [2, -1, -1]
    assert view.task_elapsed.tolist() == [12.0, 0.0, 0.0]
    assert view.shard_task.tolist() == [0, 0, 2]
    assert view.shard_size_mb.tolist() == [500.0, 60.5, 7.0]
    assert view.replica_shard.tolist() == [0, 0, 1, 2]
    assert view.replica_node.tolist() == [1, 2, 0, 2]
    assert view.rack_names == ("r1", "r2")
    assert view.node_names == ("a", "b", "c")
    assert view.gpu_names == ("a0", "a1", "c0")
    assert view.job_names == ("J1", "J2")
    assert view.task_names == ("t1", "t2", "t3")
    assert view.gpu_node.dtype == np.int64
    with pytest.raises(ValueError, match="read-only"):
        view.gpu_node[0] = 1


def test_instances_compare_whether_or_not_arrays_were_made():
    first, second = instance_from_document(document()), instance_from_document(document())
    assert first.arrays.gpu_node.size == 3
    assert first == second
    assert second.arrays.gpu_node.size == 3
    assert first == second


def test_a_copy_is_checked_and_has_its_own_arrays():
    instance = instance_from_document(document())
    assert instance.arrays.task_job.size == 3
    shorter = instance.model_copy(update={"jobs": instance.jobs[:1]})
    assert shorter.arrays.task_job.size == 2
    with pytest.raises(ValidationError, match="greater than 0"):
        instance.model_copy(update={"disk_mb_per_s": -1.0})
    with pytest.raises(ValidationError, match="no_such"):
        instance.model_copy(update={"no_such": 1})


def test_an_instance_cannot_be_changed():
    with pytest.raises(ValidationError, match="frozen"):
        instance_from_document(document()).disk_mb_per_s = 1.0


def put(*path_and_value):
    *path, last, value = path_and_value

    def change(doc):
        for step in path:
            doc = doc[step]
        doc[last] = value

    return change


def drop(*path):
    def change(doc):
        for step in path[:-1]:
            doc = doc[step]
        del doc[path[-1]]

    return change


T1 = ("jobs", 0, "tasks", 0)
BAD = {
    "negative size": (put(*T1, "shards", 0, "size_mb", -1), "jobs[0].tasks[0].shards[0].size_mb: ", "greater than 0"),
    "NaN size": (put(*T1, "shards", 0, "size_mb", math.nan), "size_mb: ", "finite"),
    "size beyond floats": (put(*T1, "shards", 0, "size_mb", 10**400), "size_mb: ", "a number"),
    "sizes beyond floats": (put(*T1, "shards", [{"size_mb": 1.7e308, "replicas": ["a"]}] * 2), "", "sum to more"),
    "negative bandwidth": (put("rack_mb_per_s", -125), "rack_mb_per_s: ", "greater than 0"),
    "infinite memory": (put("nodes", 0, "gpus", 0, "memory_gb", math.inf), "nodes[0].gpus[0].memory_gb: ", "finite"),
    "negative elapsed": (put(*T1, "running", "elapsed_s", -1), "running.elapsed_s: ", "greater than or equal to 0"),
    "unknown field": (put("nodes", 0, "gpu", 3), "nodes[0].gpu: ", "unknown field; did you mean"),
    "missing field": (drop("nodes", 0, "rack"), "nodes[0].rack: ", "field is missing"),
    "not an array": (put("nodes", {}), "nodes: ", "must be an array"),
    "not an object": (put("nodes", 1, 7), "nodes[1]: ", "must be an object"),
    "empty name": (put("jobs", 0, "name", ""), "jobs[0].name: ", "must not be empty"),
    "dangling replica": (
        put(*T1, "shards", 0, "replicas", ["b", "z"]),
        "",
        "task 't1', shard 'A': replica on node 'z', which does not exist",
    ),
    "dangling replica of an unnamed shard": (
        put("jobs", 1, "tasks", 0, "shards", 0, "replicas", ["z"]),
        "",
        "task 't3', shard 0: replica on node 'z', which does not exist",
    ),
    "double replica": (put(*T1, "shards", 0, "replicas", ["b", "b"]), "", "shard 'A': two replicas on node 'b'"),
    "no replica": (put(*T1, "shards", 0, "replicas", []), "", "shard 'A': no node holds it"),
    "two nodes": (put("nodes", 1, "name", "a"), "", "two nodes are named 'a'"),
    "two GPUs": (put("nodes", 2, "gpus", 0, "name", "a1"), "", "two GPUs are named 'a1'"),
    "two jobs": (put("jobs", 1, "name", "J1"), "", "two jobs are named 'J1'"),
    "two tasks": (put("jobs", 1, "tasks", 0, "name", "t2"), "", "two tasks are named 't2'"),
    "two shards": (put(*T1, "shards", 1, "name", "A"), "", "two shards of task 't1' are named 'A'"),
    "task too large": (
        put("jobs", 1, "tasks", 0, "memory_gb", 12),
        "",
        "task 't3' needs 12 GB; the largest GPU has 10 GB",
    ),
    "no GPUs": (put("nodes", [{"name": "a", "rack": "r", "gpus": []}]), "", "the cluster has no GPU"),
    "no nodes": (put("nodes", []), "", "the cluster has no GPU"),
    "no jobs": (put("jobs", []), "", "there are no jobs"),
    "job without tasks": (put("jobs", 1, "tasks", []), "", "job 'J2' has no tasks"),
    "runs on unknown GPU": (put(*T1, "running", "gpu", "z0"), "", "task 't1' runs on GPU 'z0', which does not exist"),
    "GPU used twice": (
        put("jobs", 0, "tasks", 1, "running", {"gpu": "c0"}),
        "",
        "GPU 'c0' runs two tasks, 't1' and 't2'",
    ),
    "runs on a GPU too small": (
        put(*T1, "running", "gpu", "a1"),
        "",
        "task 't1' needs 9 GB but runs on GPU 'a1', which has 8 GB",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_document_is_refused_with_its_message(case):
    change, place, reason = BAD[case]
    wrong = copy.deepcopy(document())
    change(wrong)
    with pytest.raises(InstanceError) as caught:
        instance_from_document(wrong)
    message = str(caught.value)
    assert place in message
    assert reason in message
    assert "\n" not in message
