"""Generators of workloads over time: determinism, frames, and what each promises."""

import pytest

from flowlex.instances import all_generators, generate, read_instance, write_instance

#: Parameters of generators whose defaults are large.
SMALL = {"cluster-day": {"machines": 50, "tasks": 200}, "cluster-queue": {"tasks": 50}}
NAMES = sorted(name for name in all_generators() if name.startswith("cluster-"))


@pytest.mark.parametrize("name", NAMES)
def test_same_seed_same_bytes_other_seed_other_instance(name, tmp_path):
    made, more = generate(name, seed=7, **SMALL.get(name, {})), SMALL.get(name, {})
    assert generate(name, seed=7, **more).model_dump_json() == made.model_dump_json()
    assert generate(name, seed=8, **more).model_dump_json() != made.model_dump_json()
    write_instance(made, tmp_path / "x.json.gz")
    assert read_instance(tmp_path / "x.json.gz") == made
    assert type(made).from_frames(**made.to_frames()) == made


def _layouts(name: str, copies: str) -> list[list[set[tuple[str, ...]]]]:
    """For each job, and each file that its tasks read: the sets of nodes that hold a shard of it."""
    made = generate(name, seed=2, jobs="J1,J9", copies=copies)
    jobs = [[t.shards if name == "gpu-testbed" else t.reads for t in job.tasks] for job in made.jobs]
    read = [[shards for shards in tasks if shards and shards[0].replicas] for tasks in jobs]
    return [[{shard.replicas for shard in of} for of in zip(*tasks, strict=True)] for tasks in read]


@pytest.mark.parametrize("name", ["gpu-testbed", "cluster-testbed"])
def test_copies_are_of_files_so_all_tasks_of_a_job_find_a_file_on_the_same_nodes(name):
    by_file, by_shard = (sorted(_layouts(name, copies), key=len) for copies in ("file", "shard"))
    assert [[len(places) for places in job] for job in by_file] == [[1], [1, 1]]  # J9 reads one file, J1 reads A and B
    a, b = by_file[1]
    assert a != b and {len(nodes) for nodes in a | b} == {3}
    assert all(len(places) > 1 for job in by_shard for places in job)


def test_a_day_may_begin_with_jobs_under_way():
    plain, begun = (generate("cluster-day", seed=4, machines=200, tasks=900, begun=b) for b in (False, True))
    added = begun.jobs[len(plain.jobs) :]
    assert begun.jobs[: len(plain.jobs)] == plain.jobs and {job.arrival_s for job in added} == {0.0}
    tasks = [task for job in added for task in job.tasks]
    assert abs(len(tasks) - 0.8 * 600) <= 18  # the slots that are held on average, and the rest of the last job
    mean = [sum(t.compute_s for t in some) / len(some) for some in (tasks, list(plain.tasks))]
    assert mean[0] > 2 * mean[1]  # long tasks are met more often: the mean rest is half of exp(2.25) times the mean


def test_random_clusters_are_irregular():
    made = [generate("gpu-random", seed=seed) for seed in range(12)]
    nodes = [node for instance in made for node in instance.nodes]
    assert any(not node.gpus for node in nodes)
    assert any(len({gpu.memory_gb for gpu in node.gpus}) > 1 for node in nodes)
    tasks = [task for instance in made for task in instance.tasks]
    assert {len(task.shards) for task in tasks} == {0, 1, 2, 3}
    assert any(task.running for task in tasks)
    assert not all(task.running for task in tasks)
    largest = [instance.arrays.gpu_memory.min() < instance.arrays.task_memory.max() for instance in made]
    assert any(largest)  # some task does not fit some GPU
