"""Generators: the published sizes, determinism, parameters checked; and the library they fill."""

import gzip
from collections import Counter

import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.sparse.csgraph import maximum_flow

from flowlex.instances import InstanceError, all_generators, generate, read_instance, write_instance
from flowlex.instances.generators.gpu import paper_jobs
from flowlex.instances.library import RECIPES, library, write_library

#: The generators of this package, not those of systems.
OWN = tuple(name for name, each in all_generators().items() if "systems" not in each.function.__module__)
#: Parameters of generators whose defaults are large.
SMALL = {
    "flow-scale": {"machines": 50, "tasks": 120},
    "flow-cell": {"machines": 60},
    "gpu-scale": {"gpus": 50, "racks": 3, "jobs": 5, "tasks": 40, "shards": 2, "running": 0.5, "mixed_memory": True},
    "jit-cluster": {"jobs": 2, "machines": 10, "mix": "LeNet", "copies": 5},
    "network-random": {"unbounded": 0.1},
    "network-assignment": {"machines": 30, "tasks": 50},
    "network-netgen": {"nodes": 60, "arcs": 200, "sources": 5, "sinks": 6, "supply": 300},
    "pods-scale": {"nodes": 9, "pods": 40, "running": 0.5},
}


@pytest.mark.parametrize("name", OWN)
def test_same_seed_same_bytes_other_seed_other_instance(name, tmp_path):
    made, more = generate(name, seed=7, **SMALL.get(name, {})), SMALL.get(name, {})
    assert generate(name, seed=7, **more).model_dump_json() == made.model_dump_json()
    assert generate(name, seed=8, **more).model_dump_json() != made.model_dump_json() or name in UNSEEDED
    assert all_generators()[name].title.endswith((".", ")"))
    write_instance(made, tmp_path / "x.json.gz")
    assert read_instance(tmp_path / "x.json.gz") == made


UNSEEDED = ("gpu-figure1", "jit-figure4")


def test_inputs_of_the_paper_jobs_sum_to_its_total():
    jobs = paper_jobs()
    assert [job.name for job in jobs] == [f"J{n}" for n in range(1, 38)]
    total_tb = sum(job.input_mb for job in jobs[:36]) / 1e6
    assert total_tb == pytest.approx(1.3, rel=0.05)
    assert [job.tasks for job in jobs if job.kind == "prime test"] == [4, 8, 10, 15, 20, 30, 40, 60]
    assert [job.input_mb for job in jobs if job.kind == "k-means"] == [2500.0, 4000.0, 5000.0]
    yolo = [job.input_mb for job in jobs if job.kind == "Yolo v3"]
    assert yolo == pytest.approx([yolo[0]] * 3)  # the same images in 5, 10 and 20 shards
    assert (jobs[36].tasks, jobs[36].input_mb) == (3, 84.0)


def test_figure1_is_the_papers():
    instance = generate("gpu-figure1")
    placed = {task.name: task.shards[0].replicas for task in instance.tasks}
    assert placed == {"task11": ("node1", "node2"), "task12": ("node2",), "task21": ("node2",)}
    assert {gpu.name: node.name for node in instance.nodes for gpu in node.gpus} == {"GPU1": "node1", "GPU2": "node2"}


def test_figure4_is_the_papers():
    instance = generate("gpu-figure4", seed=3, replicas=3)
    assert [(node.name, node.rack, len(node.gpus)) for node in instance.nodes] == [
        ("m1", "rack1", 2),
        ("m2", "rack1", 1),
        ("m3", "rack2", 1),
        ("m4", "rack2", 2),
    ]
    assert [len(job.tasks) for job in instance.jobs] == [4, 3, 2]
    assert {len(shard.replicas) for task in instance.tasks for shard in task.shards} == {3}


