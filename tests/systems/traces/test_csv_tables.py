"""CSV files as instances."""

import pytest

from flowlex.instances import GpuInstance, InstanceError
from flowlex.systems.traces import read_csv_tables

NODES = "name,rack\na,r1\nb,r1\n"
GPUS = "node,name,memory_gb\na,a0,16\nb,b0,16\n"
TASKS = "job,name,memory_gb,running_gpu\ntrain,t1,8,\ntrain,t2,8,b0\n"
SHARDS = "task,name,size_mb,replicas\nt1,s,500,a;b\n"
FIELDS = {"disk_mb_per_s": "200", "rack_mb_per_s": "125", "between_racks_mb_per_s": "31.25"}


@pytest.fixture
def files(tmp_path):
    def write(**texts):
        paths = {name: tmp_path / f"{name}.csv" for name in texts}
        for name, text in texts.items():
            paths[name].write_text(text)
        return paths

    return write


def test_csv_files_are_the_instance_written_by_hand(files):
    paths = files(nodes=NODES, gpus=GPUS, tasks=TASKS, shards=SHARDS)
    read = read_csv_tables("gpu-assignment", paths, FIELDS)
    task = {"memory_gb": 8.0}
    shards = [{"name": "s", "size_mb": 500.0, "replicas": ["a", "b"]}]
    running = {"gpu": "b0"}
    by_hand = GpuInstance.model_validate(
        {
            "disk_mb_per_s": 200.0,
            "rack_mb_per_s": 125.0,
            "between_racks_mb_per_s": 31.25,
            "nodes": [{"name": n, "rack": "r1", "gpus": [{"name": f"{n}0", "memory_gb": 16.0}]} for n in "ab"],
            "jobs": [
                {
                    "name": "train",
                    "tasks": [{"name": "t1", **task, "shards": shards}, {"name": "t2", **task, "running": running}],
                }
            ],
        }
    )
    assert read == by_hand


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"gpus": GPUS.replace("b0,16", "b0,many")}, r"gpus\.csv: line 3, column memory_gb: 'many' is no number"),
        ({"gpus": GPUS.replace("b,b0", "c,b0")}, r"gpus\.csv: line 3: there is no node 'c'; every node needs a row"),
        (
            {"gpus": GPUS.replace("memory_gb", "memory")},
            r"gpus\.csv: line 2: unknown column 'memory'; known: node",
        ),
        ({"gpus": GPUS.replace("b,b0,16", "b,b0,-1")}, r"gpus\.csv: line 3, column memory_gb: .*greater than 0"),
        ({"gpus": GPUS.replace("a,a0,16", "a,a0")}, r"gpus\.csv: line 2: 2 cells where the header has 3 columns"),
        ({"gpus": GPUS.replace("a,a0,16", ",a0,16")}, r"line 2, column node: the row does not say its node"),
        ({"gpus": GPUS.replace("a,a0,16", "a,a0,")}, r"line 2, column memory_gb: 'memory_gb' is missing"),
        ({"gpus": "node,node\n"}, r"gpus\.csv: column 'node' is there twice"),
        (
            {"tasks": TASKS + "other,t1,8,\n"},
            r"shards\.csv: line 2: task 't1' is there 2 times; .* column 'job'",
        ),
        ({"tasks": TASKS.replace("b0", "nowhere")}, "nowhere"),
        ({"racks": "name\nr1\n"}, "there is no table 'racks'; the tables of this kind: instance, nodes, gpus"),
    ],
)
def test_what_is_wrong_is_said_with_file_line_and_column(files, changed, words):
    paths = files(**{"nodes": NODES, "gpus": GPUS, "tasks": TASKS, "shards": SHARDS} | changed)
    with pytest.raises(InstanceError, match=words):
        read_csv_tables("gpu-assignment", paths, FIELDS)


def test_a_plain_field_that_is_missing_is_named(files):
    with pytest.raises(InstanceError, match="disk_mb_per_s"):
        read_csv_tables("gpu-assignment", files(nodes=NODES, gpus=GPUS, tasks=TASKS))