def test_testbed_has_the_papers_cluster_and_jobs():
    instance = generate("gpu-testbed", seed=4, active=36, replicas=2, running=0.5)
    view = instance.arrays
    assert list(Counter(node.rack for node in instance.nodes).values()) == [4, 4, 4, 3]
    assert {len(node.gpus) for node in instance.nodes} == {2}
    assert set(view.gpu_memory.tolist()) == {10.0}
    assert np.count_nonzero(view.task_running_gpu >= 0) == 15
    table = {job.name: job for job in paper_jobs()}
    assert len(instance.jobs) == 36
    for job in instance.jobs:
        assert len(job.tasks) == table[job.name].tasks
        read = sum(shard.size_mb for task in job.tasks for shard in task.shards)
        assert read == pytest.approx(table[job.name].input_mb)
    assert set(np.bincount(view.replica_shard).tolist()) == {2}


def test_testbed_takes_named_jobs_and_an_aggregation():
    instance = generate("gpu-testbed", jobs="J9, J1", aggregation="unlimited", running="0")
    assert [job.name for job in instance.jobs] == ["J9", "J1"]
    assert instance.between_racks_mb_per_s == instance.rack_mb_per_s == 125.0
    assert generate("gpu-testbed").between_racks_mb_per_s == 31.25


def test_scale_has_the_published_size():
    instance = generate("gpu-scale", seed=1)
    view = instance.arrays
    assert (view.gpu_node.size, len(instance.jobs), view.task_job.size) == (2000, 100, 4000)
    assert (len(view.rack_names), view.replica_shard.size) == (20, 12000)
    assert np.bincount(view.task_job).min() >= 1


def test_scale_takes_sizes_that_do_not_divide():
    instance = generate("gpu-scale", gpus=7, gpus_per_node=3, racks=2, jobs=2, tasks=2, replicas=2, shards=0)
    assert [len(node.gpus) for node in instance.nodes] == [3, 3, 1]
    assert instance.arrays.shard_task.size == 0


def test_random_networks_have_every_feature():
    total = Counter()
    for seed in range(5):
        network = generate("network-random", seed=seed, unbounded=0.1)
        total.update({key: value for key, value in network.summary().items() if "arcs" in key or key == "self-loops"})
        assert not [c for c, u in zip(network.cost, network.upper, strict=True) if c < 0 and u is None]
    assert min(total.values()) > 0
    plain = generate("network-random", negative=0, lower=0, parallel=0).summary()
    assert plain["arcs of negative cost"] == plain["arcs with a lower bound"] == plain["arcs without upper bound"] == 0


@pytest.mark.parametrize(("machines", "choices"), [(1, 1), (5, 5), (10, 3), (7, 0)])
def test_assignment_choices_are_different_machines(machines, choices):
    view = generate("network-assignment", machines=machines, tasks=20, choices=choices).arrays
    pairs = list(zip(view.tail[: 20 * choices].tolist(), view.head[: 20 * choices].tolist(), strict=True))
    assert len(set(pairs)) == 20 * choices


@pytest.mark.parametrize(
    ("name", "parameters", "reason"),
    [
        ("gpu-none", {}, "no generator is named 'gpu-none'; one of: "),
        ("gpu-tesbed", {}, "pods-scale; did you mean 'gpu-testbed'?"),
        ("gpu-testbed", {"seed": -1}, "the seed must not be negative"),
        ("gpu-testbed", {"actve": 3}, "gpu-testbed: no parameter 'actve'; it has: active, jobs"),
        ("gpu-testbed", {"active": "many"}, "active='many': must be an integer"),
        ("gpu-testbed", {"active": 38}, "active=38: 1 to 37 jobs can be active"),
        ("gpu-testbed", {"jobs": "J1,J38"}, "no job is named 'J38'; one of: J1, J2"),
        ("gpu-testbed", {"jobs": "J1,J1"}, "name each job once"),
        ("gpu-testbed", {"replicas": 16}, "the testbed holds 1 to 15 replicas"),
        ("gpu-testbed", {"running": 1.5}, "running=1.5: must be less than or equal to 1"),
        ("gpu-testbed", {"running": "nan"}, "running='nan': must be"),
        ("gpu-testbed", {"aggregation": "some"}, "must be 'limited' or 'unlimited'"),
        ("gpu-figure4", {"replicas": 5}, "replicas=5: must be less than or equal to 4"),
        ("gpu-scale", {"racks": 501}, "500 nodes fill 1 to 500 racks"),
        ("gpu-scale", {"tasks": 99}, "each job needs a task"),
        ("gpu-scale", {"replicas": 501}, "500 nodes hold 1 to 500 replicas"),
        ("gpu-random", {"jobs": 11}, "each job needs a task"),
        ("network-random", {"lower": 2}, "lower=2: must be less than or equal to 1"),
        ("network-assignment", {"choices": 10_001}, "each of 20000 tasks chooses among 10000 machines"),
        ("network-netgen", {"nodes": 100}, "nodes=100: 64 sources and 64 sinks need as many"),
        ("network-netgen", {"supply": 10}, "supply=10: every source and sink needs a unit"),
        ("network-netgen", {"arcs": 100}, "arcs=100: the chains alone need "),
        ("jit-cluster", {"mix": "VGG19"}, "no network is named 'VGG19'; one of: LeNet"),
        ("jit-cluster", {"gflops": 0.0}, "gflops=0.0: must be greater than 0"),
        ("jit-cluster", {"arrivals_per_s": float("inf")}, "arrivals_per_s=inf: must be a finite number"),
    ],
)
def test_wrong_parameters_are_refused(name, parameters, reason):
    with pytest.raises(InstanceError) as caught:
        generate(name, **parameters)
    assert reason in str(caught.value)


@pytest.mark.parametrize("name", OWN)
def test_sizes_below_one_are_refused(name):
    """What a generator makes by default, it takes in no negative number; nothing to place on is refused too."""
    for key, parameter in all_generators()[name].parameters.items():
        if type(parameter.default) is int and parameter.default > 0:
            with pytest.raises(InstanceError, match=key):
                generate(name, **{key: -1})
    for key in {"pods-scale": ["nodes"], "flow-scale": ["machines"], "flow-random": ["racks"]}.get(name, ()):
        with pytest.raises(InstanceError, match=f"{name}.*{key}=0: .*greater than or equal to 1"):
            generate(name, **{key: 0})


def test_library_files_are_what_their_generators_make_now(tmp_path):
    write_library(tmp_path)
    shipped = {path.name: path for path in library().values()}
    assert set(RECIPES) <= set(shipped)
    for name in RECIPES:
        made, kept = (tmp_path / name).read_bytes(), shipped[name].read_bytes()
        if name.endswith(".gz"):  # what compresses may differ, what it compresses may not
            made, kept = gzip.decompress(made), gzip.decompress(kept)
        assert made == kept, f"{name} is out of date; run write_library('instances/library')"


@pytest.mark.parametrize("seed", range(3))
def test_netgen_like_networks_have_the_sizes_asked_for_and_a_flow(seed):
    rng = np.random.default_rng(seed)
    sources, sinks, others = (int(n) for n in rng.integers(1, 12, 3))
    sizes = {"sources": sources, "sinks": sinks, "nodes": sources + sinks + others, "arcs": 300, "supply": 150}
    network = generate("network-netgen", seed=seed, **sizes)
    view = network.arrays
    assert (view.supply.size, view.tail.size) == (sizes["nodes"], 300)
    assert ((view.supply > 0).sum(), (view.supply < 0).sum(), view.supply.clip(0).sum()) == (sources, sinks, 150)
    assert (view.tail != view.head).all()
    # Feasibility by an independent method: maximum flow from a super source to a super sink.
    size = sizes["nodes"]
    nodes = np.arange(size)
    tails = np.concatenate([view.tail, np.full(size, size), nodes])
    heads = np.concatenate([view.head, nodes, np.full(size, size + 1)])
    room = np.concatenate([view.upper, view.supply.clip(0), (-view.supply).clip(0)]).astype(np.int32)
    graph = csr_array((room, (tails, heads)), shape=(size + 2, size + 2), dtype=np.int32)
    assert maximum_flow(graph, size, size + 1).flow_value == 150
